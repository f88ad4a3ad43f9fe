//! The removal of directories that others have filled: their depth and size are a guest's choice, and its processes may change them
//! meanwhile.
//!
//! Directories that are not empty are moved up into the one to be removed, so that none is more than one level deep: at any depth the
//! removal needs the same few descriptors, and no recursion.

use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{process, thread};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, fchmod, fchown, fstat, openat};
use rustix::fs::{renameat, rmdir, unlink, unlinkat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

/// Entries that one directory may take before the next one in the queue.
const MAX_ENTRIES_PER_TURN: u64 = 1 << 18;
/// Turns of a directory: beyond them, processes fill it as fast as it is emptied.
const MAX_TURNS: u32 = 1 << 10;
/// Names that are tried for a directory that is moved.
const MAX_NAMES: u32 = 16;

/// A thread that removes directories, one at a time.
#[derive(Debug, Clone)]
pub(super) struct DirectoryRemover {
    queue: Sender<Removal>,
}

/// The failure of a removal.
#[derive(Debug)]
pub(super) struct RemovalFailure {
    /// The user whose job has the directory.
    pub(super) user: u32,
    /// A line for the log.
    pub(super) text: String,
}

impl DirectoryRemover {
    /// Starts the thread. Returns its failures, too: `event` is readable when there are some.
    pub(super) fn start(event: OwnedFd) -> io::Result<(Self, Receiver<RemovalFailure>)> {
        let (queue, removals) = channel();
        let again = queue.clone();
        let (sender, failures) = channel();
        thread::Builder::new().spawn(move || run(&removals, &again, &sender, &event))?;
        Ok((Self { queue }, failures))
    }

    /// Removes a directory, or a file or link of this name, after those that are in the queue. Links are not followed. After a
    /// failure the next service tries again.
    pub(super) fn remove(&self, path: PathBuf) {
        // The thread ends with the process.
        let _ = self.queue.send(Removal::new(path));
    }
}

fn run(
    removals: &Receiver<Removal>,
    queue: &Sender<Removal>,
    failures: &Sender<RemovalFailure>,
    event: &OwnedFd,
) {
    for mut removal in removals {
        match removal.take_turn(MAX_ENTRIES_PER_TURN) {
            Ok(Progress::Removed) => {}
            Ok(Progress::More) => {
                let _ = queue.send(removal);
            }
            Err(error) => {
                let text = format!(
                    "cannot remove directory `{}`: {error}",
                    removal.path.display()
                );
                let user = removal.user.unwrap_or_else(|| geteuid().as_raw());
                let _ = failures.send(RemovalFailure { user, text });
                let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Removed,
    /// Another turn is needed.
    More,
}

/// The result of an attempt to remove an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Gone,
    /// A directory with entries.
    Filled,
}

/// A directory that is being removed.
#[derive(Debug)]
struct Removal {
    path: PathBuf,
    /// The user to whom the directory belonged before the first turn.
    user: Option<u32>,
    turns: u32,
    /// The number in the name of the next directory that is moved.
    next_name: u64,
    /// The first error of the last scan of the directory.
    first_error: Option<Errno>,
    /// Entries that this turn may still take.
    budget: u64,
    /// The entries that the scan has removed or moved.
    changes: u64,
}

impl Removal {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            user: None,
            turns: 0,
            next_name: 0,
            first_error: None,
            budget: 0,
            changes: 0,
        }
    }

    /// Removes up to a number of entries, and the directory if it is empty then. Fails with the first error if it can remove
    /// nothing more.
    fn take_turn(&mut self, max_entries: u64) -> io::Result<Progress> {
        let top = match open_directory(CWD, &self.path) {
            Ok(top) => top,
            Err(Errno::NOENT) => return Ok(Progress::Removed),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                unlink(&self.path)?;
                return Ok(Progress::Removed);
            }
            Err(error) => return Err(error.into()),
        };
        if self.user.is_none() {
            self.user = fstat(&top).ok().map(|stat| stat.st_uid);
        }
        // No process of a guest can add entries here any longer, only in directories below that it has open.
        let _ = fchown(&top, Some(geteuid()), Some(getegid()));
        self.budget = max_entries;
        loop {
            self.scan(&top)?;
            match rmdir(&self.path) {
                Ok(()) | Err(Errno::NOENT) => return Ok(Progress::Removed),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            if self.budget == 0 {
                break;
            }
            if self.changes == 0 {
                let error = self.first_error.unwrap_or(Errno::NOTEMPTY);
                return Err(error.into());
            }
        }
        self.turns += 1;
        if self.turns == MAX_TURNS {
            let text = "processes fill it as fast as it is emptied";
            return Err(io::Error::new(ErrorKind::DirectoryNotEmpty, text));
        }
        Ok(Progress::More)
    }

    /// Removes the entries of the directory and those of its directories. Filled directories below these are moved into it.
    fn scan(&mut self, top: &OwnedFd) -> Result<(), Errno> {
        (self.first_error, self.changes) = (None, 0);
        let mut entries = Dir::read_from(top)?;
        while let Some(name) = next_name(&mut entries)? {
            if !self.take_from_budget() {
                break;
            }
            let mut result = remove_entry(top.as_fd(), &name);
            if result == Ok(Entry::Filled) {
                result = self.flatten(top, &name);
            }
            self.record(result);
        }
        Ok(())
    }

    /// Removes a directory in the top one with the entries that are no filled directories, and moves these to the top.
    fn flatten(&mut self, top: &OwnedFd, name: &CStr) -> Result<Entry, Errno> {
        let directory = match open_directory(top.as_fd(), name) {
            Err(Errno::NOENT) => return Ok(Entry::Gone),
            result => result?,
        };
        let mut entries = Dir::read_from(&directory)?;
        while let Some(name) = next_name(&mut entries)? {
            if !self.take_from_budget() {
                return Ok(Entry::Filled);
            }
            let mut result = remove_entry(directory.as_fd(), &name);
            if result == Ok(Entry::Filled) {
                result = self.move_up(directory.as_fd(), &name, top.as_fd());
            }
            self.record(result);
        }
        remove_entry(top.as_fd(), name)
    }

    /// Moves a directory to the top, under a name that is not in use.
    fn move_up(
        &mut self,
        from: BorrowedFd<'_>,
        name: &CStr,
        top: BorrowedFd<'_>,
    ) -> Result<Entry, Errno> {
        for _ in 0..MAX_NAMES {
            let unused = format!(".{}-{}", process::id(), self.next_name);
            self.next_name += 1;
            match renameat(from, name, top, &unused) {
                // It may be replaced by another entry of this name, which is to be removed, too.
                Ok(()) | Err(Errno::NOENT) => return Ok(Entry::Gone),
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                // Its own entry `..` changes.
                Err(Errno::ACCESS) => drop(open_directory(from, name)?),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXIST)
    }

    fn take_from_budget(&mut self) -> bool {
        let is_left = self.budget > 0;
        self.budget = self.budget.saturating_sub(1);
        is_left
    }

    fn record(&mut self, result: Result<Entry, Errno>) {
        match result {
            Ok(Entry::Gone) => self.changes += 1,
            Ok(Entry::Filled) => {}
            Err(error) => {
                self.first_error.get_or_insert(error);
            }
        }
    }
}

/// Opens a directory, not a link to one, whose entries this process can then remove.
fn open_directory<P: rustix::path::Arg + Copy>(
    parent: BorrowedFd<'_>,
    name: P,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |more| openat(parent, name, flags | more, Mode::empty());
    let opened = match open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            let found = open(OFlags::PATH)?;
            chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)?;
            open(OFlags::RDONLY)?
        }
        result => result?,
    };
    // It may be another user's, and accessible nevertheless.
    let _ = fchmod(&opened, Mode::RWXU);
    Ok(opened)
}

