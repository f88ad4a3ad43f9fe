//! A plan that is kept from pass to pass, in step with what runs.

use rustc_hash::FxHashMap;

use super::{Plan, planned};
use crate::books::Books;

/// A plan, and what it knows of the running jobs.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub plan: Plan,
    /// Until when jobs are planned to run, by handle, where that is not their end.
    until: FxHashMap<u32, f64>,
    /// What the books had seen.
    changes: u64,
    turns: usize,
}

/// Changes that the turnover does not tell.
fn changes(books: &Books) -> u64 {
    books.changes - books.told
}

impl Kept {
    /// A new plan of the running jobs.
    pub fn of(books: &mut Books, group: u32, now: f64) -> Self {
        let late = books.runs.iter().filter(|(_, it)| it.end <= now);
        let until = late.map(|(_, it)| (it.handle, planned(it.end, now)));
        let until = until.collect();
        Self {
            plan: Plan::of(books, group, now),
            until,
            changes: changes(books),
            turns: books.turnover.follow(),
        }
    }

    /// Whether nothing has happened since the last pass.
    pub fn is_in_step(&self, books: &Books) -> bool {
        self.changes == changes(books) && self.turns == books.turnover.end()
    }

    /// Where the turnover has been followed to.
    pub fn turns(&self) -> usize {
        self.turns
    }

    /// Follows what has run, and ended, since the last pass, and tells from when to when something
    /// has become free. Returns `false` where a new plan has to be made.
    pub fn follow(
        &mut self,
        books: &mut Books,
        group: u32,
        now: f64,
        mut freed: impl FnMut((f64, f64)),
    ) -> bool {
        if self.changes != changes(books) || !self.plan.suits(books, group) {
            return false;
        }
        self.plan.advance(&books.machine, now);
        let Some(turns) = books.turnover.since(self.turns) else {
            return false;
        };
        for turn in turns {
            if !self.plan.has_units_of(&books.machine, &turn.shares) {
                return false;
            }
            let until = self.until.get(&turn.handle).copied();
            let is_held = |time: f64| time > f64::NEG_INFINITY;
            let mut before = turn.before;
            let mut after = turn.after;
            if is_held(before) {
                before = until.unwrap_or(before);
            }
            if turn.part && is_held(after) {
                after = until.unwrap_or(after);
            }
            if !turn.part {
                self.until.remove(&turn.handle);
            }
            let (before, after) = (before.max(now), after.max(now));
            let hold = self.plan.hold_of_running(&books.machine, &turn.shares);
            if after > before {
                self.plan.hold(&hold, (before, after), false);
            } else if after < before {
                self.plan.hold(&hold, (after, before), true);
                freed((after, before));
            }
        }
        self.turns = books.turnover.end();
        self.delay(books, now);
        true
    }

    /// Those that have not ended when they were to are planned to at their ends, and those that
    /// should be over, in a second.
    fn delay(&mut self, books: &mut Books, now: f64) {
        let ending = books.timeline().iter().take_while(|it| it.end <= now);
        for it in ending.copied().collect::<Vec<_>>() {
            if let Some(running) = books.runs.at(it.run) {
                self.until.entry(running.handle).or_insert(it.end);
            }
        }
        for (handle, until) in std::mem::take(&mut self.until) {
            let Some(running) = books.running(handle) else {
                continue;
            };
            let mut after = until;
            if until <= now || running.end <= now {
                after = planned(running.end, now);
                if until.max(now) < after {
                    let hold = self.plan.hold_of_running(&books.machine, &running.shares);
                    self.plan.hold(&hold, (until.max(now), after), false);
                }
            }
            if after.total_cmp(&running.end).is_ne() {
                self.until.insert(handle, after);
            }
        }
    }

    /// A job starts by this plan, which is to run until then, and is planned to until a time.
    pub fn start(&mut self, handle: u32, end: f64, until: f64) {
        if until.total_cmp(&end).is_ne() {
            self.until.insert(handle, until);
        }
    }

    /// Jobs that are planned to run until another time than their end: handle, and time.
    #[cfg(test)]
    pub fn until(&self) -> impl Iterator<Item = (u32, f64)> {
        self.until.iter().map(|it| (*it.0, *it.1))
    }

    /// The pass is over: what has started is in the plan already.
    pub fn finish(&mut self, books: &Books) {
        self.turns = books.turnover.end();
    }
}
