//! Starts of tasks: requests for them, spawns, cancellations.

use std::collections::BTreeSet;

use super::job::{TaskState, task_events};
use super::start_queue::Reply;
use super::state::{Child, Reaper};
use crate::kernel::Kernel;
use crate::log::{self, Record};
use crate::mark::MAX_SLOTS;
use crate::protocol::{Event, TaskSpec};
use crate::types::{ConnectionId, JobId, Pid, SpawnFailure, Step, TaskId};

const CANCELLED: SpawnFailure = SpawnFailure {
    step: Step::Cancelled,
    errno: libc::ECANCELED,
};

impl Reaper {
    pub(super) fn enqueue(&mut self, connection: ConnectionId, id: u32, tasks: Vec<TaskSpec>) {
        let mut batch = Vec::with_capacity(tasks.len());
        let mut known = BTreeSet::new();
        for spec in tasks {
            let task = spec.task;
            let job = self.jobs.entry(task.job).or_default();
            if let Some(state) = job.tasks.get(&task.rank) {
                self.outbox.send(connection, task_events(task, *state));
                known.insert(task.job);
                continue;
            }
            job.tasks.insert(task.rank, TaskState::Queued);
            job.queued += 1;
            job.is_empty = false;
            if job.cancels(task.rank) {
                self.fail(task, CANCELLED);
            } else {
                batch.push(spec);
            }
        }
        // A service takes a job as one with processes from the event of a task on.
        known.retain(|job| self.jobs.get(job).is_some_and(|job| job.is_empty));
        if !known.is_empty() {
            let empty = known.into_iter().map(|job| Event::Empty { job });
            self.outbox.send(connection, empty);
        }
        self.queue.add_tasks(Reply { connection, id }, batch);
    }

    /// Assigns a mark to the descendants of a task, if one is free.
    fn assign_mark(&mut self, task: TaskId) -> Option<u64> {
        let marks = self.marks?;
        let slot = self.free_slots.pop().or_else(|| {
            let slot = self.next_slot;
            (slot < MAX_SLOTS).then(|| {
                self.next_slot += 1;
                slot
            })
        })?;
        self.slots.insert(slot, task);
        self.jobs.get_mut(&task.job)?.slots.push(slot);
        Some(marks.mark(slot))
    }

    pub(super) fn spawn<K: Kernel>(&mut self, spec: &TaskSpec, kernel: &mut K) {
        let task = spec.task;
        let mark = self.assign_mark(task);
        let Some(job) = self.jobs.get_mut(&task.job) else {
            return;
        };
        if job.cgroup.is_none() {
            match kernel.take_cgroup(&spec.cgroup_limits) {
                Ok(cgroup) => job.cgroup = cgroup,
                Err(failure) => return self.fail(task, failure),
            }
            self.cgroups
                .extend(job.cgroup.map(|cgroup| (cgroup, task.job)));
        }
        match kernel.spawn(spec, mark, job.cgroup) {
            Ok(process) => {
                self.inputs.add(spec);
                let state = match spec.guest {
                    Some(_) => TaskState::SettingUp(process),
                    None => TaskState::Running(process),
                };
                job.tasks.insert(task.rank, state);
                job.queued -= 1;
                job.processes += 1;
                self.log_len += log::STARTED_RECORD_BYTES;
                self.children.insert(process.pid, Child::Task(task));
                self.sessions.insert(process.pid, task);
                if spec.guest.is_none() {
                    self.outbox.broadcast(Event::Started { task, process });
                }
            }
            Err(failure) => {
                if matches!(failure.step, Step::Limit | Step::Exec) {
                    self.log_len += log::STARTED_RECORD_BYTES;
                }
                self.fail(task, failure);
            }
        }
    }

    fn fail(&mut self, task: TaskId, failure: SpawnFailure) {
        if let Some(job) = self.jobs.get_mut(&task.job) {
            job.tasks.insert(task.rank, TaskState::Failed(failure));
            job.queued -= 1;
            self.maybe_empty.insert(task.job);
        }
        Record::Failed(task, failure).encode(&mut self.records);
        self.outbox.broadcast(Event::Failed { task, failure });
    }

    /// Handles the result of the set-up of a guest's task.
    pub fn record_setup(&mut self, pid: Pid, result: Result<(), SpawnFailure>) {
        let Some(Child::Task(task)) = self.children.get(&pid) else {
            return;
        };
        let task = *task;
        let Some(job) = self.jobs.get_mut(&task.job) else {
            return;
        };
        let Some(state) = job.tasks.get_mut(&task.rank) else {
            return;
        };
        let TaskState::SettingUp(process) = *state else {
            return;
        };
        match result {
            Ok(()) => {
                *state = TaskState::Running(process);
                self.outbox.broadcast(Event::Started { task, process });
            }
            Err(failure) => {
                *state = TaskState::Failed(failure);
                // The process is about to end, and its status is of no interest.
                job.adopted.insert(pid, task.rank);
                self.children.insert(pid, Child::Adopted(task));
                Record::Failed(task, failure).encode(&mut self.records);
                self.outbox.broadcast(Event::Failed { task, failure });
            }
        }
    }

    /// Cancels the queued tasks of some jobs.
    pub(super) fn cancel_starts(&mut self, jobs: &[JobId]) -> i32 {
        let mut errno = 0;
        for id in jobs {
            if !self.jobs.contains_key(id) {
                errno = libc::ESRCH;
            }
            for task in self.queue.cancel(*id, |_| true) {
                self.fail(task, CANCELLED);
            }
        }
        errno
    }

    /// Cancels the queued tasks of a job that have been killed, all if the job has.
    pub(super) fn cancel_killed(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        for task in self.queue.cancel(id, |task| job.cancels(task.rank)) {
            self.fail(task, CANCELLED);
        }
    }
}
