//! The form for what is thin or wide: ascending spans in blocks, so that a change in the middle moves few of them.

/// The ids `lo..=hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) lo: u32,
    pub(crate) hi: u32,
}

impl Span {
    pub(crate) fn count(self) -> u64 {
        u64::from(self.hi - self.lo) + 1
    }
}

/// A block that grows beyond this many spans is cut in two.
const FULL: usize = 512;
/// Two neighbours with no more spans than this are joined; also the size of new blocks.
const HALF: usize = FULL / 2;

/// A part of the spans; never empty.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    spans: Vec<Span>,
    count: u64,
}

impl Block {
    fn new(spans: Vec<Span>) -> Self {
        let count = total(&spans);
        Self { spans, count }
    }

    fn lo(&self) -> u32 {
        self.spans.first().map_or(0, |span| span.lo)
    }

    fn hi(&self) -> u32 {
        self.spans.last().map_or(0, |span| span.hi)
    }

    /// Index of the first span that ends at or after `id`.
    fn ending(&self, id: u32) -> usize {
        self.spans.partition_point(|span| span.hi < id)
    }

    /// How many spans start at or before `id`.
    fn started(&self, id: u32) -> usize {
        self.spans.partition_point(|span| span.lo <= id)
    }
}

fn total(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.count()).sum()
}

/// Ascending spans with a gap between any two.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    blocks: Vec<Block>,
    count: u64,
    runs: usize,
}

