//! The cgroups of a reaper in the mounted cgroup v2 hierarchy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::event::epoll;
use rustix::fs::{Access, Mode, OFlags, access, getxattr, open};

use super::directory::{Directory, write_private};
use super::event_source::EventSource;
use super::{procfs, syscalls};
use crate::Error;
use crate::cgroup::{BaseSettings, CgroupFs, Cgroups};
use crate::types::{CgroupId, CgroupLimits, SpawnFailure, Step};

/// The file of the reaper's directory that names its base.
const BASE_FILE: &str = "cgroup";
/// Directories of cgroups that are kept open for later jobs, and files with their events.
const MAX_OPEN_FOLDERS: usize = 16;
const EVENTS_FILE: &str = "/cgroup.events";

/// The cgroup below which a reaper creates the cgroups of jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CgroupPlace {
    /// Below its own, if it may.
    #[default]
    Auto,
    /// Nowhere.
    None,
    /// Below this directory.
    Below(PathBuf),
}

impl From<&str> for CgroupPlace {
    fn from(text: &str) -> Self {
        match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            path => Self::Below(PathBuf::from(path)),
        }
    }
}

impl CgroupPlace {
    /// Whether it can be a place: a path must be absolute.
    pub fn is_valid(&self) -> bool {
        match self {
            Self::Auto | Self::None => true,
            Self::Below(path) => path.is_absolute(),
        }
    }
}

/// The hierarchy where it is mounted.
#[derive(Debug)]
struct Hierarchy {
    mount: PathBuf,
    /// The cgroup that is mounted there: in a container, it may not be the root.
    root: String,
    /// The events of some cgroups, by the path of the file: most jobs get the cgroup of an earlier one.
    events: BTreeMap<String, File>,
}

impl Hierarchy {
    /// Finds a mounted cgroup v2 hierarchy.
    fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        mounts.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(3);
            let root = fields.next()?;
            let point = fields.next()?;
            kind.starts_with("cgroup2 ").then(|| Self {
                mount: PathBuf::from(unescape(point)),
                root: unescape(root),
                events: BTreeMap::new(),
            })
        })
    }

    /// The cgroup of this process.
    fn own(&self) -> Option<String> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
        let path = path.strip_prefix(self.root.trim_end_matches('/'))?;
        // A cgroup that was removed or is outside this cgroup namespace has no usable path.
        (!path.ends_with(" (deleted)") && !path.starts_with("/..")).then(|| path.to_owned())
    }

    /// The cgroup of a directory.
    fn cgroup_of(&self, directory: &Path) -> Option<String> {
        let path = directory.strip_prefix(&self.mount).ok()?.to_str()?;
        Some(format!("/{path}"))
    }

    fn path(&self, cgroup: &str) -> PathBuf {
        self.mount.join(cgroup.trim_start_matches('/'))
    }
}

/// Reads a file of a cgroup from its beginning: its content may have changed since it was opened.
fn read_all(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = file.read_at(&mut buffer, bytes.len() as u64)?;
        bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
        if length == 0 {
            return String::from_utf8(bytes).map_err(io::Error::other);
        }
    }
}

