//! Back-ups, and a database that takes the place of another one.

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use penstock_jobspec::job_id::JobId;
use rusqlite::{Connection, params};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::check::structure;
use crate::database::{connect, connect_reader, read_progress};
use crate::generation::{self, Progress};
use crate::{Error, REPLACED_META, Store, Synchronous, schema, space};

/// The end of the name of a file that is not complete, which no file of a user has.
const UNFINISHED: &str = "penstock-unfinished";

/// Copies the database at `path` to a new file, also while an instance writes to it.
///
/// # Errors
///
/// The database is damaged or cannot be read, or the file exists or cannot be written.
pub fn back_up(path: &Path, to: &Path) -> Result<(), Error> {
    let store = Store::open_reader(path)?;
    let new = NewFile::create(to)?;
    copy(store.database.connection(), new.unfinished.path())?;
    new.finish()
}

/// A new file of a user, in a directory in which other users may make files, such as `/tmp`. It gets its name when it is
/// complete; until then it has one that others do not know, and it is removed when it is dropped.
#[derive(Debug)]
pub(super) struct NewFile<'a> {
    name: &'a Path,
    pub(super) file: File,
    unfinished: Unfinished,
}

impl<'a> NewFile<'a> {
    /// Creates the file, which the user alone can read.
    pub(super) fn create(name: &'a Path) -> Result<Self, Error> {
        if name.symlink_metadata().is_ok() {
            return Err(exists(name));
        }
        // Seeded by the system.
        let number = || RandomState::new().build_hasher().finish();
        let suffix = format!(".{:016x}{:016x}.{UNFINISHED}", number(), number());
        let path = with_suffix(name, &suffix);
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(flags.bits().cast_signed())
            .open(&path)
            .map_err(|error| Error::file("cannot write", name, &error))?;
        let unfinished = Unfinished(path);
        let new = Self {
            name,
            file,
            unfinished,
        };
        new.check()?;
        Ok(new)
    }

    /// Checks that the file is the user's, and that its path is still that of the open one.
    fn check(&self) -> Result<(), Error> {
        let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino(), metadata.uid());
        let is_same = || {
            let (open, named) = (self.file.metadata()?, self.unfinished.0.symlink_metadata()?);
            let is_own = open.uid() == rustix::process::geteuid().as_raw();
            Ok(is_own && identity(&open) == identity(&named))
        };
        match is_same() {
            Ok(true) => Ok(()),
            Ok(false) => {
                let error = io::Error::other("another user has replaced the file");
                Err(Error::file("cannot write", self.name, &error))
            }
            Err(error) => Err(Error::file("cannot write", self.name, &error)),
        }
    }

    /// Gives the file, which is complete, its name, unless there is another file of that name by now.
    pub(super) fn finish(self) -> Result<(), Error> {
        let wrap = |error| Error::file("cannot write", self.name, &error);
        self.file.sync_all().map_err(wrap)?;
        self.check()?;
        let (from, flags) = (self.unfinished.path(), RenameFlags::NOREPLACE);
        match renameat_with(CWD, from, CWD, self.name, flags) {
            Err(Errno::EXIST) => return Err(exists(self.name)),
            // The file system has no such flag.
            Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, self.name).map_err(wrap)?,
            renamed => renamed.map_err(io::Error::from).map_err(wrap)?,
        }
        generation::sync_directory(self.name).map_err(wrap)
    }
}

fn exists(path: &Path) -> Error {
    Error::invalid(&format!("`{}` exists already", path.display()))
}

/// A file beside the one whose place it takes when it is complete, perhaps a database with its log. Otherwise it is removed
/// when it is dropped.
#[derive(Debug)]
pub(super) struct Unfinished(PathBuf);

