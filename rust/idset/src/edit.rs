//! Building a set from a range, adding and removing ids and ranges, and taking parts.
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::Error;
use crate::builder::Builder;
use crate::chunks::Span;
use crate::iter::Ranges;
use crate::set::{Form, INLINE_IDS, IdSet, clipped};
use crate::words::{self, WORD_BITS};

impl IdSet {
    /// The ids of a range; ids above [`Self::MAX_ID`] are ignored.
    pub fn with_range(range: RangeInclusive<u32>) -> Self {
        Builder::build(clipped(&range).into_iter())
    }

    /// Adds an id. Returns whether it was new; 4294967295 is ignored (see [`Self::try_insert`]).
    pub fn insert(&mut self, id: u32) -> bool {
        if id > Self::MAX_ID {
            return false;
        }
        match &mut self.form {
            Form::Large(chunks) => Arc::make_mut(chunks).insert(id),
            Form::Small(words) if id < INLINE_IDS => {
                let (word, bit) = (
                    &mut words[id as usize / WORD_BITS],
                    1 << (id as usize % WORD_BITS),
                );
                let new = *word & bit == 0;
                *word |= bit;
                new
            }
            Form::Small(_) => {
                self.insert_span(Span { lo: id, hi: id });
                true
            }
        }
    }

    /// Adds an id that may be out of range. Returns whether it was new.
    ///
    /// # Errors
    ///
    /// The id is above [`Self::MAX_ID`].
    pub fn try_insert(&mut self, id: u64) -> Result<bool, Error> {
        match u32::try_from(id) {
            Ok(id) if id <= Self::MAX_ID => Ok(self.insert(id)),
            _ => Err(Error::id(id)),
        }
    }

    /// Adds the ids of a range; ids above [`Self::MAX_ID`] are ignored.
    pub fn insert_range(&mut self, range: RangeInclusive<u32>) {
        if let Some(span) = clipped(&range) {
            self.insert_span(span);
        }
    }

    fn insert_span(&mut self, span: Span) {
        match &mut self.form {
            Form::Small(words) if span.hi < INLINE_IDS => {
                words::set(words, span.lo as usize, span.hi as usize);
            }
            Form::Large(chunks) => Arc::make_mut(chunks).insert_span(span),
            Form::Small(_) => {
                let mut chunks = self.chunks().into_owned();
                chunks.insert_span(span);
                self.form = Form::Large(Arc::new(chunks));
            }
        }
    }

    /// Removes an id. Returns whether the set had it.
    pub fn remove(&mut self, id: u32) -> bool {
        let there = self.contains(id);
        if there {
            self.remove_span(Span { lo: id, hi: id });
        }
        there
    }

    /// Removes the ids of a range.
    pub fn remove_range(&mut self, range: RangeInclusive<u32>) {
        if let Some(span) = clipped(&range) {
            self.remove_span(span);
        }
    }

    fn remove_span(&mut self, span: Span) {
        match &mut self.form {
            Form::Small(words) => {
                let last = (INLINE_IDS - 1).min(span.hi);
                if span.lo <= last {
                    words::clear(words, span.lo as usize, last as usize);
                }
            }
            Form::Large(chunks) => {
                Arc::make_mut(chunks).remove_span(span);
                self.shrink_form();
            }
        }
    }

    /// Removes all ids.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Removes and returns the `n` lowest ids. Returns `None` and changes nothing if there are fewer.
    pub fn take_first(&mut self, n: u64) -> Option<Self> {
        let len = self.len();
        if n >= len {
            return (n == len).then(|| core::mem::take(self));
        }
        let Some(last) = self.nth(n)?.checked_sub(1) else {
            return Some(Self::new());
        };
        let taken = self.within(Span { lo: 0, hi: last });
        self.remove_span(Span { lo: 0, hi: last });
        Some(taken)
    }

    /// Removes and returns the lowest id.
    pub fn pop_first(&mut self) -> Option<u32> {
        if let Form::Large(chunks) = &mut self.form
            && let Some(first) = Arc::make_mut(chunks).pop_first()
        {
            return Some(first);
        }
        let first = self.first()?;
        self.remove_span(Span {
            lo: first,
            hi: first,
        });
        Some(first)
    }

    /// Removes and returns the greatest id.
    pub fn pop_last(&mut self) -> Option<u32> {
        let last = self.last()?;
        self.remove_span(Span { lo: last, hi: last });
        Some(last)
    }

    /// The ids of a span.
    fn within(&self, span: Span) -> Self {
        match &self.form {
            Form::Small(_) => {
                let mut part = Self::from_form(Form::Small([0; 2]));
                for range in Ranges::within(self, span) {
                    part.insert_range(range);
                }
                part
            }
            Form::Large(chunks) => Self::from_chunks(chunks.within(span)),
        }
    }

    /// Returns the ids at the positions `range`, from 0 in ascending order; positions past the end are ignored.
    #[must_use]
    pub fn slice(&self, range: core::ops::Range<u64>) -> Self {
        let end = range.end.min(self.len());
        let Some(last) = end.checked_sub(1).filter(|&last| last >= range.start) else {
            return Self::new();
        };
        match (self.nth(range.start), self.nth(last)) {
            (Some(lo), Some(hi)) => self.within(Span { lo, hi }),
            _ => Self::new(),
        }
    }

    /// Splits the set into `parts` parts, lower ids first, whose sizes differ by at most one, the larger ones first.
    /// Returns fewer parts if there are fewer ids, so that no part is empty.
    pub fn split(&self, parts: u64) -> Vec<Self> {
        let len = self.len();
        let parts = parts.min(len);
        let mut rest = self.clone();
        let sizes = (0..parts).map(|part| len / parts + u64::from(part < len % parts));
        sizes.filter_map(|size| rest.take_first(size)).collect()
    }
}
