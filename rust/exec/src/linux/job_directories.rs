//! The directories of jobs, made by a thread: their files are a user's choice, and the event loop does not wait for them.
//!
//! This process makes a guest's directory in one that guests can enter and not list. Until everything is there, only this
//! process has access to it. All files in it are the guest's, by user and group, before they get their permissions.
//!
//! The accounts of guests may be those of a directory service that does not answer. Each is looked up by a thread of its own, for
//! a limited time: only jobs of the same guest wait for it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use penstock_flux::job_files::shorten;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fchmod, fchown, mkdirat, openat, symlinkat,
};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::remove_directory::DirectoryRemover;
use crate::service::{DirectoryOwner, FileContent, JobDirectory, JobFile};
use crate::types::JobId;

/// The directories above that of a guest's job which are the services' own: `/run/penstock/INSTANCE/jobs`.
const PUBLIC_DIRECTORY_LEVELS: usize = 3;

/// Time for which the group of a user's account is known.
const GROUP_LIFETIME: Duration = Duration::from_secs(10);
/// Time after which a lookup of an account has failed.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are read of each output of a lookup.
const MAX_LOOKUP_OUTPUT_BYTES: usize = 1024;

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
    /// The group of this user has been looked up.
    Found(u32, io::Result<Gid>),
}

/// Finds the group of a user's account.
type Lookup = Arc<dyn Fn(u32) -> io::Result<Gid> + Send + Sync>;

impl JobDirectories {
    /// Starts the thread. `imp` is the program `penstock-imp`, and `event` is what [`event`](Self::event) returns.
    pub(super) fn start(
        remover: DirectoryRemover,
        imp: PathBuf,
        event: OwnedFd,
    ) -> io::Result<Self> {
        let lookup = move |uid: u32| {
            let mut command = Command::new(&imp);
            command.args(["--group", &uid.to_string()]).env_clear();
            command.stdin(Stdio::null());
            find_group(command, uid, LOOKUP_TIMEOUT)
        };
        Self::start_with(remover, Arc::new(lookup), event)
    }

