//! A value that a Python object owns and that its iterators, copies and other threads may be reading.
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A value behind a lock that is held only while Rust works on it, never while Python runs.
///
/// Readers take a snapshot, which costs nothing; a change copies the value only if a snapshot exists.
#[derive(Debug, Default)]
pub(crate) struct Shared<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug, Default)]
struct State<T> {
    value: Arc<T>,
    /// Number of changes, by which an iterator detects that what it has read ahead is outdated.
    generation: u64,
}

impl<T: Clone> Shared<T> {
    pub(crate) fn new(value: impl Into<Arc<T>>) -> Self {
        Self {
            state: Mutex::new(State {
                value: value.into(),
                generation: 0,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The value is changed in one step as a whole: another thread's panic leaves it sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(&self) -> Arc<T> {
        Arc::clone(&self.lock().value)
    }

    /// Runs a short question on the value.
    pub(crate) fn with<R>(&self, question: impl FnOnce(&T) -> R) -> R {
        question(&self.lock().value)
    }

    /// A snapshot, unless the value is of that generation; with the generation that it is of.
    pub(crate) fn newer(&self, generation: Option<u64>) -> Option<(Arc<T>, u64)> {
        let state = self.lock();
        let newer = generation != Some(state.generation);
        newer.then(|| (Arc::clone(&state.value), state.generation))
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        state.generation += 1;
        change(Arc::make_mut(&mut state.value))
    }
}

/// Runs work, without the GIL if `is_long`: less work is faster with it.
pub(crate) fn detach_if<R: Send>(
    py: Python<'_>,
    is_long: bool,
    work: impl FnOnce() -> R + Send,
) -> R {
    if is_long { py.detach(work) } else { work() }
}

/// The name of an object's type, for messages.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name();
    name.map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// Converts a number of things that Python passes.
pub(crate) fn count(object: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    object.extract::<u64>().map_err(|error| {
        if !error.is_instance_of::<PyOverflowError>(object.py()) {
            let kind = type_name(object);
            return PyTypeError::new_err(format!("expected a number of {what} (int), not {kind}"));
        }
        let shown = object.str().map(|text| text.to_string());
        PyValueError::new_err(format!(
            "expected a number of {what} from 0 on, found {}",
            shown.as_deref().unwrap_or("one of many digits")
        ))
    })
}

/// The most parts that a set or a list is split into.
const MAX_PARTS: u64 = 1 << 24;

/// Rejects a number of parts that would exhaust the memory.
pub(crate) fn check_parts(parts: u64) -> PyResult<()> {
    if parts <= MAX_PARTS {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "cannot split into {parts} parts: expected at most {MAX_PARTS}"
    )))
}

/// A position from Python, counted from the end if negative, as one from the start.
pub(crate) fn position(key: &Bound<'_, PyAny>, len: usize, what: &str) -> PyResult<usize> {
    let outside = || PyIndexError::new_err(format!("{what} index out of range"));
    let index: isize = key.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyTypeError>(key.py()) {
            let kind = type_name(key);
            PyTypeError::new_err(format!(
                "{what} indices must be integers or slices, not {kind}"
            ))
        } else {
            outside()
        }
    })?;
    let index = if index < 0 {
        len.checked_sub(index.unsigned_abs())
    } else {
        usize::try_from(index).ok()
    };
    index.filter(|&index| index < len).ok_or_else(outside)
}

/// The positions that a Python slice selects in a sequence of a given length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride {
    start: isize,
    step: isize,
    pub(crate) count: usize,
}

impl Stride {
    pub(crate) fn new(slice: &Bound<'_, pyo3::types::PySlice>, len: usize) -> PyResult<Self> {
        let indices = slice.indices(isize::try_from(len)?)?;
        Ok(Self {
            start: indices.start,
            step: indices.step,
            count: indices.slicelength,
        })
    }

    /// All positions, the last one first.
    pub(crate) fn reversed(len: usize) -> PyResult<Self> {
        Ok(Self {
            start: isize::try_from(len)? - 1,
            step: -1,
            count: len,
        })
    }

    /// From the lowest position to behind the highest one, and the distance from one to the next.
    pub(crate) fn ascending(self) -> (Range<usize>, usize) {
        let (start, step) = (self.start.max(0).unsigned_abs(), self.step.unsigned_abs());
        let span = step * self.count.saturating_sub(1);
        let first = if self.step < 0 { start - span } else { start };
        let behind = first + span + usize::from(self.count > 0);
        (first..behind, step)
    }

    pub(crate) fn is_descending(self) -> bool {
        self.step < 0
    }
}
