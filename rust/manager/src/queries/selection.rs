//! The jobs of a listing in the order `newest`.
//!
//! The order `newest` is that of ids, descending; the index is sorted by end. A page takes two or three passes over the
//! index to count the jobs to skip (`IdCounts`), and one or more to select its jobs (`Selection`).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use penstock_jobspec::job_id::JobId;

use super::criteria::Criteria;
use super::slice_budget::SliceBudget;
use crate::census::Census;
use crate::ended::End;
use crate::event::EventTime;
use crate::jobs::Jobs;
use crate::state::State;

/// The least and the greatest number of jobs in the first selection of a page. If many of them turn out not to be shown, the
/// next selections have more.
const FIRST_SELECTION_RANGE: (usize, usize) = (8, 20_000);
/// The greatest number of jobs in a selection.
const MAX_SELECTED_JOBS: usize = 1 << 18;
/// The greatest number of jobs to skip that are selected, not counted. Few in debug builds, whose tests have few jobs.
const MAX_UNCOUNTED_JOBS: usize = if cfg!(debug_assertions) { 8 } else { 20_000 };
/// Ids are counted in 2 to the power of this many ranges.
const RANGE_BITS: u32 = if cfg!(debug_assertions) { 10 } else { 16 };

/// The id before one, if there is one.
pub(super) fn predecessor(id: JobId) -> Option<JobId> {
    id.get().checked_sub(1).map(JobId::new)
}

/// The source of the decision that a listing shows a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobSource {
    /// It is shown as it is in memory.
    Memory,
    /// Its entry in the index tells that it is shown.
    Index,
    /// It is to be read from the store.
    Store,
}

/// The slices in which jobs in memory were examined, the greatest id first.
#[derive(Debug, Default)]
pub(super) struct ExaminedSlices {
    /// After each slice, the last entry of the index, and the greatest id that is still to be examined.
    slices: Vec<(Option<End>, Option<JobId>)>,
    /// Jobs that were examined and are not to count as such: their rows were not sent.
    pub(super) unlisted: BTreeSet<JobId>,
}

impl ExaminedSlices {
    /// Ends a slice. `left` is the greatest id that is still to be examined; `None` if there is none.
    pub(super) fn end_slice(&mut self, census: &Census, left: Option<JobId>) {
        let newest = census.inactive().before(None).next();
        let newest = newest.map(|(job, _)| job.end());
        // An entry may have been purged, or the clock set back.
        let before = self.slices.last().and_then(|(newest, _)| *newest);
        self.slices.push((newest.max(before), left));
    }

    /// Whether the job with this end was examined in memory, and ended after that.
    pub(super) fn has_ended_since(&self, end: End) -> bool {
        let before = self
            .slices
            .partition_point(|(newest, _)| *newest < Some(end));
        let slice = before.checked_sub(1).and_then(|at| self.slices.get(at));
        slice.is_some_and(|(_, left)| left.is_none_or(|left| end.1 > left))
            && !self.unlisted.contains(&end.1)
    }
}

/// The jobs with ids in a range that are still to be examined: first those in memory, then the index of inactive jobs.
#[derive(Debug)]
struct Scan {
    first: JobId,
    last: JobId,
    /// The greatest id in memory that is still to be examined; `None` if there is none.
    in_memory: Option<JobId>,
    /// The slices of the scan of memory.
    examined: ExaminedSlices,
    /// The last entry that was examined.
    last_examined: Option<End>,
    /// Jobs that were found in memory and may be in the index.
    inactive_in_memory: BTreeSet<JobId>,
}

impl Scan {
    fn new(first: JobId, last: JobId) -> Self {
        Self {
            first,
            last,
            in_memory: Some(last),
            examined: ExaminedSlices::default(),
            last_examined: None,
            inactive_in_memory: BTreeSet::new(),
        }
    }

