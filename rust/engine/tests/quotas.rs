//! Quotas: jobs that pass a reservation leave room for it in the limits of its queue.

mod machines;

use machines::{engine, slots, started, submit_to, whole};
use penstock_engine::{Engine, Options, Policy, QueueId, QueueOptions, Reason, Selection};
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Count, Operator, Request};

const BACKFILL: [Policy; 4] = [
    Policy::Easy,
    Policy::Hybrid { depth: 1 },
    Policy::Hybrid { depth: 2 },
    Policy::Conservative,
];

/// A queue with these limits, and another of the same group.
fn queues(engine: &mut Engine, limits: &QueueOptions) -> (QueueId, QueueId) {
    let (limited, other) = (engine.queue("limited"), engine.queue("other"));
    for (queue, limits) in [(limited, limits), (other, &QueueOptions::default())] {
        let options = QueueOptions {
            group: Some("one".to_owned()),
            ..limits.clone()
        };
        engine.set_queue(queue, options);
    }
    (limited, other)
}

/// Six nodes of four cores. Job 1, of another queue, has three nodes until 60; job 2, of a queue
/// with these limits, needs four.
fn waiting(policy: Policy, limits: &QueueOptions) -> (Engine, QueueId) {
    let mut engine = engine(policy, &[(4, 0); 6]);
    let (limited, other) = queues(&mut engine, limits);
    submit_to(&mut engine, 1, other, whole(3, 60.0));
    submit_to(&mut engine, 2, limited, whole(4, 60.0));
    assert_eq!(started(&mut engine, 0.0), [1]);
    (engine, limited)
}

fn limits(count: [Option<u64>; 3]) -> QueueOptions {
    let [max_jobs, max_nodes, max_cores] = count;
    QueueOptions {
        max_jobs,
        max_nodes,
        max_cores,
        ..QueueOptions::default()
    }
}

#[test]
fn a_job_that_would_hold_up_a_reservation_by_a_limit_waits() {
    for policy in BACKFILL {
        for (count, what) in [
            ([Some(1), None, None], "1 job"),
            ([None, Some(4), None], "4 nodes"),
            ([None, None, Some(16)], "16 cores"),
        ] {
            let (mut engine, queue) = waiting(policy, &limits(count));
            submit_to(&mut engine, 3, queue, whole(1, 1000.0));
            assert_eq!(started(&mut engine, 0.0), [0_u64; 0], "{policy}, {what}");
            let reason = engine.explain(JobId::new(3), 0.0).unwrap();
            if matches!(policy, Policy::Easy | Policy::Hybrid { depth: 1 }) {
                let note = format!("queue `limited` is limited to {what} at a time");
                assert_eq!(
                    reason.sentence(0.0, &|id| format!("job {}", id.get())),
                    format!("fits, but would not end before job 2 can start, in 1 min, and {note}")
                );
                let fields: Vec<_> = reason.fields().iter().map(|(name, _)| *name).collect();
                assert_eq!(fields, ["behind", "at", "queue", "note"]);
                assert_eq!(reason.kind(), "behind-limit");
            } else {
                // It has a reservation of its own, behind the other.
                let at = 120.0;
                assert_eq!(
                    reason,
                    Reason::Reserved {
                        at,
                        shortage: None,
                        limit: None
                    },
                    "{policy}"
                );
            }
            let starts: Vec<_> = engine
                .estimate(0.0)
                .iter()
                .map(|estimate| estimate.start)
                .collect();
            assert_eq!(starts, [Some(60.0), Some(120.0)], "{policy}, {what}");
            // A job that has ended by then uses nothing of its quota.
            submit_to(&mut engine, 4, queue, whole(1, 60.0));
            assert_eq!(started(&mut engine, 0.0), [4], "{policy}, {what}");
            engine.free(JobId::new(1), None).unwrap();
            engine.free(JobId::new(4), None).unwrap();
            assert_eq!(started(&mut engine, 60.0), [2], "{policy}, {what}");
        }
    }
}

#[test]
fn a_job_that_leaves_a_reservation_its_room_starts() {
    for policy in BACKFILL {
        for count in [
            [Some(2), None, None],
            [None, Some(5), None],
            [None, None, Some(20)],
        ] {
            let (mut engine, queue) = waiting(policy, &limits(count));
            for id in [3, 4] {
                submit_to(&mut engine, id, queue, whole(1, 1000.0));
            }
            assert_eq!(started(&mut engine, 0.0), [3], "{policy}, {count:?}");
            engine.free(JobId::new(1), None).unwrap();
            assert_eq!(started(&mut engine, 60.0), [2], "{policy}, {count:?}");
        }
    }
}

#[test]
fn a_range_takes_what_the_limits_leave_beside_a_reservation() {
    for policy in BACKFILL {
        let (mut engine, queue) = waiting(policy, &limits([None, Some(5), None]));
        let range = Request {
            nnodes: Some(Count::range(1, Some(2), Operator::Add, 1).unwrap()),
            ..whole(1, 1000.0)
        };
        submit_to(&mut engine, 3, queue, range);
        assert_eq!(started(&mut engine, 0.0), [3], "{policy}");
        assert_eq!(
            engine.node_allocations(JobId::new(3)).count(),
            1,
            "{policy}"
        );
    }
}

