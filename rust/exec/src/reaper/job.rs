//! The tasks of a job, as the reaper knows them.

use std::collections::BTreeMap;

use super::freeze::Root;
use crate::kernel::Identity;
use crate::protocol::{Event, SignalTarget};
use crate::types::{
    CgroupId, JobId, Pid, ProcessId, SpawnFailure, TaskEnd, TaskId, TaskRank, Usage, WaitStatus,
};

/// The tasks of a job, and the processes that they have left.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) tasks: BTreeMap<TaskRank, TaskState>,
    /// The slots of its tasks' marks.
    pub(super) slots: Vec<u32>,
    /// Tasks that have not been started.
    pub(super) queued: usize,
    /// Descendants of tasks that are children of the reaper, and the tasks that they descend from.
    pub(super) adopted: BTreeMap<Pid, TaskRank>,
    /// Processes that lost tasks have left in their sessions: by pid, the rank and the start time.
    pub(super) remnants: BTreeMap<Pid, (TaskRank, u64)>,
    /// The number of its running tasks, adopted descendants and remnants.
    pub(super) processes: usize,
    pub(super) is_killed: bool,
    /// Tasks that have been killed one by one, and whether the event that none of their processes is left is due.
    pub(super) killed_tasks: BTreeMap<TaskRank, bool>,
    /// Its cgroup, until no process is in it.
    pub(super) cgroup: Option<CgroupId>,
    /// The processes that the memory limit has ended.
    pub(super) oom_kills: u64,
    /// Bytes of output that were dropped.
    pub(super) dropped_output: u64,
    /// Whether it has no process and the event has been emitted.
    pub(super) is_empty: bool,
}

impl Job {
    /// Whether a task of this rank is not to be started.
    pub(super) fn cancels(&self, rank: TaskRank) -> bool {
        self.is_killed || self.killed_tasks.contains_key(&rank)
    }

    /// The processes of a target in this job, `id`, that are not descendants of other processes of the target.
    pub(super) fn roots(&self, id: JobId, target: SignalTarget) -> Vec<Root> {
        let is_included = |rank: &TaskRank| match target {
            SignalTarget::Job(_) => true,
            SignalTarget::Task(task) => task.rank == *rank,
        };
        let root = |rank: &TaskRank, pid: Pid, identity: Identity| Root {
            pid,
            identity,
            task: TaskId {
                job: id,
                rank: *rank,
            },
        };
        let tasks = self.tasks.iter().filter_map(|(rank, state)| match state {
            TaskState::SettingUp(process) | TaskState::Running(process) => {
                Some(root(rank, process.pid, Identity::Child))
            }
            TaskState::Orphan(process) => {
                let identity = Identity::StartTime(process.start_time);
                Some(root(rank, process.pid, identity))
            }
            _ => None,
        });
        let adopted = self.adopted.iter();
        let adopted = adopted.map(|(pid, rank)| root(rank, *pid, Identity::Child));
        let remnants = self.remnants.iter().map(|(pid, (rank, start_time))| {
            let identity = Identity::StartTime(*start_time);
            root(rank, *pid, identity)
        });
        let roots = tasks.chain(adopted).chain(remnants);
        roots.filter(|root| is_included(&root.task.rank)).collect()
    }

    /// Takes the killed tasks of which no process is left, each once.
    pub(super) fn take_empty_killed_tasks(&mut self) -> Vec<TaskRank> {
        let (tasks, adopted, remnants) = (&self.tasks, &self.adopted, &self.remnants);
        let killed = self.killed_tasks.iter_mut();
        let empty = killed.filter(|(rank, is_due)| {
            **is_due
                && !tasks.get(rank).is_some_and(TaskState::may_run)
                && !adopted.values().any(|of| of == *rank)
                && !remnants.values().any(|(of, _)| of == *rank)
        });
        let taken = empty.map(|(rank, is_due)| {
            *is_due = false;
            *rank
        });
        taken.collect()
    }
}

/// The state of a task.
#[derive(Debug, Clone, Copy)]
pub(super) enum TaskState {
    Queued,
    /// The process is becoming that of a guest.
    SettingUp(ProcessId),
    Running(ProcessId),
    Orphan(ProcessId),
    Failed(SpawnFailure),
    Ended(ProcessId, TaskEnd),
}

impl TaskState {
    /// The state that the log has: of a task in set-up, that it runs, since it has a process.
    pub(super) fn recorded(self) -> Self {
        match self {
            Self::SettingUp(process) => Self::Running(process),
            state => state,
        }
    }

    /// Whether it has a process, or may get one.
    fn may_run(&self) -> bool {
        match self {
            Self::Queued | Self::SettingUp(_) | Self::Running(_) | Self::Orphan(_) => true,
            Self::Failed(_) | Self::Ended(..) => false,
        }
    }
}

/// The end of a task of which no process has the status: the reaper that was its parent has ended.
pub(super) fn unknown_end(time_ns: u64) -> TaskEnd {
    TaskEnd {
        status: WaitStatus::Unknown,
        usage: Usage::default(),
        time_ns,
    }
}

/// The events that result in a state.
pub(super) fn task_events(task: TaskId, state: TaskState) -> impl Iterator<Item = Event> {
    let started = |process| Event::Started { task, process };
    let (first, second) = match state {
        TaskState::Queued | TaskState::SettingUp(_) => (None, None),
        TaskState::Running(process) | TaskState::Orphan(process) => (Some(started(process)), None),
        TaskState::Failed(failure) => (Some(Event::Failed { task, failure }), None),
        TaskState::Ended(process, end) => {
            (Some(started(process)), Some(Event::Ended { task, end }))
        }
    };
    first.into_iter().chain(second)
}
