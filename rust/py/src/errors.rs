//! Errors as Python exceptions: the classes of `penstock.errors`, imported when the first one is raised.
use std::fmt;

use penstock_flux::errno;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::json::JsonError;

/// The exception classes. `WireError::new_err(text)` makes one to be raised.
mod classes {
    pyo3::import_exception!(penstock.errors, ConfigError);
    pyo3::import_exception!(penstock.errors, EngineError);
    pyo3::import_exception!(penstock.errors, Error);
    pyo3::import_exception!(penstock.errors, HostlistError);
    pyo3::import_exception!(penstock.errors, IdsetError);
    pyo3::import_exception!(penstock.errors, JobspecError);
    pyo3::import_exception!(penstock.errors, LayoutError);
    pyo3::import_exception!(penstock.errors, NotFoundError);
    pyo3::import_exception!(penstock.errors, RequestError);
    pyo3::import_exception!(penstock.errors, ResourceSetError);
    pyo3::import_exception!(penstock.errors, StoreError);
    pyo3::import_exception!(penstock.errors, TargetError);
    pyo3::import_exception!(penstock.errors, WireError);
    pyo3::import_exception!(penstock.errors, WorkloadError);
}

pub(crate) use classes::*;

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

/// An error of one of the Rust crates that has an exception in Python.
pub(crate) trait ToException {
    fn to_exception(&self, py: Python<'_>) -> PyErr;
}

/// The exception of an error, for `map_err`.
pub(crate) fn raised(error: impl ToException) -> PyErr {
    Python::attach(|py| error.to_exception(py))
}

/// The exception of an error in one of several inputs, whose text begins with the name of the input, for `map_err`.
pub(crate) fn raised_for<E: ToException>(input: impl fmt::Display) -> impl FnOnce(E) -> PyErr {
    move |error| Python::attach(|py| named(py, &input, error.to_exception(py)))
}

/// The exception with the name of its input before its text.
pub(crate) fn named(py: Python<'_>, input: impl fmt::Display, raised: PyErr) -> PyErr {
    let text = format!("{input}: {}", raised.value(py));
    with_attribute(py, raised, "args", (text,))
}

/// The exception of a malformed payload that was sent by a service: `WireError`; that of a request is `RequestError`.
pub(crate) fn raised_in_response(error: penstock_flux::RequestError) -> PyErr {
    WireError::new_err(error.text)
}

/// The meaning of a JSON text or object, on which the exception of invalid JSON and the beginning of its text depend.
#[derive(Clone, Copy)]
pub(crate) enum JsonDocument {
    Constraint,
    ResourceSet,
    /// The payload of a message that was received.
    ReceivedPayload,
    /// The object that is to be the payload of a message.
    NewPayload,
}

impl JsonDocument {
    /// The exception of an error, with the attribute `offset`, the byte of the text, if it is known; for `map_err`.
    pub(crate) fn raised(self, error: JsonError) -> PyErr {
        let (problem, offset) = match error {
            JsonError::Invalid(problem, offset) => (problem, offset),
            JsonError::Other(raised) => return raised,
        };
        let raised = match self {
            Self::Constraint => JobspecError::new_err(format!("invalid constraint: {problem}")),
            Self::ResourceSet => ResourceSetError::new_err(format!("invalid R: {problem}")),
            Self::ReceivedPayload => WireError::new_err(format!("invalid JSON: {problem}")),
            Self::NewPayload => {
                WireError::new_err(format!("the payload has no JSON form: {problem}"))
            }
        };
        match offset {
            Some(offset) => Python::attach(|py| with_attribute(py, raised, "offset", offset)),
            None => raised,
        }
    }
}

impl<T: ToException> ToException for &T {
    fn to_exception(&self, py: Python<'_>) -> PyErr {
        (**self).to_exception(py)
    }
}

/// `IdsetError` with the attribute `offset`, the byte of the text.
impl ToException for penstock_idset::Error {
    fn to_exception(&self, py: Python<'_>) -> PyErr {
        let raised = IdsetError::new_err(self.to_string());
        if self.is_in_text() {
            with_attribute(py, raised, "offset", self.offset())
        } else {
            raised
        }
    }
}

/// `HostlistError` with the attribute `offset`, the byte of the text.
impl ToException for penstock_hostlist::Error {
    fn to_exception(&self, py: Python<'_>) -> PyErr {
        let raised = HostlistError::new_err(self.to_string());
        if self.is_in_text() {
            with_attribute(py, raised, "offset", self.offset())
        } else {
            raised
        }
    }
}

/// `NotFoundError` for unknown hosts, else `ResourceSetError` with the attributes `path` and `offset`.
impl ToException for penstock_rset::Error {
    fn to_exception(&self, py: Python<'_>) -> PyErr {
        if self.is_not_found() {
            return NotFoundError::new_err(self.to_string());
        }
        let mut raised = ResourceSetError::new_err(self.to_string());
        if self.is_document() {
            raised = with_attribute(py, raised, "path", self.path());
        }
        if let Some(offset) = self.offset() {
            raised = with_attribute(py, raised, "offset", offset);
        }
        raised
    }
}

impl ToException for penstock_jobspec::Error {
    fn to_exception(&self, _: Python<'_>) -> PyErr {
        JobspecError::new_err(self.to_string())
    }
}

/// `LayoutError`: the tasks do not fit R.
impl ToException for penstock_jobspec::LayoutError {
    fn to_exception(&self, _: Python<'_>) -> PyErr {
        LayoutError::new_err(self.to_string())
    }
}

/// Raised as `WireError`: an invalid payload for its topic.
impl ToException for penstock_flux::Error {
    fn to_exception(&self, _: Python<'_>) -> PyErr {
        WireError::new_err(self.to_string())
    }
}

impl ToException for penstock_engine::Error {
    fn to_exception(&self, _: Python<'_>) -> PyErr {
        EngineError::new_err(self.to_string())
    }
}

/// `EngineError` for a bug, else `WorkloadError` with the attribute `line` of the file.
impl ToException for penstock_sim::Error {
    fn to_exception(&self, py: Python<'_>) -> PyErr {
        if self.is_bug() {
            return EngineError::new_err(self.to_string());
        }
        let raised = WorkloadError::new_err(self.to_string());
        match self.line() {
            Some(line) => with_attribute(py, raised, "line", line),
            None => raised,
        }
    }
}

/// `RequestError` with error number and text.
impl ToException for penstock_flux::RequestError {
    fn to_exception(&self, _: Python<'_>) -> PyErr {
        RequestError::new_err((self.errnum, self.text.clone()))
    }
}

/// `WireError` with the attribute `offset`, the byte of the stream.
impl ToException for penstock_wire::Error {
    fn to_exception(&self, py: Python<'_>) -> PyErr {
        let raised = WireError::new_err(self.to_string());
        with_attribute(py, raised, "offset", self.offset())
    }
}

/// `StoreError` with the attribute `errno`, if there is a number for it.
impl ToException for penstock_store::Error {
    fn to_exception(&self, py: Python<'_>) -> PyErr {
        let raised = StoreError::new_err(self.to_string());
        let errnum = if self.is_disk_full() {
            errno::ENOSPC
        } else if self.is_input_output() {
            errno::EIO
        } else if self.is_busy() {
            errno::EBUSY
        } else if self.is_lost() {
            errno::ESTALE
        } else {
            return raised;
        };
        with_attribute(py, raised, "errno", errnum)
    }
}

impl ToException for penstock_manager::SettingsError {
    fn to_exception(&self, _: Python<'_>) -> PyErr {
        ConfigError::new_err(("job manager", vec![self.to_string()]))
    }
}

impl ToException for penstock_sched::SettingsError {
    fn to_exception(&self, _: Python<'_>) -> PyErr {
        ConfigError::new_err(("scheduler", vec![self.to_string()]))
    }
}

/// `ResourceSetError`, `StoreError` or `TargetError`.
impl ToException for penstock_resource::Error {
    fn to_exception(&self, _: Python<'_>) -> PyErr {
        let text = self.to_string();
        if self.is_resource_set() {
            ResourceSetError::new_err(text)
        } else if self.is_store() || self.is_event() {
            StoreError::new_err(text)
        } else {
            TargetError::new_err(text)
        }
    }
}

/// Issues a `MendedWarning` if a text was mended.
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
