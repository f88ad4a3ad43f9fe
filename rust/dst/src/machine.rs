//! The machine that runs the tasks: execution service and reaper as in production, over a virtual kernel. Tasks outlive the
//! daemon, the service and the reaper, but no power failure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use penstock_exec::log::LogContents;
use penstock_exec::mark::MarkSpace;
use penstock_exec::protocol::{Hello, Message as ReaperMessage, Request, VERSION};
use penstock_exec::service::journal::{JournalContents, JournalId};
use penstock_exec::service::{
    Chunk, Effect, GuestSettings, JobDirectoryPlaces, OutputPlace, Service, Settings, TaskContext,
};
use penstock_exec::{
    BootId, ConnectionId, JobId, OutputReserve, Pid, ProcessId, Reaper, SpawnFailure, Step, TaskId,
    TaskRank, WaitStatus,
};
use penstock_flux::Json;
use penstock_flux::exec::{ExecEvent, ShrinkRequest, StartRequest, StartResponse};
use penstock_flux::topic::exec_method;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message, MessageType};

use crate::hooks::RunningHook;
use crate::network::{End, LinkId, Network};
use crate::output::{JOB_LIMIT, OutputDisk, RESERVE, USER_LIMIT};
use crate::random::Random;
use crate::script::Setup;
use crate::site::{Core, OWNER, cores_of};
use crate::virtual_kernel::{REAPER, VirtualKernel};

const NAME: &str = "job-exec";
const URI: &str = "local:///run/penstock.sock";
/// Iterations of the service without input, after which it only occupies itself.
const MAX_ITERATIONS: usize = 1000;

/// The bytes that the pipes of a job hold.
const PIPE_BYTES: u64 = 1 << 19;

/// A task, or a process that descends from one.
#[derive(Debug, Clone, Copy)]
struct Owner {
    job: u64,
    is_task: bool,
    /// The execution target of the task; `None` if the journal does not have it.
    target: Option<u32>,
}

/// The end of the set-up of a guest's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupEnd {
    /// The program is executed.
    Executed,
    /// It is never executed; the process ends later.
    Failed,
    /// It is never executed; the process has ended.
    Exited,
}

/// Execution service, reaper and kernel.
pub struct Machine {
    service: Option<Service>,
    link: Option<LinkId>,
    decoder: Decoder,
    unsent: Vec<u8>,
    journal: Vec<u8>,
    /// The part of the journal that a power failure leaves.
    journal_synced: usize,
    /// The part of a record that a failed write has left at the end of the journal.
    torn: Vec<u8>,
    /// Whether neither journal nor log can be written.
    is_full: bool,
    /// The write of the journal after this many fails, after this many bytes.
    journal_error: Option<(u32, usize)>,
    kernel: VirtualKernel,
    log_synced: usize,
    rewrites: usize,
    reaper: Option<Reaper>,
    connection: u64,
    to_reaper: VecDeque<(ConnectionId, u32, Request)>,
    from_reaper: VecDeque<(ConnectionId, ReaperMessage)>,
    /// The job of each process.
    owners: BTreeMap<Pid, Owner>,
    /// Tasks that have started, once each.
    started: BTreeSet<TaskId>,
    counted: usize,
    /// Whether no guest's task is set up, such as on a file system that does not respond.
    hangs_setups: bool,
    /// The processes that could not be set up as those of guests.
    failed_setups: BTreeSet<Pid>,
    /// Jobs that had a process when their reaper was killed.
    orphaned: BTreeSet<u64>,
    /// Whether a journal may have lost records, or could not be made.
    has_lost_journal: bool,
    /// The cores of each job with a start request.
    cores: BTreeMap<u64, BTreeSet<Core>>,
    /// The user of each of them.
    users: BTreeMap<u64, u32>,
    setup: Setup,
    pub output: OutputDisk,
    /// The processes of guests whose output the reaper copies.
    piped: BTreeSet<Pid>,
    /// The jobs that a service has decided to start, which is not decided again.
    decided: BTreeSet<u64>,
    /// The execution targets that each job has released while it runs.
    shrunk: BTreeMap<u64, IdSet>,
    boot: u128,
    now: f64,
    violations: Vec<String>,
}

