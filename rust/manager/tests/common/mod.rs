//! A job manager with a hand-driven scheduler and execution service at its sides.
#![allow(dead_code, reason = "not every test file needs all of it")]

pub mod elastic;
pub mod queues;
pub mod submissions;

use std::path::PathBuf;

use penstock_flux::flags::STREAMING;
use penstock_flux::role;
use penstock_manager::{Manager, Settings};
use penstock_store::{Store, Synchronous};
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

pub const OWNER: u32 = 1000;
pub const R: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-1","children":{"core":"0-3"}}],"nodelist":["n[0-1]"],"starttime":0.0,"expiration":0.0}}"#;

/// A job manager under test, with helpers that send messages by topic and payload.
pub struct Bench {
    pub manager: Manager,
    pub now: f64,
    owner: u32,
    tag: u32,
}

pub fn settings() -> Settings {
    Settings {
        owner: OWNER,
        ..Settings::default()
    }
}

pub fn jobspec(system: &Value) -> Value {
    let mut attributes = json!({"system": {"duration": 0}});
    for (key, value) in system.as_object().unwrap() {
        attributes["system"][key] = value.clone();
    }
    json!({
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task",
                       "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["/bin/true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": attributes,
    })
}

impl Bench {
    pub fn new() -> Self {
        Self::with(settings())
    }

    pub fn with(settings: Settings) -> Self {
        let (store, owner) = (Store::in_memory().unwrap(), settings.owner);
        let manager = Manager::open(store, settings, 1000.0).unwrap();
        Self {
            owner,
            manager,
            now: 1000.0,
            tag: 0,
        }
    }

    /// Sends a request as `userid` from peer `from`; returns all messages that the manager sends.
    pub fn request_as(
        &mut self,
        from: &str,
        userid: u32,
        topic: &str,
        payload: &Value,
        flags: u8,
    ) -> Vec<Message> {
        let text = match payload {
            Value::Null => String::new(),
            payload => payload.to_string(),
        };
        self.request_text(from, userid, topic, &text, flags)
    }

    /// The same with the text of the payload.
    pub fn request_text(
        &mut self,
        from: &str,
        userid: u32,
        topic: &str,
        text: &str,
        flags: u8,
    ) -> Vec<Message> {
        self.tag += 1;
        self.now += 1.0;
        let mut request = Message::request(topic, text).with_matchtag(self.tag);
        request = request.with_flags(flags);
        request.userid = userid;
        request.rolemask = if userid == self.owner {
            role::OWNER
        } else {
            role::USER
        };
        request.push_route(from.as_bytes());
        request.push_route(b"broker");
        self.manager.handle(&request, self.now);
        self.manager.flush().unwrap()
    }

    /// The matchtag of the last request.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The messages that follow, until none is left.
    pub fn rest(&mut self) -> Vec<Message> {
        let mut out = Vec::new();
        while self.manager.has_more() {
            out.extend(self.manager.flush().unwrap());
        }
        out
    }

    /// Whether `advance` is due now.
    pub fn is_due(&self) -> bool {
        self.manager.deadline().is_some_and(|time| time <= self.now)
    }

    /// The messages of the steps that are due now, until none is left.
    pub fn advance(&mut self) -> Vec<Message> {
        let mut out = Vec::new();
        while self.is_due() {
            self.manager.advance(self.now);
            out.extend(self.manager.flush().unwrap());
        }
        out.extend(self.rest());
        out
    }

    /// Submits copies of a job. Returns their ids, and the messages of all slices.
    pub fn submit_copies(&mut self, system: &Value, count: usize) -> (Vec<u64>, Vec<Message>) {
        let payload = json!({"jobspec": jobspec(system), "count": count});
        let mut out = self.request("job-ingest.submit", &payload);
        out.extend(self.advance());
        let mut responses = out.iter();
        let response = responses
            .find(|message| message.topic() == "job-ingest.submit")
            .unwrap();
        let ids = serde_json::from_value(body(response)["ids"].clone()).unwrap();
        (ids, out)
    }

    pub fn request(&mut self, topic: &str, payload: &Value) -> Vec<Message> {
        self.request_as("client", OWNER, topic, payload, 0)
    }

    pub fn stream(&mut self, topic: &str, payload: &Value) -> Vec<Message> {
        self.request_as("client", OWNER, topic, payload, STREAMING)
    }

    pub fn submit(&mut self, system: &Value) -> (u64, Vec<Message>) {
        let out = self.request("job-ingest.submit", &json!({"jobspec": jobspec(system)}));
        let id = body(&out[0])["id"].as_u64().unwrap();
        (id, out)
    }

