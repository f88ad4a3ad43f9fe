//! The execution service `penstock-exec`: RFC 32 at one end, a reaper at the other.
//!
//! [`Service`] is sans-I/O. The event loop of [`run`](crate::linux::serve) passes in messages of the broker,
//! messages of the reaper, lost and new connections, and the time; after each batch it calls
//! [`advance_jobs`](Service::advance_jobs) and carries out the [`Effect`]s in their order.
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
//! After the final release the service sends `job-manager.ping`, one for all releases of 100 ms. A job manager responds to it after it has committed the
//! release, and never asks for the job again. Only then do journal and reaper forget it. Until then the job can be
//! started again: its end is reported again.
//!
//! After `exec-hello` the same request shows that all start requests of running jobs have arrived. A job that was not
//! among them and has no process is forgotten; one that has processes is left alone, reported in the log, and forgotten
//! when they have ended.
//!
//! # Where a behaviour is
//!
//! | behaviour | module |
//! |---|---|
//! | state; sending requests to instance and reaper | `state` |
//! | registration with the instance | `instance` |
//! | start requests, plans, the record before the tasks start | `start`, `parsed_jobspec`, `plan`, `shell_options` |
//! | PMI servers of jobs | `pmi_server` |
//! | PMIx servers of jobs | `pmix`, `pmix_process`, `pmix_server` |
//! | requests to the reaper and its events | `reapers` |
//! | jobs of guests | `guests` |
//! | limits of memory, processes and CPU time | `resource_limits` |
//! | time limits and the signal before them; a clock that is set back | `time_limit` |
//! | signals, exceptions, the end of tasks | `ending` |
//! | the end of tasks on released execution targets | `shrink` |
//! | reports of start and end, release, forgetting | `release`, `job` |
//! | the journal, also on a full disk | `journal`, `journal_writer` |
//! | retained output and its limit | `output`, `followers` |
//! | limits of retained output of a guest and of all | `output_quota`, `output_usage` |
//! | standard input and terminal windows | `input` |
//! | shares of guests in the descriptors of the reaper | `descriptors`, `descriptor_counts` |
//! | texts about tasks that could not start | `start_failure` |
//! | the end of a service of no use | `idle_end` |
//! | lines of the log about the jobs of users, and their limit | `user_log`, `user_lines` |

mod descriptor_counts;
mod descriptors;
mod effect;
mod ending;
mod followers;
mod guests;
mod idle_end;
mod input;
mod instance;
mod job;
mod job_directory;
pub mod journal;
mod journal_writer;
mod output;
mod output_quota;
mod output_usage;
mod parsed_jobspec;
mod plan;
mod pmi_server;
mod pmix;
mod pmix_process;
mod pmix_server;
mod reapers;
mod release;
mod repeated_start;
mod resource_limits;
mod shell_options;
mod shrink;
mod start;
mod start_failure;
mod state;
mod time_limit;
mod timers;
mod user_lines;
mod user_log;

use std::collections::BTreeMap;
use std::{io, mem};

use penstock_flux::exec::{ConfigReloadRequest, StatsResponse, caller};
use penstock_flux::{Caller, Payload, RequestError, topic};
use penstock_wire::{Message, MessageType};

use crate::protocol::Request;
use crate::types::JobId;
use job::{Job, TaskState};
use journal::{Intent, Record};
use journal_writer::NextStep;
use reapers::in_frames;
use state::{Acknowledgement, InstanceState, Outstanding, ReaperState};
use timers::WakeTarget;

pub use effect::{Chunk, Effect, OutputPlace, ReaderId, Stream};
pub use guests::GuestSettings;
pub use job_directory::{
    DirectoryOwner, FileContent, JobDirectory, JobDirectoryPlaces, JobFile, job_directory,
};
pub use output_usage::{MIN_FREE_BYTES, OutputFile};
pub use plan::{TaskContext, retained_file};
pub use pmi_server::{PMI_ABORT_EXIT_CODE, PMI_SERVER_RANK, PMI_VIOLATION_EXIT_CODE, pmi_socket};
pub use pmix_process::PMIX_SERVER_RANK;
pub use state::{Service, Settings};
pub use user_lines::{MAX_USER_LINES, USER_LINES_PERIOD_S};

/// The greatest number of jobs in one kill request: the reaper searches all of its children once for each request, and
/// walks over the processes of all of its jobs as long as one of them forks.
const MAX_KILLS_PER_REQUEST: usize = 64;

/// The answer to a request.
enum Reply {
    /// Later.
    Deferred,
    Empty,
    Payload(Vec<u8>),
}

