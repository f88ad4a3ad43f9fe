//! The parts that the exported functions share: pointers, texts, errors, panics.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Bytes of an error's text, with the NUL at its end.
pub const PENSTOCK_ERROR_BYTES: usize = 256;

/// The error of a function: a message, and the place in its input.
#[repr(C)]
pub struct Error {
    /// The byte of the input at which the fault is; 0 if it has no place in the input.
    pub offset: usize,
    /// The input, its fault and what was expected; cut to fit.
    pub text: [c_char; PENSTOCK_ERROR_BYTES],
}

/// The failure of an exported function.
pub(crate) struct Failure {
    pub(crate) offset: usize,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            offset: 0,
            text: text.into(),
        }
    }
}

impl From<penstock_idset::Error> for Failure {
    fn from(error: penstock_idset::Error) -> Self {
        Self {
            offset: error.offset(),
            text: error.to_string(),
        }
    }
}

impl From<penstock_hostlist::Error> for Failure {
    fn from(error: penstock_hostlist::Error) -> Self {
        Self {
            offset: error.offset(),
            text: error.to_string(),
        }
    }
}

impl From<penstock_rset::Error> for Failure {
    fn from(error: penstock_rset::Error) -> Self {
        Self {
            offset: error.offset().unwrap_or(0),
            text: error.to_string(),
        }
    }
}

/// Copies a text to a buffer of C, cut between two characters, with a NUL behind it.
pub(crate) fn copy_text(text: &str, buffer: &mut [c_char]) {
    let Some(most) = buffer.len().checked_sub(1) else {
        return;
    };
    let mut len = most.min(text.len());
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    for (place, byte) in buffer.iter_mut().zip(&text.as_bytes()[..len]) {
        *place = byte.cast_signed();
    }
    buffer[len] = 0;
}

/// Runs the body of a function; after a panic it returns `failed`.
pub(crate) fn guarded<T>(failed: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(failed)
}

/// Runs the body of a function that may fail, and reports the failure.
///
/// # Safety
///
/// `error` is null or points to an error that is not in use elsewhere.
pub(crate) unsafe fn reported<T>(
    error: *mut Error,
    failed: T,
    body: impl FnOnce() -> Result<T, Failure>,
) -> T {
    let result = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Failure::new("internal error: this is a bug in libpenstock")));
    match result {
        Ok(result) => result,
        Err(failure) => {
            // SAFETY: the caller guarantees it (`# Safety`).
            if let Some(error) = unsafe { error.as_mut() } {
                error.offset = failure.offset;
                copy_text(&failure.text, &mut error.text);
            }
            failed
        }
    }
}

/// The text of a caller.
///
/// # Safety
///
/// `text` is null or points to `len` bytes that live as long as they are used.
pub(crate) unsafe fn text<'a>(text: *const c_char, len: usize) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::new("expected a text, not NULL"));
    }
    // SAFETY: the caller guarantees it (`# Safety`).
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    std::str::from_utf8(bytes).map_err(|error| Failure {
        offset: error.valid_up_to(),
        text: format!("expected UTF-8 at byte {}", error.valid_up_to()),
    })
}

/// A copy of a text for `free(3)`, with a NUL at its end; null if there is no memory.
pub(crate) fn c_text(text: &str) -> *mut c_char {
    let Some(size) = text.len().checked_add(1) else {
        return ptr::null_mut();
    };
    // SAFETY: `malloc` may be called with any size.
    let copy = unsafe { libc::malloc(size) }.cast::<u8>();
    if !copy.is_null() {
        // SAFETY: `copy` has room for the text and a NUL, and is not part of it.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), copy, text.len());
            *copy.add(text.len()) = 0;
        }
    }
    copy.cast()
}

/// A new object of C.
pub(crate) fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Frees an object of C.
///
/// # Safety
///
/// `object` is null or comes from [`boxed`], and is not used again.
pub(crate) unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: the caller guarantees it (`# Safety`).
        guarded((), || drop(unsafe { Box::from_raw(object) }));
    }
}

/// Sets `errno`.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the place belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty_error() -> Error {
        Error {
            offset: 7,
            text: [1; PENSTOCK_ERROR_BYTES],
        }
    }

    fn text_of(error: &Error) -> String {
        let bytes = error.text.iter().take_while(|&&byte| byte != 0);
        let bytes: Vec<u8> = bytes.map(|byte| byte.cast_unsigned()).collect();
        String::from_utf8(bytes).expect("the text is cut between characters")
    }

    #[test]
    fn a_panic_is_a_failure() {
        let mut error = empty_error();
        assert_eq!(guarded(-1, || panic!("in a test")), -1);
        // SAFETY: the error is a variable of this function.
        let result = unsafe { reported(&raw mut error, -1, || panic!("in a test")) };
        assert_eq!(result, -1);
        assert_eq!(
            text_of(&error),
            "internal error: this is a bug in libpenstock"
        );
        assert_eq!(error.offset, 0);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for len in 250..270 {
            let mut error = empty_error();
            let text = "x".repeat(len) + "äöü";
            copy_text(&text, &mut error.text);
            let copied = text_of(&error);
            assert!(text.starts_with(&copied));
            assert!(copied.len() >= text.len().min(PENSTOCK_ERROR_BYTES - 2));
        }
        copy_text("no room", &mut []);
    }

    #[test]
    fn a_text_is_copied_with_a_nul() {
        let copy = c_text("ab");
        // SAFETY: the copy has two characters and a NUL.
        unsafe {
            assert_eq!(std::slice::from_raw_parts(copy.cast::<u8>(), 3), b"ab\0");
            libc::free(copy.cast());
        }
    }
}
