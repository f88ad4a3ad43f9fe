//! The parser of the text form of RFC 29.
use std::fmt;
use std::str::FromStr;

use crate::entry::Entry;
use crate::name::{NOT_PRINTABLE, check_name, name_end};
use crate::product::{Budget, Item, Product};
use crate::stem::{Number, Parts, digits};
use crate::stems::Interner;
use crate::{Error, Hostlist};

const LEFT_OUT_BLANKS: &str = "left out blanks";
const LEFT_OUT_EMPTY_ITEM: &str = "left out an empty item";
const BLANKS_FOR_COMMA: &str = "took blanks for a comma";
const START_ZEROES: &str = "took the zeroes of a range's end for its start too";

/// A deviation of a text from RFC 29 that [`crate::Hostlist::parse_lenient`] corrected.
///
/// Its text says what and where: `left out blanks at byte 4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    /// The byte of the text at which it is.
    pub offset: usize,
    /// The correction, e.g. `left out blanks`.
    pub what: &'static str,
}

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.offset)
    }
}

/// The number of runs in a text from which the number of all its runs is estimated.
const ESTIMATE_RUNS: usize = 1024;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    list: Hostlist,
    interner: Interner,
    items: Vec<Item>,
    budget: Budget,
    /// The corrections, if the parser is lenient.
    mended: Option<Vec<Mended>>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, mended: Option<Vec<Mended>>) -> Self {
        Self {
            text,
            at: 0,
            list: Hostlist::new(),
            interner: Interner::default(),
            items: Vec::new(),
            budget: Budget::default(),
            mended,
        }
    }

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
        Error::list(self.text, at, reason)
    }

    fn mend(&mut self, offset: usize, what: &'static str) {
        if let Some(mended) = &mut self.mended {
            mended.push(Mended { offset, what });
        }
    }

    /// The number of bytes of a kind from here on; 0 if they may not be corrected.
    fn count(&self, of: impl Fn(u8) -> bool) -> usize {
        if self.mended.is_none() {
            return 0;
        }
        let rest = &self.text.as_bytes()[self.at..];
        rest.iter().take_while(|&&byte| of(byte)).count()
    }

    /// Skips blanks.
    fn skip_blanks(&mut self) {
        let blanks = self.count(is_blank);
        if blanks > 0 {
            self.mend(self.at, LEFT_OUT_BLANKS);
            self.at += blanks;
        }
    }

    /// Skips blanks, and commas with nothing between them.
    fn skip_empty_items(&mut self) {
        let (start, len) = (self.at, self.count(|byte| is_blank(byte) || byte == b','));
        let left_out = &self.text.as_bytes()[start..start + len];
        if let Some(comma) = left_out.iter().position(|&byte| byte == b',') {
            self.mend(start + comma, LEFT_OUT_EMPTY_ITEM);
        } else if len > 0 {
            self.mend(start, LEFT_OUT_BLANKS);
        }
        self.at += len;
    }

    /// The characters of a name from here on, maybe none; without blanks that stand in front of a bracket.
    fn name(&mut self) -> &'a str {
        let start = self.at;
        self.at = name_end(self.text, start);
        let name = &self.text[start..self.at];
        let blanks = self.count(|byte| matches!(byte, b' ' | b'\t'));
        let bracket = self.text.as_bytes().get(self.at + blanks) == Some(&b'[');
        if blanks > 0 && bracket && !name.is_empty() {
            self.mend(self.at, LEFT_OUT_BLANKS);
            self.at += blanks;
        }
        name
    }

    fn list(&mut self) -> Result<(), Error> {
        self.skip_empty_items();
        if self.text.is_empty() || self.mended.is_some() && self.peek().is_none() {
            return Ok(());
        }
        loop {
            if !self.name_alike()? {
                self.expression()?;
            }
            if !self.separator() {
                break;
            }
        }
        match self.peek() {
            None => Ok(()),
            Some(b']') => Err(self.fail(self.at, "expected no `]` without `[`")),
            Some(_) => Err(self.fail(self.at, NOT_PRINTABLE)),
        }
    }

    /// Reads the separator between two items. Returns false if there is no further item.
    fn separator(&mut self) -> bool {
        if self.mended.is_none() {
            return self.take(b',');
        }
        let (start, blanks) = (self.at, self.count(is_blank));
        self.at += blanks;
        let end = self.at + self.count(|byte| is_blank(byte) || byte == b',') == self.text.len();
        let comma = self.peek() == Some(b',');
        if blanks > 0 {
            self.mend(
                start,
                if comma || end {
                    LEFT_OUT_BLANKS
                } else {
                    BLANKS_FOR_COMMA
                },
            );
        }
        if end && comma {
            self.mend(self.at, LEFT_OUT_EMPTY_ITEM);
        }
        if end {
            self.at = self.text.len();
            return false;
        }
        if self.take(b',') {
            self.skip_empty_items();
        }
        comma || blanks > 0
    }

    /// Reads one name with the stem of the last one. Returns false, and reads nothing, if the next item is different.
    fn name_alike(&mut self) -> Result<bool, Error> {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let Some((entry, len)) = self.list.entry_alike(rest) else {
            return Ok(false);
        };
        let alone = matches!(rest.get(len), None | Some(b','));
        if alone {
            self.at += len;
            self.append(entry, start)?;
            if self.list.runs() == ESTIMATE_RUNS {
                self.reserve_rest();
            }
        }
        Ok(alone)
    }

    /// Reserves capacity for the runs of the whole text, if it continues as it began.
    fn reserve_rest(&mut self) {
        let runs = self.list.runs();
        let all = runs.saturating_mul(self.text.len()) / self.at.max(1);
        self.list.reserve(all.saturating_sub(runs));
    }

    /// Reads a name, possibly with brackets.
    fn expression(&mut self) -> Result<(), Error> {
        let start = self.at;
        let prefix = self.name();
        if !self.take(b'[') {
            if prefix.is_empty() && matches!(self.peek(), None | Some(b',')) {
                return Err(self.fail(start, "expected a host name"));
            }
            if !prefix.is_empty() {
                let entry = self.list.entry_for(prefix, Some(&mut self.interner));
                self.append(entry, start)?;
            }
            return Ok(());
        }
        self.idlist()?;
        let suffix = self.name();
        if self.peek() == Some(b'[') {
            return self.product(start, prefix, suffix);
        }
        let parts = Parts {
            prefix,
            number: self.items.first().map(|item| item.lo),
            suffix,
        };
        let stem = self.interner.intern(&parts, &mut self.list.stems);
        let mut items = std::mem::take(&mut self.items);
        for item in items.drain(..) {
            let entry = Entry::range(stem, item.lo, item.hi);
            let entry = entry.map_err(|limit| self.fail(item.at, limit))?;
            self.append(entry, item.at)?;
        }
        self.items = items;
        Ok(())
    }

    /// Reads the rest of a name with several pairs of brackets after the first pair, and appends all its hosts.
    fn product(&mut self, start: usize, prefix: &str, suffix: &str) -> Result<(), Error> {
        let mut product = Product::new(prefix);
        product.push(std::mem::take(&mut self.items), suffix);
        while self.take(b'[') {
            self.idlist()?;
            let behind = self.name();
            product.push(std::mem::take(&mut self.items), behind);
        }
        let appended = product.append_to(&mut self.list, &mut self.interner, &mut self.budget);
        appended.map_err(|limit| self.fail(start, limit))
    }

    fn append(&mut self, entry: Entry, at: usize) -> Result<(), Error> {
        self.list
            .append_entry(entry)
            .map_err(|limit| self.fail(at, limit))
    }

    /// Reads the contents of brackets, and the closing bracket.
    fn idlist(&mut self) -> Result<(), Error> {
        // The leading zeroes of the first number apply to all.
        let mut width = 1;
        self.skip_empty_items();
        loop {
            let at = self.at;
            let mut lo = self.number()?;
            if self.items.is_empty() {
                width = lo.width();
            }
            lo.len = lo.width().max(width).max(digits(lo.value));
            self.skip_blanks();
            let range = self.take(b'-');
            let mut hi = lo.value;
            if range {
                self.skip_blanks();
                hi = self.range_end(&mut lo)?;
                self.skip_blanks();
                if self.items.is_empty() {
                    width = lo.width();
                }
            }
            self.items.push(Item { at, lo, hi });
            if self.take(b',') {
                self.skip_empty_items();
                // After a skipped comma the brackets may end; otherwise a number is missing.
                if self.mended.is_none() || self.peek() != Some(b']') {
                    continue;
                }
                self.mend(self.at, LEFT_OUT_EMPTY_ITEM);
            }
            if self.take(b']') {
                return Ok(());
            }
            let reason = if range {
                "expected `,` or `]`"
            } else {
                "expected `,`, `-` or `]`"
            };
            return Err(self.fail(self.at, reason));
        }
    }

    fn range_end(&mut self, lo: &mut Number) -> Result<u64, Error> {
        let at = self.at;
        let hi = self.number()?;
        if hi.width() > lo.len {
            if self.mended.is_none() {
                return Err(self.fail(at, "expected no more zeroes than the range starts with"));
            }
            self.mend(at, START_ZEROES);
            lo.len = hi.len;
        }
        if hi.value < lo.value {
            let reason = format_args!("expected the range to end at {} or above", lo.value);
            return Err(self.fail(at, reason));
        }
        Ok(hi.value)
    }

    fn number(&mut self) -> Result<Number, Error> {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += len;
        if len == 0 {
            return Err(self.fail(start, "expected a number"));
        }
        if len > usize::from(u8::MAX) {
            let reason = format_args!("expected a number of at most {} digits", u8::MAX);
            return Err(self.fail(start, reason));
        }
        Number::read(&self.text[start..self.at]).ok_or_else(|| {
            let reason = format_args!("expected a number up to {}", u64::MAX);
            self.fail(start, reason)
        })
    }
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

