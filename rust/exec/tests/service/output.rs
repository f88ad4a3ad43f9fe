//! Retained output, output files, and the limit of output.

use std::ffi::CString;

use penstock_exec::JobId;
use penstock_exec::protocol::{Output, TaskSpec};
use penstock_exec::service::{Chunk, Effect};
use penstock_flux::{errno, flags, role};
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

use crate::job_manager::{jobspec, resources};
use crate::world::{OWNER, World, exited, submit};

/// A user whose requests for output are looked up first.
const GUEST: u32 = 4000;

#[test]
fn output_templates_are_filled_in() {
    let mut world = World::new();
    let mut spec = jobspec(2, &["/bin/true"]);
    let path = "{{name}}-{{ id.dec }}-{{taskid}}-{{node.name}}-{x}{{y";
    spec["attributes"]["system"]["shell"] =
        json!({"options": {"output": {"stdout": {"type": "file", "path": path}}}});
    world.submit(1, spec, Some(resources(2)));
    world.deliver_to_service();
    let [first, second] = <[TaskSpec; 2]>::try_from(world.requested()).expect("two");
    let path =
        |rank: u32| CString::new(format!("/work/true-1-{rank}-n3-{{x}}{{{{y")).expect("text");
    assert_eq!(first.stdout, Output::Truncate(path(0)));
    assert_eq!(second.stdout, Output::Truncate(path(1)));
    assert_eq!(second.stderr, Output::SameAsStdout);
}

#[test]
fn variables_of_env_expand_are_templates() {
    let mut world = World::new();
    let mut spec = jobspec(2, &["/bin/true"]);
    spec["attributes"]["system"]["environment"] = json!({"TEXT": "given"});
    spec["attributes"]["system"]["shell"] = json!({"options": {"env-expand": {
        "FLUX_JOB_ID": "of the job",
        "SIZES": "{{size}} {{ntasks}} {{nnodes}}",
        "TASK": "{{task.id}} {{task.rank}} {{taskid}} {{task.index}} {{task.localid}}",
        "NODE": "{{node.broker_rank}} {{node.cores}} {{node.ncores}} {{node.gpus}}",
        "TEXT": "{{id.dothex}} {{other}}",
    }}});
    world.submit(1, spec, Some(resources(2)));
    world.deliver_to_service();
    for (rank, task) in world.requested().iter().enumerate() {
        let has = |entry: &str| {
            let entry = CString::new(entry).expect("text");
            assert!(task.environment.contains(&entry), "{entry:?}");
        };
        has("SIZES=2 2 1");
        has(&format!("TASK={rank} {rank} {rank} {rank} {rank}"));
        has("NODE=3 0-1 2 ");
        has("TEXT=0000.0000.0000.0001 {{other}}");
        has(&format!("FLUX_JOB_ID={}", JobId::new(1).f58()));
    }
}

#[test]
fn a_job_that_writes_too_much_is_ended() {
    let mut world = World::with_running_job();
    let service = world.service_mut();
    service.take_output_size(JobId::new(1), 1000);
    service.take_output_size(JobId::new(1), 1001);
    world.run();
    world.run_service();
    world.run();
    assert!(world.job(1).notes[0].starts_with("more than 1000 bytes of output"));
    assert_eq!(world.job(1).statuses, [15]);
}

#[test]
fn output_is_followed_to_the_end_of_its_job() {
    let mut world = World::with_running_job();
    let file = world.files.entry((1, "stdout")).or_default();
    file.extend_from_slice(b"one");
    let output = World::request("job-exec.output", &json!({"id": 1, "follow": true}));
    let flags = output.flags | flags::STREAMING;
    world
        .service_mut()
        .handle(&output.with_flags(flags).with_matchtag(9));
    let mut texts = Vec::new();
    let collect = |world: &mut World, texts: &mut Vec<Value>| {
        world.run_service();
        while let Some(message) = world.to_manager.pop_front() {
            if message.topic() == "job-exec.output" {
                let errnum = message.errnum();
                texts.push(if errnum == 0 {
                    message.read().expect("JSON")
                } else {
                    json!(errnum)
                });
            } else {
                world.manage(&message);
            }
        }
    };
    collect(&mut world, &mut texts);
    assert_eq!(texts, [json!({"stream": "stdout", "data": "b25l"})]);
    let file = world.files.get_mut(&(1, "stdout")).expect("there");
    file.extend_from_slice(b"two");
    world.end_process(0, exited(0));
    while world.deliver_from_reaper() {}
    world.advance(1.0);
    collect(&mut world, &mut texts);
    let rest = [
        json!({"stream": "stdout", "data": "dHdv"}),
        json!(penstock_flux::errno::ENODATA),
    ];
    assert_eq!(texts[1..], rest);
}

