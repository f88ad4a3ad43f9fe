//! `penstock-imp`: starts a task as another user, or copies output of one to that user's file.
//!
//! It is not set-user-ID. It runs only if its real and effective user is root, and its descriptor 3 is a
//! socket with a request.

mod steps;
mod syscalls;

use std::env;
use std::io::ErrorKind;
use std::process::ExitCode;

use penstock_imp::{SOCKET_DESCRIPTOR, Step, encode_failure};

const USAGE: &str = "\
usage: penstock-imp
       penstock-imp --group UID

Starts a task as another user, or copies its output to a file as that user. Only penstock-reaper of a service that root
owns executes it: it reads one request from the socket that is its descriptor 3. See docs/guests.md.

  --group UID  print the group of a user's account, for penstock-exec, and nothing else
";

const FAILED_EXIT_CODE: u8 = 127;

fn main() -> ExitCode {
    match env::args_os()
        .nth(1)
        .as_deref()
        .and_then(|argument| argument.to_str())
    {
        Some("--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some("--version") => {
            println!("penstock-imp {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some("--group") => return print_group(),
        Some(_) => {
            eprint!("penstock-imp: unknown argument\n\n{USAGE}");
            return ExitCode::from(2);
        }
        None => {}
    }
    if !syscalls::is_root() {
        eprintln!("penstock-imp: the real and the effective user must be root");
        return ExitCode::FAILURE;
    }
    if !syscalls::is_socket(SOCKET_DESCRIPTOR) {
        eprintln!(
            "penstock-imp: descriptor {SOCKET_DESCRIPTOR} is no socket: penstock-reaper executes this program"
        );
        return ExitCode::FAILURE;
    }
    let result = match steps::read_request() {
        Ok(request) => steps::start(&request),
        Err(error) => Err((Step::Request, error.raw_os_error().unwrap_or(libc::EINVAL))),
    };
    let Err((step, errno)) = result else {
        return ExitCode::SUCCESS;
    };
    // The reaper may have ended.
    let _ = syscalls::write(SOCKET_DESCRIPTOR, &encode_failure(step, errno));
    ExitCode::from(FAILED_EXIT_CODE)
}

/// Prints the group of the account whose user id is the second argument.
fn print_group() -> ExitCode {
    let uid = env::args_os().nth(2);
    let uid = uid.and_then(|uid| uid.to_str()?.parse::<u32>().ok());
    let Some(uid) = uid else {
        eprintln!("penstock-imp: --group: expected a user id");
        return ExitCode::from(2);
    };
    match syscalls::account(uid) {
        Ok(account) => {
            println!("{}", account.gid);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let cause = match error.kind() {
                ErrorKind::NotFound => "there is none".to_owned(),
                _ => error.to_string(),
            };
            eprintln!("penstock-imp: cannot find the account of user {uid}: {cause}");
            ExitCode::FAILURE
        }
    }
}
