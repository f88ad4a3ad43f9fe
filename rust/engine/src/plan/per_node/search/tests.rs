//! Searches in indexed intervals compared with sweeps over all events, in random plans.

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_rset::ResourceSet;
use proptest::prelude::*;

use crate::availability_profile::Interval;
use crate::node_table::{NodeAmount, NodeTable};
use crate::plan::free_intervals::FreeIntervals;
use crate::plan::per_node::{NodePlans, Resource, Units};
use crate::plan::{Footprint, PlannedStart};

const NODES: u32 = 6;

/// Nodes of 4 to 6 cores, every other one with two gpus; the last is down.
fn node_table() -> NodeTable {
    let mut r = ResourceSet::new();
    for rank in 0..NODES {
        let gpus = if rank % 2 == 0 { 0..2 } else { 0..0 };
        let cores = (0..4 + rank % 3).collect();
        r.insert(rank, &format!("n{rank}"), cores, gpus.collect())
            .unwrap();
    }
    let mut node_table = NodeTable::new(&r).unwrap();
    node_table.mark_up(&IdSet::from(0..=NODES - 2));
    node_table
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

/// A step of a test: a job is added, or an earlier reservation is released.
#[derive(Clone, Debug)]
struct Step {
    request: Request,
    from: u32,
    limit: u32,
    release: Option<usize>,
}

fn step() -> impl Strategy<Value = Step> {
    let release = proptest::option::weighted(0.2, 0_usize..1000);
    (request(), 0_u32..6, 1_u32..20, release).prop_map(|(request, from, limit, release)| Step {
        request,
        from,
        limit,
        release,
    })
}

/// Searches by a sweep, without an index and without start bounds.
fn sweep(
    plans: &mut NodePlans,
    node_table: &NodeTable,
    requested: Units,
    from: f64,
    limit: f64,
) -> PlannedStart {
    let time = plans.sweep(node_table, requested, Interval::from(from), limit);
    let chosen = plans.choose(node_table, requested, Interval::lasting(time, limit));
    PlannedStart {
        time,
        footprint: Footprint::Nodes(chosen.unwrap_or_default()),
    }
}

/// The reservation of a job.
struct Reserved {
    amounts: Vec<NodeAmount>,
    during: Interval,
}

impl Reserved {
    fn reserve_in(&self, plans: &mut NodePlans) {
        for amount in &self.amounts {
            plans.reserve(amount, self.during);
        }
    }

    fn release_in(&self, plans: &mut NodePlans) {
        for amount in &self.amounts {
            plans.release(amount, self.during);
        }
        plans.start_bounds.lower_from(self.during.start);
    }
}

proptest! {
    #[test]
    fn an_indexed_search_finds_what_a_sweep_finds(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut node_table = node_table();
        let mut swept = NodePlans::new(&node_table, 0.0);
        let mut indexed = swept.clone();
        for resource in Resource::ALL {
            indexed.index_intervals(resource);
        }
        let mut all_reserved: Vec<Reserved> = Vec::new();
        for Step { request, from, limit, release } in steps {
            if let Some(release) = release && !all_reserved.is_empty() {
                let reserved = all_reserved.swap_remove(release % all_reserved.len());
                reserved.release_in(&mut swept);
                reserved.release_in(&mut indexed);
                continue;
            }
            let shape = node_table.shape(&request);
            let requested = Units { shape, need: node_table.need(shape) };
            let from = f64::from(from.saturating_sub(3));
            let limit = if limit == 19 { f64::INFINITY } else { f64::from(limit) };
            let expected = sweep(&mut swept, &node_table, requested, from, limit);
            let found = indexed.earliest(&node_table, requested, Interval::from(from), limit);
            prop_assert_eq!(&found, &expected);
            let start = expected.time;
            if let Footprint::Nodes(amounts) = expected.footprint && start.is_finite() {
                let later = Interval::new(start + 2.0, start + 2.0 + limit);
                let chosen = indexed.choose(&node_table, requested, later);
                prop_assert_eq!(chosen, swept.choose(&node_table, requested, later));
                let during = Interval::lasting(start, limit);
                let reserved = Reserved { amounts, during };
                reserved.reserve_in(&mut swept);
                reserved.reserve_in(&mut indexed);
                all_reserved.push(reserved);
            }
        }
        let mut rebuilt = swept.clone();
        for resource in Resource::ALL {
            rebuilt.index_intervals(resource);
        }
        for (updated, rebuilt) in indexed.intervals.iter().zip(&rebuilt.intervals) {
            let all = |intervals: &Option<FreeIntervals>| {
                intervals.as_ref().map(FreeIntervals::all)
            };
            prop_assert_eq!(all(updated), all(rebuilt));
        }
    }
}
