//! `FrozenIDset`: a set of ids that does not change, and so has a hash.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use std::sync::OnceLock;

use penstock_idset::IdSet;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyRange, PySlice, PyString, PyTuple, PyType};

use super::operand::{self, constructed, required, valid_id};
use super::reading::reading_methods;
use super::{Ids, apply, buffer, compared, iterator, operate, operate_all, sliced, text};
use crate::errors::NotFoundError;
use crate::shared::{self, check_parts, position};

/// A set of ids (RFC 22) that does not change and has a hash: a `collections.abc.Set` of int. See `penstock.idset`.
///
/// It equals an IDset, a set or a frozenset of the same ids, and has the hash of that frozenset.
///
/// Args:
///     ids: An id, the text of a set, an iterable of ids or another set of ids; nothing for the empty set.
///     lenient: Whether to mend a text that is not as RFC 22 wants it, with a warning that says what was mended.
///
/// Raises:
///     IdsetError: A text is no idset, or a number is not from 0 to 4294967294.
///     TypeError: It is something else.
#[pyclass(module = "penstock.idset", name = "FrozenIDset", frozen)]
#[derive(Debug)]
pub(crate) struct PyFrozenIdSet {
    set: IdSet,
    hash: OnceLock<u64>,
}

impl Ids for PyFrozenIdSet {
    fn of(set: IdSet) -> Self {
        Self {
            set,
            hash: OnceLock::new(),
        }
    }

    fn snapshot(&self, _: Python<'_>) -> IdSet {
        self.set.clone()
    }

    fn with<R>(&self, _: Python<'_>, question: impl FnOnce(&IdSet) -> R) -> R {
        question(&self.set)
    }
}

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
        constructed(ids, lenient).map(Self::of)
    }

    /// Counts through all ids, once.
    fn __hash__(&self, py: Python<'_>) -> u64 {
        *self.hash.get_or_init(|| py.detach(|| hash(&self.set)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("FrozenIDset('{}')", text(py, &self.set, false)?))
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    /// Return the set itself: it does not change.
    fn copy(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
}
