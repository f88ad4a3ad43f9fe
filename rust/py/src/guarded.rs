//! A value shared by threads, guarded by the GIL, or by a lock in free-threaded Python.
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

/// The value. Work on it must be short: other threads wait for its end.
#[derive(Debug)]
pub(crate) struct Guarded<T>(Cell<T>);

// SAFETY: only `with` accesses the value, and its caller holds the GIL: one thread at a time. Work that releases the
// GIL meanwhile, or accesses the value again, panics in the `RefCell`.
#[cfg(not(Py_GIL_DISABLED))]
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// Calls `work` with the value. `work` must not access the value through `self`.
    #[cfg(not(Py_GIL_DISABLED))]
    pub(crate) fn with<R>(&self, _: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.0.borrow_mut())
    }

    /// Calls `work` with the value. `work` must not access the value through `self`.
    #[cfg(Py_GIL_DISABLED)]
    pub(crate) fn with<R>(&self, _: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // The value is changed in one step as a whole: another thread's panic leaves it sound.
        let guard = self.0.lock();
        work(&mut guard.unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
