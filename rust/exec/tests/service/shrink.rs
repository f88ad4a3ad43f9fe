//! Jobs that have released execution targets.

use penstock_exec::Pid;

use crate::job_manager::{jobspec, two_targets};
use crate::world::{BEYOND_ALL_TIMEOUTS_S, World, exited};

/// Submits job 1, with a task on each of the execution targets 3 and 4.
fn submit(world: &mut World) {
    world.submit(1, jobspec(2, &["sleep"]), Some(two_targets()));
}

fn shrink(world: &mut World, ranks: &str) {
    world.send_shrink(1, ranks);
    world.run();
}

/// A world in which job 1 runs on the execution targets 3 and 4, and the processes of its two tasks.
fn with_two_targets() -> (World, Pid, Pid) {
    let mut world = World::new();
    submit(&mut world);
    world.run();
    let tasks = world.spawned(1);
    (world, tasks[0], tasks[1])
}

fn released(world: &World) -> Vec<&str> {
    let ranks = world.job(1).released_ranks.iter();
    ranks.map(String::as_str).collect()
}

fn pids(world: &World) -> Vec<Pid> {
    world.kernel.processes.keys().copied().collect()
}

#[test]
fn tasks_on_released_targets_end_and_do_not_count() {
    let (mut world, kept, _) = with_two_targets();
    shrink(&mut world, "4");
    assert_eq!(pids(&world), [kept]);
    assert_eq!(released(&world), ["4"]);
    // The released target is remembered.
    world.crash_service(0, 0);
    world.restart();
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.job(1).statuses, [0]);
}

#[test]
fn a_task_that_is_killed_on_a_released_target_before_a_reaper_has_it_is_not_started() {
    let mut world = World::new();
    submit(&mut world);
    world.deliver_to_service();
    world.send_shrink(1, "4");
    world.deliver_to_service();
    // The requests to start the tasks, and to kill one, are lost.
    world.crash_reaper();
    world.run();
    assert_eq!(released(&world), ["4"]);
    assert_eq!(world.spawned(1).len(), 1);
}

#[test]
fn tasks_on_released_targets_end_after_that_is_recorded() {
    let (mut world, kept, ended) = with_two_targets();
    world.is_journal_full = true;
    shrink(&mut world, "4");
    assert_eq!(pids(&world), [kept, ended]);
    assert!(released(&world).is_empty());
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    assert_eq!(pids(&world), [kept]);
    assert_eq!(released(&world), ["4"]);
}

#[test]
fn a_target_is_released_when_no_process_is_left_on_it() {
    let (mut world, kept, leader) = with_two_targets();
    // A process has left its parent and its session.
    let child = world.kernel.fork(leader);
    let grandchild = world.kernel.fork(child);
    world.kernel.leave_session(grandchild);
    world.kernel.end(child, exited(0));
    world.kernel.is_uninterruptible.insert(grandchild);
    shrink(&mut world, "4");
    assert_eq!(pids(&world), [kept, grandchild]);
    assert!(released(&world).is_empty());
    // SIGKILL is sent again until the process has ended.
    world.kernel.is_uninterruptible.clear();
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    world.run();
    assert_eq!(pids(&world), [kept]);
    assert_eq!(released(&world), ["4"]);
    assert!(
        world
            .logged
            .iter()
            .any(|line| line.contains("trying again"))
    );
}

#[test]
fn a_task_that_ignores_sigterm_is_killed_after_the_kill_timeout() {
    let (mut world, kept, ended) = with_two_targets();
    world.kernel.ignores_sigterm.insert(ended);
    shrink(&mut world, "4");
    assert_eq!(pids(&world), [kept, ended]);
    world.advance(4.9);
    world.run();
    assert!(released(&world).is_empty());
    world.advance(0.2);
    world.run();
    assert_eq!(pids(&world), [kept]);
    assert_eq!(released(&world), ["4"]);
}

#[test]
fn targets_without_tasks_are_released_at_once_and_repeated_requests_are_answered() {
    let (mut world, _, _) = with_two_targets();
    shrink(&mut world, "5-6");
    assert_eq!(released(&world), ["5-6"]);
    shrink(&mut world, "4-6");
    assert_eq!(released(&world), ["5-6", "5-6", "4"]);
}

#[test]
fn what_a_task_that_ended_by_itself_has_left_is_killed_before_its_target_is_released() {
    let (mut world, kept, leader) = with_two_targets();
    let child = world.kernel.fork(leader);
    world.kernel.leave_session(child);
    world.kernel.end(leader, exited(0));
    world.run_reaper();
    world.run();
    assert_eq!(pids(&world), [kept, child]);
    shrink(&mut world, "4");
    assert_eq!(pids(&world), [kept]);
    assert_eq!(released(&world), ["4"]);
}

#[test]
fn a_new_service_ends_the_tasks_and_releases_the_targets() {
    let (mut world, kept, ended) = with_two_targets();
    world.kernel.ignores_sigterm.insert(ended);
    shrink(&mut world, "4");
    world.crash_service(0, 0);
    world.restart();
    // The job manager repeats its request after the start request.
    shrink(&mut world, "4");
    assert_eq!(pids(&world), [kept, ended]);
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    world.run();
    assert_eq!(pids(&world), [kept]);
    assert_eq!(released(&world), ["4"]);
    // Another job manager repeats the request.
    world.lose_connection();
    world.restart();
    shrink(&mut world, "4");
    assert_eq!(released(&world), ["4", "4"]);
}

#[test]
fn a_new_reaper_has_no_process_of_the_target_when_it_is_released() {
    let (mut world, kept, ended) = with_two_targets();
    world.kernel.ignores_sigterm.insert(ended);
    shrink(&mut world, "4");
    world.crash_reaper();
    world.run();
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    world.run();
    assert_eq!(pids(&world), [kept]);
    assert_eq!(released(&world), ["4"]);
}

#[test]
fn tasks_on_targets_that_were_released_before_the_start_do_not_start() {
    let mut world = World::new();
    world.is_journal_full = true;
    submit(&mut world);
    shrink(&mut world, "4");
    assert!(world.spawned(1).is_empty());
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    assert_eq!(world.spawned(1).len(), 1);
    assert_eq!(released(&world), ["4"]);
    world.end_process(0, exited(3));
    world.run();
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert!(world.job(1).is_released);
}

#[test]
fn tasks_that_a_killed_service_has_not_handed_over_do_not_start_on_released_targets() {
    let mut world = World::new();
    submit(&mut world);
    world.deliver_one_to_service();
    // The journal has the intent; the reaper has not got the tasks.
    world.crash_service(1, 0);
    assert!(world.spawned(1).is_empty());
    world.start_service();
    world.connect_reaper();
    world.connect();
    while world.deliver_to_manager() {}
    world.send_shrink(1, "4");
    world.run();
    assert_eq!(world.spawned(1).len(), 1);
    assert_eq!(released(&world), ["4"]);
    world.end_process(0, exited(0));
    world.run();
    assert!(world.job(1).is_released);
}
