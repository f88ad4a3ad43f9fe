//! The text form of RFC 22.
use std::fmt;
use std::str::FromStr;

use crate::builder::Builder;
use crate::spans::Span;
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
        if found {
            self.at += 1;
        }
        found
    }

    fn fail(&self, at: usize, reason: impl fmt::Display) -> Error {
        Error::at(self.text, at, reason)
    }

    /// A decimal number without leading zeroes.
    fn id(&mut self) -> Result<u32, Error> {
        let start = self.at;
        let mut id: u32 = 0;
        let mut fits = true;
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            let next = id
                .checked_mul(10)
                .and_then(|id| id.checked_add(u32::from(byte - b'0')))
                .filter(|&id| id <= IdSet::MAX_ID);
            fits &= next.is_some();
            id = next.unwrap_or(0);
            self.at += 1;
        }
        if self.at == start {
            return Err(self.fail(start, "expected a number"));
        }
        if self.at - start > 1 && self.text.as_bytes()[start] == b'0' {
            return Err(self.fail(start, "expected a number without leading zeroes"));
        }
        if !fits {
            let reason = format_args!("expected a number up to {}", IdSet::MAX_ID);
            return Err(self.fail(start, reason));
        }
        Ok(id)
    }

    /// An id or a range, all above `last`.
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

fn push_id(text: &mut Vec<u8>, id: u32) {
    let mut digits = [0; 10];
    let mut start = digits.len();
    let mut rest = id;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[start..]);
}

impl IdSet {
    /// The canonical text: ascending, ranges folded; in brackets where asked for (`[]` when empty).
    #[expect(clippy::missing_panics_doc, reason = "what is written is ASCII")]
    pub fn format_with(&self, brackets: bool) -> String {
        let mut text = Vec::new();
        if brackets {
            text.push(b'[');
        }
        for (index, range) in self.ranges().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            push_id(&mut text, *range.start());
            if range.start() < range.end() {
                text.push(b'-');
                push_id(&mut text, *range.end());
            }
        }
        if brackets {
            text.push(b']');
        }
        String::from_utf8(text).expect("digits and punctuation are ASCII")
    }
}

impl fmt::Display for IdSet {
    /// The canonical text without brackets; empty for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.format_with(false))
    }
}