impl Service {
    /// Why the service has failed: its registration was rejected. Another connection is another attempt.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.text.as_str())
    }

    /// Whether the registration was rejected because another service has the name.
    pub fn is_name_taken(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| failure.is_name_taken)
    }

    /// Whether the job manager has accepted the registration and sent all start requests of running jobs.
    pub fn is_synchronized(&self) -> bool {
        self.instance == InstanceState::Synchronized
    }

    /// The jobs of the journal, and those that have been requested.
    pub fn known_jobs(&self) -> impl Iterator<Item = JobId> {
        self.jobs.keys().copied()
    }

    /// The number of jobs that have not been forgotten.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// When [`advance`](Self::advance) has something to do next, in seconds since the epoch.
    pub fn deadline(&self) -> Option<f64> {
        let deadlines = [
            self.timers.next(),
            self.writer.retry_at(),
            self.user_log.deadline(),
        ];
        deadlines.into_iter().flatten().min_by(f64::total_cmp)
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

    fn handle_response(&mut self, response: &Message) {
        let Some(outstanding) = self.take_outstanding(response) else {
            return;
        };
        match outstanding {
            Outstanding::Registration => self.handle_registration(response),
            // The job manager has failed and recorded nothing. It disconnects its peers when it is restarted.
            Outstanding::Synchronization | Outstanding::Acknowledgement(_)
                if response.errnum() != 0 => {}
            Outstanding::Synchronization => {
                self.instance = InstanceState::Synchronized;
                self.changed.extend(self.jobs.keys());
                self.sweep();
            }
            Outstanding::Acknowledgement(jobs) => {
                self.acknowledgement = Acknowledgement::None;
                self.forget(jobs);
            }
            Outstanding::OutputUser => self.handle_output_user(response),
            Outstanding::Lookup(id) => self.handle_lookup(id, response),
            Outstanding::PmixServer(id) => self.handle_pmix_response(id, response),
            Outstanding::End(id) => self.handle_end(id, response),
        }
    }

    fn handle_request(&mut self, request: &Message) {
        let reply = match caller(request.method()) {
            Caller::Owner => request.require_owner(),
            Caller::JobUser | Caller::Anyone => Ok(()),
        };
        let payload = match reply.and_then(|()| self.serve(request)) {
            Ok(Reply::Deferred) => return,
            Ok(Reply::Empty) => Ok(None),
            Ok(Reply::Payload(payload)) => Ok(Some(payload)),
            Err(error) => Err(error),
        };
        if request.is_noresponse() {
            return;
        }
        self.messages.push(match payload {
            Ok(payload) => Message::response_to(request, 0, payload),
            Err(error) => Message::error_to(request, error.errnum, &error.text),
        });
    }

    /// Serves a request whose sender may call the method.
    fn serve(&mut self, request: &Message) -> Result<Reply, RequestError> {
        use topic::exec_method as method;
        match request.method() {
            topic::DISCONNECT => self.disconnect_client(request),
            method::START => self.start(request),
            method::OUTPUT if request.credentials().is_owner() => self.follow(request)?,
            method::OUTPUT => self.look_up_output_user(request)?,
            method::INPUT => self.write_input(request)?,
            method::RESIZE => self.resize(request)?,
            method::SIGNAL => self.signal_task(request)?,
            _ => return self.answer(request),
        }
        Ok(Reply::Deferred)
    }

    /// Serves a request that is answered at once.
    fn answer(&mut self, request: &Message) -> Result<Reply, RequestError> {
        use topic::exec_method as method;
        match request.method() {
            method::KILL => self.kill(request)?,
            method::EXPIRATION => self.set_expiration(request)?,
            method::REPLACED => self.end_replaced_jobs(request)?,
            method::SHRINK => self.shrink(request)?,
            method::CONFIG_RELOAD => self.reload_settings(request)?,
            method::OUTPUT_CANCEL => self.cancel_output(request)?,
            topic::PING => return request.echo().map(Reply::Payload),
            topic::STATS_GET => return Ok(Reply::Payload(self.stats().to_payload())),
            _ => return Err(RequestError::unknown_method(request.topic())),
        }
        Ok(Reply::Empty)
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
        let limits = [
            (reload.output_limit, &mut self.settings.output_limit),
            (reload.output_reserve, &mut self.settings.output_reserve),
            (
                reload.user_output_limit,
                &mut self.settings.user_output_limit,
            ),
        ];
        let mut is_changed = false;
        for (changed, limit) in limits {
            if let Some(bytes) = changed {
                *limit = bytes;
                is_changed = true;
            }
        }
        if is_changed {
            if self.reaper != ReaperState::Disconnected {
                self.reserve_output();
            }
            self.restart_counts();
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
        let unclaimed = self
            .jobs
            .values()
            .filter(|job| job.outstanding_start.is_none())
            .count();
        StatsResponse {
            jobs: self.jobs.len() - unclaimed,
            tasks: tasks.filter(|task| task.is_running()).count(),
            followers: self.followers.len(),
            unclaimed,
            held_starts: self.held_starts(),
        }
    }

    /// Handles the time.
    pub fn advance(&mut self, now: f64) {
        self.follow_clock(now);
        self.end_log_periods(now);
        if self.writer.end_delay(now) {
            // The starts that wait are attempted again.
            self.changed.extend(self.jobs.keys());
        }
        while let Some(target) = self.timers.take_due(now) {
            match target {
                WakeTarget::Job(id) => {
                    self.changed.insert(id);
                }
                // `advance_jobs` looks whether it is due.
                WakeTarget::Acknowledgement => {}
                WakeTarget::Output => self.recheck_waiting(),
                WakeTarget::Followers => self.followers.poll(&mut self.effects),
            }
        }
    }

    /// Takes the next steps of all jobs that have changed.
    pub fn advance_jobs(&mut self, now: f64) {
        self.follow_clock(now);
        while !self.changed.is_empty() {
            for id in mem::take(&mut self.changed) {
                self.check_times(id, now);
                self.progress(id, now);
            }
        }
        self.request_output_usage(now);
        self.request_acknowledgement(now);
        self.cancel_unneeded_waits();
        if let Some(at) = self.followers.take_poll_time(now) {
            self.timers.add_poll(at);
        }
        self.end_if_idle();
    }

    /// Removes and returns the effects, to be carried out in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let header = || journal::header(&self.settings.task_context.uri, self.journal);
        let jobs = &self.jobs;
        effects.extend(self.writer.begin(|| journal_of(header(), jobs)));
        // Before the tasks of a job that is started again: the reaper ignores a task that it has a record of.
        let forgotten = mem::take(&mut self.forgotten);
        if !forgotten.is_empty() {
            let id = self.next_reaper_request();
            effects.push(Effect::Request(id, Request::Forget(forgotten.clone())));
            self.forgetting.insert(id, forgotten);
        }
        for tasks in in_frames(mem::take(&mut self.spawns)) {
            let id = self.next_reaper_request();
            effects.push(Effect::Request(id, Request::Spawn(tasks)));
        }
        for jobs in mem::take(&mut self.kills).chunks(MAX_KILLS_PER_REQUEST) {
            let id = self.next_reaper_request();
            effects.push(Effect::Request(id, Request::Kill(jobs.to_vec())));
        }
        effects.append(&mut self.effects);
        effects.extend(mem::take(&mut self.messages).into_iter().map(Effect::Send));
        effects
    }

    /// Handles the result of [`Effect::Append`] or [`Effect::Rewrite`].
    pub fn finish_write(&mut self, result: io::Result<()>, now: f64) {
        self.follow_clock(now);
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
                NextStep::EndShrunkTasks(id) => self.end_shrunk_tasks(id),
                NextStep::Warn(id, signal) => self.signal_tasks(id, signal),
                NextStep::Forget(id) if self.reaper != ReaperState::Disconnected => {
                    self.forgotten.push(id);
                }
                // A job that the reaper is to forget is in its next list, too.
                NextStep::Forget(_) | NextStep::None => {}
            }
        }
    }

    /// Handles the times of a job that have come.
    fn check_times(&mut self, id: JobId, now: f64) {
        self.check_expiration(id, now);
        self.warn_if_due(id, now);
        self.advance_kill(id, now);
        self.measure_output_if_due(id, now);
        self.check_user_output(id);
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
        if self.reaper != ReaperState::Ready {
            return;
        }
        let is_other_boot = |intent: &Intent| intent.boot != self.settings.boot;
        if job.intent.as_ref().is_some_and(is_other_boot)
            && (job.has(TaskState::Missing) || job.unknown_status().is_some())
        {
            job.fail("exec", "the machine was rebooted while the job ran");
            job.send_exception(id, &mut self.messages);
        }
        self.advance_shrink(id, now);
        let job = self.jobs.get(&id);
        if job.is_some_and(|job| job.has(TaskState::Missing)) && !self.start_missing(id) {
            return;
        }
        self.send_unsent_signals(id);
        self.report(id, now);
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
