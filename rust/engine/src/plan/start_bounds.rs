//! Lower bounds of start times, learned from earlier searches for jobs that need no more.

use crate::node_table::Demand;

/// A lower bound: no job that needs at least as much for at least as long can start before a time.
#[derive(Clone, Debug)]
struct StartBound {
    unit: Demand,
    need: u64,
    limit: f64,
    start: f64,
}

impl StartBound {
    fn applies_to(&self, unit: &Demand, need: u64, limit: f64) -> bool {
        self.need <= need && self.limit <= limit && self.unit.is_within(unit)
    }
}

/// Maximum number of bounds: each search reads all of them.
const MAX_START_BOUNDS: usize = 512;

/// The known bounds of a plan. They hold while it only gets fuller.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartBounds {
    list: Vec<StartBound>,
}

impl StartBounds {
    /// The latest known time before which `need` units cannot start.
    pub fn of(&self, unit: &Demand, need: u64, limit: f64) -> f64 {
        self.list
            .iter()
            .filter(|bound| bound.applies_to(unit, need, limit))
            .map(|bound| bound.start)
            .fold(f64::NEG_INFINITY, f64::max)
    }

    /// Records that `need` units cannot start before a time.
    pub fn learn(&mut self, unit: Demand, need: u64, limit: f64, start: f64) {
        if self.of(&unit, need, limit) >= start {
            return;
        }
        // Bounds that the new one implies are redundant.
        self.list.retain(|bound| {
            !(bound.start <= start
                && unit.is_within(&bound.unit)
                && need <= bound.need
                && limit <= bound.limit)
        });
        if self.list.len() >= MAX_START_BOUNDS {
            // The earliest bound excludes least.
            let starts = self.list.iter().map(|bound| bound.start).enumerate();
            if let Some((at, _)) = starts.min_by(|a, b| a.1.total_cmp(&b.1)) {
                self.list.swap_remove(at);
            }
        }
        self.list.push(StartBound {
            unit,
            need,
            limit,
            start,
        });
    }

    /// Lowers the bounds after resources have been released from `start` on: windows that end
    /// before it are unchanged.
    pub fn lower_from(&mut self, start: f64) {
        // The ends of windows are rounded.
        let start = start.next_down().next_down();
        for bound in &mut self.list {
            bound.start = bound.start.min((start - bound.limit).next_down());
        }
    }
}
