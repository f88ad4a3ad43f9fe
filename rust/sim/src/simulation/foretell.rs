//! When jobs that come and must wait will start.

use super::{Simulation, id, place_of};
use crate::results::Fate;

impl Simulation {
    /// Chooses whose start is to be predicted: of the jobs that came now, the first of them at this
    /// place, as far as they wait.
    pub(super) fn choose_unforetold(&mut self, from: usize) {
        let every = u64::from(self.setup.estimate_every);
        if every == 0 {
            return;
        }
        for place in from..self.next_arrival {
            let waits = self.results.fate[place] == Fate::Waiting;
            if waits && self.open.get(place).is_none_or(|open| *open == 0) {
                if self.tally.waited.is_multiple_of(every) {
                    self.unforetold
                        .push(id(u32::try_from(place).unwrap_or(u32::MAX)));
                }
                self.tally.waited += 1;
            }
        }
    }

    /// Predicts when the chosen jobs will start. Returns whether that was done, rather than
    /// stopped.
    pub(super) fn predict(&mut self, go_on: &mut dyn FnMut(u64, f64) -> bool) -> bool {
        if self.unforetold.is_empty() {
            return true;
        }
        let (done, now) = (self.tally.done, self.now);
        let waiting = &self.unforetold;
        let mut go_on = || go_on(done, now);
        let Some(starts) = self.scheduler.forecast(waiting, now, &mut go_on) else {
            return false;
        };
        for (id, start) in self.unforetold.drain(..).zip(starts) {
            if start.is_finite() {
                self.results.estimate[place_of(id) as usize] = start;
            }
        }
        true
    }
}
