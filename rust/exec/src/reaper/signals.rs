//! Signals to the processes of tasks and jobs, and the kill of all of them.

use super::freeze::{Freeze, Root, Walk};
use super::job::TaskState;
use super::state::Reaper;
use crate::kernel::{Identity, Kernel};
use crate::protocol::SignalTarget;
use crate::types::TaskId;

impl Reaper {
    pub(super) fn signal<K: Kernel>(
        &mut self,
        target: SignalTarget,
        signal: u32,
        kernel: &mut K,
    ) -> i32 {
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

    pub(super) fn kill<K: Kernel>(&mut self, targets: &[SignalTarget], kernel: &mut K) -> i32 {
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
        // Then the processes outside of the cgroup: none, unless there is no cgroup or a process of root has left it.
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

    /// The processes of the targets that are not descendants of other processes of them.
    fn roots(&self, targets: &[SignalTarget]) -> Vec<Root> {
        let roots = targets.iter().flat_map(|target| {
            let (SignalTarget::Job(id) | SignalTarget::Task(TaskId { job: id, .. })) = *target;
            let job = self.jobs.get(&id);
            job.map_or_else(Vec::new, |job| job.roots(id, *target))
        });
        roots.collect()
    }
}
