//! Units of a whole machine over time, wherever they are.

use super::floors::Floors;
use crate::machine::Demand;
use crate::profile::Profile;

/// What is free of all units, and what is known of when jobs can start.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    /// Whether a unit is a core; else it is a whole node.
    pub by_cores: bool,
    pub profile: Profile,
    pub(super) floors: Floors,
    now: f64,
}

impl Sums {
    /// So many units are free from now on.
    pub fn new(now: f64, free: i64, by_cores: bool) -> Self {
        Self {
            by_cores,
            profile: Profile::new(now, free),
            floors: Floors::default(),
            now,
        }
    }

    /// Time has come to here.
    pub fn advance(&mut self, now: f64) {
        self.now = now;
        self.profile.forget(now);
    }

    /// Adds to what is free from a time on until before another.
    pub fn add(&mut self, (start, end): (f64, f64), amount: i64) {
        self.profile.add(start, end, amount);
        if amount > 0 {
            self.floors.give_back(start);
        }
    }

    /// The earliest time from one on, and before another, at which so many units are free for so
    /// long, infinite where there is none.
    pub fn earliest(
        &mut self,
        demand: Demand,
        need: u64,
        (from, before): (f64, f64),
        limit: f64,
    ) -> f64 {
        let floor = self.floors.of(&demand, need, limit);
        let units = i64::try_from(need).unwrap_or(i64::MAX);
        let within = (from.max(floor), before);
        let start = self.profile.earliest(within, limit, units);
        if from <= self.now.max(floor) {
            self.floors.learn(demand, need, limit, start.min(before));
        }
        start
    }
}
