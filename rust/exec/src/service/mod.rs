//! The execution service `penstock-exec`: RFC 32 at one end, a reaper at the other.
//!
//! [`Service`] is sans-I/O. The event loop of [`run`](crate::linux::serve) passes in messages of the broker,
//! messages of the reaper, lost and new connections, and the time; it calls [`settle`](Service::settle) after each batch
//! and carries out the [`Effect`]s in their order.
//!
//! # Which jobs have been started
//!
//! Two files say it. The [journal] has a record of every job whose tasks were handed to the reaper, written before
//! the reaper gets them. The reaper's log has a record of every task, written before the task executes its program; its
//! [list](crate::protocol::Request::List) tells their states. So of a job in a start request
//!
//! | journal | reaper | the service |
//! |---|---|---|
//! | no record | no task | starts it, or rejects it if the request has `reattach`: another service may have started it. If the request has this journal's identity as well, no other service may, and it is started |
//! | a record | all tasks | answers `reattached`, and reports what has ended meanwhile |
//! | a record | some tasks missing | lets the reaper start the missing ones: they never ran |
//! | a record of another boot | whatever | reports what had ended; otherwise raises an exception: the machine was rebooted |
//!
//! The reaper starts no task twice, even if requested twice. A service that has been killed may have left requests in its
//! socket; the reaper carries these out before it answers the next service's list.
//!
//! Both files survive the death of every process. The journal is flushed to disk only with the option `--sync`:
//! after a power failure no task runs, and a job without a record is rejected. So the identity of the journal in
//! `exec-hello` has the boot in it. It is that of the file otherwise.
//!
//! # When a job is forgotten
//!
//! After the final release the service sends `job-manager.ping`. A job manager responds to it after it has committed the
//! release, and never asks for the job again. Only then do journal and reaper forget it. Until then the job can be
//! claimed again: its end is reported again.
//!
//! After `exec-hello` the same request shows that all start requests of running jobs have arrived. A job that was not
//! among them and has no process is forgotten; one that has processes is left alone, reported in the log, and forgotten
//! when they have ended.

mod effect;
mod job;
pub mod journal;
mod journal_writer;
mod note;
mod output;
mod plan;
mod pmix;
mod shell_options;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ffi::CString;
use std::{io, mem};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::alloc::CancelRequest as JobRequest;
use penstock_flux::broker::{ServiceRequest, SubscriptionRequest};
use penstock_flux::errno::{EEXIST, EPROTO};
use penstock_flux::exec::{
    ConfigReloadRequest, ExpirationRequest, HelloRequest, JobExceptionEvent, KillRequest,
    OutputRequest, ReplacedRequest, ShrinkRequest, StartRequest, StatsResponse,
};
use penstock_flux::kvs::{LookupRequest, LookupResponse, PRIMARY};
use penstock_flux::{Matchtags, Payload, RequestError, topic};
use penstock_jobspec::Jobspec;
use penstock_rset::ResourceSet;
use penstock_wire::{Message, MessageType};

use crate::protocol::{Event, Hello, Input, Message as ReaperMessage, Request, Target, TaskSpec};
use crate::types::{BootId, JobId, MAX_SIGNAL, Rank, SpawnFailure, Step, TaskId};
use job::{Answered, Attachment, Claim, Ending, Job, Presence, Task, TaskState, Version};
use journal::{Intent, JournalContents, JournalId, Record};
use journal_writer::{JournalWriter, NextStep};
use note::Note;
use output::{Followers, Phase};
use plan::Plan;
use pmix::{PmixServer, TaskProgress};

pub use effect::{Chunk, Effect, ReaderId, Stream};
pub use plan::Surroundings;

/// Time after which a process that SIGKILL has not ended is killed again, in seconds.
const KILL_RETRY_INTERVAL_S: f64 = 5.0;
/// Time between two checks of the size of retained output, in seconds.
const OUTPUT_CHECK_INTERVAL_S: f64 = 1.0;
/// Bytes of tasks in one spawn request: less than [`MAX_FRAME_BYTES`](crate::protocol::MAX_FRAME_BYTES) even with another task.
const MAX_SPAWN_BYTES: usize = 4 << 20;
const SIGKILL: u32 = libc::SIGKILL as u32;
const SIGTERM: u32 = libc::SIGTERM as u32;
const SIGCONT: u32 = libc::SIGCONT as u32;

/// The settings of a service.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name under which it serves `start`.
    pub name: String,
    /// Its user, whose jobs it runs.
    pub owner: u32,
    /// The current boot.
    pub boot: BootId,
    /// The properties that tasks inherit.
    pub surroundings: Surroundings,
    /// Time between SIGTERM and SIGKILL, in seconds.
    pub kill_timeout_s: f64,
    /// Bytes of retained output at which a job is killed; 0 for no limit.
    pub output_limit: u64,
    /// Whether the service ends when it is of no use: see [`Service::is_finished`].
    pub end_when_idle: bool,
}

/// The state of the connection to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broker {
    Disconnected,
    /// Disconnected after the registration was rejected.
    Rejected,
    /// This many requests are outstanding.
    Registering(usize),
    /// Start requests of running jobs are arriving.
    Synchronizing,
    /// Every job that the job manager counts as running has been claimed.
    Synchronized,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaper {
    Disconnected,
    /// The list request of this id is outstanding.
    Listing(u32),
    Ready,
}

/// An outstanding request of the service to the instance.
#[derive(Debug)]
enum Outstanding {
    Registration,
    /// The barrier after registration.
    Synchronization,
    /// The barrier after these jobs' final releases.
    Acknowledgement(Vec<JobId>),
    /// R of a job.
    Lookup(JobId),
    /// The end of a job that is not here, but whose output is followed.
    End(JobId),
    /// The PMIx server of a job, streaming.
    PmixServer(JobId),
}

/// A time at which a job needs attention.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Timer(f64, Option<JobId>);

impl Eq for Timer {}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state machine of a service.
#[derive(Debug)]
pub struct Service {
    settings: Settings,
    journal: JournalId,
    jobs: BTreeMap<JobId, Job>,
    broker: Broker,
    reaper: Reaper,
    matchtags: Matchtags,
    outstanding: BTreeMap<u32, Outstanding>,
    last_reaper_request: u32,
    timers: BinaryHeap<Reverse<Timer>>,
    /// Jobs that may have a next step.
    changed: BTreeSet<JobId>,
    followers: Followers,
    /// Released jobs whose release is not acknowledged, and for which no barrier has been sent.
    released: Vec<JobId>,
    is_acknowledgement_due: bool,
    writer: JournalWriter,
    /// Tasks to request from the reaper: the journal has a record of their jobs.
    spawns: Vec<TaskSpec>,
    /// Jobs to request the reaper to forget.
    forgotten: Vec<JobId>,
    /// The jobs of outstanding forget requests.
    forgetting: BTreeMap<u32, Vec<JobId>>,
    directories: Vec<JobId>,
    messages: Vec<Message>,
    effects: Vec<Effect>,
    failure: Option<Failure>,
    own_end: OwnEnd,
}

