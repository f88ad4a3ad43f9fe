//! A Flux scheduler, sans-IO: it acquires resources (RFC 28), takes allocation requests
//! (RFC 27) and answers them with what the engine decides.
//!
//! The same program serves inside the daemon, as a process attached to Penstock's socket, and
//! attached to a Flux broker: all it needs is a way to send and to receive messages.
//! [`Scheduler::start`] gives the first messages, [`Scheduler::handle`] takes one in,
//! [`Scheduler::schedule`] decides. Time comes in as an argument.
//!
//! The handshake, each step after the answer to the one before:
//!
//! | phase | sent | goes on when |
//! |---|---|---|
//! | `Registering` | `service.add` of `sched` and `feasibility` | both are answered |
//! | `Acquiring` | `resource.acquire` | the first response has the inventory |
//! | `Greeting` | `job-manager.sched-hello` | ENODATA, and every R is looked up |
//! | `Readying` | `job-manager.sched-ready` | answered |
//! | `Running` | decisions | – |
//! | `Failed` | – | never: the program logs the reason and exits |

mod acquire;
mod alloc;
mod annotate;
mod change;
mod commit;
mod expect;
mod fields;
mod handshake;
mod questions;
mod settings;

use std::collections::{HashMap, HashSet};

use penstock_engine::{Accuracy, Engine, QueueId};
use penstock_wire::{Kind, Message};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use handshake::Phase;
pub use settings::Settings;

/// No data: the good end of a stream (RFC 6).
const ENODATA: u32 = 61;
/// Operation not permitted.
const EPERM: u32 = 1;
/// The instance owner's role (RFC 12).
const ROLE_OWNER: u32 = 1;
/// Invalid argument.
const EINVAL: u32 = 22;
/// Function not implemented.
const ENOSYS: u32 = 38;
/// Try again.
const EAGAIN: u32 = 11;
/// File exists: a service name is taken.
const EEXIST: u32 = 17;

/// What a scheduler is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The most alloc requests the job manager may have outstanding; `None` for no limit.
    pub limit: Option<u32>,
    /// Whether to ask, in the payload of `resource.acquire`, to be told of new ranks: a Penstock
    /// instance then sends `grow`. RFC 28 gives that request no payload, so this is to be off
    /// for a Flux broker.
    pub grow: bool,
    /// How it decides.
    pub settings: Settings,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: None,
            grow: true,
            settings: Settings::default(),
        }
    }
}

/// What a response with a matchtag answers.
#[derive(Debug)]
enum Sent {
    Register(&'static str),
    Acquire,
    Hello,
    Lookup(handshake::Held),
    Ready,
    Commit(commit::Allocated),
}

/// An alloc request that is not yet answered for good.
#[derive(Debug)]
struct Waiting {
    /// The request without its payload, to be answered.
    header: Message,
    /// Whose the job is, where the job manager says so.
    userid: Option<u32>,
}

/// The scheduler: its phase, its engine, and what it has asked and been asked.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    phase: Phase,
    engine: Option<Engine>,
    sent: HashMap<u32, Sent>,
    next_tag: u32,
    hello: handshake::Hello,
    /// Alloc requests not yet answered for good, by job.
    requests: HashMap<u64, Waiting>,
    /// Jobs whose request was cancelled while their R was on its way to the store.
    recalled: HashSet<u64>,
    /// The queues that jobs have named, as the engine knows them.
    queues: HashMap<String, QueueId>,
    /// Whether something has changed since the last pass.
    stale: bool,
    /// What jobs that wait have been told, and when they are to be told more.
    notes: annotate::Notes,
    /// How good estimates have been.
    accuracy: Accuracy,
    /// What people have asked; answered by the next call of [`schedule`](Self::schedule).
    questions: Vec<Message>,
    out: Vec<Message>,
    log: Vec<String>,
}

