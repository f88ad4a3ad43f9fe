//! Hosts of a `Hostlist` as Python's strings: all of them, and one after the other.
use penstock_hostlist::Iter;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use super::list::Hostlist;

/// Hosts of the first block that an iterator reads ahead; each block doubles.
const MIN_BLOCK_HOSTS: usize = 8;
/// Hosts of the largest block.
const MAX_BLOCK_HOSTS: usize = 1024;

/// The hosts that an iterator has left, as a list.
pub(super) fn strings<'py>(py: Python<'py>, left: &mut Iter<'_>) -> PyResult<Bound<'py, PyList>> {
    PyList::new(
        py,
        Strings {
            py,
            left,
            text: String::new(),
        },
    )
}

/// Makes Python's strings of hosts, each from the same memory.
struct Strings<'py, 'a, 'l> {
    py: Python<'py>,
    left: &'a mut Iter<'l>,
    text: String,
}

impl<'py> Iterator for Strings<'py, '_, '_> {
    type Item = Bound<'py, PyString>;

    fn next(&mut self) -> Option<Bound<'py, PyString>> {
        self.left
            .read_next(&mut self.text)
            .then(|| PyString::new(self.py, &self.text))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for Strings<'_, '_, '_> {}

/// Iterator over a list, one way or the other.
///
/// If the list changes during the iteration, it continues with the host at the next position, as with `list`.
#[pyclass(module = "penstock.hostlist", name = "HostlistIterator")]
#[derive(Debug)]
pub(super) struct HostlistIterator {
    /// None at the end.
    owner: Option<Py<Hostlist>>,
    reverse: bool,
    /// The next position; counting down, the one after it.
    next: usize,
    ahead: std::vec::IntoIter<Py<PyString>>,
    size: usize,
    generation: u64,
}

impl HostlistIterator {
    /// Counts down from behind `last` if that is set.
    pub(super) fn new(owner: Py<Hostlist>, last: Option<usize>) -> Self {
        Self {
            owner: Some(owner),
            reverse: last.is_some(),
            next: last.unwrap_or(0),
            ahead: Vec::new().into_iter(),
            size: MIN_BLOCK_HOSTS,
            generation: 0,
        }
    }

    fn read_ahead(&mut self, py: Python<'_>, list: &penstock_hostlist::Hostlist) {
        let range = if self.reverse {
            self.next = self.next.min(list.len());
            self.next.saturating_sub(self.size)..self.next
        } else {
            self.next..self.next + self.size
        };
        let mut left = list.iter_range(range);
        let hosts = Strings {
            py,
            left: &mut left,
            text: String::new(),
        };
        let mut hosts: Vec<_> = hosts.map(Bound::unbind).collect();
        if self.reverse {
            hosts.reverse();
        }
        self.ahead = hosts.into_iter();
        self.size = (self.size * 2).min(MAX_BLOCK_HOSTS);
    }
}

#[pymethods]
impl HostlistIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> Option<Py<PyString>> {
        let state = &self.owner.as_ref()?.get().0;
        // Hosts that were read ahead are valid until the list changes.
        let current = (self.ahead.len() > 0).then_some(self.generation);
        if let Some((list, generation)) = state.newer(current) {
            self.generation = generation;
            self.read_ahead(py, &list);
        }
        let host = self.ahead.next();
        match (&host, self.reverse) {
            (None, _) => self.owner = None,
            (Some(_), true) => self.next -= 1,
            (Some(_), false) => self.next += 1,
        }
        host
    }

    fn __length_hint__(&self) -> usize {
        let Some(owner) = &self.owner else { return 0 };
        let len = owner.get().len();
        if self.reverse {
            self.next.min(len)
        } else {
            len.saturating_sub(self.next)
        }
    }
}
