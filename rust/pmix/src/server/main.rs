//! The server of PMIx for the tasks of one job on one node.
//!
//! It runs as the job's user, started before the tasks with one end of a socket pair (`--fd`). On the other end is the
//! instance, which says what job this is (`pmix.start`), gets the tasks' environments, and then answers what the tasks
//! ask: `pmix.alloc`, `pmix.query` and `pmix.abort`; `pmix.events` tells of requests that are over. Who asks is told
//! by the socket: the server names no job. When the socket is closed, whoever waits is told so, and the server ends.

mod accept;
mod answers;
mod clients;
mod departed;
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
use penstock_pmix::answer::Answer;
use penstock_pmix::request::{self, ended};
use penstock_pmix::{Parking, Start, Tasks, status};
use penstock_wire::{DEFAULT_MAX_FRAME, Decoder, Kind, Message};
use serde_json::json;

use answers::{Answers, Caller};
use departed::News;

/// How long tasks may stay connected when the instance is gone: time to read the last answers, and to finalize.
const LINGER: Duration = Duration::from_secs(5);

/// Bytes of a request, as the instance takes them.
const MAX_REQUEST: usize = 1 << 20;

const USAGE: &str = "usage: penstock-pmix --fd NUMBER | --version";

static SERVER: OnceLock<Server> = OnceLock::new();

/// The server, for those whom C calls; it is there before C is.
fn server() -> &'static Server {
    SERVER.get().expect("set before the library is started")
}

/// A request that waits for the instance.
enum Waiter {
    /// Wants a status.
    Plain(Caller),
    /// Wants what was granted.
    Alloc(Caller),
    /// Wants to know how requests stand.
    Query(Asked),
}

/// A query, of which one part at a time is under way.
struct Asked {
    caller: Caller,
    /// The part that is: a request's id, or all.
    id: Option<String>,
    rest: VecDeque<Option<String>>,
    so_far: Answer,
    answered: bool,
}

impl Waiter {
    fn caller(self) -> Caller {
        match self {
            Self::Plain(caller) | Self::Alloc(caller) => caller,
            Self::Query(asked) => asked.caller,
        }
    }
}

/// The server of a job that was started.
struct Server {
    source: ffi::Proc,
    directory: PathBuf,
    outgoing: Sender<Vec<u8>>,
    parking: Mutex<Parking<Waiter>>,
    answers: Answers,
    tasks: Mutex<Tasks>,
    news: Sender<News>,
}

impl Server {
    fn parking(&self) -> MutexGuard<'_, Parking<Waiter>> {
        self.parking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task has connected.
    fn connected(&self, rank: u32) {
        self.tasks().connected(rank);
        // The thread that takes it ends with the process.
        let _ = self.news.send(News::Connected);
    }

    /// Hands a frame to the thread that writes.
    fn send(&self, frame: Vec<u8>) {
        // Where that has ended, so does the server.
        let _ = self.outgoing.send(frame);
    }

    /// Asks the instance; what it says goes to the waiter.
    fn ask(&'static self, topic: &str, payload: &str, waiter: Waiter) {
        let parked = self.parking().park(waiter);
        let tag = match parked {
            Ok(tag) => tag,
            Err(waiter) => {
                return self
                    .answers
                    .put(waiter.caller(), Answer::of(status::UNREACHABLE));
            }
        };
        let message = Message::request(topic, payload).with_matchtag(tag);
        let mut frame = Vec::new();
        message.encode(&mut frame);
        // What has no frame is longer than any.
        let code = if frame.is_empty() || frame.len() > MAX_REQUEST {
            let size = frame.len().max(payload.len());
            eprintln!("penstock-pmix: {topic} refused: {size} bytes, at most {MAX_REQUEST}");
            status::BAD_PARAM
        } else if self.outgoing.send(frame).is_err() {
            status::UNREACHABLE
        } else {
            return;
        };
        let waiter = self.parking().take(tag);
        if let Some(waiter) = waiter {
            self.answers.put(waiter.caller(), Answer::of(code));
        }
    }

    /// Asks how requests stand, one after another.
    fn query(&'static self, caller: Caller, wanted: Vec<Option<String>>, foreign: bool) {
        let so_far = Answer::of(if foreign {
            status::NOT_SUPPORTED
        } else {
            status::SUCCESS
        });
        let asked = Asked {
            caller,
            id: None,
            rest: wanted.into(),
            so_far,
            answered: false,
        };
        self.query_next(asked);
    }

