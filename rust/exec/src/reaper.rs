//! The state machine of a reaper.

mod freeze;
mod job;
mod outbox;
mod start_queue;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;

use freeze::{Freeze, Root, Walk};
use job::{Job, TaskState, task_events, unknown_end};
use outbox::Outbox;
use start_queue::{Next, QueuedSignal, Reply, StartQueue};

use crate::input::{Inputs, WriteRequest, WriteResponse};
use crate::kernel::{Exit, Identity, Kernel, ProcessInfo};
use crate::log::{self, LogContents, Record};
use crate::mark::{MAX_SLOTS, MarkSpace};
use crate::protocol::{Event, Hello, Message, Request, SignalTarget, TaskSpec, VERSION};
use crate::types::{
    BootId, CgroupId, ConnectionId, JobId, MAX_SIGNAL, Pid, ProcessId, SpawnFailure, Step, TaskEnd,
    TaskId,
};

/// Tasks started in one step, before exits and requests are handled again.
const MAX_SPAWNS_PER_STEP: usize = 32;
/// Bytes of log below which it is not compacted.
const MIN_COMPACTED_BYTES: usize = 256 << 10;
const SIGKILL: u32 = libc::SIGKILL as u32;

/// The state machine of a reaper.
///
/// The event loop passes in requests ([`handle`](Self::handle)), exits ([`reap`](Self::reap)) and lost connections,
/// calls [`step`](Self::step) and [`commit`](Self::commit) in every iteration, and sends the messages of
/// [`take_messages`](Self::take_messages). No status is in a message before it is in the log.
#[derive(Debug)]
pub struct Reaper {
    hello: Hello,
    marks: Option<MarkSpace>,
    jobs: BTreeMap<JobId, Job>,
    /// The tasks by the slot of their mark.
    slots: BTreeMap<u32, TaskId>,
    free_slots: Vec<u32>,
    /// The slots from this one on have not been assigned.
    next_slot: u32,
    /// The tasks by their sessions.
    sessions: BTreeMap<Pid, TaskId>,
    /// The jobs by their cgroups.
    cgroups: BTreeMap<CgroupId, JobId>,
    children: BTreeMap<Pid, Child>,
    /// The tasks of processes that have been killed and whose parents may end first: a mark can be lost.
    killed: BTreeMap<Pid, TaskId>,
    /// Tasks started by an earlier reaper of this directory.
    orphans: BTreeMap<Pid, TaskId>,
    /// Processes that ended orphans have left in their sessions, with these sessions.
    remnants: BTreeMap<Pid, (TaskId, Pid)>,
    /// The sessions of ended orphans, which may have processes.
    unsearched_sessions: BTreeMap<Pid, TaskId>,
    inputs: Inputs,
    queue: StartQueue,
    outbox: Outbox,
    /// Records that are not in the log yet. Messages are held until the log is written.
    records: Vec<u8>,
    log_len: usize,
    compact_at: usize,
    /// Jobs that may have become empty.
    maybe_empty: BTreeSet<JobId>,
    /// Whether the reaper may have children that are not in `children`.
    is_scan_due: bool,
    is_finished: bool,
}

/// The role of a child of the reaper.
#[derive(Debug, Clone, Copy)]
enum Child {
    Task(TaskId),
    /// A descendant of a task, whose parent has ended.
    Adopted(TaskId),
    /// A descendant of an unknown task.
    Stray,
}

impl Reaper {
    /// Creates a reaper from the log of an earlier one, and starts a new log with its contents.
    ///
    /// Running tasks of the earlier reaper that are not this one's children are watched until they end; their statuses are
    /// unknown.
    ///
    /// # Errors
    ///
    /// When the log cannot be written.
    pub fn restore<K: Kernel>(
        hello: Hello,
        marks: Option<MarkSpace>,
        recorded: Option<LogContents>,
        kernel: &mut K,
    ) -> io::Result<Self> {
        let mut reaper = Self {
            hello,
            marks,
            jobs: BTreeMap::new(),
            slots: BTreeMap::new(),
            free_slots: Vec::new(),
            next_slot: 0,
            sessions: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            children: BTreeMap::new(),
            killed: BTreeMap::new(),
            orphans: BTreeMap::new(),
            remnants: BTreeMap::new(),
            unsearched_sessions: BTreeMap::new(),
            inputs: Inputs::default(),
            queue: StartQueue::default(),
            outbox: Outbox::default(),
            records: Vec::new(),
            log_len: 0,
            compact_at: MIN_COMPACTED_BYTES,
            maybe_empty: BTreeSet::new(),
            is_scan_due: true,
            is_finished: false,
        };
        if let Some(recorded) = recorded {
            reaper.restore_cgroups(&recorded, kernel);
            for (job, tasks) in recorded.jobs {
                for (task, state) in tasks {
                    reaper.restore_task(task, state, recorded.boot, kernel);
                }
                reaper.maybe_empty.insert(job);
            }
        } else {
            kernel.restore_cgroups(&BTreeSet::new());
        }
        reaper.restore_slots(kernel);
        reaper.compact(kernel)?;
        Ok(reaper)
    }

