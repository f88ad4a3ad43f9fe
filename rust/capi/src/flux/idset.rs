//! `flux/idset.h`: sets of ids of a universe, which has a size.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

use libc::{EEXIST, EINVAL, ERANGE, ssize_t};
use penstock_compat::parse_idset;
use penstock_idset::IdSet;

use crate::call::{self, boxed, copy_text, guarded, set_errno};

/// The universe grows if an id beyond it is set.
const AUTOGROW: c_int = 1;
/// The text of a set of several ids has brackets.
const BRACKETS: c_int = 2;
/// The text has ranges.
const RANGE: c_int = 4;
/// All ids of the universe are set at first, and those that it adds when it grows.
const INITFULL: c_int = 8;
/// Ids are not counted as the set changes. Counts are always kept here.
const COUNT_LAZY: c_int = 16;
/// Each allocation continues behind the last one.
const ALLOC_RR: c_int = 32;

const INVALID_ID: c_uint = c_uint::MAX - 1;
const MAX_UNIVERSE: usize = c_int::MAX as usize + 1;
const DEFAULT_UNIVERSE: usize = 1024;

/// An error for people.
#[repr(C)]
pub struct IdsetError {
    text: [c_char; 160],
}

/// A set and its universe.
#[expect(non_camel_case_types, reason = "the name of C")]
#[derive(Clone)]
pub struct idset {
    ids: IdSet,
    size: usize,
    flags: c_int,
    /// The id behind the last allocated one.
    next: c_uint,
}

/// A value of `errno`, and why.
struct Failure {
    errno: c_int,
    text: String,
}

fn failure(errno: c_int, text: impl Into<String>) -> Failure {
    Failure {
        errno,
        text: text.into(),
    }
}

impl From<penstock_idset::Error> for Failure {
    fn from(error: penstock_idset::Error) -> Self {
        failure(EINVAL, error.to_string())
    }
}

/// Runs the body of a function; a failure goes to `errno` and to `error`.
///
/// # Safety
///
/// `error` is null or points to an error.
unsafe fn tried<T>(
    error: *mut IdsetError,
    failed: T,
    body: impl FnOnce() -> Result<T, Failure>,
) -> T {
    match guarded(Err(failure(EINVAL, "internal error")), body) {
        Ok(result) => result,
        Err(Failure { errno, text }) => {
            // SAFETY: the caller guarantees it (`# Safety`).
            if let Some(error) = unsafe { error.as_mut() } {
                copy_text(&text, &mut error.text);
            }
            set_errno(errno);
            failed
        }
    }
}

/// The set behind a pointer.
///
/// # Safety
///
/// `set` is null or comes from this library, was not destroyed, and is not changed meanwhile.
unsafe fn read<'a>(set: *const idset) -> Result<&'a idset, Failure> {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { set.as_ref() }.ok_or_else(|| failure(EINVAL, "expected an idset, not NULL"))
}

/// The set behind a pointer, to be changed.
///
/// # Safety
///
/// `set` is null or comes from this library, was not destroyed, and is not used meanwhile.
unsafe fn write<'a>(set: *mut idset) -> Result<&'a mut idset, Failure> {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { set.as_mut() }.ok_or_else(|| failure(EINVAL, "expected an idset, not NULL"))
}

/// The text of a caller: `len` bytes, or up to the NUL.
///
/// # Safety
///
/// `text` is null or points to `len` bytes, or to a text that ends with a NUL.
unsafe fn text<'a>(text: *const c_char, len: ssize_t) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(failure(EINVAL, "expected a text, not NULL"));
    }
    let text = match usize::try_from(len) {
        // SAFETY: the caller guarantees it (`# Safety`).
        Ok(len) => unsafe { call::text(text, len) }.map_err(|error| failure(EINVAL, error.text))?,
        // SAFETY: the caller guarantees it (`# Safety`).
        Err(_) => unsafe { CStr::from_ptr(text) }
            .to_str()
            .map_err(|_| failure(EINVAL, "expected UTF-8"))?,
    };
    // A text of C ends at its NUL, whatever length is given.
    Ok(text.split('\0').next().unwrap_or(""))
}

