//! The payloads that Python reads, requests and responses: read and checked as Rust services do, as classes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use penstock_flux::{
    AnyRequest, Json, RequestError, Text, acquire, broker, hooks, log, pmix, pmix_exec, pmix_server,
};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_wire as wire;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::errors::{raised, raised_in_response};
use crate::idset::PyIdSet;
use crate::json::{self, JsonError};
use crate::resource::PyResourceSet;
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

impl Export<Py<PyResourceSet>> for Json<'_> {
    fn export(self, py: Python<'_>) -> Result<Py<PyResourceSet>, ExportError> {
        let resources = ResourceSet::from_json(self.0).map_err(ExportError::Resources)?;
        Ok(Py::new(py, PyResourceSet::new(resources)).map_err(JsonError::Other)?)
    }
}

impl Export<Py<PyIdSet>> for IdSet {
    fn export(self, py: Python<'_>) -> Result<Py<PyIdSet>, ExportError> {
        Ok(Py::new(py, PyIdSet::new(self)).map_err(JsonError::Other)?)
    }
}

/// The place of a task in the request to start a PMIx server.
#[pyclass(module = "penstock._core", frozen, get_all)]
struct PmixTaskPlacement {
    rank: u32,
    target: u32,
    host: String,
}

impl Export<Py<PmixTaskPlacement>> for pmix_exec::TaskPlacement<'_> {
    fn export(self, py: Python<'_>) -> Result<Py<PmixTaskPlacement>, ExportError> {
        let placement = PmixTaskPlacement {
            rank: self.rank,
            target: self.target,
            host: self.host.into_string(),
        };
        Ok(Py::new(py, placement).map_err(JsonError::Other)?)
    }
}

impl Export<String> for String {
    fn export(self, _: Python<'_>) -> Result<String, ExportError> {
        Ok(self)
    }
}

impl<K: Ord, T, U: Export<T>> Export<BTreeMap<K, T>> for BTreeMap<K, U> {
    fn export(self, py: Python<'_>) -> Result<BTreeMap<K, T>, ExportError> {
        self.into_iter()
            .map(|(key, value)| Ok((key, value.export(py)?)))
            .collect()
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

/// Why a payload has no object of Python.
enum ReadError {
    /// It is malformed; the text names topic and key.
    Malformed(RequestError),
    Other(PyErr),
}

impl ReadError {
    fn new(message: &wire::Message, error: ExportError) -> Self {
        let topic = message.topic();
        match error {
            ExportError::Json(JsonError::Invalid(problem, _)) => {
                let text = format!("{topic}: invalid JSON: {problem}");
                Self::Malformed(RequestError::protocol(text))
            }
            ExportError::Json(JsonError::Other(error)) => Self::Other(error),
            ExportError::Resources(error) => {
                Self::Malformed(RequestError::invalid(format!("{topic}: {error}")))
            }
        }
    }

    fn of_request(self) -> PyErr {
        match self {
            Self::Malformed(error) => raised(error),
            Self::Other(error) => error,
        }
    }

    fn of_response(self) -> PyErr {
        match self {
            Self::Malformed(error) => raised_in_response(error),
            Self::Other(error) => error,
        }
    }
}

impl From<RequestError> for ReadError {
    fn from(error: RequestError) -> Self {
        Self::Malformed(error)
    }
}

fn read_payload<T: Request>(py: Python<'_>, message: &wire::Message) -> Result<T, ReadError> {
    let message = &normalised(message)?;
    let payload = message.read_request()?;
    T::export(payload, py).map_err(|error| ReadError::new(message, error))
}

/// Reads a request; a malformed one is `RequestError`.
pub(super) fn read<T: Request>(py: Python<'_>, message: &wire::Message) -> PyResult<T> {
    read_payload(py, message).map_err(ReadError::of_request)
}

/// Reads a response; a malformed one is `WireError`.
fn read_response<T: Request>(py: Python<'_>, message: &wire::Message) -> PyResult<T> {
    read_payload(py, message).map_err(ReadError::of_response)
}

/// The message with its payload as JSON.
fn normalised(message: &wire::Message) -> Result<Cow<'_, wire::Message>, RequestError> {
    if !message.has_cbor() {
        return Ok(Cow::Borrowed(message));
    }
    let mut copy = message.clone();
    match copy.normalise() {
        Ok(()) => Ok(Cow::Owned(copy)),
        Err(error) => {
            let text = format!("{}: {error}", message.topic());
            Err(RequestError::protocol(text))
        }
    }
}

/// Reads the payload of a request that may have any keys.
#[pyfunction]
fn read_object<'py>(py: Python<'py>, request: &Bound<'py, Message>) -> PyResult<Bound<'py, PyAny>> {
    let message = normalised(&request.get().0).map_err(raised)?;
    let AnyRequest {} = message.read_request().map_err(raised)?;
    let payload = message.payload_json().unwrap_or(b"{}");
    // Checked just now: JSON is UTF-8.
    json::decode(py, &String::from_utf8_lossy(payload))
        .map_err(|error| ReadError::new(&message, error.into()).of_request())
}

/// Declares the class of each payload: its attributes, with their types in Python.
macro_rules! payloads {
    ($register:ident, $read:ident: $(
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
                /// Reads a message; the error of a malformed one names topic and key.
                #[staticmethod]
                fn read(py: Python<'_>, message: &Bound<'_, Message>) -> PyResult<Self> {
                    $read(py, &message.get().0)
                }
            }
        )*

        fn $register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_class::<$name>()?;)*
            Ok(())
        }
    };
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register_requests(module)?;
    register_responses(module)?;
    module.add_class::<PmixTaskPlacement>()?;
    module.add_function(wrap_pyfunction!(read_object, module)?)
}

payloads! {
    register_requests, read:
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

    /// `event.publish`.
    PublishRequest = broker::PublishRequest<'a> as broker::PublishRequest {
        topic: String,
        flags: u32,
        payload: Option<String>,
    }

    /// `attr.set`.
    AttributeSetRequest = broker::AttributeSetRequest<'a> as broker::AttributeSetRequest {
        name: String,
        value: String,
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
        rows: bool,
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
        userid: Option<u32>,
        tasks: Vec<Py<PmixTaskPlacement>>,
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

payloads! {
    register_responses, read_response:
    /// The first response to `resource.acquire`.
    InventoryResponse = acquire::InventoryResponse<'a> as acquire::InventoryResponse {
        resources: Py<PyResourceSet>,
        up: Py<PyIdSet>,
    }

    /// A further response to `resource.acquire`.
    ChangeResponse = acquire::ChangeResponse<Json<'a>> as acquire::ChangeResponse {
        grow: Option<Py<PyResourceSet>>,
        shrink: Option<Py<PyIdSet>>,
        up: Option<Py<PyIdSet>>,
        down: Option<Py<PyIdSet>>,
        property_add: Option<BTreeMap<String, Py<PyIdSet>>>,
        property_remove: Option<BTreeMap<String, Py<PyIdSet>>>,
        expiration: Option<f64>,
    }

    /// The response of a PMIx server to `pmix.start`.
    PmixServerStartResponse = pmix_server::StartResponse as pmix_server::StartResponse {
        environment: BTreeMap<u32, BTreeMap<String, String>>,
    }
}
