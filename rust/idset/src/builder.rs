//! Makes a set of ascending spans, chunk by chunk.
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::body::Body;
use crate::chunks::{Chunk, Chunks, Span, place};
use crate::run::Run;
use crate::{Form, INLINE_IDS, IdSet, words};

/// Collects ascending spans.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    small: [u64; 2],
    chunks: Chunks,
    /// The chunk that is being filled, its runs and their number of ids.
    key: u32,
    runs: Vec<Run>,
    count: u32,
    /// The last span, to which the next one may be joined; none while all ids are in the small form.
    last: Option<Span>,
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
    #[inline]
    pub(crate) fn push(&mut self, span: Span) {
        match &mut self.last {
            Some(last) if span.lo <= last.hi.saturating_add(1) => last.hi = last.hi.max(span.hi),
            Some(last) => {
                let last = core::mem::replace(last, span);
                self.add(last);
            }
            None if span.hi < INLINE_IDS => {
                words::set(&mut self.small, span.lo as usize, span.hi as usize);
            }
            None => self.leave_small(span),
        }
    }

    /// Adds the first span that goes beyond the small form.
    #[cold]
    fn leave_small(&mut self, span: Span) {
        let small = IdSet::from_form(Form::Small(self.small));
        let mut ranges = small.ranges().map(|range| Span::from(&range));
        self.last = ranges.next().or(Some(span));
        ranges.for_each(|range| self.push(range));
        self.push(span);
    }

    /// Adds a span that lies above all others and does not touch them.
    #[inline]
    fn add(&mut self, span: Span) {
        let ((key, lo), (last, hi)) = (place(span.lo), place(span.hi));
        if key == last {
            self.add_run(key, Run { lo, hi });
        } else {
            self.add_wide(span);
        }
    }

    /// Adds a span that goes beyond one chunk.
    #[cold]
    fn add_wide(&mut self, span: Span) {
        let ((key, lo), (last, hi)) = (place(span.lo), place(span.hi));
        self.add_run(key, Run { lo, hi: u16::MAX });
        if key + 1 < last {
            self.flush();
            self.chunks.push_full(key + 1, last - 1);
        }
        self.add_run(last, Run { lo: 0, hi });
    }

    #[inline]
    fn add_run(&mut self, key: u32, run: Run) {
        if key != self.key {
            self.flush();
            self.key = key;
        }
        self.count += run.count();
        self.runs.push(run);
    }

    /// Finishes the chunk at hand.
    #[cold]
    fn flush(&mut self) {
        if !self.runs.is_empty() {
            let body = Body::from_runs(&self.runs, self.count);
            self.chunks
                .push(Chunk::with_count(self.key, body, self.count));
            self.runs.clear();
            self.count = 0;
        }
    }

    pub(crate) fn finish(mut self) -> IdSet {
        let Some(last) = self.last else {
            return IdSet::from_form(Form::Small(self.small));
        };
        self.add(last);
        self.flush();
        self.chunks.shrink();
        IdSet::from_form(Form::Large(Arc::new(self.chunks)))
    }
}
