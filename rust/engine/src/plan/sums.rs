//! Units of a whole machine over time, wherever they are.

use super::floors::Floors;
use crate::machine::Demand;
use crate::profile::Profile;

/// What is free of all units, and what is known of when jobs can start.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub profile: Profile,
    pub(super) floors: Floors,
    now: f64,
}

impl Sums {
    /// So many units are free from now on.
    pub fn new(now: f64, free: i64) -> Self {
        Self {
            profile: Profile::new(now, free),
            floors: Floors::default(),
            now,
        }
    }

    /// Adds to what is free from a time on until before another.
    pub fn add(&mut self, (start, end): (f64, f64), amount: i64) {
        self.profile.add(start, end, amount);
        if amount > 0 {
            self.floors.give_back(start);
        }
    }

    /// The earliest time, not before one, at which so many units are free for so long, infinite
    /// for never.
    pub fn earliest(&mut self, demand: Demand, need: u64, not_before: f64, limit: f64) -> f64 {
        let floor = self.floors.of(&demand, need, limit);
        let units = i64::try_from(need).unwrap_or(i64::MAX);
        let start = self.profile.earliest(not_before.max(floor), limit, units);
        if not_before <= self.now.max(floor) {
            self.floors.learn(demand, need, limit, start);
        }
        start
    }
}
