//! Searches for the earliest time at which a shape fits.
//!
//! The first searches in a plan sweep over its events: every node is examined, and then each again
//! whenever it changes. A plan with many events indexes the free intervals of nodes instead, and a
//! search examines only those that are long enough and have enough, from the first time that
//! earlier searches for smaller jobs leave open.

#[cfg(test)]
mod tests;

use super::{Event, NodePlans, Resource, Units, UnitsByNode, resources};
use crate::availability_profile::Interval;
use crate::ids::NodeIndex;
use crate::node_table::NodeTable;
use crate::plan::free_intervals::{
    FreeInterval, FreeIntervals, IntervalQuery, IntervalSearch, intervals_around,
};
use crate::plan::{Footprint, PlannedStart};

/// The cost of an index of free intervals, in visits of all nodes and events.
const INDEX_COST_VISITS: usize = 8;

impl NodePlans {
    /// The earliest start within `starts` from which units fit for `limit` seconds, on the lowest
    /// nodes that can provide them then.
    pub fn earliest(
        &mut self,
        node_table: &NodeTable,
        requested: Units,
        starts: Interval,
        limit: f64,
    ) -> PlannedStart {
        let demand = node_table.demand(requested.shape);
        let bound = self.start_bounds.of(&demand, requested.need, limit);
        let open = Interval::new(starts.start.max(bound), starts.end);
        let found = if open.start < open.end {
            self.search(node_table, requested, open, limit)
        } else {
            None
        };
        if starts.start <= self.now.max(bound) {
            let start = found.as_ref().map_or(starts.end, |found| found.time);
            self.start_bounds
                .learn(demand, requested.need, limit, start);
        }
        found.unwrap_or(PlannedStart {
            time: f64::INFINITY,
            footprint: Footprint::Nodes(Vec::new()),
        })
    }

    fn search(
        &mut self,
        node_table: &NodeTable,
        requested: Units,
        starts: Interval,
        limit: f64,
    ) -> Option<PlannedStart> {
        let shape = requested.shape;
        let demand = node_table.demand(shape);
        let scarce = if demand.gpus > 0 {
            Resource::Gpus
        } else {
            Resource::Cores
        };
        if self.intervals.iter().all(Option::is_none) {
            let index_cost = INDEX_COST_VISITS * (self.steps.len() + self.events.len());
            if self.visited <= index_cost {
                let time = self.sweep(node_table, requested, starts, limit);
                let chosen = self.choose(node_table, requested, Interval::lasting(time, limit))?;
                let footprint = Footprint::Nodes(chosen);
                return Some(PlannedStart { time, footprint });
            }
        }
        // A job may wait for cores as well as gpus if it needs both, or idle nodes.
        let needs_both = scarce == Resource::Gpus || node_table.request(shape).exclusive;
        for resource in Resource::ALL {
            if (resource == scarce || needs_both) && self.intervals[resource.index()].is_none() {
                self.index_intervals(resource);
            }
        }
        if starts.start <= self.now {
            let time = starts.start;
            let chosen = self.choose(node_table, requested, Interval::lasting(time, limit));
            if let Some(footprint) = chosen.map(Footprint::Nodes) {
                return Some(PlannedStart { time, footprint });
            }
        }
        let IntervalSearch { intervals, query } =
            self.interval_search(node_table, requested, limit)?;
        let other = self.intervals[scarce.other().index()]
            .as_ref()
            .filter(|_| needs_both)
            .map(|intervals| {
                let least = match scarce {
                    Resource::Gpus => demand.cores,
                    Resource::Cores => 1,
                };
                let query = IntervalQuery { least, ..query };
                IntervalSearch { intervals, query }
            });
        // The units that an interval adds to those of the longer intervals that enclose it.
        let units = |interval: &FreeInterval| {
            let units = |amount: u32| {
                let total = node_table.total(interval.node);
                let (cores, gpus) = match scarce {
                    Resource::Gpus => (total.cores, amount),
                    Resource::Cores => (amount, total.gpus),
                };
                let free = resources(node_table, interval.node, cores.into(), gpus.into());
                node_table.units(shape, interval.node, free)
            };
            let enclosing = if interval.low == 0 {
                0
            } else {
                units(interval.low)
            };
            units(interval.high) - enclosing
        };
        intervals.earliest(starts, query, other, units, |time, nodes| {
            let during = Interval::lasting(time, limit);
            let footprint = Footprint::Nodes(self.choose_of(node_table, requested, during, nodes)?);
            Some(PlannedStart { time, footprint })
        })
    }

