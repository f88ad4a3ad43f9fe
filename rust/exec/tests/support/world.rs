//! A service between a job manager and a reaper over a virtual kernel: no socket, process, file or clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use penstock_exec::log::LogContents;
use penstock_exec::mark::MarkSpace;
use penstock_exec::protocol::{Hello, Message as ReaperMessage, Request, TaskSpec, VERSION};
use penstock_exec::service::journal::{JournalContents, JournalId};
use penstock_exec::service::{
    Chunk, Effect, JobDirectoryPlaces, OutputPlace, PMI_SERVER_RANK, PMIX_SERVER_RANK, Service,
    Settings, TaskContext,
};
use penstock_exec::{
    BootId, ConnectionId, JobId, Pid, ProcessId, Reaper, TaskId, TaskRank, WaitStatus,
};
use penstock_wire::Message;
use serde_json::{Value, json};

use crate::job_manager::{Conversation, ManagedJob, jobspec, resources};
use crate::virtual_kernel::{REAPER, VirtualKernel};

pub const BOOT: BootId = BootId(42);
pub const OWNER: u32 = 1000;
pub const JOURNAL: JournalId = JournalId(7);
pub const URI: &str = "local:///run/penstock.sock";
/// `RLIMIT_CPU` and `RLIMIT_NOFILE` in Linux.
pub const CPU: u32 = 0;
pub const NOFILE: u32 = 7;
/// The longest time until the service sends a barrier after a release, in seconds.
pub const BARRIER_INTERVAL_S: f64 = 0.101;
/// Longer than every timeout of the service, in seconds.
pub const BEYOND_ALL_TIMEOUTS_S: f64 = 60.0;

