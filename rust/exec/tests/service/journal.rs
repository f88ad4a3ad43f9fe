//! A journal that cannot be written.

use penstock_exec::service::journal::JournalContents;

use crate::world::{World, exited, submit};

#[test]
fn running_jobs_end_and_are_cancelled_while_the_journal_cannot_be_written() {
    let mut world = World::new();
    for id in 1..=3 {
        submit(&mut world, id, 1);
    }
    world.run();
    world.is_journal_full = true;
    submit(&mut world, 4, 1);
    world.run();
    assert_eq!(world.answers(4), Vec::<&str>::new());
    world.end_process(0, exited(3));
    world.cancel(2);
    world.run();
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert_eq!(world.job(2).statuses, [15]);
    for id in [1, 2] {
        assert_eq!(world.answers(id), ["start", "finish", "release"]);
    }
    submit(&mut world, 5, 1);
    submit(&mut world, 6, 1);
    world.advance(1.0);
    world.cancel(5);
    world.run();
    // It was never started.
    assert_eq!(world.answers(5), ["release"]);
    let (first, last) = (
        "cannot write the journal: no storage space: no job starts until that succeeds",
        "the journal can be written again",
    );
    assert_eq!(world.logged, [first]);
    world.is_journal_full = false;
    world.run();
    assert_eq!(world.kernel.spawned.len(), 3, "the time has not come");
    world.advance(1.0);
    world.run();
    assert_eq!(world.logged, [first, last]);
    for id in [4, 6] {
        assert_eq!(world.answers(id), ["start"]);
    }
    world.wind_up();
    world.check();
    assert_eq!(world.kernel.spawned.len(), 5);
}

#[test]
fn a_job_is_forgotten_by_the_journal_first() {
    let mut world = World::with_running_job();
    world.is_journal_full = true;
    world.end_process(0, exited(0));
    world.run();
    assert!(world.job(1).is_released);
    assert!(!world.kernel.log().jobs.is_empty());
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    world.check();
}

#[test]
fn a_journal_that_cannot_be_replaced_at_first_delays_all_starts() {
    let mut world = World::new();
    world.crash_service(0, 0);
    world.is_journal_full = true;
    world.restart();
    submit(&mut world, 1, 1);
    world.run();
    assert_eq!(world.answers(1), Vec::<&str>::new());
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    assert_eq!(world.answers(1), ["start"]);
    // Nothing was appended to the torn tail of the earlier service.
    assert!(
        !JournalContents::decode(&world.journal)
            .expect("valid")
            .is_torn
    );
}
