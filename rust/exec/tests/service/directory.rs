//! The directories of jobs: made before the tasks start, removed after the job.

use std::io::{self, ErrorKind};

use penstock_exec::JobId;
use serde_json::{Value, json};

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::{World, exited};

const JOB: u64 = 1;

/// Submits a job of two tasks that has a directory.
fn submit(world: &mut World, options: &Value) {
    let mut spec = with_options(jobspec(2, &["{{tmpdir}}/script"]), options);
    spec["attributes"]["system"]["files"] = json!({"script": {"mode": 0o100_700, "size": 0}});
    world.submit(JOB, spec, Some(resources(2)));
    world.run();
}

/// A world in which the directory of a job is being made.
fn with_requested_directory(options: &Value) -> World {
    let mut world = World::new();
    world.directory_result = None;
    submit(&mut world, options);
    assert_eq!(directories(&world), [JOB]);
    assert!(world.kernel.processes.is_empty());
    assert!(world.answers(JOB).is_empty());
    world
}

fn directories(world: &World) -> Vec<u64> {
    world.directories.iter().map(|job| job.get()).collect()
}

fn finish(world: &mut World, result: io::Result<()>) {
    let job = JobId::new(JOB);
    world.service_mut().finish_job_directory(job, result);
    world.run_service();
    world.run();
}

#[test]
fn tasks_and_servers_start_when_their_directory_is_there() {
    for (options, servers) in [
        (json!({}), 0),
        (json!({"pmi": "simple"}), 1),
        (json!({"pmix": true}), 1),
    ] {
        let mut world = with_requested_directory(&options);
        finish(&mut world, Ok(()));
        assert_eq!(world.answers(JOB), ["start"], "{options}");
        assert_eq!(world.kernel.processes.len(), 2 + servers, "{options}");
        for _ in 0..2 {
            world.end_process(servers, exited(0));
        }
        world.run();
        assert_eq!(world.answers(JOB), ["start", "finish", "release"]);
        assert!(directories(&world).is_empty());
    }
}

#[test]
fn a_job_without_its_directory_does_not_start_and_says_why() {
    for options in [json!({}), json!({"pmi": "simple"}), json!({"pmix": true})] {
        let mut world = with_requested_directory(&options);
        let error = io::Error::new(ErrorKind::StorageFull, "`a/b`: No space left on device");
        finish(&mut world, Err(error));
        let note = "cannot make the job's directory: `a/b`: No space left on device";
        assert_eq!(world.job(JOB).notes, [note]);
        assert_eq!(world.answers(JOB), ["exception", "release"]);
        assert!(world.spawned(JOB).is_empty());
        assert!(directories(&world).is_empty());
        assert_eq!(world.service().jobs(), 0);
        // A guest could fill the log.
        assert!(world.logged.is_empty());
    }
}

#[test]
fn a_job_that_is_cancelled_while_its_directory_is_made_starts_nothing() {
    let mut world = with_requested_directory(&json!({}));
    world.cancel(JOB);
    world.run();
    assert_eq!(world.answers(JOB), ["release"]);
    assert!(directories(&world).is_empty());
    // The result comes after the end.
    finish(&mut world, Ok(()));
    assert!(world.spawned(JOB).is_empty());
    assert_eq!(world.service().jobs(), 0);
}

#[test]
fn another_service_makes_the_directory_again() {
    let mut world = with_requested_directory(&json!({}));
    world.crash_service(0, 0);
    world.directories.clear();
    world.restart();
    assert_eq!(directories(&world), [JOB]);
    finish(&mut world, Ok(()));
    assert_eq!(world.answers(JOB), ["start"]);
    // One that finds running tasks does not.
    world.crash_service(0, 0);
    world.directories.clear();
    world.restart();
    assert!(directories(&world).is_empty());
    for _ in 0..2 {
        world.end_process(0, exited(0));
    }
    world.run();
    assert_eq!(world.job(JOB).statuses, [0]);
}

#[test]
fn a_directory_is_made_once_while_the_instance_is_away() {
    let mut world = with_requested_directory(&json!({}));
    world.lose_connection();
    world.connect();
    world.run();
    assert_eq!(directories(&world), [JOB]);
    world.lose_connection();
    finish(&mut world, Ok(()));
    assert!(world.spawned(JOB).is_empty(), "it may be cancelled");
    world.connect();
    world.run();
    assert_eq!(world.spawned(JOB).len(), 2);
    assert_eq!(directories(&world), [JOB]);
}
