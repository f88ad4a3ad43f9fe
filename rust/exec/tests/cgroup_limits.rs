//! Limits of a job's processes together, where the kernel's cgroup controllers are available: `make test-cgroup`.

mod support;

use std::fs;

use penstock_exec::protocol::Event;
use penstock_exec::{CgroupLimits, JobId, Step, WaitStatus};
use support::{Reaper, Service, cgroup_base, shell, task};

const NONE: CgroupLimits = CgroupLimits {
    memory: None,
    pids: None,
    cpu_millis: None,
};

/// Runs a script with limits. `None` with a message if the controller of this step is not available.
fn run(
    service: &mut Service,
    limits: CgroupLimits,
    step: Step,
    script: &str,
) -> Option<WaitStatus> {
    let mut spec = shell(task(1, 0), script);
    spec.cgroup_limits = limits;
    service.spawn(spec);
    let failure = service.wait(|event| match event {
        Event::Failed { failure, .. } => Some(Some(*failure)),
        Event::Started { .. } => Some(None),
        _ => None,
    });
    let Some(failure) = failure else {
        return Some(service.wait_for_end(task(1, 0)).status);
    };
    assert_eq!(failure.errno, libc::EOPNOTSUPP);
    assert!(failure.step == step || failure.step == Step::Cgroup);
    println!("skipped: the controller of {step:?} is not available");
    None
}

#[test]
fn a_job_that_exceeds_its_memory_limit_is_killed_and_reported() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let limits = CgroupLimits {
        memory: Some(32 << 20),
        ..NONE
    };
    let script = "exec python3 -c 'x = bytearray(256 << 20); print(len(x))'";
    let Some(status) = run(&mut service, limits, Step::MemoryLimit, script) else {
        return;
    };
    let (signal, core) = (9, false);
    assert_eq!(status, WaitStatus::Signaled { signal, core });
    service.wait_for_empty(1);
    let job = JobId::new(1);
    let killed = Event::OomKilled { job, count: 1 };
    assert!(service.events.contains(&killed), "{:?}", service.events);
}

#[test]
fn a_job_cannot_fork_beyond_its_limit() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let limits = CgroupLimits {
        pids: Some(4),
        ..NONE
    };
    let script = "for i in 1 2 3 4 5 6; do sleep 1000 & done; exit 0";
    if let Some(status) = run(&mut service, limits, Step::PidsLimit, script) {
        assert_ne!(status, WaitStatus::Exited(0));
    }
}

#[test]
fn a_job_with_a_cpu_limit_has_a_quota() {
    let reaper = Reaper::start();
    let mut service = reaper.connect();
    let limits = CgroupLimits {
        cpu_millis: Some(500),
        ..NONE
    };
    let Some(base) = cgroup_base(&reaper.directory) else {
        println!("skipped: no cgroup can be made here");
        return;
    };
    let found = reaper.path("found");
    let script = format!("cat {}/*/cpu.max > {}", base.display(), found.display());
    if run(&mut service, limits, Step::CpuLimit, &script).is_some() {
        assert_eq!(
            fs::read_to_string(found).expect("written"),
            "50000 100000\n"
        );
    }
}
