//! Free space of the file system of retained output, which output of guests leaves to the owner.

/// Bytes beside the reserve that output of guests leaves too, at most: a write may take a part of a block more, and blocks
/// that tell where the file's are.
const MAX_MARGIN_BYTES: u64 = 64 << 10;
/// The margin of a small reserve, as a divisor.
const MARGIN_DIVISOR: u64 = 16;

/// The free bytes that output of guests leaves; 0 for none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OutputReserve(pub u64);

impl OutputReserve {
    /// The bytes of output that guests may write while `free` bytes are free.
    pub fn room(self, free: u64) -> u64 {
        let Self(reserve) = self;
        if reserve == 0 {
            return u64::MAX;
        }
        let margin = (reserve / MARGIN_DIVISOR).min(MAX_MARGIN_BYTES);
        free.saturating_sub(reserve.saturating_add(margin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_leaves_the_reserve_and_what_blocks_take() {
        assert_eq!(OutputReserve(1 << 28).room(1 << 28), 0);
        assert_eq!(OutputReserve(1 << 28).room((1 << 28) + (64 << 10)), 0);
        assert_eq!(OutputReserve(1 << 28).room((1 << 28) + (64 << 10) + 9), 9);
        assert_eq!(OutputReserve(160).room(171), 1);
        assert_eq!(OutputReserve(u64::MAX).room(u64::MAX), 0);
        assert_eq!(OutputReserve(0).room(0), u64::MAX);
    }
}
