//! Jobspecs of guests that would cost much more than their length, from the submission to a restart.

mod common;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::{Bench, Directory, OWNER, body, jobspec, rejection, settings};
use penstock_malloc::{Allocations, Counted, allocations_of};
use penstock_manager::Settings;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const GUEST: u32 = OWNER + 1;
/// The length of a hostile part: the jobspec has at most 1 MiB.
const BYTES: usize = (1 << 20) - 2000;
/// The most that one step may allocate for a jobspec of 1 MiB.
const MAX_BLOCKS: u64 = 300_000;
const MAX_ALLOCATED_BYTES: u64 = 56 << 20;
const MAX_REASON_BYTES: usize = 1200;

fn guests() -> Settings {
    Settings {
        guests: true,
        default_duration: Some(60.0),
        ..settings()
    }
}

/// As many elements of a list, each of this text, as fit.
fn list(element: &str) -> String {
    list_of(element, BYTES / (element.len() + 1))
}

fn list_of(element: &str, count: usize) -> String {
    format!("[{}]", vec![element; count].join(","))
}

/// A list or the inside of an object, whose elements have different numbers.
fn numbered(count: usize, element: impl Fn(usize) -> String) -> String {
    let elements: Vec<String> = (0..count).map(element).collect();
    elements.join(",")
}

/// The text of a jobspec with the text of a value at a pointer.
fn with(pointer: &str, text: &str) -> String {
    let mut spec = jobspec(&json!({}));
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let mut names = parent.split('/').skip(1).collect::<Vec<_>>().into_iter();
    let mut place = &mut spec;
    for name in &mut names {
        place = match place {
            Value::Array(elements) => &mut elements[name.parse::<usize>().unwrap()],
            other => &mut other[name],
        };
        if place.is_null() {
            *place = json!({});
        }
    }
    place[key] = json!("HOSTILE");
    spec.to_string().replace("\"HOSTILE\"", text)
}

const COMMAND: &str = "/tasks/0/command";

fn system(key: &str) -> String {
    format!("/attributes/system/{key}")
}

/// Jobspecs by name.
#[derive(Default)]
struct Specs(Vec<(String, String)>);

impl Specs {
    /// Adds a jobspec with the text of a value at a pointer.
    fn add(&mut self, name: &str, pointer: &str, text: &str) {
        self.0.push((name.to_owned(), with(pointer, text)));
    }
}

fn add_many_values(specs: &mut Specs) {
    for (name, element) in [
        ("empty", "\"\""),
        ("short", "\"x\""),
        ("templates", "\"{{id}}\""),
        ("escapes", "\"\\u0001\""),
        ("numbers", "1"),
    ] {
        specs.add(&format!("arguments, {name}"), COMMAND, &list(element));
    }
    for (name, element) in [
        ("null", "null"),
        ("lists", "[]"),
        ("objects", "{}"),
        ("members", "{\"\":0}"),
        ("pairs", "{\"\":0,\"a\":0}"),
        ("nested", "{\"\":{\"\":{}}}"),
        ("numbers", "1e15"),
        ("long numbers", &"9".repeat(300)),
        ("deep", &format!("{}{}", "[".repeat(100), "]".repeat(100))),
    ] {
        for key in ["x", "shell", "constraints"] {
            specs.add(&format!("{key}, {name}"), &system(key), &list(element));
        }
    }
    let members = |count| format!("{{{}}}", numbered(count, |at| format!("\"V{at}\":\"\"")));
    for key in [
        "environment",
        "shell/options/env-expand",
        "shell/options",
        "files",
        "x",
    ] {
        specs.add(
            &format!("many members of {key}"),
            &system(key),
            &members(70_000),
        );
        specs.add(&format!("members of {key}"), &system(key), &members(9900));
    }
    specs.add(
        "duplicate keys",
        &system("environment"),
        &format!("{{{}}}", numbered(140_000, |_| "\"\":\"\"".to_owned())),
    );
}

fn add_long_texts(specs: &mut Specs) {
    for (name, character) in [
        ("plain", "x"),
        ("escaped", "\\n"),
        ("unicode", "\\u0001"),
        ("wide", "\\ud83d\\ude00"),
        ("braces", "{"),
    ] {
        let text = format!("\"{}\"", character.repeat(BYTES / character.len()));
        for key in ["x", "cwd", "job/name", "environment/A"] {
            specs.add(&format!("long {key}, {name}"), &system(key), &text);
        }
        specs.add(
            &format!("long argument, {name}"),
            COMMAND,
            &format!("[{text}]"),
        );
        specs.add(&format!("long label, {name}"), "/resources/0/label", &text);
        specs.add(
            &format!("long key, {name}"),
            "/attributes",
            &format!("{{{text}:1,\"system\":{{\"duration\":0}}}}"),
        );
        specs.add(
            &format!("long variable, {name}"),
            &system("environment"),
            &format!("{{{text}:1}}"),
        );
        specs.add(
            &format!("long operator, {name}"),
            &system("constraints"),
            &format!("{{{text}:1}}"),
        );
        specs.add(
            &format!("long property, {name}"),
            &system("constraints"),
            &format!("{{\"properties\":[{text}]}}"),
        );
        specs.add(&format!("long version, {name}"), "/version", &text);
    }
    specs.add("long number", &system("duration"), &"1".repeat(BYTES));
    let fraction = format!("0.{}", "1".repeat(BYTES));
    specs.add("long fraction", &system("duration"), &fraction);
    specs.add(
        "white space",
        &system("x"),
        &format!("{}1", " ".repeat(BYTES)),
    );
}