    /// Indexes the free intervals of a resource, in place of the events.
    fn index_intervals(&mut self, resource: Resource) {
        let all = (0_u32..).zip(&self.steps).flat_map(|(node, steps)| {
            intervals_around(
                NodeIndex::new(node),
                steps,
                |step| step.time,
                |step| step.amount(resource),
                Interval::ALWAYS,
            )
        });
        let intervals = FreeIntervals::new(all);
        self.intervals[resource.index()] = Some(intervals);
        self.events = Vec::new();
        self.sorted = 0;
    }

    /// Sorts the events.
    fn sort_events(&mut self) {
        let sorted = std::mem::replace(&mut self.sorted, self.events.len());
        if sorted == 0 {
            self.events.sort_unstable_by(Event::order);
            return;
        }
        let mut new = self.events.split_off(sorted);
        new.sort_unstable_by(Event::order);
        self.events.extend_from_slice(&new);
        // Merging from the back moves each sorted event once.
        let mut end = sorted;
        for (count, event) in new.iter().enumerate().rev() {
            // Many new events have the same time and go next to each other.
            let is_not_after = |other: &Event| other.order(event).is_le();
            if end > 0 && !is_not_after(&self.events[end - 1]) {
                let at = self.events[..end].partition_point(is_not_after);
                self.events.copy_within(at..end, at + count + 1);
                end = at;
            }
            self.events[end + count] = *event;
        }
    }

    /// The earliest time within `starts` from which units fit for `limit` seconds, found by
    /// visiting all events; infinite for none.
    fn sweep(
        &mut self,
        node_table: &NodeTable,
        requested: Units,
        starts: Interval,
        limit: f64,
    ) -> f64 {
        self.sort_events();
        let mut start = starts.start;
        let units_at = |node: NodeIndex, start: f64| {
            self.units(
                node_table,
                requested.shape,
                node,
                Interval::lasting(start, limit),
            )
        };
        let during = Interval::lasting(start, limit);
        let UnitsByNode {
            mut units,
            mut total,
        } = self.units_by_node(node_table, requested.shape, during);
        // The window moves from event to event: those before `begins` are past its start, those
        // before `ends` begin before its end.
        let mut begins = self.events.partition_point(|event| event.time <= start);
        let mut ends = self
            .events
            .partition_point(|event| event.time < start + limit);
        let first = begins + ends;
        while total < requested.need {
            let next = self.events.get(begins);
            let Some(Event { time, .. }) = next.filter(|event| event.time < starts.end) else {
                start = f64::INFINITY;
                break;
            };
            start = *time;
            let passed = self.events[begins..]
                .iter()
                .take_while(|event| event.time <= start)
                .count();
            let entered = self.events[ends..]
                .iter()
                .take_while(|event| event.time < start + limit)
                .count();
            let (passed, entered) = (begins + passed, ends + entered);
            let changed = self.events[begins..passed].iter();
            for Event { node, .. } in changed.chain(&self.events[ends..entered]) {
                let after = units_at(*node, start);
                let before = std::mem::replace(&mut units[node.index()], after);
                total = total - u64::from(before) + u64::from(after);
            }
            (begins, ends) = (passed, entered);
        }
        self.visited += units.len() + begins + ends - first;
        start
    }
}
