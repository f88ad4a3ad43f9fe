//! The generation counter: a file beside the database with the number of its last commit.
//!
//! The database has that number, too. A lower one tells that the database went back in time: it or its log was removed,
//! damaged, or replaced by an older copy. The file is written after a commit and never before, and is not synced: its
//! number can be too low, but not too high.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use penstock_jobspec::job_id::JobId;
use rustix::fs::{AtFlags, CWD, StatxFlags, major, minor, statx};

use crate::Error;
use crate::file::require_file;

/// The first word of the file, and the version of its format.
const HEAD: &str = "penstock-generation 1";

/// The state of a database as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The identity of the database, which copies have, too.
    pub(crate) identity: String,
    /// The number of the last commit.
    pub(crate) generation: u64,
    /// The number of the last commit that survives a power failure.
    pub(crate) durable: u64,
    /// The greatest id of a job so far, purged ones included.
    pub(crate) greatest_id: JobId,
}

impl Progress {
    /// The line of the file, which always has the same length.
    fn line(&self) -> String {
        let Self {
            identity,
            generation,
            durable,
            greatest_id,
        } = self;
        let greatest_id = greatest_id.get();
        format!("{HEAD} {identity:32} {generation:020} {durable:020} {greatest_id:020}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_suffix('\n')?.strip_prefix(HEAD)?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let [identity, generation, durable, greatest_id] = words[..] else {
            return None;
        };
        Some(Self {
            identity: identity.to_owned(),
            generation: generation.parse().ok()?,
            durable: durable.parse().ok()?,
            greatest_id: JobId::new(greatest_id.parse().ok()?),
        })
    }

    /// Compares the database at `path` with what its counter says. Returns a warning for the log.
    pub(crate) fn check(&self, stored: &Self, path: &Path) -> Result<Option<String>, Error> {
        let shown = path.display();
        if self.identity != stored.identity {
            return Err(Error::lost(&format!(
                "`{shown}` is another database than the one of this state directory{RESTORE_HINT}"
            )));
        }
        let (found, expected) = (stored.generation, self.generation);
        if found < self.durable {
            return Err(Error::lost(&format!(
                "`{shown}` went back in time: it has commit {found}, the last one was {expected}; its log was removed or \
                 damaged, or an older copy has taken its place{RESTORE_HINT}"
            )));
        }
        Ok((found < expected).then(|| {
            format!(
                "the last {} commits are lost, as can be after a power failure with `synchronous = \"normal\"`",
                expected - found
            )
        }))
    }

    /// Corrects the greatest id by the counter: after the same commit both have the same. Returns a warning if the database
    /// had another one.
    pub(crate) fn correct_greatest_id(&mut self, counter: &Self) -> Option<String> {
        let (found, expected) = (self.greatest_id, counter.greatest_id);
        self.greatest_id = found.max(expected);
        if self.generation != counter.generation || found == expected {
            return None;
        }
        self.greatest_id = expected;
        Some(format!(
            "row 1 of `store`: `greatest_id` is {}, expected {}",
            found.get(),
            expected.get()
        ))
    }
}

/// The advice for a database that went back in time.
const RESTORE_HINT: &str = "\nhint: `penstock store restore BACKUP` puts a back-up in its place, \
                            `penstock store restore --as-is` accepts this database";

/// The end of the name of a database whose place another one has taken, before a number.
pub(crate) const BEFORE: &str = ".before-";

/// The other name of the database at `path`, under which an interrupted restoration keeps it.
pub(crate) fn interrupted_restoration(path: &Path) -> Option<PathBuf> {
    let found = path.metadata().ok().filter(|found| found.nlink() > 1)?;
    let start = with_suffix(path.file_name().map(Path::new)?, BEFORE).into_os_string();
    let is_it = |other: &PathBuf| {
        other
            .file_name()
            .is_some_and(|name| name.as_bytes().starts_with(start.as_bytes()))
            && other
                .symlink_metadata()
                .is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()))
    };
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let entries = fs::read_dir(directory.unwrap_or(Path::new("."))).ok()?;
    let mut names = entries.filter_map(|entry| Some(entry.ok()?.path()));
    names.find(is_it)
}