    fn query_next(&'static self, mut asked: Asked) {
        if let Some(id) = asked.rest.pop_front() {
            let payload = request::query(id.as_deref());
            asked.id = id;
            return self.ask(topic::pmix::QUERY, &payload, Waiter::Query(asked));
        }
        let mut answer = asked.so_far;
        if asked.answered && answer.status != status::SUCCESS {
            answer.status = status::QUERY_PARTIAL_SUCCESS;
        }
        self.answers.put(asked.caller, answer);
    }

    fn take(&'static self, response: &Message) {
        let payload = response.payload_json();
        if response.topic() == topic::pmix::EVENTS {
            match response.errnum() {
                0 => self
                    .answers
                    .notify(&self.source, &Answer::to_event(payload.unwrap_or_default())),
                // An instance that serves no requests has none to tell of.
                ENOSYS => {}
                errnum => eprintln!("penstock-pmix: pmix.events: error {errnum}"),
            }
            return;
        }
        let waiter = self.parking().take(response.matchtag);
        match waiter {
            Some(Waiter::Plain(caller)) => {
                let code = status::of_errnum(response.errnum());
                self.answers.put(caller, Answer::of(code));
            }
            Some(Waiter::Alloc(caller)) => {
                self.answers
                    .put(caller, Answer::to_alloc(response.errnum(), payload));
            }
            Some(Waiter::Query(mut asked)) => {
                let part = Answer::to_query(response.errnum(), payload, asked.id.is_some());
                asked.answered |= part.status == status::SUCCESS;
                if asked.so_far.status == status::SUCCESS {
                    asked.so_far.status = part.status;
                }
                asked.so_far.infos.extend(part.infos);
                asked.so_far.faults.extend(part.faults);
                self.query_next(asked);
            }
            None => eprintln!("penstock-pmix: nobody waits for {}", response.matchtag),
        }
    }

    fn stats(&self) -> String {
        let counts = &self.answers.counts;
        json!({
            "parked": self.parking().len(),
            "answered": counts.answered.load(Ordering::Relaxed),
            "lent": counts.lent.load(Ordering::Relaxed),
            "back": counts.back.load(Ordering::Relaxed),
        })
        .to_string()
    }

