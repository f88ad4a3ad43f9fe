//! Contiguous selection: the nodes that span the fewest ranks.

use std::ops::ControlFlow;

use crate::node_table::index::Tree;

/// Number of fitting leaves that are examined, per requested unit and at least: a span beyond them
/// is not found.
const LEAVES_PER_UNIT: usize = 8;
const MIN_EXAMINED_LEAVES: usize = 64;

/// A leaf with its rank.
#[derive(Clone, Copy)]
struct RankedLeaf {
    leaf: u32,
    rank: u32,
}

/// A span of ranks: the difference of its last and its first one, and the leaf of the first.
#[derive(Clone, Copy)]
struct Span {
    length: u32,
    first: u32,
}

/// The first leaf of the smallest span of ranks with enough units; of equal spans the first.
///
/// `units` returns how many units a leaf provides, `rank` its rank. No span is shorter than
/// `shortest`.
pub(in super::super) fn smallest_span(
    tree: &Tree,
    min_number: u32,
    want: u32,
    shortest: u32,
    units: impl Fn(u32) -> u32,
    rank: impl Fn(u32) -> u32,
) -> Option<u32> {
    let most = MIN_EXAMINED_LEAVES.max((want as usize).saturating_mul(LEAVES_PER_UNIT));
    let units = |leaf: u32| u64::from(units(leaf));
    let want = u64::from(want);
    // Leaves from `front` on have just enough units, once there are enough.
    let mut found: Vec<RankedLeaf> = Vec::with_capacity(most.min(4096));
    let (mut front, mut sum) = (0, 0);
    let mut best: Option<Span> = None;
    tree.visit(tree.query(min_number, u32::MAX), |leaves| {
        for leaf in leaves {
            let leaf = *leaf;
            let rank = rank(leaf);
            found.push(RankedLeaf { leaf, rank });
            sum += units(leaf);
            if sum < want {
                continue;
            }
            while sum - units(found[front].leaf) >= want {
                sum -= units(found[front].leaf);
                front += 1;
            }
            let first = found[front];
            let length = rank - first.rank;
            if best.is_none_or(|best| length < best.length) {
                let first = first.leaf;
                best = Some(Span { length, first });
            }
            if length <= shortest || found.len() >= most {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    best.map(|best| best.first)
}

/// As [`smallest_span`], if each leaf is one unit.
pub(in super::super) fn smallest_row(
    tree: &Tree,
    min_number: u32,
    want: u32,
    shortest: u32,
    rank: impl Fn(u32) -> u32,
) -> Option<u32> {
    let want = want as usize;
    let most = MIN_EXAMINED_LEAVES.max(want.saturating_mul(LEAVES_PER_UNIT));
    let mut found: Vec<u32> = Vec::with_capacity(most.min(4096));
    let mut best: Option<Span> = None;
    let mut begin = 0;
    tree.visit(tree.query(min_number, u32::MAX), |leaves| {
        let room = most - found.len();
        found.extend_from_slice(&leaves[..leaves.len().min(room)]);
        let ends = found.get(begin + want - 1..).unwrap_or_default();
        for (first, last) in found[begin.min(found.len())..].iter().zip(ends) {
            let length = rank(*last) - rank(*first);
            if best.is_none_or(|best| length < best.length) {
                best = Some(Span {
                    length,
                    first: *first,
                });
            }
        }
        begin += ends.len();
        if found.len() >= most || best.is_some_and(|best| best.length <= shortest) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    best.map(|best| best.first)
}

#[cfg(test)]
mod tests {
    use super::{Tree, smallest_row, smallest_span};

    /// Searches for 64 leaves in a row, if of the leaves before `row` every second one is taken.
    fn found(row: u32) -> Option<u32> {
        let free = |leaf: u32| u32::from(leaf.is_multiple_of(2) || leaf >= row);
        let tree = Tree::new((0..4000).map(free), 1);
        let row = smallest_row(&tree, 1, 64, 63, |leaf| leaf);
        assert_eq!(row, smallest_span(&tree, 1, 64, 63, |_| 1, |leaf| leaf));
        row
    }

    #[test]
    fn eight_nodes_are_examined_for_each_one_wanted() {
        // Among the 512 leaves examined are: all of the row; 62 of it; none of it.
        assert_eq!(found(896), Some(896));
        assert_eq!(found(900), Some(896));
        assert_eq!(found(1100), Some(0));
    }
}
