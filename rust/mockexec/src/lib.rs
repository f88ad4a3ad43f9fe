//! An execution service without processes (RFC 32): each job takes the time that its jobspec
//! says, in real or virtual time, and succeeds.
//!
//! A job lasts `attributes.system.exec.test.run_duration` (Flux Standard Duration, or seconds),
//! else its duration, else no time at all. A job that would exceed its time limit ends there,
//! with the exception `timeout` and the wait status of a SIGTERM, as under the real service.
//! `NAME.expiration` moves that limit while the job runs.
//!
//! The crate is sans-IO: messages in, messages out, time as an argument.

mod timing;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::RangeInclusive;

use penstock_flux::broker::{ServiceRequest, SubscriptionRequest};
use penstock_flux::exec::{
    Exception, ExecEvent, ExpirationRequest, Finish, HelloRequest, JobExceptionEvent, KillRequest,
    Release, ReleasedRanks, ReplacedRequest, SimulatedStatsResponse, StartRequest, exit_status,
};
use penstock_flux::{JobRequest, Payload, RequestError, StartReport, TypedPayload, errno, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::{Message, MessageType};

use crate::timing::Timing;

/// The wait status of a task that SIGTERM has ended.
const SIGTERM_STATUS: i32 = 15;

#[derive(Debug)]
struct RunningJob {
    /// The start request without its payload, to be answered until the final release.
    request: Message,
    timing: Timing,
}

/// When a job ends. The heap yields the earliest first, equal times by id.
#[derive(Clone, Copy, Debug, PartialEq)]
struct JobEnd {
    at: f64,
    id: JobId,
}

impl Eq for JobEnd {}

impl Ord for JobEnd {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = other.at.total_cmp(&self.at);
        by_time.then_with(|| other.id.cmp(&self.id))
    }
}

