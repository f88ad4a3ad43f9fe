//! The scheduler of a Flux instance, sans-IO: it acquires resources (RFC 28), takes allocation
//! requests (RFC 27), and responds with the engine's decisions.
//!
//! The same state machine serves inside the daemon, as a process attached to Penstock's socket,
//! and attached to a Flux broker. [`Scheduler::start`] gives the first messages,
//! [`Scheduler::handle`] handles one, [`Scheduler::schedule`] runs a pass. Time is an argument.
//!
//! The handshake; each phase begins with the response that ends the one before:
//!
//! | phase | sent | ends with |
//! |---|---|---|
//! | `Registering` | `service.add` of `sched` and `feasibility` | both responses |
//! | `Acquiring` | `resource.acquire` | the first response, which has the inventory |
//! | `Greeting` | `job-manager.sched-hello` | ENODATA, and the R of every announced job |
//! | `Readying` | `job-manager.sched-ready` | the response |
//! | `Running` | responses to alloc requests | – |
//! | `Failed` | – | never: the program logs the reason and exits |

mod acquisition;
mod alloc;
mod annotations;
mod commit;
mod error;
mod handshake;
mod queries;
mod settings;
mod what_if;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use penstock_engine::{Engine, QueueId};
use penstock_flux::sched::StatsResponse;
use penstock_flux::{Allocation, Matchtags, Payload, RequestError, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::{Message, MessageType};

pub use settings::{Settings, SettingsError};

/// The options of a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The greatest number of outstanding alloc requests; `None` for no limit.
    pub limit: Option<u32>,
    /// Whether to declare, in the payload of `resource.acquire`, that new ranks are understood: a
    /// Penstock instance then sends `grow`. RFC 28 gives that request no payload, so this must be
    /// off for a Flux broker.
    pub grow: bool,
    /// The scheduling configuration.
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

/// The phase of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The service names are being registered.
    Registering,
    /// The inventory is requested (RFC 28).
    Acquiring,
    /// The jobs that hold resources are requested (RFC 27, Hello).
    Greeting,
    /// Ready is sent and not answered yet.
    Readying,
    /// Alloc requests are served.
    Running,
    /// The scheduler has ended, with the reason.
    Failed(String),
}

/// A job that holds resources, as a response to hello announces it.
#[derive(Debug)]
struct AllocatedJob {
    pub id: JobId,
    /// An idset of the ranks that it has released already.
    pub freed: Option<String>,
}

/// The progress of hello.
#[derive(Debug, Default)]
struct Hello {
    pub has_ended: bool,
    pub lookups_outstanding: usize,
}

/// An outstanding request of the scheduler, by which its response is handled.
#[derive(Debug)]
enum Outstanding {
    Register(&'static str),
    Acquire,
    Hello,
    Lookup(AllocatedJob),
    Ready,
    Commit(Arc<[Allocation]>),
}

/// An alloc request of the job manager without a last response.
#[derive(Debug)]
struct OutstandingAlloc {
    /// The request without its payload, to be answered.
    header: Message,
    /// The job's owner, if the request has it.
    userid: Option<u32>,
}

/// The annotations that a job has.
#[derive(Debug, Default)]
struct Annotated {
    pub reason: String,
    pub estimate: Option<f64>,
}

/// The annotations of pending jobs, and when they are next computed.
#[derive(Debug, Default)]
struct Annotator {
    pub annotated: HashMap<JobId, Annotated>,
    /// Whether a pass has run since jobs were annotated.
    pub is_outdated: bool,
    /// The earliest time of the next annotation.
    pub earliest: f64,
    /// The time of the next annotation if nothing changes.
    pub refresh: f64,
}

impl Annotator {
    pub fn forget(&mut self, id: JobId) {
        self.annotated.remove(&id);
    }

    /// Whether the job has an annotated start.
    pub fn has_estimate(&self, id: JobId) -> bool {
        let annotated = self.annotated.get(&id);
        annotated.is_some_and(|annotated| annotated.estimate.is_some())
    }
}

/// The scheduler: its phase, its engine, and the outstanding requests on both sides.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    phase: Phase,
    engine: Option<Engine>,
    /// Requests to others, by matchtag.
    outstanding: HashMap<u32, Outstanding>,
    matchtags: Matchtags,
    hello: Hello,
    /// Alloc requests, by job.
    allocs: HashMap<JobId, OutstandingAlloc>,
    /// Jobs whose alloc request was cancelled while their R is committed.
    cancelled_in_commit: HashSet<JobId>,
    /// The engine's queues, by the names that jobs have used.
    queues: HashMap<String, QueueId>,
    /// Whether anything has changed since the last pass.
    needs_pass: bool,
    annotator: Annotator,
    /// How estimates compared with starts.
    accuracy: penstock_engine::Accuracy,
    /// Queries of users, which the next [`schedule`](Self::schedule) answers.
    queries: Vec<Message>,
    out: Vec<Message>,
    log: Vec<String>,
}

