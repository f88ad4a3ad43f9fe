//! RFC 27 from the scheduler's side: requests change the engine's jobs, the next pass decides on them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use penstock_engine::{Engine, Job, QueueId};
use penstock_flux::alloc::{
    AllocRequest, CancelRequest, ExpirationRequest, FeasibilityRequest, FreeRequest, FreeResponse,
    PrioritizeRequest,
};
use penstock_flux::errno::EAGAIN;
use penstock_flux::limits::{MAX_CHECKED_JOBSPEC_VALUES, MAX_VALUE_BYTES};
use penstock_flux::{
    AnyRequest, EmptyResponse, Payload, RequestError, RequestedResources, TypedPayload,
    count_values,
};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_wire::Message;

use crate::error::Error;
use crate::respond::Reply;
use crate::scheduler::OutstandingAlloc;
use crate::{Phase, Scheduler, Settings};

/// The engine's queue of a name, which is configured when a job first names it.
pub(crate) fn queue_of(
    engine: &mut Engine,
    queues: &mut HashMap<String, QueueId>,
    settings: &Settings,
    name: &str,
) -> QueueId {
    if let Some(queue) = queues.get(name) {
        return *queue;
    }
    let queue = engine.queue(name);
    engine.begin_set_queue(queue, settings.queue(name));
    queues.insert(name.to_owned(), queue);
    queue
}

/// Checks the size of a jobspec that a guest sends to have it checked, before it is parsed.
fn check_size(jobspec: &str) -> Result<(), RequestError> {
    let values = count_values(jobspec);
    if jobspec.len() <= MAX_VALUE_BYTES && values <= MAX_CHECKED_JOBSPEC_VALUES {
        return Ok(());
    }
    let text = format!(
        "the jobspec is too large: expected at most {MAX_VALUE_BYTES} bytes of JSON and {MAX_CHECKED_JOBSPEC_VALUES} \
         values, found {} bytes and {values} values",
        jobspec.len()
    );
    Err(RequestError::invalid(text))
}

/// A job that is to be queued.
struct NewJob {
    id: JobId,
    priority: u32,
    userid: Option<u32>,
}

impl Scheduler {
    pub(crate) fn alloc(&mut self, request: &Message) {
        // The request is for a predecessor whose disconnect the job manager has not seen yet: it
        // will be sent again after the response to our ready.
        if self.phase != Phase::Running {
            let text = "sched.alloc before job-manager.sched-ready is answered: ignored";
            return self.log.push(text.to_owned());
        }
        if let Some(TypedPayload::Alloc(pending)) = request.typed() {
            let job = NewJob {
                id: pending.id,
                priority: pending.priority,
                userid: Some(pending.userid),
            };
            return self.queue(request, &job, || Ok(Cow::Borrowed(&*pending.requested)));
        }
        let alloc: AllocRequest = match request.read_request() {
            Ok(alloc) => alloc,
            Err(error) => return self.deny_malformed(request, &error),
        };
        let job = NewJob {
            id: alloc.id,
            priority: alloc.priority,
            userid: alloc.userid,
        };
        self.queue(request, &job, || {
            let jobspec = Jobspec::from_json(alloc.jobspec.as_str())?;
            Ok(Cow::Owned(RequestedResources::of(&jobspec)))
        });
    }

