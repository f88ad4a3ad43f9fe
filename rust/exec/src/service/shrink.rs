//! The end of tasks on execution targets that their job has released.
//!
//! The journal records the release before a task ends, because the task's status does not count. A task gets SIGTERM,
//! and when it has ended or its time is up, all processes that descend from it are killed. When none is left, the job manager
//! gets the release of the target.

use penstock_flux::RequestError;
use penstock_flux::exec::ShrinkRequest;
use penstock_wire::Message;

use super::ending::KILL_RETRY_INTERVAL_S;
use super::job::{Shrink, TaskState};
use super::journal::Record;
use super::journal_writer::NextStep;
use super::state::Service;
use crate::protocol::Request;
use crate::types::{JobId, TaskId};

impl Service {
    /// Handles the request to end the tasks of a job on execution targets that it has released.
    pub(super) fn shrink(&mut self, request: &Message) -> Result<(), RequestError> {
        let ShrinkRequest { id, ranks } = request.read_request()?;
        let job = self.jobs.get_mut(&id);
        if let Some(start) = job.and_then(|job| job.outstanding_start.as_mut()) {
            start.shrunk.union_with(&ranks);
            self.record_shrink(id);
            self.changed.insert(id);
        }
        Ok(())
    }

    /// Records which of a job's tasks are on execution targets that it has released, if it has been handed to the reaper.
    pub(super) fn record_shrink(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (Some(intent), Some(start)) = (&mut job.intent, &job.outstanding_start) else {
            return;
        };
        let mut targets = Vec::new();
        for (target, task) in intent.targets.iter().zip(job.tasks.values_mut()) {
            if start.shrunk.contains(*target) && !task.is_shrunk() {
                task.shrink = Shrink::Recording;
                targets.push(*target);
            }
        }
        targets.dedup();
        if !targets.is_empty() {
            intent.shrunk.extend(&targets);
            let record = Record::Shrunk(id, targets);
            self.writer.add(record, NextStep::EndShrunkTasks(id));
        }
    }

    /// Ends the tasks whose release the journal has recorded.
    pub(super) fn end_shrunk_tasks(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for task in job.tasks.values_mut() {
            if task.shrink == Shrink::Recording {
                task.shrink = Shrink::Due;
            }
        }
        self.changed.insert(id);
    }

    /// Takes the next steps of tasks on released execution targets. The reaper is connected.
    pub(super) fn advance_shrink(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let intent = job.intent.as_ref();
        if intent.is_none_or(|intent| intent.shrunk.is_empty()) {
            return;
        }
        let is_idle = job.is_idle();
        let kill_at = now + self.settings.kill_timeout_s;
        let retry_at = now + KILL_RETRY_INTERVAL_S;
        let (mut to_terminate, mut to_kill) = (Vec::new(), Vec::new());
        let mut has_survivor = false;
        for (rank, task) in &mut job.tasks {
            let is_recorded = !matches!(task.shrink, Shrink::No | Shrink::Recording);
            if task.state == TaskState::Missing && is_recorded {
                task.state = TaskState::Abandoned;
            }
            let is_over = match (task.shrink, task.state) {
                (Shrink::No | Shrink::Recording | Shrink::Gone, _) => continue,
                (_, TaskState::Missing | TaskState::Abandoned | TaskState::Failed(_)) => true,
                (_, TaskState::Ended(_)) => is_idle,
                (_, TaskState::Requested | TaskState::Running(_)) => false,
            };
            let id = TaskId {
                job: id,
                rank: *rank,
            };
            task.shrink = match (task.shrink, task.state) {
                _ if is_over => Shrink::Gone,
                (Shrink::Due, TaskState::Running(_)) => {
                    to_terminate.push(id);
                    Shrink::Terminating(kill_at)
                }
                (Shrink::Terminating(at), TaskState::Running(_)) if now < at => continue,
                (Shrink::Killed(at), _) if now < at => continue,
                (earlier, _) => {
                    has_survivor |= matches!(earlier, Shrink::Killed(_));
                    to_kill.push(id);
                    Shrink::Killed(retry_at)
                }
            };
        }
        if has_survivor {
            let text = format!(
                "job {id}: a process on a released node has not ended by SIGKILL: trying again"
            );
            self.log_job(id, &text);
        }
        if !to_terminate.is_empty() {
            self.terminate_tasks(id, |task| to_terminate.contains(&task));
            self.timers.add(kill_at, id);
        }
        if !to_kill.is_empty() {
            self.request(Request::KillTasks(to_kill));
            self.timers.add(retry_at, id);
        }
    }
}
