//! `BulkRequests`: requests about many jobs, done in slices, so that they do not delay other peers.
//!
//! The first slice is done when the request comes: a request about few jobs is answered at once. Each call of
//! [`Manager::advance`](crate::Manager::advance) does one more slice, for the peers in rotation, and a peer's requests in
//! their order. The response counts all jobs. Requests of a peer that disconnects are completed.

use std::collections::VecDeque;

use penstock_flux::job_manager::{BulkResponse, MatchingJobsResponse};
use penstock_flux::{Payload, RequestError};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::Map;

use crate::authorize::{NamedJobs, NextJob, Permission, PermittedJob};
use crate::context::Context;
use crate::record::Record;
use crate::rotation::Rotation;
use crate::rpc::{Reply, Request};

/// Maximum number of jobs changed in one slice: about a millisecond's work.
const JOBS_PER_SLICE: usize = 200;
/// Maximum number of jobs examined in one slice.
const JOBS_EXAMINED_PER_SLICE: usize = 2_500;

/// The change that a request makes to each job.
pub(crate) trait Operation: std::fmt::Debug + Send {
    /// Changes a job, unless its check failed. It is called once for each job, in the order of the request unless jobs
    /// are deferred.
    fn apply(&mut self, cx: &mut Context, job: Permission) -> Result<(), RequestError>;

    /// Prepares the change, before the first job.
    fn begin(&mut self, _cx: &mut Context) {}

    /// Whether the request changes this job: a job that it does not change is passed over.
    fn concerns(&self, _record: &Record) -> bool {
        true
    }

    /// Ends the request, after its last job.
    fn finish(&mut self, _cx: &mut Context) {}

    /// Whether the response has no payload.
    fn has_empty_response(&self) -> bool {
        false
    }

    /// Whether the response has the number of failures instead of their reasons.
    fn counts_errors(&self) -> bool {
        false
    }

    /// Whether a job is left to the end of the request.
    fn defers(&self, _cx: &Context, _job: &PermittedJob) -> bool {
        false
    }
}

/// A request with jobs that are still to be changed.
#[derive(Debug)]
struct BulkRequest {
    request: Message,
    jobs: NamedJobs,
    operation: Box<dyn Operation>,
    /// Whether a slice has been done.
    has_begun: bool,
    /// Number of jobs taken from `jobs`.
    taken: usize,
    /// Jobs that are left to the end, each with its position in the request.
    deferred: VecDeque<(usize, PermittedJob)>,
    /// Number of jobs that were changed.
    count: u64,
    /// The errors of the other jobs, at most [`BulkResponse::MAX_LISTED_ERRORS`], with the positions of the jobs in the request.
    errors: Vec<(usize, JobId, String)>,
    /// The number of jobs whose errors are left out.
    unlisted: u64,
}

impl BulkRequest {
    fn new(request: &Message, jobs: NamedJobs, operation: Box<dyn Operation>) -> Self {
        Self {
            request: request.header(),
            jobs,
            operation,
            has_begun: false,
            taken: 0,
            deferred: VecDeque::new(),
            count: 0,
            errors: Vec::new(),
            unlisted: 0,
        }
    }

