//! Stretches of time in which nodes have something free: found by when they begin, how long they
//! are and how much is free.
//!
//! A node's steps are cut into levels: for each amount, the longest stretches of time in which the
//! node has as much free. Amounts with the same stretch are one. What a node can give in a window
//! is the sum of what the stretches around the window add, each for its own levels.

use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap, btree_set};
use std::ops::Bound::{Excluded, Unbounded};

use smallvec::SmallVec;

use crate::ids::NodeIndex;

/// From `start` until before `end`, a node has `most` free. Of the amounts up to `low`, the stretch
/// is longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub start: f64,
    pub end: f64,
    pub node: NodeIndex,
    pub low: u32,
    pub most: u32,
}

impl Stretch {
    /// Before, or with `last` after, all that begin at a time.
    fn bound(start: f64, last: bool) -> Self {
        let extreme = if last { u32::MAX } else { 0 };
        Self {
            start,
            end: 0.0,
            node: NodeIndex::new(extreme),
            low: 0,
            most: extreme,
        }
    }
}

impl Ord for Stretch {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_start = self.start.total_cmp(&other.start);
        let by_place = by_start.then(self.node.cmp(&other.node));
        // Of a node, stretches that begin together have different amounts.
        by_place.then(self.most.cmp(&other.most))
    }
}

impl PartialOrd for Stretch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Stretch {}

impl PartialEq for Stretch {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq() && self.low == other.low && self.end.total_cmp(&other.end).is_eq()
    }
}

/// Stretches of one node.
pub(super) type Few = SmallVec<[Stretch; 16]>;

/// Levels that are open, from the lowest on.
struct Open {
    node: NodeIndex,
    /// When each began, what is below it, and how much it is.
    levels: SmallVec<[(f64, u32, u32); 16]>,
    /// The span that is looked at, and what there is around it.
    span: (f64, f64),
    found: Few,
}

impl Open {
    /// From a time on, so much is free.
    fn come(&mut self, time: f64, free: u32) {
        while let Some((start, low, most)) = self.levels.last().copied()
            && most > free
        {
            self.levels.pop();
            if start <= self.span.1 && time >= self.span.0 {
                self.found.push(Stretch {
                    start,
                    end: time,
                    node: self.node,
                    low: low.max(free),
                    most,
                });
            }
            if low < free {
                self.levels.push((start, low, free));
            }
        }
        let height = self.levels.last().map_or(0, |it| it.2);
        if free > height {
            self.levels.push((time, height, free));
        }
    }
}

/// The stretches of a node that have any time in common with a span or border on it, of steps: when each begins,
/// and what is free from then on.
pub(super) fn around<T>(
    node: NodeIndex,
    steps: &[T],
    time: impl Fn(&T) -> f64,
    free: impl Fn(&T) -> u32,
    span: (f64, f64),
) -> Few {
    let mut open = Open {
        node,
        levels: SmallVec::new(),
        span,
        found: Few::new(),
    };
    if steps.is_empty() {
        return open.found;
    }
    let first = steps.partition_point(|it| time(it) < span.0);
    let first = first.saturating_sub(1);
    let last = steps
        .partition_point(|it| time(it) <= span.1)
        .max(first + 1);
    // Before the span, only what is less than all between it and the span ends a level.
    let mut lows: SmallVec<[(usize, u32); 16]> = SmallVec::new();
    let mut height = free(&steps[first]);
    for at in (0..first).rev() {
        if height == 0 {
            break;
        }
        let there = free(&steps[at]);
        if there < height {
            lows.push((at, there));
            height = there;
        }
    }
    let mut begin = 0;
    for (at, there) in lows.iter().rev() {
        open.come(time(&steps[begin]), *there);
        begin = at + 1;
    }
    open.come(time(&steps[begin]), free(&steps[first]));
    for step in &steps[first + 1..last] {
        open.come(time(step), free(step));
    }
    // Behind the span likewise.
    let mut height = free(&steps[last - 1]);
    for step in &steps[last..] {
        if height == 0 {
            break;
        }
        let there = free(step);
        if there < height {
            open.come(time(step), there);
            height = there;
        }
    }
    open.come(f64::INFINITY, 0);
    open.found
}

