//! The logs of a job's execution and output, its standard input, and directories of the key-value store, as clients of
//! Flux read and write them.

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::{Bench, OWNER, body, rejection, topics};
use penstock_flux::errno::{EAGAIN, EISDIR, ENODATA, ENOENT, ENOSYS, ENOTDIR, EPERM, EPIPE};
use penstock_flux::flags::STREAMING;
use penstock_jobspec::job_id::JobId;
use penstock_manager::Settings;
use penstock_rset::ResourceSet;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

const GUEST: u32 = 1001;

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    bench
}

fn watch(bench: &mut Bench, id: u64, path: &str) -> Vec<Message> {
    bench.stream(
        "job-info.eventlog-watch",
        &json!({"id": id, "path": path, "flags": 0}),
    )
}

/// The events in the responses of a watch: names and contexts.
fn events(out: &[Message]) -> Vec<(String, Value)> {
    let lines = out
        .iter()
        .filter(|message| message.topic() == "job-info.eventlog-watch" && message.errnum() == 0);
    lines
        .map(|message| event(body(message)["event"].as_str().unwrap()))
        .collect()
}

fn event(line: &str) -> (String, Value) {
    let event: Value = serde_json::from_str(line).unwrap();
    (
        event["name"].as_str().unwrap().to_owned(),
        event["context"].clone(),
    )
}

fn names(out: &[Message]) -> Vec<String> {
    events(out).into_iter().map(|(name, _)| name).collect()
}

/// The errnum that ends a stream.
fn end(out: &[Message]) -> u32 {
    let mut watched = out
        .iter()
        .filter(|message| message.topic() == "job-info.eventlog-watch");
    watched.next_back().map_or(0, Message::errnum)
}

fn output(bench: &mut Bench, request: &Message, stream: &str, data: &str) -> Vec<Message> {
    let payload = json!({"stream": stream, "data": data});
    let payload = Message::json_payload(&payload.to_string());
    bench.send(Message::response_to(request, 0, Some(payload)))
}

fn named<'a>(out: &'a [Message], topic: &str) -> &'a Message {
    let mut requests = out
        .iter()
        .filter(|message| message.kind == MessageType::Request);
    requests.find(|message| message.topic() == topic).unwrap()
}

#[test]
fn the_log_of_an_execution_follows_from_the_events_of_the_job() {
    let mut bench = bench();
    let (id, _) = bench.submit(&json!({}));
    let out = watch(&mut bench, id, "guest.exec.eventlog");
    assert!(out.is_empty(), "it waits for the start");
    bench.allocate(id);
    let out = bench.exec(id, "start", &json!({}));
    let expected = ["init", "starting", "shell.init", "shell.start"];
    assert_eq!(names(&out), expected);
    let shell = &events(&out)[2].1;
    assert_eq!(
        shell,
        &json!({"leader-rank": 0, "size": 2, "service": format!("job-shell.{id}")})
    );
    let map = &events(&out)[3].1;
    assert_eq!(
        map,
        &json!({"taskmap": {"version": 1, "map": [[0, 1, 1, 1]]}})
    );
    let out = bench.exec(id, "finish", &json!({"status": 256}));
    assert_eq!(
        events(&out),
        [("complete".to_owned(), json!({"status": 256}))]
    );
    let mut out = bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    out.extend(bench.answer("sched.free", &json!({"id": id})));
    assert_eq!((names(&out), end(&out)), (vec!["done".to_owned()], ENODATA));
    // The whole log, at once and by a lookup.
    let all = [
        "init",
        "starting",
        "shell.init",
        "shell.start",
        "complete",
        "done",
    ];
    let out = watch(&mut bench, id, "guest.exec.eventlog");
    assert_eq!(
        (names(&out), end(&out)),
        (all.map(str::to_owned).to_vec(), ENODATA)
    );
    let keys = json!({"id": id, "keys": ["guest.exec.eventlog"]});
    let out = bench.request("job-info.lookup", &keys);
    let found = body(&out[0]);
    let lines = found["guest.exec.eventlog"].as_str().unwrap().lines();
    assert_eq!(lines.map(|line| event(line).0).collect::<Vec<_>>(), all);
}