impl Scheduler {
    /// A scheduler that has not sent anything yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            phase: Phase::Registering,
            engine: None,
            outstanding: HashMap::new(),
            matchtags: Matchtags::default(),
            hello: Hello::default(),
            allocs: HashMap::new(),
            cancelled_in_commit: HashSet::new(),
            queues: HashMap::new(),
            needs_pass: false,
            annotator: Annotator::default(),
            accuracy: penstock_engine::Accuracy::new(),
            queries: Vec::new(),
            out: Vec::new(),
            log: Vec::new(),
        }
    }

    /// The phase of the handshake.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The engine, once resources are acquired.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// Takes the messages to be sent, in order.
    pub fn take_out(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.out)
    }

    /// Takes the log lines since the last call.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Handles one message. It may make a call of [`schedule`](Self::schedule) worthwhile.
    pub fn handle(&mut self, message: &Message) {
        match message.kind {
            MessageType::Request => self.handle_request(message),
            MessageType::Response => self.handle_response(message),
            MessageType::Event | MessageType::Control => {}
        }
    }

    fn handle_request(&mut self, request: &Message) {
        if is_query(request) {
            return self.queries.push(request.clone());
        }
        // RFC 27 is spoken among the instance owner's services only.
        if request.service() == "sched"
            && let Err(error) = request.credentials().require_owner(request.topic())
        {
            return self.reply(request, Err(error));
        }
        let reply = match request.topic() {
            topic::sched::ALLOC => return self.alloc(request),
            topic::sched::CANCEL => return self.cancel(request),
            topic::sched::PRIORITIZE => return self.prioritize(request),
            topic::sched::FREE => self.free(request),
            topic::sched::EXPIRATION => self.set_expiration(request),
            topic::sched::CONFIG_RELOAD => self.reload_config(request),
            topic::sched::FEASIBILITY_CHECK => self.check_feasibility(request),
            topic => match request.method() {
                topic::DISCONNECT => return,
                topic::PING => request.echo().map(Some),
                topic::STATS_GET => Ok(Some(self.stats().to_payload())),
                _ => Err(RequestError::unknown_method(topic)),
            },
        };
        self.reply(request, reply);
    }

    /// Answers a request, unless it is a no-response request or is answered elsewhere.
    fn reply(&mut self, request: &Message, reply: Reply) {
        if request.is_noresponse() {
            return;
        }
        match reply {
            Ok(Some(payload)) => {
                self.out
                    .push(Message::response_to(request, 0, Some(payload)));
            }
            Ok(None) => {}
            Err(RequestError { errnum, text }) => {
                self.out.push(Message::error_to(request, errnum, &text));
            }
        }
    }

    fn stats(&self) -> StatsResponse<'static> {
        let engine = self.engine.as_ref();
        StatsResponse {
            ready: self.phase == Phase::Running,
            queued: engine.map_or(0, |engine| engine.queue_len() as u64),
            running: engine.map_or(0, |engine| engine.running() as u64),
            unanswered: self.allocs.len() as u64,
            policy: self.options.settings.policy.to_string().into(),
            selection: self.options.settings.selection.to_string().into(),
            estimates: self.accuracy(),
        }
    }

    fn handle_response(&mut self, response: &Message) {
        let tag = response.matchtag;
        let Some(request) = self.outstanding.remove(&tag) else {
            return;
        };
        match request {
            Outstanding::Register(name) => self.register_response(name, response),
            Outstanding::Acquire => self.acquire_response(tag, response),
            Outstanding::Hello => self.hello_response(tag, response),
            Outstanding::Lookup(job) => self.lookup_response(&job, response),
            Outstanding::Ready => self.ready_response(response),
            Outstanding::Commit(allocations) => self.commit_response(&allocations, response),
        }
        // A stream is still outstanding.
        if !self.outstanding.contains_key(&tag) {
            self.matchtags.release(tag);
        }
    }

    /// Sends a request under a new matchtag.
    fn send(&mut self, request: Message, outstanding: Outstanding) {
        let tag = self.matchtags.allot();
        self.outstanding.insert(tag, outstanding);
        self.out.push(request.with_matchtag(tag));
    }

    fn fail(&mut self, reason: String) {
        self.log.push(reason.clone());
        self.phase = Phase::Failed(reason);
    }
}

/// The reply to a request: the payload of a response, none yet or ever, or an error.
type Reply = Result<Option<Vec<u8>>, RequestError>;

/// Whether a request is a query, which the next [`Scheduler::schedule`] answers.
fn is_query(request: &Message) -> bool {
    matches!(
        request.topic(),
        topic::sched::EXPLAIN | topic::sched::ESTIMATE | topic::sched::WHAT_IF
    )
}

/// An error response in words.
fn failure_text(response: &Message) -> String {
    let (topic, errnum) = (response.topic(), response.errnum());
    match response.error_text() {
        Some(text) => format!("{topic} failed with errnum {errnum}: {text}"),
        None => format!("{topic} failed with errnum {errnum}"),
    }
}
