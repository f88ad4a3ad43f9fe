//! An allocator that counts, for tests of how much memory something takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocations of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// The number of blocks, those that have moved or grown included.
    pub blocks: u64,
    /// The size of these blocks.
    pub bytes: u64,
}

thread_local! {
    static ALLOCATIONS: Cell<Allocations> = const {
        Cell::new(Allocations { blocks: 0, bytes: 0 })
    };
}

/// The system's allocator, with [`allocations_of`] about it.
#[derive(Clone, Copy, Debug)]
pub struct Counted;

/// Runs a function. Returns its result, and what it has allocated in this thread if [`Counted`] is the global allocator.
pub fn allocations_of<T>(run: impl FnOnce() -> T) -> (T, Allocations) {
    let before = ALLOCATIONS.get();
    let result = run();
    let after = ALLOCATIONS.get();
    let allocations = Allocations {
        blocks: after.blocks - before.blocks,
        bytes: after.bytes - before.bytes,
    };
    (result, allocations)
}

/// Counts a block. At the end of a thread there may be no count any longer.
fn count(size: usize) {
    let _ = ALLOCATIONS.try_with(|allocations| {
        let Allocations { blocks, bytes } = allocations.get();
        allocations.set(Allocations {
            blocks: blocks + 1,
            bytes: bytes + size as u64,
        });
    });
}

// SAFETY: all blocks are those of the system's allocator. The count allocates nothing: it is constant at first, and nothing
// is to be dropped.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promise; the block came from the system's allocator.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}
