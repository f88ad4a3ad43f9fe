//! Free intervals of nodes, indexed by start, length and free amount.
//!
//! The profile of a node is cut into levels: for each amount, the longest intervals in which the
//! node has at least as much free. Amounts with the same interval are one level. The units that a
//! node provides in a window are the sum over its intervals around the window, each for its own
//! levels.

use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap, btree_set};
use std::ops::Bound::{Excluded, Unbounded};

use smallvec::SmallVec;

use crate::availability_profile::Interval;
use crate::ids::NodeIndex;

/// From `start` until before `end`, a node has `high` free. For amounts up to `low` the interval is
/// longer, and another entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeInterval {
    pub start: f64,
    pub end: f64,
    pub node: NodeIndex,
    pub low: u32,
    pub high: u32,
}

impl FreeInterval {
    /// A bound for range searches that comes before all intervals that begin at a time.
    fn before_all(start: f64) -> Self {
        Self::at(start, 0)
    }

    /// A bound for range searches that comes after all intervals that begin at a time.
    fn after_all(start: f64) -> Self {
        Self::at(start, u32::MAX)
    }

    fn at(start: f64, extreme: u32) -> Self {
        Self {
            start,
            end: 0.0,
            node: NodeIndex::new(extreme),
            low: 0,
            high: extreme,
        }
    }
}

impl Ord for FreeInterval {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_start = self.start.total_cmp(&other.start);
        let by_node = by_start.then(self.node.cmp(&other.node));
        // Intervals of one node that begin together have different amounts.
        by_node.then(self.high.cmp(&other.high))
    }
}

impl PartialOrd for FreeInterval {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for FreeInterval {}

impl PartialEq for FreeInterval {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq() && self.low == other.low && self.end.total_cmp(&other.end).is_eq()
    }
}

/// Free intervals of one node.
pub(super) type NodeIntervals = SmallVec<[FreeInterval; 16]>;

/// A level that is still free: amounts above `low`, up to `high`, since `start`.
#[derive(Clone, Copy)]
struct Level {
    start: f64,
    low: u32,
    high: u32,
}

/// The levels that are free at the end of the steps read so far, lowest first.
struct OpenLevels {
    node: NodeIndex,
    levels: SmallVec<[Level; 16]>,
    /// Only intervals that touch this one are collected.
    during: Interval,
    found: NodeIntervals,
}

impl OpenLevels {
    /// Reads a step: from `time` on, `free` is free.
    fn read(&mut self, time: f64, free: u32) {
        while let Some(Level { start, low, high }) = self.levels.last().copied()
            && high > free
        {
            self.levels.pop();
            if start <= self.during.end && time >= self.during.start {
                self.found.push(FreeInterval {
                    start,
                    end: time,
                    node: self.node,
                    low: low.max(free),
                    high,
                });
            }
            if low < free {
                self.levels.push(Level {
                    start,
                    low,
                    high: free,
                });
            }
        }
        let highest = self.levels.last().map_or(0, |level| level.high);
        if free > highest {
            self.levels.push(Level {
                start: time,
                low: highest,
                high: free,
            });
        }
    }
}

/// The free intervals of a node that overlap or touch `during`. `time` and `free` return the start
/// of a step, and the amount that is free from then on.
pub(super) fn intervals_around<T>(
    node: NodeIndex,
    steps: &[T],
    time: impl Fn(&T) -> f64,
    free: impl Fn(&T) -> u32,
    during: Interval,
) -> NodeIntervals {
    let mut open = OpenLevels {
        node,
        levels: SmallVec::new(),
        during,
        found: NodeIntervals::new(),
    };
    if steps.is_empty() {
        return open.found;
    }
    let first = steps.partition_point(|step| time(step) < during.start);
    let first = first.saturating_sub(1);
    let last = steps
        .partition_point(|step| time(step) <= during.end)
        .max(first + 1);
    // Of the earlier steps, only those end a level that are lower than all between them and
    // `during`.
    let mut lows: SmallVec<[(usize, u32); 16]> = SmallVec::new();
    let mut height = free(&steps[first]);
    for at in (0..first).rev() {
        if height == 0 {
            break;
        }
        let here = free(&steps[at]);
        if here < height {
            lows.push((at, here));
            height = here;
        }
    }
    let mut begin = 0;
    for (at, low) in lows.iter().rev() {
        open.read(time(&steps[begin]), *low);
        begin = at + 1;
    }
    open.read(time(&steps[begin]), free(&steps[first]));
    for step in &steps[first + 1..last] {
        open.read(time(step), free(step));
    }
    // Likewise of the later steps.
    let mut height = free(&steps[last - 1]);
    for step in &steps[last..] {
        if height == 0 {
            break;
        }
        let here = free(step);
        if here < height {
            open.read(time(step), here);
            height = here;
        }
    }
    open.read(f64::INFINITY, 0);
    open.found
}