/// The next entry beside `.` and `..`.
fn next_name(entries: &mut Dir) -> Result<Option<CString>, Errno> {
    loop {
        let Some(entry) = entries.next().transpose()? else {
            return Ok(None);
        };
        let name = entry.file_name();
        if name != c"." && name != c".." {
            return Ok(Some(name.to_owned()));
        }
    }
}

/// Removes an entry of a directory, unless it is a directory with entries.
fn remove_entry(directory: BorrowedFd<'_>, name: &CStr) -> Result<Entry, Errno> {
    let kept = match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(Entry::Gone),
        Err(error) => error,
    };
    if !matches!(kept, Errno::ISDIR | Errno::PERM) {
        return Err(kept);
    }
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(Entry::Gone),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Entry::Filled),
        Err(Errno::NOTDIR) => Err(kept),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use rustix::fs::mkdirat;

    use super::*;

    /// More levels than this process may have descriptors, and than the stack of the test has room for.
    const DEPTH: u32 = 5_000;

    /// Makes directories, each in the one before.
    fn nest(path: &Path, depth: u32) {
        fs::create_dir(path).expect("made");
        let mut directory = open_directory(CWD, path).expect("opened");
        for _ in 0..depth {
            mkdirat(&directory, "d", Mode::RWXU).expect("made");
            directory = open_directory(directory.as_fd(), "d").expect("opened");
        }
    }

    fn remove(path: &Path) -> io::Result<Progress> {
        Removal::new(path.to_owned()).take_turn(u64::MAX)
    }

    #[test]
    fn the_depth_of_a_directory_needs_neither_stack_nor_descriptors() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("job");
        nest(&path, DEPTH);
        // As names that an earlier process has given.
        nest(&path.join(format!(".{}-0", process::id())), 2);
        fs::write(path.join(format!(".{}-1", process::id())), "").expect("written");
        let thread = thread::Builder::new().stack_size(64 << 10);
        let removed = path.clone();
        let thread = thread.spawn(move || remove(&removed)).expect("started");
        let result = thread.join().expect("no overflow");
        assert_eq!(result.expect("removed"), Progress::Removed);
        assert!(!path.exists());
    }

    #[test]
    fn links_are_removed_and_what_they_lead_to_stays() {
        let folder = tempfile::tempdir().expect("made");
        let outside = folder.path().join("outside");
        nest(&outside, 2);
        fs::write(outside.join("d/file"), "").expect("written");
        let path = folder.path().join("job");
        fs::create_dir_all(path.join("a/b/c")).expect("made");
        for place in ["link", "a/link", "a/b/link", "a/b/c/link"] {
            symlink(&outside, path.join(place)).expect("made");
        }
        remove(&path).expect("removed");
        assert!(!path.exists());
        let link = folder.path().join("link");
        symlink(&outside, &link).expect("made");
        remove(&link).expect("removed");
        assert!(!link.is_symlink());
        assert!(outside.join("d/d").is_dir() && outside.join("d/file").is_file());
        // It has been removed meanwhile.
        assert_eq!(remove(&path).expect("nothing"), Progress::Removed);
    }

    #[test]
    fn permissions_do_not_keep_a_directory() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("job");
        fs::create_dir_all(path.join("a/b/c")).expect("made");
        fs::write(path.join("a/b/file"), "").expect("written");
        for place in ["a/b/file", "a/b/c", "a/b", "a", ""] {
            let none = Permissions::from_mode(0o000);
            fs::set_permissions(path.join(place), none).expect("set");
        }
        remove(&path).expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn a_large_directory_takes_several_turns() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("job");
        nest(&path, 50);
        let mut removal = Removal::new(path.clone());
        let mut turns = 1;
        while removal.take_turn(10).expect("no error") == Progress::More {
            turns += 1;
        }
        assert!((10..100).contains(&turns), "{turns}");
        assert!(!path.exists());
    }
}
