//! The PMIx server of the tasks of one job on one node.
//!
//! It runs as the job's user, started before the tasks with one end of a socket pair (`--fd`). The instance at the
//! other end sends `pmix.start` with the job and gets the tasks' environments in the response. It then serves the
//! tasks' requests, `pmix.alloc`, `pmix.query` and `pmix.abort`, and streams ended requests as `pmix.events`. The
//! socket identifies the job: the server does not name it. When the socket closes, outstanding requests fail and the
//! server ends.

mod accept;
mod callbacks;
mod clients;
mod ended_tasks;
mod ffi;
mod library;
mod native;
mod upcalls;

use std::collections::VecDeque;
use std::env;
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use penstock_flux::errno::{EALREADY, EINVAL, EIO, ENOSYS};
use penstock_flux::flags::STREAMING;
use penstock_flux::topic;
use penstock_pmix::request::{self, ended};
use penstock_pmix::response::Response;
use penstock_pmix::{Outstanding, StartRequest, Tasks, status};
use penstock_wire::{DEFAULT_MAX_FRAME, Decoder, Kind, Message};
use serde_json::json;

use callbacks::{Callback, Callbacks};
use ended_tasks::TaskEvent;

/// The time for which tasks may stay connected after the instance has gone: to read the last responses and finalize.
const LINGER: Duration = Duration::from_secs(5);

/// The longest request that the instance accepts, in bytes.
const MAX_REQUEST_BYTES: usize = 1 << 20;

const USAGE: &str = "usage: penstock-pmix --fd NUMBER | --version";

static SERVER: OnceLock<Server> = OnceLock::new();

/// The server, for functions that C calls: it is set before the library starts.
fn server() -> &'static Server {
    SERVER.get().expect("set before the library is started")
}

/// A task's request that is outstanding at the instance.
enum TaskRequest {
    /// Its response is a status.
    Plain(Callback),
    /// Its response is a grant.
    Alloc(Callback),
    /// Its response is the state of requests.
    Query(Query),
}

/// A query for the state of several requests, which are sent one after another.
struct Query {
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
}

/// The server of a job.
struct Server {
    source: ffi::Proc,
    directory: PathBuf,
    outgoing: Sender<Vec<u8>>,
    outstanding: Mutex<Outstanding<TaskRequest>>,
    callbacks: Callbacks,
    tasks: Mutex<Tasks>,
    task_events: Sender<TaskEvent>,
}

impl Server {
    fn outstanding(&self) -> MutexGuard<'_, Outstanding<TaskRequest>> {
        self.outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a task has connected.
    fn connected(&self, rank: u32) {
        self.tasks().connected(rank);
        // The receiving thread ends with the process.
        let _ = self.task_events.send(TaskEvent::Connected);
    }

    /// Hands a frame to the writing thread.
    fn send(&self, frame: Vec<u8>) {
        // Without that thread the server is ending.
        let _ = self.outgoing.send(frame);
    }

    /// Sends a request to the instance, on behalf of a task.
    fn send_request(&'static self, topic: &str, payload: &str, request: TaskRequest) {
        let inserted = self.outstanding().insert(request);
        let tag = match inserted {
            Ok(tag) => tag,
            Err(request) => {
                let response = Response::of_status(status::UNREACHABLE);
                return self.callbacks.enqueue(request.into_callback(), response);
            }
        };
        let message = Message::request(topic, payload).with_matchtag(tag);
        let mut frame = Vec::new();
        message.encode(&mut frame);
        // A message that is too long for a frame has none.
        let code = if frame.is_empty() || frame.len() > MAX_REQUEST_BYTES {
            let size = frame.len().max(payload.len());
            eprintln!(
                "penstock-pmix: {topic} rejected: {size} bytes, expected at most {MAX_REQUEST_BYTES}"
            );
            status::BAD_PARAM
        } else if self.outgoing.send(frame).is_err() {
            status::UNREACHABLE
        } else {
            return;
        };
        let request = self.outstanding().remove(tag);
        if let Some(request) = request {
            let response = Response::of_status(code);
            self.callbacks.enqueue(request.into_callback(), response);
        }
    }

    /// Queries the state of requests, each by its id or all of them, one after another.
    fn query(&'static self, callback: Callback, ids: Vec<Option<String>>, has_unsupported: bool) {
        let response = Response::of_status(if has_unsupported {
            status::NOT_SUPPORTED
        } else {
            status::SUCCESS
        });
        let query = Query {
            callback,
            id: None,
            rest: ids.into(),
            response,
            has_success: false,
        };
        self.query_next(query);
    }

    fn query_next(&'static self, mut query: Query) {
        if let Some(id) = query.rest.pop_front() {
            let payload = request::query(id.as_deref());
            query.id = id;
            return self.send_request(topic::pmix::QUERY, &payload, TaskRequest::Query(query));
        }
        let mut response = query.response;
        if query.has_success && response.status != status::SUCCESS {
            response.status = status::QUERY_PARTIAL_SUCCESS;
        }
        self.callbacks.enqueue(query.callback, response);
    }