/// A request of a client, whose connection has this name.
fn request_of(client: &str, method: &str, payload: &Value) -> Message {
    let mut request = Message::request(&format!("job-exec.{method}"), &payload.to_string());
    request.userid = OWNER;
    request.rolemask = role::OWNER;
    request.push_route(client.as_bytes());
    request.push_route(b"broker");
    request
}

fn following(client: &str, matchtag: u32) -> Message {
    let request = request_of(client, "output", &json!({"id": 1, "follow": true}));
    request.with_matchtag(matchtag).streaming()
}

fn cancelling(client: &str, matchtag: u32) -> Message {
    request_of(client, "output-cancel", &json!({"matchtag": matchtag}))
}

fn disconnecting(client: &str) -> Message {
    let request = request_of(client, "disconnect", &json!({}));
    let flags = request.flags | flags::NORESPONSE;
    request.with_flags(flags)
}

fn as_guest(mut request: Message) -> Message {
    request.userid = GUEST;
    request.rolemask = role::USER;
    request
}

/// Handles messages, and takes what the service sends.
fn handle(world: &mut World, messages: &[Message]) -> Vec<Message> {
    for message in messages {
        world.service_mut().handle(message);
        world.run_service();
    }
    world.run_service();
    world.to_manager.drain(..).collect()
}

/// Lets idle readers look again, and takes what the service sends.
fn poll(world: &mut World) -> Vec<Message> {
    let now = world.now + 1.0;
    world.service_mut().advance(now);
    handle(world, &[])
}

fn described(messages: &[Message]) -> Vec<String> {
    let text = |message: &Message| match message.kind {
        MessageType::Response => {
            let client = String::from_utf8_lossy(message.origin().unwrap_or_default());
            format!("{client} {} {}", message.matchtag, message.errnum())
        }
        _ => message.topic().to_owned(),
    };
    messages.iter().map(text).collect()
}

fn ended(request: &Message, errnum: u32, text: &str) -> Message {
    Message::error_to(request, errnum, text)
}

fn followers(world: &mut World) -> Value {
    let request = request_of("other", "stats-get", &json!({}));
    let responses = handle(world, &[request]);
    let stats: Value = responses[0].read().expect("JSON");
    stats["followers"].clone()
}

/// The response to the request for the user of a job: it is the guest's.
fn user_response(lookup: &Message) -> Message {
    assert_eq!(lookup.topic(), "job-list.list-id");
    let payload = json!({"job": {"userid": GUEST}}).to_string();
    Message::response_to(lookup, 0, Some(Message::json_payload(&payload)))
}

#[test]
fn the_followers_of_a_job_share_one_wait_that_ends_with_the_last() {
    let mut world = World::new();
    let first = handle(&mut world, &[following("one", 7)]);
    assert_eq!(described(&first), ["job-list.wait"]);
    let wait = &first[0];
    let more = [following("one", 8), following("two", 7)];
    assert!(handle(&mut world, &more).is_empty());

    // Some are left.
    let responses = handle(&mut world, &[cancelling("one", 7)]);
    assert_eq!(described(&responses), ["one 7 61", "one 0 0"]);
    assert!(handle(&mut world, &[disconnecting("one")]).is_empty());

    let cancelled = handle(&mut world, &[disconnecting("two")]);
    assert_eq!(described(&cancelled), ["job-list.wait-cancel"]);
    assert!(cancelled[0].is_noresponse());
    let payload: Value = cancelled[0].read().expect("JSON");
    assert_eq!(payload, json!({"matchtag": wait.matchtag}));

    // Another follower has another wait, which the end of the first one leaves.
    let again = handle(&mut world, &[following("one", 9)]);
    assert_eq!(described(&again), ["job-list.wait"]);
    assert_ne!(again[0].matchtag, wait.matchtag);
    let late = handle(&mut world, &[ended(wait, errno::ENODATA, "")]);
    assert!(late.is_empty(), "{late:?}");
    assert!(handle(&mut world, &[ended(&again[0], errno::ENODATA, "")]).is_empty());
    assert_eq!(described(&poll(&mut world)), ["one 9 61"]);
    assert_eq!(followers(&mut world), 0);
}