/// The ids of a text. Ids beyond a universe are out of range rather than invalid.
fn decode(text: &str) -> Result<IdSet, Failure> {
    let ids = parse_idset(text)?;
    match ids.last() {
        Some(last) if !is_id(last) => Err(failure(EINVAL, format!("id {last} is no id"))),
        Some(last) if last as usize >= MAX_UNIVERSE => Err(failure(
            ERANGE,
            format!("expected ids below {MAX_UNIVERSE}, found {last}"),
        )),
        _ => Ok(ids),
    }
}

fn is_id(id: c_uint) -> bool {
    id < INVALID_ID
}

impl idset {
    fn new(size: usize, flags: c_int) -> Result<Self, Failure> {
        if flags & !(AUTOGROW | INITFULL | COUNT_LAZY | ALLOC_RR) != 0 {
            return Err(failure(EINVAL, format!("unknown flags in {flags:#x}")));
        }
        if size > MAX_UNIVERSE {
            return Err(failure(
                ERANGE,
                format!("expected a universe of at most {MAX_UNIVERSE} ids, not {size}"),
            ));
        }
        let mut set = Self {
            ids: IdSet::new(),
            size: 0,
            flags,
            next: 0,
        };
        set.resize(if size == 0 { DEFAULT_UNIVERSE } else { size });
        Ok(set)
    }

    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a universe has at most 2^31 ids"
    )]
    fn resize(&mut self, size: usize) {
        if self.has(INITFULL) && size > self.size {
            self.ids.insert_range(self.size as u32..=(size - 1) as u32);
        }
        self.size = size;
    }

    /// Grows the universe by doubling until it has an id.
    fn grow_to(&mut self, id: c_uint) -> Result<(), Failure> {
        let (id, mut size) = (id as usize, self.size);
        if id < size {
            return Ok(());
        }
        if !self.has(AUTOGROW) {
            return Err(failure(
                EINVAL,
                format!("id {id} is beyond the universe of {size}"),
            ));
        }
        if id >= MAX_UNIVERSE {
            return Err(failure(
                ERANGE,
                format!("id {id} is beyond the largest universe, {MAX_UNIVERSE}"),
            ));
        }
        while size <= id {
            size = (2 * size).min(MAX_UNIVERSE);
        }
        self.resize(size);
        Ok(())
    }

    fn set(&mut self, lo: c_uint, hi: c_uint) -> Result<(), Failure> {
        if !is_id(lo) || !is_id(hi) {
            return Err(failure(EINVAL, "invalid id"));
        }
        let (lo, hi) = (lo.min(hi), lo.max(hi));
        // Ids beyond a full universe are set already.
        if self.has(INITFULL) && self.has(AUTOGROW) {
            if (lo as usize) < self.size {
                let end = u32::try_from(self.size - 1).unwrap_or(hi);
                self.ids.insert_range(lo..=hi.min(end));
            }
            return Ok(());
        }
        self.grow_to(hi)?;
        self.ids.insert_range(lo..=hi);
        Ok(())
    }

    fn clear(&mut self, lo: c_uint, hi: c_uint) -> Result<(), Failure> {
        if !is_id(lo) || !is_id(hi) {
            return Err(failure(EINVAL, "invalid id"));
        }
        let (lo, hi) = (lo.min(hi), lo.max(hi));
        // Ids beyond the universe are clear already, unless it would be full.
        if self.has(INITFULL) && self.has(AUTOGROW) {
            self.grow_to(hi)?;
        }
        self.ids.remove_range(lo..=hi);
        Ok(())
    }

    fn alloc(&mut self) -> Result<c_uint, Failure> {
        if !self.has(INITFULL) {
            return Err(failure(EINVAL, "the set was not created full"));
        }
        let from = |set: &Self, from: c_uint| match from.checked_sub(1) {
            Some(before) => set.ids.next(before),
            None => set.ids.first(),
        };
        let mut id = if self.has(ALLOC_RR) {
            from(self, self.next).or_else(|| self.ids.first())
        } else {
            self.ids.first()
        };
        if id.is_none() {
            // The first id that the larger universe adds.
            let size = c_uint::try_from(self.size).unwrap_or(INVALID_ID);
            self.grow_to(size)?;
            id = self.ids.first();
        }
        let id = id.ok_or_else(|| failure(EINVAL, "no id is left"))?;
        self.ids.remove(id);
        self.next = id + 1;
        Ok(id)
    }

    fn free(&mut self, id: c_uint) -> Result<(), Failure> {
        if !self.has(INITFULL) {
            return Err(failure(EINVAL, "the set was not created full"));
        }
        if id as usize >= self.size {
            return Err(failure(EINVAL, format!("id {id} is beyond the universe")));
        }
        if !self.ids.insert(id) {
            return Err(failure(EEXIST, format!("id {id} is free")));
        }
        Ok(())
    }
}

