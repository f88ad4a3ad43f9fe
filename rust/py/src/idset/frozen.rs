//! `FrozenIDset`: a set of ids that does not change, and so has a hash.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use penstock_idset::IdSet;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyRange, PySlice, PyString, PyTuple, PyType};

use super::classes::{Ids, PyFrozenIdSet};
use super::operand::{self, construct, construct_lenient, required, valid_id};
use super::operation::{apply, bracketed_text, compared, operate, operate_all, sliced, text};
use super::reading::reading_methods;
use super::{buffer, iterator, membership};
use crate::errors::NotFoundError;
use crate::shared::{self, check_parts, position};

reading_methods!(PyFrozenIdSet);

/// The hash that `collections.abc.Set` describes and `frozenset` has.
fn hash(set: &IdSet) -> u64 {
    let shuffled = |id: u32| {
        let id = u64::from(id);
        (id ^ (id << 16) ^ 0x055b_4db3).wrapping_mul(3_644_798_167)
    };
    let seed = (set.len() + 1).wrapping_mul(1_927_868_237);
    let mixed = set.iter().fold(seed, |hash, id| hash ^ shuffled(id));
    let mixed = mixed ^ (mixed >> 11) ^ (mixed >> 25);
    let hash = mixed.wrapping_mul(69069).wrapping_add(907_133_923);
    // Python keeps -1 for errors.
    if hash == u64::MAX { 590_923_713 } else { hash }
}

#[pymethods]
impl PyFrozenIdSet {
    #[new]
    #[pyo3(signature = (ids = None, /, *, lenient = false))]
    fn py_new(ids: Option<&Bound<'_, PyAny>>, lenient: bool) -> PyResult<Self> {
        match ids {
            Some(ids) if lenient => construct_lenient(ids).map(Self::of),
            Some(ids) => construct(ids).map(Self::of),
            None => Ok(Self::of(IdSet::new())),
        }
    }

    /// Counts through all ids, once.
    fn __hash__(&self, py: Python<'_>) -> u64 {
        *self.hash.get_or_init(|| py.detach(|| hash(&self.set)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("FrozenIDset('{}')", text(py, &self.set)?))
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    /// copy() -> FrozenIDset
    ///
    /// Return the set itself: it does not change.
    fn copy(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
}
