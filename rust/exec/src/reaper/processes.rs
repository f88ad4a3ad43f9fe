//! The processes below a reaper: descendants that it adopts, remnants of sessions, strays.

use std::mem;

use super::job::Job;
use super::state::{Child, Reaper};
use crate::kernel::{Identity, Kernel, ProcessInfo};
use crate::types::{Pid, ProcessId, TaskId};

const SIGKILL: u32 = libc::SIGKILL as u32;

impl Reaper {
    /// Adopts the children that the reaper did not start. Returns whether it found any.
    ///
    /// The kernel lists all children, at about half a microsecond for each.
    pub(super) fn discover<K: Kernel>(&mut self, kernel: &mut K) -> bool {
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
    pub(super) fn search_sessions<K: Kernel>(&mut self, kernel: &mut K) {
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

    pub(super) fn kill_strays<K: Kernel>(&mut self, kernel: &mut K) {
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

    pub(super) fn has_process(&self) -> bool {
        let has_process = |job: &Job| job.processes > 0 || job.queued > 0 || job.cgroup.is_some();
        self.jobs.values().any(has_process)
    }
}