/// Creates a set.
#[unsafe(no_mangle)]
pub extern "C" fn idset_create(size: usize, flags: c_int) -> *mut idset {
    // SAFETY: there is no error to write to.
    unsafe {
        tried(ptr::null_mut(), ptr::null_mut(), || {
            Ok(boxed(idset::new(size, flags)?))
        })
    }
}

/// Frees a set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_destroy(set: *mut idset) {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires. `errno` is kept.
    unsafe {
        let errno = *libc::__errno_location();
        call::free(set);
        set_errno(errno);
    }
}

/// The number of ids from 0 on that the set may have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_universe_size(set: *const idset) -> usize {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { guarded(0, || read(set).map_or(0, |set| set.size)) }
}

/// Copies a set, with its universe and flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_copy(set: *const idset) -> *mut idset {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), ptr::null_mut(), || {
            Ok(boxed(read(set)?.clone()))
        })
    }
}

/// Formats a set. The text is freed by `free(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_encode(set: *const idset, flags: c_int) -> *mut c_char {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), ptr::null_mut(), || {
            let ids = &read(set)?.ids;
            if flags & !(BRACKETS | RANGE) != 0 {
                return Err(failure(EINVAL, format!("unknown flags in {flags:#x}")));
            }
            let mut text = if flags & RANGE == 0 {
                let ids: Vec<_> = ids.iter().map(|id| id.to_string()).collect();
                ids.join(",")
            } else {
                ids.to_text()
            };
            if flags & BRACKETS != 0 && ids.len() > 1 {
                text = format!("[{text}]");
            }
            Ok(call::c_text(&text))
        })
    }
}

/// Reads a text into a set that grows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_decode(s: *const c_char) -> *mut idset {
    // SAFETY: the caller passes a text, valid as the crate's `# Safety` requires.
    unsafe { idset_decode_ex(s, -1, 0, AUTOGROW, ptr::null_mut()) }
}

/// Reads the first `len` bytes of a text into a set that grows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_ndecode(s: *const c_char, len: usize) -> *mut idset {
    let len = ssize_t::try_from(len).unwrap_or(ssize_t::MAX);
    // SAFETY: the caller passes a text, valid as the crate's `# Safety` requires.
    unsafe { idset_decode_ex(s, len, 0, AUTOGROW, ptr::null_mut()) }
}

/// Reads a text into a set with a universe: of the default size for 0, that fits for less.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_decode_ex(
    s: *const c_char,
    len: ssize_t,
    size: ssize_t,
    flags: c_int,
    error: *mut IdsetError,
) -> *mut idset {
    // SAFETY: the caller passes a text and an error, valid as the crate's `# Safety` requires.
    unsafe {
        tried(error, ptr::null_mut(), || {
            let ids = decode(text(s, len)?)?;
            let size = match (usize::try_from(size), ids.last()) {
                (Ok(size), _) => size,
                (Err(_), Some(last)) => last as usize + 1,
                (Err(_), None) if flags & AUTOGROW != 0 => 1,
                (Err(_), None) => return Err(failure(EINVAL, "expected at least one id")),
            };
            let mut set = idset::new(size, flags)?;
            if let Some(last) = ids.last() {
                set.grow_to(last)?;
            }
            set.ids.union_with(&ids);
            Ok(boxed(set))
        })
    }
}

