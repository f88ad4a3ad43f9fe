//! Changes of a chunk's bitmap by runs: the masks of eight runs are made at once.
use core::arch::x86_64::{
    _mm256_and_si256, _mm256_andnot_si256, _mm256_cmpeq_epi32_mask, _mm256_cmpgt_epi32_mask,
    _mm256_loadu_si256, _mm256_set1_epi32, _mm256_srli_epi32, _mm256_storeu_si256,
    _mm256_sub_epi32, _mm512_cvtepu32_epi64, _mm512_mask_and_epi64, _mm512_mask_mov_epi64,
    _mm512_maskz_mov_epi64, _mm512_set1_epi64, _mm512_sllv_epi64, _mm512_srlv_epi64,
    _mm512_storeu_si512,
};

use crate::op::Op;
use crate::run::{CHUNK_WORDS, Run};

/// Runs whose masks are made at once.
const LANES: usize = 8;
/// Places in which runs are applied in turn.
const PLACES: usize = 4;
/// Runs whose masks are kept at a time.
const RUNS: usize = u64::BITS as usize;

/// The masks of runs in the words that they begin in and of the ones after these.
struct Masks {
    words: [u32; RUNS],
    first: [u64; RUNS],
    second: [u64; RUNS],
}

impl Masks {
    const fn new() -> Self {
        Self {
            words: [0; RUNS],
            first: [0; RUNS],
            second: [0; RUNS],
        }
    }

    /// Returns a bit for each run that continues behind its second word. There are at most [`RUNS`] runs.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
    fn fill(&mut self, blocks: &[[Run; LANES]]) -> u64 {
        const { assert!(size_of::<Run>() == size_of::<u32>()) };
        let numbers = |number| _mm256_set1_epi32(number);
        let all = _mm512_set1_epi64(-1);
        let (words, _) = self.words.as_chunks_mut::<LANES>();
        let (first, _) = self.first.as_chunks_mut::<LANES>();
        let (second, _) = self.second.as_chunks_mut::<LANES>();
        let places = words.iter_mut().zip(first).zip(second);
        let (mut longer, mut at) = (0, 0_u32);
        for (runs, ((words, first), second)) in blocks.iter().zip(places) {
            // SAFETY: eight runs are as long as the vector.
            let runs = unsafe { _mm256_loadu_si256(runs.as_ptr().cast()) };
            // The first id of a run is the lower half of 32 bits.
            let word = _mm256_and_si256(_mm256_srli_epi32::<6>(runs), numbers(0x3ff));
            let last = _mm256_srli_epi32::<22>(runs);
            let from = _mm256_and_si256(runs, numbers(63));
            let to = _mm256_andnot_si256(_mm256_srli_epi32::<16>(runs), numbers(63));
            let from = _mm512_sllv_epi64(all, _mm512_cvtepu32_epi64(from));
            let to = _mm512_srlv_epi64(all, _mm512_cvtepu32_epi64(to));
            let is_one_word = _mm256_cmpeq_epi32_mask(last, word);
            let is_longer = _mm256_cmpgt_epi32_mask(_mm256_sub_epi32(last, word), numbers(1));
            // All of the second word if the run continues behind it.
            let end = _mm512_mask_mov_epi64(to, is_longer, all);
            let end = _mm512_maskz_mov_epi64(!is_one_word, end);
            let begin = _mm512_mask_and_epi64(from, is_one_word, from, to);
            // SAFETY: the arrays are as long as the vectors.
            unsafe {
                _mm256_storeu_si256(words.as_mut_ptr().cast(), word);
                _mm512_storeu_si512(first.as_mut_ptr().cast(), begin);
                _mm512_storeu_si512(second.as_mut_ptr().cast(), end);
            }
            // Below 64, as the masks of at most eight blocks are written.
            longer |= u64::from(is_longer).wrapping_shl(at);
            at = at.wrapping_add(u8::BITS);
        }
        longer
    }
}

/// Changes the words that have bits of the runs; not for an intersection.
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
pub(super) fn combine(op: Op, words: &mut [u64; CHUNK_WORDS], runs: &[Run]) {
    match op {
        Op::Union => change(words, runs, |word, mask| *word |= mask),
        Op::Difference => change(words, runs, |word, mask| *word &= !mask),
        _ => change(words, runs, |word, mask| *word ^= mask),
    }
}

/// Changes the words of as many runs at once as there are masks for, then of whole blocks, then one by one. A mask of zero
/// must change nothing.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn change(words: &mut [u64; CHUNK_WORDS], runs: &[Run], change: impl Fn(&mut u64, u64) + Copy) {
    let mut masks = Masks::new();
    let (whole, rest) = runs.as_chunks::<RUNS>();
    for runs in whole {
        let (blocks, _) = runs.as_chunks();
        let longer = masks.fill(blocks);
        change_masks(words, &masks, RUNS / PLACES, change);
        change_longer(words, runs, longer, change);
    }
    let (blocks, last) = rest.as_chunks();
    if !blocks.is_empty() {
        let longer = masks.fill(blocks);
        change_masks(words, &masks, blocks.len() * (LANES / PLACES), change);
        change_longer(words, rest, longer, change);
    }
    for run in last {
        run.change(words, change);
    }
}

/// `quarter` masks in each of four places in turn: neighbours are often in one word, whose change has to wait for the change
/// before.
#[inline(always)]
fn change_masks(
    words: &mut [u64; CHUNK_WORDS],
    masks: &Masks,
    quarter: usize,
    change: impl Fn(&mut u64, u64) + Copy,
) {
    for at in 0..quarter {
        for place in 0..PLACES {
            let at = at + place * quarter;
            let word = masks.words[at] as usize;
            change(&mut words[word % CHUNK_WORDS], masks.first[at]);
            // Nothing, if the first word is the last one of the chunk.
            change(&mut words[(word + 1) % CHUNK_WORDS], masks.second[at]);
        }
    }
}

/// The words behind the second one of each run that has a bit in `longer`.
#[inline(always)]
fn change_longer(
    words: &mut [u64; CHUNK_WORDS],
    runs: &[Run],
    mut longer: u64,
    change: impl Fn(&mut u64, u64) + Copy,
) {
    while longer != 0 {
        let run = runs[longer.trailing_zeros() as usize];
        if let Some(behind) = behind_second_word(run) {
            behind.change(words, change);
        }
        longer &= longer - 1;
    }
}

/// The part of a run behind the first two words that it has bits of.
fn behind_second_word(run: Run) -> Option<Run> {
    const WORD_BITS: u16 = 64;
    let second = run.lo / WORD_BITS + 1;
    let lo = (second + 1).checked_mul(WORD_BITS)?;
    (lo <= run.hi).then_some(Run { lo, hi: run.hi })
}
