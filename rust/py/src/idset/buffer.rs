//! The buffer protocol, both ways: the ids as an array of uint32, and arrays of any integers as ids.
#![expect(unsafe_code, reason = "the buffer protocol is made of raw pointers")]
use std::ffi::{c_int, c_void};
use std::ptr;

use penstock_idset::IdSet;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::classes::invalid;
use crate::shared::type_name;

/// The memory of a view, freed when the view is released.
struct Exported {
    ids: Box<[u32]>,
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
}

/// Fills in a view of the ids, read-only.
///
/// # Safety
///
/// `view` is null or points to a buffer structure that may be written.
pub(super) unsafe fn fill(
    owner: Bound<'_, PyAny>,
    set: &IdSet,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no view to fill in"));
    }
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err(
            "ids are read-only here: change the set, not its buffer",
        ));
    }
    let len = usize::try_from(set.len())?;
    let mut ids = Vec::new();
    if ids.try_reserve_exact(len).is_err() {
        return Err(PyMemoryError::new_err(format!("no memory for {len} ids")));
    }
    ids.extend(set.iter());
    let ids: Box<[u32]> = ids.into_boxed_slice();
    let exported = Box::into_raw(Box::new(Exported {
        shape: [ffi::Py_ssize_t::try_from(ids.len())?],
        strides: [4],
        ids,
    }));
    // SAFETY: `exported` has just been made; `view` may be written, says the caller.
    unsafe {
        let wants = |flag: c_int| flags & flag == flag;
        (*view).obj = owner.into_ptr();
        (*view).buf = (*exported).ids.as_mut_ptr().cast::<c_void>();
        (*view).len = (*exported).shape[0] * 4;
        (*view).readonly = 1;
        (*view).itemsize = 4;
        (*view).format = if wants(ffi::PyBUF_FORMAT) {
            c"I".as_ptr().cast_mut()
        } else {
            ptr::null_mut()
        };
        (*view).ndim = 1;
        (*view).shape = if wants(ffi::PyBUF_ND) {
            (*exported).shape.as_mut_ptr()
        } else {
            ptr::null_mut()
        };
        (*view).strides = if wants(ffi::PyBUF_STRIDES) {
            (*exported).strides.as_mut_ptr()
        } else {
            ptr::null_mut()
        };
        (*view).suboffsets = ptr::null_mut();
        (*view).internal = exported.cast::<c_void>();
    }
    Ok(())
}

/// Frees the memory of a view.
///
/// # Safety
///
/// `view` was filled in by [`fill`] and is released once.
pub(super) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: `internal` is the box that `fill` has put there.
    drop(unsafe { Box::from_raw((*view).internal.cast::<Exported>()) });
}

/// The numbers of a buffer of one element type; none if it is of another.
fn numbers<T>(array: &Bound<'_, PyAny>) -> Option<PyResult<IdSet>>
where
    T: Element + TryInto<u32> + Copy + std::fmt::Display,
{
    let buffer = PyBuffer::<T>::get(array).ok()?;
    // Numbers in the other byte order are left to be taken out one by one, by whoever knows it.
    let foreign = matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!'));
    if buffer.dimensions() != 1 || foreign != cfg!(target_endian = "big") {
        return None;
    }
    Some(buffer.to_vec(array.py()).and_then(|numbers| {
        let ids = numbers.into_iter().map(|number| match number.try_into() {
            Ok(id) if id <= IdSet::MAX_ID => Ok(id),
            _ => Err(invalid(number)),
        });
        ids.collect()
    }))
}

/// The ids of an array of integers; none if the object is no such array.
pub(super) fn ids(array: &Bound<'_, PyAny>) -> Option<PyResult<IdSet>> {
    numbers::<i64>(array)
        .or_else(|| numbers::<u32>(array))
        .or_else(|| numbers::<i32>(array))
        .or_else(|| numbers::<u64>(array))
        .or_else(|| numbers::<u16>(array))
        .or_else(|| numbers::<i16>(array))
        .or_else(|| numbers::<u8>(array))
        .or_else(|| numbers::<i8>(array))
}

/// The ids of an array of integers.
pub(super) fn required(array: &Bound<'_, PyAny>) -> PyResult<IdSet> {
    ids(array).unwrap_or_else(|| {
        Err(PyTypeError::new_err(format!(
            "expected an array of integers in one dimension and this machine's byte order, not {}",
            type_name(array)
        )))
    })
}
