//! The service over a virtual instance and a virtual reaper: no socket, process, file or clock.

#[path = "support/virtual_kernel.rs"]
mod virtual_kernel;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use penstock_exec::log::LogContents;
use penstock_exec::mark::MarkSpace;
use penstock_exec::protocol::{
    Hello, Input, Limit, Message as ReaperMessage, Output, Request, TaskSpec, VERSION,
};
use penstock_exec::service::journal::{self, JournalContents, JournalId};
use penstock_exec::service::{Chunk, Effect, Service, Settings, Surroundings};
use penstock_exec::{
    BootId, ConnectionId, JobId, Pid, ProcessId, Rank, Reaper, SpawnFailure, Step, Usage,
    WaitStatus,
};
use penstock_flux::{flags, role};
use penstock_wire::{Message, MessageType};
use proptest::prelude::*;
use serde_json::{Value, json};
use virtual_kernel::{REAPER, VirtualKernel};

const BOOT: BootId = BootId(42);
const OWNER: u32 = 1000;
const JOURNAL: JournalId = JournalId(7);
const URI: &str = "local:///run/penstock.sock";
/// `RLIMIT_CPU` and `RLIMIT_NOFILE` in Linux.
const CPU: u32 = 0;
const NOFILE: u32 = 7;
/// Longer than every timeout of the service, in seconds.
const BEYOND_ALL_TIMEOUTS_S: f64 = 60.0;

/// The state of the job manager's conversation about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conversation {
    Idle,
    Requested { reattach: bool },
    Started,
    Finished,
}

/// A job as the job manager has it.
#[derive(Debug)]
struct ManagedJob {
    jobspec: Value,
    r: Option<Value>,
    was_sent: bool,
    conversation: Conversation,
    is_cancelled: bool,
    is_released: bool,
    statuses: Vec<i64>,
    usages: Vec<Value>,
    /// The types of its exceptions.
    exceptions: Vec<String>,
    notes: Vec<String>,
    answers: Vec<String>,
}

impl ManagedJob {
    fn has_started(&self) -> bool {
        let is_start = |answer: &String| matches!(answer.as_str(), "start" | "reattached");
        self.answers.iter().any(is_start)
    }
}

/// A job manager, a reaper over a virtual kernel, a service between them, and what is under way.
struct World {
    jobs: BTreeMap<u64, ManagedJob>,
    is_registered: bool,
    /// The journal of all services that have had a start request which is not answered.
    journal_sent: Option<String>,
    to_service: VecDeque<Message>,
    to_manager: VecDeque<Message>,
    service: Option<Service>,
    is_connected: bool,
    journal: Vec<u8>,
    /// Whether the journal cannot be written.
    is_journal_full: bool,
    /// The part of a record that a failed write has left at the end of the journal.
    torn: Vec<u8>,
    kernel: VirtualKernel,
    reaper: Option<Reaper>,
    connection: u64,
    /// Requests of all services to the reaper: those of a killed service come before those of the next.
    to_reaper: VecDeque<(ConnectionId, u32, Request)>,
    from_reaper: VecDeque<(ConnectionId, ReaperMessage)>,
    /// The job of every process.
    owners: BTreeMap<Pid, u64>,
    /// Jobs of which the reaper was killed while they had a process.
    orphaned: BTreeSet<u64>,
    lines: Vec<String>,
    logged: Vec<String>,
    files: BTreeMap<(u64, &'static str), Vec<u8>>,
    /// The requests to the service `pmix-exec`: topic and payload.
    pmix_requests: Vec<(String, Value)>,
    /// The last request for a PMIx server.
    pmix_start: Option<Message>,
    /// The environment that PMIx servers give; without one, requests for servers are not answered.
    pmix_environment: Option<Value>,
    settings: Settings,
    now: f64,
}

fn settings() -> Settings {
    let mut environment = BTreeMap::new();
    environment.insert(b"HOME".to_vec(), b"/home".to_vec());
    environment.insert(b"PENSTOCK_WITHIN_0".to_vec(), b"outer".to_vec());
    Settings {
        name: "job-exec".to_owned(),
        owner: OWNER,
        boot: BOOT,
        surroundings: Surroundings {
            uri: URI.to_owned(),
            environment,
            directory: CString::from(c"/start"),
            output: PathBuf::from("/state/output"),
            cpus: "0-3".parse().expect("valid"),
            bind: true,
            umask: 0o022,
            hard_limits: BTreeMap::from([(NOFILE, 4096)]),
        },
        kill_timeout_s: 5.0,
        output_limit: 1000,
        end_when_idle: false,
    }
}

fn jobspec(ntasks: u32, command: &[&str]) -> Value {
    json!({
        "version": 1,
        "resources": [{"type": "slot", "count": ntasks, "label": "task", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": command, "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "cwd": "/work", "environment": {"PATH": "/bin"}}},
    })
}

/// The jobspec with these shell options.
fn with_options(mut spec: Value, options: &Value) -> Value {
    spec["attributes"]["system"]["shell"] = json!({"options": options});
    spec
}

fn resources(ntasks: u32) -> Value {
    let cores: Vec<_> = (0..ntasks).map(|core| core.to_string()).collect();
    json!({"version": 1, "execution": {
        "R_lite": [{"rank": "3", "children": {"core": cores.join(",")}}],
        "nodelist": ["n3"],
    }})
}

impl World {
    fn new() -> Self {
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
            orphaned: BTreeSet::new(),
            lines: Vec::new(),
            logged: Vec::new(),
            files: BTreeMap::new(),
            pmix_requests: Vec::new(),
            pmix_start: None,
            pmix_environment: Some(json!({"0": {"PMIX_RANK": "0"}, "1": {"PMIX_RANK": "1"}})),
            settings: settings(),
            now: 1000.0,
        };
        world.start_service();
        world.connect();
        world.run();
        world
    }

    /// A world in which job 1 has one task, which is running.
    fn with_running_job() -> Self {
        let mut world = Self::new();
        submit(&mut world, 1, 1);
        world.run();
        world
    }

    fn service(&self) -> &Service {
        self.service.as_ref().expect("it runs")
    }

    fn service_mut(&mut self) -> &mut Service {
        self.service.as_mut().expect("it runs")
    }

    fn finish_write(&mut self, result: io::Result<()>) {
        let now = self.now;
        self.service_mut().finish_write(result, now);
    }

    /// Delivers the first message to the service without carrying out what follows.
    fn deliver_one_to_service(&mut self) {
        let message = self.to_service.pop_front().expect("one is under way");
        self.service_mut().handle(&message);
    }

    // --- the job manager

    fn submit(&mut self, id: u64, jobspec: Value, r: Option<Value>) {
        let job = ManagedJob {
            jobspec,
            r,
            was_sent: false,
            conversation: Conversation::Idle,
            is_cancelled: false,
            is_released: false,
            statuses: Vec::new(),
            usages: Vec::new(),
            exceptions: Vec::new(),
            notes: Vec::new(),
            answers: Vec::new(),
        };
        self.jobs.insert(id, job);
        if self.is_registered {
            self.send_start(id);
        }
    }

    fn request(topic: &str, payload: &Value) -> Message {
        let mut request = Message::request(topic, &payload.to_string());
        request.userid = OWNER;
        request.rolemask = role::OWNER;
        request.push_route(b"manager");
        request
    }

    fn send_start(&mut self, id: u64) {
        let job = self.jobs.get_mut(&id).expect("submitted");
        let reattach = job.was_sent;
        job.was_sent = true;
        job.conversation = Conversation::Requested { reattach };
        let mut payload = json!({
            "id": id, "userid": OWNER, "jobspec": job.jobspec, "reattach": reattach,
        });
        if let Some(r) = &job.r {
            payload["R"] = r.clone();
        }
        if let Some(sent) = self
            .journal_sent
            .as_ref()
            .filter(|_| reattach && !job.has_started())
        {
            payload["journal"] = json!(sent);
        }
        let is_cancelled = job.is_cancelled;
        self.to_service
            .push_back(Self::request("job-exec.start", &payload));
        if is_cancelled {
            self.send_exception(id);
        }
    }

    fn send_exception(&mut self, id: u64) {
        let payload = json!({"id": id, "type": "cancel", "severity": 0}).to_string();
        self.to_service
            .push_back(Message::event("job-exception", &payload, 1));
    }

