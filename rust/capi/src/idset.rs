//! Idsets (RFC 22).

use std::ffi::c_char;
use std::ptr;

use penstock_idset::IdSet;

use crate::call::{self, Error, Failure, boxed, guarded, reported};

/// The result of functions that find no id: greater than each id.
pub const PENSTOCK_NO_ID: u32 = u32::MAX;

/// A set of ids from 0 to 4294967294.
#[derive(Clone)]
pub struct Idset(pub(crate) IdSet);

/// The set behind a pointer; the empty set for null.
///
/// # Safety
///
/// `set` is null or comes from this library, was not freed, and is not changed meanwhile.
pub(crate) unsafe fn read<'a>(set: *const Idset) -> &'a IdSet {
    static EMPTY: IdSet = IdSet::new();
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { set.as_ref() }.map_or(&EMPTY, |set| &set.0)
}

/// The set behind a pointer, to be changed.
///
/// # Safety
///
/// `set` is null or comes from this library, was not freed, and is not used meanwhile.
unsafe fn write<'a>(set: *mut Idset) -> Option<&'a mut IdSet> {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { set.as_mut() }.map(|set| &mut set.0)
}

/// Combines two sets into a new one.
///
/// # Safety
///
/// As for [`read`].
unsafe fn combined(
    a: *const Idset,
    b: *const Idset,
    combine: impl FnOnce(&IdSet, &IdSet) -> IdSet,
) -> *mut Idset {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { guarded(ptr::null_mut(), || boxed(Idset(combine(read(a), read(b))))) }
}

/// Creates an empty set.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_idset_new() -> *mut Idset {
    guarded(ptr::null_mut(), || boxed(Idset(IdSet::new())))
}

/// Reads a set: `0-3,7`, with or without brackets. Returns NULL, with the error, for other texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_parse(
    text: *const c_char,
    len: usize,
    error: *mut Error,
) -> *mut Idset {
    // SAFETY: the caller passes a text and an error, valid as the crate's `# Safety` requires.
    unsafe {
        reported(error, ptr::null_mut(), || {
            Ok(boxed(Idset(call::text(text, len)?.parse::<IdSet>()?)))
        })
    }
}

/// Copies a set. The copy shares memory with the original until one of them is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_copy(set: *const Idset) -> *mut Idset {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { guarded(ptr::null_mut(), || boxed(Idset(read(set).clone()))) }
}

/// Frees a set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_free(set: *mut Idset) {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { call::free(set) };
}

/// Formats a set: ascending, with ranges (RFC 22). The text is freed by `free(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_text(set: *const Idset) -> *mut c_char {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { guarded(ptr::null_mut(), || call::c_text(&read(set).to_text())) }
}

/// The number of ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_count(set: *const Idset) -> u64 {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { guarded(0, || read(set).len()) }
}

/// Whether an id is in a set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_contains(set: *const Idset, id: u32) -> bool {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { guarded(false, || read(set).contains(id)) }
}

/// Adds the ids from `lo` to `hi`. Returns false, and adds none, if `hi` is below `lo` or is no id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_add(set: *mut Idset, lo: u32, hi: u32) -> bool {
    guarded(false, || {
        // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
        let Some(set) = (unsafe { write(set) }).filter(|_| lo <= hi && hi <= IdSet::MAX_ID) else {
            return false;
        };
        set.insert_range(lo..=hi);
        true
    })
}

/// Removes the ids from `lo` to `hi`, those that are in the set. Returns false, and removes none, if `hi` is below `lo`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_remove(set: *mut Idset, lo: u32, hi: u32) -> bool {
    guarded(false, || {
        // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
        let Some(set) = (unsafe { write(set) }).filter(|_| lo <= hi) else {
            return false;
        };
        set.remove_range(lo..=hi.min(IdSet::MAX_ID));
        true
    })
}

/// The lowest id, or `PENSTOCK_NO_ID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_first(set: *const Idset) -> u32 {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(PENSTOCK_NO_ID, || {
            read(set).first().unwrap_or(PENSTOCK_NO_ID)
        })
    }
}

/// The highest id, or `PENSTOCK_NO_ID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_last(set: *const Idset) -> u32 {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(PENSTOCK_NO_ID, || {
            read(set).last().unwrap_or(PENSTOCK_NO_ID)
        })
    }
}

/// The lowest id above `id`, or `PENSTOCK_NO_ID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_next(set: *const Idset, id: u32) -> u32 {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(PENSTOCK_NO_ID, || {
            read(set).next(id).unwrap_or(PENSTOCK_NO_ID)
        })
    }
}

/// The highest id below `id`, or `PENSTOCK_NO_ID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_prev(set: *const Idset, id: u32) -> u32 {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(PENSTOCK_NO_ID, || {
            read(set).prev(id).unwrap_or(PENSTOCK_NO_ID)
        })
    }
}

/// The id that has `n` ids below it, or `PENSTOCK_NO_ID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_nth(set: *const Idset, n: u64) -> u32 {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(PENSTOCK_NO_ID, || {
            read(set).nth(n).unwrap_or(PENSTOCK_NO_ID)
        })
    }
}

/// Removes the `n` lowest ids and returns them as a set. Returns NULL, and removes none, if there are fewer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_take_first(
    set: *mut Idset,
    n: u64,
    error: *mut Error,
) -> *mut Idset {
    // SAFETY: the caller passes a set and an error, valid as the crate's `# Safety` requires.
    unsafe {
        reported(error, ptr::null_mut(), || {
            let set = write(set).ok_or_else(|| Failure::new("expected a set, not NULL"))?;
            let taken = set.take_first(n).ok_or_else(|| {
                Failure::new(format!("{n} ids requested, {} are left", set.len()))
            })?;
            Ok(boxed(Idset(taken)))
        })
    }
}

/// Whether two sets have the same ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_equal(a: *const Idset, b: *const Idset) -> bool {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe { guarded(false, || read(a) == read(b)) }
}

/// Whether all ids of `a` are in `b`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_is_subset(a: *const Idset, b: *const Idset) -> bool {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe { guarded(false, || read(a).is_subset(read(b))) }
}

/// Whether an id is in both sets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_intersects(a: *const Idset, b: *const Idset) -> bool {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe { guarded(false, || read(a).intersects(read(b))) }
}

/// The ids of either set, as a new set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_union(a: *const Idset, b: *const Idset) -> *mut Idset {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe { combined(a, b, IdSet::union) }
}

/// The ids of both sets, as a new set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_intersection(
    a: *const Idset,
    b: *const Idset,
) -> *mut Idset {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe { combined(a, b, IdSet::intersection) }
}

/// The ids of `a` that are not in `b`, as a new set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_difference(a: *const Idset, b: *const Idset) -> *mut Idset {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe { combined(a, b, IdSet::difference) }
}

/// The ids of one set only, as a new set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_idset_symmetric_difference(
    a: *const Idset,
    b: *const Idset,
) -> *mut Idset {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe { combined(a, b, IdSet::symmetric_difference) }
}
