//! Natural order.
use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::entry::Entry;
use crate::error::Limit;
use crate::intervals::Interval;
use crate::order::{order, sort as sort_numbers};
use crate::piece::{Keys, Pieces, each_span};
use crate::stem::{Number, Stem};
use crate::stems::{Renumber, Stems};
use crate::{Error, Hostlist};

/// The greatest number of ranges into which sorting may split those of a list.
const MAX_PIECES: usize = 1 << 24;

/// Compares texts in natural order: runs of digits as numbers.
pub(crate) fn natural(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    while let (Some(a), Some(b)) = (left.first(), right.first()) {
        let (mut m, mut n) = (run(left), run(right));
        let order = if m > 0 && n > 0 {
            let (p, q) = (significant(&left[..m]), significant(&right[..n]));
            let order = p.len().cmp(&q.len()).then_with(|| p.cmp(q));
            order.then(m.cmp(&n))
        } else {
            (m, n) = (1, 1);
            a.cmp(b)
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (&left[m..], &right[n..]);
    }
    left.len().cmp(&right.len())
}

/// The number of leading digits.
fn run(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count()
}

/// Digits without leading zeroes.
fn significant(digits: &[u8]) -> &[u8] {
    let zeroes = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeroes..]
}

/// A piece with its sort key: prefix, number, digits, suffix, position. The fields are in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    prefix: u32,
    lo: u64,
    suffix_key: SuffixKey,
    hi: u64,
    /// Index of its entry.
    entry: usize,
}

/// The sort key of hosts with the same prefix and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SuffixKey {
    len: u8,
    suffix: u32,
    at: usize,
}

impl SuffixKey {
    /// The parts of a name that differ between hosts with the same prefix and number.
    fn name(self) -> (u8, u32) {
        (self.len, self.suffix)
    }
}

/// Emits overlapping items number by number, and others whole.
struct Sweep<'a> {
    from: &'a Hostlist,
    out: Hostlist,
    renumber: Renumber,
}

impl Sweep<'_> {
    /// Items of one prefix in ascending order, each of which overlaps the ones before.
    fn cluster(&mut self, items: &[Item]) {
        if let [item] = items {
            let Item { lo, hi, .. } = *item;
            return self.put(item, Interval { lo, hi });
        }
        let mut items = items.iter().copied().peekable();
        let mut active: Vec<Item> = Vec::new();
        let mut from = 0;
        loop {
            if active.is_empty() {
                match items.peek() {
                    Some(item) => from = item.lo,
                    None => return,
                }
            }
            while let Some(item) = items.next_if(|item| item.lo == from) {
                let place = active.partition_point(|other| other.suffix_key < item.suffix_key);
                active.insert(place, item);
            }
            let last = active.iter().map(|item| item.hi).min().unwrap_or(from);
            let last = items.peek().map_or(last, |next| last.min(next.lo - 1));
            let numbers = Interval { lo: from, hi: last };
            self.stretch(&active, numbers);
            active.retain(|item| item.hi > last);
            from = last.saturating_add(1);
        }
    }

    /// Some numbers of items that all have them.
    fn stretch(&mut self, active: &[Item], numbers: Interval) {
        if let [item] = active {
            return self.put(item, numbers);
        }
        for number in numbers.lo..=numbers.hi {
            let mut before = None;
            for item in active {
                let name = item.suffix_key.name();
                if before == Some(name) {
                    self.out.repeat_last();
                } else {
                    self.put(item, Interval::one(number));
                }
                before = Some(name);
            }
        }
    }

    /// Some numbers of an item.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a list has no more hosts than fit"
    )]
    fn put(&mut self, item: &Item, Interval { lo, hi }: Interval) {
        let entry = &self.from.entries[item.entry];
        let (skipped, len) = ((lo - item.lo) as usize, (hi - lo) as usize + 1);
        let start = item.suffix_key.at + skipped - entry.start();
        let part = if len == entry.len() {
            *entry
        } else {
            entry.slice(start..start + len)
        };
        self.out.append_of(self.from, part, &mut self.renumber);
    }
}

