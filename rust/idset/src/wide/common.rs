//! Intersections and differences of ascending ids of 16 bits: the ids that both lists have are marked, eight ids compared
//! with eight at once.
//!
//! The lists are passed over without a branch on which block comes next: the choice is unpredictable, and the next blocks are
//! known only some cycles after these. So they are cut in two, at the same id, and both parts are passed over in turn, from both ends.
use core::arch::x86_64::{
    __m128i, _SIDD_BIT_MASK, _SIDD_CMP_EQUAL_ANY, _SIDD_UWORD_OPS, _mm_cmpistrm, _mm_cvtsi128_si32,
    _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128,
};
use core::hint::select_unpredictable;

use super::merge::{Out, ROOM, Room, load};
use crate::op::Op;

/// Ids of a block.
const LANES: usize = 8;
/// The greatest number of ids of the left list: behind the last one whole vectors are written.
const MAX_IDS: usize = ROOM - super::merge::LANES;

/// Eight ids; fewer, and then zeroes, in the last block of a list.
type Block = [u16; LANES];

/// A bit for each id of a list: whether the other list has it, too.
type Marks = [u8; ROOM / LANES];

/// Writes the ids that are marked for an intersection, the others for a difference.
type Keep = unsafe fn(Op, &mut Out<'_>, ids: &[u16], &Marks);

/// The ids of the left list that belong to an intersection or a difference, ascending, in `room`; `None` if they are too many
/// for it.
///
/// # Safety
///
/// The processor has what `keep` was compiled for.
#[target_feature(enable = "sse4.2")]
pub(super) unsafe fn filter<'a>(
    op: Op,
    left: &[u16],
    right: &[u16],
    room: &'a mut Room,
    keep: Keep,
) -> Option<&'a [u16]> {
    if left.len() > MAX_IDS {
        return None;
    }
    let (left, left_starts) = without_zero(left);
    let (right, right_starts) = without_zero(right);
    let mut marks = [0; ROOM / LANES];
    mark(left, right, &mut marks);
    let mut out = Out::new(room);
    if left_starts && op.keeps(true, right_starts) {
        out.push(0);
    }
    // SAFETY: the caller promises it.
    unsafe { keep(op, &mut out, left, &marks) };
    Some(out.into_ids())
}

/// The ids without zero, which ends a block, and whether it is one of them.
fn without_zero(ids: &[u16]) -> (&[u16], bool) {
    match ids.split_first() {
        Some((0, rest)) => (rest, true),
        _ => (ids, false),
    }
}

/// A [`Keep`], 32 ids at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
pub(super) fn keep_32(op: Op, out: &mut Out<'_>, ids: &[u16], marks: &Marks) {
    let (marks, _) = marks.as_chunks::<4>();
    let flip = if op == Op::Difference { u32::MAX } else { 0 };
    for (block, &marks) in ids.chunks(super::merge::LANES).zip(marks) {
        let (lanes, all) = load(block);
        let marks = u32::from_le_bytes(marks);
        out.put_lanes(lanes, all & (marks ^ flip));
    }
}

/// A [`Keep`], 8 ids at a time.
#[target_feature(enable = "ssse3,popcnt")]
pub(super) fn keep_8(op: Op, out: &mut Out<'_>, ids: &[u16], marks: &Marks) {
    let (blocks, rest) = ids.as_chunks::<LANES>();
    let flip = if op == Op::Difference { u8::MAX } else { 0 };
    for (block, &marks) in blocks.iter().zip(marks) {
        let kept = marks ^ flip;
        // SAFETY: the array is as long as the vector.
        let order = unsafe { _mm_loadu_si128(PACKED[usize::from(kept)].as_ptr().cast()) };
        let packed = _mm_shuffle_epi8(vector(block), order);
        let place = out.place(LANES);
        // SAFETY: `place` is as long as the vector.
        unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), packed) };
        out.len += kept.count_ones() as usize;
    }
    let kept = marks[blocks.len()] ^ flip;
    for (lane, &id) in rest.iter().enumerate() {
        if kept >> lane & 1 == 1 {
            out.push(id);
        }
    }
}

/// For each choice of eight lanes of two bytes, the bytes that come first if they are packed.
const PACKED: [[u8; 2 * LANES]; 1 << LANES] = {
    // Of an index with the highest bit the result is zero.
    let mut packed = [[0x80; 2 * LANES]; 1 << LANES];
    let mut choice = 0;
    while choice < packed.len() {
        let (mut lane, mut at) = (0, 0);
        while lane < 8 {
            if choice >> lane & 1 == 1 {
                packed[choice][at] = 2 * lane;
                packed[choice][at + 1] = 2 * lane + 1;
                at += 2;
            }
            lane += 1;
        }
        choice += 1;
    }
    packed
};

#[inline]
#[target_feature(enable = "sse2")]
fn vector(block: &Block) -> __m128i {
    // SAFETY: the array is as long as the vector.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

/// A list in blocks, of which those of `from..to` are still to be compared.
struct Blocks<'a> {
    whole: &'a [Block],
    /// The ids after the whole blocks, if there are any.
    rest: Block,
    from: usize,
    to: usize,
}

impl<'a> Blocks<'a> {
    fn new(ids: &'a [u16]) -> Self {
        let (whole, tail) = ids.as_chunks();
        let mut rest = [0; LANES];
        rest[..tail.len()].copy_from_slice(tail);
        Self {
            whole,
            rest,
            from: 0,
            to: whole.len() + usize::from(!tail.is_empty()),
        }
    }

