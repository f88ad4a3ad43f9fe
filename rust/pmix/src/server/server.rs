//! The state of the server, the requests of tasks to the instance, and their responses.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use penstock_flux::errno::{EAGAIN, EBUSY, EIO, ENODATA, ENOSPC, ENOSYS, ESTALE};
use penstock_flux::limits::MAX_PMIX_REQUEST_BYTES;
use penstock_flux::pmix_server::{QueryRequest, StartResponse, StatsResponse};
use penstock_flux::{Payload, Text, topic};
use penstock_pmix::response::{Queried, Response};
use penstock_pmix::{EndedRequests, HeldRequests, IfLost, Outgoing, Outstanding, Tasks, status};
use penstock_wire::Message;

use super::callbacks::{Callback, callbacks};
use super::ffi;

/// The pause before requests are sent again after the job manager has failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the instance has responded that its job manager has failed. It will be built again from its store.
fn is_outage(errnum: u32) -> bool {
    matches!(errnum, EIO | ENOSPC | EBUSY | ESTALE)
}

/// A change of a task.
pub enum TaskEvent {
    /// A task has connected.
    Connected,
    /// A task has ended; the frame of the response is sent when libpmix no longer counts the task.
    Ended {
        /// The task's rank.
        rank: u32,
        /// The frame.
        response: Vec<u8>,
        /// The connection on which the end was reported.
        outgoing: Sender<Outgoing>,
    },
}

pub static SERVER: OnceLock<Server> = OnceLock::new();

/// The server, for functions that C calls: it is set before the library starts.
pub fn server() -> &'static Server {
    SERVER.get().expect("set before the library is started")
}

/// A task's request that is outstanding at the instance.
pub enum TaskRequest {
    /// Its response is a status.
    Plain(Callback),
    /// Its response is a grant.
    Alloc(Callback),
    /// Its response is the state of requests.
    Query(Query),
}

/// The keys of a task's queries.
#[derive(Default)]
pub struct QueryKeys {
    /// The ids of the queried requests, `None` for all requests.
    pub ids: Vec<Option<String>>,
    /// Whether a key is not supported.
    pub has_unsupported: bool,
}

/// A query for the state of several requests, which are sent one after another.
pub struct Query {
    callback: Callback,
    /// The id in flight; `None` for all requests.
    id: Option<String>,
    rest: VecDeque<Option<String>>,
    response: Response,
    /// Whether the query for one of them has succeeded.
    has_success: bool,
}

impl TaskRequest {
    fn into_callback(self) -> Callback {
        match self {
            Self::Plain(callback) | Self::Alloc(callback) => callback,
            Self::Query(query) => query.callback,
        }
    }

    fn if_lost(&self) -> IfLost {
        match self {
            Self::Plain(_) | Self::Alloc(_) => IfLost::Fail,
            Self::Query(_) => IfLost::Repeat,
        }
    }
}

/// The requests of tasks, and the connection on which they are sent.
#[derive(Default)]
pub struct Requests {
    outstanding: Outstanding<TaskRequest>,
    /// The writing thread of the connection.
    outgoing: Option<Sender<Outgoing>>,
    ended: EndedRequests,
    /// Whether the stream of ended requests has ended because the job manager has failed.
    have_events_failed: bool,
    /// Whether a thread will send again what is delayed.
    is_retry_due: bool,
}

impl Requests {
    fn send(&self, message: Outgoing) {
        if let Some(outgoing) = &self.outgoing {
            // Without that thread the connection is about to be lost.
            let _ = outgoing.send(message);
        }
    }

    /// Requests the stream of ended requests from its beginning.
    fn request_events(&mut self) {
        self.have_events_failed = false;
        self.ended.begin_stream();
        let events = Message::request(topic::pmix::EVENTS, "{}")
            .streaming()
            .with_matchtag(u32::MAX);
        let mut frame = Vec::new();
        events.encode(&mut frame);
        self.send(Outgoing::Frame(frame));
    }

