//! The program `penstock-reaper` with real processes.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use penstock_exec::log::LoggedTask;
use penstock_exec::protocol::{Event, Group, Input, Limit, Output, Request, SignalTarget};
use penstock_exec::{BootId, JobId, ProcessId, Step, WaitStatus, is_running, read_log};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, kill_process};
use support::{
    PROGRAM, Reaper, command, fifo, file, is_alive, pids, read_fifo, shell, spec, task, text,
};

const SIGKILL: WaitStatus = WaitStatus::Signaled {
    signal: 9,
    core: false,
};

fn boot() -> BootId {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has one");
    BootId::parse(&text).expect("it is an UUID")
}

fn runs(process: ProcessId) -> bool {
    is_running(process, boot())
}

#[test]
fn exit_codes_and_signals_are_reported() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    assert_eq!(
        service.run(shell(task(1, 0), "exit 0")),
        WaitStatus::Exited(0)
    );
    assert_eq!(
        service.run(shell(task(1, 1), "exit 7")),
        WaitStatus::Exited(7)
    );
    let killed = service.run(shell(task(1, 2), "kill -9 $$"));
    assert_eq!(killed, SIGKILL);
    service.wait_for_empty(1);
    assert_eq!(service.request(&Request::Forget(vec![JobId::new(1)])), 0);
    service.shut_down(reaper);
}

#[test]
fn usage_and_time_are_reported() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    service.run(shell(task(1, 0), busy));
    let end = service.wait_for_end(task(1, 0));
    assert!(end.usage.user_us + end.usage.system_us > 0);
    assert!(end.usage.max_rss_kib > 100);
    // Later than the year 2020, in nanoseconds.
    assert!(end.time_ns > 1_577_836_800_000_000_000);
}

#[test]
fn output_goes_to_files() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let (out, both) = (reaper.path("out"), reaper.path("both"));
    fs::write(&out, "before\n").expect("writable");
    let mut append = shell(task(1, 0), "echo appended");
    append.stdout = Output::Append(file(&out));
    service.run(append);
    assert_eq!(
        fs::read_to_string(&out).expect("there"),
        "before\nappended\n"
    );

    let mut truncate = shell(task(1, 1), "echo alone");
    truncate.stdout = Output::Truncate(file(&out));
    service.run(truncate);
    assert_eq!(fs::read_to_string(&out).expect("there"), "alone\n");

    let mut merged = shell(task(1, 2), "echo first; echo second >&2; echo third");
    merged.stdout = Output::Truncate(file(&both));
    merged.stderr = Output::SameAsStdout;
    service.run(merged);
    assert_eq!(
        fs::read_to_string(&both).expect("there"),
        "first\nsecond\nthird\n"
    );
}

#[test]
fn a_truncated_file_can_be_shared() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let (out, gate) = (reaper.path("out"), reaper.path("gate"));
    fifo(&gate);
    let wait = format!("echo first; cat {}; echo third", gate.display());
    let mut first = shell(task(1, 0), &wait);
    first.stdout = Output::Truncate(file(&out));
    assert_eq!(service.request(&Request::Spawn(vec![first])), 0);
    // The FIFO opens when the first task has written its first line and reads.
    let writer = fs::OpenOptions::new()
        .write(true)
        .open(&gate)
        .expect("a FIFO");
    let mut second = shell(task(1, 1), "echo second");
    second.stdout = Output::Append(file(&out));
    service.run(second);
    drop(writer);
    service.wait_for_end(task(1, 0));
    assert_eq!(
        fs::read_to_string(&out).expect("there"),
        "first\nsecond\nthird\n"
    );
}

#[test]
fn requests_that_a_killed_service_has_left_are_carried_out_before_a_list() {
    let reaper = Reaper::start();
    let mut old = reaper.connect();
    // More than the reaper reads at once.
    let mut specs: Vec<_> = (0..40).map(|rank| shell(task(1, rank), ":")).collect();
    for spec in &mut specs {
        spec.environment
            .push(&text(&format!("FILL={}", "x".repeat(4000))));
    }
    old.client.send(&Request::Spawn(specs)).expect("connected");
    drop(old);
    let mut new = reaper.connect();
    assert_eq!(new.request(&Request::List), 0);
    let started: BTreeSet<_> = new
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Started { task, .. } => Some(task.rank),
            _ => None,
        })
        .collect();
    assert_eq!(started.len(), 40);
}

