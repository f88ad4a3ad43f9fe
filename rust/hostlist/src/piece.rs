//! A list cut into pieces that compare: in every name the last run of digits, up to 19 of them, is the number.
//!
//! The same names can be written in several ways: `n1[00-02]` and `n[100-102]`. Pieces are what they have in common.
use std::borrow::Cow;
use std::ops::Range;

use crate::entry::{Entry, Runs};
use crate::hash::Table;
use crate::intervals::Interval;
use crate::stem::{MAX_DIGITS, Number, Parts, Stem, digits};

/// Hosts with the same stem and the same number of digits that count up by one.
#[derive(Clone, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) stem: Cow<'a, Stem>,
    /// Digits of the number; 0 without a number.
    pub(crate) len: u8,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// Position in the list of the first of these hosts.
    pub(crate) at: usize,
    /// Index of the entry that they are of.
    pub(crate) entry: usize,
}

/// The numbers of a piece and where it is in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) numbers: Interval,
    at: usize,
    /// Index of the entry that the hosts are of.
    pub(crate) entry: usize,
}

impl Span {
    /// Position in the list of the host with that number.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a list has no more hosts than fit"
    )]
    pub(crate) fn position(self, value: u64) -> usize {
        self.at + (value - self.numbers.lo) as usize
    }

    /// Positions of the hosts with some of its numbers.
    pub(crate) fn positions(self, Interval { lo, hi }: Interval) -> Range<usize> {
        self.position(lo)..self.position(hi) + 1
    }
}

/// The keys of the hosts with a stem of a list; a key has the number of the stem in [`Keys`].
#[derive(Clone, Copy, Debug)]
enum StemKey {
    /// No host with this stem was met.
    Unknown,
    /// Keys with that number, if all numbers of an entry have as many digits.
    Plain(u32),
    /// The key with that number: the stem is a whole name.
    Whole(u32),
    /// Keys that depend on the numbers.
    Other,
}

/// The keys of the stems of a list.
struct StemKeys<'a> {
    runs: Runs<'a>,
    /// The last plain stem, and its number in the keys.
    last: Option<(u32, u32)>,
    /// The keys of each stem, if there are several stems.
    keys: Vec<StemKey>,
}

impl<'a> StemKeys<'a> {
    fn new(runs: Runs<'a>) -> Self {
        let count = runs.stems.len();
        Self {
            runs,
            last: None,
            keys: vec![StemKey::Unknown; if count > 1 { count } else { 0 }],
        }
    }

    /// The keys of the stem of these hosts.
    #[inline]
    fn of(&mut self, hosts: &Entry, keys: &mut Keys<'a>) -> StemKey {
        match self.last {
            Some((stem, key)) if stem == hosts.stem => StemKey::Plain(key),
            _ => self.other(hosts, keys),
        }
    }

    #[inline(never)]
    fn other(&mut self, hosts: &Entry, keys: &mut Keys<'a>) -> StemKey {
        let known = self.keys.get(hosts.stem as usize);
        let mut key = *known.unwrap_or(&StemKey::Unknown);
        if matches!(key, StemKey::Unknown) {
            let stem = self.runs.stem(hosts);
            key = if !stem.is_numbered() {
                StemKey::Whole(keys.number_of(stem))
            } else if stem.is_plain() && hosts.plain_number().is_some() {
                StemKey::Plain(keys.number_of(stem))
            } else {
                StemKey::Other
            };
            if let Some(known) = self.keys.get_mut(hosts.stem as usize) {
                *known = key;
            }
        }
        if let StemKey::Plain(plain) = key {
            self.last = Some((hosts.stem, plain));
        }
        key
    }
}

/// Calls back with each piece of a list: its key and its numbers. An entry that is one piece is not written to memory as one.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the callers' loops over hosts")]
pub(crate) fn each_span<'a>(runs: Runs<'a>, keys: &mut Keys<'a>, mut call: impl FnMut(Key, Span)) {
    let mut stems = StemKeys::new(runs);
    for (entry, hosts) in runs.entries.iter().enumerate() {
        let key = match stems.of(hosts, keys) {
            StemKey::Plain(stem) => hosts.plain_number().map(|number| (stem, number.len)),
            StemKey::Whole(stem) => Some((stem, 0)),
            StemKey::Other | StemKey::Unknown => None,
        };
        if let Some((stem, len)) = key {
            let (lo, hi) = (hosts.lo, hosts.hi());
            let span = Span {
                numbers: Interval { lo, hi },
                at: hosts.start(),
                entry,
            };
            call(Key { stem, len }, span);
        } else {
            let entries = &runs.entries[entry..=entry];
            for piece in Pieces::new(Runs { entries, ..runs }) {
                let span = Span {
                    entry,
                    ..piece.span()
                };
                call(keys.key(&piece), span);
            }
        }
    }
}

impl Piece<'_> {
    pub(crate) fn numbers(&self) -> Interval {
        Interval {
            lo: self.lo,
            hi: self.hi,
        }
    }

    pub(crate) fn span(&self) -> Span {
        Span {
            numbers: self.numbers(),
            at: self.at,
            entry: self.entry,
        }
    }
}

/// Iterator over the pieces of a list, in its order.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    runs: Runs<'a>,
    /// Index of the entry that is next.
    next: usize,
    current: Option<Rest<'a>>,
}

/// An entry of which some hosts are still to come.
#[derive(Debug)]
struct Rest<'a> {
    entry: &'a Entry,
    stem: &'a Stem,
    index: usize,
    from: u64,
    at: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(runs: Runs<'a>) -> Self {
        Self {
            runs,
            next: 0,
            current: None,
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    // Lists of single hosts are worked on as fast as this is, in place.
    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        if self.current.is_none() {
            let (index, entry) = (self.next, self.runs.entries.get(self.next)?);
            self.next += 1;
            let stem = self.runs.stem(entry);
            if let Some(piece) = Piece::of_one(entry, stem, index) {
                return Some(piece);
            }
            self.current = Some(Rest {
                entry,
                stem,
                index,
                from: entry.lo,
                at: entry.start(),
            });
        }
        self.part()
    }
}

