//! The state machine of a reaper.

mod freeze;
mod job;
mod outbox;
mod processes;
mod signals;
mod start_queue;
mod starts;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;

use job::{TaskState, task_events, unknown_end};
use outbox::Outbox;
use start_queue::{Next, QueuedSignal, Reply, StartQueue};
use state::Child;
pub use state::Reaper;

use crate::input::{Inputs, WriteRequest, WriteResponse};
use crate::kernel::{Exit, Kernel};
use crate::log::{self, LogContents, Record};
use crate::mark::MarkSpace;
use crate::protocol::{Event, Hello, Message, Request, SignalTarget, VERSION};
use crate::types::{BootId, CgroupId, ConnectionId, JobId, MAX_SIGNAL, Pid, TaskEnd, TaskId};

/// Bytes of log below which it is not compacted.
const MIN_COMPACTED_BYTES: usize = 256 << 10;
/// Tasks started in one step, before exits and requests are handled again.
const MAX_SPAWNS_PER_STEP: usize = 32;

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

    // --- tasks and processes

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
