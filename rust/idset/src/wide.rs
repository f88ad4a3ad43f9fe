//! Operations on the bitmaps, ids and runs of a chunk, compiled for each level of vector instructions.
#![allow(
    unsafe_code,
    reason = "a function compiled for more than the baseline is called after asking the processor; a result is written \
              into memory that was not cleared before, at places that are not compared with its end"
)]
#![expect(
    clippy::inline_always,
    reason = "compiled into each caller for its instructions"
)]

#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod common;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod lookup;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod merge;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod runs;

use alloc::vec::Vec;
use core::mem::MaybeUninit;

#[cfg(all(feature = "std", target_arch = "x86_64"))]
use crate::level::Level;
use crate::op::Op;
use crate::run::{CHUNK_WORDS, Run};

/// Declares a function that calls the variant of `$body` for the current level.
macro_rules! by_level {
    (
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:ident
    ) => {
        $(#[$doc])*
        pub(crate) fn $name($($argument: $type),*) -> $result {
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
                fn avx2($($argument: $type),*) -> $result {
                    $body($($argument),*)
                }
                #[target_feature(enable = "avx512f,avx512vpopcntdq,bmi1,bmi2,popcnt")]
                fn avx512($($argument: $type),*) -> $result {
                    $body($($argument),*)
                }
                match Level::current() {
                    // SAFETY: the processor has what the function was compiled for.
                    Level::Avx512 => return unsafe { avx512($($argument),*) },
                    // SAFETY: the processor has what the function was compiled for.
                    Level::Avx2 => return unsafe { avx2($($argument),*) },
                    Level::Baseline => {}
                }
            }
            $body($($argument),*)
        }
    };
}

/// Combines two bitmaps, the shorter one extended with zeroes, and counts the bits of the result.
pub(crate) fn combined(op: Op, left: &[u64], right: &[u64]) -> (Vec<u64>, u32) {
    let shared = left.len().min(right.len());
    let tail = match op {
        Op::Intersection => &[],
        Op::Difference => &left[shared..],
        Op::Union | Op::SymmetricDifference if left.len() > shared => &left[shared..],
        Op::Union | Op::SymmetricDifference => &right[shared..],
    };
    let mut words = Vec::with_capacity(shared + tail.len());
    let place = &mut words.spare_capacity_mut()[..shared];
    let head = combine_into(op, &left[..shared], &right[..shared], place);
    // SAFETY: `combine_into` has written all words of `place`, the first ones of the vector.
    unsafe { words.set_len(shared) };
    words.extend_from_slice(tail);
    (words, head + count(tail))
}

/// The combination of two lists of ascending ids. `None` if the processor has no instructions for that, or if they are too
/// long.
pub(crate) fn merged(op: Op, left: &[u16], right: &[u16]) -> Option<Vec<u16>> {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    {
        let mut room = merge::new_room();
        let is_subset = matches!(op, Op::Intersection | Op::Difference);
        let ids = match Level::current() {
            // SAFETY: the processor has what the function was compiled for.
            Level::Avx512 if is_subset => unsafe {
                common::filter(op, left, right, &mut room, common::keep_32)
            },
            // SAFETY: the processor has what the function was compiled for.
            Level::Avx512 => unsafe { merge::merge(op, left, right, &mut room) },
            // SAFETY: the processor has what the function was compiled for.
            Level::Avx2 if is_subset => unsafe {
                common::filter(op, left, right, &mut room, common::keep_8)
            },
            Level::Avx2 | Level::Baseline => None,
        };
        ids.map(<[u16]>::to_vec)
    }
    #[cfg(not(all(feature = "std", target_arch = "x86_64")))]
    {
        let _ = (op, left, right);
        None
    }
}

by_level! {
    /// Writes the combination of two bitmaps, all of one length, and counts its bits.
    fn combine_into(op: Op, left: &[u64], right: &[u64], place: &mut [MaybeUninit<u64>]) -> u32
        = combine_into_any
}

/// Applies the operation to a bitmap and these runs, in place. The bitmap has a word for each of them; `op` is not an
/// intersection.
pub(crate) fn combine_runs(op: Op, words: &mut [u64], runs: &[Run]) {
    debug_assert_ne!(op, Op::Intersection);
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if Level::current() == Level::Avx512
        && let Some(whole) = words.first_chunk_mut()
    {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { runs::combine(op, whole, runs) };
    }
    combine_runs_narrow(op, words, runs);
}