/// Classes of lengths: each of lengths up to four times as long as the one before, the last of
/// those without an end.
const LENGTHS: usize = 17;
/// Classes of amounts: two for each power of two.
const AMOUNTS: usize = 64;

fn length_class(length: f64) -> usize {
    if length.is_infinite() {
        return LENGTHS - 1;
    }
    let mut class = 0;
    let mut longest = 4.0;
    while length >= longest && class < LENGTHS - 2 {
        longest *= 4.0;
        class += 1;
    }
    class
}

/// What is as long, or longer, than any of a class.
fn longest(class: usize) -> f64 {
    if class >= LENGTHS - 2 {
        return f64::INFINITY;
    }
    (0..=class).fold(1.01, |longest, _| longest * 4.0)
}

fn amount_class(amount: u32) -> usize {
    let log = amount.max(1).ilog2();
    let half = if log == 0 { 0 } else { amount >> (log - 1) & 1 };
    (2 * log + half) as usize
}

/// Sorts as the time does.
fn ordered(time: f64) -> u64 {
    let bits = time.to_bits();
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// For how long.
    pub limit: f64,
    /// What of a node gives a unit, at the least.
    pub least: u32,
    /// Units.
    pub need: u64,
}

/// The stretches of all nodes.
#[derive(Clone, Debug)]
pub(super) struct Stretches {
    /// By length and amount.
    sets: Vec<BTreeSet<Stretch>>,
}

impl Stretches {
    pub fn new(all: impl Iterator<Item = Stretch>) -> Self {
        let mut lists = vec![Vec::new(); LENGTHS * AMOUNTS];
        for it in all {
            lists[Self::set_of(&it)].push(it);
        }
        Self {
            sets: lists.into_iter().map(BTreeSet::from_iter).collect(),
        }
    }

    fn set_of(it: &Stretch) -> usize {
        length_class(it.end - it.start) * AMOUNTS + amount_class(it.most)
    }

    /// All of them.
    #[cfg(test)]
    pub fn all(&self) -> Vec<Stretch> {
        self.sets.iter().flatten().copied().collect()
    }

    /// A node has other stretches than before.
    pub fn replace(&mut self, before: &[Stretch], after: &[Stretch]) {
        for it in before.iter().filter(|it| !after.contains(it)) {
            self.sets[Self::set_of(it)].remove(it);
        }
        for it in after.iter().filter(|it| !before.contains(it)) {
            self.sets[Self::set_of(it)].insert(*it);
        }
    }

    /// Sets that may have what is asked for, and how long a stretch of each is at the most.
    fn sets(&self, wanted: Wanted) -> impl Iterator<Item = (f64, &BTreeSet<Stretch>)> {
        // By half of it: ends are rounded.
        let shortest = length_class(wanted.limit / 2.0);
        let least = amount_class(wanted.least);
        (shortest..LENGTHS).flat_map(move |class| {
            let sets = &self.sets[class * AMOUNTS..][..AMOUNTS];
            let some = sets[least..].iter().filter(|it| !it.is_empty());
            some.map(move |set| (longest(class), set))
        })
    }

    /// Stretches around a window, in no order.
    fn covering(&self, start: f64, wanted: Wanted) -> impl Iterator<Item = &Stretch> {
        let until = start + wanted.limit;
        let sets = self.sets(wanted);
        sets.flat_map(move |(longest, set)| {
            let first = if longest.is_finite() {
                (until - longest).min(start)
            } else {
                f64::NEG_INFINITY
            };
            let first = Stretch::bound(first, false);
            let there = set.range(first..=Stretch::bound(start, true));
            there.filter(move |it| it.end >= until)
        })
    }

