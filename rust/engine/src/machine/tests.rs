//! The machine against a naive one: plain sets, and a look at every node.

use std::collections::{BTreeMap, BTreeSet};

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::{Constraint, Count, Request};
use penstock_rset::ResourceSet;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{Free, Machine, Moves, Selection, ShapeId, Share, Shares};

#[derive(Clone, Debug)]
struct Node {
    host: String,
    cores: IdSet,
    gpus: IdSet,
    free_cores: IdSet,
    free_gpus: IdSet,
    up: bool,
    properties: BTreeSet<String>,
}

impl Node {
    fn free(&self) -> Free {
        let whole = self.free_cores == self.cores && self.free_gpus == self.gpus;
        Free {
            cores: size(&self.free_cores),
            gpus: size(&self.free_gpus),
            whole,
        }
    }

    fn has_property(&self, name: &str) -> bool {
        let suffixed = format!("{name}@");
        let mut properties = self.properties.iter();
        properties.any(|it| it == name || it.starts_with(&suffixed))
    }

    fn meets(&self, rank: u32, constraint: &Constraint) -> bool {
        match constraint {
            Constraint::And(parts) => parts.iter().all(|it| self.meets(rank, it)),
            Constraint::Or(parts) => {
                parts.is_empty() || parts.iter().any(|it| self.meets(rank, it))
            }
            Constraint::Not(parts) => !parts.iter().all(|it| self.meets(rank, it)),
            Constraint::Properties(names) => names.iter().all(|it| match it.strip_prefix('^') {
                Some(name) => !self.has_property(name),
                None => self.has_property(it),
            }),
            Constraint::Hostlist(hosts) => hosts.contains(&self.host),
            Constraint::Ranks(ranks) => ranks.contains(rank),
        }
    }
}

fn size(ids: &IdSet) -> u32 {
    u32::try_from(ids.len()).unwrap()
}

/// A part of a rank: cores and gpus.
type Part = (IdSet, IdSet);

/// What is granted, by rank.
type Granted = BTreeMap<u32, Part>;

/// The naive machine.
#[derive(Clone, Debug, Default)]
struct Naive {
    nodes: BTreeMap<u32, Node>,
}

fn lowest(ids: &IdSet, count: u32) -> IdSet {
    ids.iter().take(count as usize).collect()
}