    /// Queues the job of an alloc request. `requested` gives the resources, unless the jobspec is invalid.
    fn queue<'a>(
        &mut self,
        request: &Message,
        job: &NewJob,
        requested: impl FnOnce() -> Result<Cow<'a, RequestedResources>, Error>,
    ) {
        let NewJob { id, priority, .. } = *job;
        let call = OutstandingAlloc {
            header: self.last_header.of(request),
            userid: job.userid,
        };
        let is_repeated = self.allocs.insert(id, call).is_some();
        let Some(engine) = &mut self.engine else {
            return;
        };
        if is_repeated {
            // RFC 27 allows one request a job: the later one will be answered.
            engine.prioritize(&[(id, priority)]);
            self.needs_pass = true;
            return self.log.push(format!("repeated sched.alloc for job {id}"));
        }
        let settings = &self.options.settings;
        let queued = requested().and_then(|requested| {
            let RequestedResources { request, queue } = requested.into_owned();
            let name = queue.unwrap_or_default();
            let queue = queue_of(engine, &mut self.queues, settings, &name);
            let job = Job {
                id,
                priority,
                request,
                queue,
            };
            Ok(engine.submit(job)?)
        });
        match queued {
            Ok(()) => self.needs_pass = true,
            Err(error) => self.deny(id, &error.to_string()),
        }
    }

    /// Denies the job of a malformed request; without a job id, an error response ends the
    /// conversation (RFC 27, Finalization).
    fn deny_malformed(&mut self, request: &Message, error: &RequestError) {
        if let Ok(CancelRequest { id }) = request.read() {
            let call = OutstandingAlloc {
                header: self.last_header.of(request),
                userid: None,
            };
            self.allocs.insert(id, call);
            self.deny(id, &error.text);
        } else {
            self.out
                .push(Message::error_to(request, error.errnum, &error.text));
            self.log.push(error.text.clone());
        }
    }

    pub(crate) fn cancel(&mut self, request: &Message) {
        if let Some(TypedPayload::CancelAllocs(jobs)) = request.typed() {
            return self.cancel_several(jobs);
        }
        if let Ok(CancelRequest { id }) = request.read()
            && self.cancel_job(id)
        {
            self.respond_cancel(id);
        }
    }

    /// Cancels requests of a job manager in the same process. The ended ones get one response.
    fn cancel_several(&mut self, jobs: &[JobId]) {
        let mut ended = Vec::with_capacity(jobs.len());
        let mut last: Option<Arc<Message>> = None;
        for id in jobs {
            if !self.cancel_job(*id) {
                continue;
            }
            let Some(request) = self.end_alloc(*id) else {
                continue;
            };
            // The requests of one job manager have one header.
            if let Some(other) = last.replace(Arc::clone(&request))
                && !Arc::ptr_eq(&other, &request)
            {
                self.respond_cancelled(&other, std::mem::take(&mut ended));
            }
            ended.push(*id);
        }
        if let Some(request) = last {
            self.respond_cancelled(&request, ended);
        }
    }

    fn respond_cancelled(&mut self, request: &Message, jobs: Vec<JobId>) {
        let cancelled = TypedPayload::CancelledAllocs(jobs.into());
        self.out.push(Message::typed_success_to(request, cancelled));
    }

    /// Cancels the request of a job. Returns whether it has ended; an unknown or an answered one has no response left.
    fn cancel_job(&mut self, id: JobId) -> bool {
        let was_pending = match &mut self.engine {
            Some(engine) => engine.cancel(id),
            None => false,
        };
        if was_pending {
            self.needs_pass = true;
            return true;
        }
        if self.retries.remove(id) {
            self.withdraw(id);
            return true;
        }
        if self.allocs.contains_key(&id) {
            // Its R is being committed: another commit for the job must not overtake this one.
            self.cancelled_in_commit.insert(id);
        }
        false
    }

    pub(crate) fn prioritize(&mut self, request: &Message) {
        let (Ok(PrioritizeRequest { jobs }), Some(engine)) = (request.read(), &mut self.engine)
        else {
            return;
        };
        engine.prioritize(&jobs);
        self.needs_pass = true;
    }

    /// Frees resources. Only a free without `R` is answered: the current version expects no response.
    pub(crate) fn free(&mut self, request: &Message) -> Reply {
        if let Some(TypedPayload::Free(freed)) = request.typed() {
            let ranks = (!freed.is_final).then(|| freed.r.r.ranks());
            self.free_ranks(freed.id, ranks.as_ref());
            return Ok(None);
        }
        // For the job manager an error response is the end of the scheduler (RFC 27, Finalization): the resources of a
        // known job stay allocated until a later request frees them.
        let free: FreeRequest = match request.read_request() {
            Ok(free) => free,
            Err(error) => {
                let CancelRequest { id } = request.read().map_err(|_| error.clone())?;
                self.log
                    .push(format!("job {id} keeps its resources: {}", error.text));
                return Ok(None);
            }
        };
        let id = free.id;
        let ranks = match &free.r {
            Some(r) if !free.is_final => match ResourceSet::from_json(r.as_str()) {
                Ok(r) => Some(r.ranks()),
                Err(error) => {
                    self.log
                        .push(format!("job {id} keeps its resources: sched.free: {error}"));
                    return Ok(None);
                }
            },
            _ => None,
        };
        self.free_ranks(id, ranks.as_ref());
        let response = FreeResponse { id };
        Ok(free.r.is_none().then(|| response.to_payload()))
    }

    /// Frees ranks of a job, or all that it has.
    fn free_ranks(&mut self, id: JobId, ranks: Option<&IdSet>) {
        if self.free_announced(id, ranks) {
            return;
        }
        let Some(engine) = &mut self.engine else {
            return;
        };
        if let Err(error) = engine.free(id, ranks) {
            self.log.push(format!("sched.free: {error}"));
        }
        self.needs_pass = true;
    }

    pub(crate) fn set_expiration(&mut self, request: &Message) -> Reply {
        let change: ExpirationRequest = request.read_request()?;
        if change.expiration < 0.0 {
            let (topic, found) = (request.topic(), change.expiration);
            let text = format!("{topic}: `expiration`: expected 0 or a time, found {found}");
            return Err(RequestError::invalid(text));
        }
        if let Some(engine) = &mut self.engine {
            engine
                .set_expiration(change.id, change.expiration)
                .map_err(Error::from)?;
        }
        self.out.push(Message::response_to(request, 0, None));
        Ok(None)
    }

    /// Applies a changed configuration from the next pass on.
    pub(crate) fn reload_config(&mut self, request: &Message) -> Reply {
        let AnyRequest {} = request.read_request()?;
        let bytes = request.payload_json().unwrap_or(b"{}");
        let settings = std::str::from_utf8(bytes)
            .map_err(|error| RequestError::protocol(format!("{}: {error}", request.topic())))
            .and_then(|text| {
                Settings::from_json(text).map_err(|error| RequestError::invalid(error.to_string()))
            })?;
        let before = std::mem::replace(&mut self.options.settings, settings);
        if let Some(engine) = &mut self.engine {
            engine.set_options(self.options.settings.engine_options());
            self.options.settings.configure_queues(engine, &before);
        }
        self.needs_pass = true;
        Ok(Some(EmptyResponse {}.to_payload()))
    }

    pub(crate) fn check_feasibility(&mut self, request: &Message) -> Reply {
        let check: FeasibilityRequest = request.read_request()?;
        if !request.credentials().is_owner() {
            check_size(check.jobspec.as_str())?;
        }
        let jobspec = Jobspec::from_json(check.jobspec.as_str()).map_err(Error::from)?;
        let Some(engine) = &mut self.engine else {
            return Err(RequestError::new(EAGAIN, "no resources are acquired yet"));
        };
        engine
            .feasible(jobspec.request())
            .map_err(|reason| RequestError::invalid(reason.to_string()))?;
        self.out.push(Message::response_to(request, 0, None));
        Ok(None)
    }
}