/// Classes of lengths: each has lengths up to four times those of the class before, the last one
/// has those without an end.
const LENGTH_CLASSES: usize = 17;
/// Classes of amounts: two for each power of two.
const AMOUNT_CLASSES: usize = 64;

fn length_class(length: f64) -> usize {
    if length.is_infinite() {
        return LENGTH_CLASSES - 1;
    }
    let mut class = 0;
    let mut longest = 4.0;
    while length >= longest && class < LENGTH_CLASSES - 2 {
        longest *= 4.0;
        class += 1;
    }
    class
}

/// The upper bound of the lengths in a class.
fn longest_of(class: usize) -> f64 {
    if class >= LENGTH_CLASSES - 2 {
        return f64::INFINITY;
    }
    (0..=class).fold(1.01, |longest, _| longest * 4.0)
}

fn amount_class(amount: u32) -> usize {
    let log = amount.max(1).ilog2();
    let half = if log == 0 { 0 } else { amount >> (log - 1) & 1 };
    (2 * log + half) as usize
}

/// An integer that sorts as the time does.
fn sort_key(time: f64) -> u64 {
    let bits = time.to_bits();
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    }
}

/// The parameters of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntervalQuery {
    /// The length of the window, in seconds.
    pub limit: f64,
    /// The least amount of a node that provides a unit.
    pub least: u32,
    /// The number of units.
    pub need: u64,
}

/// A search in the free intervals of a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntervalSearch<'a> {
    pub intervals: &'a FreeIntervals,
    pub query: IntervalQuery,
}

/// The free intervals of all nodes.
#[derive(Clone, Debug)]
pub(super) struct FreeIntervals {
    /// By length class and amount class.
    sets: Vec<BTreeSet<FreeInterval>>,
}

impl FreeIntervals {
    /// An index of these intervals.
    pub fn new(all: impl Iterator<Item = FreeInterval>) -> Self {
        let mut lists = vec![Vec::new(); LENGTH_CLASSES * AMOUNT_CLASSES];
        for interval in all {
            lists[Self::set_of(&interval)].push(interval);
        }
        Self {
            sets: lists.into_iter().map(BTreeSet::from_iter).collect(),
        }
    }

    fn set_of(interval: &FreeInterval) -> usize {
        let length = interval.end - interval.start;
        length_class(length) * AMOUNT_CLASSES + amount_class(interval.high)
    }

    /// Every interval.
    #[cfg(test)]
    pub fn all(&self) -> Vec<FreeInterval> {
        self.sets.iter().flatten().copied().collect()
    }

    /// Replaces intervals of a node by others.
    pub fn replace(&mut self, before: &[FreeInterval], after: &[FreeInterval]) {
        for interval in before.iter().filter(|interval| !after.contains(interval)) {
            self.sets[Self::set_of(interval)].remove(interval);
        }
        for interval in after.iter().filter(|interval| !before.contains(interval)) {
            self.sets[Self::set_of(interval)].insert(*interval);
        }
    }

    /// The sets that may have an answer to a query, with the upper bound of the lengths in each.
    fn sets(&self, query: IntervalQuery) -> impl Iterator<Item = (f64, &BTreeSet<FreeInterval>)> {
        // From half the length on: the ends of windows are rounded.
        let shortest = length_class(query.limit / 2.0);
        let least = amount_class(query.least);
        (shortest..LENGTH_CLASSES).flat_map(move |class| {
            let sets = &self.sets[class * AMOUNT_CLASSES..][..AMOUNT_CLASSES];
            let some = sets[least..].iter().filter(|set| !set.is_empty());
            some.map(move |set| (longest_of(class), set))
        })
    }

    /// The intervals around a window, in no order.
    fn covering(&self, start: f64, query: IntervalQuery) -> impl Iterator<Item = &FreeInterval> {
        let until = start + query.limit;
        let sets = self.sets(query);
        sets.flat_map(move |(longest, set)| {
            let earliest = if longest.is_finite() {
                (until - longest).min(start)
            } else {
                f64::NEG_INFINITY
            };
            let first = FreeInterval::before_all(earliest);
            set.range(first..=FreeInterval::after_all(start))
                .filter(move |interval| interval.end >= until)
        })
    }

