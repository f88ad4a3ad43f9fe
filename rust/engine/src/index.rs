//! A tree of maxima over the nodes: finds the first node with enough free, without looking at
//! the others.

/// What a node has to give now; zero where it is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    /// Free cores.
    pub cores: u32,
    /// Free gpus.
    pub gpus: u32,
    /// All its cores where nothing of the node is in use, else 0.
    pub whole: u32,
}

impl Free {
    fn max(self, other: Self) -> Self {
        Self {
            cores: self.cores.max(other.cores),
            gpus: self.gpus.max(other.gpus),
            whole: self.whole.max(other.whole),
        }
    }

    /// Whether each amount is at least what is needed.
    pub fn covers(self, need: Self) -> bool {
        self.cores >= need.cores && self.gpus >= need.gpus && self.whole >= need.whole
    }
}

/// The tree: `tree[1]` is the root, the children of `i` are `2 i` and `2 i + 1`, the leaves are
/// the nodes in order, padded with zeroes to a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    tree: Vec<Free>,
    leaves: usize,
}

impl Index {
    /// A tree of `len` nodes with nothing free.
    pub fn new(len: usize) -> Self {
        let leaves = len.next_power_of_two();
        Self {
            tree: vec![Free::default(); 2 * leaves],
            leaves,
        }
    }

    /// Sets what a node has to give.
    pub fn set(&mut self, place: usize, free: Free) {
        let mut at = self.leaves + place;
        self.tree[at] = free;
        while at > 1 {
            at /= 2;
            let max = self.tree[2 * at].max(self.tree[2 * at + 1]);
            if self.tree[at] == max {
                return;
            }
            self.tree[at] = max;
        }
    }

    /// What a node has to give.
    pub fn get(&self, place: usize) -> Free {
        self.tree[self.leaves + place]
    }

    /// The first node from `start` on that covers `need`.
    pub fn find(&self, start: usize, need: Free) -> Option<usize> {
        if start >= self.leaves {
            return None;
        }
        let mut at = self.leaves + start;
        loop {
            if self.tree[at].covers(need) {
                if at >= self.leaves {
                    return Some(at - self.leaves);
                }
                at *= 2;
                continue;
            }
            // On to the next subtree to the right: up as long as this is a right child.
            while at % 2 == 1 {
                if at == 1 {
                    return None;
                }
                at /= 2;
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Free, Index};
    use proptest::prelude::*;

    fn free(cores: u32, gpus: u32, whole: u32) -> Free {
        Free { cores, gpus, whole }
    }

    proptest! {
        #[test]
        fn finds_what_a_scan_finds(
            nodes in proptest::collection::vec((0_u32..4, 0_u32..3, 0_u32..3), 1..40),
            changes in proptest::collection::vec((0_usize..40, 0_u32..4, 0_u32..3, 0_u32..3), 0..20),
            need in (0_u32..4, 0_u32..3, 0_u32..3),
        ) {
            let mut plain: Vec<Free> = nodes.iter().map(|it| free(it.0, it.1, it.2)).collect();
            let mut index = Index::new(plain.len());
            for (place, free) in plain.iter().enumerate() {
                index.set(place, *free);
            }
            for (place, cores, gpus, whole) in changes {
                let place = place % plain.len();
                plain[place] = free(cores, gpus, whole);
                index.set(place, plain[place]);
            }
            let need = free(need.0.max(1), need.1, need.2);
            for start in 0..=plain.len() {
                let scan = (start..plain.len()).find(|place| plain[*place].covers(need));
                prop_assert_eq!(index.find(start, need), scan);
            }
        }
    }
}
