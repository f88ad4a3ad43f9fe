//! The directories of jobs, made by a thread: their files are a user's choice, and the event loop does not wait for them.
//!
//! This process makes a guest's directory in one that guests can enter and not list. Until everything is there, only this
//! process has access to it. All files in it are the guest's, by user and group, before they get their permissions.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fchmod, fchown, fstat, mkdirat, openat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::remove_directory::DirectoryRemover;
use crate::service::{DirectoryOwner, FileContent, JobDirectory, JobFile, shorten};
use crate::types::JobId;

/// The directories above that of a guest's job which are the services' own: `/run/penstock/INSTANCE/jobs`.
const PUBLIC_DIRECTORY_LEVELS: usize = 3;

/// Time for which the group of a user's account is known.
const GROUP_LIFETIME: Duration = Duration::from_secs(10);

/// The thread that makes directories of jobs.
#[derive(Debug)]
pub(super) struct JobDirectories {
    queue: Sender<Task>,
    results: Receiver<(JobId, io::Result<()>)>,
    /// It is readable when there are results.
    event: OwnedFd,
}

#[derive(Debug)]
enum Task {
    Make(PathBuf, JobDirectory),
    /// Remove the directory: it may be in the queue.
    Remove(PathBuf),
}

impl JobDirectories {
    /// Starts the thread. `imp` is the program `penstock-imp`, and `event` is what [`event`](Self::event) returns.
    pub(super) fn start(
        remover: DirectoryRemover,
        imp: PathBuf,
        event: OwnedFd,
    ) -> io::Result<Self> {
        let (queue, tasks) = channel();
        let (sender, results) = channel();
        let signal = event.try_clone()?;
        let accounts = Accounts {
            imp,
            groups: BTreeMap::new(),
        };
        thread::Builder::new().spawn(move || run(&tasks, accounts, &remover, &sender, &signal))?;
        Ok(Self {
            queue,
            results,
            event,
        })
    }

    /// Makes the directory of a job, after those that are in the queue.
    pub(super) fn make(&self, path: PathBuf, directory: JobDirectory) {
        // The thread ends with the process.
        let _ = self.queue.send(Task::Make(path, directory));
    }

    /// Removes the directory of a job when the requests before have been carried out.
    pub(super) fn remove(&self, path: PathBuf) {
        let _ = self.queue.send(Task::Remove(path));
    }

    /// The descriptor that is readable when there are results.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Removes and returns the results that there are.
    pub(super) fn take_results(&self) -> impl Iterator<Item = (JobId, io::Result<()>)> {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        self.results.try_iter()
    }
}

fn run(
    tasks: &Receiver<Task>,
    mut accounts: Accounts,
    remover: &DirectoryRemover,
    results: &Sender<(JobId, io::Result<()>)>,
    event: &OwnedFd,
) {
    for task in tasks {
        match task {
            Task::Make(path, directory) => {
                let account = accounts.of(directory.owner);
                let result = account.and_then(|account| make(&path, &directory, account));
                let _ = results.send((directory.job, result));
                let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
            }
            Task::Remove(path) => remover.remove(path),
        }
    }
}

/// A user and a group that get a file.
#[derive(Debug, Clone, Copy)]
struct Account {
    uid: Uid,
    gid: Gid,
}

/// The accounts of guests. This program is not linked with the system's C library, which finds them: `penstock-imp` does that.
#[derive(Debug)]
struct Accounts {
    imp: PathBuf,
    /// The groups of users, and when they were found.
    groups: BTreeMap<u32, (Instant, Gid)>,
}

impl Accounts {
    /// The guest to whom a directory belongs; `None` if it is this process's user.
    fn of(&mut self, owner: DirectoryOwner) -> io::Result<Option<Account>> {
        let DirectoryOwner::Guest(uid) = owner else {
            return Ok(None);
        };
        self.groups
            .retain(|_, (found_at, _)| found_at.elapsed() < GROUP_LIFETIME);
        let gid = if let Some((_, gid)) = self.groups.get(&uid) {
            *gid
        } else {
            let gid = find_group(&self.imp, uid).map_err(|error| {
                let text = text(&error);
                let text = format!("cannot find the account of the job's user: {text}");
                io::Error::new(error.kind(), text)
            })?;
            self.groups.insert(uid, (Instant::now(), gid));
            gid
        };
        let uid = Uid::from_raw(uid);
        Ok(Some(Account { uid, gid }))
    }
}

/// Finds the group of a user's account.
fn find_group(imp: &Path, uid: u32) -> io::Result<Gid> {
    let mut command = Command::new(imp);
    command.args(["--group", &uid.to_string()]).env_clear();
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output()?;
    let gid = str::from_utf8(&output.stdout).ok();
    let gid = gid.and_then(|text| text.trim_end().parse().ok());
    match gid.filter(|_| output.status.success()) {
        Some(gid) => Ok(Gid::from_raw(gid)),
        None => Err(io::Error::new(ErrorKind::NotFound, "there is none")),
    }
}