impl Naive {
    fn units(&self, rank: u32, request: &Request, free: Free) -> u32 {
        let node = &self.nodes[&rank];
        let allowed = request.constraint.as_ref();
        if !node.up || allowed.is_some_and(|it| !node.meets(rank, it)) {
            return 0;
        }
        let (cores, gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
        let by_gpus = free.gpus.checked_div(gpus);
        let slots = (free.cores / cores).min(by_gpus.unwrap_or(u32::MAX));
        match request.nnodes {
            None => slots,
            Some(_) => {
                u32::from(slots >= request.slots.min() && (free.whole || !request.exclusive))
            }
        }
    }

    /// What a policy sees of a node: the less the earlier.
    fn order(&self, rank: u32, request: &Request, selection: Selection) -> (i64, i64, u32) {
        let node = &self.nodes[&rank];
        let free = node.free();
        let fullness = match request.nnodes {
            None if request.gpus_per_slot.min() > 0 => self.units(rank, request, free),
            _ => free.cores,
        };
        let fullness = i64::from(fullness);
        let (first, second) = match selection {
            Selection::First | Selection::Contiguous => (0, 0),
            Selection::Pack => (fullness, 0),
            Selection::Spread => (-fullness, 0),
            Selection::Thrifty => {
                let mut names = Vec::new();
                if let Some(constraint) = &request.constraint {
                    asked(constraint, &mut names);
                }
                let unasked = node.properties.iter().filter(|it| {
                    let bare = it.split('@').next().unwrap();
                    !names.contains(&it.as_str()) && !names.contains(&bare)
                });
                let gpus = if request.gpus_per_slot.min() > 0 {
                    0
                } else {
                    node.gpus.len()
                };
                (
                    i64::try_from(gpus).unwrap(),
                    i64::try_from(unasked.count()).unwrap(),
                )
            }
        };
        (first, second, rank)
    }

    /// What the request gets, and how many slots that are.
    fn place(&self, request: &Request, selection: Selection) -> Option<(Granted, u32)> {
        let mut fits: Vec<(u32, u32)> = self
            .nodes
            .iter()
            .map(|(rank, node)| (*rank, self.units(*rank, request, node.free())))
            .filter(|(_, units)| *units > 0)
            .collect();
        fits.sort_by_key(|(rank, _)| self.order(*rank, request, selection));
        let there: u32 = fits.iter().map(|(_, units)| units).sum();
        let units = request.nnodes.as_ref().unwrap_or(&request.slots);
        let want = (1..=there).rev().find(|it| units.contains(*it))?;
        if selection == Selection::Contiguous && want > 1 {
            let enough = |(from, to): &(usize, usize)| {
                fits[*from..=*to]
                    .iter()
                    .map(|(_, units)| units)
                    .sum::<u32>()
                    >= want
            };
            let all = (0..fits.len()).flat_map(|from| (from..fits.len()).map(move |to| (from, to)));
            let best = all.filter(enough).min_by_key(|(from, to)| {
                let span = fits[*to].0 - fits[*from].0;
                (span, *from)
            });
            fits.drain(..best?.0);
        }
        let mut left = want;
        let mut picks = Vec::new();
        for (rank, units) in fits {
            let take = units.min(left);
            if take > 0 {
                picks.push((rank, take));
            }
            left -= take;
        }
        let largest = |count: &Count, fits: &dyn Fn(u32) -> bool| {
            (0..=200).rev().find(|it| count.contains(*it) && fits(*it))
        };
        let frees: Vec<(Free, u32)> = picks
            .iter()
            .map(|(rank, units)| (self.nodes[rank].free(), *units))
            .collect();
        let (least_cores, least_gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
        let per_unit = match request.nnodes {
            Some(_) => largest(&request.slots, &|slots| {
                frees.iter().all(|(free, _)| {
                    slots * least_cores <= free.cores && slots * least_gpus <= free.gpus
                })
            })?,
            None => 1,
        };
        let cores = largest(&request.cores_per_slot, &|cores| {
            let mut frees = frees.iter();
            frees.all(|(free, units)| units * per_unit * cores <= free.cores)
        })?;
        let gpus = largest(&request.gpus_per_slot, &|gpus| {
            let mut frees = frees.iter();
            frees.all(|(free, units)| units * per_unit * gpus <= free.gpus)
        })?;
        let granted = picks.iter().map(|(rank, units)| {
            let node = &self.nodes[rank];
            let part = if request.nnodes.is_some() && request.exclusive {
                (node.cores.clone(), node.gpus.clone())
            } else {
                (
                    lowest(&node.free_cores, units * per_unit * cores),
                    lowest(&node.free_gpus, units * per_unit * gpus),
                )
            };
            (*rank, part)
        });
        Some((granted.collect(), want * per_unit))
    }

    fn take(&mut self, granted: &Granted) {
        for (rank, (cores, gpus)) in granted {
            let node = self.nodes.get_mut(rank).unwrap();
            assert!(cores.is_subset(&node.free_cores) && gpus.is_subset(&node.free_gpus));
            node.free_cores.subtract(cores);
            node.free_gpus.subtract(gpus);
        }
    }

    fn give(&mut self, granted: &Granted) {
        for (rank, (cores, gpus)) in granted {
            if let Some(node) = self.nodes.get_mut(rank) {
                node.free_cores.union_with(cores);
                node.free_gpus.union_with(gpus);
            }
        }
    }
}

fn asked<'a>(constraint: &'a Constraint, names: &mut Vec<&'a str>) {
    match constraint {
        Constraint::And(parts) | Constraint::Or(parts) | Constraint::Not(parts) => {
            for part in parts {
                asked(part, names);
            }
        }
        Constraint::Properties(all) => names.extend(all.iter().map(String::as_str)),
        _ => {}
    }
}

/// A machine and its naive twin, with what was taken of both.
struct Pair {
    machine: Machine,
    naive: Naive,
    held: Vec<(Shares, Granted)>,
    selection: Selection,
}

impl Pair {
    fn new(nodes: &[(u32, Node)], selection: Selection) -> Self {
        let set = resources(nodes);
        let mut machine = Machine::new(&set).unwrap();
        machine.set_selection(selection);
        let nodes = nodes.iter().cloned().collect();
        Self {
            machine,
            naive: Naive { nodes },
            held: Vec::new(),
            selection,
        }
    }

    fn granted(&self, shares: &[Share]) -> Granted {
        let r = self.machine.r(shares).unwrap();
        let nodes = r.nodes();
        nodes
            .map(|it| (it.rank, (it.cores.clone(), it.gpus.clone())))
            .collect()
    }

    fn mark(&mut self, ranks: &IdSet, up: bool) {
        self.machine.mark(ranks, up);
        for rank in ranks {
            if let Some(node) = self.naive.nodes.get_mut(&rank) {
                node.up = up;
            }
        }
    }

