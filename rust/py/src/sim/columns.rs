//! Columns of numbers for Python.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Numbers as a `memoryview` of a format of the module `struct`.
pub(super) fn view<'py, const N: usize>(
    py: Python<'py>,
    format: &str,
    numbers: impl Iterator<Item = [u8; N]>,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = numbers.flatten().collect();
    let bytes = PyBytes::new(py, &bytes);
    PyMemoryView::from(bytes.as_any())?.call_method1("cast", (format,))
}
