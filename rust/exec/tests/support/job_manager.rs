//! The job manager of a test: RFC 32 from its side, and the service `pmix-exec`.

use penstock_exec::{Pid, TaskRank};
use penstock_flux::{flags, role};
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

use crate::world::{OWNER, World};

/// The second of the execution targets of [`two_targets`].
pub const SECOND_TARGET: &str = "4";

/// R of a job with a task on each of the execution targets 3 and 4.
pub fn two_targets() -> Value {
    json!({"version": 1, "execution": {
        "R_lite": [{"rank": "3-4", "children": {"core": "0"}}], "nodelist": ["n[3-4]"],
    }})
}

/// The state of the job manager's conversation about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation {
    Idle,
    Requested { reattach: bool },
    Started,
    Finished,
}

/// A job as the job manager has it.
#[derive(Debug)]
pub struct ManagedJob {
    pub userid: u32,
    pub jobspec: Value,
    pub r: Option<Value>,
    pub was_sent: bool,
    pub conversation: Conversation,
    pub is_cancelled: bool,
    /// The execution targets that the job has released.
    pub shrunk: Option<&'static str>,
    pub is_released: bool,
    /// The ranks of its releases before the final one, in order.
    pub released_ranks: Vec<String>,
    pub statuses: Vec<i64>,
    pub usages: Vec<Value>,
    /// The types of its exceptions.
    pub exceptions: Vec<String>,
    pub notes: Vec<String>,
    /// The types and notes of exceptions that did not end it.
    pub warnings: Vec<(String, String)>,
    pub answers: Vec<String>,
}

impl ManagedJob {
    pub fn has_started(&self) -> bool {
        let is_start = |answer: &String| matches!(answer.as_str(), "start" | "reattached");
        self.answers.iter().any(is_start)
    }
}

pub fn jobspec(ntasks: u32, command: &[&str]) -> Value {
    json!({
        "version": 1,
        "resources": [{"type": "slot", "count": ntasks, "label": "task", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": command, "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "cwd": "/work", "environment": {"PATH": "/bin"}}},
    })
}

/// The jobspec with these shell options.
pub fn with_options(mut spec: Value, options: &Value) -> Value {
    spec["attributes"]["system"]["shell"] = json!({"options": options});
    spec
}

pub fn resources(ntasks: u32) -> Value {
    let cores: Vec<_> = (0..ntasks).map(|core| core.to_string()).collect();
    json!({"version": 1, "execution": {
        "R_lite": [{"rank": "3", "children": {"core": cores.join(",")}}],
        "nodelist": ["n3"],
    }})
}

impl World {
    pub fn submit(&mut self, id: u64, jobspec: Value, r: Option<Value>) {
        self.submit_as(OWNER, id, jobspec, r);
    }

    pub fn submit_as(&mut self, userid: u32, id: u64, jobspec: Value, r: Option<Value>) {
        let job = ManagedJob {
            userid,
            jobspec,
            r,
            was_sent: false,
            conversation: Conversation::Idle,
            is_cancelled: false,
            shrunk: None,
            is_released: false,
            released_ranks: Vec::new(),
            statuses: Vec::new(),
            usages: Vec::new(),
            exceptions: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
            answers: Vec::new(),
        };
        self.jobs.insert(id, job);
        if self.is_registered {
            self.send_start(id);
        }
    }

    pub fn request(topic: &str, payload: &Value) -> Message {
        let mut request = Message::request(topic, &payload.to_string());
        request.userid = OWNER;
        request.rolemask = role::OWNER;
        request.push_route(b"manager");
        request
    }

