//! Limits of a job's processes together, and what its cgroup is for.

use penstock_exec::{CgroupId, CgroupLimits, Step, WaitStatus};
use serde_json::{Value, json};

use crate::job_manager::{jobspec, resources};
use crate::world::{World, submit};

const SIGKILL: WaitStatus = WaitStatus::Signaled {
    signal: 9,
    core: false,
};

fn submit_limited(world: &mut World, limits: &Value) {
    let mut spec = jobspec(1, &["true"]);
    spec["attributes"]["system"]["limits"] = limits.clone();
    world.submit(1, spec, Some(resources(1)));
    world.run();
}

#[test]
fn limits_are_passed_on() {
    let cases = [
        (json!({}), (None, None, None)),
        (json!({"memory": 4096}), (Some(4096), None, None)),
        (
            json!({"memory": "512M", "cpu": 1.5}),
            (Some(512 << 20), None, Some(1500)),
        ),
        (
            json!({"memory": "2GiB", "cpu": 1}),
            (Some(2 << 30), None, Some(1000)),
        ),
    ];
    for (limits, (memory, pids, cpu_millis)) in cases {
        let mut world = World::new();
        world.kernel.has_cgroups = true;
        submit_limited(&mut world, &limits);
        assert_eq!(world.answers(1), ["start"]);
        let expected = CgroupLimits {
            memory,
            pids,
            cpu_millis,
        };
        let passed = world.kernel.limits.get(&CgroupId(0));
        assert_eq!(passed, Some(&expected), "{limits}");
    }
}

#[test]
fn an_invalid_limit_fails_the_job() {
    let cases = [
        (json!(5), "expected an object, found `5`"),
        (
            json!({"memory": "lots"}),
            "expected bytes, or a size like `512M`",
        ),
        (
            json!({"memory": 0}),
            "expected bytes, or a size like `512M`",
        ),
        (json!({"memory": "99999999999999999T"}), "expected bytes"),
        (json!({"pids": -1}), "expected a number above 0"),
        (
            json!({"cpu": 0.001}),
            "expected a number of cpus of at least 0.01",
        ),
        (
            json!({"disk": 1}),
            "`system.limits.disk`: unknown limit: expected memory, pids, cpu",
        ),
    ];
    for (limits, note) in cases {
        let mut world = World::new();
        submit_limited(&mut world, &limits);
        assert_eq!(world.answers(1), ["exception", "release"]);
        assert!(
            world.job(1).notes[0].contains(note),
            "{:?}",
            world.job(1).notes
        );
    }
}

#[test]
fn a_limit_that_cannot_be_enforced_fails_the_job() {
    let mut world = World::new();
    world.kernel.missing_controller = Some(Step::PidsLimit);
    submit_limited(&mut world, &json!({"pids": 10}));
    let note = "cannot enforce the limit `pids`: the cgroup controller `pids` is not available";
    assert_eq!(world.job(1).notes, [note]);
    assert_eq!(world.answers(1), ["exception", "release"]);

    let mut world = World::new();
    world.kernel.missing_controller = Some(Step::Cgroup);
    submit_limited(&mut world, &json!({"memory": 4096}));
    let note = "cannot enforce the job's limits: the execution service may not make cgroups";
    assert_eq!(world.job(1).notes, [note]);
}

#[test]
fn an_oom_kill_is_reported_with_the_release() {
    let mut world = World::new();
    world.kernel.has_cgroups = true;
    submit_limited(&mut world, &json!({"memory": 4096}));
    world.kernel.oom_kills.insert(CgroupId(0), 1);
    world.end_process(0, SIGKILL);
    // A service that ends meanwhile reports neither.
    world.run_reaper();
    world.crash_service(usize::MAX, 0);
    world.restart();
    world.run();
    let note = "out of memory: the memory limit has ended 1 process";
    assert_eq!(world.job(1).warnings, [("oom".to_owned(), note.to_owned())]);
    assert_eq!(
        world.answers(1),
        ["start", "reattached", "finish", "exception", "release"]
    );
    assert_eq!(world.job(1).statuses, [9]);
}

#[test]
fn what_a_killed_reapers_job_has_left_ends_with_the_job() {
    let mut world = World::new();
    world.kernel.has_cgroups = true;
    submit(&mut world, 1, 1);
    world.run();
    // The task has a child, which has no known parent when reaper and task are gone.
    world.fork(0);
    world.crash_reaper();
    world.end_process(0, SIGKILL);
    assert_eq!(world.kernel.processes.len(), 1);
    world.connect_reaper();
    world.run();
    assert!(
        world.kernel.processes.is_empty(),
        "it is in the job's cgroup"
    );
    assert!(world.job(1).is_released);
}
