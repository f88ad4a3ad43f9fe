//! The requests that services in Python serve: payloads, read and checked as Rust services do, as classes.

use std::borrow::Cow;

use penstock_flux::{AnyRequest, Json, RequestError, Text, broker, hooks, log, pmix, pmix_exec};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_wire as wire;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::errors::raised;
use crate::idset::PyIdSet;
use crate::json::{self, JsonError};
use crate::wire::Message;

/// Why a value of a payload has none for Python.
pub(super) enum ExportError {
    Json(JsonError),
    /// R is not valid.
    Resources(penstock_rset::Error),
}

impl From<JsonError> for ExportError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

/// A value of a payload as one for Python.
trait Export<T> {
    fn export(self, py: Python<'_>) -> Result<T, ExportError>;
}

/// Numbers and booleans are exported as they are.
macro_rules! plain {
    ($($type:ty),*) => {
        $(impl Export<$type> for $type {
            fn export(self, _: Python<'_>) -> Result<$type, ExportError> {
                Ok(self)
            }
        })*
    };
}

plain!(bool, i32, i64, u32, u64, f64);

impl Export<u64> for JobId {
    fn export(self, _: Python<'_>) -> Result<u64, ExportError> {
        Ok(self.get())
    }
}

impl Export<String> for Text<'_> {
    fn export(self, _: Python<'_>) -> Result<String, ExportError> {
        Ok(self.into_string())
    }
}

impl Export<Py<PyAny>> for Json<'_> {
    fn export(self, py: Python<'_>) -> Result<Py<PyAny>, ExportError> {
        Ok(json::decode(py, self.0).map(Bound::unbind)?)
    }
}

impl Export<Py<PyIdSet>> for IdSet {
    fn export(self, py: Python<'_>) -> Result<Py<PyIdSet>, ExportError> {
        Ok(Py::new(py, PyIdSet::new(self)).map_err(JsonError::Other)?)
    }
}

/// Rank, execution target and host of a task.
impl Export<(u32, u32, String)> for pmix_exec::TaskPlacement<'_> {
    fn export(self, _: Python<'_>) -> Result<(u32, u32, String), ExportError> {
        Ok((self.rank, self.target, self.host.into_string()))
    }
}

impl<T, U: Export<T>> Export<Option<T>> for Option<U> {
    fn export(self, py: Python<'_>) -> Result<Option<T>, ExportError> {
        self.map(|value| value.export(py)).transpose()
    }
}

impl<T, U: Export<T>> Export<Vec<T>> for Vec<U> {
    fn export(self, py: Python<'_>) -> Result<Vec<T>, ExportError> {
        self.into_iter().map(|value| value.export(py)).collect()
    }
}

/// A structure of `penstock_flux` as a class of Python.
pub(super) trait Request: Sized {
    type Payload<'a>: Deserialize<'a>;

    fn export(payload: Self::Payload<'_>, py: Python<'_>) -> Result<Self, ExportError>;
}

pub(super) fn read<T: Request>(py: Python<'_>, message: &wire::Message) -> PyResult<T> {
    let message = &normalised(message)?;
    let payload = message.read_request().map_err(raised)?;
    T::export(payload, py).map_err(|error| match error {
        ExportError::Json(error) => json_error(message, error),
        ExportError::Resources(error) => {
            let text = format!("{}: {error}", message.topic());
            raised(RequestError::invalid(text))
        }
    })
}

/// The message with its payload as JSON.
fn normalised(message: &wire::Message) -> PyResult<Cow<'_, wire::Message>> {
    if !message.has_cbor() {
        return Ok(Cow::Borrowed(message));
    }
    let mut copy = message.clone();
    match copy.normalise() {
        Ok(()) => Ok(Cow::Owned(copy)),
        Err(error) => {
            let text = format!("{}: {error}", message.topic());
            Err(raised(RequestError::protocol(text)))
        }
    }
}

fn json_error(message: &wire::Message, error: JsonError) -> PyErr {
    match error {
        JsonError::Invalid(problem, _) => {
            let text = format!("{}: invalid JSON: {problem}", message.topic());
            raised(RequestError::protocol(text))
        }
        JsonError::Other(error) => error,
    }
}

