//! Random numbers that are reproducible on every platform.
//!
//! A seed must give the same workload on every machine and in every later version. So the generator
//! (xoshiro256++ of Blackman and Vigna, seeded through `SplitMix64`) is written out here, and
//! logarithm and exponential are computed from sums, products and quotients alone, which IEEE 754
//! defines to the last bit; a platform's `ln` and `exp` may differ there.

use std::f64::consts::{LN_2, SQRT_2};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
    /// The second of a pair of normal deviates, once the first has been returned.
    spare: Option<f64>,
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        let state = std::array::from_fn(|_| {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = word;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Self { state, spare: None }
    }

    /// Sixty-four random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Uniform in [0, 1), with 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn uniform(&mut self) -> f64 {
        const UNIFORM_STEP: f64 = 1.0 / 9_007_199_254_740_992.0;
        (self.bits() >> 11) as f64 * UNIFORM_STEP
    }

    /// Uniform in (0, 1].
    pub fn positive(&mut self) -> f64 {
        1.0 - self.uniform()
    }

    /// Uniform among the integers of a range, both ends included.
    pub fn among(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        // A span is at most 2^32, so the bias is below 2^-32.
        let step = u128::from(self.bits()) * u128::from(span);
        low.saturating_add(u32::try_from(step >> 64).unwrap_or(u32::MAX))
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -ln(self.positive()) * mean
    }

    /// Normal with mean 0 and variance 1 (the polar method of Marsaglia).
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let x = 2.0 * self.uniform() - 1.0;
            let y = 2.0 * self.uniform() - 1.0;
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * ln(square) / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }

    /// Gamma with this shape (1 or more) and scale: the mean is their product (the method of
    /// Marsaglia and Tsang).
    pub fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let normal = self.normal();
            let root = 1.0 + c * normal;
            if root <= 0.0 {
                continue;
            }
            let cube = root * root * root;
            let bound = 0.5 * normal * normal + d - d * cube + d * ln(cube);
            if ln(self.positive()) < bound {
                return d * cube * scale;
            }
        }
    }
}

/// The natural logarithm of a positive, normal number.
pub(crate) fn ln(number: f64) -> f64 {
    const FRACTION_MASK: u64 = (1 << 52) - 1;
    let bits = number.to_bits();
    let mut exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or(0) - 1023;
    let mut mantissa = f64::from_bits(bits & FRACTION_MASK | 1023 << 52);
    if mantissa > SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1), |s| < 0.172.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for odd in (0..12).rev() {
        sum = sum * square + 1.0 / f64::from(2 * odd + 1);
    }
    f64::from(exponent) * LN_2 + 2.0 * s * sum
}

/// The exponential of a number between -700 and 700.
pub(crate) fn exp(number: f64) -> f64 {
    let power = (number / LN_2).round();
    let rest = number - power * LN_2;
    let mut sum = 1.0;
    for step in (1..=18).rev() {
        sum = 1.0 + sum * rest / f64::from(step);
    }
    sum * two_to(power)
}

/// Two to the power of a whole number between -1022 and 1023.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to valid exponents"
)]
fn two_to(power: f64) -> f64 {
    let biased = (power + 1023.0).clamp(1.0, 2046.0) as u64;
    f64::from_bits(biased << 52)
}

/// Two to the power of a number.
pub(crate) fn exp2(number: f64) -> f64 {
    exp(number * LN_2)
}

/// The logarithm to base two.
pub(crate) fn log2(number: f64) -> f64 {
    ln(number) / LN_2
}

#[cfg(test)]
mod tests {
    use super::{Random, exp, ln};

    #[test]
    fn the_stream_equals_that_of_the_published_generators() {
        // The first words of SplitMix64 from state 0, as its authors give them.
        let words = Random::new(0).state;
        assert_eq!(words[0], 0xe220_a839_7b1d_cdaf);
        assert_eq!(words[1], 0x6e78_9e6a_a1b9_65f4);
        // xoshiro256++ from the state 1, 2, 3, 4.
        let mut random = Random {
            state: [1, 2, 3, 4],
            spare: None,
        };
        let found: [u64; 4] = std::array::from_fn(|_| random.bits());
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn logarithm_and_exponential_agree_with_those_of_the_platform() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let number = exp(random.uniform() * 200.0 - 100.0);
            assert!((ln(number) - number.ln()).abs() <= 1e-14 * number.ln().abs().max(1.0));
            let power = random.uniform() * 200.0 - 100.0;
            assert!((exp(power) / power.exp() - 1.0).abs() < 1e-13, "{power}");
        }
        assert!(ln(1.0).abs() < f64::MIN_POSITIVE);
    }

    #[test]
    fn deviates_have_the_moments_of_their_distributions() {
        let mut random = Random::new(7);
        let mut moments = |draw: &mut dyn FnMut(&mut Random) -> f64| {
            let count = 200_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..count {
                let value = draw(&mut random);
                sum += value;
                squares += value * value;
            }
            let mean = sum / f64::from(count);
            (mean, squares / f64::from(count) - mean * mean)
        };
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.02 * expected.max(1.0);
        let (mean, variance) = moments(&mut Random::normal);
        assert!(near(mean, 0.0) && near(variance, 1.0), "{mean} {variance}");
        let (mean, variance) = moments(&mut |random| random.gamma(4.2, 0.94));
        assert!(
            near(mean, 3.948) && near(variance, 3.711),
            "{mean} {variance}"
        );
        let (mean, variance) = moments(&mut |random| random.gamma(312.0, 0.03));
        assert!(
            near(mean, 9.36) && near(variance, 0.2808),
            "{mean} {variance}"
        );
        let (mean, variance) = moments(&mut |random| random.exponential(3.0));
        assert!(near(mean, 3.0) && near(variance, 9.0), "{mean} {variance}");
        let (mean, _) = moments(&mut |random| f64::from(random.among(1, 6)));
        assert!(near(mean, 3.5), "{mean}");
    }
}
