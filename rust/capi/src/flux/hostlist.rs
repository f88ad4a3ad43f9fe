//! `flux/hostlist.h`: lists of hosts with a cursor.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use libc::{EINVAL, ENOENT, ERANGE};
use penstock_compat::{largest_range, parse_hostlist};
use penstock_hostlist::Hostlist;

use crate::call::{self, boxed, guarded, set_errno};

/// Hosts of one range of a text, as flux-core limits them.
const MAX_RANGE_HOSTS: u64 = 1 << 20;

/// A list and its cursor.
#[expect(non_camel_case_types, reason = "the name of C")]
pub struct hostlist {
    hosts: Hostlist,
    /// The position of the current host, and -1 before the first one.
    cursor: i64,
    /// The text of the current host, to which the caller has a pointer.
    current: CString,
}

/// A parsed host name, for searches in several lists.
#[expect(non_camel_case_types, reason = "the name of C")]
pub struct hostlist_hostname {
    name: String,
}

/// A value of `errno`.
type Errno = c_int;

/// Runs the body of a function; a failure goes to `errno`.
fn tried<T>(failed: T, body: impl FnOnce() -> Result<T, Errno>) -> T {
    match guarded(Err(EINVAL), body) {
        Ok(result) => result,
        Err(errno) => {
            set_errno(errno);
            failed
        }
    }
}

/// The list behind a pointer.
///
/// # Safety
///
/// `list` is null or comes from this library, was not destroyed, and is not used meanwhile.
unsafe fn write<'a>(list: *mut hostlist) -> Result<&'a mut hostlist, Errno> {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { list.as_mut() }.ok_or(EINVAL)
}

/// The text of a caller.
///
/// # Safety
///
/// `text` is null or points to a text that ends with a NUL.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Errno> {
    if text.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| EINVAL)
}

/// The hosts of a text.
fn decode(text: &str) -> Result<Hostlist, Errno> {
    let hosts = parse_hostlist(text).map_err(|_| EINVAL)?;
    if largest_range(text) > MAX_RANGE_HOSTS {
        return Err(ERANGE);
    }
    Ok(hosts)
}

fn count(hosts: usize) -> c_int {
    c_int::try_from(hosts).unwrap_or(c_int::MAX)
}

impl hostlist {
    fn of(hosts: Hostlist) -> Self {
        Self {
            hosts,
            cursor: 0,
            current: CString::default(),
        }
    }

    /// Moves the cursor, and returns the host there or null.
    fn move_to(&mut self, position: i64) -> *const c_char {
        let end = i64::try_from(self.hosts.len()).unwrap_or(i64::MAX);
        self.cursor = position.min(end);
        let host = usize::try_from(position).ok();
        match host.and_then(|position| self.hosts.get(position)) {
            // A host's name has no NUL.
            Some(host) => {
                self.current = CString::new(host).unwrap_or_default();
                self.current.as_ptr()
            }
            None => ptr::null(),
        }
    }

    fn find(&mut self, name: &str) -> Result<c_int, Errno> {
        let position = self.hosts.find(name).ok_or(ENOENT)?;
        self.move_to(i64::try_from(position).unwrap_or(i64::MAX));
        Ok(count(position))
    }
}

/// Creates an empty list.
#[unsafe(no_mangle)]
pub extern "C" fn hostlist_create() -> *mut hostlist {
    tried(ptr::null_mut(), || Ok(boxed(hostlist::of(Hostlist::new()))))
}

/// Frees a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_destroy(hl: *mut hostlist) {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires. `errno` is kept.
    unsafe {
        let errno = *libc::__errno_location();
        call::free(hl);
        set_errno(errno);
    }
}

/// Reads a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_decode(s: *const c_char) -> *mut hostlist {
    // SAFETY: the caller passes a text, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), || {
            Ok(boxed(hostlist::of(decode(text(s)?)?)))
        })
    }
}

/// Formats a list. The text is freed by `free(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_encode(hl: *mut hostlist) -> *mut c_char {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), || {
            Ok(call::c_text(&write(hl)?.hosts.to_string()))
        })
    }
}

/// Copies a list; the cursor of the copy is at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_copy(hl: *const hostlist) -> *mut hostlist {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), || {
            let hosts = hl.as_ref().map(|list| list.hosts.clone());
            Ok(boxed(hostlist::of(hosts.ok_or(EINVAL)?)))
        })
    }
}

/// Appends the hosts of a text. Returns their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_append(hl: *mut hostlist, hosts: *const c_char) -> c_int {
    // SAFETY: the caller passes a list and a text, valid as the crate's `# Safety` requires.
    unsafe {
        tried(-1, || {
            let list = write(hl)?;
            if hosts.is_null() {
                return Ok(0);
            }
            let hosts = decode(text(hosts)?)?;
            list.hosts.append(&hosts).map_err(|_| ERANGE)?;
            Ok(count(hosts.len()))
        })
    }
}

/// Appends the hosts of another list. Returns their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_append_list(hl1: *mut hostlist, hl2: *mut hostlist) -> c_int {
    // SAFETY: the caller passes valid lists; the second one is copied first, since it may be the same.
    unsafe {
        tried(-1, || {
            let hosts = write(hl2)?.hosts.clone();
            write(hl1)?.hosts.append(&hosts).map_err(|_| ERANGE)?;
            Ok(count(hosts.len()))
        })
    }
}