#[test]
fn a_task_gets_its_environment_input_directory_umask_and_limits() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let (input, output) = (reaper.path("input"), reaper.path("output"));
    fs::write(&input, "from the file\n").expect("writable");
    let script = "cat; pwd; umask; ulimit -n; ulimit -Hn; echo $WORD; env | grep -c ^WORD=";
    let mut spec = shell(task(1, 0), script);
    spec.environment.push(&text("WORD=a b"));
    spec.directory = text("/usr");
    spec.stdin = Input::File(file(&input));
    spec.stdout = Output::Truncate(file(&output));
    spec.umask = 0o027;
    spec.limits = vec![Limit {
        resource: 7,
        soft: 100,
        hard: 200,
    }];
    assert_eq!(service.run(spec), WaitStatus::Exited(0));
    let lines = fs::read_to_string(&output).expect("there");
    assert_eq!(lines, "from the file\n/usr\n0027\n100\n200\na b\n1\n");
    let mode = fs::metadata(&output).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn a_task_has_default_signals_and_no_descriptor_of_the_reaper() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let output = reaper.path("output");
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd";
    let mut spec = shell(task(1, 0), script);
    spec.stdout = Output::Truncate(file(&output));
    service.run(spec);
    let lines = fs::read_to_string(&output).expect("there");
    // The fourth descriptor is that of `ls` itself, for the folder.
    assert_eq!(
        lines,
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0\n1\n2\n3\n"
    );
}

#[test]
fn a_task_runs_on_its_cpus() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let allowed = fs::read_to_string("/proc/self/status").expect("readable");
    let allowed = allowed
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("Linux lists them");
    let last = allowed.rsplit([',', '-']).next().expect("a cpu").trim();
    let output = reaper.path("output");
    let mut spec = shell(task(1, 0), "grep Cpus_allowed_list /proc/self/status");
    spec.stdout = Output::Truncate(file(&output));
    spec.cpus = vec![last.parse().expect("a number")];
    service.run(spec);
    let seen = fs::read_to_string(&output).expect("there");
    assert_eq!(seen, format!("Cpus_allowed_list:\t{last}\n"));
}

#[test]
fn a_session_or_a_group_is_the_tasks_own() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let output = reaper.path("output");
    for (rank, group) in [(0, Group::Session), (1, Group::Group)] {
        // Fields 5 and 6: the process group and the session.
        let mut spec = shell(task(1, rank), "cut -d ' ' -f 5,6 /proc/$$/stat");
        spec.stdout = Output::Truncate(file(&output));
        spec.group = group;
        service.run(spec);
        let pid = service.wait_for_start(task(1, rank)).pid.0;
        let session = match group {
            Group::Session => pid,
            Group::Group => reaper.pid(),
        };
        let seen = fs::read_to_string(&output).expect("there");
        assert_eq!(seen, format!("{pid} {session}\n"));
    }
}

#[test]
fn a_failed_start_names_its_step() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let mut rank = 0;
    let mut failure = |change: &dyn Fn(&mut penstock_exec::protocol::TaskSpec)| {
        let mut spec = spec(task(1, rank), &["true"]);
        change(&mut spec);
        service.spawn(spec);
        rank += 1;
        let failure = service.wait_for_failure(task(1, rank - 1));
        (failure.step, failure.errno)
    };
    let missing = || text("/does/not/exist");
    assert_eq!(
        failure(&|spec| spec.arguments = vec![text("no-such-program")]),
        (Step::Exec, libc::ENOENT)
    );
    assert_eq!(
        failure(&|spec| spec.arguments = vec![text("/etc/passwd")]),
        (Step::Exec, libc::EACCES)
    );
    assert_eq!(
        failure(&|spec| spec.directory = missing()),
        (Step::Chdir, libc::ENOENT)
    );
    assert_eq!(
        failure(&|spec| spec.stdin = Input::File(missing())),
        (Step::Stdin, libc::ENOENT)
    );
    assert_eq!(
        failure(&|spec| spec.stdout = Output::Truncate(text("/"))),
        (Step::Stdout, libc::EISDIR)
    );
    assert_eq!(
        failure(&|spec| spec.stderr = Output::Append(missing())),
        (Step::Stderr, libc::ENOENT)
    );
    assert_eq!(
        failure(&|spec| spec.cpus = vec![1 << 20]),
        (Step::Bind, libc::EINVAL)
    );
    let locks = Limit {
        resource: 10,
        soft: 1,
        hard: 1,
    };
    assert_eq!(
        failure(&|spec| spec.limits = vec![locks]),
        (Step::Limit, libc::EINVAL)
    );
    service.wait_for_empty(1);
    let log = read_log(&reaper.directory).expect("valid");
    let states: Vec<_> = log
        .jobs
        .get(&JobId::new(1))
        .expect("known")
        .values()
        .collect();
    assert_eq!(states.len(), 8);
    for state in states {
        assert!(matches!(state, LoggedTask::Failed(_)));
    }
}

