//! Small machines and requests for the tests.
#![allow(dead_code, reason = "not every test file needs all of it")]

use penstock_engine::{Decision, Engine, Job, Options, Policy, QueueId};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Request};
use penstock_rset::ResourceSet;
use proptest::prelude::*;
use serde_json::{Value, json};

/// An inventory of nodes with these cores and gpus; nodes with odd indices have the property `odd`.
pub fn inventory(nodes: &[(u32, u32)]) -> ResourceSet {
    let all = |count: u32| (0..count).collect::<IdSet>().to_string();
    let entry = |(rank, (cores, gpus)): (usize, &(u32, u32))| {
        let mut children = json!({"core": all(*cores)});
        if *gpus > 0 {
            children["gpu"] = all(*gpus).into();
        }
        json!({"rank": rank.to_string(), "children": children})
    };
    let entries: Vec<Value> = nodes.iter().enumerate().map(entry).collect();
    let hosts: Vec<String> = (0..nodes.len()).map(|rank| format!("node{rank}")).collect();
    let odd: IdSet = (0..u32::try_from(nodes.len()).unwrap())
        .filter(|rank| rank % 2 == 1)
        .collect();
    let mut execution = json!({"R_lite": entries, "nodelist": hosts, "starttime": 0.0,
                               "expiration": 0.0});
    if !odd.is_empty() {
        execution["properties"] = json!({"odd": odd.to_string()});
    }
    let r = json!({"version": 1, "execution": execution});
    ResourceSet::from_json(&r.to_string()).unwrap()
}

/// An engine with all nodes up.
pub fn engine(policy: Policy, nodes: &[(u32, u32)]) -> Engine {
    let inventory = inventory(nodes);
    let options = Options {
        policy,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&inventory, options).unwrap();
    engine.mark_up(&inventory.ranks());
    engine
}

/// A request for slots of `cores` cores and `gpus` gpus.
pub fn slots(slots: u32, cores: u32, gpus: u32, duration: f64) -> Request {
    Request {
        nnodes: None,
        exclusive: false,
        slots: slots.into(),
        cores_per_slot: cores.into(),
        gpus_per_slot: gpus.into(),
        duration,
        constraint: None,
    }
}

/// A request for nodes with a slot on each.
pub fn nodes(nnodes: u32, cores: u32, gpus: u32, duration: f64) -> Request {
    Request {
        nnodes: Some(nnodes.into()),
        ..slots(1, cores, gpus, duration)
    }
}

/// A request for whole nodes.
pub fn whole(nnodes: u32, duration: f64) -> Request {
    Request {
        exclusive: true,
        ..nodes(nnodes, 1, 0, duration)
    }
}

/// Submits a job with the default priority.
pub fn submit(engine: &mut Engine, id: u64, request: Request) {
    submit_to(engine, id, QueueId::default(), request);
}

/// The same, to a queue.
pub fn submit_to(engine: &mut Engine, id: u64, queue: QueueId, request: Request) {
    let priority = 16;
    engine
        .submit(Job {
            id: JobId::new(id),
            priority,
            request,
            queue,
        })
        .unwrap();
}

/// The jobs that start now, and whether they are backfilled.
pub fn allocs(engine: &mut Engine, now: f64) -> Vec<(u64, bool)> {
    let decisions = engine.schedule(now, usize::MAX).into_iter();
    let allocs = decisions.map(|decision| match decision {
        Decision::Alloc { id, backfilled } => (id.get(), backfilled),
        Decision::Deny { id, note } => panic!("job {} is denied: {note}", id.get()),
    });
    allocs.collect()
}

/// The jobs that start now.
pub fn started(engine: &mut Engine, now: f64) -> Vec<u64> {
    let allocs = allocs(engine, now).into_iter();
    allocs.map(|(id, _)| id).collect()
}

/// A set of ranks.
pub fn ranks(text: &str) -> IdSet {
    text.parse().unwrap()
}

/// Any request that small machines may meet.
pub fn random_request() -> impl Strategy<Value = Request> {
    (
        prop::option::of(1_u32..4),
        any::<bool>(),
        (1_u32..5, 1_u32..4, 0_u32..2),
        prop::sample::select(vec![0.0, 10.0, 25.0, 60.0]),
        0_u32..4,
    )
        .prop_map(
            |(nnodes, exclusive, (slots, cores, gpus), duration, kind)| {
                let odd = json!({"properties": ["odd"]});
                let constraint = match kind {
                    0 => Some(odd),
                    1 => Some(json!({"not": [odd]})),
                    _ => None,
                };
                Request {
                    nnodes: nnodes.map(Into::into),
                    exclusive: nnodes.is_some() && exclusive,
                    slots: slots.into(),
                    cores_per_slot: cores.into(),
                    gpus_per_slot: gpus.into(),
                    duration,
                    constraint: constraint.map(|value| Constraint::from_value(&value).unwrap()),
                }
            },
        )
}

/// Any queue policy.
pub fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Policy::Fcfs,
        Policy::Easy,
        Policy::Conservative,
        Policy::Hybrid { depth: 1 },
        Policy::Hybrid { depth: 3 },
    ])
}
