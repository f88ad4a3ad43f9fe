//! The form for sets beyond the lowest ids: chunks of 65,536 ids, without the empty ones.
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::algebra;
use crate::body::{Body, Counted};
use crate::op::Op;
use crate::run::{CHUNK_IDS, CHUNK_WORDS, Run};

/// The ids `lo..=hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) lo: u32,
    pub(crate) hi: u32,
}

impl Span {
    pub(crate) const EMPTY: Self = Self { lo: 1, hi: 0 };
}

impl From<&RangeInclusive<u32>> for Span {
    fn from(range: &RangeInclusive<u32>) -> Self {
        Self {
            lo: *range.start(),
            hi: *range.end(),
        }
    }
}

/// The chunk number and the id in that chunk.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what is meant"
)]
pub(crate) fn place(id: u32) -> (u32, u16) {
    (id >> 16, id as u16)
}

pub(crate) fn id(key: u32, low: u16) -> u32 {
    key << 16 | u32::from(low)
}

/// The contents of the chunks `key..=last`, which are more than one only if all are full.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) key: u32,
    pub(crate) last: u32,
    /// Ids in each chunk.
    count: u32,
    pub(crate) body: Body,
}

impl Chunk {
    pub(crate) fn new(key: u32, body: Body) -> Self {
        let count = body.count();
        Self::with_count(key, body, count)
    }

    pub(crate) fn with_count(key: u32, body: Body, count: u32) -> Self {
        Self {
            key,
            last: key,
            count,
            body,
        }
    }

    fn full(key: u32, last: u32) -> Self {
        Self {
            key,
            last,
            count: CHUNK_IDS,
            body: Body::Full,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        u64::from(self.count) * u64::from(self.last - self.key + 1)
    }

    fn counted(&self) -> Counted<'_> {
        Counted {
            body: &self.body,
            count: self.count,
        }
    }

    fn is_full(&self) -> bool {
        matches!(self.body, Body::Full)
    }

    /// The span of a run of the body; of all chunks of the entry if they are full.
    pub(crate) fn span(&self, run: Run) -> Span {
        Span {
            lo: id(self.key, run.lo),
            hi: id(self.last, run.hi),
        }
    }
}

/// Chunks in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
    count: u64,
}

impl Chunks {
    pub(crate) fn as_slice(&self) -> &[Chunk] {
        &self.chunks
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let bodies: usize = self
            .chunks
            .iter()
            .map(|chunk| chunk.body.heap_bytes())
            .sum();
        self.chunks.capacity() * size_of::<Chunk>() + bodies
    }