    fn restore_cgroups<K: Kernel>(&mut self, recorded: &LogContents, kernel: &mut K) {
        let mut cgroups = recorded.cgroups.clone();
        if recorded.boot != self.hello.boot {
            cgroups.clear();
        }
        let existing = kernel.restore_cgroups(&cgroups.keys().copied().collect());
        cgroups.retain(|cgroup, _| existing.contains(cgroup));
        for (cgroup, id) in &cgroups {
            self.jobs.entry(*id).or_default().cgroup = Some(*cgroup);
        }
        self.cgroups = cgroups;
    }

    fn restore_task<K: Kernel>(
        &mut self,
        task: TaskId,
        state: log::LoggedTask,
        boot: BootId,
        kernel: &mut K,
    ) {
        let state = match state {
            log::LoggedTask::Failed(failure) => TaskState::Failed(failure),
            log::LoggedTask::Ended(process, end) => {
                if boot == self.hello.boot {
                    self.sessions.insert(process.pid, task);
                }
                TaskState::Ended(process, end)
            }
            log::LoggedTask::Started(process)
                if boot == self.hello.boot && kernel.has_inherited(process) =>
            {
                self.children.insert(process.pid, Child::Task(task));
                self.sessions.insert(process.pid, task);
                TaskState::Running(process)
            }
            log::LoggedTask::Started(process)
                if boot == self.hello.boot && kernel.watch(process) =>
            {
                self.orphans.insert(process.pid, task);
                TaskState::Orphan(process)
            }
            log::LoggedTask::Started(process) => {
                if boot == self.hello.boot {
                    self.unsearched_sessions.insert(process.pid, task);
                }
                TaskState::Ended(process, unknown_end(kernel.now_ns()))
            }
        };
        let job = self.jobs.entry(task.job).or_default();
        let has_process = matches!(state, TaskState::Orphan(_) | TaskState::Running(_));
        job.processes += usize::from(has_process);
        job.tasks.insert(task.rank, state);
    }

    /// Finds the slots of the marks that inherited processes have: a descendant of a task has an ancestor with its mark that
    /// is a child of the reaper.
    fn restore_slots<K: Kernel>(&mut self, kernel: &mut K) {
        let Some(marks) = self.marks else {
            return;
        };
        let mut used = BTreeSet::new();
        for pid in kernel.children(None) {
            let info = kernel.inspect(pid);
            let Some(slot) = info.and_then(|info| marks.slot(info.mark)) else {
                continue;
            };
            used.insert(slot);
            if let Some(Child::Task(task)) = self.children.get(&pid)
                && let Some(job) = self.jobs.get_mut(&task.job)
            {
                self.slots.insert(slot, *task);
                job.slots.push(slot);
            }
        }
        self.next_slot = used.last().map_or(0, |last| last + 1);
        self.free_slots = (0..self.next_slot)
            .filter(|slot| !used.contains(slot))
            .collect();
    }

