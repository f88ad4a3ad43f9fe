//! The timeline: running jobs by planned end, with the number of cores that they release.

use std::sync::Arc;

use crate::ids::RunId;

/// The planned end of a running job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ending {
    /// Planned end; infinite if none is known.
    pub end: f64,
    /// The running job.
    pub run: RunId,
    /// Cores that it releases on nodes that are up.
    pub cores: u32,
}

impl Ending {
    fn precedes(&self, end: f64, run: RunId) -> bool {
        self.end.total_cmp(&end).then(self.run.cmp(&run)).is_lt()
    }
}

/// Maximum number of endings in a block; a full block is split in two.
const MAX_ENDINGS_PER_BLOCK: usize = 128;

#[derive(Clone, Debug)]
struct Block {
    /// The cores of all its endings.
    cores: u64,
    /// Shared with clones of the timeline until one of them changes it.
    endings: Arc<Vec<Ending>>,
}

impl Block {
    fn new(endings: Vec<Ending>) -> Self {
        Self {
            cores: endings.iter().map(|ending| u64::from(ending.cores)).sum(),
            endings: Arc::new(endings),
        }
    }
}

/// Endings in order of (end, run), in blocks that store their sums. No block is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    blocks: Vec<Block>,
}

/// When enough cores have been released, as planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CoresReleased {
    /// The earliest such time.
    pub time: f64,
    /// The cores released up to then.
    pub cores: u64,
}

/// A block, and an index in it.
struct EndingLocation {
    block: usize,
    index: usize,
}

impl Timeline {
    /// A timeline of these endings.
    pub fn new(mut endings: Vec<Ending>) -> Self {
        endings.sort_unstable_by(|a, b| a.end.total_cmp(&b.end).then(a.run.cmp(&b.run)));
        let blocks = endings.chunks(MAX_ENDINGS_PER_BLOCK / 2);
        let blocks = blocks.map(|endings| Block::new(endings.to_vec()));
        Self {
            blocks: blocks.collect(),
        }
    }

    /// The position of an ending, or where it would be inserted.
    fn locate(&self, end: f64, run: RunId) -> EndingLocation {
        let precedes = |block: &Block| {
            let last = block.endings.last();
            last.is_some_and(|last| last.precedes(end, run))
        };
        let block = self
            .blocks
            .partition_point(precedes)
            .min(self.blocks.len().saturating_sub(1));
        let index = self.blocks.get(block).map_or(0, |block| {
            block
                .endings
                .partition_point(|ending| ending.precedes(end, run))
        });
        EndingLocation { block, index }
    }

    /// Adds an ending.
    pub fn insert(&mut self, ending: Ending) {
        let EndingLocation { block, index } = self.locate(ending.end, ending.run);
        let Some(full) = self.blocks.get_mut(block) else {
            return self.blocks.push(Block::new(vec![ending]));
        };
        let endings = Arc::make_mut(&mut full.endings);
        endings.insert(index, ending);
        full.cores += u64::from(ending.cores);
        if endings.len() > MAX_ENDINGS_PER_BLOCK {
            let upper = Block::new(endings.split_off(MAX_ENDINGS_PER_BLOCK / 2));
            full.cores -= upper.cores;
            self.blocks.insert(block + 1, upper);
        }
    }

    /// Removes a running job that was inserted with this end.
    pub fn remove(&mut self, end: f64, run: RunId) {
        let EndingLocation { block, index } = self.locate(end, run);
        let Some(known) = self.blocks.get_mut(block) else {
            return;
        };
        if known
            .endings
            .get(index)
            .is_none_or(|found| found.run != run)
        {
            return;
        }
        let ending = Arc::make_mut(&mut known.endings).remove(index);
        known.cores -= u64::from(ending.cores);
        if known.endings.is_empty() {
            self.blocks.remove(block);
        }
    }

    /// The first ending.
    pub fn first(&self) -> Option<Ending> {
        self.blocks.first()?.endings.first().copied()
    }

