//! Jobs that start beside reservations, one situation per test.

mod machines;

use machines::{engine, nodes, ranks, slots, started, submit, submit_to, whole};
use penstock_engine::{Decision, Horizon, Options, Policy, QueueOptions, Selection};
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Count, Operator, Request};
use penstock_rset::ResourceSet;

fn up_to(most: u32) -> Count {
    Count::range(1, Some(most), Operator::Add, 1).unwrap()
}

#[test]
fn what_a_job_leaves_of_its_reservation_is_for_the_next() {
    for selection in Selection::ALL {
        let mut engine = engine(Policy::Conservative, &[(3, 0), (2, 0)]);
        engine.set_options(Options {
            selection,
            ..engine.options()
        });
        submit(&mut engine, 1, nodes(1, 2, 0, 50.0));
        submit(&mut engine, 2, nodes(1, 3, 0, 50.0));
        let ids = started(&mut engine, 0.0);
        let node = engine
            .node_allocations(JobId::new(1))
            .next()
            .map(|allocation| allocation.rank);
        // The first gets the node that the policy selects; the second gets the other node, if that
        // is enough.
        let expected: &[u64] = if node == Some(1) { &[1, 2] } else { &[1] };
        assert_eq!(ids, expected, "{selection}");
        let packed = selection == Selection::Pack;
        assert_eq!(node, Some(u32::from(packed)), "{selection}");
    }
}

#[test]
fn reservations_last_when_another_kind_of_job_comes() {
    let mut engine = engine(Policy::Conservative, &[(2, 0), (2, 0)]);
    submit(&mut engine, 1, whole(2, 10.0));
    submit(&mut engine, 2, whole(1, 5.0));
    assert_eq!(started(&mut engine, 0.0), [1]);
    assert_eq!(engine.reservation(JobId::new(2)), Some(10.0));
    // Now not every pending job requests whole nodes, and this one is first.
    let mut job = penstock_engine::Job {
        id: JobId::new(3),
        priority: 17,
        request: slots(4, 1, 0, 100.0),
        queue: penstock_engine::QueueId::default(),
    };
    engine.submit(job.clone()).unwrap();
    assert_eq!(started(&mut engine, 1.0), [0_u64; 0]);
    assert_eq!(engine.reservation(JobId::new(2)), Some(10.0));
    job.id = JobId::new(4);
    job.request = slots(2, 2, 0, 1.0);
    engine.submit(job).unwrap();
    assert_eq!(started(&mut engine, 2.0), [0_u64; 0]);
    assert_eq!(engine.reservation(JobId::new(2)), Some(10.0));
}

#[test]
fn reservations_last_when_nodes_go() {
    let mut engine = engine(Policy::Conservative, &[(2, 0), (2, 0), (2, 0)]);
    submit(&mut engine, 1, nodes(3, 2, 0, 10.0));
    submit(&mut engine, 2, nodes(2, 1, 0, 5.0));
    assert_eq!(started(&mut engine, 0.0), [1]);
    engine.shrink(&ranks("0"));
    assert_eq!(started(&mut engine, 1.0), [0_u64; 0]);
    assert_eq!(engine.reservation(JobId::new(2)), Some(10.0));
}

#[test]
fn a_job_of_a_range_leaves_what_others_have_reserved() {
    for (policy, first) in [
        (Policy::Conservative, 2),
        (Policy::Hybrid { depth: 2 }, 2),
        (Policy::Easy, 2),
    ] {
        let mut engine = engine(policy, &[(8, 0)]);
        submit(&mut engine, 1, slots(4, 1, 0, 10.0));
        submit(&mut engine, 2, slots(7, 1, 0, 10.0));
        let range = Request {
            slots: up_to(4),
            ..slots(1, 1, 0, 100.0)
        };
        submit(&mut engine, 3, range);
        assert_eq!(started(&mut engine, 0.0), [1, 3], "{policy}");
        // One core is left beside the second job.
        assert_eq!(
            engine
                .node_allocations(JobId::new(3))
                .map(|allocation| allocation.cores)
                .sum::<u32>(),
            1,
            "{policy}"
        );
        engine.free(JobId::new(1), None).unwrap();
        assert_eq!(started(&mut engine, 10.0), [first], "{policy}");
    }
}

