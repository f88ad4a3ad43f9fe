//! Sets of the cores, or gpus, of one node, by index; small ones take no heap memory.

use std::ops::Range;

/// A set of indices. It takes no heap memory if it lies within one word or is contiguous; equal
/// sets are equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bits(Form);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// Bits of one word, with their count: counting takes a dozen steps on a processor without an
    /// instruction for it. The word is zero only in the empty set, whose `at` is 0.
    Word { at: u16, len: u8, bits: u64 },
    /// Contiguous indices that lie in more than one word.
    Run { from: u32, len: u32 },
    /// Any other set: the words from `at` on, of which neither the first nor the last is zero.
    Words(Box<Words>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Words {
    at: u32,
    words: Box<[u64]>,
}

/// Indices per word.
pub(crate) const WORD_BITS: u32 = u64::BITS;

/// The number of words for `count` indices.
pub(crate) fn words_for(count: u32) -> u32 {
    count.div_ceil(WORD_BITS)
}

fn as_index(at: u32) -> usize {
    at as usize
}

/// The number of a word.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a node has less than 2^32 cores"
)]
fn number(index: usize) -> u32 {
    index as u32
}

/// The bits from `from` up to, not including, `to`; both are at most 64.
fn mask(from: u32, to: u32) -> u64 {
    let below = |end: u32| 1_u64.checked_shl(end).map_or(u64::MAX, |bit| bit - 1);
    below(to) & !below(from)
}

/// The lowest `count` bits of a word, which has at least that many.
fn lowest_bits(word: u64, count: u32) -> u64 {
    let start = word.trailing_zeros();
    if let Some(end) = start.checked_add(count).filter(|end| *end <= WORD_BITS) {
        let run = mask(start, end);
        if word & run == run {
            return run;
        }
    }
    let mut rest = word;
    for _ in 0..count {
        rest &= rest.wrapping_sub(1);
    }
    word & !rest
}

impl Bits {
    pub const EMPTY: Self = Self(Form::Word {
        at: 0,
        len: 0,
        bits: 0,
    });

    /// The set of `len` bits of one word.
    #[inline]
    fn word(at: u32, len: u32, bits: u64) -> Self {
        match (u16::try_from(at), u8::try_from(len)) {
            _ if bits == 0 => Self::EMPTY,
            (Ok(at), Ok(len)) => Self(Form::Word { at, len, bits }),
            // Beyond the indices of any node.
            _ => Self(Form::Words(Box::new(Words {
                at,
                words: [bits].into(),
            }))),
        }
    }

    /// The first `len` indices.
    pub fn full(len: u32) -> Self {
        Self::run(0, len)
    }

    fn run(from: u32, len: u32) -> Self {
        if len == 0 {
            return Self::EMPTY;
        }
        let (first, last) = (from / WORD_BITS, (from + (len - 1)) / WORD_BITS);
        if first == last {
            let start = from % WORD_BITS;
            return Self::word(first, len, mask(start, start + len));
        }
        Self(Form::Run { from, len })
    }

    /// The set whose words from number `at` on are these.
    fn of_words(at: u32, words: &[u64]) -> Self {
        let Some(first) = words.iter().position(|word| *word != 0) else {
            return Self::EMPTY;
        };
        let last = words.iter().rposition(|word| *word != 0).unwrap_or(first);
        let (at, words) = (at + number(first), &words[first..=last]);
        if let [bits] = words {
            return Self::word(at, bits.count_ones(), *bits);
        }
        let count: u32 = words.iter().map(|word| word.count_ones()).sum();
        let start = words[0].trailing_zeros();
        if run_length(words, start) == count {
            return Self::run(at * WORD_BITS + start, count);
        }
        let words = words.into();
        Self(Form::Words(Box::new(Words { at, words })))
    }

    /// The set of these indices.
    pub fn from_indices(indices: impl IntoIterator<Item = u32>) -> Self {
        let mut words: Vec<u64> = Vec::new();
        for index in indices {
            let at = as_index(index / WORD_BITS);
            if words.len() <= at {
                words.resize(at + 1, 0);
            }
            words[at] |= 1 << (index % WORD_BITS);
        }
        Self::of_words(0, &words)
    }