impl FromStr for Hostlist {
    type Err = Error;

    /// Reads RFC 29 text: names and `prefix[idlist]suffix`, separated by commas; the empty text is the empty list.
    ///
    /// - The leading zeroes of the first number of an idlist apply to all of its numbers: `[005,4,11-13]` is
    ///   `005,004,011,012,013`. A later number with more zeroes keeps them.
    /// - Numbers in brackets have at most 255 digits and values up to 18446744073709551615. Digits outside of brackets
    ///   are a part of the name, in any number.
    /// - A name with several pairs of brackets, which RFC 29 leaves open, expands to all combinations of their numbers,
    ///   the rightmost counting up first: `x[0-1]c[0-1]` is `x0c0,x0c1,x1c0,x1c1`. Such names may expand to at most
    ///   1,048,576 ranges in a text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parser = Parser::new(text, None);
        parser.list()?;
        parser.list.trim_stems();
        Ok(parser.list)
    }
}

impl Hostlist {
    /// Appends hosts, each a name or a text in RFC 29 form.
    ///
    /// Cheaper than [`Self::push`] for many names.
    ///
    /// # Errors
    ///
    /// Fails if a text is not a hostlist, or if the list would be too long; the hosts before the error remain.
    pub fn try_extend<S: AsRef<str>>(
        &mut self,
        hosts: impl IntoIterator<Item = S>,
    ) -> Result<(), Error> {
        self.trim_stems();
        let mut interner = Interner::default();
        let hosts = hosts.into_iter();
        // The size hint of an iterator may be wrong.
        self.reserve(hosts.size_hint().0.min(1 << 20));
        for host in hosts {
            let host = host.as_ref();
            if let Some(entry) = self.entry_alike(host.as_bytes())
                && entry.1 == host.len()
            {
                self.append_entry(entry.0).map_err(Error::limit)?;
                continue;
            }
            if host.contains(['[', ']', ',']) {
                self.append_list(&host.parse()?)?;
                continue;
            }
            check_name(host)?;
            let entry = self.entry_for(host, Some(&mut interner));
            self.append_entry(entry).map_err(Error::limit)?;
        }
        self.trim_stems();
        Ok(())
    }

