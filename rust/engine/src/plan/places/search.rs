//! The earliest time at which a shape fits.
//!
//! The first searches in a plan walk over its events: every node is looked at, and then each again
//! whenever it changes. Where there are more of them, the stretches in which nodes have something
//! free are kept by their beginnings, and a search looks only at those that are long enough and
//! have enough, from where jobs that ask for less could not start earlier.

#[cfg(test)]
mod tests;

use super::{Event, Parts, Places, free, order};
use crate::ids::NodeIndex;
use crate::machine::{Machine, ShapeId};
use crate::plan::stretches::{Few, Stretch, Stretches, Wanted, around};

/// Stretches cost about as much to make as to look at each node and event so many times.
const WORTH: usize = 8;

impl Places {
    /// The earliest time from one on, and before another, at which a shape fits for so long,
    /// infinite where there is none; and the lowest places that it can have then, cores and gpus of
    /// each.
    pub fn earliest(
        &mut self,
        machine: &Machine,
        shape: ShapeId,
        need: u64,
        (from, before): (f64, f64),
        limit: f64,
    ) -> (f64, Parts) {
        let demand = machine.demand(shape);
        let floor = self.floors.of(&demand, need, limit);
        let within = (from.max(floor), before);
        let found = if within.0 < before {
            self.look(machine, (shape, need), within, limit)
        } else {
            None
        };
        if from <= self.now.max(floor) {
            let start = found.as_ref().map_or(before, |it| it.0);
            self.floors.learn(demand, need, limit, start);
        }
        found.unwrap_or((f64::INFINITY, Vec::new()))
    }

    fn look(
        &mut self,
        machine: &Machine,
        (shape, need): (ShapeId, u64),
        (from, before): (f64, f64),
        limit: f64,
    ) -> Option<(f64, Parts)> {
        let demand = machine.demand(shape);
        let by_gpus = demand.gpus > 0;
        if self.stretches.iter().all(Option::is_none) {
            let worth = WORTH * (self.steps.len() + self.events.len());
            if self.looked <= worth {
                let start = self.walk(machine, (shape, need), (from, before), limit);
                let parts = self.choose(machine, shape, need, start, start + limit)?;
                return Some((start, parts));
            }
        }
        // A node that is wanted whole may wait for either.
        let either = by_gpus || machine.request(shape).exclusive;
        for side in [false, true] {
            if (side == by_gpus || either) && self.stretches[usize::from(side)].is_none() {
                self.make_stretches(side);
            }
        }
        if from <= self.now {
            let parts = self.choose(machine, shape, need, from, from + limit);
            if let Some(parts) = parts {
                return Some((from, parts));
            }
        }
        let (stretches, wanted) = self.search(machine, shape, limit)?;
        let wanted = Wanted { need, ..wanted };
        let least = if by_gpus { demand.cores } else { 1 };
        let also = self.stretches[usize::from(!by_gpus)].as_ref();
        let also = also.filter(|_| either);
        let also = also.map(|it| (it, Wanted { least, ..wanted }));
        let units = |it: &Stretch| {
            let units = |amount| {
                let total = machine.total(it.node);
                let (cores, gpus) = if by_gpus {
                    (total.cores, amount)
                } else {
                    (amount, total.gpus)
                };
                let there = free(machine, it.node, cores.into(), gpus.into());
                machine.units(shape, it.node, there)
            };
            let low = if it.low == 0 { 0 } else { units(it.low) };
            units(it.most) - low
        };
        stretches.earliest((from, before), wanted, also, units, |start, places| {
            self.choose_of(machine, (shape, need), (start, start + limit), places)
        })
    }

    /// Stretches by which a shape is found, where they are kept, and what it wants of them.
    pub(super) fn search(
        &self,
        machine: &Machine,
        shape: ShapeId,
        limit: f64,
    ) -> Option<(&Stretches, Wanted)> {
        let demand = machine.demand(shape);
        let side = usize::from(demand.gpus > 0);
        let wanted = Wanted {
            limit,
            least: if side == 1 { demand.gpus } else { demand.cores },
            need: 0,
        };
        Some((self.stretches[side].as_ref()?, wanted))
    }

    fn make_stretches(&mut self, by_gpus: bool) {
        let always = (f64::NEG_INFINITY, f64::INFINITY);
        let places = (0_u32..).zip(&self.steps);
        let all = places.flat_map(|(node, steps)| {
            around(
                NodeIndex::new(node),
                steps,
                |it| it.time,
                |it| it.amount(by_gpus),
                always,
            )
        });
        let stretches = Stretches::new(all);
        self.stretches[usize::from(by_gpus)] = Some(stretches);
        self.events = Vec::new();
        self.sorted = 0;
    }

    /// The stretches of a node around a span, as far as they are kept: of cores, and of gpus.
    pub(super) fn around(&self, node: NodeIndex, span: (f64, f64)) -> [Few; 2] {
        [false, true].map(|by_gpus| {
            if self.stretches[usize::from(by_gpus)].is_none() {
                return Few::new();
            }
            let steps = &self.steps[node.index()];
            around(node, steps, |it| it.time, |it| it.amount(by_gpus), span)
        })
    }

    /// Sorts the events.
    fn sort(&mut self) {
        let sorted = std::mem::replace(&mut self.sorted, self.events.len());
        if sorted == 0 {
            self.events.sort_unstable_by(order);
            return;
        }
        let mut fresh = self.events.split_off(sorted);
        fresh.sort_unstable_by(order);
        self.events.extend_from_slice(&fresh);
        // From the last one on, each goes to its place: what is behind it is moved once.
        let mut end = sorted;
        for (count, event) in fresh.iter().enumerate().rev() {
            // Many are next to each other: of one time.
            let before = |it: &Event| order(it, event).is_le();
            if end > 0 && !before(&self.events[end - 1]) {
                let node = self.events[..end].partition_point(before);
                self.events.copy_within(node..end, node + count + 1);
                end = node;
            }
            self.events[end + count] = *event;
        }
    }

    /// The earliest time from one on, and before another, at which a shape fits for so long, by
    /// looking at all events from then on; infinite where there is none.
    fn walk(
        &mut self,
        machine: &Machine,
        (shape, need): (ShapeId, u64),
        (from, before): (f64, f64),
        limit: f64,
    ) -> f64 {
        self.sort();
        let mut start = from;
        let at =
            |node: NodeIndex, start: f64| self.units(machine, shape, node, start, start + limit);
        let (mut units, mut total) = self.units_of_all(machine, shape, start, start + limit);
        let mut begins = self.events.partition_point(|event| event.time <= start);
        let mut ends = self
            .events
            .partition_point(|event| event.time < start + limit);
        let first = begins + ends;
        while total < need {
            let next = self.events.get(begins).filter(|event| event.time < before);
            let Some(Event { time, .. }) = next else {
                start = f64::INFINITY;
                break;
            };
            start = *time;
            let passed = self.events[begins..]
                .iter()
                .take_while(|event| event.time <= start);
            let passed = begins + passed.count();
            let entered = self.events[ends..].iter();
            let entered = entered.take_while(|event| event.time < start + limit);
            let entered = ends + entered.count();
            let changed = self.events[begins..passed].iter();
            for Event { node, .. } in changed.chain(&self.events[ends..entered]) {
                let after = at(*node, start);
                let before = std::mem::replace(&mut units[node.index()], after);
                total = total - u64::from(before) + u64::from(after);
            }
            (begins, ends) = (passed, entered);
        }
        self.looked += units.len() + begins + ends - first;
        start
    }
}