    /// The nodes that may provide units in a window, ascending.
    pub fn nodes(&self, start: f64, query: IntervalQuery) -> Vec<NodeIndex> {
        let mut nodes: Vec<_> = self
            .covering(start, query)
            .map(|interval| interval.node)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// As [`nodes`](Self::nodes), for a window that begins with the plan; found one by one.
    pub fn nodes_at_begin(
        &self,
        start: f64,
        query: IntervalQuery,
    ) -> impl Iterator<Item = NodeIndex> {
        let until = start + query.limit;
        let range = FreeInterval::before_all(start)..=FreeInterval::after_all(start);
        let sets = self.sets(query);
        let mut lists: Vec<_> = sets.map(|(_, set)| set.range(range.clone())).collect();
        let mut next = BinaryHeap::new();
        let advance = move |list: &mut btree_set::Range<'_, FreeInterval>| {
            list.find(|interval| interval.end >= until)
                .map(|interval| interval.node)
        };
        for (at, list) in lists.iter_mut().enumerate() {
            next.extend(advance(list).map(|node| Reverse((node, at))));
        }
        let mut before = None;
        std::iter::from_fn(move || {
            loop {
                let Reverse((node, at)) = next.pop()?;
                next.extend(advance(&mut lists[at]).map(|node| Reverse((node, at))));
                if before.replace(node) != Some(node) {
                    return Some(node);
                }
            }
        })
    }

    /// The earliest window that begins within `starts`, may have the units of the query, and is
    /// accepted: the result of `accept` for its start and nodes.
    ///
    /// `units` returns the units that an interval adds. Intervals of `other` add an unknown number:
    /// `accept` is called again whenever one begins.
    pub fn earliest<T>(
        &self,
        starts: Interval,
        query: IntervalQuery,
        other: Option<IntervalSearch>,
        units: impl Fn(&FreeInterval) -> u32,
        mut accept: impl FnMut(f64, Vec<NodeIndex>) -> Option<T>,
    ) -> Option<T> {
        let mut window = Window::default();
        for interval in self.covering(starts.start, query) {
            window.insert(interval, units(interval));
        }
        let mut start = starts.start;
        let later = (Excluded(FreeInterval::after_all(starts.start)), Unbounded);
        let sets = self.sets(query);
        let mut lists: Vec<_> = sets.map(|(_, set)| set.range(later)).collect();
        let own = lists.len();
        if let Some(IntervalSearch { intervals, query }) = other {
            lists.extend(intervals.sets(query).map(|(_, set)| set.range(later)));
        }
        let mut next = BinaryHeap::new();
        for (at, list) in lists.iter_mut().enumerate() {
            next.extend(list.next().map(|interval| Reverse((*interval, at))));
        }
        loop {
            if window.total >= query.need
                && let Some(found) = accept(start, window.nodes())
            {
                return Some(found);
            }
            // Moves to the next time at which the window gains an interval.
            let mut moved = false;
            while let Some(mut top) = next.peek_mut() {
                let Reverse((interval, at)) = *top;
                if interval.start >= starts.end || (moved && interval.start > start) {
                    break;
                }
                match lists[at].next() {
                    Some(after) => *top = Reverse((*after, at)),
                    None => drop(PeekMut::pop(top)),
                }
                let is_long_enough = interval.end >= interval.start + query.limit;
                let count = if is_long_enough && at < own {
                    units(&interval)
                } else {
                    0
                };
                if !is_long_enough || (count == 0 && at < own) {
                    continue;
                }
                if !moved {
                    start = interval.start;
                    window.move_end(start + query.limit);
                    moved = true;
                }
                window.insert(&interval, count);
            }
            if !moved {
                return None;
            }
        }
    }
}

/// An interval around a window, by its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Covering {
    /// The [sort key](sort_key) of its end.
    end: u64,
    node: NodeIndex,
    units: u32,
}

/// The intervals around a window that moves on.
#[derive(Debug, Default)]
struct Window {
    covering: BinaryHeap<Reverse<Covering>>,
    /// The units of all of them.
    total: u64,
}

impl Window {
    fn insert(&mut self, interval: &FreeInterval, units: u32) {
        if units > 0 {
            self.covering.push(Reverse(Covering {
                end: sort_key(interval.end),
                node: interval.node,
                units,
            }));
            self.total += u64::from(units);
        }
    }

    /// Moves the end of the window, and drops the intervals that end before it.
    fn move_end(&mut self, until: f64) {
        let until = sort_key(until);
        while let Some(Reverse(Covering { end, units, .. })) = self.covering.peek()
            && *end < until
        {
            self.total -= u64::from(*units);
            self.covering.pop();
        }
    }

    /// The nodes of the intervals, ascending.
    fn nodes(&self) -> Vec<NodeIndex> {
        let mut nodes: Vec<_> = self.covering.iter().map(|entry| entry.0.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}
