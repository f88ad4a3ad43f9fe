//! The table of the cost of matching: target, measured figure, verdict. `make bench-engine`; `cargo
//! run --release -p penstock-engine --example rows WORD` prints the rows whose name contains the
//! word.
//!
//! A figure is the least of several rounds, and its median. The states:
//!
//! - nodes have 64 cores, all of them up; every tenth has the property `tenth`;
//! - *matches*: an empty machine, a batch of jobs of one shape without a time limit, first come
//!   first served and first fit; their allocations are freed between rounds. Submission is not
//!   timed;
//! - *deep*: 10,000 nodes; 5,000 jobs running, half of them of 1 to 3 whole nodes, half of 32 to 96
//!   slots of two cores, limits up to 10 hours; 100,000 jobs pending in 1,000 shapes (up to 250
//!   slots of 1 to 15 cores, 1 to 4 nodes with up to 63 slots each) with 50 limits of 1 to 50
//!   minutes, behind one that requests 9,990 nodes;
//! - *fragments*: 10,000 nodes, empty; jobs of 1 to 200 slots of 1 to 15 cores are pending, with 50
//!   limits of up to 10 hours: about 750 of them start at once;
//! - *wide*: 100,000 nodes; 100,000 jobs running, each on a whole node, with as many distinct ends;
//!   1,000 jobs of 1 to 2,000 nodes pending.

mod states;
mod table;

use penstock_engine::{Change, Decision, Engine, Job, Policy, QueueId, Selection, ShapeId};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Request};

use states::{
    CORES, HOUR_S, Random, deep, engine, fragments, inventory, on_a_tenth, slots, submit, whole,
    wide,
};
use table::{Figure, Table, peak, repeat, rounds, time};

/// Matches of a batch, each decision separately.
fn matches(nodes: u32, selection: Selection, request: &Request, batch: u32) -> Figure {
    let mut engine = engine(nodes, Policy::Fcfs, selection);
    let shape = engine.shape(request);
    let ids: Vec<JobId> = (0..batch.into()).map(JobId::new).collect();
    let rounds = (0..rounds(401)).map(|_| {
        for id in &ids {
            submit(&mut engine, (*id).get(), shape, 0);
        }
        let mut decisions = Vec::new();
        let took = time(|| decisions = engine.schedule(1.0, usize::MAX));
        assert_eq!(decisions.len(), ids.len(), "all of them fit");
        engine.finish(&ids);
        took
    });
    Figure::of(rounds.collect(), batch)
}

/// Matches of 64 nodes on a machine with half of the nodes, at random, in use.
fn scattered(selection: Selection) -> Figure {
    let mut engine = engine(10_000, Policy::Fcfs, selection);
    let (node, many) = (engine.shape(&whole(1)), engine.shape(&whole(64)));
    for id in 0..10_000 {
        submit(&mut engine, id, node, 0);
    }
    engine.schedule(1.0, usize::MAX);
    let mut random = Random(99);
    let gone = (0..10_000).filter(|_| random.below(2) == 0);
    let gone: Vec<JobId> = gone.map(JobId::new).collect();
    engine.finish(&gone);
    let ids: Vec<JobId> = (20_000..20_015).map(JobId::new).collect();
    let rounds = (0..rounds(401)).map(|_| {
        for id in &ids {
            submit(&mut engine, (*id).get(), many, 0);
        }
        let took = time(|| assert_eq!(engine.schedule(1.0, usize::MAX).len(), ids.len()));
        engine.finish(&ids);
        took
    });
    Figure::of(rounds.collect(), 15)
}

/// A pass over a full machine with one pending job that does not fit; with `freed` this has to be
/// found out again.
fn fails(freed: bool) -> Figure {
    let mut engine = engine(10_000, Policy::Fcfs, Selection::First);
    let (one, many) = (engine.shape(&slots(1, 1)), engine.shape(&whole(64)));
    for id in 0..640_000 {
        submit(&mut engine, id, one, 0);
    }
    engine.schedule(1.0, usize::MAX);
    submit(&mut engine, 1_000_000, many, 0);
    let mut next = 0;
    let rounds = (0..rounds(201)).map(|_| {
        if freed {
            engine.finish(&[JobId::new(next)]);
            next += 1;
        }
        time(|| {
            (0..100)
                .map(|_| engine.schedule(1.0, usize::MAX).len())
                .sum::<usize>()
        })
    });
    Figure::of(rounds.collect(), 100)
}