impl Scheduler {
    /// A scheduler that has not said anything yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            phase: Phase::Registering,
            engine: None,
            sent: HashMap::new(),
            next_tag: 1,
            hello: handshake::Hello::default(),
            requests: HashMap::new(),
            recalled: HashSet::new(),
            queues: HashMap::new(),
            stale: false,
            notes: annotate::Notes::default(),
            accuracy: Accuracy::new(),
            questions: Vec::new(),
            out: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Where the handshake is.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The engine, once resources are acquired.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// Messages to be sent, in order.
    pub fn take_out(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.out)
    }

    /// Lines for the log since the last call.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Takes one message in. What comes of it may need a call of [`schedule`](Self::schedule).
    pub fn handle(&mut self, message: &Message) {
        match message.kind {
            Kind::Request => self.handle_request(message),
            Kind::Response => self.handle_response(message),
            Kind::Event | Kind::Control => {}
        }
    }

    fn handle_request(&mut self, request: &Message) {
        if questions::is_one(request) {
            return self.questions.push(request.clone());
        }
        // Allocating and freeing is between the instance owner's services.
        if request.service() == "sched" && request.rolemask & ROLE_OWNER == 0 {
            if !request.is_noresponse() {
                let text = "only the instance owner may ask the scheduler";
                self.out.push(Message::error_to(request, EPERM, text));
            }
            return;
        }
        let outcome = match request.topic() {
            "sched.alloc" => return self.alloc(request),
            "sched.cancel" => return self.cancel(request),
            "sched.prioritize" => return self.prioritize(request),
            "sched.free" => self.free(request),
            "sched.expiration" => self.expiration(request),
            "sched.config-reload" => self.reload(request),
            "feasibility.check" => self.feasibility(request),
            topic => match request.method() {
                "disconnect" => return,
                "ping" => payload::<Value>(request)
                    .map(|asked| Some(asked.to_string()))
                    .map_err(|text| (EINVAL, text)),
                "stats-get" => Ok(Some(self.stats().to_string())),
                _ => Err((ENOSYS, format!("unknown method `{topic}`"))),
            },
        };
        self.reply(request, outcome);
    }

    /// Answers a request, where an answer is wanted and due.
    fn reply(&mut self, request: &Message, outcome: Outcome) {
        if request.is_noresponse() {
            return;
        }
        match outcome {
            Ok(Some(payload)) => {
                let payload = Some(Message::json_payload(&payload));
                self.out.push(Message::response_to(request, 0, payload));
            }
            Ok(None) => {}
            Err((errnum, text)) => self.out.push(Message::error_to(request, errnum, &text)),
        }
    }

    fn stats(&self) -> Value {
        let engine = self.engine.as_ref();
        json!({
            "ready": self.phase == Phase::Running,
            "queued": engine.map_or(0, Engine::queue_len),
            "running": engine.map_or(0, Engine::running),
            "unanswered": self.requests.len(),
            "policy": self.options.settings.policy.to_string(),
            "selection": self.options.settings.selection.to_string(),
            "estimates": questions::described(&self.accuracy),
        })
    }

    fn handle_response(&mut self, response: &Message) {
        let tag = response.matchtag;
        let Some(sent) = self.sent.remove(&tag) else {
            return;
        };
        match sent {
            Sent::Register(name) => self.registered(name, response),
            Sent::Acquire => self.acquired(tag, response),
            Sent::Hello => self.greeted(tag, response),
            Sent::Lookup(held) => self.looked_up(&held, response),
            Sent::Ready => self.readied(response),
            Sent::Commit(allocated) => self.committed(allocated, response),
        }
    }

    /// Sends a request and remembers what its response will answer.
    fn ask(&mut self, topic: &str, payload: &str, flags: u8, sent: Sent) {
        let tag = self.next_tag;
        // 0 means that no response is expected: it is never used as a tag.
        self.next_tag = self.next_tag.checked_add(1).unwrap_or(1);
        self.sent.insert(tag, sent);
        let request = Message::request(topic, payload).with_matchtag(tag);
        let flags = request.flags | flags;
        self.out.push(request.with_flags(flags));
    }

    fn fail(&mut self, reason: String) {
        self.log.push(reason.clone());
        self.phase = Phase::Failed(reason);
    }
}

/// What a request comes to: a payload, no answer, or an error number and a text.
type Outcome = Result<Option<String>, (u32, String)>;

/// An error about what is asked.
fn malformed(text: String) -> (u32, String) {
    (EINVAL, text)
}

/// Reads a payload; the error names the message and the field.
fn payload<T: DeserializeOwned>(message: &Message) -> Result<T, String> {
    let bytes = message.payload_json().unwrap_or(b"{}");
    serde_json::from_slice(bytes)
        .map_err(|error| format!("{}: malformed payload: {error}", message.topic()))
}

/// An error response in words.
fn describe(response: &Message) -> String {
    let (topic, errnum) = (response.topic(), response.errnum());
    match response.error_text() {
        Some(text) => format!("{topic} failed with errnum {errnum}: {text}"),
        None => format!("{topic} failed with errnum {errnum}"),
    }
}
