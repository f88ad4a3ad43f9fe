//! The final release of a job, and when it is forgotten.

use penstock_exec::JobId;
use penstock_exec::protocol::{Message as ReaperMessage, Request};
use penstock_exec::service::journal::JournalContents;
use penstock_flux::errno;
use penstock_wire::Message;

use crate::world::{BEYOND_ALL_TIMEOUTS_S, World, exited, submit};

#[test]
fn a_release_that_was_lost_is_repeated() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(2));
    while world.deliver_from_reaper() {}
    // `finish` and `release` are under way.
    world.lose_connection();
    world.connect();
    world.run();
    assert_eq!(
        world.answers(1),
        ["start", "reattached", "finish", "release"]
    );
    assert_eq!(world.job(1).statuses, [2 << 8]);
    assert!(world.job(1).notes.is_empty());
}

#[test]
fn jobs_are_forgotten_after_an_acknowledgement_was_lost() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(0));
    while world.deliver_from_reaper() || world.deliver_to_manager() {}
    assert!(world.job(1).is_released);
    world.lose_connection();
    world.connect();
    submit(&mut world, 2, 1);
    world.run();
    world.end_process(0, exited(0));
    world.run();
    assert!(world.job(2).is_released);
    assert_eq!(world.service().jobs(), 0);
    assert!(world.kernel.log().jobs.is_empty());
}

/// Delivers what is under way, and lets the clock advance, until the acknowledgement of job 1's release is the next message to the service.
fn await_acknowledgement(world: &mut World) {
    while world.deliver_from_reaper() || world.deliver_to_manager() || world.deliver_to_service() {}
    assert!(world.job(1).is_released);
    world.await_barrier();
    assert!(world.deliver_to_manager());
    assert_eq!(world.to_service.len(), 1);
}

#[test]
fn a_start_request_that_comes_before_the_acknowledgement_of_the_release_is_answered() {
    for is_start_first in [true, false] {
        let mut world = World::with_running_job();
        world.end_process(0, exited(3));
        await_acknowledgement(&mut world);
        submit(&mut world, 1, 1);
        if !is_start_first {
            world.to_service.rotate_left(1);
        }
        // Both are read at once: the service takes the next steps of jobs after the second.
        world.deliver_one_to_service();
        world.deliver_one_to_service();
        world.run_service();
        world.run();
        if world.job(1).statuses.is_empty() {
            world.end_process(0, exited(3));
            world.run();
        }
        assert_eq!(world.answers(1), ["start", "finish", "release"]);
        assert_eq!(world.job(1).statuses, [3 << 8]);
        assert_eq!(world.service().jobs(), 0);
        assert!(world.kernel.log().jobs.is_empty());
    }
}

#[test]
fn a_job_that_is_released_again_is_forgotten_after_the_second_acknowledgement() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(3));
    await_acknowledgement(&mut world);
    let first = world.to_service.pop_front().expect("an acknowledgement");
    submit(&mut world, 1, 1);
    while world.deliver_to_service() || world.deliver_to_manager() {}
    assert!(world.job(1).is_released);
    world.to_service.push_back(first);
    world.deliver_to_service();
    assert_eq!(world.service().jobs(), 1);
    world.run();
    assert_eq!(world.service().jobs(), 0);
}

#[test]
fn a_job_that_a_failed_job_manager_has_not_recorded_is_reported_again() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(2));
    while world.deliver_from_reaper() {}
    world.to_manager.clear();
    world.advance(0.2);
    let barrier = world.to_manager.pop_back().expect("a barrier");
    assert_eq!(barrier.topic(), "job-manager.ping");
    let rejected = Message::error_to(&barrier, errno::ENOSPC, "the disk is full");
    world.to_service.push_back(rejected);
    world.deliver_to_service();
    assert_eq!(world.service().jobs(), 1);
    world.lose_connection();
    world.connect();
    world.run();
    assert_eq!(world.job(1).statuses, [2 << 8]);
    assert!(world.job(1).is_released && world.job(1).notes.is_empty());
    assert_eq!(world.service().jobs(), 0);
}

#[test]
fn a_job_that_the_instance_does_not_ask_for_is_forgotten_when_it_has_ended() {
    let mut world = World::with_running_job();
    world.lose_connection();
    world.job_mut(1).is_released = true;
    world.connect();
    world.run();
    assert_eq!(world.service().jobs(), 1);
    assert_eq!(world.kernel.processes.len(), 1, "it is left alone");
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.service().jobs(), 0);
    let journal = JournalContents::decode(&world.journal).expect("valid");
    assert!(journal.jobs.is_empty(), "{journal:?}");
    assert!(world.kernel.log().jobs.is_empty());
}

#[test]
fn a_job_that_the_reaper_cannot_forget_is_killed_and_forgotten() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(0));
    while world.to_reaper.is_empty() {
        if !(world.deliver_from_reaper()
            || world.deliver_to_manager()
            || world.deliver_to_service())
        {
            world.await_barrier();
        }
    }
    let jobs = vec![JobId::new(1)];
    let (to, id, request) = world.to_reaper.pop_front().expect("one");
    assert_eq!(request, Request::Forget(jobs.clone()));
    // It has found a process.
    let errno = libc::EBUSY;
    world
        .from_reaper
        .push_back((to, ReaperMessage::Done { id, errno }));
    world.deliver_from_reaper();
    let (_, _, request) = world.to_reaper.pop_front().expect("one");
    assert_eq!(request, Request::Kill(jobs.clone()));
    let empty = penstock_exec::protocol::Event::Empty { job: JobId::new(1) };
    world
        .from_reaper
        .push_back((to, ReaperMessage::Events(vec![empty])));
    world.deliver_from_reaper();
    let (_, _, request) = world.to_reaper.pop_front().expect("one");
    assert_eq!(request, Request::Forget(jobs));
}

#[test]
fn one_barrier_acknowledges_all_jobs_of_an_interval() {
    let mut world = World::new();
    for id in 1..=3 {
        submit(&mut world, id, 1);
    }
    world.run();
    let release = |world: &mut World| {
        world.end_process(0, exited(0));
        while world.deliver_from_reaper() || world.deliver_to_service() {}
    };
    let barriers = |world: &World| {
        let messages = world.to_manager.iter();
        let barriers = messages.filter(|message| message.topic() == "job-manager.ping");
        barriers.count()
    };
    release(&mut world);
    world.advance(0.05);
    release(&mut world);
    assert_eq!(barriers(&world), 0);
    world.advance(0.06);
    assert_eq!(barriers(&world), 1);
    release(&mut world);
    world.advance(1.0);
    assert_eq!(barriers(&world), 1, "one is outstanding");
    world.run();
    assert_eq!(world.service().jobs(), 0);
}

#[test]
fn a_job_that_is_acknowledged_while_the_reaper_lists_is_forgotten() {
    let mut world = World::with_running_job();
    world.end_process(0, exited(0));
    while world.deliver_from_reaper() {}
    while world.deliver_to_manager() {}
    // The service has the final release under way to be acknowledged, and gets another reaper.
    world.advance(BEYOND_ALL_TIMEOUTS_S);
    while world.deliver_to_manager() {}
    world.crash_reaper();
    world.connect_reaper();
    while world.deliver_to_reaper() {}
    // The list's events have arrived, its end has not.
    while world.from_reaper.len() > 1 {
        world.deliver_from_reaper();
    }
    while world.deliver_to_service() {}
    world.run();
    assert!(world.kernel.log().jobs.is_empty());
}
