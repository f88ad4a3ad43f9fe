//! The steps of a start, in their order. Everything that the user names is opened after the change of user.

use std::ffi::CString;
use std::io;

use penstock_imp::{FileMode, HEADER_BYTES, Request, SOCKET_DESCRIPTOR, Step, Stream, candidates};

use crate::syscalls::{self, Account};

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

/// Starts the task. Returns only if that fails: the step and the error number.
pub fn start(request: &Request) -> (Step, i32) {
    match prepare(request) {
        Ok(account) => (Step::Exec, execute(request, &account)),
        Err((step, error)) => (step, error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

fn prepare(request: &Request) -> Result<Account, (Step, io::Error)> {
    let at = |step| move |error| (step, error);
    if request.uid == 0 {
        return Err((Step::Identity, io::Error::from_raw_os_error(libc::EPERM)));
    }
    let account = syscalls::account(request.uid).map_err(at(Step::Account))?;
    syscalls::close_from(SOCKET_DESCRIPTOR + 1).map_err(at(Step::Descriptors))?;
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
    for program in candidates(&request.arguments, &request.environment) {
        match syscalls::execute(&program, &request.arguments, &environment) {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => errno = libc::EACCES,
            other => return other,
        }
    }
    errno
}