    /// Examines the next jobs in memory until `found` returns false. Returns whether it is done with them.
    fn advance_in_memory(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        budget: &mut SliceBudget,
        found: &mut impl FnMut(JobId, JobSource) -> bool,
    ) -> bool {
        let Some(last) = self.in_memory.filter(|last| *last >= self.first) else {
            self.in_memory = None;
            return true;
        };
        for (id, job) in jobs.range(self.first..=last).rev() {
            if budget.is_spent() {
                return false;
            }
            budget.spend_job(criteria);
            self.in_memory = predecessor(id);
            if job.record.state() == State::Inactive {
                self.inactive_in_memory.insert(id);
            }
            if criteria.shows(job) && !found(id, JobSource::Memory) {
                break;
            }
        }
        self.in_memory = None;
        true
    }

    /// Examines the next jobs, those in memory until `found` returns false. Returns whether all have been examined.
    fn advance(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        census: &Census,
        budget: &mut SliceBudget,
        mut found: impl FnMut(JobId, JobSource) -> bool,
    ) -> bool {
        if self.in_memory.is_some() {
            let is_done = self.advance_in_memory(criteria, jobs, budget, &mut found);
            self.examined.end_slice(census, self.in_memory);
            if !is_done {
                return false;
            }
        }
        let since = EventTime::new(criteria.since);
        for (job, submission) in census.inactive().before(self.last_examined) {
            if budget.is_spent() {
                return false;
            }
            budget.spend_entry(criteria);
            let (end, id) = job.end();
            if end < since {
                break;
            }
            self.last_examined = Some(job.end());
            if !(self.first..=self.last).contains(&id)
                || self.examined.has_ended_since(job.end())
                || self.inactive_in_memory.contains(&id)
            {
                continue;
            }
            match criteria.shows_ended(job, submission, census) {
                Some(false) => {}
                Some(true) => _ = found(id, JobSource::Index),
                None => _ = found(id, JobSource::Store),
            }
        }
        true
    }
}

/// The numbers of the jobs that a listing shows, by ranges of ids.
#[derive(Debug)]
pub(super) struct IdCounts {
    scan: Scan,
    /// Each range has 2 to the power of this many ids.
    bits: u32,
    /// `None` if jobs are to be read.
    shown: Vec<Option<u32>>,
}

impl IdCounts {
    /// Counts of the ids from `first` to `last`, which differ in the last `id_bits` bits.
    fn new(first: JobId, last: JobId, id_bits: u32) -> Self {
        Self {
            scan: Scan::new(first, last),
            bits: id_bits.saturating_sub(RANGE_BITS),
            shown: vec![Some(0); 1 << id_bits.min(RANGE_BITS)],
        }
    }

    fn advance(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        census: &Census,
        budget: &mut SliceBudget,
    ) -> bool {
        let (first, bits, shown) = (self.scan.first.get(), self.bits, &mut self.shown);
        self.scan
            .advance(criteria, jobs, census, budget, |id, source| {
                let range = usize::try_from((id.get() - first) >> bits).unwrap_or(usize::MAX);
                if let Some(count) = shown.get_mut(range) {
                    let counted = count.filter(|_| source != JobSource::Store);
                    *count = counted.map(|count| count.saturating_add(1));
                }
                true
            })
    }

    /// Subtracts from `skip` the jobs of all ranges before the one with the page's first job. Returns the next part: a
    /// finer count of that range, or the selection from its end.
    pub(super) fn into_step(self, skip: &mut usize, left: usize) -> Option<NewestStep> {
        for (range, count) in self.shown.iter().enumerate().rev() {
            let jobs = count.and_then(|count| usize::try_from(count).ok());
            if let Some(rest) = jobs.and_then(|jobs| skip.checked_sub(jobs)) {
                *skip = rest;
                continue;
            }
            let first = self.scan.first.get() + ((range as u64) << self.bits);
            let last = first.saturating_add((1 << self.bits) - 1);
            let last = JobId::new(last).min(self.scan.last);
            if jobs.is_some() && *skip > MAX_UNCOUNTED_JOBS && self.bits > 0 {
                let counts = Self::new(JobId::new(first), last, self.bits);
                return Some(NewestStep::Count(counts));
            }
            return Some(NewestStep::Select(Selection::first(last, *skip, left)));
        }
        let last = predecessor(self.scan.first)?;
        Some(NewestStep::Select(Selection::first(last, *skip, left)))
    }
}

