//! Lookup of ids in a bitmap, 32 at a time: the words with their bits are gathered, and the ids that are kept are packed.
use core::arch::x86_64::{
    __m512i, _mm512_castsi512_si256, _mm512_cmplt_epu32_mask, _mm512_cvtepu16_epi32,
    _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_mask_i32gather_epi32,
    _mm512_maskz_compress_epi16, _mm512_rorv_epi32, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_srli_epi32, _mm512_storeu_si512, _mm512_test_epi32_mask,
};
use core::mem::MaybeUninit;

use crate::op::Op;
use crate::run::CHUNK_WORDS;

/// Ids in a vector.
const LANES: usize = 32;

/// Writes the ids that belong to an intersection with the bitmap, or to a difference from it, and returns their number. There
/// is a place for each id.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
pub(super) fn select(
    op: Op,
    blocks: &[[u16; LANES]],
    words: &[u64],
    place: &mut [MaybeUninit<u16>],
) -> usize {
    let place = &mut place[..blocks.as_flattened().len()];
    let flip = if op == Op::Difference { u32::MAX } else { 0 };
    let mut len = 0;
    for block in blocks {
        // SAFETY: the array is as long as the vector.
        let ids = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        let lower = _mm512_castsi512_si256(ids);
        let upper = _mm512_extracti64x4_epi64::<1>(ids);
        let lower = u32::from(found(_mm512_cvtepu16_epi32(lower), words));
        let upper = u32::from(found(_mm512_cvtepu16_epi32(upper), words));
        let kept = (lower | upper << 16) ^ flip;
        let packed = _mm512_maskz_compress_epi16(kept, ids);
        // SAFETY: `len` is at most the number of ids before this block, so 32 places follow, as long as the vector.
        unsafe { _mm512_storeu_si512(place.as_mut_ptr().add(len).cast(), packed) };
        len = len.wrapping_add(kept.count_ones() as usize);
    }
    len
}

/// A bit for each of 16 ids: whether it is set in the bitmap.
#[inline]
#[target_feature(enable = "avx512f")]
fn found(ids: __m512i, words: &[u64]) -> u16 {
    // A word of the bitmap is two halves of 32 bits, the lower one first.
    let halves = i32::try_from(2 * words.len().min(CHUNK_WORDS)).unwrap_or(0);
    let half = _mm512_srli_epi32::<5>(ids);
    let is_inside = _mm512_cmplt_epu32_mask(half, _mm512_set1_epi32(halves));
    // SAFETY: halves of the bitmap are read, and no others.
    let bits = unsafe {
        let zero = _mm512_setzero_si512();
        _mm512_mask_i32gather_epi32::<4>(zero, is_inside, half, words.as_ptr().cast())
    };
    // The shift is by the lowest five bits of the id.
    _mm512_test_epi32_mask(_mm512_rorv_epi32(bits, ids), _mm512_set1_epi32(1))
}
