//! A run of hosts whose numbers count up by one, and that differ in nothing else.
use std::ops::Range;
use std::sync::Arc;

use crate::error::Limit;
use crate::stem::{MAX_DIGITS, Number, Parts, Stem, digits, push_number};
use crate::stems::Stems;

/// Consecutive hosts of a list.
///
/// A list may have millions: this is three words, and a copy needs nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The first number; 0 if the stem has no number.
    pub(crate) lo: u64,
    /// Number of hosts less one.
    span: u32,
    /// Position in the list behind the last of these hosts.
    end: u32,
    /// Number of the stem in the list.
    pub(crate) stem: u32,
    /// The least number of digits: what the first number shows if it begins with a zero, else 1.
    pub(crate) width: u8,
}

/// The number of an entry whose stem has none.
const NO_NUMBER: Number = Number { value: 0, len: 1 };

impl Entry {
    #[inline]
    pub(crate) fn new(stem: u32, number: Option<Number>) -> Self {
        let Number { value, .. } = number.unwrap_or(NO_NUMBER);
        Self {
            lo: value,
            span: 0,
            end: 0,
            stem,
            width: number.map_or(1, Number::width),
        }
    }

    /// The hosts from one number to another; an error if they are more than a list has.
    pub(crate) fn range(stem: u32, lo: Number, hi: u64) -> Result<Self, Limit> {
        let span = u32::try_from(hi - lo.value).ok();
        // One more must fit too.
        let span = span.filter(|&span| span < u32::MAX);
        Ok(Self {
            span: span.ok_or(Limit::Hosts)?,
            ..Self::new(stem, Some(lo))
        })
    }

    /// The last number.
    #[inline]
    pub(crate) fn hi(&self) -> u64 {
        self.lo + u64::from(self.span)
    }