fn settings(boot: u128, setup: Setup) -> Settings {
    let has_limits = setup.guests.write();
    Settings {
        name: NAME.to_owned(),
        owner: OWNER,
        guests: Some(GuestSettings {
            min_uid: 1001,
            no_new_privs: true,
        }),
        boot: BootId(boot),
        task_context: TaskContext {
            uri: URI.to_owned(),
            environment: BTreeMap::new(),
            directory: CString::from(c"/start"),
            job_directories: JobDirectoryPlaces {
                guests: PathBuf::from("/run/jobs"),
                own: PathBuf::from("/state/jobs"),
                former: BTreeMap::new(),
            },
            pmi_sockets: PathBuf::from("/state/pmi"),
            pmix_directories: PathBuf::from("/state/pmix"),
            pmix_log: PathBuf::from("/state/pmix.log"),
            programs: PathBuf::from("/opt/bin/"),
            output: PathBuf::from("/state/output"),
            cpus: "0-3".parse().expect("valid"),
            bind: false,
            umask: 0o022,
            hard_limits: BTreeMap::new(),
        },
        kill_timeout_s: 5.0,
        output_limit: if has_limits { JOB_LIMIT } else { 0 },
        output_reserve: if has_limits { RESERVE.0 } else { 1 },
        user_output_limit: if has_limits { USER_LIMIT } else { 1 },
        end_when_idle: false,
    }
}

impl Machine {
    /// A machine on which nothing runs.
    pub fn new(now: f64, setup: Setup) -> Self {
        Self {
            service: None,
            link: None,
            decoder: Decoder::new(DEFAULT_MAX_FRAME_BYTES),
            unsent: Vec::new(),
            journal: Vec::new(),
            journal_synced: 0,
            torn: Vec::new(),
            is_full: false,
            journal_error: None,
            kernel: VirtualKernel::default(),
            log_synced: 0,
            rewrites: 0,
            reaper: None,
            connection: 0,
            to_reaper: VecDeque::new(),
            from_reaper: VecDeque::new(),
            owners: BTreeMap::new(),
            started: BTreeSet::new(),
            counted: 0,
            hangs_setups: false,
            failed_setups: BTreeSet::new(),
            orphaned: BTreeSet::new(),
            has_lost_journal: false,
            cores: BTreeMap::new(),
            users: BTreeMap::new(),
            setup,
            output: OutputDisk::new(),
            piped: BTreeSet::new(),
            decided: BTreeSet::new(),
            shrunk: BTreeMap::new(),
            boot: 1,
            now,
            violations: Vec::new(),
        }
    }

    /// The link of the service, if it is connected.
    pub fn link(&self) -> Option<LinkId> {
        self.link
    }

    /// Whether the service runs.
    pub fn has_service(&self) -> bool {
        self.service.is_some()
    }

    /// The number of jobs that the service has not forgotten.
    pub fn jobs(&self) -> usize {
        self.service.as_ref().map_or(0, Service::jobs)
    }

    /// The jobs whose tasks have ever started.
    pub fn started_jobs(&self) -> BTreeSet<u64> {
        self.started.iter().map(|task| task.job.get()).collect()
    }

    /// The processes that run.
    pub fn processes(&self) -> usize {
        self.kernel.processes.len()
    }

    /// Whether a job may end without a status, by an exception: its reaper was killed, or a journal is lost.
    pub fn may_have_lost(&self, job: u64) -> bool {
        self.orphaned.contains(&job) || self.has_lost_journal
    }

    /// The jobs of which a task runs.
    pub fn running_jobs(&self) -> BTreeSet<u64> {
        let pids = self.kernel.processes.keys();
        let owners = pids.filter_map(|pid| self.owners.get(pid));
        owners.map(|owner| owner.job).collect()
    }

    /// The greatest wait status of a job's tasks; `None` if one is still running, or none has started.
    pub fn status(&self, job: u64) -> Option<i64> {
        let statuses: Option<Vec<_>> = self.statuses(job).collect();
        statuses?.into_iter().max()
    }

    fn statuses(&self, job: u64) -> impl Iterator<Item = Option<i64>> {
        let tasks =
            self.kernel.spawned.iter().filter(move |(task, pid)| {
                task.job.get() == job && !self.failed_setups.contains(pid)
            });
        tasks.map(|(_, pid)| match self.kernel.statuses.get(pid)? {
            WaitStatus::Exited(code) => Some(i64::from(*code) << 8),
            WaitStatus::Signaled { signal, .. } => Some(i64::from(*signal)),
            WaitStatus::Unknown => None,
        })
    }