/// The clusters of ordered items: each item overlaps one before it in its cluster, and none of another cluster.
fn clusters(items: &[Item]) -> impl Iterator<Item = &[Item]> {
    let mut rest = items;
    std::iter::from_fn(move || {
        let (first, others) = rest.split_first()?;
        let mut hi = first.hi;
        let more = others.iter().take_while(|item| {
            let overlaps = item.prefix == first.prefix && item.lo <= hi;
            hi = hi.max(item.hi);
            overlaps
        });
        let (cluster, after) = rest.split_at(1 + more.count());
        rest = after;
        Some(cluster)
    })
}

/// The number of parts that [`Sweep::cluster`] emits: each number of each item, but a stretch of one item as a whole.
fn count_parts(cluster: &[Item]) -> u64 {
    if let [_] = cluster {
        return 1;
    }
    let mut ends: Vec<u64> = cluster.iter().map(|item| item.hi).collect();
    ends.sort_unstable();
    let mut starts = cluster.iter().map(|item| item.lo).peekable();
    let (mut active, mut from, mut parts) = (0_u64, 0, 0_u64);
    for end in ends {
        let after = end.saturating_add(1);
        while let Some(start) = starts.next_if(|start| *start < after) {
            parts = parts.saturating_add(count_stretch(active, start - from));
            (active, from) = (active + 1, start);
        }
        parts = parts.saturating_add(count_stretch(active, after - from));
        (active, from) = (active - 1, after);
    }
    parts
}

/// The number of parts of a stretch of `numbers` that `items` items cover.
fn count_stretch(items: u64, numbers: u64) -> u64 {
    match (items, numbers) {
        (0, _) | (_, 0) => 0,
        (1, _) => 1,
        _ => items.saturating_mul(numbers),
    }
}

/// The place of a stem in natural order.
#[derive(Clone, Copy, Default)]
struct StemOrder {
    /// The place of its prefix, which stems may share.
    prefix: u32,
    stem: u32,
}

/// The places of stems.
fn places(stems: &[Cow<'_, Stem>]) -> Vec<StemOrder> {
    let mut order: Vec<(u32, &Stem)> = (0..).zip(stems.iter().map(AsRef::as_ref)).collect();
    order.sort_by(|(_, a), (_, b)| {
        natural(a.prefix(), b.prefix()).then_with(|| natural(a.suffix(), b.suffix()))
    });
    let mut places = vec![StemOrder::default(); stems.len()];
    let (mut group, mut before) = (0, None);
    for (place, (stem, parts)) in (0..).zip(order) {
        if before != Some(parts.prefix()) {
            (group, before) = (place, Some(parts.prefix()));
        }
        places[stem as usize] = StemOrder {
            prefix: group,
            stem: place,
        };
    }
    places
}

/// Average number of hosts per piece up to which hosts are sorted one by one.
const MAX_HOSTS_PER_PIECE: usize = 8;

/// Sorts a list of mostly single hosts by sorting their packed numbers. `None` if it is not such a list, or if the
/// numbers are too large.
#[expect(
    clippy::cast_possible_truncation,
    reason = "an unpacked value is no larger than before packing"
)]
fn points(list: &Hostlist) -> Option<Hostlist> {
    let mixed = |entry: &Entry| !entry.is_single() && !list.stems.get(entry.stem).is_plain();
    if list.len() > list.entries.len().saturating_mul(MAX_HOSTS_PER_PIECE)
        || list.entries.iter().any(mixed)
    {
        return None;
    }
    let mut keys = Keys::default();
    let mut pieces = Vec::with_capacity(list.entries.len());
    // For each stem the first entry with it.
    let mut firsts = Vec::new();
    each_span(list.as_runs(), &mut keys, |key, span| {
        if key.stem as usize == firsts.len() {
            firsts.push(span.entry);
        }
        pieces.push((key.stem, key.len, span.numbers.lo, span.numbers.hi));
    });
    let stems = keys.stems().iter().zip(firsts);
    let shared: Vec<Arc<Stem>> = stems
        .map(|(stem, entry)| match stem {
            Cow::Borrowed(_) => {
                let number = list.entries[entry].stem;
                Arc::clone(&list.stems.as_slice()[number as usize])
            }
            Cow::Owned(stem) => Arc::new(stem.clone()),
        })
        .collect();
    let places = places(keys.stems());
    let mut by_place: Vec<u32> = vec![0; shared.len()];
    for (stem, place) in (0..).zip(places.iter().map(|place| place.stem)) {
        by_place[place as usize] = stem;
    }
    let width = |most: u64| u64::BITS - most.leading_zeros();
    let stem_bits = width(shared.len() as u64);
    let value_bits = width(pieces.iter().fold(0, |most, piece| most | piece.3));
    // Stems of one prefix are adjacent: they share the position of the first.
    let (len_bits, bits) = (5, 2 * stem_bits + value_bits + 5);
    if bits > u64::BITS {
        return None;
    }
    let mut packed: Vec<u64> = Vec::with_capacity(list.len());
    for &(stem, len, lo, hi) in &pieces {
        let StemOrder {
            prefix: group,
            stem: place,
        } = places[stem as usize];
        for value in lo..=hi {
            let front = (u64::from(group) << value_bits) | value;
            packed.push((((front << len_bits) | u64::from(len)) << stem_bits) | u64::from(place));
        }
    }
    sort_numbers(&mut packed, 0, bits);
    let low = |packed: u64, bits: u32| packed & ((1 << bits) - 1);
    let mut sorted = Hostlist::new();
    sorted.stems = Stems::from(shared);
    let mut run: Option<(u64, Entry)> = None;
    for packed in packed {
        let place = low(packed, stem_bits);
        let value = low(packed >> (stem_bits + len_bits), value_bits);
        let len = low(packed >> stem_bits, len_bits) as u8;
        let number = Number { value, len };
        match &mut run {
            Some((other, entry)) if *other == place && entry.precedes(number) => entry.extend(1),
            _ => {
                let stem = by_place[place as usize];
                let is_numbered = sorted.stems.get(stem).is_numbered();
                let entry = Entry::new(stem, is_numbered.then_some(number));
                if let Some((_, done)) = run.replace((place, entry)) {
                    sorted.append_part(done);
                }
            }
        }
    }
    if let Some((_, done)) = run {
        sorted.append_part(done);
    }
    sorted.trim_stems();
    Some(sorted)
}

