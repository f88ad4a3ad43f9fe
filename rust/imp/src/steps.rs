//! The steps of a start or a copy, in their order. Everything that the user names is opened after the change of user.

use std::ffi::CString;
use std::io;

use penstock_imp::{
    Action, FileMode, HEADER_BYTES, Label, PMI_DESCRIPTOR, Request, SOCKET_DESCRIPTOR, Step,
    Stream, candidates,
};

use crate::syscalls::{self, Account};

const STDIN: i32 = 0;
const STDOUT: i32 = 1;
const STDERR: i32 = 2;
const COPY_BUFFER_BYTES: usize = 16 << 10;
const STREAM_STEPS: [Step; 3] = [Step::Stdin, Step::Stdout, Step::Stderr];

/// Reads the request from the socket.
pub fn read_request() -> io::Result<Request> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{error}"));
    let mut header = [0; HEADER_BYTES];
    syscalls::read_exact(SOCKET_DESCRIPTOR, &mut header)?;
    let mut strings = vec![0; Request::string_bytes(&header).map_err(invalid)?];
    syscalls::read_exact(SOCKET_DESCRIPTOR, &mut strings)?;
    Request::decode(&header, &strings).map_err(invalid)
}

/// Starts the task, or copies output. Returns when output has been copied, or if a step fails: the step and the error number.
pub fn start(request: &Request) -> Result<(), (Step, i32)> {
    let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let account = prepare(request).map_err(|(step, error)| (step, number(error)))?;
    let Action::Copy(buffering) = request.action else {
        return Err((Step::Exec, execute(request, &account)));
    };
    let target = match &request.streams {
        [_, _, Stream::File(..)] => STDERR,
        _ => STDOUT,
    };
    let prefix = request.arguments.first().map(CString::as_bytes);
    let label = Label::new(prefix.unwrap_or_default().to_vec(), buffering);
    // The reaper learns that the file is open.
    syscalls::close_from(SOCKET_DESCRIPTOR).map_err(|error| (Step::Descriptors, number(error)))?;
    // The socket is closed: the task finds its output closed.
    let _ = copy(target, label);
    Ok(())
}

/// Copies standard input to a descriptor until its end.
fn copy(target: i32, mut label: Label) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    loop {
        // The reaper, which may have the same terminal open, does not block in it.
        syscalls::wait_readable(STDIN)?;
        match syscalls::read(STDIN, &mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                let bytes = buffer.get(..length).unwrap_or_default();
                syscalls::write_all(target, &label.add_to(bytes))?;
            }
            Err(error) if error.raw_os_error() == Some(libc::EIO) => break,
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(error),
        }
    }
    syscalls::write_all(target, &label.finish())
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

fn prepare(request: &Request) -> Result<Account, (Step, io::Error)> {
    let at = |step| move |error| (step, error);
    if request.uid == 0 {
        return Err((Step::Identity, io::Error::from_raw_os_error(libc::EPERM)));
    }
    let account = syscalls::account(request.uid).map_err(at(Step::Account))?;
    let last = if request.has_pmi {
        PMI_DESCRIPTOR
    } else {
        SOCKET_DESCRIPTOR
    };
    syscalls::close_from(last + 1).map_err(at(Step::Descriptors))?;
    syscalls::close_on_exec(SOCKET_DESCRIPTOR).map_err(at(Step::Descriptors))?;
    for limit in &request.limits {
        syscalls::set_limit(limit.resource, limit.soft, limit.hard).map_err(at(Step::Limit))?;
    }
    syscalls::become_user(request.uid, account.gid, &account.groups).map_err(at(Step::Identity))?;
    syscalls::drop_capabilities().map_err(at(Step::Privileges))?;
    if request.no_new_privs {
        syscalls::forbid_new_privileges().map_err(at(Step::Privileges))?;
    }
    syscalls::set_umask(request.umask);
    syscalls::chdir(&request.directory).map_err(at(Step::Chdir))?;
    for ((target, stream), step) in (0..).zip(&request.streams).zip(STREAM_STEPS) {
        open_stream(target, stream).map_err(at(step))?;
    }
    Ok(account)
}

fn open_stream(target: i32, stream: &Stream) -> io::Result<()> {
    let source = match stream {
        Stream::Inherited => return Ok(()),
        Stream::SameAsStdout => return syscalls::duplicate(1, target),
        Stream::File(mode, path) => {
            let flags = match mode {
                FileMode::Read => libc::O_RDONLY,
                FileMode::Append => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
                FileMode::Truncate => {
                    libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_TRUNC
                }
            };
            syscalls::open(path, flags)?
        }
    };
    // The flag O_NONBLOCK, which kept a FIFO from suspending this program, is not for the task.
    syscalls::clear_nonblocking(source)?;
    syscalls::duplicate(source, target)
}

/// Executes the program. Returns the error number.
fn execute(request: &Request, account: &Account) -> i32 {
    syscalls::accept_broken_pipes();
    let mut environment = request.environment.clone();
    for (name, value) in [
        ("HOME", &account.home),
        ("USER", &account.name),
        ("LOGNAME", &account.name),
        ("SHELL", &account.shell),
    ] {
        let prefix = format!("{name}=");
        let is_set = |variable: &CString| variable.as_bytes().starts_with(prefix.as_bytes());
        if !environment.iter().any(is_set) {
            let variable = [prefix.as_bytes(), value.as_bytes()].concat();
            environment.extend(CString::new(variable));
        }
    }
    // As `execvp`: a missing or inaccessible file is skipped; the error of an inaccessible one is reported.
    let mut errno = libc::ENOENT;
    for program in candidates(
        &request.arguments,
        request.environment.iter().map(CString::as_c_str),
    ) {
        match syscalls::execute(&program, &request.arguments, &environment) {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => errno = libc::EACCES,
            other => return other,
        }
    }
    errno
}
