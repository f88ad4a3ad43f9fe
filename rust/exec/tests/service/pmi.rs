//! Jobs with PMI servers (RFC 13).

use std::ffi::CString;

use penstock_exec::protocol::{Output, Pmi, TaskSpec};
use penstock_exec::service::{PMI_ABORT_EXIT_CODE, PMI_SERVER_RANK, PMI_VIOLATION_EXIT_CODE};
use penstock_exec::{SpawnFailure, Step, TaskRank, WaitStatus};
use serde_json::json;

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::{World, exited};

/// The position of the server among the processes of a job: it is started first.
const SERVER: usize = 0;

fn submit_pmi(world: &mut World, ntasks: u32) {
    let spec = with_options(jobspec(ntasks, &["mpi"]), &json!({"pmi": "unknown,simple"}));
    world.submit(1, spec, Some(resources(ntasks)));
}

/// A world in which the tasks of a job with a server are running.
fn with_running_tasks(ntasks: u32) -> World {
    let mut world = World::new();
    submit_pmi(&mut world, ntasks);
    world.run();
    let count = u32::try_from(world.kernel.processes.len());
    assert_eq!(count, Ok(ntasks + 1));
    assert_eq!(world.answers(1), ["start"]);
    world
}

fn text(text: &str) -> CString {
    CString::new(text).expect("text")
}

#[test]
fn a_server_is_started_with_the_tasks_and_killed_after_them() {
    let mut world = World::new();
    submit_pmi(&mut world, 2);
    world.deliver_to_service();
    let [server, first, second] = <[TaskSpec; 3]>::try_from(world.requested()).expect("three");
    assert_eq!(server.task.rank, PMI_SERVER_RANK);
    let arguments = [
        "/opt/bin/penstock-exec",
        "--serve-pmi",
        "2",
        "f2",
        "PMI_process_mapping=(vector,(0,1,2))",
        "flux.instance-level=1",
        "flux.taskmap=[[0,1,2,1]]",
    ];
    assert_eq!(server.arguments, arguments.map(text));
    assert_eq!(server.environment.len(), 0);
    assert_eq!(
        server.stderr,
        Output::Append(text("/state/output/1.stderr"))
    );
    let socket = text("/state/pmi/1");
    assert_eq!(server.pmi, Pmi::Server(socket.clone()));
    for (task, rank) in [(first, "PMI_RANK=0"), (second, "PMI_RANK=1")] {
        assert_eq!(task.pmi, Pmi::Client(socket.clone()));
        for entry in ["PMI_FD=4", rank, "PMI_SIZE=2"] {
            assert!(task.environment.contains(&text(entry)), "{entry}");
        }
    }
    world.run();
    assert_eq!(world.answers(1), ["start"]);
    world.end_process(1, exited(3));
    world.end_process(1, exited(0));
    world.run();
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert!(world.job(1).notes.is_empty());
    assert!(world.kernel.processes.is_empty());
    world.wind_up();
    world.check();
    assert_eq!(world.removed_pmi_sockets, [1]);
}

#[test]
fn variables_of_the_pmi_of_another_job_are_no_tasks() {
    let mut world = World::new();
    let mut spec = with_options(jobspec(1, &["mpi"]), &json!({"pmi": "off"}));
    spec["attributes"]["system"]["environment"] = json!({"PMI_FD": "4", "PMI_RANK": "3", "A": "1"});
    world.submit(1, spec, Some(resources(1)));
    world.deliver_to_service();
    let [task] = <[TaskSpec; 1]>::try_from(world.requested()).expect("one");
    assert!(task.environment.contains(&text("A=1")));
    let names_pmi = |entry: &std::ffi::CStr| entry.to_bytes().starts_with(b"PMI_");
    assert!(!task.environment.iter().any(names_pmi));
    assert_eq!(task.pmi, Pmi::None);
}

#[test]
fn a_server_that_has_had_all_connections_may_end_before_the_tasks() {
    let mut world = with_running_tasks(2);
    world.end_process(SERVER, exited(0));
    world.run();
    assert_eq!(world.answers(1), ["start"]);
    world.end_process(0, exited(0));
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert!(world.job(1).notes.is_empty());
}

#[test]
fn another_end_of_the_server_is_an_exception_that_ends_the_tasks() {
    let killed = WaitStatus::Signaled {
        signal: 9,
        core: false,
    };
    let ends = [
        (
            exited(PMI_ABORT_EXIT_CODE),
            "a task has aborted the job by PMI",
        ),
        (
            exited(PMI_VIOLATION_EXIT_CODE),
            "a task has violated the PMI protocol: the job's standard error has the reason",
        ),
        (exited(1), "the job's PMI server has ended before the tasks"),
        (killed, "the job's PMI server has ended before the tasks"),
    ];
    for (end, note) in ends {
        for is_restarted in [false, true] {
            let mut world = with_running_tasks(2);
            if is_restarted {
                world.crash_service(0, 0);
            }
            world.end_process(SERVER, end);
            world.restart();
            assert_eq!(world.job(1).notes, [note]);
            world.wind_up();
            world.check();
        }
    }
}

#[test]
fn a_server_that_cannot_be_started_is_an_exception() {
    let failures = [
        (
            Step::Exec,
            2,
            "the job's PMI server, `penstock-exec`, cannot be executed: No such file or directory",
        ),
        (
            Step::Pmi,
            13,
            "cannot connect a task to its PMI server: Permission denied",
        ),
    ];
    for (step, errno, note) in failures {
        for rank in [PMI_SERVER_RANK, TaskRank(1)] {
            if step == Step::Exec && rank != PMI_SERVER_RANK {
                continue;
            }
            let mut world = World::new();
            world
                .kernel
                .fails
                .insert(rank, SpawnFailure { step, errno });
            submit_pmi(&mut world, 2);
            world.run();
            assert_eq!(world.job(1).notes, [note], "{rank:?}");
            world.wind_up();
            assert!(world.kernel.processes.is_empty());
        }
    }
}

#[test]
fn a_killed_service_starts_what_is_missing_and_no_second_server() {
    for effects in 0..4 {
        let mut world = World::new();
        submit_pmi(&mut world, 2);
        world.deliver_one_to_service();
        world.crash_service(effects, 0);
        world.restart();
        assert_eq!(world.kernel.spawned.len(), 3, "{effects}");
        world.end_process(1, exited(0));
        world.end_process(1, exited(0));
        world.run();
        world.wind_up();
        world.check();
    }
}
