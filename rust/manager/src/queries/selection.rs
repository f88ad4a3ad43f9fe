//! The jobs that a listing shows newest first: the index of inactive jobs is in the order of their ends.
//!
//! Each page examines all entries of the index some times: to count the jobs to skip by ranges of ids (`IdCounts`), and
//! to select the jobs after these (`Selection`).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use penstock_jobspec::job_id::JobId;

use super::criteria::{Criteria, Effort};
use crate::census::Census;
use crate::ended::End;
use crate::event::EventTime;
use crate::jobs::Jobs;
use crate::state::State;

/// The number of jobs that a listing selects at a time, before it reads them. Few in debug builds, whose tests have few
/// jobs.
const SELECTED_JOBS: usize = if cfg!(debug_assertions) { 8 } else { 20_000 };
/// Ids are counted in 2 to the power of this many ranges.
const RANGE_BITS: u32 = if cfg!(debug_assertions) { 10 } else { 16 };

/// The place that tells whether a listing shows a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobSource {
    /// It is shown as it is in memory.
    Memory,
    /// Its entry in the index tells that it is shown.
    Index,
    /// It is to be read from the store.
    Store,
}

/// The jobs with ids in a range that are still to be examined: first those in memory, then the index of inactive jobs.
/// A job that ends meanwhile is among the former.
#[derive(Debug)]
struct Scan {
    ids: (Bound<JobId>, Bound<JobId>),
    /// The jobs in memory that are still to be examined; `None` if all have been.
    in_memory: Option<Bound<JobId>>,
    /// The last entry of the index at the begin. Jobs of later entries are in memory.
    newest: Option<End>,
    /// The last entry that was examined.
    ended: Option<End>,
    /// Jobs that were found in memory and may be in the index.
    inactive: BTreeSet<JobId>,
}

impl Scan {
    fn new(first: Bound<JobId>, below: Bound<JobId>, census: &Census) -> Self {
        let newest = census.inactive().before(None).next();
        Self {
            ids: (first, below),
            in_memory: Some(below),
            newest: newest.map(|(job, _)| job.end()),
            ended: None,
            inactive: BTreeSet::new(),
        }
    }

