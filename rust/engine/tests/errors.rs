//! The texts of infeasible requests, and the predicates of errors.

mod machines;

use machines::{engine, inventory, nodes, slots, submit};
use penstock_engine::{Policy, QueueId};
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Request};

/// A request for nodes with a property.
fn with_property(property: &str, request: Request) -> Request {
    Request {
        constraint: Some(Constraint::Properties(vec![property.to_owned()])),
        ..request
    }
}

#[test]
fn an_infeasible_request_names_what_is_impossible_and_the_most_there_is() {
    let mut engine = engine(Policy::Fcfs, &[(4, 1), (4, 0), (4, 0)]);
    let texts = [
        (slots(13, 1, 0, 0.0), "13 cores requested, 12 exist"),
        (slots(2, 1, 1, 0.0), "2 gpus requested, 1 exist"),
        (
            slots(1, 5, 0, 0.0),
            "5 cores per slot requested, no node has more than 4",
        ),
        (
            slots(4, 3, 0, 0.0),
            "4 slots of 3 cores requested, no more than 3 fit",
        ),
        (nodes(4, 1, 0, 0.0), "4 nodes requested, 3 exist"),
        (
            nodes(1, 1, 2, 0.0),
            "2 gpus per node requested, no node has more than 1",
        ),
        (
            nodes(2, 1, 1, 0.0),
            "2 nodes with 1 core and 1 gpu requested, only 1 have that",
        ),
        (
            with_property("odd", slots(1, 1, 1, 0.0)),
            "1 gpu per slot requested, no node has gpus among the nodes that meet the constraint \
             odd",
        ),
    ];
    for (request, text) in texts {
        let reason = engine.feasible(&request).unwrap_err();
        assert_eq!(reason.to_string(), text);
    }
    let reason = engine
        .feasible(&with_property("none", slots(1, 1, 0, 0.0)))
        .unwrap_err();
    assert_eq!(reason.to_string(), "no node meets the constraint none");
}

#[test]
fn an_error_tells_a_known_from_an_unknown_job_and_an_invalid_argument() {
    let mut engine = engine(Policy::Fcfs, &[(4, 0)]);
    submit(&mut engine, 1, slots(1, 1, 0, 60.0));
    let shape = engine.shape(&slots(1, 1, 0, 60.0));
    let submitted_twice = engine
        .submit_shape(JobId::new(1), 16, shape, 60.0, QueueId::default())
        .unwrap_err();
    assert_eq!(submitted_twice.to_string(), "job 1 is known already");
    assert!(submitted_twice.is_known_job());

    let pending = engine.free(JobId::new(1), None).unwrap_err();
    assert_eq!(pending.to_string(), "job 1 holds no resources");
    assert!(pending.is_unknown_job());
    let unknown = engine.with_limit(JobId::new(2), 60.0).unwrap_err();
    assert_eq!(unknown.to_string(), "job 2 is not pending");
    assert!(unknown.is_unknown_job() && !unknown.is_known_job());

    let grown_twice = engine.grow(&inventory(&[(4, 0)])).unwrap_err();
    assert_eq!(
        grown_twice.to_string(),
        "ranks 0 are in the inventory already"
    );
    assert!(grown_twice.is_invalid_argument());
}
