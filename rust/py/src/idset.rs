//! `IDset`: a Python set of ids.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use std::ffi::CString;

use penstock_idset::IdSet;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyRange, PySlice, PyString, PyTuple, PyType};

use crate::errors::{IdsetError, NotFoundError};
use crate::shared::{self, check_parts, position};

mod buffer;
mod classes;
mod frozen;
mod integer;
mod iterator;
mod membership;
mod operand;
mod operation;
mod reading;

pub(crate) use classes::{Ids, PyFrozenIdSet, PyIdSet};
use operand::{Numbers, construct, construct_lenient, required, valid_id};
use operation::{
    MAX_ATTACHED_BYTES, apply, bracketed_text, compared, operate, operate_all, sliced, text,
};
use reading::reading_methods;

type Change = fn(&mut IdSet, &IdSet);

reading_methods!(PyIdSet);

impl PyIdSet {
    fn change(&self, py: Python<'_>, change: Change, right: &IdSet) {
        if right.estimated_bytes() <= MAX_ATTACHED_BYTES {
            self.0.with(py, |set| change(set, right));
            return;
        }
        // Other threads run meanwhile; where one of them has changed the set, it is done again.
        loop {
            let left = self.snapshot(py);
            let changed = py.detach(|| {
                let mut changed = left.clone();
                change(&mut changed, right);
                changed
            });
            let done = self.0.with(py, |set| {
                let same = set.is_same(&left);
                if same {
                    *set = changed;
                }
                same
            });
            if done {
                return;
            }
        }
    }

    fn change_all(&self, others: &Bound<'_, PyTuple>, change: Change) -> PyResult<()> {
        // All arguments are read before the first one counts.
        let rights = others.iter().map(|other| required(&other));
        for right in rights.collect::<PyResult<Vec<_>>>()? {
            self.change(others.py(), change, &right);
        }
        Ok(())
    }
}

#[pymethods]
impl PyIdSet {
    #[new]
    #[pyo3(signature = (ids = None, /, *, lenient = false))]
    fn py_new(ids: Option<&Bound<'_, PyAny>>, lenient: bool) -> PyResult<Self> {
        match ids {
            Some(ids) if lenient => construct_lenient(ids).map(Self::new),
            Some(ids) => construct(ids).map(Self::new),
            None => Ok(Self::new(IdSet::new())),
        }
    }