#[test]
fn the_log_of_an_execution_names_an_interactive_terminal() {
    for (option, expected) in [
        (json!({"interactive": 1}), json!("pty.0")),
        (json!({"interactive": 0}), Value::Null),
        (json!(1), Value::Null),
    ] {
        let mut bench = bench();
        let attributes = json!({"shell": {"options": {"pty": option}}});
        let (id, _) = bench.submit(&attributes);
        let out = watch(&mut bench, id, "guest.exec.eventlog");
        assert!(out.is_empty(), "it waits for the start");
        bench.allocate(id);
        let out = bench.exec(id, "start", &json!({}));
        assert_eq!(events(&out)[2].1["pty"], expected);
    }
}

#[test]
fn the_tasks_of_a_job_are_counted_and_not_listed() {
    let mut bench = bench();
    let tasks = |count: u64| {
        let option = json!({"type": "node", "count": count});
        json!({"shell": {"options": {"per-resource": option}}})
    };
    let (id, _) = bench.submit(&tasks(1 << 25));
    bench.allocate(id);
    let out = watch(&mut bench, id, "guest.exec.eventlog");
    assert!(out.is_empty(), "it waits for the start");
    let out = bench.exec(id, "start", &json!({}));
    let map = &events(&out)[3].1;
    let expected = json!({"taskmap": {"version": 1, "map": [[0, 2, 1 << 25, 1]]}});
    assert_eq!(map, &expected);
    let out = watch(&mut bench, id, "guest.output");
    let (name, header) = events(&out).remove(0);
    assert_eq!(
        (name.as_str(), &header["count"]["stdout"]),
        ("header", &json!(1 << 26))
    );
    let more = common::jobspec(&tasks((1 << 26) + 1));
    let out = bench.request("job-ingest.submit", &json!({"jobspec": more}));
    let (_, text) = rejection(&out);
    let expected = "attributes.system.shell.options.per-resource.count: expected at most 67108864 tasks, found 67108865";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_job_that_never_started_has_no_logs() {
    let mut bench = Bench::new();
    let (id, _) = bench.submit(&json!({}));
    bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    for path in ["guest.exec.eventlog", "guest.output"] {
        let out = watch(&mut bench, id, path);
        assert_eq!(rejection(&out).0, ENOENT, "{path}");
    }
    let wait = json!({"id": id, "path": "guest.exec.eventlog", "flags": 1});
    let out = bench.stream("job-info.eventlog-watch", &wait);
    assert_eq!(end(&out), ENODATA);
    let out = watch(&mut bench, id, "guest.other");
    let (errnum, text) = rejection(&out);
    assert_eq!(errnum, ENOENT);
    assert!(
        text.starts_with("unknown path `guest.other`: expected eventlog"),
        "{text}"
    );
}

#[test]
fn output_is_watched_by_way_of_the_execution_service() {
    let mut bench = bench();
    let id = bench.running(&json!({}));
    let out = watch(&mut bench, id, "guest.output");
    let tag = bench.tag();
    let request = named(&out, "job-exec.output").clone();
    assert_eq!(
        body(&request),
        json!({"id": id, "streams": ["stdout", "stderr"], "follow": true})
    );
    assert!(request.is_streaming());
    let header = &events(&out)[0];
    assert_eq!(
        (header.0.as_str(), &header.1["version"]),
        ("header", &json!(1))
    );
    let data = |stream: &str, text: &str| {
        let context = json!({"stream": stream, "rank": "0", "data": text});
        vec![("data".to_owned(), context)]
    };
    // "a" and the first of the two bytes of "é", then the second one.
    let out = output(&mut bench, &request, "stdout", "YcM=");
    assert_eq!(events(&out), data("stdout", "a"));
    let out = output(&mut bench, &request, "stderr", "ZQ==");
    assert_eq!(events(&out), data("stderr", "e"));
    let out = output(&mut bench, &request, "stdout", "qQ==");
    assert_eq!(events(&out), data("stdout", "é"));
    // A client labels each event: a line is an event.
    let out = output(&mut bench, &request, "stdout", &BASE64.encode("b\n\nc"));
    let lines = ["b\n", "\n", "c"].map(|line| data("stdout", line).remove(0));
    assert_eq!(events(&out), lines);
    let out = output(&mut bench, &request, "stdout", "/w==");
    let context = json!({"stream": "stdout", "rank": "0", "encoding": "base64", "data": "/w=="});
    assert_eq!(events(&out), [("data".to_owned(), context)]);
    let out = bench.send(Message::error_to(&request, ENODATA, ""));
    let eof = |stream: &str| {
        let context = json!({"stream": stream, "rank": "0", "eof": true});
        ("data".to_owned(), context)
    };
    assert_eq!(
        (events(&out), end(&out)),
        (vec![eof("stdout"), eof("stderr")], ENODATA)
    );
    assert!(out.iter().all(|message| message.matchtag == tag));
}

#[test]
fn labelled_output_has_the_rank_of_each_task() {
    let mut bench = bench();
    let shell = json!({"options": {"output": {"stdout": {"label": true}}}});
    let id = bench.running(&json!({"shell": shell}));
    let out = watch(&mut bench, id, "guest.output");
    let request = named(&out, "job-exec.output").clone();
    let mut send = |stream: &str, text: &str| {
        let out = output(&mut bench, &request, stream, &BASE64.encode(text));
        let context = |(_, context): (String, Value)| {
            let part = |key| context[key].as_str().unwrap().to_owned();
            (part("rank"), part("data"))
        };
        events(&out).into_iter().map(context).collect::<Vec<_>>()
    };
    let part = |rank: &str, data: &str| (rank.to_owned(), data.to_owned());
    assert_eq!(
        send("stdout", "1: a\n1: 2: b\n10: c\n0"),
        [part("1", "a\n"), part("1", "2: b\n"), part("10", "c\n")]
    );
    // A line without a label is of any task.
    let mixed = [part("0", "d\n"), part("0", "e\n"), part("3", "f\n")];
    assert_eq!(send("stdout", ": d\ne\n3: f\n"), mixed);
    assert_eq!(send("stderr", "1: a"), [part("0", "1: a")]);
    assert_eq!(send("stdout", "2: end"), []);
    let out = bench.send(Message::error_to(&request, ENODATA, ""));
    assert_eq!(
        events(&out)[0].1,
        json!({"stream": "stdout", "rank": "2", "data": "end"})
    );
}

#[test]
fn a_watch_of_output_that_is_cancelled_is_cancelled_at_the_service() {
    let mut bench = bench();
    let id = bench.running(&json!({}));
    let out = watch(&mut bench, id, "guest.output");
    let (tag, service_tag) = (bench.tag(), named(&out, "job-exec.output").matchtag);
    let cancel = json!({"matchtag": tag});
    let out = bench.request("job-info.eventlog-watch-cancel", &cancel);
    let sent = named(&out, "job-exec.output-cancel");
    assert_eq!(body(sent), json!({"matchtag": service_tag}));
    assert_eq!(end(&out), ENODATA);
    // A disconnect does the same.
    let out = watch(&mut bench, id, "guest.output");
    let service_tag = named(&out, "job-exec.output").matchtag;
    let out = bench.request_as("client", OWNER, "job-info.disconnect", &Value::Null, 4);
    let sent = named(&out, "job-exec.output-cancel");
    assert_eq!(body(sent), json!({"matchtag": service_tag}));
}

#[test]
fn a_lookup_of_output_is_answered_when_all_is_there() {
    let mut bench = bench();
    let id = bench.running(&json!({}));
    let keys = json!({"id": id, "keys": ["guest.output", "R"]});
    let out = bench.request("job-info.lookup", &keys);
    let request = named(&out, "job-exec.output").clone();
    assert_eq!(body(&request)["follow"], false);
    output(&mut bench, &request, "stdout", "YQ==");
    let out = bench.send(Message::error_to(&request, ENODATA, ""));
    let found = body(&out[0]);
    assert!(found["R"].is_string());
    let lines: Vec<_> = found["guest.output"]
        .as_str()
        .unwrap()
        .lines()
        .map(event)
        .collect();
    assert_eq!(
        lines
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        ["header", "data", "data", "data"]
    );
    assert_eq!(lines[1].1["data"], "a");
    // Simulated execution has no output.
    let out = bench.request("job-info.lookup", &keys);
    let request = named(&out, "job-exec.output").clone();
    let out = bench.send(Message::error_to(&request, ENOSYS, ""));
    assert_eq!(
        body(&out[0])["guest.output"]
            .as_str()
            .unwrap()
            .lines()
            .count(),
        3
    );
}

#[test]
fn the_output_that_lookups_of_a_guest_collect_at_a_time_is_limited() {
    let mut bench = Bench::with(Settings {
        guests: true,
        ..common::settings()
    });
    bench.scheduler(None);
    bench.executor();
    let payload = json!({"jobspec": common::jobspec(&json!({}))});
    let out = bench.request_as("guest", GUEST, "job-ingest.submit", &payload, 0);
    let id = body(&out[0])["id"].as_u64().unwrap();
    bench.allocate(id);
    bench.exec(id, "start", &json!({}));
    let keys = json!({"id": id, "keys": ["guest.output"]});
    let look_up = |bench: &mut Bench, client: &str, userid: u32| {
        let out = bench.request_as(client, userid, "job-info.lookup", &keys, 0);
        named(&out, "job-exec.output").clone()
    };
    // 15 MiB each: the fifth exceeds 64 MiB.
    let part = BASE64.encode("x".repeat(15 << 20));
    let mut lookups = Vec::new();
    for _ in 0..4 {
        let request = look_up(&mut bench, "guest", GUEST);
        assert_eq!(
            topics(&output(&mut bench, &request, "stdout", &part)),
            [""; 0]
        );
        lookups.push(request);
    }
    let other = look_up(&mut bench, "guest", GUEST);
    let out = output(&mut bench, &other, "stdout", &part);
    let (errnum, text) = rejection(&out);
    assert_eq!(errnum, EAGAIN);
    assert!(
        text.contains("by user 1001 have ") && text.contains("at most 67108864"),
        "{text}"
    );
    let cancel = body(named(&out, "job-exec.output-cancel"));
    assert_eq!(cancel, json!({"matchtag": other.matchtag}));
    let stats = bench.request("job-manager.stats-get", &json!({}));
    assert_eq!(body(&stats[0])["rejected"]["lookup_bytes"], 1);
    // The owner's are not limited.
    let request = look_up(&mut bench, "client", OWNER);
    assert_eq!(
        topics(&output(&mut bench, &request, "stdout", &part)),
        [""; 0]
    );
    // One that has ended counts no longer, nor do those of a client that has disconnected.
    let ended = lookups.pop().unwrap();
    let out = bench.send(Message::error_to(&ended, ENODATA, ""));
    assert_eq!(out[0].errnum(), 0);
    let again = look_up(&mut bench, "guest", GUEST);
    assert_eq!(
        topics(&output(&mut bench, &again, "stdout", &part)),
        [""; 0]
    );
    bench.request_as("guest", GUEST, "job-info.disconnect", &Value::Null, 4);
    let request = look_up(&mut bench, "guest", GUEST);
    assert_eq!(
        topics(&output(&mut bench, &request, "stdout", &part)),
        [""; 0]
    );
}

#[test]
fn redirected_output_is_an_event_with_the_path() {
    let mut bench = bench();
    let shell = json!({"options": {"output": {"stdout": {"type": "file", "path": "out-{{id}}"}}}});
    let id = bench.running(&json!({"shell": shell}));
    let out = watch(&mut bench, id, "guest.output");
    assert_eq!(topics(&out), [""; 0]);
    let path = format!("out-{}", JobId::new(id).f58());
    let redirect = |stream: &str| json!({"stream": stream, "rank": "0", "path": path});
    assert_eq!(
        events(&out)[1..],
        [
            ("redirect".to_owned(), redirect("stdout")),
            ("redirect".to_owned(), redirect("stderr"))
        ]
    );
    assert_eq!(end(&out), ENODATA);
}

#[test]
fn standard_input_is_written_by_way_of_the_execution_service() {
    let mut bench = bench();
    let id = bench.running(&json!({}));
    let topic = format!("job-shell.{id}.stdin");
    let write = |bench: &mut Bench, text: &str| {
        let data = json!({"stream": "stdin", "rank": "all", "data": text});
        bench.request(&topic, &data)
    };
    let out = write(&mut bench, "hello\n");
    let first = named(&out, "job-exec.input").clone();
    let sent = body(&first);
    assert_eq!(
        (&sent["offset"], &sent["data"]),
        (&json!(0), &json!("aGVsbG8K"))
    );
    let out = bench.send(Message::response_to(&first, 0, None));
    assert_eq!((out[0].topic(), out[0].errnum()), (topic.as_str(), 0));
    // The next bytes of the same client, and its end, with a task that reads no more.
    let eof = json!({"stream": "stdin", "rank": "0", "eof": true});
    let out = write(&mut bench, "x");
    let second = body(named(&out, "job-exec.input"));
    assert_eq!(
        (&second["offset"], &second["writer"]),
        (&json!(6), &sent["writer"])
    );
    // A job whose input cannot be written answers as a shell that takes none.
    let out = write(&mut bench, "y");
    let rejected = named(&out, "job-exec.input").clone();
    let out = bench.send(Message::error_to(&rejected, ENOENT, "no input"));
    assert_eq!(rejection(&out), (ENOSYS, "no input".to_owned()));
    let out = bench.request(&topic, &eof);
    let last = named(&out, "job-exec.input").clone();
    assert_eq!(
        (&body(&last)["end"], &body(&last)["task"]),
        (&json!(true), &json!(0))
    );
    let out = bench.send(Message::error_to(&last, EPIPE, ""));
    assert_eq!((out[0].topic(), out[0].errnum()), (topic.as_str(), 0));
    assert_eq!(rejection(&write(&mut bench, "z")).0, EPIPE);
    bench.end(id, 0);
    assert_eq!(rejection(&write(&mut bench, "z")).0, ENOSYS);
    // Malformed requests, and those of other users.
    let payload = json!({"stream": "stdin", "rank": "all", "data": "x"});
    let out = bench.request_as("guest", GUEST, &topic, &payload, 0);
    assert_eq!(rejection(&out).0, EPERM);
    let other = json!({"stream": "stdout", "rank": "all"});
    assert_eq!(rejection(&bench.request(&topic, &other)).0, 22);
    for (ranks, last) in [("7", 7), ("0-4294967294", 4_294_967_294_u32)] {
        let beyond = json!({"stream": "stdin", "rank": ranks, "data": "x"});
        let (errnum, text) = rejection(&bench.request(&topic, &beyond));
        let expected = format!("{topic}: rank {last}: the job has 1 tasks");
        assert_eq!((errnum, text), (22, expected));
    }
}

#[test]
fn copies_of_input_for_several_tasks_are_limited() {
    let mut bench = bench();
    let mut jobspec = common::jobspec(&json!({}));
    jobspec["resources"][0]["count"] = 2.into();
    let out = bench.request("job-ingest.submit", &json!({"jobspec": jobspec}));
    let id = body(&out[0])["id"].as_u64().unwrap();
    bench.allocate(id);
    bench.exec(id, "start", &json!({}));
    let topic = format!("job-shell.{id}.stdin");
    let data = "x".repeat(2 << 20);
    let mut write = |ranks: &str| {
        bench.request(
            &topic,
            &json!({"stream": "stdin", "rank": ranks, "data": data}),
        )
    };
    let (errnum, text) = rejection(&write("0-1"));
    assert_eq!(errnum, 90);
    assert!(text.ends_with("in all, or rank `all`"), "{text}");
    assert_eq!(topics(&write("0")).len(), 1);
}

#[test]
fn the_log_of_standard_input_has_what_clients_have_written() {
    let mut bench = bench();
    let mut jobspec = common::jobspec(&json!({}));
    jobspec["resources"][0]["count"] = 2.into();
    let out = bench.request("job-ingest.submit", &json!({"jobspec": jobspec}));
    let id = body(&out[0])["id"].as_u64().unwrap();
    assert!(watch(&mut bench, id, "guest.input").is_empty());
    bench.allocate(id);
    let out = bench.exec(id, "start", &json!({}));
    let header =
        json!({"version": 1, "encoding": {"stdin": "UTF-8"}, "count": {"stdin": 1}, "options": {}});
    assert_eq!(events(&out), [("header".to_owned(), header.clone())]);
    let topic = format!("job-shell.{id}.stdin");
    let write = |bench: &mut Bench, data: &Value, errnum| {
        let out = bench.request(&topic, data);
        let requests: Vec<_> = (out.iter())
            .filter(|message| message.topic() == "job-exec.input")
            .cloned()
            .collect();
        let mut out = Vec::new();
        for request in requests {
            let response = match errnum {
                0 => Message::response_to(&request, 0, None),
                errnum => Message::error_to(&request, errnum, ""),
            };
            out.extend(bench.send(response));
        }
        out
    };
    let data = [
        json!({"stream": "stdin", "rank": "all", "data": "a\n"}),
        json!({"stream": "stdin", "rank": "0", "encoding": "base64", "data": "/w=="}),
        // Discarded by a task that has closed its input, as by Flux's shell.
        json!({"stream": "stdin", "rank": "0", "eof": true}),
    ];
    let mut seen = vec![("header".to_owned(), header)];
    for (data, errnum) in data.iter().zip([0, 0, EPIPE]) {
        let out = write(&mut bench, data, errnum);
        seen.push(("data".to_owned(), data.clone()));
        assert_eq!(events(&out), seen[seen.len() - 1..]);
    }
    // Data that the service does not take is not in the log. The input of one task has ended, the other's has not.
    let more = json!({"stream": "stdin", "rank": "all", "data": "b"});
    assert!(events(&write(&mut bench, &more, ENOENT)).is_empty());
    let ended = json!({"stream": "stdin", "rank": "0", "data": "b"});
    let out = bench.request(&topic, &ended);
    assert_eq!(rejection(&out).0, EPIPE);
    let end = json!({"stream": "stdin", "rank": "all", "eof": true});
    write(&mut bench, &end, 0);
    seen.push(("data".to_owned(), end));
    assert_eq!(rejection(&bench.request(&topic, &more)).0, EPIPE);
    bench.end(id, 0);
    // The whole log, at once and by a lookup.
    let out = watch(&mut bench, id, "guest.input");
    assert_eq!(events(&out), seen);
    let out = bench.request(
        "job-info.lookup",
        &json!({"id": id, "keys": ["guest.input"], "flags": 0}),
    );
    let log = body(&out[0])["guest.input"].as_str().unwrap().to_owned();
    assert_eq!(log.lines().map(event).collect::<Vec<_>>(), seen);
}

#[test]
fn input_after_one_that_is_rejected_is_that_of_another_writer() {
    let mut bench = bench();
    let id = bench.running(&json!({}));
    let topic = format!("job-shell.{id}.stdin");
    let data = json!({"stream": "stdin", "rank": "all", "data": "x"});
    let mut write = |errnum| {
        let out = bench.request(&topic, &data);
        let request = named(&out, "job-exec.input").clone();
        bench.send(match errnum {
            0 => Message::response_to(&request, 0, None),
            errnum => Message::error_to(&request, errnum, ""),
        });
        let sent = body(&request);
        (sent["writer"].clone(), sent["offset"].clone())
    };
    let first = write(0);
    let second = write(EAGAIN);
    assert_eq!((&second.0, second.1), (&first.0, json!(1)));
    let third = write(0);
    assert_ne!(third.0, first.0);
    assert_eq!(third.1, json!(0));
    assert_eq!(write(0), (third.0, json!(1)));
}

#[test]
fn input_that_is_acknowledged_after_the_end_of_the_job_is_not_retained() {
    let mut bench = bench();
    let id = bench.running(&json!({}));
    let topic = format!("job-shell.{id}.stdin");
    let data = json!({"stream": "stdin", "rank": "all", "data": "late"});
    let out = bench.request(&topic, &data);
    let request = named(&out, "job-exec.input").clone();
    bench.end(id, 0);
    let out = bench.send(Message::response_to(&request, 0, None));
    assert_eq!((out[0].topic(), out[0].errnum()), (topic.as_str(), 0));
    assert_eq!(names(&watch(&mut bench, id, "guest.input")), ["header"]);
}

#[test]
fn standard_input_beyond_the_limit_is_written_but_not_retained() {
    let mut bench = bench();
    let id = bench.running(&json!({}));
    let topic = format!("job-shell.{id}.stdin");
    let text = "x".repeat(400 << 10);
    let mut write = |data: &Value| {
        let out = bench.request(&topic, data);
        let request = named(&out, "job-exec.input").clone();
        bench.send(Message::response_to(&request, 0, None));
    };
    for _ in 0..4 {
        write(&json!({"stream": "stdin", "rank": "all", "data": text}));
    }
    write(&json!({"stream": "stdin", "rank": "all", "data": ""}));
    write(&json!({"stream": "stdin", "rank": "all", "data": "x", "eof": true}));
    let out = watch(&mut bench, id, "guest.input");
    assert_eq!(names(&out), ["header", "data", "data", "log", "data"]);
    let end = json!({"stream": "stdin", "rank": "all", "eof": true});
    assert_eq!(events(&out)[4].1, end);
}

#[test]
fn a_file_as_standard_input_is_an_event_with_its_path() {
    let mut bench = bench();
    let options = json!({"input": {"stdin": {"type": "file", "path": "words"}}});
    let id = bench.running(&json!({"shell": {"options": options}}));
    let out = watch(&mut bench, id, "guest.input");
    let redirect = json!({"stream": "stdin", "rank": "all", "path": "words"});
    assert_eq!(events(&out)[1], ("redirect".to_owned(), redirect));
}

#[test]
fn the_input_of_a_terminal_is_not_retained() {
    let mut bench = bench();
    let id = bench.running(&json!({"shell": {"options": {"pty": true}}}));
    let password = json!({"stream": "stdin", "rank": "all", "data": "secret"});
    let out = bench.request(&format!("job-shell.{id}.stdin"), &password);
    let request = named(&out, "job-exec.input").clone();
    bench.send(Message::response_to(&request, 0, None));
    assert_eq!(names(&watch(&mut bench, id, "guest.input")), ["header"]);
}

#[test]
fn logs_belong_to_the_user_of_the_job() {
    let mut bench = bench();
    let id = bench.running(&json!({}));
    for path in ["guest.exec.eventlog", "guest.output"] {
        let payload = json!({"id": id, "path": path});
        let out = bench.request_as(
            "guest",
            GUEST,
            "job-info.eventlog-watch",
            &payload,
            STREAMING,
        );
        assert_eq!(rejection(&out).0, EPERM, "{path}");
    }
    let key = format!("job.{}.guest.output", JobId::new(id).dothex());
    let out = bench.request_as("guest", GUEST, "kvs.lookup", &json!({"key": key}), 0);
    assert_eq!(rejection(&out).0, EPERM);
}

#[test]
fn an_exception_or_a_signal_goes_to_all_jobs_of_a_user_in_some_states() {
    let mut bench = bench();
    let running = bench.running(&json!({}));
    let (pending, _) = bench.submit(&json!({}));
    let all = json!({"dry_run": true, "userid": -1, "states": 30, "severity": 0, "type": "cancel"});
    let out = bench.request("job-manager.raiseall", &all);
    assert_eq!(body(&out[0]), json!({"count": 2, "errors": 0}));
    assert_eq!(bench.row(pending)["state"], 8);
    let signal = json!({"dry_run": false, "userid": OWNER, "signum": 10});
    let out = bench.request("job-manager.killall", &signal);
    assert_eq!(body(named(&out, "job-exec.kill"))["signum"], 10);
    let pending_only =
        json!({"dry_run": false, "userid": OWNER, "states": 14, "severity": 0, "type": "cancel"});
    let out = bench.request("job-manager.raiseall", &pending_only);
    let mut responses = out
        .iter()
        .filter(|message| message.topic() == "job-manager.raiseall");
    assert_eq!(
        body(responses.next().unwrap()),
        json!({"count": 1, "errors": 0})
    );
    assert_eq!(
        (
            bench.row(pending)["state"].clone(),
            bench.row(running)["state"].clone()
        ),
        (json!(32), json!(16))
    );
    let out = bench.request_as("guest", GUEST, "job-manager.raiseall", &all, 0);
    assert_eq!(rejection(&out).0, EPERM);
    let odd = json!({"dry_run": false, "userid": -2, "states": 16, "severity": 0, "type": "x"});
    assert_eq!(
        rejection(&bench.request("job-manager.raiseall", &odd)).0,
        22
    );
}

fn directory(bench: &mut Bench, key: &str) -> Vec<(String, String)> {
    let out = bench.request(
        "kvs.lookup",
        &json!({"key": key, "namespace": "primary", "flags": 1}),
    );
    let val = body(&out[0])["val"].clone();
    assert_eq!((&val["ver"], &val["type"]), (&json!(1), &json!("dir")));
    let entries = val["data"].as_object().unwrap().iter();
    let entry = |(name, entry): (&String, &Value)| {
        (name.clone(), entry["type"].as_str().unwrap().to_owned())
    };
    entries.map(entry).collect()
}

#[test]
fn keys_have_directories() {
    let mut bench = bench();
    let op = |key: &str, flags: i64| {
        let dirent = json!({"ver": 1, "type": "val", "data": "YQ=="});
        json!({"key": key, "flags": flags, "dirent": dirent})
    };
    for flags in [0, 32] {
        let ops = json!([op("site.a", flags), op("site.b.c", flags), op("top", flags)]);
        let out = bench.request("kvs.commit", &json!({"ops": ops}));
        assert_eq!(out[0].errnum(), 0, "{:?}", out[0].error_text());
    }
    let pairs = |pairs: &[(&str, &str)]| {
        let owned = |(name, kind): &(&str, &str)| ((*name).to_owned(), (*kind).to_owned());
        pairs.iter().map(owned).collect::<Vec<_>>()
    };
    let root = pairs(&[("job", "dirref"), ("site", "dirref"), ("top", "valref")]);
    assert_eq!(directory(&mut bench, "."), root);
    assert_eq!(
        directory(&mut bench, "site"),
        pairs(&[("a", "valref"), ("b", "dirref")])
    );
    assert_eq!(directory(&mut bench, "job"), []);
    let id = bench.running(&json!({}));
    bench.submit(&json!({}));
    let dothex = JobId::new(id).dothex();
    let mut key = "job".to_owned();
    for group in dothex.split('.') {
        let names = directory(&mut bench, &key);
        assert!(
            names.contains(&(group.to_owned(), "dirref".to_owned())),
            "{key}: {names:?}"
        );
        key = format!("{key}.{group}");
    }
    let documents = pairs(&[
        ("R", "valref"),
        ("eventlog", "valref"),
        ("guest", "dirref"),
        ("jobspec", "valref"),
    ]);
    assert_eq!(directory(&mut bench, &key), documents);
    let guest = pairs(&[
        ("exec", "dirref"),
        ("input", "valref"),
        ("output", "valref"),
    ]);
    assert_eq!(directory(&mut bench, &format!("{key}.guest")), guest);
    // The namespace of the job is the same directory.
    let lookup = |bench: &mut Bench, namespace: &str, key: &str, flags: i64| {
        let payload = json!({"namespace": namespace, "key": key, "flags": flags});
        bench.request("kvs.lookup", &payload)
    };
    let namespace = format!("job-{dothex}");
    let out = lookup(&mut bench, &namespace, ".", 1);
    assert!(body(&out[0])["val"]["data"]["exec"].is_object());
    let out = lookup(&mut bench, &namespace, "exec.eventlog", 0);
    assert_eq!(body(&out[0])["val"]["type"], "val");
    // The inventory, which is no value of the owner.
    let rejected = |bench: &mut Bench| rejection(&lookup(bench, "primary", "resource.R", 0)).0;
    assert_eq!(rejected(&mut bench), ENOENT);
    let r = json!({"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}],
        "nodelist": ["node0"], "starttime": 0, "expiration": 5}});
    let inventory = ResourceSet::from_json(&r.to_string()).unwrap();
    bench.manager.set_inventory(inventory);
    let out = lookup(&mut bench, "primary", "resource.R", 0);
    let data = body(&out[0])["val"]["data"].as_str().unwrap().to_owned();
    let found: Value = serde_json::from_slice(&BASE64.decode(data).unwrap()).unwrap();
    assert_eq!(found["execution"]["expiration"], 5.0);
    // The appended value, and keys of another kind than expected.
    let out = lookup(&mut bench, "primary", "top", 0);
    assert_eq!(body(&out[0])["val"]["data"], "YWE=");
    for (key, flags, errnum) in [
        ("top", 1, ENOTDIR),
        ("site", 0, EISDIR),
        ("none", 1, ENOENT),
    ] {
        let out = lookup(&mut bench, "primary", key, flags);
        assert_eq!(rejection(&out).0, errnum, "{key}");
    }
    assert_eq!(rejection(&lookup(&mut bench, "other", "top", 0)).0, ENOENT);
    let out = bench.request("kvs.getroot", &json!({"namespace": "primary"}));
    let root = body(&out[0]);
    assert_eq!((&root["owner"], &root["flags"]), (&json!(OWNER), &json!(0)));
    let out = bench.request("kvs.namespace-list", &Value::Null);
    assert_eq!(body(&out[0])["namespaces"][0]["namespace"], "primary");
}
