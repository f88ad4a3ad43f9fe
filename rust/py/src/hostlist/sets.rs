//! `Hostlist` as a set: each host once, in the order of the left operand.

use penstock_hostlist as hostlist;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::list::{Hostlist, MIN_DETACHED_SIZE};
use super::operand::required;
use super::operations::{DIFFERENCE, INTERSECTION, apply};
use crate::shared::detach_if;

#[pymethods]
impl Hostlist {
    fn __or__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, hostlist::Hostlist::union)
    }

    fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate_reflected(other, hostlist::Hostlist::union)
    }

    fn __ior__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.replace(other, hostlist::Hostlist::union)
    }

    fn __and__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, INTERSECTION)
    }

    fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate_reflected(other, INTERSECTION)
    }

    fn __iand__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.replace(other, INTERSECTION)
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, DIFFERENCE)
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate_reflected(other, DIFFERENCE)
    }

    fn __isub__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.replace(other, DIFFERENCE)
    }

    fn __xor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, hostlist::Hostlist::symmetric_difference)
    }

    fn __rxor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate_reflected(other, hostlist::Hostlist::symmetric_difference)
    }

    fn __ixor__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.replace(other, hostlist::Hostlist::symmetric_difference)
    }

    /// union(*others: str | Iterable[str]) -> Hostlist
    ///
    /// Return the hosts of this list and of all others, each once, in order of first occurrence.
    ///
    /// Args:
    ///     *others: Each a Hostlist, the text of one, or an iterable of names or texts.
    #[pyo3(signature = (*others))]
    fn union(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        self.operate_all(others, hostlist::Hostlist::union)
    }

    /// intersection(*others: str | Iterable[str]) -> Hostlist
    ///
    /// Return the hosts of this list that are in all others, each once, in this list's order.
    ///
    /// Args:
    ///     *others: Each a Hostlist, the text of one, or an iterable of names or texts.
    #[pyo3(signature = (*others))]
    fn intersection(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        self.operate_all(others, INTERSECTION)
    }

    /// difference(*others: str | Iterable[str]) -> Hostlist
    ///
    /// Return the hosts of this list that are in none of the others, each once, in this list's order.
    ///
    /// Args:
    ///     *others: Each a Hostlist, the text of one, or an iterable of names or texts.
    #[pyo3(signature = (*others))]
    fn difference(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        self.operate_all(others, DIFFERENCE)
    }

    /// symmetric_difference(other: str | Iterable[str], /) -> Hostlist
    ///
    /// Return the hosts that are in exactly one of the two, each once: those of this list, then those of the other.
    ///
    /// Args:
    ///     other: A Hostlist, the text of one, or an iterable of names or texts.
    #[pyo3(signature = (other, /))]
    fn symmetric_difference(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (left, right) = (self.snapshot(), required(other)?);
        let operation = hostlist::Hostlist::symmetric_difference;
        apply(other.py(), operation, &left, &right).map(Self::new)
    }

    /// has_intersection(other: str | Iterable[str], /) -> bool
    ///
    /// Return whether some host is in both lists.
    ///
    /// Args:
    ///     other: A Hostlist, the text of one, or an iterable of names or texts.
    #[pyo3(signature = (other, /))]
    fn has_intersection(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (left, right) = (self.snapshot(), required(other)?);
        let long = left.len().max(right.len()) > MIN_DETACHED_SIZE;
        Ok(detach_if(other.py(), long, || {
            left.has_intersection(&right)
        }))
    }

    /// isdisjoint(other: str | Iterable[str], /) -> bool
    ///
    /// Return whether no host is in both lists.
    ///
    /// Args:
    ///     other: A Hostlist, the text of one, or an iterable of names or texts.
    #[pyo3(signature = (other, /))]
    fn isdisjoint(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.has_intersection(other).map(|meets| !meets)
    }

    /// issubset(other: str | Iterable[str], /) -> bool
    ///
    /// Return whether every host of this list is in the other, however often in either.
    ///
    /// Args:
    ///     other: A Hostlist, the text of one, or an iterable of names or texts.
    #[pyo3(signature = (other, /))]
    fn issubset(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (left, right) = (self.snapshot(), required(other)?);
        let long = left.len().max(right.len()) > MIN_DETACHED_SIZE;
        Ok(detach_if(other.py(), long, || left.is_subset(&right)))
    }

    /// issuperset(other: str | Iterable[str], /) -> bool
    ///
    /// Return whether every host of the other list is in this one, however often in either.
    ///
    /// Args:
    ///     other: A Hostlist, the text of one, or an iterable of names or texts.
    #[pyo3(signature = (other, /))]
    fn issuperset(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (left, right) = (self.snapshot(), required(other)?);
        let long = left.len().max(right.len()) > MIN_DETACHED_SIZE;
        Ok(detach_if(other.py(), long, || right.is_subset(&left)))
    }
}
