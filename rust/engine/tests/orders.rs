//! The order of a queue's jobs, compared with sorting all of them.

mod machines;

use std::collections::BTreeMap;

use machines::{engine, nodes, slots, submit_to};
use penstock_engine::{Decision, Engine, Job, Order, Policy, QueueOptions};
use penstock_jobspec::job_id::JobId;
use proptest::prelude::*;

const ORDERS: [Order; 5] = [
    Order::Priority,
    Order::Fifo,
    Order::Shortest,
    Order::Smallest,
    Order::Largest,
];

fn options(order: Order, group: Option<&str>) -> QueueOptions {
    QueueOptions {
        order,
        group: group.map(str::to_owned),
        ..QueueOptions::default()
    }
}

fn ordered(engine: &mut Engine, order: Order, group: Option<&str>) {
    let queue = engine.queue("it");
    engine.set_queue(queue, options(order, group));
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    priority: u32,
    cores: u32,
    /// Seconds; 0 for no limit.
    limit: f64,
}

/// The jobs that are not held, in order, expedited jobs before all others.
fn line(jobs: &BTreeMap<u64, Waiting>, order: Order) -> Vec<u64> {
    let mut line: Vec<(u64, Waiting)> = jobs.iter().map(|(id, job)| (*id, *job)).collect();
    line.retain(|(_, job)| job.priority > 0);
    line.sort_by_key(|(id, job)| {
        let limit = if job.limit > 0.0 { job.limit } else { 1e300 };
        let key = match order {
            _ if job.priority == u32::MAX => (0, 0),
            Order::Priority => (1, u64::from(u32::MAX - job.priority)),
            Order::Fifo => (1, 0),
            Order::Shortest => (1, limit.to_bits()),
            Order::Smallest => (1, job.cores.into()),
            Order::Largest => (1, u64::from(u32::MAX - job.cores)),
        };
        (key, *id)
    });
    line.into_iter().map(|(id, _)| id).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Submit(Waiting),
    Prioritize(u64, u32),
    Cancel(u64),
    /// Another order, and another group.
    Order(Order, Option<&'static str>),
    /// The same, in slices of `usize` jobs, of which one is made before each step that follows.
    OrderInSlices(Order, Option<&'static str>, usize),
    Free(usize),
    Schedule,
}

fn priority() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0, 1, 16, 17, u32::MAX - 1, u32::MAX])
}

