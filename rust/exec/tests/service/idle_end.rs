//! The end of a service of no use.

use penstock_exec::JobId;
use penstock_exec::protocol::{Message as ReaperMessage, Request};

use crate::world::{World, exited, submit};

#[test]
fn a_service_of_no_use_ends_and_the_next_one_reports() {
    let mut world = World::new();
    world.settings.end_when_idle = true;
    world.crash_service(0, 0);
    world.restart();
    submit(&mut world, 1, 1);
    submit(&mut world, 2, 1);
    world.run();
    let is_finished = |world: &World| world.service().is_finished();
    world.end_process(0, exited(3));
    while world.deliver_from_reaper() {}
    world.lose_connection();
    world.run();
    assert!(!is_finished(&world), "a task runs");
    world.end_process(0, exited(4));
    world.run();
    assert!(is_finished(&world));
    assert!(world.reaper.as_ref().expect("it ran").is_finished());
    world.service = None;
    world.reaper = None;
    world.restart();
    let reported = ["start", "reattached", "finish", "release"];
    for (id, code) in [(1, 3), (2, 4)] {
        assert_eq!(world.answers(id), reported);
        assert_eq!(world.job(id).statuses, [code << 8]);
    }
    assert!(!is_finished(&world), "the instance is there");
}

#[test]
fn a_reaper_with_a_process_of_an_ended_job_delays_the_end_of_the_service() {
    let mut world = World::new();
    world.settings.end_when_idle = true;
    world.crash_service(0, 0);
    world.restart();
    world.lose_connection();
    let (to, id, request) = world.to_reaper.pop_front().expect("one");
    assert_eq!(request, Request::Shutdown);
    let errno = libc::EBUSY;
    let rejection = ReaperMessage::Done { id, errno };
    world.from_reaper.push_back((to, rejection));
    world.deliver_from_reaper();
    assert!(
        world.to_reaper.is_empty(),
        "it is not requested again at once"
    );
    let empty = penstock_exec::protocol::Event::Empty { job: JobId::new(1) };
    world
        .from_reaper
        .push_back((to, ReaperMessage::Events(vec![empty])));
    world.run();
    assert!(world.service().is_finished());
}

#[test]
fn a_service_does_not_end_before_its_journal_is_written() {
    let mut world = World::new();
    world.settings.end_when_idle = true;
    world.crash_service(0, 0);
    world.restart();
    submit(&mut world, 1, 1);
    world.run();
    world.is_journal_full = true;
    world.end_process(0, exited(0));
    world.run();
    world.lose_connection();
    world.run();
    let is_finished = |world: &World| world.service().is_finished();
    assert!(!is_finished(&world));
    world.is_journal_full = false;
    world.advance(1.0);
    world.run();
    assert!(is_finished(&world));
}
