//! Iterators over an `IDset`.
use penstock_idset::IdSet;
use pyo3::prelude::*;

use super::PyIdSet;

/// Ids read ahead at first, and at most.
const AHEAD: (usize, usize) = (8, 1024);

/// Iterator over a set, one way or the other.
///
/// If the set is changed meanwhile, it goes on with the next id that is then in the set.
#[pyclass(module = "penstock.idset", name = "IDsetIterator")]
#[derive(Debug)]
pub(super) struct IdSetIterator {
    /// None at the end.
    owner: Option<Py<PyIdSet>>,
    reverse: bool,
    /// The ids that are still to come lie in this range.
    left: (u32, u32),
    ahead: std::vec::IntoIter<u32>,
    size: usize,
    generation: u64,
}

impl IdSetIterator {
    pub(super) fn new(owner: Py<PyIdSet>, reverse: bool) -> Self {
        Self {
            owner: Some(owner),
            reverse,
            left: (0, IdSet::MAX_ID),
            ahead: Vec::new().into_iter(),
            size: AHEAD.0,
            generation: 0,
        }
    }

    fn read_ahead(&mut self, set: &IdSet) {
        let ids = set.iter_range(self.left.0..=self.left.1);
        let ahead: Vec<u32> = if self.reverse {
            ids.rev().take(self.size).collect()
        } else {
            ids.take(self.size).collect()
        };
        self.ahead = ahead.into_iter();
        self.size = (self.size * 2).min(AHEAD.1);
    }
}

#[pymethods]
impl IdSetIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Option<u32> {
        let state = &self.owner.as_ref()?.get().0;
        // What was read ahead counts only as long as the set stays as it was.
        let current = (self.ahead.len() > 0).then_some(self.generation);
        if let Some((set, generation)) = state.newer(current) {
            self.generation = generation;
            self.read_ahead(&set);
        }
        let Some(id) = self.ahead.next() else {
            self.owner = None;
            return None;
        };
        let rest = if self.reverse {
            id.checked_sub(1).map(|last| self.left.1 = last)
        } else {
            id.checked_add(1).map(|first| self.left.0 = first)
        };
        if rest.is_none() || self.left.0 > self.left.1 {
            self.owner = None;
        }
        Some(id)
    }

    fn __length_hint__(&self) -> PyResult<usize> {
        let Some(owner) = &self.owner else {
            return Ok(0);
        };
        let (first, last) = self.left;
        let count = |set: &IdSet| set.count_below(last + 1) - set.count_below(first);
        Ok(usize::try_from(owner.get().0.with(count))?)
    }
}
