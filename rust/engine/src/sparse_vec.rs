//! `SparseVec`: items by number, of which most may have been removed.

/// The number of items in a chunk.
const CHUNK_ITEMS: usize = 16;

/// Some items with successive numbers.
#[derive(Clone, Debug)]
struct Chunk<T> {
    items: [Option<T>; CHUNK_ITEMS],
    /// The number of items that are there.
    count: usize,
}

/// Items by number. A removed item takes half a byte.
#[derive(Clone, Debug)]
pub(crate) struct SparseVec<T> {
    /// `None` if it has no item.
    chunks: Vec<Option<Box<Chunk<T>>>>,
}

impl<T> Default for SparseVec<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> SparseVec<T> {
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let number = number as usize;
        let chunk = self.chunks.get(number / CHUNK_ITEMS)?.as_ref()?;
        chunk.items[number % CHUNK_ITEMS].as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let number = number as usize;
        let chunk = self.chunks.get_mut(number / CHUNK_ITEMS)?.as_mut()?;
        chunk.items[number % CHUNK_ITEMS].as_mut()
    }

    /// An item, which is made if it is not there.
    #[inline]
    pub fn get_or_set_with(&mut self, number: u32, make: impl FnOnce() -> T) -> &mut T {
        let number = number as usize;
        let at = number / CHUNK_ITEMS;
        if at >= self.chunks.len() {
            self.chunks.resize_with(at + 1, || None);
        }
        let chunk = self.chunks[at].get_or_insert_with(|| {
            Box::new(Chunk {
                items: [const { None }; CHUNK_ITEMS],
                count: 0,
            })
        });
        let item = &mut chunk.items[number % CHUNK_ITEMS];
        chunk.count += usize::from(item.is_none());
        item.get_or_insert_with(make)
    }

    /// Sets an item.
    pub fn set(&mut self, number: u32, item: T) {
        self.remove(number);
        self.get_or_set_with(number, || item);
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        let number = number as usize;
        let slot = self.chunks.get_mut(number / CHUNK_ITEMS)?;
        let chunk = slot.as_mut()?;
        let removed = chunk.items[number % CHUNK_ITEMS].take()?;
        chunk.count -= 1;
        if chunk.count == 0 {
            *slot = None;
        }
        Some(removed)
    }

    pub fn clear(&mut self) {
        self.chunks.clear();
    }

    /// Removes the items for which a condition does not hold.
    pub fn retain(&mut self, mut keeps: impl FnMut(u32, &T) -> bool) {
        let removed: Vec<u32> = self
            .iter_mut()
            .filter_map(|(number, item)| (!keeps(number, item)).then_some(number))
            .collect();
        for number in removed {
            self.remove(number);
        }
    }

    /// The items, with their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let chunks = self.chunks.iter_mut().enumerate();
        chunks.flat_map(|(at, chunk)| {
            let items = chunk.iter_mut().flat_map(|chunk| &mut chunk.items);
            let first = at * CHUNK_ITEMS;
            items.enumerate().filter_map(move |(place, item)| {
                let number = u32::try_from(first + place).ok()?;
                Some((number, item.as_mut()?))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::SparseVec;

    #[test]
    fn it_is_a_map_and_keeps_no_chunk_without_items() {
        let (mut items, mut model) = (SparseVec::default(), BTreeMap::new());
        let mut seed = 7_u64;
        for step in 0..4000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = u32::try_from(seed >> 40).unwrap() % 500;
            if (seed >> 33).is_multiple_of(4) {
                assert_eq!(items.remove(number), model.remove(&number));
            } else {
                items.set(number, step);
                model.insert(number, step);
            }
            assert_eq!(items.get(number), model.get(&number));
        }
        let found: Vec<_> = items
            .iter_mut()
            .map(|(number, item)| (number, *item))
            .collect();
        assert!(found.into_iter().eq(model.clone()));
        for (number, item) in model {
            *items.get_mut(number).unwrap() += 1;
            assert_eq!(items.remove(number), Some(item + 1));
            assert_eq!(items.remove(number), None);
        }
        assert!(items.chunks.iter().all(Option::is_none));
        items.set(3, 1);
        items.clear();
        assert_eq!(items.get(3), None);
    }
}
