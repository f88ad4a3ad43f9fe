//! What running jobs have taken and given back, for plans that are kept from pass to pass.

use crate::machine::Allocation;

/// What a job holds is to be held until another time than before. Negative infinity is for what is
/// not held.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub handle: u32,
    pub shares: Allocation,
    pub before: f64,
    pub after: f64,
    /// Whether the job holds, or held, more than these.
    pub part: bool,
}

/// Shares of all turns at the most: whoever has not followed till then makes a new plan.
const MOST: usize = 1 << 16;

/// The latest turns, while somebody follows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turnover {
    turns: Vec<Turn>,
    /// Turns that have been forgotten.
    gone: usize,
    shares: usize,
    followed: bool,
}

impl Turnover {
    /// All that a job holds is to be held until another time.
    pub fn push(&mut self, handle: u32, shares: &Allocation, before: f64, after: f64) {
        self.add(handle, shares, before, after, false);
    }

    /// The same of a part.
    pub fn push_part(&mut self, handle: u32, shares: &Allocation, before: f64, after: f64) {
        self.add(handle, shares, before, after, true);
    }

    fn add(&mut self, handle: u32, shares: &Allocation, before: f64, after: f64, part: bool) {
        if !self.followed {
            return;
        }
        if self.shares + shares.len() >= MOST {
            // Nobody has seen this one: whoever follows has missed it.
            self.forget(usize::MAX);
            self.gone += 1;
            self.followed = false;
            return;
        }
        self.shares += shares.len() + 1;
        self.turns.push(Turn {
            handle,
            shares: shares.clone(),
            before,
            after,
            part,
        });
    }

    /// Where the next turn will be. From now on turns are kept for somebody who follows.
    pub fn follow(&mut self) -> usize {
        self.followed = true;
        self.end()
    }

    /// Where the next turn will be.
    pub fn end(&self) -> usize {
        self.gone + self.turns.len()
    }

    /// All turns from one on, if they are still known.
    pub fn since(&self, from: usize) -> Option<&[Turn]> {
        self.turns.get(from.checked_sub(self.gone)?..)
    }

    /// Forgets the turns before one.
    pub fn forget(&mut self, until: usize) {
        let count = until.saturating_sub(self.gone).min(self.turns.len());
        let gone = self.turns.drain(..count);
        self.shares -= gone.map(|it| it.shares.len() + 1).sum::<usize>();
        self.gone += count;
    }
}

#[cfg(test)]
mod tests {
    use penstock_idset::IdSet;
    use penstock_rset::ResourceSet;

    use super::{MOST, Turnover};
    use crate::ids::NodeIndex;
    use crate::machine::{Allocation, Machine};

    /// So many shares, whichever.
    fn shares(count: usize) -> Allocation {
        let mut r = ResourceSet::new();
        r.insert(0, "n0", (0..2).collect(), IdSet::new()).unwrap();
        let share = Machine::new(&r)
            .unwrap()
            .lowest_free(NodeIndex::new(0), 1, 0);
        std::iter::repeat_n(share, count).collect()
    }

    #[test]
    fn turns_are_kept_while_somebody_follows() {
        let mut turnover = Turnover::default();
        turnover.push(1, &shares(1), f64::NEG_INFINITY, 1.0);
        assert_eq!(turnover.end(), 0);
        let from = turnover.follow();
        turnover.push(2, &shares(1), f64::NEG_INFINITY, 2.0);
        turnover.push_part(2, &shares(1), 2.0, f64::NEG_INFINITY);
        let turns = turnover.since(from).unwrap();
        assert_eq!(
            turns.iter().map(|it| it.part).collect::<Vec<_>>(),
            [false, true]
        );
        turnover.forget(from + 1);
        assert!(turnover.since(from).is_none());
        assert_eq!(turnover.since(from + 1).unwrap().len(), 1);
    }

    #[test]
    fn more_than_is_kept_costs_who_follows_a_plan_and_no_more() {
        let mut turnover = Turnover::default();
        for _ in 0..3 {
            let from = turnover.follow();
            turnover.push(1, &shares(MOST), f64::NEG_INFINITY, 1.0);
            assert!(turnover.since(from).is_none());
            let from = turnover.follow();
            turnover.push(2, &shares(MOST / 2), f64::NEG_INFINITY, 1.0);
            assert_eq!(turnover.since(from).unwrap().len(), 1);
        }
    }
}