/// A job manager, a reaper over a virtual kernel, a service between them, and what is under way.
pub struct World {
    pub jobs: BTreeMap<u64, ManagedJob>,
    pub is_registered: bool,
    /// The journal of all services that have had a start request which is not answered.
    pub journal_sent: Option<String>,
    pub to_service: VecDeque<Message>,
    pub to_manager: VecDeque<Message>,
    pub service: Option<Service>,
    pub is_connected: bool,
    pub journal: Vec<u8>,
    /// Whether the journal cannot be written.
    pub is_journal_full: bool,
    /// The part of a record that a failed write has left at the end of the journal.
    pub torn: Vec<u8>,
    pub kernel: VirtualKernel,
    pub reaper: Option<Reaper>,
    pub connection: u64,
    /// Requests of all services to the reaper: those of a killed service come before those of the next.
    pub to_reaper: VecDeque<(ConnectionId, u32, Request)>,
    pub from_reaper: VecDeque<(ConnectionId, ReaperMessage)>,
    /// The job of every process.
    pub owners: BTreeMap<Pid, u64>,
    /// The task that every process descends from.
    pub tasks: BTreeMap<Pid, TaskId>,
    /// Jobs of which the reaper was killed while they had a process.
    pub orphaned: BTreeSet<u64>,
    /// Jobs whose PMIx server has ended by itself.
    pub without_server: BTreeSet<u64>,
    pub logged: Vec<String>,
    pub files: BTreeMap<(u64, &'static str), Vec<u8>>,
    /// The free bytes of the file system of output.
    pub free_space: u64,
    /// The free bytes of the file systems of former directories of output.
    pub former_spaces: Vec<(OutputPlace, u64)>,
    /// The jobs whose output is there.
    pub former_places: BTreeMap<u64, OutputPlace>,
    /// The counts of output that the service has requested and that have not ended.
    pub counts: u32,
    /// The requests to the service `pmix-exec`: topic and payload.
    pub pmix_requests: Vec<(String, Value)>,
    /// The jobs of removed sockets of PMI servers.
    pub removed_pmi_sockets: Vec<u64>,
    /// The jobs of removed directories of PMIx servers.
    pub removed_pmix_directories: Vec<u64>,
    /// The last request for a PMIx server.
    pub pmix_start: Option<Message>,
    /// The environment that PMIx servers give; without one, requests for servers are not answered.
    pub pmix_environment: Option<Value>,
    /// The directories of jobs that were requested and not removed.
    pub directories: Vec<JobId>,
    /// The result of a request for a directory, at once; `None` for no result.
    pub directory_result: Option<Result<(), ErrorKind>>,
    pub settings: Settings,
    pub now: f64,
}

pub fn settings() -> Settings {
    let mut environment = BTreeMap::new();
    environment.insert(b"HOME".to_vec(), b"/home".to_vec());
    environment.insert(b"PENSTOCK_WITHIN_0".to_vec(), b"outer".to_vec());
    Settings {
        name: "job-exec".to_owned(),
        owner: OWNER,
        guests: None,
        boot: BOOT,
        task_context: TaskContext {
            uri: URI.to_owned(),
            environment,
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
            bind: true,
            umask: 0o022,
            hard_limits: BTreeMap::from([(NOFILE, 4096)]),
        },
        kill_timeout_s: 5.0,
        output_limit: 1000,
        output_reserve: 0,
        user_output_limit: 0,
        end_when_idle: false,
    }
}

pub fn submit(world: &mut World, id: u64, ntasks: u32) {
    world.submit(id, jobspec(ntasks, &["true"]), Some(resources(ntasks)));
}

pub fn exited(code: u8) -> WaitStatus {
    WaitStatus::Exited(code)
}

impl World {
    pub fn new() -> Self {
        let mut world = Self {
            jobs: BTreeMap::new(),
            is_registered: false,
            journal_sent: None,
            to_service: VecDeque::new(),
            to_manager: VecDeque::new(),
            service: None,
            is_connected: false,
            journal: Vec::new(),
            is_journal_full: false,
            torn: Vec::new(),
            kernel: VirtualKernel::default(),
            reaper: None,
            connection: 0,
            to_reaper: VecDeque::new(),
            from_reaper: VecDeque::new(),
            owners: BTreeMap::new(),
            tasks: BTreeMap::new(),
            orphaned: BTreeSet::new(),
            without_server: BTreeSet::new(),
            logged: Vec::new(),
            files: BTreeMap::new(),
            free_space: u64::MAX,
            former_spaces: Vec::new(),
            former_places: BTreeMap::new(),
            counts: 0,
            pmix_requests: Vec::new(),
            removed_pmi_sockets: Vec::new(),
            removed_pmix_directories: Vec::new(),
            pmix_start: None,
            pmix_environment: Some(json!({"0": {"PMIX_RANK": "0"}, "1": {"PMIX_RANK": "1"}})),
            directories: Vec::new(),
            directory_result: Some(Ok(())),
            settings: settings(),
            now: 1000.0,
        };
        world.start_service();
        world.connect();
        world.run();
        world
    }

    /// A world in which job 1 has one task, which is running.
    pub fn with_running_job() -> Self {
        let mut world = Self::new();
        submit(&mut world, 1, 1);
        world.run();
        world
    }

    pub fn service(&self) -> &Service {
        self.service.as_ref().expect("it runs")
    }

    pub fn service_mut(&mut self) -> &mut Service {
        self.service.as_mut().expect("it runs")
    }

    pub fn finish_write(&mut self, result: io::Result<()>) {
        let now = self.now;
        self.service_mut().finish_write(result, now);
    }

    /// Delivers the first message to the service without carrying out what follows.
    pub fn deliver_one_to_service(&mut self) {
        let message = self.to_service.pop_front().expect("one is under way");
        self.service_mut().handle(&message);
    }

    // --- the service

    pub fn start_service(&mut self) {
        self.journal.append(&mut self.torn);
        let journal = if self.journal.is_empty() {
            JournalContents::new(URI, JOURNAL)
        } else {
            JournalContents::decode(&self.journal).expect("its header is whole")
        };
        self.service = Some(Service::new(self.settings.clone(), journal));
    }