impl PartialOrd for JobEnd {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The service.
#[derive(Debug)]
pub struct MockExec {
    name: String,
    running: HashMap<JobId, RunningJob>,
    ends: BinaryHeap<JobEnd>,
    failure: Option<Failure>,
}

/// The matchtags of the requests that register the service: it sends no others.
const REGISTRATION_TAGS: RangeInclusive<u32> = 1..=3;

/// An error response to the registration.
#[derive(Debug)]
struct Failure {
    errnum: u32,
    text: String,
}

impl MockExec {
    /// A service that registers under `name`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            running: HashMap::new(),
            ends: BinaryHeap::new(),
            failure: None,
        }
    }

    /// The messages that register the service with the broker and the job manager.
    pub fn start(&self) -> Vec<Message> {
        let service = || self.name.as_str().into();
        let add = ServiceRequest { service: service() };
        let subscribe = SubscriptionRequest {
            topic: topic::JOB_EXCEPTION.into(),
        };
        let hello = HelloRequest {
            service: service(),
            ..HelloRequest::default()
        };
        let requests = [
            Message::request(topic::service::ADD, "").with_payload(&add),
            Message::request(topic::event::SUBSCRIBE, "").with_payload(&subscribe),
            Message::request(topic::job_manager::EXEC_HELLO, "").with_payload(&hello),
        ];
        REGISTRATION_TAGS
            .zip(requests)
            .map(|(tag, request)| request.with_matchtag(tag))
            .collect()
    }

    /// Why the service has failed: the error response to its registration.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.text.as_str())
    }

    /// The error number of that response.
    pub fn failure_errnum(&self) -> Option<u32> {
        self.failure.as_ref().map(|failure| failure.errnum)
    }

    /// The number of running jobs.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// When [`advance`](Self::advance) has something to do next.
    pub fn deadline(&self) -> Option<f64> {
        self.ends.peek().map(|end| end.at)
    }

    /// Handles one message and appends the responses to `out`.
    pub fn handle(&mut self, message: &Message, now: f64, out: &mut Vec<Message>) {
        match message.kind {
            MessageType::Request if message.service() == self.name => {
                self.handle_request(message, now, out);
            }
            MessageType::Response
                if message.errnum() != 0 && REGISTRATION_TAGS.contains(&message.matchtag) =>
            {
                let (topic, errnum) = (message.topic(), message.errnum());
                // The first error is the cause of the others.
                self.failure.get_or_insert_with(|| Failure {
                    errnum,
                    text: errno::failure(topic, errnum, message.error_text().as_deref()),
                });
            }
            MessageType::Event if message.topic() == topic::JOB_EXCEPTION => {
                self.handle_exception(message, out);
            }
            _ => {}
        }
    }

    fn handle_request(&mut self, request: &Message, now: f64, out: &mut Vec<Message>) {
        let payload = match request.method() {
            topic::exec_method::START => return self.start_job(request, now, out),
            topic::exec_method::EXPIRATION => return self.set_expiration(request, now, out),
            topic::exec_method::REPLACED => self.end_replaced(request).map(|()| None),
            // There are no tasks to signal, which is no error of the sender.
            topic::exec_method::KILL => request.read_request().map(|KillRequest { .. }| None),
            topic::DISCONNECT => return,
            topic::PING => request.echo().map(Some),
            topic::STATS_GET => {
                let running = self.running.len() as u64;
                Ok(Some(SimulatedStatsResponse { running }.to_payload()))
            }
            _ => Err(RequestError::unknown_method(request.topic())),
        };
        reply(request, payload, out);
    }

    fn start_job(&mut self, request: &Message, now: f64, out: &mut Vec<Message>) {
        if let Err(error) = request.credentials().require_owner(request.topic()) {
            return out.push(Message::error_to(request, error.errnum, &error.text));
        }
        let (id, reattach, timing) = if let Some(TypedPayload::Start(job)) = request.typed() {
            (job.id, job.reattach, Timing::of_job(job, now))
        } else {
            match request.read_request::<StartRequest>() {
                Ok(start) => (start.id, start.reattach, Timing::of(&start, now)),
                Err(error) => return reject_start(request, &error, out),
            }
        };
        let timing = match timing {
            Ok(timing) => timing,
            Err(error) if error.is_malformed() => {
                let text = format!("{}: {error}", request.topic());
                return reject_start(request, &RequestError::protocol(text), out);
            }
            Err(error) => return fail_start(request, id, error.to_string(), out),
        };
        let event = if reattach {
            ExecEvent::Reattached
        } else {
            ExecEvent::Start
        };
        respond(request, id, event, out);
        let job = RunningJob {
            request: request.header(),
            timing,
        };
        let end = JobEnd {
            at: job.timing.end(),
            id,
        };
        self.running.insert(id, job);
        self.finish_at(end, now, out);
    }

    fn finish_at(&mut self, end: JobEnd, now: f64, out: &mut Vec<Message>) {
        if end.at <= now {
            self.finish(end.id, out);
        } else {
            self.ends.push(end);
        }
    }

    /// Moves the time limit of a running job.
    fn set_expiration(&mut self, request: &Message, now: f64, out: &mut Vec<Message>) {
        match self.move_limit(request) {
            Ok(end) => {
                reply(request, Ok(None), out);
                self.finish_at(end, now, out);
            }
            Err(error) => reply(request, Err(error), out),
        }
    }

    /// Moves a time limit; returns the job's new end.
    fn move_limit(&mut self, request: &Message) -> Result<JobEnd, RequestError> {
        request.credentials().require_owner(request.topic())?;
        let ExpirationRequest { id, expiration } = request.read_request()?;
        if !(expiration.is_finite() && expiration >= 0.0) {
            let text = "expected an expiration of 0 or a time";
            return Err(RequestError::invalid(text));
        }
        let job = self.running.get_mut(&id);
        let job =
            job.ok_or_else(|| RequestError::not_found(format!("job {} is not running", id.get())))?;
        job.timing.set_limit(expiration);
        Ok(JobEnd {
            at: job.timing.end(),
            id,
        })
    }

    /// Forgets all jobs: another service has them from now on, and this one must not report them any longer.
    fn end_replaced(&mut self, request: &Message) -> Result<(), RequestError> {
        request.credentials().require_owner(request.topic())?;
        let ReplacedRequest { .. } = request.read_request()?;
        self.running.clear();
        self.ends.clear();
        Ok(())
    }

    /// Ends a job at its fatal exception.
    fn handle_exception(&mut self, event: &Message, out: &mut Vec<Message>) {
        let exception: Cow<'_, JobExceptionEvent<'_>> = match event.typed() {
            Some(TypedPayload::JobException(exception)) => Cow::Borrowed(exception),
            _ => match event.read() {
                Ok(exception) => Cow::Owned(exception),
                Err(_) => return,
            },
        };
        if exception.severity == 0
            && let Some(job) = self.running.remove(&exception.id)
        {
            // RFC 32: the wait status of the first fatal exception, as a shell's exit status.
            let status = exception
                .wait_status
                .map_or(SIGTERM_STATUS, |status| exit_status(status) << 8);
            respond_finish(&job.request, exception.id, status, out);
        }
    }

    /// Ends the jobs whose end has come, in order of time, then id.
    pub fn advance(&mut self, now: f64, out: &mut Vec<Message>) {
        while let Some(end) = self.ends.peek().copied().filter(|end| end.at <= now) {
            self.ends.pop();
            // A job whose end has moved has another entry for its new end.
            let job = self.running.get(&end.id);
            if job.is_some_and(|job| job.timing.end() <= now) {
                self.finish(end.id, out);
            }
        }
    }

    fn finish(&mut self, id: JobId, out: &mut Vec<Message>) {
        let Some(job) = self.running.remove(&id) else {
            return;
        };
        let status = if job.timing.exceeds_limit() {
            let note = "resource allocation expired".to_owned();
            respond_exception(&job.request, id, "timeout", note, out);
            SIGTERM_STATUS
        } else {
            0
        };
        respond_finish(&job.request, id, status, out);
    }
}

