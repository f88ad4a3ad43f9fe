//! The states in which figures are taken: see the example itself.

use penstock_engine::{Engine, Options, Policy, QueueId, Selection, ShapeId};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Count, Request};
use penstock_rset::ResourceSet;

pub const CORES: u32 = 64;
pub const HOUR_S: u32 = 3600;

/// Pseudo-random numbers, the same on every run (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(((self.0 >> 32) * u64::from(bound)) >> 32).unwrap_or(0)
    }
}

pub fn inventory(nodes: u32) -> ResourceSet {
    let hosts = format!("node[0-{}]", nodes - 1).parse().expect("hosts");
    let (ranks, cores) = (IdSet::from(0..=nodes - 1), IdSet::from(0..=CORES - 1));
    let mut set = ResourceSet::uniform(&ranks, &hosts, cores, IdSet::new()).expect("an R");
    let tenth = (0..nodes).step_by(10).collect();
    set.add_property("tenth", &tenth).expect("a property");
    set
}

pub fn engine(nodes: u32, policy: Policy, selection: Selection) -> Engine {
    let options = Options {
        policy,
        selection,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&inventory(nodes), options).expect("an engine");
    engine.mark_up(&(0..=nodes - 1).into());
    engine
}

pub fn slots(slots: u32, cores: u32) -> Request {
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

pub fn whole(nodes: u32) -> Request {
    Request {
        nnodes: Some(nodes.into()),
        exclusive: true,
        ..slots(1, CORES)
    }
}

pub fn on_a_tenth(request: Request) -> Request {
    let tenth = Constraint::Properties(vec!["tenth".to_owned()]);
    Request {
        constraint: Some(tenth),
        ..request
    }
}

pub fn submit(engine: &mut Engine, id: u64, shape: ShapeId, limit: u32) {
    let queued = engine.submit_shape(JobId::new(id), 16, shape, limit.into(), QueueId::default());
    queued.expect("ids are distinct");
}

pub fn deep(policy: Policy, jobs: u32, shapes: u32) -> Engine {
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
        let limit = 60 + random.below(10 * HOUR_S);
        submit(&mut engine, id.into(), shape, limit);
    }
    assert_eq!(engine.schedule(0.0, usize::MAX).len(), 5000);
    let shapes: Vec<ShapeId> = (0..shapes)
        .map(|index| {
            let size = 1 + index / 4;
            engine.shape(&match index % 4 {
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
    submit(&mut engine, 10_000, most, HOUR_S);
    let count = u32::try_from(shapes.len()).unwrap_or(1);
    for id in 1..jobs {
        let shape = shapes[random.below(count) as usize];
        let limit = 60 * (1 + random.below(50));
        submit(&mut engine, u64::from(10_000 + id), shape, limit);
    }
    engine
}

pub fn fragments(policy: Policy, jobs: u32) -> Engine {
    let mut engine = engine(10_000, policy, Selection::First);
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let shapes: Vec<ShapeId> = (0..1000)
        .map(|_| engine.shape(&slots(1 + random.below(200), 1 + random.below(15))))
        .collect();
    let limits: Vec<u32> = (0..50).map(|_| 60 * (1 + random.below(600))).collect();
    for id in 0..jobs {
        let shape = shapes[random.below(1000) as usize];
        let limit = limits[random.below(50) as usize];
        submit(&mut engine, id.into(), shape, limit);
    }
    engine
}

pub fn wide(policy: Policy) -> Engine {
    let nodes = 100_000;
    let mut engine = engine(nodes, policy, Selection::First);
    let (node, mut random) = (engine.shape(&whole(1)), Random(7));
    let mut limits: Vec<u32> = (0..nodes).map(|index| 100 + index).collect();
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