    pub fn send_start(&mut self, id: u64) {
        let job = self.jobs.get_mut(&id).expect("submitted");
        let reattach = job.was_sent;
        job.was_sent = true;
        job.conversation = Conversation::Requested { reattach };
        let mut payload = json!({
            "id": id, "userid": job.userid, "jobspec": job.jobspec, "reattach": reattach,
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
        let shrunk = job.shrunk;
        self.to_service
            .push_back(Self::request("job-exec.start", &payload));
        if let Some(ranks) = shrunk {
            self.send_shrink(id, ranks);
        }
        if is_cancelled {
            self.send_exception(id);
        }
    }

    /// Sends the request to end the tasks of a job on these ranks.
    pub fn send_shrink(&mut self, id: u64, ranks: &str) {
        self.notify("job-exec.shrink", &json!({"id": id, "ranks": ranks}));
    }

    pub fn send_signal(&mut self, id: u64, signum: u32) {
        self.notify("job-exec.kill", &json!({"id": id, "signum": signum}));
    }

    fn notify(&mut self, topic: &str, payload: &Value) {
        let request = Self::request(topic, payload);
        let flags = request.flags | flags::NORESPONSE;
        self.to_service.push_back(request.with_flags(flags));
    }

    /// Releases an execution target of a running job. The request is repeated to each service.
    pub fn shrink(&mut self, id: u64, ranks: &'static str) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.is_released) else {
            return;
        };
        job.shrunk = Some(ranks);
        if self.is_registered {
            self.send_shrink(id, ranks);
        }
    }

    pub fn send_exception(&mut self, id: u64) {
        let payload = json!({"id": id, "type": "cancel", "severity": 0}).to_string();
        self.to_service
            .push_back(Message::event("job-exception", &payload, 1));
    }

    pub fn cancel(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.is_released) else {
            return;
        };
        job.is_cancelled = true;
        if self.is_registered {
            self.send_exception(id);
        }
    }

    /// Handles a message of the service as a job manager does.
    pub fn manage(&mut self, message: &Message) {
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
            _ if message.is_noresponse() => {}
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

    pub fn serve_pmix(&mut self, request: &Message) {
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
    pub fn fail_pmix(&mut self, errnum: u32, text: &str) {
        let start = self.pmix_start.as_ref().expect("requested");
        self.to_service
            .push_back(Message::error_to(start, errnum, text));
        self.run();
    }

    /// The methods of the requests to `pmix-exec`, with the values of their keys but the id and the tasks.
    pub fn pmix_log(&self) -> Vec<String> {
        let line = |(topic, payload): &(String, Value)| {
            assert_eq!(payload["id"], 1);
            let method = topic.strip_prefix("pmix-exec.").expect("its service");
            match method {
                "start" => {
                    assert_eq!(payload["directory"], "/state/pmix/1");
                    method.to_owned()
                }
                "ended" => format!("ended {}", payload["rank"]),
                method => method.to_owned(),
            }
        };
        self.pmix_requests.iter().map(line).collect()
    }

    pub fn take_answer(&mut self, message: &Message) {
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
                let text = |key: &str| data[key].as_str().expect("text").to_owned();
                if data["severity"] != 0 {
                    job.warnings.push((text("type"), text("note")));
                    return;
                }
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
            (conversation, "release") if answer["data"]["final"] == false => {
                let is_in_order =
                    matches!(conversation, Conversation::Started | Conversation::Finished);
                assert!(is_in_order, "{conversation:?}");
                let ranks = answer["data"]["ranks"].as_str().expect("an idset");
                job.released_ranks.push(ranks.to_owned());
                if ranks == SECOND_TARGET && !self.orphaned.contains(&id) {
                    let left = self.processes_on_second_target(id);
                    assert!(left.is_empty(), "released while {left:?} run");
                }
                return;
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

    /// The processes of the second task of a job and of its descendants.
    fn processes_on_second_target(&self, id: u64) -> Vec<Pid> {
        let of_task = |pid: &Pid| {
            let task = self.tasks.get(pid);
            task.is_some_and(|task| (task.job.get(), task.rank) == (id, TaskRank(1)))
        };
        self.kernel
            .processes
            .keys()
            .copied()
            .filter(of_task)
            .collect()
    }

    pub fn processes_of(&self, id: u64) -> Vec<Pid> {
        let processes = self.kernel.processes.keys().copied();
        processes
            .filter(|pid| self.owners.get(pid) == Some(&id))
            .collect()
    }
}
