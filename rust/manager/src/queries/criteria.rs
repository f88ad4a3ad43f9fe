//! The jobs that a listing shows, and what it costs to examine them.

use penstock_jobspec::job_id::JobId;

use super::filter::Filter;
use crate::authorize::VisibleJobs;
use crate::census::Census;
use crate::context::Context;
use crate::ended::{EndedJob, Submitted};
use crate::jobs::{HiddenJobs, Job};
use crate::state::State;

/// Maximum number of rows in one slice, of all listings together: a few milliseconds' work.
const ROWS_PER_SLICE: usize = 250;
/// Maximum number of entries of the index of inactive jobs that are examined in one slice.
const LOOKS_PER_SLICE: usize = 12_500;
/// A job in memory takes as long as this many entries.
const LOOKS_PER_JOB: usize = 5;
/// To compare the hosts of a job with those of a filter takes as long as this many entries for each byte of the filter's text.
const LOOKS_PER_BYTE: usize = 1;
/// To read the row of a job from the store, and its R, takes as long as this many entries.
const LOOKS_PER_READ_ROW: usize = 60;
/// To read this many bytes of R takes as long as an entry.
const R_BYTES_PER_LOOK: usize = 16;
/// To read a job from the store takes as long as this many entries more.
const LOOKS_PER_READ_JOB: usize = 400;

/// The jobs that a request lists.
#[derive(Debug)]
pub(super) struct Criteria {
    pub(super) filter: Filter,
    /// The costs of an entry of the index of inactive jobs, and of a job in memory: see [`Effort`].
    looks_per_entry: usize,
    looks_per_job: usize,
    /// The row of a job tells more of it than its entry.
    is_decided_by_row: bool,
    pub(super) since: f64,
    /// The jobs that were hidden when the request came.
    hidden: HiddenJobs,
    /// The jobs that the sender may list.
    pub(super) visible: VisibleJobs,
}

/// The remaining budget of a slice.
pub(super) struct Effort {
    pub(super) rows: usize,
    looks: usize,
}

impl Effort {
    pub(super) fn new() -> Self {
        Self {
            rows: ROWS_PER_SLICE,
            looks: LOOKS_PER_SLICE,
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.rows == 0 || self.looks == 0
    }

    /// Counts what an entry of the index of inactive jobs costs.
    pub(super) fn spend_entry(&mut self, criteria: &Criteria) {
        self.looks = self.looks.saturating_sub(criteria.looks_per_entry);
    }

    /// Counts what a job in memory costs.
    pub(super) fn spend_job(&mut self, criteria: &Criteria) {
        self.looks = self.looks.saturating_sub(criteria.looks_per_job);
    }

    /// Reads the row of an inactive job. Returns whether it tells that the listing does not show the job.
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
        let bytes = row.r.as_ref().map_or(0, String::len);
        let looks = criteria.looks_per_job + LOOKS_PER_READ_ROW + bytes / R_BYTES_PER_LOOK;
        self.looks = self.looks.saturating_sub(looks);
        let jobspec = cx.jobspec_of_inactive(row.spec);
        jobspec.is_some_and(|jobspec| {
            criteria.filter.matches_row(id, &row, &jobspec.spec) == Some(false)
        })
    }

    /// Has a job in memory, if it exists, and counts that.
    pub(super) fn spend_look(&mut self, cx: &mut Context, id: JobId, criteria: &Criteria) {
        self.spend_job(criteria);
        if !cx.jobs.is_in_memory(id) {
            cx.unload_surplus();
            cx.load(id);
            self.looks = self.looks.saturating_sub(LOOKS_PER_READ_JOB);
        }
    }
}

impl Criteria {
    pub(super) fn new(
        filter: Filter,
        since: f64,
        hidden: HiddenJobs,
        visible: VisibleJobs,
    ) -> Self {
        Self {
            looks_per_entry: filter.operators(),
            looks_per_job: LOOKS_PER_JOB * filter.operators() + LOOKS_PER_BYTE * filter.text_size(),
            is_decided_by_row: filter.may_be_decided_by_row(),
            filter,
            since,
            hidden,
            visible,
        }
    }

    /// Whether the listing shows a job that is in memory.
    pub(super) fn shows(&self, job: &Job) -> bool {
        (job.record.state() != State::Inactive || job.record.t_inactive() > self.since)
            && !self.hidden.contains(job.record.id())
            && self.visible.contain(&job.record)
            && self.filter.matches(job)
    }

    /// Whether the listing shows an inactive job, as far as its entry in the index tells; `None` if it is to be read.
    pub(super) fn shows_ended(
        &self,
        job: EndedJob,
        submitted: Submitted,
        census: &Census,
    ) -> Option<bool> {
        let (end, id) = job.end();
        let class = census.class_of(job)?;
        if end.seconds() <= self.since
            || self.hidden.contains(id)
            || !self.visible.contain_those_of(class.userid)
        {
            return Some(false);
        }
        self.filter.matches_ended(job, submitted, class)
    }
}