impl<'a> Pieces<'a> {
    /// The next piece of the current entry.
    #[inline(never)]
    fn part(&mut self) -> Option<Piece<'a>> {
        let rest = self.current.take()?;
        let (piece, last) = rest.piece();
        if last < rest.entry.hi() {
            self.current = Some(Rest {
                from: last + 1,
                at: rest.at + usize::try_from(last - rest.from).map_or(0, |span| span + 1),
                ..rest
            });
        }
        Some(piece)
    }
}

impl<'a> Rest<'a> {
    /// The name of the next host.
    fn name(&self) -> String {
        self.entry.name(self.stem, self.at - self.entry.start())
    }

    /// The next piece, and the entry's number that it goes up to.
    fn piece(&self) -> (Piece<'a>, u64) {
        let (entry, stem, at) = (self.entry, self.stem, self.at);
        if !stem.is_numbered() {
            let piece = Piece {
                stem: Cow::Borrowed(stem),
                len: 0,
                lo: 0,
                hi: 0,
                at,
                entry: self.index,
            };
            return (piece, entry.hi());
        }
        let number = Number {
            value: self.from,
            len: digits(self.from).max(entry.width),
        };
        if stem.has_digits_behind() {
            let name = self.name();
            return (self.piece_of(&Parts::split(&name), 0), self.from);
        }
        let hi = entry.hi().min(last_alike(number));
        let span = hi - self.from;
        if number.len > MAX_DIGITS || !stem.is_plain() {
            // The digits before the number are a part of it: those of the first host tell those of the others.
            let name = self.name();
            return (self.piece_of(&Parts::split(&name), span), hi);
        }
        let piece = Piece {
            stem: Cow::Borrowed(stem),
            len: number.len,
            lo: self.from,
            hi,
            at,
            entry: self.index,
        };
        (piece, hi)
    }

    fn piece_of(&self, first: &Parts<'_>, span: u64) -> Piece<'a> {
        let number = first.number.unwrap_or(Number { value: 0, len: 0 });
        Piece {
            stem: Cow::Owned(Stem::new(first)),
            len: number.len,
            lo: number.value,
            hi: number.value + span,
            at: self.at,
            entry: self.index,
        }
    }
}

/// The last number that is written with as many digits, the last 19 of them counting up.
fn last_alike(number: Number) -> u64 {
    /// The least number of more than [`MAX_DIGITS`] digits.
    const MIN_LONGER_NUMBER: u64 = 10_u64.pow(19);
    if number.value < MIN_LONGER_NUMBER {
        10_u64.pow(u32::from(number.len.min(MAX_DIGITS))) - 1
    } else {
        u64::MAX
    }
}

impl<'a> Piece<'a> {
    /// The piece of an entry that is one, if it has the stem of the entry.
    #[inline]
    fn of_one(entry: &'a Entry, stem: &'a Stem, index: usize) -> Option<Self> {
        let number = entry.plain_number().filter(|_| stem.is_plain())?;
        Some(Self {
            stem: Cow::Borrowed(stem),
            len: number.len,
            lo: entry.lo,
            hi: entry.hi(),
            at: entry.start(),
            entry: index,
        })
    }
}

/// Which hosts can be the same: those of equal keys with equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) stem: u32,
    pub(crate) len: u8,
}

/// Numbers the stems of the pieces of some lists.
#[derive(Debug, Default)]
pub(crate) struct Keys<'a> {
    table: Table,
    stems: Vec<Cow<'a, Stem>>,
    last: Option<(&'a Stem, u32)>,
}

impl<'a> Keys<'a> {
    /// The number of a stem of the lists.
    #[inline]
    fn number_of(&mut self, stem: &'a Stem) -> u32 {
        match self.last {
            Some((last, number)) if std::ptr::eq(stem, last) => number,
            _ => self.number(&Cow::Borrowed(stem)),
        }
    }

    #[inline]
    pub(crate) fn key(&mut self, piece: &Piece<'a>) -> Key {
        let stem = match &piece.stem {
            Cow::Borrowed(stem) => self.number_of(stem),
            owned @ Cow::Owned(_) => self.number(owned),
        };
        Key {
            stem,
            len: piece.len,
        }
    }

    #[expect(
        clippy::ptr_arg,
        reason = "a new stem is borrowed or cloned, as it comes"
    )]
    fn number(&mut self, stem: &Cow<'a, Stem>) -> u32 {
        let hash = stem.hash();
        let is = |number: usize| self.stems[number] == *stem;
        let number = self.table.find(hash, is).unwrap_or_else(|| {
            self.stems.push(stem.clone());
            self.table.push(hash)
        });
        if let Cow::Borrowed(stem) = stem {
            self.last = Some((stem, number));
        }
        number
    }

    /// The number of the stem of a name.
    pub(crate) fn find(&self, parts: &Parts<'_>) -> Option<u32> {
        let is = |number: usize| self.stems[number].is_of(parts);
        self.table.find(parts.hash(), is)
    }

    /// The stems in the order of their numbers.
    pub(crate) fn stems(&self) -> &[Cow<'a, Stem>] {
        &self.stems
    }

    pub(crate) fn into_owned(self) -> Keys<'static> {
        let stems = self.stems.into_iter();
        Keys {
            table: self.table,
            stems: stems.map(|stem| Cow::Owned(stem.into_owned())).collect(),
            last: None,
        }
    }
}
