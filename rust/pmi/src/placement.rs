//! The placement of the tasks of a program on nodes, in the two notations that programs read.

/// The nodes of the tasks of a program, in the order of the tasks' ranks.
///
/// ```
/// use penstock_pmi::Placement;
///
/// let block = Placement::new([0, 0, 1, 1]);
/// assert_eq!(block.process_mapping(), "(vector,(0,2,2))");
/// assert_eq!(block.taskmap(), "[[0,2,2,1]]");
/// let cyclic = Placement::new([0, 1, 0, 1]);
/// assert_eq!(cyclic.process_mapping(), "(vector,(0,2,1),(0,2,1))");
/// assert_eq!(cyclic.taskmap(), "[[0,2,1,2]]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    blocks: Vec<Block>,
}

/// Consecutive nodes with the same number of tasks each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    first_node: usize,
    nodes: usize,
    tasks_per_node: usize,
}

impl Placement {
    /// The placement of tasks: the number of each one's node.
    pub fn new(nodes: impl IntoIterator<Item = usize>) -> Self {
        let mut runs: Vec<Block> = Vec::new();
        for node in nodes {
            match runs.last_mut() {
                Some(run) if run.first_node == node => run.tasks_per_node += 1,
                _ => runs.push(Block {
                    first_node: node,
                    nodes: 1,
                    tasks_per_node: 1,
                }),
            }
        }
        let mut blocks: Vec<Block> = Vec::new();
        for run in runs {
            match blocks.last_mut() {
                Some(block)
                    if block.first_node + block.nodes == run.first_node
                        && block.tasks_per_node == run.tasks_per_node =>
                {
                    block.nodes += 1;
                }
                _ => blocks.push(run),
            }
        }
        Self { blocks }
    }

    /// The value of `PMI_process_mapping` (RFC 13).
    pub fn process_mapping(&self) -> String {
        let blocks = self.blocks.iter().map(|block| {
            let (first, nodes, tasks) = (block.first_node, block.nodes, block.tasks_per_node);
            format!(",({first},{nodes},{tasks})")
        });
        format!("(vector{})", blocks.collect::<String>())
    }

    /// The map of tasks of RFC 34, in which repeated blocks are one.
    pub fn taskmap(&self) -> String {
        let mut repeated: Vec<(Block, usize)> = Vec::new();
        for block in &self.blocks {
            match repeated.last_mut() {
                Some((last, count)) if last == block => *count += 1,
                _ => repeated.push((*block, 1)),
            }
        }
        let blocks = repeated.iter().map(|(block, count)| {
            let (first, nodes, tasks) = (block.first_node, block.nodes, block.tasks_per_node);
            format!("[{first},{nodes},{tasks},{count}]")
        });
        format!("[{}]", blocks.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Placement;

    /// The examples of RFC 13.
    #[test]
    fn placements_are_blocks_of_nodes() {
        let uneven = [0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
        let block = Placement::new(uneven);
        assert_eq!(block.process_mapping(), "(vector,(0,2,2),(2,2,4))");
        assert_eq!(block.taskmap(), "[[0,2,2,1],[2,2,4,1]]");
        let cyclic = Placement::new([0, 1, 2, 3, 0, 1, 2, 3, 2, 3, 2, 3]);
        let mapping = "(vector,(0,4,1),(0,4,1),(2,2,1),(2,2,1))";
        assert_eq!(cyclic.process_mapping(), mapping);
        assert_eq!(cyclic.taskmap(), "[[0,4,1,2],[2,2,1,2]]");
        let wide = (0..4096).flat_map(|node| [node; 256]);
        assert_eq!(
            Placement::new(wide).process_mapping(),
            "(vector,(0,4096,256))"
        );
        assert_eq!(Placement::default().process_mapping(), "(vector)");
    }
}
