//! A run of ids in a chunk of 65,536.

/// Bits of a word of a bitmap.
pub(crate) const WORD_BITS: usize = 64;
/// Ids of a chunk.
pub(crate) const CHUNK_IDS: u32 = 1 << 16;
/// Words of a chunk's whole bitmap.
pub(crate) const CHUNK_WORDS: usize = CHUNK_IDS as usize / WORD_BITS;

/// The ids `lo..=hi` of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) lo: u16,
    pub(crate) hi: u16,
}

impl Run {
    pub(crate) const ALL: Self = Self {
        lo: 0,
        hi: u16::MAX,
    };

    pub(crate) fn one(id: u16) -> Self {
        Self { lo: id, hi: id }
    }

    pub(crate) fn count(self) -> u32 {
        u32::from(self.hi - self.lo) + 1
    }

    /// The number of ids in runs of one chunk, which do not overlap.
    pub(crate) fn count_all(runs: &[Self]) -> u32 {
        // Wrapping, which it never does: a checked sum would be made run by run.
        runs.iter().fold(0, |count: u32, run| {
            let more = u32::from(run.hi).wrapping_sub(run.lo.into());
            count.wrapping_add(more).wrapping_add(1)
        })
    }

    /// Applies `change(word, mask)` to every word of a bitmap that has bits of the run. A mask of zero must change nothing.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "compiled into each caller for its instructions"
    )]
    pub(crate) fn change(self, words: &mut [u64], change: impl Fn(&mut u64, u64)) {
        change_bits(words, self.lo.into(), self.hi.into(), change);
    }
}

/// Applies `change(word, mask)` to every word that has bits of `lo..=hi`. A mask of zero must change nothing.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "compiled into each caller for its instructions"
)]
pub(crate) fn change_bits(words: &mut [u64], lo: usize, hi: usize, change: impl Fn(&mut u64, u64)) {
    let (first, last) = (lo / WORD_BITS, hi / WORD_BITS);
    let from = u64::MAX << (lo % WORD_BITS);
    let to = u64::MAX >> (WORD_BITS - 1 - hi % WORD_BITS);
    // Without a branch on whether it is one word or two, which would be unpredictable.
    let apart = if first == last { 0 } else { u64::MAX };
    change(&mut words[first], from & (to | apart));
    change(&mut words[last], to & apart);
    if first + 1 < last {
        for word in &mut words[first + 1..last] {
            change(word, u64::MAX);
        }
    }
}
