//! Operations on idsets against a model.

use std::ops::RangeInclusive;

use arbitrary::{Arbitrary, Result, Unstructured};
use penstock_idset::IdSet;

use crate::idset_text::{equal, id, same, written};
use crate::input::{UpToEight, operations};
use crate::intervals::Intervals;

/// Ids at which forms change: word and inline borders, bitmaps, 16 and 32 bits, the greatest id. Few, so that ids meet.
const ANCHORS: [u32; 8] = [64, 4096, 65_536, 65_536, 65_536, 65_536, 1 << 31, u32::MAX];

/// A number near an anchor: an id, or 4294967295, which is too large for one.
#[derive(Clone, Copy, Debug)]
struct Id(u32);

impl<'a> Arbitrary<'a> for Id {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let anchor = *u.choose(&ANCHORS)?;
        Ok(Self(
            anchor.saturating_add_signed(u.arbitrary::<i8>()?.into()),
        ))
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Span {
    /// An id and a number of ids that follow it.
    Near(Id, u16),
    /// From the one to the other, whichever is greater.
    Between(Id, Id),
}

impl Span {
    fn range(self) -> RangeInclusive<u32> {
        match self {
            Self::Near(start, more) => start.0..=start.0.saturating_add(more.into()),
            Self::Between(start, end) => start.0..=end.0,
        }
    }

    /// The ids in it: of a range that ends before it starts none, and never 4294967295.
    fn model(self) -> Intervals {
        let range = self.range();
        let end = u64::from(*range.end()) + 1;
        Intervals::new((*range.start()).into(), end.min(END))
    }
}

/// One past the greatest id.
const END: u64 = IdSet::MAX_ID as u64 + 1;

/// Ids at equal distances, ascending or descending.
#[derive(Clone, Copy, Debug)]
struct Comb {
    start: Id,
    step: u32,
    count: u32,
    down: bool,
}

impl<'a> Arbitrary<'a> for Comb {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self {
            start: u.arbitrary()?,
            step: *u.choose(&[1, 2, 2, 3, 3, 5, 16, 63, 64, 65, 128, 4096])?,
            count: u.arbitrary::<u8>()?.into(),
            down: u.arbitrary()?,
        })
    }
}

impl Comb {
    fn ids(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |n| {
            let place = if self.down { self.count - 1 - n } else { n };
            self.start.0.saturating_add(place * self.step)
        })
    }
}

/// Which of the sets.
#[derive(Clone, Copy, Debug)]
enum At {
    A,
    B,
    C,
}

impl<'a> Arbitrary<'a> for At {
    /// Mostly the first, so that much happens to it.
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        u.choose(&[
            Self::A,
            Self::A,
            Self::A,
            Self::A,
            Self::B,
            Self::B,
            Self::C,
        ])
        .copied()
    }
}

/// Half of the operations change a few hundred ids at once, so that bitmaps come up and are changed in many places.
#[derive(Debug, Arbitrary)]
enum Step {
    Insert(At, Comb),
    Remove(At, Comb),
    Other(Op),
    Another(Op),
}

