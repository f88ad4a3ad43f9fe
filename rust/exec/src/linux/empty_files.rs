//! Empty files of retained output, which are used again: most tasks write nothing to one stream or both.
//!
//! To create a file costs ext4 some ten times as much as to rename one, and several times more if files have been
//! removed shortly before.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::syscalls;
use crate::service::{Stream, retained_file};
use crate::types::JobId;

/// The file that ended jobs share in place of their own empty ones.
const SHARED_FILE: &str = ".empty";
/// Jobs whose files may be used again.
const MAX_JOBS: usize = 1024;
/// Files that are looked at for a new one.
const MAX_ATTEMPTS: usize = 2;
/// The permissions of a file of retained output.
const PERMISSIONS: u32 = 0o600;

/// The calls that not every file system supports.
#[derive(Debug, Clone, Copy)]
struct Calls {
    /// Gives a file a second name.
    link: fn(&Path, &Path) -> io::Result<()>,
    /// Whether no process has the file open but this one, which a lease tells, nor can open it before this one closes it.
    is_open_nowhere_else: fn(&File) -> bool,
}

const CALLS: Calls = Calls {
    link: |file, name| fs::hard_link(file, name),
    is_open_nowhere_else: syscalls::is_open_nowhere_else,
};

/// The empty files of ended jobs in the directory of retained output.
#[derive(Debug)]
pub(super) struct EmptyFiles {
    calls: Calls,
    directory: PathBuf,
    /// Files that may be empty, the oldest first, and the guest whose output they were for.
    candidates: VecDeque<(PathBuf, Option<u32>)>,
    /// Names of ended jobs' files that have been given away.
    nameless: Vec<PathBuf>,
}

