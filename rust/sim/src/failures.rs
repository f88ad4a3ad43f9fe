//! Failures and returns of nodes: those that were listed, and those that come by chance for as
//! long as there are jobs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use penstock_idset::IdSet;

use crate::Error;
use crate::error::{brief, grouped};
use crate::random::Random;
use crate::setup::{Chance, Failure};
use crate::workload::{MAX_SECONDS, real};

/// Changes by chance that are simulated at most.
const MOST: u32 = 1_000_000;

/// What happens to nodes, in the order of time.
pub(crate) struct Failures {
    /// Those that were listed, the next one last.
    listed: Vec<Failure>,
    chance: Option<Drawn>,
    /// The jobs on each node; empty where no node ever fails.
    jobs: HashMap<u32, Vec<u32>>,
    any: bool,
}

/// Nodes that fail by chance, each for itself.
struct Drawn {
    chance: Chance,
    random: Random,
    /// The next change of each node: the bits of its time, the rank, and whether it comes back.
    next: BinaryHeap<Reverse<(u64, u32, bool)>>,
    down: u64,
    changes: u32,
}

impl Failures {
    /// `listed` are in order; chance begins with the first submit time of `span` and may not have
    /// too much to do up to the last one.
    pub fn new(
        mut listed: Vec<Failure>,
        chance: Option<Chance>,
        ranks: &IdSet,
        span: Option<(f64, f64)>,
    ) -> Result<Self, Error> {
        listed.reverse();
        let (first, last) = span.unwrap_or_default();
        let chance = chance.map(|it| Drawn::new(it, ranks, first, last));
        let chance = chance.transpose()?;
        Ok(Self {
            any: !listed.is_empty() || chance.is_some(),
            listed,
            chance,
            jobs: HashMap::new(),
        })
    }

    /// When the next change is.
    pub fn time(&self) -> Option<f64> {
        let listed = self.listed.last().map(|it| it.time);
        let drawn = self.chance.as_ref().and_then(Drawn::time);
        listed.into_iter().chain(drawn).min_by(f64::total_cmp)
    }

    /// Whether a change may yet help a job that waits while none runs: with all nodes up it would
    /// have started.
    pub fn may_help(&self) -> bool {
        !self.listed.is_empty() || self.chance.as_ref().is_some_and(|it| it.down > 0)
    }

    /// Takes the next change that is due.
    ///
    /// Fails where there are so many by chance that it may go on for ever.
    pub fn due(&mut self, now: f64) -> Result<Option<Failure>, Error> {
        if self.time().is_none_or(|time| time > now) {
            return Ok(None);
        }
        let listed = self.listed.last().is_some_and(|it| it.time <= now);
        match &mut self.chance {
            Some(drawn) if !listed => drawn.draw().map(Some),
            _ => Ok(self.listed.pop()),
        }
    }

    /// A job starts on these ranks.
    pub fn start(&mut self, place: u32, ranks: &[u32]) {
        if self.any {
            for rank in ranks {
                self.jobs.entry(*rank).or_default().push(place);
            }
        }
    }

    /// A job leaves these ranks.
    pub fn stop(&mut self, place: u32, ranks: &[u32]) {
        for rank in ranks {
            if let Some(jobs) = self.jobs.get_mut(rank)
                && let Some(at) = jobs.iter().position(|it| *it == place)
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
    pub fn jobs_on(&self, ranks: &IdSet) -> Vec<u32> {
        let on = ranks.iter().filter_map(|rank| self.jobs.get(&rank));
        let mut jobs: Vec<u32> = on.flatten().copied().collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }
}

impl Drawn {
    fn new(chance: Chance, ranks: &IdSet, first: f64, last: f64) -> Result<Self, Error> {
        let Chance { mtbf, mttr, seed } = chance;
        for (what, time) in [("between failures", mtbf), ("to repair", mttr)] {
            if !(time > 0.0 && time <= MAX_SECONDS) {
                let time = brief(time);
                return Err(Error::new(format!(
                    "failures: mean time {what} {time}: expected seconds above 0, at most \
                     {MAX_SECONDS:e}"
                )));
            }
        }
        let expected = 2.0 * real(ranks.len()) * (last - first) / (mtbf + mttr);
        if expected > f64::from(MOST) {
            return Err(Error::new(format!(
                "failures: about {} changes of nodes would have to be simulated: \
                 expected at most {}\nhint: a node fails every {} s; take a longer time",
                brief(expected.round()),
                grouped(MOST.into()),
                brief(mtbf)
            )));
        }
        let mut random = Random::new(seed);
        let mut next = BinaryHeap::new();
        for rank in ranks {
            let time = first + random.exponential(mtbf);
            next.push(Reverse((time.to_bits(), rank, false)));
        }
        Ok(Self {
            chance,
            random,
            next,
            down: 0,
            changes: 0,
        })
    }

    fn time(&self) -> Option<f64> {
        let next = self.next.peek();
        next.map(|Reverse((time, _, _))| f64::from_bits(*time))
    }

    /// The next change. What is drawn does not depend on the jobs: it is the same whatever the
    /// policy.
    fn draw(&mut self) -> Result<Failure, Error> {
        let Chance { mtbf, mttr, .. } = self.chance;
        let Some(Reverse((bits, rank, up))) = self.next.pop() else {
            return Err(Error::new("failures: there are no nodes"));
        };
        let time = f64::from_bits(bits);
        if self.changes >= MOST {
            return Err(Error::new(format!(
                "failures: {} changes of nodes up to second {time:.0}, and not all jobs are over: \
                 a node fails every {mtbf} s\nhint: take a longer time, or let jobs of failed \
                 nodes be lost",
                grouped(MOST.into())
            )));
        }
        self.changes += 1;
        let lasts = self.random.exponential(if up { mtbf } else { mttr });
        let then = (time + lasts).to_bits();
        self.next.push(Reverse((then, rank, !up)));
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

    fn drawn(mtbf: f64, mttr: f64, nodes: u32) -> Failures {
        let chance = Chance {
            mtbf,
            mttr,
            seed: 7,
        };
        let ranks = IdSet::with_range(0..=nodes - 1);
        Failures::new(Vec::new(), Some(chance), &ranks, Some((100.0, 200.0))).unwrap()
    }

    #[test]
    fn nodes_fail_and_come_back_by_turns_for_the_mean_times() {
        let mut failures = drawn(1000.0, 50.0, 5);
        let mut since = [100.0; 5];
        let mut is_up = [true; 5];
        let mut lasted = [(0.0, 0.0); 2];
        for _ in 0..20_000 {
            let time = failures.time().unwrap();
            let failure = failures.due(time).unwrap().unwrap();
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
    fn what_would_go_on_for_ever_ends() {
        let mut failures = drawn(1.0, 1.0, 1);
        let error = loop {
            match failures.due(f64::MAX) {
                Ok(failure) => assert!(failure.is_some()),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("1,000,000 changes of nodes"), "{error}");
    }
}