/// The text of an error, without its number.
fn text(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_owned()
}

/// Makes the directory of a job, with its files. If an earlier service has made it, files that a process may have changed are left as
/// they are.
fn make(path: &Path, directory: &JobDirectory, account: Option<Account>) -> io::Result<()> {
    let described = |error: io::Error| io::Error::new(error.kind(), text(&error));
    if account.is_some() {
        make_public_parents(path).map_err(described)?;
    }
    let top = make_directory(CWD, path.as_os_str()).map_err(|errno| described(errno.into()))?;
    if account.is_some() && fstat(&top)?.st_uid != geteuid().as_raw() {
        // The guest has it, with its files: this process must not write there.
        return Ok(());
    }
    let mut tree = Tree {
        top: &top,
        account,
        open: Vec::new(),
    };
    for file in &*directory.files {
        tree.add(file).map_err(|error| {
            let path = file.path.to_string_lossy();
            let path = shorten(&path);
            let text = format!("`{}`: {}", path.escape_debug(), text(&error));
            io::Error::new(error.kind(), text)
        })?;
    }
    tree.close_from(0)?;
    give(&top, account)?;
    Ok(())
}

/// Makes the services' own directories above that of a guest's job, which guests can enter and not list.
fn make_public_parents(path: &Path) -> io::Result<()> {
    let parents = path.ancestors().skip(1).take(PUBLIC_DIRECTORY_LEVELS);
    let parents: Vec<_> = parents.collect();
    for parent in parents.into_iter().rev() {
        if !parent.exists() {
            fs::create_dir(parent)?;
            fs::set_permissions(parent, Permissions::from_mode(0o711))?;
        }
    }
    Ok(())
}

/// Makes a directory that only this process's user has access to, unless it is there, and opens it.
fn make_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Gives an open file to a guest. Its permissions are set after that: a change of its user takes some away.
fn give(file: impl AsFd, account: Option<Account>) -> Result<(), Errno> {
    match account {
        Some(account) => fchown(file, Some(account.uid), Some(account.gid)),
        None => Ok(()),
    }
}

/// The files of a job while they are made, in their order.
#[derive(Debug)]
struct Tree<'a> {
    top: &'a OwnedFd,
    account: Option<Account>,
    /// The directories above the next file, outermost first: each is opened once.
    open: Vec<OpenDirectory>,
}

#[derive(Debug)]
struct OpenDirectory {
    name: OsString,
    directory: OwnedFd,
    /// Set when the files in it have been made: they may forbid that.
    permissions: Mode,
}

