//! Sets and counts of numbers, as intervals: what the operations on lists remember.
use std::collections::BTreeMap;

/// A set of numbers: disjoint intervals, by their first number.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    ends: BTreeMap<u64, u64>,
}

impl Intervals {
    /// Adds `lo..=hi` and hands the parts of it that are new to `new`, ascending.
    pub(crate) fn insert(&mut self, lo: u64, hi: u64, mut new: impl FnMut(u64, u64)) {
        let (mut start, mut end, mut from) = (lo, hi, Some(lo));
        // The one before may reach or touch `lo`; those that begin up to behind `hi` are swallowed.
        let before = self.ends.range(..lo).next_back().map(|(&a, &b)| (a, b));
        let mut next = before
            .filter(|&(_, b)| b.checked_add(1).is_none_or(|b| b >= lo))
            .or_else(|| self.at_or_after(lo));
        while let Some((a, b)) = next.filter(|&(a, _)| a <= hi.saturating_add(1)) {
            if let Some(first) = from.filter(|&first| first < a) {
                new(first, (a - 1).min(hi));
            }
            from = b.checked_add(1);
            (start, end) = (start.min(a), end.max(b));
            self.ends.remove(&a);
            next = self.at_or_after(a);
        }
        if let Some(first) = from.filter(|&first| first <= hi) {
            new(first, hi);
        }
        self.ends.insert(start, end);
    }

    fn at_or_after(&self, lo: u64) -> Option<(u64, u64)> {
        self.ends.range(lo..).next().map(|(&a, &b)| (a, b))
    }

    /// The parts of `lo..=hi` that are in the set, ascending.
    pub(crate) fn parts(&self, lo: u64, hi: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.ends.range(..lo).next_back();
        before
            .into_iter()
            .filter(move |&(_, &b)| b >= lo)
            .chain(self.ends.range(lo..=hi))
            .map(move |(&a, &b)| (a.max(lo), b.min(hi)))
    }
}

/// How often numbers occur: disjoint intervals of equal counts, by their first number.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    runs: BTreeMap<u64, (u64, u64)>,
}

impl Counts {
    /// Counts numbers in intervals that may overlap.
    pub(crate) fn new(intervals: &[(u64, u64)]) -> Self {
        let mut starts: Vec<u64> = intervals.iter().map(|&(lo, _)| lo).collect();
        let mut ends: Vec<u64> = intervals.iter().map(|&(_, hi)| hi).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
        let mut counts = Self::default();
        let (mut from, mut depth) = (0, 0);
        while let Some(&end) = ends.peek() {
            if let Some(start) = starts.next_if(|&start| start <= end) {
                if depth > 0 && from < start {
                    counts.runs.insert(from, (start - 1, depth));
                }
                (from, depth) = (start, depth + 1);
            } else {
                ends.next();
                if from <= end {
                    counts.runs.insert(from, (end, depth));
                    // No interval begins beyond the greatest number.
                    from = end.saturating_add(1);
                }
                depth -= 1;
            }
        }
        counts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Counts the numbers of `lo..=hi` down by one; hands those that had a count to `taken`, ascending.
    pub(crate) fn take(&mut self, lo: u64, hi: u64, mut taken: impl FnMut(u64, u64)) {
        self.cut(lo);
        if let Some(after) = hi.checked_add(1) {
            self.cut(after);
        }
        let mut from = lo;
        while let Some((&a, &mut (b, ref mut count))) = self.runs.range_mut(from..=hi).next() {
            taken(a, b);
            *count -= 1;
            if *count == 0 {
                self.runs.remove(&a);
            }
            if b == hi {
                break;
            }
            from = b + 1;
        }
    }

    /// Makes an interval that holds `at` and numbers below it into two.
    fn cut(&mut self, at: u64) {
        if let Some((_, run)) = self.runs.range_mut(..at).next_back()
            && run.0 >= at
        {
            let rest = *run;
            run.0 = at - 1;
            self.runs.insert(at, rest);
        }
    }
}
