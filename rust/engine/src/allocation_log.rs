//! The allocation log: allocations and releases of running jobs, for plans that are updated from
//! pass to pass.

use crate::ids::JobHandle;
use crate::node_table::Allocation;

/// A change of the planned end of an allocation or of a part of one. Negative infinity stands for
/// not allocated.
#[derive(Clone, Debug)]
pub(crate) struct AllocationChange {
    pub handle: JobHandle,
    pub shares: Allocation,
    pub before: f64,
    pub after: f64,
    pub coverage: Coverage,
}

/// The share of a job's allocation that a change covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    Whole,
    Part,
}

/// Maximum number of shares in the log. A full log is emptied: a plan that has not read it by then
/// is recomputed.
const MAX_LOGGED_SHARES: usize = 1 << 16;

/// The latest changes, while a plan follows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllocationLog {
    changes: Vec<AllocationChange>,
    /// Changes that have been dropped.
    dropped: usize,
    shares: usize,
    followed: bool,
}

impl AllocationLog {
    /// Records that all of a job's allocation is planned to end at another time.
    pub fn record(&mut self, handle: JobHandle, shares: &Allocation, before: f64, after: f64) {
        self.push(handle, shares, before, after, Coverage::Whole);
    }

    /// Records that a part of a job's allocation is planned to end at another time.
    pub fn record_part(&mut self, handle: JobHandle, shares: &Allocation, before: f64, after: f64) {
        self.push(handle, shares, before, after, Coverage::Part);
    }

    fn push(
        &mut self,
        handle: JobHandle,
        shares: &Allocation,
        before: f64,
        after: f64,
        coverage: Coverage,
    ) {
        if !self.followed {
            return;
        }
        if self.shares + shares.len() >= MAX_LOGGED_SHARES {
            // This change is not recorded: a plan that follows the log has missed it.
            self.drop_before(usize::MAX);
            self.dropped += 1;
            self.followed = false;
            return;
        }
        self.shares += shares.len() + 1;
        self.changes.push(AllocationChange {
            handle,
            shares: shares.clone(),
            before,
            after,
            coverage,
        });
    }

    /// Starts recording. Returns the number of the next change.
    pub fn follow(&mut self) -> usize {
        self.followed = true;
        self.end()
    }

    /// The number of the next change.
    pub fn end(&self) -> usize {
        self.dropped + self.changes.len()
    }

    /// The changes from number `from` on, unless they have been dropped.
    pub fn since(&self, from: usize) -> Option<&[AllocationChange]> {
        self.changes.get(from.checked_sub(self.dropped)?..)
    }

    /// Drops the changes before number `until`.
    pub fn drop_before(&mut self, until: usize) {
        let count = until.saturating_sub(self.dropped).min(self.changes.len());
        let dropped = self.changes.drain(..count);
        self.shares -= dropped.map(|change| change.shares.len() + 1).sum::<usize>();
        self.dropped += count;
    }
}

#[cfg(test)]
mod tests {
    use penstock_idset::IdSet;
    use penstock_rset::ResourceSet;

    use super::{AllocationLog, Coverage, MAX_LOGGED_SHARES};
    use crate::ids::{JobHandle, NodeIndex};
    use crate::node_table::{Allocation, Amounts, NodeTable};

    /// An allocation of `count` shares.
    fn shares(count: usize) -> Allocation {
        let mut r = ResourceSet::new();
        r.insert(0, "n0", (0..2).collect(), IdSet::new()).unwrap();
        let share = NodeTable::new(&r)
            .unwrap()
            .lowest_free(NodeIndex::new(0), Amounts { cores: 1, gpus: 0 });
        std::iter::repeat_n(share, count).collect()
    }

    #[test]
    fn changes_are_recorded_while_a_plan_follows() {
        let mut allocation_log = AllocationLog::default();
        allocation_log.record(JobHandle::new(1), &shares(1), f64::NEG_INFINITY, 1.0);
        assert_eq!(allocation_log.end(), 0);
        let from = allocation_log.follow();
        allocation_log.record(JobHandle::new(2), &shares(1), f64::NEG_INFINITY, 2.0);
        allocation_log.record_part(JobHandle::new(2), &shares(1), 2.0, f64::NEG_INFINITY);
        let changes = allocation_log.since(from).unwrap();
        assert_eq!(
            changes
                .iter()
                .map(|change| change.coverage)
                .collect::<Vec<_>>(),
            [Coverage::Whole, Coverage::Part]
        );
        allocation_log.drop_before(from + 1);
        assert!(allocation_log.since(from).is_none());
        assert_eq!(allocation_log.since(from + 1).unwrap().len(), 1);
    }

    #[test]
    fn a_full_log_costs_its_follower_one_plan() {
        let mut allocation_log = AllocationLog::default();
        for _ in 0..3 {
            let from = allocation_log.follow();
            allocation_log.record(
                JobHandle::new(1),
                &shares(MAX_LOGGED_SHARES),
                f64::NEG_INFINITY,
                1.0,
            );
            assert!(allocation_log.since(from).is_none());
            let from = allocation_log.follow();
            allocation_log.record(
                JobHandle::new(2),
                &shares(MAX_LOGGED_SHARES / 2),
                f64::NEG_INFINITY,
                1.0,
            );
            assert_eq!(allocation_log.since(from).unwrap().len(), 1);
        }
    }
}