/// Iterator over spans, from both ends.
pub(crate) type Iter<'a> = std::iter::Chain<
    std::iter::Copied<std::slice::Iter<'a, Span>>,
    std::iter::FlatMap<
        std::slice::Iter<'a, Block>,
        std::iter::Copied<std::slice::Iter<'a, Span>>,
        fn(&'a Block) -> std::iter::Copied<std::slice::Iter<'a, Span>>,
    >,
>;

impl Spans {
    /// From ascending spans with gaps between them.
    pub(crate) fn new(spans: &[Span]) -> Self {
        Self {
            blocks: spans
                .chunks(HALF)
                .map(|part| Block::new(part.to_vec()))
                .collect(),
            count: total(spans),
            runs: spans.len(),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs
    }

    pub(crate) fn last(&self) -> Option<u32> {
        self.blocks.last().map(Block::hi)
    }

    pub(crate) fn first(&self) -> Option<u32> {
        self.blocks.first().map(Block::lo)
    }

    /// Index of the first block that ends at or after `id`.
    fn ending(&self, id: u32) -> usize {
        self.blocks.partition_point(|block| block.hi() < id)
    }

    /// The first span that ends at or after `id`.
    pub(crate) fn at_or_after(&self, id: u32) -> Option<Span> {
        let block = self.blocks.get(self.ending(id))?;
        block.spans.get(block.ending(id)).copied()
    }

    /// The last span that starts at or before `id`.
    pub(crate) fn at_or_before(&self, id: u32) -> Option<Span> {
        let started = self.blocks.partition_point(|block| block.lo() <= id);
        let block = self.blocks.get(started.checked_sub(1)?)?;
        block.spans.get(block.started(id).checked_sub(1)?).copied()
    }

    /// The spans, without those that end before `id`.
    pub(crate) fn iter_from(&self, id: u32) -> Iter<'_> {
        fn spans(block: &Block) -> std::iter::Copied<std::slice::Iter<'_, Span>> {
            block.spans.iter().copied()
        }
        let index = self.ending(id);
        let (first, rest) = match self.blocks.get(index) {
            Some(block) => (&block.spans[block.ending(id)..], &self.blocks[index + 1..]),
            None => (&[][..], &[][..]),
        };
        first
            .iter()
            .copied()
            .chain(rest.iter().flat_map(spans as _))
    }

    /// How many ids lie below `id`.
    pub(crate) fn rank(&self, id: u32) -> u64 {
        let index = self.ending(id);
        let whole: u64 = self.blocks[..index].iter().map(|block| block.count).sum();
        let Some(block) = self.blocks.get(index) else {
            return whole;
        };
        let inner = block.ending(id);
        let part = match block.spans.get(inner) {
            Some(span) if span.lo < id => u64::from(id - span.lo),
            _ => 0,
        };
        whole + total(&block.spans[..inner]) + part
    }

    /// The id with `n` ids below it.
    pub(crate) fn nth(&self, mut n: u64) -> Option<u32> {
        for block in &self.blocks {
            if n >= block.count {
                n -= block.count;
                continue;
            }
            for span in &block.spans {
                match u32::try_from(n) {
                    Ok(step) if n < span.count() => return Some(span.lo + step),
                    _ => n -= span.count(),
                }
            }
        }
        None
    }

    /// Adds a span. Returns whether a block was cut in two: the moment to ask whether this form still fits.
    pub(crate) fn insert(&mut self, span: Span) -> bool {
        // Touching spans join: look one id further on both sides.
        let before = span.lo.saturating_sub(1);
        let after = span.hi.saturating_add(1);
        let i = self.ending(before);
        let j = self.blocks.partition_point(|block| block.lo() <= after);
        if i == j {
            // It lies between two blocks and touches neither.
            let block = i.saturating_sub(1);
            let index = if i == 0 {
                0
            } else {
                self.blocks[block].spans.len()
            };
            return self.replace((block, index), (block, index), &[span]);
        }
        let a = self.blocks[i].ending(before);
        let b = self.blocks[j - 1].started(after);
        let mut joined = span;
        if (i, a) < (j - 1, b) {
            let (first, last) = (self.span(i, a), self.span(j - 1, b - 1));
            joined.lo = joined.lo.min(first.map_or(joined.lo, |span| span.lo));
            joined.hi = joined.hi.max(last.map_or(joined.hi, |span| span.hi));
        }
        self.replace((i, a), (j - 1, b), &[joined])
    }

    /// Takes out a span.
    pub(crate) fn remove(&mut self, span: Span) {
        let i = self.ending(span.lo);
        let j = self.blocks.partition_point(|block| block.lo() <= span.hi);
        if i >= j {
            return;
        }
        let a = self.blocks[i].ending(span.lo);
        let b = self.blocks[j - 1].started(span.hi);
        if (i, a) >= (j - 1, b) {
            return;
        }
        let mut rest = Vec::with_capacity(2);
        if let Some(first) = self.span(i, a)
            && first.lo < span.lo
        {
            rest.push(Span {
                lo: first.lo,
                hi: span.lo - 1,
            });
        }
        if let Some(last) = self.span(j - 1, b - 1)
            && last.hi > span.hi
        {
            rest.push(Span {
                lo: span.hi + 1,
                hi: last.hi,
            });
        }
        self.replace((i, a), (j - 1, b), &rest);
    }

    fn span(&self, block: usize, index: usize) -> Option<Span> {
        self.blocks.get(block)?.spans.get(index).copied()
    }

    /// Replaces the spans from one place up to another, each a block and an index in it.
    fn replace(&mut self, from: (usize, usize), to: (usize, usize), with: &[Span]) -> bool {
        let ((i, a), (j, b)) = (from, to);
        if self.blocks.is_empty() {
            *self = Self::new(with);
            return false;
        }
        let (mut gone, mut gone_runs) = (0, 0);
        if i == j {
            let old = self.blocks[i].spans.splice(a..b, with.iter().copied());
            for span in old {
                gone += span.count();
                gone_runs += 1;
            }
            self.blocks[i].count = self.blocks[i].count - gone + total(with);
        } else {
            let tail = self.blocks[j].spans.split_off(b);
            for block in &mut self.blocks[i + 1..=j] {
                gone += total(&block.spans);
                gone_runs += block.spans.len();
            }
            self.blocks.drain(i + 1..=j);
            let head = &mut self.blocks[i].spans;
            gone += total(&head[a..]);
            gone_runs += head.len() - a;
            head.truncate(a);
            head.extend_from_slice(with);
            self.blocks[i].count = total(&self.blocks[i].spans);
            if !tail.is_empty() {
                self.blocks.insert(i + 1, Block::new(tail));
            }
        }
        self.count = self.count + total(with) - gone;
        self.runs = self.runs + with.len() - gone_runs;
        self.balance(i)
    }

    /// Cuts a block that has grown too long, joins or drops one that has become short.
    fn balance(&mut self, i: usize) -> bool {
        let spans = self.blocks[i].spans.len();
        if spans > FULL {
            let tail = Block::new(self.blocks[i].spans.split_off(HALF));
            self.blocks[i].count -= tail.count;
            self.blocks.insert(i + 1, tail);
            return true;
        }
        let next = self.blocks.get(i + 1).map(|block| block.spans.len());
        if spans == 0 {
            self.blocks.remove(i);
        } else if next.is_some_and(|next| spans + next <= HALF) {
            let next = self.blocks.remove(i + 1);
            self.blocks[i].spans.extend_from_slice(&next.spans);
            self.blocks[i].count += next.count;
        }
        false
    }
}

#[cfg(test)]
impl Spans {
    /// The blocks are neither empty nor too long, and the counts are right.
    pub(crate) fn check(&self) {
        for block in &self.blocks {
            assert!((1..=FULL).contains(&block.spans.len()));
            assert_eq!(block.count, total(&block.spans));
        }
        let runs: usize = self.blocks.iter().map(|block| block.spans.len()).sum();
        assert_eq!(self.runs, runs);
        let count: u64 = self.blocks.iter().map(|block| block.count).sum();
        assert_eq!(self.count, count);
    }
}
