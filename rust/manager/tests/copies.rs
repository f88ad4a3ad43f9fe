//! Copies of a submission that differ by an id: one jobspec in the store, in which the id takes the place of `{cc}`.

mod common;

use common::{Bench, Directory, OWNER, body, jobspec, rejection, settings, topics};
use penstock_manager::{Quota, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

/// A jobspec with `{cc}` wherever it may stand.
fn template() -> Value {
    let mut spec = jobspec(&json!({
        "job": {"name": "step-{cc}"},
        "environment": {"STEP": "{cc}", "OTHER": "{{cc}}"},
        "shell": {"options": {"output": {"stdout": {"path": "out-{{id}}-{cc}"}}}},
    }));
    spec["tasks"][0]["command"] = json!(["/bin/step", "{cc}"]);
    spec["attributes"]["user"] = json!({"{cc}": "{cc}"});
    spec
}

fn expanded(copy: u32) -> Value {
    let text = template().to_string().replace("{cc}", &copy.to_string());
    serde_json::from_str(&text).unwrap()
}

fn submit(bench: &mut Bench, payload: &Value) -> Vec<u64> {
    let mut out = bench.request("job-ingest.submit", payload);
    out.extend(bench.advance());
    serde_json::from_value(body(&out[0])["ids"].clone()).unwrap()
}

fn found_jobspec(bench: &mut Bench, id: u64) -> Value {
    let out = bench.request("job-info.lookup", &json!({"id": id, "keys": ["jobspec"]}));
    serde_json::from_str(body(&out[0])["jobspec"].as_str().unwrap()).unwrap()
}

fn started_jobspec(out: &[Message]) -> Value {
    assert_eq!(topics(out), ["job-exec.start"]);
    body(&out[0])["jobspec"].clone()
}

/// The stored jobspecs.
fn stored(bench: &Bench) -> Vec<String> {
    let store = bench.manager.store();
    let texts = (0..100).filter_map(|key| store.jobspec(key).unwrap());
    texts.collect()
}

#[test]
fn a_copy_starts_with_its_id_and_the_store_has_one_jobspec() {
    let directory = Directory::new("copies");
    let mut bench = directory.open(settings(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let ids = submit(
        &mut bench,
        &json!({"jobspec": template(), "cc": "3,7-9,2000-4000"}),
    );
    assert_eq!(ids.len(), 2005);
    let texts = stored(&bench);
    let [text] = texts.as_slice() else {
        panic!("{texts:?}")
    };
    let spec: Value = serde_json::from_str(text).unwrap();
    let copies = json!({"first": ids[0], "ids": "3,7-9,2000-4000"});
    assert_eq!(spec["attributes"]["system"]["cc"], copies);
    let out = bench.allocate(ids[1]);
    assert_eq!(started_jobspec(&out), expanded(7));
    for (position, copy) in [(0, 3), (1, 7), (4, 2000), (2004, 4000)] {
        assert_eq!(found_jobspec(&mut bench, ids[position]), expanded(copy));
        assert_eq!(bench.row(ids[position])["name"], format!("step-{copy}"));
    }
    let list = json!({"constraint": {"name": ["step-9", "step-{cc}"]}, "attrs": ["name"], "max_entries": 0});
    let rows = body(&bench.stream("job-list.list", &list)[0])["jobs"].clone();
    assert_eq!(rows, json!([{"id": ids[3], "name": "step-9"}]));
    // As well after a restart, and with another time limit.
    let now = bench.now;
    drop(bench);
    let mut bench = directory.open(settings(), now);
    bench.advance();
    bench.request(
        "job-manager.update",
        &json!({"id": ids[2], "updates": {"attributes.system.duration": 60.5}}),
    );
    let mut longer = expanded(8);
    longer["attributes"]["system"]["duration"] = 60.5.into();
    assert_eq!(found_jobspec(&mut bench, ids[2]), longer);
    assert_eq!(bench.row(ids[2])["name"], "step-8");
    bench.scheduler(None);
    bench.executor();
    bench.rest();
    bench.commit_r(ids[2004], &common::R.replace("0-3", "4-7"));
    let out = bench.answer("sched.alloc", &json!({"id": ids[2004], "type": 0}));
    assert_eq!(started_jobspec(&out), expanded(4000));
}

#[test]
fn the_scheduler_gets_no_ids_of_copies() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let out = bench.request(
        "job-ingest.submit",
        &json!({"jobspec": template(), "cc": "1-2"}),
    );
    let requests = out
        .iter()
        .filter(|message| message.topic() == "sched.alloc");
    let specs: Vec<Value> = requests
        .map(|request| body(request)["jobspec"].clone())
        .collect();
    assert_eq!(specs.len(), 2);
    assert_eq!(specs[0]["attributes"]["system"].get("cc"), None);
}

#[test]
fn a_list_of_submissions_and_a_token_name_copies_as_well() {
    let mut bench = Bench::new();
    let payload = json!({"token": "a", "jobs": [
        {"jobspec": template(), "cc": "1-3"},
        {"jobspec": template()},
        {"jobspec": template(), "cc": "2-3"},
    ]});
    let first = body(&bench.request("job-ingest.submit", &payload)[0]);
    assert_eq!(
        body(&bench.request("job-ingest.submit", &payload)[0]),
        first
    );
    let ids: Vec<Vec<u64>> = (0..3)
        .map(|place| serde_json::from_value(first["results"][place]["ids"].clone()).unwrap())
        .collect();
    assert_eq!([ids[0].len(), ids[1].len(), ids[2].len()], [3, 1, 2]);
    assert_eq!(found_jobspec(&mut bench, ids[0][2]), expanded(3));
    // Without `cc` it is a text as any other.
    assert_eq!(found_jobspec(&mut bench, ids[1][0]), template());
    assert_eq!(bench.row(ids[1][0])["name"], "step-{cc}");
    assert_eq!(found_jobspec(&mut bench, ids[2][0]), expanded(2));
}

#[test]
fn copies_that_would_differ_in_what_the_instance_reads_are_rejected() {
    let mut bench = Bench::new();
    let mut reject = |payload: &Value| rejection(&bench.request("job-ingest.submit", payload));
    let (spec, constraint) = (template(), json!({"properties": ["p{cc}"]}));
    let dependency = json!([{"scheme": "begin-time", "value": "{cc}"}]);
    for system in [
        json!({ "cwd": "/dir-{cc}" }),
        json!({ "project": "{cc}" }),
        json!({ "constraints": constraint }),
        json!({ "dependencies": dependency }),
    ] {
        let (errnum, text) = reject(&json!({"jobspec": jobspec(&system), "cc": "1-2"}));
        assert_eq!(errnum, 22, "{system}");
        assert!(
            text.starts_with("`{cc}` stands in a part of the jobspec that must be the same")
                || text.contains("begin-time"),
            "{text}"
        );
    }
    let both = json!({"jobspec": spec, "cc": "1", "count": 1});
    assert_eq!(
        reject(&both),
        (71, "the submission has both `count` and `cc`".to_owned())
    );
    let empty = json!({"jobspec": spec, "cc": ""});
    let (errnum, text) = reject(&empty);
    assert_eq!(
        (errnum, text.as_str()),
        (22, "count 0 is out of range: expected 1 to 3000000")
    );
    let (errnum, text) = reject(&json!({"jobspec": spec, "cc": "0-4294967294"}));
    assert_eq!(errnum, 22);
    assert!(
        text.starts_with("count 4294967295 is out of range"),
        "{text}"
    );
    let (errnum, text) = reject(&json!({"jobspec": spec, "cc": "3-x"}));
    assert_eq!(errnum, 22);
    assert!(text.starts_with("`cc`: invalid idset"), "{text}");
    let forged = jobspec(&json!({"cc": {"first": 1, "ids": "1-2"}}));
    for payload in [
        json!({ "jobspec": forged }),
        json!({"jobspec": forged, "cc": "1"}),
    ] {
        let (errnum, text) = reject(&payload);
        assert_eq!(errnum, 22);
        assert!(
            text.starts_with("attributes.system.cc: expected none"),
            "{text}"
        );
    }
}

#[test]
fn the_size_of_a_jobspec_is_that_with_the_longest_id() {
    let bytes = expanded(4_000_000).to_string().len();
    let mut bench = Bench::with(Settings {
        quota: Quota {
            jobspec_bytes: bytes,
            ..settings().quota
        },
        ..settings()
    });
    let mut submit = |cc: &str| {
        let payload = json!({"jobspec": template(), "cc": cc});
        bench.request_as("user", OWNER, "job-ingest.submit", &payload, 0)
    };
    assert!(body(&submit("3,4000000")[0])["ids"].is_array());
    let (errnum, text) = rejection(&submit("3,40000000"));
    assert_eq!(errnum, 22);
    assert!(text.starts_with("the jobspec is too large"), "{text}");
}
