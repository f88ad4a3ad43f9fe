//! The shares of guests in the descriptors of the reaper.

use std::mem;

use penstock_exec::service::GuestSettings;
use serde_json::json;

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::{NOFILE, OWNER, World, exited};

const GUEST: u32 = 1001;
const OTHER_GUEST: u32 = 1002;
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

fn end_one(world: &mut World, id: u64) {
    let [pid] = world.spawned(id)[..] else {
        panic!("one task");
    };
    let pids = world.kernel.processes.keys();
    let index = pids.into_iter().position(|other| *other == pid);
    world.end_process(index.expect("it runs"), exited(0));
    run(world);
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
    let [(_, note)] = &world.job(4).warnings[..] else {
        panic!("one exception: {:?}", world.job(4).warnings);
    };
    assert_eq!(
        note,
        "the job starts when others have ended: its tasks need descriptors of the execution service"
    );
    submit(&mut world, OTHER_GUEST, 5, 1);
    submit(&mut world, OTHER_GUEST, 6, 1);
    assert_eq!(started(&world), [1, 2, 3, 5]);
    // The owner has no share.
    submit(&mut world, OWNER, 7, 1);
    assert_eq!(started(&world), [1, 2, 3, 5, 7]);
    // Now both have as much.
    end_one(&mut world, 1);
    assert_eq!(started(&world), [1, 2, 3, 5, 6, 7]);
    end_one(&mut world, 2);
    assert_eq!(started(&world), [1, 2, 3, 4, 5, 6, 7]);
    // A held job that is cancelled is forgotten.
    submit(&mut world, GUEST, 8, 1);
    submit(&mut world, GUEST, 9, 1);
    world.cancel(8);
    run(&mut world);
    assert_eq!(world.answers(8), ["exception", "release"]);
    end_one(&mut world, 3);
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
    end_one(&mut world, 1);
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