/// The host at a position, where the cursor moves to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_nth(hl: *mut hostlist, n: c_int) -> *const c_char {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null(), || {
            let list = write(hl)?;
            let position = usize::try_from(n).map_err(|_| EINVAL)?;
            if position >= list.hosts.len() {
                return Err(ENOENT);
            }
            Ok(list.move_to(n.into()))
        })
    }
}

/// The position of the first host with a name, where the cursor moves to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_find(hl: *mut hostlist, hostname: *const c_char) -> c_int {
    // SAFETY: the caller passes a list and a text, valid as the crate's `# Safety` requires.
    unsafe {
        tried(-1, || {
            let list = write(hl)?;
            list.find(text(hostname)?)
        })
    }
}

/// Parses a host name for searches in several lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_hostname_create(
    hostname: *const c_char,
) -> *mut hostlist_hostname {
    // SAFETY: the caller passes a text, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), || {
            let name = text(hostname)?;
            let hosts = name.parse::<Hostlist>().map_err(|_| EINVAL)?;
            if hosts.len() != 1 || name.contains(['[', ']', ',', ' ']) {
                return Err(EINVAL);
            }
            Ok(boxed(hostlist_hostname {
                name: name.to_owned(),
            }))
        })
    }
}

/// Frees a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_hostname_destroy(hn: *mut hostlist_hostname) {
    // SAFETY: the caller passes a name, valid as the crate's `# Safety` requires.
    unsafe { call::free(hn) };
}

/// The position of the first host with a name, where the cursor moves to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_find_hostname(
    hl: *mut hostlist,
    hn: *mut hostlist_hostname,
) -> c_int {
    // SAFETY: the caller passes a list and a name, valid as the crate's `# Safety` requires.
    unsafe {
        tried(-1, || {
            let list = write(hl)?;
            list.find(&hn.as_ref().ok_or(EINVAL)?.name)
        })
    }
}

/// Removes the hosts of a text. Returns the number of those that were in the list. The next host stays the next one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_delete(hl: *mut hostlist, hosts: *const c_char) -> c_int {
    // SAFETY: the caller passes a list and a text, valid as the crate's `# Safety` requires.
    unsafe {
        tried(-1, || {
            let list = write(hl)?;
            let hosts = decode(text(hosts)?)?;
            let next = usize::try_from(list.cursor + 1).unwrap_or(0);
            let next = next.min(list.hosts.len());
            let mut passed = list.hosts.slice(0..next);
            let removed_passed = i64::try_from(passed.delete(&hosts)).unwrap_or(i64::MAX);
            let removed = list.hosts.delete(&hosts);
            list.cursor -= removed_passed;
            Ok(count(removed))
        })
    }
}

/// The number of hosts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_count(hl: *mut hostlist) -> c_int {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe { guarded(0, || write(hl).map_or(0, |list| count(list.hosts.len()))) }
}

/// Sorts a list. The cursor moves to its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_sort(hl: *mut hostlist) {
    tried((), || {
        // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
        let list = unsafe { write(hl) }?;
        list.cursor = 0;
        list.hosts.sort().map_err(|_| ERANGE)
    });
}

/// Sorts a list and keeps one of equal hosts. The cursor moves to its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_uniq(hl: *mut hostlist) {
    tried((), || {
        // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
        let list = unsafe { write(hl) }?;
        list.cursor = 0;
        list.hosts.uniq();
        list.hosts.sort().map_err(|_| ERANGE)
    });
}

/// The first host, where the cursor moves to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_first(hl: *mut hostlist) -> *const c_char {
    // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
    unsafe { tried(ptr::null(), || Ok(write(hl)?.move_to(0))) }
}

/// The last host, where the cursor moves to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_last(hl: *mut hostlist) -> *const c_char {
    tried(ptr::null(), || {
        // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
        let list = unsafe { write(hl) }?;
        let end = i64::try_from(list.hosts.len()).unwrap_or(i64::MAX);
        Ok(list.move_to((end - 1).max(0)))
    })
}

/// The host behind the current one, where the cursor moves to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_next(hl: *mut hostlist) -> *const c_char {
    tried(ptr::null(), || {
        // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
        let list = unsafe { write(hl) }?;
        Ok(list.move_to(list.cursor + 1))
    })
}

/// The host at the cursor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_current(hl: *mut hostlist) -> *const c_char {
    tried(ptr::null(), || {
        // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
        let list = unsafe { write(hl) }?;
        Ok(list.move_to(list.cursor))
    })
}

/// Removes the host at the cursor. The next host stays the next one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hostlist_remove_current(hl: *mut hostlist) -> c_int {
    tried(-1, || {
        // SAFETY: the caller passes a list, valid as the crate's `# Safety` requires.
        let list = unsafe { write(hl) }?;
        let position = usize::try_from(list.cursor).ok();
        match position.and_then(|position| list.hosts.remove(position)) {
            Some(_) => {
                list.cursor -= 1;
                Ok(1)
            }
            None => Ok(0),
        }
    })
}