by_level! {
    /// [`combine_runs`] on a shorter bitmap, or without AVX-512.
    fn combine_runs_narrow(op: Op, words: &mut [u64], runs: &[Run]) -> () = combine_runs_any
}

by_level! {
    /// Applies the operation to a bitmap and these ids, in place. The bitmap has a word for each of them; `op` is not an
    /// intersection.
    fn change_ids(op: Op, words: &mut [u64], ids: &[u16]) -> () = change_ids_any
}

/// The ids that belong to the intersection with a bitmap, or to the difference from it.
pub(crate) fn select(op: Op, ids: &[u16], words: &[u64]) -> Vec<u16> {
    debug_assert!(matches!(op, Op::Intersection | Op::Difference));
    let mut kept = Vec::with_capacity(ids.len());
    let place = &mut kept.spare_capacity_mut()[..ids.len()];
    let len = select_into(op, ids, words, place);
    // SAFETY: `select_into` has written each place below `len`, and `len` is at most `ids.len()`.
    unsafe { kept.set_len(len) };
    kept
}

/// Writes the ids of [`select`], and returns how many.
fn select_into(op: Op, ids: &[u16], words: &[u64], place: &mut [MaybeUninit<u16>]) -> usize {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if Level::current() == Level::Avx512 {
        let (blocks, rest) = ids.as_chunks();
        // SAFETY: the processor has what the function was compiled for.
        let len = unsafe { lookup::select(op, blocks, words, place) };
        return len + select_into_narrow(op, rest, words, &mut place[len..]);
    }
    select_into_narrow(op, ids, words, place)
}

by_level! {
    /// [`select_into`] without AVX-512.
    fn select_into_narrow(op: Op, ids: &[u16], words: &[u64], place: &mut [MaybeUninit<u16>]) -> usize = select_any
}

by_level! {
    /// Writes the numbers of the set bits, of which there are as many as places.
    fn write_ids(words: &[u64], place: &mut [u16]) -> () = write_ids_any
}

by_level! {
    /// The number of maximal runs of set bits.
    fn count_runs(words: &[u64]) -> usize = count_runs_any
}

by_level! {
    /// The number of set bits.
    fn count(words: &[u64]) -> u32 = count_any
}

#[inline(always)]
fn combine_into_any(op: Op, left: &[u64], right: &[u64], place: &mut [MaybeUninit<u64>]) -> u32 {
    let pairs = left.iter().zip(right);
    let triples = pairs
        .zip(place)
        .map(|((&left, &right), place)| (left, right, place));
    let keep = |place: &mut MaybeUninit<u64>, word| *place.write(word);
    match op {
        Op::Union => sum(triples.map(|(a, b, place)| keep(place, Op::Union.word(a, b)))),
        Op::Intersection => {
            sum(triples.map(|(a, b, place)| keep(place, Op::Intersection.word(a, b))))
        }
        Op::Difference => sum(triples.map(|(a, b, place)| keep(place, Op::Difference.word(a, b)))),
        Op::SymmetricDifference => {
            sum(triples.map(|(a, b, place)| keep(place, Op::SymmetricDifference.word(a, b))))
        }
    }
}

#[inline(always)]
fn combine_runs_any(op: Op, words: &mut [u64], runs: &[Run]) {
    match words.first_chunk_mut::<CHUNK_WORDS>() {
        Some(whole) => combine_runs_in(op, whole, runs),
        None => combine_runs_in(op, words, runs),
    }
}

#[inline(always)]
fn combine_runs_in(op: Op, words: &mut [u64], runs: &[Run]) {
    match op {
        Op::Union => change_runs(words, runs, |word, mask| *word |= mask),
        Op::Difference => change_runs(words, runs, |word, mask| *word &= !mask),
        _ => change_runs(words, runs, |word, mask| *word ^= mask),
    }
}

/// In four places in turn: neighbours are often in one word, whose change has to wait for the change before.
#[inline(always)]
fn change_runs(words: &mut [u64], runs: &[Run], change: impl Fn(&mut u64, u64) + Copy) {
    let quarter = runs.len() / 4;
    let (first, rest) = runs.split_at(quarter);
    let (second, rest) = rest.split_at(quarter);
    let (third, rest) = rest.split_at(quarter);
    for (((a, b), c), d) in first.iter().zip(second).zip(third).zip(rest) {
        a.change(words, change);
        b.change(words, change);
        c.change(words, change);
        d.change(words, change);
    }
    for run in &rest[quarter..] {
        run.change(words, change);
    }
}