    /// All endings, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Ending> {
        self.blocks.iter().flat_map(|block| block.endings.iter())
    }

    /// The endings after a time, in order.
    pub fn after(&self, time: f64) -> impl Iterator<Item = &Ending> {
        let block = self
            .blocks
            .partition_point(|block| block.endings.last().is_some_and(|last| last.end <= time));
        self.blocks[block..]
            .iter()
            .flat_map(|block| block.endings.iter())
            .skip_while(move |ending| ending.end <= time)
    }

    /// The cores released up to a time.
    pub fn cores_until(&self, time: f64) -> u64 {
        let mut cores = 0;
        for block in &self.blocks {
            if block.endings.last().is_some_and(|last| last.end <= time) {
                cores += block.cores;
            } else {
                let ended = block.endings.iter().take_while(|ending| ending.end <= time);
                return cores + ended.map(|ending| u64::from(ending.cores)).sum::<u64>();
            }
        }
        cores
    }

    /// The first planned end by which at least `need` cores are released, counted from the first
    /// ending on. Jobs that end at the same time count together.
    fn reach(&self, need: u64) -> Option<f64> {
        let mut cores = 0;
        for block in &self.blocks {
            if cores + block.cores >= need {
                for ending in block.endings.iter() {
                    cores += u64::from(ending.cores);
                    if cores >= need {
                        return Some(ending.end).filter(|end| end.is_finite());
                    }
                }
            }
            cores += block.cores;
        }
        None
    }

    /// The earliest time at which `need` cores have been released as planned: the shadow time of a
    /// job that lacks that many. An overdue job is assumed to end one second from now.
    pub fn when(&self, now: f64, need: u64) -> Option<CoresReleased> {
        let overdue = self.cores_until(now);
        let until = |time: f64| {
            let still_held = if time < now + 1.0 { overdue } else { 0 };
            self.cores_until(time) - still_held
        };
        // Before the overdue jobs end, without their cores.
        let early = self.reach(overdue + need).filter(|time| *time < now + 1.0);
        let time = if let Some(time) = early {
            time
        } else {
            self.reach(need)?.max(now + 1.0)
        };
        Some(CoresReleased {
            time,
            cores: until(time),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{CoresReleased, Ending, Timeline};
    use crate::ids::RunId;
    use proptest::prelude::*;

    /// The model: it examines every planned end.
    fn naive(endings: &[Ending], now: f64, need: u64) -> Option<CoresReleased> {
        let planned = |ending: &Ending| {
            if ending.end <= now {
                now + 1.0
            } else {
                ending.end
            }
        };
        let mut times: Vec<f64> = endings.iter().map(planned).collect();
        times.retain(|time| time.is_finite());
        times.sort_by(f64::total_cmp);
        times.into_iter().find_map(|time| {
            let ended = endings.iter().filter(|ending| planned(ending) <= time);
            let cores = ended.map(|ending| u64::from(ending.cores)).sum();
            (cores >= need).then_some(CoresReleased { time, cores })
        })
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(
            steps in proptest::collection::vec((0_u32..40, 0_u32..300, 0_u32..5), 1..400),
            now in 0_u32..40,
            need in 1_u64..300,
        ) {
            let mut timeline = Timeline::default();
            let mut list: Vec<Ending> = Vec::new();
            for (end, run, cores) in steps {
                let run = RunId::new(run);
                if let Some(index) = list.iter().position(|ending| ending.run == run) {
                    let ending = list.remove(index);
                    timeline.remove(ending.end, run);
                } else {
                    let end = if end == 39 { f64::INFINITY } else { f64::from(end) * 0.5 };
                    let ending = Ending { end, run, cores };
                    list.push(ending);
                    timeline.insert(ending);
                }
            }
            list.sort_by(|a, b| a.end.total_cmp(&b.end).then(a.run.cmp(&b.run)));
            prop_assert!(timeline.iter().eq(&list));
            prop_assert!(Timeline::new(list.clone()).iter().eq(&list));
            let now = f64::from(now) * 0.5;
            let late: Vec<_> = list.iter().filter(|ending| ending.end > now).copied().collect();
            prop_assert!(timeline.after(now).copied().eq(late));
            prop_assert_eq!(timeline.when(now, need), naive(&list, now, need));
        }
    }
}