    fn cancel(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.is_released) else {
            return;
        };
        job.is_cancelled = true;
        if self.is_registered {
            self.send_exception(id);
        }
    }

    /// Handles a message of the service as a job manager does.
    fn manage(&mut self, message: &Message) {
        if message.kind == MessageType::Response {
            return self.take_answer(message);
        }
        match message.topic() {
            "kvs.lookup" => {
                let lookup: Value = message.read().expect("JSON");
                assert_eq!(lookup["key"], "job.0000.0000.0000.0001.R");
                let r = resources(1).to_string();
                let dirent = penstock_flux::kvs::Dirent::of(r.as_bytes());
                let payload = json!({"val": dirent}).to_string();
                let payload = Some(Message::json_payload(&payload));
                self.to_service
                    .push_back(Message::response_to(message, 0, payload));
                return;
            }
            "job-list.wait" => {}
            topic if topic.starts_with("pmix-exec.") => self.serve_pmix(message),
            _ => self
                .to_service
                .push_back(Message::response_to(message, 0, None)),
        }
        if message.topic() == "job-manager.exec-hello" {
            self.is_registered = true;
            let hello: Value = message.read().expect("JSON");
            let journal = hello["journal"].as_str().map(str::to_owned);
            if journal != self.journal_sent {
                let is_unanswered =
                    |job: &ManagedJob| job.was_sent && !job.has_started() && !job.is_released;
                let has_unanswered = self.jobs.values().any(is_unanswered);
                self.journal_sent = journal.filter(|_| !has_unanswered);
            }
            let open = self.jobs.iter().filter(|(_, job)| !job.is_released);
            let open: Vec<_> = open.map(|(id, _)| *id).collect();
            for id in open {
                self.send_start(id);
            }
        }
    }

    fn serve_pmix(&mut self, request: &Message) {
        let payload: Value = request.read().expect("JSON");
        self.pmix_requests
            .push((request.topic().to_owned(), payload));
        if request.topic() != "pmix-exec.start" {
            assert!(request.is_noresponse());
            return;
        }
        assert!(request.is_streaming());
        self.pmix_start = Some(request.clone());
        if let Some(environment) = &self.pmix_environment {
            let payload = json!({"environment": environment}).to_string();
            let payload = Some(Message::json_payload(&payload));
            self.to_service
                .push_back(Message::response_to(request, 0, payload));
        }
    }

    /// Ends the stream of the last request for a PMIx server.
    fn fail_pmix(&mut self, errnum: u32, text: &str) {
        let start = self.pmix_start.as_ref().expect("requested");
        self.to_service
            .push_back(Message::error_to(start, errnum, text));
        self.run();
    }

    /// The methods of the requests to `pmix-exec`, with the values of their keys but the id and the tasks.
    fn pmix_log(&self) -> Vec<String> {
        let line = |(topic, payload): &(String, Value)| {
            assert_eq!(payload["id"], 1);
            let method = topic.strip_prefix("pmix-exec.").expect("its service");
            match method {
                "start" => format!("start {}", payload["reattach"]),
                "ended" => format!("ended {}", payload["rank"]),
                method => method.to_owned(),
            }
        };
        self.pmix_requests.iter().map(line).collect()
    }

    fn take_answer(&mut self, message: &Message) {
        if message.topic() != "job-exec.start" {
            return;
        }
        assert_eq!(message.errnum(), 0, "{message:?}");
        assert!(message.flags & flags::STREAMING != 0);
        let answer: Value = message.read().expect("JSON");
        let id = answer["id"].as_u64().expect("an id");
        let kind = answer["type"].as_str().expect("a type");
        let job = self.jobs.get_mut(&id).expect("submitted");
        assert!(!job.is_released, "{kind} after the final release");
        job.answers.push(kind.to_owned());
        let has_failed = job.is_cancelled || !job.notes.is_empty();
        job.conversation = match (job.conversation, kind) {
            (Conversation::Requested { .. }, "start")
            | (Conversation::Requested { reattach: true }, "reattached") => Conversation::Started,
            (conversation, "exception") => {
                let data = &answer["data"];
                assert_eq!(data["severity"], 0);
                let text = |key: &str| data[key].as_str().expect("text").to_owned();
                job.exceptions.push(text("type"));
                job.notes.push(text("note"));
                conversation
            }
            (conversation, "finish") => {
                assert!(
                    conversation == Conversation::Started || has_failed,
                    "{conversation:?}"
                );
                job.statuses
                    .push(answer["data"]["status"].as_i64().expect("a status"));
                job.usages.push(answer["data"]["usage"].clone());
                Conversation::Finished
            }
            (conversation, "release") => {
                assert!(
                    conversation == Conversation::Finished || has_failed,
                    "{conversation:?}"
                );
                assert_eq!(answer["data"], json!({"ranks": "all", "final": true}));
                job.is_released = true;
                if !self.orphaned.contains(&id) {
                    let left = self.processes_of(id);
                    assert!(left.is_empty(), "released while {left:?} run");
                }
                return;
            }
            (conversation, kind) => panic!("{kind} in {conversation:?}"),
        };
    }

    fn processes_of(&self, id: u64) -> Vec<Pid> {
        let processes = self.kernel.processes.keys().copied();
        processes
            .filter(|pid| self.owners.get(pid) == Some(&id))
            .collect()
    }

    // --- the service

    fn start_service(&mut self) {
        self.journal.append(&mut self.torn);
        let journal = if self.journal.is_empty() {
            JournalContents::new(URI, JOURNAL)
        } else {
            JournalContents::decode(&self.journal).expect("its header is whole")
        };
        self.service = Some(Service::new(self.settings.clone(), journal));
    }

    /// Kills the service after it has carried out some effects of its last turn, the next one perhaps in part.
    fn crash_service(&mut self, effects: usize, torn: usize) {
        let mut left = effects;
        while let Some(service) = &mut self.service {
            service.settle(self.now);
            let drained = service.drain();
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
    fn lose_connection(&mut self) {
        self.to_manager.clear();
        self.disconnect_manager();
        if let Some(service) = &mut self.service {
            service.handle_disconnect();
        }
        self.turn_service();
        self.to_manager.clear();
    }

    fn disconnect_manager(&mut self) {
        self.is_connected = false;
        self.is_registered = false;
        self.to_service.clear();
        for job in self.jobs.values_mut() {
            job.conversation = Conversation::Idle;
        }
    }

    /// Connects what is not connected: service, job manager and reaper.
    fn connect(&mut self) {
        if self.service.is_none() {
            self.start_service();
        }
        let service = self.service.as_mut().expect("started");
        if !self.is_connected {
            self.is_connected = true;
            service.register();
        }
        self.turn_service();
    }

    fn connect_reaper(&mut self) {
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
        self.turn_reaper();
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
        self.turn_service();
    }

    /// Kills the reaper: tasks continue, with another parent.
    fn crash_reaper(&mut self) {
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
        self.kernel.watched.clear();
        self.to_reaper.clear();
        self.from_reaper.clear();
        if let Some(service) = &mut self.service {
            service.handle_reaper_loss();
        }
        self.turn_service();
    }

    /// Lets the service take its next steps.
    fn turn_service(&mut self) {
        loop {
            let Some(service) = &mut self.service else {
                return;
            };
            service.settle(self.now);
            let effects = service.drain();
            if effects.is_empty() {
                break;
            }
            assert_eq!(service.failure(), None);
            for effect in effects {
                self.perform(effect);
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
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
            Effect::WriteLine(_, line) => self.lines.push(line),
            Effect::Log(text) => self.logged.push(text),
            Effect::CreateOutput(_) | Effect::MeasureOutput(_) => {}
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
    fn check_intents(&self, request: &Request) {
        if let Request::Spawn(specs) = request {
            let journal = JournalContents::decode(&self.journal).expect("valid");
            for spec in specs {
                assert!(journal.jobs.contains_key(&spec.task.job));
            }
        }
    }

    // --- deliveries

    fn deliver_to_service(&mut self) -> bool {
        let Some(service) = &mut self.service else {
            return false;
        };
        let Some(message) = self.to_service.pop_front() else {
            return false;
        };
        service.handle(&message);
        self.turn_service();
        true
    }

    fn deliver_to_manager(&mut self) -> bool {
        let Some(message) = self.to_manager.pop_front() else {
            return false;
        };
        self.manage(&message);
        true
    }

    fn deliver_to_reaper(&mut self) -> bool {
        let Some(reaper) = &mut self.reaper else {
            return false;
        };
        let Some((connection, id, request)) = self.to_reaper.pop_front() else {
            return false;
        };
        reaper.handle(connection, id, request, &mut self.kernel);
        self.turn_reaper();
        true
    }

    fn deliver_from_reaper(&mut self) -> bool {
        let Some((connection, message)) = self.from_reaper.pop_front() else {
            return false;
        };
        if connection == ConnectionId(self.connection)
            && let Some(service) = &mut self.service
        {
            service.handle_reaper_message(message);
            self.turn_service();
        }
        true
    }

    fn turn_reaper(&mut self) {
        let Some(reaper) = &mut self.reaper else {
            return;
        };
        loop {
            let exits = std::mem::take(&mut self.kernel.ended);
            reaper.reap(&exits, 0);
            let watched = self.kernel.watched.iter().copied();
            let ended = watched.filter(|pid| !self.kernel.processes.contains_key(pid));
            for pid in ended.collect::<Vec<_>>() {
                self.kernel.watched.remove(&pid);
                reaper.note_orphan_end(pid, 0);
            }
            reaper.step(&mut self.kernel);
            reaper.settle(&mut self.kernel);
            assert!(!reaper.has_unwritten_records());
            self.from_reaper.extend(reaper.drain());
            if !reaper.has_queued_requests() && self.kernel.ended.is_empty() {
                break;
            }
        }
        for (task, pid) in &self.kernel.spawned {
            self.owners.insert(*pid, task.job.get());
        }
    }

    fn end_process(&mut self, index: usize, status: WaitStatus) {
        let count = self.kernel.processes.len();
        if count > 0 {
            let pid = self.kernel.processes.keys().nth(index % count).copied();
            self.kernel.end(pid.expect("in range"), status);
            self.turn_reaper();
        }
    }

    fn fork(&mut self, index: usize) {
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
        }
    }

    fn advance(&mut self, seconds: f64) {
        self.now += seconds;
        if let Some(service) = &mut self.service {
            service.advance(self.now);
        }
        self.turn_service();
    }

    /// Delivers everything that is under way.
    fn run(&mut self) {
        if self.service.is_some() && self.reaper.is_none() {
            self.connect_reaper();
        }
        while self.deliver_to_service()
            || self.deliver_to_manager()
            || self.deliver_to_reaper()
            || self.deliver_from_reaper()
        {}
    }

    /// Brings everything up again.
    fn restart(&mut self) {
        if self.service.is_none() {
            self.start_service();
            self.connect_reaper();
        }
        self.connect();
        self.run();
    }

    /// Ends all processes and all jobs.
    fn wind_up(&mut self) {
        self.is_journal_full = false;
        self.advance(BEYOND_ALL_TIMEOUTS_S);
        self.restart();
        while !self.kernel.processes.is_empty() {
            self.end_process(0, WaitStatus::Exited(0));
            self.run();
        }
        for _ in 0..3 {
            self.advance(BEYOND_ALL_TIMEOUTS_S);
            self.run();
        }
    }

    fn job(&self, id: u64) -> &ManagedJob {
        &self.jobs[&id]
    }

    fn job_mut(&mut self, id: u64) -> &mut ManagedJob {
        self.jobs.get_mut(&id).expect("submitted")
    }

    fn answers(&self, id: u64) -> Vec<&str> {
        self.job(id).answers.iter().map(String::as_str).collect()
    }

    fn spawned(&self, id: u64) -> Vec<Pid> {
        let spawned = self.kernel.spawned.iter();
        let of_job = spawned.filter(|(task, _)| task.job == JobId::new(id));
        of_job.map(|(_, pid)| *pid).collect()
    }

    /// The greatest wait status of a job's processes, as `wait` reports it.
    fn expected_status(&self, id: u64) -> i64 {
        let status = |pid: Pid| match self.kernel.statuses[&pid] {
            WaitStatus::Exited(code) => i64::from(code) << 8,
            WaitStatus::Signaled { signal, .. } => i64::from(signal),
            WaitStatus::Unknown => unreachable!("the kernel knows"),
        };
        let statuses = self.spawned(id).into_iter().map(status);
        statuses.max().expect("it started")
    }

    /// The tasks of the spawn requests that are under way.
    fn requested(&self) -> Vec<TaskSpec> {
        let specs = |(_, _, request): &(ConnectionId, u32, Request)| match request {
            Request::Spawn(specs) => specs.clone(),
            _ => Vec::new(),
        };
        self.to_reaper.iter().flat_map(specs).collect()
    }
}

fn submit(world: &mut World, id: u64, ntasks: u32) {
    world.submit(id, jobspec(ntasks, &["true"]), Some(resources(ntasks)));
}

fn exited(code: u8) -> WaitStatus {
    WaitStatus::Exited(code)
}

#[test]
fn a_job_is_started_finished_released_and_forgotten() {
    let mut world = World::new();
    submit(&mut world, 1, 2);
    world.run();
    assert_eq!(world.answers(1), ["start"]);
    world.end_process(0, exited(3));
    world.end_process(0, exited(1));
    world.run();
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert!(
        JournalContents::decode(&world.journal)
            .expect("valid")
            .jobs
            .is_empty()
    );
    assert!(world.kernel.log().jobs.is_empty());
    assert_eq!(world.service().jobs(), 0);
}

#[test]
fn a_start_without_r_looks_it_up_and_gets_no_reattached() {
    let mut world = World::new();
    world.submit(1, jobspec(1, &["true"]), None);
    world.run();
    assert_eq!(world.answers(1), ["start"]);
    world.crash_service(0, 0);
    world.restart();
    world.end_process(0, exited(0));
    world.run();
    // The first version of RFC 32 has no R in the request, and no `reattached`.
    assert_eq!(world.answers(1), ["start", "start", "finish", "release"]);
}

#[test]
fn a_killed_service_reattaches_and_reports_what_has_ended_meanwhile() {
    let mut world = World::new();
    submit(&mut world, 1, 1);
    submit(&mut world, 2, 1);
    world.run();
    world.crash_service(0, 0);
    world.end_process(0, exited(7));
    world.restart();
    let reported = ["start", "reattached", "finish", "release"];
    assert_eq!(world.answers(1), reported);
    assert_eq!(world.job(1).statuses, [7 << 8]);
    assert_eq!(world.answers(2), reported[..2]);
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.answers(2), reported);
    assert_eq!(world.kernel.spawned.len(), 2);
}

#[test]
fn an_instance_that_comes_back_learns_what_has_ended_meanwhile() {
    let mut world = World::with_running_job();
    world.lose_connection();
    world.end_process(0, exited(2));
    world.run();
    world.connect();
    world.run();
    let reported = ["start", "reattached", "finish", "release"];
    assert_eq!(world.answers(1), reported);
    assert_eq!(world.job(1).statuses, [2 << 8]);
}

#[test]
fn a_release_that_was_lost_is_repeated() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(2));
    while world.deliver_from_reaper() {}
    // `finish` and `release` are under way.
    world.lose_connection();
    world.connect();
    world.run();
    assert_eq!(
        world.answers(1),
        ["start", "reattached", "finish", "release"]
    );
    assert_eq!(world.job(1).statuses, [2 << 8]);
    assert!(world.job(1).notes.is_empty());
}