    /// Tells whoever waits that nobody will answer, lets the tasks read that, and leaves nothing behind.
    fn close(&'static self) {
        for waiter in self.parking().close() {
            self.answers
                .put(waiter.caller(), Answer::of(status::UNREACHABLE));
        }
        clients::wait(LINGER);
        // Where the instance has ended in order, it does this itself.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Hands a message to the thread that writes.
fn send(outgoing: &Sender<Vec<u8>>, message: &Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    // Where that has ended, so does the server.
    let _ = outgoing.send(bytes);
}

/// Writes what is handed in: nobody else waits where the instance is slow to read.
fn write(mut socket: UnixStream, messages: &Receiver<Vec<u8>>) {
    while let Ok(bytes) = messages.recv() {
        if socket.write_all(&bytes).is_err() {
            // The reader has seen the end, too.
            return;
        }
    }
}

/// A directory that others may enter is one in which they could take the server's place; one that has something in it
/// is not for the server to remove.
fn check_directory(path: &Path) -> Result<(), String> {
    let refuse = |text: String| Err(format!("`directory` {}: {text}", path.display()));
    let looked = fs::metadata(path).and_then(|about| Ok((about, fs::read_dir(path)?.count())));
    let (about, entries) = match looked {
        Ok(looked) => looked,
        Err(error) => return refuse(error.to_string()),
    };
    if about.mode() & 0o077 != 0 || about.uid() != library::user().0 {
        return refuse(format!(
            "expected one of this user's, with mode 0700, found mode {:o} and user {}",
            about.mode() & 0o7777,
            about.uid()
        ));
    }
    if entries > 0 {
        return refuse(format!("expected an empty one, found {entries} entries"));
    }
    Ok(())
}

/// Starts the library for the job; the answer to `pmix.start`.
#[expect(unsafe_code, reason = "starts the library")]
fn start(payload: &[u8], outgoing: &Sender<Vec<u8>>) -> Result<String, (u32, String)> {
    let start = Start::read(payload).map_err(|text| (EINVAL, text))?;
    check_directory(&start.directory).map_err(|text| (EINVAL, text))?;
    let namespace =
        CString::new(start.namespace.as_str()).map_err(|it| (EINVAL, it.to_string()))?;
    let source = native::proc(&namespace, ffi::RANK_UNDEF);
    let (news, came) = channel();
    let server = Server {
        source,
        directory: start.directory.clone(),
        outgoing: outgoing.clone(),
        parking: Mutex::default(),
        answers: Answers::default(),
        tasks: Mutex::new(Tasks::new(&start.local)),
        news,
    };
    if SERVER.set(server).is_err() {
        return Err((EALREADY, "the server has a job already".to_owned()));
    }
    // SAFETY: reached once, with the server set.
    let environment = unsafe { library::start(&start, &namespace) }.map_err(|text| (EIO, text))?;
    let answer = json!({"environment": environment}).to_string();
    thread::spawn(move || departed::run(&came, &namespace, &environment));
    Ok(answer)
}

fn serve(request: &Message, outgoing: &Sender<Vec<u8>>) {
    if let (topic::pmix_server::PING, Some(server)) = (request.topic(), SERVER.get()) {
        let mut response = Vec::new();
        Message::response_to(request, 0, Some(Message::json_payload("{}"))).encode(&mut response);
        let caller = Caller::Ping(response);
        return server.answers.put(caller, Answer::of(status::SUCCESS));
    }
    if let (topic::pmix_server::ENDED, Some(server)) = (request.topic(), SERVER.get()) {
        let mut response = Vec::new();
        return match ended(request.payload_json().unwrap_or_default()) {
            Ok(rank) => {
                let payload = Message::json_payload("{}");
                Message::response_to(request, 0, Some(payload)).encode(&mut response);
                // The thread that takes it ends with the process.
                let _ = server.news.send(News::Ended(rank, response));
            }
            Err(text) => send(outgoing, &Message::error_to(request, EINVAL, &text)),
        };
    }
    let answer = match (request.topic(), SERVER.get()) {
        (topic::pmix_server::START, _) => {
            start(request.payload_json().unwrap_or_default(), outgoing)
        }
        (topic::pmix_server::STATS, Some(server)) => Ok(server.stats()),
        (topic, _) => Err((ENOSYS, format!("unknown method `{topic}`"))),
    };
    let response = match &answer {
        Ok(json) => Message::response_to(request, 0, Some(Message::json_payload(json))),
        Err((errnum, text)) => Message::error_to(request, *errnum, text),
    };
    send(outgoing, &response);
    if request.topic() == topic::pmix_server::START && answer.is_ok() {
        let events = Message::request(topic::pmix::EVENTS, "{}")
            .with_flags(STREAMING)
            .with_matchtag(u32::MAX);
        send(outgoing, &events);
    }
}

/// Serves until the instance closes its end; the error says what it sent that is no message.
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
            // The other end went away with something unread.
            Err(_) => return Ok(()),
        };
        let outcome = decoder.feed(&buffer[..size], &mut incoming);
        for message in incoming.drain(..) {
            match (message.kind, SERVER.get()) {
                (Kind::Request, _) => serve(&message, &outgoing),
                (Kind::Response, Some(server)) => server.take(&message),
                _ => {}
            }
        }
        outcome.map_err(|error| error.to_string())?;
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
    // What is no descriptor of ours has no entry here.
    fs::symlink_metadata(format!("/proc/self/fd/{number}")).ok()?;
    // SAFETY: it is open, was inherited, and nothing else in this process uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    // What this process starts does not inherit the copy.
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
    if words == [departed::STAND_IN] {
        let code = library::join();
        // SAFETY: ends the process, and does not take leave of the library: the connection is to be lost.
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

/// Ends the process without the library's own end, which can wait for ever.
#[expect(unsafe_code, reason = "ends the process")]
fn leave(code: i32) -> ! {
    #[cfg(penstock_leaks)]
    {
        unsafe extern "C" {
            fn __lsan_do_recoverable_leak_check() -> i32;
        }
        // SAFETY: takes nothing; says what was lost, on standard error.
        if unsafe { __lsan_do_recoverable_leak_check() } != 0 {
            // SAFETY: ends the process.
            unsafe { ffi::_exit(23) };
        }
    }
    // SAFETY: ends the process.
    unsafe { ffi::_exit(code) }
}
