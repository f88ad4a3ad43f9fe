//! Free blocks for bitmaps of ids, as many as an operation on large sets makes, kept by the thread that freed them.
//!
//! mimalloc has eight such blocks in one of its pages. It gives a page up when all of them are free and sets up a new one soon
//! after: a quarter of the time of an operation on sets of ten million ids. Other blocks of this size are kept as well.

use std::cell::{Cell, UnsafeCell};

use libmimalloc_sys as mi;

/// Bytes of the bitmap of 65,536 ids.
pub(super) const BLOCK_BYTES: usize = 8192;
/// Two megabytes for each thread, the ids up to sixteen million.
const MAX_BLOCKS: usize = 256;

struct Blocks {
    blocks: UnsafeCell<[*mut u8; MAX_BLOCKS]>,
    len: Cell<usize>,
}

thread_local! {
    static BLOCKS: Blocks = const {
        Blocks {
            blocks: UnsafeCell::new([std::ptr::null_mut(); MAX_BLOCKS]),
            len: Cell::new(0),
        }
    };
}

impl Blocks {
    fn take(&self) -> Option<*mut u8> {
        let len = self.len.get().checked_sub(1)?;
        self.len.set(len);
        // SAFETY: only this thread has the array, and there is no other reference to it.
        let blocks = unsafe { &*self.blocks.get() };
        blocks.get(len).copied()
    }

    fn keep(&self, block: *mut u8) -> bool {
        let len = self.len.get();
        // SAFETY: as in `take`.
        let blocks = unsafe { &mut *self.blocks.get() };
        let Some(place) = blocks.get_mut(len) else {
            return false;
        };
        *place = block;
        self.len.set(len + 1);
        true
    }

    fn free_all(&self) {
        while let Some(block) = self.take() {
            // SAFETY: it came from mimalloc, and its owner has given it up.
            unsafe { mi::mi_free(block.cast()) }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.free_all();
    }
}

/// A block that this thread has kept.
pub(super) fn take() -> Option<*mut u8> {
    with(Blocks::take).flatten()
}

/// Keeps a block. Returns whether there was room for it.
///
/// # Safety
///
/// The block came from mimalloc, has the bytes of a bitmap, and is no longer used.
pub(super) unsafe fn keep(block: *mut u8) -> bool {
    with(|blocks| blocks.keep(block)).unwrap_or(false)
}

/// Frees all blocks that this thread has kept.
pub(super) fn free_all() {
    with(Blocks::free_all);
}

/// `None` when the thread is about to end and its blocks are freed.
fn with<R>(action: impl FnOnce(&Blocks) -> R) -> Option<R> {
    BLOCKS.try_with(action).ok()
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout};

    use super::*;
    use crate::Malloc;

    fn bitmap() -> Layout {
        Layout::from_size_align(BLOCK_BYTES, 8).unwrap()
    }

    fn kept() -> usize {
        with(|blocks| blocks.len.get()).unwrap()
    }

    /// Makes `count` blocks, and frees them.
    fn make_and_free(count: usize, layout: Layout) {
        // SAFETY: the layout is not empty, and each block is freed once.
        unsafe {
            let blocks: Vec<*mut u8> = (0..count).map(|_| Malloc.alloc(layout)).collect();
            for block in blocks {
                Malloc.dealloc(block, layout);
            }
        }
    }

    #[test]
    fn the_last_block_that_was_freed_is_the_next_one() {
        // SAFETY: the layout is not empty, and each block is freed once.
        unsafe {
            let first = Malloc.alloc(bitmap());
            let second = Malloc.alloc(bitmap());
            Malloc.dealloc(first, bitmap());
            Malloc.dealloc(second, bitmap());
            assert_eq!(kept(), 2);
            assert_eq!(Malloc.alloc(bitmap()), second);
            assert_eq!(Malloc.alloc(bitmap()), first);
            assert_eq!(kept(), 0);
            Malloc.dealloc(first, bitmap());
            Malloc.dealloc(second, bitmap());
        }
    }

    #[test]
    fn no_more_than_two_megabytes_are_kept_and_all_are_freed_on_request() {
        make_and_free(MAX_BLOCKS + 10, bitmap());
        assert_eq!(kept(), MAX_BLOCKS);
        crate::return_memory();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn other_blocks_are_not_kept() {
        for (size, alignment) in [
            (BLOCK_BYTES - 1, 8),
            (BLOCK_BYTES + 1, 8),
            (BLOCK_BYTES, 64),
        ] {
            make_and_free(3, Layout::from_size_align(size, alignment).unwrap());
        }
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_thread_may_free_the_blocks_of_another_and_end() {
        let addresses: Vec<usize> = (0..10)
            // SAFETY: the layout is not empty.
            .map(|_| unsafe { Malloc.alloc(bitmap()) }.expose_provenance())
            .collect();
        let thread = std::thread::spawn(move || {
            for address in addresses {
                // SAFETY: the block came from the allocator above, and is freed once.
                unsafe { Malloc.dealloc(std::ptr::with_exposed_provenance_mut(address), bitmap()) }
            }
            kept()
        });
        assert_eq!(thread.join().unwrap(), 10);
        assert_eq!(kept(), 0);
    }
}