    /// Sends what is delayed.
    fn retry(&mut self) {
        self.is_retry_due = false;
        if self.have_events_failed {
            self.request_events();
        }
        for tag in self.outstanding.take_delayed() {
            self.send(Outgoing::Request(tag));
        }
    }
}

/// The server of a job.
pub struct Server {
    pub source: ffi::Proc,
    /// The id of the job.
    pub job: String,
    /// The environment of each task, once libpmix has started.
    pub started: OnceLock<StartResponse>,
    pub requests: Mutex<Requests>,
    pub tasks: Mutex<Tasks>,
    pub task_events: Sender<TaskEvent>,
}

impl Server {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a task has connected.
    pub fn record_connection(&self, rank: u32) {
        self.tasks().record_connection(rank);
        // The receiving thread ends with the process.
        let _ = self.task_events.send(TaskEvent::Connected);
    }

    /// Sends a request to the instance, on behalf of a task. Without a connection it is held for the next one.
    pub fn send_request(&'static self, topic: &str, payload: &impl Payload, request: TaskRequest) {
        let mut requests = self.requests();
        let tag = requests.outstanding.allot();
        let message = Message::request(topic, "")
            .with_payload(payload)
            .with_matchtag(tag);
        let mut frame = Vec::new();
        message.encode(&mut frame);
        // A message that is too long for a frame has none.
        if frame.is_empty() || frame.len() > MAX_PMIX_REQUEST_BYTES {
            requests.outstanding.release(tag);
            drop(requests);
            let size = frame
                .len()
                .max(message.payload_json().unwrap_or_default().len());
            eprintln!(
                "penstock-pmix: {topic} rejected: {size} bytes, expected at most {MAX_PMIX_REQUEST_BYTES}"
            );
            return fail(request, status::BAD_PARAM);
        }
        let if_lost = request.if_lost();
        let inserted = requests.outstanding.insert(tag, request, frame, if_lost);
        match inserted {
            Ok(true) => requests.send(Outgoing::Request(tag)),
            Ok(false) => {}
            Err(request) => {
                drop(requests);
                fail(request, status::OUT_OF_RESOURCE);
            }
        }
    }

    /// Begins a connection to the instance: requests the stream of ended requests, and sends what is held.
    pub fn connect(&self, outgoing: &Sender<Outgoing>) {
        let mut requests = self.requests();
        if requests.outstanding.is_connected() {
            return;
        }
        requests.outgoing = Some(outgoing.clone());
        requests.request_events();
        for tag in requests.outstanding.connect() {
            requests.send(Outgoing::Request(tag));
        }
    }

    /// Ends the connection to the instance, whose writing thread has ended: fails the requests that it may have carried
    /// out.
    pub fn disconnect(&'static self) {
        let mut requests = self.requests();
        requests.outgoing = None;
        let lost = requests.outstanding.disconnect();
        drop(requests);
        for request in lost {
            fail(request, status::LOST_CONNECTION);
        }
    }

    /// Sends a query again after a pause if the job manager has failed. Returns false if it is not to be sent again.
    fn delay(&'static self, response: &Message) -> bool {
        let mut requests = self.requests();
        let is_delayed =
            is_outage(response.errnum()) && requests.outstanding.delay(response.matchtag);
        if is_delayed {
            self.retry_later(&mut requests);
        }
        is_delayed
    }

    /// Requests the stream of ended requests again after a pause.
    fn delay_events(&'static self) {
        let mut requests = self.requests();
        requests.have_events_failed = true;
        self.retry_later(&mut requests);
    }

    /// Sends what is delayed after a pause, unless the connection is lost before: another one begins with it.
    fn retry_later(&'static self, requests: &mut Requests) {
        if mem::replace(&mut requests.is_retry_due, true) {
            return;
        }
        let retry = || {
            thread::sleep(RETRY_INTERVAL);
            self.requests().retry();
        };
        // The job's limit of processes counts threads, too.
        if let Err(error) = thread::Builder::new().spawn(retry) {
            requests.is_retry_due = false;
            eprintln!("penstock-pmix: no thread to send requests again: {error}");
        }
    }