    /// Handles a response of the instance, or an event of its stream `pmix.events`.
    fn handle_response(&'static self, response: &Message) {
        let payload = response.payload_json();
        if response.topic() == topic::pmix::EVENTS {
            match response.errnum() {
                0 => self.callbacks.notify(
                    &self.source,
                    &Response::from_event(payload.unwrap_or_default()),
                ),
                // An instance without the service `pmix` has no events.
                ENOSYS => {}
                errnum => eprintln!("penstock-pmix: pmix.events: error {errnum}"),
            }
            return;
        }
        let request = self.outstanding().remove(response.matchtag);
        match request {
            Some(TaskRequest::Plain(callback)) => {
                let code = status::of_errnum(response.errnum());
                self.callbacks.enqueue(callback, Response::of_status(code));
            }
            Some(TaskRequest::Alloc(callback)) => {
                let response = Response::from_alloc(response.errnum(), payload);
                self.callbacks.enqueue(callback, response);
            }
            Some(TaskRequest::Query(mut query)) => {
                let one = query.id.is_some();
                let part = Response::from_query(response.errnum(), payload, one);
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

    fn stats(&self) -> String {
        let counts = &self.callbacks.counts;
        json!({
            "parked": self.outstanding().len(),
            "answered": counts.answered.load(Ordering::Relaxed),
            "lent": counts.lent.load(Ordering::Relaxed),
            "back": counts.back.load(Ordering::Relaxed),
        })
        .to_string()
    }

    /// Fails the outstanding requests, lets the tasks read that, and removes the directory.
    fn close(&'static self) {
        for request in self.outstanding().close() {
            let response = Response::of_status(status::UNREACHABLE);
            self.callbacks.enqueue(request.into_callback(), response);
        }
        clients::wait_for_disconnects(LINGER);
        // An instance that is still there removes it, too.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Hands a message to the writing thread.
fn send(outgoing: &Sender<Vec<u8>>, message: &Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    // Without that thread the server is ending.
    let _ = outgoing.send(bytes);
}

/// Writes frames: a thread of its own, so that an instance that reads slowly blocks nobody else.
fn write(mut socket: UnixStream, messages: &Receiver<Vec<u8>>) {
    while let Ok(bytes) = messages.recv() {
        if socket.write_all(&bytes).is_err() {
            // The reading thread sees the end, too.
            return;
        }
    }
}

/// Checks that only the user can enter the directory, or others could pose as the server in it, and that it is empty,
/// since the server removes it.
fn check_directory(path: &Path) -> Result<(), String> {
    let invalid = |text: String| Err(format!("`directory` {}: {text}", path.display()));
    let found = fs::metadata(path).and_then(|about| Ok((about, fs::read_dir(path)?.count())));
    let (about, entries) = match found {
        Ok(found) => found,
        Err(error) => return invalid(error.to_string()),
    };
    if about.mode() & 0o077 != 0 || about.uid() != library::user().0 {
        return invalid(format!(
            "expected one of this user's, with mode 0700, found mode {:o} and user {}",
            about.mode() & 0o7777,
            about.uid()
        ));
    }
    if entries > 0 {
        return invalid(format!("expected an empty one, found {entries} entries"));
    }
    Ok(())
}

/// Starts the library for the job of `pmix.start`; the payload of the response, or an errno and a text.
#[expect(unsafe_code, reason = "starts the library")]
fn start(payload: &[u8], outgoing: &Sender<Vec<u8>>) -> Result<String, (u32, String)> {
    let start = StartRequest::read(payload).map_err(|error| (EINVAL, error.to_string()))?;
    check_directory(&start.directory).map_err(|text| (EINVAL, text))?;
    let namespace =
        CString::new(start.namespace.as_str()).map_err(|error| (EINVAL, error.to_string()))?;
    let source = native::proc(&namespace, ffi::RANK_UNDEF);
    let (task_events, received) = channel();
    let server = Server {
        source,
        directory: start.directory.clone(),
        outgoing: outgoing.clone(),
        outstanding: Mutex::default(),
        callbacks: Callbacks::default(),
        tasks: Mutex::new(Tasks::new(&start.local)),
        task_events,
    };
    if SERVER.set(server).is_err() {
        return Err((EALREADY, "the server has a job already".to_owned()));
    }
    // SAFETY: reached once, with the server set.
    let environment = unsafe { library::start(&start, &namespace) }.map_err(|text| (EIO, text))?;
    let response = json!({"environment": environment}).to_string();
    thread::spawn(move || ended_tasks::run(&received, &namespace, &environment));
    Ok(response)
}

fn serve(request: &Message, outgoing: &Sender<Vec<u8>>) {
    if let (topic::pmix_server::PING, Some(server)) = (request.topic(), SERVER.get()) {
        let mut response = Vec::new();
        Message::response_to(request, 0, Some(Message::json_payload("{}"))).encode(&mut response);
        let callback = Callback::Ping(response);
        return server
            .callbacks
            .enqueue(callback, Response::of_status(status::SUCCESS));
    }
    if let (topic::pmix_server::ENDED, Some(server)) = (request.topic(), SERVER.get()) {
        let mut response = Vec::new();
        return match ended(request.payload_json().unwrap_or_default()) {
            Ok(rank) => {
                let payload = Message::json_payload("{}");
                Message::response_to(request, 0, Some(payload)).encode(&mut response);
                // The receiving thread ends with the process.
                let _ = server.task_events.send(TaskEvent::Ended { rank, response });
            }
            Err(error) => {
                send(
                    outgoing,
                    &Message::error_to(request, EINVAL, &error.to_string()),
                );
            }
        };
    }
    let result = match (request.topic(), SERVER.get()) {
        (topic::pmix_server::START, _) => {
            start(request.payload_json().unwrap_or_default(), outgoing)
        }
        (topic::pmix_server::STATS, Some(server)) => Ok(server.stats()),
        (topic, _) => Err((ENOSYS, format!("unknown method `{topic}`"))),
    };
    let response = match &result {
        Ok(json) => Message::response_to(request, 0, Some(Message::json_payload(json))),
        Err((errnum, text)) => Message::error_to(request, *errnum, text),
    };
    send(outgoing, &response);
    if request.topic() == topic::pmix_server::START && result.is_ok() {
        let events = Message::request(topic::pmix::EVENTS, "{}")
            .with_flags(STREAMING)
            .with_matchtag(u32::MAX);
        send(outgoing, &events);
    }
}

/// Serves until the instance closes its end. The error says why its bytes are no message.
fn run(mut socket: UnixStream) -> Result<(), String> {
    let (outgoing, messages) = channel();
    let writing = socket.try_clone().map_err(|error| error.to_string())?;
    thread::spawn(move || write(writing, &messages));
    let mut decoder = Decoder::new(DEFAULT_MAX_FRAME);
    let (mut buffer, mut incoming) = (vec![0; 64 << 10], Vec::new());
    loop {
        let size = match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(size) => size,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            // The other end has gone with bytes unread.
            Err(_) => return Ok(()),
        };
        let result = decoder.feed(&buffer[..size], &mut incoming);
        for message in incoming.drain(..) {
            match (message.kind, SERVER.get()) {
                (Kind::Request, _) => serve(&message, &outgoing),
                (Kind::Response, Some(server)) => server.handle_response(&message),
                _ => {}
            }
        }
        result.map_err(|error| error.to_string())?;
    }
}

/// The socket that `--fd NUMBER` names.
#[expect(unsafe_code, reason = "takes a descriptor that was inherited")]
fn inherited(words: &[String]) -> Option<UnixStream> {
    let [option, number] = words else {
        return None;
    };
    let number: i32 = number
        .parse()
        .ok()
        .filter(|&number| option == "--fd" && number > 2)?;
    // Only an open descriptor of this process has an entry here.
    fs::symlink_metadata(format!("/proc/self/fd/{number}")).ok()?;
    // SAFETY: it is open, was inherited, and nothing else in this process uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    // Child processes do not inherit the copy.
    socket.try_clone().ok().map(UnixStream::from)
}

#[expect(unsafe_code, reason = "sets the environment, and leaves at once")]
fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words == ["--version"] {
        println!(
            "penstock-pmix {}, {}",
            env!("CARGO_PKG_VERSION"),
            library::version()
        );
        return ExitCode::SUCCESS;
    }
    if words == [ended_tasks::STAND_IN] {
        let code = library::connect();
        // SAFETY: ends the process without finalizing: the connection is to be lost.
        unsafe { ffi::_exit(code) };
    }
    let Some(socket) = inherited(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // SAFETY: the first thread is the only one yet.
    unsafe { library::prepare_environment() };
    let code = match run(socket) {
        Ok(()) => 0,
        Err(text) => {
            eprintln!("penstock-pmix: {text}");
            1
        }
    };
    if let Some(server) = SERVER.get() {
        server.close();
    }
    leave(code)
}

/// Ends the process without finalizing the library, which can block forever.
#[expect(unsafe_code, reason = "ends the process")]
fn leave(code: i32) -> ! {
    #[cfg(penstock_leaks)]
    {
        unsafe extern "C" {
            fn __lsan_do_recoverable_leak_check() -> i32;
        }
        // SAFETY: takes no arguments; reports leaks on standard error.
        if unsafe { __lsan_do_recoverable_leak_check() } != 0 {
            // SAFETY: ends the process.
            unsafe { ffi::_exit(23) };
        }
    }
    // SAFETY: ends the process.
    unsafe { ffi::_exit(code) }
}
