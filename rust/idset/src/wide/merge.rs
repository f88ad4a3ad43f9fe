//! Set operations on ascending ids of 16 bits: both lists are merged 32 ids at a time, and each id is compared with its
//! neighbours.
use core::arch::x86_64::{
    __m512i, _mm512_cmpeq_epu16_mask, _mm512_cmpneq_epu16_mask, _mm512_cvtsi512_si32,
    _mm512_loadu_si512, _mm512_mask_loadu_epi16, _mm512_mask_max_epu16,
    _mm512_maskz_compress_epi16, _mm512_max_epu16, _mm512_min_epu16, _mm512_permutex2var_epi16,
    _mm512_permutexvar_epi16, _mm512_rol_epi32, _mm512_set1_epi16, _mm512_setzero_si512,
    _mm512_shuffle_epi32, _mm512_shuffle_i64x2, _mm512_storeu_si512, _mm512_xor_si512,
};
use core::mem::MaybeUninit;

use crate::op::Op;

/// Ids in a vector.
pub(super) const LANES: usize = 32;
/// Fills the lanes after the last id of a list. No id of a list that is merged.
const FILLER: u16 = u16::MAX;
/// Ids of a room, which takes 16 KiB of the stack.
pub(super) const ROOM: usize = 8192;
/// The greatest number of ids of two lists together: behind the last one whole vectors are written.
const MAX_IDS: usize = ROOM - LANES - 1;

/// The place of a result's ids.
pub(super) type Room = [MaybeUninit<u16>; ROOM];

/// The ids of the result, ascending, in `room`; `None` if the lists are too long for it.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
pub(super) fn merge<'a>(
    op: Op,
    left: &[u16],
    right: &[u16],
    room: &'a mut Room,
) -> Option<&'a [u16]> {
    if left.len() + right.len() > MAX_IDS {
        return None;
    }
    // The greatest id, which is the filler, is left out until the end.
    let (left, left_ends) = without_filler(left);
    let (right, right_ends) = without_filler(right);
    let mut len = match op {
        Op::Union | Op::SymmetricDifference if right.is_empty() => copy(left, room),
        Op::Union | Op::SymmetricDifference if left.is_empty() => copy(right, room),
        Op::Union => lists::<UNION>(left, right, room),
        Op::SymmetricDifference => lists::<SYMMETRIC_DIFFERENCE>(left, right, room),
        Op::Intersection | Op::Difference => return None,
    };
    if op.keeps(left_ends, right_ends) {
        room[len].write(FILLER);
        len += 1;
    }
    // SAFETY: `lists` has written `len` ids.
    Some(unsafe { written(room, len) })
}

/// The first ids of a room.
///
/// # Safety
///
/// They have been written.
unsafe fn written(room: &Room, len: usize) -> &[u16] {
    let ids = &room[..len];
    // SAFETY: initialized ids, as the caller promises.
    unsafe { core::slice::from_raw_parts(ids.as_ptr().cast(), ids.len()) }
}

/// Room for a result.
pub(super) const fn new_room() -> Room {
    [MaybeUninit::uninit(); ROOM]
}

/// The ids without the filler, and whether it is one of them.
fn without_filler(ids: &[u16]) -> (&[u16], bool) {
    match ids.split_last() {
        Some((&FILLER, rest)) => (rest, true),
        _ => (ids, false),
    }
}

fn copy(ids: &[u16], room: &mut Room) -> usize {
    for (place, &id) in room.iter_mut().zip(ids) {
        place.write(id);
    }
    ids.len()
}

const UNION: u8 = 0;
const INTERSECTION: u8 = 1;
const SYMMETRIC_DIFFERENCE: u8 = 2;

/// Writes the ids of the result, and returns their number. Neither list is empty or has the filler.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn lists<const OP: u8>(left: &[u16], right: &[u16], room: &mut Room) -> usize {
    let blocks = left.len().div_ceil(LANES) + right.len().div_ceil(LANES);
    let mut source = Source {
        lists: [left, right],
        at: [0, 0],
    };
    let mut out = Out { room, len: 0 };
    let first = source.next();
    let (mut this, mut rest) = sorted(first, source.next());
    // Differs from the first id.
    let mut before = _mm512_xor_si512(
        _mm512_set1_epi16(low(_mm512_cvtsi512_si32(this))),
        _mm512_set1_epi16(1),
    );
    for _ in 2..blocks {
        let next;
        (next, rest) = sorted(source.next(), rest);
        out.put::<OP>(before, this, next);
        (before, this) = (this, next);
    }
    out.put::<OP>(before, this, rest);
    // No id follows the last lane, which is not zero.
    out.put::<OP>(this, rest, _mm512_setzero_si512());
    out.len
}

#[expect(clippy::cast_possible_truncation, reason = "the lowest lane")]
fn low(lanes: i32) -> i16 {
    lanes as i16
}

/// Two ascending lists, read in blocks.
struct Source<'a> {
    lists: [&'a [u16]; 2],
    at: [usize; 2],
}

impl Source<'_> {
    /// The next block of the list whose next id is less: all ids that follow are no less than the least one of it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn next(&mut self) -> __m512i {
        let head = |list: usize| {
            let id = self.lists[list].get(self.at[list]);
            id.map_or(u32::MAX, |&id| id.into())
        };
        // As an index, for a choice by a branch would be unpredictable.
        let list = usize::from(head(1) < head(0));
        let rest = self.lists[list].get(self.at[list]..).unwrap_or_default();
        self.at[list] += LANES;
        load(rest).0
    }
}