/// The progress of the end of a service that is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnEnd {
    None,
    /// The reaper was requested to end, under this id.
    Requested(u32),
    /// The reaper has found another process: its event is on its way.
    Rejected,
    Finished,
}

/// The rejection of the registration.
#[derive(Debug)]
struct Failure {
    text: String,
    is_name_taken: bool,
}

impl Service {
    /// Creates a service from the journal of an earlier one, and starts a new journal with its contents.
    pub fn new(settings: Settings, journal: JournalContents) -> Self {
        let jobs = journal.jobs.into_iter();
        Self {
            settings,
            journal: journal.id,
            jobs: jobs
                .map(|(id, intent)| (id, Job::new(Some(intent))))
                .collect(),
            broker: Broker::Disconnected,
            reaper: Reaper::Disconnected,
            matchtags: Matchtags::default(),
            outstanding: BTreeMap::new(),
            last_reaper_request: 0,
            timers: BinaryHeap::new(),
            changed: BTreeSet::new(),
            followers: Followers::default(),
            released: Vec::new(),
            is_acknowledgement_due: false,
            writer: JournalWriter::new(),
            spawns: Vec::new(),
            forgotten: Vec::new(),
            forgetting: BTreeMap::new(),
            directories: Vec::new(),
            messages: Vec::new(),
            effects: Vec::new(),
            failure: None,
            own_end: OwnEnd::None,
        }
    }