    /// Handles a request of a connection.
    pub fn handle<K: Kernel>(
        &mut self,
        connection: ConnectionId,
        id: u32,
        request: Request,
        kernel: &mut K,
    ) {
        let errno = match request {
            Request::Hello { version } => {
                self.outbox.reply(connection, Message::Hello(self.hello));
                if version == VERSION {
                    self.outbox.connect(connection);
                    0
                } else {
                    libc::EPROTONOSUPPORT
                }
            }
            _ if !self.outbox.is_connected(connection) => libc::EPROTO,
            _ if self.is_finished => libc::ESHUTDOWN,
            Request::Spawn(tasks) => {
                self.enqueue(connection, id, tasks);
                return;
            }
            Request::Signal { signal, .. } if signal > MAX_SIGNAL => libc::EINVAL,
            Request::Signal { target, signal } if self.has_queued(target) => {
                let (SignalTarget::Job(job) | SignalTarget::Task(TaskId { job, .. })) = target;
                let reply = Reply { connection, id };
                let signal = QueuedSignal {
                    reply,
                    target,
                    signal,
                };
                self.queue.add_signal(job, signal);
                return;
            }
            Request::Signal { target, signal } => self.signal(target, signal, kernel),
            Request::Kill(jobs) => {
                let targets: Vec<_> = jobs.into_iter().map(SignalTarget::Job).collect();
                self.kill(&targets, kernel)
            }
            Request::KillTasks(tasks) => {
                let targets: Vec<_> = tasks.into_iter().map(SignalTarget::Task).collect();
                self.kill(&targets, kernel)
            }
            Request::CancelStarts(jobs) => self.cancel_starts(&jobs),
            Request::Forget(jobs) => self.forget(&jobs),
            Request::Write { job, .. } if self.has_queued_task(job) => libc::EAGAIN,
            Request::Write {
                job,
                task,
                writer,
                offset,
                data,
                is_end,
            } => {
                let request = WriteRequest {
                    connection,
                    id,
                    task,
                    writer,
                    offset,
                    data,
                    is_end,
                };
                let Some(errno) = self.inputs.accept(job, request) else {
                    return self.write_input(job, kernel);
                };
                errno
            }
            Request::Resize { job, size } => {
                if self.inputs.resize(job, size, kernel) {
                    0
                } else {
                    libc::ENOENT
                }
            }
            Request::ReserveOutput(reserve) => {
                kernel.reserve_output(reserve);
                0
            }
            Request::ListHeldOutput => {
                let held = kernel.take_held_output().into_iter();
                let events = held.map(|(job, bytes)| Event::OutputHeld { job, bytes });
                self.outbox.send(connection, events);
                0
            }
            Request::List => {
                self.queue.add_list(Reply { connection, id });
                return;
            }
            Request::Shutdown if self.has_process() => libc::EBUSY,
            Request::Shutdown => {
                self.is_finished = true;
                0
            }
        };
        self.outbox.reply(connection, Message::Done { id, errno });
    }

    /// Writes pending input of a job: there may be room for it.
    pub fn write_input<K: Kernel>(&mut self, job: JobId, kernel: &mut K) {
        let responses = self.inputs.write(job, kernel);
        self.respond_to_writes(responses);
    }

    fn respond_to_writes(&mut self, responses: Vec<WriteResponse>) {
        for (connection, id, errno) in responses {
            self.outbox.reply(connection, Message::Done { id, errno });
        }
    }