fn add_resources(specs: &mut Specs) {
    let vertex = r#"{"type":"core","count":1}"#;
    specs.add("vertices", "/resources/0/with", &list(vertex));
    specs.add("resources", "/resources", &list(vertex));
    let deep = (0..60).fold(vertex.to_owned(), |inner, _| {
        format!(r#"{{"type":"node","count":1,"with":[{inner}]}}"#)
    });
    specs.add("deep resources", "/resources", &format!("[{deep}]"));
    specs.add(
        "tasks",
        "/tasks",
        &list(r#"{"command":["x"],"slot":"task","count":{"per_slot":1}}"#),
    );
    specs.add(
        "count",
        "/resources/0/count",
        &format!("\"{}\"", numbered(100_000, |at| (2 * at).to_string())),
    );
    let dependency = |at| format!(r#"{{"scheme":"begin-time","value":"{at}"}}"#);
    specs.add(
        "dependencies",
        &system("dependencies"),
        &format!("[{}]", numbered(3300, dependency)),
    );
}

fn add_constraints(specs: &mut Specs) {
    let or = |parts: String| format!(r#"{{"or":[{parts}]}}"#);
    specs.add(
        "operators",
        &system("constraints"),
        &or(numbered(990, |at| format!(r#"{{"hostlist":["n{at}"]}}"#))),
    );
    let deepest = (0..60).fold("{}".to_owned(), |inner, _| {
        format!(r#"{{"not":[{inner}]}}"#)
    });
    specs.add(
        "deep operators",
        &system("constraints"),
        &or(vec![deepest.as_str(); 15].join(",")),
    );
    specs.add(
        "hosts",
        &system("constraints"),
        &format!(
            r#"{{"hostlist":[{}]}}"#,
            numbered(9_900, |at| format!("\"n{at}x{}\"", 3 * at))
        ),
    );
    specs.add(
        "hosts in one text",
        &system("constraints"),
        &format!(
            r#"{{"hostlist":["{}"]}}"#,
            numbered(60_000, |at| format!("n{}", 2 * at))
        ),
    );
    specs.add(
        "product of hosts",
        &system("constraints"),
        r#"{"hostlist":["a[1-60000]b[1-60000]c[1-60000]"]}"#,
    );
    specs.add(
        "ranks",
        &system("constraints"),
        &format!(
            r#"{{"ranks":["{}"]}}"#,
            numbered(120_000, |at| (3 * at).to_string())
        ),
    );
    specs.add(
        "distant ranks",
        &system("constraints"),
        &format!(
            r#"{{"ranks":["{}"]}}"#,
            numbered(90_000, |at| (40_000 * at).to_string())
        ),
    );
    specs.add(
        "lists of ranks",
        &system("constraints"),
        &format!(
            r#"{{"ranks":[{}]}}"#,
            numbered(9_900, |at| format!("\"{}\"", 200_000 * at))
        ),
    );
    specs.add(
        "all ranks",
        &system("constraints"),
        &format!(r#"{{"ranks":{}}}"#, list_of("\"0-4294967294\"", 9_900)),
    );
    specs.add(
        "properties",
        &system("constraints"),
        &format!(
            r#"{{"properties":[{}]}}"#,
            numbered(9_900, |at| format!("\"p{at}\""))
        ),
    );
}

/// A submission as a guest, and what each of the steps of its job has allocated.
struct Steps<'a> {
    bench: Bench,
    name: &'a str,
}

impl Steps<'_> {
    fn check(&self, step: &str, allocations: Allocations) {
        let Allocations { blocks, bytes } = allocations;
        let is_bounded = blocks <= MAX_BLOCKS && bytes <= MAX_ALLOCATED_BYTES;
        assert!(is_bounded, "{}, {step}: {allocations:?}", self.name);
    }

    fn request(&mut self, topic: &str, text: &str) -> Vec<penstock_wire::Message> {
        let (out, allocations) =
            allocations_of(|| self.bench.request_text("guest", GUEST, topic, text, 0));
        self.check(topic, allocations);
        out
    }

    fn advance(&mut self) {
        while self.bench.is_due() {
            let (_, allocations) = allocations_of(|| {
                self.bench.manager.advance(self.bench.now);
                self.bench.manager.flush().unwrap()
            });
            self.check("advance", allocations);
        }
        self.bench.rest();
    }
}

/// The submission is rejected with a short reason, or each step of the job is as little work.
fn check(name: &str, request: &str) {
    let directory = Directory::new("hostile-jobspecs");
    let mut steps = Steps {
        bench: directory.open(guests(), 1000.0),
        name,
    };
    steps.bench.scheduler(None);
    let out = steps.request("job-ingest.submit", request);
    steps.advance();
    if out[0].errnum() != 0 {
        let (_, text) = rejection(&out);
        assert!(text.len() <= MAX_REASON_BYTES, "{name}: {text}");
        return;
    }
    let id = body(&out[0])["id"].as_u64().unwrap();
    for key in ["jobspec", "J", "eventlog"] {
        let lookup = json!({"id": id, "keys": [key], "flags": 0}).to_string();
        steps.request("job-info.lookup", &lookup);
    }
    let update = json!({"id": id, "updates": {"attributes.system.duration": 5}}).to_string();
    steps.request("job-manager.update", &update);
    steps.advance();
    let Steps { bench, .. } = steps;
    drop(bench);
    let (bench, allocations) = allocations_of(|| directory.open(guests(), 2000.0));
    let mut steps = Steps { bench, name };
    steps.check("start", allocations);
    steps.bench.scheduler(None);
    steps.advance();
    steps.request("job-list.list-id", &json!({"id": id}).to_string());
}

#[test]
fn a_hostile_jobspec_is_no_more_work_than_its_limit() {
    let mut specs = Specs::default();
    add_many_values(&mut specs);
    add_long_texts(&mut specs);
    add_resources(&mut specs);
    add_constraints(&mut specs);
    for (name, spec) in specs.0 {
        assert!(spec.len() <= 1 << 20, "{name}: {}", spec.len());
        check(&name, &format!("{{\"jobspec\":{spec}}}"));
    }
}

#[test]
fn signed_jobspecs_and_copies_have_the_same_limits() {
    let header = BASE64.encode(format!("version\0i1\0userid\0i{GUEST}\0mechanism\0snone\0"));
    for (name, element) in [
        ("empty", "\"\""),
        ("long", &format!("\"{}\"", "x".repeat(BYTES))),
    ] {
        let spec = with("/tasks/0/command", &list(element));
        let signed = format!("{header}.{}.none", BASE64.encode(&spec));
        check(
            &format!("signed, {name}"),
            &json!({"J": signed}).to_string(),
        );
        let mut text = format!("{{\"cc\":\"0-99\",\"jobspec\":{spec}}}");
        check_rejected_or_many(&format!("copies, {name}"), &text);
        text.clear();
        let _ = write!(
            text,
            "{{\"jobs\":{}}}",
            list_of(&format!("{{\"jobspec\":{spec}}}"), 3)
        );
        check_rejected_or_many(&format!("list, {name}"), &text);
    }
    // More than a guest's jobspec may have, in a message that is not too long.
    let spec = with("/tasks/0/command", &list_of("[]", 1_000_000));
    let signed = format!("{header}.{}.none", BASE64.encode(&spec));
    check("signed, too long", &json!({"J": signed}).to_string());
}

/// Several jobs in a request, in as many slices as it takes.
fn check_rejected_or_many(name: &str, request: &str) {
    let mut steps = Steps {
        bench: Bench::with(guests()),
        name,
    };
    steps.bench.scheduler(None);
    steps.request("job-ingest.submit", request);
    steps.advance();
}

#[test]
fn the_error_names_the_number_of_values_and_its_limit() {
    let mut bench = Bench::with(guests());
    let submit = |bench: &mut Bench, userid: u32, words: usize| {
        let spec = with("/tasks/0/command", &list_of("\"\"", words));
        let payload = format!("{{\"jobspec\":{spec}}}");
        bench.request_text("user", userid, "job-ingest.submit", &payload, 0)
    };
    // With those around the arguments.
    assert!(body(&submit(&mut bench, GUEST, 9_900)[0])["id"].is_u64());
    let (errnum, text) = rejection(&submit(&mut bench, GUEST, 10_000));
    let expected = "the jobspec has 10020 values: expected at most 10000 strings, numbers, lists and objects \
                    (penstock.quota.guest-jobspec-values)";
    assert_eq!((errnum, text.as_str()), (22, expected));
    assert!(body(&submit(&mut bench, OWNER, 10_000)[0])["id"].is_u64());
    let stats = bench.request("job-manager.stats-get", &json!({}));
    assert_eq!(body(&stats[0])["rejected"]["jobspec_bytes"], 1);
}