impl Step {
    fn op(self) -> Op {
        match self {
            Self::Insert(at, comb) => Op::InsertComb(at, comb),
            Self::Remove(at, comb) => Op::RemoveComb(at, comb),
            Self::Other(op) | Self::Another(op) => op,
        }
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Pair {
    Union,
    Intersection,
    Difference,
    SymmetricDifference,
}

#[derive(Clone, Debug, Arbitrary)]
enum Op {
    Insert(At, Id),
    Remove(At, Id),
    InsertRange(At, Span),
    RemoveRange(At, Span),
    InsertComb(At, Comb),
    RemoveComb(At, Comb),
    Extend(At, Comb, UpToEight<Id>),
    Range(At, Span),
    Collect(At, UpToEight<Id>),
    Clear(At),
    Complement(At),
    Combine(At, At, Pair, At),
    Update(At, Pair, At),
    TakeFirst(At, u16, At),
    Slice(At, u16, u16, At),
    Split(At, u8),
    Look(At, Id),
    LookAt(At, u32),
    LookIn(At, Span),
    Compare(At, At),
    Rewrite(At),
    Pop(At, bool),
}

/// A set with its model.
#[derive(Clone, Default)]
struct Twin {
    set: IdSet,
    model: Intervals,
}

/// Reads the bytes as operations on three sets, and does them with the sets and with their models.
///
/// # Panics
///
/// Panics if a set and its model differ.
pub fn check(data: &[u8]) {
    let mut twins: [Twin; 3] = Default::default();
    for op in operations(data).map(Step::op) {
        if let Some(at) = apply(&mut twins, op) {
            let twin = &twins[at as usize];
            same(&twin.set, &twin.model);
        }
    }
}

/// Does one operation. Returns which set it changed.
fn apply(twins: &mut [Twin; 3], op: Op) -> Option<At> {
    match op {
        Op::Insert(at, Id(id)) => {
            let Twin { set, model } = &mut twins[at as usize];
            let new = u64::from(id) < END && !model.contains(id.into());
            assert_eq!(
                set.try_insert(id.into()).ok(),
                (u64::from(id) < END).then_some(new)
            );
            assert!(!set.insert(id));
            if new {
                *model = model.union(&Intervals::one(id.into()));
                assert!(set.remove(id));
                assert!(set.insert(id));
            }
            Some(at)
        }
        Op::Remove(at, Id(id)) => {
            let Twin { set, model } = &mut twins[at as usize];
            assert_eq!(set.remove(id), model.contains(id.into()));
            *model = model.difference(&Intervals::one(id.into()));
            Some(at)
        }
        Op::InsertRange(at, span) => {
            let Twin { set, model } = &mut twins[at as usize];
            set.insert_range(span.range());
            *model = model.union(&span.model());
            Some(at)
        }
        Op::RemoveRange(at, span) => {
            let Twin { set, model } = &mut twins[at as usize];
            set.remove_range(span.range());
            *model = model.difference(&span.model());
            Some(at)
        }
        Op::InsertComb(at, comb) => {
            let Twin { set, model } = &mut twins[at as usize];
            for id in comb.ids() {
                set.insert(id);
            }
            *model = model.union(&ids(comb.ids()));
            Some(at)
        }
        Op::RemoveComb(at, comb) => {
            let Twin { set, model } = &mut twins[at as usize];
            for id in comb.ids() {
                set.remove(id);
            }
            *model = model.difference(&ids(comb.ids()));
            Some(at)
        }
        Op::Extend(at, comb, more) => {
            let Twin { set, model } = &mut twins[at as usize];
            let more: Vec<u32> = more.0.iter().map(|id| id.0).chain(comb.ids()).collect();
            set.extend(more.iter().copied());
            *model = model.union(&ids(more));
            Some(at)
        }
        other => apply_whole(twins, other),
    }
}

/// Does one operation that replaces a set, combines whole sets, or only reads.
fn apply_whole(twins: &mut [Twin; 3], op: Op) -> Option<At> {
    match op {
        Op::Range(at, span) => {
            let (set, model) = (IdSet::with_range(span.range()), span.model());
            equal(&IdSet::from(span.range()), &set);
            twins[at as usize] = Twin { set, model };
            Some(at)
        }
        Op::Collect(at, list) => {
            let list: Vec<u32> = list.0.iter().map(|id| id.0).collect();
            let (set, model) = (list.iter().copied().collect(), ids(list));
            twins[at as usize] = Twin { set, model };
            Some(at)
        }
        Op::Clear(at) => {
            twins[at as usize].set.clear();
            twins[at as usize].model = Intervals::default();
            Some(at)
        }
        Op::Complement(at) => {
            let Twin { set, model } = &mut twins[at as usize];
            *set = IdSet::with_range(0..=u32::MAX).difference(set);
            *model = Intervals::new(0, END).difference(model);
            Some(at)
        }
        Op::Combine(left, right, pair, into) => {
            twins[into as usize] = combine(&twins[left as usize], &twins[right as usize], pair);
            Some(into)
        }
        Op::Update(at, pair, with) => {
            let with = twins[with as usize].clone();
            let twin = &mut twins[at as usize];
            let expected = combine(twin, &with, pair);
            match pair {
                Pair::Union => twin.set.union_with(&with.set),
                Pair::Intersection => twin.set.intersect_with(&with.set),
                Pair::Difference => twin.set.subtract(&with.set),
                Pair::SymmetricDifference => twin.set = &twin.set ^ &with.set,
            }
            twin.model = expected.model;
            equal(&twin.set, &expected.set);
            Some(at)
        }
        Op::Pop(at, first) => {
            pop(&mut twins[at as usize], first);
            Some(at)
        }
        Op::TakeFirst(at, n, into) => {
            let Twin { set, model } = &mut twins[at as usize];
            let n = u64::from(n);
            let taken = set.take_first(n);
            assert_eq!(taken.is_some(), n <= model.len());
            let Some(set) = taken else { return Some(at) };
            let first = model.slice(0, n);
            *model = model.difference(&first);
            let rest = twins[at as usize].clone();
            same(&rest.set, &rest.model);
            twins[into as usize] = Twin { set, model: first };
            Some(into)
        }
        Op::Slice(at, from, to, into) => {
            let Twin { set, model } = &twins[at as usize];
            let (from, to) = (u64::from(from), u64::from(to));
            let (set, model) = (set.slice(from..to), model.slice(from, to));
            twins[into as usize] = Twin { set, model };
            Some(into)
        }
        Op::Split(at, parts) => {
            split(&twins[at as usize], parts.into());
            None
        }
        Op::Look(at, Id(id)) => {
            look(&twins[at as usize], id);
            None
        }
        Op::LookAt(at, n) => {
            let Twin { set, model } = &twins[at as usize];
            let n = u64::from(n);
            assert_eq!(set.nth(n), model.nth(n).map(id));
            // The same within the set, if there is any id.
            let n = n % model.len().max(1);
            assert_eq!(set.nth(n), model.nth(n).map(id));
            assert_eq!(
                set.nth(n).and_then(|id| set.find(id)),
                model.nth(n).map(|_| n)
            );
            None
        }
        Op::LookIn(at, span) => {
            look_in(&twins[at as usize], span);
            None
        }
        Op::Compare(left, right) => {
            compare(&twins[left as usize], &twins[right as usize]);
            None
        }
        Op::Rewrite(at) => {
            written(&twins[at as usize].set);
            None
        }
        other => unreachable!("{other:?}"),
    }
}

/// Ids in any order, without 4294967295.
fn ids(ids: impl IntoIterator<Item = u32>) -> Intervals {
    Intervals::of(ids.into_iter().map(u64::from).filter(|&id| id < END))
}

fn combine(left: &Twin, right: &Twin, pair: Pair) -> Twin {
    let ((a, b), (x, y)) = ((&left.set, &right.set), (&left.model, &right.model));
    let (set, model, same) = match pair {
        Pair::Union => (a.union(b), x.union(y), a | b),
        Pair::Intersection => (a.intersection(b), x.intersection(y), a & b),
        Pair::Difference => (a.difference(b), x.difference(y), a - b),
        Pair::SymmetricDifference => (a.symmetric_difference(b), x.symmetric_difference(y), a ^ b),
    };
    equal(&set, &same);
    Twin { set, model }
}

/// Removes the lowest id, or the greatest.
fn pop(twin: &mut Twin, first: bool) {
    let Twin { set, model } = twin;
    let (expected, popped) = if first {
        (model.ids().next(), set.pop_first())
    } else {
        (model.ids().next_back(), set.pop_last())
    };
    assert_eq!(popped, expected.map(id));
    if let Some(id) = expected {
        *model = model.difference(&Intervals::one(id));
    }
}

fn split(twin: &Twin, parts: u64) {
    let sets = twin.set.split(parts);
    let len = twin.model.len();
    assert_eq!(sets.len() as u64, parts.min(len));
    let mut from = 0;
    for (index, set) in (0..).zip(&sets) {
        let size = len / parts.min(len) + u64::from(index < len % parts.min(len));
        same(set, &twin.model.slice(from, from + size));
        from += size;
    }
}

/// Checks the lookups at an id and around it.
fn look(twin: &Twin, at: u32) {
    let Twin { set, model } = twin;
    let wide = u64::from(at);
    let there = model.contains(wide);
    let below = model.below(wide);
    assert_eq!(set.contains(at), there);
    assert_eq!(set.count_below(at), below);
    assert_eq!(set.find(at), there.then_some(below));
    assert_eq!(set.next(at), model.nth(below + u64::from(there)).map(id));
    let before = below.checked_sub(1).and_then(|n| model.nth(n));
    assert_eq!(set.prev(at), before.map(id));
}

/// Checks the iteration over a range: all of it from the front, and its ends from the back.
fn look_in(twin: &Twin, span: Span) {
    let Twin { set, model } = twin;
    let part = model.intersection(&span.model());
    let bounds = span.range();
    let all = bounds.is_empty() || part.len() == u64::from(bounds.end() - bounds.start()) + 1;
    assert_eq!(set.contains_range(span.range()), all);
    let mut found = set.iter_range(span.range());
    assert!(found.clone().take(1000).eq(part.ids().take(1000).map(id)));
    assert!(
        found
            .clone()
            .rev()
            .take(1000)
            .eq(part.ids().rev().take(1000).map(id))
    );
    // From both ends in turn, until they meet.
    let mut expected = part.ids();
    for _ in 0..200 {
        assert_eq!(found.next(), expected.next().map(id));
        assert_eq!(found.next_back(), expected.next_back().map(id));
    }
}

fn compare(left: &Twin, right: &Twin) {
    let ((a, b), (x, y)) = ((&left.set, &right.set), (&left.model, &right.model));
    let shared = x.intersection(y);
    assert_eq!(a == b, x == y);
    assert_eq!(a.is_subset(b), shared == *x);
    assert_eq!(a.is_superset(b), shared == *y);
    assert_eq!(a.is_disjoint(b), shared.is_empty());
    assert_eq!(a.intersects(b), !shared.is_empty());
    assert_eq!(a.intersection_len(b), shared.len());
    // Sequences of ids differ first at the lowest id that only one has, unless the other ends before it.
    let first = x.symmetric_difference(y).ids().next();
    let order = match first {
        None => std::cmp::Ordering::Equal,
        Some(id) => {
            let (has, lacks) = if x.contains(id) { (x, y) } else { (y, x) };
            let ends = lacks.below(id) == lacks.len();
            let order = if ends {
                has.len().cmp(&lacks.len())
            } else {
                std::cmp::Ordering::Less
            };
            if x.contains(id) {
                order
            } else {
                order.reverse()
            }
        }
    };
    assert_eq!(a.cmp(b), order, "{a} {b}");
}
