//! Bit operations on slices of words: bit `i` is bit `i % 64` of word `i / 64`.
use alloc::vec::Vec;

use crate::run;
pub(crate) use crate::run::WORD_BITS;
use crate::wide;

/// A word with the bits `from..64` set.
fn high(from: usize) -> u64 {
    u64::MAX << (from % WORD_BITS)
}

/// A word with the bits `0..=to` set.
fn low(to: usize) -> u64 {
    u64::MAX >> (WORD_BITS - 1 - to % WORD_BITS)
}

/// A word with the bits `from..=to` of one word set.
#[inline]
pub(crate) fn between(from: usize, to: usize) -> u64 {
    high(from) & low(to)
}

#[inline]
fn bit_of(word: usize, bit: u32) -> usize {
    word << 6 | bit as usize
}

#[inline]
pub(crate) fn contains(words: &[u64], bit: usize) -> bool {
    words
        .get(bit / WORD_BITS)
        .is_some_and(|word| word >> (bit % WORD_BITS) & 1 == 1)
}

/// The first set bit at or after `from`.
pub(crate) fn next_set(words: &[u64], from: usize) -> Option<usize> {
    let start = from / WORD_BITS;
    let first = words.get(start)? & high(from);
    if first != 0 {
        return Some(bit_of(start, first.trailing_zeros()));
    }
    let skipped = words[start + 1..].iter().position(|&word| word != 0)?;
    let word = start + 1 + skipped;
    Some(bit_of(word, words[word].trailing_zeros()))
}

/// The first clear bit at or after `from`; the bit past the end counts as clear.
pub(crate) fn next_clear(words: &[u64], from: usize) -> usize {
    let start = from / WORD_BITS;
    let Some(&word) = words.get(start) else {
        return from;
    };
    let first = !word & high(from);
    if first != 0 {
        return bit_of(start, first.trailing_zeros());
    }
    let rest = &words[start + 1..];
    match rest.iter().position(|&word| word != u64::MAX) {
        Some(skipped) => bit_of(start + 1 + skipped, rest[skipped].trailing_ones()),
        None => words.len() * WORD_BITS,
    }
}

/// The last set bit at or before `to`.
pub(crate) fn prev_set(words: &[u64], to: usize) -> Option<usize> {
    let to = to.min((words.len() * WORD_BITS).checked_sub(1)?);
    let start = to / WORD_BITS;
    let first = words[start] & low(to);
    if first != 0 {
        return Some(bit_of(start, first.ilog2()));
    }
    let word = words[..start].iter().rposition(|&word| word != 0)?;
    Some(bit_of(word, words[word].ilog2()))
}

/// The last clear bit at or before `to`, which lies in the slice; none if all are set from bit 0 on.
pub(crate) fn prev_clear(words: &[u64], to: usize) -> Option<usize> {
    let start = to / WORD_BITS;
    let first = !words[start] & low(to);
    if first != 0 {
        return Some(bit_of(start, first.ilog2()));
    }
    let word = words[..start].iter().rposition(|&word| word != u64::MAX)?;
    Some(bit_of(word, (!words[word]).ilog2()))
}

/// The number of set bits.
pub(crate) fn count(words: &[u64]) -> u32 {
    wide::count(words)
}

/// The number of set bits in `lo..=hi`.
pub(crate) fn count_in(words: &[u64], lo: usize, hi: usize) -> u32 {
    let (first, last) = (lo / WORD_BITS, hi / WORD_BITS);
    let Some(&head) = words.get(first) else {
        return 0;
    };
    if first == last {
        return (head & high(lo) & low(hi)).count_ones();
    }
    let tail = words.get(last).map_or(0, |word| word & low(hi));
    let middle = &words[first + 1..last.min(words.len()).max(first + 1)];
    (head & high(lo)).count_ones() + count(middle) + tail.count_ones()
}

/// The number of maximal runs of set bits.
pub(crate) fn count_runs(words: &[u64]) -> usize {
    wide::count_runs(words)
}

