//! Errors as Python exceptions: the classes of `penstock.errors`, imported when the first one is raised.
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The exception classes. `WireError::new_err(text)` makes one to be raised.
mod classes {
    pyo3::import_exception!(penstock.errors, EngineError);
    pyo3::import_exception!(penstock.errors, Error);
    pyo3::import_exception!(penstock.errors, HostlistError);
    pyo3::import_exception!(penstock.errors, IdsetError);
    pyo3::import_exception!(penstock.errors, JobspecError);
    pyo3::import_exception!(penstock.errors, NotFoundError);
    pyo3::import_exception!(penstock.errors, ResourceSetError);
    pyo3::import_exception!(penstock.errors, StoreError);
    pyo3::import_exception!(penstock.errors, TargetError);
    pyo3::import_exception!(penstock.errors, WireError);
    pyo3::import_exception!(penstock.errors, WorkloadError);
}

pub(crate) use classes::*;

/// Whether an exception is one that Penstock raises on purpose.
pub(crate) fn is_error(py: Python<'_>, raised: &PyErr) -> bool {
    raised.is_instance_of::<Error>(py)
}

/// Sets an attribute of an exception that is about to be raised.
pub(crate) fn with_attribute<'py>(
    py: Python<'py>,
    raised: PyErr,
    name: &str,
    value: impl IntoPyObject<'py>,
) -> PyErr {
    match raised.value(py).setattr(name, value) {
        Ok(()) => raised,
        Err(other) => other,
    }
}

/// The `IdsetError` of an error in a text; its attribute `offset` is the byte.
pub(crate) fn idset_error(py: Python<'_>, error: &penstock_idset::Error) -> PyErr {
    let raised = IdsetError::new_err(error.to_string());
    if error.is_in_text() {
        with_attribute(py, raised, "offset", error.offset())
    } else {
        raised
    }
}

/// The `HostlistError` of an error; its attribute `offset` is the byte, where the error is in a text.
pub(crate) fn hostlist_error(py: Python<'_>, error: &penstock_hostlist::Error) -> PyErr {
    let raised = HostlistError::new_err(error.to_string());
    if error.is_in_text() {
        with_attribute(py, raised, "offset", error.offset())
    } else {
        raised
    }
}

/// Warns of what was mended in a text, if anything was.
pub(crate) fn warn_mended(text: &Bound<'_, PyString>, mended: &[String]) -> PyResult<()> {
    if mended.is_empty() {
        return Ok(());
    }
    let py = text.py();
    let category = py.import("penstock.errors")?.getattr("MendedWarning")?;
    let shown: String = text.to_string_lossy().chars().take(64).collect();
    let message = format!("mended {shown:?}: {}", mended.join(", "));
    py.import("warnings")?
        .call_method1("warn", (message, category))?;
    Ok(())
}