#[test]
fn jobs_are_forgotten_after_an_acknowledgement_was_lost() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(0));
    while world.deliver_from_reaper() || world.deliver_to_manager() {}
    assert!(world.job(1).is_released);
    world.lose_connection();
    world.connect();
    submit(&mut world, 2, 1);
    world.run();
    world.end_process(0, exited(0));
    world.run();
    assert!(world.job(2).is_released);
    assert_eq!(world.service().jobs(), 0);
    assert!(world.kernel.log().jobs.is_empty());
}

#[test]
fn a_job_that_the_instance_does_not_ask_for_is_forgotten_when_it_has_ended() {
    let mut world = World::with_running_job();
    world.lose_connection();
    world.job_mut(1).is_released = true;
    world.connect();
    world.run();
    assert_eq!(world.service().jobs(), 1);
    assert_eq!(world.kernel.processes.len(), 1, "it is left alone");
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.service().jobs(), 0);
    let journal = JournalContents::decode(&world.journal).expect("valid");
    assert!(journal.jobs.is_empty(), "{journal:?}");
    assert!(world.kernel.log().jobs.is_empty());
}

#[test]
fn a_task_that_the_reaper_has_lost_is_not_started_again() {
    let mut world = World::with_running_job();
    world.crash_reaper();
    world.kernel.log.clear();
    world.run();
    assert_eq!(world.kernel.spawned.len(), 1);
    assert_eq!(world.answers(1), ["start", "exception", "release"]);
}

#[test]
fn an_intent_that_the_reaper_does_not_know_is_carried_out() {
    let mut world = World::new();
    submit(&mut world, 1, 2);
    world.deliver_one_to_service();
    // Only the journal is written.
    world.crash_service(1, 0);
    let journal = JournalContents::decode(&world.journal).expect("valid");
    assert!(journal.jobs.contains_key(&JobId::new(1)));
    assert!(world.to_reaper.is_empty());
    world.restart();
    assert_eq!(world.answers(1), ["start"]);
    assert_eq!(world.kernel.spawned.len(), 2);
}

#[test]
fn a_cancelled_job_that_only_the_journal_knows_is_not_started() {
    let mut world = World::new();
    submit(&mut world, 1, 1);
    world.deliver_one_to_service();
    world.crash_service(1, 0);
    world.cancel(1);
    // The reaper's list is there before the start request, and that before the exception.
    world.start_service();
    world.connect_reaper();
    world.run();
    world.restart();
    assert_eq!(world.answers(1), ["release"]);
    assert!(world.kernel.spawned.is_empty());
}