    /// Bytes on the heap, estimated from the numbers of ids and of chunks.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        let chunks = self.chunks.len() as u64;
        // The form of a chunk is chosen with at most four bytes for an id.
        let bodies = (8 * CHUNK_WORDS as u64 * chunks).min(4 * self.count);
        size_of::<Chunk>() as u64 * chunks + bodies
    }

    /// Releases the spare capacity.
    pub(crate) fn shrink(&mut self) {
        self.chunks.shrink_to_fit();
    }

    /// Appends a chunk that lies above all others.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.count += chunk.len();
        if chunk.is_full()
            && let Some(before) = self.chunks.last_mut()
            && before.is_full()
            && before.last + 1 == chunk.key
        {
            before.last = chunk.last;
            return;
        }
        self.chunks.push(chunk);
    }

    pub(crate) fn push_full(&mut self, key: u32, last: u32) {
        self.push(Chunk::full(key, last));
    }

    /// Index of the first chunk that is, or goes on to, `key` or above.
    pub(crate) fn at(&self, key: u32) -> usize {
        // Mostly there is a chunk for every key: then no search is needed.
        let first = self.chunks.first().map_or(0, |chunk| chunk.key);
        let guess = key.wrapping_sub(first) as usize;
        match self.chunks.get(guess) {
            Some(chunk) if chunk.key == key => guess,
            _ => self.chunks.partition_point(|chunk| chunk.last < key),
        }
    }

    #[inline(never)]
    fn get(&self, key: u32) -> Option<&Chunk> {
        let first = self.chunks.first()?;
        match self.chunks.get(key.saturating_sub(first.last) as usize) {
            Some(chunk) if chunk.key <= key && key <= chunk.last => Some(chunk),
            _ => {
                let chunk = self.chunks.get(self.at(key))?;
                (chunk.key <= key).then_some(chunk)
            }
        }
    }

    #[inline]
    pub(crate) fn contains(&self, id: u32) -> bool {
        let (key, low) = place(id);
        // Mostly there is a chunk for every key from 0 on, or the first entry has almost all ids: then no search is needed, nor
        // a branch that depends on the id.
        let chunk = match (self.chunks.get(key as usize), self.chunks.first()) {
            (Some(chunk), _) if chunk.key == key => Some(chunk),
            (_, Some(chunk)) if chunk.key <= key && key <= chunk.last => Some(chunk),
            _ => self.get(key),
        };
        chunk.is_some_and(|chunk| chunk.body.contains(low))
    }

    /// The first id at or after `id`.
    pub(crate) fn at_or_after(&self, id: u32) -> Option<u32> {
        let (key, low) = place(id);
        let index = self.at(key);
        let chunk = self.chunks.get(index)?;
        if chunk.key > key {
            return Some(self::id(chunk.key, chunk.body.first()));
        }
        if let Some(run) = chunk.body.run_from(low) {
            return Some(self::id(key, run.lo.max(low)));
        }
        let chunk = self.chunks.get(index + 1)?;
        Some(self::id(chunk.key, chunk.body.first()))
    }

    /// Appends the ids at or after `id`, until there are `max`.
    pub(crate) fn append_ids(&self, id: u32, ids: &mut Vec<u32>, max: usize) {
        let (first, low) = place(id);
        for chunk in &self.chunks[self.at(first)..] {
            for key in chunk.key.max(first)..=chunk.last {
                if ids.len() == max {
                    return;
                }
                let low = if key == first { low } else { 0 };
                chunk.body.append_ids(low, self::id(key, 0), ids, max);
            }
        }
    }

    /// The last span that starts at or before `id`: not yet joined with those that it touches in other chunks, and
    /// perhaps cut off above `id`.
    pub(crate) fn span_back(&self, id: u32) -> Option<Span> {
        let (key, low) = place(id);
        let index = self.chunks.partition_point(|chunk| chunk.key <= key);
        let chunk = self.chunks.get(index.checked_sub(1)?)?;
        if chunk.last < key {
            let run = chunk.body.run_back(u16::MAX)?;
            return Some(chunk.span(run));
        }
        if let Some(run) = chunk.body.run_back(low) {
            return Some(chunk.span(run));
        }
        let chunk = self.chunks.get(index.checked_sub(2)?)?;
        Some(chunk.span(chunk.body.run_back(u16::MAX)?))
    }

    /// The number of ids below `id`.
    pub(crate) fn count_below(&self, id: u32) -> u64 {
        let (key, low) = place(id);
        let index = self.at(key);
        let whole: u64 = self.chunks[..index].iter().map(Chunk::len).sum();
        let part = match self.chunks.get(index) {
            Some(chunk) if chunk.key <= key => {
                u64::from(key - chunk.key) * u64::from(CHUNK_IDS)
                    + u64::from(chunk.body.count_below(low))
            }
            _ => 0,
        };
        whole + part
    }

    /// The id with `n` ids below it.
    pub(crate) fn nth(&self, mut n: u64) -> Option<u32> {
        for chunk in &self.chunks {
            if n < chunk.len() {
                let skipped = u32::try_from(n / u64::from(chunk.count)).ok()?;
                let rest = u32::try_from(n % u64::from(chunk.count)).ok()?;
                return Some(id(chunk.key + skipped, chunk.body.nth(rest)?));
            }
            n -= chunk.len();
        }
        None
    }

    /// Adds an id. Returns whether it was new.
    pub(crate) fn insert(&mut self, id: u32) -> bool {
        let (key, low) = place(id);
        let index = self.at(key);
        match self.chunks.get_mut(index) {
            Some(chunk) if chunk.key <= key => {
                if !chunk.body.insert(low) {
                    return false;
                }
                chunk.count += 1;
                if chunk.count == CHUNK_IDS && matches!(chunk.body, Body::Bits(_)) {
                    chunk.body = Body::Full;
                }
            }
            _ => {
                let body = Body::Ids(vec![low]);
                self.chunks.insert(index, Chunk::new(key, body));
            }
        }
        self.count += 1;
        true
    }

    /// Adds the ids of a span.
    pub(crate) fn insert_span(&mut self, span: Span) {
        let ((key, lo), (last, hi)) = (place(span.lo), place(span.hi));
        if key == last {
            self.insert_run(key, Run { lo, hi });
            return;
        }
        self.insert_run(key, Run { lo, hi: u16::MAX });
        if key + 1 < last {
            self.fill(key + 1, last - 1);
        }
        self.insert_run(last, Run { lo: 0, hi });
    }

    fn insert_run(&mut self, key: u32, run: Run) {
        if run == Run::ALL {
            self.fill(key, key);
            return;
        }
        let index = self.at(key);
        match self.chunks.get_mut(index) {
            Some(chunk) if chunk.key <= key => {
                let new = run.count() - chunk.body.count_in(run);
                if new > 0 {
                    chunk.body.insert_run(run);
                    chunk.count += new;
                    self.count += u64::from(new);
                    if chunk.count == CHUNK_IDS {
                        self.fill(key, key);
                    }
                }
            }
            _ => {
                let body = Body::from_runs(&[run], run.count());
                self.chunks.insert(index, Chunk::new(key, body));
                self.count += u64::from(run.count());
            }
        }
    }

    /// Makes the chunks `key..=last` full, in one with full ones beside them.
    fn fill(&mut self, mut key: u32, mut last: u32) {
        let mut from = self.at(key);
        let mut to = self.chunks.partition_point(|chunk| chunk.key <= last);
        if let Some(before) = from.checked_sub(1)
            && self.chunks[before].is_full()
            && self.chunks[before].last + 1 == key
        {
            from = before;
        }
        if let Some(after) = self.chunks.get(to)
            && after.is_full()
            && after.key == last + 1
        {
            to += 1;
        }
        for chunk in &self.chunks[from..to] {
            self.count -= chunk.len();
            if chunk.is_full() {
                key = key.min(chunk.key);
                last = last.max(chunk.last);
            }
        }
        let full = Chunk::full(key, last);
        self.count += full.len();
        self.chunks.splice(from..to, [full]);
    }

    /// Removes the ids of a span.
    pub(crate) fn remove_span(&mut self, span: Span) {
        let ((key, lo), (last, hi)) = (place(span.lo), place(span.hi));
        if key == last {
            self.remove_run(key, Run { lo, hi });
            return;
        }
        self.remove_run(key, Run { lo, hi: u16::MAX });
        self.remove_run(last, Run { lo: 0, hi });
        if key + 1 < last {
            self.cut_before(key + 1);
            self.cut_before(last);
            let (from, to) = (self.at(key + 1), self.at(last));
            for gone in self.chunks.drain(from..to) {
                self.count -= gone.len();
            }
        }
    }

    fn remove_run(&mut self, key: u32, run: Run) {
        let mut index = self.at(key);
        let Some(chunk) = self.chunks.get(index).filter(|chunk| chunk.key <= key) else {
            return;
        };
        if chunk.key < key || key < chunk.last {
            self.cut_before(key);
            self.cut_before(key + 1);
            index = self.at(key);
        }
        let chunk = &mut self.chunks[index];
        let gone = chunk.body.count_in(run);
        self.count -= u64::from(gone);
        if gone == chunk.count {
            self.chunks.remove(index);
        } else if gone > 0 {
            chunk.count -= gone;
            chunk.body.remove_run(run);
            if let Body::Bits(words) = &mut chunk.body
                && (chunk.count as usize) < words.len()
                && let Some(body) = Body::from_words(core::mem::take(words), chunk.count)
            {
                chunk.body = body;
            }
        }
    }

    /// Removes and returns the lowest id, if nothing but its chunk's body changes by that.
    pub(crate) fn pop_first(&mut self) -> Option<u32> {
        let chunk = self.chunks.first_mut()?;
        let words = match &chunk.body {
            Body::Bits(words) => words.len(),
            _ => 1,
        };
        // After the last id of a chunk, or with few ids in a bitmap, more has to change.
        if chunk.count as usize <= words.max(1) {
            return None;
        }
        let low = chunk.body.pop_first()?;
        chunk.count -= 1;
        self.count -= 1;
        Some(id(chunk.key, low))
    }

    /// Splits the entry that holds both the chunk `key` and the one before.
    fn cut_before(&mut self, key: u32) {
        let index = self.at(key);
        if let Some(chunk) = self.chunks.get_mut(index)
            && chunk.key < key
        {
            let tail = Chunk::full(key, chunk.last);
            chunk.last = key - 1;
            self.chunks.insert(index + 1, tail);
        }
    }

    /// The chunks of the ids `lo..=hi`, with the first and the last cut to these ids.
    pub(crate) fn within(&self, span: Span) -> Self {
        let ((key, lo), (last, hi)) = (place(span.lo), place(span.hi));
        let (from, to) = (
            self.at(key),
            self.chunks.partition_point(|chunk| chunk.key <= last),
        );
        let mut part = Self::default();
        for chunk in self.chunks.get(from..to).unwrap_or(&[]) {
            part.push(Chunk {
                key: chunk.key.max(key),
                last: chunk.last.min(last),
                ..chunk.clone()
            });
        }
        if let Some(before) = lo.checked_sub(1) {
            part.remove_run(key, Run { lo: 0, hi: before });
        }
        if let Some(after) = hi.checked_add(1) {
            part.remove_run(
                last,
                Run {
                    lo: after,
                    hi: u16::MAX,
                },
            );
        }
        part
    }

    /// Applies an operation chunk by chunk.
    pub(crate) fn combine(op: Op, left: &Self, right: &Self) -> Self {
        let mut result = Self::default();
        for pair in Pairs::new(left, right, op) {
            match (pair.left, pair.right) {
                (Some(a), Some(b)) => {
                    if let Some((body, count)) = op.apply(a.counted(), b.counted()) {
                        result.push(Chunk {
                            last: pair.last,
                            ..Chunk::with_count(pair.key, body, count)
                        });
                    }
                }
                (Some(one), None) | (None, Some(one)) => {
                    if op.keeps(pair.left.is_some(), pair.right.is_some()) {
                        result.push(Chunk {
                            key: pair.key,
                            last: pair.last,
                            ..one.clone()
                        });
                    }
                }
                (None, None) => {}
            }
        }
        result
    }

    /// Whether there is an id that both have.
    pub(crate) fn intersects(&self, other: &Self) -> bool {
        Pairs::new(self, other, Op::Intersection).any(|pair| match (pair.left, pair.right) {
            (Some(a), Some(b)) => algebra::intersects(&a.body, &b.body),
            _ => false,
        })
    }

    /// Whether the other has all ids of this.
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        Pairs::new(self, other, Op::Difference).all(|pair| match (pair.left, pair.right) {
            (Some(a), Some(b)) => algebra::is_subset(&a.body, &b.body),
            (left, _) => left.is_none(),
        })
    }

    /// The counts are right, the chunks in order, and none without ids.
    pub(crate) fn check(&self) {
        let mut before: Option<&Chunk> = None;
        for chunk in &self.chunks {
            assert!(before.is_none_or(|before| before.last < chunk.key));
            assert!(chunk.key <= chunk.last && chunk.last < 1 << 16);
            assert!(chunk.key == chunk.last || chunk.is_full());
            assert!(chunk.count > 0 && chunk.count == chunk.body.count());
            if let Body::Bits(words) = &chunk.body {
                assert!(words.len() <= crate::run::CHUNK_WORDS && words.last() != Some(&0));
            }
            before = Some(chunk);
        }
        assert_eq!(self.count, self.chunks.iter().map(Chunk::len).sum::<u64>());
    }
}