/// A result, as far as it is written.
pub(super) struct Out<'a> {
    room: &'a mut Room,
    pub(super) len: usize,
}

impl<'a> Out<'a> {
    pub(super) fn new(room: &'a mut Room) -> Self {
        Self { room, len: 0 }
    }

    pub(super) fn push(&mut self, id: u16) {
        self.room[self.len].write(id);
        self.len += 1;
    }

    /// The next `lanes` places.
    #[inline]
    pub(super) fn place(&mut self, lanes: usize) -> &mut [MaybeUninit<u16>] {
        &mut self.room[self.len..self.len + lanes]
    }

    /// All ids that are written.
    pub(super) fn into_ids(self) -> &'a [u16] {
        // SAFETY: `len` counts ids that are written.
        unsafe { written(self.room, self.len) }
    }

    /// Writes the ids of `this` that belong to the result; `before` and `next` are the vectors around it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
    fn put<const OP: u8>(&mut self, before: __m512i, this: __m512i, next: __m512i) {
        // The lane before the first one, -1, is the last one of the second vector, and the one after the last its first.
        const LOWER: [i16; LANES] = sources(-1, 1);
        const HIGHER: [i16; LANES] = sources(1, 1);
        let lower = _mm512_permutex2var_epi16(this, vector(&LOWER), before);
        let higher = _mm512_permutex2var_epi16(this, vector(&HIGHER), next);
        let kept = match OP {
            UNION => _mm512_cmpneq_epu16_mask(this, lower),
            INTERSECTION => _mm512_cmpeq_epu16_mask(this, lower),
            _ => _mm512_cmpneq_epu16_mask(this, lower) & _mm512_cmpneq_epu16_mask(this, higher),
        } & _mm512_cmpneq_epu16_mask(this, _mm512_set1_epi16(-1));
        self.put_lanes(this, kept);
    }

    /// Writes the ids in some lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
    pub(super) fn put_lanes(&mut self, ids: __m512i, kept: u32) {
        let ids = _mm512_maskz_compress_epi16(kept, ids);
        // Two lists have no more ids together than `MAX_IDS`: this cannot fail.
        let place = &mut self.room[self.len..self.len + LANES];
        // SAFETY: the vector is as long as `place`.
        unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), ids) };
        self.len += kept.count_ones() as usize;
    }
}

/// The first ids of a list, then fillers; and the mask of the ids.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn load(ids: &[u16]) -> (__m512i, u32) {
    let lanes = ids.len().min(LANES);
    let mask = u32::try_from((1_u64 << lanes) - 1).unwrap_or(u32::MAX);
    let fillers = _mm512_set1_epi16(FILLER.cast_signed());
    // SAFETY: only the lanes of the mask are read, and `ids` has them.
    let ids = unsafe { _mm512_mask_loadu_epi16(fillers, mask, ids.as_ptr().cast()) };
    (ids, mask)
}

/// The source of each lane: of lane 0 `first`, and of each further one that of the lane before plus `step`.
const fn sources(first: i16, step: i16) -> [i16; LANES] {
    let mut sources = [first; LANES];
    let mut lane = 1;
    while lane < LANES {
        sources[lane] = sources[lane - 1] + step;
        lane += 1;
    }
    sources
}

#[inline]
#[target_feature(enable = "avx512f")]
fn vector(lanes: &[i16; LANES]) -> __m512i {
    // SAFETY: the array is as long as the vector.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

/// The lower and the higher half of two ascending vectors, each ascending: a bitonic merge.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn sorted(left: __m512i, right: __m512i) -> (__m512i, __m512i) {
    const REVERSED: [i16; LANES] = sources(31, -1);
    let left = _mm512_permutexvar_epi16(vector(&REVERSED), left);
    (
        cleaned(_mm512_min_epu16(left, right)),
        cleaned(_mm512_max_epu16(left, right)),
    )
}

/// The lanes of a bitonic vector in ascending order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn cleaned(lanes: __m512i) -> __m512i {
    // Lanes 16, 8, 4, 2 and 1 apart are exchanged if they are in the wrong order.
    let lanes = exchanged(
        lanes,
        _mm512_shuffle_i64x2::<0b01_00_11_10>(lanes, lanes),
        0xffff_0000,
    );
    let lanes = exchanged(
        lanes,
        _mm512_shuffle_i64x2::<0b10_11_00_01>(lanes, lanes),
        0xff00_ff00,
    );
    let lanes = exchanged(
        lanes,
        _mm512_shuffle_epi32::<0b01_00_11_10>(lanes),
        0xf0f0_f0f0,
    );
    let lanes = exchanged(
        lanes,
        _mm512_shuffle_epi32::<0b10_11_00_01>(lanes),
        0xcccc_cccc,
    );
    exchanged(lanes, _mm512_rol_epi32::<16>(lanes), 0xaaaa_aaaa)
}

/// The lesser of each lane and its partner; the greater in the lanes of `upper`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn exchanged(lanes: __m512i, partners: __m512i, upper: u32) -> __m512i {
    _mm512_mask_max_epu16(_mm512_min_epu16(lanes, partners), upper, lanes, partners)
}
