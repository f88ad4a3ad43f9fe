//! Reasons of `explain` compared with the next pass: with every policy, selection, order and set of
//! queues with limits, and with count ranges.

mod machines;

use std::collections::BTreeMap;

use machines::{inventory, random_request};
use penstock_engine::{
    Decision, Engine, Job, Options, Order, Overlong, Policy, QueueId, QueueOptions, Reason,
    Selection,
};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Count, Operator, Request};
use proptest::prelude::*;

/// The claim of a reason about a job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// The next pass starts it.
    Starts,
    /// It is denied when its turn comes.
    Denied,
    /// Its queue is at a limit.
    Limit,
    /// Its resources are not free.
    Unfit,
    /// It fits, but would delay other pending jobs.
    Fits,
}

fn says(reason: &Reason) -> Says {
    match reason {
        Reason::Unconsidered => Says::Starts,
        Reason::Impossible { .. } | Reason::Outlives { .. } => Says::Denied,
        Reason::QueueLimit { .. } | Reason::Reserved { limit: Some(_), .. } => Says::Limit,
        Reason::Down { .. }
        | Reason::Insufficient { .. }
        | Reason::Reserved {
            shortage: Some(_), ..
        } => Says::Unfit,
        _ => Says::Fits,
    }
}

/// The pending jobs that are not held, with their reasons.
fn reasons(engine: &mut Engine, now: f64) -> BTreeMap<u64, Reason> {
    let ids = engine.queue_order();
    let reason = |id: &JobId| (id.get(), engine.explain(*id, now).expect("it is pending"));
    ids.iter().map(reason).collect()
}

/// A copy of an engine in which no other job than this is pending.
fn alone(engine: &Engine, id: u64) -> Engine {
    let mut copy = engine.clone();
    for other in copy.queue_order() {
        if other != JobId::new(id) {
            copy.cancel(other);
        }
    }
    copy
}

/// Whether a job would start now.
fn starts(mut engine: Engine, id: u64, now: f64) -> bool {
    engine.schedule(now, usize::MAX);
    engine.is_running(JobId::new(id))
}

/// Whether a job would start now if it had another time limit.
fn starts_with(engine: &Engine, id: u64, duration: f64, now: f64) -> bool {
    let mut copy = engine.clone();
    let mut job = copy.job(JobId::new(id)).expect("it is pending");
    job.request.duration = duration;
    copy.cancel(JobId::new(id));
    copy.submit(job).expect("its id is free");
    starts(copy, id, now)
}

/// Checks the claim of a reason by passes in modified copies of the engine.
fn check(engine: &mut Engine, id: u64, reason: &Reason, now: f64) {
    let said = says(reason);
    let by_itself = starts(alone(engine, id), id, now);
    match said {
        Says::Starts => panic!("job {id} after a pass: {reason:?}"),
        Says::Denied | Says::Limit | Says::Unfit => {
            assert!(!by_itself, "job {id} starts alone: {reason:?}");
        }
        Says::Fits => assert!(by_itself, "job {id} does not start alone: {reason:?}"),
    }
    let queue = engine.job(JobId::new(id)).expect("it is pending").queue;
    if let Reason::QueueLimit(limit) = reason {
        assert_eq!(limit.queue, queue);
        let mut copy = alone(engine, id);
        copy.set_queue(queue, QueueOptions::default());
        let reason = copy.explain(JobId::new(id), now).expect("it is pending");
        assert_ne!(says(&reason), Says::Limit, "job {id}: {reason:?}");
    }
    let other = match reason {
        Reason::Insufficient { behind, .. } => *behind,
        Reason::Behind { job }
        | Reason::BehindReservation { job, .. }
        | Reason::BehindLimit { job, .. } => Some(*job),
        _ => None,
    };
    if let Some(other) = other {
        assert!(
            other != JobId::new(id) && engine.is_queued(other),
            "job {id}: {reason:?}"
        );
        let order = engine.queue_order();
        let position = |id: u64| order.iter().position(|other| *other == JobId::new(id));
        // Under conservative backfill all have reservations, later ones too.
        let may_be_later = engine.options().policy == Policy::Conservative
            && !matches!(reason, Reason::Insufficient { .. });
        assert!(
            may_be_later || position(other.get()) < position(id),
            "job {id}: {reason:?}"
        );
    }
    if let Reason::BehindReservation { at, .. } | Reason::BehindLimit { at, .. } = reason
        && at.is_finite()
        && *at > now
        && engine.inventory_expiration().is_none_or(|end| end >= *at)
        // Under conservative backfill a change of one job may let others start, too.
        && engine.options().policy != Policy::Conservative
    {
        assert!(
            starts_with(engine, id, at - now, now),
            "job {id} does not start if it ends by {at}: {reason:?}"
        );
    }
}

