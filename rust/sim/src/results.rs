//! The results of a simulation: one column per property, one entry per job.

use std::ops::Range;

use penstock_idset::IdSet;

use crate::workload::Requested;

/// The result of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum JobResult {
    /// It never started: it is held, or no remaining event could let it start.
    #[default]
    Pending = 0,
    /// It ran to its end.
    Completed = 1,
    /// It was killed at its limit.
    Killed = 2,
    /// One of its nodes failed, and it was not queued again.
    Lost = 3,
    /// The engine denied it: it can never run on this machine.
    Denied = 4,
    /// It is running; only before the simulation has ended.
    Running = 5,
}

/// Maximum number of recorded ranges of ranks, 8 bytes each.
const MAX_RANK_RANGES: usize = 32_000_000;

/// Consecutive ranks, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankRange {
    pub first: u32,
    pub last: u32,
}

/// The columns of the results, in the order of the workload.
#[derive(Clone, Debug, Default)]
pub struct Results {
    pub(crate) start: Vec<f64>,
    pub(crate) end: Vec<f64>,
    pub(crate) cores: Vec<u32>,
    pub(crate) nodes: Vec<u32>,
    pub(crate) first_rank: Vec<u32>,
    pub(crate) backfilled: Vec<bool>,
    pub(crate) result: Vec<JobResult>,
    /// Estimated starts; empty if none were requested.
    pub(crate) estimate: Vec<f64>,
    /// The ranks of all jobs.
    rank_ranges: Vec<RankRange>,
    /// For each job its ranges in `rank_ranges`; empty if allocations are not recorded.
    ranges_of_job: Vec<Range<u32>>,
}

/// The optional results that a simulation records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    pub estimates: bool,
    pub allocations: bool,
}

impl Results {
    pub(crate) fn new(jobs: usize, recorded: Recorded) -> Self {
        Self {
            start: vec![f64::NAN; jobs],
            end: vec![f64::NAN; jobs],
            cores: vec![0; jobs],
            nodes: vec![0; jobs],
            first_rank: vec![0; jobs],
            backfilled: vec![false; jobs],
            result: vec![JobResult::Pending; jobs],
            estimate: vec![f64::NAN; if recorded.estimates { jobs } else { 0 }],
            rank_ranges: Vec::new(),
            ranges_of_job: vec![0..0; if recorded.allocations { jobs } else { 0 }],
        }
    }

    /// When each job started, in seconds of the trace; NaN if it never did.
    pub fn start(&self) -> &[f64] {
        &self.start
    }

    /// When each job ended, in seconds of the trace; NaN if it never did.
    pub fn end(&self) -> &[f64] {
        &self.end
    }

    /// The number of cores of each job; if it never started, the number that it requested.
    pub fn cores(&self) -> &[u32] {
        &self.cores
    }

    /// The number of nodes of each job; if it never started, the number that it requested, 0 if it
    /// requested no nodes.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// The lowest rank of each job.
    pub fn first_rank(&self) -> &[u32] {
        &self.first_rank
    }

    /// Whether each job started while an earlier one of its queue stayed pending.
    pub fn backfilled(&self) -> &[bool] {
        &self.backfilled
    }

    /// The result of each job.
    pub fn job_results(&self) -> &[JobResult] {
        &self.result
    }

    /// When each job was estimated to start at its submission; NaN if it got no estimate, empty if
    /// none were requested.
    pub fn estimate(&self) -> &[f64] {
        &self.estimate
    }

    /// Makes a job pending again after a node failure, with the cores and nodes that it requested.
    pub(crate) fn requeue(&mut self, index: usize, requested: Requested) {
        self.result[index] = JobResult::Pending;
        self.start[index] = f64::NAN;
        self.end[index] = f64::NAN;
        self.cores[index] = requested.cores;
        self.nodes[index] = requested.nodes;
    }

    /// Records the ranks of a job that starts, in ascending ranges.
    pub(crate) fn record_ranks(&mut self, index: usize, ranges: impl Iterator<Item = RankRange>) {
        if self.ranges_of_job.is_empty() || self.rank_ranges.len() >= MAX_RANK_RANGES {
            return;
        }
        let from = self.rank_ranges.len();
        for range in ranges {
            match self.rank_ranges[from..].last_mut() {
                Some(before) if before.last.checked_add(1) == Some(range.first) => {
                    before.last = range.last;
                }
                _ => self.rank_ranges.push(range),
            }
        }
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.ranges_of_job[index] = number(from)..number(self.rank_ranges.len());
    }

    /// The ranks of a job the last time it started; empty if they were not recorded.
    pub fn ranks(&self, index: usize) -> IdSet {
        let mut ranks = IdSet::new();
        if let Some(Range { start, end }) = self.ranges_of_job.get(index) {
            for range in &self.rank_ranges[*start as usize..*end as usize] {
                ranks.insert_range(range.first..=range.last);
            }
        }
        ranks
    }

    /// Numbers the cores of the jobs of a pool, where all cores are alike: in the order of starts,
    /// each job gets the lowest that are free. Empty for jobs that never ran.
    pub(crate) fn pool_cores(&self, cores: u64) -> Vec<IdSet> {
        let mut held = vec![IdSet::new(); self.start.len()];
        let Some(last) = cores
            .checked_sub(1)
            .and_then(|last| u32::try_from(last).ok())
        else {
            return held;
        };
        let mut free = IdSet::with_range(0..=last);
        let mut order: Vec<usize> = (0..held.len())
            .filter(|index| self.end[*index] >= self.start[*index])
            .collect();
        let mut ends = order.clone();
        // Jobs without run time first: they may end before others of the same instant start.
        order.sort_by(|a, b| {
            let lasts = |index: usize| self.end[index] > self.start[index];
            let start = self.start[*a].total_cmp(&self.start[*b]);
            start.then(lasts(*a).cmp(&lasts(*b)))
        });
        ends.sort_by(|a, b| self.end[*a].total_cmp(&self.end[*b]));
        let mut ends = ends.into_iter().peekable();
        for index in order {
            // A job without run time frees its cores before the next one starts.
            while let Some(before) = ends.next_if(|ended| self.end[*ended] <= self.start[index]) {
                free.union_with(&held[before]);
            }
            let wanted = u64::from(self.cores[index]);
            held[index] = free.take_first(wanted).unwrap_or_default();
            if self.end[index] <= self.start[index] {
                free.union_with(&held[index]);
            }
        }
        held
    }
}