    /// Queries the state of requests, each by its id or all of them, one after another.
    pub fn query(&'static self, callback: Callback, keys: QueryKeys) {
        let response = Response::of_status(if keys.has_unsupported {
            status::NOT_SUPPORTED
        } else {
            status::SUCCESS
        });
        let query = Query {
            callback,
            id: None,
            rest: keys.ids.into(),
            response,
            has_success: false,
        };
        self.query_next(query);
    }

    fn query_next(&'static self, mut query: Query) {
        if let Some(id) = query.rest.pop_front() {
            query.id.clone_from(&id);
            let payload = QueryRequest {
                id: id.map(Text::from),
            };
            return self.send_request(topic::pmix::QUERY, &payload, TaskRequest::Query(query));
        }
        let mut response = query.response;
        if query.has_success && response.status != status::SUCCESS {
            response.status = status::QUERY_PARTIAL_SUCCESS;
        }
        callbacks().enqueue(query.callback, response);
    }

    /// Handles a response of the instance, or an event of its stream `pmix.events`.
    pub fn handle_response(&'static self, response: &Message) {
        let payload = response.payload_json();
        if response.topic() == topic::pmix::EVENTS {
            match response.errnum() {
                0 if !self.requests().ended.count(payload.unwrap_or_default()) => {}
                0 => callbacks().notify(&self.source, &Response::from_event(payload)),
                // An instance without the service `pmix` has no events. The stream of an ended job ends.
                ENOSYS | ENODATA => {}
                // The job's user has as many streams as it may have.
                EAGAIN => self.delay_events(),
                errnum if is_outage(errnum) => self.delay_events(),
                errnum => eprintln!("penstock-pmix: pmix.events: error {errnum}"),
            }
            return;
        }
        if self.delay(response) {
            return;
        }
        let request = self.requests().outstanding.remove(response.matchtag);
        match request {
            Some(TaskRequest::Plain(callback)) => {
                let code = status::of_errnum(response.errnum());
                callbacks().enqueue(callback, Response::of_status(code));
            }
            // It may have been carried out.
            Some(TaskRequest::Alloc(callback))
                if matches!(response.errnum(), EIO | EBUSY | ESTALE) =>
            {
                callbacks().enqueue(callback, Response::of_status(status::LOST_CONNECTION));
            }
            Some(TaskRequest::Alloc(callback)) => {
                let response = Response::from_alloc(response.errnum(), payload);
                callbacks().enqueue(callback, response);
            }
            Some(TaskRequest::Query(mut query)) => {
                let queried = match query.id {
                    Some(_) => Queried::One,
                    None => Queried::All,
                };
                let part = Response::from_query(response.errnum(), payload, queried);
                query.has_success |= part.status == status::SUCCESS;
                if query.response.status == status::SUCCESS {
                    query.response.status = part.status;
                }
                query.response.infos.extend(part.infos);
                query.response.errors.extend(part.errors);
                self.query_next(query);
            }
            None => eprintln!("penstock-pmix: unknown matchtag {}", response.matchtag),
        }
    }

    /// The counters.
    pub fn stats(&self) -> StatsResponse {
        let counts = &callbacks().counts;
        StatsResponse {
            parked: self.requests().outstanding.len(),
            answered: counts.answered.load(Ordering::Relaxed),
            lent: counts.lent.load(Ordering::Relaxed),
            back: counts.back.load(Ordering::Relaxed),
        }
    }
}

/// The requests of the server, which is set before any of them is sent.
pub struct ServerRequests;

impl HeldRequests for ServerRequests {
    fn begin_write(&self, tag: u32) -> Option<Vec<u8>> {
        server().requests().outstanding.begin_write(tag)
    }

    fn undo_write(&self, tag: u32, frame: Vec<u8>) {
        server().requests().outstanding.undo_write(tag, frame);
    }
}

/// Fails a request of a task.
fn fail(request: TaskRequest, status: i32) {
    callbacks().enqueue(request.into_callback(), Response::of_status(status));
}
