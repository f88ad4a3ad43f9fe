//! What will be free of each node.

mod search;

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::NodeAmount;
use super::floors::Floors;
use super::stretches::Stretches;
use crate::books::amount;
use crate::ids::NodeIndex;
use crate::machine::{Machine, NodeResources, NodeShare, ShapeId};

/// From a time on, so much of a node is free.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: f64,
    cores: i64,
    gpus: i64,
}

impl Step {
    /// Cores or gpus that are free; none where more is planned than there is.
    fn amount(&self, by_gpus: bool) -> u32 {
        let amount = if by_gpus { self.gpus } else { self.cores };
        u32::try_from(amount.max(0)).unwrap_or(u32::MAX)
    }
}

/// A time at which what is free on a node changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub time: f64,
    pub node: NodeIndex,
}

/// Cores and gpus of places.
pub(super) type Parts = Vec<NodeAmount>;

/// Steps of each node.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    now: f64,
    /// When it was made: the first steps are of then.
    begun: f64,
    /// By node, one at the least. The first may be past, but for the last that is.
    steps: Vec<SmallVec<[Step; 2]>>,
    /// Places with anything free now: others have nothing, whatever is held or given back.
    idle: Vec<NodeIndex>,
    /// When something changes, and where; so many are in order. Not kept once there are stretches.
    events: Vec<Event>,
    sorted: usize,
    /// What searches without stretches have looked at.
    looked: usize,
    /// Stretches in which cores, and in which gpus, are free, once they are worth it.
    stretches: [Option<Stretches>; 2],
    pub(super) floors: Floors,
    /// Whether more may be planned somewhere than there is.
    overfull: bool,
}

fn order(a: &Event, b: &Event) -> Ordering {
    a.time.total_cmp(&b.time).then(a.node.cmp(&b.node))
}

fn now_free(machine: &Machine, node: NodeIndex, now: f64) -> Step {
    let free = machine.free(node);
    Step {
        time: now,
        cores: i64::from(free.cores),
        gpus: i64::from(free.gpus),
    }
}

/// Places with anything free.
fn idle(machine: &Machine) -> Vec<NodeIndex> {
    let some = |node: &NodeIndex| machine.free(*node).cores > 0;
    machine.node_indices().filter(some).collect()
}

fn free(machine: &Machine, node: NodeIndex, cores: i64, gpus: i64) -> NodeResources {
    let cores = u32::try_from(cores.max(0)).unwrap_or(u32::MAX);
    let gpus = u32::try_from(gpus.max(0)).unwrap_or(u32::MAX);
    NodeResources {
        cores,
        gpus,
        whole: machine.is_whole_node(node, cores, gpus),
    }
}

impl Places {
    pub fn new(machine: &Machine, now: f64) -> Self {
        let first = machine
            .node_indices()
            .map(|node| now_free(machine, node, now));
        Self {
            now,
            begun: now,
            steps: first.map(|step| SmallVec::from_iter([step])).collect(),
            idle: idle(machine),
            events: Vec::new(),
            sorted: 0,
            looked: 0,
            stretches: [None, None],
            floors: Floors::default(),
            overfull: false,
        }
    }

    /// Time has come to here.
    pub fn advance(&mut self, machine: &Machine, now: f64) {
        self.now = now;
        self.idle = idle(machine);
    }

    /// A share comes back at a time, before anything is held.
    pub fn give_back(&mut self, share: &NodeShare, end: f64) {
        let steps = &mut self.steps[share.node.index()];
        let at = steps.partition_point(|step| step.time < end);
        if end.is_finite() && steps.get(at).is_none_or(|step| step.time > end) {
            let before = steps[at.saturating_sub(1)];
            steps.insert(
                at,
                Step {
                    time: end,
                    ..before
                },
            );
            self.events.push(Event {
                time: end,
                node: share.node,
            });
        }
        for step in steps.iter_mut().filter(|step| step.time >= end) {
            step.cores += i64::from(share.ncores());
            step.gpus += i64::from(share.ngpus());
        }
    }