    /// Places that may give units in a window, ascending.
    pub fn places(&self, start: f64, wanted: Wanted) -> Vec<NodeIndex> {
        let mut places: Vec<_> = self.covering(start, wanted).map(|it| it.node).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The same, for a window that begins with the plan: found one by one.
    pub fn places_at_first(&self, start: f64, wanted: Wanted) -> impl Iterator<Item = NodeIndex> {
        let until = start + wanted.limit;
        let span = Stretch::bound(start, false)..=Stretch::bound(start, true);
        let sets = self.sets(wanted);
        let mut lists: Vec<_> = sets.map(|(_, set)| set.range(span.clone())).collect();
        let mut next = BinaryHeap::new();
        let go_on = move |list: &mut btree_set::Range<'_, Stretch>| {
            list.find(|it| it.end >= until).map(|it| it.node)
        };
        for (at, list) in lists.iter_mut().enumerate() {
            next.extend(go_on(list).map(|node| Reverse((node, at))));
        }
        let mut before = None;
        std::iter::from_fn(move || {
            loop {
                let Reverse((node, at)) = next.pop()?;
                next.extend(go_on(&mut lists[at]).map(|node| Reverse((node, at))));
                if before.replace(node) != Some(node) {
                    return Some(node);
                }
            }
        })
    }

    /// The earliest window, from a time on and before another, that is accepted, of those in which there may be as
    /// many units as are needed: its start, and what the one who accepts makes of the places. It is
    /// asked again where `also` has more, of which the units are not told.
    pub fn earliest<T>(
        &self,
        (from, before): (f64, f64),
        wanted: Wanted,
        also: Option<(&Self, Wanted)>,
        units: impl Fn(&Stretch) -> u32,
        mut accept: impl FnMut(f64, Vec<NodeIndex>) -> Option<T>,
    ) -> Option<(f64, T)> {
        let mut around = Around::default();
        for it in self.covering(from, wanted) {
            around.insert(it, units(it));
        }
        let mut start = from;
        let begin = (Excluded(Stretch::bound(from, true)), Unbounded);
        let sets = self.sets(wanted);
        let mut lists: Vec<_> = sets.map(|(_, set)| set.range(begin)).collect();
        let own = lists.len();
        if let Some((other, wanted)) = also {
            lists.extend(other.sets(wanted).map(|(_, set)| set.range(begin)));
        }
        let mut next = BinaryHeap::new();
        for (at, list) in lists.iter_mut().enumerate() {
            next.extend(list.next().map(|it| Reverse((*it, at))));
        }
        loop {
            if around.total >= wanted.need
                && let Some(found) = accept(start, around.places())
            {
                return Some((start, found));
            }
            // On to the next time at which there is more.
            let mut more = false;
            while let Some(mut top) = next.peek_mut() {
                let Reverse((it, at)) = *top;
                if it.start >= before || (more && it.start > start) {
                    break;
                }
                match lists[at].next() {
                    Some(after) => *top = Reverse((*after, at)),
                    None => drop(PeekMut::pop(top)),
                }
                let enough = it.end >= it.start + wanted.limit;
                let count = if enough && at < own { units(&it) } else { 0 };
                if !enough || (count == 0 && at < own) {
                    continue;
                }
                if !more {
                    start = it.start;
                    around.pass(start + wanted.limit);
                    more = true;
                }
                around.insert(&it, count);
            }
            if !more {
                return None;
            }
        }
    }
}

/// Stretches around a window that moves on.
#[derive(Debug, Default)]
struct Around {
    /// By their ends: places, and units.
    ends: BinaryHeap<Reverse<(u64, NodeIndex, u32)>>,
    total: u64,
}

impl Around {
    fn insert(&mut self, it: &Stretch, units: u32) {
        if units > 0 {
            self.ends.push(Reverse((ordered(it.end), it.node, units)));
            self.total += u64::from(units);
        }
    }

    /// The window now ends then.
    fn pass(&mut self, until: f64) {
        let until = ordered(until);
        while let Some(Reverse((end, _, units))) = self.ends.peek()
            && *end < until
        {
            self.total -= u64::from(*units);
            self.ends.pop();
        }
    }

    /// The places, ascending.
    fn places(&self) -> Vec<NodeIndex> {
        let mut places: Vec<_> = self.ends.iter().map(|it| it.0.1).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}
