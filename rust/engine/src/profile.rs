//! What will be free of one resource, as a step function of time.

/// From a time on, until the next step, so much is free. Less than nothing is free where more is
/// planned than there is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    time: f64,
    free: i64,
}

/// Steps in a block at the most; a full block is halved.
const WIDE: usize = 64;

/// Some steps, to all of which `owed` is still to be added.
#[derive(Clone, Debug)]
struct Block {
    steps: Vec<Step>,
    owed: i64,
    /// The least and the most that is free, with what is owed.
    least: i64,
    most: i64,
}

impl Block {
    fn of(steps: Vec<Step>) -> Self {
        let mut block = Self {
            steps,
            owed: 0,
            least: 0,
            most: 0,
        };
        block.repair();
        block
    }

    fn repair(&mut self) {
        let free = || self.steps.iter().map(|step| step.free);
        self.least = free().min().unwrap_or(0) + self.owed;
        self.most = free().max().unwrap_or(0) + self.owed;
    }

    fn settle(&mut self) {
        for step in &mut self.steps {
            step.free += self.owed;
        }
        self.owed = 0;
    }
}

/// A step function of time, from a first time on.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    blocks: Vec<Block>,
}

/// A step: its block, and its place there.
type At = (usize, usize);

impl Profile {
    /// So much is free from a time on.
    pub fn new(time: f64, free: i64) -> Self {
        Self {
            blocks: vec![Block::of(vec![Step { time, free }])],
        }
    }

    /// So much is free from a time on, and from each of these times on, in order, so much more.
    pub fn rising(time: f64, free: i64, more: impl Iterator<Item = (f64, i64)>) -> Self {
        let mut steps = vec![Step { time, free }];
        let mut last = Step { time, free };
        for (time, amount) in more {
            last.free += amount;
            if time > last.time {
                last.time = time;
                steps.push(last);
            } else if let Some(step) = steps.last_mut() {
                step.free = last.free;
            }
        }
        let blocks = steps.chunks(WIDE / 2);
        Self {
            blocks: blocks.map(|steps| Block::of(steps.to_vec())).collect(),
        }
    }

    /// The last step that begins at a time or before it; the first of all for an earlier time.
    fn locate(&self, time: f64) -> At {
        let later = |block: &Block| block.steps[0].time <= time;
        let block = self.blocks.partition_point(later).saturating_sub(1);
        let steps = &self.blocks[block].steps;
        let place = steps.partition_point(|step| step.time <= time);
        (block, place.saturating_sub(1))
    }

    fn following(&self, (block, place): At) -> Option<At> {
        if place + 1 < self.blocks[block].steps.len() {
            Some((block, place + 1))
        } else {
            (block + 1 < self.blocks.len()).then_some((block + 1, 0))
        }
    }

    fn time(&self, (block, place): At) -> f64 {
        self.blocks[block].steps[place].time
    }

    /// Lets a step begin at a time, if none does. Returns where it is.
    fn cut(&mut self, time: f64) -> At {
        let (block, place) = self.locate(time);
        if self.time((block, place)) >= time {
            return (block, place);
        }
        let it = &mut self.blocks[block];
        let free = it.steps[place].free;
        it.steps.insert(place + 1, Step { time, free });
        if it.steps.len() <= WIDE {
            return (block, place + 1);
        }
        it.settle();
        let upper = Block::of(it.steps.split_off(WIDE / 2));
        it.repair();
        self.blocks.insert(block + 1, upper);
        if place + 1 < WIDE / 2 {
            (block, place + 1)
        } else {
            (block + 1, place + 1 - WIDE / 2)
        }
    }

    /// Adds to what is free from `start` on until before `end`, which may be infinite.
    pub fn add(&mut self, start: f64, end: f64, amount: i64) {
        if start >= end {
            return;
        }
        self.cut(start);
        let (last, until) = if end.is_finite() {
            self.cut(end)
        } else {
            (self.blocks.len(), 0)
        };
        let (first, from) = self.locate(start);
        for index in first..=last {
            let Some(block) = self.blocks.get_mut(index) else {
                break;
            };
            let from = if index == first { from } else { 0 };
            let until = if index == last {
                until
            } else {
                block.steps.len()
            };
            if from == 0 && until == block.steps.len() {
                block.owed += amount;
                block.least += amount;
                block.most += amount;
            } else if from < until {
                for step in &mut block.steps[from..until] {
                    step.free += amount;
                }
                block.repair();
            }
        }
    }

    /// The first step from one on with less, or with at least so much, free.
    fn find(&self, (mut block, mut place): At, amount: i64, less: bool) -> Option<At> {
        while let Some(it) = self.blocks.get(block) {
            let any = if less {
                it.least < amount
            } else {
                it.most >= amount
            };
            if any {
                let wanted = |step: &Step| (step.free + it.owed < amount) == less;
                if let Some(found) = it.steps[place..].iter().position(wanted) {
                    return Some((block, place + found));
                }
            }
            block += 1;
            place = 0;
        }
        None
    }

    /// The least that is free at any time.
    pub fn least(&self) -> i64 {
        self.blocks.iter().map(|it| it.least).min().unwrap_or(0)
    }

