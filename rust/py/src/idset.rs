//! `IDset`: a Python set of ids.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use std::sync::Arc;

use penstock_idset::IdSet;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyRange, PySlice, PyString, PyTuple, PyType};

use crate::errors::NotFoundError;
use crate::shared::{Shared, Stride, detached, position};

mod iterator;
mod operand;

use iterator::IdSetIterator;
use operand::{operand, required, set_of_ids, valid_id};

/// Texts of more bytes, and sets of more ranges, are worked on without the GIL.
const LONG: usize = 4096;

/// An ordered set of ids (RFC 22): a `collections.abc.MutableSet` of int. See `penstock.idset`.
///
/// Args:
///     ids: An id, the text of a set, an iterable of ids or another IDset; nothing for the empty set.
///
/// Raises:
///     IdsetError: A text is no idset, or a number is not from 0 to 4294967294.
///     TypeError: It is something else.
#[pyclass(module = "penstock.idset", name = "IDset", frozen)]
#[derive(Debug)]
pub(crate) struct PyIdSet(Shared<IdSet>);

impl PyIdSet {
    pub(crate) fn new(set: impl Into<Arc<IdSet>>) -> Self {
        Self(Shared::new(set))
    }

    pub(crate) fn snapshot(&self) -> Arc<IdSet> {
        self.0.snapshot()
    }
}

type Operation = fn(&IdSet, &IdSet) -> IdSet;
type Change = fn(&mut IdSet, &IdSet);

fn is_long(left: &IdSet, right: &IdSet) -> bool {
    left.range_count().max(right.range_count()) > LONG
}

fn apply(py: Python<'_>, operation: Operation, left: &IdSet, right: &IdSet) -> IdSet {
    detached(py, is_long(left, right), || operation(left, right))
}

impl PyIdSet {
    fn operate<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        operation: impl FnOnce(Python<'py>, &IdSet, &IdSet) -> IdSet,
    ) -> PyResult<Py<PyAny>> {
        let py = other.py();
        match operand(other)? {
            Some(right) => {
                let result = operation(py, &self.snapshot(), &right);
                Ok(Py::new(py, Self::new(result))?.into_any())
            }
            None => Ok(py.NotImplemented()),
        }
    }

    fn operate_all(&self, others: &Bound<'_, PyTuple>, operation: Operation) -> PyResult<Self> {
        let mut result = self.snapshot();
        for other in others {
            result = Arc::new(apply(others.py(), operation, &result, &*required(&other)?));
        }
        Ok(Self::new(result))
    }

    fn change(&self, py: Python<'_>, change: Change, right: &IdSet) {
        let long = self.0.with(|left| is_long(left, right));
        detached(py, long, || self.0.change(|left| change(left, right)));
    }

    fn change_all(&self, others: &Bound<'_, PyTuple>, change: Change) -> PyResult<()> {
        // All arguments are read before the first one counts.
        let rights = others.iter().map(|other| required(&other));
        for right in rights.collect::<PyResult<Vec<_>>>()? {
            self.change(others.py(), change, &right);
        }
        Ok(())
    }

    fn text(&self, py: Python<'_>, brackets: bool) -> String {
        let set = self.snapshot();
        detached(py, set.range_count() > LONG, || set.format_with(brackets))
    }
}