    /// Whether a task of a job could not be set up.
    pub fn has_failed_setup(&self, job: u64) -> bool {
        let owners = self.failed_setups.iter().map(|pid| self.owners.get(pid));
        owners.flatten().any(|owner| owner.job == job)
    }

    /// Whether a job has the status that its tasks have had. The tasks on released execution targets do not count.
    pub fn has_status(&self, job: u64, status: i64) -> bool {
        if self.shrunk.contains_key(&job) {
            return self.statuses(job).any(|one| one == Some(status));
        }
        self.status(job) == Some(status)
    }

    /// Takes the violations that were seen.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    // --- the service

    /// Starts service and reaper, if they do not run.
    pub fn start(&mut self, network: &mut Network) {
        let (is_new, is_reaper_new) = (self.service.is_none(), self.reaper.is_none());
        if is_new {
            self.journal.append(&mut self.torn);
            let contents = if self.journal.is_empty() {
                JournalContents::new(URI, JournalId(self.boot))
            } else {
                JournalContents::decode(&self.journal).expect("its header is synced")
            };
            self.decided
                .extend(contents.jobs.keys().map(|job| job.get()));
            let settings = settings(self.boot, self.setup);
            self.service = Some(Service::new(settings, contents));
            self.run_service(network);
        }
        if is_reaper_new {
            self.start_reaper();
        }
        if is_new || is_reaper_new {
            self.connect_reaper(network);
        }
    }

    /// Connects the service to the daemon.
    pub fn connect(&mut self, link: LinkId, network: &mut Network) {
        self.link = Some(link);
        self.decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
        self.unsent.clear();
        if let Some(service) = &mut self.service {
            service.register();
        }
        self.run_service(network);
    }

    /// Hands the service bytes of the daemon.
    pub fn receive(&mut self, bytes: &[u8], network: &mut Network) {
        let mut messages = Vec::new();
        if let Err(error) = self.decoder.feed(bytes, &mut messages) {
            self.violations.push(format!(
                "the daemon sends the service a broken frame: {error}"
            ));
        }
        for message in messages {
            self.record_start(&message);
            self.record_shrink(&message);
            if let Some(service) = &mut self.service {
                service.handle(&message);
            }
        }
        self.run_service(network);
    }

    fn record_start(&mut self, message: &Message) {
        if message.kind != MessageType::Request || message.method() != "start" {
            return;
        }
        let start: Result<StartRequest<'_>, _> = message.read();
        match start.map(|start| {
            let r = start.r.map(|r| ResourceSet::from_json(r.as_str()));
            (start.id.get(), start.userid, r)
        }) {
            Ok((id, user, Some(Ok(r)))) => {
                self.users.insert(id, user);
                let cores = cores_of(&r);
                let before = self.cores.insert(id, cores.clone());
                if before.is_some_and(|before| before != cores) {
                    self.violations.push(format!(
                        "job {id}: R differs from that of its first start request"
                    ));
                }
            }
            other => self
                .violations
                .push(format!("a start request without R: {other:?}")),
        }
    }

    fn record_shrink(&mut self, message: &Message) {
        if message.kind != MessageType::Request || message.method() != exec_method::SHRINK {
            return;
        }
        match message.read::<ShrinkRequest>() {
            Ok(ShrinkRequest { id, ranks }) => {
                self.shrunk.entry(id.get()).or_default().union_with(&ranks);
            }
            Err(error) => self
                .violations
                .push(format!("a malformed shrink request: {error}")),
        }
    }

    /// Handles the end of the connection to the daemon.
    pub fn disconnect(&mut self, network: &mut Network) {
        if let Some(link) = self.link.take() {
            network.close(link, End::Peer);
        }
        self.unsent.clear();
        if let Some(service) = &mut self.service {
            service.handle_disconnect();
        }
        self.run_service(network);
    }

