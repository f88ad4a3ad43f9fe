//! A value that several threads may ask for, guarded by the GIL, or by a lock where Python has none.
#![cfg_attr(
    not(Py_GIL_DISABLED),
    expect(
        unsafe_code,
        reason = "the compiler does not know that the GIL is a lock"
    )
)]

use pyo3::Python;

#[cfg(Py_GIL_DISABLED)]
type Cell<T> = std::sync::Mutex<T>;
#[cfg(not(Py_GIL_DISABLED))]
type Cell<T> = std::cell::RefCell<T>;

/// The value. Work on it must be short: it holds up all that want it.
#[derive(Debug)]
pub(crate) struct Guarded<T>(Cell<T>);

// SAFETY: the value is reached by `with` alone, whose caller holds the GIL: one thread at a time. Work that gave the
// GIL away in between, or came back to the value, would panic in the `RefCell`.
#[cfg(not(Py_GIL_DISABLED))]
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// Works on the value. The work must not come back to it.
    #[cfg(not(Py_GIL_DISABLED))]
    pub(crate) fn with<R>(&self, _: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.0.borrow_mut())
    }

    /// Works on the value. The work must not come back to it.
    #[cfg(Py_GIL_DISABLED)]
    pub(crate) fn with<R>(&self, _: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // The value is changed in one step as a whole: another thread's panic leaves it sound.
        let guard = self.0.lock();
        work(&mut guard.unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