/// Reads the payload of a request that may have any keys.
#[pyfunction]
fn read_object<'py>(py: Python<'py>, request: &Bound<'py, Message>) -> PyResult<Bound<'py, PyAny>> {
    let message = normalised(&request.get().0)?;
    let AnyRequest {} = message.read_request().map_err(raised)?;
    let payload = message.payload_json().unwrap_or(b"{}");
    // Checked just now: JSON is UTF-8.
    json::decode(py, &String::from_utf8_lossy(payload)).map_err(|error| json_error(&message, error))
}

/// Declares the class of each payload: its attributes, with their types in Python.
macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $name:ident = $payload:ty as $path:path { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }
    )*) => {
        $(
            $(#[$doc])*
            #[pyclass(module = "penstock._core", frozen, get_all)]
            struct $name {
                $($(#[$attribute])* $field: $type,)*
            }

            impl Request for $name {
                type Payload<'a> = $payload;

                fn export(payload: Self::Payload<'_>, py: Python<'_>) -> Result<Self, ExportError> {
                    let $path { $($field,)* .. } = payload;
                    Ok(Self { $($field: $field.export(py)?,)* })
                }
            }

            #[pymethods]
            impl $name {
                /// Reads a request; a malformed one is the error EPROTO, which names topic and key.
                #[staticmethod]
                fn read(py: Python<'_>, request: &Bound<'_, Message>) -> PyResult<Self> {
                    read(py, &request.get().0)
                }
            }
        )*

        pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_class::<$name>()?;)*
            module.add_function(wrap_pyfunction!(read_object, module)?)
        }
    };
}

requests! {
    /// `*-cancel` of any service: ends an outstanding streaming request of the same peer.
    StreamCancelRequest = penstock_flux::StreamCancelRequest as penstock_flux::StreamCancelRequest {
        matchtag: u32,
    }

    /// `service.add` and `service.remove`.
    ServiceRequest = broker::ServiceRequest<'a> as broker::ServiceRequest {
        service: String,
    }

    /// `event.subscribe` and `event.unsubscribe`.
    SubscriptionRequest = broker::SubscriptionRequest<'a> as broker::SubscriptionRequest {
        topic: String,
    }

    /// `attr.get`.
    NameRequest = broker::NameRequest<'a> as broker::NameRequest {
        name: String,
    }

    /// `config.reload`.
    ConfigReloadRequest = broker::ConfigReloadRequest<'a> as broker::ConfigReloadRequest {
        config: Py<PyAny>,
    }

    /// `broker.shutdown`.
    ShutdownRequest = broker::ShutdownRequest as broker::ShutdownRequest {
        keep_running: bool,
        restart: bool,
    }

    /// `log.dmesg`.
    DmesgRequest = log::DmesgRequest as log::DmesgRequest {
        follow: bool,
        nobacklog: bool,
    }

    /// `log.append`.
    LogAppendRequest = log::AppendRequest<'a> as log::AppendRequest {
        level: String,
        text: String,
    }

    /// `log.clear`.
    LogClearRequest = log::ClearRequest as log::ClearRequest {
        upto: Option<i64>,
    }

    /// `hooks.cancel`.
    HookCancelRequest = hooks::CancelRequest as hooks::CancelRequest {
        id: u64,
    }

    /// `pmix-exec.start`.
    PmixStartRequest = pmix_exec::StartRequest<'a> as pmix_exec::StartRequest {
        id: u64,
        directory: String,
        /// Rank, execution target and host of every task.
        tasks: Vec<(u32, u32, String)>,
    }

    /// `pmix-exec.ended`.
    PmixEndedRequest = pmix_exec::EndedRequest as pmix_exec::EndedRequest {
        id: u64,
        rank: u32,
    }

    /// `pmix-exec.stop`.
    PmixStopRequest = pmix_exec::StopRequest as pmix_exec::StopRequest {
        id: u64,
    }

    /// `pmix.abort`.
    AbortRequest = pmix::AbortRequest<'a> as pmix::AbortRequest {
        rank: u32,
        status: i32,
        message: String,
    }
}