    /// Kills the service when it has carried out some of its next effects, the last one perhaps in part.
    pub fn kill_service(&mut self, effects: usize, torn: usize, network: &mut Network) {
        let now = self.now;
        if let Some(service) = &mut self.service {
            service.advance_jobs(now);
            for (index, effect) in service.take_effects().into_iter().enumerate() {
                if index < effects {
                    self.perform(effect);
                    continue;
                }
                if let Effect::Append(records) = effect {
                    let length = torn % (records.len() + 1);
                    self.torn = records.get(..length).unwrap_or_default().to_vec();
                }
                break;
            }
        }
        self.flush(network);
        self.service = None;
        self.output.end_service();
        if let Some(link) = self.link.take() {
            network.close(link, End::Peer);
        }
        self.unsent.clear();
        // The reaper reads what this service has sent; the next connection has another number.
        self.connection += 1;
    }

    /// Runs the service until it is idle.
    pub fn run_service(&mut self, network: &mut Network) {
        for _ in 0..MAX_ITERATIONS {
            let now = self.now;
            let Some(service) = &mut self.service else {
                return;
            };
            service.advance_jobs(now);
            let effects = service.take_effects();
            if effects.is_empty() {
                let has_failed = service.failure().is_some() && self.link.is_some();
                self.flush(network);
                if has_failed {
                    // The program ends, and the daemon starts another one.
                    self.kill_service(0, 0, network);
                }
                return;
            }
            for effect in effects {
                self.perform(effect);
            }
        }
        self.violations
            .push("the service never falls silent".to_owned());
    }

    fn flush(&mut self, network: &mut Network) {
        if let Some(link) = self.link {
            let sent = network.send(link, End::Daemon, &self.unsent);
            self.unsent.drain(..sent);
        }
    }

    fn finish_write(&mut self, result: io::Result<()>) {
        let now = self.now;
        if let Some(service) = &mut self.service {
            service.finish_write(result, now);
        }
    }

    /// Counts a write of the journal. Returns the bytes that are written before it fails, if it does.
    fn count_write(&mut self) -> Option<usize> {
        let (left, bytes) = self.journal_error.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let bytes = *bytes;
        self.journal_error = None;
        Some(bytes)
    }

    fn perform(&mut self, effect: Effect) {
        if let Effect::Append(bytes) | Effect::Rewrite(bytes) = &effect
            && let Some(written) = self.count_write()
        {
            if matches!(effect, Effect::Append(_)) {
                // All bytes may be there: the operation that fails may be the sync.
                let length = written % (bytes.len() + 1);
                self.torn = bytes.get(..length).unwrap_or_default().to_vec();
            }
            return self.finish_write(Err(io::Error::from_raw_os_error(libc::EIO)));
        }
        match effect {
            Effect::Append(records) if self.is_full => {
                self.torn = records
                    .get(..records.len() / 2)
                    .unwrap_or_default()
                    .to_vec();
                self.finish_write(Err(ErrorKind::StorageFull.into()));
            }
            Effect::Rewrite(_) if self.is_full => {
                self.finish_write(Err(ErrorKind::StorageFull.into()));
            }
            Effect::Append(records) => {
                self.torn.clear();
                self.journal.extend(records);
                self.finish_write(Ok(()));
            }
            Effect::Rewrite(contents) => {
                self.torn.clear();
                self.journal = contents;
                self.journal_synced = self.journal.len();
                self.finish_write(Ok(()));
            }
            Effect::Request(id, request) => {
                self.check_starts(&request);
                if self.reaper.is_some() {
                    let connection = ConnectionId(self.connection);
                    self.to_reaper.push_back((connection, id, request));
                }
            }
            Effect::Send(message) => {
                self.check_exception(&message);
                if self.link.is_some() {
                    message.encode(&mut self.unsent);
                }
            }
            Effect::ReadOutput { reader, .. } => {
                if let Some(service) = &mut self.service {
                    service.take_output_chunk(reader, Chunk::Missing);
                }
            }
            Effect::MeasureSpace => {
                if let Some(service) = &mut self.service {
                    let free = self.output.measure_space(self.now);
                    service.take_free_space(&[(OutputPlace::Present, free)], self.now);
                }
            }
            Effect::MeasureOutput(job) => {
                if let Some(service) = &mut self.service {
                    let bytes = self.output.measure(job.get(), self.now);
                    service.take_output_size(job, bytes);
                }
            }
            Effect::MakeJobDirectory(directory) => {
                if let Some(service) = &mut self.service {
                    service.finish_job_directory(directory.job, Ok(()));
                }
            }
            Effect::CountOutput if self.setup.guests.write() => self.output.begin_count(),
            Effect::CountOutput => {
                if let Some(service) = &mut self.service {
                    service.finish_output_count(self.now);
                }
            }
            Effect::Log(_)
            | Effect::ReuseEmptyOutput { .. }
            | Effect::RemoveJobDirectory(..)
            | Effect::RemovePmiSocket(_)
            | Effect::RemovePmixDirectory(_) => {}
        }
    }