#[test]
fn output_that_is_looked_for_while_its_job_starts_is_followed() {
    for is_start_reported in [false, true] {
        let mut world = World::new();
        let now = world.now;
        world.service_mut().handle(&following("one", 7));
        world.service_mut().advance_jobs(now);
        // The files are looked for before the job has made the first, and after it has made the second.
        let reads: Vec<_> = world.service_mut().take_effects();
        submit(&mut world, 1, 1);
        world.run_service();
        while world.deliver_to_service() {}
        let deliver_all = |world: &mut World| {
            while world.deliver_to_reaper() || world.deliver_from_reaper() {}
        };
        if is_start_reported {
            deliver_all(&mut world);
        }
        for (read, chunk) in reads.iter().zip([Chunk::Missing, Chunk::Data(Vec::new())]) {
            let Effect::ReadOutput { reader, .. } = read else {
                panic!("{read:?}");
            };
            world.service_mut().take_output_chunk(*reader, chunk);
        }
        world.run_service();
        deliver_all(&mut world);
        world.files.insert((1, "stdout"), b"one".to_vec());
        world.files.insert((1, "stderr"), Vec::new());
        let mut sent: Vec<Message> = world.to_manager.drain(..).collect();
        sent.extend(poll(&mut world));
        let of_output = |message: &&Message| message.topic() == "job-exec.output";
        let output: Vec<Message> = sent.iter().filter(of_output).cloned().collect();
        assert_eq!(described(&output), ["one 7 0"]);
        assert_eq!(output[0].read::<Value>().expect("JSON")["data"], "b25l");
        assert_eq!(followers(&mut world), 1);
    }
}

#[test]
fn a_wait_ends_when_its_job_starts() {
    let mut world = World::new();
    let sent = handle(&mut world, &[following("one", 7)]);
    assert_eq!(described(&sent), ["job-list.wait"]);
    submit(&mut world, 1, 1);
    world.run_service();
    while world.deliver_to_service() || world.deliver_to_reaper() || world.deliver_from_reaper() {}
    let sent: Vec<_> = world.to_manager.drain(..).collect();
    let topics = described(&sent);
    assert!(
        topics.iter().any(|topic| topic == "job-list.wait-cancel"),
        "{topics:?}"
    );
    assert_eq!(followers(&mut world), 1);
}

#[test]
fn followers_get_the_error_of_a_wait_that_is_rejected() {
    let mut world = World::new();
    let sent = handle(&mut world, &[following("one", 7)]);
    let rejected = ended(&sent[0], errno::EAGAIN, "too many requests");
    let responses = handle(&mut world, &[rejected]);
    assert_eq!(described(&responses), ["one 7 113"]);
    let text = responses[0].error_text().expect("text");
    assert_eq!(text, "job-list.wait: too many requests");
    // The next follower waits again.
    let again = handle(&mut world, &[following("one", 7)]);
    assert_eq!(described(&again), ["job-list.wait"]);
}

#[test]
fn the_rows_of_a_wait_are_followed_by_its_end() {
    let mut world = World::new();
    let sent = handle(&mut world, &[following("one", 7)]);
    let row = Message::response_to(&sent[0], 0, Some(Message::json_payload(r#"{"jobs": []}"#)));
    assert!(handle(&mut world, &[row]).is_empty());
    assert_eq!(described(&poll(&mut world)), ["one 7 61"]);
    assert!(handle(&mut world, &[ended(&sent[0], errno::ENODATA, "")]).is_empty());
    assert_eq!(followers(&mut world), 0);
}

#[test]
fn a_client_that_leaves_withdraws_what_is_looked_up_for_it() {
    let mut world = World::with_running_job();
    world.to_manager.clear();
    let lookups = handle(
        &mut world,
        &[
            as_guest(following("one", 7)),
            as_guest(following("one", 8)),
            as_guest(following("two", 7)),
        ],
    );
    let lookup = "job-list.list-id";
    assert_eq!(described(&lookups), [lookup, lookup, lookup]);
    let cancelled = handle(&mut world, &[as_guest(cancelling("one", 7))]);
    assert_eq!(described(&cancelled), ["one 7 61", "one 0 0"]);
    assert!(handle(&mut world, &[as_guest(disconnecting("two"))]).is_empty());
    let found: Vec<_> = lookups.iter().map(user_response).collect();
    assert!(handle(&mut world, &found).is_empty());
    // Only the one that is left follows the output.
    assert_eq!(followers(&mut world), 1);
    assert!(handle(&mut world, &[disconnecting("one")]).is_empty());
    assert_eq!(followers(&mut world), 0);
}

#[test]
fn a_guests_request_that_cannot_follow_is_not_looked_up() {
    let mut world = World::new();
    let request = as_guest(request_of("one", "output", &json!({"id": 1})));
    let responses = handle(&mut world, &[request.with_matchtag(7)]);
    assert_eq!(described(&responses), ["one 7 71"]);
}
