//! Job ids: Flux Locally Unique IDs (RFC 19), and their text forms.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::error::Input;

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// Bits of the generator's number and of the sequence number; the rest is the time.
const GENERATOR_BITS: u32 = 14;
const SEQUENCE_BITS: u32 = 10;
const TIME_SHIFT: u32 = GENERATOR_BITS + SEQUENCE_BITS;
const MAX_SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;
/// The greatest time of an id, in milliseconds since the instance's epoch: 34.8 years.
pub const MAX_TIME_MS: u64 = (1 << 40) - 1;

/// A job id: 40 bits of milliseconds since the instance's epoch, 14 bits of generator number,
/// 10 bits of sequence number. The engine and the simulator accept any number that is unique among
/// their jobs. It is displayed in F58, and an integer in JSON.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct JobId(u64);

impl JobId {
    /// The id with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the form shown to users: `ƒ` and base 58.
    pub fn f58(self) -> String {
        self.base58("ƒ")
    }

    /// Returns the same with `f` in the place of `ƒ`, for locales without it.
    pub fn f58_plain(self) -> String {
        self.base58("f")
    }

    fn base58(self, prefix: &str) -> String {
        let mut digits = Vec::with_capacity(12);
        let mut left = self.0;
        loop {
            // The remainder is below 58, so it indexes the alphabet.
            #[allow(clippy::cast_possible_truncation, reason = "a remainder below 58")]
            let digit = (left % 58) as usize;
            digits.push(ALPHABET[digit]);
            left /= 58;
            if left == 0 {
                break;
            }
        }
        let mut text = String::from(prefix);
        text.extend(digits.iter().rev().map(|digit| char::from(*digit)));
        text
    }

    /// Returns the form of keys in the store: four groups of four hexadecimal digits.
    pub fn dothex(self) -> String {
        let word = |place: u32| (self.0 >> (16 * place)) & 0xffff;
        let (a, b, c, d) = (word(3), word(2), word(1), word(0));
        format!("{a:04x}.{b:04x}.{c:04x}.{d:04x}")
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.f58())
    }
}

fn invalid(text: &str, detail: &str) -> Error {
    let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    Error::new(Input::JobId, "", format!("`{shown}`: {detail}"))
}

fn parse_f58(text: &str, digits: &str) -> Result<u64, Error> {
    if digits.is_empty() {
        return Err(invalid(text, "expected base 58 digits after the prefix"));
    }
    digits.bytes().try_fold(0_u64, |id, byte| {
        let digit = ALPHABET.iter().position(|letter| *letter == byte);
        let digit = digit.ok_or_else(|| invalid(text, "expected base 58 digits"))?;
        id.checked_mul(58)
            .and_then(|id| id.checked_add(digit as u64))
            .ok_or_else(|| invalid(text, "expected at most 64 bits"))
    })
}

fn parse_radix(text: &str, digits: &str, radix: u32) -> Result<u64, Error> {
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        let detail = "expected an F58, decimal, hexadecimal (0x) or dotted hexadecimal id";
        return Err(invalid(text, detail));
    }
    u64::from_str_radix(digits, radix).map_err(|_| invalid(text, "expected at most 64 bits"))
}

impl FromStr for JobId {
    type Err = Error;

    /// Reads all forms of RFC 19 except the mnemonic and emoji ones.
    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(digits) = text.strip_prefix('ƒ').or_else(|| text.strip_prefix('f'))
            && !text.contains('.')
        {
            return parse_f58(text, digits).map(Self);
        }
        if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            return parse_radix(text, digits, 16).map(Self);
        }
        if text.contains('.') {
            let groups: Vec<&str> = text.split('.').collect();
            if groups.len() != 4 || groups.iter().any(|group| group.len() != 4) {
                let detail = "expected four groups of four hexadecimal digits";
                return Err(invalid(text, detail));
            }
            return parse_radix(text, &groups.concat(), 16).map(Self);
        }
        if text.contains("--") || text.contains('-') {
            return Err(invalid(text, "the mnemonic form is not supported"));
        }
        if text.chars().any(|character| u32::from(character) >= 0x2190) {
            return Err(invalid(text, "the emoji form is not supported"));
        }
        parse_radix(text, text, 10).map(Self)
    }
}

