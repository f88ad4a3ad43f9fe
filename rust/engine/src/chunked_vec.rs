//! Vectors that are cheap to clone: a clone has the chunks that were [shared](ChunkedVec::share) in
//! common with the original until one of the two changes them. The other chunks are copied.

use std::fmt;
use std::ops::{Index, IndexMut};

use crate::copy_on_write::CopyOnWrite;

/// A vector in chunks of `BLOCK_ITEMS` items. The last chunk is filled up with defaults.
#[derive(Clone)]
pub(crate) struct ChunkedVec<T, const BLOCK_ITEMS: usize = 256> {
    chunks: Vec<CopyOnWrite<Box<[T]>>>,
    /// The chunks that are not shared.
    owned: Vec<usize>,
    len: usize,
}

impl<T: fmt::Debug, const BLOCK_ITEMS: usize> fmt::Debug for ChunkedVec<T, BLOCK_ITEMS> {
    /// Formats the items, shared or not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T, const BLOCK_ITEMS: usize> Default for ChunkedVec<T, BLOCK_ITEMS> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            owned: Vec::new(),
            len: 0,
        }
    }
}

impl<T, const BLOCK_ITEMS: usize> ChunkedVec<T, BLOCK_ITEMS> {
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks
            .get(index / BLOCK_ITEMS)?
            .get(index % BLOCK_ITEMS)
    }

    /// The items, without those of chunks that were [removed](Self::remove_chunk).
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.enumerate().map(|(_, item)| item)
    }

    /// The same, each with its index.
    pub fn enumerate(&self) -> impl Iterator<Item = (usize, &T)> {
        let starts = (0..).step_by(BLOCK_ITEMS);
        let items = starts.zip(&self.chunks);
        let items = items.flat_map(|(start, chunk)| (start..).zip(chunk.iter()));
        items.take_while(|(index, _)| *index < self.len)
    }

    /// The bytes of the chunks.
    pub fn bytes(&self) -> usize {
        let items: usize = self.chunks.iter().map(|chunk| chunk.len()).sum();
        items * size_of::<T>()
    }
}

impl<T: Clone + Default, const BLOCK_ITEMS: usize> ChunkedVec<T, BLOCK_ITEMS> {
    /// Makes clones share the present items from now on. The cost is proportional to the chunks
    /// changed since the last time.
    pub fn share(&mut self) {
        for at in self.owned.drain(..) {
            self.chunks[at].share();
        }
    }

    /// An item, to be changed; its chunk is copied first if a clone shares it.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        (index < self.len).then(|| &mut self[index])
    }

    #[cold]
    #[inline(never)]
    fn unshare(&mut self, at: usize) {
        self.chunks[at].unshare();
        self.owned.push(at);
    }

    /// All items, to be changed; shared chunks are copied first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let len = self.len;
        self.owned = (0..self.chunks.len()).collect();
        let items = self
            .chunks
            .iter_mut()
            .flat_map(|chunk| chunk.to_mut().iter_mut());
        items.take(len)
    }

    /// Removes the items of a chunk, and returns its memory; the indexes of the others do not change.
    pub fn remove_chunk(&mut self, at: usize) {
        self.replace_chunk(at, Box::default());
    }

    /// Gives a chunk that was removed items again.
    pub fn restore_chunk(&mut self, at: usize, item: impl Fn(usize) -> T) {
        let start = at * BLOCK_ITEMS;
        self.replace_chunk(at, (start..start + BLOCK_ITEMS).map(item).collect());
    }

    fn replace_chunk(&mut self, at: usize, items: Box<[T]>) {
        if !self.chunks[at].is_owned() {
            self.owned.push(at);
        }
        self.chunks[at] = CopyOnWrite::Owned(items);
    }

    #[inline]
    pub fn push(&mut self, item: T) {
        if self.len == self.chunks.len() * BLOCK_ITEMS {
            self.owned.push(self.chunks.len());
            let items = (0..BLOCK_ITEMS).map(|_| T::default()).collect();
            self.chunks.push(CopyOnWrite::Owned(items));
        }
        let last = self.len;
        self.len += 1;
        self[last] = item;
    }
}

