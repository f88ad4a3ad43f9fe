//! The cgroups of a reaper's jobs: where they are, who is in them, and what limits them.
//!
//! A reaper has one directory in the cgroup v2 hierarchy, its base, with a numbered cgroup for each job. A job without
//! limits gets an empty one of an earlier job if there is one, because making and removing a cgroup costs as much as a
//! tenth of a start. A job with limits gets its own, which is removed after the job.
//!
//! Controllers are enabled when the first job needs them: they slow down all processes below.
//!
//! [`Cgroups`] performs no system call: [`CgroupFs`] is the hierarchy, which tests replace by a tree in memory.

use std::collections::BTreeSet;
use std::io;

use crate::types::{CgroupId, CgroupLimits, SpawnFailure, Step};

/// The cgroup that the service's processes move to, so that controllers can be enabled above them.
pub const SERVICE_CGROUP: &str = "penstock-service";

/// Empty cgroups that are kept for later jobs.
const MAX_FREE_CGROUPS: usize = 64;
/// The period of `cpu.max`, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// `cgroup.events` of a cgroup that a later job can use.
const UNUSED_CGROUP_EVENTS: &str = "populated 0\nfrozen 0\n";

/// The cgroup v2 hierarchy. A path is that of a cgroup or of one of its files, from the hierarchy's root: `/a/b`.
pub trait CgroupFs {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Fails if there is no such file.
    fn read(&mut self, path: &str) -> io::Result<String>;

    /// Writes to a file that exists, in one piece.
    ///
    /// # Errors
    ///
    /// Fails with the kernel's answer.
    fn write(&mut self, path: &str, text: &str) -> io::Result<()>;

    /// Makes a cgroup.
    ///
    /// # Errors
    ///
    /// Fails if it exists, or may not be made.
    fn make(&mut self, path: &str) -> io::Result<()>;

    /// Removes a cgroup.
    ///
    /// # Errors
    ///
    /// Fails with EBUSY if it has a process or a cgroup below it.
    fn remove(&mut self, path: &str) -> io::Result<()>;

    /// The names of the cgroups directly below one; none if there is no such cgroup.
    fn children(&mut self, path: &str) -> Vec<String>;

    /// Whether a file exists and may be written.
    fn is_writable(&self, path: &str) -> bool;

    /// Whether systemd has delegated a cgroup: only its owner moves processes there.
    fn is_delegated(&self, path: &str) -> bool;
}

/// The settings by which a reaper creates its base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseSettings {
    /// The cgroup of the reaper's process.
    pub own: String,
    /// The cgroup below which the administrator wants the base; by default that of the reaper.
    pub parent: Option<String>,
    /// The name of the base: no other reaper has it.
    pub name: String,
    /// The base of an earlier reaper of the same directory.
    pub earlier: Option<String>,
}

/// A controller of the hierarchy, and the step that fails if it is not available.
#[derive(Debug, Clone, Copy)]
struct Controller {
    name: &'static str,
    step: Step,
}

const MEMORY: Controller = Controller {
    name: "memory",
    step: Step::MemoryLimit,
};
const PIDS: Controller = Controller {
    name: "pids",
    step: Step::PidsLimit,
};
const CPU: Controller = Controller {
    name: "cpu",
    step: Step::CpuLimit,
};

/// The cgroups of one reaper.
#[derive(Debug)]
pub struct Cgroups<F> {
    fs: F,
    base: String,
    /// Empty cgroups without limits.
    free: Vec<CgroupId>,
    /// Cgroups that no later job gets: they have limits or were killed.
    single_use: BTreeSet<CgroupId>,
    /// Cgroups of no job, whose processes have been killed and may not have ended.
    doomed: BTreeSet<CgroupId>,
    next: u32,
}

impl<F: CgroupFs> Cgroups<F> {
    /// Makes the base, or opens that of an earlier reaper.
    ///
    /// # Errors
    ///
    /// Fails if no cgroup may be made, no process may be moved into it, or the kernel is older than 5.14.
    pub fn open(mut fs: F, place: &BaseSettings) -> io::Result<Self> {
        let earlier = place.earlier.as_deref();
        let earlier = earlier.filter(|base| fs.is_writable(&file(base, "cgroup.kill")));
        let base = match earlier {
            Some(base) => base.to_owned(),
            None => make_base(&mut fs, place)?,
        };
        Ok(Self {
            fs,
            base,
            free: Vec::new(),
            single_use: BTreeSet::new(),
            doomed: BTreeSet::new(),
            next: 0,
        })
    }

