//! A run of hosts whose numbers count up by one, and that differ in nothing else.
use std::ops::Range;
use std::sync::Arc;

use crate::stem::{MAX_DIGITS, Number, Parts, Stem, digits, push_number};

/// Consecutive hosts of a list.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) stem: Arc<Stem>,
    /// The numbers, both included; 0 if the stem has no number.
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// The least number of digits: what the first number shows if it begins with a zero, else 1.
    pub(crate) width: u8,
    /// Position in the list behind the last of these hosts.
    pub(crate) end: usize,
}

impl Entry {
    pub(crate) fn new(stem: Arc<Stem>, number: Option<Number>) -> Self {
        let Number { value, .. } = number.unwrap_or(Number { value: 0, len: 1 });
        Self {
            stem,
            lo: value,
            hi: value,
            width: number.map_or(1, Number::width),
            end: 0,
        }
    }

    /// Number of hosts less one: the number itself may not fit.
    fn span(&self) -> u64 {
        self.hi - self.lo
    }

    /// Number of hosts; `usize::MAX` if there are more.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.span()).map_or(usize::MAX, |span| span.saturating_add(1))
    }

    pub(crate) fn start(&self) -> usize {
        self.end - self.len()
    }

    /// The number of digits with which a number is written in this entry.
    fn digits(&self, value: u64) -> u8 {
        digits(value).max(self.width)
    }

    pub(crate) fn first(&self) -> Number {
        Number {
            value: self.lo,
            len: self.digits(self.lo),
        }
    }

    /// The first number, if these hosts are one piece and have the stem of the entry: no digits before the numbers belong to
    /// them, and all are of one length.
    #[inline]
    pub(crate) fn plain_number(&self) -> Option<Number> {
        let number = self.first();
        let is_plain = self.stem.is_plain() && number.len <= MAX_DIGITS;
        (is_plain && (self.lo == self.hi || self.digits(self.hi) == number.len)).then_some(number)
    }

    /// Appends the name of the host at `index`, which is below the number of hosts.
    pub(crate) fn write(&self, text: &mut String, index: usize) {
        text.push_str(self.stem.prefix());
        if self.stem.is_numbered() {
            push_number(text, self.lo + index as u64, self.width);
            text.push_str(self.stem.suffix());
        }
    }

    pub(crate) fn name(&self, index: usize) -> String {
        let mut text = String::new();
        self.write(&mut text, index);
        text
    }

    /// Index of the host whose number is written so.
    pub(crate) fn index_of(&self, number: Number) -> Option<usize> {
        let fits =
            (self.lo..=self.hi).contains(&number.value) && number.len == self.digits(number.value);
        fits.then(|| usize::try_from(number.value - self.lo).ok())?
    }

    /// The hosts at these indices, of which there is at least one.
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        let lo = self.lo + range.start as u64;
        let first = Number {
            value: lo,
            len: self.digits(lo),
        };
        Self {
            stem: Arc::clone(&self.stem),
            lo,
            hi: self.lo + (range.end - 1) as u64,
            width: first.width(),
            end: 0,
        }
    }

    pub(crate) fn same_stem(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.stem, &other.stem) || self.stem == other.stem
    }

    /// Whether the number, written so, comes right after the last one.
    pub(crate) fn precedes(&self, number: Number) -> bool {
        self.hi.checked_add(1) == Some(number.value) && number.len == self.digits(number.value)
    }

    /// Appends the hosts of an entry that continues this one. Returns false, and changes nothing, if it does not
    /// continue it.
    #[inline]
    pub(crate) fn join(&mut self, next: &Self) -> bool {
        if !self.same_stem(next) {
            return self.join_in_another_number(next);
        }
        let joined = self.stem.is_numbered() && self.precedes(next.first());
        if joined {
            self.hi = next.hi;
        }
        joined
    }

    /// Appends one host, whose name may count up in another number than the one at which the names here are split.
    fn join_in_another_number(&mut self, next: &Self) -> bool {
        if next.lo < next.hi || !self.may_step(next) {
            return false;
        }
        let name = next.name(0);
        if self.len() > 1 {
            let follows = self
                .number_in(&name)
                .is_some_and(|number| self.precedes(number));
            self.hi += u64::from(follows);
            return follows;
        }
        self.step(&name)
    }

    /// Cheaply excludes most names of another stem.
    fn may_step(&self, next: &Self) -> bool {
        let (a, b) = (&*self.stem, &*next.stem);
        if a.is_plain() && b.is_plain() {
            // They have another number in front; then all the rest is the same.
            return self.lo == self.hi
                && self.lo == next.lo
                && self.width == next.width
                && a.suffix() == b.suffix()
                && b.prefix().len().wrapping_sub(a.prefix().len()) <= 1;
        }
        a.has_digits() || b.has_digits()
    }

    /// The number of a name that has this stem.
    #[inline]
    pub(crate) fn number_in(&self, name: &str) -> Option<Number> {
        if !self.stem.is_numbered() {
            return None;
        }
        let rest = name.strip_prefix(self.stem.prefix())?;
        Number::read(rest.strip_suffix(self.stem.suffix())?)
    }

    /// Makes a range of this one host and of a name that differs by one in one of its numbers.
    fn step(&mut self, name: &str) -> bool {
        let own = self.name(0);
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
        let parts = Parts {
            prefix: &own[..first],
            number: Some(number),
            suffix: a.suffix,
        };
        let mut range = Self::new(Arc::new(Stem::new(&parts)), Some(number));
        if !range.precedes(next) {
            return false;
        }
        range.hi = next.value;
        range.end = self.end;
        *self = range;
        true
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