    // --- the reaper

    fn start_reaper(&mut self) {
        let hello = Hello {
            version: VERSION,
            boot: BootId(self.boot),
            process: ProcessId {
                pid: REAPER,
                start_time: 0,
            },
        };
        self.kernel.reserve = OutputReserve::default();
        let log = &self.kernel.log;
        let recorded =
            (!log.is_empty()).then(|| LogContents::decode(log).expect("its header is synced"));
        let marks = MarkSpace::below(u64::MAX);
        let reaper = Reaper::restore(hello, marks, recorded, &mut self.kernel);
        self.reaper = Some(reaper.expect("a rewrite takes no additional space"));
        self.record_rewrites();
    }

    fn connect_reaper(&mut self, network: &mut Network) {
        // The reaper reads what older connections have sent first.
        while self.deliver_to_reaper() {}
        self.connection += 1;
        let connection = ConnectionId(self.connection);
        if let Some(reaper) = &mut self.reaper {
            let hello = Request::Hello { version: VERSION };
            reaper.handle(connection, 0, hello, &mut self.kernel);
        }
        self.run_reaper();
        self.run_service(network);
    }

    /// Kills the reaper: tasks continue, with another parent.
    pub fn kill_reaper(&mut self, network: &mut Network) {
        if self.reaper.take().is_none() {
            return;
        }
        let ended = std::mem::take(&mut self.kernel.ended);
        if self.is_full {
            // It may have had ends that it could not record.
            self.orphaned
                .extend(self.owners.values().map(|owner| owner.job));
        }
        let ended = ended.iter().map(|exit| &exit.pid);
        let lost = ended.chain(self.kernel.processes.keys());
        let jobs = lost.filter_map(|pid| self.owners.get(pid));
        self.orphaned.extend(jobs.map(|owner| owner.job));
        for process in self.kernel.processes.values_mut() {
            if process.parent == REAPER {
                process.parent = Pid(0);
            }
        }
        self.kernel.watched.clear();
        self.close_pipes();
        // Of the processes that were being set up, half had not got their request yet: these end, as do those that have reported a
        // failure.
        for pid in std::mem::take(&mut self.kernel.setups) {
            if pid.0.is_multiple_of(2) {
                self.kernel.end(pid, WaitStatus::Exited(1));
            }
        }
        for pid in &self.failed_setups {
            self.kernel.end(*pid, WaitStatus::Exited(1));
        }
        self.to_reaper.clear();
        self.from_reaper.clear();
        if let Some(service) = &mut self.service {
            service.handle_reaper_loss();
        }
        self.run_service(network);
    }

    /// Runs the reaper until it is idle.
    pub fn run_reaper(&mut self) {
        loop {
            let Some(reaper) = &mut self.reaper else {
                return;
            };
            let exits = std::mem::take(&mut self.kernel.ended);
            for exit in &exits {
                // The end of a process comes after its set-up, for all that is known.
                if self.kernel.setups.remove(&exit.pid) {
                    reaper.record_setup(exit.pid, Ok(()));
                }
            }
            reaper.reap(&exits, 0);
            if self.kernel.is_childless() {
                reaper.record_childless();
            }
            let watched = self.kernel.watched.iter().copied();
            let ended = watched.filter(|pid| !self.kernel.processes.contains_key(pid));
            for pid in ended.collect::<Vec<_>>() {
                self.kernel.watched.remove(&pid);
                reaper.record_orphan_end(pid, 0);
            }
            reaper.step(&mut self.kernel);
            reaper.commit(&mut self.kernel);
            self.from_reaper.extend(reaper.take_messages());
            if !reaper.has_queued_requests() && self.kernel.ended.is_empty() {
                break;
            }
        }
        self.record_rewrites();
        self.record_spawned();
    }

    fn record_rewrites(&mut self) {
        if self.rewrites != self.kernel.rewrites {
            self.rewrites = self.kernel.rewrites;
            self.log_synced = self.kernel.log.len();
        }
    }

