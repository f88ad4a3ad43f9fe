//! `in`, without pyo3's way into Rust for an int: that takes more time than the answer.
#![expect(unsafe_code, reason = "Python's functions take raw pointers")]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyTypeError;
use pyo3::impl_::trampoline;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use pyo3::{Borrowed, PyClass, ffi};

use super::classes::Ids;
use super::{integer, operand};

/// Adds the function to a class, as the macro `pymethods` adds others.
macro_rules! slot {
    ($class:ident) => {
        pyo3::inventory::submit! {
            type Inventory = <$class as pyo3::impl_::pyclass::PyClassImpl>::Inventory;
            Inventory::new(pyo3::impl_::pyclass::PyClassItems {
                methods: &[],
                slots: &[pyo3::ffi::PyType_Slot {
                    slot: pyo3::ffi::Py_sq_contains,
                    pfunc: membership::contains::<$class> as pyo3::ffi::objobjproc as *mut _,
                }],
            })
        }
    };
}
pub(super) use slot;

/// Whether a set has a member: 1 or 0, or -1 with an exception.
///
/// # Safety
///
/// The thread is attached to the interpreter, `set` is an object of the class, and `member` an object.
pub(super) unsafe extern "C" fn contains<T>(
    set: *mut ffi::PyObject,
    member: *mut ffi::PyObject,
) -> c_int
where
    T: Ids + PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync,
{
    // SAFETY: as the caller promises. No reference is dropped, for which pyo3 would have to know that the thread is attached.
    let answer = unsafe {
        let py = Python::assume_attached();
        let set = Borrowed::from_ptr(py, set);
        let member = Borrowed::from_ptr(py, member);
        let set = set.cast_unchecked::<T>();
        member.cast_exact::<PyInt>().ok().and_then(|number| {
            let contains = || has(set.get(), &number);
            catch_unwind(AssertUnwindSafe(contains)).ok()
        })
    };
    match answer {
        Some(answer) => answer.into(),
        // Another type, or a panic: once more, with an exception.
        // SAFETY: as the caller promises.
        None => unsafe { trampoline::objobjproc::<Slow<T>>(set, member) },
    }
}

#[inline]
fn has<T: Ids>(set: &T, number: &Bound<'_, PyInt>) -> bool {
    integer::id(number).is_some_and(|id| set.with(number.py(), |set| set.contains(id)))
}

/// `contains` for any object.
struct Slow<T>(std::marker::PhantomData<T>);

impl<T> trampoline::MethodDef<trampoline::objobjproc::Func> for Slow<T>
where
    T: Ids + PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync,
{
    const METH: trampoline::objobjproc::Func = |py, set, member| {
        // SAFETY: the caller of `contains` promises it.
        let (set, member) =
            unsafe { (Borrowed::from_ptr(py, set), Borrowed::from_ptr(py, member)) };
        // SAFETY: the same.
        let set = unsafe { set.cast_unchecked::<T>() };
        if let Ok(number) = member.cast_exact::<PyInt>() {
            return Ok(has(set.get(), &number).into());
        }
        match operand::id(&member) {
            Ok(id) => {
                let found = id.is_some_and(|id| set.get().with(py, |set| set.contains(id)));
                Ok(found.into())
            }
            Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(0),
            Err(error) => Err(error),
        }
    };
}