    /// Finds the cgroups of an earlier reaper. Returns those of `known` that exist; in others, every process is killed,
    /// and they are removed.
    pub fn restore(&mut self, known: &BTreeSet<CgroupId>) -> BTreeSet<CgroupId> {
        let mut existing = BTreeSet::new();
        for name in self.fs.children(&self.base) {
            let Some(id) = name.parse().ok().map(CgroupId) else {
                continue;
            };
            self.next = self.next.max(id.0.saturating_add(1));
            if known.contains(&id) {
                existing.insert(id);
                // Whether it has limits is not known: it is removed after its job.
                self.single_use.insert(id);
            } else {
                self.kill(id);
                self.doomed.insert(id);
            }
        }
        self.remove_doomed();
        existing
    }

    /// The path of the base.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The hierarchy.
    pub fn fs(&self) -> &F {
        &self.fs
    }

    /// Takes an empty cgroup for a job.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be made, or if a limit cannot be enforced.
    pub fn take(&mut self, limits: &CgroupLimits) -> Result<CgroupId, SpawnFailure> {
        if limits.is_empty()
            && let Some(id) = self.free.pop()
        {
            return Ok(id);
        }
        self.remove_doomed();
        for controller in required(limits) {
            self.enable(controller)?;
        }
        let id = CgroupId(self.next);
        let path = self.path(id);
        self.fs.make(&path).map_err(failed(Step::Cgroup))?;
        self.next += 1;
        if !limits.is_empty() {
            if let Err(failure) = self.limit(&path, limits) {
                let _ = self.fs.remove(&path);
                return Err(failure);
            }
            self.single_use.insert(id);
        }
        Ok(id)
    }

    /// The cgroup that the next job without limits gets, if there is one: it was released last.
    pub fn next_free(&self) -> Option<CgroupId> {
        self.free.last().copied()
    }

    fn limit(&mut self, path: &str, limits: &CgroupLimits) -> Result<(), SpawnFailure> {
        let mut write = |name: &str, value: String, step: Step| {
            let result = self.fs.write(&file(path, name), &value);
            result.map_err(failed(step))
        };
        if let Some(bytes) = limits.memory {
            write("memory.max", bytes.to_string(), MEMORY.step)?;
        }
        if let Some(pids) = limits.pids {
            write("pids.max", pids.to_string(), PIDS.step)?;
        }
        if let Some(millis) = limits.cpu_millis {
            let quota = u64::from(millis) * CPU_PERIOD_US / 1000;
            write("cpu.max", format!("{quota} {CPU_PERIOD_US}"), CPU.step)?;
        }
        Ok(())
    }

