//! Hybrid backfill: the first jobs in line that have to wait have reservations, a given number of
//! them; others start where they disturb none. Nothing is kept from one pass to the next.

use super::walk::{Backfill, Later, Verdict};
use crate::books::Books;
use crate::machine::Shares;
use crate::plan::{Plan, length};

/// The plan of a group, once one of its jobs waits.
#[derive(Clone, Debug, Default)]
struct Ahead {
    plan: Option<Plan>,
    reservations: u32,
}

/// Scratch memory of the policy, by group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hybrid {
    groups: Vec<Ahead>,
    depth: u32,
    now: f64,
}

impl Hybrid {
    /// To be called before a pass.
    pub fn begin(&mut self, groups: usize, depth: u32, now: f64) {
        self.groups.clear();
        self.groups.resize_with(groups, Ahead::default);
        self.depth = depth;
        self.now = now;
    }
}

impl Backfill for Hybrid {
    fn wait(&mut self, books: &mut Books, group: u32, class: u32, limit: f64) -> Later {
        let ahead = &mut self.groups[group as usize];
        let plan = ahead
            .plan
            .get_or_insert_with(|| Plan::of(books, group, self.now));
        let machine = &books.machine;
        let shape = books.queue.classes[class as usize].shape;
        let limit = length(limit);
        let (start, hold) = plan.earliest(machine, shape, self.now, limit);
        if start.is_finite() {
            plan.hold(machine, &hold, (start, start + limit), false);
        }
        ahead.reservations += 1;
        if ahead.reservations < self.depth {
            Later::Everything
        } else {
            Later::Fitting
        }
    }

    fn judge(&mut self, books: &mut Books, group: u32, class: u32, limit: f64) -> Verdict {
        let Some(plan) = &self.groups[group as usize].plan else {
            return Verdict::Unfit;
        };
        match plan.place(books, class, self.now, length(limit)) {
            Ok(shares) => Verdict::Start(shares),
            Err(by) if by <= self.now => Verdict::Unfit,
            Err(by) => Verdict::Harm { by, passing: false },
        }
    }

    fn length(&self, limit: f64) -> f64 {
        length(limit)
    }

    fn admit(&mut self, books: &Books, group: u32, class: u32, limit: f64, shares: &Shares) {
        if let Some(plan) = &mut self.groups[group as usize].plan {
            let hold = plan.hold_of(books.queue.classes[class as usize].need, shares);
            let until = (self.now, self.now + length(limit));
            plan.hold(&books.machine, &hold, until, false);
        }
    }
}
