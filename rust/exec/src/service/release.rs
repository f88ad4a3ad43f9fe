//! Reports of the start and the end of a job, its final release, and its removal from journal and reaper.

use std::mem;

use super::effect::Effect;
use super::guests::Admitted;
use super::job::{Answered, Ending, Job, OutputCondition, Presence, Starts, TaskState};
use super::job_directory::DirectoryOwner;
use super::journal::Record;
use super::journal_writer::NextStep;
use super::start_failure::{exec_note, pmi_exception, setup_note};
use super::state::{Acknowledgement, InstanceState, Outstanding, ReaperState, Service, barrier};
use crate::protocol::Request;
use crate::types::JobId;

/// Time between a final release and the barrier that acknowledges it, in seconds.
const ACKNOWLEDGEMENT_INTERVAL_S: f64 = 0.1;

impl Service {
    /// Reports the start and the end of a job's tasks, and ends the job where that is due.
    pub(super) fn report(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.has(TaskState::Requested) {
            if job.is_failing() && job.starts == Starts::Intended {
                job.starts = Starts::Cancelled;
                self.request(Request::CancelStarts(vec![id]));
            }
            return;
        }
        if self.withdraw_start(id, now) {
            return;
        }
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        if job.has_running_task() && !job.is_failing() {
            self.advance_pmix_server(id);
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if let Some(failure) = job.setup_failure() {
            let note = setup_note(failure, job.plan.as_ref(), job);
            job.fail("exec", note);
            job.send_exception(id, &mut self.messages);
        }
        if let Some((kind, note)) = pmi_exception(job)
            && !job.has_ended()
            && !job.is_failing()
        {
            job.fail(kind, note);
            job.send_exception(id, &mut self.messages);
        }
        let plan = job.plan.take();
        let answered_before = job.outstanding_start.as_ref().map(|start| start.answered);
        if job.exception.is_none() && job.has_started() {
            job.answer_start(id, &mut self.messages);
        }
        if let Some((rank, failure)) = job.exec_failure() {
            job.fail("exec", exec_note(rank, failure, plan.as_ref()));
            job.send_exception(id, &mut self.messages);
        }
        job.answer_shrink(id, &mut self.messages);
        let must_end = job.is_failing();
        let is_running = job.has_running_task();
        let (expiration, warning_time) = (job.expiration, job.warning_time());
        if answered_before == Some(Answered::Nothing) {
            if let Some(template) = &job.redirected_to {
                self.followers
                    .reject_requests(id, template, &mut self.messages);
            }
            self.followers.record_job_start(id, &mut self.effects);
            if is_running {
                self.timers.add(expiration, id);
                self.timers.add(warning_time.unwrap_or_default(), id);
                if self
                    .jobs
                    .get(&id)
                    .is_some_and(|job| self.measures_output(job))
                {
                    self.schedule_measurement(id, now);
                }
            }
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if must_end && is_running && job.ending == Ending::None {
            // A guest could write until then.
            let at = if job.output_condition == OutputCondition::Exceeded && job.is_guests() {
                now
            } else {
                now + self.settings.kill_timeout_s
            };
            job.ending = Ending::Terminating(at);
            self.terminate_tasks(id, |_| true);
            self.timers.add(at, id);
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.has_ended() {
            self.finish(id, now);
        }
        let job = self.jobs.get(&id);
        if self.instance == InstanceState::Synchronized && job.is_some_and(Job::is_left_over) {
            self.forget(vec![id]);
        }
    }

    /// Reports the status of a job whose tasks have ended, kills what they have left, and releases the job.
    pub(super) fn finish(&mut self, id: JobId, now: f64) {
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
        } else if job.tasks.is_empty() && !job.is_failing() {
            // Only its PMIx server has been started.
            job.fail(
                "exec",
                "lost: the execution service has no record of the job's start",
            );
            job.send_exception(id, &mut self.messages);
        }
        if !job.is_idle() {
            if !matches!(job.ending, Ending::Killed(_)) {
                self.kill_job(id, now);
            }
            return;
        }
        if job.outstanding_start.is_some() {
            self.warn_of_losses(id);
            let Some(job) = self.jobs.get_mut(&id) else {
                return;
            };
            job.answer_release(id, &mut self.messages);
            let guest = job.guest.map(|guest| DirectoryOwner::Guest(guest.uid()));
            // The output since the last check counts for its user, too.
            if job.is_output_retained && guest.is_some() && self.settings.user_output_limit > 0 {
                self.effects.push(Effect::MeasureOutput(id));
            }
            let directory = job.directory.or(guest);
            let user = job.guest;
            self.effects
                .extend(directory.map(|owner| Effect::RemoveJobDirectory(id, owner)));
            self.free_descriptors(id, user);
            self.stop_pmix_server(id);
            self.released.push(id);
            self.followers.record_job_end(id);
        } else if job.is_replaced {
            self.forget(vec![id]);
        }
    }

    /// Sends a barrier after the final releases of jobs: one for all jobs that are released in an interval.
    pub(super) fn request_acknowledgement(&mut self, now: f64) {
        if self.released.is_empty() || self.instance != InstanceState::Synchronized {
            return;
        }
        match self.acknowledgement {
            Acknowledgement::None => {
                let at = now + ACKNOWLEDGEMENT_INTERVAL_S;
                self.acknowledgement = Acknowledgement::Scheduled(at);
                self.timers.add_acknowledgement(at);
            }
            Acknowledgement::Scheduled(at) if now >= at => {
                self.acknowledgement = Acknowledgement::Outstanding;
                let jobs = mem::take(&mut self.released);
                self.send(barrier(), Outstanding::Acknowledgement(jobs));
            }
            Acknowledgement::Scheduled(_) | Acknowledgement::Outstanding => {}
        }
    }

    /// Forgets jobs: the journal first, then the reaper.
    pub(super) fn forget(&mut self, jobs: Vec<JobId>) {
        for id in jobs {
            let Some(job) = self.jobs.remove(&id) else {
                continue;
            };
            self.free_descriptors(id, job.guest);
            self.remove_pmix_directory(id, &job);
            self.output_usage.record_forgotten(id, &job);
            let has_pmi_server = job.pmi_process.is_some();
            self.effects
                .extend(has_pmi_server.then_some(Effect::RemovePmiSocket(id)));
            let is_retained = job.is_output_retained && job.presence == Presence::Empty;
            let guest = job.guest.map(Admitted::uid);
            self.effects
                .extend(is_retained.then_some(Effect::ReuseEmptyOutput { job: id, guest }));
            // A reaper that is still listing may have listed the job already.
            let is_known =
                job.presence != Presence::Absent && self.reaper != ReaperState::Disconnected;
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

    /// Forgets the jobs that the job manager has not requested, if they have no process.
    pub(super) fn sweep(&mut self) {
        if self.instance != InstanceState::Synchronized || self.reaper != ReaperState::Ready {
            return;
        }
        let mut ended = Vec::new();
        let mut unclaimed = Vec::new();
        for (id, job) in &mut self.jobs {
            if job.is_left_over() {
                ended.push(*id);
            } else if job.outstanding_start.is_none() && job.has_only_servers() {
                // Without tasks it would not end.
                for task in job.tasks.values_mut() {
                    if task.state == TaskState::Missing {
                        task.state = TaskState::Abandoned;
                    }
                }
                self.changed.insert(*id);
            } else if job.outstanding_start.is_none() {
                unclaimed.push(*id);
            }
        }
        for id in unclaimed {
            let text = format!("job {id} runs here, but the instance does not ask for it");
            self.log_job(id, &text);
        }
        self.forget(ended);
    }
}
