//! Set operations with an operand of a few runs. Inside its runs, and outside, the result has no ids, all ids, the other
//! operand's ids, or their complement.
use alloc::vec;
use alloc::vec::Vec;

use crate::body::{Body, counted_ids, counted_runs, counted_words, runs_of, words_up_to};
use crate::op::Op;
use crate::run::Run;
use crate::wide;
use crate::words::{self, WORD_BITS};

/// Most ids from which a union, symmetric difference or complement is built as runs; for more, a bitmap is faster.
pub(crate) const MAX_IDS_AS_RUNS: usize = 32;

/// The ids of a result between two ends of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    None,
    All,
    /// The ids of the other operand.
    Other,
    /// The ids that the other operand lacks.
    Complement,
}

/// The ids of a result inside of runs and outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunwiseOp {
    inside: Fill,
    /// Whether the other operand's ids outside of the runs belong to the result; no operation adds others there.
    keeps_outside: bool,
}

impl RunwiseOp {
    /// `keeps(in_run, in_other)`: whether an id belongs to the result.
    pub(crate) fn new(keeps: impl Fn(bool, bool) -> bool) -> Self {
        let inside = match (keeps(true, false), keeps(true, true)) {
            (false, false) => Fill::None,
            (true, true) => Fill::All,
            (false, true) => Fill::Other,
            (true, false) => Fill::Complement,
        };
        debug_assert!(!keeps(false, false));
        let keeps_outside = keeps(false, true);
        Self {
            inside,
            keeps_outside,
        }
    }

    /// Whether the result may have ids that the other operand lacks.
    fn adds(self) -> bool {
        matches!(self.inside, Fill::All | Fill::Complement)
    }

    /// The result and how many ids it has; none if it has none.
    pub(crate) fn apply(self, runs: &[Run], other: &Body) -> Option<(Body, u32)> {
        match other {
            Body::Full => counted_runs(&self.of_runs(runs, &[Run::ALL])),
            Body::Runs(others) => counted_runs(&self.of_runs(runs, others)),
            Body::Bits(words) => {
                let mut made = Vec::with_capacity(self.words_len(runs, words.len()));
                made.extend_from_slice(words);
                self.of_words(runs, made)
            }
            Body::Ids(ids) => {
                let ids = self.relevant(runs, ids);
                if !self.adds() {
                    return counted_ids(ids);
                }
                if ids.len() <= MAX_IDS_AS_RUNS {
                    return counted_runs(&self.of_runs(runs, &runs_of(&ids)));
                }
                let own = ids.last().map_or(0, |&id| words_up_to(id));
                let mut words = vec![0; self.words_len(runs, own)];
                wide::change_ids(Op::Union, &mut words, &ids);
                self.of_words(runs, words)
            }
        }
    }

    /// The ids on which the result depends.
    fn relevant(self, runs: &[Run], ids: &[u16]) -> Vec<u16> {
        let mut relevant = Vec::with_capacity(ids.len());
        self.each(runs, |run, fill| {
            if matches!(fill, Fill::Other | Fill::Complement) {
                let ids = &ids[ids.partition_point(|&id| id < run.lo)..];
                let len = ids.partition_point(|&id| id <= run.hi);
                relevant.extend_from_slice(&ids[..len]);
            }
        });
        relevant
    }

    /// Calls back with each run and each gap, in order, and its fill.
    fn each(self, runs: &[Run], mut call: impl FnMut(Run, Fill)) {
        let outside = if self.keeps_outside {
            Fill::Other
        } else {
            Fill::None
        };
        let mut lo = Some(0);
        for &run in runs {
            if let Some(lo) = lo.filter(|&lo| lo < run.lo) {
                let hi = run.lo - 1;
                call(Run { lo, hi }, outside);
            }
            call(run, self.inside);
            lo = run.hi.checked_add(1);
        }
        if let Some(lo) = lo {
            let hi = u16::MAX;
            call(Run { lo, hi }, outside);
        }
    }

    /// The words of a result, if the other operand has `own` ones.
    fn words_len(self, runs: &[Run], own: usize) -> usize {
        match runs.last() {
            Some(last) if self.adds() => own.max(words_up_to(last.hi)),
            _ => own,
        }
    }

    /// The result, made of the other operand's bitmap.
    fn of_words(self, runs: &[Run], mut words: Vec<u64>) -> Option<(Body, u32)> {
        words.resize(self.words_len(runs, words.len()), 0);
        let end = words.len() * WORD_BITS;
        self.each(runs, |run, fill| {
            let (lo, hi) = (usize::from(run.lo), usize::from(run.hi).min(end - 1));
            if lo < end {
                match fill {
                    Fill::None => words::clear(&mut words, lo, hi),
                    Fill::All => words::set(&mut words, lo, hi),
                    Fill::Other => {}
                    Fill::Complement => words::flip(&mut words, lo, hi),
                }
            }
        });
        let count = words::count(&words);
        counted_words((words, count))
    }

    /// The result, made of the other operand's runs.
    fn of_runs(self, runs: &[Run], others: &[Run]) -> Vec<Run> {
        let mut made = Vec::with_capacity(others.len() + 2 * runs.len() + 1);
        self.each(runs, |part, fill| {
            let others = &others[others.partition_point(|other| other.hi < part.lo)..];
            let others = &others[..others.partition_point(|other| other.lo <= part.hi)];
            match fill {
                Fill::None => {}
                Fill::All => push(&mut made, part),
                Fill::Other => push_all(&mut made, others, part),
                Fill::Complement => push_gaps(&mut made, others, part),
            }
        });
        made
    }
}

/// Appends a run, joined with one that it touches.
fn push(made: &mut Vec<Run>, run: Run) {
    match made.last_mut() {
        Some(before) if before.hi + 1 == run.lo => before.hi = run.hi,
        _ => made.push(run),
    }
}

/// Appends runs that have ids of a part, cut to it.
fn push_all(made: &mut Vec<Run>, runs: &[Run], part: Run) {
    let Some((&first, rest)) = runs.split_first() else {
        return;
    };
    let lo = first.lo.max(part.lo);
    push(made, Run { lo, ..first });
    made.extend_from_slice(rest);
    if let Some(last) = made.last_mut() {
        last.hi = last.hi.min(part.hi);
    }
}

/// Appends the gaps of a part between runs that have ids of it.
fn push_gaps(made: &mut Vec<Run>, runs: &[Run], part: Run) {
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
        return push(made, part);
    };
    if part.lo < first.lo {
        let hi = first.lo - 1;
        push(made, Run { lo: part.lo, hi });
    }
    // Between two runs there is always a gap.
    let gaps = runs.iter().zip(&runs[1..]).map(|(before, after)| Run {
        lo: before.hi.wrapping_add(1),
        hi: after.lo.wrapping_sub(1),
    });
    made.extend(gaps);
    if last.hi < part.hi {
        let lo = last.hi + 1;
        push(made, Run { lo, hi: part.hi });
    }
}
