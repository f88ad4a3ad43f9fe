//! Jobspecs in the store: jobs with equal jobspecs share one row, whatever led to the jobspec.

mod common;

use std::collections::BTreeSet;

use common::elastic::{alloc, nodes, start};
use common::{Bench, Directory, body, settings};
use penstock_manager::{Limits, Settings};
use serde_json::{Value, json};

/// The number of rows of the table of jobspecs, and of distinct texts in them.
fn jobspecs(bench: &Bench) -> (usize, usize) {
    let store = bench.manager.store();
    let texts: Vec<String> = (0..100)
        .filter_map(|key| store.jobspec(key).unwrap())
        .collect();
    let distinct: BTreeSet<&String> = texts.iter().collect();
    (texts.len(), distinct.len())
}

fn update(bench: &mut Bench, id: u64, seconds: f64) {
    let updates = json!({"attributes.system.duration": seconds});
    let payload = json!({"id": id, "updates": updates});
    let out = bench.request("job-manager.update", &payload);
    assert_eq!(out[0].errnum(), 0);
}

fn submit_text(bench: &mut Bench, jobspec: &str) {
    let jobspec: Value = serde_json::from_str(jobspec).unwrap();
    let out = bench.request("job-ingest.submit", &json!({ "jobspec": jobspec }));
    assert_eq!(out[0].errnum(), 0, "{:?}", out[0].error_text());
}

#[test]
fn equal_updates_submissions_and_restarts_add_no_row() {
    let directory = Directory::new("jobspecs");
    let mut bench = directory.open(settings(), 1000.0);
    let ids: Vec<u64> = (0..5)
        .map(|_| bench.submit(&json!({"duration": 60.0})).0)
        .collect();
    assert_eq!(jobspecs(&bench), (1, 1));
    for id in &ids {
        update(&mut bench, *id, 30.0);
    }
    assert_eq!(jobspecs(&bench), (1, 1), "no job refers to the first");
    let lookup = json!({"id": ids[0], "keys": ["jobspec"]});
    let found = bench.request("job-info.lookup", &lookup);
    let text = body(&found[0])["jobspec"].as_str().unwrap().to_owned();
    submit_text(&mut bench, &text);
    assert_eq!(jobspecs(&bench), (1, 1));
    bench.submit(&json!({"duration": 60.0}));
    assert_eq!(jobspecs(&bench), (2, 2));
    drop(bench);
    let mut bench = directory.open(settings(), 2000.0);
    submit_text(&mut bench, &text);
    bench.submit(&json!({"duration": 60.0}));
    update(&mut bench, ids[0], 60.0);
    assert_eq!(jobspecs(&bench), (2, 2));
}

#[test]
fn an_equal_submission_after_changed_settings_adds_no_row() {
    let mut bench = Bench::new();
    bench.submit(&json!({"duration": 60.0}));
    let limits = Limits {
        duration: Some(100.0),
        ..Limits::default()
    };
    let limited = Settings {
        limits,
        ..settings()
    };
    for settings in [settings(), limited] {
        bench.manager.set_settings(settings, bench.now);
        bench.submit(&json!({"duration": 60.0}));
        assert_eq!(jobspecs(&bench), (1, 1));
    }
}

#[test]
fn equal_request_jobs_share_a_row() {
    let (mut bench, job) = start(settings());
    let before = jobspecs(&bench);
    let hour = json!({"key": "pmix.alloc.time", "value": 3600});
    for _ in 0..3 {
        alloc(&mut bench, job, "new", &json!([nodes(2), hour]));
    }
    assert_eq!(jobspecs(&bench), (before.0 + 1, before.1 + 1));
}
