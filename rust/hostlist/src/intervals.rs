//! Sets and counts of numbers, as intervals: what the operations on lists remember.
use std::collections::BTreeMap;

/// The numbers `lo..=hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Interval {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
}

impl Interval {
    pub(crate) const fn one(number: u64) -> Self {
        Self {
            lo: number,
            hi: number,
        }
    }
}

/// A set of numbers: disjoint intervals, by their first number.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    ends: BTreeMap<u64, u64>,
}

impl Intervals {
    /// Adds an interval and hands the parts of it that are new to `new`, ascending.
    pub(crate) fn insert(&mut self, Interval { lo, hi }: Interval, mut new: impl FnMut(Interval)) {
        let (mut start, mut end, mut from) = (lo, hi, Some(lo));
        // The one before may reach or touch `lo`; those that begin up to behind `hi` are swallowed.
        let before = self.ends.range(..lo).next_back().map(interval);
        let mut next = before
            .filter(|known| known.hi.checked_add(1).is_none_or(|after| after >= lo))
            .or_else(|| self.at_or_after(lo));
        while let Some(known) = next.filter(|known| known.lo <= hi.saturating_add(1)) {
            if let Some(first) = from.filter(|&first| first < known.lo) {
                new(Interval {
                    lo: first,
                    hi: (known.lo - 1).min(hi),
                });
            }
            from = known.hi.checked_add(1);
            (start, end) = (start.min(known.lo), end.max(known.hi));
            self.ends.remove(&known.lo);
            next = self.at_or_after(known.lo);
        }
        if let Some(first) = from.filter(|&first| first <= hi) {
            new(Interval { lo: first, hi });
        }
        self.ends.insert(start, end);
    }

    fn at_or_after(&self, lo: u64) -> Option<Interval> {
        self.ends.range(lo..).next().map(interval)
    }

    /// The parts of an interval that are in the set, ascending.
    pub(crate) fn parts(&self, Interval { lo, hi }: Interval) -> impl Iterator<Item = Interval> {
        let before = self.ends.range(..lo).next_back();
        before
            .into_iter()
            .filter(move |&(_, &end)| end >= lo)
            .chain(self.ends.range(lo..=hi))
            .map(move |(&start, &end)| Interval {
                lo: start.max(lo),
                hi: end.min(hi),
            })
    }
}

/// An entry of a set.
fn interval((&lo, &hi): (&u64, &u64)) -> Interval {
    Interval { lo, hi }
}

/// The counts of numbers: disjoint intervals of equal counts, by their first number.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    runs: BTreeMap<u64, Run>,
}

/// The last number of an interval, and how often its numbers occur.
#[derive(Clone, Copy, Debug)]
struct Run {
    last: u64,
    count: u64,
}

impl Counts {
    /// Counts numbers in intervals that may overlap.
    pub(crate) fn new(intervals: &[Interval]) -> Self {
        let mut starts: Vec<u64> = intervals.iter().map(|interval| interval.lo).collect();
        let mut ends: Vec<u64> = intervals.iter().map(|interval| interval.hi).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
        let mut counts = Self::default();
        let (mut from, mut count) = (0, 0);
        while let Some(&end) = ends.peek() {
            if let Some(start) = starts.next_if(|&start| start <= end) {
                if count > 0 && from < start {
                    let last = start - 1;
                    counts.runs.insert(from, Run { last, count });
                }
                (from, count) = (start, count + 1);
            } else {
                ends.next();
                if from <= end {
                    counts.runs.insert(from, Run { last: end, count });
                    // No interval begins beyond the greatest number.
                    from = end.saturating_add(1);
                }
                count -= 1;
            }
        }
        counts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Counts the numbers of an interval down by one; hands those that had a count to `taken`, ascending.
    pub(crate) fn take(&mut self, Interval { lo, hi }: Interval, mut taken: impl FnMut(Interval)) {
        self.cut(lo);
        if let Some(after) = hi.checked_add(1) {
            self.cut(after);
        }
        let mut from = lo;
        while let Some((&first, run)) = self.runs.range_mut(from..=hi).next() {
            let last = run.last;
            taken(Interval {
                lo: first,
                hi: last,
            });
            run.count -= 1;
            if run.count == 0 {
                self.runs.remove(&first);
            }
            if last == hi {
                break;
            }
            from = last + 1;
        }
    }

    /// Makes an interval that holds `at` and numbers below it into two.
    fn cut(&mut self, at: u64) {
        if let Some((_, run)) = self.runs.range_mut(..at).next_back()
            && run.last >= at
        {
            let rest = *run;
            run.last = at - 1;
            self.runs.insert(at, rest);
        }
    }
}