#[pymethods]
impl PyIdSet {
    #[new]
    #[pyo3(signature = (ids = None, /))]
    fn py_new(ids: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(ids) = ids else {
            return Ok(Self::new(IdSet::new()));
        };
        if ids.is_instance_of::<PyInt>() {
            let id = valid_id(ids)?;
            return Ok(Self::new(IdSet::with_range(id..=id)));
        }
        required(ids).map(Self::new)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.0.with(IdSet::len))?)
    }

    fn __bool__(&self) -> bool {
        !self.0.with(IdSet::is_empty)
    }

    fn __contains__(&self, member: &Bound<'_, PyAny>) -> PyResult<bool> {
        match operand::id(member) {
            Ok(id) => Ok(id.is_some_and(|id| self.0.with(|set| set.contains(id)))),
            Err(error) if error.is_instance_of::<PyTypeError>(member.py()) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> IdSetIterator {
        IdSetIterator::new(slf.unbind(), false)
    }

    fn __reversed__(slf: Bound<'_, Self>) -> IdSetIterator {
        IdSetIterator::new(slf.unbind(), true)
    }

    /// The id at a position, or an IDset of those at the positions of a slice.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = key.py();
        let Ok(slice) = key.cast::<PySlice>() else {
            return Ok(self.nth(key)?.into_pyobject(py)?.into_any().unbind());
        };
        let set = self.snapshot();
        let stride = Stride::new(slice, usize::try_from(set.len())?)?;
        let (range, step) = stride.ascending();
        let part = detached(py, stride.count > LONG, || {
            let part = set.slice(range.start as u64..range.end as u64);
            if step == 1 {
                part
            } else {
                part.iter().step_by(step).collect()
            }
        });
        Ok(Py::new(py, Self::new(part))?.into_any())
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let Some((right, others)) = set_of_ids(other)? else {
            return Ok(py.NotImplemented());
        };
        let left = self.snapshot();
        let equal = || !others && *left == *right;
        let result = detached(py, is_long(&left, &right), || match op {
            CompareOp::Eq => equal(),
            CompareOp::Ne => !equal(),
            CompareOp::Le => left.is_subset(&right),
            CompareOp::Lt => left.is_subset(&right) && !equal(),
            CompareOp::Ge => !others && left.is_superset(&right),
            CompareOp::Gt => !others && left.is_superset(&right) && !equal(),
        });
        Ok(result.into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __or__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, |py, a, b| apply(py, IdSet::union, a, b))
    }

    fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__or__(other)
    }

    fn __and__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, |py, a, b| apply(py, IdSet::intersection, a, b))
    }

    fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__and__(other)
    }

    fn __xor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, |py, a, b| {
            apply(py, IdSet::symmetric_difference, a, b)
        })
    }

    fn __rxor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__xor__(other)
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, |py, a, b| apply(py, IdSet::difference, a, b))
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, |py, a, b| apply(py, IdSet::difference, b, a))
    }

    fn __ior__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.change(other.py(), IdSet::union_with, &*required(other)?);
        Ok(())
    }

    fn __iand__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.change(other.py(), IdSet::intersect_with, &*required(other)?);
        Ok(())
    }

    fn __isub__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.change(other.py(), IdSet::subtract, &*required(other)?);
        Ok(())
    }

    fn __ixor__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.symmetric_difference_update(other)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("IDset('{}')", self.text(py, false))
    }

    fn __str__(&self, py: Python<'_>) -> String {
        self.text(py, false)
    }

    fn __format__<'py>(&self, py: Python<'py>, spec: &str) -> PyResult<Bound<'py, PyAny>> {
        PyString::new(py, &self.text(py, false)).call_method1("__format__", (spec,))
    }

    fn __copy__(&self) -> Self {
        self.copy()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.copy()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (String,)) {
        (py.get_type::<Self>(), (self.text(py, false),))
    }

    /// Add an id.
    ///
    /// Args:
    ///     member: A number from 0 to 4294967294.
    ///
    /// Raises:
    ///     IdsetError: The number is out of range.
    #[pyo3(signature = (member, /))]
    fn add(&self, member: &Bound<'_, PyAny>) -> PyResult<()> {
        let id = valid_id(member)?;
        self.0.change(|set| set.insert(id));
        Ok(())
    }

    /// Take out an id if it is there.
    ///
    /// Args:
    ///     member: Any integer.
    #[pyo3(signature = (member, /))]
    fn discard(&self, member: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Some(id) = operand::id(member)? {
            self.0.change(|set| set.remove(id));
        }
        Ok(())
    }

    /// Take out an id.
    ///
    /// Args:
    ///     member: An id of the set.
    ///
    /// Raises:
    ///     KeyError: It is not in the set.
    #[pyo3(signature = (member, /))]
    fn remove(&self, member: &Bound<'_, PyAny>) -> PyResult<()> {
        let there = operand::id(member)?.is_some_and(|id| self.0.change(|set| set.remove(id)));
        if there {
            Ok(())
        } else {
            Err(PyKeyError::new_err(member.clone().unbind()))
        }
    }

    /// Take out the lowest id and return it.
    ///
    /// Raises:
    ///     KeyError: The set is empty.
    fn pop(&self) -> PyResult<u32> {
        let first = self.0.change(|set| {
            let first = set.first();
            first.inspect(|&first| {
                set.remove(first);
            })
        });
        first.ok_or_else(|| PyKeyError::new_err("pop from an empty IDset"))
    }

    /// Take out all ids.
    fn clear(&self) {
        self.0.change(IdSet::clear);
    }

    /// Return an independent set of the same ids. Costs nothing until one of the two changes.
    fn copy(&self) -> Self {
        Self::new(self.snapshot())
    }

    /// Return the ids of this set and of all others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn union(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        self.operate_all(others, IdSet::union)
    }

    /// Return the ids of this set that are in all others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn intersection(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        self.operate_all(others, IdSet::intersection)
    }

    /// Return the ids of this set that are in none of the others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn difference(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        self.operate_all(others, IdSet::difference)
    }

    /// Return the ids that are in exactly one of the two sets.
    ///
    /// Args:
    ///     other: An IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (other, /))]
    fn symmetric_difference(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (left, right) = (self.snapshot(), required(other)?);
        Ok(Self::new(apply(
            other.py(),
            IdSet::symmetric_difference,
            &left,
            &right,
        )))
    }

    /// Add the ids of all others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn update(&self, others: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.change_all(others, IdSet::union_with)
    }

    /// Take out the ids that are not in all others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn intersection_update(&self, others: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.change_all(others, IdSet::intersect_with)
    }

    /// Take out the ids of all others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn difference_update(&self, others: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.change_all(others, IdSet::subtract)
    }

    /// Take out the ids that are in the other, and add those of the other that were not there.
    ///
    /// Args:
    ///     other: An IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (other, /))]
    fn symmetric_difference_update(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let change: Change = |left, right| *left = left.symmetric_difference(right);
        self.change(other.py(), change, &*required(other)?);
        Ok(())
    }

    /// Return whether the two have no id in common.
    ///
    /// Args:
    ///     other: An IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (other, /))]
    fn isdisjoint(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.snapshot().is_disjoint(&*required(other)?))
    }

    /// Return whether all ids are in the other.
    ///
    /// Args:
    ///     other: An IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (other, /))]
    fn issubset(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.snapshot().is_subset(&*required(other)?))
    }

    /// Return whether all ids of the other are in this set.
    ///
    /// Args:
    ///     other: An IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (other, /))]
    fn issuperset(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.snapshot().is_superset(&*required(other)?))
    }

    /// Return the lowest id, None if the set is empty.
    fn first(&self) -> Option<u32> {
        self.0.with(IdSet::first)
    }

    /// Return the greatest id, None if the set is empty.
    fn last(&self) -> Option<u32> {
        self.0.with(IdSet::last)
    }

    /// Return the lowest id above another, None if there is none.
    ///
    /// Args:
    ///     member: An id, in the set or not.
    #[pyo3(signature = (member, /))]
    fn next(&self, member: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
        let id = valid_id(member)?;
        Ok(self.0.with(|set| set.next(id)))
    }

    /// Return the greatest id below another, None if there is none.
    ///
    /// Args:
    ///     member: An id, in the set or not.
    #[pyo3(signature = (member, /))]
    fn prev(&self, member: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
        let id = valid_id(member)?;
        Ok(self.0.with(|set| set.prev(id)))
    }

    /// Return the id at a position; `ids.nth(n)` is `ids[n]`.
    ///
    /// Args:
    ///     n: Position in ascending order, from 0; negative ones count from the end.
    ///
    /// Raises:
    ///     IndexError: There are not so many ids.
    #[pyo3(signature = (n, /))]
    fn nth(&self, n: &Bound<'_, PyAny>) -> PyResult<u32> {
        let set = self.snapshot();
        let n = position(n, usize::try_from(set.len())?, "IDset")?;
        let id = set.nth(n as u64);
        id.ok_or_else(|| PyIndexError::new_err("IDset index out of range"))
    }

    /// Return the position of an id in ascending order, from 0.
    ///
    /// Args:
    ///     member: An id of the set.
    ///
    /// Raises:
    ///     NotFoundError: It is not in the set.
    #[pyo3(signature = (member, /))]
    fn rank(&self, member: &Bound<'_, PyAny>) -> PyResult<u64> {
        let id = valid_id(member)?;
        let rank = self.0.with(|set| set.rank_of(id));
        rank.ok_or_else(|| NotFoundError::new_err(format!("id {id} is not in the set")))
    }

    /// Return the ranges of the canonical text, ascending, as `range` objects: `1-3` is `range(1, 4)`.
    fn ranges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let set = self.snapshot();
        let ranges = set.ranges().map(|range| {
            let (start, stop) = (i64::from(*range.start()), i64::from(*range.end()) + 1);
            PyRange::new(py, isize::try_from(start)?, isize::try_from(stop)?)
        });
        PyList::new(py, ranges.collect::<PyResult<Vec<_>>>()?)
    }

    /// Return the ids as a list of int, ascending.
    fn expand<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let set = self.snapshot();
        let ids = PyList::empty(py);
        for id in set.iter() {
            ids.append(id)?;
        }
        Ok(ids)
    }

    /// Split into parts, lower ids first, whose sizes differ by one at most, the greater ones first.
    ///
    /// Args:
    ///     parts: How many; there are fewer where there are fewer ids, so that none is empty.
    ///
    /// Raises:
    ///     OverflowError: The number is negative.
    #[pyo3(signature = (parts, /))]
    fn split(&self, parts: u64) -> Vec<Self> {
        let parts = self.snapshot().split(parts);
        parts.into_iter().map(Self::new).collect()
    }

    /// Return the canonical text (RFC 22): ascending, ranges folded.
    ///
    /// Args:
    ///     brackets: Whether to put it in brackets; the empty set is `[]` then.
    #[pyo3(signature = (*, brackets = false))]
    fn encode(&self, py: Python<'_>, brackets: bool) -> String {
        self.text(py, brackets)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyIdSet>()
}
