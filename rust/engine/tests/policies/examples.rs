//! The starts of each policy in small cases that are worked out by hand.

use penstock_engine::{Engine, Policy, QueueId, QueueOptions};
use penstock_jobspec::job_id::JobId;

use crate::machines::{self, allocs, slots};

/// An engine with one node of `cores` cores.
fn pool(cores: u32, policy: Policy) -> Engine {
    machines::engine(policy, &[(cores, 0)])
}

fn submit(engine: &mut Engine, id: u64, cores: u32, duration: f64) {
    submit_to(engine, id, cores, duration, QueueId::default());
}

fn submit_to(engine: &mut Engine, id: u64, cores: u32, duration: f64, queue: QueueId) {
    machines::submit_to(engine, id, queue, slots(cores, 1, 0, duration));
}

#[test]
fn a_job_that_is_to_end_when_it_starts_is_planned_to_end_a_second_later() {
    let mut engine = pool(8, Policy::Easy);
    submit(&mut engine, 2, 1, f64::MIN_POSITIVE);
    submit(&mut engine, 6, 6, 1.0);
    submit(&mut engine, 11, 2, f64::MIN_POSITIVE);
    // Job 11 has its shadow at 1, when both before it end: job 18 has ended by then.
    submit(&mut engine, 18, 1, 1.0);
    assert_eq!(
        allocs(&mut engine, 0.0),
        [(2, false), (6, false), (18, true)]
    );
}

#[test]
fn estimates_follow_the_policy_and_leave_the_engine_alone() {
    for (policy, expected) in [
        ("fcfs", [Some(110.0), Some(120.0), Some(120.0), None]),
        ("easy", [Some(110.0), Some(100.0), Some(120.0), None]),
        (
            "conservative",
            [Some(110.0), Some(100.0), Some(120.0), None],
        ),
        ("hybrid:2", [Some(110.0), Some(100.0), Some(120.0), None]),
    ] {
        let policy = policy.parse().expect("a policy");
        let mut engine = pool(4, policy);
        submit(&mut engine, 1, 3, 10.0);
        assert_eq!(allocs(&mut engine, 100.0), [(1, false)]);
        submit(&mut engine, 2, 4, 10.0);
        submit(&mut engine, 3, 1, 10.0);
        submit(&mut engine, 4, 1, 20.0);
        // All cores without limit: later jobs never start as planned.
        submit(&mut engine, 5, 4, 0.0);
        submit(&mut engine, 6, 4, 1.0);
        let before = format!("{engine:?}");
        let estimates = engine.estimate(100.0);
        assert_eq!(format!("{engine:?}"), before);
        let found: Vec<Option<f64>> = estimates.iter().map(|estimate| estimate.start).collect();
        assert_eq!(found[..3], expected[..3], "{policy}");
        assert_eq!(estimates[4].start, None, "{policy}");
        assert_eq!(engine.estimate_of(100.0, &[JobId::new(3)]), estimates[1..2]);
        // Long overdue: job 1 ends a second from now.
        let late = engine.estimate_of(500.0, &[JobId::new(2), JobId::new(7)]);
        assert_eq!(
            (late[0].start, late[1].start),
            (Some(501.0), None),
            "{policy}"
        );
    }
}

#[test]
fn a_job_is_backfilled_when_an_earlier_one_of_its_group_stays_waiting() {
    for policy in ["fcfs", "easy", "conservative", "hybrid:2"] {
        let mut engine = pool(8, policy.parse().expect("a policy"));
        let queues = ["a", "b", "c"].map(|name| engine.queue(name));
        for (queue, group, max_jobs) in [
            (queues[0], Some("one"), Some(1)),
            (queues[1], Some("one"), None),
            (queues[2], None, None),
        ] {
            let group = group.map(str::to_owned);
            let options = QueueOptions {
                group,
                max_jobs,
                ..QueueOptions::default()
            };
            engine.set_queue(queue, options);
        }
        // Two jobs in `a`, of which one may run; one behind them in the same group, one in another
        // group.
        for (id, queue) in [(1, 0), (2, 0), (3, 1), (4, 2)] {
            submit_to(&mut engine, id, 1, 10.0, queues[queue]);
        }
        let mut found = allocs(&mut engine, 100.0);
        found.sort_unstable();
        assert_eq!(found, [(1, false), (3, true), (4, false)], "{policy}");
        // A job is blocked in one group: jobs of another group are not behind it.
        submit_to(&mut engine, 5, 8, 10.0, queues[1]);
        submit_to(&mut engine, 6, 1, 10.0, queues[2]);
        submit_to(&mut engine, 7, 1, 10.0, queues[1]);
        let found = allocs(&mut engine, 100.0);
        let past = found.iter().find(|(id, _)| *id == 7);
        assert_eq!(
            past.map(|(_, backfilled)| *backfilled),
            (policy != "fcfs").then_some(true)
        );
        assert!(found.contains(&(6, false)), "{policy}");
    }
}

#[test]
fn a_queue_that_has_become_empty_takes_no_job_from_another() {
    for policy in ["fcfs", "easy", "conservative", "hybrid:2"] {
        let mut engine = pool(8, policy.parse().expect("a policy"));
        let limited = engine.queue("limited");
        let options = QueueOptions {
            max_jobs: Some(1),
            ..QueueOptions::default()
        };
        engine.set_queue(limited, options);
        submit_to(&mut engine, 1, 1, 10.0, limited);
        assert!(engine.cancel(JobId::new(1)));
        submit(&mut engine, 2, 1, 10.0);
        assert_eq!(allocs(&mut engine, 100.0), [(2, false)], "{policy}");
    }
}
