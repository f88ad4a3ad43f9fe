//! `SliceBudget`: the work on listings that is done between two other requests.

use penstock_jobspec::job_id::JobId;

use super::criteria::Criteria;
use crate::context::Context;

/// Maximum number of rows in one slice, of all listings together: a few milliseconds' work.
const ROWS_PER_SLICE: usize = 250;
/// Maximum number of steps in one slice. A step is the examination of one index entry, some 15 ns.
const STEPS_PER_SLICE: usize = 12_500;
/// The steps to find the next listing, and to end it.
const STEPS_PER_LISTING: usize = 60;
/// The steps to read the row of a job from the store, and its R.
const STEPS_PER_READ_ROW: usize = 60;
/// The steps to read a job from the store, with its jobspec and events.
const STEPS_PER_READ_JOB: usize = 400;
/// The number of bytes of text that are read and parsed in a step.
const BYTES_PER_STEP: usize = 16;

/// The remaining budget of a slice.
pub(super) struct SliceBudget {
    pub(super) rows: usize,
    steps: usize,
}

impl SliceBudget {
    pub(super) fn new() -> Self {
        Self {
            rows: ROWS_PER_SLICE,
            steps: STEPS_PER_SLICE,
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.rows == 0 || self.steps == 0
    }

    fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Charges the cost of a listing's turn.
    pub(super) fn spend_listing(&mut self) {
        self.spend(STEPS_PER_LISTING);
    }

    /// Charges the cost of an entry of the index of inactive jobs.
    pub(super) fn spend_entry(&mut self, criteria: &Criteria) {
        self.spend(criteria.steps_per_entry);
    }

    /// Charges the cost of a job in memory.
    pub(super) fn spend_job(&mut self, criteria: &Criteria) {
        self.spend(criteria.steps_per_job);
    }

    /// Reads the row of an inactive job, and its jobspec if the row leaves the filter open. Returns whether these rule the
    /// job out.
    pub(super) fn reject_by_row(
        &mut self,
        cx: &mut Context,
        id: JobId,
        criteria: &Criteria,
    ) -> bool {
        if !criteria.is_decided_by_row || cx.jobs.is_in_memory(id) {
            return false;
        }
        let Some(row) = cx.stored_row(id) else {
            return false;
        };
        let r_bytes = row.r.as_ref().map_or(0, String::len);
        self.spend(criteria.steps_per_job + STEPS_PER_READ_ROW + r_bytes / BYTES_PER_STEP);
        let filter = &criteria.filter;
        let mut is_shown = filter.matches_row(id, &row, None);
        if is_shown.is_none()
            && filter.needs_jobspec()
            && let Some((jobspec, bytes)) = cx.jobspec_of_inactive(row.spec)
        {
            // R may be parsed again.
            self.spend((bytes + r_bytes) / BYTES_PER_STEP);
            is_shown = filter.matches_row(id, &row, Some(&jobspec.spec));
        }
        is_shown == Some(false)
    }

    /// Loads a job from the store unless it is in memory, and charges the cost.
    pub(super) fn load_job(&mut self, cx: &mut Context, id: JobId, criteria: &Criteria) {
        self.spend_job(criteria);
        if !cx.jobs.is_in_memory(id) {
            cx.unload_surplus();
            let bytes = cx.load(id);
            self.spend(STEPS_PER_READ_JOB + bytes / BYTES_PER_STEP);
        }
    }
}
