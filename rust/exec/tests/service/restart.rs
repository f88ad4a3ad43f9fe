//! Restarts of the service, the instance, the reaper and the machine.

use penstock_exec::service::journal::{self, JournalContents, JournalId};
use penstock_exec::{BootId, JobId};

use crate::world::{URI, World, exited, submit};

#[test]
fn a_killed_service_reattaches_and_reports_what_has_ended_meanwhile() {
    let mut world = World::new();
    submit(&mut world, 1, 1);
    submit(&mut world, 2, 1);
    world.run();
    world.crash_service(0, 0);
    world.end_process(0, exited(7));
    world.restart();
    let reported = ["start", "reattached", "finish", "release"];
    assert_eq!(world.answers(1), reported);
    assert_eq!(world.job(1).statuses, [7 << 8]);
    assert_eq!(world.answers(2), reported[..2]);
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.answers(2), reported);
    assert_eq!(world.kernel.spawned.len(), 2);
}

#[test]
fn an_instance_that_comes_back_learns_what_has_ended_meanwhile() {
    let mut world = World::with_running_job();
    world.lose_connection();
    world.end_process(0, exited(2));
    world.run();
    world.connect();
    world.run();
    let reported = ["start", "reattached", "finish", "release"];
    assert_eq!(world.answers(1), reported);
    assert_eq!(world.job(1).statuses, [2 << 8]);
}

#[test]
fn a_task_that_the_reaper_has_lost_is_not_started_again() {
    let mut world = World::with_running_job();
    world.crash_reaper();
    world.kernel.log.clear();
    world.run();
    assert_eq!(world.kernel.spawned.len(), 1);
    assert_eq!(world.answers(1), ["start", "exception", "release"]);
}

#[test]
fn an_intent_that_the_reaper_does_not_know_is_carried_out() {
    let mut world = World::new();
    submit(&mut world, 1, 2);
    world.deliver_one_to_service();
    // Space is measured, and only the journal is written.
    world.crash_service(2, 0);
    let journal = JournalContents::decode(&world.journal).expect("valid");
    assert!(journal.jobs.contains_key(&JobId::new(1)));
    assert!(world.to_reaper.is_empty());
    world.restart();
    assert_eq!(world.answers(1), ["start"]);
    assert_eq!(world.kernel.spawned.len(), 2);
}

#[test]
fn a_cancelled_job_that_only_the_journal_knows_is_not_started() {
    let mut world = World::new();
    submit(&mut world, 1, 1);
    world.deliver_one_to_service();
    world.crash_service(2, 0);
    world.cancel(1);
    // The reaper's list is there before the start request, and that before the exception.
    world.start_service();
    world.connect_reaper();
    world.run();
    world.restart();
    assert_eq!(world.answers(1), ["release"]);
    assert!(world.kernel.spawned.is_empty());
}

#[test]
fn a_job_that_a_killed_service_has_not_recorded_is_started_by_the_next_one() {
    let mut world = World::new();
    submit(&mut world, 1, 1);
    world.deliver_one_to_service();
    world.crash_service(0, 3);
    world.restart();
    assert_eq!(world.answers(1), ["start"]);
    world.end_process(0, exited(3));
    world.run();
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert_eq!(world.kernel.spawned.len(), 1);
}

/// A new journal, and one that a power failure may have cut off.
#[test]
fn a_job_without_a_record_in_another_journal_is_not_started_a_second_time() {
    for reboots in [false, true] {
        let mut world = World::new();
        submit(&mut world, 1, 1);
        world.deliver_one_to_service();
        world.crash_service(0, 3);
        if reboots {
            world.reaper = None;
            world.settings.boot = BootId(43);
        } else {
            world.journal = journal::header(URI, JournalId(8));
        }
        world.restart();
        check_is_lost(&world);
    }
}

fn check_is_lost(world: &World) {
    assert_eq!(world.answers(1), ["exception", "release"]);
    let note = "lost: the execution service has no record of the job's start";
    assert_eq!(world.job(1).notes, [note]);
    assert!(world.kernel.spawned.is_empty());
}

#[test]
fn requests_that_a_killed_service_has_left_are_not_repeated() {
    let mut world = World::new();
    submit(&mut world, 1, 3);
    assert!(world.deliver_to_service());
    assert_eq!(world.to_reaper.len(), 1);
    world.crash_service(0, 0);
    world.restart();
    assert_eq!(world.answers(1), ["reattached"]);
    assert_eq!(world.kernel.spawned.len(), 3);
}

#[test]
fn after_a_reboot_an_exception_says_so() {
    let mut world = World::new();
    submit(&mut world, 1, 1);
    submit(&mut world, 2, 1);
    world.run();
    world.end_process(1, exited(4));
    world.crash_service(0, 0);
    world.reaper = None;
    world.kernel.processes.clear();
    world.settings.boot = BootId(43);
    world.restart();
    let note = "the machine was rebooted while the job ran";
    assert_eq!(world.job(1).notes, [note]);
    assert_eq!(world.answers(1), ["start", "exception", "release"]);
    // The end of the second job was recorded before.
    assert_eq!(world.job(2).statuses, [4 << 8]);
    assert!(world.job(2).notes.is_empty());
    world.run();
    assert!(
        JournalContents::decode(&world.journal)
            .expect("valid")
            .jobs
            .is_empty()
    );
}

#[test]
fn the_status_of_a_task_whose_reaper_was_killed_is_not_invented() {
    let mut world = World::with_running_job();
    world.crash_reaper();
    world.connect_reaper();
    world.end_process(0, exited(0));
    world.run();
    assert_eq!(world.answers(1), ["start", "exception", "release"]);
    let note = "the wait status of task 0 is lost: the reaper was killed";
    assert_eq!(world.job(1).notes, [note]);
}
