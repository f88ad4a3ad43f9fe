//! A vector that is cheap to clone: the clone shares its items, a chunk at a time, until one of
//! the two changes them.

use std::sync::Arc;

/// Items of a chunk.
const WIDE: usize = 256;

/// A vector in chunks. The last chunk is filled up with defaults.
#[derive(Clone, Debug)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Arc<[T]>>,
    len: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Chunks<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / WIDE)?.get(index % WIDE)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let items = self.chunks.iter().flat_map(|chunk| chunk.iter());
        items.take(self.len)
    }

    /// Bytes of the chunks.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * WIDE * size_of::<T>()
    }
}

impl<T: Clone + Default> Chunks<T> {
    #[inline]
    pub fn push(&mut self, item: T) {
        if self.len == self.chunks.len() * WIDE {
            self.chunks.push((0..WIDE).map(|_| T::default()).collect());
        }
        self.len += 1;
        if let Some(last) = self.get_mut(self.len - 1) {
            *last = item;
        }
    }

    /// An item that is to be changed: its chunk is copied if it is shared.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(index / WIDE)?;
        Arc::make_mut(chunk).get_mut(index % WIDE)
    }

    /// All items, to be changed: what is shared is copied.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let chunks = self.chunks.iter_mut();
        let items = chunks.flat_map(|chunk| Arc::make_mut(chunk).iter_mut());
        items.take(self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::{Chunks, WIDE};

    fn of(items: &[u32]) -> Chunks<u32> {
        let mut chunks = Chunks::default();
        for item in items {
            chunks.push(*item);
        }
        chunks
    }

    #[test]
    fn a_clone_copies_what_is_changed_and_nothing_else() {
        let items: Vec<u32> = (0..1000).collect();
        let original = of(&items);
        let mut copy = original.clone();
        assert_eq!(
            copy.get_mut(WIDE).map(|it| std::mem::replace(it, 7)),
            Some(256)
        );
        let shared = original.chunks.iter().zip(&copy.chunks);
        let shared: Vec<bool> = shared.map(|(a, b)| Arc::ptr_eq(a, b)).collect();
        assert_eq!(shared, [true, false, true, true]);
        assert!(original.iter().eq(&items));
        assert_eq!((original.get(WIDE), copy.get(WIDE)), (Some(&256), Some(&7)));
    }

    proptest! {
        #[test]
        fn it_is_a_vector(
            items in proptest::collection::vec(any::<u32>(), 0..600),
            changes in proptest::collection::vec((0_usize..700, any::<u32>()), 0..20),
        ) {
            let (mut plain, mut chunks) = (items.clone(), of(&items));
            let before = chunks.clone();
            for (at, item) in changes {
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