impl Tree<'_> {
    fn add(&mut self, file: &JobFile) -> io::Result<()> {
        let names = file.path.components().filter_map(|name| match name {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        let names: Vec<_> = names.collect();
        let Some((name, parents)) = names.split_last() else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let pairs = self.open.iter().zip(parents);
        let present = pairs.take_while(|(open, name)| open.name == **name).count();
        self.close_from(present)?;
        for parent in parents.get(present..).unwrap_or_default() {
            self.enter(parent, Mode::RWXU)?;
        }
        let permissions = Mode::from_raw_mode(file.permissions);
        match &file.content {
            FileContent::Directory => self.enter(name, permissions),
            FileContent::Regular(bytes) => self.add_regular(name, bytes, permissions),
            FileContent::Link(target) => self.add_link(name, target),
        }
    }

    /// The innermost open directory.
    fn directory(&self) -> BorrowedFd<'_> {
        let last = self.open.last();
        last.map_or(self.top.as_fd(), |open| open.directory.as_fd())
    }

    /// Makes and opens a directory in the innermost one.
    fn enter(&mut self, name: &OsStr, permissions: Mode) -> io::Result<()> {
        let directory = make_directory(self.directory(), name)?;
        give(&directory, self.account)?;
        self.open.push(OpenDirectory {
            name: name.to_owned(),
            directory,
            permissions,
        });
        Ok(())
    }

    /// Closes the directories below this number of them.
    fn close_from(&mut self, kept: usize) -> io::Result<()> {
        while self.open.len() > kept
            && let Some(open) = self.open.pop()
        {
            fchmod(&open.directory, open.permissions)?;
        }
        Ok(())
    }

    fn add_regular(&self, name: &OsStr, bytes: &[u8], permissions: Mode) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let open = || openat(self.directory(), name, flags, Mode::RUSR | Mode::WUSR);
        let created = match open() {
            Err(Errno::EXIST) if self.account.is_none() => return Ok(()),
            Err(Errno::EXIST) => {
                // An earlier service was killed before the guest got the directory: a part may be missing.
                unlinkat(self.directory(), name, AtFlags::empty())?;
                File::from(open()?)
            }
            created => File::from(created?),
        };
        (&created).write_all(bytes)?;
        give(&created, self.account)?;
        fchmod(&created, permissions)?;
        Ok(())
    }

    fn add_link(&self, name: &OsStr, target: &str) -> io::Result<()> {
        match symlinkat(target, self.directory(), name) {
            Err(Errno::EXIST) => return Ok(()),
            made => made?,
        }
        if let Some(account) = self.account {
            let (uid, gid) = (Some(account.uid), Some(account.gid));
            chownat(self.directory(), name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn file(path: &str, content: FileContent, permissions: u32) -> JobFile {
        JobFile {
            path: path.into(),
            content,
            permissions,
        }
    }

    fn regular(path: &str) -> JobFile {
        file(path, FileContent::Regular(path.into()), 0o640)
    }

    fn directory(owner: DirectoryOwner, files: Vec<JobFile>) -> JobDirectory {
        JobDirectory {
            job: JobId::new(1),
            owner,
            files: files.into(),
        }
    }

    fn permissions(path: &Path) -> u32 {
        path.symlink_metadata().expect("there").mode() & 0o7777
    }

    #[test]
    fn files_are_made_with_their_directories_and_permissions() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("1");
        let files = vec![
            // No more files could be made in it.
            file("a", FileContent::Directory, 0o500),
            file("a/link", FileContent::Link("../c/d/e".to_owned()), 0o777),
            regular("a/x"),
            regular("b"),
            regular("c/d/e"),
            regular("c/d/f"),
            regular("c/g"),
        ];
        let wanted = directory(DirectoryOwner::Service, files);
        make(&path, &wanted, None).expect("made");
        assert_eq!(permissions(&path), 0o700);
        for (name, expected) in [("a", 0o500), ("a/x", 0o640), ("c", 0o700), ("c/d", 0o700)] {
            assert_eq!(permissions(&path.join(name)), expected, "{name}");
        }
        for name in ["a/x", "b", "c/d/e", "c/d/f", "c/g"] {
            let text = fs::read_to_string(path.join(name)).expect("read");
            assert_eq!(text, name);
        }
        let text = fs::read_to_string(path.join("a/link")).expect("read");
        assert_eq!(text, "c/d/e");
        // Another service finds it, changed by the job.
        fs::write(path.join("b"), "changed").expect("written");
        make(&path, &wanted, None).expect("made");
        assert_eq!(fs::read_to_string(path.join("b")).expect("read"), "changed");
    }

    #[test]
    fn no_link_is_followed_and_errors_name_the_file() {
        let folder = tempfile::tempdir().expect("made");
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).expect("made");
        let path = folder.path().join("1");
        let link = file("a", FileContent::Link("../outside".to_owned()), 0o777);
        make(&path, &directory(DirectoryOwner::Service, vec![link]), None).expect("made");
        let wanted = directory(DirectoryOwner::Service, vec![regular("a/x")]);
        let error = make(&path, &wanted, None).expect_err("a link");
        assert_eq!(error.to_string(), "`a/x`: Not a directory");
        assert_eq!(fs::read_dir(&outside).expect("read").count(), 0);
        let error = make(&path.join("a/b/c"), &wanted, None).expect_err("no parent");
        assert_eq!(error.to_string(), "No such file or directory");
    }

    #[test]
    fn a_directory_that_is_removed_before_it_is_made_does_not_stay() {
        let folder = tempfile::tempdir().expect("made");
        let event = || eventfd(0, EventfdFlags::NONBLOCK).expect("made");
        let (remover, _failures) = DirectoryRemover::start(event()).expect("started");
        let directories = JobDirectories::start(remover, PathBuf::new(), event()).expect("started");
        let path = folder.path().join("1");
        let wanted = directory(DirectoryOwner::Service, vec![regular("a/x")]);
        directories.make(path.clone(), wanted.clone());
        directories.remove(path.clone());
        directories.make(folder.path().join("no/2"), wanted);
        let results: Vec<_> = directories.results.iter().take(2).collect();
        assert!(matches!(
            results.as_slice(),
            [(_, Ok(())), (_, Err(error))] if error.kind() == ErrorKind::NotFound
        ));
        while path.exists() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_guest_without_an_account_has_no_directory() {
        let mut accounts = Accounts {
            // It prints no group.
            imp: PathBuf::from("/bin/true"),
            groups: BTreeMap::new(),
        };
        let error = accounts.of(DirectoryOwner::Guest(4_000_000_000));
        let text = "cannot find the account of the job's user: there is none";
        assert_eq!(error.expect_err("no account").to_string(), text);
        let own = accounts.of(DirectoryOwner::Service).expect("no guest");
        assert!(own.is_none());
    }
}