#[test]
fn a_job_that_a_killed_service_has_not_recorded_is_started_by_the_next_one() {
    let mut world = World::new();
    submit(&mut world, 1, 1);
    world.deliver_one_to_service();
    world.crash_service(0, 3);
    world.restart();
    assert_eq!(world.answers(1), ["start"]);
    world.end_process(0, exited(3));
    world.run();
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert_eq!(world.kernel.spawned.len(), 1);
}

/// A new journal, and one that a power failure may have cut off.
#[test]
fn a_job_without_a_record_in_another_journal_is_not_started_a_second_time() {
    for reboots in [false, true] {
        let mut world = World::new();
        submit(&mut world, 1, 1);
        world.deliver_one_to_service();
        world.crash_service(0, 3);
        if reboots {
            world.reaper = None;
            world.settings.boot = BootId(43);
        } else {
            world.journal = journal::header(URI, JournalId(8));
        }
        world.restart();
        check_is_lost(&world);
    }
}

fn check_is_lost(world: &World) {
    assert_eq!(world.answers(1), ["exception", "release"]);
    let note = "lost: the execution service has no record of the job's start";
    assert_eq!(world.job(1).notes, [note]);
    assert!(world.kernel.spawned.is_empty());
}

#[test]
fn requests_that_a_killed_service_has_left_are_not_repeated() {
    let mut world = World::new();
    submit(&mut world, 1, 3);
    assert!(world.deliver_to_service());
    assert_eq!(world.to_reaper.len(), 1);
    world.crash_service(0, 0);
    world.restart();
    assert_eq!(world.answers(1), ["reattached"]);
    assert_eq!(world.kernel.spawned.len(), 3);
}

#[test]
fn after_a_reboot_an_exception_says_so() {
    let mut world = World::new();
    submit(&mut world, 1, 1);
    submit(&mut world, 2, 1);
    world.run();
    world.end_process(1, exited(4));
    world.crash_service(0, 0);
    world.reaper = None;
    world.kernel.processes.clear();
    world.settings.boot = BootId(43);
    world.restart();
    let note = "the machine was rebooted while the job ran";
    assert_eq!(world.job(1).notes, [note]);
    assert_eq!(world.answers(1), ["start", "exception", "release"]);
    // The end of the second job was recorded before.
    assert_eq!(world.job(2).statuses, [4 << 8]);
    assert!(world.job(2).notes.is_empty());
    world.run();
    assert!(
        JournalContents::decode(&world.journal)
            .expect("valid")
            .jobs
            .is_empty()
    );
}

#[test]
fn the_status_of_a_task_whose_reaper_was_killed_is_not_invented() {
    let mut world = World::with_running_job();
    world.crash_reaper();
    world.connect_reaper();
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.answers(1), ["start", "exception", "release"]);
    let note = "the wait status of task 0 is lost: the reaper was killed";
    assert_eq!(world.job(1).notes, [note]);
}

#[test]
fn a_cancelled_job_gets_sigterm_and_what_is_left_sigkill() {
    let mut world = World::with_running_job();
    world.fork(0);
    world.cancel(1);
    world.run();
    assert_eq!(world.job(1).statuses, [15]);
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert!(world.kernel.processes.is_empty());
}

#[test]
fn the_wait_status_of_an_exception_is_that_of_its_job() {
    let mut world = World::with_running_job();
    world.job_mut(1).is_cancelled = true;
    let payload = json!({"id": 1, "type": "cancel", "severity": 0, "wait_status": 9}).to_string();
    let event = Message::event("job-exception", &payload, 1);
    world.to_service.push_back(event);
    world.run();
    // As a shell shows a task that SIGKILL has ended.
    assert_eq!(world.job(1).statuses, [137 << 8]);
}

#[test]
fn a_lost_kill_is_repeated() {
    let is_kill =
        |(_, _, request): &(ConnectionId, u32, Request)| matches!(request, Request::Kill(_));
    let mut world = World::with_running_job();
    world.cancel(1);
    while world.deliver_to_service() {}
    // The task ignores SIGTERM.
    world.to_reaper.clear();
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    assert!(world.to_reaper.iter().any(is_kill));
    // SIGKILL does not end it either, for a time.
    world.to_reaper.clear();
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    assert!(world.to_reaper.iter().any(is_kill));
    // The next reaper is requested at once.
    world.crash_reaper();
    world.run();
    assert!(world.kernel.processes.is_empty());
    assert!(world.job(1).is_released);
}

#[test]
fn the_first_error_of_a_registration_is_reported() {
    let mut world = World::new();
    world.lose_connection();
    let now = world.now;
    let service = world.service_mut();
    service.register();
    service.settle(now);
    let errors = [(17, "it is taken"), (0, ""), (1, "it is not yours")].into_iter();
    for (effect, (errnum, text)) in service.drain().into_iter().zip(errors) {
        if let Effect::Send(request) = effect {
            service.handle(&Message::error_to(&request, errnum, text));
        }
    }
    let failure = service.failure().expect("rejected");
    let expected = "service.add failed with errnum 17: it is taken\nhint: ";
    assert!(failure.starts_with(expected), "{failure}");
}

#[test]
fn a_job_that_the_reaper_cannot_forget_is_killed_and_forgotten() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(0));
    while world.to_reaper.is_empty() {
        assert!(
            world.deliver_from_reaper() || world.deliver_to_manager() || world.deliver_to_service()
        );
    }
    let jobs = vec![JobId::new(1)];
    let (to, id, request) = world.to_reaper.pop_front().expect("one");
    assert_eq!(request, Request::Forget(jobs.clone()));
    // It has found a process.
    let errno = libc::EBUSY;
    world
        .from_reaper
        .push_back((to, ReaperMessage::Done { id, errno }));
    world.deliver_from_reaper();
    let (_, _, request) = world.to_reaper.pop_front().expect("one");
    assert_eq!(request, Request::Kill(jobs.clone()));
    let empty = penstock_exec::protocol::Event::Empty { job: JobId::new(1) };
    world
        .from_reaper
        .push_back((to, ReaperMessage::Events(vec![empty])));
    world.deliver_from_reaper();
    let (_, _, request) = world.to_reaper.pop_front().expect("one");
    assert_eq!(request, Request::Forget(jobs));
}

#[test]
fn a_job_ends_when_its_allocation_expires_with_or_without_an_instance() {
    for is_connected in [true, false] {
        let mut world = World::new();
        let mut r = resources(1);
        r["execution"]["starttime"] = json!(1000.0);
        r["execution"]["expiration"] = json!(1010.0);
        world.submit(1, jobspec(1, &["sleep"]), Some(r));
        world.run();
        if !is_connected {
            world.lose_connection();
        }
        world.advance(9.0);
        world.run();
        assert_eq!(world.kernel.processes.len(), 1);
        world.advance(2.0);
        world.run();
        assert!(world.kernel.processes.is_empty());
        world.connect();
        world.run();
        assert_eq!(world.job(1).notes, ["resource allocation expired"]);
        assert_eq!(world.job(1).statuses, [15]);
    }
}

#[test]
fn a_program_that_does_not_exist_has_status_127_and_ends_the_others() {
    let mut world = World::new();
    let failure = |errno| SpawnFailure {
        step: Step::Exec,
        errno,
    };
    world.kernel.fails.insert(Rank(1), failure(2));
    submit(&mut world, 1, 2);
    world.run();
    assert_eq!(world.job(1).statuses, [127 << 8]);
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert_eq!(world.lines, ["penstock: true: command not found\n"]);
    world.kernel.fails.insert(Rank(0), failure(13));
    submit(&mut world, 2, 1);
    world.run();
    assert_eq!(world.job(2).statuses, [126 << 8]);
    assert_eq!(world.lines[1], "penstock: true: Permission denied\n");
}

#[test]
fn a_task_that_cannot_be_set_up_fails_the_job() {
    let cases = [
        (Step::Chdir, 2, "working directory `/work` does not exist"),
        (
            Step::Stdout,
            13,
            "cannot write `/state/output/1/stdout`: Permission denied",
        ),
        (
            Step::Limit,
            1,
            "cannot set the resource limits: Operation not permitted",
        ),
        (
            Step::Clone,
            11,
            "cannot start a task: Resource temporarily unavailable",
        ),
    ];
    for (step, errno, note) in cases {
        let mut world = World::new();
        world
            .kernel
            .fails
            .insert(Rank(1), SpawnFailure { step, errno });
        submit(&mut world, 1, 2);
        world.run();
        assert_eq!(world.job(1).notes, [note]);
        assert_eq!(world.answers(1), ["exception", "release"]);
        assert!(world.kernel.processes.is_empty());
    }
}