/// Replaces the octal escapes of `/proc/self/mountinfo`.
fn unescape(field: &str) -> String {
    [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n")]
        .into_iter()
        .fold(field.to_owned(), |text, (escape, character)| {
            text.replace(escape, character)
        })
        .replace(r"\134", r"\")
}

impl CgroupFs for Hierarchy {
    fn read(&mut self, path: &str) -> io::Result<String> {
        if let Some(events) = self.events.get(path) {
            match read_all(events) {
                Ok(text) => return Ok(text),
                // The cgroup was removed. There may be another one of the same name.
                Err(_) => self.events.remove(path),
            };
        }
        let file = File::open(self.path(path))?;
        let text = read_all(&file)?;
        if path.ends_with(EVENTS_FILE) && self.events.len() < MAX_OPEN_FOLDERS {
            self.events.insert(path.to_owned(), file);
        }
        Ok(text)
    }

    fn write(&mut self, path: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.path(path))?;
        file.write_all(text.as_bytes())
    }

    fn make(&mut self, path: &str) -> io::Result<()> {
        // No task of another user may write to it.
        fs::DirBuilder::new().mode(0o755).create(self.path(path))
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.path(path))?;
        self.events.remove(&format!("{path}{EVENTS_FILE}"));
        Ok(())
    }

    fn children(&mut self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let is_cgroup = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let cgroups = entries.flatten().filter(is_cgroup);
        cgroups
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    fn is_writable(&self, path: &str) -> bool {
        access(self.path(path), Access::WRITE_OK).is_ok()
    }

    fn is_delegated(&self, path: &str) -> bool {
        let mut value = [0; 1];
        let mut is_set = |name| {
            getxattr(self.path(path), name, &mut value).is_ok_and(|length| length == 1)
                && value == *b"1"
        };
        is_set("user.delegate") || is_set("trusted.delegate")
    }
}

/// The cgroups of a reaper, or none.
#[derive(Debug)]
pub(super) struct LinuxCgroups {
    cgroups: Option<Cgroups<Hierarchy>>,
    epoll: Rc<OwnedFd>,
    /// `cgroup.events` of the cgroups whose emptiness is awaited.
    watched: BTreeMap<CgroupId, File>,
    /// The directories of some cgroups: most jobs get the cgroup of an earlier one.
    folders: BTreeMap<CgroupId, Rc<OwnedFd>>,
}

impl LinuxCgroups {
    /// Makes the base, or opens that of an earlier reaper of the directory.
    ///
    /// # Errors
    ///
    /// Fails if a place is named and no cgroup can be made there.
    pub(super) fn new(
        place: &CgroupPlace,
        directory: &Directory,
        epoll: Rc<OwnedFd>,
    ) -> io::Result<Self> {
        let cgroups = match (open_base(place, directory), place) {
            (Ok(cgroups), _) => Some(cgroups),
            (Err(error), CgroupPlace::Below(path)) => {
                let text = format!("cannot make cgroups below `{}`: {error}", path.display());
                return Err(io::Error::new(error.kind(), text));
            }
            (Err(_), CgroupPlace::Auto | CgroupPlace::None) => None,
        };
        Ok(Self {
            cgroups,
            epoll,
            watched: BTreeMap::new(),
            folders: BTreeMap::new(),
        })
    }

    pub(super) fn restore(&mut self, known: &BTreeSet<CgroupId>) -> BTreeSet<CgroupId> {
        let cgroups = self.cgroups.as_mut();
        cgroups.map_or_else(BTreeSet::new, |cgroups| cgroups.restore(known))
    }

    pub(super) fn take(&mut self, limits: &CgroupLimits) -> Result<Option<CgroupId>, SpawnFailure> {
        match &mut self.cgroups {
            Some(cgroups) => match cgroups.take(limits) {
                Ok(cgroup) => Ok(Some(cgroup)),
                // Without limits, it is the reaper that finds all processes of the job.
                Err(_) if limits.is_empty() => Ok(None),
                Err(failure) => Err(failure),
            },
            None if limits.is_empty() => Ok(None),
            None => Err(SpawnFailure {
                step: Step::Cgroup,
                errno: libc::EOPNOTSUPP,
            }),
        }
    }

    /// Opens the directory of a cgroup.
    pub(super) fn open(&mut self, cgroup: CgroupId) -> Result<Rc<OwnedFd>, SpawnFailure> {
        if let Some(folder) = self.folders.get(&cgroup) {
            return Ok(Rc::clone(folder));
        }
        let path = self
            .cgroups
            .as_ref()
            .map(|cgroups| cgroups.fs().path(&cgroups.path(cgroup)));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(path.unwrap_or_default(), flags, Mode::empty());
        let folder = Rc::new(folder.map_err(|errno| SpawnFailure {
            step: Step::Cgroup,
            errno: errno.raw_os_error(),
        })?);
        if self.folders.len() < MAX_OPEN_FOLDERS {
            self.folders.insert(cgroup, Rc::clone(&folder));
        }
        Ok(folder)
    }

    /// Kills what is in a cgroup. No later job gets it.
    pub(super) fn kill(&mut self, cgroup: CgroupId) {
        self.folders.remove(&cgroup);
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.kill(cgroup);
        }
    }

    /// Gives a cgroup back. If it has a process, it is watched.
    pub(super) fn release(&mut self, cgroup: CgroupId) -> bool {
        let is_released = self.release_or_watch(cgroup);
        let next = self.cgroups.as_ref().and_then(Cgroups::next_free);
        if is_released && next != Some(cgroup) {
            // It was removed.
            self.folders.remove(&cgroup);
        }
        is_released
    }

    fn release_or_watch(&mut self, cgroup: CgroupId) -> bool {
        let Some(cgroups) = &mut self.cgroups else {
            return true;
        };
        // The state that this read returns is the last one that is not reported by an event.
        if let Some(events) = self.watched.get(&cgroup) {
            let _ = events.read_at(&mut [0; 64], 0);
        }
        if cgroups.release(cgroup) {
            self.watched.remove(&cgroup);
            return true;
        }
        if self.watched.contains_key(&cgroup) {
            return false;
        }
        let path = cgroups.fs().path(&cgroups.path(cgroup));
        let watch = || {
            let mut events = File::open(path.join("cgroup.events"))?;
            events.read_exact(&mut [0; 1])?;
            let data = EventSource::Cgroup(cgroup).data();
            epoll::add(&*self.epoll, &events, data, epoll::EventFlags::PRI)?;
            Ok::<_, io::Error>(events)
        };
        match watch() {
            Ok(events) => {
                self.watched.insert(cgroup, events);
                // It may have become empty before it was watched.
                cgroups.release(cgroup) && self.watched.remove(&cgroup).is_some()
            }
            Err(_) => cgroups.release(cgroup),
        }
    }

    pub(super) fn oom_kills(&mut self, cgroup: CgroupId) -> u64 {
        let cgroups = self.cgroups.as_mut();
        cgroups.map_or(0, |cgroups| cgroups.oom_kills(cgroup))
    }

    /// Removes the base: the reaper ends.
    pub(super) fn close(&mut self) {
        if let Some(mut cgroups) = self.cgroups.take() {
            cgroups.close();
        }
    }
}