#[test]
fn reservations_of_a_queue_leave_each_other_room() {
    let (mut engine, queue) = waiting(Policy::Conservative, &limits([Some(1), None, None]));
    for (id, duration) in [(3, 70.0), (4, 30.0)] {
        submit_to(&mut engine, id, queue, whole(1, duration));
    }
    // Job 4 ends before the reserved start of job 2, job 3 would not.
    assert_eq!(started(&mut engine, 0.0), [4]);
    assert_eq!(engine.reservation(JobId::new(2)), Some(60.0));
    assert_eq!(engine.reservation(JobId::new(3)), Some(120.0));
}

/// Nodes 0 to 3 have two cores free at 60, node 4 has four from now on.
fn fragments(policy: Policy, limits: &QueueOptions) -> (Engine, QueueId) {
    let mut engine = engine(policy, &[(4, 0); 5]);
    let (limited, other) = queues(&mut engine, limits);
    for id in [1, 2, 3, 4] {
        submit_to(&mut engine, 2 * id, other, slots(1, 2, 0, 1000.0));
        submit_to(&mut engine, 2 * id + 1, other, slots(1, 2, 0, 60.0));
        started(&mut engine, 0.0);
    }
    (engine, limited)
}

#[test]
fn a_reservation_of_slots_has_room_for_as_many_nodes_as_it_needs() {
    for policy in BACKFILL {
        let (mut engine, queue) = fragments(policy, &limits([None, Some(4), None]));
        // At 60 it has a node and two halves, or four halves.
        submit_to(&mut engine, 20, queue, slots(4, 2, 0, 100.0));
        submit_to(&mut engine, 21, queue, whole(1, 500.0));
        let early = started(&mut engine, 0.0);
        assert_eq!(early, [0_u64; 0], "{policy}");
        for id in [3, 5, 7, 9] {
            engine.free(JobId::new(id), None).unwrap();
        }
        assert_eq!(started(&mut engine, 60.0), [20], "{policy}");
    }
}

#[test]
fn a_reservation_of_slots_is_for_when_its_queue_has_room_for_its_nodes() {
    for policy in BACKFILL {
        let (mut engine, queue) = fragments(policy, &limits([None, Some(2), None]));
        // On two nodes it fits only from 1000 on.
        submit_to(&mut engine, 20, queue, slots(4, 2, 0, 100.0));
        assert_eq!(started(&mut engine, 0.0), [0_u64; 0], "{policy}");
        if policy != Policy::Easy {
            assert_eq!(engine.reservation(JobId::new(20)), Some(1000.0), "{policy}");
        }
        for (id, now) in [(3, 60.0), (5, 60.0), (7, 60.0), (9, 60.0), (2, 1000.0)] {
            engine.free(JobId::new(id), None).unwrap();
            let expected: &[u64] = if now < 1000.0 { &[] } else { &[20] };
            assert_eq!(started(&mut engine, now), expected, "{policy}");
        }
    }
}

#[test]
fn a_reservation_beside_a_former_one_keeps_to_the_limits_of_its_queue() {
    let inventory = machines::inventory(&[(2, 0), (5, 0), (2, 0), (1, 0)]);
    let options = Options {
        policy: Policy::Hybrid { depth: 2 },
        selection: Selection::Spread,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&inventory, options).unwrap();
    engine.mark_up(&inventory.ranks());
    let (limited, other) = queues(&mut engine, &limits([None, Some(1), None]));
    submit_to(&mut engine, 1, other, whole(2, 20.0));
    submit_to(&mut engine, 2, limited, slots(1, 3, 0, 10.0));
    submit_to(&mut engine, 4, other, slots(1, 3, 0, 0.0));
    let reserved = |engine: &Engine| [3, 4].map(|id| engine.reservation(JobId::new(id)));
    assert_eq!(started(&mut engine, 0.0), [1]);
    assert_eq!(reserved(&engine), [None, Some(30.0)]);
    // Before job 4, and on the same node: beside job 4 it would need the other odd node, too.
    let odd = Constraint::Properties(vec!["odd".to_owned()]);
    let on_odd_nodes = Request {
        constraint: Some(odd),
        ..slots(3, 1, 0, 10.0)
    };
    submit_to(&mut engine, 3, limited, on_odd_nodes);
    assert_eq!(started(&mut engine, 0.0), [0_u64; 0]);
    assert_eq!(reserved(&engine), [Some(30.0), None]);
    engine.free(JobId::new(1), None).unwrap();
    assert_eq!(started(&mut engine, 20.0), [2]);
    assert_eq!(reserved(&engine), [Some(30.0), Some(40.0)]);
    engine.free(JobId::new(2), None).unwrap();
    assert_eq!(started(&mut engine, 30.0), [3]);
    assert_eq!(reserved(&engine), [None, Some(40.0)]);
}
