//! The marks by which descendants of tasks are recognized after their parents have ended.

/// The values of `RLIMIT_LOCKS` that one reaper assigns to its tasks.
///
/// An unprivileged process can lower the hard limit and cannot raise it, so a reaper that itself runs as a task of a
/// job must divide the value that it has inherited. A mark has three fields of [`FIELD_BITS`] bits, one for each level
/// of nesting; the fields below a reaper's own are all ones, and its descendants may lower these.
///
/// ```
/// use penstock_exec::mark::MarkSpace;
///
/// let outer = MarkSpace::below(u64::MAX).unwrap();
/// let inner = MarkSpace::below(outer.mark(5)).unwrap();
/// assert_eq!(inner.slot(inner.mark(7)), Some(7));
/// assert_eq!(outer.slot(inner.mark(7)), Some(5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkSpace {
    /// The fields of the levels above.
    base: u64,
    /// The lowest bit of this level's field.
    shift: u32,
}

/// The number of bits of one level.
pub const FIELD_BITS: u32 = 21;

/// The number of tasks that can be marked at a time. A field of all ones means an unmarked process, and zero a limit
/// that is not a mark.
pub const MAX_SLOTS: u32 = (1 << FIELD_BITS) - 2;

impl MarkSpace {
    /// Returns the marks below an inherited hard limit. `None` if it leaves no room: below three levels, or below a
    /// limit that an administrator has set.
    pub fn below(hard_limit: u64) -> Option<Self> {
        if hard_limit == u64::MAX {
            let shift = 2 * FIELD_BITS;
            return Some(Self { base: 0, shift });
        }
        let shift = match hard_limit.trailing_ones() {
            ones if ones >= 2 * FIELD_BITS => FIELD_BITS,
            ones if ones >= FIELD_BITS => 0,
            _ => return None,
        };
        let base = hard_limit & !Self::ones(shift + FIELD_BITS);
        Some(Self { base, shift })
    }

    fn ones(bits: u32) -> u64 {
        (1 << bits) - 1
    }

    /// The mark of a slot below [`MAX_SLOTS`].
    pub fn mark(self, slot: u32) -> u64 {
        self.base | ((u64::from(slot) + 1) << self.shift) | Self::ones(self.shift)
    }

    /// The slot that a limit belongs to, if it is a mark of this reaper or one below it.
    pub fn slot(self, limit: u64) -> Option<u32> {
        let field = (limit >> self.shift) & Self::ones(FIELD_BITS);
        let slot = u32::try_from(field).ok()?.checked_sub(1)?;
        let above = limit & !Self::ones(self.shift + FIELD_BITS);
        (above == self.base && slot < MAX_SLOTS).then_some(slot)
    }
}