    /// Changes the next jobs, at most this many. Returns whether these were the last.
    fn run_slice(&mut self, cx: &mut Context, changes: usize) -> bool {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.operation.begin(cx);
        }
        let is_complete = self.change_jobs(cx, changes);
        if is_complete {
            self.operation.finish(cx);
        }
        is_complete
    }

    fn change_jobs(&mut self, cx: &mut Context, mut changes: usize) -> bool {
        let limit = cx.read_limit();
        for _ in 0..JOBS_EXAMINED_PER_SLICE {
            if changes == 0 || limit.is_reached(cx) {
                return false;
            }
            let (position, id, job) = match self.jobs.next(cx) {
                NextJob::Skipped => continue,
                NextJob::Job(id, _) if !self.concerns(cx, id) => continue,
                NextJob::Job(id, job) => {
                    let position = self.taken;
                    self.taken += 1;
                    match job {
                        Ok(job) if self.operation.defers(cx, &job) => {
                            self.deferred.push_back((position, job));
                            continue;
                        }
                        job => (position, id, job),
                    }
                }
                NextJob::End => match self.deferred.pop_front() {
                    Some((position, job)) => (position, job.id(), Ok(job)),
                    None => return true,
                },
            };
            changes -= 1;
            match self.operation.apply(cx, job) {
                Ok(()) => self.count += 1,
                Err(_) if self.errors.len() >= BulkResponse::MAX_LISTED_ERRORS => {
                    self.unlisted += 1;
                }
                Err(error) => self.errors.push((position, id, error.text)),
            }
        }
        false
    }

    /// Whether the operation is about a job. A job that does not exist is an error of the request.
    fn concerns(&self, cx: &Context, id: JobId) -> bool {
        let record = cx.jobs.record(id);
        record.is_none_or(|record| self.operation.concerns(record))
    }

    /// The request, and the payload of its response, with the errors in the order of the request.
    fn response(mut self) -> (Message, Option<Vec<u8>>) {
        let count = self.count;
        if self.operation.has_empty_response() {
            return (self.request, None);
        }
        if self.operation.counts_errors() {
            let errors = self.errors.len() as u64 + self.unlisted;
            let response = MatchingJobsResponse { count, errors };
            return (self.request, Some(response.to_payload()));
        }
        self.errors.sort_by_key(|(position, _, _)| *position);
        let errors = self.errors.into_iter();
        let errors: Map<_, _> = errors
            .map(|(_, id, text)| (id.get().to_string(), text.into()))
            .collect();
        let response = BulkResponse {
            count,
            errors,
            unlisted: self.unlisted,
        };
        (self.request, Some(response.to_payload()))
    }
}

/// The open requests.
#[derive(Debug)]
pub(crate) struct BulkRequests {
    open: Rotation<BulkRequest>,
    /// Maximum number of jobs changed in one slice.
    jobs_per_slice: usize,
}

impl Default for BulkRequests {
    fn default() -> Self {
        Self {
            open: Rotation::default(),
            jobs_per_slice: JOBS_PER_SLICE,
        }
    }
}

impl BulkRequests {
    /// Sets the number of jobs changed in one slice.
    pub(crate) fn set_slice(&mut self, jobs: usize) {
        self.jobs_per_slice = jobs;
    }

    /// Begins a request: does its first slice, unless an earlier one of the same peer is open.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        jobs: NamedJobs,
        operation: impl Operation + 'static,
    ) -> Reply {
        let mut bulk = BulkRequest::new(request.message, jobs, Box::new(operation));
        let origin = request.origin();
        if self.open.of_peer(origin).next().is_none() && bulk.run_slice(cx, self.jobs_per_slice) {
            let (_, payload) = bulk.response();
            return payload.map_or(Reply::Empty, Reply::Payload);
        }
        self.open.push(origin, bulk);
        Reply::Deferred
    }

    /// Does a slice for the peer that has waited longest.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context) {
        let Some(mut bulk) = self.open.take_next() else {
            return;
        };
        if bulk.run_slice(cx, self.jobs_per_slice) {
            let (request, payload) = bulk.response();
            if !request.is_noresponse() {
                cx.send(Message::response_to(&request, 0, payload));
            }
        } else {
            let origin = bulk.request.origin().map(<[u8]>::to_vec);
            self.open.put_back(origin.as_deref(), bulk);
        }
    }

    /// The number of open requests of a peer.
    pub(crate) fn open_of(&self, origin: &[u8]) -> usize {
        self.open.of_peer(Some(origin)).count()
    }

    /// The number of ids that they are still to change.
    pub(crate) fn open_ids_of(&self, origin: &[u8]) -> usize {
        let open = self.open.of_peer(Some(origin));
        open.map(|bulk| bulk.jobs.left()).sum()
    }

    /// The users whose requests are open.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> {
        let requests = self.open.iter();
        requests.map(|bulk| bulk.request.credentials().userid)
    }

    /// Whether a request is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }
}
