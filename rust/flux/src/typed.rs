//! Payloads passed as values to receivers in the same process.

use std::borrow::Cow;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Jobspec, JobspecBuilder, Request};
use penstock_rset::ResourceSet;
use serde::Serialize;

use crate::acquire::{ChangeResponse, InventoryResponse};
use crate::alloc::{
    AllocRequest, AllocResponse, AllocResponseType, Annotations, CancelRequest, FreeRequest,
    HelloRequest,
};
use crate::exec::{
    ExecEvent, JobExceptionEvent, NoData, StartRequest, StartResponse, StartResponseType,
};
use crate::hooks::HookRequest;
use crate::jobspec_document::JobspecDocument;
use crate::kvs::{self, CommitRequest, Dirent, LookupResponse, Operation};
use crate::payload::{Json, Payload, write_value};

/// A payload that is a value at its sender.
///
/// A receiver in the same process takes the value; any other reads its JSON text.
#[derive(Clone, Debug)]
pub enum TypedPayload {
    /// `job-manager.sched-hello`. A job manager that gets the value has its scheduler in the same process.
    SchedHello(HelloRequest),
    /// `sched.alloc`.
    Alloc(PendingJob),
    /// `sched.cancel` for several jobs. RFC 27 has one request for each: this one is for a scheduler in the same process.
    CancelAllocs(Arc<[JobId]>),
    /// A CANCEL response to each of several alloc requests, in the response to one of them: the answer to
    /// [`CancelAllocs`](Self::CancelAllocs).
    CancelledAllocs(Arc<[JobId]>),
    /// A SUCCESS response to `sched.alloc`.
    Allocated(Allocated),
    /// `kvs.commit` of R: an operation for each allocation.
    Commit(Arc<[Allocation]>),
    /// `sched.free`.
    Free(FreedResources),
    /// `hooks.prolog` and `hooks.epilog`.
    Hook(HookJob),
    /// `<service>.start`.
    Start(StartingJob),
    /// A response to `<service>.start`.
    StartResponse(StartReport),
    /// The event `job-exception`.
    JobException(JobExceptionEvent<'static>),
    /// A response to `kvs.lookup` of a job's R: the value of [`LookupResponse`].
    StoredR(RWithText),
    /// The first response to `resource.acquire`.
    Inventory(Inventory),
    /// A further response to `resource.acquire`.
    InventoryChange(InventoryChange),
}

impl TypedPayload {
    /// Encodes the payload for the wire: JSON text and a NUL.
    pub fn to_payload(&self) -> Vec<u8> {
        match self {
            Self::SchedHello(hello) => hello.to_payload(),
            Self::Alloc(job) => job.to_payload(),
            Self::CancelAllocs(jobs) => several(jobs, |id| CancelRequest { id }),
            Self::CancelledAllocs(jobs) => several(jobs, |id| {
                AllocResponse::<()>::new(id, AllocResponseType::Cancel)
            }),
            Self::Allocated(allocated) => allocated.wire().to_payload(),
            Self::Commit(allocations) => commit_request(allocations).to_payload(),
            Self::Free(freed) => freed.to_payload(),
            Self::Hook(job) => job.to_payload(),
            Self::Start(job) => job.wire().to_payload(),
            Self::StartResponse(report) => report.to_payload(),
            Self::JobException(exception) => exception.to_payload(),
            Self::StoredR(stored) => lookup_response(stored),
            Self::Inventory(inventory) => inventory.to_payload(),
            Self::InventoryChange(change) => change_response(change),
        }
    }
}

/// The payload of a message about one job; for several jobs, which no specification has in one message, their ids.
fn several<P: Payload>(jobs: &[JobId], payload: impl Fn(JobId) -> P) -> Vec<u8> {
    if let [id] = jobs {
        return payload(*id).to_payload();
    }
    let mut out = b"{\"ids\":".to_vec();
    write_value(&jobs, &mut out);
    out.extend_from_slice(b"}\0");
    out
}

/// Resources, time limit and queue that a jobspec requests of a scheduler.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct RequestedResources {
    /// The resources and the time limit.
    pub request: Request,
    /// The queue; `None` for the one without a name.
    pub queue: Option<String>,
}

impl RequestedResources {
    /// Returns the request of `jobspec`.
    pub fn of(jobspec: &Jobspec) -> Self {
        Self {
            request: jobspec.request().clone(),
            queue: jobspec.queue().map(str::to_owned),
        }
    }

