//! The shares of guests in the descriptors of the reaper.

use std::mem;

use penstock_exec::service::GuestSettings;
use serde_json::json;

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::{NOFILE, OWNER, World, exited};

const GUEST: u32 = 1001;
const OTHER_GUEST: u32 = 1002;
const THIRD_GUEST: u32 = 1003;
/// The descriptors of a task whose two streams are copied.
const PER_TASK: u64 = 4;
/// The descriptors that the reaper does not have for tasks.
const OTHERS: u64 = 128;

/// A world whose reaper has descriptors for this many tasks of guests.
fn with_room_for(tasks: u64) -> World {
    let mut world = World::new();
    let limits = &mut world.settings.task_context.hard_limits;
    limits.insert(NOFILE, OTHERS + PER_TASK * tasks);
    world.settings.guests = Some(GuestSettings {
        min_uid: GUEST,
        no_new_privs: true,
    });
    world.crash_service(0, 0);
    world.restart();
    world
}

fn submit(world: &mut World, user: u32, id: u64, ntasks: u32) {
    let options = json!({"per-resource": {"type": "node", "count": ntasks}});
    let spec = with_options(jobspec(1, &["true"]), &options);
    world.submit_as(user, id, spec, Some(resources(1)));
    run(world);
}

/// Runs the world, in which guests' tasks are set up.
fn run(world: &mut World) {
    world.run();
    for pid in mem::take(&mut world.kernel.setups) {
        let reaper = world.reaper.as_mut().expect("it runs");
        reaper.record_setup(pid, Ok(()));
    }
    world.run_reaper();
    world.run();
}

/// Ends the tasks of a job.
fn end(world: &mut World, id: u64) {
    for pid in world.spawned(id) {
        let mut pids = world.kernel.processes.keys();
        let index = pids.position(|other| *other == pid);
        world.end_process(index.expect("it runs"), exited(0));
    }
    run(world);
}

/// The note of the only exception of a job, which is held.
fn note(world: &World, id: u64) -> &str {
    let [(_, note)] = &world.job(id).warnings[..] else {
        panic!("one exception: {:?}", world.job(id).warnings);
    };
    note
}

/// The jobs that have been started so far.
fn started(world: &World) -> Vec<u64> {
    let ids = world.jobs.keys().copied();
    ids.filter(|id| !world.spawned(*id).is_empty()).collect()
}

#[test]
fn a_guest_gets_as_many_as_are_left_and_others_start_at_once() {
    let mut world = with_room_for(6);
    for id in 1..=4 {
        submit(&mut world, GUEST, id, 1);
    }
    assert_eq!(started(&world), [1, 2, 3]);
    assert_eq!(
        note(&world, 4),
        "the job starts when others have ended: its tasks need descriptors of the execution service"
    );
    submit(&mut world, OTHER_GUEST, 5, 1);
    submit(&mut world, OTHER_GUEST, 6, 1);
    assert_eq!(started(&world), [1, 2, 3, 5]);
    // The owner has no share.
    submit(&mut world, OWNER, 7, 1);
    assert_eq!(started(&world), [1, 2, 3, 5, 7]);
    // Now both have as much.
    end(&mut world, 1);
    assert_eq!(started(&world), [1, 2, 3, 5, 6, 7]);
    end(&mut world, 2);
    assert_eq!(started(&world), [1, 2, 3, 4, 5, 6, 7]);
    // A held job that is cancelled is forgotten.
    submit(&mut world, GUEST, 8, 1);
    submit(&mut world, GUEST, 9, 1);
    world.cancel(8);
    run(&mut world);
    assert_eq!(world.answers(8), ["exception", "release"]);
    end(&mut world, 3);
    assert_eq!(started(&world), [1, 2, 3, 4, 5, 6, 7, 9]);
}

#[test]
fn another_service_counts_what_the_tasks_of_an_earlier_one_have() {
    let mut world = with_room_for(4);
    for id in 1..=3 {
        submit(&mut world, GUEST, id, 1);
    }
    assert_eq!(started(&world), [1, 2]);
    world.crash_service(usize::MAX, 0);
    world.restart();
    run(&mut world);
    assert_eq!(started(&world), [1, 2]);
    end(&mut world, 1);
    assert_eq!(started(&world), [1, 2, 3]);
}

#[test]
fn a_job_of_many_tasks_starts_alone_or_says_that_it_cannot() {
    let mut world = with_room_for(4);
    submit(&mut world, GUEST, 1, 3);
    assert_eq!(world.spawned(1).len(), 3);
    submit(&mut world, OTHER_GUEST, 2, 5);
    assert_eq!(
        world.job(2).notes,
        [
            "the tasks need 20 descriptors of the execution service, which has 16: send their output to files with `--output`, \
             or start fewer"
        ]
    );
    assert_eq!(world.answers(2), ["exception", "release"]);
}

