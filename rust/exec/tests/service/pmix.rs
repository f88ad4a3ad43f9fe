//! Jobs with PMIx servers.

use std::ffi::CString;

use penstock_exec::protocol::TaskSpec;
use serde_json::json;

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::{World, exited};

fn submit_pmix(world: &mut World, ntasks: u32) {
    let spec = with_options(jobspec(ntasks, &["mpi"]), &json!({"pmix": true}));
    world.submit(1, spec, Some(resources(ntasks)));
}

#[test]
fn a_pmix_server_is_started_before_the_tasks_and_ended_after_them() {
    let mut world = World::new();
    submit_pmix(&mut world, 2);
    world.deliver_to_service();
    assert_eq!(world.requested(), []);
    let environment = json!({"1": {"PMIX_RANK": "1", "PATH": "/pmix"}});
    world.pmix_environment = Some(environment);
    world.deliver_to_manager();
    let start = json!({"id": 1, "reattach": false, "tasks": [
        {"rank": 0, "target": 3, "host": "n3"}, {"rank": 1, "target": 3, "host": "n3"},
    ]});
    assert_eq!(world.pmix_requests, [("pmix-exec.start".to_owned(), start)]);
    world.deliver_to_service();
    let [first, second] = <[TaskSpec; 2]>::try_from(world.requested()).expect("two");
    let has = |spec: &TaskSpec, entry: &str| {
        let entry = CString::new(entry).expect("text");
        spec.environment.contains(&entry)
    };
    assert!(has(&first, "PATH=/bin") && !has(&first, "PMIX_RANK=1"));
    assert!(has(&second, "PATH=/pmix") && has(&second, "PMIX_RANK=1"));
    assert!(!has(&second, "PATH=/bin"));
    world.run();
    world.end_process(1, exited(0));
    world.run();
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(
        world.pmix_log(),
        ["start false", "ended 1", "ended 0", "stop"]
    );
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    // The end of the stream.
    world.fail_pmix(penstock_flux::errno::ENODATA, "");
    assert!(world.job(1).notes.is_empty());
}

#[test]
fn a_job_without_a_pmix_server_is_not_started() {
    let unknown = "the instance has no service that starts PMIx servers (pmix-exec.start)";
    let cases = [
        (
            5,
            "there is no `penstock-pmix`",
            "there is no `penstock-pmix`",
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
        assert!(world.kernel.spawned.is_empty());
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
        assert!(world.kernel.spawned.is_empty());
    }
}

#[test]
fn a_job_ends_when_its_pmix_server_ends() {
    let mut world = World::new();
    submit_pmix(&mut world, 2);
    world.run();
    world.fail_pmix(5, "the PMIx server was killed");
    assert_eq!(world.job(1).exceptions, ["pmix"]);
    assert_eq!(world.job(1).notes, ["the PMIx server was killed"]);
    assert_eq!(world.job(1).statuses, [15]);
    assert!(world.job(1).is_released);
}

#[test]
fn a_job_that_is_cancelled_before_its_pmix_server_has_started_is_released() {
    let mut world = World::new();
    world.pmix_environment = None;
    submit_pmix(&mut world, 1);
    world.run();
    world.cancel(1);
    world.run();
    assert_eq!(world.answers(1), ["release"]);
    assert_eq!(world.pmix_log(), ["start false", "stop"]);
}

#[test]
fn a_running_job_gets_its_pmix_server_again() {
    let restart: [fn(&mut World); 2] = [
        |world| {
            world.crash_service(0, 0);
            world.end_process(0, exited(0));
            world.restart();
        },
        |world| {
            world.lose_connection();
            world.end_process(0, exited(0));
            world.run();
            world.connect();
            world.run();
        },
    ];
    for restart in restart {
        let mut world = World::new();
        submit_pmix(&mut world, 2);
        world.run();
        restart(&mut world);
        assert_eq!(world.pmix_log(), ["start false", "start true", "ended 0"]);
        world.end_process(0, exited(0));
        world.run();
        assert_eq!(world.pmix_log()[3..], ["ended 1", "stop"]);
        assert_eq!(
            world.answers(1),
            ["start", "reattached", "finish", "release"]
        );

        let mut world = World::new();
        submit_pmix(&mut world, 2);
        world.run();
        world.pmix_environment = None;
        restart(&mut world);
        world.fail_pmix(2, "the PMIx server is lost");
        assert_eq!(world.job(1).notes, ["the PMIx server is lost"]);
        assert!(world.job(1).is_released);
    }
}

#[test]
fn the_tasks_of_a_journalled_intent_get_the_environment_of_a_new_pmix_server() {
    let mut world = World::new();
    submit_pmix(&mut world, 1);
    world.deliver_to_service();
    world.deliver_to_manager();
    world.deliver_one_to_service();
    // Only the journal is written.
    world.crash_service(1, 0);
    world.restart();
    assert_eq!(world.pmix_log(), ["start false", "start false"]);
    assert_eq!(world.answers(1), ["start"]);
}