#[test]
fn a_range_takes_what_the_limits_of_its_queue_leave() {
    for policy in [
        Policy::Fcfs,
        Policy::Easy,
        Policy::Conservative,
        Policy::Hybrid { depth: 2 },
    ] {
        let mut engine = engine(policy, &[(4, 0); 4]);
        let queue = engine.queue("some");
        let options = QueueOptions {
            max_nodes: Some(3),
            max_cores: Some(14),
            ..QueueOptions::default()
        };
        engine.set_queue(queue, options);
        let range = Request {
            nnodes: Some(up_to(4)),
            ..whole(1, 10.0)
        };
        submit_to(&mut engine, 1, queue, range.clone());
        submit_to(&mut engine, 2, queue, range);
        assert_eq!(started(&mut engine, 0.0), [1], "{policy}");
        assert_eq!(
            engine.node_allocations(JobId::new(1)).count(),
            3,
            "{policy}"
        );
        engine.free(JobId::new(1), Some(&ranks("0-1"))).unwrap();
        assert_eq!(started(&mut engine, 1.0), [2], "{policy}");
        assert_eq!(
            engine.node_allocations(JobId::new(2)).count(),
            2,
            "{policy}"
        );
    }
}

#[test]
fn a_job_that_its_queue_can_never_hold_is_denied() {
    let mut engine = engine(Policy::Easy, &[(4, 0); 4]);
    let queue = engine.queue("some");
    let options = QueueOptions {
        max_nodes: Some(2),
        max_cores: Some(6),
        ..QueueOptions::default()
    };
    engine.set_queue(queue, options);
    let requests = [
        whole(1, 10.0),
        nodes(3, 1, 0, 10.0),
        whole(2, 10.0),
        slots(7, 1, 0, 10.0),
        slots(3, 2, 0, 10.0),
        slots(3, 3, 0, 10.0),
    ];
    for (id, request) in (1..).zip(requests) {
        submit_to(&mut engine, id, queue, request);
    }
    let denied = engine.schedule(0.0, usize::MAX).into_iter();
    let denied = denied.filter_map(|decision| match decision {
        Decision::Deny { id, note } => Some((id.get(), note)),
        Decision::Alloc { .. } => None,
    });
    let note = |what: &str| format!("{what} at a time");
    let expected = [
        (
            2,
            note("3 nodes requested, queue `some` is limited to 2 nodes"),
        ),
        (
            3,
            note("8 cores requested, queue `some` is limited to 6 cores"),
        ),
        (
            4,
            note("7 cores requested, queue `some` is limited to 6 cores"),
        ),
        (
            6,
            note("3 nodes requested, queue `some` is limited to 2 nodes"),
        ),
    ];
    assert_eq!(denied.collect::<Vec<_>>(), expected);
    // A limit of 0 closes the queue: nothing is lost.
    let closed = QueueOptions {
        max_nodes: Some(0),
        ..QueueOptions::default()
    };
    engine.set_queue(queue, closed);
    engine.free(JobId::new(1), None).unwrap();
    assert_eq!(engine.schedule(1.0, usize::MAX), []);
    assert!(engine.is_queued(JobId::new(5)));
}

#[test]
fn a_job_that_needs_nodes_that_are_down_blocks_no_other() {
    for policy in [
        Policy::Easy,
        Policy::Conservative,
        Policy::Hybrid { depth: 1 },
    ] {
        let mut engine = engine(policy, &[(4, 0); 4]);
        engine.mark_down(&ranks("3"));
        submit(&mut engine, 1, whole(4, 10.0));
        submit(&mut engine, 2, whole(2, 0.0));
        assert_eq!(started(&mut engine, 0.0), [2], "{policy}");
        // The first of the others has the reservation.
        submit(&mut engine, 3, whole(1, 30.0));
        submit(&mut engine, 4, whole(2, 0.0));
        submit(&mut engine, 5, whole(1, 50.0));
        assert_eq!(started(&mut engine, 1.0), [3], "{policy}");
        engine.free(JobId::new(2), None).unwrap();
        assert_eq!(started(&mut engine, 2.0), [4], "{policy}");
        // When the node is up again, the job can start.
        engine.mark_up(&ranks("3"));
        engine.free(JobId::new(4), None).unwrap();
        // Conservative backfill keeps the reservation that the fifth got meanwhile.
        let promised: &[u64] = match policy {
            Policy::Conservative => &[5],
            _ => &[],
        };
        assert_eq!(started(&mut engine, 3.0), promised, "{policy}");
        assert!(engine.is_queued(JobId::new(1)), "{policy}");
    }
}