#[test]
fn a_fifo_without_a_reader_does_not_block_the_reaper() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let path = reaper.path("fifo");
    fifo(&path);
    let mut blocked = spec(task(1, 0), &["true"]);
    blocked.stdout = Output::Append(file(&path));
    service.spawn(blocked);
    let failure = service.wait_for_failure(task(1, 0));
    assert_eq!((failure.step, failure.errno), (Step::Stdout, libc::ENXIO));
}

#[test]
fn a_task_is_never_started_twice() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let output = reaper.path("output");
    let mut once = shell(task(1, 0), "echo ran");
    once.stdout = Output::Append(file(&output));
    service.spawn(once.clone());
    service.wait_for_end(task(1, 0));
    service.wait_for_empty(1);
    service.events.clear();
    service.spawn(once.clone());
    assert!(matches!(
        service.events.as_slice(),
        [Event::Started { .. }, Event::Ended { .. }, ..]
    ));
    let same_batch = vec![shell(task(1, 1), "exit 3"), shell(task(1, 1), "exit 4")];
    assert_eq!(service.request(&Request::Spawn(same_batch)), 0);
    assert_eq!(
        service.wait_for_end(task(1, 1)).status,
        WaitStatus::Exited(3)
    );
    assert_eq!(fs::read_to_string(&output).expect("there"), "ran\n");
}

#[test]
fn a_signal_reaches_one_tasks_group_or_the_whole_job() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    service.spawn(spec(task(1, 0), &["sleep", "1000"]));
    service.spawn(spec(task(1, 1), &["sleep", "1000"]));
    let signal = |target, signal| Request::Signal { target, signal };
    assert_eq!(
        service.request(&signal(SignalTarget::Task(task(1, 0)), 0)),
        0
    );
    assert_eq!(
        service.request(&signal(SignalTarget::Task(task(1, 0)), 15)),
        0
    );
    let terminated = |signal| WaitStatus::Signaled {
        signal,
        core: false,
    };
    assert_eq!(service.wait_for_end(task(1, 0)).status, terminated(15));
    let request = signal(SignalTarget::Task(task(1, 0)), 15);
    assert_eq!(service.request(&request), libc::ESRCH);
    assert_eq!(
        service.request(&signal(SignalTarget::Job(JobId::new(1)), 10)),
        0
    );
    assert_eq!(service.wait_for_end(task(1, 1)).status, terminated(10));
    assert_eq!(
        service.request(&signal(SignalTarget::Job(JobId::new(9)), 10)),
        libc::ESRCH
    );
    assert_eq!(
        service.request(&signal(SignalTarget::Job(JobId::new(1)), 65)),
        libc::EINVAL
    );
}

/// Starts a task that leaves a process behind: forked twice, in a session of its own, without an environment, stopped,
/// and child of the reaper. Returns the pids of all its processes.
fn start_escape(reaper: &Reaper, service: &mut support::Service, job: u64) -> Vec<u32> {
    let path = reaper.path(&format!("pids{job}"));
    fifo(&path);
    let script = format!(
        "exec 3>{path}; \
         env -i setsid sh -c '(sleep 1000 & echo $! >&3); echo $$ >&3; exec 3>&-; exec sleep 1000' & \
         env -i setsid sh -c 'echo $$ >&3; exec 3>&-; kill -STOP $$' & \
         echo $$ >&3; exec 3>&-; exec sleep 1000",
        path = path.display()
    );
    // The last `sleep` of the first line holds descriptor 3 too: it is closed before it.
    let script = script.replace("(sleep 1000 &", "(sleep 1000 3>&- &");
    service.spawn(shell(task(job, 0), &script));
    pids(&read_fifo(&path))
}

