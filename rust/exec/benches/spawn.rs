//! The cost of a task: starts per second beside bare `posix_spawn`, and the reaper's memory per running task.
//!
//! `cargo bench -p penstock-exec --bench spawn [-- TASKS RUNNING]`

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use penstock_exec::protocol::{
    Event, Group, Input, Message, Output, Pmi, Relay, Request, TaskSpec,
};
use penstock_exec::{Client, EnvironmentBlock, JobId, TaskId, TaskRank};

const BATCH: usize = 100;

fn start_reaper(directory: &Path, cgroup: &str) -> Child {
    let owner_only = fs::Permissions::from_mode(0o700);
    fs::set_permissions(directory, owner_only).expect("it is new");
    let mut reaper = Command::new(env!("CARGO_BIN_EXE_penstock-reaper"))
        .arg("--directory")
        .arg(directory)
        .args(["--cgroup", cgroup])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the reaper starts");
    let mut line = String::new();
    let output = reaper.stdout.take().expect("piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it listens");
    reaper
}

fn main() {
    // Cargo adds `--bench`.
    let numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let tasks = numbers.first().copied().unwrap_or(5_000);
    let running = numbers.get(1).copied().unwrap_or(10_000);

    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let [plain, own] = &folders;
    let mut unconfined = start_reaper(plain.path(), "none");
    let mut without_cgroups = Service::connect(plain.path());
    let mut reaper = start_reaper(own.path(), "auto");
    let mut service = Service::connect(own.path());

    for round in 1..=3 {
        let bare = rate(tasks, || bare_spawns(tasks));
        let many_jobs = rate(tasks, || service.run_to_the_end(tasks, 1));
        service.forget_all();
        let one_job = rate(tasks, || service.run_to_the_end(tasks, tasks));
        service.forget_all();
        let no_cgroups = rate(tasks, || without_cgroups.run_to_the_end(tasks, 1));
        without_cgroups.forget_all();
        println!(
            "round {round}: bare posix_spawn {bare:.0}/s; reaper: one-task jobs {many_jobs:.0}/s ({:.2} of bare), \
             tasks of one job {one_job:.0}/s ({:.2} of bare), one-task jobs without cgroups {no_cgroups:.0}/s",
            many_jobs / bare,
            one_job / bare
        );
    }

    let pid = reaper.id();
    let before = Memory::of(pid);
    let started = rate(running, || service.start_sleepers(running));
    let after = Memory::of(pid);
    let per_task = after.uss_kib.saturating_sub(before.uss_kib) * 1024 / running as u64;
    println!(
        "{running} running one-task jobs: started at {started:.0}/s; reaper USS {} KiB -> {} KiB ({per_task} B per \
         task), page tables {} KiB -> {} KiB",
        before.uss_kib, after.uss_kib, before.page_tables_kib, after.page_tables_kib,
    );
    let killed = rate(running, || service.kill_all());
    println!("killed and reaped at {killed:.0} jobs/s");
    service.forget_all();
    service.request(&Request::Shutdown);
    without_cgroups.request(&Request::Shutdown);
    unconfined.wait().expect("it ends");
    reaper.wait().expect("it ends");
}

fn rate(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    #[expect(clippy::cast_precision_loss, reason = "thousands")]
    let count = count as f64;
    count / start.elapsed().as_secs_f64()
}

/// Spawns and waits with the standard library, which uses `posix_spawn` if there are no hooks.
fn bare_spawns(count: usize) {
    for _ in 0..count {
        let mut command = Command::new("/bin/true");
        command.env_clear().stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("there is a `true`");
        child.wait().expect("it ends");
    }
}

/// A service that counts what it receives.
struct Service {
    client: Client,
    jobs: usize,
    started: usize,
    ended: usize,
    empty: usize,
}

impl Service {
    fn connect(directory: &Path) -> Self {
        Self {
            client: Client::connect(directory).expect("it listens"),
            jobs: 0,
            started: 0,
            ended: 0,
            empty: 0,
        }
    }