#[test]
fn jobs_of_a_guest_start_in_the_order_of_their_ids() {
    let mut world = with_room_for(6);
    submit(&mut world, GUEST, 1, 1);
    submit(&mut world, GUEST, 2, 1);
    submit(&mut world, GUEST, 5, 3);
    // There is room for it, and it waits for the older one.
    submit(&mut world, GUEST, 6, 1);
    assert_eq!(started(&world), [1, 2]);
    assert_eq!(
        note(&world, 6),
        "the job starts after older ones of its user: their tasks need descriptors of the execution service"
    );
    // An older one does not wait for a newer one.
    submit(&mut world, GUEST, 4, 1);
    assert_eq!(started(&world), [1, 2, 4]);
    submit(&mut world, OTHER_GUEST, 7, 1);
    assert_eq!(started(&world), [1, 2, 4, 7]);
    for id in [1, 2] {
        end(&mut world, id);
        assert_eq!(started(&world), [1, 2, 4, 7]);
    }
    // Now the guest has none: the large job may have more than the share.
    end(&mut world, 4);
    assert_eq!(started(&world), [1, 2, 4, 5, 7]);
    end(&mut world, 5);
    assert_eq!(started(&world), [1, 2, 4, 5, 6, 7]);
}

#[test]
fn a_job_without_descriptors_is_not_held() {
    let mut world = with_room_for(2);
    submit(&mut world, GUEST, 1, 1);
    submit(&mut world, GUEST, 2, 2);
    let options = json!({"output": {
        "stdout": {"type": "file", "path": "/home/out"},
        "stderr": {"type": "file", "path": "/home/err"},
    }});
    let spec = with_options(jobspec(1, &["true"]), &options);
    world.submit_as(GUEST, 3, spec, Some(resources(1)));
    run(&mut world);
    assert_eq!(started(&world), [1, 3]);
}

#[test]
fn small_jobs_of_a_guest_do_not_starve_a_large_one_of_another() {
    let mut world = with_room_for(6);
    for id in 1..=3 {
        submit(&mut world, GUEST, id, 1);
    }
    submit(&mut world, OTHER_GUEST, 4, 6);
    for id in 5..=7 {
        submit(&mut world, GUEST, id, 1);
    }
    assert_eq!(started(&world), [1, 2, 3]);
    // While another guest waits, each begins one job.
    end(&mut world, 1);
    assert_eq!(started(&world), [1, 2, 3, 5]);
    end(&mut world, 2);
    end(&mut world, 3);
    assert_eq!(started(&world), [1, 2, 3, 5]);
    submit(&mut world, THIRD_GUEST, 8, 1);
    submit(&mut world, THIRD_GUEST, 9, 1);
    assert_eq!(started(&world), [1, 2, 3, 5, 8]);
    end(&mut world, 5);
    assert_eq!(started(&world), [1, 2, 3, 5, 8]);
    end(&mut world, 8);
    assert_eq!(started(&world), [1, 2, 3, 4, 5, 8]);
}

#[test]
fn large_jobs_of_a_guest_and_small_ones_of_another_take_turns() {
    let mut world = with_room_for(6);
    submit(&mut world, OTHER_GUEST, 1, 6);
    submit(&mut world, OTHER_GUEST, 2, 6);
    submit(&mut world, OTHER_GUEST, 3, 6);
    for id in 4..=6 {
        submit(&mut world, GUEST, id, 1);
    }
    for (ended, expected) in [
        (1, vec![1, 2]),
        (2, vec![1, 2, 4]),
        (4, vec![1, 2, 3, 4]),
        (3, vec![1, 2, 3, 4, 5, 6]),
    ] {
        end(&mut world, ended);
        assert_eq!(started(&world), expected);
    }
}

#[test]
fn a_held_job_that_is_cancelled_holds_up_no_other() {
    let mut world = with_room_for(6);
    submit(&mut world, GUEST, 1, 1);
    submit(&mut world, GUEST, 2, 6);
    submit(&mut world, GUEST, 3, 1);
    assert_eq!(started(&world), [1]);
    world.cancel(2);
    run(&mut world);
    assert_eq!(world.answers(2), ["exception", "release"]);
    assert_eq!(started(&world), [1, 3]);
    // The same with one of another user.
    submit(&mut world, OTHER_GUEST, 4, 6);
    for id in 5..=6 {
        submit(&mut world, THIRD_GUEST, id, 1);
    }
    assert_eq!(started(&world), [1, 3, 5]);
    world.cancel(4);
    run(&mut world);
    assert_eq!(started(&world), [1, 3, 5, 6]);
}

#[test]
fn a_job_that_another_service_finds_held_does_not_start_before_the_tasks_are_counted() {
    let mut world = with_room_for(4);
    submit(&mut world, GUEST, 2, 1);
    submit(&mut world, GUEST, 3, 1);
    submit(&mut world, GUEST, 1, 1);
    assert_eq!(started(&world), [2, 3]);
    world.crash_service(usize::MAX, 0);
    world.start_service();
    world.connect_reaper();
    // The reaper has listed its tasks before the first request for a start.
    while world.deliver_to_reaper() || world.deliver_from_reaper() {}
    world.restart();
    run(&mut world);
    assert_eq!(started(&world), [2, 3]);
    end(&mut world, 2);
    assert_eq!(started(&world), [1, 2, 3]);
}
