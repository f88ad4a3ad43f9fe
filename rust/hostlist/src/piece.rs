//! A list cut into pieces that compare: in every name the last run of digits, up to 19 of them, is the number.
//!
//! The same names can be written in several ways: `n1[00-02]` and `n[100-102]`. Pieces are what they have in common.
use std::borrow::Cow;
use std::collections::HashMap;

use crate::Hostlist;
use crate::entry::Entry;
use crate::stem::{DIGITS, Number, Parts, Stem, digits};

/// Hosts with the same stem and the same number of digits that count up by one.
#[derive(Clone, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) stem: Cow<'a, Stem>,
    /// Digits of the number; 0 where there is none.
    pub(crate) len: u8,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// Position in the list of the first of these hosts.
    pub(crate) at: usize,
}

impl Piece<'_> {
    /// Position in the list of the host with that number.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a list has no more hosts than fit"
    )]
    pub(crate) fn position(&self, value: u64) -> usize {
        self.at + (value - self.lo) as usize
    }
}

/// Iterator over the pieces of a list, in its order.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    entries: std::slice::Iter<'a, Entry>,
    current: Option<Rest<'a>>,
}

/// An entry of which some hosts are still to come.
#[derive(Debug)]
struct Rest<'a> {
    entry: &'a Entry,
    from: u64,
    at: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(list: &'a Hostlist) -> Self {
        Self {
            entries: list.entries.iter(),
            current: None,
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let rest = self.current.take().or_else(|| {
            let entry = self.entries.next()?;
            Some(Rest {
                entry,
                from: entry.lo,
                at: entry.start(),
            })
        })?;
        let (piece, last) = rest.piece();
        if last < rest.entry.hi {
            self.current = Some(Rest {
                entry: rest.entry,
                from: last + 1,
                at: rest.at + usize::try_from(last - rest.from).map_or(0, |span| span + 1),
            });
        }
        Some(piece)
    }
}

impl<'a> Rest<'a> {
    /// The name of the next host.
    fn name(&self) -> String {
        self.entry.name(self.at - self.entry.start())
    }

    /// The next piece, and the entry's number that it goes up to.
    fn piece(&self) -> (Piece<'a>, u64) {
        let (entry, at) = (self.entry, self.at);
        let stem = &*entry.stem;
        if !stem.is_numbered() {
            let piece = Piece {
                stem: Cow::Borrowed(stem),
                len: 0,
                lo: 0,
                hi: 0,
                at,
            };
            return (piece, entry.hi);
        }
        let number = Number {
            value: self.from,
            len: digits(self.from).max(entry.width),
        };
        if stem.suffix().bytes().any(|byte| byte.is_ascii_digit()) {
            let name = self.name();
            return (Piece::of(&Parts::split(&name), 0, at), self.from);
        }
        let hi = entry.hi.min(last_alike(number));
        let span = hi - self.from;
        let digits_before = stem.prefix().ends_with(|c: char| c.is_ascii_digit());
        if number.len > DIGITS || digits_before {
            // The digits before the number are a part of it: those of the first host tell those of the others.
            let name = self.name();
            return (Piece::of(&Parts::split(&name), span, at), hi);
        }
        let piece = Piece {
            stem: Cow::Borrowed(stem),
            len: number.len,
            lo: self.from,
            hi,
            at,
        };
        (piece, hi)
    }
}

/// The last number that is written with as many digits, the last 19 of them counting up.
fn last_alike(number: Number) -> u64 {
    const LIMIT: u64 = 10_u64.pow(19);
    if number.value < LIMIT {
        10_u64.pow(u32::from(number.len.min(DIGITS))) - 1
    } else {
        u64::MAX
    }
}

impl Piece<'_> {
    fn of(first: &Parts<'_>, span: u64, at: usize) -> Self {
        let number = first.number.unwrap_or(Number { value: 0, len: 0 });
        Self {
            stem: Cow::Owned(Stem::new(first)),
            len: number.len,
            lo: number.value,
            hi: number.value + span,
            at,
        }
    }
}

/// Which hosts can be the same: those of equal keys with equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) stem: usize,
    pub(crate) len: u8,
}

/// Numbers the stems of the pieces of some lists.
#[derive(Debug, Default)]
pub(crate) struct Keys<'a> {
    known: HashMap<Cow<'a, Stem>, usize>,
    last: Option<(&'a Stem, usize)>,
}

impl<'a> Keys<'a> {
    pub(crate) fn key(&mut self, piece: &Piece<'a>) -> Key {
        let stem = match (&piece.stem, self.last) {
            (Cow::Borrowed(stem), Some((last, number))) if std::ptr::eq(*stem, last) => number,
            _ => self.number(piece),
        };
        Key {
            stem,
            len: piece.len,
        }
    }

    fn number(&mut self, piece: &Piece<'a>) -> usize {
        let next = self.known.len();
        let number = self.known.get(piece.stem.as_ref()).copied();
        let number = number.unwrap_or_else(|| {
            self.known.insert(piece.stem.clone(), next);
            next
        });
        if let Cow::Borrowed(stem) = &piece.stem {
            self.last = Some((stem, number));
        }
        number
    }

    /// The stems in the order of their numbers.
    pub(crate) fn into_stems(self) -> Vec<Cow<'a, Stem>> {
        let mut stems: Vec<_> = self.known.into_iter().collect();
        stems.sort_unstable_by_key(|(_, number)| *number);
        stems.into_iter().map(|(stem, _)| stem).collect()
    }
}
