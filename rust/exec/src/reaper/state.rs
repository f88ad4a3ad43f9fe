//! The state of a reaper.

use std::collections::{BTreeMap, BTreeSet};

use super::job::Job;
use super::outbox::Outbox;
use super::start_queue::StartQueue;
use crate::input::Inputs;
use crate::mark::MarkSpace;
use crate::protocol::Hello;
use crate::types::{CgroupId, JobId, Pid, TaskId};

/// The state machine of a reaper.
///
/// The event loop passes in requests ([`handle`](Self::handle)), exits ([`reap`](Self::reap)) and lost connections,
/// calls [`step`](Self::step) and [`commit`](Self::commit) in every iteration, and sends the messages of
/// [`take_messages`](Self::take_messages). No status is in a message before it is in the log.
#[derive(Debug)]
pub struct Reaper {
    pub(super) hello: Hello,
    pub(super) marks: Option<MarkSpace>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// The tasks by the slot of their mark.
    pub(super) slots: BTreeMap<u32, TaskId>,
    pub(super) free_slots: Vec<u32>,
    /// The slots from this one on have not been assigned.
    pub(super) next_slot: u32,
    /// The tasks by their sessions.
    pub(super) sessions: BTreeMap<Pid, TaskId>,
    /// The jobs by their cgroups.
    pub(super) cgroups: BTreeMap<CgroupId, JobId>,
    pub(super) children: BTreeMap<Pid, Child>,
    /// The tasks of processes that have been killed and whose parents may end first: a mark can be lost.
    pub(super) killed: BTreeMap<Pid, TaskId>,
    /// Tasks started by an earlier reaper of this directory.
    pub(super) orphans: BTreeMap<Pid, TaskId>,
    /// Processes that ended orphans have left in their sessions, with these sessions.
    pub(super) remnants: BTreeMap<Pid, (TaskId, Pid)>,
    /// The sessions of ended orphans, which may have processes.
    pub(super) unsearched_sessions: BTreeMap<Pid, TaskId>,
    pub(super) inputs: Inputs,
    pub(super) queue: StartQueue,
    pub(super) outbox: Outbox,
    /// Records that are not in the log yet. Messages are held until the log is written.
    pub(super) records: Vec<u8>,
    pub(super) log_len: usize,
    pub(super) compact_at: usize,
    /// Jobs that may have become empty.
    pub(super) maybe_empty: BTreeSet<JobId>,
    /// Whether the reaper may have children that are not in `children`.
    pub(super) is_scan_due: bool,
    pub(super) is_finished: bool,
}

/// The role of a child of the reaper.
#[derive(Debug, Clone, Copy)]
pub(super) enum Child {
    Task(TaskId),
    /// A descendant of a task, whose parent has ended.
    Adopted(TaskId),
    /// A descendant of an unknown task.
    Stray,
}