    /// Kills the service after it has carried out some of its last effects, the next one perhaps in part.
    pub fn crash_service(&mut self, effects: usize, torn: usize) {
        let mut left = effects;
        while let Some(service) = &mut self.service {
            service.advance_jobs(self.now);
            let drained = service.take_effects();
            if drained.is_empty() {
                break;
            }
            for effect in drained {
                if left > 0 {
                    left -= 1;
                    self.perform(effect);
                    continue;
                }
                if let Effect::Append(records) = effect {
                    let length = torn % (records.len() + 1);
                    self.torn = records[..length].to_vec();
                }
                self.service = None;
                break;
            }
        }
        self.service = None;
        // The job manager still reads what was sent.
        while self.deliver_to_manager() {}
        self.disconnect_manager();
        self.connection += 1;
    }

    /// Ends the connection between service and job manager; what is under way is lost.
    pub fn lose_connection(&mut self) {
        self.to_manager.clear();
        self.disconnect_manager();
        if let Some(service) = &mut self.service {
            service.handle_disconnect();
        }
        self.run_service();
        self.to_manager.clear();
    }

    pub fn disconnect_manager(&mut self) {
        self.is_connected = false;
        self.is_registered = false;
        self.to_service.clear();
        for job in self.jobs.values_mut() {
            job.conversation = Conversation::Idle;
        }
    }

    /// Connects what is not connected: service, job manager and reaper.
    pub fn connect(&mut self) {
        if self.service.is_none() {
            self.start_service();
        }
        let service = self.service.as_mut().expect("started");
        if !self.is_connected {
            self.is_connected = true;
            service.register();
        }
        self.run_service();
    }

    pub fn connect_reaper(&mut self) {
        if self.service.is_none() {
            return;
        }
        if self.reaper.is_none() {
            let hello = Hello {
                version: VERSION,
                boot: self.settings.boot,
                process: ProcessId {
                    pid: REAPER,
                    start_time: 0,
                },
            };
            let log = &self.kernel.log;
            let recorded = (!log.is_empty()).then(|| LogContents::decode(log).expect("valid"));
            let marks = MarkSpace::below(u64::MAX);
            let reaper = Reaper::restore(hello, marks, recorded, &mut self.kernel);
            self.reaper = Some(reaper.expect("not full"));
        }
        // The reaper reads what older connections have sent first.
        while self.deliver_to_reaper() {}
        self.connection += 1;
        let connection = ConnectionId(self.connection);
        let hello = Request::Hello { version: VERSION };
        let reaper = self.reaper.as_mut().expect("started");
        reaper.handle(connection, 0, hello, &mut self.kernel);
        self.run_reaper();
        let position = self.from_reaper.iter().position(|(to, message)| {
            *to == connection && matches!(message, ReaperMessage::Hello(_))
        });
        let (_, hello) = self
            .from_reaper
            .remove(position.expect("hello"))
            .expect("there");
        if let (ReaperMessage::Hello(hello), Some(service)) = (hello, &mut self.service) {
            service.handle_reaper_connection(hello);
        }
        self.run_service();
    }

    /// Kills the reaper: tasks continue, with another parent.
    pub fn crash_reaper(&mut self) {
        if self.reaper.take().is_none() {
            return;
        }
        let lost = self.kernel.ended.drain(..).map(|exit| exit.pid);
        let running = self.kernel.processes.keys().copied();
        let pids: Vec<_> = lost.chain(running).collect();
        for pid in pids {
            if let Some(id) = self.owners.get(&pid) {
                self.orphaned.insert(*id);
            }
        }
        for process in self.kernel.processes.values_mut() {
            if process.parent == REAPER {
                process.parent = Pid(0);
            }
        }
        self.lose_reaper();
    }

    /// Kills the reaper: its standby gets the tasks, and takes its place when the service connects.
    pub fn replace_reaper(&mut self) {
        if self.reaper.take().is_some() {
            self.lose_reaper();
        }
    }

    fn lose_reaper(&mut self) {
        self.kernel.watched.clear();
        self.to_reaper.clear();
        self.from_reaper.clear();
        if let Some(service) = &mut self.service {
            service.handle_reaper_loss();
        }
        self.run_service();
    }

