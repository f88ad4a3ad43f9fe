//! Signals, and the end of jobs and tasks: SIGTERM, then SIGKILL.

use std::mem;

use penstock_flux::RequestError;
use penstock_flux::exec::{JobExceptionEvent, KillRequest, ReplacedRequest};
use penstock_wire::Message;

use super::effect::Effect;
use super::job::{Ending, TaskState};
use super::state::Service;
use crate::protocol::{Request, SignalTarget};
use crate::types::{JobId, MAX_SIGNAL, TaskId};

/// Time after which a process that SIGKILL has not ended is killed again, in seconds.
pub(super) const KILL_RETRY_INTERVAL_S: f64 = 5.0;
const SIGTERM: u32 = libc::SIGTERM as u32;
const SIGCONT: u32 = libc::SIGCONT as u32;

/// The severity of an exception that does not end the job.
const WARNING_SEVERITY: i64 = 1;

/// Checks the number of a signal that a request names.
pub(super) fn checked_signal(signum: i32) -> Result<u32, RequestError> {
    let signal = u32::try_from(signum).ok();
    let signal = signal.filter(|signal| (1..=MAX_SIGNAL).contains(signal));
    signal.ok_or_else(|| {
        let text = format!("invalid signal `{signum}`: expected 1 to {MAX_SIGNAL}");
        RequestError::invalid(text)
    })
}

impl Service {
    pub(super) fn handle_exception(&mut self, event: &Message) {
        // Any client can publish an event; only the job manager's are well-formed for sure.
        let Ok(exception) = event.read::<JobExceptionEvent<'_>>() else {
            let text = "malformed event `job-exception` ignored".to_owned();
            self.effects.push(Effect::Log(text));
            return;
        };
        let id = exception.id;
        let start = self
            .jobs
            .get_mut(&id)
            .and_then(|job| job.outstanding_start.as_mut());
        if let Some(start) = start
            && exception.severity == 0
            && !start.is_failed
        {
            start.is_failed = true;
            start.wait_status = exception.wait_status;
            self.changed.insert(id);
        }
    }

    pub(super) fn kill(&mut self, request: &Message) -> Result<(), RequestError> {
        let KillRequest { id, signum } = request.read_request()?;
        let signal = checked_signal(signum)?;
        if let Some(job) = self.jobs.get_mut(&id)
            && !job.unsent_signals.contains(&signal)
        {
            job.unsent_signals.push(signal);
            self.changed.insert(id);
        }
        Ok(())
    }

    /// Ends all jobs without a further response: another service has taken them over.
    pub(super) fn end_replaced_jobs(&mut self, request: &Message) -> Result<(), RequestError> {
        let ReplacedRequest { service } = request.read_request()?;
        let count = self
            .jobs
            .values()
            .filter(|job| job.outstanding_start.is_some())
            .count();
        let text = format!("`{}` runs the jobs now: ending {count} here", service.0);
        self.effects.push(Effect::Log(text));
        self.released.clear();
        for (id, job) in &mut self.jobs {
            job.is_replaced = true;
            job.outstanding_start = None;
            // The server is the next service's.
            job.pmix = None;
            self.changed.insert(*id);
        }
        Ok(())
    }

    /// Sends users' signals to a job whose tasks have all been requested from the connected reaper.
    pub(super) fn send_unsent_signals(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for signal in mem::take(&mut job.unsent_signals) {
            self.signal_tasks(id, signal);
        }
    }

    /// Sends a signal to the tasks of a job, also to those that the reaper has not yet reported as started: it delivers
    /// the signal after the start.
    pub(super) fn signal_tasks(&mut self, id: JobId, signal: u32) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let tasks = job.tasks.iter();
        let tasks = tasks
            .filter(|(_, task)| matches!(task.state, TaskState::Requested | TaskState::Running(_)));
        let targets: Vec<_> = tasks
            .map(|(rank, _)| TaskId {
                job: id,
                rank: *rank,
            })
            .collect();
        for task in targets {
            let target = SignalTarget::Task(task);
            self.request(Request::Signal { target, signal });
        }
    }

    pub(super) fn terminate_tasks(&mut self, id: JobId, is_meant: impl Fn(TaskId) -> bool) {
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
                let target = SignalTarget::Task(task);
                self.request(Request::Signal { target, signal });
            }
        }
    }

    pub(super) fn kill_job(&mut self, id: JobId, now: f64) {
        let at = now + KILL_RETRY_INTERVAL_S;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.ending = Ending::Killed(at);
        }
        self.kills.push(id);
        self.timers.add(at, id);
    }

    /// Kills a job when the time after SIGTERM has expired, and again if a process has not ended by SIGKILL.
    pub(super) fn advance_kill(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        match job.ending {
            Ending::Terminating(at) if now >= at => self.kill_job(id, now),
            Ending::Killed(at) if now >= at && !job.is_idle() => {
                let text = format!("job {id}: a process has not ended by SIGKILL: trying again");
                self.log_job(id, &text);
                self.kill_job(id, now);
            }
            _ => {}
        }
    }

    /// Sends exceptions about what a job has lost, directly before its release: the service that sends the release has the
    /// reaper's numbers, whatever was lost or sent by one before it.
    pub(super) fn warn_of_losses(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let out = &mut self.messages;
        let count = job.oom_kills;
        if count > 0 {
            let processes = if count == 1 { "process" } else { "processes" };
            let note = format!("out of memory: the memory limit has ended {count} {processes}");
            job.warn(id, "oom", note, WARNING_SEVERITY, out);
        }
        let bytes = job.dropped_output;
        if bytes > 0 {
            let reserve = self.settings.output_reserve;
            let note = format!(
                "{bytes} bytes of output were dropped at the end of the job: only the reserve of {reserve} bytes is free for \
                 output (`penstock.exec.output-reserve`)"
            );
            job.warn(id, "exec", note, WARNING_SEVERITY, out);
        }
    }
}