/// The name under which the database at `path` has its log: another one if an interrupted restoration has moved that.
pub(crate) fn with_its_log(path: &Path) -> PathBuf {
    let has_log = |path: &Path| log_path(path).metadata().is_ok_and(|log| log.len() > 0);
    let other = interrupted_restoration(path).filter(|other| has_log(other) && !has_log(path));
    other.unwrap_or_else(|| path.to_owned())
}

/// The path of the counter of the database at `path`.
pub(crate) fn counter_path(path: &Path) -> PathBuf {
    path.with_extension("generation")
}

/// The path of the log of the database at `path`.
pub(crate) fn log_path(path: &Path) -> PathBuf {
    with_suffix(path, "-wal")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

/// The content of a counter: `None` if there is no file, or its content is invalid.
pub(crate) fn read_counter(path: &Path) -> Result<Option<Progress>, Error> {
    let path = counter_path(path);
    require_file(&path)?;
    match fs::read(&path) {
        Ok(bytes) => Ok(Progress::parse(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("cannot read", &path, &error)),
    }
}

/// Writes the counter of the database at `path`, which survives a power failure.
pub(crate) fn write_counter(path: &Path, progress: &Progress) -> Result<(), Error> {
    let target = counter_path(path);
    let new = target.with_extension("generation-new");
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(progress.line().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &target)?;
        sync_directory(path)
    };
    write().map_err(|error| Error::file("cannot write", &target, &error))
}

/// Makes the names of the files beside `path` survive a power failure.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// The open counter of a database.
#[derive(Debug)]
struct Counter {
    path: PathBuf,
    file: File,
    inode: Inode,
}

impl Counter {
    /// Opens the existing counter of the database at `path`.
    fn open(path: &Path) -> Result<Self, Error> {
        let path = counter_path(path);
        let open = || {
            let file = OpenOptions::new().write(true).open(&path)?;
            Ok((file, FileStatus::of(&path)?.inode))
        };
        let (file, inode) = open().map_err(|error| Error::file("cannot open", &path, &error))?;
        Ok(Self { path, file, inode })
    }

    /// Whether the open file is still the one at its path.
    fn is_in_place(&self) -> bool {
        FileStatus::of(&self.path).is_ok_and(|status| status.inode == self.inode)
    }
}

/// The identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inode {
    device: (u32, u32),
    number: u64,
}

/// The file at a path.
#[derive(Clone, Copy, Debug)]
struct FileStatus {
    inode: Inode,
    bytes: u64,
}

impl FileStatus {
    /// The file at a path, without its times: after a query for the time of change the next write has to store a new one,
    /// which the next sync writes, too.
    fn of(path: &Path) -> io::Result<Self> {
        let fields = StatxFlags::INO | StatxFlags::SIZE;
        if let Ok(found) = statx(CWD, path, AtFlags::empty(), fields) {
            let inode = Inode {
                device: (found.stx_dev_major, found.stx_dev_minor),
                number: found.stx_ino,
            };
            let bytes = found.stx_size;
            return Ok(Self { inode, bytes });
        }
        // A sandbox may have the older call alone.
        let metadata = fs::metadata(path)?;
        let device = metadata.dev();
        let inode = Inode {
            device: (major(device), minor(device)),
            number: metadata.ino(),
        };
        let bytes = metadata.len();
        Ok(Self { inode, bytes })
    }
}

/// The files of an open database: changes that are written to removed ones are lost.
#[derive(Debug)]
pub(crate) struct Files {
    /// The database, its log, and the memory about the log that all programs share: without that file each has its own.
    paths: [PathBuf; 3],
    inodes: [Inode; 3],
    counter: Counter,
}

