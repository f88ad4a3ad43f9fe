//! The text form of RFC 22.
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::builder::Builder;
use crate::chunks::Span;
use crate::{Error, IdSet};

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// The number of digits of the last number, from one to seven.
    len: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn fail(&self, at: usize, reason: impl fmt::Display) -> Error {
        Error::at(self.text, at, reason)
    }

    /// A decimal number without leading zeroes.
    #[expect(
        clippy::inline_always,
        reason = "its result need not be passed through memory"
    )]
    #[inline(always)]
    fn id(&mut self) -> Result<u32, Error> {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        if let Some(bytes) = rest.first_chunk()
            && let Some(id) = number_of_len(u64::from_le_bytes(*bytes), self.len)
        {
            // Not the length that was found, so that the processor need not wait for that to read on.
            self.at += self.len;
            return Ok(id);
        }
        self.id_by_digits()
    }

    // Short texts have few numbers that are followed by eight characters.
    #[inline]
    fn id_by_digits(&mut self) -> Result<u32, Error> {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let (mut id, mut len) = (0_u64, 0);
        while let Some(digit) = rest.get(len).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            // Ten digits do not overflow; a longer number is rejected anyway.
            id = id.wrapping_mul(10).wrapping_add(digit.into());
            len += 1;
        }
        self.at += len;
        self.len = len.clamp(1, 7);
        let plain = len == 1 || (2..=10).contains(&len) && rest.first() != Some(&b'0');
        match u32::try_from(id) {
            Ok(id) if plain && id <= IdSet::MAX_ID => Ok(id),
            _ => Err(self.bad_id(start, len)),
        }
    }

    #[cold]
    fn bad_id(&self, start: usize, len: usize) -> Error {
        if len == 0 {
            return self.fail(start, "expected a number");
        }
        if len > 1 && self.text.as_bytes().get(start) == Some(&b'0') {
            return self.fail(start, "expected a number without leading zeroes");
        }
        self.fail(
            start,
            format_args!("expected a number up to {}", IdSet::MAX_ID),
        )
    }

    /// An id or a range, all above `last`.
    #[expect(
        clippy::inline_always,
        reason = "its result need not be passed through memory"
    )]
    #[inline(always)]
    fn span(&mut self, last: Option<u32>) -> Result<Span, Error> {
        let start = self.at;
        let lo = self.id()?;
        if let Some(last) = last
            && lo <= last
        {
            let reason = format_args!("expected a number above {last}");
            return Err(self.fail(start, reason));
        }
        if !self.take(b'-') {
            return Ok(Span { lo, hi: lo });
        }
        let end = self.at;
        let hi = self.id()?;
        if hi <= lo {
            let reason = format_args!("expected the range to end above {lo}");
            return Err(self.fail(end, reason));
        }
        Ok(Span { lo, hi })
    }

    fn set(&mut self) -> Result<IdSet, Error> {
        let mut set = Builder::default();
        let bracketed = self.take(b'[');
        let empty = if bracketed {
            self.peek() == Some(b']')
        } else {
            self.text.is_empty()
        };
        let (mut last, mut range) = (None, true);
        if !empty {
            loop {
                let span = self.span(last)?;
                (last, range) = (Some(span.hi), span.lo < span.hi);
                set.push(span);
                if !self.take(b',') {
                    break;
                }
            }
        }
        if bracketed && !self.take(b']') {
            let reason = if range {
                "expected `,` or `]`"
            } else {
                "expected `,`, `-` or `]`"
            };
            return Err(self.fail(self.at, reason));
        }
        if self.at < self.text.len() {
            let reason = match (bracketed, range) {
                (true, _) => "expected the end",
                (false, true) => "expected `,` or the end",
                (false, false) => "expected `,`, `-` or the end",
            };
            return Err(self.fail(self.at, reason));
        }
        Ok(set.finish())
    }
}

/// The number of `len` digits, one to seven, at the start of eight characters, the first one in the lowest byte.
/// None if there are fewer or more digits, or leading zeroes.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a number of seven digits has 24 bits"
)]
fn number_of_len(characters: u64, len: usize) -> Option<u32> {
    // Digits become their values; the bytes of other characters are above 9. A carry goes only to later characters.
    let values = characters ^ 0x3030_3030_3030_3030;
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    if others.trailing_zeros() as usize / 8 != len || values.trailing_zeros() >= 8 && len > 1 {
        return None;
    }
    // The digits, behind zeroes; then the values of pairs, of four and of eight digits.
    let values = values.wrapping_shl(64 - 8 * len as u32);
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    let all = fours.wrapping_mul(10_000).wrapping_add(fours >> 32);
    Some(all as u32)
}

impl FromStr for IdSet {
    type Err = Error;

    /// Reads RFC 22 text: ids and ranges in ascending order, separated by commas, in brackets or not.
    ///
    /// Nothing else is let through: no blanks, signs, leading zeroes, repeats, disorder, or ranges of one id (`2-2`).
    fn from_str(text: &str) -> Result<Self, Error> {
        Parser {
            text,
            at: 0,
            len: 1,
        }
        .set()
    }
}