    /// The least that is free at any time from `start` on until before `end`.
    pub fn least_in(&self, start: f64, end: f64) -> i64 {
        let (mut block, mut place) = self.locate(start);
        let mut least = i64::MAX;
        while let Some(it) = self.blocks.get(block) {
            let steps = it.steps[place..].iter();
            let within = steps.take_while(|step| step.time < end || step.time <= start);
            let mut count = 0;
            for step in within {
                least = least.min(step.free + it.owed);
                count += 1;
            }
            if place + count < it.steps.len() {
                break;
            }
            block += 1;
            place = 0;
        }
        least
    }

    /// From a time on, the first time at which less than an amount is free; infinite for never.
    pub fn until(&self, time: f64, amount: i64) -> f64 {
        match self.find(self.locate(time), amount, true) {
            Some(at) => self.time(at).max(time),
            None => f64::INFINITY,
        }
    }

    /// The earliest time from one on, and before another, from which on an amount is free for so
    /// long. Infinite where there is none.
    pub fn earliest(&self, (from, before): (f64, f64), length: f64, amount: i64) -> f64 {
        let mut at = self.locate(from);
        while let Some(begin) = self.find(at, amount, false) {
            let start = self.time(begin).max(from);
            if start >= before {
                break;
            }
            match self.find(begin, amount, true) {
                Some(short) if self.time(short) < start + length => {
                    let Some(next) = self.following(short) else {
                        return f64::INFINITY;
                    };
                    at = next;
                }
                _ => return start,
            }
        }
        f64::INFINITY
    }

    /// The first step that begins after a time; infinite where none does.
    pub fn next(&self, time: f64) -> f64 {
        let next = self.following(self.locate(time));
        next.map_or(f64::INFINITY, |it| self.time(it))
    }

    /// Forgets what was before a time.
    pub fn forget(&mut self, time: f64) {
        let (block, _) = self.locate(time);
        self.blocks.drain(..block);
    }
}

#[cfg(test)]
mod tests {
    use super::Profile;
    use proptest::prelude::*;

    /// Who holds how much from when to when, and nothing else.
    struct List(Vec<(f64, f64, i64)>, i64);

    impl List {
        fn free(&self, time: f64) -> i64 {
            let held = self.0.iter().filter(|it| it.0 <= time && time < it.1);
            self.1 - held.map(|it| it.2).sum::<i64>()
        }

        fn fits(&self, start: f64, length: f64, amount: i64) -> bool {
            let begins = self.0.iter().map(|it| it.0);
            let mut times = begins.filter(|it| start < *it && *it < start + length);
            self.free(start) >= amount && times.all(|it| self.free(it) >= amount)
        }

        fn earliest(&self, not_before: f64, length: f64, amount: i64) -> f64 {
            let mut times: Vec<f64> = self.0.iter().map(|it| it.1).collect();
            times.retain(|it| *it > not_before && it.is_finite());
            times.push(not_before);
            times.sort_by(f64::total_cmp);
            let found = times.into_iter().find(|it| self.fits(*it, length, amount));
            found.unwrap_or(f64::INFINITY)
        }
    }

    proptest! {
        #[test]
        fn rising_is_adding_one_after_the_other(
            mut more in proptest::collection::vec((0_u32..200, 1_i64..9), 0..300),
        ) {
            more.sort_unstable();
            let more: Vec<_> = more.iter().map(|it| (f64::from(it.0), it.1)).collect();
            let rising = Profile::rising(0.0, -5, more.iter().copied());
            let mut added = Profile::new(0.0, -5);
            for (time, amount) in &more {
                added.add(*time, f64::INFINITY, *amount);
            }
            for time in 0..200 {
                let time = f64::from(time);
                prop_assert_eq!(rising.least_in(time, time), added.least_in(time, time));
            }
        }

        #[test]
        fn it_is_what_a_list_of_holders_says(
            holders in proptest::collection::vec((0_u32..200, 1_u32..60, 1_i64..5, any::<bool>()), 1..200),
            asked in proptest::collection::vec((0_u32..200, 1_u32..60, 1_i64..12), 1..10),
        ) {
            let mut list = List(Vec::new(), 10);
            let mut profile = Profile::new(0.0, 10);
            for (start, length, amount, given) in holders {
                if given && !list.0.is_empty() {
                    let (start, end, amount) = list.0.swap_remove(length as usize % list.0.len());
                    profile.add(start, end, amount);
                } else {
                    let start = f64::from(start);
                    let end = if length == 59 { f64::INFINITY } else { start + f64::from(length) };
                    list.0.push((start, end, amount));
                    profile.add(start, end, -amount);
                }
            }
            for (not_before, length, amount) in asked {
                let not_before = f64::from(not_before);
                let length = if length == 59 { f64::INFINITY } else { f64::from(length) };
                let expected = list.earliest(not_before, length, amount);
                let found = profile.earliest((not_before, f64::INFINITY), length, amount);
                prop_assert_eq!(found.to_bits(), expected.to_bits());
                let fits = list.fits(not_before, length, amount);
                prop_assert_eq!(profile.until(not_before, amount) >= not_before + length, fits);
            }
        }
    }
}