impl Files {
    /// The files of the database at `path`, which has been read, and its length.
    pub(crate) fn of(path: &Path) -> Result<(Self, u64), Error> {
        let paths = [path.to_owned(), log_path(path), with_suffix(path, "-shm")];
        let status = |path: &PathBuf| {
            FileStatus::of(path).map_err(|error| Error::file("cannot open", path, &error))
        };
        let (database, log, shared) = (status(&paths[0])?, status(&paths[1])?, status(&paths[2])?);
        let files = Self {
            paths,
            inodes: [database.inode, log.inode, shared.inode],
            counter: Counter::open(path)?,
        };
        Ok((files, database.bytes))
    }

    /// Checks that the open files are still those at their paths. Returns the length of the database.
    pub(crate) fn check(&self) -> Result<u64, Error> {
        let mut lengths = [0; 3];
        let files = self.paths.iter().zip(self.inodes);
        for ((path, inode), length) in files.zip(&mut lengths) {
            let found = FileStatus::of(path).ok();
            let found = found.filter(|found| found.inode == inode);
            *length = found.map(|found| found.bytes).ok_or_else(|| {
                Error::lost(&format!(
                    "`{}` was removed or replaced while the instance ran",
                    path.display()
                ))
            })?;
        }
        let [database, _, _] = lengths;
        Ok(database)
    }

    /// Records the state after a commit. A counter that was removed or replaced is written to a new file.
    pub(crate) fn record(&mut self, progress: &Progress) -> Result<(), Error> {
        if self.counter.is_in_place() {
            // A number that is too low detects less. The commit is durable: it must not fail for that.
            let _ = self
                .counter
                .file
                .write_all_at(progress.line().as_bytes(), 0);
            return Ok(());
        }
        write_counter(&self.paths[0], progress)?;
        self.counter = Counter::open(&self.paths[0])?;
        Ok(())
    }

    /// Leaves the counter for the next program that opens the database, which accepts any without one. The pair of another database
    /// and its counter stays as it is.
    pub(crate) fn leave(&mut self, progress: &Progress) {
        let found = FileStatus::of(&self.paths[0]);
        let is_other = found.is_ok_and(|found| found.inode != self.inodes[0]);
        if !(is_other && self.counter.path.exists()) {
            // The next start reports a counter that is missing.
            let _ = self.record(progress);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(generation: u64, durable: u64) -> Progress {
        Progress {
            identity: "0123456789abcdef0123456789abcdef".to_owned(),
            generation,
            durable,
            greatest_id: JobId::new(u64::MAX),
        }
    }

    #[test]
    fn lines_have_one_length_and_are_read() {
        let line = progress(7, 3).line();
        assert_eq!(line.len(), progress(u64::MAX, 0).line().len());
        assert_eq!(Progress::parse(&line), Some(progress(7, 3)));
        for invalid in [
            "",
            "\n",
            &line[1..],
            line.trim_end(),
            "penstock-generation 1 a 1 2\n",
        ] {
            assert_eq!(Progress::parse(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn a_database_must_have_the_durable_commits() {
        let path = Path::new("jobs.sqlite");
        let counter = progress(9, 5);
        for (generation, expected) in [(10, Ok(None)), (9, Ok(None))] {
            assert_eq!(counter.check(&progress(generation, 0), path), expected);
        }
        let warning = counter.check(&progress(5, 0), path).unwrap().unwrap();
        assert!(
            warning.starts_with("the last 4 commits are lost"),
            "{warning}"
        );
        let error = counter.check(&progress(4, 0), path).unwrap_err();
        assert!(error.is_lost());
        assert!(
            error
                .to_string()
                .contains("it has commit 4, the last one was 9")
        );
        assert!(error.to_string().contains("penstock store restore"));
        let mut other = progress(9, 9);
        other.identity.replace_range(..1, "f");
        let error = counter.check(&other, path).unwrap_err();
        assert!(error.to_string().contains("another database"), "{error}");
    }
}