    fn submit(&mut self, request: &Request, keep: bool) -> Result<(), TestCaseError> {
        let shape = self.machine.shape(request);
        self.check_units(shape, request)?;
        let expected = self.naive.place(request, self.selection);
        let found = self.machine.place(shape);
        let granted = found.as_ref().map(|it| {
            let slots = u32::try_from(it.slots()).unwrap();
            (self.granted(it), slots)
        });
        prop_assert_eq!(&granted, &expected, "{:?} by {}", request, self.selection);
        self.check_where(shape, request)?;
        if let (true, Some(shares), Some((granted, slots))) = (keep, found, expected) {
            let places: Vec<u32> = shares.iter().map(|it| it.place).collect();
            prop_assert!(places.is_sorted());
            self.check_text(&shares, slots);
            self.machine.take(&shares);
            self.naive.take(&granted);
            self.held.push((shares, granted));
        }
        Ok(())
    }

    fn check_text(&self, shares: &Shares, slots: u32) {
        for (start, end) in [(Some(1000.0), Some(1060.25)), (None, None)] {
            let mut r = self.machine.r(shares).unwrap();
            r.set_starttime(start).unwrap();
            r.set_expiration(end).unwrap();
            r.set_nslots(Some(slots.into()));
            let mut text = String::from("before ");
            let slots = Some(slots.into());
            self.machine.write_r(shares, start, end, slots, &mut text);
            assert_eq!(text, format!("before {}", r.to_json()));
        }
    }

    fn check_units(&mut self, shape: ShapeId, request: &Request) -> Result<(), TestCaseError> {
        let ranks: Vec<u32> = self.naive.nodes.keys().copied().collect();
        let mut sum = 0;
        for (rank, place) in ranks.into_iter().zip(0..) {
            let node = &self.naive.nodes[&rank];
            let free = self.machine.free(place);
            prop_assert_eq!(free, node.free());
            prop_assert_eq!(self.machine.rank(place), rank);
            prop_assert_eq!(self.machine.place_of(rank), Some(place));
            let units = self.machine.units(shape, place, free);
            prop_assert_eq!(units, self.naive.units(rank, request, node.free()));
            sum += u64::from(units);
        }
        prop_assert_eq!(self.machine.units_now(shape), sum);
        prop_assert_eq!(
            self.machine.need(shape),
            u64::from(request.nnodes.as_ref().unwrap_or(&request.slots).min())
        );
        let everything: u64 = self
            .naive
            .nodes
            .iter()
            .map(|(rank, node)| {
                let mut node = node.clone();
                node.up = true;
                let naive = Naive {
                    nodes: [(*rank, node.clone())].into(),
                };
                let free = Free {
                    cores: size(&node.cores),
                    gpus: size(&node.gpus),
                    whole: true,
                };
                u64::from(naive.units(*rank, request, free))
            })
            .sum();
        let feasible = self.machine.feasible(shape).is_ok();
        prop_assert_eq!(feasible, everything >= self.machine.need(shape));
        Ok(())
    }

    /// Nodes may be refused: what is placed is on others, as needed, and legal.
    fn check_where(&mut self, shape: ShapeId, request: &Request) -> Result<(), TestCaseError> {
        let odd = |machine: &Machine, place: u32| machine.rank(place) % 2 == 1;
        let mut seen: u64 = 0;
        let found = self
            .machine
            .place_where(shape, &mut |machine, place, units| {
                let accepted = odd(machine, place);
                if accepted {
                    seen += u64::from(units);
                }
                accepted
            });
        let there: u64 = (0..self.machine.nodes())
            .filter(|place| odd(&self.machine, *place))
            .map(|place| {
                let free = self.machine.free(place);
                u64::from(self.machine.units(shape, place, free))
            })
            .sum();
        let need = self.machine.need(shape);
        prop_assert_eq!(found.is_some(), there >= need, "{:?}", request);
        if let Some(shares) = found {
            prop_assert_eq!(seen, need);
            prop_assert!(shares.iter().all(|it| odd(&self.machine, it.place)));
            let mut naive = self.naive.clone();
            naive.take(&self.granted(&shares));
        }
        Ok(())
    }

    fn free(&mut self, which: Index) {
        if self.held.is_empty() {
            return;
        }
        let (shares, granted) = self.held.swap_remove(which.index(self.held.len()));
        self.machine.give(&shares);
        self.naive.give(&granted);
    }