    /// Adds to what is free of a node from a time until before another.
    pub fn add(&mut self, node: NodeIndex, (start, end): (f64, f64), cores: i64, gpus: i64) {
        let indexed = self.stretches.iter().any(Option::is_some);
        let steps = &self.steps[node.index()];
        let past = steps.iter().skip(1).take_while(|it| it.time <= self.now);
        let past = past.count();
        // Steps that are past are forgotten, and stretches that end with them.
        let from = if past > 0 { steps[0].time } else { start };
        let before = indexed.then(|| self.around(node, (from, end)));
        let steps = &mut self.steps[node.index()];
        steps.drain(..past);
        for time in [start, end] {
            let at = steps.partition_point(|step| step.time < time);
            if time.is_finite() && steps.get(at).is_none_or(|step| step.time > time) {
                let before = steps[at.saturating_sub(1)];
                steps.insert(at, Step { time, ..before });
                if !indexed {
                    self.events.push(Event { time, node });
                }
            }
        }
        let first = steps.partition_point(|step| step.time < start);
        let last = steps.partition_point(|step| step.time < end).max(first);
        for step in &mut steps[first..last] {
            step.cores += cores;
            step.gpus += gpus;
            self.overfull |= step.cores < 0 || step.gpus < 0;
        }
        let Some(before) = before else {
            return;
        };
        let after = self.around(node, (from, end));
        let both = before.iter().zip(&after);
        for (stretches, (before, after)) in self.stretches.iter_mut().zip(both) {
            if let Some(stretches) = stretches {
                stretches.replace(before, after);
            }
        }
    }