    /// Runs the service until it is idle.
    pub fn run_service(&mut self) {
        loop {
            let Some(service) = &mut self.service else {
                return;
            };
            service.advance_jobs(self.now);
            let effects = service.take_effects();
            if effects.is_empty() {
                break;
            }
            assert_eq!(service.failure(), None);
            for effect in effects {
                self.perform(effect);
            }
        }
    }

    pub fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Append(_) | Effect::Rewrite(_) if self.is_journal_full => {
                if let Effect::Append(records) = effect {
                    self.torn = records[..records.len() / 2].to_vec();
                }
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
                self.finish_write(Ok(()));
            }
            Effect::Request(id, request) => {
                let connection = ConnectionId(self.connection);
                if self.reaper.is_some() {
                    self.check_intents(&request);
                    self.to_reaper.push_back((connection, id, request));
                }
            }
            Effect::Send(message) => {
                if self.is_connected {
                    self.to_manager.push_back(message);
                }
            }
            Effect::Log(text) => self.logged.push(text),
            Effect::MeasureOutput(job) => {
                let sizes = self.files.iter().filter(|((id, _), _)| *id == job.get());
                let bytes = sizes.map(|(_, file)| file.len() as u64).sum();
                let place = self.former_places.get(&job.get()).copied();
                let place = place.unwrap_or(OutputPlace::Present);
                self.service_mut().take_output_place(job, place);
                self.service_mut().take_output_size(job, bytes);
            }
            Effect::MeasureSpace => {
                let mut places = self.former_spaces.clone();
                places.push((OutputPlace::Present, self.free_space));
                let now = self.now;
                self.service_mut().take_free_space(&places, now);
            }
            Effect::CountOutput => self.counts += 1,
            Effect::MakeJobDirectory(directory) => {
                self.directories.push(directory.job);
                if let Some(result) = self.directory_result {
                    let result = result.map_err(io::Error::from);
                    let service = self.service_mut();
                    service.finish_job_directory(directory.job, result);
                }
            }
            Effect::RemoveJobDirectory(job, _) => self.directories.retain(|made| *made != job),
            Effect::ReuseEmptyOutput { .. } => {}
            Effect::RemovePmiSocket(job) => self.removed_pmi_sockets.push(job.get()),
            Effect::RemovePmixDirectory(job) => self.removed_pmix_directories.push(job.get()),
            Effect::ReadOutput {
                reader,
                job,
                stream,
                offset,
            } => {
                let file = self.files.get(&(job.get(), stream.name()));
                let chunk = file.map_or(Chunk::Missing, |file| {
                    let offset = usize::try_from(offset).expect("small");
                    Chunk::Data(file[offset..].to_vec())
                });
                let service = self.service_mut();
                service.take_output_chunk(reader, chunk);
            }
        }
    }

    /// No task is handed to the reaper before the journal has a record of its job.
    pub fn check_intents(&self, request: &Request) {
        if let Request::Spawn(specs) = request {
            let journal = JournalContents::decode(&self.journal).expect("valid");
            for spec in specs {
                assert!(journal.jobs.contains_key(&spec.task.job));
            }
        }
    }

    // --- deliveries

    pub fn deliver_to_service(&mut self) -> bool {
        let Some(service) = &mut self.service else {
            return false;
        };
        let Some(message) = self.to_service.pop_front() else {
            return false;
        };
        service.handle(&message);
        self.run_service();
        true
    }

    pub fn deliver_to_manager(&mut self) -> bool {
        let Some(message) = self.to_manager.pop_front() else {
            return false;
        };
        self.manage(&message);
        true
    }

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

    pub fn deliver_from_reaper(&mut self) -> bool {
        let Some((connection, message)) = self.from_reaper.pop_front() else {
            return false;
        };
        if connection == ConnectionId(self.connection)
            && let Some(service) = &mut self.service
        {
            service.handle_reaper_message(message);
            self.run_service();
        }
        true
    }

    /// Delivers a message. Returns whether there was one.
    pub fn deliver_one(&mut self) -> bool {
        self.deliver_to_service()
            || self.deliver_to_manager()
            || self.deliver_to_reaper()
            || self.deliver_from_reaper()
    }

    /// Advances the clock to the next barrier, if a released job is not forgotten.
    pub fn await_barrier(&mut self) {
        let Some(service) = &self.service else {
            return;
        };
        let open = self.jobs.values().filter(|job| !job.is_released).count();
        let next = self.now + BARRIER_INTERVAL_S;
        if service.jobs() > open && service.deadline().is_some_and(|at| at <= next) {
            self.advance(BARRIER_INTERVAL_S);
        }
    }

    pub fn run_reaper(&mut self) {
        let Some(reaper) = &mut self.reaper else {
            return;
        };
        loop {
            let exits = std::mem::take(&mut self.kernel.ended);
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
            for cgroup in &self.kernel.watched_cgroups {
                reaper.record_cgroup_change(*cgroup);
            }
            reaper.step(&mut self.kernel);
            reaper.commit(&mut self.kernel);
            assert!(!reaper.has_unwritten_records());
            self.from_reaper.extend(reaper.take_messages());
            if !reaper.has_queued_requests() && self.kernel.ended.is_empty() {
                break;
            }
        }
        for (task, pid) in &self.kernel.spawned {
            self.owners.insert(*pid, task.job.get());
            self.tasks.insert(*pid, *task);
        }
    }

    pub fn end_process(&mut self, index: usize, status: WaitStatus) {
        let count = self.kernel.processes.len();
        if count > 0 {
            let pid = self.kernel.processes.keys().nth(index % count).copied();
            let pid = pid.expect("in range");
            if self.is_server(pid) {
                self.without_server.insert(self.owners[&pid]);
            }
            self.kernel.end(pid, status);
            self.run_reaper();
        }
    }

    /// Whether a process is a PMIx or a PMI server.
    pub fn is_server(&self, pid: Pid) -> bool {
        let is_server_rank = |rank| [PMIX_SERVER_RANK, PMI_SERVER_RANK].contains(&rank);
        let mut spawned = self.kernel.spawned.iter();
        spawned.any(|(task, spawned)| *spawned == pid && is_server_rank(task.rank))
    }

    pub fn fork(&mut self, index: usize) {
        let count = self.kernel.processes.len();
        if count > 0 {
            let parent = *self
                .kernel
                .processes
                .keys()
                .nth(index % count)
                .expect("in range");
            let child = self.kernel.fork(parent);
            if let Some(owner) = self.owners.get(&parent).copied() {
                self.owners.insert(child, owner);
            }
            if let Some(task) = self.tasks.get(&parent).copied() {
                self.tasks.insert(child, task);
            }
        }
    }

    pub fn advance(&mut self, seconds: f64) {
        self.now += seconds;
        if let Some(service) = &mut self.service {
            service.advance(self.now);
        }
        self.run_service();
    }

    /// Delivers everything that is under way.
    pub fn run(&mut self) {
        if self.service.is_some() && self.reaper.is_none() {
            self.connect_reaper();
        }
        loop {
            while self.deliver_one() {}
            self.await_barrier();
            if !self.deliver_one() {
                break;
            }
        }
    }

    /// Brings everything up again.
    pub fn restart(&mut self) {
        if self.service.is_none() {
            self.start_service();
            self.connect_reaper();
        }
        self.connect();
        self.run();
    }

    /// Ends all processes of tasks, and all jobs: the service ends PMIx servers.
    pub fn wind_up(&mut self) {
        self.is_journal_full = false;
        self.advance(BEYOND_ALL_TIMEOUTS_S);
        self.restart();
        let task = |world: &Self| {
            let mut pids = world.kernel.processes.keys();
            pids.position(|pid| !world.is_server(*pid))
        };
        while let Some(index) = task(self) {
            self.end_process(index, WaitStatus::Exited(0));
            self.run();
        }
        for _ in 0..3 {
            self.advance(BEYOND_ALL_TIMEOUTS_S);
            self.run();
        }
    }

    pub fn job(&self, id: u64) -> &ManagedJob {
        &self.jobs[&id]
    }

    pub fn job_mut(&mut self, id: u64) -> &mut ManagedJob {
        self.jobs.get_mut(&id).expect("submitted")
    }

    pub fn answers(&self, id: u64) -> Vec<&str> {
        self.job(id).answers.iter().map(String::as_str).collect()
    }

    pub fn spawned(&self, id: u64) -> Vec<Pid> {
        let spawned = self.kernel.spawned.iter();
        let of_job = spawned.filter(|(task, _)| task.job == JobId::new(id));
        of_job.map(|(_, pid)| *pid).collect()
    }

    /// The greatest wait status of a job's processes, as `wait` reports it. That of a task on a released target does not
    /// count, unless the job has ended before the service got to know of the release.
    pub fn expected_statuses(&self, id: u64) -> Vec<i64> {
        let status = |pid: &Pid| match self.kernel.statuses[pid] {
            WaitStatus::Exited(code) => i64::from(code) << 8,
            WaitStatus::Signaled { signal, .. } => i64::from(signal),
            WaitStatus::Unknown => unreachable!("the kernel knows"),
        };
        let mut pids = self.spawned(id);
        pids.retain(|pid| !self.is_server(*pid));
        let is_kept = |pid: &&Pid| self.tasks[*pid].rank != TaskRank(1);
        let all = pids.iter().map(status).max();
        let kept = pids.iter().filter(is_kept).map(status).max();
        match self.job(id).shrunk {
            Some(_) => vec![all.unwrap_or(0), kept.unwrap_or(0)],
            None => vec![all.expect("it started")],
        }
    }

    /// The tasks of the spawn requests that are under way.
    pub fn requested(&self) -> Vec<TaskSpec> {
        let specs = |(_, _, request): &(ConnectionId, u32, Request)| match request {
            Request::Spawn(specs) => specs.clone(),
            _ => Vec::new(),
        };
        self.to_reaper.iter().flat_map(specs).collect()
    }

    /// Whether or not the journal can be written, the ends of running jobs are reported, and cancelled jobs end.
    pub fn check_progress(&self) {
        if self.service.is_none() || !self.is_registered {
            return;
        }
        for (id, job) in &self.jobs {
            match job.conversation {
                Conversation::Idle | Conversation::Finished => {
                    assert!(job.is_released, "{id}: {job:?}");
                }
                _ if job.is_released => {}
                Conversation::Requested { .. } => assert!(!job.is_cancelled, "{id}: {job:?}"),
                Conversation::Started => {
                    assert!(!self.processes_of(*id).is_empty(), "{id}: {job:?}");
                    assert!(!job.is_cancelled, "{id}: {job:?}");
                }
            }
        }
    }

    pub fn check(&self) {
        let mut tasks: Vec<_> = self.kernel.spawned.iter().map(|(task, _)| *task).collect();
        tasks.sort();
        let count = tasks.len();
        tasks.dedup();
        assert_eq!(tasks.len(), count, "a task was started twice");
        for (id, job) in &self.jobs {
            assert!(job.is_released, "{id}: {job:?}");
            if let Some(status) = job.statuses.last() {
                let expected = self.expected_statuses(*id);
                assert!(expected.contains(status), "{id}: {expected:?}, {job:?}");
            } else {
                // Without a status there is a reason.
                let is_hit = self.orphaned.contains(id) || self.without_server.contains(id);
                let is_explained = is_hit && !job.notes.is_empty();
                assert!(is_explained || job.is_cancelled, "{id}: {job:?}");
            }
            let is_hit = self.orphaned.contains(id) || self.without_server.contains(id);
            if !job.is_cancelled && !is_hit {
                assert!(job.notes.is_empty(), "{id}: {job:?}");
                assert!(!job.statuses.is_empty(), "{id}: {job:?}");
            }
        }
        let journal = JournalContents::decode(&self.journal).expect("valid");
        assert!(journal.jobs.is_empty(), "{journal:?}");
        assert!(self.kernel.log().jobs.is_empty());
        assert!(self.kernel.processes.is_empty());
    }
}
