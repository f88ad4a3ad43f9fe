//! A kernel without processes, files or clock.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use penstock_exec::log::{LogContents, Record};
use penstock_exec::protocol::{TaskSpec, WindowSize};
use penstock_exec::{
    CgroupId, CgroupLimits, ClosedStreams, Exit, Identity, JobId, Kernel, OutputReserve, Pid,
    ProcessId, ProcessInfo, SpawnFailure, Step, TaskId, TaskRank, Usage, WaitStatus,
};

/// The process of the reaper.
pub const REAPER: Pid = Pid(1);

/// A process of the virtual kernel.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pub parent: Pid,
    pub session: Pid,
    pub mark: u64,
    pub start_time: u64,
    pub is_stopped: bool,
    /// Processes that it forks, one each time that the reaper lists its children, until it is stopped.
    pub forks: u32,
    pub cgroup: Option<CgroupId>,
}

const KILLED: WaitStatus = WaitStatus::Signaled {
    signal: 9,
    core: false,
};

/// Processes in a table, the log in a buffer.
#[derive(Debug, Default)]
pub struct VirtualKernel {
    pub processes: BTreeMap<Pid, Process>,
    pub last_pid: u32,
    pub log: Vec<u8>,
    pub ended: Vec<Exit>,
    pub watched: BTreeSet<Pid>,
    pub is_full: bool,
    /// Whether cgroups can be made.
    pub has_cgroups: bool,
    pub cgroups: BTreeSet<CgroupId>,
    /// Cgroups whose emptiness is awaited.
    pub watched_cgroups: BTreeSet<CgroupId>,
    pub limits: BTreeMap<CgroupId, CgroupLimits>,
    /// The step that fails because there is no such controller.
    pub missing_controller: Option<Step>,
    pub oom_kills: BTreeMap<CgroupId, u64>,
    pub fails: BTreeMap<TaskRank, SpawnFailure>,
    /// The number of tasks that were not started because of that.
    pub failed: usize,
    pub rewrites: usize,
    /// Every task that was ever started, and its process.
    pub spawned: Vec<(TaskId, Pid)>,
    /// The processes that are to become those of guests.
    pub setups: BTreeSet<Pid>,
    /// The wait statuses of processes that have ended.
    pub statuses: BTreeMap<Pid, WaitStatus>,
    /// The signals that end or stop no process.
    pub signals: Vec<(Pid, u32)>,
    /// The resource usage of processes that end.
    pub usage: Usage,
    /// Processes that no signal ends.
    pub is_uninterruptible: BTreeSet<Pid>,
    pub ignores_sigterm: BTreeSet<Pid>,
    /// The number of times that children were listed.
    pub lists: usize,
    /// Standard input: of each task what it got, and how much room there is.
    pub inputs: BTreeMap<TaskId, VirtualInput>,
    /// The last size of a window.
    pub window: Option<WindowSize>,
    /// The free space that output of guests leaves.
    pub reserve: OutputReserve,
    /// Bytes of output of jobs that have no room.
    pub unwritten: BTreeMap<JobId, u64>,
    /// Bytes that jobs had in flight when there was room again.
    pub held: BTreeMap<JobId, u64>,
}

/// A pipe or terminal.
#[derive(Debug, Default)]
pub struct VirtualInput {
    pub got: Vec<u8>,
    pub room: usize,
    /// Whether the task has closed its end.
    pub is_broken: bool,
    pub is_ended: bool,
}

impl VirtualKernel {
    /// Whether `wait` finds no child of the reaper.
    pub fn is_childless(&self) -> bool {
        self.ended.is_empty()
            && !self
                .processes
                .values()
                .any(|process| process.parent == REAPER)
    }

