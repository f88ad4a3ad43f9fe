//! `StartRequest`: the request that starts a job, from the job manager of this process or from a socket.

use std::sync::Arc;

use penstock_flux::{StartingJob, TypedPayload, exec};
use penstock_rset::ResourceSet;
use pyo3::prelude::*;

use super::requests::{ExportError, Request, read};
use crate::errors::raised;
use crate::resource::PyResourceSet;
use crate::wire::Message;

/// R as the request has it.
enum Resources {
    Value(Arc<ResourceSet>),
    Text(String),
    None,
}

/// `<service>.start`.
#[pyclass(module = "penstock._core", frozen)]
struct StartRequest {
    #[pyo3(get)]
    id: u64,
    #[pyo3(get)]
    reattach: bool,
    jobspec: Arc<str>,
    r: Resources,
}

impl From<&StartingJob> for StartRequest {
    fn from(job: &StartingJob) -> Self {
        Self {
            id: job.id.get(),
            reattach: job.reattach,
            jobspec: Arc::clone(job.jobspec.text()),
            r: Resources::Value(Arc::clone(&job.r)),
        }
    }
}

impl Request for StartRequest {
    type Payload<'a> = exec::StartRequest<'a>;

    fn export(payload: Self::Payload<'_>, _: Python<'_>) -> Result<Self, ExportError> {
        Ok(Self {
            id: payload.id.get(),
            reattach: payload.reattach,
            jobspec: payload.jobspec.0.into(),
            r: payload
                .r
                .map_or(Resources::None, |r| Resources::Text(r.0.to_owned())),
        })
    }
}

#[pymethods]
impl StartRequest {
    /// Reads a request; a malformed one is the error EPROTO, which names topic and key.
    #[staticmethod]
    fn read(py: Python<'_>, request: &Bound<'_, Message>) -> PyResult<Self> {
        let message = &request.get().0;
        match message.typed() {
            Some(TypedPayload::Start(job)) => Ok(job.into()),
            _ => read(py, message),
        }
    }

    /// The JSON text of the jobspec, an object.
    #[getter]
    fn jobspec(&self) -> &str {
        &self.jobspec
    }

    /// R; None if the request has none. Raises `ResourceSetError` if it is not valid.
    #[getter]
    fn r(&self) -> PyResult<Option<PyResourceSet>> {
        let set = match &self.r {
            Resources::Value(set) => Arc::clone(set),
            Resources::Text(text) => Arc::new(ResourceSet::from_json(text).map_err(raised)?),
            Resources::None => return Ok(None),
        };
        Ok(Some(PyResourceSet::new(set)))
    }
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StartRequest>()
}
