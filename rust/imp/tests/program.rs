//! The requests that it rejects, as root and as another user. `tests/instance/test_guests.py` has the starts of tasks.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use penstock_imp::{Action, Request, Step, Stream, decode_failure};

const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock-imp");
const UNPRIVILEGED: u32 = 65_534;

fn request(uid: u32) -> Request {
    Request {
        action: Action::Execute,
        uid,
        no_new_privs: true,
        umask: 0o22,
        has_pmi: false,
        streams: [Stream::Inherited, Stream::Inherited, Stream::Inherited],
        limits: Vec::new(),
        directory: c"/".into(),
        arguments: vec![c"true".into()],
        environment: vec![c"PATH=/usr/bin:/bin".into()],
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    status.contains("\nUid:\t0\t0\t0\t0\n")
}

/// Runs the program with a socket on which these bytes are sent. Returns its answer.
fn answer(bytes: &[u8]) -> Option<(Step, i32)> {
    let (mut socket, other) = UnixStream::pair().expect("a socket");
    let mut child = Command::new("sh")
        .args(["-c", "exec \"$0\" 3<&0 </dev/null", PROGRAM])
        .stdin(OwnedFd::from(other))
        .env_clear()
        .spawn()
        .expect("sh starts");
    // It may have ended before it has read everything: then the socket is reset after the answer.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    child.wait().expect("it ends");
    answer.first_chunk().copied().and_then(decode_failure)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn only_root_may_execute_it() {
    let mut command = Command::new(PROGRAM);
    if is_root() {
        command.uid(UNPRIVILEGED);
    }
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("must be root"), "{output:?}");
}

#[test]
fn it_needs_a_socket() {
    if is_root() {
        let output = Command::new(PROGRAM).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output).contains("no socket"), "{output:?}");
    }
}

#[test]
fn tasks_of_root_and_of_unknown_users_are_rejected() {
    if is_root() {
        assert_eq!(
            answer(&request(0).encode()),
            Some((Step::Identity, libc::EPERM))
        );
        let unknown = request(4_000_000_001).encode();
        assert_eq!(answer(&unknown), Some((Step::Account, libc::ENOENT)));
        assert_eq!(
            answer(&request(UNPRIVILEGED).encode()),
            None,
            "it is executed"
        );
    }
}

#[test]
fn a_part_of_a_request_and_other_bytes_are_rejected() {
    if is_root() {
        let bytes = request(UNPRIVILEGED).encode();
        let part = bytes.get(..bytes.len() - 1).expect("a part");
        for bytes in [part, b"", &[7; 10_000]] {
            let step = answer(bytes).map(|(step, _)| step);
            assert_eq!(step, Some(Step::Request));
        }
    }
}

#[test]
fn it_prints_the_group_of_an_account() {
    let group = |uid: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["--group", uid]).env_clear();
        command.output().expect("it starts")
    };
    let found = group("0");
    assert!(found.status.success(), "{}", text(&found));
    assert_eq!(found.stdout, b"0\n");
    for (uid, code, expected) in [
        (
            "4000000000",
            1,
            "cannot find the account of user 4000000000: there is none\n",
        ),
        ("root", 2, "expected a user id"),
    ] {
        let failed = group(uid);
        assert_eq!(failed.status.code(), Some(code));
        assert!(text(&failed).contains(expected), "{}", text(&failed));
        assert!(failed.stdout.is_empty());
    }
}