    pub fn fork(&mut self, parent: Pid) -> Pid {
        self.last_pid += 1;
        let pid = Pid(100 + self.last_pid);
        let template = self.processes.get(&parent).copied();
        let process = Process {
            parent,
            session: template.map_or(pid, |parent| parent.session),
            mark: template.map_or(u64::MAX, |parent| parent.mark),
            start_time: u64::from(self.last_pid),
            is_stopped: false,
            forks: 0,
            cgroup: template.and_then(|parent| parent.cgroup),
        };
        self.processes.insert(pid, process);
        pid
    }

    /// Ends a process: its children become the reaper's.
    pub fn end(&mut self, pid: Pid, status: WaitStatus) {
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        self.statuses.insert(pid, status);
        for child in self.processes.values_mut() {
            if child.parent == pid {
                child.parent = REAPER;
            }
        }
        if process.parent == REAPER {
            self.ended.push(Exit {
                pid,
                status,
                usage: self.usage,
            });
        }
    }

    pub fn leave_session(&mut self, pid: Pid) {
        self.processes.get_mut(&pid).expect("it runs").session = pid;
    }

    pub fn log(&self) -> LogContents {
        LogContents::decode(&self.log).expect("valid")
    }
}

impl Kernel for VirtualKernel {
    fn spawn(
        &mut self,
        task: &TaskSpec,
        mark: Option<u64>,
        cgroup: Option<CgroupId>,
    ) -> Result<ProcessId, SpawnFailure> {
        if let Some(failure) = self.fails.get(&task.task.rank) {
            self.failed += 1;
            return Err(*failure);
        }
        let pid = self.fork(REAPER);
        self.spawned.push((task.task, pid));
        self.setups.extend(task.guest.map(|_| pid));
        let process = self.processes.get_mut(&pid).expect("new");
        process.mark = mark.unwrap_or(u64::MAX);
        process.cgroup = cgroup;
        let id = ProcessId {
            pid,
            start_time: process.start_time,
        };
        Record::Started(task.task, id, cgroup).encode(&mut self.log);
        Ok(id)
    }

    fn restore_cgroups(&mut self, known: &BTreeSet<CgroupId>) -> BTreeSet<CgroupId> {
        let unknown = self.cgroups.difference(known).copied();
        for cgroup in unknown.collect::<Vec<_>>() {
            self.kill_cgroup(cgroup);
            self.cgroups.remove(&cgroup);
        }
        self.cgroups.clone()
    }

    fn take_cgroup(&mut self, limits: &CgroupLimits) -> Result<Option<CgroupId>, SpawnFailure> {
        if let Some(step) = self.missing_controller {
            let errno = libc::EOPNOTSUPP;
            return Err(SpawnFailure { step, errno });
        }
        if !self.has_cgroups {
            return Ok(None);
        }
        let unused = (0..1000)
            .map(CgroupId)
            .find(|id| !self.cgroups.contains(id));
        self.cgroups.extend(unused);
        self.limits.extend(unused.map(|id| (id, *limits)));
        Ok(unused)
    }

    fn kill_cgroup(&mut self, cgroup: CgroupId) {
        let members = self
            .processes
            .iter()
            .filter(|(_, process)| process.cgroup == Some(cgroup));
        let members: Vec<_> = members.map(|(pid, _)| *pid).collect();
        for pid in members {
            self.end(pid, KILLED);
        }
    }

    fn release_cgroup(&mut self, cgroup: CgroupId) -> bool {
        let is_empty = self
            .processes
            .values()
            .all(|process| process.cgroup != Some(cgroup));
        if is_empty {
            self.cgroups.remove(&cgroup);
            self.watched_cgroups.remove(&cgroup);
        } else {
            self.watched_cgroups.insert(cgroup);
        }
        is_empty
    }

    fn oom_kills(&mut self, cgroup: CgroupId) -> u64 {
        self.oom_kills.get(&cgroup).copied().unwrap_or(0)
    }

    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if self.is_full {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.log.extend_from_slice(records);
        Ok(())
    }

    fn rewrite(&mut self, log: &[u8]) -> io::Result<()> {
        self.rewrites += 1;
        self.log = log.to_vec();
        Ok(())
    }

