//! The responses of services in Python: their payloads in the form of the wire, as Rust services write them.

use penstock_flux::Payload;
use penstock_flux::broker::{AttributeResponse, IMMUTABLE, StateResponse};
use penstock_flux::exec::{
    Exception, Finish, NoData, Release, ReleasedRanks, StartResponse, StartResponseType,
};
use penstock_flux::hooks::HookResponse;
use penstock_jobspec::job_id::JobId;
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::raised;

/// The responses to `<service>.start`.
#[pyclass(module = "penstock._core", name = "StartResponse", frozen)]
struct PyStartResponse;

#[pymethods]
impl PyStartResponse {
    /// The payload of `start`: the job has started.
    #[staticmethod]
    fn start(job: u64) -> Vec<u8> {
        payload(job, StartResponseType::Start, NoData {})
    }

    /// The payload of `reattached`: the job was running already.
    #[staticmethod]
    fn reattached(job: u64) -> Vec<u8> {
        payload(job, StartResponseType::Reattached, NoData {})
    }

    /// The payload of `exception`.
    #[staticmethod]
    #[pyo3(signature = (job, kind, note, *, severity, wait_status))]
    fn exception(
        job: u64,
        kind: &str,
        note: &str,
        severity: i64,
        wait_status: Option<u16>,
    ) -> Vec<u8> {
        let data = Exception {
            severity,
            kind: kind.into(),
            note: note.into(),
            wait_status,
        };
        payload(job, StartResponseType::Exception, data)
    }

    /// The payload of `finish`: the tasks have ended.
    #[staticmethod]
    fn finish(job: u64, status: i32) -> Vec<u8> {
        payload(job, StartResponseType::Finish, Finish::new(status))
    }

    /// The payload of `release`; `ranks` is an idset, or `all`.
    #[staticmethod]
    #[pyo3(signature = (job, ranks, *, is_final))]
    fn release(job: u64, ranks: &str, is_final: bool) -> PyResult<Vec<u8>> {
        let ranks = match ranks {
            "all" => ReleasedRanks::All,
            ranks => ReleasedRanks::Ranks(ranks.parse().map_err(raised)?),
        };
        let data = Release { ranks, is_final };
        Ok(payload(job, StartResponseType::Release, data))
    }
}

fn payload<D: Serialize>(job: u64, kind: StartResponseType, data: D) -> Vec<u8> {
    let id = JobId::new(job);
    StartResponse { id, kind, data }.to_payload()
}

/// The response to `hooks.prolog` and `hooks.epilog`.
#[pyclass(module = "penstock._core", name = "HookResponse", frozen)]
struct PyHookResponse;

#[pymethods]
impl PyHookResponse {
    /// The payload of the response: the command has ended; `note` is the reason if `status` is not 0.
    #[staticmethod]
    fn ended(job: u64, status: i64, note: &str) -> Vec<u8> {
        let id = Some(JobId::new(job));
        let note = note.into();
        HookResponse { id, status, note }.to_payload()
    }
}

/// The response to `attr.get`.
#[pyclass(module = "penstock._core", name = "AttributeResponse", frozen)]
struct PyAttributeResponse;

#[pymethods]
impl PyAttributeResponse {
    /// The payload of the response: the value of an attribute that does not change.
    #[staticmethod]
    fn immutable(value: &str) -> Vec<u8> {
        let value = value.into();
        let flags = IMMUTABLE;
        AttributeResponse { value, flags }.to_payload()
    }

    /// The payload of the response: the value of an attribute that can change.
    #[staticmethod]
    fn mutable(value: &str) -> Vec<u8> {
        let value = value.into();
        AttributeResponse { value, flags: 0 }.to_payload()
    }
}

/// The response to `state-machine.get`.
#[pyclass(module = "penstock._core", name = "StateResponse", frozen)]
struct PyStateResponse;

#[pymethods]
impl PyStateResponse {
    /// The payload of the response: requests have been served for this many seconds.
    #[staticmethod]
    fn run(duration: f64) -> Vec<u8> {
        let state = "run".into();
        StateResponse { state, duration }.to_payload()
    }
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyStartResponse>()?;
    module.add_class::<PyHookResponse>()?;
    module.add_class::<PyAttributeResponse>()?;
    module.add_class::<PyStateResponse>()
}