    /// Enables a controller for the jobs' cgroups.
    fn enable(&mut self, controller: Controller) -> Result<(), SpawnFailure> {
        let unavailable = SpawnFailure {
            step: controller.step,
            errno: libc::EOPNOTSUPP,
        };
        let parent = parent(&self.base).to_owned();
        if !self.lists(&parent, "cgroup.controllers", controller) {
            return Err(unavailable);
        }
        for cgroup in [parent, self.base.clone()] {
            if self.lists(&cgroup, "cgroup.subtree_control", controller) {
                continue;
            }
            let control = file(&cgroup, "cgroup.subtree_control");
            let change = format!("+{}", controller.name);
            let mut result = self.fs.write(&control, &change);
            // Only a cgroup without processes can control others, and only the owner of a cgroup moves them.
            let is_busy = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY);
            if result.as_ref().is_err_and(is_busy) && self.fs.is_delegated(&cgroup) {
                self.vacate(&cgroup);
                result = self.fs.write(&control, &change);
            }
            result.map_err(|_| unavailable)?;
        }
        Ok(())
    }

    fn lists(&mut self, cgroup: &str, name: &str, controller: Controller) -> bool {
        let listed = self.fs.read(&file(cgroup, name)).unwrap_or_default();
        listed
            .split_ascii_whitespace()
            .any(|word| word == controller.name)
    }

    /// Moves the processes of a cgroup to the leaf below it.
    fn vacate(&mut self, cgroup: &str) {
        let leaf = file(cgroup, SERVICE_CGROUP);
        // It may exist. If it cannot be made, the next step fails.
        let _ = self.fs.make(&leaf);
        let processes = self.fs.read(&file(cgroup, "cgroup.procs"));
        for pid in processes.unwrap_or_default().split_ascii_whitespace() {
            // It may have ended.
            let _ = self.fs.write(&file(&leaf, "cgroup.procs"), pid);
        }
    }

    /// Kills all processes of a job's cgroup, including those that they start meanwhile.
    pub fn kill(&mut self, id: CgroupId) {
        let path = file(&self.path(id), "cgroup.kill");
        // It fails only if the cgroup is gone, and its processes with it.
        let _ = self.fs.write(&path, "1");
        // Linux 6.18 kills every process that is cloned into a cgroup that has been killed before.
        self.single_use.insert(id);
    }

    /// Gives a job's cgroup back if it has no process. Returns whether that is so.
    pub fn release(&mut self, id: CgroupId) -> bool {
        let path = self.path(id);
        let is_reusable = !self.single_use.contains(&id) && self.free.len() < MAX_FREE_CGROUPS;
        if is_reusable {
            match self.fs.read(&file(&path, "cgroup.events")) {
                Ok(events) if events == UNUSED_CGROUP_EVENTS => {
                    self.free.push(id);
                    return true;
                }
                Ok(events) if events.starts_with("populated 1") => return false,
                // Its processes may have frozen it.
                _ => {}
            }
        }
        let is_removed = self.remove_tree(&path);
        if is_removed {
            self.single_use.remove(&id);
        }
        is_removed
    }

    /// Removes a cgroup and those that its processes have made below it, unless one has a process.
    fn remove_tree(&mut self, path: &str) -> bool {
        match self.fs.remove(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return error.kind() == io::ErrorKind::NotFound,
            Ok(()) => return true,
        }
        let children = self.fs.children(path);
        let is_removed = |name: &String| self.remove_tree(&file(path, name));
        !children.is_empty() && children.iter().all(is_removed) && self.fs.remove(path).is_ok()
    }

    fn remove_doomed(&mut self) {
        for id in std::mem::take(&mut self.doomed) {
            if self.remove_tree(&self.path(id)) {
                self.single_use.remove(&id);
            } else {
                self.doomed.insert(id);
            }
        }
    }

    /// The number of processes of a job's cgroup that the kernel has killed because of its memory limit.
    pub fn oom_kills(&mut self, id: CgroupId) -> u64 {
        if !self.single_use.contains(&id) {
            return 0;
        }
        let path = file(&self.path(id), "memory.events");
        let events = self.fs.read(&path).unwrap_or_default();
        let mut counts = events
            .lines()
            .filter_map(|line| line.strip_prefix("oom_kill "));
        counts
            .next()
            .and_then(|count| count.parse().ok())
            .unwrap_or(0)
    }

    /// Removes the base and the empty cgroups in it: the reaper ends.
    pub fn close(&mut self) {
        for id in std::mem::take(&mut self.free) {
            self.remove_tree(&self.path(id));
        }
        self.remove_doomed();
        let _ = self.fs.remove(&self.base);
    }

    /// The path of a job's cgroup.
    pub fn path(&self, id: CgroupId) -> String {
        file(&self.base, &id.0.to_string())
    }
}

fn make_base<F: CgroupFs>(fs: &mut F, place: &BaseSettings) -> io::Result<String> {
    // An earlier reaper may have moved the processes to the leaf.
    let own = place.own.strip_suffix(SERVICE_CGROUP);
    let own = own.map_or(place.own.as_str(), |above| above.trim_end_matches('/'));
    let parent = place.parent.as_deref().unwrap_or(own);
    // A process may be moved if the cgroup above both places may be written.
    if !fs.is_writable(&file(common_ancestor(parent, own), "cgroup.procs")) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let base = file(parent, &place.name);
    fs.make(&base)?;
    if fs.is_writable(&file(&base, "cgroup.kill")) {
        return Ok(base);
    }
    let _ = fs.remove(&base);
    Err(io::ErrorKind::Unsupported.into())
}

fn required(limits: &CgroupLimits) -> impl Iterator<Item = Controller> {
    let memory = limits.memory.map(|_| MEMORY);
    let pids = limits.pids.map(|_| PIDS);
    let cpu = limits.cpu_millis.map(|_| CPU);
    [memory, pids, cpu].into_iter().flatten()
}

/// A file or cgroup below a cgroup.
fn file(cgroup: &str, name: &str) -> String {
    format!("{}/{name}", cgroup.trim_end_matches('/'))
}

fn parent(cgroup: &str) -> &str {
    cgroup.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The lowest cgroup that contains both.
fn common_ancestor<'a>(one: &'a str, other: &str) -> &'a str {
    let mut ancestor = one.trim_end_matches('/');
    while !ancestor.is_empty() {
        let below = other.strip_prefix(ancestor);
        if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            break;
        }
        ancestor = parent(ancestor);
    }
    ancestor
}

fn failed(step: Step) -> impl Fn(io::Error) -> SpawnFailure {
    move |error| SpawnFailure {
        step,
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    }
}