#[test]
fn a_job_goes_past_however_many_nodes_it_must_not_have() {
    // On the first 400 nodes, every core is needed when the blocked head starts.
    let mut sizes = vec![(2, 0); 400];
    sizes.push((1, 0));
    for selection in [Selection::First, Selection::Pack, Selection::Spread] {
        let mut engine = engine(Policy::Easy, &sizes);
        engine.set_options(Options {
            selection,
            ..engine.options()
        });
        submit(&mut engine, 1, nodes(1, 2, 0, 10.0));
        submit(&mut engine, 2, nodes(400, 2, 0, 10.0));
        submit(&mut engine, 3, slots(1, 1, 0, 100.0));
        assert_eq!(started(&mut engine, 0.0), [1, 3], "{selection}");
        assert_eq!(
            engine
                .node_allocations(JobId::new(3))
                .next()
                .map(|allocation| allocation.rank),
            Some(400)
        );
    }
}

#[test]
fn estimates_for_queues_apart_are_of_the_same_nodes() {
    let mut engine = engine(Policy::Conservative, &[(4, 0)]);
    let queues = [engine.queue("a"), engine.queue("b")];
    for (id, queue) in [(1, 0), (2, 0), (3, 1)] {
        submit_to(&mut engine, id, queues[queue], nodes(1, 4, 0, 10.0));
    }
    assert_eq!(started(&mut engine, 0.0), [1]);
    // Both have a reservation for the same time: groups do not see each other's reservations.
    assert_eq!(
        [2, 3].map(|id| engine.reservation(JobId::new(id))),
        [Some(10.0); 2]
    );
    let starts: Vec<_> = engine
        .estimate(1.0)
        .iter()
        .map(|estimate| (estimate.id, estimate.start))
        .collect();
    assert_eq!(
        starts,
        [(JobId::new(2), Some(10.0)), (JobId::new(3), Some(20.0))]
    );
    let forecast = engine.forecast(1.0, 9).unwrap();
    let forecast: Vec<_> = forecast
        .iter()
        .map(|(id, forecast)| (*id, forecast.time()))
        .collect();
    assert_eq!(starts, forecast);
}

#[test]
fn estimates_count_on_the_limits_of_queues() {
    let mut engine = engine(Policy::Conservative, &[(4, 0)]);
    let queue = engine.queue("a");
    let options = QueueOptions {
        max_jobs: Some(1),
        ..QueueOptions::default()
    };
    engine.set_queue(queue, options);
    for id in [1, 2, 3] {
        submit_to(&mut engine, id, queue, nodes(1, 1, 0, 10.0));
    }
    assert_eq!(started(&mut engine, 0.0), [1]);
    let starts: Vec<_> = engine
        .estimate(1.0)
        .iter()
        .map(|estimate| estimate.start)
        .collect();
    assert_eq!(starts, [Some(10.0), Some(20.0)]);
}

#[test]
fn a_job_that_starts_a_little_late_delays_no_other() {
    // Its start, the reserved start of the next job, and that start once the job has used its whole
    // limit.
    for (start, next, late) in [(10.125, 20.0, 20.125), (12.0, 22.0, 23.0)] {
        let mut engine = engine(Policy::Conservative, &[(2, 0)]);
        for id in 1..4 {
            submit(&mut engine, id, whole(1, 10.0));
        }
        assert_eq!(started(&mut engine, 0.0), [1]);
        engine.free(JobId::new(1), None).unwrap();
        assert_eq!(started(&mut engine, start), [2]);
        assert_eq!(engine.reservation(JobId::new(3)), Some(next));
        assert_eq!(started(&mut engine, next), [0_u64; 0]);
        assert_eq!(engine.reservation(JobId::new(3)), Some(late));
        engine.free(JobId::new(2), None).unwrap();
        assert_eq!(started(&mut engine, late), [3]);
    }
}