    /// The lowest `count` indices of words that have at least that many.
    #[inline]
    pub fn lowest(words: &[u64], count: u32) -> Self {
        if count == 0 {
            return Self::EMPTY;
        }
        if let [word] = words {
            return Self::word(0, count, lowest_bits(*word, count));
        }
        Self::lowest_of_many(words, count)
    }

    fn lowest_of_many(words: &[u64], count: u32) -> Self {
        let Some(first) = words.iter().position(|word| *word != 0) else {
            return Self::EMPTY;
        };
        let words = &words[first..];
        let start = words[0].trailing_zeros();
        if run_length(words, start) >= count {
            return Self::run(number(first) * WORD_BITS + start, count);
        }
        let mut left = count;
        let mut taken = Vec::new();
        for word in words {
            let here = word.count_ones().min(left);
            taken.push(if here == 0 {
                0
            } else {
                lowest_bits(*word, here)
            });
            left -= here;
            if left == 0 {
                break;
            }
        }
        Self::of_words(number(first), &taken)
    }

    /// The number of indices in the set.
    #[inline]
    pub fn len(&self) -> u32 {
        match &self.0 {
            Form::Word { len, .. } => u32::from(*len),
            Form::Run { len, .. } => *len,
            Form::Words(words) => words.words.iter().map(|word| word.count_ones()).sum(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Form::Word { bits: 0, .. })
    }

    /// The words of the set, with their numbers.
    pub fn words(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let word = |at: u32| match &self.0 {
            Form::Word { bits, .. } => *bits,
            Form::Run { from, len } => {
                let clip = |end: u32| end.saturating_sub(at * WORD_BITS).min(WORD_BITS);
                mask(clip(*from), clip(from + len))
            }
            Form::Words(words) => words.words[as_index(at - words.at)],
        };
        self.span().map(move |at| (at, word(at)))
    }

    /// The numbers of the words that the set spans.
    fn span(&self) -> Range<u32> {
        match &self.0 {
            Form::Word { bits: 0, .. } => 0..0,
            Form::Word { at, .. } => u32::from(*at)..u32::from(*at) + 1,
            Form::Run { from, len } => from / WORD_BITS..(from + (len - 1)) / WORD_BITS + 1,
            Form::Words(words) => words.at..words.at + number(words.words.len()),
        }
    }

    /// Removes the indices from a node's words. Returns how many of them the words had.
    #[inline]
    pub fn remove_from(&self, words: &mut [u64]) -> u32 {
        if let Form::Word { at, len, bits } = self.0 {
            let Some(word) = words.get_mut(usize::from(at)) else {
                return 0;
            };
            let there = *word & bits;
            *word &= !bits;
            return if there == bits {
                u32::from(len)
            } else {
                there.count_ones()
            };
        }
        let removed = self.words().map(|(at, bits)| {
            let word = &mut words[as_index(at)];
            let had = (*word & bits).count_ones();
            *word &= !bits;
            had
        });
        removed.sum()
    }

    /// Adds the indices to a node's words. Returns how many of them the words did not have.
    #[inline]
    pub fn add_to(&self, words: &mut [u64]) -> u32 {
        if let Form::Word { at, len, bits } = self.0 {
            let Some(word) = words.get_mut(usize::from(at)) else {
                return 0;
            };
            let known = *word & bits;
            *word |= bits;
            return u32::from(len) - if known == 0 { 0 } else { known.count_ones() };
        }
        let added = self.words().map(|(at, bits)| {
            let word = &mut words[as_index(at)];
            let new = (!*word & bits).count_ones();
            *word |= bits;
            new
        });
        added.sum()
    }

    /// Whether a node's words have all indices of the set.
    pub fn is_within(&self, words: &[u64]) -> bool {
        self.words().all(|(at, bits)| {
            words
                .get(as_index(at))
                .is_some_and(|word| word & bits == bits)
        })
    }

    /// The indices that are also in a node's words.
    pub fn intersection(&self, words: &[u64]) -> Self {
        self.map_words(|at, bits| words.get(as_index(at)).map_or(0, |word| bits & word))
    }

    /// The set with each word replaced.
    fn map_words(&self, word: impl Fn(u32, u64) -> u64) -> Self {
        let span = self.span();
        let words: Vec<u64> = self.words().map(|(at, bits)| word(at, bits)).collect();
        Self::of_words(span.start, &words)
    }

    /// The words of the set, from word 0 on.
    fn to_words(&self) -> Vec<u64> {
        let mut words = vec![0; as_index(self.span().end)];
        self.add_to(&mut words);
        words
    }

    pub fn difference(&self, other: &Self) -> Self {
        let words = other.to_words();
        self.map_words(|at, bits| words.get(as_index(at)).map_or(bits, |word| bits & !word))
    }

    pub fn union(&self, other: &Self) -> Self {
        let mut words = self.to_words();
        words.resize(words.len().max(as_index(other.span().end)), 0);
        other.add_to(&mut words);
        Self::of_words(0, &words)
    }

    /// Runs of consecutive indices, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut words = self.words();
        let mut word = words.next();
        std::iter::from_fn(move || {
            let (at, bits) = word?;
            let start = at * WORD_BITS + bits.trailing_zeros();
            let mut end = start;
            let mut current = (at, bits);
            loop {
                let (at, bits) = current;
                let here = end % WORD_BITS;
                let run = (bits >> here).trailing_ones();
                end += run;
                if end.is_multiple_of(WORD_BITS) && run > 0 {
                    match words.next() {
                        Some((next, bits)) if next == at + 1 && bits & 1 == 1 => {
                            current = (next, bits);
                            continue;
                        }
                        next => word = next,
                    }
                } else {
                    let rest = bits & !mask(0, end % WORD_BITS);
                    word = if rest == 0 {
                        words.next()
                    } else {
                        Some((at, rest))
                    };
                }
                break;
            }
            // Words within the span of a set may be zero.
            while matches!(word, Some((_, 0))) {
                word = words.next();
            }
            Some(start..end)
        })
    }
}

