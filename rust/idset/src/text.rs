//! The text form of RFC 22.
use std::fmt;
use std::str::FromStr;

use crate::builder::Builder;
use crate::chunks::Span;
use crate::{Error, IdSet};

struct Parser<'a> {
    text: &'a str,
    at: usize,
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
    #[inline]
    fn id(&mut self) -> Result<u32, Error> {
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
    #[inline]
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

impl FromStr for IdSet {
    type Err = Error;

    /// Reads RFC 22 text: ids and ranges in ascending order, separated by commas, in brackets or not.
    ///
    /// Nothing else is let through: no blanks, signs, leading zeroes, repeats, disorder, or ranges of one id (`2-2`).
    fn from_str(text: &str) -> Result<Self, Error> {
        Parser { text, at: 0 }.set()
    }
}

/// Writes ascending ids: what stands before their last four digits is mostly that of the id before.
struct Writer {
    text: Vec<u8>,
    high: u32,
    /// The digits of `high`, behind zeroes.
    digits: [u8; 6],
    zeroes: usize,
}

fn digit(number: u32) -> u8 {
    b'0' + (number % 10) as u8
}

impl Writer {
    fn new() -> Self {
        Self {
            text: Vec::new(),
            high: 0,
            digits: *b"000000",
            zeroes: 6,
        }
    }

    fn push(&mut self, id: u32, then: u8) {
        let (high, low) = (id / 10_000, id % 10_000);
        if high != self.high {
            self.high = high;
            let mut rest = high;
            for place in self.digits.iter_mut().rev() {
                *place = digit(rest);
                rest /= 10;
            }
            let zeroes = self.digits.iter().take_while(|&&digit| digit == b'0');
            self.zeroes = zeroes.count();
        }
        let mut whole = [then; 16];
        whole[..6].copy_from_slice(&self.digits);
        whole[6] = digit(low / 1000);
        whole[7] = digit(low / 100);
        whole[8] = digit(low / 10);
        whole[9] = digit(low);
        let mut start = self.zeroes;
        if high == 0 {
            start += usize::from(low < 1000) + usize::from(low < 100) + usize::from(low < 10);
        }
        // A copy of fixed length, cut off afterwards, is faster than one of just the digits.
        let shifted = u128::from_le_bytes(whole) >> (8 * start);
        let end = self.text.len() + 11 - start;
        self.text.extend_from_slice(&shifted.to_le_bytes());
        self.text.truncate(end);
    }
}

impl IdSet {
    /// The canonical text (RFC 22): ascending, ranges folded; empty for the empty set.
    pub fn to_text(&self) -> String {
        self.write(Writer::new())
    }

    /// The canonical text in brackets; `[]` for the empty set.
    pub fn to_bracketed_text(&self) -> String {
        let mut writer = Writer::new();
        writer.text.push(b'[');
        let mut text = self.write(writer);
        text.push(']');
        text
    }

    fn write(&self, mut writer: Writer) -> String {
        let start = writer.text.len();
        self.each_span(|span| {
            writer.push(span.lo, if span.lo < span.hi { b'-' } else { b',' });
            if span.lo < span.hi {
                writer.push(span.hi, b',');
            }
        });
        if writer.text.len() > start {
            writer.text.pop();
        }
        String::from_utf8(writer.text).expect("digits and punctuation are ASCII")
    }
}

impl fmt::Display for IdSet {
    /// The canonical text without brackets; empty for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_text())
    }
}
