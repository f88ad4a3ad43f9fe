//! Python ints as ids, without an error for a number out of range.
#![expect(unsafe_code, reason = "Python's functions take raw pointers")]

use penstock_idset::IdSet;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// An int as an id; none if it is out of range.
#[inline]
pub(super) fn id(number: &Bound<'_, PyInt>) -> Option<u32> {
    // SAFETY: the pointer is that of an int, and its thread is attached to the interpreter.
    let value = unsafe { ffi::PyLong_AsLongLong(number.as_ptr()) };
    if value < 0 {
        // Also for an int of more than 64 bits, with an error.
        // SAFETY: the thread is attached to the interpreter.
        unsafe { ffi::PyErr_Clear() };
    }
    u32::try_from(value).ok().filter(|&id| id <= IdSet::MAX_ID)
}
