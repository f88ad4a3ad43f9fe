//! The table of what matching is to cost and what it costs: target, figure, verdict.
//! `make bench-engine`; `cargo run --release -p penstock-engine --example rows WORD` takes the rows
//! whose name has the word.
//!
//! A figure is the least of several rounds, and its median. The states:
//!
//! - nodes have 64 cores, all of them up; every tenth has the property `tenth`;
//! - *matches*: an empty machine, a batch of jobs of one shape without a time limit, first come
//!   first served and first fit; what they got is freed between rounds. Submitting is left out;
//! - *deep*: 10,000 nodes; 5,000 jobs running, half of them of 1 to 3 whole nodes, half of 32 to 96
//!   slots of two cores, limits up to 10 hours; 100,000 jobs waiting in 1,000 shapes (slots of 1 to
//!   15 cores, 1 to 4 nodes with up to 63 slots each) with 50 limits of 1 to 50 minutes, behind one that wants
//!   9,990 nodes;
//! - *wide*: 100,000 nodes; 100,000 jobs running, each on a whole node, with as many distinct ends;
//!   1,000 jobs of 1 to 2,000 nodes waiting.

use std::hint::black_box;
use std::time::{Duration, Instant};

use penstock_engine::{
    Change, Decision, Engine, Job, Options, Policy, QueueId, Selection, ShapeId,
};
use penstock_idset::IdSet;
use penstock_jobspec::{Constraint, Count, Request};
use penstock_rset::ResourceSet;

const CORES: u32 = 64;
const HOUR: u32 = 3600;

/// Numbers that look random, the same on every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(((self.0 >> 32) * u64::from(bound)) >> 32).unwrap_or(0)
    }
}

fn inventory(nodes: u32) -> ResourceSet {
    let hosts = format!("node[0-{}]", nodes - 1).parse().expect("hosts");
    let (ranks, cores) = (IdSet::from(0..=nodes - 1), IdSet::from(0..=CORES - 1));
    let mut set = ResourceSet::uniform(&ranks, &hosts, cores, IdSet::new()).expect("an R");
    let tenth = (0..nodes).step_by(10).collect();
    set.add_property("tenth", &tenth).expect("a property");
    set
}

fn engine(nodes: u32, policy: Policy, selection: Selection) -> Engine {
    let options = Options {
        policy,
        selection,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&inventory(nodes), options).expect("an engine");
    engine.mark_up(&(0..=nodes - 1).into());
    engine
}

fn slots(slots: u32, cores: u32) -> Request {
    Request {
        nnodes: None,
        exclusive: false,
        slots: Count::exactly(slots),
        cores_per_slot: Count::exactly(cores),
        gpus_per_slot: Count::exactly(0),
        duration: 0.0,
        constraint: None,
    }
}

fn whole(nodes: u32) -> Request {
    Request {
        nnodes: Some(nodes.into()),
        exclusive: true,
        ..slots(1, CORES)
    }
}

fn on_a_tenth(request: Request) -> Request {
    let tenth = Constraint::Properties(vec!["tenth".to_owned()]);
    Request {
        constraint: Some(tenth),
        ..request
    }
}

fn submit(engine: &mut Engine, id: u64, shape: ShapeId, limit: u32) {
    let queued = engine.submit_shape(id, 16, shape, limit.into(), QueueId::default());
    queued.expect("ids are distinct");
}

/// Seconds of rounds: the least, and the median.
#[derive(Clone, Copy)]
struct Figure(f64, f64);

impl Figure {
    fn of(mut rounds: Vec<Duration>, of_each: u32) -> Self {
        rounds.sort_unstable();
        let seconds = |it: Duration| it.as_secs_f64() / f64::from(of_each);
        Self(seconds(rounds[0]), seconds(rounds[rounds.len() / 2]))
    }
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

fn repeat<T>(rounds: u32, mut work: impl FnMut() -> T) -> Figure {
    Figure::of((0..rounds).map(|_| time(&mut work)).collect(), 1)
}

fn shown(seconds: f64) -> String {
    let (value, unit) = match seconds {
        it if it < 1e-6 => (it * 1e9, "ns"),
        it if it < 1e-3 => (it * 1e6, "us"),
        it if it < 1.0 => (it * 1e3, "ms"),
        it => (it, "s"),
    };
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$} {unit}")
}

