//! Traces: jobs read and left out, assumptions, rejected input, and writing.

use penstock_jobspec::{Constraint, Count};
use penstock_sim::{
    Column, JobShape, Priority, SubmitSpan, TraceJob, TraceJobId, Workload, jsonl, swf,
};

fn job(id: u64, times: [f64; 3], cores: u32) -> TraceJob {
    let [submit, run, limit] = times;
    TraceJob {
        id: TraceJobId::new(id),
        submit,
        run,
        limit,
        shape: JobShape::cores(cores),
        priority: Priority::DEFAULT,
        queue: String::new(),
    }
}

fn jobs(workload: &Workload) -> Vec<TraceJob> {
    (0..workload.len())
        .filter_map(|index| workload.job(index))
        .collect()
}

/// A line of SWF: job, submit, run, allocated, requested, requested time, status.
fn line(fields: [i64; 7]) -> String {
    let [id, submit, run, allocated, requested, time, status] = fields;
    format!(
        "{id} {submit} -1 {run} {allocated} -1 -1 {requested} {time} -1 {status} -1 -1 -1 -1 -1 -1 -1\n"
    )
}

#[test]
fn missing_fields_fall_back_as_the_format_says() {
    let text = [
        "; Version: 2.2\n;   MaxProcs:  64 \r\n; Note: people read this\n\n",
        &line([1, 0, 100, 4, 8, 200, 1]),
        &line([2, 5, 100, 4, -1, -1, 1]),
        &line([3, 7, 0, 4, 0, -1, 1]),
        // Only -1 is missing: this user requested a time of 0.
        &line([4, 8, 60, 4, 4, 0, 1]),
    ]
    .concat();
    let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
    let expected = [
        job(1, [0.0, 100.0, 200.0], 8),
        job(2, [5.0, 100.0, 100.0], 4),
        job(3, [7.0, 0.0, 0.0], 4),
        job(4, [8.0, 60.0, 0.0], 4),
    ];
    assert_eq!(jobs(&workload), expected);
    assert_eq!((workload.max_cores(), workload.name()), (64, "a.swf"));
    assert_eq!(workload.pool_origin(), "MaxProcs of the header");
    assert_eq!(workload.header_value("Note"), Some("people read this"));
    let said = workload.assumptions();
    assert_eq!(
        said,
        [
            "2 of 4 jobs have no requested processors: the allocated ones are taken",
            "2 of 4 jobs have no requested time: the run time is taken as the estimate",
            "the trace has no wait times: its submit times may be start times, and are taken as \
             they are",
        ]
    );
}

