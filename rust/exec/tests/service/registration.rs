//! Registration with the instance, replacement, settings at run time.

use penstock_exec::protocol::Request;
use penstock_exec::service::Effect;
use penstock_exec::service::journal::JournalContents;
use penstock_exec::{ConnectionId, JobId};
use penstock_wire::Message;
use serde_json::{Value, json};

use crate::world::World;

#[test]
fn the_first_error_of_a_registration_is_reported() {
    let mut world = World::new();
    world.lose_connection();
    let now = world.now;
    let service = world.service_mut();
    service.register();
    service.advance_jobs(now);
    let errors = [(17, "it is taken"), (0, ""), (1, "it is not yours")].into_iter();
    for (effect, (errnum, text)) in service.take_effects().into_iter().zip(errors) {
        if let Effect::Send(request) = effect {
            service.handle(&Message::error_to(&request, errnum, text));
        }
    }
    let failure = service.failure().expect("rejected");
    let expected = "service.add failed: File exists: it is taken\nhint: ";
    assert!(failure.starts_with(expected), "{failure}");
}

#[test]
fn a_name_that_is_taken_is_free_at_another_attempt() {
    let mut world = World::new();
    world.settings.end_when_idle = true;
    world.crash_service(0, 0);
    world.start_service();
    world.connect_reaper();
    let service = world.service.as_mut().expect("started");
    service.register();
    service.advance_jobs(world.now);
    for effect in service.take_effects() {
        if let Effect::Send(request) = effect {
            service.handle(&Message::error_to(&request, 17, "it is taken"));
        }
    }
    assert!(service.is_name_taken());
    service.handle_disconnect();
    service.advance_jobs(world.now);
    assert!(!service.is_finished());
    world.connect();
    world.run();
    let service = world.service();
    assert!(service.is_synchronized() && service.failure().is_none());
}

#[test]
fn a_replaced_service_ends_its_jobs_without_further_responses() {
    let mut world = World::with_running_job();
    let replaced = World::request("job-exec.replaced", &json!({"service": "other"}));
    world.to_service.push_back(replaced);
    world.run();
    assert!(world.kernel.processes.is_empty());
    assert_eq!(world.answers(1), ["start"]);
    assert!(
        JournalContents::decode(&world.journal)
            .expect("valid")
            .jobs
            .is_empty()
    );
}

#[test]
fn settings_are_changed_at_run_time() {
    let mut world = World::with_running_job();
    let reload = |world: &mut World, payload: &Value| {
        let request = World::request("job-exec.config-reload", payload);
        let now = world.now;
        let service = world.service_mut();
        service.handle(&request.with_matchtag(7));
        service.advance_jobs(now);
        let effects = service.take_effects();
        let is_measured = effects.contains(&Effect::MeasureOutput(JobId::new(1)));
        let response = effects.into_iter().find_map(|effect| match effect {
            Effect::Send(message) if message.matchtag == 7 => Some(message),
            _ => None,
        });
        let response = response.expect("a response");
        let text = response.error_text().unwrap_or_default().into_owned();
        (response.errnum(), text, is_measured)
    };
    let invalid = |text: &str| (penstock_flux::errno::EINVAL, text.to_owned(), false);
    let malformed = |text: &str| (penstock_flux::errno::EPROTO, text.to_owned(), false);
    let seconds = json!({"kill-timeout": -1.0, "output-limit": 5});
    let text = "invalid `kill-timeout` -1: expected 0 or more seconds";
    assert_eq!(reload(&mut world, &seconds), invalid(text));
    let text = "job-exec.config-reload: `output-limit`: expected a non-negative integer, found integer `-5`";
    assert_eq!(
        reload(&mut world, &json!({"output-limit": -5})),
        malformed(text)
    );
    let text = "job-exec.config-reload: `kill-timeout`: expected a number, found string \"5s\"";
    assert_eq!(
        reload(&mut world, &json!({"kill-timeout": "5s"})),
        malformed(text)
    );
    let valid = (0, String::new(), true);
    let settings = json!({"kill-timeout": 1.5, "output-limit": 100, "later": []});
    assert_eq!(reload(&mut world, &settings), valid);
    world.service_mut().take_output_size(JobId::new(1), 101);
    let is_kill =
        |(_, _, request): &(ConnectionId, u32, Request)| matches!(request, Request::Kill(_));
    world.run_service();
    assert!(!world.to_reaper.iter().any(is_kill));
    world.advance(1.5);
    assert!(world.to_reaper.iter().any(is_kill));
    world.run();
    assert!(world.job(1).notes[0].starts_with("more than 100 bytes of output"));
    // No limit.
    assert_eq!(
        reload(&mut world, &json!({"output-limit": 0})),
        (0, String::new(), false)
    );
}
