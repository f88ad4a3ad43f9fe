//! Conversion of the Python arguments of an `IDset`: ids, texts, iterables, other sets.
use penstock_idset::IdSet;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyFrozenSet, PyInt, PyRange, PySet, PyString, PyType};

use super::buffer;
use super::classes::{Ids as _, MAX_ATTACHED_TEXT_BYTES, PyFrozenIdSet, PyIdSet, invalid};
use crate::errors::{raised, warn_mended};
use crate::shared::{detach_if, type_name};

fn parse(text: &Bound<'_, PyString>) -> PyResult<IdSet> {
    let py = text.py();
    // A lone surrogate is shown by its replacement character, and rejected like any other.
    let text = text.to_string_lossy();
    let parsed = detach_if(py, text.len() > MAX_ATTACHED_TEXT_BYTES, || {
        text.parse::<IdSet>()
    });
    parsed.map_err(raised)
}

/// Parses a text leniently; returns the set and the corrections.
pub(super) fn parse_lenient(text: &Bound<'_, PyString>) -> PyResult<(IdSet, Vec<String>)> {
    let py = text.py();
    let text = text.to_string_lossy();
    let parsed = detach_if(py, text.len() > MAX_ATTACHED_TEXT_BYTES, || {
        IdSet::parse_lenient(&text)
    });
    let (set, mended) = parsed.map_err(raised)?;
    Ok((set, mended.iter().map(ToString::to_string).collect()))
}

/// Builds a set from the argument of a constructor. A text that does not quite follow RFC 22 is
/// corrected, with a warning.
pub(super) fn construct_lenient(ids: &Bound<'_, PyAny>) -> PyResult<IdSet> {
    let Ok(text) = ids.cast::<PyString>() else {
        return construct(ids);
    };
    let (set, mended) = parse_lenient(text)?;
    warn_mended(text, &mended)?;
    Ok(set)
}

/// Builds a set from the argument of a constructor.
pub(super) fn construct(ids: &Bound<'_, PyAny>) -> PyResult<IdSet> {
    if ids.is_instance_of::<PyInt>() {
        let id = valid_id(ids)?;
        return Ok(IdSet::with_range(id..=id));
    }
    if let Some(set) = operand(ids)? {
        return Ok(set);
    }
    // Converts integer types other than int, such as those of numpy.
    if ids.hasattr("__index__")? {
        let id = valid_id(ids)?;
        return Ok(IdSet::with_range(id..=id));
    }
    required(ids)
}

/// A Python integer as an id; none if it is out of range. Other objects are a `TypeError`.
pub(super) fn id(object: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    match object.extract::<i64>() {
        Ok(id) => Ok(u32::try_from(id).ok().filter(|&id| id <= IdSet::MAX_ID)),
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Ok(None),
        Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
            let kind = type_name(object);
            Err(PyTypeError::new_err(format!(
                "expected an id (int), not {kind}"
            )))
        }
        Err(error) => Err(error),
    }
}

/// A Python integer as an id.
pub(super) fn valid_id(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    id(object)?.ok_or_else(|| {
        let shown = object.str().map(|text| text.to_string());
        // Python does not convert numbers of thousands of digits to text.
        invalid(shown.as_deref().unwrap_or("(of many digits)"))
    })
}

/// The numbers of a `range`, in ascending order.
pub(super) struct Numbers {
    /// The smallest and the largest number, saturated to 64 bits; `None` if the range is empty.
    ends: Option<(i64, i64)>,
    step: usize,
}

