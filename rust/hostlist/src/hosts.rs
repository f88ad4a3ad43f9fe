//! Sets of hosts.
use std::hash::{Hash, Hasher};

use crate::entry::Entry;
use crate::hash::Map;
use crate::intervals::{Interval, Intervals};
use crate::piece::Key;
use crate::stem::least_of;

/// A set of hosts.
///
/// It is stored as bits, 64 neighbours to a word, if that costs no more than its ranges; otherwise as intervals.
#[derive(Debug)]
pub(crate) enum Hosts {
    Bits(Bits),
    Intervals(Map<Key, Intervals>),
}

/// Numbers by key, as bits.
#[derive(Debug)]
pub(crate) struct Bits {
    /// For each stem the place of its low numbers without a zero in front, or [`NO_PLACE`].
    plain: Vec<usize>,
    /// For each other key the place of its low numbers.
    places: Map<Key, usize>,
    last: Option<(Key, usize)>,
    /// The low numbers of each key: 64 in a word.
    low: Vec<Vec<u64>>,
    /// The number of words that `low` may still take.
    left: usize,
    /// The other words.
    high: Map<Word, u64>,
}

/// The key of a word, which has the bits of 64 numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    key: Key,
    word: u64,
}

impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.key.stem) << 8 | u64::from(self.key.len));
        state.write_u64(self.word);
    }
}

impl Bits {
    fn new(words: usize) -> Self {
        Self {
            plain: Vec::new(),
            places: Map::default(),
            last: None,
            low: Vec::new(),
            left: words,
            high: Map::default(),
        }
    }

    #[inline]
    fn place(&mut self, key: Key) -> usize {
        match self.last {
            Some((last, place)) if last == key => place,
            _ => self.other_place(key),
        }
    }

    #[inline(never)]
    fn other_place(&mut self, key: Key) -> usize {
        let next = self.low.len();
        let place = if key.len == 0 && key.stem != WHOLE_NAMES {
            let stem = key.stem as usize;
            if self.plain.len() <= stem {
                self.plain.resize(stem + 1, NO_PLACE);
            }
            &mut self.plain[stem]
        } else {
            self.places.entry(key).or_insert(NO_PLACE)
        };
        if *place == NO_PLACE {
            *place = next;
            self.low.push(Vec::new());
        }
        self.last = Some((key, *place));
        *place
    }

    /// The bits of 64 numbers.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the callers' loops over hosts")]
    fn word(&mut self, key: Key, word: u64) -> &mut u64 {
        let place = self.place(key);
        match usize::try_from(word) {
            Ok(index) if index < self.low[place].len() => &mut self.low[place][index],
            _ => self.new_word(place, key, word),
        }
    }

    /// Calls back with each word of the numbers, ascending: its place, which of its bits are theirs, and the bits.
    #[inline]
    fn words(&mut self, key: Key, numbers: Interval, mut call: impl FnMut(u64, u64, &mut u64)) {
        let Interval { mut lo, hi } = numbers;
        loop {
            // Numbers with a zero in front come first, and have another key.
            let (part, _) = key.bit(lo);
            let last = if part.len == 0 {
                hi
            } else {
                hi.min(least_of(key.len) - 1)
            };
            let numbers = Interval { lo, hi: last };
            for word in lo / 64..=last / 64 {
                call(word, mask(word, numbers), self.word(part, word));
            }
            if last == hi {
                break;
            }
            lo = last + 1;
        }
    }

    fn new_word(&mut self, place: usize, key: Key, word: u64) -> &mut u64 {
        let low = &mut self.low[place];
        match usize::try_from(word) {
            // A word that does not fit never will: the words of a key and those left do not become more.
            Ok(index) if index - low.len() < self.left => {
                self.left -= index + 1 - low.len();
                low.resize(index + 1, 0);
                &mut low[index]
            }
            _ => self.high.entry(Word { key, word }).or_default(),
        }
    }
}

