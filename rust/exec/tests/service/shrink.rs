//! Jobs that have released execution targets.

use penstock_flux::flags;
use serde_json::json;

use crate::job_manager::jobspec;
use crate::world::{World, exited};

#[test]
fn tasks_on_released_targets_end_and_do_not_count() {
    let mut world = World::new();
    let r = json!({"version": 1, "execution": {
        "R_lite": [{"rank": "3-4", "children": {"core": "0"}}], "nodelist": ["n[3-4]"],
    }});
    world.submit(1, jobspec(2, &["sleep"]), Some(r));
    world.run();
    let shrink = World::request("job-exec.shrink", &json!({"id": 1, "ranks": "4"}));
    let flags = shrink.flags | flags::NORESPONSE;
    world.to_service.push_back(shrink.with_flags(flags));
    world.run();
    assert_eq!(world.kernel.processes.len(), 1);
    // The released target is remembered.
    world.crash_service(0, 0);
    world.restart();
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.job(1).statuses, [0]);
}

#[test]
fn tasks_on_released_targets_end_after_that_is_recorded() {
    let mut world = World::new();
    let r = json!({"version": 1, "execution": {
        "R_lite": [{"rank": "3-4", "children": {"core": "0"}}], "nodelist": ["n[3-4]"],
    }});
    world.submit(1, jobspec(2, &["sleep"]), Some(r));
    world.run();
    world.is_journal_full = true;
    let shrink = World::request("job-exec.shrink", &json!({"id": 1, "ranks": "4"}));
    let flags = shrink.flags | flags::NORESPONSE;
    world.to_service.push_back(shrink.with_flags(flags));
    world.run();
    assert_eq!(world.kernel.processes.len(), 2);
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    assert_eq!(world.kernel.processes.len(), 1);
}