#[test]
fn a_killed_job_leaves_nothing() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    service.spawn(spec(task(2, 0), &["sleep", "1000"]));
    let other = service.wait_for_start(task(2, 0));
    let members = start_escape(&reaper, &mut service, 1);
    assert_eq!(members.len(), 4);
    assert!(members.iter().all(|pid| is_alive(*pid)));

    assert_eq!(service.request(&Request::Kill(vec![JobId::new(1)])), 0);
    service.wait_for_empty(1);
    assert!(!members.iter().any(|pid| is_alive(*pid)));
    assert_eq!(service.wait_for_end(task(1, 0)).status, SIGKILL);
    assert!(runs(other));

    assert_eq!(
        service.request(&Request::Forget(vec![JobId::new(2)])),
        libc::EBUSY
    );
    assert_eq!(service.request(&Request::Kill(vec![JobId::new(2)])), 0);
    service.wait_for_empty(2);
    assert_eq!(
        service.request(&Request::Kill(vec![JobId::new(3)])),
        libc::ESRCH
    );
}

#[test]
fn a_killed_task_leaves_nothing_of_itself_and_everything_of_others() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    service.spawn(spec(task(1, 7), &["sleep", "1000"]));
    let other = service.wait_for_start(task(1, 7));
    let members = start_escape(&reaper, &mut service, 1);
    assert!(members.iter().all(|pid| is_alive(*pid)));
    let killed = task(1, 0);
    assert_eq!(service.request(&Request::KillTasks(vec![killed])), 0);
    service.wait(|event| (*event == Event::TaskEmpty { task: killed }).then_some(()));
    assert!(!members.iter().any(|pid| is_alive(*pid)));
    assert!(runs(other));
    assert_eq!(service.request(&Request::Kill(vec![JobId::new(1)])), 0);
    service.wait_for_empty(1);
}

#[test]
fn what_an_ended_task_leaves_belongs_to_its_job() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    // A job of another task that runs all the time, so that there are two to choose from.
    service.spawn(spec(task(2, 0), &["sleep", "1000"]));
    let path = reaper.path("pids");
    fifo(&path);
    let script = format!(
        "exec 3>{}; env -i setsid sh -c 'sleep 1000 3>&- & echo $! >&3'; exit 5",
        path.display()
    );
    service.spawn(shell(task(1, 0), &script));
    let left = pids(&read_fifo(&path));
    assert_eq!(
        service.wait_for_end(task(1, 0)).status,
        WaitStatus::Exited(5)
    );
    let request = Request::Forget(vec![JobId::new(1)]);
    assert_eq!(service.request(&request), libc::EBUSY);
    assert!(
        !service
            .events
            .contains(&Event::Empty { job: JobId::new(1) })
    );
    assert!(left.iter().all(|pid| is_alive(*pid)));
    assert_eq!(service.request(&Request::Kill(vec![JobId::new(1)])), 0);
    service.wait_for_empty(1);
    assert!(!left.iter().any(|pid| is_alive(*pid)));
    assert_eq!(service.request(&request), 0);
    service.request(&Request::Kill(vec![JobId::new(2)]));
    service.wait_for_empty(2);
}

#[test]
fn tasks_that_were_not_started_are_cancelled_with_their_job() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let tasks = (0..500).map(|rank| spec(task(1, rank), &["sleep", "1000"]));
    let spawn = Request::Spawn(tasks.collect());
    service.client.send(&spawn).expect("connected");
    service.request_after_others(&Request::Kill(vec![JobId::new(1)]));
    service.wait_for_empty(1);
    for rank in 0..500 {
        let is_settled = |event: &Event| match event {
            Event::Failed { task: id, failure } if *id == task(1, rank) => {
                Some(failure.step == Step::Cancelled)
            }
            Event::Ended { task: id, end } if *id == task(1, rank) => Some(end.status == SIGKILL),
            _ => None,
        };
        assert!(service.wait(is_settled));
    }
    service.spawn(spec(task(1, 500), &["true"]));
    assert_eq!(service.wait_for_failure(task(1, 500)).step, Step::Cancelled);
}