impl JobId {
    /// The time of an id of a [`FluidGenerator`], in milliseconds since its epoch.
    pub fn milliseconds(self) -> u64 {
        self.0 >> TIME_SHIFT
    }

    /// The id that a generator makes after this one if no time passes.
    #[must_use]
    pub fn successor(self) -> Self {
        let (time, rest) = (self.0 >> TIME_SHIFT, self.0 & ((1 << TIME_SHIFT) - 1));
        if rest & MAX_SEQUENCE < MAX_SEQUENCE {
            Self(self.0 + 1)
        } else {
            Self((time.wrapping_add(1) << TIME_SHIFT) | (rest & !MAX_SEQUENCE))
        }
    }

    /// The number of [successors](Self::successor) from this id to a later one; `None` if the later one is not a successor.
    pub fn distance(self, later: Self) -> Option<u64> {
        let generator = |id: Self| (id.0 >> SEQUENCE_BITS) & ((1 << GENERATOR_BITS) - 1);
        let position = |id: Self| (id.0 >> TIME_SHIFT << SEQUENCE_BITS) | (id.0 & MAX_SEQUENCE);
        (generator(self) == generator(later))
            .then(|| position(later).checked_sub(position(self)))
            .flatten()
    }
}

/// Generates unique, increasing ids, even if the clock goes back.
#[derive(Clone, Debug)]
pub struct FluidGenerator {
    generator: u64,
    time: u64,
    sequence: u64,
    begun: bool,
}

impl FluidGenerator {
    /// Returns a generator with the low 14 bits of this number.
    pub fn new(generator: u16) -> Self {
        Self {
            generator: u64::from(generator) & ((1 << GENERATOR_BITS) - 1),
            time: 0,
            sequence: 0,
            begun: false,
        }
    }

    /// Records an id from before a restart, so that later ones are greater.
    pub fn observe(&mut self, id: JobId) {
        let (time, sequence) = (id.0 >> TIME_SHIFT, id.0 & MAX_SEQUENCE);
        if !self.begun || (time, sequence) > (self.time, self.sequence) {
            (self.time, self.sequence, self.begun) = (time, sequence, true);
        }
    }

    /// Returns the next id. `now` is in milliseconds since the instance's epoch. After the 1024 ids of a
    /// millisecond, those of the next are used. `None` if the time exceeds [`MAX_TIME_MS`]; no id is
    /// used up then.
    pub fn next(&mut self, now: u64) -> Option<JobId> {
        let (time, sequence) = if !self.begun || now > self.time {
            (now, 0)
        } else if self.sequence < MAX_SEQUENCE {
            (self.time, self.sequence + 1)
        } else {
            (self.time + 1, 0)
        };
        if now.max(time) > MAX_TIME_MS {
            return None;
        }
        (self.time, self.sequence, self.begun) = (time, sequence, true);
        let id = (time << TIME_SHIFT) | (self.generator << SEQUENCE_BITS) | sequence;
        Some(JobId(id))
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::JobId;

    #[test]
    fn it_is_its_number_in_json_and_in_hashes() {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        for number in [0, 1, 58, 1 << 24, u64::MAX] {
            let id = JobId::new(number);
            let text = serde_json::to_string(&id).unwrap();
            assert_eq!(text, number.to_string());
            assert_eq!(serde_json::from_str::<JobId>(&text).unwrap(), id);
            assert_eq!(hasher.hash_one(id), hasher.hash_one(number));
        }
        assert_eq!(size_of::<Option<JobId>>(), size_of::<Option<u64>>());
    }
}