#[test]
fn a_reservation_is_for_nodes_that_the_job_may_have() {
    for policy in [Policy::Conservative, Policy::Hybrid { depth: 4 }] {
        let mut engine = engine(policy, &[(4, 0); 2]);
        engine.add_property("big", &ranks("0-1")).unwrap();
        submit(&mut engine, 1, whole(2, 100.0));
        let big = Request {
            constraint: Some(Constraint::Properties(vec!["big".to_owned()])),
            ..whole(1, 50.0)
        };
        submit(&mut engine, 2, big.clone());
        submit(&mut engine, 3, big);
        assert_eq!(started(&mut engine, 0.0), [1], "{policy}");
        assert_eq!(engine.reservation(JobId::new(3)), Some(100.0), "{policy}");
        engine.remove_property("big", &ranks("0"));
        assert_eq!(started(&mut engine, 1.0), [0_u64; 0], "{policy}");
        assert_eq!(engine.reservation(JobId::new(2)), Some(100.0), "{policy}");
        assert_eq!(engine.reservation(JobId::new(3)), Some(150.0), "{policy}");
        engine.free(JobId::new(1), None).unwrap();
        assert_eq!(started(&mut engine, 100.0), [2], "{policy}");
        assert_eq!(
            engine.r(JobId::new(2)).unwrap().ranks(),
            ranks("1"),
            "{policy}"
        );
    }
}

#[test]
fn nodes_that_come_put_no_reservation_off() {
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut below = |bound: u32| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        u32::try_from(random >> 40).unwrap() % bound
    };
    for round in 0..200 {
        let sizes: Vec<_> = (0..3).map(|_| (2 + below(4), 0)).collect();
        let mut engine = engine(Policy::Conservative, &sizes);
        for id in 1..14 {
            let limit = f64::from(10 + below(60));
            let request = if below(2) == 0 {
                slots(1 + below(3), 1 + below(2), 0, limit)
            } else {
                nodes(1 + below(2), 1 + below(2), 0, limit)
            };
            submit(&mut engine, id, request);
        }
        started(&mut engine, 0.0);
        let reserved: Vec<_> = (1..14)
            .map(|id| (id, engine.reservation(JobId::new(id))))
            .collect();
        // Their indices precede those of the existing nodes, and they are larger.
        let mut more = ResourceSet::new();
        let rank = 3 + below(3);
        more.insert(rank, &format!("node{rank}"), (0..8).collect(), ranks(""))
            .unwrap();
        engine.grow(&more).unwrap();
        if round % 2 == 0 {
            engine.shrink(&ranks(&rank.to_string()));
        }
        started(&mut engine, 1.0);
        for (id, before) in reserved {
            let after = engine.reservation(JobId::new(id));
            assert!(
                after.is_none() || after <= before,
                "round {round}, job {id}: {before:?}, {after:?}"
            );
        }
    }
}

#[test]
fn nothing_is_reserved_after_the_resources_have_ended() {
    let mut engine = engine(Policy::Conservative, &[(2, 0)]);
    engine.set_inventory_expiration(Some(60.0));
    for (id, limit) in [(1, 50.0), (2, 50.0), (3, 10.0)] {
        submit(&mut engine, id, whole(1, limit));
    }
    assert_eq!(started(&mut engine, 0.0), [1]);
    assert_eq!(engine.reservation(JobId::new(2)), Some(50.0));
    assert_eq!(engine.reservation(JobId::new(3)), Some(f64::INFINITY));
    for (end, third) in [(200.0, 100.0), (60.0, f64::INFINITY)] {
        engine.set_inventory_expiration(Some(end));
        assert_eq!(started(&mut engine, 1.0), [0_u64; 0]);
        assert_eq!(engine.reservation(JobId::new(3)), Some(third));
    }
    engine.free(JobId::new(1), None).unwrap();
    assert_eq!(started(&mut engine, 50.0), [2]);
    engine.free(JobId::new(2), None).unwrap();
    let late = engine.schedule(60.0, usize::MAX);
    assert!(
        matches!(&late[..], [Decision::Deny { id, .. }] if id.get() == 3),
        "{late:?}"
    );
}

