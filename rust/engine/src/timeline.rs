//! Running jobs by planned end: when which cores come back.

use std::sync::Arc;

/// One running job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ending {
    /// Planned end; infinite where none is known.
    pub end: f64,
    /// The number under which its resources are kept.
    pub run: u32,
    /// Cores that it gives back on nodes that are up.
    pub cores: u32,
}

impl Ending {
    fn precedes(&self, end: f64, run: u32) -> bool {
        self.end.total_cmp(&end).then(self.run.cmp(&run)).is_lt()
    }
}

/// Jobs in a block at the most; a full block is halved.
const WIDE: usize = 128;

#[derive(Clone, Debug)]
struct Block {
    cores: u64,
    /// Shared with clones of the timeline, until one of them changes it.
    endings: Arc<Vec<Ending>>,
}

impl Block {
    fn of(endings: Vec<Ending>) -> Self {
        Self {
            cores: endings.iter().map(|it| u64::from(it.cores)).sum(),
            endings: Arc::new(endings),
        }
    }
}

/// Endings in order of (end, run), in blocks that know their sums. No block is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    blocks: Vec<Block>,
}

/// When so many cores are free, as planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reached {
    /// The earliest time.
    pub time: f64,
    /// Cores that come back up to then.
    pub cores: u64,
}

impl Timeline {
    /// A timeline of these.
    pub fn of(mut endings: Vec<Ending>) -> Self {
        endings.sort_unstable_by(|a, b| a.end.total_cmp(&b.end).then(a.run.cmp(&b.run)));
        let blocks = endings.chunks(WIDE / 2);
        let blocks = blocks.map(|part| Block::of(part.to_vec()));
        Self {
            blocks: blocks.collect(),
        }
    }

    fn locate(&self, end: f64, run: u32) -> (usize, usize) {
        let passed = |it: &Block| {
            it.endings
                .last()
                .is_some_and(|last| last.precedes(end, run))
        };
        let block = self.blocks.partition_point(passed);
        let block = block.min(self.blocks.len().saturating_sub(1));
        let place = self.blocks.get(block).map_or(0, |it| {
            it.endings
                .partition_point(|ending| ending.precedes(end, run))
        });
        (block, place)
    }

    pub fn insert(&mut self, ending: Ending) {
        let (block, place) = self.locate(ending.end, ending.run);
        let Some(full) = self.blocks.get_mut(block) else {
            return self.blocks.push(Block::of(vec![ending]));
        };
        let endings = Arc::make_mut(&mut full.endings);
        endings.insert(place, ending);
        full.cores += u64::from(ending.cores);
        if endings.len() > WIDE {
            let upper = Block::of(endings.split_off(WIDE / 2));
            full.cores -= upper.cores;
            self.blocks.insert(block + 1, upper);
        }
    }

    /// Takes out what was put in with this end.
    pub fn remove(&mut self, end: f64, run: u32) {
        let (block, place) = self.locate(end, run);
        let Some(it) = self.blocks.get_mut(block) else {
            return;
        };
        if it.endings.get(place).is_none_or(|found| found.run != run) {
            return;
        }
        let ending = Arc::make_mut(&mut it.endings).remove(place);
        it.cores -= u64::from(ending.cores);
        if it.endings.is_empty() {
            self.blocks.remove(block);
        }
    }

    /// The one that ends first.
    pub fn first(&self) -> Option<Ending> {
        self.blocks.first()?.endings.first().copied()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Ending> {
        self.blocks.iter().flat_map(|block| block.endings.iter())
    }

    /// Those that end after a time, in order.
    pub fn after(&self, time: f64) -> impl Iterator<Item = &Ending> {
        let block = self
            .blocks
            .partition_point(|it| it.endings.last().is_some_and(|last| last.end <= time));
        let late = self.blocks[block..].iter().flat_map(|it| it.endings.iter());
        late.skip_while(move |it| it.end <= time)
    }

    /// Cores of all that end up to a time.
    pub fn cores_until(&self, time: f64) -> u64 {
        let mut cores = 0;
        for block in &self.blocks {
            if block.endings.last().is_some_and(|last| last.end <= time) {
                cores += block.cores;
            } else {
                let met = block.endings.iter().take_while(|it| it.end <= time);
                return cores + met.map(|it| u64::from(it.cores)).sum::<u64>();
            }
        }
        cores
    }

    /// The first planned end up to which at least so many cores come back, counted from the
    /// first job on. Jobs that end at the same time count together.
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

    /// The earliest time at which `need` cores have come back as planned. A job that should have
    /// ended already is taken to end one second from now.
    pub fn when(&self, now: f64, need: u64) -> Option<Reached> {
        let overdue = self.cores_until(now);
        let until = |time: f64| {
            let late = if time < now + 1.0 { overdue } else { 0 };
            self.cores_until(time) - late
        };
        // Before the overdue jobs end, and without them.
        let early = self.reach(overdue + need).filter(|time| *time < now + 1.0);
        let time = if let Some(time) = early {
            time
        } else {
            self.reach(need)?.max(now + 1.0)
        };
        Some(Reached {
            time,
            cores: until(time),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, Reached, Timeline};
    use proptest::prelude::*;

    /// The same, looking at every planned end.
    fn naive(endings: &[Ending], now: f64, need: u64) -> Option<Reached> {
        let planned = |it: &Ending| if it.end <= now { now + 1.0 } else { it.end };
        let mut times: Vec<f64> = endings.iter().map(planned).collect();
        times.retain(|time| time.is_finite());
        times.sort_by(f64::total_cmp);
        times.into_iter().find_map(|time| {
            let gone = endings.iter().filter(|it| planned(it) <= time);
            let cores = gone.map(|it| u64::from(it.cores)).sum();
            (cores >= need).then_some(Reached { time, cores })
        })
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_list(
            steps in proptest::collection::vec((0_u32..40, 0_u32..300, 0_u32..5), 1..400),
            now in 0_u32..40,
            need in 1_u64..300,
        ) {
            let mut timeline = Timeline::default();
            let mut list: Vec<Ending> = Vec::new();
            for (end, run, cores) in steps {
                if let Some(place) = list.iter().position(|it| it.run == run) {
                    let ending = list.remove(place);
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
            prop_assert!(Timeline::of(list.clone()).iter().eq(&list));
            let now = f64::from(now) * 0.5;
            let late: Vec<_> = list.iter().filter(|it| it.end > now).copied().collect();
            prop_assert!(timeline.after(now).copied().eq(late));
            prop_assert_eq!(timeline.when(now, need), naive(&list, now, need));
        }
    }
}