#[test]
fn jobs_that_cannot_have_run_are_left_out_and_counted() {
    let text = [
        line([1, 0, 100, 0, -1, 200, 1]),
        line([2, 0, -1, 4, 4, 200, 1]),
        line([3, -1, 10, 4, 4, 200, 1]),
        line([4, 0, 0, 4, 4, 200, 5]),
        line([5, 0, -1, 4, 4, 200, 5]),
        line([6, 0, 10, 4, 4, 200, 5]),
        line([7, 0, 10, 4, 4, 200, 0]),
        line([8, -5, 10, 4, 4, 200, 1]),
    ]
    .concat();
    let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
    let ids: Vec<u64> = jobs(&workload).iter().map(|job| job.id.get()).collect();
    assert_eq!(ids, [6, 7]);
    let said = workload.assumptions().join("\n");
    for sentence in [
        "left out: 1 job without processors",
        "left out: 1 job without a run time",
        "left out: 1 job without a submit time",
        "left out: 1 job with a submit time below 0",
        "left out: 2 jobs cancelled before they ran",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
    assert_eq!(workload.max_cores(), 4);
    assert_eq!(workload.pool_origin(), "the largest job");
}

#[test]
fn one_job_is_one() {
    let text = [
        line([1, 0, 10, 4, 4, -1, 0]),
        line([1, 0, 5, 4, 4, -1, 2]),
        line([2, 0, 0, 4, 4, -1, 5]),
    ]
    .concat();
    let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
    let said = workload.assumptions();
    assert_eq!(
        said[..3],
        [
            "the one job has no requested time: the run time is taken as the estimate",
            "left out: 1 job cancelled before it ran",
            "left out: 1 job that is a part of another, by status and job number",
        ]
    );
}

#[test]
fn a_header_without_a_number_of_processors_is_reported() {
    let origin = |header: &str| {
        let text = format!("{header}{}", line([1, 0, 10, 4, 4, 10, 1]));
        let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
        format!("{}: {}", workload.max_cores(), workload.pool_origin())
    };
    assert_eq!(origin("; MaxProcs: 8\n"), "8: MaxProcs of the header");
    assert_eq!(
        origin("; MaxProcs: lots\n"),
        "4: the largest job; MaxProcs is no number above 0: `lots`"
    );
    assert_eq!(
        origin("; MaxProcs: 0\n; MaxNodes: 16\n"),
        "16: MaxNodes of the header; MaxProcs is no number above 0: `0`"
    );
}

#[test]
fn jobs_are_sorted_by_submit_time_then_file_order() {
    let text = [
        line([1, 10, 1, 1, 1, 1, 1]),
        line([2, 5, 1, 1, 1, 1, 1]),
        line([3, 10, 1, 1, 1, 1, 1]),
        line([4, 5, 1, 1, 1, 1, 1]),
    ]
    .concat();
    let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
    let ids: Vec<u64> = jobs(&workload).iter().map(|job| job.id.get()).collect();
    assert_eq!(ids, [2, 4, 1, 3]);
    let said = workload.assumptions().join("\n");
    assert!(said.contains("they were sorted"), "{said}");
    // A limit counts jobs in file order.
    let workload = swf::read(text.as_bytes(), "a.swf", Some(2)).unwrap();
    let ids: Vec<u64> = jobs(&workload).iter().map(|job| job.id.get()).collect();
    assert_eq!(ids, [2, 1]);
}

#[test]
fn the_nodes_of_the_header_are_the_fallback_for_its_processors() {
    let text = format!(
        "; MaxProcs: -1\n; MaxNodes: 16 (shared)\n; UnixStartTime: 749458803\n{}",
        line([1, 0, 1, 1, 1, 1, 1])
    );
    let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
    assert_eq!(workload.max_cores(), 16);
    assert_eq!(workload.unix_start(), Some(749_458_803.0));
    assert_eq!(workload.span(), Some(SubmitSpan::default()));
}

#[test]
fn seconds_may_have_fractions_and_exponents() {
    let text = "1 0.25 -1 1e3 4 -1 -1 -1 1500.5 -1 1 -1 -1 -1 -1 -1 -1 -1";
    let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
    assert_eq!(jobs(&workload), [job(1, [0.25, 1000.0, 1500.5], 4)]);
}

#[test]
fn an_invalid_line_is_rejected_with_its_field() {
    let good = line([1, 0, 100, 4, 8, 200, 1]);
    for (bad, message) in [
        (
            "1 2 3",
            "t: line 2: expected 18 fields, found 3: field 4 (run time) is missing",
        ),
        (
            "1 0 -1 x 4 -1 -1 8 200 -1 1 -1 -1 -1 -1 -1 -1 -1",
            "t: line 2: field 4 (run time): expected a number, found `x`",
        ),
        (
            "1 0 -1 inf 4 -1 -1 8 200 -1 1 -1 -1 -1 -1 -1 -1 -1",
            "t: line 2: field 4 (run time): expected a number, found `inf`",
        ),
        (
            "1 0 -1 10 4 -1 -1 8 200 -1 1 -1 -1 -1 -1 -1 -1 -1 7 7",
            "t: line 2: expected 18 fields, found 20",
        ),
        (
            "1 0 -1 10 4 -1 -1 8.5 200 -1 1 -1 -1 -1 -1 -1 -1 -1",
            "t: line 2: field 8 (requested processors): 8.5: expected a whole number below \
             4294967296",
        ),
        (
            "1 0 -1 10 4 -1 -1 5000000000 200 -1 1 -1 -1 -1 -1 -1 -1 -1",
            "t: line 2: field 8 (requested processors): 5000000000: expected a whole number below \
             4294967296",
        ),
        (
            "-1 0 -1 10 4 -1 -1 8 200 -1 1 -1 -1 -1 -1 -1 -1 -1",
            "t: line 2: field 1 (job number): -1: expected a whole number",
        ),
        (
            "\u{1f}\u{7f} 0 -1 10 4 -1 -1 8 200 -1 1 -1 -1 -1 -1 -1 -1 -1",
            "t: line 2: field 1 (job number): expected a number, found `\\u{1f}\\u{7f}`",
        ),
    ] {
        let text = format!("{good}{bad}\n");
        let error = swf::read(text.as_bytes(), "t", None).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.line(), Some(2));
    }
}

