//! The PMIx server of the tasks of one job on one node.
//!
//! It runs as the job's user, is started before the tasks and killed after them. The instance connects to the socket in
//! its directory, sends `pmix.start` with the job, and gets the tasks' environments in the response. The server then
//! sends the tasks' requests, `pmix.alloc`, `pmix.query` and `pmix.abort`, and requests the stream `pmix.events` of ended
//! requests. The socket identifies the job: the server does not name it. When the connection is lost, requests that may
//! have been carried out fail: those that were written and may not be repeated. The others are held until the instance
//! connects again.

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
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{self, Path};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;

use penstock_flux::errno::{EALREADY, EIO};
use penstock_flux::pmix_server::{EndedRequest, StartResponse};
use penstock_flux::{EmptyResponse, RequestError, topic};
use penstock_pmix::response::Response;
use penstock_pmix::{Job, Outgoing, Tasks, status, write_messages};
use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message, MessageType};

use callbacks::{Callback, callbacks};
use server::{SERVER, Server, ServerRequests, TaskEvent};

const USAGE: &str = "usage: penstock-pmix --directory DIR | --version";

/// The names in the server's directory: its socket, and the directory of libpmix's files.
const SOCKET: &str = "socket";
const LIBRARY_DIRECTORY: &str = "libpmix";

/// Hands a message to the writing thread.
fn send(outgoing: &Sender<Outgoing>, message: &Message) {
    // Without that thread the server is ending.
    let _ = outgoing.send(Outgoing::Frame(frame(message)));
}

fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// Makes the server's directory, or takes an existing one that is empty. Only the user may be able to enter it, or others
/// could pose as the server or as the instance.
fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700).recursive(true).create(path)?;
    let (about, entries) = (fs::metadata(path)?, fs::read_dir(path)?.count());
    if about.mode() & 0o077 != 0 || about.uid() != library::uid() {
        return Err(io::Error::other(format!(
            "expected one of this user's, with mode 0700, found mode {:o} and user {}",
            about.mode() & 0o7777,
            about.uid()
        )));
    }
    if entries > 0 {
        return Err(io::Error::other(format!(
            "expected an empty directory, found {entries} entries"
        )));
    }
    builder.create(path.join(LIBRARY_DIRECTORY))
}

/// Makes the directory, and listens on the socket in it.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    make_directory(directory)?;
    // The address of a socket is 107 bytes at most: it is relative.
    env::set_current_dir(directory)?;
    let listener = UnixListener::bind(SOCKET)?;
    env::set_current_dir("/")?;
    Ok(listener)
}

/// Starts the library for the job of `pmix.start`. A server that has this job returns its environments again.
#[expect(unsafe_code, reason = "starts the library")]
fn start(request: &Message, directory: &Path) -> Result<StartResponse, RequestError> {
    let job = Job::read(request.payload_json())
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    let namespace = CString::new(job.namespace.as_str())
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    if let Some(server) = SERVER.get() {
        return match server.started.get() {
            Some(started) if server.job == job.job => Ok(started.clone()),
            Some(_) => {
                let text = format!("the server is that of job {}", server.job);
                Err(RequestError::new(EALREADY, text))
            }
            None => Err(RequestError::new(EIO, "libpmix has not started")),
        };
    }
    let (task_events, received) = channel();
    let server = SERVER.get_or_init(|| Server {
        source: native::proc(&namespace, ffi::RANK_UNDEF),
        job: job.job.clone(),
        started: OnceLock::new(),
        requests: Mutex::default(),
        tasks: Mutex::new(Tasks::new(&job.local)),
        task_events,
    });
    let files = directory.join(LIBRARY_DIRECTORY);
    // SAFETY: reached once, with the server set.
    let environment = unsafe { library::start(&job, &namespace, &files.to_string_lossy()) }
        .map_err(|error| RequestError::new(EIO, error.to_string()))?;
    let started = server.started.get_or_init(|| StartResponse { environment });
    thread::spawn(move || ended_tasks::run(&received, &namespace, &started.environment));
    Ok(started.clone())
}

