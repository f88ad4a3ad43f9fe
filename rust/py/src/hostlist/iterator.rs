//! Iterators over a `Hostlist`.
use pyo3::prelude::*;

use super::Hostlist;

/// Hosts read ahead at first, and at most.
const AHEAD: (usize, usize) = (8, 1024);

/// Iterator over a list, one way or the other.
///
/// If the list is changed meanwhile, it goes on with what is then at the next position, as that of any list does.
#[pyclass(module = "penstock.hostlist", name = "HostlistIterator")]
#[derive(Debug)]
pub(super) struct HostlistIterator {
    /// None at the end.
    owner: Option<Py<Hostlist>>,
    reverse: bool,
    /// The next position; counting down, the one after it.
    next: usize,
    ahead: std::vec::IntoIter<String>,
    size: usize,
    generation: u64,
}

impl HostlistIterator {
    /// Counts down from behind `last` where that is given.
    pub(super) fn new(owner: Py<Hostlist>, last: Option<usize>) -> Self {
        Self {
            owner: Some(owner),
            reverse: last.is_some(),
            next: last.unwrap_or(0),
            ahead: Vec::new().into_iter(),
            size: AHEAD.0,
            generation: 0,
        }
    }

    fn read_ahead(&mut self, list: &penstock_hostlist::Hostlist) {
        let hosts: Vec<String> = if self.reverse {
            let end = self.next.min(list.len());
            let hosts = list.iter_range(end.saturating_sub(self.size)..end);
            self.next = end;
            hosts.rev().collect()
        } else {
            let hosts = list.iter_range(self.next..self.next + self.size);
            hosts.collect()
        };
        self.ahead = hosts.into_iter();
        self.size = (self.size * 2).min(AHEAD.1);
    }
}

#[pymethods]
impl HostlistIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Option<String> {
        let state = &self.owner.as_ref()?.get().0;
        // What was read ahead counts only as long as the list stays as it was.
        let current = (self.ahead.len() > 0).then_some(self.generation);
        if let Some((list, generation)) = state.newer(current) {
            self.generation = generation;
            self.read_ahead(&list);
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
