//! `IDset`: a Python set of ids.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use penstock_idset::IdSet;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyRange, PySlice, PyString, PyTuple, PyType};

use crate::errors::{IdsetError, NotFoundError};
use crate::guarded::Guarded;
use crate::shared::{self, Stride, check_parts, detached, position};

mod buffer;
mod frozen;
mod iterator;
mod operand;
mod reading;

pub(crate) use frozen::PyFrozenIdSet;
use operand::{Numbers, constructed, operand, required, set_of_ids, valid_id};
use reading::reading_methods;

/// Texts of more bytes, and sets of more bytes, are worked on without the GIL.
const LONG_TEXT: usize = 4096;
const LONG_SET: usize = 512 * 1024;
/// Steps of a slice from which on each id is looked up by itself.
const LONG_STEP: usize = 256;
/// Bytes of the longest range in a text.
const RANGE_TEXT: usize = "4294967290-4294967294,".len();

/// What both classes of sets are made of.
pub(crate) trait Ids: Sized {
    fn of(set: IdSet) -> Self;

    /// The ids as they are now, at no cost.
    fn snapshot(&self, py: Python<'_>) -> IdSet;

    /// Asks a short question.
    fn with<R>(&self, py: Python<'_>, question: impl FnOnce(&IdSet) -> R) -> R;
}

/// The error for a number that is not an id.
fn invalid(number: impl std::fmt::Display) -> PyErr {
    IdsetError::new_err(format!(
        "invalid id {number}: expected a number from 0 to {}",
        IdSet::MAX_ID
    ))
}

/// An ordered set of ids (RFC 22): a `collections.abc.MutableSet` of int. See `penstock.idset`.
///
/// Args:
///     ids: An id, the text of a set, an iterable of ids or another set of ids; nothing for the empty set.
///     lenient: Whether to mend a text that is not as RFC 22 wants it, with a warning that says what was mended.
///
/// Raises:
///     IdsetError: A text is no idset, or a number is not from 0 to 4294967294.
///     TypeError: It is something else.
#[pyclass(module = "penstock.idset", name = "IDset", frozen)]
#[derive(Debug)]
pub(crate) struct PyIdSet(Guarded<IdSet>);

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

type Operation = fn(&IdSet, &IdSet) -> IdSet;
type Change = fn(&mut IdSet, &IdSet);

fn is_long(left: &IdSet, right: &IdSet) -> bool {
    left.heap_bytes().max(right.heap_bytes()) > LONG_SET
}

fn apply(py: Python<'_>, operation: Operation, left: &IdSet, right: &IdSet) -> IdSet {
    detached(py, is_long(left, right), || operation(left, right))
}

fn operate<C>(left: &C, other: &Bound<'_, PyAny>, operation: Operation) -> PyResult<Py<PyAny>>
where
    C: Ids
        + pyo3::PyClass<Frozen = pyo3::pyclass::boolean_struct::True>
        + Into<PyClassInitializer<C>>,
{
    let py = other.py();
    match operand(other)? {
        Some(right) => {
            let result = apply(py, operation, &left.snapshot(py), &right);
            Ok(Py::new(py, C::of(result))?.into_any())
        }
        None => Ok(py.NotImplemented()),
    }
}

fn operate_all<C: Ids>(left: &C, others: &Bound<'_, PyTuple>, operation: Operation) -> PyResult<C> {
    let mut result = left.snapshot(others.py());
    for other in others {
        result = apply(others.py(), operation, &result, &required(&other)?);
    }
    Ok(C::of(result))
}

fn text(py: Python<'_>, set: &IdSet, brackets: bool) -> PyResult<String> {
    if set.heap_bytes() <= LONG_SET {
        return Ok(set.format_with(brackets));
    }
    // A text that might exceed the memory is reserved first, to raise MemoryError.
    let ranges = set.range_count();
    if String::new().try_reserve(RANGE_TEXT * ranges).is_err() {
        let text = format!("no memory for the text of {ranges} ranges");
        return Err(PyMemoryError::new_err(text));
    }
    Ok(py.detach(|| set.format_with(brackets)))
}

/// The ids at the positions of a slice.
fn sliced(py: Python<'_>, set: &IdSet, slice: &Bound<'_, PySlice>) -> PyResult<IdSet> {
    let stride = Stride::new(slice, usize::try_from(set.len())?)?;
    let (range, step) = stride.ascending();
    Ok(detached(py, stride.count > LONG_TEXT, || {
        let part = set.slice(range.start as u64..range.end as u64);
        if step == 1 {
            part
        } else if step > LONG_STEP {
            let positions = (0..part.len()).step_by(step);
            positions
                .filter_map(|position| part.nth(position))
                .collect()
        } else {
            part.iter().step_by(step).collect()
        }
    }))
}

fn compared(left: &IdSet, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
    let py = other.py();
    let Some((right, others)) = set_of_ids(other)? else {
        return Ok(py.NotImplemented());
    };
    let equal = || !others && *left == right;
    let result = detached(py, is_long(left, &right), || match op {
        CompareOp::Eq => equal(),
        CompareOp::Ne => !equal(),
        CompareOp::Le => left.is_subset(&right),
        CompareOp::Lt => left.is_subset(&right) && !equal(),
        CompareOp::Ge => !others && left.is_superset(&right),
        CompareOp::Gt => !others && left.is_superset(&right) && !equal(),
    });
    Ok(result.into_pyobject(py)?.to_owned().into_any().unbind())
}

reading_methods!(PyIdSet);

impl PyIdSet {
    fn change(&self, py: Python<'_>, change: Change, right: &IdSet) {
        if right.heap_bytes() <= LONG_SET {
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
        constructed(ids, lenient).map(Self::new)
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
        Ok(format!("IDset('{}')", text(py, &self.snapshot(py), false)?))
    }

    fn __copy__(&self, py: Python<'_>) -> Self {
        self.copy(py)
    }

    fn __deepcopy__(&self, memo: &Bound<'_, PyAny>) -> Self {
        self.copy(memo.py())
    }

    /// Add an id, or a `range` of ids.
    ///
    /// Args:
    ///     member: A number from 0 to 4294967294, or a range of such.
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

    /// Take out an id, or the ids of a `range`, as far as they are there.
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

    /// Take out an id, or all ids of a `range`.
    ///
    /// Args:
    ///     member: An id of the set, or a range of such.
    ///
    /// Raises:
    ///     KeyError: It is not in the set; nothing is taken out.
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

    /// Take out the lowest id and return it.
    ///
    /// Raises:
    ///     KeyError: The set is empty.
    fn pop(&self, py: Python<'_>) -> PyResult<u32> {
        let first = self.0.with(py, IdSet::pop_first);
        first.ok_or_else(|| PyKeyError::new_err("pop from an empty IDset"))
    }

    /// Take out the lowest id and return it: `pop` by the name that says which.
    ///
    /// Raises:
    ///     KeyError: The set is empty.
    fn pop_first(&self, py: Python<'_>) -> PyResult<u32> {
        self.pop(py)
    }

    /// Take out the greatest id and return it.
    ///
    /// Raises:
    ///     KeyError: The set is empty.
    fn pop_last(&self, py: Python<'_>) -> PyResult<u32> {
        let last = self.0.with(py, IdSet::pop_last);
        last.ok_or_else(|| PyKeyError::new_err("pop from an empty IDset"))
    }

    /// Take out the lowest ids of a pool of free ones.
    ///
    /// Args:
    ///     count: How many.
    ///
    /// Returns:
    ///     The ids that were taken out.
    ///
    /// Raises:
    ///     IdsetError: There are fewer; none is taken out.
    ///     ValueError: The number is negative.
    #[pyo3(signature = (count = None, /))]
    fn allocate(&self, py: Python<'_>, count: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let count = count.map_or(Ok(1), |count| shared::count(count, "ids"))?;
        let (taken, left) = self.0.with(py, |set| (set.take_first(count), set.len()));
        taken.map(Self::new).ok_or_else(|| {
            IdsetError::new_err(format!("cannot allocate {count} ids: there are {left}"))
        })
    }

    /// Return ids to a pool of free ones.
    ///
    /// Args:
    ///     ids: A set of ids, its text, an iterable of ids, or one id.
    ///
    /// Raises:
    ///     IdsetError: Some of them are free already; nothing has changed.
    #[pyo3(signature = (ids, /))]
    fn release(&self, ids: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = constructed(Some(ids), false)?;
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

    /// Take out all ids.
    fn clear(&self, py: Python<'_>) {
        self.0.with(py, IdSet::clear);
    }

    /// Return an independent set of the same ids. Costs nothing until one of the two changes.
    fn copy(&self, py: Python<'_>) -> Self {
        Self::new(self.snapshot(py))
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
        self.change(other.py(), change, &required(other)?);
        Ok(())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyIdSet>()?;
    module.add_class::<PyFrozenIdSet>()
}