impl Unfinished {
    /// The file for a place. One that a crash has left there is removed.
    pub(super) fn new(place: &Path, suffix: &str) -> Result<Self, Error> {
        let path = with_suffix(place, suffix);
        remove_database(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Gives the file, which is complete, its name.
    pub(super) fn finish(self, name: &Path) -> Result<(), Error> {
        let rename = || {
            fs::rename(self.path(), name)?;
            generation::sync_directory(name)
        };
        rename().map_err(|error| Error::file("cannot write", name, &error))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A renamed file is not here any longer. The error that ends the verb is shown, not an error of this removal.
        let _ = remove_database(&self.0);
    }
}

/// Rewrites the database at `path`, which no instance uses: its file has no free pages afterwards, and can shrink when
/// jobs are purged.
///
/// # Errors
///
/// There is no database, or it cannot be read or written, for example because the disk has no space for a second one.
pub fn vacuum(path: &Path) -> Result<(), Error> {
    path.metadata()
        .map_err(|error| Error::file("cannot read", path, &error))?;
    let mut store = Store::open(path, Synchronous::Full)?;
    space::vacuum(store.database.connection())?;
    // Copies the log into the database.
    store.close();
    Ok(())
}

/// Copies what a connection reads to a new file, and syncs it.
///
/// `SQLite` copies a database whose damaged pages look valid without a word, and leaves out what is not found from them.
fn copy(connection: &Connection, to: &Path) -> Result<(), Error> {
    let wrap = |error| Error::file("cannot write", to, &error);
    if let Some(problem) = structure(connection)?.first() {
        return Err(Error::damaged(problem));
    }
    let name = to.to_string_lossy();
    connection
        .execute("VACUUM INTO ?", [&*name])
        .map_err(|error| Error::new(&format!("cannot copy the database to `{name}`"), &error))?;
    let file = File::options().write(true).open(to).map_err(wrap)?;
    file.sync_all().map_err(wrap)
}

/// A database that has taken the place of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The path of the database before, if there was one.
    pub old: Option<PathBuf>,
    /// For the user: what may be lost.
    pub losses: Vec<String>,
}

/// Puts a back-up in the place of the database at `path`, which no instance uses; without a back-up, the database at
/// `path` itself, as it is: the lost commits are accepted.
///
/// # Errors
///
/// The back-up is damaged or cannot be read, or a file cannot be written. The database at `path` stays then.
pub fn restore(path: &Path, backup: Option<&Path>) -> Result<Replacement, Error> {
    let own = generation::with_its_log(path);
    let source = connect_reader(backup.unwrap_or(&own))?;
    let found = schema::format_version(&source)?;
    if !(1..=schema::FORMAT_VERSION).contains(&found) {
        return Err(Error::format(found, schema::FORMAT_VERSION));
    }
    let new = Unfinished::new(path, ".new")?;
    copy(&source, new.path())?;
    drop(source);
    let reason = if backup.is_some() {
        "a back-up has been restored"
    } else {
        "the database went back in time"
    };
    install(path, new, reason)
}

/// Puts a new database in the place of the one at `path`, which is renamed. It gets an identity of its own, and a number
/// of commits and a greatest id that are beyond all known ones.
pub(super) fn install(path: &Path, new: Unfinished, reason: &str) -> Result<Replacement, Error> {
    let known = generation::read_counter(path)?;
    // The old database may be missing or unreadable.
    let mut old = connect_reader(path)
        .and_then(|old| read_progress(&old))
        .ok();
    if let (Some(old), Some(known)) = (&mut old, &known) {
        old.correct_greatest_id(known);
    }
    let known: Vec<Progress> = known.into_iter().chain(old).collect();
    let progress = prepare(new.path(), &known, reason)?;
    let kept = keep_old(path, progress.generation)?;
    new.finish(path)?;
    generation::write_counter(path, &progress)?;
    let mut losses = Vec::new();
    if known.is_empty() {
        losses.push(
            "nothing is known of jobs that were submitted later than the copy was made".to_owned(),
        );
    }
    Ok(Replacement { old: kept, losses })
}

/// Brings a new database to this format, and marks it.
fn prepare(new: &Path, known: &[Progress], reason: &str) -> Result<Progress, Error> {
    let wrap = |error: rusqlite::Error| Error::new("cannot mark the database", &error);
    let connection = connect(new)?;
    schema::migrate(&connection)?;
    let own = read_progress(&connection)?;
    let all = || known.iter().chain([&own]);
    let generation = all().map(|each| each.generation).max().unwrap_or_default() + 1;
    let greatest = all().map(|each| each.greatest_id).max().unwrap_or_default();
    connection
        .execute(
            "UPDATE store SET identity = lower(hex(randomblob(16))), generation = ?, greatest_id = ?",
            params![generation.cast_signed(), greatest.get().cast_signed()],
        )
        .map_err(wrap)?;
    connection
        .execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
            [REPLACED_META, reason],
        )
        .map_err(wrap)?;
    // A start may have been sent since.
    connection
        .execute("DELETE FROM unsent_starts", [])
        .map_err(wrap)?;
    let progress = read_progress(&connection)?;
    connection.close().map_err(|(_, error)| wrap(error))?;
    let synced = File::open(new).and_then(|file| file.sync_all());
    synced.map_err(|error| Error::file("cannot write", new, &error))?;
    Ok(Progress {
        durable: progress.generation,
        greatest_id: JobId::new(greatest.get()),
        ..progress
    })
}

/// Keeps the database at `path` with its log under another name, which it returns, and removes all but the database: the new
/// one takes its place. Whenever this is interrupted, a repetition keeps both files, too.
fn keep_old(path: &Path, number: u64) -> Result<Option<PathBuf>, Error> {
    let old = with_suffix(path, &format!("{}{number}", generation::BEFORE));
    let kept = keep(path, &old)?;
    let log = with_suffix(path, "-wal");
    // An empty one was made by a reader: the log may have been kept before.
    if log.metadata().is_ok_and(|found| found.len() > 0) {
        keep(&log, &with_suffix(&old, "-wal"))?;
    }
    generation::sync_directory(path).map_err(|error| Error::file("cannot write", path, &error))?;
    for suffix in ["-wal", "-shm", "-journal"] {
        remove(&with_suffix(path, suffix))?;
    }
    Ok(kept.then_some(old))
}

/// Gives a file another name as well, in place of a file that has it. Returns whether there is the file.
fn keep(path: &Path, name: &Path) -> Result<bool, Error> {
    let unfinished = with_suffix(name, ".new");
    remove(&unfinished)?;
    let link = || match fs::hard_link(path, &unfinished) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        // A file system without links.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::PERM | Errno::OPNOTSUPP)
            ) =>
        {
            fs::rename(path, name).map(|()| true)
        }
        linked => linked
            .and_then(|()| fs::rename(&unfinished, name))
            .map(|()| true),
    };
    let is_kept = link().map_err(|error| Error::file("cannot rename", path, &error))?;
    // A rename to another name of the same file does nothing.
    remove(&unfinished)?;
    Ok(is_kept)
}

/// Removes a database and the files that belong to it.
pub(super) fn remove_database(path: &Path) -> Result<(), Error> {
    let mut suffixes = ["", "-wal", "-shm", "-journal"].into_iter();
    suffixes.try_for_each(|suffix| remove(&with_suffix(path, suffix)))
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::file("cannot remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// A path with more characters at its end.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
