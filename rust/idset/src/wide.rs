//! Operations on whole bitmaps, with the widest instructions that the processor at hand has.
#![allow(
    unsafe_code,
    reason = "a function compiled for more than the baseline is called after asking the processor"
)]

/// Which ids of two sets belong to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Union,
    Intersection,
    Difference,
    SymmetricDifference,
}

impl Op {
    pub(crate) const fn keeps(self, left: bool, right: bool) -> bool {
        match self {
            Self::Union => left || right,
            Self::Intersection => left && right,
            Self::Difference => left && !right,
            Self::SymmetricDifference => left != right,
        }
    }

    pub(crate) const fn word(self, left: u64, right: u64) -> u64 {
        match self {
            Self::Union => left | right,
            Self::Intersection => left & right,
            Self::Difference => left & !right,
            Self::SymmetricDifference => left ^ right,
        }
    }
}

/// Combines two bitmaps, the shorter one extended with zeroes, and counts the bits of the result.
pub(crate) fn combined(op: Op, left: &[u64], right: &[u64]) -> (Vec<u64>, u32) {
    let shared = left.len().min(right.len());
    let mut words = match op {
        Op::Intersection => left[..shared].to_vec(),
        Op::Difference => left.to_vec(),
        Op::Union | Op::SymmetricDifference => {
            let mut words = Vec::with_capacity(left.len().max(right.len()));
            words.extend_from_slice(left);
            words.extend_from_slice(right.get(left.len()..).unwrap_or(&[]));
            words
        }
    };
    let tail = if shared == words.len() {
        0
    } else {
        count(&words[shared..])
    };
    let head = combine(op, &mut words[..shared], &right[..shared]);
    (words, head + tail)
}

/// Replaces `left` by the combination of two bitmaps of one length, and counts its bits.
pub(crate) fn combine(op: Op, left: &mut [u64], right: &[u64]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { combine_avx2(op, left, right) };
    }
    combine_any(op, left, right)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn combine_avx2(op: Op, left: &mut [u64], right: &[u64]) -> u32 {
    combine_any(op, left, right)
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "compiled into each caller for its instructions"
)]
fn combine_any(op: Op, left: &mut [u64], right: &[u64]) -> u32 {
    match op {
        Op::Union => each(left, right, |a, b| Op::Union.word(a, b)),
        Op::Intersection => each(left, right, |a, b| Op::Intersection.word(a, b)),
        Op::Difference => each(left, right, |a, b| Op::Difference.word(a, b)),
        Op::SymmetricDifference => each(left, right, |a, b| Op::SymmetricDifference.word(a, b)),
    }
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    clippy::cast_possible_truncation,
    reason = "compiled into each caller for its instructions; a chunk has 65,536 bits"
)]
fn each(left: &mut [u64], right: &[u64], word: impl Fn(u64, u64) -> u64) -> u32 {
    let mut count = 0;
    for (left, &right) in left.iter_mut().zip(right) {
        *left = word(*left, right);
        // Wrapping, which it never does: a checked sum would be made word by word.
        count = u64::wrapping_add(count, left.count_ones().into());
    }
    count as u32
}

/// The number of set bits.
pub(crate) fn count(words: &[u64]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { count_avx2(words) };
    }
    count_any(words)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn count_avx2(words: &[u64]) -> u32 {
    count_any(words)
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    clippy::cast_possible_truncation,
    reason = "compiled into each caller for its instructions; a chunk has 65,536 bits"
)]
fn count_any(words: &[u64]) -> u32 {
    words.iter().fold(0, |count: u64, word| {
        count.wrapping_add(word.count_ones().into())
    }) as u32
}

/// Whether all bits of `left` are set in `right`, which is as long.
pub(crate) fn is_subset(left: &[u64], right: &[u64]) -> bool {
    let mut pairs = left.chunks(64).zip(right.chunks(64));
    pairs.all(|(a, b)| {
        let more = a.iter().zip(b).fold(0, |more, (a, b)| more | (a & !b));
        more == 0
    })
}
