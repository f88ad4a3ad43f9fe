//! Failures and returns of nodes: listed ones, and random ones until all jobs have ended.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use penstock_idset::IdSet;

use crate::Error;
use crate::error::{brief, grouped};
use crate::random::Random;
use crate::workload::{JobIndex, MAX_TIME_S, SubmitSpan, real};

/// A failure or a return of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Its time, in seconds of the trace.
    pub time: f64,
    /// The ranks of the nodes.
    pub ranks: IdSet,
    /// Whether the nodes return; otherwise they fail.
    pub up: bool,
}

/// Random failures of nodes, independent of each other, from the first submit time on. Times
/// between failures and times of repair are exponential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomFailures {
    /// The mean time from a node's return to its next failure, in seconds.
    pub mtbf: f64,
    /// The mean time of a repair, in seconds.
    pub mttr: f64,
    /// The seed. Equal seeds give equal failures under every policy.
    pub seed: u64,
}

/// Maximum number of random changes of nodes in a simulation.
const MAX_RANDOM_CHANGES: u32 = 1_000_000;

/// The failures and returns of nodes, in order of time.
pub(crate) struct Failures {
    /// The listed ones, the next one last.
    listed: Vec<Failure>,
    generator: Option<FailureGenerator>,
    /// The running jobs on each node; empty if no node ever fails.
    jobs: HashMap<u32, Vec<JobIndex>>,
    any: bool,
}

/// Generates random failures and returns, of each node independently.
struct FailureGenerator {
    settings: RandomFailures,
    random: Random,
    /// The next change of each node, the earliest first.
    next: BinaryHeap<Reverse<NodeChange>>,
    /// The number of nodes that are down.
    down: u64,
    changes: u32,
}

/// A failure or a return of a node; ordered by time, then rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeChange {
    /// The bits of the time, which sort as times from 0 on do.
    time_bits: u64,
    rank: u32,
    /// Whether the node returns; otherwise it fails.
    up: bool,
}

impl Failures {
    /// The `listed` changes, which are in order of time, and random ones. The random changes begin
    /// with the first submit time of `span`; fails if there would be too many up to the last one.
    pub fn new(
        mut listed: Vec<Failure>,
        random: Option<RandomFailures>,
        ranks: &IdSet,
        span: Option<SubmitSpan>,
    ) -> Result<Self, Error> {
        listed.reverse();
        let SubmitSpan { first, last } = span.unwrap_or_default();
        let generator = random
            .map(|settings| FailureGenerator::new(settings, ranks, first, last))
            .transpose()?;
        Ok(Self {
            any: !listed.is_empty() || generator.is_some(),
            listed,
            generator,
            jobs: HashMap::new(),
        })
    }

    /// The time of the next change.
    pub fn time(&self) -> Option<f64> {
        let listed = self.listed.last().map(|failure| failure.time);
        let random = self.generator.as_ref().and_then(FailureGenerator::time);
        listed.into_iter().chain(random).min_by(f64::total_cmp)
    }

    /// Whether a change can still help a pending job while none runs: it would have started if all
    /// nodes were up.
    pub fn may_help(&self) -> bool {
        !self.listed.is_empty()
            || self
                .generator
                .as_ref()
                .is_some_and(|generator| generator.down > 0)
    }

    /// Takes the next change that is due.
    ///
    /// Fails after the maximum number of random changes, because the simulation might never end.
    pub fn take_due(&mut self, now: f64) -> Result<Option<Failure>, Error> {
        if self.time().is_none_or(|time| time > now) {
            return Ok(None);
        }
        let listed = self
            .listed
            .last()
            .is_some_and(|failure| failure.time <= now);
        match &mut self.generator {
            Some(generator) if !listed => generator.draw().map(Some),
            _ => Ok(self.listed.pop()),
        }
    }

    /// Records that a job starts on these ranks.
    pub fn start(&mut self, job: JobIndex, ranks: &[u32]) {
        if self.any {
            for rank in ranks {
                self.jobs.entry(*rank).or_default().push(job);
            }
        }
    }

    /// Records that a job leaves these ranks.
    pub fn stop(&mut self, job: JobIndex, ranks: &[u32]) {
        for rank in ranks {
            if let Some(jobs) = self.jobs.get_mut(rank)
                && let Some(at) = jobs.iter().position(|found| *found == job)
            {
                jobs.swap_remove(at);
            }
        }
    }

    /// Whether any node ever fails.
    pub fn any(&self) -> bool {
        self.any
    }

    /// The jobs on any of these ranks, in the order of submission.
    pub fn jobs_on(&self, ranks: &IdSet) -> Vec<JobIndex> {
        let mut jobs: Vec<JobIndex> = ranks
            .iter()
            .filter_map(|rank| self.jobs.get(&rank))
            .flatten()
            .copied()
            .collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }
}