#[test]
fn a_new_service_gets_what_ended_meanwhile() {
    let reaper = Reaper::start();
    let mut first = reaper.connect();
    let gate = reaper.path("gate");
    fifo(&gate);
    let waiting = format!("read line < {}; exit 4", gate.display());
    first.spawn(shell(task(1, 0), &waiting));
    let process = first.wait_for_start(task(1, 0));
    drop(first);
    fs::write(&gate, "go\n").expect("the task reads");

    let mut second = reaper.connect();
    assert_eq!(second.client.hello().process.pid.0, reaper.pid());
    assert_eq!(second.client.hello().boot, boot());
    assert_eq!(second.request(&Request::List), 0);
    assert_eq!(second.wait_for_start(task(1, 0)), process);
    assert_eq!(
        second.wait_for_end(task(1, 0)).status,
        WaitStatus::Exited(4)
    );
    second.wait_for_empty(1);

    assert_eq!(second.request(&Request::Forget(vec![JobId::new(1)])), 0);
    second.events.clear();
    assert_eq!(second.request(&Request::List), 0);
    assert_eq!(second.events, []);
}

/// The service of `a_killed_service_takes_nothing_with_it`, in a process of its own.
#[test]
fn service_that_is_killed() {
    let Ok(directory) = std::env::var("PENSTOCK_TEST_REAPER") else {
        return;
    };
    let client = penstock_exec::Client::connect(directory.as_ref()).expect("it listens");
    let mut service = support::Service::new(client);
    service.spawn(spec(task(1, 0), &["sleep", "1000"]));
    println!("pid {}", service.wait_for_start(task(1, 0)).pid.0);
    loop {
        service.receive();
    }
}