/// Replaces a random one-core job: queue and counters included.
fn again(nodes: u32) -> Figure {
    let mut engine = engine(nodes, Policy::Fcfs, Selection::First);
    let shape = engine.shape(&slots(1, 1));
    let jobs = nodes * CORES - nodes / 10;
    for id in 0..jobs {
        submit(&mut engine, id.into(), shape, 0);
    }
    engine.schedule(1.0, usize::MAX);
    let mut held: Vec<JobId> = (0..jobs.into()).map(JobId::new).collect();
    let (mut next, mut random) = (u64::from(jobs), Random(88_172_645_463_325_252));
    let mut round = || {
        for _ in 0..10_000 {
            let at = random.below(jobs) as usize;
            engine.finish(&held[at..=at]);
            submit(&mut engine, next, shape, 0);
            held[at] = JobId::new(next);
            next += 1;
            assert_eq!(engine.schedule(1.0, 1).len(), 1);
        }
    };
    let rounds = (0..rounds(21)).map(|_| time(&mut round));
    Figure::of(rounds.collect(), 10_000)
}

fn text(request: &Request) -> Figure {
    let mut engine = engine(10_000, Policy::Fcfs, Selection::First);
    let shape = engine.shape(request);
    submit(&mut engine, 1, shape, 0);
    engine.schedule(1.0, 1);
    let mut text = String::new();
    let rounds = (0..rounds(201)).map(|_| {
        time(|| {
            for _ in 0..100 {
                text.clear();
                engine.write_r(JobId::new(1), &mut text).expect("it runs");
            }
        })
    });
    Figure::of(rounds.collect(), 100)
}

/// A million jobs of 1,000 shapes behind one that holds everything.
fn full() -> Figure {
    let mut engine = engine(1000, Policy::Fcfs, Selection::First);
    let all = engine.shape(&whole(1000));
    submit(&mut engine, 0, all, HOUR_S);
    engine.schedule(0.0, usize::MAX);
    let shapes: Vec<ShapeId> = (0..1000)
        .map(|index| engine.shape(&slots(index + 1, 1 + index % 4)))
        .collect();
    for (id, at) in (1..=1_000_000).zip((0..1000).cycle()) {
        submit(&mut engine, id, shapes[at], 60);
    }
    engine.schedule(1.0, usize::MAX);
    let none = IdSet::new();
    repeat(201, || {
        // As after the end of a job whose resources fit no pending job.
        engine.free(JobId::new(0), Some(&none)).expect("it runs");
        engine.schedule(1.0, usize::MAX).len()
    })
}

/// Bytes per job of a million pending jobs, of `shapes` shapes with `limits` limits each.
fn pending_bytes(shapes: u32, limits: u32) -> usize {
    waiting(1_000_000, shapes, limits).queue_bytes() / 1_000_000
}

/// An engine with `jobs` pending jobs, of `shapes` shapes with `limits` limits each.
fn waiting(jobs: u32, shapes: u32, limits: u32) -> Engine {
    let mut engine = engine(10, Policy::Fcfs, Selection::First);
    let shapes: Vec<ShapeId> = (0..shapes)
        .map(|index| engine.shape(&slots(1 + index / 32, 1 + index % 32)))
        .collect();
    let mut random = Random(3);
    for (id, at) in (0..jobs).zip((0..shapes.len()).cycle()) {
        let limit = 60 * (1 + random.below(limits));
        submit(&mut engine, id.into(), shapes[at], limit);
    }
    engine
}

/// Snapshots, each after a job has been replaced.
fn snapshots(jobs: u32, shapes: u32, limits: u32) -> Figure {
    let mut engine = waiting(jobs, shapes, limits);
    let shape = engine.shape(&slots(1, 1));
    let rounds = (0..rounds(101).into()).map(|round| {
        assert!(engine.cancel(JobId::new(round)));
        submit(&mut engine, u64::from(jobs) + round, shape, 60);
        time(|| {
            engine.share();
            engine.clone()
        })
    });
    Figure::of(rounds.skip(1).collect(), 1)
}

/// The first pass in the deep state.
fn first_pass(policy: Policy, jobs: u32, shapes: u32) -> Figure {
    first_passes(&deep(policy, jobs, shapes), 5)
}

/// First passes of copies.
fn first_passes(engine: &Engine, usual: u32) -> Figure {
    let rounds = (0..rounds(usual)).map(|_| {
        let mut engine = engine.clone();
        let mut decisions = Vec::new();
        let took = time(|| decisions = engine.schedule(1.0, usize::MAX));
        let denied = |decision: &Decision| matches!(decision, Decision::Deny { .. });
        assert!(!decisions.iter().any(denied), "every shape can be met");
        took
    });
    Figure::of(rounds.collect(), 1)
}

