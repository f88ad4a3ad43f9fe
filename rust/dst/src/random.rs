//! A small generator of random numbers (SplitMix64): the same seed draws the same numbers on every machine.

/// The state of the generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number of 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u32) -> u32 {
        let bits = self.draw() >> 32;
        u32::try_from((bits * u64::from(end)) >> 32).unwrap_or(0)
    }

    /// True in one of `count` draws.
    pub fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }
}
