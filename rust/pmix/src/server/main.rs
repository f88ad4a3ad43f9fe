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
mod server;
mod upcalls;

use std::env;
use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use penstock_flux::errno::{EALREADY, EIO};
use penstock_flux::flags::STREAMING;
use penstock_flux::pmix_server::{EndedRequest, StartResponse};
use penstock_flux::{EmptyResponse, RequestError, topic};
use penstock_pmix::response::Response;
use penstock_pmix::{Job, Tasks, status};
use penstock_wire::{DEFAULT_MAX_FRAME, Decoder, Message, MessageType};

use callbacks::{Callback, callbacks};
use server::{SERVER, Server, TaskEvent};

const USAGE: &str = "usage: penstock-pmix --fd NUMBER | --version";

/// Hands a message to the writing thread.
fn send(outgoing: &Sender<Vec<u8>>, message: &Message) {
    // Without that thread the server is ending.
    let _ = outgoing.send(frame(message));
}

fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// Writes frames: a thread of its own, so that an instance that reads slowly blocks no other thread.
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
fn check_directory(path: &Path) -> Result<(), RequestError> {
    let invalid = |text: String| {
        let place = path.display();
        Err(RequestError::invalid(format!(
            "`directory` {place}: {text}"
        )))
    };
    let found = fs::metadata(path).and_then(|about| Ok((about, fs::read_dir(path)?.count())));
    let (about, entries) = match found {
        Ok(found) => found,
        Err(error) => return invalid(error.to_string()),
    };
    if about.mode() & 0o077 != 0 || about.uid() != library::uid() {
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

/// Starts the library for the job of `pmix.start`.
#[expect(unsafe_code, reason = "starts the library")]
fn start(request: &Message, outgoing: &Sender<Vec<u8>>) -> Result<StartResponse, RequestError> {
    let job = Job::read(request.payload_json())
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    let directory = PathBuf::from(&job.directory);
    check_directory(&directory)?;
    let namespace = CString::new(job.namespace.as_str())
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    let (task_events, received) = channel();
    let server = Server {
        source: native::proc(&namespace, ffi::RANK_UNDEF),
        directory,
        outgoing: outgoing.clone(),
        outstanding: Mutex::default(),
        tasks: Mutex::new(Tasks::new(&job.local)),
        task_events,
    };
    if SERVER.set(server).is_err() {
        let text = "the server has a job already";
        return Err(RequestError::new(EALREADY, text));
    }
    // SAFETY: reached once, with the server set.
    let environment = unsafe { library::start(&job, &namespace) }
        .map_err(|error| RequestError::new(EIO, error.to_string()))?;
    let response = StartResponse {
        environment: environment.clone(),
    };
    thread::spawn(move || ended_tasks::run(&received, &namespace, &environment));
    Ok(response)
}

/// Serves `pmix.ended`, which is answered once libpmix no longer counts the task.
fn task_ended(server: &Server, request: &Message) -> Result<(), RequestError> {
    let ended: EndedRequest = penstock_flux::read(request.payload_json())
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    let rank = ended.rank;
    let response = frame(&Message::success_to(request, &EmptyResponse {}));
    // The receiving thread ends with the process.
    let _ = server.task_events.send(TaskEvent::Ended { rank, response });
    Ok(())
}

/// Answers a request of the instance; `None` if another thread will.
fn serve(request: &Message, outgoing: &Sender<Vec<u8>>) -> Result<Option<Message>, RequestError> {
    use topic::pmix_server::{ENDED, PING, START, STATS};

    match (request.topic(), SERVER.get()) {
        (START, _) => {
            let response = start(request, outgoing)?;
            Ok(Some(Message::success_to(request, &response)))
        }
        (ENDED, Some(server)) => task_ended(server, request).map(|()| None),
        (STATS, Some(server)) => Ok(Some(Message::success_to(request, &server.stats()))),
        (PING, Some(_)) => {
            let callback = Callback::Ping(
                outgoing.clone(),
                frame(&Message::success_to(request, &EmptyResponse {})),
            );
            let response = Response::of_status(status::SUCCESS);
            callbacks().enqueue(callback, response);
            Ok(None)
        }
        (topic, _) => Err(RequestError::unknown_method(topic)),
    }
}

fn answer(request: &Message, outgoing: &Sender<Vec<u8>>) {
    match serve(request, outgoing) {
        Ok(None) => {}
        Ok(Some(response)) => {
            send(outgoing, &response);
            if request.topic() == topic::pmix_server::START {
                let events = Message::request(topic::pmix::EVENTS, "{}")
                    .with_flags(STREAMING)
                    .with_matchtag(u32::MAX);
                send(outgoing, &events);
            }
        }
        Err(RequestError { errnum, text }) => {
            send(outgoing, &Message::error_to(request, errnum, &text));
        }
    }
}

/// Serves until the instance closes its end. The error says why its bytes are not a message.
fn run(mut socket: UnixStream) -> io::Result<()> {
    let (outgoing, messages) = channel();
    let writing = socket.try_clone()?;
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
                (MessageType::Request, _) => answer(&message, &outgoing),
                (MessageType::Response, Some(server)) => server.handle_response(&message),
                _ => {}
            }
        }
        result.map_err(io::Error::other)?;
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
        Err(error) => {
            eprintln!("penstock-pmix: {error}");
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