    fn record_spawned(&mut self) {
        let new = self.kernel.spawned.get(self.counted..).unwrap_or_default();
        if new.is_empty() {
            return;
        }
        let journal = JournalContents::decode(&self.journal).expect("its header is synced");
        for (task, pid) in new {
            let (job, TaskRank(rank)) = (task.job, task.rank);
            let targets = journal.jobs.get(&job).map(|intent| &intent.targets);
            let owner = Owner {
                job: job.get(),
                is_task: true,
                target: targets.and_then(|targets| targets.get(rank as usize).copied()),
            };
            self.owners.insert(*pid, owner);
            self.piped.insert(*pid);
            if !self.started.insert(*task) {
                self.violations
                    .push(format!("task {rank} of job {job} runs twice"));
            }
        }
        self.counted = self.kernel.spawned.len();
    }

    /// Hands the reaper a request. Returns whether there was one.
    pub fn deliver_to_reaper(&mut self) -> bool {
        let Some(reaper) = &mut self.reaper else {
            return false;
        };
        let Some((connection, id, request)) = self.to_reaper.pop_front() else {
            return false;
        };
        reaper.handle(connection, id, request, &mut self.kernel);
        self.run_reaper();
        true
    }

    /// Hands the service a message of the reaper. Returns whether there was one.
    pub fn deliver_from_reaper(&mut self, network: &mut Network) -> bool {
        let Some((connection, message)) = self.from_reaper.pop_front() else {
            return false;
        };
        if connection == ConnectionId(self.connection)
            && let Some(service) = &mut self.service
        {
            match message {
                ReaperMessage::Hello(hello) => service.handle_reaper_connection(hello),
                message => service.handle_reaper_message(message),
            }
            self.run_service(network);
        }
        true
    }

    // --- the set-up of guests' tasks

    /// Ends the set-up of a guest's task.
    pub fn end_setup(&mut self, index: usize, end: SetupEnd) {
        let setups = &self.kernel.setups;
        let found = index.checked_rem(setups.len());
        let found = found.and_then(|found| setups.iter().nth(found)).copied();
        let (Some(pid), Some(reaper)) = (found, &mut self.reaper) else {
            return;
        };
        self.kernel.setups.remove(&pid);
        let failure = SpawnFailure {
            step: Step::Chdir,
            errno: libc::EACCES,
        };
        let result = if end == SetupEnd::Executed {
            Ok(())
        } else {
            self.failed_setups.insert(pid);
            Err(failure)
        };
        reaper.record_setup(pid, result);
        if end == SetupEnd::Exited {
            self.kernel.end(pid, WaitStatus::Exited(1));
        }
        self.run_reaper();
    }

    /// Ends the first set-up, unless none makes progress. Returns whether there was one.
    pub fn advance_setups(&mut self) -> bool {
        let is_due = !self.hangs_setups && !self.kernel.setups.is_empty() && self.reaper.is_some();
        if is_due {
            self.end_setup(0, SetupEnd::Executed);
        }
        is_due
    }

    /// Lets no set-up make progress.
    pub fn hang_setups(&mut self) {
        self.hangs_setups = true;
    }

    /// Lets set-ups make progress.
    pub fn release_setups(&mut self) {
        self.hangs_setups = false;
    }

    // --- processes

    fn pid(&self, index: usize) -> Option<Pid> {
        let count = self.kernel.processes.len();
        self.kernel
            .processes
            .keys()
            .nth(index.checked_rem(count)?)
            .copied()
    }

    /// Ends a process.
    pub fn end_process(&mut self, index: usize, code: u8) {
        if let Some(pid) = self.pid(index) {
            self.kernel.end(pid, WaitStatus::Exited(code));
            self.run_reaper();
        }
    }

    /// Lets a process fork.
    pub fn fork(&mut self, index: usize) {
        if let Some(parent) = self.pid(index) {
            let child = self.kernel.fork(parent);
            if let Some(owner) = self.owners.get(&parent).copied() {
                if self.piped.contains(&parent) {
                    self.piped.insert(child);
                }
                let is_task = false;
                self.owners.insert(child, Owner { is_task, ..owner });
            }
        }
    }

    /// Fills the disk of journal and log: neither can be written.
    pub fn fill_disk(&mut self) {
        self.is_full = true;
        self.has_lost_journal |= self.journal.is_empty();
        self.kernel.is_full = true;
    }