/// The set bit which has `n` set bits below it.
pub(crate) fn select(words: &[u64], mut n: u32) -> Option<usize> {
    for (index, &word) in words.iter().enumerate() {
        let here = word.count_ones();
        if n < here {
            let mut word = word;
            for _ in 0..n {
                word &= word - 1;
            }
            return Some(bit_of(index, word.trailing_zeros()));
        }
        n -= here;
    }
    None
}

/// Appends the set bits at or after `from`, added to `base`, until there are `max` numbers.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bits of a chunk have 16 bits"
)]
pub(crate) fn append_ones(words: &[u64], from: usize, base: u32, ids: &mut Vec<u32>, max: usize) {
    let start = from / WORD_BITS;
    let mut mask = high(from);
    for (index, &word) in words.iter().enumerate().skip(start) {
        let mut rest = word & mask;
        mask = u64::MAX;
        let first = base + (index * WORD_BITS) as u32;
        while rest != 0 {
            if ids.len() == max {
                return;
            }
            ids.push(first + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
}

/// Iterator over the maximal runs of set bits: first and last bit of each.
#[derive(Clone, Debug)]
pub(crate) struct Runs<'a> {
    words: &'a [u64],
    /// The word to be looked at next.
    next: usize,
    /// The bits at which runs begin or end in the word before it.
    toggles: u64,
    /// Its last bit.
    carry: u64,
}

impl<'a> Runs<'a> {
    /// The runs that end at or after `from`; the first may be cut off below it.
    pub(crate) fn new(words: &'a [u64], from: usize) -> Self {
        let mut runs = Self {
            words,
            next: from / WORD_BITS,
            toggles: 0,
            carry: 0,
        };
        if let Some(&word) = words.get(runs.next) {
            runs.load(word & high(from));
        }
        runs
    }

    fn load(&mut self, word: u64) {
        self.toggles = word ^ (word << 1 | self.carry);
        self.carry = word >> (WORD_BITS - 1);
        self.next += 1;
    }

    fn toggle(&mut self) -> Option<usize> {
        while self.toggles == 0 {
            let &word = self.words.get(self.next)?;
            self.load(word);
        }
        let bit = bit_of(self.next - 1, self.toggles.trailing_zeros());
        self.toggles &= self.toggles - 1;
        Some(bit)
    }
}

impl Iterator for Runs<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let first = self.toggle()?;
        let behind = self.toggle().unwrap_or(self.words.len() * WORD_BITS);
        Some((first, behind - 1))
    }
}

/// Calls back with the first and last bit of every maximal run of set bits.
pub(crate) fn each_run(words: &[u64], mut call: impl FnMut(usize, usize)) {
    let (mut carry, mut first) = (0, 0);
    for (index, &word) in words.iter().enumerate() {
        let mut toggles = word ^ (word << 1 | carry);
        if carry == 1 && toggles != 0 {
            let behind = bit_of(index, toggles.trailing_zeros());
            toggles &= toggles - 1;
            call(first, behind - 1);
        }
        while toggles != 0 {
            first = bit_of(index, toggles.trailing_zeros());
            toggles &= toggles - 1;
            if toggles != 0 {
                let behind = bit_of(index, toggles.trailing_zeros());
                toggles &= toggles - 1;
                call(first, behind - 1);
            }
        }
        carry = word >> (WORD_BITS - 1);
    }
    if carry == 1 {
        call(first, words.len() * WORD_BITS - 1);
    }
}

/// Drops the zero words at the end.
pub(crate) fn trim(words: &mut Vec<u64>) {
    let end = words.iter().rposition(|&word| word != 0);
    words.truncate(end.map_or(0, |last| last + 1));
}

/// Sets the bits `lo..=hi`, which lie in the slice.
pub(crate) fn set(words: &mut [u64], lo: usize, hi: usize) {
    run::change_bits(words, lo, hi, |word, mask| *word |= mask);
}

/// Clears the bits `lo..=hi`, which lie in the slice.
pub(crate) fn clear(words: &mut [u64], lo: usize, hi: usize) {
    run::change_bits(words, lo, hi, |word, mask| *word &= !mask);
}

/// Changes the bits `lo..=hi`, which lie in the slice.
pub(crate) fn flip(words: &mut [u64], lo: usize, hi: usize) {
    run::change_bits(words, lo, hi, |word, mask| *word ^= mask);
}
