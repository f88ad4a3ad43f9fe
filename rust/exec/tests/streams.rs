//! Standard input that is written, labelled output and terminals, of real tasks of a reaper.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use penstock_exec::protocol::{Input, Message, Output, Relay, Request, TaskSpec, WindowSize};
use penstock_exec::{JobId, TaskRank, WaitStatus};

use support::{PROGRAM, Reaper, Service, fifo, file, read_fifo, shell, task};

const WRITER: u64 = 7;

fn write(offset: u64, data: &str, is_end: bool) -> Request {
    Request::Write {
        job: JobId::new(1),
        task: None,
        writer: WRITER,
        offset,
        data: data.into(),
        is_end,
    }
}

/// A task that reads from its pipe and writes to the file `output`.
fn reading(reaper: &Reaper, rank: u32, script: &str) -> TaskSpec {
    let mut spec = shell(task(1, rank), script);
    spec.stdin = Input::Pipe;
    spec.stdout = Output::Append(file(&reaper.path("output")));
    spec
}

fn output(reaper: &Reaper) -> String {
    fs::read_to_string(reaper.path("output")).expect("there")
}

fn start(service: &mut Service, specs: &[TaskSpec]) {
    assert_eq!(service.request(&Request::Spawn(specs.to_vec())), 0);
}

#[test]
fn every_task_gets_what_is_written_until_the_end() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let mut without = reading(&reaper, 2, "cat");
    without.stdin = Input::Null;
    start(
        &mut service,
        &[
            reading(&reaper, 0, "cat"),
            reading(&reaper, 1, "cat"),
            without,
        ],
    );
    assert_eq!(service.request(&write(0, "one\n", false)), 0);
    // A repeated request writes only what is new.
    assert_eq!(service.request(&write(0, "one\ntwo\n", false)), 0);
    assert_eq!(service.request(&write(9, "x", false)), libc::EINVAL);
    assert_eq!(service.request(&write(8, "", true)), 0);
    service.wait_for_empty(1);
    let mut lines: Vec<_> = output(&reaper).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["one", "one", "two", "two"]);
    assert_eq!(service.request(&write(8, "three", false)), libc::ENOENT);
    reaper_ends(service, reaper);
}

#[test]
fn one_task_gets_what_is_written_to_it() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let script = "sed \"s/^/$0 /\"";
    let specs = [0, 1].map(|rank| reading(&reaper, rank, &script.replace("$0", &rank.to_string())));
    start(&mut service, &specs);
    let to = |rank, offset, data: &str, is_end| Request::Write {
        job: JobId::new(1),
        task: Some(TaskRank(rank)),
        writer: WRITER,
        offset,
        data: data.into(),
        is_end,
    };
    assert_eq!(service.request(&to(2, 0, "x\n", false)), libc::EPIPE);
    assert_eq!(service.request(&to(1, 0, "one\n", true)), 0);
    assert_eq!(service.request(&to(1, 4, "x\n", false)), libc::EPIPE);
    // The other task reads on.
    assert_eq!(service.request(&write(4, "all\n", true)), 0);
    service.wait_for_empty(1);
    let mut lines: Vec<_> = output(&reaper).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0 all", "1 one"]);
    reaper_ends(service, reaper);
}

fn reaper_ends(service: Service, reaper: Reaper) {
    let mut service = service;
    service.request(&Request::Forget(vec![JobId::new(1)]));
    service.shut_down(reaper);
}

#[test]
fn a_write_is_complete_when_the_slowest_task_has_room_for_it() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let gate = reaper.path("gate");
    fifo(&gate);
    let script = format!("read _ < {}; wc -c", gate.display());
    start(&mut service, &[reading(&reaper, 0, &script)]);
    // More than a pipe holds.
    let data = "x".repeat(300_000);
    let sent = service.client.send(&write(0, &data, false)).expect("sent");
    // Others are served meanwhile.
    assert_eq!(service.request(&Request::List), 0);
    fs::write(&gate, "go\n").expect("the task waits");
    loop {
        if let Message::Done { id, errno } = service.client.receive().expect("connected") {
            assert_eq!((id, errno), (sent, 0));
            break;
        }
    }
    assert_eq!(service.request(&write(300_000, "", true)), 0);
    service.wait_for_empty(1);
    assert_eq!(output(&reaper).trim(), "300000");
    reaper_ends(service, reaper);
}