    /// Gives back what is held on some ranks, and looks at what an R of it stands for.
    fn free_part(&mut self, which: Index, ranks: &IdSet) -> Result<(), TestCaseError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (shares, mut granted) = self.held.swap_remove(which.index(self.held.len()));
        let r = self.machine.r(&shares).unwrap();
        prop_assert!(self.machine.shares(&r).is_err(), "it is allocated");
        let part = r.restrict(ranks);
        let (named, rest) = self.machine.part(&shares, &part).unwrap();
        let (given, kept) = self.machine.split(shares, ranks);
        prop_assert_eq!(&*named, &*given);
        prop_assert_eq!(&*rest, &*kept);
        self.machine.give(&given);
        let again = self.machine.shares(&part).unwrap();
        prop_assert_eq!(&*again, &*given);
        let mut off = granted.clone();
        off.retain(|rank, _| ranks.contains(*rank));
        granted.retain(|rank, _| !ranks.contains(*rank));
        self.naive.give(&off);
        if !kept.is_empty() {
            self.held.push((kept, granted));
        }
        Ok(())
    }

    fn moved(&mut self, moves: &Moves) {
        let held = std::mem::take(&mut self.held);
        for (shares, mut granted) in held {
            let (still, lost) = self.machine.relocate(&shares, moves);
            for (rank, cores, gpus) in lost {
                assert_eq!(granted.remove(&rank), Some((cores, gpus)));
            }
            assert_eq!(self.granted(&still), granted);
            if !still.is_empty() {
                self.held.push((still, granted));
            }
        }
    }

    fn shrink(&mut self, ranks: &IdSet) {
        let moves = self.machine.shrink(ranks);
        self.naive.nodes.retain(|rank, _| !ranks.contains(*rank));
        self.moved(&moves);
    }

    fn grow(&mut self, nodes: &[(u32, Node)]) {
        let known: Vec<u32> = nodes.iter().map(|(rank, _)| *rank).collect();
        let set = resources(nodes);
        if known.iter().any(|it| self.naive.nodes.contains_key(it)) {
            assert!(self.machine.grow(&set).is_err());
            return;
        }
        let moves = self.machine.grow(&set).unwrap();
        self.naive.nodes.extend(nodes.iter().cloned());
        self.moved(&moves);
    }

    fn set_property(&mut self, name: &str, ranks: &IdSet, add: bool) {
        let ranks = ranks.intersection(self.machine.ranks());
        if add {
            self.machine.add_property(name, &ranks).unwrap();
        } else {
            self.machine.remove_property(name, &ranks);
        }
        for rank in &ranks {
            let node = self.naive.nodes.get_mut(&rank).unwrap();
            if add {
                node.properties.insert(name.to_owned());
            } else {
                node.properties.remove(name);
            }
        }
    }
}

fn resources(nodes: &[(u32, Node)]) -> ResourceSet {
    let mut set = ResourceSet::new();
    let mut nodes: Vec<_> = nodes.iter().collect();
    nodes.sort_by_key(|(rank, _)| *rank);
    for (rank, node) in &nodes {
        set.insert(*rank, &node.host, node.cores.clone(), node.gpus.clone())
            .unwrap();
    }
    for (rank, node) in &nodes {
        for name in &node.properties {
            set.add_property(name, &[*rank].into_iter().collect())
                .unwrap();
        }
    }
    set
}

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
    Submit(usize, bool),
    Free(Index),
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
        6 => any::<Index>().prop_map(Step::Free),
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
    fn places_what_a_look_at_every_node_places(
        nodes in nodes(0..40),
        requests in proptest::collection::vec(request(), 8),
        steps in proptest::collection::vec(step(), 1..60),
        selection in proptest::sample::select(&Selection::ALL[..]),
        down in ranks(),
    ) {
        let mut pair = Pair::new(&nodes, selection);
        let all = pair.machine.ranks().difference(&down);
        pair.mark(&all, true);
        for step in steps {
            match step {
                Step::Submit(at, keep) => pair.submit(&requests[at], keep)?,
                Step::Free(which) => pair.free(which),
                Step::FreePart(which, ranks) => pair.free_part(which, &ranks)?,
                Step::Mark(ranks, up) => pair.mark(&ranks, up),
                Step::Property(name, ranks, add) => pair.set_property(name, &ranks, add),
                Step::Grow(nodes) => pair.grow(&nodes),
                Step::Shrink(ranks) => pair.shrink(&ranks),
                Step::Copy => pair.machine = pair.machine.clone(),
            }
        }
        for (shares, _) in std::mem::take(&mut pair.held) {
            pair.machine.give(&shares);
        }
        for place in 0..pair.machine.nodes() {
            prop_assert!(pair.machine.free(place).whole);
        }
    }
}
