//! What became of each job, in columns.

use penstock_idset::IdSet;

/// What became of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// It never started: it is held, or nothing it could have waited for is left.
    #[default]
    Waiting = 0,
    /// It ran to its end.
    Ended = 1,
    /// It was killed when it reached its limit.
    Killed = 2,
    /// A node failed under it, and it was not queued again.
    Lost = 3,
    /// The engine denied it: it can never run on this machine.
    Denied = 4,
    /// It runs: while the simulation does.
    Running = 5,
}

/// Parts of allocations that are kept at most, 8 bytes each.
const MAX_SPANS: usize = 32_000_000;

/// The columns of the results, in the order of the workload.
#[derive(Clone, Debug, Default)]
pub struct Results {
    pub(crate) start: Vec<f64>,
    pub(crate) end: Vec<f64>,
    pub(crate) cores: Vec<u32>,
    pub(crate) nodes: Vec<u32>,
    pub(crate) first_rank: Vec<u32>,
    pub(crate) backfilled: Vec<bool>,
    pub(crate) fate: Vec<Fate>,
    /// Predicted starts; without any where none were asked for.
    pub(crate) estimate: Vec<f64>,
    spans: Vec<(u32, u32)>,
    span: Vec<(u32, u32)>,
}

impl Results {
    pub(crate) fn new(jobs: usize, estimates: bool, allocations: bool) -> Self {
        Self {
            start: vec![f64::NAN; jobs],
            end: vec![f64::NAN; jobs],
            cores: vec![0; jobs],
            nodes: vec![0; jobs],
            first_rank: vec![0; jobs],
            backfilled: vec![false; jobs],
            fate: vec![Fate::Waiting; jobs],
            estimate: vec![f64::NAN; if estimates { jobs } else { 0 }],
            spans: Vec::new(),
            span: vec![(0, 0); if allocations { jobs } else { 0 }],
        }
    }

    /// When each job started; not a number where it never did.
    pub fn start(&self) -> &[f64] {
        &self.start
    }

    /// When each job ended; not a number where it never did.
    pub fn end(&self) -> &[f64] {
        &self.end
    }

    /// The cores that each job held; of one that never started, those that it asked for.
    pub fn cores(&self) -> &[u32] {
        &self.cores
    }

    /// The nodes that each job was on; of one that never started, those that it asked for, 0 where
    /// it named none.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// The lowest rank that each job was on.
    pub fn first_rank(&self) -> &[u32] {
        &self.first_rank
    }

    /// Whether each job started while one before it in its queue stayed waiting.
    pub fn backfilled(&self) -> &[bool] {
        &self.backfilled
    }

    /// What became of each job.
    pub fn fate(&self) -> &[Fate] {
        &self.fate
    }

    /// When each job was predicted to start, as it was submitted; not a number where that was not
    /// asked, empty where it was asked for none.
    pub fn estimate(&self) -> &[f64] {
        &self.estimate
    }

    /// A job was taken off its nodes, and waits for the cores and the nodes that it asked for.
    pub(crate) fn wait_again(&mut self, place: usize, asked: (u32, u32)) {
        self.fate[place] = Fate::Waiting;
        self.start[place] = f64::NAN;
        self.end[place] = f64::NAN;
        (self.cores[place], self.nodes[place]) = asked;
    }

    /// Keeps the ranks of a job that starts: first and last of ranges, in order.
    pub(crate) fn keep(&mut self, place: usize, ranges: impl Iterator<Item = (u32, u32)>) {
        if self.span.is_empty() || self.spans.len() >= MAX_SPANS {
            return;
        }
        let from = self.spans.len();
        for (first, last) in ranges {
            match self.spans[from..].last_mut() {
                Some((_, before)) if before.checked_add(1) == Some(first) => *before = last,
                _ => self.spans.push((first, last)),
            }
        }
        let index = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        self.span[place] = (index(from), index(self.spans.len()));
    }

    /// The ranks that a job was on, the last time it started; empty where they were not kept.
    pub fn ranks(&self, place: usize) -> IdSet {
        let mut ranks = IdSet::new();
        if let Some((from, to)) = self.span.get(place) {
            for (first, last) in &self.spans[*from as usize..*to as usize] {
                ranks.insert_range(*first..=*last);
            }
        }
        ranks
    }

    /// The numbers of cores for the jobs of a pool, where any core is as good as another: each
    /// job, in the order of starts, gets the lowest that are free. Empty for jobs that never ran.
    pub(crate) fn pool_cores(&self, cores: u64) -> Vec<IdSet> {
        let mut held = vec![IdSet::new(); self.start.len()];
        let Some(last) = cores.checked_sub(1).and_then(|it| u32::try_from(it).ok()) else {
            return held;
        };
        let mut free = IdSet::with_range(0..=last);
        let mut order: Vec<usize> = (0..held.len())
            .filter(|place| self.end[*place] >= self.start[*place])
            .collect();
        let mut ends = order.clone();
        // Jobs of no run time first: they may have come and gone before others of the instant.
        order.sort_by(|a, b| {
            let lasts = |place: usize| self.end[place] > self.start[place];
            let start = self.start[*a].total_cmp(&self.start[*b]);
            start.then(lasts(*a).cmp(&lasts(*b)))
        });
        ends.sort_by(|a, b| self.end[*a].total_cmp(&self.end[*b]));
        let mut ends = ends.into_iter().peekable();
        for place in order {
            // A job of no run time gives back what it takes, before the next one starts.
            while let Some(before) = ends.next_if(|it| self.end[*it] <= self.start[place]) {
                free.union_with(&held[before]);
            }
            let wanted = u64::from(self.cores[place]);
            held[place] = free.take_first(wanted).unwrap_or_default();
            if self.end[place] <= self.start[place] {
                free.union_with(&held[place]);
            }
        }
        held
    }
}