/// Answers a request, unless it is a no-response request.
fn reply(
    request: &Message,
    payload: Result<Option<Vec<u8>>, RequestError>,
    out: &mut Vec<Message>,
) {
    if request.is_noresponse() {
        return;
    }
    out.push(match payload {
        Ok(payload) => Message::response_to(request, 0, payload),
        Err(error) => Message::error_to(request, error.errnum, &error.text),
    });
}

fn respond(request: &Message, id: JobId, event: ExecEvent<'static>, out: &mut Vec<Message>) {
    let report = TypedPayload::StartResponse(StartReport { id, event });
    out.push(Message::typed_success_to(request, report).streaming());
}

fn respond_exception(
    request: &Message,
    id: JobId,
    kind: &'static str,
    note: String,
    out: &mut Vec<Message>,
) {
    let exception = Exception {
        severity: 0,
        kind: kind.into(),
        note: note.into(),
        wait_status: None,
    };
    respond(request, id, ExecEvent::Exception(exception), out);
}

fn respond_release(request: &Message, id: JobId, out: &mut Vec<Message>) {
    let release = Release {
        ranks: ReleasedRanks::All,
        is_final: true,
    };
    respond(request, id, ExecEvent::Release(release), out);
}

fn respond_finish(request: &Message, id: JobId, status: i32, out: &mut Vec<Message>) {
    respond(request, id, ExecEvent::Finish(Finish::new(status)), out);
    respond_release(request, id, out);
}

/// Fails a job that cannot be started, and releases its resources.
fn fail_start(request: &Message, id: JobId, note: String, out: &mut Vec<Message>) {
    respond_exception(request, id, "exec", note, out);
    respond_release(request, id, out);
}

/// Rejects a malformed start request: its job fails, or, without a job id, the stream ends with an error.
fn reject_start(request: &Message, error: &RequestError, out: &mut Vec<Message>) {
    if let Ok(JobRequest { id }) = request.read() {
        fail_start(request, id, error.text.clone(), out);
    } else {
        out.push(Message::error_to(request, error.errnum, &error.text));
    }
}

#[cfg(test)]
mod tests;