fn open_base(place: &CgroupPlace, directory: &Directory) -> io::Result<Cgroups<Hierarchy>> {
    let hierarchy = Hierarchy::find().ok_or(ErrorKind::NotFound)?;
    let parent = match place {
        CgroupPlace::None => return Err(ErrorKind::Unsupported.into()),
        CgroupPlace::Auto => None,
        CgroupPlace::Below(path) => Some(
            hierarchy
                .cgroup_of(path)
                .ok_or_else(|| {
                    let text = format!("expected a path in `{}`", hierarchy.mount.display());
                    Error::directory(text)
                })
                .map_err(io::Error::other)?,
        ),
    };
    if !syscalls::can_spawn_into_cgroup() {
        return Err(ErrorKind::Unsupported.into());
    }
    let record = directory.path(BASE_FILE);
    let place = BaseSettings {
        own: hierarchy.own().ok_or(ErrorKind::NotFound)?,
        parent,
        // Unlike the directory's inode, it is never that of a later reaper, whose directory may be made after this one was
        // removed.
        name: format!("penstock-{:032x}", procfs::random_id()?),
        earlier: fs::read_to_string(&record).ok(),
    };
    let cgroups = Cgroups::open(hierarchy, &place)?;
    if place.earlier.as_deref() != Some(cgroups.base()) {
        write_private(&record, cgroups.base().as_bytes())?;
    }
    Ok(cgroups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_of_a_cgroup_are_read_again_and_forgotten_with_it() {
        let mount = tempfile::tempdir().expect("a directory");
        let mut hierarchy = Hierarchy {
            mount: mount.path().to_owned(),
            root: "/".to_owned(),
            events: BTreeMap::new(),
        };
        let file = mount.path().join("job/cgroup.events");
        for _ in 0..2 {
            hierarchy.make("/job").expect("made");
            for events in ["populated 1\nfrozen 0\n", "populated 0\n"] {
                fs::write(&file, events).expect("written");
                assert_eq!(hierarchy.read("/job/cgroup.events").expect("read"), events);
            }
            // Unlike a cgroup, a directory is removed without its files only.
            fs::remove_file(&file).expect("removed");
            hierarchy.remove("/job").expect("removed");
            assert!(hierarchy.read("/job/cgroup.events").is_err());
        }
    }
}