/// The pieces of a list in their order.
fn ordered(list: &Hostlist) -> Vec<Item> {
    let mut keys = Keys::default();
    let mut items: Vec<Item> = Vec::with_capacity(list.entries.len());
    items.extend(Pieces::new(list.as_runs()).map(|piece| Item {
        prefix: keys.key(&piece).stem,
        lo: piece.lo,
        suffix_key: SuffixKey {
            len: piece.len,
            suffix: 0,
            at: piece.at,
        },
        hi: piece.hi,
        entry: piece.entry,
    }));
    let places = places(keys.stems());
    for item in &mut items {
        let place = places[item.prefix as usize];
        (item.prefix, item.suffix_key.suffix) = (place.prefix, place.stem);
    }
    // The pieces come in the order of their positions.
    let order = order(&items, |item| {
        let SuffixKey { len, suffix, .. } = item.suffix_key;
        [item.prefix.into(), item.lo, len.into(), suffix.into()]
    });
    order.into_iter().map(|index| items[index]).collect()
}

impl Hostlist {
    /// Sorts in natural order: by prefix (runs of digits in it as numbers), number, its width, suffix. Repeats stay.
    ///
    /// # Errors
    ///
    /// Fails if overlapping ranges would split into more than 16,777,216 parts, and into more than twice as many as
    /// there are ranges; the list is unchanged.
    pub fn sort(&mut self) -> Result<(), Error> {
        if let Some(sorted) = points(self) {
            *self = sorted;
            return Ok(());
        }
        let items = ordered(self);
        let parts = clusters(&items)
            .map(count_parts)
            .fold(0, u64::saturating_add);
        let most = MAX_PIECES.max(items.len().saturating_mul(2));
        let parts = usize::try_from(parts).ok().filter(|parts| *parts <= most);
        let parts = parts.ok_or_else(|| Error::limit(Limit::Sorted))?;
        let mut out = Self::new();
        // Not every allocator can grow a list without a copy.
        out.reserve(parts);
        let renumber = out.renumber(self, self.entries.len());
        let mut sweep = Sweep {
            from: self,
            out,
            renumber,
        };
        for cluster in clusters(&items) {
            sweep.cluster(cluster);
        }
        debug_assert!(sweep.out.runs() <= parts, "the parts are counted");
        sweep.out.trim_stems();
        *self = sweep.out;
        Ok(())
    }
}