    /// Why the service has failed: its registration was rejected. Another connection is another attempt.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.text.as_str())
    }

    /// Whether the registration was rejected because another service has the name.
    pub fn is_name_taken(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| failure.is_name_taken)
    }

    /// Whether the service is to end, because it is of no use: the instance has gone, no job has a process, and the reaper
    /// has ended. Journal and log tell the next service which statuses are to be reported.
    ///
    /// Only a service with [`end_when_idle`](Settings::end_when_idle) ends so.
    pub fn is_finished(&self) -> bool {
        self.own_end == OwnEnd::Finished
    }

    /// Whether the job manager has accepted the registration and sent all start requests of running jobs.
    pub fn is_synchronized(&self) -> bool {
        self.broker == Broker::Synchronized
    }

    /// The number of jobs that have not been forgotten.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// When [`advance`](Self::advance) has something to do next, in seconds since the epoch.
    pub fn deadline(&self) -> Option<f64> {
        let timer = self.timers.peek().map(|Reverse(timer)| timer.0);
        let deadlines = timer.into_iter().chain(self.writer.retry_at());
        deadlines.min_by(f64::total_cmp)
    }

    // --- the broker

    /// Registers the service on a new connection.
    pub fn register(&mut self) {
        let service = || self.settings.name.as_str().into();
        let add = ServiceRequest { service: service() };
        let subscribe = SubscriptionRequest {
            topic: topic::JOB_EXCEPTION.into(),
        };
        let hello = HelloRequest {
            service: service(),
            journal: Some(self.journal_identity().into()),
            ..HelloRequest::default()
        };
        let requests = [
            Message::request(topic::service::ADD, "").with_payload(&add),
            Message::request(topic::event::SUBSCRIBE, "").with_payload(&subscribe),
            Message::request(topic::job_manager::EXEC_HELLO, "").with_payload(&hello),
        ];
        self.failure = None;
        self.broker = Broker::Registering(requests.len());
        for request in requests {
            self.send(request, Outstanding::Registration);
        }
    }

    /// The identity of the journal for the job manager: it changes when records may have been lost.
    fn journal_identity(&self) -> String {
        format!("{:032x}-{:032x}", self.journal.0, self.settings.boot.0)
    }

    /// Handles the loss of the connection: tasks run on. The job manager will ask for its jobs again.
    pub fn handle_disconnect(&mut self) {
        self.broker = if self.failure.is_some() {
            Broker::Rejected
        } else {
            Broker::Disconnected
        };
        self.matchtags = Matchtags::default();
        self.outstanding.clear();
        self.messages.clear();
        self.released.clear();
        self.is_acknowledgement_due = false;
        self.followers.clear();
        for (id, job) in &mut self.jobs {
            job.claim = None;
            job.plan = None;
            job.pmix = None;
            self.changed.insert(*id);
        }
    }

    /// Handles a message of the broker.
    pub fn handle(&mut self, message: &Message) {
        match message.kind {
            MessageType::Request if message.service() == self.settings.name => {
                self.handle_request(message);
            }
            MessageType::Response => self.handle_response(message),
            MessageType::Event if message.topic() == topic::JOB_EXCEPTION => {
                self.handle_exception(message);
            }
            _ => {}
        }
    }

    fn send(&mut self, request: Message, outstanding: Outstanding) {
        let tag = self.matchtags.allot();
        self.outstanding.insert(tag, outstanding);
        self.messages.push(request.with_matchtag(tag));
    }

    fn handle_response(&mut self, response: &Message) {
        let Some(outstanding) = self.take_outstanding(response) else {
            return;
        };
        match outstanding {
            Outstanding::Registration => self.handle_registration(response),
            Outstanding::Synchronization => {
                self.broker = Broker::Synchronized;
                self.changed.extend(self.jobs.keys());
                self.sweep();
            }
            Outstanding::Acknowledgement(jobs) => {
                self.is_acknowledgement_due = false;
                self.forget(jobs);
            }
            Outstanding::Lookup(id) => self.handle_lookup(id, response),
            Outstanding::PmixServer(id) => self.handle_pmix_response(id, response),
            Outstanding::End(id) => {
                self.followers.note_job_start(id, &mut self.effects);
                self.followers.note_job_end(id);
            }
        }
    }

    /// The request that a response is to; it stays outstanding if another response may follow.
    fn take_outstanding(&mut self, response: &Message) -> Option<Outstanding> {
        let tag = response.matchtag;
        if let Some(Outstanding::PmixServer(id)) = self.outstanding.get(&tag)
            && response.errnum() == 0
        {
            return Some(Outstanding::PmixServer(*id));
        }
        self.matchtags.release(tag);
        self.outstanding.remove(&tag)
    }

    fn handle_registration(&mut self, response: &Message) {
        // The first error is the cause of the others.
        if response.errnum() != 0 && self.failure.is_none() {
            let (topic, errnum) = (response.topic(), response.errnum());
            let text = response.error_text().filter(|text| !text.is_empty());
            let text = text.map_or_else(String::new, |text| format!(": {text}"));
            let hint = if errnum == EEXIST {
                "\nhint: the instance has another execution service: start it with `--exec none`"
            } else {
                ""
            };
            self.failure = Some(Failure {
                text: format!("{topic} failed with errnum {errnum}{text}{hint}"),
                is_name_taken: topic == topic::service::ADD && errnum == EEXIST,
            });
        }
        if let Broker::Registering(left) = self.broker {
            self.broker = Broker::Registering(left.saturating_sub(1));
            if left <= 1 && self.failure.is_none() {
                self.broker = Broker::Synchronizing;
                self.send(barrier(), Outstanding::Synchronization);
            }
        }
    }

    fn handle_request(&mut self, request: &Message) {
        let method = request.method();
        let answer = match method {
            topic::DISCONNECT => {
                self.followers.disconnect(request);
                return;
            }
            topic::PING => request.echo().map(Some),
            _ => match request.credentials().require_owner(request.topic()) {
                Err(error) => Err(error),
                Ok(()) => match method {
                    topic::exec_method::START => return self.start(request),
                    topic::exec_method::KILL => self.kill(request).map(|()| None),
                    topic::exec_method::EXPIRATION => self.set_expiration(request).map(|()| None),
                    topic::exec_method::REPLACED => self.end_replaced_jobs(request).map(|()| None),
                    topic::exec_method::SHRINK => self.shrink(request).map(|()| None),
                    topic::exec_method::CONFIG_RELOAD => {
                        self.reload_settings(request).map(|()| None)
                    }
                    topic::exec_method::OUTPUT => match self.follow(request) {
                        Ok(()) => return,
                        Err(error) => Err(error),
                    },
                    topic::exec_method::OUTPUT_CANCEL => self
                        .followers
                        .cancel(request, &mut self.messages)
                        .map(|()| None),
                    topic::STATS_GET => Ok(Some(self.stats().to_payload())),
                    _ => Err(RequestError::unknown_method(request.topic())),
                },
            },
        };
        if request.is_noresponse() {
            return;
        }
        self.messages.push(match answer {
            Ok(payload) => Message::response_to(request, 0, payload),
            Err(error) => Message::error_to(request, error.errnum, &error.text),
        });
    }

    /// Applies changed settings. A job whose end has begun keeps its time of SIGKILL.
    fn reload_settings(&mut self, request: &Message) -> Result<(), RequestError> {
        let reload: ConfigReloadRequest = request.read_request()?;
        if let Some(seconds) = reload.kill_timeout {
            if !(seconds.is_finite() && seconds >= 0.0) {
                let text = format!("invalid `kill-timeout` {seconds}: expected 0 or more seconds");
                return Err(RequestError::invalid(text));
            }
            self.settings.kill_timeout_s = seconds;
        }
        if let Some(bytes) = reload.output_limit {
            self.settings.output_limit = bytes;
            for (id, job) in &mut self.jobs {
                if job.is_output_retained && job.has_running_task() {
                    job.measure_at = Some(f64::NEG_INFINITY);
                    self.changed.insert(*id);
                }
            }
        }
        Ok(())
    }

    fn stats(&self) -> StatsResponse {
        let tasks = self.jobs.values().flat_map(|job| job.tasks.values());
        let unclaimed = self.jobs.values().filter(|job| job.claim.is_none()).count();
        StatsResponse {
            jobs: self.jobs.len() - unclaimed,
            tasks: tasks.filter(|task| task.is_running()).count(),
            followers: self.followers.len(),
            unclaimed,
        }
    }

    // --- start

    fn start(&mut self, request: &Message) {
        let start = match request.read::<StartRequest<'_>>() {
            Ok(start) => start,
            Err(error) => {
                let Ok(JobRequest { id }) = request.read() else {
                    let error = Message::error_to(request, EPROTO, &error.to_string());
                    self.messages.push(error);
                    return;
                };
                let note = format!("malformed start request: {error}");
                return self.reject_start(id, request, note);
            }
        };
        let id = start.id;
        let is_this_journal = start
            .journal
            .as_ref()
            .is_some_and(|journal| journal.0 == self.journal_identity());
        let job = self.jobs.entry(id).or_insert_with(|| Job::new(None));
        if job.claim.is_some() && !job.is_released() {
            // RFC 32 allows one outstanding request for a job: a second one gets no response.
            let text = format!("job {id} is running already: start request ignored");
            self.effects.push(Effect::Log(text));
            return;
        }
        let attachment = match (start.reattach, is_this_journal) {
            (false, _) => Attachment::New,
            (true, false) => Attachment::Reattach,
            (true, true) => Attachment::ReattachByJournal,
        };
        let version = match start.r {
            Some(_) => Version::Current,
            None => Version::First,
        };
        job.claim = Some(Claim::new(request.header(), attachment, version));
        job.plan_error = None;
        self.changed.insert(id);
        if start.userid != self.settings.owner {
            let note = format!(
                "the execution service runs no jobs of guests yet: the job is user {}'s",
                start.userid
            );
            return job.fail("exec", note);
        }
        let jobspec = match Jobspec::from_json(start.jobspec.as_str()) {
            Ok(jobspec) => jobspec,
            Err(error) => {
                job.plan_error = Some(error.to_string().into());
                return;
            }
        };
        if let Some(r) = start.r {
            self.make_plan(id, &jobspec, r.as_str());
            return;
        }
        if let Some(claim) = &mut job.claim {
            claim.awaiting_r = Some(Box::new(jobspec));
        }
        let lookup = LookupRequest {
            namespace: Some(PRIMARY.into()),
            key: format!("job.{}.R", id.dothex()).into(),
            flags: 0,
        };
        let lookup = Message::request(topic::kvs::LOOKUP, "").with_payload(&lookup);
        self.send(lookup, Outstanding::Lookup(id));
    }

    fn reject_start(&mut self, id: JobId, request: &Message, note: String) {
        let job = self.jobs.entry(id).or_insert_with(|| Job::new(None));
        if job.claim.is_none() || job.is_released() {
            job.claim = Some(Claim::new(
                request.header(),
                Attachment::New,
                Version::First,
            ));
            job.fail("exec", note);
            self.changed.insert(id);
        }
    }

    fn handle_lookup(&mut self, id: JobId, response: &Message) {
        let job = self.jobs.get_mut(&id);
        let claim = job.and_then(|job| job.claim.as_mut());
        let Some(jobspec) = claim.and_then(|claim| claim.awaiting_r.take()) else {
            return;
        };
        self.changed.insert(id);
        match read_looked_up_r(response) {
            Ok(r) => self.make_plan(id, &jobspec, &r),
            Err(note) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.plan_error = Some(note);
                }
            }
        }
    }

    fn make_plan(&mut self, id: JobId, jobspec: &Jobspec, r: &str) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let plan = match ResourceSet::from_json(r) {
            Ok(r) => {
                job.expiration = r.expiration().unwrap_or(0.0);
                Plan::new(id, jobspec, &r, &self.settings.surroundings)
            }
            Err(error) => Err(error.to_string().into()),
        };
        match plan {
            Ok(mut plan) => {
                job.pmix = plan.pmix.take().map(|tasks| PmixServer::new(id, tasks));
                job.redirected_to.clone_from(&plan.redirected_to);
                job.is_output_retained = plan.is_output_retained;
                job.warning = plan.warning;
                job.plan = Some(plan);
            }
            Err(note) => job.plan_error = Some(note),
        }
    }

    // --- PMIx

    /// Requests the PMIx server of a job that needs one, unless that was requested since the instance has connected.
    fn request_pmix_server(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let progress = if job.has_started() {
            TaskProgress::Started
        } else {
            TaskProgress::NotStarted
        };
        let server = job.pmix.as_mut();
        if let Some(start) = server.and_then(|server| server.request_start(progress)) {
            self.send(start, Outstanding::PmixServer(id));
        }
    }

    /// Handles a response to the request for the PMIx server of a job: first the environment, at last an error.
    fn handle_pmix_response(&mut self, id: JobId, response: &Message) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(server) = &mut job.pmix else {
            return;
        };
        self.changed.insert(id);
        if response.errnum() != 0 {
            let is_needed = job.is_untouched() || !job.has_ended();
            if is_needed {
                job.fail("pmix", pmix::failure_note(response));
            }
            return;
        }
        let result = match server.take_environment(response) {
            Ok(None) => return,
            Ok(Some(environment)) => match &mut job.plan {
                Some(plan) => plan.extend_environment(&environment),
                None => Ok(()),
            },
            Err(note) => Err(note),
        };
        if let Err(note) = result {
            job.fail("pmix", format!("response to {}: {note}", response.topic()));
        }
        let has_ended = |(rank, task): (&Rank, &Task)| {
            matches!(task.state, TaskState::Ended(_)).then_some(*rank)
        };
        let ended: Vec<_> = job.tasks.iter().filter_map(has_ended).collect();
        for rank in ended {
            self.report_end_to_pmix(id, rank);
        }
    }

    /// Tells the PMIx server of a job, if it has one, that a task has ended.
    fn report_end_to_pmix(&mut self, id: JobId, rank: Rank) {
        let server = self.jobs.get(&id).and_then(|job| job.pmix.as_ref());
        let ended = server.and_then(|server| server.ended_message(rank));
        self.messages.extend(ended);
    }

    /// Ends the PMIx server of a job that is released.
    fn stop_pmix_server(&mut self, id: JobId) {
        let server = self.jobs.get_mut(&id).and_then(|job| job.pmix.take());
        self.messages
            .extend(server.map(PmixServer::into_stop_message));
    }

    // --- other requests about jobs

    fn kill(&mut self, request: &Message) -> Result<(), RequestError> {
        let KillRequest { id, signum } = request.read_request()?;
        let signal = u32::try_from(signum).ok();
        let signal = signal.filter(|signal| (1..=MAX_SIGNAL).contains(signal));
        let Some(signal) = signal else {
            let text = format!("invalid signal `{signum}`: expected 1 to {MAX_SIGNAL}");
            return Err(RequestError::invalid(text));
        };
        self.signal_tasks(id, signal, |_| true);
        Ok(())
    }

    fn set_expiration(&mut self, request: &Message) -> Result<(), RequestError> {
        let ExpirationRequest { id, expiration } = request.read_request()?;
        let job = self.jobs.get_mut(&id);
        let Some(job) = job.filter(|job| job.claim.is_some()) else {
            return Err(RequestError::not_found(format!("job {id} is not running")));
        };
        if !(expiration.is_finite() && expiration >= 0.0) {
            let text =
                format!("invalid expiration `{expiration}`: expected 0 or seconds since the epoch");
            return Err(RequestError::invalid(text));
        }
        job.expiration = expiration;
        let warning_time = job.warning_time();
        self.changed.insert(id);
        self.wake_at(expiration, id);
        self.wake_at(warning_time.unwrap_or_default(), id);
        Ok(())
    }

    /// Ends all jobs without a further response: another service has taken them over.
    fn end_replaced_jobs(&mut self, request: &Message) -> Result<(), RequestError> {
        let ReplacedRequest { service } = request.read_request()?;
        let count = self.jobs.values().filter(|job| job.claim.is_some()).count();
        let text = format!("`{}` runs the jobs now: ending {count} here", service.0);
        self.effects.push(Effect::Log(text));
        self.released.clear();
        for (id, job) in &mut self.jobs {
            job.is_replaced = true;
            job.claim = None;
            // The server is the next service's.
            job.pmix = None;
            self.changed.insert(*id);
        }
        Ok(())
    }

    /// Ends the tasks of a job on execution targets that it has released.
    fn shrink(&mut self, request: &Message) -> Result<(), RequestError> {
        let ShrinkRequest { id, ranks } = request.read_request()?;
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        let Some(intent) = &mut job.intent else {
            return Ok(());
        };
        let mut targets = Vec::new();
        for (target, task) in intent.targets.iter().zip(job.tasks.values_mut()) {
            if ranks.contains(*target) && !task.is_shrunk {
                task.is_shrunk = true;
                targets.push(*target);
            }
        }
        targets.dedup();
        if !targets.is_empty() {
            intent.shrunk.extend(&targets);
            // Their statuses do not count: that must be known before they end.
            let record = Record::Shrunk(id, targets);
            self.writer.add(record, NextStep::EndShrunkTasks(id));
        }
        Ok(())
    }

    fn handle_exception(&mut self, event: &Message) {
        // Any client can publish an event; only the job manager's are well-formed for sure.
        let Ok(exception) = event.read::<JobExceptionEvent<'_>>() else {
            let text = "malformed event `job-exception` ignored".to_owned();
            self.effects.push(Effect::Log(text));
            return;
        };
        let id = exception.id;
        let claim = self.jobs.get_mut(&id).and_then(|job| job.claim.as_mut());
        if let Some(claim) = claim
            && exception.severity == 0
            && !claim.is_failed
        {
            claim.is_failed = true;
            claim.wait_status = exception.wait_status;
            self.changed.insert(id);
        }
    }

    // --- the reaper

    /// Handles a new connection to a reaper.
    pub fn handle_reaper_connection(&mut self, hello: Hello) {
        debug_assert_eq!(
            hello.boot, self.settings.boot,
            "the reaper runs in this boot"
        );
        for job in self.jobs.values_mut() {
            job.presence = Presence::Absent;
            for task in job.tasks.values_mut() {
                task.is_seen = false;
            }
        }
        self.spawns.clear();
        self.forgotten.clear();
        self.forgetting.clear();
        self.effects
            .retain(|effect| !matches!(effect, Effect::Request(..)));
        self.own_end = OwnEnd::None;
        let id = self.request(Request::List);
        self.reaper = Reaper::Listing(id);
    }

    /// Handles the loss of the connection to the reaper.
    pub fn handle_reaper_loss(&mut self) {
        self.reaper = Reaper::Disconnected;
    }

    /// Handles a message of the reaper.
    pub fn handle_reaper_message(&mut self, message: ReaperMessage) {
        match message {
            ReaperMessage::Events(events) => {
                if self.own_end == OwnEnd::Rejected {
                    self.own_end = OwnEnd::None;
                }
                for event in events {
                    self.handle_event(event);
                }
            }
            // A reaper that rejects the list is ending: the next one lists.
            ReaperMessage::Done { id, errno } if self.reaper == Reaper::Listing(id) => {
                if errno == 0 {
                    self.finish_listing();
                }
            }
            ReaperMessage::Done { id, errno } if self.own_end == OwnEnd::Requested(id) => {
                self.own_end = match errno {
                    0 if self.is_idle() => OwnEnd::Finished,
                    // The instance has connected again: the next reaper is started.
                    0 => OwnEnd::None,
                    _ => OwnEnd::Rejected,
                };
            }
            ReaperMessage::Done { id, errno } => {
                let jobs = self.forgetting.remove(&id).unwrap_or_default();
                if errno == libc::EBUSY && !jobs.is_empty() {
                    // A process was found after the job had been reported empty. Its end is reported again.
                    self.request(Request::Kill(jobs));
                }
            }
            ReaperMessage::Hello(_) => {}
        }
    }

    fn handle_event(&mut self, event: Event) {
        let (id, task) = match event {
            Event::Started { task, .. }
            | Event::Failed { task, .. }
            | Event::Ended { task, .. } => (task.job, Some(task)),
            Event::Empty { job } => (job, None),
        };
        // After the list, an unknown job is one that the reaper could not forget.
        if self.reaper == Reaper::Ready && !self.jobs.contains_key(&id) {
            if task.is_none() {
                self.forgotten.push(id);
            }
            return;
        }
        let job = self.jobs.entry(id).or_insert_with(|| Job::new(None));
        job.presence = match task {
            Some(_) => Presence::Busy,
            None => Presence::Empty,
        };
        self.changed.insert(id);
        let Some(task) = task else {
            return;
        };
        let rank = task.rank;
        let state = match event {
            Event::Started { process, .. } => TaskState::Running(process),
            Event::Failed { failure, .. } => TaskState::Failed(failure),
            Event::Ended { end, .. } => TaskState::Ended(end.status),
            Event::Empty { .. } => return,
        };
        let is_first_failure = !job.has_exec_failure();
        let entry = job.tasks.entry(rank).or_insert_with(|| Task::new(state));
        entry.is_seen = true;
        if let Event::Ended { end, .. } = event {
            entry.usage = (end.status != crate::types::WaitStatus::Unknown).then_some(end.usage);
        }
        let before = mem::replace(&mut entry.state, state);
        match state {
            TaskState::Failed(failure)
                if failure.step == Step::Exec
                    && before == TaskState::Requested
                    && is_first_failure =>
            {
                self.explain_failure(task, failure);
            }
            TaskState::Running(_) if matches!(job.ending, Ending::Terminating(_)) => {
                self.terminate_tasks(id, |other| other == task);
            }
            TaskState::Ended(_) if !matches!(before, TaskState::Ended(_)) => {
                self.report_end_to_pmix(id, rank);
            }
            _ => {}
        }
    }

    /// Writes why a program could not be executed to the task's standard error.
    fn explain_failure(&mut self, task: TaskId, failure: SpawnFailure) {
        let job = self.jobs.get(&task.job);
        let plan = job.and_then(|job| job.plan.as_ref());
        let spec = plan.and_then(|plan| plan.specs.get(task.rank.0 as usize));
        if let Some(spec) = spec
            && let Some(path) = plan::error_file(spec)
            && let Some(program) = spec.arguments.first()
        {
            let reason = if failure.errno == libc::ENOENT {
                "command not found".to_owned()
            } else {
                strerror(failure.errno)
            };
            let line = format!("penstock: {}: {reason}\n", program.to_string_lossy());
            self.effects.push(Effect::WriteLine(path.clone(), line));
        }
    }

    /// Handles the end of the reaper's list: what it does not know has not been started, or is lost.
    fn finish_listing(&mut self) {
        self.reaper = Reaper::Ready;
        let mut to_kill = Vec::new();
        for (id, job) in &mut self.jobs {
            for task in job.tasks.values_mut().filter(|task| !task.is_seen) {
                task.state = match task.state {
                    TaskState::Requested => TaskState::Missing,
                    TaskState::Running(_) => TaskState::Ended(crate::types::WaitStatus::Unknown),
                    known => known,
                };
            }
            if matches!(job.ending, Ending::Killed(_)) && !job.is_idle() {
                to_kill.push(*id);
            }
            self.changed.insert(*id);
        }
        if !to_kill.is_empty() {
            self.request(Request::Kill(to_kill));
        }
        self.sweep();
    }

    fn request(&mut self, request: Request) -> u32 {
        self.last_reaper_request = self.last_reaper_request.wrapping_add(1);
        let id = self.last_reaper_request;
        self.effects.push(Effect::Request(id, request));
        id
    }

    fn signal_tasks(&mut self, id: JobId, signal: u32, is_meant: impl Fn(&Task) -> bool) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let tasks = job.tasks.iter();
        let tasks = tasks.filter(|(_, task)| task.is_running() && is_meant(task));
        let targets: Vec<_> = tasks
            .map(|(rank, _)| TaskId {
                job: id,
                rank: *rank,
            })
            .collect();
        for task in targets {
            let target = Target::Task(task);
            self.request(Request::Signal { target, signal });
        }
    }

    fn terminate_tasks(&mut self, id: JobId, is_meant: impl Fn(TaskId) -> bool) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let tasks = job.tasks.iter().filter(|(_, task)| task.is_running());
        let tasks = tasks.map(|(rank, _)| TaskId {
            job: id,
            rank: *rank,
        });
        let targets: Vec<_> = tasks.filter(|task| is_meant(*task)).collect();
        for task in targets {
            // A stopped process does not handle SIGTERM until it continues.
            for signal in [SIGTERM, SIGCONT] {
                let target = Target::Task(task);
                self.request(Request::Signal { target, signal });
            }
        }
    }

    // --- the steps of a job

    /// Handles the time.
    pub fn advance(&mut self, now: f64) {
        if self.writer.end_delay(now) {
            // The starts that wait are attempted again.
            self.changed.extend(self.jobs.keys());
        }
        while let Some(Reverse(Timer(at, job))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            match job {
                Some(id) => {
                    self.changed.insert(id);
                }
                None => self.followers.poll(&mut self.effects),
            }
        }
    }

    fn wake_at(&mut self, at: f64, id: JobId) {
        if at > 0.0 && at.is_finite() {
            self.timers.push(Reverse(Timer(at, Some(id))));
        }
    }

    /// Takes the next steps of all jobs that have changed.
    pub fn settle(&mut self, now: f64) {
        while !self.changed.is_empty() {
            for id in mem::take(&mut self.changed) {
                self.check_times(id, now);
                self.progress(id, now);
            }
        }
        if !self.released.is_empty()
            && !self.is_acknowledgement_due
            && self.broker == Broker::Synchronized
        {
            self.is_acknowledgement_due = true;
            let jobs = mem::take(&mut self.released);
            self.send(barrier(), Outstanding::Acknowledgement(jobs));
        }
        if let Some(at) = self.followers.take_poll_time(now) {
            self.timers.push(Reverse(Timer(at, None)));
        }
        self.end_if_idle();
    }

    /// Whether the instance has gone, the journal is written, and no job has a process or may get one before the instance
    /// connects again.
    fn is_idle(&self) -> bool {
        let is_reaper_ready = self.reaper == Reaper::Ready;
        let is_idle = |job: &Job| {
            job.is_untouched()
                || (is_reaper_ready && job.is_idle() && !job.has(TaskState::Requested))
        };
        self.broker == Broker::Disconnected
            && self.jobs.values().all(is_idle)
            && self.writer.is_written()
    }

    /// Ends the service if it is of no use, the reaper first.
    fn end_if_idle(&mut self) {
        if !self.settings.end_when_idle || self.own_end != OwnEnd::None || !self.is_idle() {
            return;
        }
        self.own_end = match self.reaper {
            Reaper::Disconnected => OwnEnd::Finished,
            Reaper::Listing(_) => OwnEnd::None,
            Reaper::Ready => OwnEnd::Requested(self.request(Request::Shutdown)),
        };
    }

    /// Removes and returns the effects, to be carried out in this order.
    pub fn drain(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let header = || journal::header(&self.settings.surroundings.uri, self.journal);
        let jobs = &self.jobs;
        effects.extend(self.writer.begin(|| journal_of(header(), jobs)));
        let directories = mem::take(&mut self.directories);
        effects.extend(directories.into_iter().map(Effect::CreateOutput));
        for tasks in in_frames(mem::take(&mut self.spawns)) {
            self.last_reaper_request = self.last_reaper_request.wrapping_add(1);
            let request = Request::Spawn(tasks);
            effects.push(Effect::Request(self.last_reaper_request, request));
        }
        let forgotten = mem::take(&mut self.forgotten);
        if !forgotten.is_empty() {
            let id = self.request(Request::Forget(forgotten.clone()));
            self.forgetting.insert(id, forgotten);
        }
        effects.append(&mut self.effects);
        effects.extend(mem::take(&mut self.messages).into_iter().map(Effect::Send));
        effects
    }

    /// Handles the result of [`Effect::Append`] or [`Effect::Rewrite`].
    pub fn finish_write(&mut self, result: io::Result<()>, now: f64) {
        let result = self.writer.finish(result, now);
        self.effects.extend(result.log.map(Effect::Log));
        for id in result.postponed {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.is_intent_pending = false;
            }
        }
        for step in result.steps {
            match step {
                NextStep::Start(id) => self.hand_over(id),
                NextStep::EndShrunkTasks(id) => {
                    if let Some(job) = self.jobs.get_mut(&id) {
                        job.shrink_kill_at = Some(f64::NEG_INFINITY);
                        self.changed.insert(id);
                    }
                }
                NextStep::Warn(id, signal) => self.signal_tasks(id, signal, |_| true),
                NextStep::Forget(id) if self.reaper == Reaper::Ready => self.forgotten.push(id),
                // A job that the reaper is to forget is in its next list, too.
                NextStep::Forget(_) | NextStep::None => {}
            }
        }
    }

    /// Handles the times of a job that have come.
    fn check_times(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let is_expired = job.expiration > 0.0 && now >= job.expiration;
        if is_expired && job.has_running_task() && !job.is_failing() && job.ending == Ending::None {
            job.fail("timeout", "resource allocation expired");
        }
        self.warn_if_due(id, now);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.ending {
            Ending::Terminating(at) if now >= at => self.kill_job(id, now),
            Ending::Killed(at) if now >= at && !job.is_idle() => {
                let text = format!("job {id}: a process has not ended by SIGKILL: trying again");
                self.effects.push(Effect::Log(text));
                self.kill_job(id, now);
            }
            _ => {}
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.shrink_kill_at {
            Some(at) if at == f64::NEG_INFINITY => {
                let at = now + self.settings.kill_timeout_s;
                job.shrink_kill_at = Some(at);
                let shrunk = job.tasks.iter().filter(|(_, task)| task.is_shrunk);
                let shrunk: BTreeSet<_> = shrunk.map(|(rank, _)| *rank).collect();
                self.terminate_tasks(id, |task| shrunk.contains(&task.rank));
                self.wake_at(at, id);
            }
            Some(at) if now >= at => {
                job.shrink_kill_at = None;
                self.signal_tasks(id, SIGKILL, |task| task.is_shrunk);
            }
            _ => {}
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.measure_at.is_some_and(|at| now >= at) {
            job.measure_at = None;
            if job.has_running_task() && self.settings.output_limit > 0 {
                let at = now + OUTPUT_CHECK_INTERVAL_S;
                job.measure_at = Some(at);
                self.effects.push(Effect::MeasureOutput(id));
                self.wake_at(at, id);
            }
        }
    }

    /// Sends the signal before the end of the allocation, once for each end.
    fn warn_if_due(&mut self, id: JobId, now: f64) {
        let is_reaper_ready = self.reaper == Reaper::Ready;
        let Some(job) = self.jobs.get_mut(&id).filter(|_| is_reaper_ready) else {
            return;
        };
        let is_due = job.warning_time().is_some_and(|at| now >= at);
        let is_ending = job.is_failing() || job.ending != Ending::None;
        let is_running = job.has_running_task() && !job.has(TaskState::Requested);
        if is_due
            && is_running
            && !is_ending
            && let Some(warning) = job.warning
            && let Some(intent) = &mut job.intent
        {
            intent.warned_of = Some(job.expiration);
            let record = Record::Warned(id, job.expiration);
            let is_blocked = self.writer.is_blocked();
            let step = NextStep::Warn(id, warning.signal);
            self.writer
                .add(record, if is_blocked { NextStep::None } else { step });
            if is_blocked {
                self.signal_tasks(id, warning.signal, |_| true);
            }
        }
    }

    /// Handles the size of a job's retained output, in bytes.
    pub fn take_output_size(&mut self, id: JobId, bytes: u64) {
        let limit = self.settings.output_limit;
        if let Some(job) = self.jobs.get_mut(&id)
            && limit > 0
            && bytes > limit
            && !job.is_failing()
        {
            job.fail(
                "exec",
                format!(
                    "more than {limit} bytes of output: send it to a file with `--output`, or raise \
                     the execution service's `--output-limit`"
                ),
            );
            self.changed.insert(id);
        }
    }

    fn kill_job(&mut self, id: JobId, now: f64) {
        let at = now + KILL_RETRY_INTERVAL_S;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.ending = Ending::Killed(at);
        }
        self.request(Request::Kill(vec![id]));
        self.wake_at(at, id);
    }

    /// Takes the next steps of a job.
    fn progress(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.is_released() {
            return;
        }
        job.send_exception(id, &mut self.messages);
        if job.is_untouched() {
            return self.start_untouched(id);
        }
        if self.reaper != Reaper::Ready {
            return;
        }
        let is_other_boot = |intent: &Intent| intent.boot != self.settings.boot;
        if job.intent.as_ref().is_some_and(is_other_boot)
            && (job.has(TaskState::Missing) || job.unknown_status().is_some())
        {
            job.fail("exec", "the machine was rebooted while the job ran");
            job.send_exception(id, &mut self.messages);
        }
        if job.has(TaskState::Missing) && !self.start_missing(id) {
            return;
        }
        self.report(id, now);
    }

    /// Starts a job of which neither journal nor reaper have a record, or ends it.
    fn start_untouched(&mut self, id: JobId) {
        let is_reaper_ready = self.reaper == Reaper::Ready;
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(claim) = &mut job.claim else {
            self.jobs.remove(&id);
            return;
        };
        if claim.attachment == Attachment::ReattachByJournal && is_reaper_ready {
            claim.attachment = Attachment::Restart;
        }
        if claim.attachment == Attachment::Reattach {
            // Only the reaper can have started it, if the journal was lost.
            if is_reaper_ready {
                let note = "lost: the execution service has no record of the job's start";
                job.fail("exec", note);
            }
        } else if let Some(note) = job.plan_error.take() {
            job.fail("exec", note);
        }
        if job.is_failing() {
            job.send_exception(id, &mut self.messages);
            job.answer_release(id, &mut self.messages);
            self.stop_pmix_server(id);
            self.followers.note_job_start(id, &mut self.effects);
            self.followers.note_job_end(id);
            self.jobs.remove(&id);
            return;
        }
        if job.plan.is_some() && is_reaper_ready && !job.is_pmix_ready() {
            return self.request_pmix_server(id);
        }
        let Some(plan) = job.plan.as_ref().filter(|_| is_reaper_ready) else {
            return;
        };
        if !job.is_intent_pending && !self.writer.is_blocked() {
            job.is_intent_pending = true;
            let intent = Intent::new(self.settings.boot, plan.targets.clone());
            let record = Record::Intent(id, intent);
            self.writer.add(record, NextStep::Start(id));
        }
    }

    /// Hands the tasks of a job to the reaper: the intent is in the journal.
    fn hand_over(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            // It has ended meanwhile.
            self.writer.add(Record::Forgotten(id), NextStep::None);
            return;
        };
        job.is_intent_pending = false;
        let Some(plan) = &job.plan else {
            self.writer.add(Record::Forgotten(id), NextStep::None);
            return;
        };
        if plan.is_output_retained {
            self.directories.push(id);
        }
        for (rank, _) in (0..).zip(&plan.specs) {
            let task = Task::new(TaskState::Requested);
            job.tasks.insert(Rank(rank), task);
        }
        self.spawns.extend_from_slice(&plan.specs);
        job.intent = Some(Intent::new(self.settings.boot, plan.targets.clone()));
        job.presence = Presence::Busy;
        self.changed.insert(id);
    }

    /// Starts the tasks of a job that an earlier service has not handed to the reaper. Returns whether none is missing
    /// any longer because they are abandoned.
    fn start_missing(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        let intended = job.intent.as_ref().map(|intent| intent.targets.as_slice());
        let has_changed = |plan: &Plan| intended != Some(plan.targets.as_slice());
        if job.plan.as_ref().is_some_and(has_changed) {
            job.plan_error = Some("R has changed since the job was to start".into());
        }
        if let Some(note) = job.plan_error.take()
            && job.claim.is_some()
        {
            job.fail("exec", note);
            job.send_exception(id, &mut self.messages);
        }
        if job.is_failing() {
            for task in job.tasks.values_mut() {
                if task.state == TaskState::Missing {
                    task.state = TaskState::Abandoned;
                }
            }
            return true;
        }
        // Until then an exception of the job may be on its way.
        let is_synchronized = self.broker == Broker::Synchronized;
        if job.plan.is_some() && is_synchronized && !job.is_pmix_ready() {
            self.request_pmix_server(id);
            return false;
        }
        let Some(plan) = job.plan.as_ref().filter(|_| is_synchronized) else {
            return false;
        };
        if plan.is_output_retained {
            self.directories.push(id);
        }
        let is_fresh = job
            .tasks
            .values()
            .all(|task| task.state == TaskState::Missing);
        for (spec, task) in plan.specs.iter().zip(job.tasks.values_mut()) {
            if task.state == TaskState::Missing {
                task.state = TaskState::Requested;
                self.spawns.push(spec.clone());
            }
        }
        job.presence = Presence::Busy;
        if let Some(claim) = job.claim.as_mut().filter(|_| is_fresh)
            && claim.attachment != Attachment::New
        {
            claim.attachment = Attachment::Restart;
        }
        false
    }

    /// Reports the start and the end of a job's tasks, and ends the job where that is due.
    fn report(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.has(TaskState::Requested) {
            return;
        }
        if job.has_running_task() && !job.is_failing() {
            self.request_pmix_server(id);
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if let Some(failure) = job.setup_failure() {
            let note = setup_note(failure, job.plan.as_ref(), job);
            job.fail("exec", note);
            job.send_exception(id, &mut self.messages);
        }
        job.plan = None;
        let claim_before = job.claim.as_ref().map(|claim| claim.answered);
        if job.exception.is_none() && job.has_started() {
            job.answer_start(id, &mut self.messages);
        }
        let must_end = job.is_failing() || job.has_exec_failure();
        let is_running = job.has_running_task();
        let (expiration, warning_time) = (job.expiration, job.warning_time());
        let is_retained = job.is_output_retained;
        if claim_before == Some(Answered::Nothing) {
            if let Some(template) = &job.redirected_to {
                self.followers
                    .reject_requests(id, template, &mut self.messages);
            }
            self.followers.note_job_start(id, &mut self.effects);
            if is_running {
                self.wake_at(expiration, id);
                self.wake_at(warning_time.unwrap_or_default(), id);
                if is_retained && self.settings.output_limit > 0 {
                    let at = now + OUTPUT_CHECK_INTERVAL_S;
                    if let Some(job) = self.jobs.get_mut(&id) {
                        job.measure_at = Some(at);
                    }
                    self.wake_at(at, id);
                }
            }
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if must_end && is_running && job.ending == Ending::None {
            let at = now + self.settings.kill_timeout_s;
            job.ending = Ending::Terminating(at);
            self.terminate_tasks(id, |_| true);
            self.wake_at(at, id);
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.has_ended() {
            self.finish(id, now);
        }
        let job = self.jobs.get(&id);
        if self.broker == Broker::Synchronized && job.is_some_and(Job::is_left_over) {
            self.forget(vec![id]);
        }
    }

    /// Reports the status of a job whose tasks have ended, kills what they have left, and releases the job.
    fn finish(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if let Some(status) = job.status() {
            job.answer_finish(id, status, &mut self.messages);
        } else if let Some(rank) = job.unknown_status() {
            let note = format!(
                "the wait status of task {} is lost: the reaper was killed",
                rank.0
            );
            job.fail("exec", note);
            job.send_exception(id, &mut self.messages);
        }
        if !job.is_idle() {
            if !matches!(job.ending, Ending::Killed(_)) {
                self.kill_job(id, now);
            }
            return;
        }
        if job.claim.is_some() {
            job.answer_release(id, &mut self.messages);
            self.stop_pmix_server(id);
            self.released.push(id);
            self.followers.note_job_end(id);
        } else if job.is_replaced {
            self.forget(vec![id]);
        }
    }

    // --- the end of jobs

    /// Forgets jobs: the journal first, then the reaper.
    fn forget(&mut self, jobs: Vec<JobId>) {
        for id in jobs {
            let Some(job) = self.jobs.remove(&id) else {
                continue;
            };
            let is_known = job.presence != Presence::Absent && self.reaper == Reaper::Ready;
            if job.intent.is_some() {
                let step = if is_known {
                    NextStep::Forget(id)
                } else {
                    NextStep::None
                };
                self.writer.add(Record::Forgotten(id), step);
            } else if is_known {
                self.forgotten.push(id);
            }
        }
    }

    /// Forgets the jobs that the job manager has not asked for, if they have no process.
    fn sweep(&mut self) {
        if self.broker != Broker::Synchronized || self.reaper != Reaper::Ready {
            return;
        }
        let mut ended = Vec::new();
        for (id, job) in &self.jobs {
            if job.is_left_over() {
                ended.push(*id);
            } else if job.claim.is_none() {
                let text = format!("job {id} runs here, but the instance does not ask for it");
                self.effects.push(Effect::Log(text));
            }
        }
        self.forget(ended);
    }

    // --- output

    fn follow(&mut self, request: &Message) -> Result<(), RequestError> {
        let output: OutputRequest<'_> = request.read_request()?;
        let id = output.id;
        let job = self.jobs.get(&id);
        if let Some(template) = job.and_then(|job| job.redirected_to.as_ref()) {
            return Err(output::redirection_error(template));
        }
        let phase = match job {
            Some(job) if !job.is_released() => {
                let answered = job.claim.as_ref().map(|claim| claim.answered);
                if answered == Some(Answered::Nothing) {
                    Phase::Starting
                } else {
                    Phase::Running
                }
            }
            _ => Phase::Absent,
        };
        let effects = &mut self.effects;
        self.followers.begin(request, &output, phase, effects)
    }

    /// Handles the result of [`Effect::ReadOutput`].
    pub fn take_output_chunk(&mut self, reader: ReaderId, chunk: Chunk) {
        let (messages, effects) = (&mut self.messages, &mut self.effects);
        if let Some(unknown) = self
            .followers
            .take_output_chunk(reader, chunk, messages, effects)
        {
            // The job has no output yet: it may start later, or never.
            let wait = penstock_flux::job_list::WaitRequest { ids: vec![unknown] };
            let wait = Message::request(topic::job_list::WAIT, "").with_payload(&wait);
            let wait = wait.with_flags(penstock_flux::flags::STREAMING);
            self.send(wait, Outstanding::End(unknown));
        }
    }
}

/// A journal with this header and these jobs.
fn journal_of(header: Vec<u8>, jobs: &BTreeMap<JobId, Job>) -> Vec<u8> {
    let mut contents = header;
    for (id, job) in jobs {
        if let Some(intent) = &job.intent {
            Record::Intent(*id, intent.clone()).encode(&mut contents);
        }
    }
    contents
}

/// A barrier: the job manager responds after it has committed everything that it received before.
fn barrier() -> Message {
    Message::request(topic::job_manager::PING, "{}")
}

/// Divides tasks into spawn requests that fit a frame.
fn in_frames(tasks: Vec<TaskSpec>) -> Vec<Vec<TaskSpec>> {
    let mut frames = Vec::new();
    let (mut frame, mut length) = (Vec::new(), 0);
    for spec in tasks {
        let words = spec.arguments.iter().chain(&spec.environment);
        length += words.map(|word| word.as_bytes().len() + 4).sum::<usize>();
        frame.push(spec);
        if length > MAX_SPAWN_BYTES {
            frames.push(mem::take(&mut frame));
            length = 0;
        }
    }
    if !frame.is_empty() {
        frames.push(frame);
    }
    frames
}

/// R in the response to its lookup.
fn read_looked_up_r(response: &Message) -> Result<String, Note> {
    if response.errnum() != 0 {
        let text = response.error_text().unwrap_or_default();
        return Err(format!("R is not in the store: {text}").into());
    }
    let found: LookupResponse<'_> = response.read().map_err(|error| format!("R: {error}"))?;
    let bytes = BASE64
        .decode(found.val.data.0.as_bytes())
        .map_err(|error| format!("R: {error}"))?;
    String::from_utf8(bytes).map_err(|error| format!("R: {error}").into())
}

/// The note of the exception of a job of which a task could not be set up.
fn setup_note(failure: SpawnFailure, plan: Option<&Plan>, job: &Job) -> String {
    let is_this = |task: &Task| task.state == TaskState::Failed(failure);
    let rank = job.tasks.iter().find(|(_, task)| is_this(task));
    let spec = rank.and_then(|(rank, _)| plan?.specs.get(rank.0 as usize));
    let reason = strerror(failure.errno);
    let write = |path: Option<&CString>| {
        let reason = if failure.errno == libc::ENXIO {
            "a FIFO without a reader"
        } else {
            reason.as_str()
        };
        match path {
            Some(path) => format!("cannot write `{}`: {reason}", path.to_string_lossy()),
            None => format!("cannot open the output: {reason}"),
        }
    };
    let stdout = |spec: &TaskSpec| match &spec.stdout {
        crate::protocol::Output::Append(path) | crate::protocol::Output::Truncate(path) => {
            Some(path.clone())
        }
        _ => None,
    };
    let stdin = |spec: &TaskSpec| match &spec.stdin {
        Input::File(path) => Some(path.clone()),
        Input::Null => None,
    };
    match failure.step {
        Step::Stdin => match spec.and_then(stdin) {
            Some(path) => format!("cannot read `{}`: {reason}", path.to_string_lossy()),
            None => format!("cannot open the input: {reason}"),
        },
        Step::Chdir => {
            let path = spec.map(|spec| spec.directory.to_string_lossy().into_owned());
            let path = path.unwrap_or_default();
            if matches!(failure.errno, libc::ENOENT | libc::ENOTDIR) {
                format!("working directory `{path}` does not exist")
            } else {
                format!("cannot enter working directory `{path}`: {reason}")
            }
        }
        Step::Stdout => write(spec.and_then(stdout).as_ref()),
        Step::Stderr => write(spec.and_then(plan::error_file)),
        Step::Bind => format!("cannot bind a task to its cores: {reason}"),
        Step::Limit => format!("cannot set the resource limits: {reason}"),
        Step::Record => format!("cannot record the start of a task: {reason}"),
        _ => format!("cannot start a task: {reason}"),
    }
}

/// The text of an error number, without the number.
fn strerror(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_owned()
}