    /// Returns a list of hosts, each a name or a text in RFC 29 form.
    ///
    /// # Errors
    ///
    /// A text is not a hostlist, or the list would become too long.
    pub fn try_from_hosts<S: AsRef<str>>(
        hosts: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        let mut list = Self::new();
        list.try_extend(hosts)?;
        Ok(list)
    }

    /// Appends the hosts of a text in RFC 29 form.
    ///
    /// # Errors
    ///
    /// The text is not a hostlist, or the list would become too long; the list is unchanged.
    pub fn extend_from_str(&mut self, text: &str) -> Result<(), Error> {
        self.append(&text.parse()?)
    }

    /// Reads a text of a user or other software that may deviate from RFC 29; returns the corrections too.
    ///
    /// Text by RFC 29 is read as by [`str::parse`]. These deviations are corrected:
    ///
    /// - blanks (new lines are such) around items, commas, dashes and within brackets are left out; in front of a
    ///   bracket only spaces and tabs: `foo [1-3]` is `foo[1-3]`;
    /// - blanks between items count as a comma: `a b` is `a,b`; `foo[1-3] b` has two items;
    /// - empty items are left out: `a,,b`, `a,`, `foo[1,,2]`; there is still no `foo[]`;
    /// - a range whose end shows more zeroes than its start has them in both: `[1-003]` is `[001-003]`.
    ///
    /// ```
    /// use penstock_hostlist::Hostlist;
    ///
    /// let (list, mended) = Hostlist::parse_lenient("foo[1, 3],,bar")?;
    /// assert_eq!(list.to_string(), "foo[1,3],bar");
    /// let mended: Vec<String> = mended.iter().map(ToString::to_string).collect();
    /// assert_eq!(mended, ["left out blanks at byte 6", "left out an empty item at byte 10"]);
    /// # Ok::<(), penstock_hostlist::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the text has an error that is not listed above, e.g. a descending range, whose meaning is ambiguous, or
    /// if it has too many hosts.
    pub fn parse_lenient(text: &str) -> Result<(Self, Vec<Mended>), Error> {
        let mut parser = Parser::new(text, Some(Vec::new()));
        parser.list()?;
        parser.list.trim_stems();
        Ok((parser.list, parser.mended.unwrap_or_default()))
    }
}