    fn has_queued_task(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.queued > 0)
    }

    fn has_queued(&self, target: SignalTarget) -> bool {
        match target {
            SignalTarget::Job(job) => self.has_queued_task(job),
            SignalTarget::Task(task) => {
                let job = self.jobs.get(&task.job);
                let state = job.and_then(|job| job.tasks.get(&task.rank));
                matches!(state, Some(TaskState::Queued))
            }
        }
    }

    /// Removes a lost connection. Its requests are still carried out.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.outbox.disconnect(connection);
    }

    /// Handles the exits of children that have been waited for.
    pub fn reap(&mut self, exits: &[Exit], time_ns: u64) {
        for exit in exits {
            match self.children.remove(&exit.pid) {
                Some(Child::Task(task)) => {
                    let end = TaskEnd {
                        status: exit.status,
                        usage: exit.usage,
                        time_ns,
                    };
                    self.end_task(task, end);
                }
                Some(Child::Adopted(task)) => {
                    self.is_scan_due = true;
                    if let Some(job) = self.jobs.get_mut(&task.job) {
                        job.adopted.remove(&exit.pid);
                    }
                    self.remove_process(task.job);
                }
                Some(Child::Stray) | None => self.is_scan_due = true,
            }
        }
    }

    /// Notes that the kernel has found no child of the reaper after the last exit. A process that a task has left has an
    /// ancestor that is a child of the reaper, so none is left, and the next [`commit`](Self::commit) need not look.
    pub fn record_childless(&mut self) {
        self.is_scan_due = false;
    }

    /// Handles the end of a process that [`Kernel::watch`] watches.
    pub fn record_orphan_end(&mut self, pid: Pid, time_ns: u64) {
        if let Some(task) = self.orphans.remove(&pid) {
            self.unsearched_sessions.insert(pid, task);
            self.end_task(task, unknown_end(time_ns));
        } else if let Some((task, session)) = self.remnants.remove(&pid) {
            self.unsearched_sessions.insert(session, task);
            if let Some(job) = self.jobs.get_mut(&task.job) {
                job.remnants.remove(&pid);
            }
            self.remove_process(task.job);
        }
    }

    /// Handles a change of a cgroup that was not empty when it was to be released.
    pub fn record_cgroup_change(&mut self, cgroup: CgroupId) {
        self.maybe_empty.extend(self.cgroups.get(&cgroup));
    }

    /// Handles the end of a process that has written output of a job.
    pub fn record_output_end(&mut self, job: JobId) {
        self.maybe_empty.insert(job);
    }

    /// Starts some of the requested tasks, and handles the requests that wait for them.
    pub fn step<K: Kernel>(&mut self, kernel: &mut K) {
        for _ in 0..MAX_SPAWNS_PER_STEP {
            let (Reply { connection, id }, errno) = match self.queue.next() {
                None => return,
                Some(Next::Start(spec)) => {
                    self.spawn(&spec, kernel);
                    continue;
                }
                Some(Next::Done(reply)) => (reply, 0),
                Some(Next::List(reply)) => {
                    self.list(reply.connection);
                    (reply, 0)
                }
                Some(Next::Signal(QueuedSignal {
                    reply,
                    target,
                    signal,
                })) => (reply, self.signal(target, signal, kernel)),
            };
            let done = Message::Done { id, errno };
            self.outbox.reply_in_time(connection, done);
        }
    }

    /// Reports empty jobs, and writes the new records to the log. If the log cannot be written, the messages are held, and the next call
    /// retries.
    pub fn commit<K: Kernel>(&mut self, kernel: &mut K) {
        if mem::take(&mut self.is_scan_due) {
            self.discover(kernel);
        }
        self.search_sessions(kernel);
        for job in mem::take(&mut self.maybe_empty) {
            self.report_oom_kills(job, kernel);
            self.report_empty_tasks(job);
            self.report_if_empty(job, kernel);
        }
        self.kill_strays(kernel);
        if !self.records.is_empty() {
            if kernel.append(&self.records).is_err() {
                return;
            }
            self.log_len += self.records.len();
            self.records.clear();
        }
        if self.log_len > self.compact_at && self.compact(kernel).is_err() {
            // The log is unchanged, only longer than necessary.
            self.compact_at = self.log_len.saturating_mul(2);
        }
    }

    /// Whether records are waiting for the log to be written.
    pub fn has_unwritten_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Whether messages are to be sent at once. The others tell that tasks have started: the event loop holds them for a
    /// moment, because the end of a short task can then travel with its start.
    pub fn has_urgent_messages(&self) -> bool {
        self.outbox.is_urgent() && self.records.is_empty()
    }

    /// Whether there are messages to send.
    pub fn has_messages(&self) -> bool {
        !self.outbox.is_empty() && self.records.is_empty()
    }

    /// Removes and returns the messages to send, in order for each connection.
    pub fn take_messages(&mut self) -> Vec<(ConnectionId, Message)> {
        if !self.records.is_empty() {
            return Vec::new();
        }
        self.outbox.take()
    }

    /// Whether requests are waiting for [`step`](Self::step).
    pub fn has_queued_requests(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether it has neither processes nor connections, and every status is in the log.
    pub fn is_idle(&self) -> bool {
        self.has_nothing_to_do() && !self.outbox.has_connection()
    }

    /// Whether it has neither processes nor requests, and every status is in the log.
    pub fn has_nothing_to_do(&self) -> bool {
        self.queue.is_empty()
            && self.children.is_empty()
            && self.orphans.is_empty()
            && self.remnants.is_empty()
            && self.cgroups.is_empty()
            && self.records.is_empty()
    }

    /// Whether a service has requested its end.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    // --- tasks

    fn enqueue(&mut self, connection: ConnectionId, id: u32, tasks: Vec<TaskSpec>) {
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

    fn spawn<K: Kernel>(&mut self, spec: &TaskSpec, kernel: &mut K) {
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

    fn end_task(&mut self, task: TaskId, end: TaskEnd) {
        let Some(job) = self.jobs.get_mut(&task.job) else {
            return;
        };
        let state = job.tasks.get_mut(&task.rank);
        if let Some(state) = state
            && let TaskState::SettingUp(process)
            | TaskState::Running(process)
            | TaskState::Orphan(process) = *state
        {
            *state = TaskState::Ended(process, end);
        }
        // The job is not empty while other tasks of it run, whether or not this one left descendants.
        self.is_scan_due |=
            job.processes == 1 || job.is_killed || job.killed_tasks.contains_key(&task.rank);
        Record::Ended(task, end).encode(&mut self.records);
        self.outbox.broadcast(Event::Ended { task, end });
        self.remove_process(task.job);
    }

    // --- processes

    fn remove_process(&mut self, job: JobId) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.processes -= 1;
            self.maybe_empty.insert(job);
        }
    }

    /// Reports the killed tasks of a job of which no process is left.
    fn report_empty_tasks(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for rank in job.take_empty_killed_tasks() {
            let task = TaskId { job: id, rank };
            self.outbox.broadcast(Event::TaskEmpty { task });
        }
    }

    fn report_if_empty<K: Kernel>(&mut self, id: JobId, kernel: &mut K) {
        if let Some(job) = self.jobs.get_mut(&id)
            && job.queued == 0
            && job.processes == 0
            && !job.is_empty
        {
            if let Some(cgroup) = job.cgroup {
                // Processes are left that an earlier reaper was the ancestor of.
                if !kernel.release_cgroup(cgroup) {
                    return;
                }
                job.cgroup = None;
                self.cgroups.remove(&cgroup);
            }
            let closed = kernel.close_streams(id);
            if closed.dropped_bytes > 0 {
                job.dropped_output += closed.dropped_bytes;
                let bytes = job.dropped_output;
                self.outbox
                    .broadcast(Event::OutputDropped { job: id, bytes });
            }
            if !closed.is_complete {
                return;
            }
            if job.is_killed {
                self.killed.retain(|_, task| task.job != id);
            }
            job.is_empty = true;
            let responses = self.inputs.remove(id);
            self.respond_to_writes(responses);
            self.outbox.broadcast(Event::Empty { job: id });
        }
    }

    fn report_oom_kills<K: Kernel>(&mut self, id: JobId, kernel: &mut K) {
        if let Some(job) = self.jobs.get_mut(&id)
            && let Some(cgroup) = job.cgroup
        {
            let count = kernel.oom_kills(cgroup);
            if count > job.oom_kills {
                job.oom_kills = count;
                self.outbox.broadcast(Event::OomKilled { job: id, count });
            }
        }
    }

    /// Adopts the children that the reaper did not start. Returns whether it found any.
    ///
    /// The kernel lists all children, at about half a microsecond for each.
    fn discover<K: Kernel>(&mut self, kernel: &mut K) -> bool {
        let known = self.children.len();
        for pid in kernel.children(None) {
            if self.children.contains_key(&pid) {
                continue;
            }
            let task = kernel.inspect(pid).and_then(|info| self.attribute(info));
            let task = task.or_else(|| self.killed.remove(&pid));
            let job = task.and_then(|task| Some((task, self.jobs.get_mut(&task.job)?)));
            let Some((task, job)) = job else {
                self.children.insert(pid, Child::Stray);
                continue;
            };
            job.processes += 1;
            job.adopted.insert(pid, task.rank);
            job.is_empty = false;
            self.children.insert(pid, Child::Adopted(task));
            if job.is_killed || job.killed_tasks.contains_key(&task.rank) {
                kernel.signal(pid, Identity::Child, SIGKILL);
            }
        }
        self.children.len() > known
    }

    /// Watches the processes that ended orphans have left in their sessions, and kills those of killed jobs. Without a
    /// cgroup no others can be found: they are no descendants of this reaper.
    ///
    /// An orphan may have ended long ago, and its pid, the number of its session, may be that of another session now.
    /// Only processes with a mark are meant, and none if a process has the pid.
    fn search_sessions<K: Kernel>(&mut self, kernel: &mut K) {
        let mut sessions = mem::take(&mut self.unsearched_sessions);
        sessions.retain(|_, task| {
            let job = self.jobs.get(&task.job);
            job.is_some_and(|job| job.cgroup.is_none())
        });
        if sessions.is_empty() {
            return;
        }
        let members = kernel.session_members(&sessions.keys().copied().collect());
        for (session, process) in &members {
            if *session == process.pid {
                sessions.remove(session);
            }
        }
        for (session, process) in members {
            if let Some(task) = sessions.get(&session) {
                self.watch_remnant(*task, session, process, kernel);
            }
        }
    }

    fn watch_remnant<K: Kernel>(
        &mut self,
        task: TaskId,
        session: Pid,
        process: ProcessId,
        kernel: &mut K,
    ) {
        let ProcessId { pid, start_time } = process;
        let is_marked = kernel.inspect(pid).is_some_and(|info| {
            let slot = self.marks.and_then(|marks| marks.slot(info.mark));
            info.session == session && slot.is_some()
        });
        if !is_marked || self.remnants.contains_key(&pid) || !kernel.watch(process) {
            return;
        }
        let Some(job) = self.jobs.get_mut(&task.job) else {
            return;
        };
        self.remnants.insert(pid, (task, session));
        job.remnants.insert(pid, (task.rank, start_time));
        job.processes += 1;
        job.is_empty = false;
        if job.cancels(task.rank) {
            kernel.signal(pid, Identity::StartTime(start_time), SIGKILL);
        }
    }

    fn attribute(&self, info: ProcessInfo) -> Option<TaskId> {
        let slot = self.marks.and_then(|marks| marks.slot(info.mark));
        slot.and_then(|slot| self.slots.get(&slot))
            .or_else(|| self.sessions.get(&info.session))
            .copied()
    }

    fn kill_strays<K: Kernel>(&mut self, kernel: &mut K) {
        let strays = || {
            let is_stray =
                |(pid, child): (&Pid, &Child)| matches!(child, Child::Stray).then_some(*pid);
            self.children.iter().filter_map(is_stray)
        };
        if strays().next().is_some() && !self.has_process() {
            for pid in strays() {
                kernel.signal(pid, Identity::Child, SIGKILL);
            }
        }
    }

    fn has_process(&self) -> bool {
        let has_process = |job: &Job| job.processes > 0 || job.queued > 0 || job.cgroup.is_some();
        self.jobs.values().any(has_process)
    }

    /// The processes of the targets that are not descendants of other processes of them.
    fn roots(&self, targets: &[SignalTarget]) -> Vec<Root> {
        let roots = targets.iter().flat_map(|target| {
            let (SignalTarget::Job(id) | SignalTarget::Task(TaskId { job: id, .. })) = *target;
            let job = self.jobs.get(&id);
            job.map_or_else(Vec::new, |job| job.roots(id, *target))
        });
        roots.collect()
    }

    fn signal<K: Kernel>(&mut self, target: SignalTarget, signal: u32, kernel: &mut K) -> i32 {
        let is_sent = match target {
            SignalTarget::Job(_) => {
                self.discover(kernel);
                Walk::default().signal_new(self.roots(&[target]), signal, kernel)
            }
            SignalTarget::Task(task) => {
                let job = self.jobs.get(&task.job);
                match job.and_then(|job| job.tasks.get(&task.rank)) {
                    Some(TaskState::SettingUp(process) | TaskState::Running(process)) => {
                        kernel.signal(process.pid, Identity::ChildGroup, signal)
                    }
                    Some(TaskState::Orphan(process)) => {
                        let identity = Identity::StartTime(process.start_time);
                        kernel.signal(process.pid, identity, signal)
                    }
                    _ => false,
                }
            }
        };
        if is_sent { 0 } else { libc::ESRCH }
    }

    fn kill<K: Kernel>(&mut self, targets: &[SignalTarget], kernel: &mut K) -> i32 {
        let mut errno = 0;
        for target in targets {
            let (SignalTarget::Job(id) | SignalTarget::Task(TaskId { job: id, .. })) = *target;
            let Some(job) = self.jobs.get_mut(&id) else {
                errno = libc::ESRCH;
                continue;
            };
            match target {
                SignalTarget::Job(_) => job.is_killed = true,
                SignalTarget::Task(task) => {
                    job.killed_tasks.insert(task.rank, true);
                }
            }
            self.maybe_empty.insert(id);
            self.cancel_killed(id);
        }
        for target in targets {
            if let SignalTarget::Job(id) = target
                && let Some(cgroup) = self.jobs.get(id).and_then(|job| job.cgroup)
            {
                kernel.kill_cgroup(cgroup);
            }
        }
        // Processes outside it: there is none, or a process of root has left it.
        self.discover(kernel);
        let mut freeze = Freeze::default();
        while !freeze.is_complete() {
            freeze.pass(self.roots(targets), kernel, |kernel| self.discover(kernel));
        }
        for (pid, task) in freeze.kill(kernel) {
            if !self.children.contains_key(&pid) {
                self.killed.insert(pid, task);
            }
        }
        errno
    }

    /// Cancels the queued tasks of some jobs.
    fn cancel_starts(&mut self, jobs: &[JobId]) -> i32 {
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
    fn cancel_killed(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        for task in self.queue.cancel(id, |task| job.cancels(task.rank)) {
            self.fail(task, CANCELLED);
        }
    }

    // --- statuses

    fn forget(&mut self, jobs: &[JobId]) -> i32 {
        let mut errno = 0;
        for id in jobs {
            match self.jobs.get(id) {
                Some(job) if job.is_empty => {}
                Some(_) => {
                    errno = libc::EBUSY;
                    continue;
                }
                None => continue,
            }
            let Some(job) = self.jobs.remove(id) else {
                continue;
            };
            for slot in &job.slots {
                self.slots.remove(slot);
            }
            self.free_slots.extend(job.slots);
            for state in job.tasks.values() {
                if let TaskState::Ended(process, _) = state
                    && self.sessions.get(&process.pid).map(|task| task.job) == Some(*id)
                {
                    self.sessions.remove(&process.pid);
                }
            }
            Record::Forgotten(*id).encode(&mut self.records);
        }
        errno
    }

    fn list(&mut self, connection: ConnectionId) {
        for (id, job) in &self.jobs {
            for (rank, state) in &job.tasks {
                let task = TaskId {
                    job: *id,
                    rank: *rank,
                };
                self.outbox
                    .send(connection, task_events(task, state.recorded()));
            }
            let count = job.oom_kills;
            let oom = (count > 0).then_some(Event::OomKilled { job: *id, count });
            let bytes = job.dropped_output;
            let dropped = (bytes > 0).then_some(Event::OutputDropped { job: *id, bytes });
            let empty = job.is_empty.then_some(Event::Empty { job: *id });
            let events = oom.into_iter().chain(dropped).chain(empty);
            self.outbox.send(connection, events);
        }
    }

    /// Compacts the log: drops forgotten jobs.
    fn compact<K: Kernel>(&mut self, kernel: &mut K) -> io::Result<()> {
        let mut bytes = log::header(self.hello.boot, self.hello.process);
        for (id, job) in &self.jobs {
            for (rank, state) in &job.tasks {
                let task = TaskId {
                    job: *id,
                    rank: *rank,
                };
                for event in task_events(task, state.recorded()) {
                    match event {
                        Event::Started { task, process } => {
                            Record::Started(task, process, job.cgroup)
                        }
                        Event::Failed { task, failure } => Record::Failed(task, failure),
                        Event::Ended { task, end } => Record::Ended(task, end),
                        Event::Empty { .. }
                        | Event::TaskEmpty { .. }
                        | Event::OomKilled { .. }
                        | Event::OutputDropped { .. }
                        | Event::OutputHeld { .. } => {
                            continue;
                        }
                    }
                    .encode(&mut bytes);
                }
            }
        }
        kernel.rewrite(&bytes)?;
        self.log_len = bytes.len();
        self.compact_at = bytes.len().saturating_mul(4).max(MIN_COMPACTED_BYTES);
        Ok(())
    }
}

const CANCELLED: SpawnFailure = SpawnFailure {
    step: Step::Cancelled,
    errno: libc::ECANCELED,
};