#[inline(always)]
fn change_ids_any(op: Op, words: &mut [u64], ids: &[u16]) {
    debug_assert_ne!(op, Op::Intersection);
    // Places in a whole chunk are not compared with its end.
    match words.first_chunk_mut::<CHUNK_WORDS>() {
        Some(whole) => change_ids_in(op, whole, ids),
        None => change_ids_in(op, words, ids),
    }
}

/// For each bit of a word all others.
static ALL_BUT: [u64; 64] = {
    let mut masks = [u64::MAX; 64];
    let mut bit = 0;
    while bit < masks.len() {
        masks[bit] ^= 1 << bit;
        bit += 1;
    }
    masks
};

#[inline(always)]
fn change_ids_in(op: Op, words: &mut [u64], ids: &[u16]) {
    let place = |id: u16| (usize::from(id) / 64, 1_u64 << (id % 64));
    match op {
        Op::Union => ids
            .iter()
            .map(|&id| place(id))
            .for_each(|(at, bit)| words[at] |= bit),
        // Read from a table: the compiler would make the mask by a rotation, which takes longer.
        Op::Difference => ids
            .iter()
            .for_each(|&id| words[usize::from(id) / 64] &= ALL_BUT[usize::from(id) % 64]),
        _ => ids
            .iter()
            .map(|&id| place(id))
            .for_each(|(at, bit)| words[at] ^= bit),
    }
}

#[inline(always)]
fn select_any(op: Op, ids: &[u16], words: &[u64], place: &mut [MaybeUninit<u16>]) -> usize {
    match words.first_chunk::<CHUNK_WORDS>() {
        Some(whole) => select_in(op, ids, whole, place),
        None => select_in(op, ids, words, place),
    }
}