    /// The JSON text of a jobspec that requests the same; `null` if there is none.
    fn to_jobspec(&self) -> String {
        let builder = JobspecBuilder {
            request: self.request.clone(),
            command: vec![String::new()],
            name: None,
            queue: self.queue.clone(),
        };
        builder
            .build()
            .map_or_else(|_| "null".to_owned(), |jobspec| jobspec.to_text())
    }
}

/// A pending job: the value of [`AllocRequest`].
#[derive(Clone, Debug)]
pub struct PendingJob {
    /// The job.
    pub id: JobId,
    /// Its priority: greater starts first.
    pub priority: u32,
    /// Its owner.
    pub userid: u32,
    /// When it was submitted, seconds since the epoch.
    pub t_submit: f64,
    /// The resources that it requests.
    pub requested: Arc<RequestedResources>,
    /// The JSON text of its jobspec, without the environment; `None` if the scheduler is in the same process. Its JSON has a jobspec
    /// then that requests the same.
    pub jobspec: Option<Arc<str>>,
}

impl PendingJob {
    fn to_payload(&self) -> Vec<u8> {
        let text = match &self.jobspec {
            Some(text) => Cow::Borrowed(&**text),
            None => Cow::Owned(self.requested.to_jobspec()),
        };
        let request = AllocRequest {
            id: self.id,
            priority: self.priority,
            userid: Some(self.userid),
            t_submit: Some(self.t_submit),
            jobspec: Json(&text),
        };
        request.to_payload()
    }
}

/// The resources that a scheduler allocates to a job.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The job.
    pub id: JobId,
    /// The resources.
    pub r: Arc<ResourceSet>,
    /// Their JSON text, which is committed.
    pub text: Arc<str>,
}

/// The value of a SUCCESS [`AllocResponse`].
#[derive(Clone, Debug)]
pub struct Allocated {
    /// The allocation that was committed.
    pub allocation: Allocation,
    /// The annotations of the running job.
    pub annotations: Annotations<'static>,
}

impl Allocated {
    fn wire(&self) -> AllocResponse<'_, &Annotations<'static>> {
        AllocResponse {
            r: Some(Json(&self.allocation.text)),
            annotations: Some(&self.annotations),
            ..AllocResponse::new(self.allocation.id, AllocResponseType::Success)
        }
    }
}

fn commit_request(allocations: &[Allocation]) -> CommitRequest<'static> {
    let operation = |allocation: &Allocation| Operation {
        key: kvs::r_key(allocation.id).into(),
        flags: 0,
        dirent: Some(Dirent::of(allocation.text.as_bytes()).into()),
    };
    CommitRequest {
        namespace: Some(kvs::PRIMARY.into()),
        flags: 0,
        ops: allocations.iter().map(operation).collect(),
    }
}

/// R, and its JSON text if there is one already.
#[derive(Clone, Debug)]
pub struct RWithText {
    /// The resources.
    pub r: Arc<ResourceSet>,
    /// The JSON text that was committed; `None` if R has changed since, or was never committed.
    pub text: Option<Arc<str>>,
}

impl RWithText {
    /// The JSON text: the one that was read, or else one that is written from the set.
    pub fn json(&self) -> Cow<'_, str> {
        match &self.text {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(self.r.to_json()),
        }
    }
}

/// Resources that a job has released: the value of [`FreeRequest`].
#[derive(Clone, Debug)]
pub struct FreedResources {
    /// The job.
    pub id: JobId,
    /// The resources.
    pub r: RWithText,
    /// Whether this is the last release of the job.
    pub is_final: bool,
}

impl FreedResources {
    fn to_payload(&self) -> Vec<u8> {
        let request = FreeRequest {
            id: self.id,
            r: Some(Json(&self.r.json())),
            is_final: self.is_final,
        };
        request.to_payload()
    }
}

fn lookup_response(stored: &RWithText) -> Vec<u8> {
    let val = Dirent::of(stored.json().as_bytes());
    LookupResponse { val }.to_payload()
}

/// The resources that a scheduler may allocate: the value of [`InventoryResponse`].
#[derive(Clone, Debug)]
pub struct Inventory {
    /// The resources.
    pub resources: Arc<ResourceSet>,
    /// The ranks that are up.
    pub up: IdSet,
}