#[test]
fn jobs_that_end_with_the_resources_have_ended_by_then() {
    // The reservation of the pending job is at the expiration of the resources, and all other jobs
    // end then, too.
    for policy in [Policy::Easy, Policy::Hybrid { depth: 1 }] {
        let mut engine = engine(policy, &[(2, 0); 5]);
        engine.set_inventory_expiration(Some(108.0));
        submit(&mut engine, 1, whole(2, 0.0));
        submit(&mut engine, 2, whole(4, 22.0));
        for id in 3..6 {
            submit(&mut engine, id, whole(1, 9.0));
        }
        assert_eq!(started(&mut engine, 107.0), [1, 3, 4, 5], "{policy}");
    }
}

#[test]
fn what_another_group_takes_is_seen_in_the_same_pass() {
    let mut engine = engine(Policy::Conservative, &[(6, 0)]);
    let (one, other) = (engine.queue("one"), engine.queue("other"));
    submit_to(&mut engine, 1, one, slots(2, 1, 0, 8.0));
    submit_to(&mut engine, 2, one, slots(4, 1, 0, 30.0));
    assert_eq!(started(&mut engine, 0.0), [1, 2]);
    submit_to(&mut engine, 3, other, slots(1, 1, 0, 13.0));
    submit_to(&mut engine, 4, one, slots(6, 1, 0, 0.0));
    assert_eq!(started(&mut engine, 1.0), [0_u64; 0]);
    // The first is overdue: the fourth could have all cores in a second, if the third did not take
    // one. So the fifth, which passes it, need not wait for it.
    engine.free(JobId::new(2), None).unwrap();
    submit_to(&mut engine, 5, one, slots(2, 1, 0, 13.0));
    engine.prioritize(&[(JobId::new(5), 31)]);
    assert_eq!(started(&mut engine, 10.0), [3, 5]);
    assert_eq!(started(&mut engine, 10.0), [0_u64; 0]);
    assert_eq!(engine.reservation(JobId::new(4)), Some(23.0));
}

#[test]
fn another_policy_knows_nothing_of_what_was_reserved() {
    let mut engine = engine(Policy::Conservative, &[(2, 0)]);
    for id in 1..4 {
        submit(&mut engine, id, whole(1, 10.0));
    }
    assert_eq!(started(&mut engine, 0.0), [1]);
    assert_eq!(engine.reservation(JobId::new(3)), Some(20.0));
    for policy in [Policy::Fcfs, Policy::Conservative] {
        engine.set_options(Options {
            policy,
            ..engine.options()
        });
        assert_eq!(engine.reservation(JobId::new(3)), None, "{policy}");
    }
    engine.free(JobId::new(1), None).unwrap();
    assert_eq!(started(&mut engine, 5.0), [2]);
    assert_eq!(engine.reservation(JobId::new(3)), Some(15.0));
}

#[test]
fn an_estimate_looks_no_further_than_its_horizon() {
    let mut engine = engine(Policy::Easy, &[(4, 0)]);
    for id in 1..=12 {
        submit(&mut engine, id, slots(1, 1, 0, 60.0));
    }
    // Four jobs run, and whenever they end, four others start.
    engine.schedule(0.0, 12);
    let starts = |ends, decisions| {
        let horizon = Horizon {
            ends,
            decisions,
            ..Horizon::UNLIMITED
        };
        let estimates = engine.estimate_within(
            1.0,
            &[
                JobId::new(5),
                JobId::new(6),
                JobId::new(7),
                JobId::new(8),
                JobId::new(9),
                JobId::new(12),
            ],
            horizon,
        );
        let starts = estimates.iter().map(|estimate| estimate.start);
        starts.collect::<Vec<_>>()
    };
    let (first, second) = (Some(60.0), Some(120.0));
    let all = [first, first, first, first, second, second];
    assert_eq!(starts(usize::MAX, usize::MAX), all);
    assert_eq!(starts(usize::MAX, 8), all);
    assert_eq!(
        starts(usize::MAX, 5),
        [first, first, first, first, second, None]
    );
    assert_eq!(
        starts(usize::MAX, 2),
        [first, first, None, None, None, None]
    );
    assert_eq!(
        starts(2, usize::MAX),
        [first, first, first, first, None, None]
    );
    assert_eq!(starts(0, usize::MAX), [None; 6]);
}