    fn start_with(remover: DirectoryRemover, lookup: Lookup, event: OwnedFd) -> io::Result<Self> {
        let (queue, tasks) = channel();
        let (sender, results) = channel();
        let mut maker = Maker {
            lookup,
            queue: queue.clone(),
            groups: BTreeMap::new(),
            waiting: BTreeMap::new(),
            remover,
            results: sender,
            event: event.try_clone()?,
        };
        thread::Builder::new().spawn(move || tasks.iter().for_each(|task| maker.run(task)))?;
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

/// A user and a group that get a file.
#[derive(Debug, Clone, Copy)]
struct Account {
    uid: Uid,
    gid: Gid,
}

/// The state of the thread.
///
/// This program is not linked with the system's C library, which finds accounts: `penstock-imp` does that.
struct Maker {
    lookup: Lookup,
    queue: Sender<Task>,
    /// The groups of users, and when they were found.
    groups: BTreeMap<u32, (Instant, Gid)>,
    /// The directories that wait for the lookup of their user's group.
    waiting: BTreeMap<u32, Vec<(PathBuf, JobDirectory)>>,
    remover: DirectoryRemover,
    results: Sender<(JobId, io::Result<()>)>,
    event: OwnedFd,
}

impl Maker {
    fn run(&mut self, task: Task) {
        match task {
            Task::Make(path, directory) => self.begin(path, directory),
            Task::Remove(path) => {
                for waiting in self.waiting.values_mut() {
                    waiting.retain(|(other, _)| *other != path);
                }
                self.remover.remove(path);
            }
            Task::Found(uid, result) => self.finish_lookup(uid, &result),
        }
    }

    /// Makes a directory, when its user's group is known.
    fn begin(&mut self, path: PathBuf, directory: JobDirectory) {
        let DirectoryOwner::Guest(uid) = directory.owner else {
            let result = make(&path, &directory, None, &self.remover);
            return self.report(directory.job, result);
        };
        self.groups
            .retain(|_, (found_at, _)| found_at.elapsed() < GROUP_LIFETIME);
        if let Some((_, gid)) = self.groups.get(&uid) {
            return self.make_for(uid, *gid, &path, &directory);
        }
        let is_first = !self.waiting.contains_key(&uid);
        let waiting = self.waiting.entry(uid).or_default();
        waiting.push((path, directory));
        if is_first {
            let (lookup, queue) = (Arc::clone(&self.lookup), self.queue.clone());
            let find = move || {
                let _ = queue.send(Task::Found(uid, lookup(uid)));
            };
            if let Err(error) = thread::Builder::new().spawn(find) {
                self.finish_lookup(uid, &Err(error));
            }
        }
    }

    fn finish_lookup(&mut self, uid: u32, result: &io::Result<Gid>) {
        if let Ok(gid) = result {
            self.groups.insert(uid, (Instant::now(), *gid));
        }
        for (path, directory) in self.waiting.remove(&uid).unwrap_or_default() {
            match result {
                Ok(gid) => self.make_for(uid, *gid, &path, &directory),
                Err(error) => {
                    let text = format!("cannot find the account of user {uid}: {}", text(error));
                    self.report(directory.job, Err(io::Error::new(error.kind(), text)));
                }
            }
        }
    }

    fn make_for(&self, uid: u32, gid: Gid, path: &Path, directory: &JobDirectory) {
        let uid = Uid::from_raw(uid);
        let result = make(path, directory, Some(Account { uid, gid }), &self.remover);
        self.report(directory.job, result);
    }

    fn report(&self, job: JobId, result: io::Result<()>) {
        let _ = self.results.send((job, result));
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// Finds the group of a user's account: a command prints it, or why there is none.
fn find_group(mut command: Command, uid: u32, timeout: Duration) -> io::Result<Gid> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if !has_ended_within(&child, timeout) {
        let _ = child.kill();
        // It may be in a call that it cannot leave.
        let _ = thread::Builder::new().spawn(move || child.wait());
        let text = format!("no answer within {} s", timeout.as_secs());
        return Err(io::Error::new(ErrorKind::TimedOut, text));
    }
    let status = child.wait()?;
    let output = available_text(child.stdout);
    match output.trim_end().parse() {
        Ok(gid) if status.success() => Ok(Gid::from_raw(gid)),
        _ => {
            let errors = available_text(child.stderr);
            let start = format!("penstock-imp: cannot find the account of user {uid}: ");
            let cause = errors.lines().find_map(|line| line.strip_prefix(&start));
            let other = || format!("penstock-imp ended with {status}");
            let text = cause.map_or_else(other, |cause| cause.escape_debug().to_string());
            Err(io::Error::new(ErrorKind::NotFound, text))
        }
    }
}

/// The text that a pipe has now: a process that the command has left may still have the other end.
fn available_text(pipe: Option<impl AsFd>) -> String {
    let mut bytes = [0; MAX_LOOKUP_OUTPUT_BYTES];
    let read = pipe.and_then(|pipe| {
        ioctl_fionbio(&pipe, true).ok()?;
        rustix::io::read(&pipe, &mut bytes).ok()
    });
    let text = bytes.get(..read.unwrap_or(0)).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn has_ended_within(child: &Child, timeout: Duration) -> bool {
    let Ok(pidfd) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return false;
    };
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

/// The text of an error, without its number.
fn text(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_owned()
}

/// Makes the directory of a job, with its files, unless an earlier service has made it: processes of the job may have changed it.
///
/// It is made under another name, so that one of this path is complete. The next service removes the part that
/// a killed one has left.
fn make(
    path: &Path,
    directory: &JobDirectory,
    account: Option<Account>,
    remover: &DirectoryRemover,
) -> io::Result<()> {
    let described = |error: io::Error| io::Error::new(error.kind(), text(&error));
    if account.is_some() {
        make_public_parents(path).map_err(described)?;
    }
    match open_directory(CWD, path.as_os_str()) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(described(errno.into())),
    }
    let (part, top) = make_part(path).map_err(|errno| described(errno.into()))?;
    let filled = fill(&top, directory, account);
    let result = filled.and_then(|()| fs::rename(&part, path).map_err(described));
    if result.is_err() {
        remover.remove(part);
    }
    result
}

/// Makes the directory that gets this path when it is complete, under a name that is not in use.
fn make_part(path: &Path) -> Result<(PathBuf, OwnedFd), Errno> {
    for number in 0.. {
        let part = path.with_extension(number.to_string());
        match make_directory(CWD, part.as_os_str()) {
            // An earlier service has left it, and it is being removed.
            Err(Errno::EXIST) => {}
            made => return made.map(|top| (part, top)),
        }
    }
    Err(Errno::EXIST)
}

/// Makes the files of a job in its directory, and gives it to the guest.
fn fill(top: &OwnedFd, directory: &JobDirectory, account: Option<Account>) -> io::Result<()> {
    let mut tree = Tree {
        top,
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
    give(top, account)?;
    Ok(())
}

/// Makes the services' own directories above that of a guest's job, which guests can enter and not list.
pub(super) fn make_public_parents(path: &Path) -> io::Result<()> {
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

/// Makes a directory that only this process's user has access to, and opens it.
fn make_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    mkdirat(parent, name, Mode::RWXU)?;
    open_directory(parent, name)
}

/// Opens a directory that is no link.
fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
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
        let created = openat(self.directory(), name, flags, Mode::RUSR | Mode::WUSR)?;
        let created = File::from(created);
        (&created).write_all(bytes)?;
        give(&created, self.account)?;
        fchmod(&created, permissions)?;
        Ok(())
    }

    fn add_link(&self, name: &OsStr, target: &str) -> io::Result<()> {
        symlinkat(target, self.directory(), name)?;
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
    use std::sync::Mutex;

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

    fn make_own(path: &Path, wanted: &JobDirectory) -> io::Result<()> {
        make(path, wanted, None, &remover())
    }

    fn remover() -> DirectoryRemover {
        let event = eventfd(0, EventfdFlags::NONBLOCK).expect("made");
        let (remover, _failures) = DirectoryRemover::start(event).expect("started");
        remover
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
        make_own(&path, &wanted).expect("made");
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
        fs::remove_file(path.join("c/g")).expect("removed");
        make_own(&path, &wanted).expect("made");
        assert_eq!(fs::read_to_string(path.join("b")).expect("read"), "changed");
        assert!(!path.join("c/g").exists());
    }

    #[test]
    fn no_part_of_a_directory_is_used_that_a_killed_service_has_left() {
        let files = [
            file("a", FileContent::Directory, 0o500),
            file("a/link", FileContent::Link("../b".to_owned()), 0o777),
            regular("a/x"),
            regular("b"),
        ];
        let wanted = directory(DirectoryOwner::Service, files.to_vec());
        for made in 0..=files.len() {
            let folder = tempfile::tempdir().expect("made");
            let path = folder.path().join("1");
            let files = files.iter().take(made).cloned();
            let part = directory(DirectoryOwner::Service, files.collect());
            let (part_path, top) = make_part(&path).expect("made");
            fill(&top, &part, None).expect("filled");
            if made == wanted.files.len() {
                fs::write(part_path.join("b"), "").expect("written in part");
            }
            make_own(&path, &wanted).expect("made");
            for name in ["a/x", "b"] {
                let text = fs::read_to_string(path.join(name)).expect("read");
                assert_eq!(text, name, "{made} files");
            }
            assert_eq!(permissions(&path.join("a")), 0o500);
            assert!(part_path.exists());
        }
    }

    #[test]
    fn no_link_is_followed_and_errors_name_the_file() {
        let folder = tempfile::tempdir().expect("made");
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).expect("made");
        let path = folder.path().join("1");
        let link = file("a", FileContent::Link("../outside".to_owned()), 0o777);
        let wanted = directory(DirectoryOwner::Service, vec![link, regular("a/x")]);
        let error = make_own(&path, &wanted).expect_err("a link");
        assert_eq!(error.to_string(), "`a/x`: File exists");
        assert_eq!(fs::read_dir(&outside).expect("read").count(), 0);
        std::os::unix::fs::symlink(&outside, folder.path().join("2")).expect("made");
        let error = make_own(&folder.path().join("2"), &wanted).expect_err("a link");
        assert_eq!(error.to_string(), "Not a directory");
        let error = make_own(&path.join("a/b/c"), &wanted).expect_err("no parent");
        assert_eq!(error.to_string(), "No such file or directory");
    }

    #[test]
    fn a_directory_that_is_removed_before_it_is_made_does_not_stay() {
        let folder = tempfile::tempdir().expect("made");
        let event = eventfd(0, EventfdFlags::NONBLOCK).expect("made");
        let directories = JobDirectories::start(remover(), PathBuf::new(), event).expect("started");
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
    fn a_directory_that_cannot_be_made_leaves_nothing() {
        let folder = tempfile::tempdir().expect("made");
        let long = regular(&"z".repeat(256));
        let wanted = directory(DirectoryOwner::Service, vec![regular("a"), long]);
        let error = make_own(&folder.path().join("1"), &wanted).expect_err("a long name");
        assert!(
            error.to_string().ends_with("`: File name too long"),
            "{error}"
        );
        while fs::read_dir(folder.path()).expect("read").next().is_some() {
            thread::yield_now();
        }
    }

    /// The thread, by which users' groups are found in this way.
    fn directories_with(
        lookup: impl Fn(u32) -> io::Result<Gid> + Send + Sync + 'static,
    ) -> JobDirectories {
        let event = eventfd(0, EventfdFlags::NONBLOCK).expect("made");
        JobDirectories::start_with(remover(), Arc::new(lookup), event).expect("started")
    }

    fn guests_directory(job: u64, uid: u32) -> JobDirectory {
        JobDirectory {
            job: JobId::new(job),
            ..directory(DirectoryOwner::Guest(uid), Vec::new())
        }
    }

    #[test]
    fn a_lookup_that_hangs_holds_up_the_jobs_of_that_user_alone() {
        let folder = tempfile::tempdir().expect("made");
        let (answer, answers) = channel::<()>();
        let answers = Mutex::new(answers);
        let directories = directories_with(move |uid| {
            if uid == 1 {
                let answers = answers.lock().expect("no panic");
                answers.recv().expect("an answer");
            }
            Err(ErrorKind::NotFound.into())
        });
        let path = |job: u64| folder.path().join(job.to_string());
        for (job, uid) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
            directories.make(path(job), guests_directory(job, uid));
        }
        let own = JobDirectory {
            job: JobId::new(5),
            ..directory(DirectoryOwner::Service, Vec::new())
        };
        directories.make(path(5), own);
        // The job is cancelled.
        directories.remove(path(2));
        let next = || directories.results.recv().expect("a result");
        let mut first = [next(), next()].map(|(job, result)| (job.get(), result.is_ok()));
        first.sort_unstable();
        assert_eq!(first, [(4, false), (5, true)]);
        answer.send(()).expect("sent");
        let jobs = [next(), next()].map(|(job, result)| (job.get(), result.is_ok()));
        assert_eq!(jobs, [(1, false), (3, false)]);
        assert!(directories.results.try_recv().is_err());
    }

    #[test]
    fn a_lookup_without_an_answer_has_failed() {
        let (input, _writer) = io::pipe().expect("made");
        let mut command = Command::new("cat");
        command.stdin(input);
        let error = find_group(command, 1, Duration::ZERO).expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "no answer within 0 s");
    }

    #[test]
    fn the_job_of_a_guest_whose_account_is_not_found_fails_with_the_cause() {
        let cases = [
            (
                "echo other >&2; echo 'penstock-imp: cannot find the account of user 4000000000: it is out' >&2; exit 1",
                "it is out",
            ),
            ("exit 3", "penstock-imp ended with exit status: 3"),
        ];
        for (script, cause) in cases {
            let directories = directories_with(move |uid| {
                let mut command = Command::new("sh");
                command.args(["-c", script]);
                find_group(command, uid, LOOKUP_TIMEOUT)
            });
            let wanted = guests_directory(1, 4_000_000_000);
            directories.make(PathBuf::from("/nowhere/1"), wanted);
            let (_, result) = directories.results.recv().expect("a result");
            let text = format!("cannot find the account of user 4000000000: {cause}");
            assert_eq!(result.expect_err("no account").to_string(), text);
        }
    }

    #[test]
    fn the_group_that_a_command_prints_is_found() {
        let (input, _writer) = io::pipe().expect("made");
        let mut command = Command::new("sh");
        // The process that it leaves has the pipes. A shell gives a background process another input.
        command.args(["-c", "exec 3<&0; cat <&3 & echo 1234"]);
        command.stdin(input);
        let group = find_group(command, 1, LOOKUP_TIMEOUT).expect("found");
        assert_eq!(group.as_raw(), 1234);
    }
}
