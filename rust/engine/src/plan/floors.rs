//! What is known of when jobs can start at the earliest, from jobs that ask for less.

use crate::machine::Demand;

/// A job that asks for as much or more, for as long or longer, cannot start before a time.
#[derive(Clone, Debug)]
struct Floor {
    unit: Demand,
    need: u64,
    limit: f64,
    start: f64,
}

impl Floor {
    fn is_below(&self, unit: &Demand, need: u64, limit: f64) -> bool {
        self.need <= need && self.limit <= limit && self.unit.is_within(unit)
    }
}

/// Floors there may be: each search goes through all of them.
const MOST: usize = 512;

/// All that is known, while a plan only gets fuller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floors {
    list: Vec<Floor>,
}

impl Floors {
    /// Before when so many units cannot start; nothing is known of times before the plan begins.
    pub fn of(&self, unit: &Demand, need: u64, limit: f64) -> f64 {
        let below = self.list.iter().filter(|it| it.is_below(unit, need, limit));
        below.map(|it| it.start).fold(f64::NEG_INFINITY, f64::max)
    }

    /// So many units cannot start before a time.
    pub fn learn(&mut self, unit: Demand, need: u64, limit: f64, start: f64) {
        if self.of(&unit, need, limit) >= start {
            return;
        }
        // Whoever is above the new one, and no later, says nothing more.
        self.list.retain(|it| {
            !(it.start <= start && unit.is_within(&it.unit) && need <= it.need && limit <= it.limit)
        });
        if self.list.len() >= MOST {
            // What is earliest saves least.
            let starts = self.list.iter().map(|it| it.start).enumerate();
            if let Some((at, _)) = starts.min_by(|a, b| a.1.total_cmp(&b.1)) {
                self.list.swap_remove(at);
            }
        }
        self.list.push(Floor {
            unit,
            need,
            limit,
            start,
        });
    }

    /// Something is given back from a time on: windows that end before it are as they were.
    pub fn give_back(&mut self, start: f64) {
        // Ends of windows are rounded.
        let start = start.next_down().next_down();
        for it in &mut self.list {
            it.start = it.start.min((start - it.limit).next_down());
        }
    }
}