impl<T, const BLOCK_ITEMS: usize> Index<usize> for ChunkedVec<T, BLOCK_ITEMS> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.chunks[index / BLOCK_ITEMS][index % BLOCK_ITEMS]
    }
}

impl<T: Clone + Default, const BLOCK_ITEMS: usize> IndexMut<usize> for ChunkedVec<T, BLOCK_ITEMS> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        let (at, offset) = (index / BLOCK_ITEMS, index % BLOCK_ITEMS);
        if !self.chunks[at].is_owned() {
            self.unshare(at);
        }
        match &mut self.chunks[at] {
            CopyOnWrite::Owned(items) => &mut items[offset],
            CopyOnWrite::Shared(_) => unreachable!("the chunk has just been unshared"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::ChunkedVec;
    use crate::copy_on_write::CopyOnWrite;

    const BLOCK_ITEMS: usize = 256;

    fn of(items: &[u32]) -> ChunkedVec<u32> {
        let mut chunks = ChunkedVec::default();
        for item in items {
            chunks.push(*item);
        }
        chunks
    }

    /// Which chunks two vectors share.
    fn shared(a: &ChunkedVec<u32>, b: &ChunkedVec<u32>) -> Vec<bool> {
        let both = a.chunks.iter().zip(&b.chunks);
        both.map(|pair| matches!(pair, (CopyOnWrite::Shared(a), CopyOnWrite::Shared(b)) if Arc::ptr_eq(a, b)))
            .collect()
    }

    #[test]
    fn a_clone_copies_only_the_chunks_that_change() {
        let items: Vec<u32> = (0..1000).collect();
        let mut original = of(&items);
        assert_eq!(shared(&original, &original.clone()), [false; 4]);
        original.share();
        let mut copy = original.clone();
        assert_eq!(shared(&original, &copy), [true; 4]);
        assert_eq!(std::mem::replace(&mut copy[BLOCK_ITEMS], 7), 256);
        assert_eq!(shared(&original, &copy), [true, false, true, true]);
        assert!(original.iter().eq(&items));
        assert_eq!(
            (original.get(BLOCK_ITEMS), copy.get(BLOCK_ITEMS)),
            (Some(&256), Some(&7))
        );
        copy.share();
        assert_eq!(shared(&copy, &copy.clone()), [true; 4]);
    }

    #[test]
    fn a_removed_chunk_has_no_memory_and_clones_keep_theirs() {
        let items: Vec<u32> = (0..1000).collect();
        let mut vector = of(&items);
        vector.share();
        let clone = vector.clone();
        let bytes = vector.bytes();
        vector.remove_chunk(1);
        assert_eq!(vector.bytes(), bytes - BLOCK_ITEMS * size_of::<u32>());
        assert_eq!(vector.get(BLOCK_ITEMS), None);
        let left: Vec<u32> = (0..256).chain(512..1000).collect();
        assert!(vector.iter().eq(&left) && clone.iter().eq(&items));
        let indexes = vector.enumerate().map(|(index, item)| (index, *item));
        assert!(indexes.eq(left.iter().map(|item| (*item as usize, *item))));
        vector.restore_chunk(1, |index| u32::try_from(2 * index).unwrap());
        assert_eq!(vector.get(300), Some(&600));
        assert_eq!((vector.iter().count(), vector.bytes()), (1000, bytes));
        vector.share();
        assert_eq!(shared(&vector, &vector.clone()), [true; 4]);
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector(
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
            chunks.iter_mut().for_each(|item| *item = item.wrapping_add(1));
            prop_assert!(chunks.iter().copied().eq(plain.iter().map(|item| item.wrapping_add(1))));
        }
    }
}