    fn __ior__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.change(other.py(), IdSet::union_with, &required(other)?);
        Ok(())
    }

    fn __iand__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.change(other.py(), IdSet::intersect_with, &required(other)?);
        Ok(())
    }

    fn __isub__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.change(other.py(), IdSet::subtract, &required(other)?);
        Ok(())
    }

    fn __ixor__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.symmetric_difference_update(other)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("IDset('{}')", text(py, &self.snapshot(py))?))
    }

    fn __copy__(&self, py: Python<'_>) -> Self {
        self.copy(py)
    }

    fn __deepcopy__(&self, memo: &Bound<'_, PyAny>) -> Self {
        self.copy(memo.py())
    }

    /// add(member: int | range, /) -> None
    ///
    /// Add an id, or a `range` of ids.
    ///
    /// Args:
    ///     member: A number from 0 to 4294967294, or a range of ids of the set.
    ///
    /// Raises:
    ///     IdsetError: A number is out of range.
    #[pyo3(signature = (member, /))]
    fn add(&self, member: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(range) = member.cast::<PyRange>() {
            let ids = Numbers::of(range).ids()?;
            self.change(member.py(), IdSet::union_with, &ids);
            return Ok(());
        }
        let id = valid_id(member)?;
        self.0.with(member.py(), |set| set.insert(id));
        Ok(())
    }

    /// discard(member: int | range, /) -> None
    ///
    /// Remove an id, or the ids of a `range`; absent ids are ignored.
    ///
    /// Args:
    ///     member: Any integer, or a range of ids.
    #[pyo3(signature = (member, /))]
    fn discard(&self, member: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(range) = member.cast::<PyRange>() {
            let numbers = Numbers::of(range);
            self.0.with(member.py(), |set| {
                if let Some(last) = set.last() {
                    set.subtract(&numbers.ids_up_to(last));
                }
            });
        } else if let Some(id) = operand::id(member)? {
            self.0.with(member.py(), |set| set.remove(id));
        }
        Ok(())
    }

    /// remove(member: int | range, /) -> None
    ///
    /// Remove an id, or all ids of a `range`.
    ///
    /// Args:
    ///     member: An id of the set, or a range of ids of the set.
    ///
    /// Raises:
    ///     KeyError: An id is not in the set; nothing is removed.
    #[pyo3(signature = (member, /))]
    fn remove(&self, member: &Bound<'_, PyAny>) -> PyResult<()> {
        let there = if let Ok(range) = member.cast::<PyRange>() {
            let ids = Numbers::of(range).ids().ok();
            ids.is_some_and(|ids| {
                self.0.with(member.py(), |set| {
                    let there = ids.is_subset(set);
                    if there {
                        set.subtract(&ids);
                    }
                    there
                })
            })
        } else {
            operand::id(member)?.is_some_and(|id| self.0.with(member.py(), |set| set.remove(id)))
        };
        if there {
            Ok(())
        } else {
            Err(PyKeyError::new_err(member.clone().unbind()))
        }
    }

    /// pop() -> int
    ///
    /// Remove the lowest id and return it.
    ///
    /// Raises:
    ///     KeyError: The set is empty.
    fn pop(&self, py: Python<'_>) -> PyResult<u32> {
        let first = self.0.with(py, IdSet::pop_first);
        first.ok_or_else(|| PyKeyError::new_err("pop from an empty IDset"))
    }

    /// pop_first() -> int
    ///
    /// Remove the lowest id and return it: an explicit name for `pop`.
    ///
    /// Raises:
    ///     KeyError: The set is empty.
    fn pop_first(&self, py: Python<'_>) -> PyResult<u32> {
        self.pop(py)
    }

    /// pop_last() -> int
    ///
    /// Remove the greatest id and return it.
    ///
    /// Raises:
    ///     KeyError: The set is empty.
    fn pop_last(&self, py: Python<'_>) -> PyResult<u32> {
        let last = self.0.with(py, IdSet::pop_last);
        last.ok_or_else(|| PyKeyError::new_err("pop from an empty IDset"))
    }

    /// allocate(count: int | None = None, /) -> IDset
    ///
    /// Allocate the lowest ids of a pool of free ids.
    ///
    /// Args:
    ///     count: How many.
    ///
    /// Returns:
    ///     The allocated ids, which are removed from the set.
    ///
    /// Raises:
    ///     IdsetError: The pool has fewer ids; none is removed.
    ///     ValueError: The number is negative.
    #[pyo3(signature = (count = None, /))]
    fn allocate(&self, py: Python<'_>, count: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let count = count.map_or(Ok(1), |count| shared::count(count, "ids"))?;
        let (taken, left) = self.0.with(py, |set| (set.take_first(count), set.len()));
        taken.map(Self::new).ok_or_else(|| {
            IdsetError::new_err(format!("cannot allocate {count} ids: there are {left}"))
        })
    }

    /// release(ids: str | Iterable[int] | int, /) -> None
    ///
    /// Return ids to a pool of free ids.
    ///
    /// Args:
    ///     ids: A set of ids, its text, an iterable of ids, or one id.
    ///
    /// Raises:
    ///     IdsetError: Some of them are free already; nothing has changed.
    #[pyo3(signature = (ids, /))]
    fn release(&self, ids: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = construct(ids)?;
        let twice = self.0.with(ids.py(), |set| {
            let twice = set.intersection(&given);
            if twice.is_empty() {
                set.union_with(&given);
            }
            twice
        });
        if twice.is_empty() {
            return Ok(());
        }
        Err(IdsetError::new_err(format!(
            "cannot release {twice}: not allocated"
        )))
    }

    /// clear() -> None
    ///
    /// Remove all ids.
    fn clear(&self, py: Python<'_>) {
        self.0.with(py, IdSet::clear);
    }

    /// copy() -> IDset
    ///
    /// Return an independent set of the same ids. Costs nothing until one of the two changes.
    fn copy(&self, py: Python<'_>) -> Self {
        Self::new(self.snapshot(py))
    }

    /// update(*others: str | Iterable[int]) -> None
    ///
    /// Add the ids of all others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn update(&self, others: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.change_all(others, IdSet::union_with)
    }

    /// intersection_update(*others: str | Iterable[int]) -> None
    ///
    /// Remove the ids that are not in all others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn intersection_update(&self, others: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.change_all(others, IdSet::intersect_with)
    }

    /// difference_update(*others: str | Iterable[int]) -> None
    ///
    /// Remove the ids of all others.
    ///
    /// Args:
    ///     *others: Each an IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (*others))]
    fn difference_update(&self, others: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.change_all(others, IdSet::subtract)
    }

    /// symmetric_difference_update(other: str | Iterable[int], /) -> None
    ///
    /// Update to the ids that are in exactly one of the two sets.
    ///
    /// Args:
    ///     other: An IDset, the text of one, or an iterable of ids.
    #[pyo3(signature = (other, /))]
    fn symmetric_difference_update(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let change: Change = |left, right| *left = left.symmetric_difference(right);
        self.change(other.py(), change, &required(other)?);
        Ok(())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyIdSet>()?;
    module.add_class::<PyFrozenIdSet>()?;
    let level = match penstock_idset::simd_level() {
        Ok(level) => level,
        Err(error) => {
            let text = CString::new(error.to_string())?;
            let category = module.py().get_type::<PyRuntimeWarning>();
            PyErr::warn(module.py(), &category, &text, 1)?;
            error.level_in_use()
        }
    };
    // The vector instructions in use.
    module.add("SIMD_LEVEL", level)
}