/// Passes in the deep state, each after a job has ended.
fn passes(policy: Policy, jobs: u32) -> Figure {
    let mut engine = deep(policy, jobs, 1000);
    engine.schedule(1.0, usize::MAX);
    let rounds = (0..rounds(101).into()).map(|id| {
        engine.finish(&[JobId::new(id)]);
        time(|| engine.schedule(1.0, usize::MAX))
    });
    Figure::of(rounds.collect(), 1)
}

/// A what-if query in the wide state, about the submission of a job.
fn what_if(policy: Policy, nodes: u32) -> Figure {
    let mut engine = wide(policy);
    engine.share();
    let coming = Change::Submit(Job {
        id: JobId::new(u64::MAX),
        priority: 32,
        request: Request {
            duration: 600.0,
            ..whole(nodes)
        },
        queue: QueueId::default(),
    });
    repeat(3, || engine.what_if(&coming, 1.0, 0).expect("a new job"))
}

/// A pass over 2,000 shapes with as many constraints after a property was added.
fn property() -> Figure {
    let mut engine = engine(20_000, Policy::Easy, Selection::First);
    let all = engine.shape(&whole(20_000));
    submit(&mut engine, 0, all, HOUR_S);
    engine.schedule(0.0, usize::MAX);
    for index in 0..2000 {
        let some = IdSet::from(index..=19_999 - index);
        let request = Request {
            constraint: Some(Constraint::Ranks(some)),
            ..slots(1 + index / 40, 1 + index % 40)
        };
        let shape = engine.shape(&request);
        submit(&mut engine, u64::from(1 + index), shape, 60);
    }
    engine.schedule(1.0, usize::MAX);
    let some = IdSet::from(0..=99);
    let rounds = (0..rounds(5)).map(|number| {
        let name = format!("p{number}");
        engine.add_property(&name, &some).expect("known ranks");
        time(|| engine.schedule(2.0, usize::MAX))
    });
    Figure::of(rounds.collect(), 1)
}

fn matching(table: &Table) {
    for (nodes, target) in [(1000, 0.001), (10_000, 0.01), (100_000, 0.1)] {
        table.row(&format!("load {nodes} nodes"), target, || {
            let set = inventory(nodes);
            repeat(11, || Engine::new(&set).expect("an engine"))
        });
    }
    for (nodes, target) in [(10_000, 4_000_000), (100_000, 25_000_000)] {
        table.bytes(
            &format!("memory of {nodes} nodes and index"),
            target,
            || {
                let mut engine = engine(nodes, Policy::Fcfs, Selection::First);
                let shape = engine.shape(&slots(1, 1));
                submit(&mut engine, 1, shape, 0);
                engine.schedule(1.0, 1);
                engine.node_table_bytes()
            },
        );
    }
    for (shapes, limits) in [(1, 1), (1000, 50)] {
        let name = format!("memory of a pending job, 1000000 of {shapes} x {limits}");
        table.bytes(&name, 400, || pending_bytes(shapes, limits));
    }
    let first = Selection::First;
    for (nodes, target) in [(1000, 100e-9), (10_000, 200e-9), (100_000, 300e-9)] {
        table.row(&format!("match 1 core at {nodes} nodes"), target, || {
            matches(nodes, first, &slots(1, 1), 1000)
        });
    }
    table.row("match 1 whole node at 10000 nodes", 250e-9, || {
        matches(10_000, first, &whole(1), 1000)
    });
    table.row("match 64 nodes at 10000 nodes", 3e-6, || {
        matches(10_000, first, &whole(64), 15)
    });
    table.beside(
        "match 1 core on a tenth of 10000 nodes, and on any",
        2.0,
        || {
            (
                matches(10_000, first, &on_a_tenth(slots(1, 1)), 1000),
                matches(10_000, first, &slots(1, 1), 1000),
            )
        },
    );
    table.beside(
        "match 64 nodes of a tenth of 10000, and of any",
        2.0,
        || {
            (
                matches(10_000, first, &on_a_tenth(whole(64)), 15),
                matches(10_000, first, &whole(64), 15),
            )
        },
    );
    for selection in Selection::ALL
        .into_iter()
        .filter(|selection| *selection != first)
    {
        for (what, request, batch) in [("1 core", slots(1, 1), 1000), ("64 nodes", whole(64), 15)] {
            let name = format!("match {what} by {selection} at 10000 nodes, and by first");
            table.beside(&name, 2.0, || {
                (
                    matches(10_000, selection, &request, batch),
                    matches(10_000, first, &request, batch),
                )
            });
        }
    }
    for selection in Selection::ALL
        .into_iter()
        .filter(|selection| *selection != first)
    {
        let name = format!("match 64 of 5000 scattered nodes by {selection}, and by first");
        table.beside(&name, 2.0, || (scattered(selection), scattered(first)));
    }
    table.row("pass with a match that is known to fail", 50e-9, || {
        fails(false)
    });
    table.row("pass with a match that fails after a free", 50e-9, || {
        fails(true)
    });
    table.row(
        "free and match again at 100000 nodes, nearly full",
        600e-9,
        || again(100_000),
    );
    table.row("R as text of 1 core", 500e-9, || text(&slots(1, 1)));
    table.row("R as text of 64 nodes", 3e-6, || text(&whole(64)));
    table.row("R as text of 64 scattered nodes", 3e-6, || {
        text(&on_a_tenth(whole(64)))
    });
}