#[test]
fn a_killed_service_takes_nothing_with_it() {
    let reaper = Reaper::start();
    let program = std::env::current_exe().expect("this program");
    let mut service = Command::new(program)
        .args(["--exact", "service_that_is_killed", "--nocapture"])
        .env("PENSTOCK_TEST_REAPER", &reaper.directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = std::io::BufReader::new(service.stdout.take().expect("piped"));
    let pid = std::io::BufRead::lines(output)
        .map(|line| line.expect("UTF-8"))
        .find_map(|line| line.split_once("pid ").map(|(_, pid)| pid.to_owned()))
        .expect("the task has started");
    service.kill().expect("it runs");
    service.wait().expect("it was killed");

    let mut second = reaper.connect();
    second.request(&Request::List);
    let process = second.wait_for_start(task(1, 0));
    assert_eq!(process.pid.0.to_string(), pid);
    assert!(runs(process));
    second.request(&Request::Kill(vec![JobId::new(1)]));
    assert_eq!(second.wait_for_end(task(1, 0)).status, SIGKILL);
}

#[test]
fn a_second_reaper_is_rejected() {
    let reaper = Reaper::start();
    let output = command(&reaper.directory).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "penstock-reaper: another reaper (pid {}) uses directory `{}`\n",
        reaper.process.id(),
        reaper.directory.display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    reaper.connect();
}

#[test]
fn an_accessible_directory_is_rejected() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o750)).expect("the test owns it");
    let output = command(path).output().expect("it starts");
    let expected = format!(
        "penstock-reaper: directory `{}` has mode 750: expected 700\n",
        path.display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn after_a_crash_the_log_tells_which_tasks_run() {
    let mut reaper = Reaper::start();
    let mut service = reaper.connect();
    service.spawn(spec(task(1, 0), &["sleep", "1000"]));
    service.spawn(shell(task(1, 1), "exit 3"));
    let (running, end) = (
        service.wait_for_start(task(1, 0)),
        service.wait_for_end(task(1, 1)),
    );
    reaper.crash();

    let log = read_log(&reaper.directory).expect("valid");
    assert!(!log.is_torn);
    let tasks = log.jobs.get(&JobId::new(1)).expect("known");
    assert_eq!(tasks.get(&task(1, 0)), Some(&LoggedTask::Started(running)));
    let ended = tasks.get(&task(1, 1));
    assert!(matches!(ended, Some(LoggedTask::Ended(_, found)) if *found == end));
    assert!(is_running(running, log.boot));
    assert!(!is_running(running, BootId(1)));
    let mut reused = running;
    reused.start_time += 1;
    assert!(!is_running(reused, log.boot));

    // A new reaper knows the orphan, does not start it again, and watches it.
    let second = Reaper::start_in(&reaper.directory, &[]);
    let mut service = second.connect();
    service.request(&Request::List);
    assert_eq!(service.wait_for_start(task(1, 0)), running);
    assert_eq!(service.wait_for_end(task(1, 1)), end);
    service.events.clear();
    service.spawn(spec(task(1, 0), &["sleep", "1000"]));
    assert_eq!(service.wait_for_start(task(1, 0)), running);
    assert_eq!(service.request(&Request::Kill(vec![JobId::new(1)])), 0);
    assert_eq!(service.wait_for_end(task(1, 0)).status, WaitStatus::Unknown);
    service.wait_for_empty(1);
    assert!(!runs(running));
    service.request(&Request::Forget(vec![JobId::new(1)]));
    service.shut_down(second);
}

#[test]
fn a_standby_takes_the_place_of_a_killed_reaper_with_every_wait_status() {
    let mut reaper = Reaper::start();
    let mut service = reaper.connect();
    let gates = ["first", "second"].map(|name| reaper.path(name));
    for gate in &gates {
        fifo(gate);
    }
    let waiting = |gate: &Path, code| format!("read line < {}; exit {code}", gate.display());
    service.spawn(shell(task(1, 0), &waiting(&gates[0], 3)));
    service.spawn(shell(task(2, 0), &waiting(&gates[1], 4)));
    // Its background process descends from a task that has ended.
    service.spawn(shell(task(3, 0), "setsid sleep 1000 & exit 5"));
    let [first, second] = [1, 2].map(|job| service.wait_for_start(task(job, 0)));
    let end = service.wait_for_end(task(3, 0));

    // The first task ends while neither process can wait for it.
    let pid = reaper.standby();
    let standby = rustix::process::Pid::from_raw(pid.cast_signed()).expect("not 0");
    kill_process(standby, Signal::STOP).expect("it runs");
    reaper.crash_without_standby();
    fs::write(&gates[0], "go\n").expect("the task reads");
    while is_running(first, boot()) {
        std::thread::yield_now();
    }
    kill_process(standby, Signal::CONT).expect("it runs");

    let mut service = reaper.connect_to_successor();
    assert_eq!(service.client.hello().process.pid.0, pid);
    let another = command(&reaper.directory).output().expect("it starts");
    assert_eq!(another.status.code(), Some(1), "the directory is in use");
    assert_eq!(service.request(&Request::List), 0);
    let status = service.wait_for_end(task(1, 0)).status;
    assert_eq!(status, WaitStatus::Exited(3));
    assert_eq!(service.wait_for_start(task(2, 0)), second);
    assert_eq!(service.wait_for_end(task(3, 0)), end);
    let forget = Request::Forget(vec![JobId::new(3)]);
    assert_eq!(service.request(&forget), libc::EBUSY, "a process is left");
    assert_eq!(service.request(&Request::Kill(vec![JobId::new(3)])), 0);
    service.wait_for_empty(3);
    assert_eq!(
        service.run(shell(task(4, 0), "exit 6")),
        WaitStatus::Exited(6)
    );

    // It ends after the last task, so that the next reaper has both standbys.
    fs::write(&gates[1], "go\n").expect("the task reads");
    let end = service.wait_for_end(task(2, 0));
    assert_eq!(end.status, WaitStatus::Exited(4));
    assert!(reaper.process.wait().expect("it ends").success());
    let next = Reaper::start_in(&reaper.directory, &[]);
    let mut service = next.connect();
    assert_eq!(service.request(&Request::List), 0);
    assert_eq!(service.wait_for_end(task(2, 0)), end);
    assert_ne!(next.pid(), next.process.id());
    service.shut_down(next);
}

/// The second standby is that of a successor, and of a reaper whose standby was killed.
#[test]
fn a_second_kill_loses_no_wait_status() {
    let kill_successor = |reaper: &Reaper| {
        reaper.crash_without_standby();
        let service = reaper.connect_to_successor();
        assert_eq!(service.client.hello().process.pid.0, reaper.standby());
        drop(service);
        reaper.crash_without_standby();
    };
    let kill_standby_first = |reaper: &Reaper| {
        reaper.crash_standby();
        let mut service = reaper.connect();
        assert_eq!(
            service.run(shell(task(2, 0), "exit 1")),
            WaitStatus::Exited(1)
        );
        drop(service);
        reaper.crash_without_standby();
    };
    for kill_both in [kill_successor as fn(&Reaper), kill_standby_first] {
        let mut reaper = Reaper::start();
        let mut service = reaper.connect();
        let gate = reaper.path("gate");
        fifo(&gate);
        let waiting = format!("read line < {}; exit 3", gate.display());
        service.spawn(shell(task(1, 0), &waiting));
        let started = service.wait_for_start(task(1, 0));
        drop(service);
        kill_both(&reaper);

        let mut service = reaper.connect_to_successor();
        assert_eq!(service.client.hello().process.pid.0, reaper.process.id());
        assert_eq!(service.request(&Request::List), 0);
        assert_eq!(service.wait_for_start(task(1, 0)), started);
        fs::write(&gate, "go\n").expect("the task reads");
        let end = service.wait_for_end(task(1, 0));
        assert_eq!(end.status, WaitStatus::Exited(3));
        assert!(reaper.process.wait().expect("it ends").success());
    }
}

/// A killed reaper may have created a process that has not recorded its start yet, and holds this lock meanwhile.
#[test]
fn a_reaper_reads_the_log_when_no_earlier_start_can_be_recorded_any_longer() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("the test owns it");
    let starts = fs::File::create(path.join("starts")).expect("a new file");
    flock(&starts, FlockOperation::LockExclusive).expect("nothing has it");
    let lock = path.join("lock");
    let release = std::thread::spawn(move || {
        while fs::read_to_string(&lock).unwrap_or_default().is_empty() {
            std::thread::yield_now();
        }
        let is_listening = fs::exists(lock.with_file_name("socket")).expect("readable");
        drop(starts);
        is_listening
    });
    let reaper = Reaper::start_in(path, &[]);
    assert!(!release.join().expect("no panic"));
    reaper.connect().shut_down(reaper);
}

