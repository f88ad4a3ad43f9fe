//! Availability profiles: how much of one resource is free over time, as a step function.

/// A half-open interval: from `start` until before `end`, in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub start: f64,
    pub end: f64,
}

impl Interval {
    /// The interval without beginning and end.
    pub const ALWAYS: Self = Self::new(f64::NEG_INFINITY, f64::INFINITY);

    pub const fn new(start: f64, end: f64) -> Self {
        Self { start, end }
    }

    /// The interval that begins at `start` and lasts `duration` seconds, which may be infinite.
    pub const fn lasting(start: f64, duration: f64) -> Self {
        Self::new(start, start + duration)
    }

    /// The interval without an end.
    pub const fn from(start: f64) -> Self {
        Self::new(start, f64::INFINITY)
    }
}

/// The amount that is free from a time until the next step; negative if more is planned than
/// exists.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    time: f64,
    free: i64,
}

/// Maximum number of steps in a block; a full block is split in two.
const MAX_STEPS_PER_BLOCK: usize = 64;

/// Consecutive steps; `pending` is still to be added to all of them.
#[derive(Clone, Debug)]
struct Block {
    steps: Vec<Step>,
    pending: i64,
    /// The least and the most that is free, `pending` included.
    least: i64,
    most: i64,
}

impl Block {
    fn new(steps: Vec<Step>) -> Self {
        let mut block = Self {
            steps,
            pending: 0,
            least: 0,
            most: 0,
        };
        block.update_bounds();
        block
    }

    /// Recomputes the bounds.
    fn update_bounds(&mut self) {
        let free = || self.steps.iter().map(|step| step.free);
        self.least = free().min().unwrap_or(0) + self.pending;
        self.most = free().max().unwrap_or(0) + self.pending;
    }

    /// Adds `pending` to the steps.
    fn apply_pending(&mut self) {
        for step in &mut self.steps {
            step.free += self.pending;
        }
        self.pending = 0;
    }
}

/// The free amount over time, from the first step on. No block is empty.
#[derive(Clone, Debug)]
pub(crate) struct AvailabilityProfile {
    blocks: Vec<Block>,
}

/// The index of a step.
#[derive(Clone, Copy, Debug)]
struct StepIndex {
    block: usize,
    /// Within the block.
    step: usize,
}

impl AvailabilityProfile {
    /// A profile with a constant free amount from `time` on.
    pub fn new(time: f64, free: i64) -> Self {
        Self {
            blocks: vec![Block::new(vec![Step { time, free }])],
        }
    }

