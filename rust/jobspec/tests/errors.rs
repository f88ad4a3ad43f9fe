//! The questions that the errors of this crate answer.
use penstock_jobspec::{Constraint, Count, Jobspec, Layout, LayoutError, duration, job_id::JobId};

#[test]
fn an_error_tells_what_was_read() {
    let jobspec = Jobspec::from_json("[]").expect_err("an array");
    let duration = duration::parse("soon").expect_err("a word");
    let count: penstock_jobspec::Error = "1-".parse::<Count>().expect_err("no end");
    let job_id = "ƒ".parse::<JobId>().expect_err("no digits");
    let constraint = Constraint::from_value(&serde_json::json!({"and": 1})).expect_err("no list");
    let errors = [jobspec, constraint, count, duration, job_id];
    for (index, error) in errors.iter().enumerate() {
        let answers = [
            error.is_jobspec(),
            error.is_constraint(),
            error.is_count(),
            error.is_duration(),
            error.is_job_id(),
        ];
        let trues: Vec<usize> = (0..5).filter(|&answer| answers[answer]).collect();
        assert_eq!(trues, [index], "{error}");
    }
}

fn layout(slots: &str, tasks: &str, r_keys: &str) -> Result<(), LayoutError> {
    let jobspec = format!(
        r#"{{"version": 1, "tasks": [{{"command": ["hostname"], "slot": "task", "count": {tasks}}}],
            "attributes": {{"system": {{"duration": 0}}}},
            "resources": [{{"type": "slot", "count": {slots}, "label": "task",
                "with": [{{"type": "core", "count": 2}}]}}]}}"#
    );
    let r = format!(
        r#"{{"version": 1, "execution": {{"R_lite": [{{"rank": "0-1", "children": {{"core": "0-3"}}}}],
            "nodelist": ["n[0-1]"]{r_keys}}}}}"#
    );
    let jobspec = Jobspec::from_json(&jobspec).expect("a jobspec");
    Layout::new(&jobspec, &r.parse().expect("an R")).map(drop)
}

#[test]
fn a_layout_error_tells_whether_r_or_the_tasks_are_at_fault() {
    let per_slot = r#"{"per_slot": 1}"#;
    assert_eq!(layout("4", per_slot, ""), Ok(()));
    let small = layout("5", per_slot, "").expect_err("four slots");
    assert!(small.is_too_small() && !small.is_uneven() && !small.has_too_many_tasks());
    assert_eq!(small.to_string(), "R has 4 slots, the jobspec asks for 5");
    let (slots, tasks) = (r#"{"min": 3, "max": 4}"#, r#"{"total": 3}"#);
    let tasks = layout(slots, tasks, r#", "nslots": 2"#).expect_err("two slots");
    assert!(tasks.has_too_many_tasks() && !tasks.is_too_small() && !tasks.is_uneven());
}
