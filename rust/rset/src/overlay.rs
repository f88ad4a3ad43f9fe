//! Two maps of ranks side by side.

use penstock_idset::IdSet;

/// The ranks `first..=last` and their value.
#[derive(Clone, Copy)]
pub(crate) struct Run<T> {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) value: T,
}

/// The ranges of a set in the form that [`overlay`] takes.
pub(crate) fn ranges(ranks: &IdSet) -> impl Iterator<Item = Run<()>> {
    ranks.ranges().map(|range| Run {
        first: *range.start(),
        last: *range.end(),
        value: (),
    })
}

/// A run of ranks over which both maps are constant.
pub(crate) struct OverlayRun<L, R> {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) left: Option<L>,
    pub(crate) right: Option<R>,
}

impl<L, R> OverlayRun<L, R> {
    pub(crate) fn len(&self) -> usize {
        (self.last - self.first) as usize + 1
    }
}

/// Iterates over two maps side by side, in ascending order of ranks; skips ranks that neither has.
pub(crate) fn overlay<L: Copy, R: Copy>(
    mut left: impl Iterator<Item = Run<L>>,
    mut right: impl Iterator<Item = Run<R>>,
) -> impl Iterator<Item = OverlayRun<L, R>> {
    let (mut ours, mut theirs) = (left.next(), right.next());
    std::iter::from_fn(move || {
        let (first, last, in_left, in_right) = match (&ours, &theirs) {
            (None, None) => return None,
            (Some(run), None) => (run.first, run.last, true, false),
            (None, Some(run)) => (run.first, run.last, false, true),
            (Some(run), Some(other)) if run.first < other.first => {
                (run.first, run.last.min(other.first - 1), true, false)
            }
            (Some(other), Some(run)) if run.first < other.first => {
                (run.first, run.last.min(other.first - 1), false, true)
            }
            (Some(run), Some(other)) => (run.first, run.last.min(other.last), true, true),
        };
        Some(OverlayRun {
            first,
            last,
            left: in_left.then(|| take(&mut ours, last, &mut left)).flatten(),
            right: in_right
                .then(|| take(&mut theirs, last, &mut right))
                .flatten(),
        })
    })
}

/// Removes the ranks up to `last` from a run; moves to the next run if none remain.
fn take<T: Copy>(
    run: &mut Option<Run<T>>,
    last: u32,
    rest: &mut impl Iterator<Item = Run<T>>,
) -> Option<T> {
    let taken = (*run)?;
    *run = if last == taken.last {
        rest.next()
    } else {
        Some(Run {
            first: last + 1,
            ..taken
        })
    };
    Some(taken.value)
}
