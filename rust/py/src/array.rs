//! Numbers as arrays that Python may read.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// A number that an array for Python may hold.
pub(crate) trait Cell: Copy {
    /// Its letter in Python's `struct`.
    const FORMAT: &'static str;
    type Bytes: AsRef<[u8]>;
    fn bytes(self) -> Self::Bytes;
}

macro_rules! cell {
    ($type:ty, $format:literal) => {
        impl Cell for $type {
            const FORMAT: &'static str = $format;
            type Bytes = [u8; size_of::<$type>()];
            fn bytes(self) -> Self::Bytes {
                self.to_ne_bytes()
            }
        }
    };
}

cell!(u8, "B");
cell!(u32, "I");
cell!(u64, "Q");
cell!(f64, "d");

impl Cell for bool {
    const FORMAT: &'static str = "?";
    type Bytes = [u8; 1];
    fn bytes(self) -> Self::Bytes {
        [u8::from(self)]
    }
}

/// An array that Python may read: a `memoryview`, which numpy takes as it is.
pub(crate) fn view<T: Cell>(
    py: Python<'_>,
    values: impl ExactSizeIterator<Item = T>,
) -> PyResult<Py<PyAny>> {
    let size = size_of::<T>();
    let bytes = PyBytes::new_with(py, values.len() * size, |bytes| {
        for (place, value) in bytes.chunks_exact_mut(size).zip(values) {
            place.copy_from_slice(value.bytes().as_ref());
        }
        Ok(())
    })?;
    let view = PyMemoryView::from(bytes.as_any())?;
    Ok(view.call_method1("cast", (T::FORMAT,))?.unbind())
}