/// The four digits of each number below 10,000, the first one in the lowest byte.
static DIGITS: [u32; 10_000] = {
    let mut table = [0; 10_000];
    let mut number: u32 = 0;
    while number < 10_000 {
        let digits = [
            number / 1000,
            number / 100 % 10,
            number / 10 % 10,
            number % 10,
        ];
        table[number as usize] =
            0x3030_3030 + (digits[0] | digits[1] << 8 | digits[2] << 16 | digits[3] << 24);
        number += 1;
    }
    table
};

/// Bytes that an id overwrites, the unused ones included.
const PUT_BYTES: usize = 16;
const BLOCK_BYTES: usize = 256;

/// Writes ascending ids: what stands before their last four digits is mostly that of the id before.
struct Writer {
    text: Vec<u8>,
    /// The end of the text, and how much of it is used.
    block: [u8; BLOCK_BYTES],
    used: usize,
    /// The last ten thousand: its first id, its digits, and their number.
    base: u32,
    prefix: [u8; 8],
    prefix_len: usize,
}

impl Writer {
    /// A writer with memory for the text of a set.
    fn new(set: &IdSet) -> Self {
        // At most as many numbers as ids, and two for each range, each of at most as many digits as the last one.
        // The text of a small set mostly fits into the block.
        let mut bytes = 0;
        if set.heap_bytes() > BLOCK_BYTES {
            let numbers = set.len().min(2 * set.range_count() as u64);
            let digits = set.last().and_then(u32::checked_ilog10).unwrap_or(0) + 1;
            bytes = numbers * u64::from(digits + 1);
        }
        Self {
            text: Vec::with_capacity(usize::try_from(bytes).unwrap_or(0)),
            block: [0; BLOCK_BYTES],
            used: 0,
            base: 0,
            prefix: [0; 8],
            prefix_len: 0,
        }
    }

    /// Writes an id and the character behind it.
    #[inline]
    fn push(&mut self, id: u32, then: u8) {
        if id - self.base >= 10_000 {
            self.set_base(id);
        }
        let low = id - self.base;
        let mut word = u64::from(DIGITS[low as usize]) | u64::from(then) << 32;
        let mut len = 5;
        if self.prefix_len == 0 {
            let zeroes = usize::from(low < 1000) + usize::from(low < 100) + usize::from(low < 10);
            word >>= 8 * zeroes;
            len -= zeroes;
        }
        if self.used + PUT_BYTES > self.block.len() {
            self.flush();
        }
        // Stores of fixed length, of which the next one overwrites the rest, are faster than those of just the digits.
        let place = &mut self.block[self.used..self.used + PUT_BYTES];
        place[..8].copy_from_slice(&self.prefix);
        place[self.prefix_len..self.prefix_len + 8].copy_from_slice(&word.to_le_bytes());
        self.used += self.prefix_len + len;
    }

    #[cold]
    fn set_base(&mut self, id: u32) {
        let high = id / 10_000;
        self.base = high * 10_000;
        // Eight digits, the first one in the lowest byte; the leading zeroes are dropped.
        let digits =
            [high / 10_000, high % 10_000].map(|number| u64::from(DIGITS[number as usize]));
        let word = digits[0] | digits[1] << 32;
        let zeroes = (word ^ 0x3030_3030_3030_3030).trailing_zeros() / 8;
        self.prefix = word.wrapping_shr(8 * zeroes).to_le_bytes();
        self.prefix_len = 8 - zeroes as usize;
    }

    fn put_byte(&mut self, byte: u8) {
        self.block[self.used] = byte;
        self.used += 1;
    }

    #[inline]
    fn flush(&mut self) {
        self.text.extend_from_slice(&self.block[..self.used]);
        self.used = 0;
    }

    fn finish(mut self) -> String {
        self.flush();
        String::from_utf8(self.text).expect("digits and punctuation are ASCII")
    }
}

impl IdSet {
    /// The canonical text (RFC 22): ascending, ranges folded; empty for the empty set.
    pub fn to_text(&self) -> String {
        let mut writer = Writer::new(self);
        self.write(&mut writer);
        writer.finish()
    }

    /// The canonical text in brackets; `[]` for the empty set.
    pub fn to_bracketed_text(&self) -> String {
        let mut writer = Writer::new(self);
        writer.put_byte(b'[');
        self.write(&mut writer);
        writer.put_byte(b']');
        writer.finish()
    }

    fn write(&self, writer: &mut Writer) {
        if !self.is_empty() {
            self.each_span(|span| {
                writer.push(span.lo, if span.lo < span.hi { b'-' } else { b',' });
                if span.lo < span.hi {
                    writer.push(span.hi, b',');
                }
            });
            // The last comma.
            writer.used -= 1;
        }
    }
}

impl fmt::Display for IdSet {
    /// The canonical text without brackets; empty for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_text())
    }
}