impl PartialEq for Chunks {
    /// Equality of ids, whatever form they are kept in.
    fn eq(&self, other: &Self) -> bool {
        if self.count != other.count {
            return false;
        }
        let pairs = || self.chunks.iter().zip(&other.chunks);
        // All numbers of ids first, for they are near each other.
        let mut has_same_counts = true;
        let is_aligned = self.chunks.len() == other.chunks.len()
            && pairs().all(|(a, b)| {
                has_same_counts &= a.count == b.count;
                (a.key, a.last) == (b.key, b.last)
            });
        if is_aligned {
            return has_same_counts && pairs().all(|(a, b)| algebra::is_equal(&a.body, &b.body));
        }
        Pairs::new(self, other, Op::Union).all(|pair| match (pair.left, pair.right) {
            (Some(a), Some(b)) => a.count == b.count && algebra::is_equal(&a.body, &b.body),
            _ => false,
        })
    }
}

/// The chunks `key..=last` of two sets; none on a side that has none there.
struct Pair<'a> {
    key: u32,
    last: u32,
    left: Option<&'a Chunk>,
    right: Option<&'a Chunk>,
}

/// Walks two lists of chunks side by side.
struct Pairs<'a> {
    left: &'a [Chunk],
    right: &'a [Chunk],
    from: u32,
    op: Op,
}