/// Whether a text is that of the empty set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_decode_empty(s: *const c_char, len: ssize_t) -> bool {
    // SAFETY: the caller passes a text, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(false, || {
            text(s, len)
                .and_then(decode)
                .is_ok_and(|ids| ids.is_empty())
        })
    }
}

/// The number of ids of a text, and the highest one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_decode_info(
    s: *const c_char,
    len: ssize_t,
    count: *mut usize,
    maxid: *mut c_uint,
    error: *mut IdsetError,
) -> c_int {
    // SAFETY: the caller passes a text, places for the results and an error, valid as the crate's `# Safety` requires.
    unsafe {
        tried(error, -1, || {
            let ids = decode(text(s, len)?)?;
            if let Some(count) = count.as_mut() {
                *count = usize::try_from(ids.len()).unwrap_or(usize::MAX);
            }
            if let Some(maxid) = maxid.as_mut() {
                *maxid = ids.last().unwrap_or(INVALID_ID);
            }
            Ok(0)
        })
    }
}

/// Adds the ids of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_decode_add(
    set: *mut idset,
    s: *const c_char,
    len: ssize_t,
    error: *mut IdsetError,
) -> c_int {
    // SAFETY: the caller passes a set, a text and an error, valid as the crate's `# Safety` requires.
    unsafe {
        tried(error, -1, || {
            let (set, ids) = (write(set)?, decode(text(s, len)?)?);
            for range in ids.ranges() {
                set.set(*range.start(), *range.end())?;
            }
            Ok(0)
        })
    }
}

/// Removes the ids of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_decode_subtract(
    set: *mut idset,
    s: *const c_char,
    len: ssize_t,
    error: *mut IdsetError,
) -> c_int {
    // SAFETY: the caller passes a set, a text and an error, valid as the crate's `# Safety` requires.
    unsafe {
        tried(error, -1, || {
            let (set, ids) = (write(set)?, decode(text(s, len)?)?);
            for range in ids.ranges() {
                set.clear(*range.start(), *range.end())?;
            }
            Ok(0)
        })
    }
}

/// Adds an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_set(set: *mut idset, id: c_uint) -> c_int {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { idset_range_set(set, id, id) }
}

/// Adds the ids between two, which may be in either order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_range_set(set: *mut idset, lo: c_uint, hi: c_uint) -> c_int {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), -1, || {
            write(set)?.set(lo, hi)?;
            Ok(0)
        })
    }
}

/// Removes an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_clear(set: *mut idset, id: c_uint) -> c_int {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { idset_range_clear(set, id, id) }
}

/// Removes the ids between two, which may be in either order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_range_clear(set: *mut idset, lo: c_uint, hi: c_uint) -> c_int {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), -1, || {
            write(set)?.clear(lo, hi)?;
            Ok(0)
        })
    }
}

/// Whether an id is in a set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_test(set: *const idset, id: c_uint) -> bool {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { guarded(false, || read(set).is_ok_and(|set| set.ids.contains(id))) }
}

/// The argument of a search: an id, or the invalid one.
///
/// # Safety
///
/// As for [`read`].
unsafe fn found(set: *const idset, find: impl FnOnce(&idset) -> Option<c_uint>) -> c_uint {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe {
        guarded(INVALID_ID, || {
            let id = read(set).ok().and_then(find);
            id.unwrap_or(INVALID_ID)
        })
    }
}

/// The lowest id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_first(set: *const idset) -> c_uint {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { found(set, |set| set.ids.first()) }
}

/// The lowest id above another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_next(set: *const idset, id: c_uint) -> c_uint {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { found(set, |set| set.ids.next(id)) }
}

/// The highest id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_last(set: *const idset) -> c_uint {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { found(set, |set| set.ids.last()) }
}

/// The highest id below another, which has to be in the universe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_prev(set: *const idset, id: c_uint) -> c_uint {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        found(set, |set| {
            let before = ((id as usize) < set.size).then(|| set.ids.prev(id));
            before.flatten()
        })
    }
}

