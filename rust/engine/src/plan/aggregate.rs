//! Aggregate plans: free units of the whole inventory over time, on any nodes.

use super::start_bounds::StartBounds;
use crate::availability_profile::{AvailabilityProfile, Interval};
use crate::node_table::Demand;

/// The unit that an aggregate plan counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateUnit {
    /// Any core.
    Core,
    /// Any whole node.
    Node,
}

/// The number of free units of the inventory over time.
#[derive(Clone, Debug)]
pub(crate) struct AggregatePlan {
    pub unit: AggregateUnit,
    pub profile: AvailabilityProfile,
    pub(super) start_bounds: StartBounds,
    now: f64,
}

impl AggregatePlan {
    /// A plan with `free` units free from `now` on.
    pub fn new(now: f64, free: i64, unit: AggregateUnit) -> Self {
        Self {
            unit,
            profile: AvailabilityProfile::new(now, free),
            start_bounds: StartBounds::default(),
            now,
        }
    }

    /// Moves the plan's present to `now`.
    pub fn advance(&mut self, now: f64) {
        self.now = now;
        self.profile.forget_before(now);
    }

    /// Adds to the free units during an interval.
    pub fn add(&mut self, during: Interval, amount: i64) {
        self.profile.add(during, amount);
        if amount > 0 {
            self.start_bounds.lower_from(during.start);
        }
    }

    /// The earliest time within `starts` from which `need` units are free for `limit` seconds;
    /// infinite for none.
    pub fn earliest(&mut self, demand: Demand, need: u64, starts: Interval, limit: f64) -> f64 {
        let bound = self.start_bounds.of(&demand, need, limit);
        let units = i64::try_from(need).unwrap_or(i64::MAX);
        let open = Interval::new(starts.start.max(bound), starts.end);
        let start = self.profile.earliest(open, limit, units);
        if starts.start <= self.now.max(bound) {
            self.start_bounds
                .learn(demand, need, limit, start.min(starts.end));
        }
        start
    }
}