fn count(most: u32) -> impl Strategy<Value = Count> {
    (1..=most, 0..4_u32).prop_map(|(min, more)| match more {
        0 => Count::exactly(min),
        more => Count::range(min, Some(min + more), Operator::Add, 1).expect("a range"),
    })
}

/// A request with ranges, in half of the cases.
fn request() -> impl Strategy<Value = Request> {
    let ranges = prop::option::of((count(3), count(2), count(3)));
    (random_request(), ranges).prop_map(|(mut request, ranges)| {
        if let Some((units, slots, cores)) = ranges {
            if request.nnodes.is_some() {
                request.nnodes = Some(units);
                request.slots = slots;
            } else {
                request.slots = units;
            }
            request.cores_per_slot = cores;
        }
        request
    })
}

/// The kind of requests of all jobs: any, or only requests that sums decide.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Units {
    Any,
    Cores,
    WholeNodes,
}

impl Units {
    fn of(self, request: &Request) -> Request {
        let units = request.nnodes.as_ref().unwrap_or(&request.slots).clone();
        let one = Request {
            nnodes: None,
            exclusive: false,
            slots: units.clone(),
            cores_per_slot: 1.into(),
            gpus_per_slot: 0.into(),
            duration: request.duration,
            constraint: None,
        };
        match self {
            Self::Any => request.clone(),
            Self::Cores => one,
            Self::WholeNodes => Request {
                nnodes: Some(units),
                exclusive: true,
                slots: 1.into(),
                ..one
            },
        }
    }
}

fn queues() -> impl Strategy<Value = Vec<QueueOptions>> {
    let limit = |most: u64| prop::option::weighted(0.3, 1..=most);
    let order = prop::sample::select(vec![
        Order::Priority,
        Order::Priority,
        Order::Fifo,
        Order::Shortest,
        Order::Smallest,
    ]);
    let queue = (prop::bool::weighted(0.7), limit(3), limit(5), limit(12));
    (order, prop::collection::vec(queue, 1..4)).prop_map(|(order, queues)| {
        let options = |(grouped, max_jobs, max_nodes, max_cores): (bool, _, _, _)| QueueOptions {
            group: grouped.then(|| "one".to_owned()),
            order,
            max_jobs,
            max_nodes,
            max_cores,
        };
        queues.into_iter().map(options).collect()
    })
}

#[derive(Clone, Debug)]
struct Round {
    jobs: Vec<(Request, u32, usize)>,
    /// Seconds until the round.
    step: u32,
    /// Nodes that are down, as bits.
    down: u32,
    /// Which of the running jobs end early.
    ending: u64,
    reprioritized: Option<u32>,
    expiration: Option<u32>,
}

fn round() -> impl Strategy<Value = Round> {
    let jobs = prop::collection::vec((request(), 0_u32..4, 0..3_usize), 0..7);
    let expiration = prop::option::weighted(0.1, 1_u32..80);
    let down = prop_oneof![2 => Just(0), 1 => 0..64_u32];
    (
        jobs,
        0..40_u32,
        down,
        0..4_u64,
        prop::option::of(0..4_u32),
        expiration,
    )
        .prop_map(
            |(jobs, step, down, ending, reprioritized, expiration)| Round {
                jobs,
                step,
                down,
                ending,
                reprioritized,
                expiration,
            },
        )
}