#[test]
fn recorded_start_times_are_those_of_the_kernel() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    // Enough that some starts are at the edge of a clock tick.
    let tasks: Vec<_> = (0..300).map(|rank| task(1, rank)).collect();
    for id in &tasks {
        service.spawn(spec(*id, &["sleep", "1000"]));
    }
    let processes: Vec<_> = tasks.iter().map(|id| service.wait_for_start(*id)).collect();
    assert!(processes.into_iter().all(runs));
    assert_eq!(service.request(&Request::Kill(vec![JobId::new(1)])), 0);
    service.wait_for_empty(1);
    service.request(&Request::Forget(vec![JobId::new(1)]));
    service.shut_down(reaper);
}

#[test]
fn a_torn_tail_of_the_log_is_cut_off() {
    let mut reaper = Reaper::start();
    let mut service = reaper.connect();
    service.run(shell(task(1, 0), "exit 3"));
    let intact = read_log(&reaper.directory).expect("valid");
    service.run(shell(task(1, 1), "exit 4"));
    reaper.crash();
    let path = reaper.path("log");
    let bytes = fs::read(&path).expect("there");
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("writable");
    let torn = read_log(&reaper.directory).expect("valid but for its tail");
    assert!(torn.is_torn);
    assert!(torn.valid_len > intact.valid_len);

    let second = Reaper::start_in(&reaper.directory, &[]);
    let mut service = second.connect();
    service.request(&Request::List);
    assert_eq!(
        service.wait_for_end(task(1, 0)).status,
        WaitStatus::Exited(3)
    );
    // Its start was recorded; its status is lost, and that is said.
    assert_eq!(service.wait_for_end(task(1, 1)).status, WaitStatus::Unknown);
    assert!(!read_log(&second.directory).expect("valid").is_torn);
}

/// Starts a reaper that ends after a second without a connection. On a busy machine it may end before the test connects:
/// that is its idle end, too, and another reaper is started.
fn start_and_connect_before_its_idle_end(path: &Path) -> (Reaper, support::Service) {
    loop {
        let mut reaper = Reaper::start_in(path, &["--idle-timeout", "1"]);
        if let Ok(client) = penstock_exec::Client::connect(path) {
            return (reaper, support::Service::new(client));
        }
        assert!(reaper.process.wait().expect("it ends").success());
    }
}

#[test]
fn an_idle_reaper_ends_and_the_next_one_reports_its_statuses() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("the test owns it");
    let (mut reaper, mut service) = start_and_connect_before_its_idle_end(path);
    service.run(shell(task(1, 0), "exit 7"));
    service.wait_for_empty(1);
    drop(service);
    assert!(reaper.process.wait().expect("it ends").success());
    assert!(!fs::exists(path.join("socket")).expect("readable"));
    let (mut next, mut service) = start_and_connect_before_its_idle_end(path);
    assert_eq!(service.request(&Request::List), 0);
    assert_eq!(
        service.wait_for_end(task(1, 0)).status,
        WaitStatus::Exited(7)
    );
    service.wait_for_empty(1);
    drop(service);
    assert!(next.process.wait().expect("it ends").success());
}