    /// Sends a scheduler's hello and ready; returns the messages that follow.
    pub fn scheduler(&mut self, limit: Option<u32>) -> Vec<Message> {
        let hello = json!({"partial-ok": true});
        let mut out = self.request_as("sched", OWNER, "job-manager.sched-hello", &hello, STREAMING);
        let ready = match limit {
            None => json!({"mode": "unlimited"}),
            Some(limit) => json!({"mode": "limited", "limit": limit}),
        };
        out.extend(self.request_as("sched", OWNER, "job-manager.sched-ready", &ready, 0));
        out
    }

    pub fn executor(&mut self) -> Vec<Message> {
        let hello = json!({"service": "job-exec"});
        self.request_as("exec", OWNER, "job-manager.exec-hello", &hello, 0)
    }

    /// Lets time pass, in seconds; returns the messages of the steps that are due.
    pub fn pass(&mut self, seconds: f64) -> Vec<Message> {
        self.now += seconds;
        self.manager.advance(self.now);
        self.manager.flush().unwrap()
    }

    /// A response to a request that the manager sent.
    pub fn answer(&mut self, topic: &str, payload: &Value) -> Vec<Message> {
        self.now += 1.0;
        let request = Message::request(topic, "");
        let payload = Some(Message::json_payload(&payload.to_string()));
        let mut response = Message::response_to(&request, 0, payload);
        response.rolemask = role::OWNER;
        self.manager.handle(&response, self.now);
        self.manager.flush().unwrap()
    }

    /// Responds to a request in `out`, found by its topic.
    pub fn reply(&mut self, out: &[Message], topic: &str, payload: &Value) -> Vec<Message> {
        let request = out.iter().find(|message| message.topic() == topic).unwrap();
        let payload = Some(Message::json_payload(&payload.to_string()));
        let response = Message::response_to(request, 0, payload);
        self.respond(response)
    }

    /// Responds with an error to a request in `out`, found by its topic.
    pub fn deny(&mut self, out: &[Message], topic: &str, errnum: u32, text: &str) -> Vec<Message> {
        let request = out.iter().find(|message| message.topic() == topic).unwrap();
        self.respond(Message::error_to(request, errnum, text))
    }

    /// Sends a response as the instance owner.
    pub fn send(&mut self, response: Message) -> Vec<Message> {
        self.respond(response)
    }

    /// Continues numbering after the matchtag of another bench.
    pub fn with_tag(self, tag: u32) -> Self {
        Self { tag, ..self }
    }

    fn respond(&mut self, mut response: Message) -> Vec<Message> {
        self.now += 1.0;
        response.rolemask = role::OWNER;
        self.manager.handle(&response, self.now);
        self.manager.flush().unwrap()
    }

    /// Submits a job and starts it.
    pub fn running(&mut self, system: &Value) -> u64 {
        let (id, _) = self.submit(system);
        self.allocate(id);
        self.exec(id, "start", &json!({}));
        id
    }

    /// Starts as many jobs, each on a node of its own, with a new scheduler and a new execution service.
    pub fn running_jobs(&mut self, count: usize) -> Vec<u64> {
        self.executor();
        let ids = self.allocated_jobs(count);
        for id in &ids {
            self.exec(*id, "start", &json!({}));
        }
        ids
    }

    /// As many jobs, each with the resources of a node of its own, from a new scheduler.
    pub fn allocated_jobs(&mut self, count: usize) -> Vec<u64> {
        self.scheduler(None);
        let ids: Vec<u64> = (0..count).map(|_| self.submit(&json!({})).0).collect();
        for (rank, id) in ids.iter().enumerate() {
            self.allocate_as(*id, &r_of_node(rank));
        }
        ids
    }

    /// Ends a running job.
    pub fn end(&mut self, id: u64, status: i32) -> Vec<Message> {
        self.exec(id, "finish", &json!({ "status": status }));
        self.exec(id, "release", &json!({"ranks": "all", "final": true}))
    }

