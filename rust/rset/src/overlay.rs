//! Two maps of ranks side by side.

use penstock_idset::IdSet;

/// A run of ranks, first and last, and their value.
pub(crate) type Run<T> = (u32, u32, T);

/// The ranges of a set in the form that [`overlay`] takes.
pub(crate) fn ranges(ranks: &IdSet) -> impl Iterator<Item = Run<()>> {
    let ranges = ranks.ranges();
    ranges.map(|range| (*range.start(), *range.end(), ()))
}

/// A run of ranks over which both maps are constant.
pub(crate) struct Part<L, R> {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) left: Option<L>,
    pub(crate) right: Option<R>,
}

impl<L, R> Part<L, R> {
    pub(crate) fn len(&self) -> usize {
        (self.last - self.first) as usize + 1
    }
}

/// Iterates over two maps side by side, in ascending order of ranks; skips ranks that neither has.
pub(crate) fn overlay<L: Copy, R: Copy>(
    mut left: impl Iterator<Item = Run<L>>,
    mut right: impl Iterator<Item = Run<R>>,
) -> impl Iterator<Item = Part<L, R>> {
    let (mut ours, mut theirs) = (left.next(), right.next());
    std::iter::from_fn(move || {
        let (first, last, in_left, in_right) = match (&ours, &theirs) {
            (None, None) => return None,
            (Some((first, last, _)), None) => (*first, *last, true, false),
            (None, Some((first, last, _))) => (*first, *last, false, true),
            (Some((first, last, _)), Some((other, ..))) if first < other => {
                (*first, *last.min(&(other - 1)), true, false)
            }
            (Some((other, ..)), Some((first, last, _))) if first < other => {
                (*first, *last.min(&(other - 1)), false, true)
            }
            (Some((first, last, _)), Some((_, other, _))) => (*first, *last.min(other), true, true),
        };
        Some(Part {
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
    let (_, end, value) = (*run)?;
    *run = if last == end {
        rest.next()
    } else {
        Some((last + 1, end, value))
    };
    Some(value)
}