/// The table, as far as it is asked for.
struct Table(Option<String>);

impl Table {
    fn wants(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|word| name.contains(word))
    }

    /// A row with a target in seconds.
    fn row(&self, name: &str, target: f64, work: impl FnOnce() -> Figure) {
        if self.wants(name) {
            let Figure(least, median) = work();
            let (ratio, verdict) = (least / target, verdict(least <= target));
            let (target, least, median) = (shown(target), shown(least), shown(median));
            println!("| {name} | {target} | {least} ({median}) | {ratio:.2} | {verdict} |");
        }
    }

    /// A row of which only the figure matters.
    fn figure(&self, name: &str, work: impl FnOnce() -> Figure) {
        if self.wants(name) {
            let Figure(least, median) = work();
            println!(
                "| {name} | - | {} ({}) | - | - |",
                shown(least),
                shown(median)
            );
        }
    }

    /// A row that is to be at most so many times another.
    fn beside(&self, name: &str, times: f64, work: impl FnOnce() -> (Figure, Figure)) {
        if self.wants(name) {
            let (figure, other) = work();
            let ratio = figure.0 / other.0;
            let (verdict, figure) = (verdict(ratio <= times), shown(figure.0));
            let (other, ratio_of) = (shown(other.0), ratio / times);
            println!(
                "| {name} | {times} x | {ratio:.2} x ({figure} and {other}) | {ratio_of:.2} | {verdict} |"
            );
        }
    }

    fn bytes(&self, name: &str, target: usize, work: impl FnOnce() -> usize) {
        if self.wants(name) {
            let bytes = work();
            let hundredths = bytes * 100 / target;
            let (whole, part) = (hundredths / 100, hundredths % 100);
            let verdict = verdict(bytes <= target);
            println!("| {name} | {target} B | {bytes} B | {whole}.{part:02} | {verdict} |");
        }
    }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// Matches of a batch, each decision for itself.
fn matches(nodes: u32, selection: Selection, request: &Request, batch: u32) -> Figure {
    let mut engine = engine(nodes, Policy::Fcfs, selection);
    let shape = engine.shape(request);
    let ids: Vec<u64> = (0..batch.into()).collect();
    let rounds = (0..401).map(|_| {
        for id in &ids {
            submit(&mut engine, *id, shape, 0);
        }
        let start = Instant::now();
        let decisions = engine.schedule(1.0, usize::MAX);
        let took = start.elapsed();
        assert_eq!(decisions.len(), ids.len(), "all of them fit");
        engine.finish(&ids);
        took
    });
    Figure::of(rounds.collect(), batch)
}

/// Matches of 64 nodes where nodes are taken at random, half of them.
fn scattered(selection: Selection) -> Figure {
    let mut engine = engine(10_000, Policy::Fcfs, selection);
    let (node, many) = (engine.shape(&whole(1)), engine.shape(&whole(64)));
    for id in 0..10_000 {
        submit(&mut engine, id, node, 0);
    }
    engine.schedule(1.0, usize::MAX);
    let mut random = Random(99);
    let gone: Vec<u64> = (0..10_000).filter(|_| random.below(2) == 0).collect();
    engine.finish(&gone);
    let ids: Vec<u64> = (20_000..20_015).collect();
    let rounds = (0..401).map(|_| {
        for id in &ids {
            submit(&mut engine, *id, many, 0);
        }
        let took = time(|| assert_eq!(engine.schedule(1.0, usize::MAX).len(), ids.len()));
        engine.finish(&ids);
        took
    });
    Figure::of(rounds.collect(), 15)
}