#[test]
fn what_is_not_supported_is_rejected() {
    let options = [
        (
            json!({"pty": {"interactive": 1}}),
            "does not support a pseudo-terminal (`pty`) yet",
        ),
        (
            json!({"rlimit": {"locks": 5}}),
            "shell option `rlimit.locks`: unknown resource: expected cpu, fsize, ",
        ),
        (
            json!({"rlimit": {"cpu": -2}}),
            "shell option `rlimit.cpu`: expected a number, -1 or `unlimited`, found `-2`",
        ),
        (
            json!({"rlimit": 5}),
            "shell option `rlimit`: expected an object, found `5`",
        ),
        (
            json!({"input": {"stdin": {"path": "x"}}}),
            "does not support standard input (`input`) yet, except from a file",
        ),
        (
            json!({"input": {"stdin": {"type": "file", "path": "x", "ranks": "0"}}}),
            "does not support standard input (`input`) yet, except from a file",
        ),
        (
            json!({"input": {"stdin": {"type": "file", "path": 5}}}),
            "shell option `input.stdin.path`: expected a path",
        ),
        (
            json!({"input": {"stdout": {"type": "file"}}}),
            "does not support `input.stdout` yet",
        ),
        (
            json!({"signal": true}),
            "shell option `signal`: expected an object or a number, found `true`",
        ),
        (
            json!({"signal": {"signum": 65}}),
            "shell option `signal.signum`: expected 1 to 64, found `65`",
        ),
        (
            json!({"signal": {"timeleft": "soon"}}),
            "shell option `signal.timeleft`: expected seconds or a duration, found `\"soon\"`",
        ),
        (
            json!({"input": true}),
            "shell option `input`: expected an object, found `true`",
        ),
        (
            json!({"output": {"stdout": {"label": true}}}),
            "does not support labelled output (`label`) yet",
        ),
        (
            json!({"output": {"stdout": {"path": "{{x}}"}}}),
            "output `{{x}}`: unknown `{{x}}`",
        ),
    ];
    for (options, text) in options {
        let mut world = World::new();
        let spec = with_options(jobspec(1, &["true"]), &options);
        world.submit(1, spec, Some(resources(1)));
        world.run();
        assert_eq!(world.answers(1), ["exception", "release"]);
        let note = &world.job(1).notes[0];
        assert!(note.contains(text), "{note}");
        assert!(world.kernel.spawned.is_empty());
        assert_eq!(world.service().jobs(), 0);
    }
    let mut world = World::new();
    let mut start = json!({
        "id": 1, "userid": OWNER + 1, "jobspec": jobspec(1, &["true"]), "reattach": false, "R": resources(1),
    });
    submit(&mut world, 1, 1);
    world.to_service.clear();
    world
        .to_service
        .push_back(World::request("job-exec.start", &start));
    world.run();
    assert!(world.job(1).notes[0].contains("no jobs of guests yet"));
    start["userid"] = json!(OWNER);
    let mut foreign = World::request("job-exec.start", &start);
    foreign.rolemask = role::USER;
    world.to_service.push_back(foreign);
    while world.deliver_to_service() {}
    let answer = world.to_manager.pop_front().expect("an error");
    assert_eq!(answer.errnum(), penstock_flux::errno::EPERM);
}

#[test]
fn tasks_have_the_environment_output_and_cores_of_their_job() {
    let mut world = World::new();
    submit(&mut world, 1, 2);
    world.deliver_to_service();
    let [first, second] = <[TaskSpec; 2]>::try_from(world.requested()).expect("two");
    let variable = |spec: &TaskSpec, name: &str| {
        let prefix = format!("{name}=");
        let texts = spec
            .environment
            .iter()
            .map(|text| text.to_str().expect("UTF-8"));
        let mut found = texts.filter_map(|text| text.strip_prefix(&prefix));
        found.next().map(str::to_owned)
    };
    let is = |name: &str, value: &str| assert_eq!(variable(&second, name).as_deref(), Some(value));
    is("PATH", "/bin");
    is("PENSTOCK_JOB_ID", "ƒ2");
    is("FLUX_JOB_SIZE", "2");
    is("FLUX_JOB_NNODES", "1");
    is("FLUX_TASK_RANK", "1");
    is("PENSTOCK_LOCAL_RANK", "1");
    is("PENSTOCK_URI", URI);
    is("PENSTOCK_WITHIN_0", "outer");
    is("PENSTOCK_WITHIN_1", &format!("{URI} ƒ2"));
    is("CUDA_VISIBLE_DEVICES", "-1");
    assert_eq!(variable(&second, "HOME"), None);
    assert_eq!(first.cpus, [0]);
    assert_eq!(second.cpus, [1]);
    assert_eq!(first.directory.as_c_str(), c"/work");
    let retained = |name: &str| CString::new(format!("/state/output/1/{name}")).expect("text");
    assert_eq!(first.stdout, Output::Truncate(retained("stdout")));
    assert_eq!(first.stderr, Output::Truncate(retained("stderr")));
    assert_eq!(second.stdout, Output::Append(retained("stdout")));
}

#[test]
fn resource_limits_are_soft_limits_below_the_hard_limits_of_the_service() {
    let mut world = World::new();
    let limits = json!({"nofile": 100, "cpu": "unlimited"});
    let options = json!({"rlimit": limits});
    world.submit(
        1,
        with_options(jobspec(2, &["true"]), &options),
        Some(resources(2)),
    );
    let options = json!({"rlimit": {"ofile": -1}});
    world.submit(
        2,
        with_options(jobspec(1, &["true"]), &options),
        Some(resources(1)),
    );
    let options = json!({"rlimit": {}});
    world.submit(
        3,
        with_options(jobspec(1, &["true"]), &options),
        Some(resources(1)),
    );
    while world.deliver_to_service() {}
    let limit = |resource, soft, hard| Limit {
        resource,
        soft,
        hard,
    };
    let both = vec![limit(CPU, u64::MAX, u64::MAX), limit(NOFILE, 100, 4096)];
    let lowered = vec![limit(NOFILE, 4096, 4096)];
    let found: Vec<_> = world
        .requested()
        .into_iter()
        .map(|spec| spec.limits)
        .collect();
    assert_eq!(found, [both.clone(), both, lowered, Vec::new()]);
}

#[test]
fn standard_input_is_a_file_if_requested() {
    let mut world = World::new();
    let options = json!({"input": {"stdin": {"type": "file", "path": "data/in"}}});
    let file = with_options(jobspec(2, &["cat"]), &options);
    world.submit(1, file, Some(resources(2)));
    let options = json!({"input": {"stdin": {}}});
    let null = with_options(jobspec(1, &["cat"]), &options);
    world.submit(2, null, Some(resources(1)));
    while world.deliver_to_service() {}
    let requested = world.requested().into_iter();
    let found: Vec<_> = requested.map(|spec| spec.stdin).collect();
    let file = || Input::File(CString::from(c"data/in"));
    assert_eq!(found, [file(), file(), Input::Null]);
    let errno = libc::ENOENT;
    let failure = SpawnFailure {
        step: Step::Stdin,
        errno,
    };
    world.kernel.fails.insert(Rank(0), failure);
    world.run();
    assert_eq!(
        world.job(1).notes,
        ["cannot read `data/in`: No such file or directory"]
    );
    assert_eq!(world.answers(1), ["exception", "release"]);
}

#[test]
fn the_resource_usage_of_all_tasks_is_reported_also_after_a_restart() {
    let mut world = World::new();
    submit(&mut world, 1, 3);
    world.run();
    let usage = |max_rss_kib, user_us, system_us| Usage {
        max_rss_kib,
        user_us,
        system_us,
    };
    world.kernel.usage = usage(300, 10, 1);
    world.end_process(0, exited(0));
    world.run();
    world.crash_service(0, 0);
    world.kernel.usage = usage(200, 20, u64::MAX);
    world.end_process(0, exited(0));
    world.restart();
    world.kernel.usage = usage(100, 30, 4);
    world.end_process(0, exited(0));
    world.run();
    let total = json!({"max_rss_kib": 300, "user_us": 60, "system_us": u64::MAX});
    assert_eq!(world.job(1).usages, [total]);
}

#[test]
fn a_job_without_a_process_has_no_resource_usage() {
    let mut world = World::new();
    let failure = SpawnFailure {
        step: Step::Exec,
        errno: libc::ENOENT,
    };
    world.kernel.fails.insert(Rank(0), failure);
    submit(&mut world, 1, 1);
    world.run();
    assert_eq!(world.job(1).statuses, [127 << 8]);
    assert_eq!(world.job(1).usages, [Value::Null]);
}

/// Submits a job of two tasks that ends after 100 seconds, with this shell option `signal`.
fn submit_with_signal(world: &mut World, signal: &Value) {
    let mut r = resources(2);
    r["execution"]["starttime"] = json!(world.now);
    r["execution"]["expiration"] = json!(world.now + 100.0);
    let spec = with_options(jobspec(2, &["sleep"]), &json!({"signal": signal}));
    world.submit(1, spec, Some(r));
    world.run();
}