#[test]
fn many_tasks_have_pipes_and_their_own_limit_of_descriptors() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("owned");
    let script = "ulimit -S -n 150; exec \"$0\" --directory \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, PROGRAM]).arg(folder.path());
    let reaper = Reaper::start_by(command, folder.path());
    let mut service = reaper.connect();
    let mut specs: Vec<_> = (0..150)
        .map(|rank| reading(&reaper, rank, "ulimit -S -n; cat"))
        .collect();
    specs[149].stdin = Input::Null;
    start(&mut service, &specs);
    assert_eq!(service.request(&write(0, "150\n", true)), 0);
    service.wait_for_empty(1);
    assert_eq!(output(&reaper), "150\n".repeat(150 + 149));
    reaper_ends(service, reaper);
}

#[test]
fn a_reader_that_has_closed_its_input_gets_nothing() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let (closed, gate) = (reaper.path("closed"), reaper.path("gate"));
    fifo(&closed);
    fifo(&gate);
    let script = format!("exec < {}; read _", gate.display());
    let script = format!("exec 0<&-; echo > {}; {script}", closed.display());
    start(&mut service, &[reading(&reaper, 0, &script)]);
    read_fifo(&closed);
    assert_eq!(service.request(&write(0, "x", false)), libc::EPIPE);
    fs::write(&gate, "go\n").expect("the task waits");
    service.wait_for_empty(1);
    reaper_ends(service, reaper);
}

#[test]
fn input_continues_when_another_service_connects() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    start(&mut service, &[reading(&reaper, 0, "cat")]);
    assert_eq!(service.request(&write(0, "one\n", false)), 0);
    // The service is killed before it has read the response.
    service
        .client
        .send(&write(4, "two\n", false))
        .expect("sent");
    drop(service);
    let mut service = reaper.connect();
    service.request(&Request::List);
    assert_eq!(service.request(&write(4, "two\n", true)), 0);
    service.wait_for_empty(1);
    assert_eq!(output(&reaper), "one\ntwo\n");
    reaper_ends(service, reaper);
}

#[test]
fn lines_get_the_rank_in_front() {
    let labels = |is_line_buffered| Relay::Labels {
        stdout: true,
        stderr: true,
        is_line_buffered,
    };
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    for (rank, stderr) in [
        (3, Output::SameAsStdout),
        (12, Output::Append(file(&reaper.path("err")))),
    ] {
        let script = "printf 'one\\n\\ntw'; printf 'o\\nrest'; echo error >&2";
        let mut spec = reading(&reaper, rank, script);
        spec.stdin = Input::Null;
        spec.relay = labels(true);
        spec.stderr = stderr;
        assert_eq!(service.run(spec), WaitStatus::Exited(0));
    }
    service.wait_for_empty(1);
    let labelled = "3: one\n3: \n3: two\n3: resterror\n12: one\n12: \n12: two\n12: rest\n";
    assert_eq!(output(&reaper), labelled);
    let errors = fs::read_to_string(reaper.path("err")).expect("there");
    assert_eq!(errors, "12: error\n");
    // Without a buffer a part of a line is there at once.
    let (seen, gate) = (reaper.path("seen"), reaper.path("gate"));
    fifo(&gate);
    let script = format!("printf part; read _ < {}; echo more", gate.display());
    let mut spec = shell(task(2, 0), &script);
    spec.stdout = Output::Truncate(file(&seen));
    spec.relay = labels(false);
    service.spawn(spec);
    while fs::read_to_string(&seen).expect("there").is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(fs::read_to_string(&seen).expect("there"), "0: part");
    fs::write(&gate, "go\n").expect("the task waits");
    service.wait_for_empty(2);
    assert_eq!(fs::read_to_string(&seen).expect("there"), "0: partmore\n");
    service.request(&Request::Forget(vec![JobId::new(2)]));
    reaper_ends(service, reaper);
}