/// Changes of a round.
fn apply(engine: &mut Engine, round: &Round, next: &mut u64, queues: &[QueueId], now: f64) {
    let over: Vec<JobId> = (1..*next)
        .map(JobId::new)
        .filter(|id| engine.is_running(*id))
        .filter(|id| {
            let due = engine.expiration(*id).is_some_and(|end| end <= now);
            due && id.get() % 5 > 0 || id.get() % 4 == round.ending && round.step > 20
        })
        .collect();
    engine.finish(&over);
    for (request, priority, queue) in &round.jobs {
        let job = Job {
            id: JobId::new(*next),
            priority: *priority,
            request: request.clone(),
            queue: queues[queue % queues.len()],
        };
        engine.submit(job).expect("a new id");
        *next += 1;
    }
    let all = engine.ranks().clone();
    let lost: IdSet = all
        .iter()
        .filter(|rank| round.down >> rank & 1 == 1)
        .collect();
    engine.mark_up(&all.difference(&lost));
    if !lost.is_empty() {
        engine.mark_down(&lost);
    }
    if let Some(priority) = round.reprioritized
        && let Some(id) = engine.queue_order().get(1)
    {
        engine.prioritize(&[(*id, priority)]);
    }
    if let Some(left) = round.expiration {
        engine.set_inventory_expiration(Some(now + f64::from(left)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn explanations_are_what_the_next_pass_does(
        sizes in prop::collection::vec((1_u32..6, 0_u32..3), 1..6),
        policy in machines::policy(),
        selection in prop::sample::select(Selection::ALL.to_vec()),
        overlong in prop::sample::select(vec![Overlong::Shorten, Overlong::Deny]),
        queues in queues(),
        units in prop::sample::select(vec![Units::Any, Units::Cores, Units::WholeNodes]),
        rounds in prop::collection::vec(round(), 1..6),
    ) {
        let inventory = inventory(&sizes);
        let options = Options { policy, selection, overlong };
        let mut engine = Engine::with_options(&inventory, options).expect("R is complete");
        let queues: Vec<QueueId> = queues
            .iter()
            .enumerate()
            .map(|(number, options)| {
                let id = engine.queue(&format!("q{number}"));
                engine.set_queue(id, options.clone());
                id
            })
            .collect();
        let (mut now, mut next) = (100.0, 1);
        for mut round in rounds {
            for (request, ..) in &mut round.jobs {
                *request = units.of(request);
            }
            now += f64::from(round.step);
            apply(&mut engine, &round, &mut next, &queues, now);
            let before = reasons(&mut engine, now);
            let order = engine.queue_order();
            let all = engine.explain_all(now, usize::MAX);
            prop_assert_eq!(all.iter().map(|(id, _)| *id).collect::<Vec<_>>(), order);
            for (id, reason) in all {
                prop_assert_eq!(&reason, &before[&id.get()], "job {}", id.get());
            }
            let decisions = engine.schedule(now, usize::MAX);
            let decided: BTreeMap<u64, Says> = decisions
                .into_iter()
                .map(|decision| match decision {
                    Decision::Alloc { id, .. } => (id.get(), Says::Starts),
                    Decision::Deny { id, .. } => (id.get(), Says::Denied),
                })
                .collect();
            let after = reasons(&mut engine, now);
            for (id, reason) in &before {
                if let Some(decision) = decided.get(id) {
                    prop_assert_eq!(says(reason), *decision, "job {}", id);
                } else {
                    prop_assert_eq!(Some(reason), after.get(id), "job {}", id);
                }
            }
            prop_assert_eq!(engine.clone().schedule(now, usize::MAX), []);
            for (id, reason) in &after {
                check(&mut engine, *id, reason, now);
            }
        }
    }
}
