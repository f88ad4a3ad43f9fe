use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::epoll;
use rustix::process::{Pid as RawPid, PidfdFlags, pidfd_open};

use super::cgroup::{CgroupPlace, LinuxCgroups};
use super::directory::Directory;
use super::event_source::EventSource;
use super::guests::Guests;
use super::pmi::PmiEnd;
use super::spawn::Descriptors;
use super::streams::{Streams, TaskEnds, TaskStreams};
use super::syscalls::ChildStack;
use super::{procfs, spawn, syscalls};
use crate::OutputReserve;
use crate::kernel::{ClosedStreams, Identity, Kernel, ProcessInfo};
use crate::protocol::{TaskSpec, WindowSize};
use crate::types::{CgroupId, CgroupLimits, JobId, Pid, ProcessId, SpawnFailure, Step, TaskId};

/// The names of the processes that start a task, until they execute its program.
const OWN_PROGRAMS: [&[u8]; 2] = [b"penstock-reaper", b"penstock-imp"];

/// The Linux kernel as one reaper uses it.
#[derive(Debug)]
pub(super) struct LinuxKernel {
    directory: Directory,
    log: File,
    log_len: u64,
    /// Whether a failed write may have left a part of a record behind `log_len`.
    is_torn: bool,
    null: File,
    stack: ChildStack,
    /// The kernel's list of the reaper's children, if it has such lists.
    own_children: Option<File>,
    epoll: Rc<OwnedFd>,
    /// The descriptors of watched processes.
    watched: BTreeMap<Pid, OwnedFd>,
    cgroups: LinuxCgroups,
    streams: Streams,
    guests: Guests,
}

impl LinuxKernel {
    pub(super) fn new(
        directory: Directory,
        place: &CgroupPlace,
        imp: CString,
        epoll: Rc<OwnedFd>,
    ) -> io::Result<Self> {
        Ok(Self {
            guests: Guests::new(imp, Rc::clone(&epoll)),
            cgroups: LinuxCgroups::new(place, &directory, Rc::clone(&epoll))?,
            log: directory.open_log()?,
            log_len: 0,
            is_torn: false,
            directory,
            null: File::options().read(true).write(true).open("/dev/null")?,
            stack: ChildStack::new(),
            own_children: procfs::open_own_children(),
            streams: Streams::new(Rc::clone(&epoll)),
            epoll,
            watched: BTreeMap::new(),
        })
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(super) fn null(&self) -> &File {
        &self.null
    }

    /// Continues the set-up of a guest's task. Returns its result if it has ended.
    pub(super) fn advance_setup(&mut self, pid: Pid) -> Option<Result<(), SpawnFailure>> {
        self.guests.advance(pid)
    }

    /// Ends the set-up of a guest's task whose process has ended. Returns its result if it was not known.
    pub(super) fn finish_setup(&mut self, pid: Pid) -> Option<Result<(), SpawnFailure>> {
        self.guests.finish(pid)
    }

    /// Notes the end of a process that has copied output. Returns the job.
    pub(super) fn finish_copy(&mut self, pid: Pid) -> Option<JobId> {
        let task = self.guests.finish_copy(pid)?;
        self.streams.hang_up(task);
        Some(task.job)
    }

    /// Removes the cgroups that no job is in.
    pub(super) fn close_cgroups(&mut self) {
        self.cgroups.close();
    }

    /// Ends watching a process that has ended.
    pub(super) fn unwatch(&mut self, pid: Pid) {
        self.watched.remove(&pid);
    }

    /// Handles an event of a stream. Returns the task whose input has room.
    pub(super) fn handle_stream(&mut self, token: u64) -> Option<TaskId> {
        self.streams.handle(token)
    }

    /// The time until [`resume_streams`](Self::resume_streams) has something to do.
    pub(super) fn resume_delay(&self) -> Option<Duration> {
        self.streams.resume_delay()
    }

    /// Reads streams of guests again whose output had no room.
    pub(super) fn resume_streams(&mut self) {
        self.streams.resume();
    }

    /// Removes the partial record of a failed write: records after it could not be read.
    fn cut_off_log(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.log.set_len(self.log_len)?;
            self.is_torn = false;
        }
        Ok(())
    }
}

impl Kernel for LinuxKernel {
    fn spawn(
        &mut self,
        task: &TaskSpec,
        mark: Option<u64>,
        cgroup: Option<CgroupId>,
    ) -> Result<ProcessId, SpawnFailure> {
        self.cut_off_log().map_err(|error| SpawnFailure {
            step: Step::Record,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })?;
        let pmi = PmiEnd::open(&task.pmi)?;
        let (ends, mut streams) = self.streams.open(task)?;
        let (log, null) = (self.log.as_fd(), self.null.as_fd());
        let folder = cgroup.map(|cgroup| self.cgroups.open(cgroup)).transpose()?;
        let cgroup = cgroup.zip(folder.as_ref().map(|folder| folder.as_fd()));
        let parts = Descriptors {
            log: Some(log),
            null,
            cgroup,
            ends: &ends,
            socket: None,
            pmi: &pmi,
        };
        let stack = &mut self.stack;
        let result = match task.guest {
            None => spawn::spawn(task, mark, &parts, stack),
            Some(guest) => {
                let mut copies = BTreeSet::new();
                let sources = streams.as_mut().map(TaskStreams::take_guest_copies);
                for (source, copy) in sources.into_iter().flatten() {
                    let ends = TaskEnds::of_copy(source, &ends);
                    let pid = self
                        .guests
                        .spawn_copy(task, guest, &copy, |first, socket| {
                            let parts = Descriptors {
                                log: None,
                                null,
                                cgroup: None,
                                ends: &ends,
                                socket: Some(socket),
                                pmi: &PmiEnd::None,
                            };
                            spawn::spawn(first, None, &parts, stack)
                        })?;
                    copies.insert(pid);
                }
                self.guests.spawn(task, guest, copies, |first, socket| {
                    let socket = Some(socket);
                    spawn::spawn(first, mark, &Descriptors { socket, ..parts }, stack)
                })
            }
        };
        match result.map_err(|failure| failure.step) {
            Ok(_) | Err(Step::Limit | Step::Exec) => {
                self.log_len += crate::log::STARTED_RECORD_BYTES as u64;
            }
            // A killed child may have left a partial record, too.
            Err(_) => self.is_torn = true,
        }
        if let (Ok(_), Some(streams)) = (&result, streams) {
            self.streams.insert(task.task, streams);
        }
        result
    }