impl FailureGenerator {
    fn new(settings: RandomFailures, ranks: &IdSet, first: f64, last: f64) -> Result<Self, Error> {
        let RandomFailures { mtbf, mttr, seed } = settings;
        for (what, time) in [("between failures", mtbf), ("to repair", mttr)] {
            if !(time > 0.0 && time <= MAX_TIME_S) {
                let time = brief(time);
                return Err(Error::new(format!(
                    "failures: mean time {what} {time}: expected seconds above 0, at most \
                     {MAX_TIME_S:e}"
                )));
            }
        }
        let expected = 2.0 * real(ranks.len()) * (last - first) / (mtbf + mttr);
        if expected > f64::from(MAX_RANDOM_CHANGES) {
            return Err(Error::new(format!(
                "failures: about {} changes of nodes would have to be simulated: \
                 expected at most {}\nhint: a node fails every {} s; take a longer time",
                brief(expected.round()),
                grouped(MAX_RANDOM_CHANGES.into()),
                brief(mtbf)
            )));
        }
        let mut random = Random::new(seed);
        let mut next = BinaryHeap::new();
        for rank in ranks {
            let time = first + random.exponential(mtbf);
            next.push(Reverse(NodeChange {
                time_bits: time.to_bits(),
                rank,
                up: false,
            }));
        }
        Ok(Self {
            settings,
            random,
            next,
            down: 0,
            changes: 0,
        })
    }

    fn time(&self) -> Option<f64> {
        let next = self.next.peek();
        next.map(|Reverse(change)| f64::from_bits(change.time_bits))
    }

    /// Draws the next change. The draws do not depend on the jobs, so they are the same under every
    /// policy.
    fn draw(&mut self) -> Result<Failure, Error> {
        let RandomFailures { mtbf, mttr, .. } = self.settings;
        let Some(Reverse(NodeChange {
            time_bits,
            rank,
            up,
        })) = self.next.pop()
        else {
            return Err(Error::new("failures: there are no nodes"));
        };
        let time = f64::from_bits(time_bits);
        if self.changes >= MAX_RANDOM_CHANGES {
            return Err(Error::new(format!(
                "failures: {} changes of nodes up to second {time:.0}, and not all jobs have ended: \
                 a node fails every {mtbf} s\nhint: take a longer time, or let jobs of failed \
                 nodes be lost",
                grouped(MAX_RANDOM_CHANGES.into())
            )));
        }
        self.changes += 1;
        let duration = self.random.exponential(if up { mtbf } else { mttr });
        self.next.push(Reverse(NodeChange {
            time_bits: (time + duration).to_bits(),
            rank,
            up: !up,
        }));
        self.down = if up { self.down - 1 } else { self.down + 1 };
        Ok(Failure {
            time,
            ranks: IdSet::with_range(rank..=rank),
            up,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(mtbf: f64, mttr: f64, nodes: u32) -> Failures {
        let settings = RandomFailures {
            mtbf,
            mttr,
            seed: 7,
        };
        let ranks = IdSet::with_range(0..=nodes - 1);
        let span = SubmitSpan {
            first: 100.0,
            last: 200.0,
        };
        Failures::new(Vec::new(), Some(settings), &ranks, Some(span)).unwrap()
    }

    #[test]
    fn up_and_down_times_have_the_given_means() {
        let mut failures = random(1000.0, 50.0, 5);
        let mut since = [100.0; 5];
        let mut is_up = [true; 5];
        let mut lasted = [(0.0, 0.0); 2];
        for _ in 0..20_000 {
            let time = failures.time().unwrap();
            let failure = failures.take_due(time).unwrap().unwrap();
            let rank = failure.ranks.first().unwrap() as usize;
            assert_ne!(is_up[rank], failure.up);
            let (sum, count) = &mut lasted[usize::from(failure.up)];
            (*sum, *count) = (*sum + time - since[rank], *count + 1.0);
            (since[rank], is_up[rank]) = (time, failure.up);
            assert_eq!(failures.may_help(), is_up.contains(&false));
        }
        for ((sum, count), mean) in lasted.into_iter().zip([1000.0, 50.0]) {
            let found = sum / count;
            assert!((found / mean - 1.0_f64).abs() < 0.05, "{found}, not {mean}");
        }
    }

    #[test]
    fn an_endless_sequence_of_failures_is_an_error() {
        let mut failures = random(1.0, 1.0, 1);
        let error = loop {
            match failures.take_due(f64::MAX) {
                Ok(failure) => assert!(failure.is_some()),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("1,000,000 changes of nodes"), "{error}");
    }
}