    /// What of a node is free all the time from one until before another. From now on, it is no
    /// more than what the node has: jobs of other groups may have started since the plan was made.
    pub fn window(
        &self,
        machine: &Machine,
        node: NodeIndex,
        start: f64,
        end: f64,
    ) -> NodeResources {
        let steps = &self.steps[node.index()];
        let first = steps
            .partition_point(|step| step.time <= start)
            .saturating_sub(1);
        let within = steps
            .iter()
            .skip(first)
            .take_while(|step| step.time < end || step.time <= start);
        let here = (start <= self.now).then(|| now_free(machine, node, self.now));
        let within = within.chain(&here);
        let least = within.map(|step| (step.cores, step.gpus));
        let least = least.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)));
        let (cores, gpus) = least.unwrap_or_default();
        free(machine, node, cores, gpus)
    }

    fn units(
        &self,
        machine: &Machine,
        shape: ShapeId,
        node: NodeIndex,
        start: f64,
        end: f64,
    ) -> u32 {
        machine.units(shape, node, self.window(machine, node, start, end))
    }

    /// Places that may give units to a job that starts then, and perhaps others.
    fn candidates(&self, start: f64) -> impl Iterator<Item = NodeIndex> + '_ {
        let all = if start <= self.now {
            0
        } else {
            u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
        };
        let idle = if all == 0 { &self.idle[..] } else { &[] };
        idle.iter().copied().chain((0..all).map(NodeIndex::new))
    }

    /// Units of each node that a shape can have for a time, and of all.
    fn units_of_all(
        &self,
        machine: &Machine,
        shape: ShapeId,
        start: f64,
        end: f64,
    ) -> (Vec<u32>, u64) {
        let mut units = vec![0; self.steps.len()];
        let mut total = 0;
        for node in self.candidates(start) {
            let there = self.units(machine, shape, node, start, end);
            units[node.index()] = there;
            total += u64::from(there);
        }
        (units, total)
    }

    /// The first time after one at which something changes; infinite where nothing does.
    pub fn next(&self, time: f64) -> f64 {
        let next = |steps: &SmallVec<[Step; 2]>| {
            let next = steps.partition_point(|it| it.time <= time);
            steps.get(next).map_or(f64::INFINITY, |it| it.time)
        };
        self.steps.iter().map(next).fold(f64::INFINITY, f64::min)
    }

    /// Whether more is planned than there is.
    pub fn is_overfull(&mut self) -> bool {
        if self.overfull {
            let now = self.now;
            let ahead = |steps: &SmallVec<[Step; 2]>| {
                let past = steps.partition_point(|it| it.time <= now);
                let mut ahead = steps.iter().skip(past.saturating_sub(1));
                ahead.any(|it| it.cores < 0 || it.gpus < 0)
            };
            self.overfull = self.steps.iter().any(ahead);
        }
        self.overfull
    }

    /// Whether the plan leaves these shares free.
    pub fn admits(&self, machine: &Machine, shares: &[NodeShare], start: f64, end: f64) -> bool {
        shares.iter().all(|share| {
            let free = self.window(machine, share.node, start, end);
            free.cores >= share.ncores() && free.gpus >= share.ngpus()
        })
    }

    /// The lowest places that a shape can have for a time: cores and gpus of each.
    pub fn choose(
        &self,
        machine: &Machine,
        shape: ShapeId,
        need: u64,
        start: f64,
        end: f64,
    ) -> Option<Parts> {
        if !start.is_finite() {
            return None;
        }
        let Some((stretches, wanted)) = self.search(machine, shape, end - start) else {
            let all = self.candidates(start);
            return self.choose_of(machine, (shape, need), (start, end), all);
        };
        if start <= self.begun {
            let places = stretches.places_at_first(self.begun, wanted);
            return self.choose_of(machine, (shape, need), (start, end), places);
        }
        let places = stretches.places(start, wanted);
        self.choose_of(machine, (shape, need), (start, end), places)
    }

    /// The same, of some places.
    fn choose_of(
        &self,
        machine: &Machine,
        (shape, need): (ShapeId, u64),
        (start, end): (f64, f64),
        places: impl IntoIterator<Item = NodeIndex>,
    ) -> Option<Parts> {
        let mut left = need;
        let mut parts = Vec::new();
        for node in places {
            let units = u64::from(self.units(machine, shape, node, start, end)).min(left);
            if units > 0 {
                let units = u32::try_from(units).unwrap_or(u32::MAX);
                parts.push(amount(machine, shape, node, units));
                left -= u64::from(units);
                if left == 0 {
                    return Some(parts);
                }
            }
        }
        None
    }

    /// As [`choose`](Self::choose), on the fewest places, or where those are wanted whole, on the
    /// smallest.
    pub fn choose_sparing(
        &self,
        machine: &Machine,
        shape: ShapeId,
        need: u64,
        start: f64,
        end: f64,
    ) -> Option<Parts> {
        let units = self.candidates(start).map(|node| {
            let units = self.units(machine, shape, node, start, end);
            let cores = amount(machine, shape, node, units).cores;
            (node, units, cores)
        });
        let mut units: Vec<_> = units.filter(|it| it.1 > 0).collect();
        if machine.request(shape).nnodes.is_some() {
            units.sort_by_key(|it| it.2);
        } else {
            units.sort_by_key(|it| std::cmp::Reverse(it.1));
        }
        let mut left = need;
        let mut parts = Vec::new();
        for (node, units, _) in units {
            let units = u64::from(units).min(left);
            parts.push(amount(machine, shape, node, u32::try_from(units).ok()?));
            left -= units;
            if left == 0 {
                parts.sort_unstable();
                return Some(parts);
            }
        }
        None
    }

    /// The first time at which a shape that fits now fits no more.
    pub fn until(&self, machine: &Machine, shape: ShapeId, need: u64, now: f64) -> f64 {
        let (mut units, mut total) = self.units_of_all(machine, shape, now, now);
        if total < need {
            return now;
        }
        // What has nothing now, has nothing all the time from now on.
        let some = (0_u32..).zip(&units).filter(|(_, units)| **units > 0);
        let mut events: Vec<_> = some
            .flat_map(|(node, _)| {
                let node = NodeIndex::new(node);
                self.steps[node.index()].iter().map(move |step| Event {
                    time: step.time,
                    node,
                })
            })
            .filter(|event| event.time > now)
            .collect();
        events.sort_unstable_by(order);
        for Event { time, node } in events {
            let after = self.units(machine, shape, node, now, time.next_up());
            let before = std::mem::replace(&mut units[node.index()], after);
            total = total - u64::from(before) + u64::from(after);
            if total < need {
                return time;
            }
        }
        f64::INFINITY
    }
}