fn step() -> impl Strategy<Value = Step> {
    let limits = vec![0.0, 1e-3, 1.0, 59.5, 60.0, 1e6, 1e30];
    let waiting = (priority(), 1_u32..9, prop::sample::select(limits)).prop_map(
        |(priority, cores, limit)| Waiting {
            priority,
            cores,
            limit,
        },
    );
    prop_oneof![
        6 => waiting.prop_map(Step::Submit),
        2 => (1_u64..40, priority()).prop_map(|(id, priority)| Step::Prioritize(id, priority)),
        1 => (1_u64..40).prop_map(Step::Cancel),
        1 => (prop::sample::select(ORDERS.to_vec()), prop::sample::select(vec![None, Some("a"), Some("b")]))
            .prop_map(|(order, group)| Step::Order(order, group)),
        1 => (prop::sample::select(ORDERS.to_vec()), prop::sample::select(vec![None, Some("a")]), 1_usize..6)
            .prop_map(|(order, group, max)| Step::OrderInSlices(order, group, max)),
        2 => (0_usize..9).prop_map(Step::Free),
        2 => Just(Step::Schedule),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn jobs_go_in_the_order_of_their_queue(
        first in prop::sample::select(ORDERS.to_vec()),
        limited in any::<bool>(),
        alike in any::<bool>(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        const CORES: u32 = 8;
        let mut engine = engine(Policy::Fcfs, &[(CORES, 0)]);
        let other = engine.queue("other");
        if limited {
            engine.set_queue(other, QueueOptions { max_jobs: Some(1), ..QueueOptions::default() });
        }
        let mut order = first;
        ordered(&mut engine, order, None);
        let queue = engine.queue("it");
        let mut waiting = BTreeMap::new();
        let mut running: BTreeMap<u64, u32> = BTreeMap::new();
        let mut next = 0;
        let mut slice = 1;
        for step in steps {
            match step {
                Step::Submit(mut job) => {
                    next += 1;
                    if alike {
                        (job.cores, job.limit) = (2, 60.0);
                    }
                    let request = slots(job.cores, 1, 0, job.limit);
                    let (id, priority) = (next, job.priority);
                    engine.submit(Job { id: JobId::new(id), priority, request, queue }).unwrap();
                    waiting.insert(id, job);
                }
                Step::Prioritize(id, priority) => {
                    engine.prioritize(&[(JobId::new(id), priority)]);
                    if let Some(job) = waiting.get_mut(&id) {
                        job.priority = priority;
                        prop_assert_eq!(engine.priority(JobId::new(id)), Some(priority));
                    }
                }
                Step::Cancel(id) => {
                    prop_assert_eq!(engine.cancel(JobId::new(id)), waiting.remove(&id).is_some());
                }
                Step::Order(to, group) => {
                    order = to;
                    ordered(&mut engine, order, group);
                }
                Step::OrderInSlices(to, group, max) => {
                    (order, slice) = (to, max);
                    engine.begin_set_queue(queue, options(order, group));
                }
                Step::Free(index) => {
                    if let Some(id) = running.keys().nth(index).copied() {
                        running.remove(&id);
                        engine.free(JobId::new(id), None).unwrap();
                    }
                }
                Step::Schedule => {
                    let mut expected = Vec::new();
                    for id in line(&waiting, order) {
                        let cores = waiting[&id].cores;
                        if running.values().sum::<u32>() + cores > CORES {
                            break;
                        }
                        waiting.remove(&id);
                        running.insert(id, cores);
                        expected.push(Decision::Alloc { id: JobId::new(id), backfilled: false });
                    }
                    prop_assert_eq!(engine.schedule(100.0, usize::MAX), expected);
                }
            }
            prop_assert_eq!(engine.reorder(slice), engine.is_reordering());
            if engine.is_reordering() {
                continue;
            }
            let line = line(&waiting, order);
            prop_assert_eq!(engine.head().map(JobId::get), line.first().copied());
            let pending: Vec<u64> = engine.pending_jobs().iter().map(|job| job.id.get()).collect();
            prop_assert_eq!(&pending[..line.len()], &line[..]);
            prop_assert_eq!(pending.len(), waiting.len());
            let queued: Vec<u64> = engine.queue_order().into_iter().map(JobId::get).collect();
            prop_assert_eq!(queued, line);
        }
    }
}

/// A queue whose order has changed in slices, with changes in between, decides as one that has had the order from the
/// beginning.
#[test]
fn a_long_queue_gets_another_order_in_slices() {
    const JOBS: u64 = 3000;
    // One shape and time limit; 30 shapes and 50 time limits.
    for (shapes, limits) in [(1, 1), (30, 50)] {
        let job = |id: u64, queue| Job {
            id: JobId::new(id),
            priority: u32::try_from(1 + id * 7 % 5).unwrap(),
            request: slots(
                u32::try_from(1 + id % shapes).unwrap(),
                1,
                0,
                f64::from(u32::try_from(100 + id / shapes % limits).unwrap()),
            ),
            queue,
        };
        for (from, to) in [
            (Order::Priority, Order::Fifo),
            (Order::Smallest, Order::Priority),
            (Order::Fifo, Order::Shortest),
        ] {
            let mut engines = [from, to].map(|order| {
                let mut engine = engine(Policy::Easy, &[(64, 0)]);
                ordered(&mut engine, order, None);
                let queue = engine.queue("it");
                for id in 1..=JOBS {
                    engine.submit(job(id, queue)).unwrap();
                }
                engine
            });
            let queue = engines[0].queue("it");
            engines[0].begin_set_queue(queue, options(to, None));
            let mut slices: u64 = 1;
            while engines[0].reorder(100) {
                slices += 1;
                for engine in &mut engines {
                    engine.submit(job(JOBS + slices, queue)).unwrap();
                    engine.cancel(JobId::new(slices * 17 % JOBS));
                    engine.prioritize(&[(JobId::new(slices * 41 % JOBS), 3)]);
                    engine.prioritize(&[(JobId::new(slices * 43 % JOBS), 0)]);
                }
            }
            // Some jobs were cancelled or held before their turn.
            assert!(slices * 100 > JOBS * 9 / 10, "{slices}");
            let [mut changed, mut new] = engines;
            assert_eq!(changed.queue_order(), new.queue_order());
            assert_eq!(changed.schedule(0.0, 1000), new.schedule(0.0, 1000));
        }
    }
}

/// The last job of a class leaves while its lane is being put in order.
#[test]
fn a_job_that_is_cancelled_during_a_new_order_is_no_head() {
    for slice in 1..40 {
        let mut engine = engine(Policy::Fcfs, &[(8, 0)]);
        ordered(&mut engine, Order::Priority, None);
        let queue = engine.queue("it");
        for (id, limit, priority) in [(1, 10.0, 1), (2, 20.0, 100)] {
            let request = slots(1, 1, 0, limit);
            let id = JobId::new(id);
            engine
                .submit(Job {
                    id,
                    priority,
                    request,
                    queue,
                })
                .unwrap();
        }
        engine.begin_set_queue(queue, options(Order::Fifo, None));
        engine.reorder(slice);
        assert!(engine.cancel(JobId::new(2)));
        while engine.reorder(100) {}
        assert_eq!(
            engine.head(),
            Some(JobId::new(1)),
            "after a slice of {slice}"
        );
    }
}

/// A queue is configured twice while another one is put in order, and has no job at the second time.
#[test]
fn the_last_configuration_of_a_queue_holds_for_later_jobs() {
    let mut engine = engine(Policy::Fcfs, &[(8, 0)]);
    let [long, short] = ["long", "short"].map(|name| engine.queue(name));
    for id in 1..=1000 {
        submit_to(&mut engine, id, long, slots(1, 1, 0, 10.0));
    }
    submit_to(&mut engine, 1001, short, slots(1, 1, 0, 10.0));
    engine.begin_set_queue(long, options(Order::Fifo, Some("a")));
    engine.begin_set_queue(short, options(Order::Fifo, Some("a")));
    assert!(engine.reorder(100));
    assert!(engine.cancel(JobId::new(1001)));
    engine.begin_set_queue(short, options(Order::Priority, None));
    for (id, priority) in [(1002, 1), (1003, 2)] {
        let request = slots(1, 1, 0, 10.0);
        let id = JobId::new(id);
        engine
            .submit(Job {
                id,
                priority,
                request,
                queue: short,
            })
            .unwrap();
    }
    while engine.reorder(100) {}
    for id in 1..=1000 {
        engine.cancel(JobId::new(id));
    }
    let order: Vec<u64> = engine.queue_order().into_iter().map(JobId::get).collect();
    assert_eq!(order, [1003, 1002]);
}

#[test]
fn a_queue_of_many_shapes_moves_to_another_group_in_slices() {
    const SHAPES: u32 = 1000;
    let mut engines = [None, Some("a")].map(|group| {
        let mut engine = engine(Policy::Fcfs, &[(64, 0)]);
        let blocked = engine.queue("blocked");
        engine.set_queue(blocked, options(Order::Fifo, Some("a")));
        ordered(&mut engine, Order::Fifo, group);
        submit_to(&mut engine, 1, blocked, slots(1, 10, 0, 10.0));
        engine.schedule(0.0, 10);
        // It blocks its group.
        submit_to(&mut engine, 2, blocked, slots(1, 64, 0, 10.0));
        let queue = engine.queue("it");
        for id in 3..3 + SHAPES {
            let request = slots(1 + id % 50, 1 + id / 50, 0, 10.0);
            submit_to(&mut engine, id.into(), queue, request);
        }
        engine
    });
    let queue = engines[0].queue("it");
    engines[0].begin_set_queue(queue, options(Order::Fifo, Some("a")));
    let mut slices = 1;
    while engines[0].reorder(100) {
        slices += 1;
        for engine in &mut engines {
            engine.cancel(JobId::new(slices * 17));
        }
    }
    assert!(slices >= u64::from(SHAPES) / 100, "{slices}");
    let [mut changed, mut new] = engines;
    assert_eq!(changed.queue_order(), new.queue_order());
    assert_eq!(changed.schedule(0.0, 2000), []);
    assert_eq!(new.schedule(0.0, 2000), []);
    // A queue without jobs has nothing to move.
    let other = changed.queue("other");
    changed.begin_set_queue(other, options(Order::Smallest, Some("a")));
    assert!(!changed.is_reordering());
}

#[test]
fn backfill_follows_the_order() {
    for policy in [
        Policy::Easy,
        Policy::Conservative,
        Policy::Hybrid { depth: 2 },
    ] {
        let mut engine = engine(policy, &[(8, 0)]);
        ordered(&mut engine, Order::Shortest, None);
        let queue = engine.queue("it");
        submit_to(&mut engine, 1, queue, slots(6, 1, 0, 100.0));
        engine.schedule(0.0, 10);
        // The shortest is blocked, and the next in order, which ends in time, passes it.
        submit_to(&mut engine, 2, queue, slots(2, 1, 0, 90.0));
        submit_to(&mut engine, 3, queue, slots(8, 1, 0, 10.0));
        submit_to(&mut engine, 4, queue, slots(2, 1, 0, 80.0));
        let (id, backfilled) = (4, true);
        let decisions = engine.schedule(0.0, 10);
        assert_eq!(
            decisions,
            [Decision::Alloc {
                id: JobId::new(id),
                backfilled
            }],
            "{policy}"
        );
        let reasons = engine.explain_all(0.0, 10);
        let ids: Vec<u64> = reasons.iter().map(|(id, _)| id.get()).collect();
        assert_eq!(ids, [3, 2], "{policy}");
    }
}

#[test]
fn pending_jobs_move_to_the_group_of_their_queue() {
    let mut engine = engine(Policy::Fcfs, &[(4, 0)]);
    let (one, two) = (engine.queue("one"), engine.queue("two"));
    submit_to(&mut engine, 1, one, slots(3, 1, 0, 10.0));
    engine.schedule(0.0, 10);
    for (id, queue) in [(2, one), (3, two), (4, two)] {
        let request = if queue == one {
            nodes(1, 4, 0, 10.0)
        } else {
            slots(1, 1, 0, 10.0)
        };
        submit_to(&mut engine, id, queue, request);
    }
    for queue in [one, two] {
        let options = QueueOptions {
            group: Some("both".to_owned()),
            ..QueueOptions::default()
        };
        engine.set_queue(queue, options);
    }
    assert_eq!(engine.schedule(0.0, 10), []);
}

#[test]
fn an_order_has_a_name() {
    for order in ORDERS {
        assert_eq!(order.to_string().parse(), Ok(order));
    }
    let error = "random".parse::<Order>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "order `random`: expected `priority`, `fifo`, `shortest`, `smallest` or `largest`"
    );
}