/// The number of consecutive set bits from `start`, which is in the first word.
fn run_length(words: &[u64], start: u32) -> u32 {
    let mut len = (words[0] >> start).trailing_ones();
    if len + start < WORD_BITS {
        return len;
    }
    for word in &words[1..] {
        let here = word.trailing_ones();
        len += here;
        if here < WORD_BITS {
            break;
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{Bits, WORD_BITS};

    type Plain = BTreeSet<u32>;

    fn bits(plain: &Plain) -> Bits {
        Bits::from_indices(plain.iter().copied())
    }

    fn plain(bits: &Bits) -> Plain {
        bits.ranges().flatten().collect()
    }

    fn words(plain: &Plain) -> Vec<u64> {
        let mut words = vec![0; 5];
        for index in plain {
            words[(index / WORD_BITS) as usize] |= 1 << (index % WORD_BITS);
        }
        words
    }

    fn sets() -> impl Strategy<Value = Plain> {
        let few = proptest::collection::btree_set(0_u32..320, 0..8);
        let runs = proptest::collection::vec((0_u32..300, 1_u32..150), 0..3).prop_map(|runs| {
            let runs = runs.into_iter();
            runs.flat_map(|(from, len)| from..(from + len).min(320))
                .collect()
        });
        prop_oneof![few, runs]
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(left in sets(), right in sets(), count in 0_u32..320) {
            let (a, b) = (bits(&left), bits(&right));
            prop_assert_eq!(plain(&a), left.clone());
            prop_assert_eq!(a.len() as usize, left.len());
            prop_assert_eq!(a.is_empty(), left.is_empty());
            prop_assert_eq!(a == b, left == right);
            let ranges: Vec<_> = a.ranges().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(a.difference(&b), bits(&(&left - &right)));
            prop_assert_eq!(a.union(&b), bits(&(&left | &right)));
            prop_assert_eq!(a.intersection(&words(&right)), bits(&(&left & &right)));
            prop_assert_eq!(a.is_within(&words(&right)), left.is_subset(&right));

            let mut node = words(&right);
            prop_assert_eq!(a.remove_from(&mut node) as usize, (&left & &right).len());
            prop_assert_eq!(&node, &words(&(&right - &left)));
            prop_assert_eq!(a.add_to(&mut node) as usize, left.len());
            prop_assert_eq!(&node, &words(&(&right | &left)));

            let count = count.min(u32::try_from(left.len()).unwrap());
            let lowest: Plain = left.iter().copied().take(count as usize).collect();
            prop_assert_eq!(Bits::lowest(&words(&left), count), bits(&lowest));
            prop_assert_eq!(Bits::full(count), bits(&(0..count).collect()));
        }
    }

    #[test]
    fn a_set_takes_16_bytes() {
        assert_eq!(size_of::<Bits>(), 16);
    }
}
