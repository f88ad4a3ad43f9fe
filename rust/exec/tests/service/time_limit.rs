//! Time limits, and the signal before them.

use serde_json::{Value, json};

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::{World, submit};

#[test]
fn a_job_ends_when_its_allocation_expires_with_or_without_an_instance() {
    for is_connected in [true, false] {
        let mut world = World::new();
        let mut r = resources(1);
        r["execution"]["starttime"] = json!(1000.0);
        r["execution"]["expiration"] = json!(1010.0);
        world.submit(1, jobspec(1, &["sleep"]), Some(r));
        world.run();
        if !is_connected {
            world.lose_connection();
        }
        world.advance(9.0);
        world.run();
        assert_eq!(world.kernel.processes.len(), 1);
        world.advance(2.0);
        world.run();
        assert!(world.kernel.processes.is_empty());
        world.connect();
        world.run();
        assert_eq!(world.job(1).notes, ["resource allocation expired"]);
        assert_eq!(world.job(1).statuses, [15]);
    }
}

/// Submits a job of two tasks that ends after 100 seconds, with this shell option `signal`.
fn submit_with_signal(world: &mut World, signal: &Value) {
    let mut r = resources(2);
    r["execution"]["starttime"] = json!(world.now);
    r["execution"]["expiration"] = json!(world.now + 100.0);
    let spec = with_options(jobspec(2, &["sleep"]), &json!({"signal": signal}));
    world.submit(1, spec, Some(r));
    world.run();
}

#[test]
fn tasks_get_a_signal_before_the_end_of_their_allocation() {
    let cases = [
        (json!({"signum": 12, "timeleft": 30}), 70.0, 12),
        (json!({"signum": 12, "timeleft": "0.5m"}), 70.0, 12),
        (json!({"timeleft": 10.5}), 89.5, 10),
        (json!({}), 40.0, 10),
        (json!(1), 40.0, 10),
    ];
    for (option, seconds, signal) in cases {
        let mut world = World::new();
        submit_with_signal(&mut world, &option);
        world.advance(seconds - 0.25);
        world.run();
        assert_eq!(world.kernel.signals, [], "{option}");
        world.advance(0.25);
        world.run();
        let [first, second] = world.spawned(1)[..] else {
            unreachable!("two tasks")
        };
        assert_eq!(world.kernel.signals, [(first, signal), (second, signal)]);
        world.advance(1.0);
        world.run();
        assert_eq!(world.kernel.signals.len(), 2);
    }
    for option in [json!(0), json!(null), json!({"timeleft": 0})] {
        let mut world = World::new();
        submit_with_signal(&mut world, &option);
        world.advance(99.0);
        world.run();
        assert_eq!(world.kernel.signals, [], "{option}");
    }
}

#[test]
fn a_job_that_is_shorter_than_its_warning_is_warned_at_its_start() {
    let mut world = World::new();
    submit_with_signal(&mut world, &json!({"timeleft": 2000}));
    world.run();
    assert_eq!(world.kernel.signals.len(), 2);
}

#[test]
fn a_restarted_service_warns_only_of_another_end() {
    let mut world = World::new();
    submit_with_signal(&mut world, &json!({"timeleft": 30}));
    world.crash_service(0, 0);
    world.now += 80.0;
    world.restart();
    // The time came while no service ran.
    assert_eq!(world.kernel.signals.len(), 2);
    world.crash_service(0, 0);
    world.restart();
    world.advance(1.0);
    world.run();
    assert_eq!(world.kernel.signals.len(), 2);
    let expiration = json!({"id": 1, "expiration": world.now + 50.0});
    let extension = World::request("job-exec.expiration", &expiration);
    world.to_service.push_back(extension);
    world.run();
    world.advance(19.0);
    world.run();
    assert_eq!(world.kernel.signals.len(), 2);
    world.advance(2.0);
    world.run();
    assert_eq!(world.kernel.signals.len(), 4);
}

#[test]
fn a_signal_before_the_end_of_an_allocation_does_not_wait_for_the_journal() {
    for is_blocked in [false, true] {
        let mut world = World::new();
        submit_with_signal(&mut world, &json!({"timeleft": 30}));
        world.is_journal_full = true;
        if is_blocked {
            submit(&mut world, 2, 1);
            world.run();
        }
        world.advance(70.0);
        world.run();
        assert_eq!(world.kernel.signals.len(), 2);
        world.is_journal_full = false;
        world.advance(1.0);
        world.run();
        world.crash_service(0, 0);
        world.restart();
        assert_eq!(world.kernel.signals.len(), 2);
    }
}