/// The number of ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_count(set: *const idset) -> usize {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(0, || {
            let count = read(set).map_or(0, |set| set.ids.len());
            usize::try_from(count).unwrap_or(usize::MAX)
        })
    }
}

/// Whether there is no id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_empty(set: *const idset) -> bool {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { guarded(true, || read(set).map_or(true, |set| set.ids.is_empty())) }
}

/// Whether two sets have the same ids; false if one is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_equal(a: *const idset, b: *const idset) -> bool {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(false, || match (read(a), read(b)) {
            (Ok(a), Ok(b)) => a.ids == b.ids,
            _ => false,
        })
    }
}

/// Whether an id is in both sets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_has_intersection(a: *const idset, b: *const idset) -> bool {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe {
        guarded(false, || match (read(a), read(b)) {
            (Ok(a), Ok(b)) => a.ids.intersects(&b.ids),
            _ => false,
        })
    }
}

/// The ids of either set; of the first one if the second is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_union(a: *const idset, b: *const idset) -> *mut idset {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), ptr::null_mut(), || {
            let mut result = read(a)?.clone();
            if let Some(b) = b.as_ref() {
                // The result has room for both, also if the first one does not grow.
                let flags = result.flags;
                result.flags |= AUTOGROW;
                add(&mut result, b)?;
                result.flags = flags;
            }
            Ok(boxed(result))
        })
    }
}

fn add(set: &mut idset, other: &idset) -> Result<(), Failure> {
    if let Some(last) = other.ids.last() {
        set.grow_to(last)?;
    }
    set.ids.union_with(&other.ids);
    Ok(())
}

/// Adds the ids of another set, if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_add(a: *mut idset, b: *const idset) -> c_int {
    // SAFETY: the caller passes valid sets, which may be the same one: then nothing changes.
    unsafe {
        tried(ptr::null_mut(), -1, || {
            if a.cast_const() != b {
                let set = write(a)?;
                if let Some(b) = b.as_ref() {
                    add(set, b)?;
                }
            }
            read(a)?;
            Ok(0)
        })
    }
}

/// The ids of the first set that are not in the second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_difference(a: *const idset, b: *const idset) -> *mut idset {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), ptr::null_mut(), || {
            let mut result = read(a)?.clone();
            if let Some(b) = b.as_ref() {
                result.ids.subtract(&b.ids);
            }
            Ok(boxed(result))
        })
    }
}

/// Removes the ids of another set, if there is one; all ids if it is the same one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_subtract(a: *mut idset, b: *const idset) -> c_int {
    // SAFETY: the caller passes valid sets; the other one is copied first, since it may be the same.
    unsafe {
        tried(ptr::null_mut(), -1, || {
            let ids = b.as_ref().map(|b| b.ids.clone());
            let set = write(a)?;
            if let Some(ids) = ids {
                set.ids.subtract(&ids);
            }
            Ok(0)
        })
    }
}

/// The ids of both sets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_intersect(a: *const idset, b: *const idset) -> *mut idset {
    // SAFETY: the caller passes sets, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), ptr::null_mut(), || {
            let (a, b) = (read(a)?, read(b)?);
            let mut result = a.clone();
            result.ids.intersect_with(&b.ids);
            Ok(boxed(result))
        })
    }
}

/// Takes an id from a set that was created full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_alloc(set: *mut idset, val: *mut c_uint) -> c_int {
    // SAFETY: the caller passes a set and a place, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), -1, || {
            let place = val.as_mut();
            let place = place.ok_or_else(|| failure(EINVAL, "expected a place, not NULL"))?;
            *place = write(set)?.alloc()?;
            Ok(0)
        })
    }
}

/// Returns an id to a set that was created full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_free(set: *mut idset, val: c_uint) {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe { idset_free_check(set, val) };
}

/// Returns an id to a set that was created full, unless it is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn idset_free_check(set: *mut idset, val: c_uint) -> c_int {
    // SAFETY: the caller passes a set, valid as the crate's `# Safety` requires.
    unsafe {
        tried(ptr::null_mut(), -1, || {
            write(set)?.free(val)?;
            Ok(0)
        })
    }
}
