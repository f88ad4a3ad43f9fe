//! Iteration: chunks of ids, built one at a time and chained by `itertools.chain`.
//!
//! The ints of a chunk are made by the iterator of an `array.array`, each in the memory of the one before: a list of them
//! would have to be written, and read from farther away.
use std::ops::RangeInclusive;

use penstock_idset::IdSet;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyRange, PyType};

/// The size of the first chunk.
const FIRST_CHUNK_IDS: usize = 16;
/// The maximum size of a chunk, which fits into the nearest cache.
const MAX_CHUNK_IDS: usize = 2048;
/// The size of a chunk that is an array; a smaller one is made sooner as a list.
const MIN_ARRAY_IDS: usize = 64;
/// A run of more ids is yielded as a `range`, if a chunk begins with it.
const MIN_RUN_IDS: u32 = 64;

/// The order in which ids are yielded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ascending,
    Descending,
}

/// Iterator over the ids of a snapshot: lists and arrays of ids, and ranges for long runs.
#[pyclass(module = "penstock.idset", name = "IDsetChunks")]
#[derive(Debug)]
pub(super) struct Chunks {
    set: IdSet,
    direction: Direction,
    /// The remaining ids lie in this range; `None` at the end.
    left: Option<(u32, u32)>,
    size: usize,
}

#[pymethods]
impl Chunks {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((lo, hi)) = self.left else {
            return Ok(None);
        };
        let set = self.set.clone();
        let mut ranges = set.ranges_within(lo..=hi);
        let mut turn = || match self.direction {
            Direction::Ascending => ranges.next(),
            Direction::Descending => ranges.next_back(),
        };
        let Some(run) = turn() else {
            return Ok(None);
        };
        let (first, last) = (*run.start(), *run.end());
        if is_long(&run) {
            let (from, to, step, end) = match self.direction {
                Direction::Ascending => (i64::from(first), i64::from(last) + 1, 1, last),
                Direction::Descending => (i64::from(last), i64::from(first) - 1, -1, first),
            };
            self.left = rest((lo, hi), self.direction, end);
            let (from, to) = (isize::try_from(from)?, isize::try_from(to)?);
            return Ok(Some(PyRange::new_with_step(py, from, to, step)?.into_any()));
        }
        let ids = match self.direction {
            Direction::Ascending => set.ids_from(first, self.size),
            Direction::Descending => {
                let mut ids = Vec::with_capacity(self.size);
                let mut next = Some(run);
                while let Some(run) = next.filter(|run| ids.len() < self.size && !is_long(run)) {
                    ids.extend(run.rev());
                    next = turn();
                }
                ids
            }
        };
        self.left = ids
            .last()
            .and_then(|&end| rest((lo, hi), self.direction, end));
        self.size = (self.size * 2).min(MAX_CHUNK_IDS);
        if ids.len() < MIN_ARRAY_IDS {
            return Ok(Some(PyList::new(py, ids)?.into_any()));
        }
        array(py, &ids).map(Some)
    }
}

/// An `array.array` of ids.
fn array<'py>(py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyAny>> {
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let bytes = PyBytes::new_with(py, size_of_val(ids), |bytes| {
        for (place, id) in bytes.chunks_exact_mut(size_of::<u32>()).zip(ids) {
            place.copy_from_slice(&id.to_ne_bytes());
        }
        Ok(())
    })?;
    ARRAY.import(py, "array", "array")?.call1(("I", bytes))
}

/// Whether a run is yielded as a `range`.
fn is_long(run: &RangeInclusive<u32>) -> bool {
    run.end() - run.start() >= MIN_RUN_IDS
}

/// The part of a range that follows an id, in the direction of the iteration.
fn rest((lo, hi): (u32, u32), direction: Direction, end: u32) -> Option<(u32, u32)> {
    let left = match direction {
        Direction::Ascending => (end.checked_add(1)?, hi),
        Direction::Descending => (lo, end.checked_sub(1)?),
    };
    (left.0 <= left.1).then_some(left)
}

fn chained(py: Python<'_>, set: IdSet, direction: Direction) -> PyResult<Bound<'_, PyAny>> {
    static CHAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let from_iterable = CHAIN.get_or_try_init(py, || {
        let chain = py.import("itertools")?.getattr("chain")?;
        Ok::<_, PyErr>(chain.getattr("from_iterable")?.unbind())
    })?;
    let chunks = Chunks {
        set,
        direction,
        left: Some((0, IdSet::MAX_ID)),
        size: FIRST_CHUNK_IDS,
    };
    from_iterable.bind(py).call1((Bound::new(py, chunks)?,))
}

/// Iterates over the ids as they are now, in ascending order.
pub(super) fn forwards(py: Python<'_>, set: IdSet) -> PyResult<Bound<'_, PyAny>> {
    chained(py, set, Direction::Ascending)
}

/// Iterates over the ids as they are now, in descending order.
pub(super) fn backwards(py: Python<'_>, set: IdSet) -> PyResult<Bound<'_, PyAny>> {
    chained(py, set, Direction::Descending)
}