#[test]
fn labelled_output_goes_to_regular_files_only() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    fifo(&reaper.path("fifo"));
    let _reader = fs::File::options()
        .read(true)
        .write(true)
        .open(reaper.path("fifo"));
    let mut spec = shell(task(1, 0), "true");
    spec.stdout = Output::Append(file(&reaper.path("fifo")));
    spec.relay = Relay::Terminal(WindowSize {
        rows: 1,
        columns: 1,
    });
    service.spawn(spec);
    assert_eq!(service.wait_for_failure(task(1, 0)).errno, libc::EOPNOTSUPP);
    service.wait_for_empty(1);
    reaper_ends(service, reaper);
}

#[test]
fn a_terminal_controls_the_task_and_its_output_is_retained() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let (ready, gate) = (reaper.path("ready"), reaper.path("gate"));
    fifo(&ready);
    fifo(&gate);
    let script = format!(
        "stty size; test -t 0 && test -t 1 && test -t 2 && echo all; echo > {}; read _ < {}; stty size; \
         read line; echo \"got $line\" > /dev/tty; cat; echo end",
        ready.display(),
        gate.display()
    );
    let mut spec = reading(&reaper, 0, &script);
    spec.relay = Relay::Terminal(WindowSize {
        rows: 30,
        columns: 100,
    });
    service.spawn(spec);
    read_fifo(&ready);
    let resize = |job| Request::Resize {
        job: JobId::new(job),
        size: WindowSize {
            rows: 40,
            columns: 120,
        },
    };
    assert_eq!(service.request(&resize(1)), 0);
    assert_eq!(service.request(&resize(2)), libc::ENOENT);
    fs::write(&gate, "go\n").expect("the task waits");
    assert_eq!(service.request(&write(0, "hello\n", false)), 0);
    assert_eq!(service.request(&write(6, "more\n", true)), 0);
    assert_eq!(
        service.wait_for_end(task(1, 0)).status,
        WaitStatus::Exited(0)
    );
    service.wait_for_empty(1);
    let text = output(&reaper).replace("\r\n", "\n");
    for part in ["30 100\nall\n", "40 120\n", "got hello\n", "more\nend\n"] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    reaper_ends(service, reaper);
}

#[test]
fn a_terminal_whose_output_cannot_be_written_is_closed() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("owned");
    // The reaper's log is shorter, and it blocks SIGXFSZ.
    let script = "ulimit -f 64; exec \"$0\" --directory \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, PROGRAM]).arg(folder.path());
    let reaper = Reaper::start_by(command, folder.path());
    let mut service = reaper.connect();
    let mut spec = reading(&reaper, 0, "while echo text; do :; done; exec sleep 1000");
    spec.relay = Relay::Terminal(WindowSize {
        rows: 24,
        columns: 80,
    });
    service.spawn(spec);
    let status = service.wait_for_end(task(1, 0)).status;
    assert!(matches!(status, WaitStatus::Signaled { signal: 1, .. }));
    service.wait_for_empty(1);
    reaper_ends(service, reaper);
}

#[test]
fn a_task_with_an_interrupt_character_is_interrupted() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let ready = reaper.path("ready");
    fifo(&ready);
    let script = format!("echo > {}; exec sleep 1000", ready.display());
    let mut spec = reading(&reaper, 0, &script);
    spec.relay = Relay::Terminal(WindowSize {
        rows: 24,
        columns: 80,
    });
    service.spawn(spec);
    read_fifo(&ready);
    assert_eq!(service.request(&write(0, "\u{3}", false)), 0);
    let status = service.wait_for_end(task(1, 0)).status;
    assert!(matches!(status, WaitStatus::Signaled { signal: 2, .. }));
    service.wait_for_empty(1);
    reaper_ends(service, reaper);
}
