//! A clock that is set back by an hour: timeouts end when they would have ended.

use serde_json::json;

use crate::job_manager::{jobspec, with_options};
use crate::world::{World, submit};

const HOUR_S: f64 = 3600.0;

fn set_back(world: &mut World) {
    world.now -= HOUR_S;
    world.advance(0.0);
    world.run();
}

#[test]
fn a_task_that_ignores_sigterm_is_killed_after_the_kill_timeout() {
    let mut world = World::with_running_job();
    let pid = world.spawned(1)[0];
    world.kernel.ignores_sigterm.insert(pid);
    world.cancel(1);
    world.run();
    assert!(world.kernel.processes.contains_key(&pid));
    set_back(&mut world);
    world.advance(world.settings.kill_timeout_s + 0.1);
    world.run();
    assert!(world.kernel.processes.is_empty());
}

#[test]
fn a_job_starts_when_the_journal_can_be_written_again() {
    let mut world = World::new();
    world.is_journal_full = true;
    submit(&mut world, 1, 1);
    world.run();
    assert_eq!(world.spawned(1), []);
    world.is_journal_full = false;
    set_back(&mut world);
    world.advance(1.1);
    world.run();
    assert_eq!(world.spawned(1).len(), 1);
}

#[test]
fn a_time_limit_is_a_time_of_the_clock() {
    let mut world = World::new();
    let mut r = crate::job_manager::resources(1);
    r["execution"]["expiration"] = json!(world.now + 100.0);
    world.submit(1, with_options(jobspec(1, &["true"]), &json!({})), Some(r));
    world.run();
    set_back(&mut world);
    world.advance(HOUR_S + 99.0);
    world.run();
    assert!(world.job(1).exceptions.is_empty());
    world.advance(2.0);
    world.run();
    assert_eq!(world.job(1).exceptions, ["timeout"]);
}
