//! A vector that is cheap to clone: what has been [shared](Chunks::share), a chunk at a time, a clone
//! has in common with it until one of the two changes it. The rest is copied.

use std::fmt;
use std::ops::{Index, IndexMut};

use crate::part::Part;

/// A vector in chunks of so many items. The last chunk is filled up with defaults.
#[derive(Clone)]
pub(crate) struct Chunks<T, const WIDE: usize = 256> {
    list: Vec<Part<Box<[T]>>>,
    /// Chunks that are not shared.
    own: Vec<usize>,
    len: usize,
}

impl<T: fmt::Debug, const WIDE: usize> fmt::Debug for Chunks<T, WIDE> {
    /// The items, shared or not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T, const WIDE: usize> Default for Chunks<T, WIDE> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            own: Vec::new(),
            len: 0,
        }
    }
}

impl<T, const WIDE: usize> Chunks<T, WIDE> {
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.list.get(index / WIDE)?.get(index % WIDE)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let items = self.list.iter().flat_map(|chunk| chunk.iter());
        items.take(self.len)
    }

    /// Bytes of the chunks.
    pub fn bytes(&self) -> usize {
        self.list.len() * WIDE * size_of::<T>()
    }
}

impl<T: Clone + Default, const WIDE: usize> Chunks<T, WIDE> {
    /// From now on, clones share what there is now. Costs as many steps as chunks have changed since
    /// the last time.
    pub fn share(&mut self) {
        for at in self.own.drain(..) {
            self.list[at].share();
        }
    }

    /// An item that is to be changed: its chunk is copied if a clone has it, too.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        (index < self.len).then(|| &mut self[index])
    }

    #[cold]
    #[inline(never)]
    fn part(&mut self, at: usize) {
        self.list[at].part();
        self.own.push(at);
    }

    /// All items, to be changed: what clones have, too, is copied.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let len = self.len;
        self.own = (0..self.list.len()).collect();
        let items = self.list.iter_mut().flat_map(|it| it.own().iter_mut());
        items.take(len)
    }

    #[inline]
    pub fn push(&mut self, item: T) {
        if self.len == self.list.len() * WIDE {
            self.own.push(self.list.len());
            let items = (0..WIDE).map(|_| T::default()).collect();
            self.list.push(Part::Own(items));
        }
        let last = self.len;
        self.len += 1;
        self[last] = item;
    }
}

impl<T, const WIDE: usize> Index<usize> for Chunks<T, WIDE> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.list[index / WIDE][index % WIDE]
    }
}

impl<T: Clone + Default, const WIDE: usize> IndexMut<usize> for Chunks<T, WIDE> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        let (at, place) = (index / WIDE, index % WIDE);
        if !self.list[at].is_own() {
            self.part(at);
        }
        match &mut self.list[at] {
            Part::Own(items) => &mut items[place],
            Part::Shared(_) => unreachable!("it is its own now"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::Chunks;
    use crate::part::Part;

    const WIDE: usize = 256;

    fn of(items: &[u32]) -> Chunks<u32> {
        let mut chunks = Chunks::default();
        for item in items {
            chunks.push(*item);
        }
        chunks
    }

    /// Which chunks two have in common.
    fn shared(a: &Chunks<u32>, b: &Chunks<u32>) -> Vec<bool> {
        let both = a.list.iter().zip(&b.list);
        both.map(|it| matches!(it, (Part::Shared(a), Part::Shared(b)) if Arc::ptr_eq(a, b)))
            .collect()
    }

    #[test]
    fn a_clone_copies_what_is_changed_and_nothing_else() {
        let items: Vec<u32> = (0..1000).collect();
        let mut original = of(&items);
        assert_eq!(shared(&original, &original.clone()), [false; 4]);
        original.share();
        let mut copy = original.clone();
        assert_eq!(shared(&original, &copy), [true; 4]);
        assert_eq!(std::mem::replace(&mut copy[WIDE], 7), 256);
        assert_eq!(shared(&original, &copy), [true, false, true, true]);
        assert!(original.iter().eq(&items));
        assert_eq!((original.get(WIDE), copy.get(WIDE)), (Some(&256), Some(&7)));
        copy.share();
        assert_eq!(shared(&copy, &copy.clone()), [true; 4]);
    }

    proptest! {
        #[test]
        fn it_is_a_vector(
            items in proptest::collection::vec(any::<u32>(), 0..600),
            changes in proptest::collection::vec((0_usize..700, any::<u32>(), any::<bool>()), 0..20),
        ) {
            let (mut plain, mut chunks) = (items.clone(), of(&items));
            let before = chunks.clone();
            for (at, item, share) in changes {
                if share {
                    chunks.share();
                }
                if let (Some(known), Some(same)) = (plain.get_mut(at), chunks.get_mut(at)) {
                    prop_assert_eq!(*known, *same);
                    (*known, *same) = (item, item);
                } else {
                    prop_assert!(at >= plain.len());
                    plain.push(item);
                    chunks.push(item);
                }
            }
            prop_assert_eq!(chunks.len(), plain.len());
            prop_assert!(chunks.iter().eq(&plain));
            prop_assert!(before.iter().eq(&items));
            chunks.iter_mut().for_each(|it| *it = it.wrapping_add(1));
            prop_assert!(chunks.iter().copied().eq(plain.iter().map(|it| it.wrapping_add(1))));
        }
    }
}