/// A pass over a full machine with one job waiting, that knows, or has to find out, that it does
/// not fit.
fn fails(freed: bool) -> Figure {
    let mut engine = engine(10_000, Policy::Fcfs, Selection::First);
    let (one, many) = (engine.shape(&slots(1, 1)), engine.shape(&whole(64)));
    for id in 0..640_000 {
        submit(&mut engine, id, one, 0);
    }
    engine.schedule(1.0, usize::MAX);
    submit(&mut engine, 1_000_000, many, 0);
    let mut next = 0;
    let rounds = (0..201).map(|_| {
        if freed {
            engine.finish(&[next]);
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

/// A random one-core job goes and another comes: queue and books included.
fn again(nodes: u32) -> Figure {
    let mut engine = engine(nodes, Policy::Fcfs, Selection::First);
    let shape = engine.shape(&slots(1, 1));
    let jobs = nodes * CORES - nodes / 10;
    for id in 0..jobs {
        submit(&mut engine, id.into(), shape, 0);
    }
    engine.schedule(1.0, usize::MAX);
    let mut held: Vec<u64> = (0..jobs.into()).collect();
    let (mut next, mut random) = (u64::from(jobs), Random(88_172_645_463_325_252));
    let mut round = || {
        for _ in 0..10_000 {
            let at = random.below(jobs) as usize;
            engine.finish(&held[at..=at]);
            submit(&mut engine, next, shape, 0);
            held[at] = next;
            next += 1;
            assert_eq!(engine.schedule(1.0, 1).len(), 1);
        }
    };
    let rounds = (0..21).map(|_| time(&mut round));
    Figure::of(rounds.collect(), 10_000)
}

fn text(request: &Request) -> Figure {
    let mut engine = engine(10_000, Policy::Fcfs, Selection::First);
    let shape = engine.shape(request);
    submit(&mut engine, 1, shape, 0);
    engine.schedule(1.0, 1);
    let mut text = String::new();
    let rounds = (0..201).map(|_| {
        time(|| {
            for _ in 0..100 {
                text.clear();
                engine.write_r(1, &mut text).expect("it runs");
            }
        })
    });
    Figure::of(rounds.collect(), 100)
}

/// A million jobs of 1,000 shapes behind one that holds everything.
fn full() -> Figure {
    let mut engine = engine(1000, Policy::Fcfs, Selection::First);
    let all = engine.shape(&whole(1000));
    submit(&mut engine, 0, all, HOUR);
    engine.schedule(0.0, usize::MAX);
    let shapes: Vec<ShapeId> = (0..1000)
        .map(|it| engine.shape(&slots(it + 1, 1 + it % 4)))
        .collect();
    for (id, at) in (1..=1_000_000).zip((0..1000).cycle()) {
        submit(&mut engine, id, shapes[at], 60);
    }
    engine.schedule(1.0, usize::MAX);
    let none = IdSet::new();
    repeat(201, || {
        // As after something has ended that is of no use to anybody.
        engine.free(0, Some(&none)).expect("it runs");
        engine.schedule(1.0, usize::MAX).len()
    })
}

fn deep(policy: Policy, jobs: u32, shapes: u32) -> Engine {
    let mut engine = engine(10_000, policy, Selection::First);
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for id in 0..5000_u32 {
        let size = 1 + random.below(3);
        let request = if id % 2 == 0 {
            whole(size)
        } else {
            slots(size * 32, 2)
        };
        let shape = engine.shape(&request);
        let limit = 60 + random.below(10 * HOUR);
        submit(&mut engine, id.into(), shape, limit);
    }
    assert_eq!(engine.schedule(0.0, usize::MAX).len(), 5000);
    let shapes: Vec<ShapeId> = (0..shapes)
        .map(|it| {
            let size = 1 + it / 4;
            engine.shape(&match it % 4 {
                0 => Request {
                    nnodes: Some((1 + size % 4 + size / 252 * 4).into()),
                    ..slots(1 + size % 252 / 4, 1)
                },
                1 => slots(size, 1),
                2 => slots(size.div_ceil(2), 2 + size % 3),
                _ => slots(size.div_ceil(8), 8 + size % 8),
            })
        })
        .collect();
    let most = engine.shape(&whole(9990));
    submit(&mut engine, 10_000, most, HOUR);
    let count = u32::try_from(shapes.len()).unwrap_or(1);
    for id in 1..jobs {
        let shape = shapes[random.below(count) as usize];
        let limit = 60 * (1 + random.below(50));
        submit(&mut engine, u64::from(10_000 + id), shape, limit);
    }
    engine
}

/// The first pass in the deep state.
fn first_pass(policy: Policy, jobs: u32, shapes: u32) -> Figure {
    let engine = deep(policy, jobs, shapes);
    let rounds = (0..5).map(|_| {
        let mut engine = engine.clone();
        let mut decisions = Vec::new();
        let took = time(|| decisions = engine.schedule(1.0, usize::MAX));
        let denied = |it: &Decision| matches!(it, Decision::Deny { .. });
        assert!(!decisions.iter().any(denied), "every shape can be met");
        took
    });
    Figure::of(rounds.collect(), 1)
}

/// Passes in the deep state, each after a job has ended.
fn passes(policy: Policy, jobs: u32) -> Figure {
    let mut engine = deep(policy, jobs, 1000);
    engine.schedule(1.0, usize::MAX);
    let rounds = (0..101).map(|id| {
        engine.finish(&[id]);
        time(|| engine.schedule(1.0, usize::MAX))
    });
    Figure::of(rounds.collect(), 1)
}

fn wide(policy: Policy) -> Engine {
    let nodes = 100_000;
    let mut engine = engine(nodes, policy, Selection::First);
    let (node, mut random) = (engine.shape(&whole(1)), Random(7));
    let mut limits: Vec<u32> = (0..nodes).map(|it| 100 + it).collect();
    for at in (1..limits.len()).rev() {
        let other = random.below(u32::try_from(at + 1).unwrap_or(u32::MAX));
        limits.swap(at, other as usize);
    }
    for (id, limit) in (0..).zip(limits) {
        submit(&mut engine, id, node, limit);
    }
    assert_eq!(engine.schedule(0.0, usize::MAX).len(), 100_000);
    for id in 0..1000 {
        let shape = engine.shape(&whole(1 + random.below(2000)));
        let limit = 100 * (1 + random.below(500));
        submit(&mut engine, u64::from(nodes + id), shape, limit);
    }
    engine.schedule(1.0, usize::MAX);
    engine
}

/// An engine in the wide state, and the job that comes for a what-if.
fn what_if(policy: Policy, nodes: u32) -> Figure {
    let engine = wide(policy);
    let coming = Change::Submit(Job {
        id: u64::MAX,
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
    submit(&mut engine, 0, all, HOUR);
    engine.schedule(0.0, usize::MAX);
    for it in 0..2000 {
        let some = IdSet::from(it..=19_999 - it);
        let request = Request {
            constraint: Some(Constraint::Ranks(some)),
            ..slots(1 + it / 40, 1 + it % 40)
        };
        let shape = engine.shape(&request);
        submit(&mut engine, u64::from(1 + it), shape, 60);
    }
    engine.schedule(1.0, usize::MAX);
    let some = IdSet::from(0..=99);
    let rounds = (0..5).map(|number| {
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
                engine.machine_bytes()
            },
        );
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
    for selection in Selection::ALL.into_iter().filter(|it| *it != first) {
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
    for selection in Selection::ALL.into_iter().filter(|it| *it != first) {
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
    for (policy, target) in [(Policy::Fcfs, 1.0), (Policy::Easy, 6.0)] {
        table.row(
            &format!("deep: {policy}, estimates of 100000"),
            target,
            || {
                let engine = deep(policy, 100_000, 1000);
                repeat(2, || engine.estimate(1.0))
            },
        );
    }
    table.row("wide: snapshot", 20e-3, || {
        let engine = wide(Policy::Easy);
        repeat(201, || engine.clone())
    });
    for policy in [Policy::Fcfs, Policy::Easy] {
        table.figure(
            &format!("wide: {policy}, what if 90000 nodes are asked for"),
            || what_if(policy, 90_000),
        );
        table.figure(&format!("wide: {policy}, estimates of 1000"), || {
            let engine = wide(policy);
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
}
