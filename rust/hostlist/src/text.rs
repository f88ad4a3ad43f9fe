//! The text form of RFC 29.
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::entry::Entry;
use crate::stem::{Number, Parts, Stems, digits, push_number};
use crate::{Error, Hostlist};

/// A character of a name: printable ASCII but blanks, commas and brackets.
fn in_name(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b',' | b'[' | b']')
}

/// Where a name ends that starts at `start`.
fn name_end(text: &str, start: usize) -> usize {
    let rest = &text.as_bytes()[start..];
    start + rest.iter().take_while(|&&byte| in_name(byte)).count()
}

/// Refuses what is not the name of one host.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let end = name_end(name, 0);
    match name.as_bytes().get(end) {
        None if name.is_empty() => Err(Error::name(name, 0, "expected a name")),
        None => Ok(()),
        Some(b'[' | b']' | b',') => Err(Error::name(
            name,
            end,
            "expected the name of one host, without brackets and commas,",
        )),
        Some(_) => Err(Error::name(name, end, NOT_PRINTABLE)),
    }
}

const NOT_PRINTABLE: &str = "expected printable ASCII without blanks";

/// Numbers in brackets: a single one, or a range.
struct Item {
    at: usize,
    lo: Number,
    hi: u64,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    list: Hostlist,
    stems: Stems,
    items: Vec<Item>,
}

impl<'a> Parser<'a> {
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

    /// The characters of a name from here on, maybe none.
    fn name(&mut self) -> &'a str {
        let start = self.at;
        self.at = name_end(self.text, start);
        &self.text[start..self.at]
    }

    fn list(mut self) -> Result<Hostlist, Error> {
        if self.text.is_empty() {
            return Ok(self.list);
        }
        loop {
            self.expression()?;
            if !self.take(b',') {
                break;
            }
        }
        match self.peek() {
            None => Ok(self.list),
            Some(b'[') => Err(self.fail(
                self.at,
                "expected one pair of brackets in a name, found another",
            )),
            Some(b']') => Err(self.fail(self.at, "expected no `]` without `[`")),
            Some(_) => Err(self.fail(self.at, NOT_PRINTABLE)),
        }
    }

    /// `prefix[idlist]suffix`, each part optional, but not all of them.
    fn expression(&mut self) -> Result<(), Error> {
        let start = self.at;
        let prefix = self.name();
        if !self.take(b'[') {
            if prefix.is_empty() && matches!(self.peek(), None | Some(b',')) {
                return Err(self.fail(start, "expected a host name"));
            }
            if !prefix.is_empty() {
                let entry = self.list.entry_for(prefix, Some(&mut self.stems));
                self.append(entry, start)?;
            }
            return Ok(());
        }
        self.idlist()?;
        let parts = Parts {
            prefix,
            number: self.items.first().map(|item| item.lo),
            suffix: self.name(),
        };
        let stem = self.stems.intern(&parts);
        let mut items = std::mem::take(&mut self.items);
        for item in items.drain(..) {
            let mut entry = Entry::new(Arc::clone(&stem), Some(item.lo));
            entry.hi = item.hi;
            self.append(entry, item.at)?;
        }
        self.items = items;
        Ok(())
    }

    fn append(&mut self, entry: Entry, at: usize) -> Result<(), Error> {
        self.list
            .append_entry(entry)
            .map_err(|limit| self.fail(at, limit))
    }

    /// What stands in brackets, and the closing one.
    fn idlist(&mut self) -> Result<(), Error> {
        // The zeroes in front of the first number hold for all.
        let mut width = 1;
        loop {
            let at = self.at;
            let mut lo = self.number()?;
            if self.items.is_empty() {
                width = lo.width();
            }
            lo.len = lo.width().max(width).max(digits(lo.value));
            let range = self.take(b'-');
            let hi = if range { self.range_end(lo)? } else { lo.value };
            self.items.push(Item { at, lo, hi });
            if self.take(b',') {
                continue;
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

    fn range_end(&mut self, lo: Number) -> Result<u64, Error> {
        let at = self.at;
        let hi = self.number()?;
        if hi.width() > lo.len {
            return Err(self.fail(at, "expected no more zeroes than the range starts with"));
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

impl FromStr for Hostlist {
    type Err = Error;

    /// Reads RFC 29 text: names and `prefix[idlist]suffix`, separated by commas; the empty text is the empty list.
    ///
    /// - The zeroes in front of the first number of an idlist hold for all of it: `[005,4,11-13]` is
    ///   `005,004,011,012,013`. A later number that is written with more of them keeps them.
    /// - Numbers in brackets have at most 255 digits and go up to 18446744073709551615. Outside of brackets digits are
    ///   a part of the name, as many as there are.
    /// - A name has one pair of brackets at most.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parser = Parser {
            text,
            at: 0,
            list: Self::new(),
            stems: Stems::default(),
            items: Vec::new(),
        };
        parser.list()
    }
}

/// How entries in one pair of brackets are written: by the zeroes that the first of them shows.
#[derive(Clone, Copy)]
struct Width(Option<u8>);

impl Width {
    fn of(entry: &Entry) -> Self {
        Self((entry.width > 1).then_some(entry.width))
    }

    /// Whether an entry reads the same behind that first one.
    fn suits(self, entry: &Entry) -> bool {
        match (self.0, entry.width > 1) {
            (Some(width), true) => entry.width == width,
            (Some(width), false) => digits(entry.lo) >= width,
            (None, zeroes) => !zeroes,
        }
    }
}

impl Hostlist {
    /// How many entries from the first on can share its brackets.
    fn group(entries: &[Entry]) -> usize {
        let Some((first, rest)) = entries.split_first() else {
            return 0;
        };
        if !first.stem.is_numbered() {
            return 1;
        }
        let width = Width::of(first);
        let more = rest
            .iter()
            .take_while(|entry| first.same_stem(entry) && width.suits(entry));
        1 + more.count()
    }

    fn write(&self, text: &mut String) {
        let mut entries = &self.entries[..];
        while let Some(first) = entries.first() {
            let (group, rest) = entries.split_at(Self::group(entries));
            entries = rest;
            if !text.is_empty() {
                text.push(',');
            }
            if group.len() == 1 && first.lo == first.hi {
                first.write(text, 0);
                continue;
            }
            text.push_str(first.stem.prefix());
            for (index, entry) in group.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                push_number(text, entry.lo, entry.width);
                if entry.lo < entry.hi {
                    text.push('-');
                    push_number(text, entry.hi, entry.width);
                }
            }
            text.push(']');
            text.push_str(first.stem.suffix());
        }
    }
}

impl fmt::Display for Hostlist {
    /// The text of RFC 29: order and repeats kept, hosts that follow each other folded where that reads back the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.pad(&text)
    }
}
