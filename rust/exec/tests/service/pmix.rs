//! Jobs with PMIx servers.

use std::ffi::CString;

use penstock_exec::protocol::{Output, TaskSpec};
use penstock_exec::service::PMIX_SERVER_RANK;
use penstock_exec::{CgroupLimits, SpawnFailure, Step};
use serde_json::json;

use crate::job_manager::{SECOND_TARGET, jobspec, resources, two_targets, with_options};
use crate::world::{World, exited};

/// The position of the server among the processes of a job: it is started first.
const SERVER: usize = 0;

fn submit_pmix(world: &mut World, ntasks: u32) {
    let spec = with_options(jobspec(ntasks, &["mpi"]), &json!({"pmix": true}));
    world.submit(1, spec, Some(resources(ntasks)));
}

/// A world in which the tasks of a job with a server are running.
fn with_running_tasks(ntasks: u32) -> World {
    let mut world = World::new();
    submit_pmix(&mut world, ntasks);
    world.run();
    let count = u32::try_from(world.kernel.processes.len());
    assert_eq!(count, Ok(ntasks + 1));
    world
}

/// A restart of the service, and one of the instance, in which a process ends meanwhile.
const RESTARTS: [fn(&mut World, usize); 3] = [
    |world, process| {
        world.crash_service(0, 0);
        world.end_process(process, exited(0));
        world.restart();
    },
    |world, process| {
        world.lose_connection();
        world.end_process(process, exited(0));
        world.run();
        world.connect();
        world.run();
    },
    |world, process| {
        world.lose_connection();
        world.crash_service(0, 0);
        world.end_process(process, exited(0));
        world.restart();
    },
];

fn text(text: &str) -> CString {
    CString::new(text).expect("text")
}

#[test]
fn a_pmix_server_is_started_before_the_tasks_and_killed_after_them() {
    let mut world = World::new();
    let mut spec = with_options(jobspec(2, &["mpi"]), &json!({"pmix": true}));
    spec["attributes"]["system"]["limits"] = json!({"pids": 100});
    world.submit(1, spec, Some(resources(2)));
    world.deliver_to_service();
    let [server] = <[TaskSpec; 1]>::try_from(world.requested()).expect("one");
    assert_eq!(server.task.rank, PMIX_SERVER_RANK);
    let arguments = ["penstock-pmix", "--directory", "/state/pmix/1"];
    assert_eq!(server.arguments, arguments.map(text));
    assert!(
        server
            .environment
            .contains(&text("PATH=/bin:/usr/bin:/opt/bin/"))
    );
    assert!(server.environment.contains(&text("HOME=/home")));
    assert!(server.environment.contains(&text("PENSTOCK_JOB_ID=ƒ2")));
    assert_eq!(server.stderr, Output::Append(text("/state/pmix.log")));
    let limits = CgroupLimits {
        pids: Some(100),
        ..CgroupLimits::default()
    };
    assert_eq!(server.cgroup_limits, limits);
    world.deliver_to_reaper();
    world.deliver_from_reaper();
    assert_eq!(world.requested(), []);
    let environment = json!({"1": {"PMIX_RANK": "1", "PATH": "/pmix"}});
    world.pmix_environment = Some(environment);
    world.deliver_to_manager();
    let start = json!({"id": 1, "directory": "/state/pmix/1", "tasks": [
        {"rank": 0, "target": 3, "host": "n3"}, {"rank": 1, "target": 3, "host": "n3"},
    ]});
    assert_eq!(world.pmix_requests, [("pmix-exec.start".to_owned(), start)]);
    assert_eq!(world.answers(1), Vec::<&str>::new());
    world.deliver_to_service();
    let [first, second] = <[TaskSpec; 2]>::try_from(world.requested()).expect("two");
    let has = |spec: &TaskSpec, entry: &str| spec.environment.contains(&text(entry));
    assert!(has(&first, "PATH=/bin") && !has(&first, "PMIX_RANK=1"));
    assert!(has(&second, "PATH=/pmix") && has(&second, "PMIX_RANK=1"));
    assert!(!has(&second, "PATH=/bin"));
    world.run();
    world.kernel.usage.user_us = 10;
    world.end_process(2, exited(3));
    world.run();
    world.end_process(1, exited(0));
    world.run();
    assert_eq!(world.pmix_log(), ["start", "ended 1", "ended 0", "stop"]);
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    // The server was killed, which is no status of the job.
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert_eq!(world.job(1).usages[0]["user_us"], 20);
    assert!(world.kernel.processes.is_empty());
    assert_eq!(world.removed_pmix_directories, [1]);
    // The end of the stream.
    world.fail_pmix(penstock_flux::errno::ENODATA, "");
    assert!(world.job(1).notes.is_empty());
}

