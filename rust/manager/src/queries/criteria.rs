//! The jobs that a listing shows, and the cost to examine them.

use super::filter::Filter;
use crate::authorize::VisibleJobs;
use crate::census::Census;
use crate::ended::{EndedJob, SubmissionBounds};
use crate::jobs::{HiddenJobs, Job};
use crate::state::State;

/// The steps to examine a job in memory, for each operator of the filter.
const STEPS_PER_JOB: usize = 5;
/// The steps to compare the hosts of a job with those of a filter, for each byte of the filter's text.
const STEPS_PER_FILTER_BYTE: usize = 1;

/// The jobs that a request lists.
#[derive(Debug)]
pub(super) struct Criteria {
    pub(super) filter: Filter,
    /// The steps to examine an entry of the index of inactive jobs: see [`SliceBudget`](super::slice_budget::SliceBudget).
    pub(super) steps_per_entry: usize,
    /// The steps to examine a job in memory.
    pub(super) steps_per_job: usize,
    /// Whether the row of a job in the store may decide what its index entry leaves open.
    pub(super) is_decided_by_row: bool,
    pub(super) since: f64,
    /// The jobs that were hidden when the request came.
    hidden: HiddenJobs,
    /// The jobs that the sender may list.
    pub(super) visible: VisibleJobs,
}

impl Criteria {
    pub(super) fn new(
        filter: Filter,
        since: f64,
        hidden: HiddenJobs,
        visible: VisibleJobs,
    ) -> Self {
        Self {
            steps_per_entry: filter.operators(),
            steps_per_job: STEPS_PER_JOB * filter.operators()
                + STEPS_PER_FILTER_BYTE * filter.text_size(),
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
        submission: SubmissionBounds,
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
        self.filter.matches_ended(job, submission, class)
    }
}