    fn request(&mut self, request: &Request) {
        let sent = self.client.send(request).expect("connected");
        while self.receive() != Some(sent) {}
    }

    /// Handles a message. Returns the id of a request that has ended.
    fn receive(&mut self) -> Option<u32> {
        match self.client.receive().expect("connected") {
            Message::Done { id, errno } => {
                assert_eq!(errno, 0);
                return Some(id);
            }
            Message::Hello(_) => {}
            Message::Events(events) => {
                for event in events {
                    match event {
                        Event::Started { .. } => self.started += 1,
                        Event::Ended { .. } => self.ended += 1,
                        Event::Empty { .. } => self.empty += 1,
                        Event::TaskEmpty { .. }
                        | Event::OomKilled { .. }
                        | Event::OutputDropped { .. }
                        | Event::OutputHeld { .. } => {}
                        Event::Failed { task, failure } => panic!("{task:?}: {failure:?}"),
                    }
                }
            }
        }
        None
    }

    /// Requests tasks, divided into jobs of this size.
    fn spawn(&mut self, arguments: &[&str], count: usize, tasks_per_job: usize) {
        self.jobs = count.div_ceil(tasks_per_job);
        let text = |text: &str| CString::new(text).expect("no zero byte");
        let spec = |number: usize| TaskSpec {
            task: TaskId {
                job: JobId::new((number / tasks_per_job) as u64),
                rank: TaskRank(u32::try_from(number % tasks_per_job).expect("few")),
            },
            arguments: arguments.iter().map(|argument| text(argument)).collect(),
            environment: EnvironmentBlock::default(),
            directory: text("/"),
            stdin: Input::Null,
            stdout: Output::Null,
            stderr: Output::Null,
            relay: Relay::None,
            cpus: Vec::new(),
            limits: Vec::new(),
            cgroup_limits: penstock_exec::CgroupLimits::default(),
            umask: 0o022,
            group: Group::Session,
            guest: None,
            pmi: Pmi::None,
        };
        for first in (0..count).step_by(BATCH) {
            let batch = (first..count.min(first + BATCH)).map(spec);
            self.request(&Request::Spawn(batch.collect()));
        }
    }

    fn run_to_the_end(&mut self, count: usize, tasks_per_job: usize) {
        self.spawn(&["/bin/true"], count, tasks_per_job);
        while self.ended < count || self.empty < self.jobs {
            self.receive();
        }
    }

    fn start_sleepers(&mut self, count: usize) {
        self.spawn(&["/bin/sleep", "100000"], count, 1);
        assert_eq!((self.started, self.ended), (count, 0));
    }

    fn kill_all(&mut self) {
        let jobs: Vec<_> = (0..self.jobs).map(|job| JobId::new(job as u64)).collect();
        for batch in jobs.chunks(BATCH) {
            self.request(&Request::Kill(batch.to_vec()));
        }
        while self.empty < self.jobs {
            self.receive();
        }
    }

    fn forget_all(&mut self) {
        let jobs = (0..self.jobs).map(|job| JobId::new(job as u64));
        self.request(&Request::Forget(jobs.collect()));
        (self.started, self.ended, self.empty) = (0, 0, 0);
    }
}

/// The memory of a process.
struct Memory {
    uss_kib: u64,
    page_tables_kib: u64,
}

impl Memory {
    fn of(pid: u32) -> Self {
        let field = |path: &Path, name: &str| -> u64 {
            let text = fs::read_to_string(path).expect("readable");
            text.lines()
                .filter_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next())
                .filter_map(|number| number.parse::<u64>().ok())
                .sum()
        };
        let rollup = format!("/proc/{pid}/smaps_rollup");
        let rollup = Path::new(&rollup);
        let status = format!("/proc/{pid}/status");
        Self {
            uss_kib: field(rollup, "Private_Clean:") + field(rollup, "Private_Dirty:"),
            page_tables_kib: field(Path::new(&status), "VmPTE:"),
        }
    }
}
