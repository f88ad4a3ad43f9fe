//! Hostlists (RFC 29).

use std::ffi::c_char;
use std::ptr;

use crate::call::{self, Error, Failure, boxed, guarded, reported};

/// An ordered list of host names, which may repeat.
#[derive(Clone)]
pub struct Hostlist(pub(crate) penstock_hostlist::Hostlist);

type List = penstock_hostlist::Hostlist;

/// The list behind a pointer; the empty list for null.
///
/// # Safety
///
/// `list` is null or comes from this library, was not freed, and is not changed meanwhile.
pub(crate) unsafe fn read<'a>(list: *const Hostlist) -> &'a List {
    static EMPTY: List = List::new();
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { list.as_ref() }.map_or(&EMPTY, |list| &list.0)
}

/// The list behind a pointer, to be changed.
///
/// # Safety
///
/// `list` is null or comes from this library, was not freed, and is not used meanwhile.
unsafe fn write<'a>(list: *mut Hostlist) -> Result<&'a mut List, Failure> {
    // SAFETY: the caller guarantees it (`# Safety`).
    let list = unsafe { list.as_mut() }.map(|list| &mut list.0);
    list.ok_or_else(|| Failure::new("expected a list, not NULL"))
}

/// Creates an empty list.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_hostlist_new() -> *mut Hostlist {
    guarded(ptr::null_mut(), || boxed(Hostlist(List::new())))
}

/// Reads a list: `node[0-3],login`. Returns NULL, with the error, for other texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_parse(
    text: *const c_char,
    len: usize,
    error: *mut Error,
) -> *mut Hostlist {
    // SAFETY: the caller passes a text and an error, valid as the crate's `# Safety` requires.
    unsafe {
        reported(error, ptr::null_mut(), || {
            Ok(boxed(Hostlist(call::text(text, len)?.parse::<List>()?)))
        })
    }
}

/// Copies a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_copy(list: *const Hostlist) -> *mut Hostlist {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe { guarded(ptr::null_mut(), || boxed(Hostlist(read(list).clone()))) }
}

/// Frees a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_free(list: *mut Hostlist) {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe { call::free(list) };
}

/// Formats a list, folded, in its order (RFC 29). The text is freed by `free(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_text(list: *const Hostlist) -> *mut c_char {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe { guarded(ptr::null_mut(), || call::c_text(&read(list).to_string())) }
}

/// The number of hosts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_count(list: *const Hostlist) -> usize {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe { guarded(0, || read(list).len()) }
}

/// The host at a position, or NULL. The text is freed by `free(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_nth(list: *const Hostlist, n: usize) -> *mut c_char {
    guarded(ptr::null_mut(), || {
        // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
        let host = unsafe { read(list) }.get(n);
        host.map_or(ptr::null_mut(), |host| call::c_text(&host))
    })
}

/// The position of the first host with a name, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_find(
    list: *const Hostlist,
    name: *const c_char,
    len: usize,
) -> i64 {
    guarded(-1, || {
        // SAFETY: the caller passes a list and a text, valid as the crate's `# Safety` requires.
        let (list, Ok(name)) = (unsafe { (read(list), call::text(name, len)) }) else {
            return -1;
        };
        let position = list.find(name).and_then(|at| i64::try_from(at).ok());
        position.unwrap_or(-1)
    })
}

/// Appends the hosts of a text. Returns false, and appends none, if it is not a hostlist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_append(
    list: *mut Hostlist,
    text: *const c_char,
    len: usize,
    error: *mut Error,
) -> bool {
    // SAFETY: the caller passes a list, a text and an error, valid as the crate's `# Safety` requires.
    unsafe {
        reported(error, false, || {
            write(list)?.extend_from_str(call::text(text, len)?)?;
            Ok(true)
        })
    }
}

/// Removes the first occurrence of each host of a text from a list. Returns the number of removed hosts, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_remove(
    list: *mut Hostlist,
    text: *const c_char,
    len: usize,
    error: *mut Error,
) -> i64 {
    // SAFETY: the caller passes a list, a text and an error, valid as the crate's `# Safety` requires.
    unsafe {
        reported(error, -1, || {
            let hosts = call::text(text, len)?.parse::<List>()?;
            let removed = write(list)?.delete(&hosts);
            i64::try_from(removed).map_err(|_| Failure::new("too many hosts"))
        })
    }
}

/// Sorts a list: by the text before a number, then by the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_sort(list: *mut Hostlist, error: *mut Error) -> bool {
    // SAFETY: the caller passes a list and an error, valid as the crate's `# Safety` requires.
    unsafe {
        reported(error, false, || {
            write(list)?.sort()?;
            Ok(true)
        })
    }
}

/// Keeps the first one of equal hosts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_uniq(list: *mut Hostlist) {
    guarded((), || {
        // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
        if let Ok(list) = unsafe { write(list) } {
            list.uniq();
        }
    });
}

/// Whether two lists have the same hosts in the same order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_equal(a: *const Hostlist, b: *const Hostlist) -> bool {
    // SAFETY: the caller passes lists, valid as the crate's `# Safety` requires.
    unsafe { guarded(false, || read(a) == read(b)) }
}

/// The hosts of either list, each once, as a new list. Returns NULL, with the error, if it would be too long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_union(
    a: *const Hostlist,
    b: *const Hostlist,
    error: *mut Error,
) -> *mut Hostlist {
    // SAFETY: the caller passes lists and an error, valid as the crate's `# Safety` requires.
    unsafe {
        reported(error, ptr::null_mut(), || {
            Ok(boxed(Hostlist(read(a).union(read(b))?)))
        })
    }
}

/// The hosts of both lists, each once, as a new list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_intersection(
    a: *const Hostlist,
    b: *const Hostlist,
) -> *mut Hostlist {
    // SAFETY: the caller passes lists, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(ptr::null_mut(), || {
            boxed(Hostlist(read(a).intersection(read(b))))
        })
    }
}

/// The hosts of `a` that are not in `b`, each once, as a new list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_hostlist_difference(
    a: *const Hostlist,
    b: *const Hostlist,
) -> *mut Hostlist {
    // SAFETY: the caller passes lists, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(ptr::null_mut(), || {
            boxed(Hostlist(read(a).difference(read(b))))
        })
    }
}
