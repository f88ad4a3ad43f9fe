//! The classes `IDset` and `FrozenIDset`; their methods are in the modules above.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use std::sync::OnceLock;

use penstock_idset::IdSet;
use pyo3::prelude::*;

use crate::errors::IdsetError;
use crate::guarded::Guarded;

/// Texts of more bytes are read without the GIL.
pub(super) const MAX_ATTACHED_TEXT_BYTES: usize = 4096;

/// Common interface of the mutable and the frozen class.
pub(crate) trait Ids: Sized {
    fn of(set: IdSet) -> Self;

    /// The ids as they are now, at no cost.
    fn snapshot(&self, py: Python<'_>) -> IdSet;

    /// Asks a short question.
    fn with<R>(&self, py: Python<'_>, question: impl FnOnce(&IdSet) -> R) -> R;
}

/// The error for a number that is not an id.
pub(super) fn invalid(number: impl std::fmt::Display) -> PyErr {
    IdsetError::new_err(format!(
        "invalid id {number}: expected a number from 0 to {}",
        IdSet::MAX_ID
    ))
}

/// IDset(ids: str | Iterable[int] | int | None = None, /, *, lenient: bool = False)
///
/// An ordered set of ids (RFC 22): a `collections.abc.MutableSet` of int. See `penstock.idset`.
///
/// Args:
///     ids: An id, the text of a set, an iterable of ids or another set of ids; the empty set if omitted.
///     lenient: Whether to correct a text that does not quite follow RFC 22, with a `MendedWarning`.
///
/// Raises:
///     IdsetError: A text is not an idset, or a number is not from 0 to 4294967294.
///     TypeError: `ids` has another type.
#[pyclass(module = "penstock.idset", name = "IDset", frozen)]
#[derive(Debug)]
pub(crate) struct PyIdSet(pub(super) Guarded<IdSet>);

impl PyIdSet {
    pub(crate) fn new(set: IdSet) -> Self {
        Self(Guarded::new(set))
    }

    pub(crate) fn snapshot(&self, py: Python<'_>) -> IdSet {
        self.0.with(py, |set| set.clone())
    }
}

impl Ids for PyIdSet {
    fn of(set: IdSet) -> Self {
        Self::new(set)
    }

    fn snapshot(&self, py: Python<'_>) -> IdSet {
        Self::snapshot(self, py)
    }

    fn with<R>(&self, py: Python<'_>, question: impl FnOnce(&IdSet) -> R) -> R {
        self.0.with(py, |set| question(set))
    }
}

/// FrozenIDset(ids: str | Iterable[int] | int | None = None, /, *, lenient: bool = False)
///
/// A set of ids (RFC 22) that does not change and has a hash: a `collections.abc.Set` of int. See `penstock.idset`.
///
/// It equals an IDset, a set or a frozenset of the same ids, and has the hash of that frozenset.
///
/// Args:
///     ids: An id, the text of a set, an iterable of ids or another set of ids; the empty set if omitted.
///     lenient: Whether to correct a text that does not quite follow RFC 22, with a `MendedWarning`.
///
/// Raises:
///     IdsetError: A text is not an idset, or a number is not from 0 to 4294967294.
///     TypeError: `ids` has another type.
#[pyclass(module = "penstock.idset", name = "FrozenIDset", frozen)]
#[derive(Debug)]
pub(crate) struct PyFrozenIdSet {
    pub(super) set: IdSet,
    pub(super) hash: OnceLock<u64>,
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