    /// Whether this is one host.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        self.span == 0
    }

    /// Number of hosts.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.span as usize + 1
    }

    /// Position in the list of the first of these hosts.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        (self.end - self.span) as usize - 1
    }

    /// Position in the list behind the last of these hosts.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.end as usize
    }

    /// The same hosts, up to that position in a list.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a list has no more hosts than fit"
    )]
    pub(crate) fn up_to(self, end: usize) -> Self {
        Self {
            end: end as u32,
            ..self
        }
    }

    /// The same hosts, in a list where their stem has that number.
    #[inline]
    pub(crate) fn with_stem(self, stem: u32) -> Self {
        Self { stem, ..self }
    }

    /// The number of digits with which a number is written in this entry.
    #[inline]
    fn digits(&self, value: u64) -> u8 {
        digits(value).max(self.width)
    }

    #[inline]
    pub(crate) fn first(&self) -> Number {
        Number {
            value: self.lo,
            len: self.digits(self.lo),
        }
    }

    /// The first number, if these hosts of a plain stem are one piece: all their numbers are of one length, and no longer
    /// than the numbers of pieces.
    #[inline]
    pub(crate) fn plain_number(&self) -> Option<Number> {
        let number = self.first();
        let is_one = self.is_single() || self.digits(self.hi()) == number.len;
        (is_one && number.len <= MAX_DIGITS).then_some(number)
    }

    /// Appends the name of the host at `index`, which is below the number of hosts.
    pub(crate) fn write(&self, stem: &Stem, text: &mut String, index: usize) {
        text.push_str(stem.prefix());
        if stem.is_numbered() {
            push_number(text, self.lo + index as u64, self.width);
            text.push_str(stem.suffix());
        }
    }

    pub(crate) fn name(&self, stem: &Stem, index: usize) -> String {
        let mut text = String::new();
        self.write(stem, &mut text, index);
        text
    }

    /// Index of the host whose number is written so.
    pub(crate) fn index_of(&self, number: Number) -> Option<usize> {
        let fits = (self.lo..=self.hi()).contains(&number.value)
            && number.len == self.digits(number.value);
        fits.then(|| usize::try_from(number.value - self.lo).ok())?
    }

    /// The hosts at these indices, of which there is at least one.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an entry has no more hosts than fit"
    )]
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        let lo = self.lo + range.start as u64;
        let first = Number {
            value: lo,
            len: self.digits(lo),
        };
        Self {
            lo,
            span: (range.len() - 1) as u32,
            end: 0,
            stem: self.stem,
            width: first.width(),
        }
    }

    /// Whether both have the same stem, of a list with these.
    #[inline]
    pub(crate) fn same_stem(&self, other: &Self, stems: &[Arc<Stem>]) -> bool {
        self.stem == other.stem || stems[self.stem as usize] == stems[other.stem as usize]
    }

    /// Whether the last number is the one before the first of the other.
    #[inline]
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.hi().wrapping_add(1) == other.lo
    }

    /// Whether the number, written so, comes right after the last one.
    #[inline]
    pub(crate) fn precedes(&self, number: Number) -> bool {
        self.hi().checked_add(1) == Some(number.value) && number.len == self.digits(number.value)
    }

    /// Extends this by the hosts that follow it.
    #[inline]
    pub(crate) fn extend(&mut self, hosts: usize) {
        let grown = self.up_to(self.end() + hosts);
        self.span += grown.end - self.end;
        self.end = grown.end;
    }

    /// Appends the hosts of an entry that continues this one, in a list with these stems. Returns false, and changes
    /// nothing, if it does not continue it.
    #[inline]
    pub(crate) fn join(&mut self, next: &Self, stems: &mut Stems) -> bool {
        if !self.same_stem(next, stems.as_slice()) {
            return self.join_in_another_number(next, stems);
        }
        let joined = self.precedes(next.first()) && stems.get(self.stem).is_numbered();
        if joined {
            self.extend(next.len());
        }
        joined
    }

    /// Appends one host, whose name may count up in another number than the one at which the names here are split.
    fn join_in_another_number(&mut self, next: &Self, stems: &mut Stems) -> bool {
        let (own, other) = (stems.get(self.stem), stems.get(next.stem));
        if !next.is_single() || !self.may_step(own, next, other) {
            return false;
        }
        let name = next.name(other, 0);
        if !self.is_single() {
            let follows = number_in(own, &name).is_some_and(|number| self.precedes(number));
            if follows {
                self.extend(1);
            }
            return follows;
        }
        self.step(&name, stems)
    }

    /// Cheaply excludes most names of another stem.
    fn may_step(&self, own: &Stem, next: &Self, other: &Stem) -> bool {
        if own.is_plain() && other.is_plain() {
            // They have another number in front; then all the rest is the same.
            return self.is_single()
                && self.lo == next.lo
                && self.width == next.width
                && own.suffix() == other.suffix()
                && other.prefix().len().wrapping_sub(own.prefix().len()) <= 1;
        }
        own.has_digits() || other.has_digits()
    }

    /// Makes a range of this one host and of a name that differs by one in one of its numbers.
    fn step(&mut self, name: &str, stems: &mut Stems) -> bool {
        let own = self.name(stems.get(self.stem), 0);
        let common = own.bytes().zip(name.bytes());
        let differ = common.take_while(|(a, b)| a == b).count();
        let first = own[..differ]
            .trim_end_matches(|c: char| c.is_ascii_digit())
            .len();
        let (a, b) = (Split::at(&own, first), Split::at(name, first));
        if a.suffix != b.suffix {
            return false;
        }
        let (Some(number), Some(next)) = (Number::read(a.digits), Number::read(b.digits)) else {
            return false;
        };
        let range = Self::new(self.stem, Some(number)).up_to(self.end());
        if !range.precedes(next) {
            return false;
        }
        let parts = Parts {
            prefix: &own[..first],
            number: Some(number),
            suffix: a.suffix,
        };
        *self = Self {
            stem: stems.push(Arc::new(Stem::new(&parts))),
            ..range
        };
        self.extend(1);
        true
    }
}

/// The number of a name that has this stem, if any: that of an entry if the stem has none.
pub(crate) fn number_in(stem: &Stem, name: &str) -> Option<Number> {
    if !stem.is_numbered() {
        return (stem.prefix() == name).then_some(NO_NUMBER);
    }
    let rest = name.strip_prefix(stem.prefix())?;
    Number::read(rest.strip_suffix(stem.suffix())?)
}

/// Runs of a list, with its stems.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs<'a> {
    pub(crate) entries: &'a [Entry],
    pub(crate) stems: &'a [Arc<Stem>],
}

impl<'a> Runs<'a> {
    /// A run and its stem.
    #[inline]
    pub(crate) fn get(self, index: usize) -> Option<(&'a Entry, &'a Stem)> {
        let entry = self.entries.get(index)?;
        Some((entry, self.stem(entry)))
    }

    /// The stem of one of the runs.
    #[inline]
    pub(crate) fn stem(self, entry: &Entry) -> &'a Stem {
        &self.stems[entry.stem as usize]
    }
}

/// A name from some byte on: the digits there, and the rest.
struct Split<'a> {
    digits: &'a str,
    suffix: &'a str,
}

impl<'a> Split<'a> {
    fn at(name: &'a str, first: usize) -> Self {
        let rest = &name[first..];
        let suffix = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        Self {
            digits: &rest[..rest.len() - suffix.len()],
            suffix,
        }
    }
}