    fn restore_cgroups(&mut self, known: &BTreeSet<CgroupId>) -> BTreeSet<CgroupId> {
        self.cgroups.restore(known)
    }

    fn take_cgroup(&mut self, limits: &CgroupLimits) -> Result<Option<CgroupId>, SpawnFailure> {
        self.cgroups.take(limits)
    }

    fn kill_cgroup(&mut self, cgroup: CgroupId) {
        self.cgroups.kill(cgroup);
    }

    fn release_cgroup(&mut self, cgroup: CgroupId) -> bool {
        self.cgroups.release(cgroup)
    }

    fn oom_kills(&mut self, cgroup: CgroupId) -> u64 {
        self.cgroups.oom_kills(cgroup)
    }

    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        self.cut_off_log()?;
        self.is_torn = true;
        self.log.write_all(records)?;
        self.is_torn = false;
        self.log_len += records.len() as u64;
        Ok(())
    }

    fn rewrite(&mut self, log: &[u8]) -> io::Result<()> {
        self.log = self.directory.replace_log(log)?;
        self.log_len = log.len() as u64;
        self.is_torn = false;
        Ok(())
    }

    fn signal(&mut self, pid: Pid, identity: Identity, signal: u32) -> bool {
        let (Ok(raw), Ok(signal)) = (i32::try_from(pid.0), i32::try_from(signal)) else {
            return false;
        };
        match identity {
            Identity::Child => syscalls::kill(raw, signal),
            Identity::ChildGroup => syscalls::kill(-raw, signal),
            Identity::ChildOf(_) | Identity::StartTime(_) => {
                // The descriptor is opened first: if `stat` then describes the right process, the descriptor refers
                // to the same one, or to one that has ended and receives no signal.
                let Some(fd) = open_process(pid) else {
                    return false;
                };
                let is_right = procfs::stat(pid).is_some_and(|stat| match identity {
                    Identity::ChildOf(parent) => stat.parent == parent,
                    Identity::StartTime(time) => stat.start_time == time && !stat.is_zombie,
                    Identity::Child | Identity::ChildGroup => false,
                });
                is_right && syscalls::pidfd_kill(fd.as_fd(), signal)
            }
        }
    }

    fn children(&mut self, parent: Option<Pid>) -> Vec<Pid> {
        let mut children = match (parent, &self.own_children) {
            (None, Some(own)) => procfs::read_children(own),
            (Some(parent), Some(_)) => procfs::listed_children(parent),
            (None, None) => procfs::searched_children(Pid(std::process::id())),
            (Some(parent), None) => procfs::searched_children(parent),
        };
        children.retain(|child| !self.guests.is_copy(*child));
        children
    }

    fn inspect(&mut self, pid: Pid) -> Option<ProcessInfo> {
        procfs::inspect(pid)
    }

    fn session_members(&mut self, sessions: &BTreeSet<Pid>) -> Vec<(Pid, ProcessId)> {
        procfs::session_members(sessions)
    }

    fn has_inherited(&self, process: ProcessId) -> bool {
        let Some((name, stat)) = procfs::named_stat(process.pid) else {
            return false;
        };
        // Of a process that has not executed its task's program yet, only the earlier reaper could tell whether that
        // failed.
        let is_task = !OWN_PROGRAMS.contains(&name.as_slice());
        is_task && stat.parent == Pid(std::process::id()) && stat.start_time == process.start_time
    }

    fn watch(&mut self, process: ProcessId) -> bool {
        let Some(fd) = open_process(process.pid) else {
            return false;
        };
        let is_same = procfs::stat(process.pid)
            .is_some_and(|stat| !stat.is_zombie && stat.start_time == process.start_time);
        let data = EventSource::Process(process.pid).data();
        let is_watched =
            is_same && epoll::add(&*self.epoll, &fd, data, epoll::EventFlags::IN).is_ok();
        if is_watched {
            self.watched.insert(process.pid, fd);
        }
        is_watched
    }

    fn write_input(&mut self, task: TaskId, bytes: &[u8]) -> io::Result<usize> {
        self.streams.write_input(task, bytes)
    }

    fn end_input(&mut self, task: TaskId) {
        self.streams.end_input(task);
    }

    fn resize(&mut self, task: TaskId, size: WindowSize) {
        self.streams.resize(task, size);
    }

    fn reserve_output(&mut self, reserve: OutputReserve) {
        self.streams.reserve(reserve);
    }

    fn take_held_output(&mut self) -> Vec<(JobId, u64)> {
        self.streams.take_held()
    }

    fn close_streams(&mut self, job: JobId) -> ClosedStreams {
        ClosedStreams {
            dropped_bytes: self.streams.close(job),
            is_complete: self.guests.close(job),
        }
    }

    fn now_ns(&self) -> u64 {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
        elapsed.map_or(0, |elapsed| {
            u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
        })
    }
}

fn open_process(pid: Pid) -> Option<OwnedFd> {
    let pid = RawPid::from_raw(i32::try_from(pid.0).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}