#[test]
fn the_end_of_a_connection_to_a_server_that_was_killed_after_the_tasks_is_no_exception() {
    let mut world = with_running_tasks(1);
    world.end_process(1, exited(0));
    world.deliver_from_reaper();
    world.fail_pmix(5, "the job's PMIx server has ended");
    assert!(world.job(1).notes.is_empty());
    assert_eq!(world.job(1).statuses, [0]);
}

#[test]
fn a_job_whose_pmix_server_cannot_be_started_ends() {
    let missing = "the job requests PMIx, and there is no `penstock-pmix` in `PATH`\nhint: `make pmix` builds it where \
                   libpmix-dev is installed";
    let inaccessible = "the job requests PMIx, and `penstock-pmix` cannot be executed: Permission denied (os error 13)";
    let limit =
        "cannot enforce the limit `memory`: the cgroup controller `memory` is not available";
    let log = "cannot open the output: Permission denied";
    let cases = [
        (Step::Exec, libc::ENOENT, "pmix", missing),
        (Step::Exec, libc::EACCES, "pmix", inaccessible),
        (Step::MemoryLimit, libc::EOPNOTSUPP, "exec", limit),
        (Step::Stderr, libc::EACCES, "exec", log),
    ];
    for (step, errno, kind, note) in cases {
        let mut world = World::new();
        let failure = SpawnFailure { step, errno };
        world.kernel.fails.insert(PMIX_SERVER_RANK, failure);
        submit_pmix(&mut world, 1);
        world.run();
        assert_eq!(world.job(1).exceptions, [kind]);
        assert_eq!(world.job(1).notes, [note]);
        assert_eq!(world.answers(1), ["exception", "release"]);
        assert!(world.kernel.spawned.is_empty());
        assert_eq!(world.service().jobs(), 0);
    }
}

#[test]
fn a_job_without_the_environment_of_its_pmix_server_is_not_started() {
    let unknown = "the instance has no service that connects to PMIx servers (pmix-exec.start)";
    let cases = [
        (
            5,
            "the PMIx server does not listen",
            "the PMIx server does not listen",
        ),
        (
            38,
            "No service matching pmix-exec.start is registered",
            unknown,
        ),
        (61, "", "the PMIx server has ended: errnum 61"),
    ];
    for (errnum, text, note) in cases {
        let mut world = World::new();
        world.pmix_environment = None;
        submit_pmix(&mut world, 1);
        world.run();
        assert_eq!(world.answers(1), Vec::<&str>::new());
        world.fail_pmix(errnum, text);
        assert_eq!(world.job(1).exceptions, ["pmix"]);
        assert_eq!(world.job(1).notes, [note]);
        assert_eq!(world.answers(1), ["exception", "release"]);
        assert_eq!(world.kernel.spawned.len(), 1);
        assert!(world.kernel.processes.is_empty());
    }
    let environments = [
        (
            json!({"0": {"A=B": "C"}}),
            "invalid environment variable name `A=B`",
        ),
        (
            json!({"0": {"A": "\0"}}),
            "environment variable `A` has a zero byte",
        ),
        (
            json!({"0": []}),
            "`environment.0`: expected an object, found an array",
        ),
    ];
    for (environment, note) in environments {
        let mut world = World::new();
        world.pmix_environment = Some(environment);
        submit_pmix(&mut world, 1);
        world.run();
        let note = format!("response to pmix-exec.start: {note}");
        assert_eq!(world.job(1).notes, [note]);
        assert!(world.kernel.processes.is_empty());
    }
}

#[test]
fn a_job_ends_when_its_pmix_server_ends() {
    let end: [fn(&mut World); 3] = [
        |world| world.fail_pmix(5, "the job's PMIx server has ended before the tasks"),
        |world| {
            world.end_process(SERVER, exited(0));
            world.run();
        },
        |world| RESTARTS[0](world, SERVER),
    ];
    for end in end {
        let mut world = with_running_tasks(2);
        end(&mut world);
        let note = "the job's PMIx server has ended before the tasks";
        assert_eq!(world.job(1).exceptions, ["pmix"]);
        assert_eq!(world.job(1).notes, [note]);
        assert_eq!(world.job(1).statuses, [15]);
        assert!(world.job(1).is_released);
        assert!(world.kernel.processes.is_empty());
    }
}

