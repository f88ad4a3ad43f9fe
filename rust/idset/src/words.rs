//! Bit operations on slices of words: bit `i` is bit `i % 64` of word `i / 64`.

/// Bits in a word.
pub(crate) const BITS: usize = 64;

/// A word with the bits `from..64` set.
fn high(from: usize) -> u64 {
    u64::MAX << (from % BITS)
}

/// A word with the bits `0..=to` set.
fn low(to: usize) -> u64 {
    u64::MAX >> (BITS - 1 - to % BITS)
}

fn bit_of(word: usize, bit: u32) -> usize {
    word * BITS + bit as usize
}

pub(crate) fn contains(words: &[u64], bit: usize) -> bool {
    words
        .get(bit / BITS)
        .is_some_and(|word| word >> (bit % BITS) & 1 == 1)
}

/// The first set bit at or after `from`.
pub(crate) fn next_set(words: &[u64], from: usize) -> Option<usize> {
    let start = from / BITS;
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
    let start = from / BITS;
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
        None => words.len() * BITS,
    }
}

/// The last set bit at or before `to`.
pub(crate) fn prev_set(words: &[u64], to: usize) -> Option<usize> {
    let to = to.min((words.len() * BITS).checked_sub(1)?);
    let start = to / BITS;
    let first = words[start] & low(to);
    if first != 0 {
        return Some(bit_of(start, first.ilog2()));
    }
    let word = words[..start].iter().rposition(|&word| word != 0)?;
    Some(bit_of(word, words[word].ilog2()))
}

/// The last clear bit at or before `to`, which lies in the slice; none if all are set from bit 0 on.
pub(crate) fn prev_clear(words: &[u64], to: usize) -> Option<usize> {
    let start = to / BITS;
    let first = !words[start] & low(to);
    if first != 0 {
        return Some(bit_of(start, first.ilog2()));
    }
    let word = words[..start].iter().rposition(|&word| word != u64::MAX)?;
    Some(bit_of(word, (!words[word]).ilog2()))
}

/// How many bits are set.
pub(crate) fn count(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// How many maximal runs of set bits there are.
pub(crate) fn count_runs(words: &[u64]) -> usize {
    let mut carry = 0;
    let mut runs = 0;
    for &word in words {
        runs += (word & !(word << 1 | carry)).count_ones() as usize;
        carry = word >> (BITS - 1);
    }
    runs
}

/// How many bits are set below `bit`.
pub(crate) fn rank(words: &[u64], bit: usize) -> u64 {
    let whole = (bit / BITS).min(words.len());
    let part = match words.get(whole) {
        Some(word) if !bit.is_multiple_of(BITS) => u64::from((word & low(bit - 1)).count_ones()),
        _ => 0,
    };
    count(&words[..whole]) + part
}

/// The set bit which has `n` set bits below it.
pub(crate) fn select(words: &[u64], mut n: u64) -> Option<usize> {
    for (index, &word) in words.iter().enumerate() {
        let here = u64::from(word.count_ones());
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

/// Applies `change(word, mask)` to every word that holds bits of `lo..=hi`.
fn masked(words: &mut [u64], lo: usize, hi: usize, change: impl Fn(&mut u64, u64)) {
    let (first, last) = (lo / BITS, hi / BITS);
    if first == last {
        change(&mut words[first], high(lo) & low(hi));
        return;
    }
    change(&mut words[first], high(lo));
    for word in &mut words[first + 1..last] {
        change(word, u64::MAX);
    }
    change(&mut words[last], low(hi));
}

/// Sets the bits `lo..=hi`, which lie in the slice.
pub(crate) fn set(words: &mut [u64], lo: usize, hi: usize) {
    masked(words, lo, hi, |word, mask| *word |= mask);
}

/// Clears the bits `lo..=hi`, which lie in the slice.
pub(crate) fn clear(words: &mut [u64], lo: usize, hi: usize) {
    masked(words, lo, hi, |word, mask| *word &= !mask);
}