impl Numbers {
    pub(super) fn of(range: &Bound<'_, PyRange>) -> Self {
        // Numbers beyond 64 bits lie far outside the ids: their sign is enough.
        let saturated = |name: &str| {
            let Ok(number) = range.getattr(name) else {
                return 0;
            };
            let beyond = |_| {
                if number.lt(0).unwrap_or(false) {
                    i64::MIN
                } else {
                    i64::MAX
                }
            };
            i128::from(number.extract::<i64>().unwrap_or_else(beyond))
        };
        let (from, to, step) = (saturated("start"), saturated("stop"), saturated("step"));
        let towards = if step > 0 { step - 1 } else { step + 1 };
        let count = (to - from + towards) / step;
        let last = from + step * (count - 1);
        let ends = (count > 0).then(|| {
            let within = |number: i128| i64::try_from(number).unwrap_or(i64::MAX);
            (within(from.min(last)), within(from.max(last)))
        });
        Self {
            ends,
            step: usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX),
        }
    }

    /// All numbers as ids.
    pub(super) fn ids(&self) -> PyResult<IdSet> {
        match self.ends {
            Some((first, _)) if first < 0 => Err(invalid(first)),
            Some((_, last)) if last > i64::from(IdSet::MAX_ID) => Err(invalid(last)),
            _ => Ok(self.ids_up_to(IdSet::MAX_ID)),
        }
    }

    /// The numbers that are ids, up to `most`.
    pub(super) fn ids_up_to(&self, most: u32) -> IdSet {
        let Some((first, last)) = self.ends else {
            return IdSet::new();
        };
        let step = i128::try_from(self.step).unwrap_or(i128::MAX);
        let below = (-i128::from(first)).max(0);
        let first = i128::from(first) + (below + step - 1) / step * step;
        let last = last.min(most.into());
        match (u32::try_from(first), u32::try_from(last)) {
            (Ok(first), Ok(last)) if self.step == 1 => IdSet::with_range(first..=last),
            (Ok(first), Ok(last)) => (first..=last).step_by(self.step).collect(),
            _ => IdSet::new(),
        }
    }
}

/// Converts the other operand of an operator: an idset, its text, an iterable of ids. `None` for other types.
pub(super) fn operand(other: &Bound<'_, PyAny>) -> PyResult<Option<IdSet>> {
    if let Ok(set) = other.cast::<PyIdSet>() {
        return Ok(Some(set.get().snapshot(other.py())));
    }
    if let Ok(set) = other.cast::<PyFrozenIdSet>() {
        return Ok(Some(set.get().snapshot(other.py())));
    }
    if let Ok(text) = other.cast::<PyString>() {
        return parse(text).map(Some);
    }
    if let Ok(range) = other.cast::<PyRange>() {
        return Numbers::of(range).ids().map(Some);
    }
    // Bytes iterate as integers: a text by mistake would be read as something else.
    if other.is_instance_of::<PyBytes>() || other.is_instance_of::<PyByteArray>() {
        return Ok(None);
    }
    if let Some(ids) = buffer::ids(other) {
        return Ok(Some(ids?));
    }
    let items = match other.try_iter() {
        Ok(items) => items,
        Err(error) if error.is_instance_of::<PyTypeError>(other.py()) => return Ok(None),
        Err(error) => return Err(error),
    };
    let set = items
        .map(|item| valid_id(&item?))
        .collect::<PyResult<IdSet>>()?;
    Ok(Some(set))
}

pub(super) fn required(other: &Bound<'_, PyAny>) -> PyResult<IdSet> {
    operand(other)?.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "expected an IDset, its text or an iterable of ids, not {}",
            type_name(other)
        ))
    })
}

/// The ids in a Python set, and whether it has other elements.
pub(super) fn set_of_ids(other: &Bound<'_, PyAny>) -> PyResult<Option<(IdSet, bool)>> {
    static SET: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if let Ok(set) = other.cast::<PyIdSet>() {
        return Ok(Some((set.get().snapshot(other.py()), false)));
    }
    if let Ok(set) = other.cast::<PyFrozenIdSet>() {
        return Ok(Some((set.get().snapshot(other.py()), false)));
    }
    let is_set = other.is_instance_of::<PySet>()
        || other.is_instance_of::<PyFrozenSet>()
        || other.is_instance(SET.import(other.py(), "collections.abc", "Set")?)?;
    if !is_set {
        return Ok(None);
    }
    let (mut ids, mut others) = (Vec::new(), false);
    for item in other.try_iter()? {
        match id(&item?) {
            Ok(Some(id)) => ids.push(id),
            _ => others = true,
        }
    }
    Ok(Some((ids.into_iter().collect(), others)))
}
