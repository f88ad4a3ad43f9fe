//! Makes a set of ascending spans and gives it the form that fits.
use crate::bits::Dense;
use crate::spans::{Span, Spans};
use crate::words::{self, BITS};
use crate::{Form, IdSet, SMALL};

/// Collects ascending spans.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    spans: Vec<Span>,
    small: [u64; 2],
}

impl Builder {
    /// The set of ascending spans.
    pub(crate) fn build(spans: impl Iterator<Item = Span>) -> IdSet {
        let mut builder = Self::default();
        for span in spans {
            builder.push(span);
        }
        builder.finish()
    }

    /// Adds a span that starts no lower than the last one; those that touch are joined.
    pub(crate) fn push(&mut self, span: Span) {
        if span.hi < SMALL && self.spans.is_empty() {
            words::set(&mut self.small, span.lo as usize, span.hi as usize);
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.hi >= span.lo.saturating_sub(1) => last.hi = last.hi.max(span.hi),
            Some(_) => self.spans.push(span),
            None => self.leave_small(span),
        }
    }

    /// The first span that is not below 128: what was gathered in the small form becomes spans.
    fn leave_small(&mut self, span: Span) {
        let small = IdSet::from_form(Form::Small(self.small));
        self.spans.extend(small.spans());
        match self.spans.last_mut() {
            Some(last) if last.hi >= span.lo.saturating_sub(1) => last.hi = last.hi.max(span.hi),
            _ => self.spans.push(span),
        }
    }

    pub(crate) fn finish(self) -> IdSet {
        let (Some(first), Some(last)) = (self.spans.first(), self.spans.last()) else {
            return IdSet::from_form(Form::Small(self.small));
        };
        let start = first.lo as usize / BITS;
        let window = last.hi as usize / BITS - start + 1;
        if window <= self.spans.len() {
            let mut words = vec![0; window];
            for span in &self.spans {
                let (lo, hi) = (span.lo as usize, span.hi as usize);
                words::set(&mut words, lo - start * BITS, hi - start * BITS);
            }
            if let Some(dense) = Dense::new(start, words) {
                return IdSet::from_form(Form::Dense(Box::new(dense)));
            }
        }
        IdSet::from_form(Form::Spans(Box::new(Spans::new(&self.spans))))
    }
}