#[test]
fn tasks_get_a_signal_before_the_end_of_their_allocation() {
    let cases = [
        (json!({"signum": 12, "timeleft": 30}), 70.0, 12),
        (json!({"signum": 12, "timeleft": "0.5m"}), 70.0, 12),
        (json!({"timeleft": 10.5}), 89.5, 10),
        (json!({}), 40.0, 10),
        (json!(1), 40.0, 10),
    ];
    for (option, seconds, signal) in cases {
        let mut world = World::new();
        submit_with_signal(&mut world, &option);
        world.advance(seconds - 0.25);
        world.run();
        assert_eq!(world.kernel.signals, [], "{option}");
        world.advance(0.25);
        world.run();
        let [first, second] = world.spawned(1)[..] else {
            unreachable!("two tasks")
        };
        assert_eq!(world.kernel.signals, [(first, signal), (second, signal)]);
        world.advance(1.0);
        world.run();
        assert_eq!(world.kernel.signals.len(), 2);
    }
    for option in [json!(0), json!(null), json!({"timeleft": 0})] {
        let mut world = World::new();
        submit_with_signal(&mut world, &option);
        world.advance(99.0);
        world.run();
        assert_eq!(world.kernel.signals, [], "{option}");
    }
}

#[test]
fn a_job_that_is_shorter_than_its_warning_is_warned_at_its_start() {
    let mut world = World::new();
    submit_with_signal(&mut world, &json!({"timeleft": 2000}));
    world.run();
    assert_eq!(world.kernel.signals.len(), 2);
}

#[test]
fn a_restarted_service_warns_only_of_another_end() {
    let mut world = World::new();
    submit_with_signal(&mut world, &json!({"timeleft": 30}));
    world.crash_service(0, 0);
    world.now += 80.0;
    world.restart();
    // The time came while no service ran.
    assert_eq!(world.kernel.signals.len(), 2);
    world.crash_service(0, 0);
    world.restart();
    world.advance(1.0);
    world.run();
    assert_eq!(world.kernel.signals.len(), 2);
    let expiration = json!({"id": 1, "expiration": world.now + 50.0});
    let extension = World::request("job-exec.expiration", &expiration);
    world.to_service.push_back(extension);
    world.run();
    world.advance(19.0);
    world.run();
    assert_eq!(world.kernel.signals.len(), 2);
    world.advance(2.0);
    world.run();
    assert_eq!(world.kernel.signals.len(), 4);
}

#[test]
fn output_templates_are_filled_in() {
    let mut world = World::new();
    let mut spec = jobspec(2, &["/bin/true"]);
    let path = "{{name}}-{{ id.dec }}-{{taskid}}-{{node.name}}-{x}{{y";
    spec["attributes"]["system"]["shell"] =
        json!({"options": {"output": {"stdout": {"type": "file", "path": path}}}});
    world.submit(1, spec, Some(resources(2)));
    world.deliver_to_service();
    let [first, second] = <[TaskSpec; 2]>::try_from(world.requested()).expect("two");
    let path =
        |rank: u32| CString::new(format!("/work/true-1-{rank}-n3-{{x}}{{{{y")).expect("text");
    assert_eq!(first.stdout, Output::Truncate(path(0)));
    assert_eq!(second.stdout, Output::Truncate(path(1)));
    assert_eq!(second.stderr, Output::SameAsStdout);
}

#[test]
fn a_job_that_writes_too_much_is_ended() {
    let mut world = World::with_running_job();
    let service = world.service_mut();
    service.take_output_size(JobId::new(1), 1000);
    service.take_output_size(JobId::new(1), 1001);
    world.run();
    world.turn_service();
    world.run();
    assert!(world.job(1).notes[0].starts_with("more than 1000 bytes of output"));
    assert_eq!(world.job(1).statuses, [15]);
}

#[test]
fn tasks_on_released_targets_end_and_do_not_count() {
    let mut world = World::new();
    let r = json!({"version": 1, "execution": {
        "R_lite": [{"rank": "3-4", "children": {"core": "0"}}], "nodelist": ["n[3-4]"],
    }});
    world.submit(1, jobspec(2, &["sleep"]), Some(r));
    world.run();
    let shrink = World::request("job-exec.shrink", &json!({"id": 1, "ranks": "4"}));
    let flags = shrink.flags | flags::NORESPONSE;
    world.to_service.push_back(shrink.with_flags(flags));
    world.run();
    assert_eq!(world.kernel.processes.len(), 1);
    // The released target is remembered.
    world.crash_service(0, 0);
    world.restart();
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.job(1).statuses, [0]);
}

#[test]
fn a_replaced_service_ends_its_jobs_without_further_responses() {
    let mut world = World::with_running_job();
    let replaced = World::request("job-exec.replaced", &json!({"service": "other"}));
    world.to_service.push_back(replaced);
    world.run();
    assert!(world.kernel.processes.is_empty());
    assert_eq!(world.answers(1), ["start"]);
    assert!(
        JournalContents::decode(&world.journal)
            .expect("valid")
            .jobs
            .is_empty()
    );
}

#[test]
fn output_is_followed_to_the_end_of_its_job() {
    let mut world = World::with_running_job();
    let file = world.files.entry((1, "stdout")).or_default();
    file.extend_from_slice(b"one");
    let output = World::request("job-exec.output", &json!({"id": 1, "follow": true}));
    let flags = output.flags | flags::STREAMING;
    world
        .service_mut()
        .handle(&output.with_flags(flags).with_matchtag(9));
    let mut texts = Vec::new();
    let collect = |world: &mut World, texts: &mut Vec<Value>| {
        world.turn_service();
        while let Some(message) = world.to_manager.pop_front() {
            if message.topic() == "job-exec.output" {
                let errnum = message.errnum();
                texts.push(if errnum == 0 {
                    message.read().expect("JSON")
                } else {
                    json!(errnum)
                });
            } else {
                world.manage(&message);
            }
        }
    };
    collect(&mut world, &mut texts);
    assert_eq!(texts, [json!({"stream": "stdout", "data": "b25l"})]);
    let file = world.files.get_mut(&(1, "stdout")).expect("there");
    file.extend_from_slice(b"two");
    world.end_process(0, exited(0));
    while world.deliver_from_reaper() {}
    world.advance(1.0);
    collect(&mut world, &mut texts);
    let rest = [
        json!({"stream": "stdout", "data": "dHdv"}),
        json!(penstock_flux::errno::ENODATA),
    ];
    assert_eq!(texts[1..], rest);
}

#[test]
fn settings_are_changed_at_run_time() {
    let mut world = World::with_running_job();
    let reload = |world: &mut World, payload: &Value| {
        let request = World::request("job-exec.config-reload", payload);
        let now = world.now;
        let service = world.service_mut();
        service.handle(&request.with_matchtag(7));
        service.settle(now);
        let effects = service.drain();
        let is_measured = effects.contains(&Effect::MeasureOutput(JobId::new(1)));
        let response = effects.into_iter().find_map(|effect| match effect {
            Effect::Send(message) if message.matchtag == 7 => Some(message),
            _ => None,
        });
        let response = response.expect("a response");
        let text = response.error_text().unwrap_or_default().into_owned();
        (response.errnum(), text, is_measured)
    };
    let invalid = |text: &str| (penstock_flux::errno::EINVAL, text.to_owned(), false);
    let malformed = |text: &str| (penstock_flux::errno::EPROTO, text.to_owned(), false);
    let seconds = json!({"kill-timeout": -1.0, "output-limit": 5});
    let text = "invalid `kill-timeout` -1: expected 0 or more seconds";
    assert_eq!(reload(&mut world, &seconds), invalid(text));
    let text = "job-exec.config-reload: `output-limit`: expected a non-negative integer, found integer `-5`";
    assert_eq!(
        reload(&mut world, &json!({"output-limit": -5})),
        malformed(text)
    );
    let text = "job-exec.config-reload: `kill-timeout`: expected a number, found string \"5s\"";
    assert_eq!(
        reload(&mut world, &json!({"kill-timeout": "5s"})),
        malformed(text)
    );
    let valid = (0, String::new(), true);
    let settings = json!({"kill-timeout": 1.5, "output-limit": 100, "later": []});
    assert_eq!(reload(&mut world, &settings), valid);
    world.service_mut().take_output_size(JobId::new(1), 101);
    let is_kill =
        |(_, _, request): &(ConnectionId, u32, Request)| matches!(request, Request::Kill(_));
    world.turn_service();
    assert!(!world.to_reaper.iter().any(is_kill));
    world.advance(1.5);
    assert!(world.to_reaper.iter().any(is_kill));
    world.run();
    assert!(world.job(1).notes[0].starts_with("more than 100 bytes of output"));
    // No limit.
    assert_eq!(
        reload(&mut world, &json!({"output-limit": 0})),
        (0, String::new(), false)
    );
}

