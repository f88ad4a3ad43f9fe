//! Cancelled jobs and the signals that end them.

use penstock_exec::ConnectionId;
use penstock_exec::protocol::Request;
use penstock_wire::Message;
use serde_json::json;

use crate::world::{BEYOND_ALL_TIMEOUTS_S, World};

#[test]
fn a_cancelled_job_gets_sigterm_and_what_is_left_sigkill() {
    let mut world = World::with_running_job();
    world.fork(0);
    world.cancel(1);
    world.run();
    assert_eq!(world.job(1).statuses, [15]);
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert!(world.kernel.processes.is_empty());
}

#[test]
fn the_wait_status_of_an_exception_is_that_of_its_job() {
    let mut world = World::with_running_job();
    world.job_mut(1).is_cancelled = true;
    let payload = json!({"id": 1, "type": "cancel", "severity": 0, "wait_status": 9}).to_string();
    let event = Message::event("job-exception", &payload, 1);
    world.to_service.push_back(event);
    world.run();
    // As a shell shows a task that SIGKILL has ended.
    assert_eq!(world.job(1).statuses, [137 << 8]);
}

#[test]
fn a_lost_kill_is_repeated() {
    let is_kill =
        |(_, _, request): &(ConnectionId, u32, Request)| matches!(request, Request::Kill(_));
    let mut world = World::with_running_job();
    world.cancel(1);
    while world.deliver_to_service() {}
    // The task ignores SIGTERM.
    world.to_reaper.clear();
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    assert!(world.to_reaper.iter().any(is_kill));
    // SIGKILL does not end it either, for a time.
    world.to_reaper.clear();
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    assert!(world.to_reaper.iter().any(is_kill));
    // The next reaper is requested at once.
    world.crash_reaper();
    world.run();
    assert!(world.kernel.processes.is_empty());
    assert!(world.job(1).is_released);
}