    /// Examines the next jobs, those in memory until `found` returns false. Returns whether all have been examined.
    fn advance(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        census: &Census,
        effort: &mut Effort,
        mut found: impl FnMut(JobId, JobSource) -> bool,
    ) -> bool {
        if let Some(below) = self.in_memory {
            for (id, job) in jobs.range((self.ids.0, below)).rev() {
                if effort.is_spent() {
                    return false;
                }
                effort.spend_job(criteria);
                self.in_memory = Some(Bound::Excluded(id));
                if job.record.state() == State::Inactive {
                    self.inactive.insert(id);
                }
                if criteria.shows(job) && !found(id, JobSource::Memory) {
                    break;
                }
            }
            self.in_memory = None;
        }
        let since = EventTime::new(criteria.since);
        for (job, submitted) in census.inactive().before(self.ended) {
            if effort.is_spent() {
                return false;
            }
            effort.spend_entry(criteria);
            let (end, id) = job.end();
            if end < since {
                break;
            }
            self.ended = Some(job.end());
            if !self.ids.contains(&id) || self.newest < self.ended || self.inactive.contains(&id) {
                continue;
            }
            match criteria.shows_ended(job, submitted, census) {
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
    /// The first id of the first range.
    first: JobId,
    /// Each range has 2 to the power of this many ids.
    bits: u32,
    /// `None` if jobs are to be read.
    shown: Vec<Option<u32>>,
}

impl IdCounts {
    fn new(first: JobId, id_bits: u32, census: &Census) -> Self {
        let after = first
            .get()
            .checked_add(1_u64.checked_shl(id_bits).unwrap_or(0));
        let below = after.map_or(Bound::Unbounded, |id| Bound::Excluded(JobId::new(id)));
        Self {
            scan: Scan::new(Bound::Included(first), below, census),
            first,
            bits: id_bits.saturating_sub(RANGE_BITS),
            shown: vec![Some(0); 1 << id_bits.min(RANGE_BITS)],
        }
    }

    fn advance(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        census: &Census,
        effort: &mut Effort,
    ) -> bool {
        let (first, bits, shown) = (self.first.get(), self.bits, &mut self.shown);
        self.scan
            .advance(criteria, jobs, census, effort, |id, source| {
                let range = usize::try_from((id.get() - first) >> bits).unwrap_or(usize::MAX);
                if let Some(count) = shown.get_mut(range) {
                    let counted = count.filter(|_| source != JobSource::Store);
                    *count = counted.map(|count| count.saturating_add(1));
                }
                true
            })
    }

    /// The part of a page that begins after some more jobs: the range of its first job, from which on jobs are counted
    /// again or selected. Subtracts the jobs before that range.
    pub(super) fn into_part(self, skip: &mut usize, census: &Census) -> Part {
        for (range, count) in self.shown.iter().enumerate().rev() {
            let jobs = count.and_then(|count| usize::try_from(count).ok());
            if let Some(left) = jobs.and_then(|jobs| skip.checked_sub(jobs)) {
                *skip = left;
                continue;
            }
            let first = JobId::new(self.first.get() + ((range as u64) << self.bits));
            if jobs.is_some() && *skip > SELECTED_JOBS && self.bits > 0 {
                return Part::Counted(Self::new(first, self.bits, census));
            }
            let after = JobId::new(first.get().saturating_add(1 << self.bits));
            return Part::below(Bound::Excluded(after), census);
        }
        Part::below(Bound::Excluded(self.first), census)
    }
}

/// The jobs that are examined together, after those with greater ids.
#[derive(Debug)]
pub(super) enum Part {
    /// The jobs to skip are to be counted.
    Counted(IdCounts),
    /// The next jobs by id are to be selected.
    Selected(Selection),
}

impl Part {
    /// The jobs below a bound.
    pub(super) fn below(below: Bound<JobId>, census: &Census) -> Self {
        Self::Selected(Selection::new(below, census))
    }

    /// Examines the next jobs. Returns whether these were all.
    pub(super) fn advance(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        census: &Census,
        effort: &mut Effort,
    ) -> bool {
        match self {
            Self::Counted(counts) => counts.advance(criteria, jobs, census, effort),
            Self::Selected(selection) => selection.advance(criteria, jobs, census, effort),
        }
    }

    /// The first part of a page that begins after some jobs.
    pub(super) fn first(skip: usize, jobs: &Jobs, census: &Census) -> Self {
        if skip <= SELECTED_JOBS {
            return Self::below(Bound::Unbounded, census);
        }
        let bits = u64::BITS - jobs.greatest_id().get().leading_zeros();
        Self::Counted(IdCounts::new(JobId::default(), bits, census))
    }
}

/// A job that a listing may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SelectedJob {
    pub(super) id: Reverse<JobId>,
    /// The index tells that the listing shows it.
    pub(super) is_certain: bool,
}

/// The jobs with the greatest ids below a bound that a listing may show. Every inactive job is looked at, but not read.
#[derive(Debug)]
pub(super) struct Selection {
    scan: Scan,
    jobs: Smallest<SelectedJob>,
}

impl Selection {
    fn new(below: Bound<JobId>, census: &Census) -> Self {
        Self {
            scan: Scan::new(Bound::Unbounded, below, census),
            jobs: Smallest::new(SELECTED_JOBS),
        }
    }

    fn advance(
        &mut self,
        criteria: &Criteria,
        jobs: &Jobs,
        census: &Census,
        effort: &mut Effort,
    ) -> bool {
        let selected = &mut self.jobs;
        self.scan
            .advance(criteria, jobs, census, effort, |id, source| {
                let (id, is_certain) = (Reverse(id), source == JobSource::Index);
                selected.add(SelectedJob { id, is_certain });
                !selected.is_full()
            })
    }

    /// The selected jobs, the greatest id first, and the bound of the next selection if there may be more.
    pub(super) fn into_jobs(self) -> (std::vec::IntoIter<SelectedJob>, Option<Bound<JobId>>) {
        let jobs: Vec<SelectedJob> = self.jobs.sorted().collect();
        let next = jobs.last().filter(|_| jobs.len() >= SELECTED_JOBS);
        let next = next.map(|job| Bound::Excluded(job.id.0));
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