    /// Lets the write of the journal after some others fail, with a part of it written.
    pub fn arm_journal_error(&mut self, writes: u32, bytes: usize) {
        self.journal_error = Some((writes, bytes));
    }

    /// Makes room on that disk, and ends its errors.
    pub fn free_disk(&mut self, network: &mut Network) {
        self.is_full = false;
        self.journal_error = None;
        self.kernel.is_full = false;
        self.run_reaper();
        self.run_service(network);
    }

    /// Lets the power fail: nothing runs, and a part of what was not synced is lost.
    pub fn lose_power(&mut self, random: &mut Random, network: &mut Network) {
        self.kill_service(0, 0, network);
        self.has_lost_journal = true;
        self.reaper = None;
        self.to_reaper.clear();
        self.from_reaper.clear();
        self.torn.clear();
        truncate(&mut self.journal, self.journal_synced, random);
        truncate(&mut self.kernel.log, self.log_synced, random);
        self.kernel.processes.clear();
        self.kernel.ended.clear();
        self.kernel.watched.clear();
        self.kernel.setups.clear();
        self.close_pipes();
        self.boot += 1;
    }

    // --- output

    /// Lets a process write. Output of a guest passes through the reaper that has started the task.
    pub fn write_output(&mut self, index: usize, bytes: u64) {
        let Some(pid) = self.pid(index) else {
            return;
        };
        let job = self.owners.get(&pid).map(|owner| owner.job);
        let Some((job, user)) = job.and_then(|job| Some((job, *self.users.get(&job)?))) else {
            return;
        };
        if user == OWNER {
            self.output.write(job, bytes);
        } else if self.piped.contains(&pid) {
            let id = JobId::new(job);
            // Beyond its capacity, the process blocks.
            let unwritten = self.kernel.unwritten.entry(id).or_default();
            *unwritten = (*unwritten + bytes).min(PIPE_BYTES);
            self.resume_output();
        }
    }

    /// Lets the reaper copy output for which there is room.
    fn resume_output(&mut self) {
        let reserve = self.kernel.reserve;
        for (job, unwritten) in &mut self.kernel.unwritten {
            if let Some(user) = self.users.get(&job.get()) {
                *unwritten = self.output.copy(job.get(), *user, *unwritten, reserve);
                let held = self.kernel.held.entry(*job).or_default();
                *held = (*held).max(*unwritten);
            }
        }
    }

    /// Ends the copies of guests' output: the reaper has ended.
    fn close_pipes(&mut self) {
        self.piped.clear();
        self.kernel.unwritten.clear();
        self.kernel.held.clear();
    }

    /// Ends a count that takes no longer than this step. Returns whether there is one.
    pub fn end_short_count(&mut self, network: &mut Network) -> bool {
        self.output.has_short_count() && self.advance_count(usize::MAX, network)
    }

    /// Lets a count look at a number of files. Returns whether there is one.
    pub fn advance_count(&mut self, files: usize, network: &mut Network) -> bool {
        let Some(service) = &mut self.service else {
            return false;
        };
        let Some((found, has_ended)) = self.output.advance_count(files) else {
            return false;
        };
        service.take_output_files(&found);
        if has_ended {
            service.finish_output_count(self.now);
        }
        self.run_service(network);
        true
    }

    /// Checks the starts of guests' jobs that a service has decided.
    fn check_starts(&mut self, request: &Request) {
        let (true, Request::Spawn(tasks), Some(service)) =
            (self.setup.guests.write(), request, &self.service)
        else {
            return;
        };
        for task in tasks {
            let job = task.task.job.get();
            if let Some(guest) = task.guest.filter(|_| self.decided.insert(job)) {
                let jobs = service.known_jobs().map(JobId::get).collect();
                self.output.check_start(job, guest.uid, &jobs, self.now);
            }
        }
    }

