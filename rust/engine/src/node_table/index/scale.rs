//! Scales: which numbers share a bit, so that a set of numbers fits into one word.

/// Bits for the numbers from 1 to a largest one. Up to 64 numbers have a bit each.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    /// The bit of each number from 0 on; empty if each number has its own.
    bits: Box<[u8]>,
    /// The first number of each bit.
    starts: Box<[u32]>,
}

/// Bits per word.
const WORD_BITS: u32 = u64::BITS;
/// The numbers up to this one have a bit each: small requests ask for them.
const MAX_EXACT_NUMBER: u32 = 16;

/// The first and the last of the numbers that share a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Siblings {
    pub low: u32,
    pub high: u32,
}

impl Scale {
    pub fn new(max: u32) -> Self {
        let mut starts: Vec<u32> = (1..=max.min(MAX_EXACT_NUMBER)).collect();
        if max <= WORD_BITS {
            starts.extend(MAX_EXACT_NUMBER + 1..=max);
            return Self {
                bits: Box::default(),
                starts: starts.into(),
            };
        }
        // The numbers of a bit begin with an even one, because most requests ask for even numbers;
        // the largest number, a whole node, has a bit of its own.
        let step = (max - MAX_EXACT_NUMBER)
            .div_ceil(WORD_BITS - MAX_EXACT_NUMBER - 2)
            .next_multiple_of(2);
        let mut start = MAX_EXACT_NUMBER + 1;
        while start < max {
            starts.push(start);
            start = (start / step + 1) * step;
        }
        starts.push(max);
        let mut bits = vec![0_u8; max as usize + 1];
        let ends = starts.iter().skip(1).copied().chain([max + 1]);
        for ((start, end), bit) in starts.iter().zip(ends).zip(0_u8..) {
            bits[*start as usize..end as usize].fill(bit);
        }
        Self {
            bits: bits.into(),
            starts: starts.into(),
        }
    }

    fn bit(&self, number: u32) -> u32 {
        match self.bits.get(number as usize) {
            Some(bit) => u32::from(*bit),
            None => number - 1,
        }
    }

    /// The mask of a number, which is at most the largest; 0 has none.
    #[inline]
    pub fn mask(&self, number: u32) -> u64 {
        if number == 0 {
            return 0;
        }
        1 << self.bit(number)
    }

    /// The first and the last number with the same bit as this one.
    #[inline]
    pub fn siblings(&self, number: u32) -> Siblings {
        if self.bits.is_empty() {
            return Siblings {
                low: number,
                high: number,
            };
        }
        let bit = self.bit(number) as usize;
        let last = self.starts.get(bit + 1).map_or(number, |next| next - 1);
        Siblings {
            low: self.starts[bit],
            high: last.max(number),
        }
    }

    /// The masks of the numbers from `low`, which is not 0, to `high`, both included.
    pub fn range(&self, low: u32, high: u32) -> u64 {
        let from = u64::MAX << self.bit(low);
        let to = u64::MAX >> (WORD_BITS - 1 - self.bit(high));
        from & to
    }
}

#[cfg(test)]
mod tests {
    use super::{Scale, Siblings};

    #[test]
    fn bits_ascend_with_the_numbers() {
        for max in (0..300).chain([384, 511, 1024, 4099, 70_000, 1 << 20]) {
            let scale = Scale::new(max);
            assert!(scale.starts.len() <= 64, "{max}: {}", scale.starts.len());
            let mut last = 0;
            for number in 1..=max {
                let mask = scale.mask(number);
                assert!(mask >= last && mask.is_power_of_two(), "{max}: {number}");
                let Siblings { low, high } = scale.siblings(number);
                assert!((low..=high).contains(&number) && high <= max);
                assert_eq!((scale.mask(low), scale.mask(high)), (mask, mask));
                assert!(low == 1 || scale.mask(low - 1) < mask);
                assert!(high == max || scale.mask(high + 1) > mask);
                last = mask;
            }
            if max > 0 {
                assert_eq!(scale.siblings(max).low, max);
                assert_eq!(
                    scale.range(1, max).count_ones() as usize,
                    scale.starts.len()
                );
            }
        }
    }
}
