//! A reaper in a temporary directory, and a service that talks to it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::CString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use penstock_exec::protocol::{
    Event, Group, Input, Message, Output, Pmi, Relay, Request, TaskSpec,
};
use penstock_exec::{
    CgroupLimits, Client, JobId, ProcessId, SpawnFailure, TaskEnd, TaskId, TaskRank, WaitStatus,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock-reaper");

/// After this long without a message a test fails instead of hanging.
const HANG: Duration = Duration::from_secs(120);

/// A reaper and its runtime directory.
pub struct Reaper {
    /// The second standby: the grandparent of the process that starts the tasks.
    pub process: Child,
    pub directory: PathBuf,
    /// Removes the directory with the reaper.
    folder: Option<tempfile::TempDir>,
}

impl Reaper {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let permissions = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), permissions).expect("the test owns it");
        let mut reaper = Self::start_in(folder.path(), arguments);
        reaper.folder = Some(folder);
        reaper
    }

    pub fn start_in(directory: &Path, arguments: &[&str]) -> Self {
        let mut command = command(directory);
        command.args(arguments);
        Self::start_by(command, directory)
    }

    /// Starts the reaper by a command that executes it.
    pub fn start_by(mut command: Command, directory: &Path) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the reaper starts");
        let mut line = String::new();
        let output = process.stdout.as_mut().expect("piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("the reaper writes a line");
        assert_eq!(line, "listening\n");
        Self {
            process,
            directory: directory.to_owned(),
            folder: None,
        }
    }

    pub fn connect(&self) -> Service {
        Service::new(Client::connect(&self.directory).expect("the reaper listens"))
    }

    /// The process that starts the tasks.
    pub fn pid(&self) -> u32 {
        self.holder("lock")
    }

    /// The standby: the parent of that process.
    pub fn standby(&self) -> u32 {
        self.holder("standby")
    }

    fn holder(&self, lock: &str) -> u32 {
        let pid = std::fs::read_to_string(self.path(lock)).expect("it has the lock");
        pid.trim().parse().expect("a pid")
    }

    /// Kills the reaper and its standbys as a crash would: the tasks live on.
    pub fn crash(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it was killed");
        self.crash_standby();
        self.crash_without_standby();
    }

    /// Kills the process that starts the tasks.
    pub fn crash_without_standby(&self) {
        self.kill(self.pid());
    }

    /// Kills the parent of that process.
    pub fn crash_standby(&self) {
        self.kill(self.standby());
    }

    fn kill(&self, pid: u32) {
        let target = Pid::from_raw(pid.cast_signed()).expect("not 0");
        let process = pidfd_open(target, PidfdFlags::empty()).expect("it runs");
        assert!(self.is_own(pid), "{pid} is another process");
        pidfd_send_signal(&process, Signal::KILL).expect("it runs");
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).expect("it ends");
    }

    /// Connects when the successor of a killed reaper listens.
    pub fn connect_to_successor(&self) -> Service {
        loop {
            if let Ok(client) = Client::connect(&self.directory) {
                return Service::new(client);
            }
            std::thread::yield_now();
        }
    }

    /// Whether a process is one of this reaper: in a container it has written another pid.
    fn is_own(&self, pid: u32) -> bool {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let directory = self.directory.as_os_str().as_encoded_bytes();
        arguments
            .split(|byte| *byte == 0)
            .any(|argument| argument == directory)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // The reaper ends at once if it has no process: the tests that leave some have failed.
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.process.kill();
            let _ = self.process.wait();
            for pid in [self.standby(), self.pid()] {
                if self.is_own(pid) {
                    self.kill(pid);
                }
            }
        }
        if self.folder.is_some()
            && let Some(base) = cgroup_base(&self.directory)
        {
            remove_cgroups(&base);
        }
    }
}

/// The directory in which a reaper makes the cgroups of its jobs, if it does.
pub fn cgroup_base(directory: &Path) -> Option<PathBuf> {
    let base = std::fs::read_to_string(directory.join("cgroup")).ok()?;
    let path = cgroup_mount()?.join(base.trim_start_matches('/'));
    path.exists().then_some(path)
}

/// The mount point of the cgroup v2 hierarchy.
pub fn cgroup_mount() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next() == Some("cgroup2")).then(|| PathBuf::from(path))
    })
}

