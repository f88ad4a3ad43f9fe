//! Stems, the part of a name that the hosts of a range share, and the split of names.
use std::hash::Hasher;

use crate::hash::Mixer;

/// The greatest number of digits that always fit 64 bits.
pub(crate) const MAX_DIGITS: u8 = 19;

/// The placeholder of the number in a stem's text; it is invalid in a name.
pub(crate) const NUMBER_MARK: char = '[';

/// A host name without its number: the text before and after the number, or a whole name without a number.
#[derive(Clone, Debug)]
pub(crate) struct Stem {
    /// The prefix, and, if there is a number, its mark and the suffix.
    text: Box<str>,
    prefix: usize,
    hash: u64,
    /// Whether the number is the last run of digits of its names, and the whole of it if it has up to 19 digits.
    is_plain: bool,
}

impl Stem {
    pub(crate) fn new(parts: &Parts<'_>) -> Self {
        Self::hashed(parts, parts.hash())
    }

    pub(crate) fn hashed(parts: &Parts<'_>, hash: u64) -> Self {
        let mut text = String::with_capacity(parts.prefix.len() + parts.suffix.len() + 1);
        text.push_str(parts.prefix);
        if parts.number.is_some() {
            text.push(NUMBER_MARK);
            text.push_str(parts.suffix);
        }
        let before = parts.prefix.bytes().next_back();
        Self {
            text: text.into(),
            prefix: parts.prefix.len(),
            hash,
            is_plain: parts.number.is_some()
                && !before.is_some_and(|byte| byte.is_ascii_digit())
                && !has_digits(parts.suffix),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.text[..self.prefix]
    }

    pub(crate) fn suffix(&self) -> &str {
        self.text.get(self.prefix + 1..).unwrap_or("")
    }

    /// Whether this is the stem of these parts.
    pub(crate) fn is_of(&self, parts: &Parts<'_>) -> bool {
        self.prefix == parts.prefix.len()
            && self.is_numbered() == parts.number.is_some()
            && self.prefix() == parts.prefix
            && self.suffix() == parts.suffix
    }

    pub(crate) fn is_numbered(&self) -> bool {
        self.text.len() > self.prefix
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether there are digits after the number.
    pub(crate) fn has_digits_behind(&self) -> bool {
        !self.is_plain && has_digits(self.suffix())
    }

    pub(crate) fn has_digits(&self) -> bool {
        has_digits(&self.text)
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The number of the name at the start of a text, and how long that name is, if this is its plain stem.
    ///
    /// This is a faster [`Parts::split`] for names that have the stem of the previous one.
    pub(crate) fn match_plain(&self, text: &[u8]) -> Option<(Number, usize)> {
        if !self.is_plain {
            return None;
        }
        let rest = text.strip_prefix(self.prefix().as_bytes())?;
        let (mut value, mut len) = (0, 0);
        while let Some(digit) = rest
            .get(usize::from(len))
            .map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            if len == MAX_DIGITS {
                return None;
            }
            value = value * 10 + u64::from(digit);
            len += 1;
        }
        let suffix = self.suffix().as_bytes();
        let fits = len > 0 && rest[usize::from(len)..].starts_with(suffix);
        let end = self.prefix + usize::from(len) + suffix.len();
        fits.then_some((Number { value, len }, end))
    }
}

impl PartialEq for Stem {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || self.hash == other.hash && self.prefix == other.prefix && self.text == other.text
    }
}

impl Eq for Stem {}

fn has_digits(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

/// A number as written: its value and its number of digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) value: u64,
    pub(crate) len: u8,
}

impl Number {
    /// Reads at most 255 digits; `None` if the value does not fit.
    pub(crate) fn read(digits: &str) -> Option<Self> {
        let len = u8::try_from(digits.len()).ok().filter(|&len| len > 0)?;
        let mut value: u64 = 0;
        for byte in digits.bytes() {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            value = value.checked_mul(10)?.checked_add(digit)?;
        }
        Some(Self { value, len })
    }

    /// The least number of digits for this number and those that follow it: one, unless it begins with a zero.
    pub(crate) fn width(self) -> u8 {
        if digits(self.value) < self.len {
            self.len
        } else {
            1
        }
    }
}

/// The least number of each number of digits, from two on; 0 for one digit.
const LEAST: [u64; 21] = {
    let mut least = [0; 21];
    let (mut digits, mut value) = (2, 10);
    while digits < 20 {
        least[digits] = value;
        value *= 10;
        digits += 1;
    }
    least[20] = value;
    least
};

/// The number of digits of a number.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "64 bits have at most 20 digits"
)]
pub(crate) fn digits(value: u64) -> u8 {
    // The logarithm to base 2 times that of 2 to base 10: at most one too few.
    let bits = u64::BITS - (value | 1).leading_zeros();
    let digits = (bits * 1233) >> 12;
    let more = value >= LEAST[digits as usize + 1] || digits == 0;
    digits as u8 + u8::from(more)
}

/// The least number that is written with as many digits without a zero in front.
#[inline]
pub(crate) fn least_of(digits: u8) -> u64 {
    LEAST.get(usize::from(digits)).copied().unwrap_or(u64::MAX)
}

/// Appends a number, with leading zeroes up to `width` digits.
pub(crate) fn push_number(text: &mut String, value: u64, width: u8) {
    let mut buffer = [b'0'; 20];
    let mut start = buffer.len();
    let mut rest = value;
    while rest > 0 {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let digits = &buffer[start..];
    for _ in digits.len()..usize::from(width.max(1)) {
        text.push('0');
    }
    text.push_str(str::from_utf8(digits).unwrap_or_default());
}

/// The parts of a host name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) number: Option<Number>,
    pub(crate) suffix: &'a str,
}

impl<'a> Parts<'a> {
    /// The hash of the stem.
    pub(crate) fn hash(&self) -> u64 {
        let mut mixer = Mixer::default();
        mixer.write(self.prefix.as_bytes());
        if self.number.is_some() {
            mixer.write(self.suffix.as_bytes());
        }
        mixer.finish()
    }

    /// Splits a name at its last run of digits, the number; of more than 19 digits the first ones belong to the prefix.
    ///
    /// All comparisons of names use this split, which is unique for every name.
    pub(crate) fn split(name: &'a str) -> Self {
        let bytes = name.as_bytes();
        let Some(last) = bytes.iter().rposition(u8::is_ascii_digit) else {
            return Self {
                prefix: name,
                number: None,
                suffix: "",
            };
        };
        let run = bytes[..last]
            .iter()
            .rev()
            .take(usize::from(MAX_DIGITS) - 1)
            .take_while(|byte| byte.is_ascii_digit());
        let first = last - run.count();
        Self {
            prefix: &name[..first],
            number: Number::read(&name[first..=last]),
            suffix: &name[last + 1..],
        }
    }
}
