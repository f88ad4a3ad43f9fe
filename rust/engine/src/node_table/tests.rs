//! The node table compared with a naive model: plain sets, and a scan of every node.

mod naive;
mod pair;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::{Constraint, Count, Request};
use proptest::prelude::*;
use proptest::sample::Index;

use self::naive::Node;
use self::pair::Pair;
use super::Selection;

const PROPERTIES: [&str; 5] = ["big", "fast", "fast@v2", "+local", "rack@1"];

fn ranks() -> impl Strategy<Value = IdSet> {
    proptest::collection::vec(0_u32..60, 0..12).prop_map(|ranks| ranks.into_iter().collect())
}

fn node(rank: u32) -> impl Strategy<Value = (u32, Node)> {
    let cores = prop_oneof![
        4 => Just("0-7"),
        2 => Just("0-3"),
        1 => Just("2-5,9"),
        1 => Just("0-129"),
    ];
    let gpus = prop_oneof![3 => Just(""), 2 => Just("0-3"), 1 => Just("1,4")];
    let properties = proptest::sample::subsequence(&PROPERTIES, 0..3);
    (cores, gpus, properties, any::<bool>()).prop_map(move |(cores, gpus, properties, odd)| {
        let (cores, gpus): (IdSet, IdSet) = (cores.parse().unwrap(), gpus.parse().unwrap());
        let node = Node {
            host: if odd {
                format!("odd{}", rank / 2)
            } else {
                format!("node{rank:03}")
            },
            free_cores: cores.clone(),
            free_gpus: gpus.clone(),
            cores,
            gpus,
            up: false,
            properties: properties.into_iter().map(str::to_owned).collect(),
        };
        (rank, node)
    })
}

fn nodes(ranks: std::ops::Range<u32>) -> impl Strategy<Value = Vec<(u32, Node)>> {
    let all: Vec<u32> = ranks.collect();
    proptest::sample::subsequence(all.clone(), 1..all.len())
        .prop_flat_map(|ranks| ranks.into_iter().map(node).collect::<Vec<_>>())
}

fn constraint() -> impl Strategy<Value = Constraint> {
    let name = prop_oneof![
        proptest::sample::select(&["big", "fast", "rack", "+local", "none"][..])
            .prop_map(str::to_owned),
        proptest::sample::select(&["^big", "^fast"][..]).prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        4 => proptest::collection::vec(name, 0..3).prop_map(Constraint::Properties),
        1 => ranks().prop_map(Constraint::Ranks),
        1 => Just("node[000-030],odd[3-9]".parse::<Hostlist>().unwrap())
            .prop_map(Constraint::Hostlist),
    ];
    leaf.prop_recursive(2, 6, 3, |part| {
        let parts = proptest::collection::vec(part, 0..3);
        prop_oneof![
            parts.clone().prop_map(Constraint::And),
            parts.clone().prop_map(Constraint::Or),
            parts.prop_map(Constraint::Not),
        ]
    })
}

fn count(most: u32) -> impl Strategy<Value = Count> {
    prop_oneof![
        6 => (1..=most).prop_map(Count::exactly),
        1 => proptest::sample::select(&["1-3", "2+", "1-9:2", "1+:2:*", "2,5"][..])
            .prop_map(|text| text.parse().unwrap()),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let gpus = prop_oneof![3 => Just(Count::exactly(0)), 1 => count(2)];
    let nnodes = proptest::option::of(count(5));
    let constraint = proptest::option::weighted(0.4, constraint());
    let numbers = (count(8), prop_oneof![3 => count(4), 1 => count(70)], gpus);
    let rest = (nnodes, any::<bool>(), numbers, constraint);
    rest.prop_map(|(nnodes, exclusive, numbers, constraint)| {
        let (slots, cores_per_slot, gpus_per_slot) = numbers;
        let slots = match (&nnodes, slots.is_exact()) {
            (Some(_), true) => Count::exactly(slots.min().min(2)),
            _ => slots,
        };
        Request {
            exclusive: exclusive && nnodes.is_some(),
            nnodes,
            slots,
            cores_per_slot,
            gpus_per_slot,
            duration: 0.0,
            constraint,
        }
    })
}

#[derive(Clone, Debug)]
enum Step {
    /// Places a request; `true` keeps the allocation.
    Submit(usize, bool),
    NodeResources(Index),
    FreePart(Index, IdSet),
    Mark(IdSet, bool),
    Property(&'static str, IdSet, bool),
    Grow(Vec<(u32, Node)>),
    Shrink(IdSet),
    Copy,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0_usize..8, prop::bool::weighted(0.8)).prop_map(|(at, keep)| Step::Submit(at, keep)),
        6 => any::<Index>().prop_map(Step::NodeResources),
        2 => (any::<Index>(), ranks()).prop_map(|(which, ranks)| Step::FreePart(which, ranks)),
        3 => (ranks(), any::<bool>()).prop_map(|(ranks, up)| Step::Mark(ranks, up)),
        1 => (proptest::sample::select(&PROPERTIES[..]), ranks(), any::<bool>())
            .prop_map(|(name, ranks, add)| Step::Property(name, ranks, add)),
        1 => nodes(30..60).prop_map(Step::Grow),
        1 => ranks().prop_map(Step::Shrink),
        1 => Just(Step::Copy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn places_what_a_scan_of_every_node_places(
        nodes in nodes(0..40),
        requests in proptest::collection::vec(request(), 8),
        steps in proptest::collection::vec(step(), 1..60),
        selection in proptest::sample::select(&Selection::ALL[..]),
        down in ranks(),
    ) {
        let mut pair = Pair::new(&nodes, selection);
        let all = pair.node_table.ranks().difference(&down);
        pair.mark(&all, true);
        for step in steps {
            match step {
                Step::Submit(at, keep) => pair.submit(&requests[at], keep)?,
                Step::NodeResources(which) => pair.free(which),
                Step::FreePart(which, ranks) => pair.free_part(which, &ranks)?,
                Step::Mark(ranks, up) => pair.mark(&ranks, up),
                Step::Property(name, ranks, add) => pair.set_property(name, &ranks, add),
                Step::Grow(nodes) => pair.grow(&nodes),
                Step::Shrink(ranks) => pair.shrink(&ranks),
                Step::Copy => pair.node_table = pair.node_table.clone(),
            }
        }
        for (allocation, _) in std::mem::take(&mut pair.held) {
            pair.node_table.release(&allocation);
        }
        for node in pair.node_table.node_indices() {
            prop_assert!(pair.node_table.free(node).whole);
        }
    }
}
