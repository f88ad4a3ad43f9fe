//! The memory allocator of the extension: mimalloc, asked for an alignment only where its blocks do not have it anyway.
//!
//! The crate `mimalloc` always asks for one. mimalloc then takes a block of the next larger class and a slower path for
//! every size that is no power of two: a bitmap of 8 KiB took 10 KiB.
#![allow(unsafe_code, reason = "a global allocator has no safe interface")]

mod bitmaps;
mod counted;

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;

pub use counted::{Allocations, Counted, allocations_of};

/// The alignment of every block that is at least as large.
const MAX_NATURAL_ALIGNMENT: usize = 16;

/// mimalloc.
#[derive(Clone, Copy, Debug)]
pub struct Malloc;

/// Returns free memory of this thread to the system.
///
/// mimalloc does so by itself for what was free for some time, but only when more is freed then.
pub fn return_memory() {
    bitmaps::free_all();
    // SAFETY: it changes no block that is in use.
    unsafe { mi::mi_collect(true) }
}

/// Whether any block of `size` bytes has the alignment.
#[inline]
const fn is_natural(size: usize, alignment: usize) -> bool {
    alignment <= MAX_NATURAL_ALIGNMENT && alignment <= size
}

/// Whether blocks of this layout are kept for the next bitmap. All of them have the alignment of any block.
#[inline]
const fn is_bitmap(layout: Layout) -> bool {
    layout.size() == bitmaps::BLOCK_BYTES && is_natural(layout.size(), layout.align())
}

// SAFETY: mimalloc's blocks are valid, disjoint, at least as large as asked for and, by `is_natural` or by the aligned
// functions, aligned; its functions do not unwind.
unsafe impl GlobalAlloc for Malloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, alignment) = (layout.size(), layout.align());
        if is_bitmap(layout)
            && let Some(block) = bitmaps::take()
        {
            return block;
        }
        // SAFETY: any size is valid, and the alignment of a layout is a power of two.
        unsafe {
            if is_natural(size, alignment) {
                mi::mi_malloc(size).cast()
            } else {
                mi::mi_malloc_aligned(size, alignment).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, alignment) = (layout.size(), layout.align());
        // SAFETY: as in `alloc`.
        unsafe {
            if is_natural(size, alignment) {
                mi::mi_zalloc(size).cast()
            } else {
                mi::mi_zalloc_aligned(size, alignment).cast()
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let alignment = layout.align();
        // SAFETY: `block` came from this allocator, as the caller promises; the rest as in `alloc`.
        unsafe {
            if is_natural(size, alignment) {
                mi::mi_realloc(block.cast(), size).cast()
            } else {
                mi::mi_realloc_aligned(block.cast(), size, alignment).cast()
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives the block up, and it is as large as the layout says.
        if is_bitmap(layout) && unsafe { bitmaps::keep(block) } {
            return;
        }
        // SAFETY: `block` came from this allocator, as the caller promises.
        unsafe { mi::mi_free(block.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_keep_their_content() {
        for alignment in (0..13).map(|power| 1 << power) {
            for size in (1..70).chain([96, 1000, 1025, 5000, 8192, 70_000]) {
                let layout = Layout::from_size_align(size, alignment).unwrap();
                let larger = Layout::from_size_align(3 * size, alignment).unwrap();
                // SAFETY: the layouts are not empty; each block is used within its size and freed once.
                unsafe {
                    let zeroed = Malloc.alloc_zeroed(layout);
                    assert!(is_aligned(zeroed, alignment));
                    assert!(
                        std::slice::from_raw_parts(zeroed, size)
                            .iter()
                            .all(|&byte| byte == 0)
                    );
                    let block = Malloc.alloc(layout);
                    assert!(is_aligned(block, alignment));
                    block.write_bytes(7, size);
                    let block = Malloc.realloc(block, layout, 3 * size);
                    assert!(is_aligned(block, alignment));
                    assert!(
                        std::slice::from_raw_parts(block, size)
                            .iter()
                            .all(|&byte| byte == 7)
                    );
                    Malloc.dealloc(block, larger);
                    Malloc.dealloc(zeroed, layout);
                }
            }
        }
    }

    #[test]
    fn a_block_is_no_larger_than_its_class() {
        let layout = Layout::from_size_align(8192, 8).unwrap();
        // SAFETY: the layout is not empty, and the block is freed once.
        unsafe {
            let block = Malloc.alloc(layout);
            assert_eq!(mi::mi_usable_size(block.cast()), 8192);
            Malloc.dealloc(block, layout);
        }
    }

    fn is_aligned(block: *mut u8, alignment: usize) -> bool {
        block.addr().is_multiple_of(alignment)
    }
}