fn planning(table: &Table) {
    let hybrid = Policy::Hybrid { depth: 8 };
    table.row(
        "full: fcfs pass, 1000000 pending of 1000 shapes",
        100e-6,
        full,
    );
    table.row("deep: easy, first pass", 5e-3, || {
        first_pass(Policy::Easy, 100_000, 1000)
    });
    table.row("deep: easy, first pass with 10000 shapes", 5e-3, || {
        first_pass(Policy::Easy, 100_000, 10_000)
    });
    table.row("deep: easy, pass after a release", 5e-3, || {
        passes(Policy::Easy, 100_000)
    });
    table.figure("deep: hybrid:8, first pass", || {
        first_pass(hybrid, 100_000, 1000)
    });
    table.figure("deep: hybrid:8, pass after a release", || {
        passes(hybrid, 100_000)
    });
    table.figure("deep, 1000 pending: conservative, first pass", || {
        first_pass(Policy::Conservative, 1000, 1000)
    });
    table.figure(
        "deep, 1000 pending: conservative, pass after a release",
        || passes(Policy::Conservative, 1000),
    );
    table.figure("deep: conservative, first pass", || {
        first_passes(&deep(Policy::Conservative, 100_000, 1000), 1)
    });
    table.figure("deep: conservative, pass after a release", || {
        passes(Policy::Conservative, 100_000)
    });
    for jobs in [1000, 4000, 20_000] {
        table.figure(
            &format!("fragments, {jobs} pending: conservative, first pass"),
            || {
                let engine = fragments(Policy::Conservative, jobs);
                first_passes(&engine, 3)
            },
        );
    }
    for (policy, target) in [
        (Policy::Fcfs, 1.0),
        (Policy::Conservative, 1.0),
        (Policy::Easy, 6.0),
    ] {
        table.row(
            &format!("deep: {policy}, estimates of 100000"),
            target,
            || {
                let mut engine = deep(policy, 100_000, 1000);
                if policy == Policy::Conservative {
                    // The usual case: a pass has been made.
                    engine.schedule(1.0, usize::MAX);
                }
                engine.share();
                repeat(2, || engine.estimate(1.0))
            },
        );
    }
    table.row("wide: snapshot", 20e-3, || {
        let mut engine = wide(Policy::Easy);
        repeat(201, || {
            engine.share();
            engine.clone()
        })
    });
    for jobs in [200_000, 1_000_000] {
        for (shapes, limits) in [(1, 1), (1000, 50)] {
            let name = format!("snapshot, {jobs} pending of {shapes} x {limits}");
            table.figure(&name, || snapshots(jobs, shapes, limits));
        }
    }
    for policy in [Policy::Fcfs, Policy::Easy] {
        table.figure(
            &format!("wide: {policy}, what if a job requests 90000 nodes"),
            || what_if(policy, 90_000),
        );
        table.figure(&format!("wide: {policy}, estimates of 1000"), || {
            let mut engine = wide(policy);
            engine.share();
            repeat(1, || engine.estimate(1.0))
        });
    }
    table.figure(
        "pass after a property has come, 2000 constraints on 20000 nodes",
        property,
    );
}

fn main() {
    let table = Table(std::env::args().nth(1));
    println!("| row | target | figure (median) | of the target | verdict |");
    println!("|---|---|---|---|---|");
    matching(&table);
    planning(&table);
    if let Some(peak) = peak() {
        println!("\nThe most memory that the process had at a time: {peak}.");
    }
}