impl Hosts {
    /// An empty set that is fit for the hosts of these lists.
    pub(crate) fn sized_for(lists: &[&[Entry]]) -> Self {
        let hosts = lists.iter().filter_map(|list| list.last());
        let hosts: usize = hosts.map(Entry::end).sum();
        let ranges: usize = lists.iter().map(|list| list.len()).sum();
        let most = 2 * ranges + 1024;
        let words = || {
            let entries = lists.iter().copied().flatten();
            entries.map(|entry| entry.len() / 64).sum::<usize>()
        };
        if hosts / 64 <= most || words() <= most {
            Self::Bits(Bits::new(2 * ranges + 64))
        } else {
            Self::Intervals(Map::default())
        }
    }

    /// Adds numbers and hands those of them that are new to `new`, ascending.
    #[inline]
    pub(crate) fn insert(&mut self, key: Key, numbers: Interval, mut new: impl FnMut(Interval)) {
        let Interval { lo, hi } = numbers;
        match self {
            Self::Bits(bits) if lo == hi => {
                let (key, number) = key.bit(lo);
                let (bits, bit) = (bits.word(key, number / 64), 1 << (number % 64));
                if *bits & bit == 0 {
                    *bits |= bit;
                    new(numbers);
                }
            }
            Self::Bits(bits) => {
                bits.words(key, numbers, |word, mask, bits| {
                    let added = mask & !*bits;
                    *bits |= mask;
                    runs(word, added, &mut new);
                });
            }
            Self::Intervals(sets) => sets.entry(key).or_default().insert(numbers, new),
        }
    }

    /// Hands those of some numbers that are in the set to `found`, ascending.
    #[inline]
    pub(crate) fn parts(&mut self, key: Key, numbers: Interval, mut found: impl FnMut(Interval)) {
        let Interval { lo, hi } = numbers;
        match self {
            Self::Bits(bits) if lo == hi => {
                let (key, number) = key.bit(lo);
                if *bits.word(key, number / 64) & (1 << (number % 64)) != 0 {
                    found(numbers);
                }
            }
            Self::Bits(bits) => {
                bits.words(key, numbers, |word, mask, bits| {
                    runs(word, *bits & mask, &mut found);
                });
            }
            Self::Intervals(sets) => {
                let parts = sets
                    .get(&key)
                    .into_iter()
                    .flat_map(|set| set.parts(numbers));
                parts.for_each(found);
            }
        }
    }
}

/// The place of numbers of which none was met.
const NO_PLACE: usize = usize::MAX;
/// The stem of the key of all hosts without a number, whose bits are numbered by their stems.
const WHOLE_NAMES: u32 = u32::MAX;

impl Key {
    /// The key of the bit of a number, and its number: numbers of a stem without a zero in front have one key, whatever
    /// their digits.
    #[inline]
    fn bit(self, number: u64) -> (Self, u64) {
        if self.len == 0 {
            let stem = WHOLE_NAMES;
            return (Self { stem, ..self }, self.stem.into());
        }
        let has_zero = number < least_of(self.len);
        let len = if has_zero { self.len } else { 0 };
        (Self { len, ..self }, number)
    }
}

/// The bits of numbers in a word.
fn mask(word: u64, Interval { lo, hi }: Interval) -> u64 {
    let mut mask = u64::MAX;
    if word == lo / 64 {
        mask &= u64::MAX << (lo % 64);
    }
    if word == hi / 64 {
        mask &= u64::MAX >> (63 - hi % 64);
    }
    mask
}

/// The numbers of the bits of a word.
fn runs(word: u64, mut bits: u64, found: &mut impl FnMut(Interval)) {
    while bits > 0 {
        let first = bits.trailing_zeros();
        let count = (!(bits >> first)).trailing_zeros();
        let lo = word * 64 + u64::from(first);
        found(Interval {
            lo,
            hi: lo + u64::from(count) - 1,
        });
        if first + count == 64 {
            break;
        }
        bits &= u64::MAX << (first + count);
    }
}
