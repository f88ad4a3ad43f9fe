//! Retries of starts that failed for lack of space or descriptors before any task was executed.

use std::os::unix::ffi::OsStrExt;

use super::effect::{Effect, Stream};
use super::job::{Ending, HELD_SEVERITY, Job, Presence, Task, TaskState};
use super::output_usage::OUTPUT_CHECK_INTERVAL_S;
use super::plan::{error_path, retained_file};
use super::start_failure::setup_note;
use super::state::{InstanceState, Service};
use crate::protocol::{Output, TaskSpec};
use crate::types::{JobId, SpawnFailure, Step, TaskRank};

/// The longest time between two starts of a job, in seconds: the measurement of free space does not show the limit of a user, or a
/// full log of the reaper.
const MAX_REPEAT_INTERVAL_S: f64 = 60.0;

impl Service {
    /// Withdraws a failed start that is to be repeated: the intent stays in the journal, and the reaper forgets the job. Returns
    /// whether it is withdrawn, or may be when its plan is known.
    pub(super) fn withdraw_start(&mut self, id: JobId, now: f64) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        let Some(failure) = job.space_failure() else {
            return false;
        };
        if job.plan.is_none() {
            return match &job.outstanding_start {
                Some(start) => start.awaiting_r.is_some(),
                None => self.instance != InstanceState::Synchronized,
            };
        }
        if !self.is_repeated(id, job) {
            return false;
        }
        if !job.is_idle() {
            // The report that it is empty is on its way, unless its PMI server runs.
            if job.pmi_process.is_some() && !matches!(job.ending, Ending::Killed(_)) {
                self.kill_job(id, now);
            }
            return true;
        }
        let note = setup_note(failure, job.plan.as_ref(), job);
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        for task in job.tasks.values_mut() {
            if matches!(task.state, TaskState::Failed(_)) {
                *task = Task::new(TaskState::Missing);
            }
        }
        job.presence = Presence::Absent;
        job.ending = Ending::None;
        let server = job.pmi_process.take();
        self.effects
            .extend(server.map(|_| Effect::RemovePmiSocket(id)));
        let interval = 2.0 * job.repeat_interval;
        job.repeat_interval = interval.clamp(OUTPUT_CHECK_INTERVAL_S, MAX_REPEAT_INTERVAL_S);
        let at = now + job.repeat_interval;
        if job.repeat_at.replace(at).is_none() {
            let note = format!("the job starts when there is space: {note}");
            job.warn(id, "exec", note, HELD_SEVERITY, &mut self.messages);
        }
        let guest = job.guest;
        self.timers.add(at, id);
        self.output_usage.waiting.insert(id);
        self.free_descriptors(id, guest);
        self.forgotten.push(id);
        true
    }

    /// Whether each failure is about a file of retained output, or about the reaper's log. Other files are the user's.
    fn is_repeated(&self, id: JobId, job: &Job) -> bool {
        let output = &self.settings.task_context.output;
        let is_retained = |spec: &TaskSpec, step| {
            let stdout = match &spec.stdout {
                Output::Append(path) | Output::Truncate(path) => Some(path),
                Output::Null | Output::SameAsStdout => None,
            };
            let path = match step {
                Step::Stdout => stdout,
                _ => error_path(spec),
            };
            let is_file = |stream| {
                let file = retained_file(output, id, stream);
                path.is_some_and(|path| path.to_bytes() == file.as_os_str().as_bytes())
            };
            Stream::ALL.into_iter().any(is_file)
        };
        let spec = |rank: &TaskRank| job.plan.as_ref()?.specs.get(rank.0 as usize);
        job.pmix.is_none()
            && job.tasks.iter().all(|(rank, task)| match task.state {
                TaskState::Failed(SpawnFailure {
                    step: step @ (Step::Stdout | Step::Stderr),
                    ..
                }) => spec(rank).is_some_and(|spec| is_retained(spec, step)),
                _ => true,
            })
    }

    /// Checks whether missing tasks may be requested now: the retry interval has passed, and there is space for output.
    pub(super) fn check_retry(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        let is_due = job.repeat_at.is_none_or(|at| self.clock >= at);
        let has_room = is_due && (!job.is_output_retained || self.check_free_space(id));
        if !has_room {
            self.output_usage.waiting.insert(id);
            self.end_descriptor_wait(id);
        }
        has_room && self.take_descriptors(id)
    }
}

impl Job {
    /// Whether a job that waits for space has not been started.
    pub(super) fn is_start_held(&self) -> bool {
        self.is_untouched() || self.has(TaskState::Missing)
    }

    /// The failure of a start for lack of space; `None` if a program was executed, or a task has failed for another reason.
    fn space_failure(&self) -> Option<SpawnFailure> {
        let is_full = |task: &Task| match task.state {
            TaskState::Failed(failure) => failure.lacks_space(),
            state => state == TaskState::Abandoned,
        };
        let failure = self.setup_failure().filter(|_| !self.is_failing())?;
        self.tasks.values().all(is_full).then_some(failure)
    }
}

impl SpawnFailure {
    /// Whether output or the record of the start had no space, or the reaper no descriptor for the output: other jobs have them.
    fn lacks_space(self) -> bool {
        match self.errno {
            libc::ENOSPC | libc::EDQUOT => {
                matches!(self.step, Step::Stdout | Step::Stderr | Step::Record)
            }
            libc::EMFILE | libc::ENFILE => {
                matches!(self.step, Step::Stdout | Step::Stderr | Step::Clone)
            }
            _ => false,
        }
    }
}
