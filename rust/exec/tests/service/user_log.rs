//! The rate limit of the log's lines about the jobs of users.

use penstock_exec::service::{GuestSettings, MAX_USER_LINES, USER_LINES_PERIOD_S};

use crate::job_manager::{jobspec, resources};
use crate::world::{OWNER, World};

const GUEST: u32 = 1001;

/// A world in which this many jobs of a guest run, and one of the owner: the last.
fn with_jobs_of_a_guest(count: u64) -> World {
    let mut world = World::new();
    world.settings.guests = Some(GuestSettings {
        min_uid: GUEST,
        no_new_privs: true,
    });
    world.crash_service(0, 0);
    world.restart();
    for id in 1..=count + 1 {
        let user = if id <= count { GUEST } else { OWNER };
        world.submit_as(user, id, jobspec(1, &["true"]), Some(resources(1)));
    }
    world.run();
    world
}

#[test]
fn lines_about_the_jobs_of_a_user_are_limited_and_the_suppressed_ones_are_counted() {
    let count = u64::from(MAX_USER_LINES) + 7;
    let mut world = with_jobs_of_a_guest(count);
    // A second request for a job is not answered but logged.
    for id in 1..=count + 1 {
        world.send_start(id);
    }
    while world.deliver_to_service() {}
    let about = |world: &World, text: &str| {
        let lines = world.logged.iter().filter(|line| line.contains(text));
        lines.count()
    };
    assert_eq!(about(&world, "is running already"), 21);
    let last = format!("job {} is running", penstock_exec::JobId::new(count + 1));
    assert_eq!(about(&world, &last), 1, "{:?}", world.logged);
    assert_eq!(about(&world, "suppressed"), 0);
    assert!(world.service().deadline().is_some());
    // The clock is set back: the period is not longer.
    world.now -= 1000.0;
    world.advance(0.0);
    world.advance(USER_LINES_PERIOD_S + 0.1);
    world.run_service();
    let line = world.logged.last().map(String::as_str);
    let expected = format!("user {GUEST}: 7 more lines about jobs were suppressed");
    assert_eq!(line, Some(expected.as_str()));
    world.send_start(1);
    while world.deliver_to_service() {}
    assert_eq!(about(&world, "is running already"), 22);
}

#[test]
fn a_line_about_a_job_is_short() {
    let mut world = World::new();
    world.service_mut().log_user(GUEST, &"x".repeat(4000));
    world.run_service();
    let line = world.logged.last().expect("a line");
    assert!(line.len() < 300, "{}", line.len());
}
