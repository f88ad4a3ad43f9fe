//! The ways in which tasks try to outlive their job, with cgroups and without. `docs/execution.md` lists them.

mod support;

use std::fs;
use std::io::BufRead;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use penstock_exec::protocol::{Request, SignalTarget};
use penstock_exec::{JobId, WaitStatus, is_running};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use support::{
    Reaper, Service, cgroup_base, cgroup_mount, fifo, is_alive, pids, read_fifo, shell, spec, task,
    wait_until_reaped,
};

const SIGKILL: WaitStatus = WaitStatus::Signaled {
    signal: 9,
    core: false,
};

/// The parents of the cgroups of these tests.
const PLACES: [&str; 2] = ["auto", "none"];

/// Scripts whose processes write their pids to descriptor 3, close it, and do not end by themselves.
const ESCAPES: [(&str, &str); 10] = [
    (
        "a plain child",
        "sh -c 'echo $$ >&3; exec 3>&-; exec sleep 1000' & exec 3>&-; wait",
    ),
    (
        "forked twice, in a session of its own",
        "setsid sh -c '(setsid sh -c \"echo \\$\\$ >&3; exec 3>&-; exec sleep 1000\" &) ; exit' & exec 3>&-; wait; \
         exec sleep 1000",
    ),
    (
        "with a cleared environment",
        "env -i setsid sh -c 'echo $$ >&3; exec 3>&-; exec sleep 1000' & exec 3>&-; wait",
    ),
    (
        "stopped",
        "setsid sh -c 'echo $$ >&3; exec 3>&-; kill -STOP $$' & exec 3>&-; wait",
    ),
    (
        "with signals ignored",
        "trap '' TERM INT HUP QUIT USR1; sh -c 'echo $$ >&3; exec 3>&-; exec sleep 1000' & exec 3>&-; wait",
    ),
    (
        "as a daemon, whose task has ended",
        "setsid sh -c 'echo $$ >&3; exec 3>&-; exec sleep 1000' & exit 0",
    ),
    (
        "with another value of its mark",
        "python3 -c '
import os, resource
resource.setrlimit(10, (5, 5))
os.setsid()
os.write(3, b\"%d\\n\" % os.getpid())
os.close(3)
os.execvp(\"sleep\", [\"sleep\", \"1000\"])' & exec 3>&-; wait",
    ),
    (
        "below a subreaper of its own",
        "python3 -c '
import ctypes, os, signal
ctypes.CDLL(None).prctl(36, 1)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        os.write(3, b\"%d\\n\" % os.getpid())
        os.close(3)
        signal.pause()
    os._exit(0)
os.close(3)
signal.pause()' & exec 3>&-; wait",
    ),
    (
        "protected from the OOM killer",
        "sh -c 'echo -1000 2>/dev/null >/proc/self/oom_score_adj; echo $$ >&3; exec 3>&-; exec sleep 1000' & exec 3>&-; wait",
    ),
    (
        "traced by another process of the job",
        "python3 -c '
import ctypes, os, signal
pid = os.fork()
if pid == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.write(3, b\"%d\\n\" % os.getpid())
    os.close(3)
    os.kill(os.getpid(), signal.SIGSTOP)
    signal.pause()
os.close(3)
signal.pause()' & exec 3>&-; wait",
    ),
];

/// Starts a script. Returns the pids that its processes write.
fn start(reaper: &Reaper, service: &mut Service, job: u64, script: &str) -> Vec<u32> {
    let path = reaper.path(&format!("pids{job}"));
    fifo(&path);
    let script = format!("exec 3>{}; {script}", path.display());
    service.spawn(shell(task(job, 0), &script));
    pids(&read_fifo(&path))
}

fn kill(service: &mut Service, job: u64) {
    assert_eq!(service.request(&Request::Kill(vec![JobId::new(job)])), 0);
    service.wait_for_empty(job);
}

#[test]
fn nothing_escapes_the_end_of_its_job() {
    for place in PLACES {
        let reaper = Reaper::start_with(&["--cgroup", place]);
        let mut service = reaper.connect();
        service.spawn(spec(task(100, 0), &["sleep", "1000"]));
        let other = service.wait_for_start(task(100, 0));
        for (job, (way, script)) in (1..).zip(ESCAPES) {
            let members = start(&reaper, &mut service, job, script);
            assert!(!members.is_empty(), "{way}");
            assert!(members.iter().all(|pid| is_alive(*pid)), "{way}");
            kill(&mut service, job);
            let left: Vec<_> = members.iter().filter(|pid| is_alive(**pid)).collect();
            assert!(left.is_empty(), "{way} ({place}): {left:?} are left");
            members.into_iter().for_each(wait_until_reaped);
        }
        assert!(is_alive(other.pid.0), "the other job runs on");
        kill(&mut service, 100);
    }
}

#[test]
fn a_fork_bomb_is_killed() {
    for place in PLACES {
        let reaper = Reaper::start_with(&["--cgroup", place]);
        let mut service = reaper.connect();
        let path = reaper.path("forked");
        fifo(&path);
        // A tree of 256 leaves, each of which forks without end. The script itself limits the tree: RLIMIT_NPROC does
        // not hold for root.
        let script = format!(
            "exec 3>{}; \
             bomb() {{ [ $1 -gt 7 ] && {{ echo x >&3; exec 3>&-; while :; do sh -c : & wait; done; }}; \
             bomb $(($1+1)) & bomb $(($1+1)) & wait; }}; \
             bomb 0 & exec 3>&-; wait",
            path.display()
        );
        service.spawn(shell(task(1, 0), &script));
        // With the first line the tree has begun to fork without end.
        let mut lines = std::io::BufReader::new(fs::File::open(&path).expect("a FIFO"));
        lines.read_line(&mut String::new()).expect("readable");
        kill(&mut service, 1);
        let children = format!("/proc/{0}/task/{0}/children", reaper.pid());
        assert_eq!(fs::read_to_string(children).unwrap_or_default(), "");
        service.request(&Request::Forget(vec![JobId::new(1)]));
        service.shut_down(reaper);
    }
}

/// A directory in which a reaper that was started here makes cgroups; `None` with a message if it cannot.
fn cgroups(reaper: &Reaper) -> Option<std::path::PathBuf> {
    let base = cgroup_base(&reaper.directory);
    if base.is_none() {
        let is_required = std::env::var_os("PENSTOCK_NEED_CGROUPS").is_some();
        assert!(!is_required, "no cgroup can be made here");
        println!("skipped: no cgroup can be made here");
    }
    base
}

fn pidfd(pid: u32) -> OwnedFd {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("not 0");
    pidfd_open(pid, PidfdFlags::empty()).expect("it runs")
}

fn wait_for_exit(pidfd: &OwnedFd) {
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None).expect("it ends");
}

fn members(cgroup: &Path) -> Vec<u32> {
    pids(&fs::read_to_string(cgroup.join("cgroup.procs")).expect("a cgroup"))
}

#[test]
fn a_job_has_a_cgroup_that_others_use_after_it() {
    let reaper = Reaper::start();
    let Some(base) = cgroups(&reaper) else {
        return;
    };
    let mut service = reaper.connect();
    for job in [1, 2] {
        let path = reaper.path(&format!("gate{job}"));
        fifo(&path);
        let script = format!("read line < {}", path.display());
        service.spawn(shell(task(job, 0), &script));
        let process = service.wait_for_start(task(job, 0));
        assert_eq!(members(&base.join("0")), [process.pid.0]);
        fs::write(&path, "end\n").expect("a FIFO");
        service.wait_for_empty(job);
        assert!(!base.join("1").exists());
    }
    service.request(&Request::Forget(vec![JobId::new(1), JobId::new(2)]));
    service.shut_down(reaper);
    assert!(!base.exists(), "the reaper removes its cgroups");
}

/// The kernel kills what is cloned into a cgroup that was killed before.
#[test]
fn a_killed_cgroup_is_not_used_again() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    for job in 1..4 {
        service.spawn(spec(task(job, 0), &["sleep", "1000"]));
        service.wait_for_start(task(job, 0));
        kill(&mut service, job);
    }
}

#[test]
fn a_process_of_root_that_leaves_its_cgroup_is_killed() {
    let reaper = Reaper::start();
    let (Some(base), Some(mount)) = (cgroups(&reaper), cgroup_mount()) else {
        return;
    };
    let mut service = reaper.connect();
    let script = format!(
        "setsid sh -c 'echo $$ > {}/cgroup.procs; echo $$ >&3; exec 3>&-; exec sleep 1000' & exec 3>&-; wait",
        mount.display()
    );
    let escaped = start(&reaper, &mut service, 1, &script);
    assert!(
        escaped
            .iter()
            .all(|pid| !members(&base.join("0")).contains(pid))
    );
    kill(&mut service, 1);
    assert!(!escaped.iter().any(|pid| is_alive(*pid)));
}

/// The background processes of a job whose reaper is killed are no descendants of the next reaper.
#[test]
fn the_cgroup_of_a_killed_reapers_job_is_cleaned() {
    let mut reaper = Reaper::start();
    if cgroups(&reaper).is_none() {
        return;
    }
    let mut service = reaper.connect();
    let script =
        "setsid sh -c 'echo $$ >&3; exec 3>&-; exec sleep 1000' & exec 3>&-; exec sleep 1000";
    let background = start(&reaper, &mut service, 1, script);
    let main = service.wait_for_start(task(1, 0));
    // Of this job, only a background process is left.
    let daemon = start(
        &reaper,
        &mut service,
        2,
        "setsid sh -c 'echo $$ >&3; exec 3>&-; exec sleep 1000' & exit 3",
    );
    assert_eq!(
        service.wait_for_end(task(2, 0)).status,
        WaitStatus::Exited(3)
    );
    reaper.crash();

    let second = Reaper::start_in(&reaper.directory, &[]);
    let mut service = second.connect();
    assert_eq!(service.request(&Request::List), 0);
    assert_eq!(service.wait_for_start(task(1, 0)), main);
    let forget = Request::Forget(vec![JobId::new(2)]);
    assert_eq!(service.request(&forget), libc::EBUSY, "it is not empty");
    assert!(background.iter().chain(&daemon).all(|pid| is_alive(*pid)));
    kill(&mut service, 2);
    kill(&mut service, 1);
    assert!(!background.iter().chain(&daemon).any(|pid| is_alive(*pid)));
    service.request(&Request::Forget(vec![JobId::new(1), JobId::new(2)]));
    service.shut_down(second);
}

/// Without cgroups: a task that has ended before the next reaper starts, and one that ends later.
#[test]
fn processes_in_the_session_of_a_lost_task_end_with_its_job() {
    let mut reaper = Reaper::start_with(&["--cgroup", "none"]);
    let mut service = reaper.connect();
    let (ready, gate) = (reaper.path("ready"), reaper.path("gate"));
    fifo(&ready);
    fifo(&gate);
    let (ready_path, gate_path) = (ready.display(), gate.display());
    let script = format!("sleep 1000 & echo $! > {ready_path}; read _ < {gate_path}");
    let mut left = [1, 2].map(|job| {
        service.spawn(shell(task(job, 0), &script));
        read_fifo(&ready).trim().parse::<u32>().expect("a pid")
    });
    left.reverse();
    let [later, earlier] = left;
    let first = service.wait_for_start(task(1, 0)).pid.0;
    reaper.crash();
    let ended = pidfd(first);
    let kill = Command::new("kill")
        .args(["-9", &first.to_string()])
        .status();
    assert!(kill.expect("it starts").success());
    wait_for_exit(&ended);
    let next = Reaper::start_in(&reaper.directory, &["--cgroup", "none"]);
    let mut service = next.connect();
    service.request(&Request::List);
    let kill = |id| Request::Kill(vec![JobId::new(id)]);
    assert_eq!(service.wait_for_end(task(1, 0)).status, WaitStatus::Unknown);
    assert!(is_alive(earlier), "the job has not been killed");
    assert_eq!(service.request(&kill(1)), 0);
    service.wait_for_empty(1);
    assert!(!is_alive(earlier) && is_alive(later));
    fs::write(&gate, "go\n").expect("the task waits");
    assert_eq!(service.wait_for_end(task(2, 0)).status, WaitStatus::Unknown);
    assert!(is_alive(later));
    assert_eq!(service.request(&kill(2)), 0);
    service.wait_for_empty(2);
    assert!(!is_alive(later));
    service.request(&Request::Forget(vec![JobId::new(1), JobId::new(2)]));
    service.shut_down(next);
}

#[test]
fn a_reaper_that_lost_its_log_kills_what_is_left() {
    let mut reaper = Reaper::start();
    let Some(base) = cgroups(&reaper) else {
        return;
    };
    let mut service = reaper.connect();
    service.spawn(spec(task(1, 0), &["sleep", "1000"]));
    let process = service.wait_for_start(task(1, 0));
    let boot = service.client.hello().boot;
    let ended = pidfd(process.pid.0);
    reaper.crash();
    fs::remove_file(reaper.path("log")).expect("there is one");
    let second = Reaper::start_in(&reaper.directory, &[]);
    let service = second.connect();
    wait_for_exit(&ended);
    assert!(!is_running(process, boot));
    service.shut_down(second);
    assert!(!base.exists());
}

/// A directory that is made after another one was removed may have its inode.
#[test]
fn the_cgroup_of_a_reaper_without_directory_is_not_that_of_the_next() {
    let first = Reaper::start();
    let Some(base) = cgroups(&first) else {
        return;
    };
    let mut service = first.connect();
    service.spawn(spec(task(1, 0), &["sleep", "1000"]));
    let process = service.wait_for_start(task(1, 0));
    for entry in fs::read_dir(&first.directory).expect("a directory") {
        fs::remove_file(entry.expect("an entry").path()).expect("a file");
    }
    let second = Reaper::start_in(&first.directory, &[]);
    assert_ne!(cgroups(&second), Some(base.clone()));
    assert_eq!(members(&base.join("0")), [process.pid.0]);
    kill(&mut service, 1);
    service.request(&Request::Forget(vec![JobId::new(1)]));
    let client = second.connect();
    client.shut_down(second);
    service.shut_down(first);
}

#[test]
fn signals_reach_a_job_in_a_cgroup() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let script = "sh -c 'trap \"exit 7\" USR1; echo $$ >&3; exec 3>&-; while :; do sleep 0.01; done' & exec 3>&-; wait";
    let members = start(&reaper, &mut service, 1, script);
    let signal = Request::Signal {
        target: SignalTarget::Job(JobId::new(1)),
        signal: 10,
    };
    assert_eq!(service.request(&signal), 0);
    service.wait_for_end(task(1, 0));
    kill(&mut service, 1);
    assert!(!members.iter().any(|pid| is_alive(*pid)));
    assert_ne!(service.wait_for_end(task(1, 0)).status, SIGKILL);
}

#[test]
fn a_place_without_cgroups_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(folder.path(), private).expect("the test owns it");
    let mut command = support::command(folder.path());
    command.args(["--cgroup", "/nowhere/else"]);
    let output = command.output().expect("the reaper starts");
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(text.contains("`/nowhere/else`"), "{text}");
}