/// Serves `pmix.ended`, which is answered once libpmix no longer counts the task.
fn task_ended(
    server: &Server,
    request: &Message,
    outgoing: &Sender<Outgoing>,
) -> Result<(), RequestError> {
    let ended: EndedRequest = penstock_flux::read(request.payload_json())
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    let rank = ended.rank;
    let response = frame(&Message::success_to(request, &EmptyResponse {}));
    // The receiving thread ends with the process.
    let _ = server.task_events.send(TaskEvent::Ended {
        rank,
        response,
        outgoing: outgoing.clone(),
    });
    Ok(())
}

/// Answers a request of the instance; `None` if another thread will.
fn serve(
    request: &Message,
    outgoing: &Sender<Outgoing>,
    directory: &Path,
) -> Result<Option<Message>, RequestError> {
    use topic::pmix_server::{ENDED, PING, START, STATS};

    match (request.topic(), SERVER.get()) {
        (START, _) => {
            let response = start(request, directory)?;
            Ok(Some(Message::success_to(request, &response)))
        }
        (ENDED, Some(server)) => task_ended(server, request, outgoing).map(|()| None),
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

fn answer(request: &Message, outgoing: &Sender<Outgoing>, directory: &Path) {
    match serve(request, outgoing, directory) {
        Ok(None) => {}
        Ok(Some(response)) => {
            send(outgoing, &response);
            if request.topic() == topic::pmix_server::START
                && let Some(server) = SERVER.get()
            {
                server.connect(outgoing);
            }
        }
        Err(RequestError { errnum, text }) => {
            send(outgoing, &Message::error_to(request, errnum, &text));
        }
    }
}

/// Serves a connection until the instance closes its end. The error says why its bytes are not a message.
fn run(socket: &UnixStream, outgoing: &Sender<Outgoing>, directory: &Path) -> io::Result<()> {
    let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
    let (mut buffer, mut incoming) = (vec![0; 64 << 10], Vec::new());
    loop {
        let size = match (&*socket).read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(size) => size,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            // The other end has gone with bytes unread.
            Err(_) => return Ok(()),
        };
        let result = decoder.feed(&buffer[..size], &mut incoming);
        for message in incoming.drain(..) {
            match (message.kind, SERVER.get()) {
                (MessageType::Request, _) => answer(&message, outgoing, directory),
                (MessageType::Response, Some(server)) => server.handle_response(&message),
                _ => {}
            }
        }
        result.map_err(io::Error::other)?;
    }
}

/// Serves connections, one after another. Returns if no other can be accepted.
fn serve_connections(directory: &Path) -> io::Result<()> {
    let listener = listen(directory)?;
    println!("listening");
    for socket in listener.incoming() {
        let socket = socket?;
        let (outgoing, messages) = channel();
        thread::scope(|scope| {
            // A thread of its own, so that an instance that reads slowly blocks no other thread.
            scope.spawn(|| write_messages(&socket, messages, &ServerRequests));
            if let Err(error) = run(&socket, &outgoing, directory) {
                eprintln!("penstock-pmix: {error}");
            }
            // Ends the writing thread, also in the middle of a frame: it is known then which requests were written.
            let _ = socket.shutdown(Shutdown::Both);
            let _ = outgoing.send(Outgoing::End);
        });
        if let Some(server) = SERVER.get() {
            server.disconnect();
        }
        check_leaks();
    }
    Ok(())
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
    let directory = match words.as_slice() {
        [option, path] if option == "--directory" => path::absolute(path).ok(),
        _ => None,
    };
    let Some(directory) = directory else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // SAFETY: the first thread is the only one yet.
    unsafe { library::prepare_environment() };
    if let Err(error) = serve_connections(&directory) {
        eprintln!("penstock-pmix: `{}`: {error}", directory.display());
    }
    // SAFETY: ends the process without finalizing the library, which can block forever.
    unsafe { ffi::_exit(1) }
}

/// Ends the process if memory has leaked, in a build that detects leaks.
#[cfg_attr(penstock_leaks, expect(unsafe_code, reason = "calls the sanitizer"))]
fn check_leaks() {
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
}