impl Inventory {
    fn to_payload(&self) -> Vec<u8> {
        let response = InventoryResponse {
            resources: Json(&self.resources.to_json()),
            up: self.up.clone(),
        };
        response.to_payload()
    }
}

/// The change of the inventory since the last response.
pub type InventoryChange = ChangeResponse<Arc<ResourceSet>>;

fn change_response(change: &InventoryChange) -> Vec<u8> {
    let grow = change.grow.as_ref().map(|r| r.to_json());
    let response = change.clone().with_grow(grow.as_deref().map(Json));
    response.to_payload()
}

/// A job whose prolog or epilog is requested: the value of [`HookRequest`].
#[derive(Clone, Debug)]
pub struct HookJob {
    /// The job.
    pub id: JobId,
    /// Its owner.
    pub userid: u32,
    /// The wait status of its tasks, if they have ended.
    pub status: Option<i32>,
    /// Its resources.
    pub r: Option<RWithText>,
}

impl HookJob {
    fn to_payload(&self) -> Vec<u8> {
        let text = self.r.as_ref().map(RWithText::json);
        let request = HookRequest {
            id: self.id,
            userid: self.userid,
            status: self.status,
            r: text.as_deref().map(Json),
        };
        request.to_payload()
    }
}

/// A job to be started: the value of [`StartRequest`].
#[derive(Clone, Debug)]
pub struct StartingJob {
    /// The job.
    pub id: JobId,
    /// Its owner.
    pub userid: u32,
    /// Its jobspec.
    pub jobspec: Arc<JobspecDocument>,
    /// Whether the job may be running already, started by an earlier service.
    pub reattach: bool,
    /// Its resources.
    pub r: Arc<ResourceSet>,
    /// Their JSON text.
    pub r_text: Arc<str>,
    /// The only journal that may have a record of the job; `None` if others may, or the job has started.
    pub journal: Option<Arc<str>>,
}

impl StartingJob {
    fn wire(&self) -> StartRequest<'_> {
        StartRequest {
            id: self.id,
            userid: self.userid,
            jobspec: Json(self.jobspec.text()),
            reattach: self.reattach,
            r: Some(Json(&self.r_text)),
            journal: self.journal.as_deref().map(crate::Text::from),
        }
    }
}

/// A report of an execution service about a job: the value of a [`StartResponse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartReport {
    /// The job.
    pub id: JobId,
    /// The reported event.
    pub event: ExecEvent<'static>,
}

impl StartReport {
    fn to_payload(&self) -> Vec<u8> {
        fn write<D: Serialize>(id: JobId, kind: StartResponseType, data: D) -> Vec<u8> {
            StartResponse { id, kind, data }.to_payload()
        }

        let kind = self.event.kind();
        match &self.event {
            ExecEvent::Start | ExecEvent::Reattached => write(self.id, kind, NoData {}),
            ExecEvent::Release(release) => write(self.id, kind, release),
            ExecEvent::Exception(exception) => write(self.id, kind, exception),
            ExecEvent::Finish(finish) => write(self.id, kind, finish),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RequestedResources;
    use penstock_jobspec::Jobspec;
    use serde_json::json;

    #[test]
    fn a_scheduler_in_the_process_gets_what_another_parses() {
        let mut jobspec = Jobspec::from_json(
            r#"{"version":1,
            "resources":[{"type":"node","count":2,"with":[{"type":"slot","count":1,"label":"task",
                "with":[{"type":"core","count":3}]}]}],
            "tasks":[{"command":["true"],"slot":"task","count":{"per_slot":1}}],
            "attributes":{"system":{"duration":7,"queue":"batch","environment":{"A":"b"},
                "constraints":{"hostlist":["n[0-7]"]}}}}"#,
        )
        .unwrap();
        jobspec.set_duration(60.0);
        for constraints in [vec![], vec![json!({"properties": ["fast"]})]] {
            let redacted = jobspec.clone().redacted(constraints).unwrap();
            let parsed = Jobspec::from_json(&redacted.to_text()).unwrap();
            let requested = RequestedResources::of(&redacted);
            assert_eq!(RequestedResources::of(&parsed), requested);
            let built = Jobspec::from_json(&requested.to_jobspec()).unwrap();
            assert_eq!(RequestedResources::of(&built), requested);
        }
    }
}
