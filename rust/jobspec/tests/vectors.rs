//! The vectors that pytest reads, too.

use penstock_jobspec::job_id::{FluidGenerator, JobId, MAX_TIME_MS};
use penstock_jobspec::{Constraint, Jobspec, duration};
use serde_json::Value;

fn vectors(name: &str) -> Value {
    let path = format!("{}/../../tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn list<'a>(vectors: &'a Value, key: &str) -> &'a Vec<Value> {
    let list = vectors[key].as_array().unwrap();
    assert!(!list.is_empty());
    list
}

#[test]
fn jobspecs() {
    let vectors = vectors("jobspec.json");
    for case in list(&vectors, "good") {
        let jobspec = Jobspec::from_json(&case["jobspec"].to_string()).unwrap();
        let request = jobspec.request();
        let summary = &case["summary"];
        assert_eq!(summary["ntasks"], jobspec.ntasks(), "{}", case["name"]);
        let nnodes = request.least_nodes().map(u64::from);
        assert_eq!(summary["nnodes"].as_u64(), nnodes, "{}", case["name"]);
        assert_eq!(summary["ncores"], request.total_cores(), "{}", case["name"]);
        assert_eq!(summary["ngpus"], request.total_gpus(), "{}", case["name"]);
        assert_eq!(summary["exclusive"], request.exclusive);
    }
    for case in list(&vectors, "bad") {
        let error = Jobspec::from_json(&case["jobspec"].to_string()).unwrap_err();
        assert_eq!(error.to_string(), case["error"], "{}", case["jobspec"]);
    }
}

#[test]
fn attributes_are_found_by_their_path() {
    let vectors = vectors("jobspec.json");
    let case = &vectors["good"][5]["jobspec"];
    let jobspec = Jobspec::from_json(&case.to_string()).unwrap();
    assert_eq!(jobspec.queue(), Some("q"));
    assert_eq!(jobspec.cwd(), Some("/"));
    assert_eq!(jobspec.command(), ["app"]);
    assert_eq!(jobspec.dependencies()[0].scheme, "afterok");
    assert!(jobspec.constraints().is_some());
    assert_eq!(jobspec.environment().map(serde_json::Map::len), Some(1));
    assert_eq!(jobspec.job_name(), None);
    assert_eq!(jobspec.attribute("user.x"), Some(&serde_json::json!([1])));
}

#[test]
fn the_hosts_of_a_constraint_have_few_ranges() {
    let most = serde_json::json!({ "hostlist": ["a[1-65535]b[1-2]", "c1"] });
    assert!(Constraint::from_value(&most).is_ok());
    for (value, place) in [
        (
            serde_json::json!({ "hostlist": ["a[1-65535]b[1-2]", "c1", "d2"] }),
            "hostlist[2]",
        ),
        (
            serde_json::json!({ "or": [most, { "not": [{ "hostlist": ["d2"] }] }] }),
            "or[1].not[0].hostlist[0]",
        ),
    ] {
        assert_eq!(
            Constraint::from_value(&value).unwrap_err().to_string(),
            format!("invalid constraint: {place}: expected at most 65536 ranges of hosts")
        );
    }
}

#[test]
fn a_constraint_has_few_operators_and_values() {
    let properties = |names: usize| serde_json::json!({ "properties": vec!["x"; names] });
    let any = |constraints: usize| serde_json::json!({ "or": vec![properties(1); constraints] });
    for most in [any(999), properties(1 << 16)] {
        assert!(Constraint::from_value(&most).is_ok());
    }
    for (value, text) in [
        (any(1000), "or[999]: expected at most 1000 operators"),
        (
            serde_json::json!({ "and": [properties(1 << 15), properties((1 << 15) + 1)] }),
            "and[1].properties: expected at most 65536 values",
        ),
    ] {
        let error = Constraint::from_value(&value).unwrap_err().to_string();
        assert_eq!(error, format!("invalid constraint: {text}"));
    }
}

#[test]
fn a_job_has_few_dependencies() {
    let jobspec = |number: usize| {
        let one = serde_json::json!({ "scheme": "begin-time", "value": "1" });
        let document = serde_json::json!({
            "version": 1,
            "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
            "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 0, "dependencies": vec![one; number]}},
        });
        Jobspec::from_json(&document.to_string())
    };
    assert_eq!(jobspec(10_000).unwrap().dependencies().len(), 10_000);
    let error = jobspec(10_001).unwrap_err().to_string();
    assert!(
        error.ends_with("attributes.system.dependencies: expected at most 10000, found 10001"),
        "{error}"
    );
}

#[test]
fn deep_and_broken_documents_are_errors() {
    for text in ["", "{", "\"x", "nul", "{\"version\": NaN}"] {
        assert!(Jobspec::from_json(text).is_err(), "{text}");
    }
    let deep = "[".repeat(100_000);
    assert!(Jobspec::from_json(&deep).is_err());
    let mut constraint = serde_json::json!({});
    for _ in 0..100 {
        constraint = serde_json::json!({ "not": [constraint] });
    }
    let error = Constraint::from_value(&constraint).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid constraint: nested deeper than 64 operators"
    );
}