impl<'a> Pairs<'a> {
    fn new(left: &'a Chunks, right: &'a Chunks, op: Op) -> Self {
        Self {
            left: &left.chunks,
            right: &right.chunks,
            from: 0,
            op,
        }
    }
}

/// Passes over what ends below `from`.
fn skip(chunks: &mut &[Chunk], from: u32) {
    // Mostly it is the next one; one that is far away is searched for.
    for _ in 0..4 {
        match chunks.split_first() {
            Some((first, rest)) if first.last < from => *chunks = rest,
            _ => return,
        }
    }
    *chunks = &chunks[chunks.partition_point(|chunk| chunk.last < from)..];
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Pair<'a>;

    fn next(&mut self) -> Option<Pair<'a>> {
        let (left, right) = (self.left.first(), self.right.first());
        let a = left.map(|chunk| chunk.key.max(self.from));
        let b = right.map(|chunk| chunk.key.max(self.from));
        let key = match (a, b) {
            (Some(a), Some(b)) => match self.op {
                Op::Intersection => a.max(b),
                Op::Difference => a,
                _ => a.min(b),
            },
            (None, None) => return None,
            (None, _) if matches!(self.op, Op::Intersection | Op::Difference) => return None,
            (_, None) if self.op == Op::Intersection => return None,
            (a, b) => a.or(b)?,
        };
        skip(&mut self.left, key);
        skip(&mut self.right, key);
        let at = |chunks: &'a [Chunk]| chunks.first().filter(|chunk| chunk.key <= key);
        let end = |chunks: &[Chunk]| match chunks.first() {
            Some(chunk) if chunk.key <= key => chunk.last,
            Some(chunk) => chunk.key - 1,
            None => u32::MAX,
        };
        let pair = Pair {
            key,
            last: end(self.left).min(end(self.right)),
            left: at(self.left),
            right: at(self.right),
        };
        self.from = pair.last + 1;
        skip(&mut self.left, self.from);
        skip(&mut self.right, self.from);
        for chunks in [self.left, self.right] {
            if let Some(next) = chunks.first() {
                next.body.prefetch();
            }
        }
        Some(pair)
    }
}