    /// Checks an exception because of output.
    fn check_exception(&mut self, message: &Message) {
        if !self.setup.guests.write() || message.kind != MessageType::Response {
            return;
        }
        let Ok(response) = message.read::<StartResponse<Json<'_>>>() else {
            return;
        };
        let job = response.id.get();
        if let (Ok(ExecEvent::Exception(exception)), Some(user)) =
            (response.event(), self.users.get(&job))
        {
            self.output.check_exception(job, *user, &exception);
        }
    }

    // --- time

    /// When the service is to be advanced next.
    pub fn deadline(&self) -> Option<f64> {
        self.service.as_ref().and_then(Service::deadline)
    }

    /// Sets the time.
    pub fn set_time(&mut self, now: f64) {
        self.now = now;
    }

    /// Handles the time.
    pub fn advance(&mut self, network: &mut Network) {
        let now = self.now;
        // A count that has begun takes less time than passes here.
        self.advance_count(usize::MAX, network);
        if let Some(service) = &mut self.service {
            service.advance(now);
        }
        self.resume_output();
        self.run_reaper();
        self.run_service(network);
        self.end_short_count(network);
    }

    // --- checks

    /// The execution targets of the processes of each job.
    fn targets(&self) -> BTreeMap<u64, BTreeSet<Option<u32>>> {
        let mut jobs: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for pid in self.kernel.processes.keys() {
            let Some(owner) = self.owners.get(pid) else {
                continue;
            };
            // A process that a task leaves when its reaper is killed has no parent that knows it.
            if owner.is_task || !self.orphaned.contains(&owner.job) {
                jobs.entry(owner.job).or_default().insert(owner.target);
            }
        }
        jobs
    }

    /// Whether a process of a job runs that execution service or reaper knows.
    pub fn is_occupied_by(&self, job: u64) -> bool {
        self.targets().contains_key(&job)
    }

    /// The cores that a job uses: all of its own, but for those of targets that it has released, on which none of its
    /// processes runs.
    fn used_cores<'a>(
        &'a self,
        job: u64,
        targets: &'a BTreeSet<Option<u32>>,
        cores: &'a BTreeSet<Core>,
    ) -> impl Iterator<Item = Core> {
        let shrunk = self.shrunk.get(&job);
        let cores = cores.iter().copied();
        cores.filter(move |Core { rank, .. }| {
            let is_released = shrunk.is_some_and(|shrunk| shrunk.contains(*rank));
            !is_released || targets.contains(&Some(*rank)) || targets.contains(&None)
        })
    }

    /// Notes cores that two jobs use by their processes or hooks, and hooks that run beside the tasks of their job.
    pub fn check_cores<'a>(&mut self, hooks: impl Iterator<Item = RunningHook<'a>>) {
        let (mut users, mut violations) = (BTreeMap::new(), Vec::new());
        let mut add = |job: u64, core: Core| {
            if let Some(other) = users.insert(core, job).filter(|other| *other != job) {
                let Core { rank, id: core } = core;
                let text = format!("jobs {other} and {job} use core {core} of rank {rank}");
                violations.push(text);
            }
        };
        let (jobs, nowhere) = (self.targets(), BTreeSet::new());
        for (job, targets) in &jobs {
            if let Some(cores) = self.cores.get(job) {
                self.used_cores(*job, targets, cores)
                    .for_each(|core| add(*job, core));
            }
        }
        let mut beside = Vec::new();
        for RunningHook { job, cores } in hooks {
            self.used_cores(job, &nowhere, cores)
                .for_each(|core| add(job, core));
            if jobs.contains_key(&job) {
                beside.push(format!("a hook of job {job} runs beside its tasks"));
            }
        }
        self.violations.append(&mut violations);
        self.violations.append(&mut beside);
    }

    /// The remains of jobs: none when every job has ended and been acknowledged.
    pub fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        if !self.kernel.processes.is_empty() {
            found.push(format!("processes: {:?}", self.kernel.processes));
        }
        let journal = JournalContents::decode(&self.journal).expect("valid");
        if !journal.jobs.is_empty() {
            found.push(format!("the journal has {:?}", journal.jobs.keys()));
        }
        let log = self.kernel.log();
        if !log.jobs.is_empty() {
            found.push(format!("the reaper's log has {:?}", log.jobs.keys()));
        }
        found
    }
}

/// Loses a part of the bytes that were not synced. The file may keep its length: zeros are in their place.
fn truncate(contents: &mut Vec<u8>, synced: usize, random: &mut Random) {
    let length = contents.len();
    let unsynced = length.saturating_sub(synced);
    let kept = random.below(u32::try_from(unsynced + 1).unwrap_or(u32::MAX));
    contents.truncate(synced + usize::try_from(kept).unwrap_or(0));
    if random.one_in(3) {
        contents.resize(length, 0);
    }
}
