//! Walks over the processes of jobs and tasks: signals, and the kill that no fork escapes.

use std::collections::BTreeSet;

use crate::kernel::{Identity, Kernel};
use crate::types::{Pid, TaskId};

/// Passes over the processes that must find no new one before they count as frozen.
const REQUIRED_QUIET_PASSES: usize = 2;
/// Passes after which the processes are killed although they still fork: those left over are killed when the reaper
/// adopts them.
const MAX_FREEZE_PASSES: usize = 1000;
const SIGKILL: u32 = libc::SIGKILL as u32;
const SIGSTOP: u32 = libc::SIGSTOP as u32;

/// A process at which a walk begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root {
    pub(super) pid: Pid,
    pub(super) identity: Identity,
    /// The task that it descends from.
    pub(super) task: TaskId,
}

/// The processes that have been signalled, each once.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pids: BTreeSet<Pid>,
    parents_first: Vec<Root>,
}

impl Walk {
    /// Walks over the roots and their descendants, parents first, and signals the processes that have not been
    /// signalled yet. Returns whether it found any.
    pub(super) fn signal_new<K: Kernel>(
        &mut self,
        roots: Vec<Root>,
        signal: u32,
        kernel: &mut K,
    ) -> bool {
        let mut is_new = false;
        let mut unvisited = roots;
        while let Some(process) = unvisited.pop() {
            let Root {
                pid,
                identity,
                task,
            } = process;
            if !self.pids.contains(&pid) {
                if !kernel.signal(pid, identity, signal) {
                    continue;
                }
                is_new = true;
                self.pids.insert(pid);
                self.parents_first.push(process);
            }
            let children = kernel.children(Some(pid)).into_iter();
            unvisited.extend(children.map(|child| Root {
                pid: child,
                identity: Identity::ChildOf(pid),
                task,
            }));
        }
        is_new
    }
}

/// A kill of all processes below some roots, which may fork meanwhile.
///
/// A stopped process cannot fork: when passes find no running process, all are stopped, except those whose parent has
/// ended meanwhile, which the reaper adopts. Then all are killed.
#[derive(Debug, Default)]
pub(super) struct Freeze {
    walk: Walk,
    passes: usize,
    quiet_passes: usize,
}

impl Freeze {
    /// Whether all processes are stopped, or as many passes have been made as are allowed.
    pub(super) fn is_complete(&self) -> bool {
        self.quiet_passes == REQUIRED_QUIET_PASSES || self.passes == MAX_FREEZE_PASSES
    }

    /// Stops the processes that run. `adopt` finds the processes whose parents have ended: a pass cannot be the last
    /// one if it returns that there are new ones.
    pub(super) fn pass<K: Kernel>(
        &mut self,
        roots: Vec<Root>,
        kernel: &mut K,
        adopt: impl FnOnce(&mut K) -> bool,
    ) {
        let is_new = self.walk.signal_new(roots, SIGSTOP, kernel)
            || (self.quiet_passes + 1 == REQUIRED_QUIET_PASSES && adopt(kernel));
        self.quiet_passes = if is_new { 0 } else { self.quiet_passes + 1 };
        self.passes += 1;
    }

    /// Kills the processes, and returns them with their tasks.
    pub(super) fn kill<K: Kernel>(self, kernel: &mut K) -> Vec<(Pid, TaskId)> {
        // Children first: a child whose parent has ended is no longer recognized by its parent.
        let children_first = self.walk.parents_first.into_iter().rev();
        let killed = children_first.map(|process| {
            kernel.signal(process.pid, process.identity, SIGKILL);
            (process.pid, process.task)
        });
        killed.collect()
    }
}