impl EmptyFiles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            calls: CALLS,
            directory,
            candidates: VecDeque::new(),
            nameless: Vec::new(),
        }
    }

    /// Adds the files of a job that has ended, and its user if that is a guest.
    pub(super) fn add(&mut self, job: JobId, guest: Option<u32>) {
        if self.candidates.len() < MAX_JOBS * Stream::ALL.len() {
            let files = Stream::ALL.map(|stream| retained_file(&self.directory, job, stream));
            self.candidates.extend(files.map(|file| (file, guest)));
        }
    }

    /// Puts an empty file of an ended job of the same user at this path, unless there is a file. [`restore_names`](Self::restore_names) gives
    /// the ended job a file again. If there is no such file, or anything fails, whoever opens the path creates it.
    pub(super) fn provide(&mut self, path: &Path, guest: Option<u32>) {
        if path.parent() != Some(self.directory.as_path()) {
            return;
        }
        for _ in 0..MAX_ATTEMPTS {
            let Some((candidate, user)) = self.candidates.pop_front() else {
                return;
            };
            if user != guest {
                self.candidates.push_back((candidate, user));
                continue;
            }
            if !self.is_unused(&candidate).unwrap_or(false) {
                continue;
            }
            if renameat_with(CWD, &candidate, CWD, path, RenameFlags::NOREPLACE).is_ok() {
                self.nameless.push(candidate);
            } else {
                self.candidates.push_front((candidate, user));
            }
            return;
        }
    }

    /// Creates the file at this path in the directory, unless there is one: the umask of a task may give other users access to a file
    /// that it creates. If this fails, the task's start tells why.
    pub(super) fn create(&self, path: &Path) {
        if path.parent() == Some(self.directory.as_path()) {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(PERMISSIONS);
            let _ = options.open(path);
        }
    }

    /// Gives each ended job whose file was used again an empty one in its place: after the start of the next task, which
    /// need not wait for it.
    pub(super) fn restore_names(&mut self) {
        for path in mem::take(&mut self.nameless) {
            self.share_empty_file(&path);
        }
    }

    /// Makes `path` an empty file that cannot be written.
    fn share_empty_file(&self, path: &Path) {
        let shared = self.directory.join(SHARED_FILE);
        let Err(error) = (self.calls.link)(&shared, path) else {
            return;
        };
        // The shared file is missing, or has as many links as the file system allows.
        let is_full = error.kind() == ErrorKind::TooManyLinks;
        if is_full && fs::remove_file(&shared).is_err() {
            return;
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o400);
        let result = match error.kind() {
            ErrorKind::NotFound | ErrorKind::TooManyLinks => options
                .open(&shared)
                .and_then(|_| (self.calls.link)(&shared, path)),
            _ => Err(error),
        };
        if result.is_err() {
            let _ = options.open(path);
        }
    }

    /// Whether a file is empty, and no process can write to it: none has it open.
    fn is_unused(&self, path: &Path) -> io::Result<bool> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        if !(self.calls.is_open_nowhere_else)(&file) {
            return Ok(false);
        }
        let metadata = file.metadata()?;
        let is_own = metadata.nlink() == 1 && metadata.mode() & 0o777 == PERMISSIONS;
        Ok(metadata.is_file() && is_own && metadata.len() == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(directory: &Path, name: &str, text: &str) {
        let path = directory.join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(path, Permissions::from_mode(PERMISSIONS)).expect("own");
    }

    fn files(directory: &Path) -> Vec<(String, u64)> {
        let entries = fs::read_dir(directory).expect("a directory");
        let mut files: Vec<_> = entries
            .map(|entry| entry.expect("an entry"))
            .map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, entry.metadata().expect("metadata").len())
            })
            .collect();
        files.sort();
        files
    }

    /// A directory in which job 1 has ended, with nothing on standard output and this on standard error.
    fn ended_job(errors: &str) -> (tempfile::TempDir, EmptyFiles) {
        let directory = tempfile::tempdir().expect("a directory");
        let mut empty = EmptyFiles::new(directory.path().to_owned());
        write(directory.path(), "1.stdout", "");
        write(directory.path(), "1.stderr", errors);
        empty.add(JobId::new(1), None);
        (directory, empty)
    }

    #[test]
    fn an_empty_file_is_used_again_and_keeps_its_name() {
        let (directory, mut empty) = ended_job("oops\n");
        let inode = |name: &str| {
            fs::metadata(directory.path().join(name))
                .expect("a file")
                .ino()
        };
        let before = inode("1.stdout");
        empty.provide(&directory.path().join("2.stdout"), None);
        empty.provide(&directory.path().join("2.stderr"), None);
        empty.restore_names();
        assert_eq!(inode("2.stdout"), before);
        let expected = [
            (".empty", 0),
            ("1.stderr", 5),
            ("1.stdout", 0),
            ("2.stdout", 0),
        ];
        let expected = expected.map(|(name, length)| (name.to_owned(), length));
        assert_eq!(files(directory.path()), expected);
        fs::write(directory.path().join("2.stdout"), "out\n").expect("it can be written");
        assert_eq!(
            fs::read(directory.path().join("1.stdout")).expect("read"),
            b""
        );
        // The file of job 1 is shared now: it is not given to a third one.
        empty.add(JobId::new(1), None);
        empty.provide(&directory.path().join("3.stdout"), None);
        assert!(!directory.path().join("3.stdout").exists());
    }

    #[test]
    fn a_file_is_used_again_by_its_user_only() {
        let (directory, mut empty) = ended_job("oops\n");
        let exists = |name: &str| directory.path().join(name).exists();
        empty.provide(&directory.path().join("2.stdout"), Some(1001));
        assert!(!exists("2.stdout"));
        // The files have not been given up: the first two attempts look at both.
        empty.provide(&directory.path().join("3.stdout"), None);
        assert!(exists("3.stdout"));
        write(directory.path(), "4.stdout", "");
        write(directory.path(), "4.stderr", "");
        empty.add(JobId::new(4), Some(1001));
        empty.provide(&directory.path().join("5.stdout"), Some(1002));
        assert!(!exists("5.stdout"));
        empty.provide(&directory.path().join("6.stdout"), Some(1001));
        assert!(exists("6.stdout"));
    }

    #[test]
    fn files_are_private() {
        let (directory, mut empty) = ended_job("");
        let path = |name: &str| directory.path().join(name);
        let readable = Permissions::from_mode(0o644);
        fs::set_permissions(path("1.stdout"), readable).expect("own");
        empty.provide(&path("2.stdout"), None);
        assert!(path("2.stdout").exists(), "that of standard error");
        assert!(path("1.stdout").exists());
        empty.provide(&path("2.stderr"), None);
        assert!(!path("2.stderr").exists());
        empty.create(&path("2.stderr"));
        write(directory.path(), "3.stdout", "text");
        empty.create(&path("3.stdout"));
        assert_eq!(fs::read(path("3.stdout")).expect("read"), b"text");
        for name in ["2.stdout", "2.stderr"] {
            let mode = fs::metadata(path(name)).expect("there").mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let elsewhere = tempfile::tempdir().expect("a directory");
        empty.create(&elsewhere.path().join("2.stdout"));
        assert!(!elsewhere.path().join("2.stdout").exists());
    }

    #[test]
    fn a_file_that_a_process_has_open_is_not_used_again() {
        for is_writer in [true, false] {
            let (directory, mut empty) = ended_job("");
            let mut options = OpenOptions::new();
            let options = options.append(is_writer).read(!is_writer);
            let escaped = ["1.stdout", "1.stderr"]
                .map(|name| options.open(directory.path().join(name)).expect("opened"));
            empty.provide(&directory.path().join("2.stdout"), None);
            assert!(!directory.path().join("2.stdout").exists());
            drop(escaped);
        }
    }

    #[test]
    fn a_file_that_exists_and_a_path_elsewhere_are_left_alone() {
        let (directory, mut empty) = ended_job("");
        let elsewhere = tempfile::tempdir().expect("a directory");
        empty.provide(&elsewhere.path().join("2.stdout"), None);
        assert!(!elsewhere.path().join("2.stdout").exists());
        let existing = directory.path().join("2.stdout");
        fs::write(&existing, "before the restart\n").expect("written");
        empty.provide(&existing, None);
        assert_eq!(fs::read(&existing).expect("read"), b"before the restart\n");
        assert!(directory.path().join("1.stdout").exists());
        empty.provide(&directory.path().join("2.stderr"), None);
        assert!(directory.path().join("2.stderr").exists());
    }

    /// As a file system without hard links, such as FAT.
    fn without_links(file: &Path, _: &Path) -> io::Result<()> {
        fs::metadata(file)?;
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }

    #[test]
    fn without_hard_links_ended_jobs_get_files_of_their_own() {
        let (directory, mut empty) = ended_job("");
        empty.calls.link = without_links;
        let names = ["2.stdout", "2.stderr"].map(|name| directory.path().join(name));
        for name in &names {
            empty.provide(name, None);
            empty.restore_names();
            fs::write(name, "out\n").expect("it can be written");
        }
        for name in ["1.stdout", "1.stderr"] {
            let name = directory.path().join(name);
            assert_eq!(fs::read(&name).expect("it is still there"), b"");
            // It is not used again: it would have to be created again, too.
            assert!(!empty.is_unused(&name).expect("readable"));
        }
    }

    #[test]
    fn a_shared_file_with_as_many_links_as_possible_is_replaced() {
        let (directory, mut empty) = ended_job("");
        // At most two names.
        empty.calls.link = |file, name| {
            if fs::metadata(file)?.nlink() >= 2 {
                return Err(io::Error::from_raw_os_error(libc::EMLINK));
            }
            fs::hard_link(file, name)
        };
        let inode = |name: &str| {
            let metadata = fs::metadata(directory.path().join(name));
            metadata.expect("a file").ino()
        };
        empty.provide(&directory.path().join("2.stdout"), None);
        empty.restore_names();
        assert_eq!(inode("1.stdout"), inode(SHARED_FILE));
        empty.provide(&directory.path().join("2.stderr"), None);
        empty.restore_names();
        assert_eq!(inode("1.stderr"), inode(SHARED_FILE));
        assert_ne!(inode("1.stdout"), inode("1.stderr"));
    }

    #[test]
    fn without_leases_no_file_is_used_again() {
        let (directory, mut empty) = ended_job("");
        empty.calls.is_open_nowhere_else = |_| false;
        let before = files(directory.path());
        empty.provide(&directory.path().join("2.stdout"), None);
        assert_eq!(files(directory.path()), before);
    }
}
