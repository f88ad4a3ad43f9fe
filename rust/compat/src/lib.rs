//! Texts of idsets and hostlists as flux 0.88 reads them, for the modules and the C functions in place of Flux's.
//!
//! Flux accepts more than RFC 22 and RFC 29 allow. A text that they do not allow is rewritten to one that means the same;
//! the errors are those of the text as it was given.

use std::fmt::Write;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;

#[cfg(test)]
mod tests;

/// Reads an idset, in which Flux ignores empty parts: `1,,2`, `[1,]`.
///
/// # Errors
///
/// The text is not an idset for Flux either.
pub fn parse_idset(text: &str) -> Result<IdSet, penstock_idset::Error> {
    text.parse().or_else(|error| {
        let bracketed = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let parts = bracketed.unwrap_or(text).split(',');
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        let ids = parts.join(",");
        if ids.starts_with('[') {
            return Err(error);
        }
        ids.parse().map_err(|_| error)
    })
}

/// Reads a hostlist.
///
/// Blanks and tabs separate hosts as commas do, and empty items are left out. A range has the width of its first number
/// as it is written, with blanks or a `+` before it: `n[1-03]` is `n[1-3]`, and `n[ 1]` is `n01`.
///
/// # Errors
///
/// The text is not a hostlist for Flux either, or a host in it is not one by RFC 29.
pub fn parse_hostlist(text: &str) -> Result<Hostlist, penstock_hostlist::Error> {
    text.parse().or_else(|error| match rewritten(text) {
        Some(text) => text.parse().map_err(|_| error),
        None => Err(error),
    })
}

/// The most hosts that a range of a hostlist's text stands for.
///
/// The text is one that [`parse_hostlist`] reads.
pub fn largest_range(text: &str) -> u64 {
    let brackets = text.split('[').skip(1);
    let ranges = brackets.filter_map(|rest| rest.split_once(']'));
    let pieces = ranges.flat_map(|(ranges, _)| ranges.split(','));
    let sizes = pieces.filter_map(|piece| {
        let (first, last) = piece.split_once('-')?;
        let (first, last) = (Number::read(first)?, Number::read(last)?);
        Some(last.value.saturating_sub(first.value).saturating_add(1))
    });
    sizes.max().unwrap_or(1)
}

/// The text of the same hosts by RFC 29, unless Flux rejects the text.
fn rewritten(text: &str) -> Option<String> {
    let mut list = String::with_capacity(text.len());
    for item in items(text) {
        if !list.is_empty() {
            list.push(',');
        }
        let mut rest = item;
        while let Some((before, after)) = rest.split_once('[') {
            let (ranges, after) = after.split_once(']')?;
            list.push_str(before);
            list.push('[');
            write_ranges(ranges, &mut list)?;
            list.push(']');
            rest = after;
        }
        list.push_str(rest);
    }
    Some(list)
}

/// The items of a list, which commas, blanks and tabs outside of brackets separate.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let mut is_in_brackets = false;
    let items = text.split(move |character| match character {
        '[' => {
            is_in_brackets = true;
            false
        }
        ']' => {
            is_in_brackets = false;
            false
        }
        ',' | ' ' | '\t' => !is_in_brackets,
        _ => false,
    });
    items.filter(|item| !item.is_empty())
}

fn write_ranges(ranges: &str, text: &mut String) -> Option<()> {
    for (position, range) in ranges.split(',').enumerate() {
        if position > 0 {
            text.push(',');
        }
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (Number::read_first(first)?, Some(Number::read(last)?)),
            None => (Number::read(range)?, None),
        };
        // The greatest width of a format.
        let width = usize::from(u16::try_from(first.width).ok()?);
        write!(text, "{:0width$}", first.value).ok()?;
        if let Some(last) = last {
            write!(text, "-{:0width$}", last.value).ok()?;
        }
    }
    Some(())
}

/// A number in brackets, and the bytes of its text.
struct Number {
    value: u64,
    width: usize,
}

impl Number {
    /// Reads a number that blanks, then a `+`, may precede.
    fn read(text: &str) -> Option<Self> {
        let digits = text.trim_start_matches([' ', '\t']);
        let digits = digits.strip_prefix('+').unwrap_or(digits);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            value: digits.parse().ok()?,
            width: text.len(),
        })
    }

    /// Reads the first number of a range, which blanks may follow.
    fn read_first(text: &str) -> Option<Self> {
        let number = Self::read(text.trim_end_matches([' ', '\t']))?;
        Some(Self {
            width: text.len(),
            ..number
        })
    }
}