#[test]
fn a_service_of_no_use_ends_and_the_next_one_reports() {
    let mut world = World::new();
    world.settings.end_when_idle = true;
    world.crash_service(0, 0);
    world.restart();
    submit(&mut world, 1, 1);
    submit(&mut world, 2, 1);
    world.run();
    let is_finished = |world: &World| world.service().is_finished();
    world.end_process(0, exited(3));
    while world.deliver_from_reaper() {}
    world.lose_connection();
    world.run();
    assert!(!is_finished(&world), "a task runs");
    world.end_process(0, exited(4));
    world.run();
    assert!(is_finished(&world));
    assert!(world.reaper.as_ref().expect("it ran").is_finished());
    world.service = None;
    world.reaper = None;
    world.restart();
    let reported = ["start", "reattached", "finish", "release"];
    for (id, code) in [(1, 3), (2, 4)] {
        assert_eq!(world.answers(id), reported);
        assert_eq!(world.job(id).statuses, [code << 8]);
    }
    assert!(!is_finished(&world), "the instance is there");
}

#[test]
fn a_reaper_with_a_process_of_an_ended_job_delays_the_end_of_the_service() {
    let mut world = World::new();
    world.settings.end_when_idle = true;
    world.crash_service(0, 0);
    world.restart();
    world.lose_connection();
    let (to, id, request) = world.to_reaper.pop_front().expect("one");
    assert_eq!(request, Request::Shutdown);
    let errno = libc::EBUSY;
    let rejection = ReaperMessage::Done { id, errno };
    world.from_reaper.push_back((to, rejection));
    world.deliver_from_reaper();
    assert!(
        world.to_reaper.is_empty(),
        "it is not requested again at once"
    );
    let empty = penstock_exec::protocol::Event::Empty { job: JobId::new(1) };
    world
        .from_reaper
        .push_back((to, ReaperMessage::Events(vec![empty])));
    world.run();
    assert!(world.service().is_finished());
}

#[test]
fn a_name_that_is_taken_is_free_at_another_attempt() {
    let mut world = World::new();
    world.settings.end_when_idle = true;
    world.crash_service(0, 0);
    world.start_service();
    world.connect_reaper();
    let service = world.service.as_mut().expect("started");
    service.register();
    service.settle(world.now);
    for effect in service.drain() {
        if let Effect::Send(request) = effect {
            service.handle(&Message::error_to(&request, 17, "it is taken"));
        }
    }
    assert!(service.is_name_taken());
    service.handle_disconnect();
    service.settle(world.now);
    assert!(!service.is_finished());
    world.connect();
    world.run();
    let service = world.service();
    assert!(service.is_synchronized() && service.failure().is_none());
}

// --- a journal that cannot be written

#[test]
fn running_jobs_end_and_are_cancelled_while_the_journal_cannot_be_written() {
    let mut world = World::new();
    for id in 1..=3 {
        submit(&mut world, id, 1);
    }
    world.run();
    world.is_journal_full = true;
    submit(&mut world, 4, 1);
    world.run();
    assert_eq!(world.answers(4), Vec::<&str>::new());
    world.end_process(0, exited(3));
    world.cancel(2);
    world.run();
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert_eq!(world.job(2).statuses, [15]);
    for id in [1, 2] {
        assert_eq!(world.answers(id), ["start", "finish", "release"]);
    }
    submit(&mut world, 5, 1);
    submit(&mut world, 6, 1);
    world.advance(1.0);
    world.cancel(5);
    world.run();
    // It was never started.
    assert_eq!(world.answers(5), ["release"]);
    let (first, last) = (
        "cannot write the journal: no storage space: no job starts until that succeeds",
        "the journal can be written again",
    );
    assert_eq!(world.logged, [first]);
    world.is_journal_full = false;
    world.run();
    assert_eq!(world.kernel.spawned.len(), 3, "the time has not come");
    world.advance(1.0);
    world.run();
    assert_eq!(world.logged, [first, last]);
    for id in [4, 6] {
        assert_eq!(world.answers(id), ["start"]);
    }
    world.wind_up();
    world.check();
    assert_eq!(world.kernel.spawned.len(), 5);
}

#[test]
fn a_job_is_forgotten_by_the_journal_first() {
    let mut world = World::with_running_job();
    world.is_journal_full = true;
    world.end_process(0, exited(0));
    world.run();
    assert!(world.job(1).is_released);
    assert!(!world.kernel.log().jobs.is_empty());
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    world.check();
}

#[test]
fn a_journal_that_cannot_be_replaced_at_first_delays_all_starts() {
    let mut world = World::new();
    world.crash_service(0, 0);
    world.is_journal_full = true;
    world.restart();
    submit(&mut world, 1, 1);
    world.run();
    assert_eq!(world.answers(1), Vec::<&str>::new());
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    assert_eq!(world.answers(1), ["start"]);
    // Nothing was appended to the torn tail of the earlier service.
    assert!(
        !JournalContents::decode(&world.journal)
            .expect("valid")
            .is_torn
    );
}

#[test]
fn tasks_on_released_targets_end_after_that_is_recorded() {
    let mut world = World::new();
    let r = json!({"version": 1, "execution": {
        "R_lite": [{"rank": "3-4", "children": {"core": "0"}}], "nodelist": ["n[3-4]"],
    }});
    world.submit(1, jobspec(2, &["sleep"]), Some(r));
    world.run();
    world.is_journal_full = true;
    let shrink = World::request("job-exec.shrink", &json!({"id": 1, "ranks": "4"}));
    let flags = shrink.flags | flags::NORESPONSE;
    world.to_service.push_back(shrink.with_flags(flags));
    world.run();
    assert_eq!(world.kernel.processes.len(), 2);
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    assert_eq!(world.kernel.processes.len(), 1);
}

#[test]
fn a_signal_before_the_end_of_an_allocation_does_not_wait_for_the_journal() {
    for is_blocked in [false, true] {
        let mut world = World::new();
        submit_with_signal(&mut world, &json!({"timeleft": 30}));
        world.is_journal_full = true;
        if is_blocked {
            submit(&mut world, 2, 1);
            world.run();
        }
        world.advance(70.0);
        world.run();
        assert_eq!(world.kernel.signals.len(), 2);
        world.is_journal_full = false;
        world.advance(1.0);
        world.run();
        world.crash_service(0, 0);
        world.restart();
        assert_eq!(world.kernel.signals.len(), 2);
    }
}

#[test]
fn a_service_does_not_end_before_its_journal_is_written() {
    let mut world = World::new();
    world.settings.end_when_idle = true;
    world.crash_service(0, 0);
    world.restart();
    submit(&mut world, 1, 1);
    world.run();
    world.is_journal_full = true;
    world.end_process(0, exited(0));
    world.run();
    world.lose_connection();
    world.run();
    let is_finished = |world: &World| world.service().is_finished();
    assert!(!is_finished(&world));
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    assert!(is_finished(&world));
}

// --- PMIx

fn submit_pmix(world: &mut World, ntasks: u32) {
    let spec = with_options(jobspec(ntasks, &["mpi"]), &json!({"pmix": true}));
    world.submit(1, spec, Some(resources(ntasks)));
}

#[test]
fn a_pmix_server_is_started_before_the_tasks_and_ended_after_them() {
    let mut world = World::new();
    submit_pmix(&mut world, 2);
    world.deliver_to_service();
    assert_eq!(world.requested(), []);
    let environment = json!({"1": {"PMIX_RANK": "1", "PATH": "/pmix"}});
    world.pmix_environment = Some(environment);
    world.deliver_to_manager();
    let start = json!({"id": 1, "reattach": false, "tasks": [
        {"rank": 0, "target": 3, "host": "n3"}, {"rank": 1, "target": 3, "host": "n3"},
    ]});
    assert_eq!(world.pmix_requests, [("pmix-exec.start".to_owned(), start)]);
    world.deliver_to_service();
    let [first, second] = <[TaskSpec; 2]>::try_from(world.requested()).expect("two");
    let has = |spec: &TaskSpec, entry: &str| {
        let entry = CString::new(entry).expect("text");
        spec.environment.contains(&entry)
    };
    assert!(has(&first, "PATH=/bin") && !has(&first, "PMIX_RANK=1"));
    assert!(has(&second, "PATH=/pmix") && has(&second, "PMIX_RANK=1"));
    assert!(!has(&second, "PATH=/bin"));
    world.run();
    world.end_process(1, exited(0));
    world.run();
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(
        world.pmix_log(),
        ["start false", "ended 1", "ended 0", "stop"]
    );
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    // The end of the stream.
    world.fail_pmix(penstock_flux::errno::ENODATA, "");
    assert!(world.job(1).notes.is_empty());
}