#[test]
fn a_reaper_with_a_process_does_not_shut_down() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    service.spawn(spec(task(1, 0), &["sleep", "1000"]));
    assert_eq!(service.request(&Request::Shutdown), libc::EBUSY);
    service.request(&Request::Kill(vec![JobId::new(1)]));
    service.wait_for_empty(1);
    service.shut_down(reaper);
}

#[test]
fn a_reaper_within_a_reaper_tells_its_jobs_apart() {
    let outer = Reaper::start();
    let mut outer_service = outer.connect();
    let inner_directory = outer.path("inner");
    fs::create_dir(&inner_directory).expect("writable");
    let permissions = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&inner_directory, permissions).expect("the test owns it");
    let ready = outer.path("ready");
    fifo(&ready);
    let script = format!(
        "exec {} --directory {} > {}",
        env!("CARGO_BIN_EXE_penstock-reaper"),
        inner_directory.display(),
        ready.display()
    );
    outer_service.spawn(shell(task(5, 0), &script));
    assert_eq!(read_fifo(&ready), "listening\n");

    let client = penstock_exec::Client::connect(&inner_directory).expect("it listens");
    let mut inner = support::Service::new(client);
    let mut members = Vec::new();
    for job in [1, 2] {
        let path = outer.path(&format!("inner{job}"));
        fifo(&path);
        let script = format!(
            "exec 3>{}; env -i setsid sh -c 'sleep 1000 3>&- & echo $! >&3'",
            path.display()
        );
        inner.spawn(shell(task(job, 0), &script));
        members.push(pids(&read_fifo(&path)));
        inner.wait_for_end(task(job, 0));
    }
    assert_eq!(inner.request(&Request::Kill(vec![JobId::new(1)])), 0);
    inner.wait_for_empty(1);
    assert!(!is_alive(members[0][0]));
    assert!(is_alive(members[1][0]));
    // The outer job takes all with it.
    assert_eq!(
        outer_service.request(&Request::Kill(vec![JobId::new(5)])),
        0
    );
    outer_service.wait_for_empty(5);
    assert!(!is_alive(members[1][0]));
}

#[test]
fn no_zombie_is_left() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let tasks = (0..200).map(|rank| spec(task(1, rank), &["true"]));
    assert_eq!(service.request(&Request::Spawn(tasks.collect())), 0);
    service.wait_for_empty(1);
    for rank in 0..200 {
        let pid = service.wait_for_start(task(1, rank)).pid.0;
        assert_eq!(
            service.wait_for_end(task(1, rank)).status,
            WaitStatus::Exited(0)
        );
        assert!(!fs::exists(format!("/proc/{pid}")).expect("readable"));
    }
}

#[test]
fn bytes_that_are_no_request_end_the_connection_alone() {
    let reaper = Reaper::start();
    let client = penstock_exec::Client::connect(&reaper.directory).expect("it listens");
    let mut stream = client.stream().try_clone().expect("a socket");
    std::io::Write::write_all(&mut stream, &[1, 0, 0, 0, 77]).expect("connected");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut rest).expect("closed by the reaper");
    assert!(rest.is_empty());
    let mut service = reaper.connect();
    assert_eq!(
        service.run(shell(task(1, 0), "exit 2")),
        WaitStatus::Exited(2)
    );
}

/// A PID namespace of its own, in which session and process group of the starter have the number 0.
#[test]
fn a_reaper_runs_in_a_container() {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-current-user", "--pid", "--fork"]);
        command.args(["--mount-proc", "--kill-child"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|s| s.success()) {
        eprintln!("skipped: this user may not create a PID namespace");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let permissions = fs::Permissions::from_mode(0o700);
    fs::set_permissions(folder.path(), permissions).expect("the test owns it");
    let mut command = unshare();
    command.args(["sh", "-c", "\"$@\" & wait", "sh", PROGRAM, "--directory"]);
    command.arg(folder.path());
    let reaper = Reaper::start_by(command, folder.path());
    let mut service = reaper.connect();
    let status = service.run(shell(task(1, 0), "exit 7"));
    assert_eq!(status, WaitStatus::Exited(7));
}