/// A step of the search for the jobs of a page.
#[derive(Debug)]
pub(super) enum NewestStep {
    /// The jobs to skip are to be counted.
    Count(IdCounts),
    /// The next jobs by id are to be selected.
    Select(Selection),
}

impl NewestStep {
    /// The first step for a page of `left` jobs after `skip` others. Jobs that are submitted later are not listed.
    pub(super) fn first(skip: usize, left: usize, jobs: &Jobs) -> Self {
        let last = jobs.greatest_id();
        if skip <= MAX_UNCOUNTED_JOBS {
            return Self::Select(Selection::first(last, skip, left));
        }
        let bits = u64::BITS - last.get().leading_zeros();
        Self::Count(IdCounts::new(JobId::default(), last, bits))
    }

    /// Examines the next jobs. Returns whether these were all.
    pub(super) fn advance(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        census: &Census,
        budget: &mut SliceBudget,
    ) -> bool {
        match self {
            Self::Count(counts) => counts.advance(criteria, jobs, census, budget),
            Self::Select(selection) => selection.advance(criteria, jobs, census, budget),
        }
    }
}

/// A job that a listing may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SelectedJob {
    pub(super) id: Reverse<JobId>,
    /// The index tells that the listing shows it.
    pub(super) is_certain: bool,
}

/// The jobs with the greatest ids up to one that a listing may show. Every index entry is examined; no job is read from the
/// store.
#[derive(Debug)]
pub(super) struct Selection {
    scan: Scan,
    jobs: Smallest<SelectedJob>,
}

impl Selection {
    fn new(last: JobId, limit: usize) -> Self {
        Self {
            scan: Scan::new(JobId::default(), last),
            jobs: Smallest::new(limit),
        }
    }

    /// The first selection for a page of `left` jobs after `skip` others.
    fn first(last: JobId, skip: usize, left: usize) -> Self {
        let (min, max) = FIRST_SELECTION_RANGE;
        Self::new(last, left.saturating_add(skip).clamp(min, max))
    }

    fn advance(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        census: &Census,
        budget: &mut SliceBudget,
    ) -> bool {
        let selected = &mut self.jobs;
        self.scan
            .advance(criteria, jobs, census, budget, |id, source| {
                let (id, is_certain) = (Reverse(id), source == JobSource::Index);
                selected.add(SelectedJob { id, is_certain });
                !selected.is_full()
            })
    }

    /// The selected jobs, the greatest id first, and the next selection, of twice as many, if there may be more.
    pub(super) fn into_jobs(self) -> (std::vec::IntoIter<SelectedJob>, Option<Self>) {
        let limit = self.jobs.limit;
        let mut jobs: Vec<SelectedJob> = self.jobs.sorted().collect();
        let next = jobs.last().filter(|_| jobs.len() >= limit);
        let next = next.and_then(|job| predecessor(job.id.0));
        let next = next.map(|last| Self::new(last, (2 * limit).min(MAX_SELECTED_JOBS)));
        // A job that ended meanwhile while the clock was set back has been found twice.
        jobs.dedup_by_key(|job| job.id);
        (jobs.into_iter(), next)
    }
}

/// The smallest of some keys, at most `limit`.
#[derive(Debug)]
pub(super) struct Smallest<K> {
    limit: usize,
    keys: Vec<K>,
}

impl<K: Ord> Smallest<K> {
    pub(super) fn new(limit: usize) -> Self {
        let keys = Vec::new();
        Self { limit, keys }
    }

    /// Whether it has `limit` keys: one that is greater than all of them would be left out.
    fn is_full(&self) -> bool {
        self.keys.len() >= self.limit
    }

    pub(super) fn add(&mut self, key: K) {
        self.keys.push(key);
        if self.keys.len() / 2 >= self.limit {
            self.keys.select_nth_unstable(self.limit - 1);
            self.keys.truncate(self.limit);
        }
    }

    pub(super) fn sorted(mut self) -> impl Iterator<Item = K> {
        self.keys.sort();
        self.keys.into_iter().take(self.limit)
    }
}