#[test]
fn a_job_without_a_pmix_server_is_not_started() {
    let unknown = "the instance has no service that starts PMIx servers (pmix-exec.start)";
    let cases = [
        (
            5,
            "there is no `penstock-pmix`",
            "there is no `penstock-pmix`",
        ),
        (
            38,
            "No service matching pmix-exec.start is registered",
            unknown,
        ),
        (61, "", "the PMIx server has ended: errnum 61"),
    ];
    for (errnum, text, note) in cases {
        let mut world = World::new();
        world.pmix_environment = None;
        submit_pmix(&mut world, 1);
        world.run();
        assert_eq!(world.answers(1), Vec::<&str>::new());
        world.fail_pmix(errnum, text);
        assert_eq!(world.job(1).exceptions, ["pmix"]);
        assert_eq!(world.job(1).notes, [note]);
        assert_eq!(world.answers(1), ["exception", "release"]);
        assert!(world.kernel.spawned.is_empty());
    }
    let environments = [
        (
            json!({"0": {"A=B": "C"}}),
            "invalid environment variable name `A=B`",
        ),
        (
            json!({"0": {"A": "\0"}}),
            "environment variable `A` has a zero byte",
        ),
        (
            json!({"0": []}),
            "`environment.0`: expected an object, found an array",
        ),
    ];
    for (environment, note) in environments {
        let mut world = World::new();
        world.pmix_environment = Some(environment);
        submit_pmix(&mut world, 1);
        world.run();
        let note = format!("response to pmix-exec.start: {note}");
        assert_eq!(world.job(1).notes, [note]);
        assert!(world.kernel.spawned.is_empty());
    }
}

#[test]
fn a_job_ends_when_its_pmix_server_ends() {
    let mut world = World::new();
    submit_pmix(&mut world, 2);
    world.run();
    world.fail_pmix(5, "the PMIx server was killed");
    assert_eq!(world.job(1).exceptions, ["pmix"]);
    assert_eq!(world.job(1).notes, ["the PMIx server was killed"]);
    assert_eq!(world.job(1).statuses, [15]);
    assert!(world.job(1).is_released);
}

#[test]
fn a_job_that_is_cancelled_before_its_pmix_server_has_started_is_released() {
    let mut world = World::new();
    world.pmix_environment = None;
    submit_pmix(&mut world, 1);
    world.run();
    world.cancel(1);
    world.run();
    assert_eq!(world.answers(1), ["release"]);
    assert_eq!(world.pmix_log(), ["start false", "stop"]);
}

#[test]
fn a_running_job_gets_its_pmix_server_again() {
    let restart: [fn(&mut World); 2] = [
        |world| {
            world.crash_service(0, 0);
            world.end_process(0, exited(0));
            world.restart();
        },
        |world| {
            world.lose_connection();
            world.end_process(0, exited(0));
            world.run();
            world.connect();
            world.run();
        },
    ];
    for restart in restart {
        let mut world = World::new();
        submit_pmix(&mut world, 2);
        world.run();
        restart(&mut world);
        assert_eq!(world.pmix_log(), ["start false", "start true", "ended 0"]);
        world.end_process(0, exited(0));
        world.run();
        assert_eq!(world.pmix_log()[3..], ["ended 1", "stop"]);
        assert_eq!(
            world.answers(1),
            ["start", "reattached", "finish", "release"]
        );

        let mut world = World::new();
        submit_pmix(&mut world, 2);
        world.run();
        world.pmix_environment = None;
        restart(&mut world);
        world.fail_pmix(2, "the PMIx server is lost");
        assert_eq!(world.job(1).notes, ["the PMIx server is lost"]);
        assert!(world.job(1).is_released);
    }
}

#[test]
fn the_tasks_of_a_journalled_intent_get_the_environment_of_a_new_pmix_server() {
    let mut world = World::new();
    submit_pmix(&mut world, 1);
    world.deliver_to_service();
    world.deliver_to_manager();
    world.deliver_one_to_service();
    // Only the journal is written.
    world.crash_service(1, 0);
    world.restart();
    assert_eq!(world.pmix_log(), ["start false", "start false"]);
    assert_eq!(world.answers(1), ["start"]);
}

// --- random crashes

#[derive(Debug, Clone, Copy)]
enum Action {
    Submit(u32),
    Deliver(u8),
    EndProcess(usize, WaitStatus),
    Fork(usize),
    Cancel(u64),
    CrashService(usize, usize),
    CrashReaper,
    LoseConnection,
    Connect,
    ConnectReaper,
    /// Whether the journal can be written from now on.
    Journal(bool),
    EndIdleReaper,
    Advance,
    Run,
}

fn action() -> impl Strategy<Value = Action> {
    let status = prop_oneof![
        any::<u8>().prop_map(WaitStatus::Exited),
        Just(WaitStatus::Signaled {
            signal: 11,
            core: false
        }),
    ];
    prop_oneof![
        4 => (1..4u32).prop_map(Action::Submit),
        24 => (0..4u8).prop_map(Action::Deliver),
        6 => (any::<usize>(), status).prop_map(|(index, status)| Action::EndProcess(index, status)),
        2 => any::<usize>().prop_map(Action::Fork),
        1 => (1..12u64).prop_map(Action::Cancel),
        2 => (0..6usize, any::<usize>()).prop_map(|(effects, torn)| Action::CrashService(effects, torn)),
        1 => Just(Action::CrashReaper),
        1 => Just(Action::LoseConnection),
        3 => Just(Action::Connect),
        2 => Just(Action::ConnectReaper),
        2 => any::<bool>().prop_map(Action::Journal),
        1 => Just(Action::EndIdleReaper),
        1 => Just(Action::Advance),
        3 => Just(Action::Run),
    ]
}

impl World {
    fn take(&mut self, action: Action) {
        match action {
            Action::Submit(ntasks) => {
                let id = self.jobs.len() as u64 + 1;
                submit(self, id, ntasks);
            }
            Action::Deliver(queue) => {
                match queue {
                    0 => self.deliver_to_service(),
                    1 => self.deliver_to_manager(),
                    2 => self.deliver_to_reaper(),
                    _ => self.deliver_from_reaper(),
                };
            }
            Action::EndProcess(index, status) => self.end_process(index, status),
            Action::Fork(index) => self.fork(index),
            Action::Cancel(id) => self.cancel(id),
            Action::CrashService(effects, torn) => self.crash_service(effects, torn),
            Action::CrashReaper => self.crash_reaper(),
            Action::LoseConnection => self.lose_connection(),
            Action::Connect => {
                if self.service.is_none() {
                    self.start_service();
                    self.connect_reaper();
                }
                self.connect();
            }
            Action::ConnectReaper => {
                if self.reaper.is_none() {
                    self.connect_reaper();
                }
            }
            Action::Journal(is_writable) => self.is_journal_full = !is_writable,
            Action::EndIdleReaper => self.end_idle_reaper(),
            Action::Advance => self.advance(BEYOND_ALL_TIMEOUTS_S),
            Action::Run => {
                self.run();
                self.check_progress();
            }
        }
    }

    /// Ends a reaper without a process: its log has all statuses.
    fn end_idle_reaper(&mut self) {
        while self.deliver_to_reaper() {}
        if self.kernel.processes.is_empty() && self.reaper.is_some() {
            self.reaper = None;
            self.from_reaper.clear();
            if let Some(service) = &mut self.service {
                service.handle_reaper_loss();
            }
            self.turn_service();
        }
    }

    /// Whether or not the journal can be written, the ends of running jobs are reported, and cancelled jobs end.
    fn check_progress(&self) {
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

    fn check(&self) {
        let mut tasks: Vec<_> = self.kernel.spawned.iter().map(|(task, _)| *task).collect();
        tasks.sort();
        let count = tasks.len();
        tasks.dedup();
        assert_eq!(tasks.len(), count, "a task was started twice");
        for (id, job) in &self.jobs {
            assert!(job.is_released, "{id}: {job:?}");
            if let Some(status) = job.statuses.last() {
                assert_eq!(*status, self.expected_status(*id), "{id}: {job:?}");
            } else {
                // Without a status there is a reason.
                let is_orphaned = self.orphaned.contains(id) && !job.notes.is_empty();
                assert!(is_orphaned || job.is_cancelled, "{id}: {job:?}");
            }
            if !job.is_cancelled && !self.orphaned.contains(id) {
                assert!(job.notes.is_empty(), "{id}: {job:?}");
                assert!(!job.statuses.is_empty(), "{id}: {job:?}");
            }
        }
        let journal = JournalContents::decode(&self.journal).expect("valid");
        assert!(journal.jobs.is_empty(), "{journal:?}");
        assert!(self.kernel.log().jobs.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_job_is_started_twice_and_every_status_is_right(actions in prop::collection::vec(action(), 1..160)) {
        let mut world = World::new();
        for action in actions {
            world.take(action);
        }
        world.wind_up();
        world.check();
    }
}