/// Without a branch on whether an id belongs to the result, which would be unpredictable.
#[inline(always)]
fn select_in(op: Op, ids: &[u16], words: &[u64], place: &mut [MaybeUninit<u16>]) -> usize {
    let place = &mut place[..ids.len()];
    let flip = usize::from(op == Op::Difference);
    let mut len = 0;
    for &id in ids {
        let word = words.get(usize::from(id) / 64).copied().unwrap_or(0);
        // SAFETY: `len` grows by at most 1 for each id, so it is below `ids.len()`, the length of `place`.
        unsafe { place.get_unchecked_mut(len) }.write(id);
        len = len.wrapping_add((word >> (id % 64) & 1) as usize ^ flip);
    }
    len
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a chunk has 65,536 bits")]
fn write_ids_any(words: &[u64], place: &mut [u16]) {
    let mut places = place.iter_mut();
    for (index, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0
            && let Some(place) = places.next()
        {
            *place = (index << 6) as u16 | rest.trailing_zeros() as u16;
            rest &= rest.wrapping_sub(1);
        }
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a chunk has 65,536 bits")]
fn count_runs_any(words: &[u64]) -> usize {
    let Some((&first, rest)) = words.split_first() else {
        return 0;
    };
    let begins = |word: u64, carry: u64| u64::from((word & !(word << 1 | carry)).count_ones());
    let pairs = words.iter().zip(rest);
    let sum = pairs.fold(begins(first, 0), |sum, (&before, &word)| {
        sum.wrapping_add(begins(word, before >> 63))
    });
    sum as usize
}

#[inline(always)]
fn count_any(words: &[u64]) -> u32 {
    sum(words.iter().copied())
}

/// The number of set bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a chunk has 65,536 bits")]
fn sum(words: impl Iterator<Item = u64>) -> u32 {
    // Wrapping, which it never does: a checked sum would be made word by word.
    words.fold(0, |count: u64, word| {
        count.wrapping_add(word.count_ones().into())
    }) as u32
}

/// Asks for a list of ids, which is read soon: it is too short for the processor to foresee that.
#[inline]
pub(crate) fn prefetch(ids: &[u16]) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE_IDS: usize = 32;
        const MAX_LINES: usize = 24;
        for line in ids.chunks(LINE_IDS).take(MAX_LINES) {
            // SAFETY: an address that can be read.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ids;
}

/// Whether two lists of runs are the same: by their bytes, where `==` would look at run by run.
pub(crate) fn is_same_runs(left: &[Run], right: &[Run]) -> bool {
    fn bytes(runs: &[Run]) -> &[u8] {
        // SAFETY: a run is two numbers of 16 bits without bytes between them; the slice is that of the runs.
        unsafe { core::slice::from_raw_parts(runs.as_ptr().cast(), size_of_val(runs)) }
    }
    const { assert!(size_of::<Run>() == 2 * size_of::<u16>()) };
    bytes(left) == bytes(right)
}

/// Whether all bits of `left` are set in `right`, which is as long.
pub(crate) fn is_subset(left: &[u64], right: &[u64]) -> bool {
    let mut pairs = left.chunks(64).zip(right.chunks(64));
    pairs.all(|(a, b)| {
        let more = a.iter().zip(b).fold(0, |more, (a, b)| more | (a & !b));
        more == 0
    })
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    const OPS: [Op; 4] = [
        Op::Union,
        Op::Intersection,
        Op::Difference,
        Op::SymmetricDifference,
    ];

    proptest! {
        /// At the current level: `make test` runs the tests at each one.
        #[test]
        fn each_level_agrees_with_single_words(
            left in vec(any::<u64>(), 0..70),
            right in vec(any::<u64>(), 0..70),
        ) {
            for op in OPS {
                let word = |words: &[u64], at: usize| words.get(at).copied().unwrap_or(0);
                let all = 0..left.len().max(right.len());
                let expected: Vec<u64> =
                    all.map(|at| op.word(word(&left, at), word(&right, at))).collect();
                let ones: u32 = expected.iter().map(|word| word.count_ones()).sum();
                let (words, counted) = combined(op, &left, &right);
                prop_assert_eq!(counted, ones);
                prop_assert_eq!(count(&words), ones);
                prop_assert_eq!(&words[..], &expected[..words.len()]);
                prop_assert!(expected[words.len()..].iter().all(|&word| word == 0));
            }
        }

        #[test]
        fn runs_change_the_bits_of_their_ids(
            word in any::<u64>(), starts in btree_set(any::<u16>(), 0..700), longest in 1..300_u16,
        ) {
            let mut runs: Vec<Run> = Vec::new();
            for lo in starts {
                if runs.last().is_none_or(|before| u32::from(before.hi) + 1 < lo.into()) {
                    let hi = lo.saturating_add(lo % longest);
                    runs.push(Run { lo, hi });
                }
            }
            let mut mask = [0_u64; CHUNK_WORDS];
            for id in runs.iter().flat_map(|run| run.lo..=run.hi) {
                mask[usize::from(id) / 64] |= 1 << (id % 64);
            }
            for op in [Op::Union, Op::Difference, Op::SymmetricDifference] {
                let mut words = [word; CHUNK_WORDS];
                combine_runs(op, &mut words, &runs);
                let expected = mask.map(|mask| op.word(word, mask));
                prop_assert_eq!(words, expected, "{:?}", op);
                let len = runs.last().map_or(0, |run| usize::from(run.hi) / 64 + 1);
                let mut words = [word; CHUNK_WORDS];
                combine_runs(op, &mut words[..len], &runs);
                prop_assert_eq!(&words[..len], &expected[..len], "{:?}", op);
            }
        }

        #[test]
        fn ids_are_looked_up_in_bitmaps_of_any_length(
            ids in ids(), words in vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 0..=CHUNK_WORDS),
        ) {
            let has = |id: u16| words.get(usize::from(id) / 64).is_some_and(|word| word >> (id % 64) & 1 == 1);
            let ids: Vec<u16> = ids.into_iter().collect();
            for op in [Op::Intersection, Op::Difference] {
                let kept = ids.iter().copied().filter(|&id| op.keeps(true, has(id)));
                prop_assert_eq!(select(op, &ids, &words), kept.collect::<Vec<_>>(), "{:?}", op);
            }
        }

        /// A level may have no instructions for that.
        #[test]
        fn merged_lists_are_the_combinations_of_their_ids(
            left in ids(), right in ids(),
        ) {
            for op in OPS {
                let both = left.union(&right).copied();
                let expected: Vec<u16> =
                    both.filter(|id| op.keeps(left.contains(id), right.contains(id))).collect();
                let lists = [&left, &right].map(|ids| ids.iter().copied().collect::<Vec<u16>>());
                if let Some(merged) = merged(op, &lists[0], &lists[1]) {
                    prop_assert_eq!(&merged, &expected, "{:?}", op);
                }
            }
        }
    }

    /// Sets of up to 3,000 ids, near each other or not, often with the greatest.
    fn ids() -> impl Strategy<Value = BTreeSet<u16>> {
        let most = prop_oneof![Just(40_u16), Just(1000), Just(u16::MAX)];
        (most, 0..3000_usize, any::<bool>()).prop_flat_map(|(most, len, ends)| {
            btree_set(0..=most, 0..=len).prop_map(move |mut ids| {
                if ends {
                    ids.insert(u16::MAX);
                }
                ids
            })
        })
    }
}