    fn get(&self, at: usize) -> Block {
        self.whole.get(at).copied().unwrap_or(self.rest)
    }

    /// Whether a block with fewer ids is still to be compared.
    fn has_rest(&self) -> bool {
        self.to > self.whole.len()
    }

    fn len(&self) -> usize {
        self.to - self.from
    }
}

/// Sets the marks of the ids of `left` that are in `right`. Neither has zero.
#[target_feature(enable = "sse4.2")]
fn mark(left: &[u16], right: &[u16], marks: &mut Marks) {
    let middle = left.len() / LANES / 2;
    let (low, high) = left.split_at(middle * LANES);
    let Some(&first) = high.first() else {
        return;
    };
    let (right_low, right_high) = right.split_at(right.partition_point(|&id| id < first));
    let (marks_low, marks_high) = marks.split_at_mut(middle);
    let mut low = Lists::new(low, right_low, marks_low);
    let mut high = Lists::new(high, right_high, marks_high);
    low.mark_rests();
    high.mark_rests();
    loop {
        let steps = low.sure_steps().min(high.sure_steps());
        if steps == 0 {
            break;
        }
        for _ in 0..steps {
            // SAFETY: these are no more steps than each has surely.
            unsafe {
                low.mark_both_ends();
                high.mark_both_ends();
            }
        }
    }
    low.mark_all();
    high.mark_all();
}

/// Two lists, and a mark for each id of the left one.
struct Lists<'a, 'm> {
    left: Blocks<'a>,
    right: Blocks<'a>,
    marks: &'m mut [u8],
}

impl<'a, 'm> Lists<'a, 'm> {
    fn new(left: &'a [u16], right: &'a [u16], marks: &'m mut [u8]) -> Self {
        let (left, right) = (Blocks::new(left), Blocks::new(right));
        assert!(left.to <= marks.len(), "a mark for each block");
        Self { left, right, marks }
    }

    /// From the end, until both ends are whole blocks.
    #[target_feature(enable = "sse4.2")]
    fn mark_rests(&mut self) {
        let (left, right) = (&mut self.left, &mut self.right);
        while (left.has_rest() || right.has_rest()) && left.len() > 0 && right.len() > 0 {
            let (a, b) = (left.get(left.to - 1), right.get(right.to - 1));
            self.marks[left.to - 1] |= common(&a, &b);
            left.to -= usize::from(a[0] >= b[0]);
            right.to -= usize::from(b[0] >= a[0]);
        }
    }

    /// The number of steps from both ends that surely have whole blocks, after [`Lists::mark_rests`].
    fn sure_steps(&self) -> usize {
        self.left.len().min(self.right.len()) / 2
    }

    /// A step from both ends.
    ///
    /// # Safety
    ///
    /// There is a [sure step](Lists::sure_steps).
    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn mark_both_ends(&mut self) {
        let (left, right) = (&mut self.left, &mut self.right);
        // SAFETY: each list has two whole blocks, and the step passes over one of each end at most; there is a mark for
        // each block.
        unsafe {
            let first = left.whole.get_unchecked(left.from);
            let other = right.whole.get_unchecked(right.from);
            *self.marks.get_unchecked_mut(left.from) |= common(first, other);
            let (this, that) = (alone(&first[LANES - 1]), alone(&other[LANES - 1]));
            left.from = select_unpredictable(this <= that, left.from + 1, left.from);
            right.from = select_unpredictable(that <= this, right.from + 1, right.from);

            let last = left.whole.get_unchecked(left.to - 1);
            let other = right.whole.get_unchecked(right.to - 1);
            *self.marks.get_unchecked_mut(left.to - 1) |= common(last, other);
            let (this, that) = (alone(&last[0]), alone(&other[0]));
            left.to = select_unpredictable(this >= that, left.to - 1, left.to);
            right.to = select_unpredictable(that >= this, right.to - 1, right.to);
        }
    }

    /// All that is left, after [`Lists::mark_rests`].
    #[target_feature(enable = "sse4.2")]
    fn mark_all(&mut self) {
        loop {
            let steps = self.sure_steps();
            if steps == 0 {
                break;
            }
            for _ in 0..steps {
                // SAFETY: these are no more steps than there surely are.
                unsafe { self.mark_both_ends() };
            }
        }
        // From the begin.
        let (left, right) = (&mut self.left, &mut self.right);
        while left.len() > 0 && right.len() > 0 {
            let (a, b) = (left.get(left.from), right.get(right.from));
            self.marks[left.from] |= common(&a, &b);
            let (this, that) = (last(&a), last(&b));
            left.from += usize::from(this <= that);
            right.from += usize::from(that <= this);
        }
    }
}

/// A bit for each id of `left` that is in `right`.
#[inline]
#[target_feature(enable = "sse4.2")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bit for each of eight ids"
)]
fn common(left: &Block, right: &Block) -> u8 {
    const EQUAL_ANY: i32 = _SIDD_UWORD_OPS | _SIDD_CMP_EQUAL_ANY | _SIDD_BIT_MASK;
    _mm_cvtsi128_si32(_mm_cmpistrm::<EQUAL_ANY>(vector(right), vector(left))) as u8
}

/// The greatest id of a block.
fn last(block: &Block) -> u16 {
    block.iter().copied().fold(0, u16::max)
}

/// An id, read by itself: the compiler would take it from the vector, which takes twice as long.
#[inline]
fn alone(id: &u16) -> u16 {
    // SAFETY: a reference can be read.
    unsafe { core::ptr::from_ref(id).read_volatile() }
}