    fn signal(&mut self, pid: Pid, identity: Identity, signal: u32) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else {
            return false;
        };
        let is_right = match identity {
            Identity::Child | Identity::ChildGroup => process.parent == REAPER,
            Identity::ChildOf(parent) => process.parent == parent,
            Identity::StartTime(time) => process.start_time == time,
        };
        match signal {
            _ if !is_right => {}
            19 => process.is_stopped = true,
            15 if self.ignores_sigterm.contains(&pid) => {}
            9 if self.is_uninterruptible.contains(&pid) => {}
            9 | 15 => {
                let signal = u8::try_from(signal).expect("small");
                let core = false;
                self.end(pid, WaitStatus::Signaled { signal, core });
            }
            other => self.signals.push((pid, other)),
        }
        is_right
    }

    fn children(&mut self, parent: Option<Pid>) -> Vec<Pid> {
        self.lists += 1;
        let parent = parent.unwrap_or(REAPER);
        let children = |kernel: &Self| {
            let is_child =
                |(pid, process): (&Pid, &Process)| (process.parent == parent).then_some(*pid);
            kernel.processes.iter().filter_map(is_child).collect()
        };
        let listed = children(self);
        let forks = self
            .processes
            .get_mut(&parent)
            .filter(|process| !process.is_stopped && process.forks > 0);
        if let Some(process) = forks {
            process.forks -= 1;
            let forks = process.forks;
            let child = self.fork(parent);
            self.processes.get_mut(&child).expect("new").forks = forks;
        }
        listed
    }

    fn inspect(&mut self, pid: Pid) -> Option<ProcessInfo> {
        let process = self.processes.get(&pid)?;
        Some(ProcessInfo {
            session: process.session,
            mark: process.mark,
        })
    }

    fn session_members(&mut self, sessions: &BTreeSet<Pid>) -> Vec<(Pid, ProcessId)> {
        let processes = self.processes.iter();
        let members = processes.filter(|(_, process)| sessions.contains(&process.session));
        let member = |(pid, process): (&Pid, &Process)| {
            let (pid, start_time) = (*pid, process.start_time);
            (process.session, ProcessId { pid, start_time })
        };
        members.map(member).collect()
    }

    fn has_inherited(&self, process: ProcessId) -> bool {
        let running = self.processes.get(&process.pid);
        running
            .is_some_and(|found| found.parent == REAPER && found.start_time == process.start_time)
            || self.ended.iter().any(|exit| exit.pid == process.pid)
    }

    fn watch(&mut self, process: ProcessId) -> bool {
        let is_same = self
            .processes
            .get(&process.pid)
            .is_some_and(|found| found.start_time == process.start_time);
        if is_same {
            self.watched.insert(process.pid);
        }
        is_same
    }

    fn write_input(&mut self, task: TaskId, bytes: &[u8]) -> io::Result<usize> {
        let input = self.inputs.entry(task).or_default();
        if input.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let length = bytes.len().min(input.room);
        if length == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        input.room -= length;
        input.got.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn end_input(&mut self, task: TaskId) {
        self.inputs.entry(task).or_default().is_ended = true;
    }

    fn resize(&mut self, _task: TaskId, size: WindowSize) {
        self.window = Some(size);
    }

    fn reserve_output(&mut self, reserve: OutputReserve) {
        self.reserve = reserve;
    }

    fn take_held_output(&mut self) -> Vec<(JobId, u64)> {
        std::mem::take(&mut self.held).into_iter().collect()
    }

    fn close_streams(&mut self, job: JobId) -> ClosedStreams {
        self.inputs.retain(|task, _| task.job != job);
        self.held.remove(&job);
        ClosedStreams {
            is_complete: true,
            dropped_bytes: self.unwritten.remove(&job).unwrap_or(0),
        }
    }

    fn now_ns(&self) -> u64 {
        1_000
    }
}
