//! Operations on sets, with the GIL released for large ones.

use penstock_idset::IdSet;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};

use super::classes::{Ids, MAX_ATTACHED_TEXT_BYTES};
use super::operand::{operand, required, set_of_ids};
use crate::shared::{Stride, detach_if};

/// Operations on sets of more bytes release the GIL.
pub(super) const MAX_ATTACHED_BYTES: u64 = 512 * 1024;
/// Minimum step of a slice for which ids are looked up one by one.
const MIN_LOOKUP_STEP: usize = 256;
/// Bytes of the longest range in a text.
const MAX_RANGE_TEXT_BYTES: usize = "4294967290-4294967294,".len();

pub(super) type Operation = fn(&IdSet, &IdSet) -> IdSet;
fn is_long(left: &IdSet, right: &IdSet) -> bool {
    left.estimated_bytes().max(right.estimated_bytes()) > MAX_ATTACHED_BYTES
}

pub(super) fn apply(py: Python<'_>, operation: Operation, left: &IdSet, right: &IdSet) -> IdSet {
    detach_if(py, is_long(left, right), || operation(left, right))
}

pub(super) fn operate<C>(
    left: &C,
    other: &Bound<'_, PyAny>,
    operation: Operation,
) -> PyResult<Py<PyAny>>
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

pub(super) fn operate_all<C: Ids>(
    left: &C,
    others: &Bound<'_, PyTuple>,
    operation: Operation,
) -> PyResult<C> {
    let mut result = left.snapshot(others.py());
    for other in others {
        result = apply(others.py(), operation, &result, &required(&other)?);
    }
    Ok(C::of(result))
}

pub(super) fn text(py: Python<'_>, set: &IdSet) -> PyResult<String> {
    written(py, set, IdSet::to_text)
}

pub(super) fn bracketed_text(py: Python<'_>, set: &IdSet) -> PyResult<String> {
    written(py, set, IdSet::to_bracketed_text)
}

fn written(py: Python<'_>, set: &IdSet, write: fn(&IdSet) -> String) -> PyResult<String> {
    if set.estimated_bytes() <= MAX_ATTACHED_BYTES {
        return Ok(write(set));
    }
    // A text that might exceed the memory is reserved first, to raise MemoryError.
    let ranges = set.range_count();
    if String::new()
        .try_reserve(MAX_RANGE_TEXT_BYTES * ranges)
        .is_err()
    {
        let text = format!("no memory for the text of {ranges} ranges");
        return Err(PyMemoryError::new_err(text));
    }
    Ok(py.detach(|| write(set)))
}

/// The ids at the positions of a slice.
pub(super) fn sliced(py: Python<'_>, set: &IdSet, slice: &Bound<'_, PySlice>) -> PyResult<IdSet> {
    let stride = Stride::new(slice, usize::try_from(set.len())?)?;
    let (range, step) = stride.ascending();
    Ok(detach_if(
        py,
        stride.count > MAX_ATTACHED_TEXT_BYTES,
        || {
            let part = set.slice(range.start as u64..range.end as u64);
            if step == 1 {
                part
            } else if step > MIN_LOOKUP_STEP {
                let positions = (0..part.len()).step_by(step);
                positions
                    .filter_map(|position| part.nth(position))
                    .collect()
            } else {
                part.iter().step_by(step).collect()
            }
        },
    ))
}

pub(super) fn compared(
    left: &IdSet,
    other: &Bound<'_, PyAny>,
    op: CompareOp,
) -> PyResult<Py<PyAny>> {
    let py = other.py();
    let Some((right, others)) = set_of_ids(other)? else {
        return Ok(py.NotImplemented());
    };
    let equal = || !others && *left == right;
    let result = detach_if(py, is_long(left, &right), || match op {
        CompareOp::Eq => equal(),
        CompareOp::Ne => !equal(),
        CompareOp::Le => left.is_subset(&right),
        CompareOp::Lt => left.is_subset(&right) && !equal(),
        CompareOp::Ge => !others && left.is_superset(&right),
        CompareOp::Gt => !others && left.is_superset(&right) && !equal(),
    });
    Ok(result.into_pyobject(py)?.to_owned().into_any().unbind())
}
