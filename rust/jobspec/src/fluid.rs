//! Job ids: Flux Locally Unique IDs (RFC 19), and the forms they are written in.

use std::fmt;
use std::str::FromStr;

use crate::Error;

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// Bits of the generator's number and of the sequence number; the rest is the time.
const GENERATOR_BITS: u32 = 14;
const SEQUENCE_BITS: u32 = 10;
const TIME_SHIFT: u32 = GENERATOR_BITS + SEQUENCE_BITS;
const MAX_SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;
const MAX_TIME: u64 = (1 << 40) - 1;

/// A job id: 40 bits of milliseconds since the instance's epoch, 14 bits of generator number,
/// 10 bits of sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fluid(pub u64);

impl Fluid {
    /// The form that people see: `ƒ` and base 58.
    pub fn f58(self) -> String {
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
        let mut text = String::from("ƒ");
        text.extend(digits.iter().rev().map(|digit| char::from(*digit)));
        text
    }

    /// The form of keys in the store: four groups of four hexadecimal digits.
    pub fn dothex(self) -> String {
        let word = |place: u32| (self.0 >> (16 * place)) & 0xffff;
        let (a, b, c, d) = (word(3), word(2), word(1), word(0));
        format!("{a:04x}.{b:04x}.{c:04x}.{d:04x}")
    }
}

impl fmt::Display for Fluid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.f58())
    }
}

fn invalid(text: &str, detail: &str) -> Error {
    let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    Error::new("job id", "", format!("`{shown}`: {detail}"))
}

fn parse_f58(text: &str, digits: &str) -> Result<u64, Error> {
    if digits.is_empty() {
        return Err(invalid(text, "expected base 58 digits after the prefix"));
    }
    digits.bytes().try_fold(0_u64, |id, byte| {
        let digit = ALPHABET.iter().position(|it| *it == byte);
        let digit = digit.ok_or_else(|| invalid(text, "expected base 58 digits"))?;
        id.checked_mul(58)
            .and_then(|id| id.checked_add(digit as u64))
            .ok_or_else(|| invalid(text, "expected at most 64 bits"))
    })
}

fn parse_radix(text: &str, digits: &str, radix: u32) -> Result<u64, Error> {
    if digits.is_empty() || !digits.chars().all(|it| it.is_digit(radix)) {
        let detail = "expected an F58, decimal, hexadecimal (0x) or dotted hexadecimal id";
        return Err(invalid(text, detail));
    }
    u64::from_str_radix(digits, radix).map_err(|_| invalid(text, "expected at most 64 bits"))
}

impl FromStr for Fluid {
    type Err = Error;

    /// Reads any of the forms of RFC 19 but the mnemonic and emoji ones.
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
        if text.chars().any(|it| u32::from(it) >= 0x2190) {
            return Err(invalid(text, "the emoji form is not supported"));
        }
        parse_radix(text, text, 10).map(Self)
    }
}

/// Makes ids that never repeat and never go back, whatever the clock does.
#[derive(Clone, Debug)]
pub struct FluidGenerator {
    generator: u64,
    time: u64,
    sequence: u64,
    begun: bool,
}

impl FluidGenerator {
    /// A generator with this number, of which the low 14 bits count.
    pub fn new(generator: u16) -> Self {
        Self {
            generator: u64::from(generator) & ((1 << GENERATOR_BITS) - 1),
            time: 0,
            sequence: 0,
            begun: false,
        }
    }

    /// Takes note of an id made before a restart: later ones are greater.
    pub fn observe(&mut self, id: u64) {
        let (time, sequence) = (id >> TIME_SHIFT, id & MAX_SEQUENCE);
        if !self.begun || (time, sequence) > (self.time, self.sequence) {
            (self.time, self.sequence, self.begun) = (time, sequence, true);
        }
    }

    /// The next id. `now` is in milliseconds since the instance's epoch. When a millisecond's
    /// 1024 ids are used up, those of the next are borrowed.
    pub fn next(&mut self, now: u64) -> u64 {
        let now = now.min(MAX_TIME);
        if !self.begun || now > self.time {
            (self.time, self.sequence, self.begun) = (now, 0, true);
        } else if self.sequence < MAX_SEQUENCE {
            self.sequence += 1;
        } else {
            self.time += 1;
            self.sequence = 0;
        }
        (self.time << TIME_SHIFT) | (self.generator << SEQUENCE_BITS) | self.sequence
    }
}