/// Removes cgroups that a killed reaper has left. The test has ended: a failed one may leave processes, too.
fn remove_cgroups(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroups(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(path);
}

/// The pids that tasks have written to a file, a line each.
pub fn pids(text: &str) -> Vec<u32> {
    let parse = |line: &str| line.trim().parse().expect("a pid");
    text.lines().map(parse).collect()
}

/// Whether a process has not begun to exit.
///
/// A job is empty when all its processes have. One of them may exist for a moment longer: it leaves its cgroup before
/// its exit is complete, and a zombie waits for its parent.
pub fn is_alive(pid: u32) -> bool {
    const PF_EXITING: u32 = 4;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let flags = fields.get(6).and_then(|flags| flags.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING == 0)
}

/// Waits until a process that has ended is reaped.
pub fn wait_until_reaped(pid: u32) {
    let start = Instant::now();
    while std::fs::exists(format!("/proc/{pid}")).expect("/proc is readable") {
        assert!(start.elapsed() < HANG, "process {pid} is not reaped");
        std::thread::yield_now();
    }
}

pub fn command(directory: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("--directory").arg(directory);
    command.stdin(Stdio::null());
    command
}

/// A service's connection, and the events that it has received.
pub struct Service {
    pub client: Client,
    pub events: Vec<Event>,
}

impl Service {
    pub fn new(client: Client) -> Self {
        client
            .stream()
            .set_read_timeout(Some(HANG))
            .expect("not zero");
        Self {
            client,
            events: Vec::new(),
        }
    }

    /// Sends a request and waits for its end. Returns the error number.
    pub fn request(&mut self, request: &Request) -> i32 {
        let sent = self.client.send(request).expect("connected");
        loop {
            match self.client.receive().expect("connected") {
                Message::Done { id, errno } if id == sent => return errno,
                Message::Events(events) => self.events.extend(events),
                message => panic!("{message:?} instead of the end of {sent}"),
            }
        }
    }

    /// As `request`, when earlier requests may end meanwhile.
    pub fn request_after_others(&mut self, request: &Request) -> i32 {
        let sent = self.client.send(request).expect("connected");
        loop {
            match self.client.receive().expect("connected") {
                Message::Done { id, errno } if id == sent => return errno,
                Message::Events(events) => self.events.extend(events),
                _ => {}
            }
        }
    }

    /// Waits for the first event, old or new, of which the function makes something.
    pub fn wait<T>(&mut self, matches: impl Fn(&Event) -> Option<T>) -> T {
        let mut next = 0;
        loop {
            if let Some(event) = self.events.get(next) {
                next += 1;
                if let Some(value) = matches(event) {
                    return value;
                }
            } else {
                self.receive();
            }
        }
    }

    pub fn receive(&mut self) {
        match self.client.receive().expect("connected") {
            Message::Events(events) => self.events.extend(events),
            Message::Done { .. } => {}
            message @ Message::Hello(_) => panic!("{message:?} instead of events"),
        }
    }

    pub fn spawn(&mut self, spec: TaskSpec) {
        assert_eq!(self.request(&Request::Spawn(vec![spec])), 0);
    }

    pub fn wait_for_start(&mut self, wanted: TaskId) -> ProcessId {
        self.wait(|event| match event {
            Event::Started { task, process } if *task == wanted => Some(*process),
            Event::Failed { task, failure } if *task == wanted => panic!("{task:?}: {failure:?}"),
            _ => None,
        })
    }

    pub fn wait_for_failure(&mut self, wanted: TaskId) -> SpawnFailure {
        self.wait(|event| match event {
            Event::Failed { task, failure } if *task == wanted => Some(*failure),
            _ => None,
        })
    }

    pub fn wait_for_end(&mut self, wanted: TaskId) -> TaskEnd {
        self.wait(|event| match event {
            Event::Ended { task, end } if *task == wanted => Some(*end),
            _ => None,
        })
    }

    pub fn wait_for_empty(&mut self, wanted: u64) {
        self.wait(|event| {
            (*event
                == Event::Empty {
                    job: JobId::new(wanted),
                })
            .then_some(())
        });
    }

    /// Runs a task to its end.
    pub fn run(&mut self, spec: TaskSpec) -> WaitStatus {
        let task = spec.task;
        self.spawn(spec);
        self.wait_for_end(task).status
    }

    /// Ends the reaper, which must have no process.
    pub fn shut_down(mut self, mut reaper: Reaper) {
        assert_eq!(self.request(&Request::Shutdown), 0);
        assert!(reaper.process.wait().expect("it ends").success());
    }
}

pub fn task(job: u64, rank: u32) -> TaskId {
    TaskId {
        job: JobId::new(job),
        rank: TaskRank(rank),
    }
}

pub fn text(text: &str) -> CString {
    CString::new(text).expect("no zero byte")
}

pub fn file(path: &Path) -> CString {
    text(path.to_str().expect("UTF-8"))
}

/// A task with the standard streams of `/dev/null`.
pub fn spec(id: TaskId, arguments: &[&str]) -> TaskSpec {
    TaskSpec {
        task: id,
        arguments: arguments.iter().map(|argument| text(argument)).collect(),
        environment: [text("PATH=/usr/bin:/bin")].into_iter().collect(),
        directory: text("/"),
        stdin: Input::Null,
        stdout: Output::Null,
        stderr: Output::Null,
        relay: Relay::None,
        cpus: Vec::new(),
        limits: Vec::new(),
        cgroup_limits: CgroupLimits::default(),
        umask: 0o022,
        group: Group::Session,
        guest: None,
        pmi: Pmi::None,
    }
}

pub fn shell(id: TaskId, script: &str) -> TaskSpec {
    spec(id, &["sh", "-c", script])
}

/// A FIFO: a test and a task meet at it without waiting for a time.
pub fn fifo(path: &Path) {
    let status = Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(status.success());
}

/// Waits until all writers of a FIFO have closed it, and returns what they wrote.
pub fn read_fifo(path: &Path) -> String {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|mut fifo| fifo.read_to_string(&mut text))
        .expect("a FIFO");
    text
}
