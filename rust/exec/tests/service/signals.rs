//! Cancelled jobs and the signals that end them.

use penstock_exec::ConnectionId;
use penstock_exec::protocol::Request;
use penstock_wire::Message;
use serde_json::json;

use crate::world::{BEYOND_ALL_TIMEOUTS_S, World, submit};

const SIGUSR1: u32 = 10;

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

/// Has the reaper take the requests that are on their way to it, and start some of the tasks.
fn begin_to_start(world: &mut World) {
    while world.to_reaper.is_empty() {
        assert!(world.deliver_one());
    }
    let reaper = world.reaper.as_mut().expect("it runs");
    while let Some((connection, id, request)) = world.to_reaper.pop_front() {
        reaper.handle(connection, id, request, &mut world.kernel);
    }
    reaper.step(&mut world.kernel);
    reaper.commit(&mut world.kernel);
    assert!(reaper.has_queued_requests());
    world.from_reaper.extend(reaper.take_messages());
    while world.deliver_from_reaper() {}
}

#[test]
fn no_more_tasks_of_a_job_start_after_it_is_cancelled() {
    let mut world = World::new();
    world.run();
    submit(&mut world, 1, 1000);
    begin_to_start(&mut world);
    let started = world.spawned(1).len();
    assert!((1..1000).contains(&started));
    world.cancel(1);
    while world.deliver_to_service() {}
    world.run();
    assert_eq!(world.spawned(1).len(), started);
    assert_eq!(world.job(1).statuses, [15]);
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert!(world.kernel.processes.is_empty());
}

#[test]
fn a_job_that_is_cancelled_before_its_first_task_has_started_is_released() {
    let mut world = World::new();
    world.run();
    submit(&mut world, 1, 1000);
    begin_to_start(&mut world);
    submit(&mut world, 2, 1);
    while world.deliver_to_service() {}
    let reaper = world.reaper.as_mut().expect("it runs");
    while let Some((connection, id, request)) = world.to_reaper.pop_front() {
        reaper.handle(connection, id, request, &mut world.kernel);
    }
    world.cancel(2);
    while world.deliver_to_service() {}
    world.run();
    assert_eq!(world.spawned(1).len(), 1000);
    assert_eq!(world.spawned(2).len(), 0);
    assert_eq!(world.answers(2), ["release"]);
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

#[test]
fn a_signal_reaches_a_task_whose_start_is_not_reported() {
    // At each number of messages between the start of the job and the signal.
    for delay in 0.. {
        let mut world = World::new();
        submit(&mut world, 1, 2);
        let is_on_its_way = (0..delay).all(|_| world.deliver_one());
        world.send_signal(1, SIGUSR1);
        world.run();
        let mut expected: Vec<_> = world.spawned(1).iter().map(|pid| (*pid, SIGUSR1)).collect();
        expected.sort();
        world.kernel.signals.sort();
        assert_eq!(expected.len(), 2);
        assert_eq!(world.kernel.signals, expected, "after {delay} messages");
        if !is_on_its_way {
            break;
        }
    }
}

#[test]
fn a_signal_waits_for_the_journal_and_the_reaper() {
    let mut world = World::new();
    world.is_journal_full = true;
    submit(&mut world, 1, 1);
    for _ in 0..1000 {
        world.send_signal(1, SIGUSR1);
    }
    world.run();
    world.is_journal_full = false;
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    world.run();
    let pid = world.spawned(1)[0];
    assert_eq!(world.kernel.signals, [(pid, SIGUSR1)]);
    world.crash_reaper();
    world.send_signal(1, SIGUSR1);
    world.run();
    assert_eq!(world.kernel.signals, [(pid, SIGUSR1), (pid, SIGUSR1)]);
}
