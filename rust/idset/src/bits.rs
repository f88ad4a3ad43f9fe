//! The bitmap forms: a borrowed view of words that both of them are read through, and the one on the heap.
use crate::spans::Span;
use crate::words::{self, BITS};

/// Consecutive words of the bitmap of all ids, the first of which has the number `start`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits<'a> {
    pub(crate) start: usize,
    pub(crate) words: &'a [u64],
}

impl Bits<'_> {
    /// The id of a bit of the words.
    #[expect(clippy::cast_possible_truncation, reason = "bits lie in the id space")]
    fn id(self, bit: usize) -> u32 {
        (self.start * BITS + bit) as u32
    }

    fn bit(self, id: u32) -> Option<usize> {
        (id as usize).checked_sub(self.start * BITS)
    }

    pub(crate) fn contains(self, id: u32) -> bool {
        self.bit(id)
            .is_some_and(|bit| words::contains(self.words, bit))
    }

    /// The first id at or after `id`.
    pub(crate) fn next(self, id: u32) -> Option<u32> {
        words::next_set(self.words, self.bit(id).unwrap_or(0)).map(|bit| self.id(bit))
    }

    /// The last id at or before `id`.
    pub(crate) fn prev(self, id: u32) -> Option<u32> {
        words::prev_set(self.words, self.bit(id)?).map(|bit| self.id(bit))
    }

    /// The first run that ends at or after `id`, cut off below `id`.
    pub(crate) fn next_run(self, id: u32) -> Option<Span> {
        let first = words::next_set(self.words, self.bit(id).unwrap_or(0))?;
        let last = words::next_clear(self.words, first) - 1;
        Some(Span {
            lo: self.id(first),
            hi: self.id(last),
        })
    }

    /// The last run that starts at or before `id`, cut off above `id`.
    pub(crate) fn prev_run(self, id: u32) -> Option<Span> {
        let last = words::prev_set(self.words, self.bit(id)?)?;
        let first = words::prev_clear(self.words, last).map_or(0, |clear| clear + 1);
        Some(Span {
            lo: self.id(first),
            hi: self.id(last),
        })
    }

    /// How many ids lie below `id`.
    pub(crate) fn rank(self, id: u32) -> u64 {
        self.bit(id).map_or(0, |bit| words::rank(self.words, bit))
    }

    pub(crate) fn nth(self, n: u64) -> Option<u32> {
        words::select(self.words, n).map(|bit| self.id(bit))
    }

    /// The word of that number, in the window or not.
    pub(crate) fn word(self, number: usize) -> u64 {
        number
            .checked_sub(self.start)
            .and_then(|index| self.words.get(index).copied())
            .unwrap_or(0)
    }
}

/// A bitmap on the heap, of at least one id.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    /// The number of the first word.
    start: usize,
    words: Vec<u64>,
    /// Words at the front that are zero, kept as room to grow into; the word after them is not zero, nor is the last.
    room: usize,
    count: u64,
    runs: usize,
}

/// Whether a window of words costs more than listing that many runs.
fn sparse(words: usize, runs: usize) -> bool {
    words > 4 * runs + 16
}

impl Dense {
    /// A bitmap of words of which the first has the number `start`; none if all are zero.
    pub(crate) fn new(start: usize, mut words: Vec<u64>) -> Option<Self> {
        let room = words.iter().position(|&word| word != 0)?;
        trim(&mut words);
        let (count, runs) = (words::count(&words), words::count_runs(&words));
        Some(Self {
            start,
            words,
            room,
            count,
            runs,
        })
    }

    pub(crate) fn bits(&self) -> Bits<'_> {
        Bits {
            start: self.start + self.room,
            words: &self.words[self.room..],
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs
    }

    /// Whether the set has become too thin for this form.
    pub(crate) fn is_sparse(&self) -> bool {
        sparse(self.words.len() - self.room, self.runs)
    }

    /// Adds a span. Refused, and nothing changed, where the window would grow out of proportion.
    pub(crate) fn insert(&mut self, span: Span) -> bool {
        let (first, last) = (span.lo as usize / BITS, span.hi as usize / BITS);
        let (head, end) = (self.start + self.room, self.start + self.words.len());
        if first < head || last >= end {
            let window = end.max(last + 1) - head.min(first);
            if sparse(window, self.runs + 1) {
                return false;
            }
            if first < self.start {
                // Room for as many again: descending insertions shall not move the words each time.
                let grow = (self.start - first).max(self.words.len().min(self.start));
                self.words.splice(0..0, std::iter::repeat_n(0, grow));
                self.start -= grow;
            }
            self.room = head.min(first) - self.start;
            if last >= end {
                self.words.resize(last - self.start + 1, 0);
            }
        }
        self.change(span, words::set);
        true
    }

    /// Takes out a span.
    pub(crate) fn remove(&mut self, span: Span) {
        let window = self.bits();
        let (Some(first), Some(last)) = (window.next(0), window.prev(u32::MAX)) else {
            return;
        };
        let (lo, hi) = (span.lo.max(first), span.hi.min(last));
        if lo > hi {
            return;
        }
        self.change(Span { lo, hi }, words::clear);
        trim(&mut self.words);
        while self.words.get(self.room) == Some(&0) {
            self.room += 1;
        }
        self.room = self.room.min(self.words.len());
    }

    /// Changes the bits of a span inside the window, and corrects the counts by what changed around it.
    fn change(&mut self, span: Span, change: fn(&mut [u64], usize, usize)) {
        let origin = self.start * BITS;
        let (lo, hi) = (span.lo as usize - origin, span.hi as usize - origin);
        // A word more on either side: a run may begin or end at the span's neighbours.
        let from = (lo / BITS).saturating_sub(1);
        let to = (hi / BITS + 2).min(self.words.len());
        let window = &mut self.words[from..to];
        let (count, runs) = (words::count(window), words::count_runs(window));
        change(window, lo - from * BITS, hi - from * BITS);
        self.count = self.count + words::count(window) - count;
        self.runs = self.runs + words::count_runs(window) - runs;
    }
}

/// Drops the zero words at the end.
fn trim(words: &mut Vec<u64>) {
    let end = words.iter().rposition(|&word| word != 0);
    words.truncate(end.map_or(0, |last| last + 1));
}