#[test]
fn a_job_that_is_cancelled_before_its_tasks_have_started_is_released() {
    for deliveries in 0..4 {
        let mut world = World::new();
        world.pmix_environment = None;
        submit_pmix(&mut world, 1);
        for _ in 0..deliveries {
            world.deliver_one();
        }
        world.cancel(1);
        world.run();
        assert_eq!(world.answers(1), ["release"]);
        assert_eq!(world.pmix_log().last().map(String::as_str), Some("stop"));
        assert!(world.kernel.processes.is_empty());
        assert_eq!(world.service().jobs(), 0);
    }
}

#[test]
fn a_running_job_keeps_its_pmix_server() {
    for restart in RESTARTS {
        let mut world = with_running_tasks(2);
        // Task 0 ends.
        restart(&mut world, 1);
        assert_eq!(world.pmix_log(), ["start", "start", "ended 0"]);
        world.end_process(1, exited(0));
        world.run();
        assert_eq!(world.pmix_log()[3..], ["ended 1", "stop"]);
        assert_eq!(
            world.answers(1),
            ["start", "reattached", "finish", "release"]
        );
        assert_eq!(world.kernel.spawned.len(), 3);
        assert_eq!(world.removed_pmix_directories, [1]);

        let mut world = with_running_tasks(2);
        world.pmix_environment = None;
        restart(&mut world, 1);
        world.fail_pmix(2, "the PMIx server is lost");
        assert_eq!(world.job(1).notes, ["the PMIx server is lost"]);
        assert!(world.job(1).is_released);
    }
}

#[test]
fn a_pmix_server_does_not_outlive_tasks_that_end_while_the_instance_is_away() {
    let mut world = with_running_tasks(1);
    world.lose_connection();
    world.end_process(1, exited(7));
    world.run();
    assert!(world.kernel.processes.is_empty());
    world.connect();
    world.run();
    assert_eq!(
        world.answers(1),
        ["start", "reattached", "finish", "release"]
    );
    assert_eq!(world.job(1).statuses, [7 << 8]);
}

#[test]
fn the_tasks_of_a_journalled_intent_get_the_environment_of_a_new_pmix_server() {
    let mut world = World::new();
    submit_pmix(&mut world, 1);
    world.deliver_one_to_service();
    // Only the journal is written.
    world.crash_service(1, 0);
    world.restart();
    assert_eq!(world.pmix_log(), ["start"]);
    assert_eq!(world.answers(1), ["start"]);
    assert_eq!(world.kernel.spawned.len(), 2);
}

#[test]
fn the_tasks_of_a_restarted_service_get_the_environment_of_the_pmix_server_that_runs() {
    let mut world = World::new();
    world.pmix_environment = None;
    submit_pmix(&mut world, 1);
    world.run();
    world.crash_service(0, 0);
    world.pmix_environment = Some(json!({"0": {"PMIX_RANK": "0"}}));
    world.restart();
    assert_eq!(world.pmix_log(), ["start", "start"]);
    assert_eq!(world.answers(1), ["start"]);
    assert_eq!(world.kernel.spawned.len(), 2);
}

#[test]
fn a_pmix_server_of_which_the_journal_is_lost_is_killed() {
    let mut world = World::new();
    world.pmix_environment = None;
    submit_pmix(&mut world, 1);
    world.run();
    world.crash_service(0, 0);
    world.journal.clear();
    world.restart();
    let note = "lost: the execution service has no record of the job's start";
    assert_eq!(world.job(1).notes, [note]);
    assert!(world.job(1).is_released);
    assert!(world.kernel.processes.is_empty());
}

#[test]
fn a_pmix_server_of_a_job_that_the_instance_does_not_know_is_killed() {
    let mut world = World::new();
    world.pmix_environment = None;
    submit_pmix(&mut world, 1);
    world.run();
    world.crash_service(0, 0);
    world.jobs.clear();
    world.restart();
    assert!(world.kernel.processes.is_empty());
    assert_eq!(world.service().jobs(), 0);
}

#[test]
fn a_released_target_of_a_job_with_a_pmix_server_is_reported() {
    let mut world = World::new();
    let spec = with_options(jobspec(2, &["mpi"]), &json!({"pmix": true}));
    world.submit(1, spec, Some(two_targets()));
    world.run();
    world.shrink(1, SECOND_TARGET);
    world.run();
    assert_eq!(world.job(1).released_ranks, [SECOND_TARGET]);
    assert_eq!(world.kernel.processes.len(), 2);
    world.end_process(1, exited(0));
    world.run();
    assert_eq!(world.job(1).statuses, [0]);
}