    /// A profile with `free` from `time` on that rises by an amount at each of the times in `more`,
    /// which are in order.
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
        let blocks = steps.chunks(MAX_STEPS_PER_BLOCK / 2);
        Self {
            blocks: blocks.map(|steps| Block::new(steps.to_vec())).collect(),
        }
    }

    /// The last step that begins no later than a time; the first of all for an earlier time.
    fn locate(&self, time: f64) -> StepIndex {
        let begins_by = |block: &Block| block.steps[0].time <= time;
        let block = self.blocks.partition_point(begins_by).saturating_sub(1);
        let steps = &self.blocks[block].steps;
        let step = steps.partition_point(|step| step.time <= time);
        StepIndex {
            block,
            step: step.saturating_sub(1),
        }
    }

    fn following(&self, at: StepIndex) -> Option<StepIndex> {
        let StepIndex { block, step } = at;
        if step + 1 < self.blocks[block].steps.len() {
            let step = step + 1;
            return Some(StepIndex { block, step });
        }
        let block = block + 1;
        (block < self.blocks.len()).then_some(StepIndex { block, step: 0 })
    }

    fn time(&self, at: StepIndex) -> f64 {
        self.blocks[at.block].steps[at.step].time
    }

    /// Splits the step at a time, unless a step begins then or the first step is later. Returns the
    /// index of the step that begins then.
    fn split_at(&mut self, time: f64) -> StepIndex {
        let at = self.locate(time);
        if self.time(at) >= time {
            return at;
        }
        let StepIndex { block, step } = at;
        let split = &mut self.blocks[block];
        let free = split.steps[step].free;
        let step = step + 1;
        split.steps.insert(step, Step { time, free });
        if split.steps.len() <= MAX_STEPS_PER_BLOCK {
            return StepIndex { block, step };
        }
        split.apply_pending();
        let upper = Block::new(split.steps.split_off(MAX_STEPS_PER_BLOCK / 2));
        split.update_bounds();
        self.blocks.insert(block + 1, upper);
        if step < MAX_STEPS_PER_BLOCK / 2 {
            return StepIndex { block, step };
        }
        StepIndex {
            block: block + 1,
            step: step - MAX_STEPS_PER_BLOCK / 2,
        }
    }

    /// Adds to what is free during an interval.
    pub fn add(&mut self, during: Interval, amount: i64) {
        let Interval { start, end } = during;
        if start >= end {
            return;
        }
        self.split_at(start);
        let last = if end.is_finite() {
            self.split_at(end)
        } else {
            StepIndex {
                block: self.blocks.len(),
                step: 0,
            }
        };
        let first = self.locate(start);
        for index in first.block..=last.block {
            let Some(block) = self.blocks.get_mut(index) else {
                break;
            };
            let from = if index == first.block { first.step } else { 0 };
            let until = if index == last.block {
                last.step
            } else {
                block.steps.len()
            };
            if from == 0 && until == block.steps.len() {
                block.pending += amount;
                block.least += amount;
                block.most += amount;
            } else if from < until {
                for step in &mut block.steps[from..until] {
                    step.free += amount;
                }
                block.update_bounds();
            }
        }
    }

    /// The first step, from one on, with less than an amount free.
    fn find_less(&self, from: StepIndex, amount: i64) -> Option<StepIndex> {
        self.find(from, |block| block.least < amount, |free| free < amount)
    }

    /// The first step, from one on, with at least an amount free.
    fn find_enough(&self, from: StepIndex, amount: i64) -> Option<StepIndex> {
        self.find(from, |block| block.most >= amount, |free| free >= amount)
    }

    #[inline]
    fn find(
        &self,
        from: StepIndex,
        may_have: impl Fn(&Block) -> bool,
        matches: impl Fn(i64) -> bool,
    ) -> Option<StepIndex> {
        let StepIndex {
            mut block,
            mut step,
        } = from;
        while let Some(candidate) = self.blocks.get(block) {
            if may_have(candidate) {
                let mut steps = candidate.steps[step..].iter();
                let found = steps.position(|step| matches(step.free + candidate.pending));
                if let Some(found) = found {
                    return Some(StepIndex {
                        block,
                        step: step + found,
                    });
                }
            }
            block += 1;
            step = 0;
        }
        None
    }

    /// The minimum free amount.
    pub fn least(&self) -> i64 {
        self.blocks
            .iter()
            .map(|block| block.least)
            .min()
            .unwrap_or(0)
    }

    /// The minimum free amount during an interval, or at its start if it is empty.
    pub fn least_during(&self, during: Interval) -> i64 {
        let Interval { start, end } = during;
        let StepIndex {
            mut block,
            mut step,
        } = self.locate(start);
        let mut least = i64::MAX;
        while let Some(candidate) = self.blocks.get(block) {
            let within = candidate.steps[step..]
                .iter()
                .take_while(|step| step.time < end || step.time <= start);
            let mut count = 0;
            for step in within {
                least = least.min(step.free + candidate.pending);
                count += 1;
            }
            if step + count < candidate.steps.len() {
                break;
            }
            block += 1;
            step = 0;
        }
        least
    }

    /// The first time from `time` on at which less than an amount is free; infinite for never.
    pub fn until(&self, time: f64, amount: i64) -> f64 {
        match self.find_less(self.locate(time), amount) {
            Some(at) => self.time(at).max(time),
            None => f64::INFINITY,
        }
    }

    /// The earliest time within `starts` from which an amount is free for `length` seconds;
    /// infinite for none.
    pub fn earliest(&self, starts: Interval, length: f64, amount: i64) -> f64 {
        let mut at = self.locate(starts.start);
        while let Some(begin) = self.find_enough(at, amount) {
            let start = self.time(begin).max(starts.start);
            if start >= starts.end {
                break;
            }
            match self.find_less(begin, amount) {
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

    /// The first time after `time` at which a step begins; infinite for never.
    pub fn next_change(&self, time: f64) -> f64 {
        let next = self.following(self.locate(time));
        next.map_or(f64::INFINITY, |step| self.time(step))
    }

    /// Drops steps that ended before a time.
    pub fn forget_before(&mut self, time: f64) {
        let block = self.locate(time).block;
        self.blocks.drain(..block);
    }
}

#[cfg(test)]
mod tests {
    use super::{AvailabilityProfile, Interval};
    use proptest::prelude::*;

    /// An amount in use during an interval.
    struct Usage {
        during: Interval,
        amount: i64,
    }

    /// The model: a list of what is in use, of a total.
    struct UsageList {
        list: Vec<Usage>,
        total: i64,
    }

    impl UsageList {
        fn free(&self, time: f64) -> i64 {
            let used = self
                .list
                .iter()
                .filter(|usage| usage.during.start <= time && time < usage.during.end);
            self.total - used.map(|usage| usage.amount).sum::<i64>()
        }

        fn fits(&self, start: f64, length: f64, amount: i64) -> bool {
            let mut changes = self
                .list
                .iter()
                .map(|usage| usage.during.start)
                .filter(|time| start < *time && *time < start + length);
            self.free(start) >= amount && changes.all(|time| self.free(time) >= amount)
        }

        fn earliest(&self, not_before: f64, length: f64, amount: i64) -> f64 {
            let mut times: Vec<f64> = self.list.iter().map(|usage| usage.during.end).collect();
            times.retain(|time| *time > not_before && time.is_finite());
            times.push(not_before);
            times.sort_by(f64::total_cmp);
            times
                .into_iter()
                .find(|time| self.fits(*time, length, amount))
                .unwrap_or(f64::INFINITY)
        }
    }

    proptest! {
        #[test]
        fn a_rising_profile_equals_single_additions(
            mut more in proptest::collection::vec((0_u32..200, 1_i64..9), 0..300),
        ) {
            more.sort_unstable();
            let more: Vec<_> = more
                .iter()
                .map(|(time, amount)| (f64::from(*time), *amount))
                .collect();
            let rising = AvailabilityProfile::rising(0.0, -5, more.iter().copied());
            let mut added = AvailabilityProfile::new(0.0, -5);
            for (time, amount) in &more {
                added.add(Interval::from(*time), *amount);
            }
            for time in 0..200 {
                let instant = Interval::lasting(f64::from(time), 0.0);
                prop_assert_eq!(rising.least_during(instant), added.least_during(instant));
            }
        }

        #[test]
        fn behaves_like_a_list_of_usages(
            usages in proptest::collection::vec((0_u32..200, 1_u32..60, 1_i64..5, any::<bool>()), 1..200),
            queries in proptest::collection::vec((0_u32..200, 1_u32..60, 1_i64..12), 1..10),
        ) {
            let mut model = UsageList { list: Vec::new(), total: 10 };
            let mut profile = AvailabilityProfile::new(0.0, 10);
            let length_of = |length: u32| {
                if length == 59 { f64::INFINITY } else { f64::from(length) }
            };
            for (start, length, amount, release) in usages {
                if release && !model.list.is_empty() {
                    let usage = model.list.swap_remove(length as usize % model.list.len());
                    profile.add(usage.during, usage.amount);
                } else {
                    let during = Interval::lasting(f64::from(start), length_of(length));
                    model.list.push(Usage { during, amount });
                    profile.add(during, -amount);
                }
            }
            for (not_before, length, amount) in queries {
                let not_before = f64::from(not_before);
                let length = length_of(length);
                let expected = model.earliest(not_before, length, amount);
                let found = profile.earliest(Interval::from(not_before), length, amount);
                prop_assert_eq!(found.to_bits(), expected.to_bits());
                let fits = model.fits(not_before, length, amount);
                prop_assert_eq!(profile.until(not_before, amount) >= not_before + length, fits);
            }
        }
    }
}