#[test]
fn constraints() {
    let vectors = vectors("constraint.json");
    for case in list(&vectors, "good") {
        let constraint = Constraint::from_value(&case["constraint"]).unwrap();
        assert_eq!(constraint.to_value(), case["normal"]);
        let again = Constraint::from_value(&constraint.to_value()).unwrap();
        assert_eq!(again, constraint);
    }
    for case in list(&vectors, "bad") {
        let error = Constraint::from_value(&case["constraint"]).unwrap_err();
        assert_eq!(error.to_string(), case["error"]);
    }
}

#[test]
fn job_ids() {
    let vectors = vectors("fluid.json");
    for case in list(&vectors, "forms") {
        let id = JobId::new(case["id"].as_u64().unwrap());
        assert_eq!(id.to_string(), case["f58"]);
        assert_eq!(id.dothex(), case["dothex"]);
        let also = case["also"].as_array().unwrap().iter();
        for text in also.chain([&case["f58"], &case["dothex"]]) {
            assert_eq!(text.as_str().unwrap().parse(), Ok(id), "{text}");
        }
    }
    for text in list(&vectors, "bad") {
        let parsed = text.as_str().unwrap().parse::<JobId>();
        assert!(parsed.is_err(), "{text}: {parsed:?}");
    }
}

#[test]
fn ids_never_repeat_and_never_go_back() {
    let mut generator = FluidGenerator::new(3);
    let mut last = None;
    for now in [5, 5, 4, 0, 6, 6, 1_000, 7] {
        for _ in 0..2_000 {
            let id = generator.next(now).unwrap();
            assert!(last.is_none_or(|last| id > last));
            assert_eq!((id.get() >> 10) & 0x3fff, 3);
            last = Some(id);
        }
    }
    let mut later = FluidGenerator::new(3);
    later.observe(last.unwrap());
    assert!(later.next(0) > last);
    assert_eq!(FluidGenerator::new(0).next(1), Some(JobId::new(1 << 24)));
}

#[test]
fn ids_do_not_wrap_at_the_end_of_their_time() {
    let mut generator = FluidGenerator::new(0);
    let first = generator.next(7).unwrap();
    assert_eq!(generator.next(MAX_TIME_MS + 1), None);
    assert_eq!(generator.next(u64::MAX), None);
    // No id is used up by a clock that is wrong for a while.
    assert_eq!(generator.next(7), Some(JobId::new(first.get() + 1)));
    let mut last = first;
    for _ in 0..1024 {
        let id = generator.next(MAX_TIME_MS).unwrap();
        assert!(id > last);
        last = id;
    }
    for now in [MAX_TIME_MS, 0] {
        assert_eq!(generator.next(now), None);
    }
    let mut later = FluidGenerator::new(0);
    later.observe(last);
    assert_eq!(later.next(0), None);
}

#[test]
fn durations() {
    let vectors = vectors("duration.json");
    for case in list(&vectors, "good") {
        let seconds = duration::parse(case[0].as_str().unwrap()).unwrap();
        assert!((seconds - case[1].as_f64().unwrap()).abs() < 1e-9, "{case}");
    }
    for text in list(&vectors, "infinite") {
        assert!(
            duration::parse(text.as_str().unwrap())
                .unwrap()
                .is_infinite()
        );
    }
    for text in list(&vectors, "bad") {
        let parsed = duration::parse(text.as_str().unwrap());
        assert!(parsed.is_err(), "{text}: {parsed:?}");
    }
}
