//! `HookRequest`: the request that runs a prolog or epilog, from the job manager of this process or from a socket.

use std::sync::Arc;

use penstock_flux::{HookJob, TypedPayload, hooks};
use penstock_rset::ResourceSet;
use pyo3::prelude::*;

use super::requests::{ExportError, Request, read};
use crate::resource::PyResourceSet;
use crate::wire::Message;

/// `hooks.prolog` and `hooks.epilog`.
#[pyclass(module = "penstock._core", frozen)]
struct HookRequest {
    #[pyo3(get)]
    id: u64,
    #[pyo3(get)]
    userid: u32,
    #[pyo3(get)]
    status: Option<i32>,
    r: Option<Arc<ResourceSet>>,
}

impl From<&HookJob> for HookRequest {
    fn from(job: &HookJob) -> Self {
        Self {
            id: job.id.get(),
            userid: job.userid,
            status: job.status,
            r: job.r.as_ref().map(|resources| Arc::clone(&resources.r)),
        }
    }
}

impl Request for HookRequest {
    type Payload<'a> = hooks::HookRequest<'a>;

    fn export(payload: Self::Payload<'_>, _: Python<'_>) -> Result<Self, ExportError> {
        let r = payload.r.map(|r| ResourceSet::from_json(r.as_str()));
        let r = r.transpose().map_err(ExportError::Resources)?;
        Ok(Self {
            id: payload.id.get(),
            userid: payload.userid,
            status: payload.status,
            r: r.map(Arc::new),
        })
    }
}

#[pymethods]
impl HookRequest {
    /// Reads a request; a malformed one is the error EPROTO, an invalid R the error EINVAL.
    #[staticmethod]
    fn read(py: Python<'_>, message: &Bound<'_, Message>) -> PyResult<Self> {
        let message = &message.get().0;
        match message.typed() {
            Some(TypedPayload::Hook(job)) => Ok(job.into()),
            _ => read(py, message),
        }
    }

    /// R; None if the job has none.
    #[getter]
    fn r(&self) -> Option<PyResourceSet> {
        self.r.clone().map(PyResourceSet::new)
    }
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<HookRequest>()
}
