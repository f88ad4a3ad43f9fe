//! Searches in stretches against walks over all events, in random plans.

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_rset::ResourceSet;
use proptest::prelude::*;

use crate::machine::{Machine, ShapeId};
use crate::plan::places::{Parts, Places};
use crate::plan::stretches::Stretches;

const NODES: u32 = 6;

/// Nodes of 4 to 6 cores, every other one with two gpus; the last is down.
fn machine() -> Machine {
    let mut r = ResourceSet::new();
    for rank in 0..NODES {
        let gpus = if rank % 2 == 0 { 0..2 } else { 0..0 };
        let cores = (0..4 + rank % 3).collect();
        r.insert(rank, &format!("n{rank}"), cores, gpus.collect())
            .unwrap();
    }
    let mut machine = Machine::new(&r).unwrap();
    machine.mark_up(&IdSet::from(0..=NODES - 2));
    machine
}

fn request() -> impl Strategy<Value = Request> {
    let nodes = prop_oneof![Just(None), (1_u32..3).prop_map(Some)];
    (nodes, any::<bool>(), 1_u32..5, 1_u32..4, 0_u32..2).prop_map(
        |(nodes, exclusive, slots, cores, gpus)| Request {
            nnodes: nodes.map(Into::into),
            exclusive: exclusive && nodes.is_some(),
            slots: slots.into(),
            cores_per_slot: cores.into(),
            gpus_per_slot: gpus.into(),
            duration: 0.0,
            constraint: None,
        },
    )
}

/// What is done to a plan: a job comes, or the hold of an earlier one is given back.
fn deed() -> impl Strategy<Value = (Request, u32, u32, Option<usize>)> {
    let back = proptest::option::weighted(0.2, 0_usize..1000);
    (request(), 0_u32..6, 1_u32..20, back)
}

/// All that has been asked of a plan without stretches, which knows of no floors.
fn plain(
    places: &mut Places,
    machine: &Machine,
    shape: ShapeId,
    from: f64,
    limit: f64,
) -> (f64, Parts) {
    let need = machine.need(shape);
    let start = places.walk(machine, (shape, need), (from, f64::INFINITY), limit);
    let parts = places.choose(machine, shape, need, start, start + limit);
    (start, parts.unwrap_or_default())
}

fn add(places: &mut Places, parts: &Parts, span: (f64, f64), sign: i64) {
    for part in parts {
        let (cores, gpus) = (i64::from(part.cores), i64::from(part.gpus));
        places.add(part.node, span, sign * cores, sign * gpus);
    }
    if sign > 0 {
        places.floors.give_back(span.0);
    }
}

proptest! {
    #[test]
    fn a_search_in_stretches_finds_what_a_walk_finds(
        deeds in proptest::collection::vec(deed(), 1..60),
    ) {
        let mut machine = machine();
        let mut walked = Places::new(&machine, 0.0);
        let mut searched = walked.clone();
        searched.make_stretches(false);
        searched.make_stretches(true);
        let mut held: Vec<(Parts, (f64, f64))> = Vec::new();
        for (request, from, limit, back) in deeds {
            if let Some(back) = back && !held.is_empty() {
                let (parts, span) = held.swap_remove(back % held.len());
                add(&mut walked, &parts, span, 1);
                add(&mut searched, &parts, span, 1);
                continue;
            }
            let shape = machine.shape(&request);
            let need = machine.need(shape);
            let from = f64::from(from.saturating_sub(3));
            let limit = if limit == 19 { f64::INFINITY } else { f64::from(limit) };
            let expected = plain(&mut walked, &machine, shape, from, limit);
            let found = searched.earliest(&machine, shape, need, (from, f64::INFINITY), limit);
            prop_assert_eq!(&found, &expected);
            let (start, parts) = expected;
            if start.is_finite() {
                let later = start + 2.0;
                let there = searched.choose(&machine, shape, need, later, later + limit);
                prop_assert_eq!(there, walked.choose(&machine, shape, need, later, later + limit));
                let span = (start, start + limit);
                add(&mut walked, &parts, span, -1);
                add(&mut searched, &parts, span, -1);
                held.push((parts, span));
            }
        }
        let mut made = walked.clone();
        made.make_stretches(false);
        made.make_stretches(true);
        for (kept, made) in searched.stretches.iter().zip(&made.stretches) {
            let all = |it: &Option<Stretches>| it.as_ref().map(Stretches::all);
            prop_assert_eq!(all(kept), all(made));
        }
    }
}