#[test]
fn an_empty_trace_has_no_jobs() {
    for text in ["", "; Version: 2.2\n", "\n\n"] {
        let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
        assert!(workload.is_empty());
        assert_eq!((workload.max_cores(), workload.span()), (0, None));
        assert!(workload.assumptions().is_empty());
    }
}

#[test]
fn swf_round_trips() {
    let text = [
        "; MaxProcs: 64\n; Computer: a machine\n",
        &line([1, 0, 100, 4, 8, 200, 1]),
        "2 5.5 -1 7 3 -1 -1 3 9 -1 1 -1 -1 -1 -1 -1 -1 -1\n",
    ]
    .concat();
    let workload = swf::read(text.as_bytes(), "a.swf", None).unwrap();
    let written = swf::write(&workload).unwrap();
    let again = swf::read(written.as_bytes(), "a.swf", None).unwrap();
    assert_eq!(jobs(&again), jobs(&workload));
    assert_eq!(again.max_cores(), 64);
    assert_eq!(swf::write(&again).unwrap(), written);
    let lines = jsonl::write(&workload);
    let again = jsonl::read(lines.as_bytes(), "a", None).unwrap();
    assert_eq!(jobs(&again), jobs(&workload));
}

#[test]
fn json_lines_express_every_shape() {
    let text = r#"
{"submit": 0, "run": 10, "cores": 4}
{"submit": 1.5, "run": 20, "id": 70, "limit": 30, "nodes": 2, "slots": 3, "cores_per_slot": 4, "gpus_per_slot": 1, "exclusive": true, "priority": 31, "queue": "debug", "constraint": {"properties": ["fast"]}}
{"submit": 2, "run": 5, "limit": null, "slots": 2, "after": 70}

{"submit": 2, "run": 0, "limit": 0, "nodes": 1, "after": [3, 70]}
"#;
    let workload = jsonl::read(text.as_bytes(), "a", None).unwrap();
    let found = jobs(&workload);
    assert_eq!(found[0], job(1, [0.0, 10.0, 10.0], 4));
    let value = serde_json::json!({"properties": ["fast"]});
    let second = TraceJob {
        id: TraceJobId::new(70),
        submit: 1.5,
        run: 20.0,
        limit: 30.0,
        shape: JobShape {
            nodes: Some(Count::exactly(2)),
            slots: Count::exactly(3),
            cores_per_slot: Count::exactly(4),
            gpus_per_slot: Count::exactly(1),
            exclusive: true,
            constraint: Some(Constraint::from_value(&value).unwrap()),
        },
        priority: Priority::new(31),
        queue: "debug".to_owned(),
    };
    assert_eq!(found[1], second);
    assert!(found[2].limit.is_infinite());
    assert!(found[3].limit.abs() < f64::MIN_POSITIVE);
    assert_eq!(
        workload.assumptions(),
        ["1 of 4 jobs has no limit: the run time is taken as the estimate"]
    );
    let written = jsonl::write(&workload);
    let again = jsonl::read(written.as_bytes(), "a", None).unwrap();
    assert_eq!(jobs(&again), found);
    assert_eq!(jsonl::write(&again), written);
    assert!(written.contains(r#""after":[70,3]"#), "{written}");
    let error = swf::write(&workload).unwrap_err().to_string();
    assert!(error.starts_with("job 70 asks for more than cores anywhere"));
}

#[test]
fn keys_that_are_unknown_are_columns() {
    let text = concat!(
        r#"{"submit": 5, "run": 1, "cores": 1, "power": 2.5, "site": "a", "tags": ["x"]}"#,
        "\n",
        r#"{"submit": 0, "run": 1, "cores": 1, "power": 3, "tags": true, "big": 9007199254740993}"#,
        "\n",
        r#"{"submit": 7, "run": 1, "cores": 1, "site": null, "user": "u", "k\n": -4}"#,
        "\n",
    );
    let workload = jsonl::read(text.as_bytes(), "t", None).unwrap();
    let texts = |texts: [&str; 3]| texts.map(Box::from).to_vec();
    let column = |name: &str| {
        let mut columns = workload.columns().iter();
        columns
            .find(|(known, _)| **known == *name)
            .map(|(_, column)| column)
    };
    let Some(Column::Numbers(power)) = column("power") else {
        panic!("{:?}", column("power"));
    };
    assert_eq!(power[..2], [2.5, 3.0]);
    assert!(power[2].is_nan());
    assert_eq!(column("site"), Some(&Column::Texts(texts(["a", "", ""]))));
    let tags = Column::Json(texts([r#"["x"]"#, "true", ""]));
    assert_eq!(column("tags"), Some(&tags));
    // A float cannot represent it.
    let big = Column::Json(texts(["", "9007199254740993", ""]));
    assert_eq!(column("big"), Some(&big));
    let assumed = workload.assumptions().join("; ");
    assert!(assumed.contains("no effect on the simulation: `power`, `site`, `tags`, `big`"));

    let written = jsonl::write(&workload);
    for part in [
        r#""power":2.5"#,
        r#""power":3"#,
        r#""site":"a""#,
        r#""tags":["x"]"#,
        r#""k\n":-4.0"#,
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
    // The keys come in the order of the jobs now.
    let read = |text: &str| jsonl::read(text.as_bytes(), "t", None).unwrap();
    let again = jsonl::write(&read(&written));
    assert_eq!(again.len(), written.len());
    assert_eq!(jsonl::write(&read(&again)), again);
}

#[test]
fn a_repeated_key_is_rejected() {
    for (line, name) in [
        (r#"{"submit": 0, "run": 1, "run": 2, "cores": 1}"#, "run"),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "x": 1, "x": 2}"#,
            "x",
        ),
    ] {
        let error = jsonl::read(line.as_bytes(), "t", None)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("t: line 1: column "), "{error}");
        assert!(
            error.ends_with(&format!("duplicate field `{name}`")),
            "{error}"
        );
    }
}

#[test]
fn a_trace_has_a_maximum_of_unknown_keys() {
    let line = |keys: std::ops::Range<u32>| {
        let keys: Vec<_> = keys.map(|key| format!(",\"k{key}\":1")).collect();
        let keys = keys.concat();
        format!("{{\"submit\":0,\"run\":1,\"cores\":1{keys}}}\n")
    };
    let most = line(0..200) + &line(56..256);
    assert!(jsonl::read(most.as_bytes(), "t", None).is_ok());
    let error = jsonl::read((most + &line(256..257)).as_bytes(), "t", None).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("t: line 3: unknown key `k256`: expected one of submit, run"),
        "{error}"
    );
}

#[test]
fn an_invalid_json_line_is_rejected_with_its_key() {
    for (bad, message) in [
        ("{", "t: line 1: column 1: EOF while parsing an object"),
        (
            r#"{"submit": 0, "run": 1, "cpus": 1}"#,
            "t: line 1: expected cores, slots or nodes",
        ),
        (
            r#"{"submit": 0, "cores": 1}"#,
            "t: line 1: run: expected a number of seconds, found nothing",
        ),
        (
            r#"{"submit": 0, "run": 1}"#,
            "t: line 1: expected cores, slots or nodes",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 0}"#,
            "t: line 1: cores: expected 1 or more, found 0",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "nodes": 1}"#,
            "t: line 1: cores: cannot stand beside nodes",
        ),
        (
            r#"{"submit": 0, "run": 1, "slots": 1, "exclusive": true}"#,
            "t: line 1: exclusive: expected nodes beside it",
        ),
        (
            r"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]",
            "t: line 1: expected an object such as {\"submit\": 0, \"run\": 60, \"cores\": 4}, found [0, 1,",
        ),
        (
            r#"{"submit": "0", "run": 1, "cores": 1}"#,
            "t: line 1: submit: expected a number of seconds, found \"0\"",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": -1}"#,
            "t: line 1: cores: expected a whole number below 4294967296, or a range such as \"2-8\", found -1",
        ),
        (
            r#"{"submit": 0, "run": 1, "nodes": 1, "slots": "4-2"}"#,
            "t: line 1: slots: ",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "id": 1.5}"#,
            "t: line 1: id: expected a whole number from 0 on, found 1.5",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "priority": 4294967296}"#,
            "t: line 1: priority: expected a whole number from 0 to 4294967295, found 4294967296",
        ),
        (
            r#"{"submit": 0, "run": 1, "nodes": 1, "exclusive": 1}"#,
            "t: line 1: exclusive: expected true or false, found 1",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "queue": 1}"#,
            "t: line 1: queue: expected a text, found 1",
        ),
        (
            r#"{"submit": 0, "run": 1e308, "cores": 1}"#,
            "t: line 1: job 1: run time 1e308: expected seconds from 0 on, at most 1e12",
        ),
        (
            r#"{"submit": -1, "run": 1, "cores": 1}"#,
            "t: line 1: job 1: submit time -1: expected seconds from 0 on",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "limit": -3}"#,
            "t: line 1: job 1: limit -3: expected seconds from 0 on",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "after": "x"}"#,
            "t: line 1: after: expected an id or a list of ids, found \"x\"",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "after": 9}"#,
            "t: line 1: after: expected the id of another job, found 9",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "after": 1}"#,
            "t: after: job 1 depends on itself, through others or directly",
        ),
        (
            r#"{"submit": 0, "run": 1, "cores": 1, "constraint": {"near": []}}"#,
            "t: line 1: invalid constraint: near: unknown operator",
        ),
        (
            "{\"submit\": 0, \"run\": 1, \"cores\": 1}\n{\"submit\": 0, \"run\": 1, \"cores\": 1, \"id\": 1}",
            "t: line 2: id 1 is that of job 1 already",
        ),
    ] {
        let error = jsonl::read(bad.as_bytes(), "t", None).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn cyclic_dependencies_are_rejected() {
    let text = r#"{"submit": 0, "run": 1, "cores": 1, "id": 5, "after": 6}
{"submit": 0, "run": 1, "cores": 1, "id": 6, "after": 7}
{"submit": 0, "run": 1, "cores": 1, "id": 7, "after": 6}"#;
    let error = jsonl::read(text.as_bytes(), "t", None).unwrap_err();
    let message = "t: after: job 5 depends on itself, through others or directly";
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_byte_order_mark_is_ignored() {
    let swf = format!("\u{feff}{}", line([1, 0, 100, 4, 8, 200, 1]));
    assert_eq!(swf::read(swf.as_bytes(), "a", None).unwrap().len(), 1);
    let lines = "\u{feff}{\"submit\": 0, \"run\": 1, \"cores\": 1}";
    assert_eq!(jsonl::read(lines.as_bytes(), "a", None).unwrap().len(), 1);
}

#[test]
fn repeated_job_numbers_are_reported() {
    // A job of two parts, and two jobs with the same number.
    let text = [
        line([7, 0, 100, 4, 4, 200, 1]),
        line([7, 0, 60, 4, 4, 200, 2]),
        line([7, 80, 40, 4, 4, 200, 3]),
        line([3, 90, 10, 4, 4, 200, 1]),
        line([3, 95, 10, 4, 4, 200, 1]),
        line([9, 96, 10, 4, 4, 200, 2]),
    ]
    .concat();
    let workload = swf::read(text.as_bytes(), "a", None).unwrap();
    assert_eq!(workload.ids(), [7, 3, 3, 9].map(TraceJobId::new));
    let said = workload.assumptions().join("\n");
    for sentence in [
        "left out: 2 jobs that are parts of others, by status and job number",
        "1 job of an earlier one's number: each is simulated",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
}

#[test]
fn json_lines_may_have_ranges_of_counts() {
    let text = r#"{"submit": 0, "run": 10, "cores": "2-8"}
{"submit": 1, "run": 10, "nodes": {"min": 1, "max": 4, "operator": "*", "operand": 2}, "slots": 2, "cores_per_slot": "1+"}"#;
    let workload = jsonl::read(text.as_bytes(), "a", None).unwrap();
    let found = jobs(&workload);
    let count = |text: &str| text.parse::<Count>().unwrap();
    assert_eq!(found[0].shape.slots, count("2-8"));
    assert_eq!(found[1].shape.nodes, Some(count("1-4:2:*")));
    assert_eq!(found[1].shape.cores_per_slot, count("1+"));
    let (first, second) = (&found[0].shape, &found[1].shape);
    assert_eq!((first.ncores(), first.max_cores()), (2, Some(8)));
    assert_eq!((second.ncores(), second.max_cores()), (2, None));
    let written = jsonl::write(&workload);
    let again = jsonl::read(written.as_bytes(), "a", None).unwrap();
    assert_eq!(jobs(&again), found);
    let error = swf::write(&workload).unwrap_err().to_string();
    assert!(error.starts_with("job 1 asks for more than cores anywhere"));
}
