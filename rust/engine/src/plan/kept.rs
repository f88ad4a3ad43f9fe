//! A plan that is kept from pass to pass, in step with what runs.

use rustc_hash::FxHashMap;

use super::{Plan, planned};
use crate::books::Books;

/// A plan, and what it knows of the running jobs.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub plan: Plan,
    /// Until when jobs are planned to run that should be over, by handle.
    late: FxHashMap<u32, f64>,
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
        let late = late.map(|(_, it)| (it.handle, planned(it.end, now)));
        let late = late.collect();
        Self {
            plan: Plan::of(books, group, now),
            late,
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
            let before = if turn.before == f64::NEG_INFINITY {
                self.late.remove(&turn.handle);
                now
            } else {
                let late = self.late.get(&turn.handle);
                late.map_or(turn.before, |it| *it).max(now)
            };
            if turn.after > f64::NEG_INFINITY {
                self.late.remove(&turn.handle);
            }
            let after = turn.after.max(now);
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

    /// Those that should be over are planned to be in a second.
    fn delay(&mut self, books: &mut Books, now: f64) {
        let before = std::mem::take(&mut self.late);
        let ending = books.timeline().iter().take_while(|it| it.end <= now);
        let ending: Vec<_> = ending.copied().collect();
        for it in ending {
            let Some(running) = books.runs.at(it.run) else {
                continue;
            };
            let until = before.get(&running.handle).map_or(it.end, |it| *it);
            let span = (until.max(now), planned(it.end, now));
            if span.0 < span.1 {
                let hold = self.plan.hold_of_running(&books.machine, &running.shares);
                self.plan.hold(&hold, span, false);
            }
            self.late.insert(running.handle, span.1);
        }
    }

    /// A job starts by this plan, and is to run until then.
    pub fn start(&mut self, handle: u32, end: f64, now: f64) -> f64 {
        let until = planned(end, now);
        if until > end {
            self.late.insert(handle, until);
        }
        until
    }

    /// The pass is over: what has started is in the plan already.
    pub fn finish(&mut self, books: &Books) {
        self.turns = books.turnover.end();
    }
}
