use std::collections::BTreeSet;
use std::io;

use crate::OutputReserve;
use crate::protocol::{TaskSpec, WindowSize};
use crate::types::{
    CgroupId, CgroupLimits, JobId, Pid, ProcessId, SpawnFailure, TaskId, Usage, WaitStatus,
};

/// The end of a child process, as `wait4` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// The process.
    pub pid: Pid,
    /// Its wait status.
    pub status: WaitStatus,
    /// Its resource usage.
    pub usage: Usage,
}

/// The evidence that a pid has not been reused by another process, so that a signal reaches the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// A child of the reaper that has not been reaped: its pid cannot be reused.
    Child,
    /// The group of such a child, which it leads.
    ChildGroup,
    /// A process with this parent.
    ChildOf(Pid),
    /// A process with this start time.
    StartTime(u64),
}

/// Facts about a process from `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its session.
    pub session: Pid,
    /// The hard limit of `RLIMIT_LOCKS`.
    pub mark: u64,
}

/// The result of [`Kernel::close_streams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedStreams {
    /// Whether all output has been written or dropped.
    pub is_complete: bool,
    /// Bytes that were dropped because they would have used the [reserve](Kernel::reserve_output).
    pub dropped_bytes: u64,
}

/// The operating system as [`Reaper`](crate::Reaper) uses it.
pub trait Kernel {
    /// Starts a task. The record of its start is in the log before the task executes its program.
    ///
    /// The task of a guest begins as another program, which sets it up: the result is reported to
    /// [`Reaper::record_setup`](crate::Reaper::record_setup), before the process is reaped.
    ///
    /// # Errors
    ///
    /// Returns the step that failed, and why. No process is left. If the step is [`Step::Limit`](crate::Step::Limit) or
    /// [`Step::Exec`](crate::Step::Exec), the log has a record of the start.
    fn spawn(
        &mut self,
        task: &TaskSpec,
        mark: Option<u64>,
        cgroup: Option<CgroupId>,
    ) -> Result<ProcessId, SpawnFailure>;

    /// Opens the cgroups of an earlier reaper's jobs, and kills what is in others. Returns those that exist.
    fn restore_cgroups(&mut self, known: &BTreeSet<CgroupId>) -> BTreeSet<CgroupId>;

    /// Takes a cgroup for a job; `None` if this reaper makes none and the job has no limits.
    ///
    /// # Errors
    ///
    /// Fails if a limit cannot be enforced.
    fn take_cgroup(&mut self, limits: &CgroupLimits) -> Result<Option<CgroupId>, SpawnFailure>;

    /// Kills every process of a cgroup, including those that they start meanwhile.
    fn kill_cgroup(&mut self, cgroup: CgroupId);

    /// Gives a cgroup back if it has no process. Returns whether that is so; if not, its emptiness is reported to
    /// [`Reaper::record_cgroup_change`](crate::Reaper::record_cgroup_change).
    fn release_cgroup(&mut self, cgroup: CgroupId) -> bool;

    /// The number of processes of a cgroup that the memory limit has ended.
    fn oom_kills(&mut self, cgroup: CgroupId) -> u64;

    /// Appends records to the log atomically.
    ///
    /// # Errors
    ///
    /// Fails if the file system is full or fails.
    fn append(&mut self, records: &[u8]) -> io::Result<()>;

    /// Replaces the log's contents, atomically.
    ///
    /// # Errors
    ///
    /// Fails if the file system is full or fails; the log is unchanged.
    fn rewrite(&mut self, log: &[u8]) -> io::Result<()>;

    /// Sends a signal. Returns whether the process exists.
    fn signal(&mut self, pid: Pid, identity: Identity, signal: u32) -> bool;

    /// The children of a process, or of the reaper itself.
    fn children(&mut self, parent: Option<Pid>) -> Vec<Pid>;

    /// Reads the facts about a process; `None` if it has been reaped.
    fn inspect(&mut self, pid: Pid) -> Option<ProcessInfo>;

    /// The processes of these sessions that have not ended, with their sessions.
    fn session_members(&mut self, sessions: &BTreeSet<Pid>) -> Vec<(Pid, ProcessId)>;

    /// Whether a process is a child of this reaper that an earlier one has started, and of which this one gets the wait
    /// status: a standby gets the children of the reaper whose place it takes. The process may have ended.
    fn has_inherited(&self, process: ProcessId) -> bool;

    /// Begins to watch a process that is not a child. Returns whether it is running. Its end is reported to
    /// [`Reaper::record_orphan_end`](crate::Reaper::record_orphan_end).
    fn watch(&mut self, process: ProcessId) -> bool;

    /// Writes to the pipe or terminal that is the standard input of a task, and returns the number of bytes. If there is
    /// no room, [`Reaper::write_input`](crate::Reaper::write_input) is called when there is.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; another error if no process reads any longer.
    fn write_input(&mut self, task: TaskId, bytes: &[u8]) -> io::Result<usize>;

    /// Ends the standard input of a task.
    fn end_input(&mut self, task: TaskId);

    /// Sets the window size of the terminal of a task.
    fn resize(&mut self, task: TaskId, size: WindowSize);

    /// Sets the free space that retained output of guests leaves: without room for it, their pipes are not read.
    fn reserve_output(&mut self, reserve: OutputReserve);

    /// The output of guests that was in flight when it was copied again after it had no room, since the last call: of each job the
    /// most bytes at once.
    fn take_held_output(&mut self) -> Vec<(JobId, u64)>;

    /// Reads the rest of the output that passes through the reaper, and closes all pipes and terminals of the job: no
    /// process of it is left. If not all output has been written or dropped, the end of that is reported to
    /// [`Reaper::record_output_end`](crate::Reaper::record_output_end).
    fn close_streams(&mut self, job: JobId) -> ClosedStreams;

    /// The time, in nanoseconds since the epoch.
    fn now_ns(&self) -> u64;
}