    /// Events of a job, whole.
    pub fn log(&mut self, id: u64) -> Vec<Value> {
        let out = self.request("job-info.lookup", &json!({"id": id, "keys": ["eventlog"]}));
        let log = body(&out[0]);
        let lines = log["eventlog"].as_str().unwrap().lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub fn fail(&mut self, topic: &str, errnum: u32) -> Vec<Message> {
        let mut response = Message::error_to(&Message::request(topic, ""), errnum, "");
        response.rolemask = role::OWNER;
        self.manager.handle(&response, self.now);
        self.manager.flush().unwrap()
    }

    /// Commits R and answers SUCCESS, as a scheduler does.
    pub fn allocate(&mut self, id: u64) -> Vec<Message> {
        self.allocate_as(id, R)
    }

    /// The same with this R.
    pub fn allocate_as(&mut self, id: u64, r: &str) -> Vec<Message> {
        let committed = self.commit_r(id, r);
        assert_eq!(committed[0].errnum(), 0, "{:?}", committed[0].error_text());
        self.answer("sched.alloc", &json!({"id": id, "type": 0}))
    }

    pub fn commit_r(&mut self, id: u64, r: &str) -> Vec<Message> {
        self.commit_all(&[(id, r)])
    }

    /// Commits several R at once.
    pub fn commit_all(&mut self, documents: &[(u64, &str)]) -> Vec<Message> {
        self.commit_with(documents, &[])
    }

    /// The same with operations on other keys after them.
    pub fn commit_with(&mut self, documents: &[(u64, &str)], others: &[Value]) -> Vec<Message> {
        use base64::Engine as _;
        let op = |(id, r): &(u64, &str)| {
            let data = base64::engine::general_purpose::STANDARD.encode(r);
            let key = format!(
                "job.{}.R",
                penstock_jobspec::job_id::JobId::new(*id).dothex()
            );
            json!({"key": key, "flags": 0, "dirent": {"ver": 1, "type": "val", "data": data}})
        };
        let ops = documents.iter().map(op);
        let ops: Vec<Value> = ops.chain(others.iter().cloned()).collect();
        let commit = json!({"namespace": "primary", "flags": 0, "ops": ops});
        self.request_as("sched", OWNER, "kvs.commit", &commit, 0)
    }

    pub fn exec(&mut self, id: u64, kind: &str, data: &Value) -> Vec<Message> {
        let payload = json!({"id": id, "type": kind, "data": data});
        self.answer("job-exec.start", &payload)
    }

    /// The names of a job's events.
    pub fn events(&mut self, id: u64) -> Vec<String> {
        let out = self.request("job-info.lookup", &json!({"id": id, "keys": ["eventlog"]}));
        let log = body(&out[0]);
        let lines = log["eventlog"].as_str().unwrap().lines();
        lines
            .map(|line| {
                let event: Value = serde_json::from_str(line).unwrap();
                event["name"].as_str().unwrap().to_owned()
            })
            .collect()
    }

    pub fn row(&mut self, id: u64) -> Value {
        let out = self.request("job-list.list-id", &json!({ "id": id }));
        body(&out[0])["job"].clone()
    }
}

/// The R of the whole node of a rank.
pub fn r_of_node(rank: usize) -> String {
    let r = R.replace("\"0-1\"", &format!("\"{rank}\""));
    r.replace("n[0-1]", &format!("n{rank}"))
}

/// Pseudo-random numbers (xorshift) from a seed other than 0.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// An index into a list of this length.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }
}

/// A directory of its own, and what opens a manager over the store in it.
pub fn stored_manager(name: &str) -> (PathBuf, impl Fn(f64) -> Manager) {
    let name = format!("penstock-manager-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("jobs.sqlite");
    let open = move |now| {
        let store = Store::open(&path, Synchronous::Full).unwrap();
        Manager::open(store, settings(), now).unwrap()
    };
    (directory, open)
}

/// To take the place of one that is closed.
pub fn empty_manager() -> Manager {
    Manager::open(Store::in_memory().unwrap(), settings(), 0.0).unwrap()
}

pub fn body(message: &Message) -> Value {
    assert_eq!(message.errnum(), 0, "{:?}", message.error_text());
    message
        .payload_json()
        .map_or(Value::Null, |json| serde_json::from_slice(json).unwrap())
}

/// The topics of the requests and events in `out`, in order.
pub fn topics(out: &[Message]) -> Vec<&str> {
    let sent = out
        .iter()
        .filter(|message| message.kind != MessageType::Response);
    sent.map(Message::topic).collect()
}

/// The errnum and text of the first response.
pub fn rejection(out: &[Message]) -> (u32, String) {
    let response = out
        .iter()
        .find(|message| message.kind == MessageType::Response)
        .unwrap();
    let text = response.error_text().unwrap_or_default().into_owned();
    (response.errnum(), text)
}

/// A store on disk, for what has to survive a restart. Goes away with the value.
pub struct Directory(std::path::PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let name = format!("penstock-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Opens the manager over the store, as a start of the instance does.
    pub fn open(&self, settings: Settings, now: f64) -> Bench {
        self.reopen(settings, now).0
    }

    /// The same, with what the manager sends at once.
    pub fn reopen(&self, settings: Settings, now: f64) -> (Bench, Vec<Message>) {
        let store = Store::open(&self.0.join("jobs.db"), Synchronous::Normal).unwrap();
        let owner = settings.owner;
        let mut manager = Manager::open(store, settings, now).unwrap();
        let out = manager.flush().unwrap();
        let bench = Bench {
            owner,
            manager,
            now,
            tag: 0,
        };
        (bench, out)
    }

    /// The store for reading, also while a manager has it.
    pub fn reader(&self) -> Store {
        Store::open_reader(&self.0.join("jobs.db")).unwrap()
    }

    /// The store itself, while no manager has it.
    pub fn store(&self) -> Store {
        Store::open(&self.0.join("jobs.db"), Synchronous::Normal).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
