//! The lenient reader of idsets from other systems, which reports its corrections.
use alloc::vec::Vec;
use core::fmt;

use crate::builder::Builder;
use crate::chunks::Span;
use crate::{Error, IdSet};

/// A correction of a text that deviates from RFC 22, with its position.
///
/// ```
/// let (ids, mended) = penstock_idset::IdSet::parse_lenient("3, 01")?;
/// assert_eq!(ids.to_string(), "1,3");
/// let notes: Vec<String> = mended.iter().map(ToString::to_string).collect();
/// assert_eq!(notes, ["left out blanks at byte 2", "left out zeroes at byte 3", "put in order at byte 3"]);
/// # Ok::<(), penstock_idset::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    /// The byte of the text at which the deviation is.
    pub offset: usize,
    /// The correction.
    pub what: &'static str,
}

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.offset)
    }
}

/// The maximum number of reported faults; more are not corrected by hand.
const MAX_MENDED_FAULTS: usize = 100;

/// The context of separators.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SeparatorContext {
    Start,
    AfterItem,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    spans: Vec<Span>,
    mended: Vec<Mended>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn record_mended(&mut self, offset: usize, what: &'static str) {
        if self.mended.len() < MAX_MENDED_FAULTS {
            self.mended.push(Mended { offset, what });
        }
    }

    fn fail(&self, offset: usize, reason: impl fmt::Display) -> Error {
        Error::at(self.text, offset, reason)
    }

    /// Skips blanks. Returns whether there were any.
    fn blanks(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
        if self.at > start {
            self.record_mended(start, "left out blanks");
        }
        self.at > start
    }

    fn id(&mut self) -> Result<u32, Error> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        if digits.is_empty() {
            return Err(self.fail(start, "expected a number"));
        }
        if digits.len() > 1 && digits.starts_with('0') {
            self.record_mended(start, "left out zeroes");
        }
        let id = digits.parse().ok().filter(|&id| id <= IdSet::MAX_ID);
        id.ok_or_else(|| {
            self.fail(
                start,
                format_args!("expected a number up to {}", IdSet::MAX_ID),
            )
        })
    }

    fn item(&mut self) -> Result<(), Error> {
        let start = self.at;
        let lo = self.id()?;
        let mut hi = lo;
        let before = self.at;
        self.blanks();
        if self.peek() == Some(b'-') {
            self.at += 1;
            self.blanks();
            let end = self.at;
            hi = self.id()?;
            if hi < lo {
                return Err(self.fail(
                    end,
                    format_args!("expected the range to end at {lo} or above"),
                ));
            }
            if hi == lo {
                self.record_mended(start, "took a range of one id for that id");
            }
        } else if self.at > before {
            // The blank belongs to what comes next.
            self.mended
                .truncate(self.mended.partition_point(|note| note.offset < before));
            self.at = before;
        }
        if let Some(last) = self.spans.last() {
            if lo < last.lo {
                self.record_mended(start, "put in order");
            } else if lo <= last.hi {
                self.record_mended(start, "left out a repeat");
            }
        }
        self.spans.push(Span { lo, hi });
        Ok(())
    }

    /// Skips separators between items or around them.
    fn separators(&mut self, place: SeparatorContext) -> Result<(), Error> {
        // No comma is due before the first item.
        let mut commas = usize::from(place == SeparatorContext::Start);
        let start = self.at;
        let mut blank = false;
        loop {
            blank |= self.blanks();
            if self.peek() != Some(b',') {
                break;
            }
            if commas > 0 {
                self.record_mended(self.at, "left out an empty item");
            }
            commas += 1;
            self.at += 1;
        }
        let ends = matches!(self.peek(), None | Some(b']'));
        if commas == 0 && !ends {
            if !blank {
                return Err(self.fail(start, "expected `,`, `-` or the end"));
            }
            self.record_mended(start, "took blanks for a comma");
        }
        if ends && commas > 0 && place == SeparatorContext::AfterItem {
            self.record_mended(start, "left out an empty item");
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        self.blanks();
        let bracketed = self.peek() == Some(b'[');
        self.at += usize::from(bracketed);
        self.separators(SeparatorContext::Start)?;
        while !matches!(self.peek(), None | Some(b']')) {
            self.item()?;
            self.separators(SeparatorContext::AfterItem)?;
        }
        if bracketed {
            if self.peek() != Some(b']') {
                return Err(self.fail(self.at, "expected `]`"));
            }
            self.at += 1;
            self.blanks();
        }
        if self.at < self.text.len() {
            return Err(self.fail(self.at, "expected the end"));
        }
        Ok(())
    }
}

impl IdSet {
    /// Reads what other systems write: blanks, leading zeroes, disorder, repeats, empty items, ranges of one id.
    ///
    /// Returns the set and the first hundred corrections, in the order of their discovery.
    ///
    /// # Errors
    ///
    /// The text holds a descending range, a number that is not an id, or an unexpected character.
    pub fn parse_lenient(text: &str) -> Result<(Self, Vec<Mended>), Error> {
        let mut reader = Reader {
            text,
            at: 0,
            spans: Vec::new(),
            mended: Vec::new(),
        };
        reader.read()?;
        reader.spans.sort_unstable_by_key(|span| span.lo);
        Ok((Builder::build(reader.spans.into_iter()), reader.mended))
    }
}
