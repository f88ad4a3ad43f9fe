//! `Hostlist`: a Python list of host names.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use std::sync::Arc;

use penstock_hostlist as hostlist;
use penstock_idset::IdSet;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice, PyString, PyTuple, PyType};

use crate::errors::{HostlistError, raised};
use crate::idset::PyIdSet;
use crate::shared::{self, Stride, check_parts, detach_if, position};

mod iterator;
mod lenient;
mod list;
mod operand;
mod operations;
mod sets;

use iterator::{HostlistIterator, strings};
pub(crate) use list::Hostlist;
use list::MIN_DETACHED_SIZE;
use operand::{name, operand, required};
use operations::{CONCATENATION, Operation, Parts, apply};

/// The maximum number of hosts in a list that cannot be folded.
const MAX_UNFOLDED_HOSTS: usize = 1 << 24;

impl Hostlist {
    fn len(&self) -> usize {
        self.0.with(hostlist::Hostlist::len)
    }

    fn text(&self, py: Python<'_>) -> String {
        let list = self.snapshot();
        detach_if(py, list.len() > MIN_DETACHED_SIZE, || list.to_string())
    }

    /// The result of an operation with the other operand on the right.
    fn operate(&self, other: &Bound<'_, PyAny>, operation: Operation) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let Some(right) = operand(other)? else {
            return Ok(py.NotImplemented());
        };
        let result = Self::new(apply(py, operation, &self.snapshot(), &right)?);
        Ok(Py::new(py, result)?.into_any())
    }

    /// The result of an operation with the other operand on the left.
    fn operate_reflected(
        &self,
        other: &Bound<'_, PyAny>,
        operation: Operation,
    ) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let Some(left) = operand(other)? else {
            return Ok(py.NotImplemented());
        };
        let result = Self::new(apply(py, operation, &left, &self.snapshot())?);
        Ok(Py::new(py, result)?.into_any())
    }

    fn operate_all(&self, others: &Bound<'_, PyTuple>, operation: Operation) -> PyResult<Self> {
        let mut result = self.snapshot();
        for other in others {
            result = Arc::new(apply(others.py(), operation, &result, &*required(&other)?)?);
        }
        Ok(Self::new(result))
    }

    /// Changes the list by a function that leaves it unchanged if it fails.
    fn change<R: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut hostlist::Hostlist) -> Result<R, hostlist::Error> + Send,
    ) -> PyResult<R> {
        let long = self.len() > MIN_DETACHED_SIZE;
        let changed = detach_if(py, long, || self.0.change(change));
        changed.map_err(raised)
    }

    /// Replaces the list by the result of an operation.
    fn replace(&self, other: &Bound<'_, PyAny>, operation: Operation) -> PyResult<()> {
        let right = required(other)?;
        self.change(other.py(), |left| {
            *left = operation(left, &right)?;
            Ok(())
        })
    }

    /// The hosts of a slice.
    fn pick(
        py: Python<'_>,
        list: &hostlist::Hostlist,
        stride: Stride,
    ) -> PyResult<hostlist::Hostlist> {
        let (range, step) = stride.ascending();
        if step == 1 && !stride.is_descending() {
            return Ok(list.slice(range));
        }
        if stride.count > MAX_UNFOLDED_HOSTS {
            return Err(HostlistError::new_err(format!(
                "hostlist too long: expected a slice of at most {MAX_UNFOLDED_HOSTS} hosts that are not neighbours"
            )));
        }
        let picked = detach_if(py, stride.count > MIN_DETACHED_SIZE, || {
            if stride.is_descending() {
                list.select(range.step_by(step).rev())
            } else {
                list.select(range.step_by(step))
            }
        });
        picked.ok_or_else(|| PyIndexError::new_err("Hostlist index out of range"))
    }
}

#[pymethods]
impl Hostlist {
    #[new]
    #[pyo3(signature = (hosts = None, /, *, lenient = false))]
    fn py_new(hosts: Option<&Bound<'_, PyAny>>, lenient: bool) -> PyResult<Self> {
        match hosts {
            Some(hosts) if lenient => lenient::list(hosts).map(Self::new),
            Some(hosts) => required(hosts).map(Self::new),
            None => Ok(Self::new(hostlist::Hostlist::new())),
        }
    }

    fn __len__(&self) -> usize {
        self.len()
    }

    fn __bool__(&self) -> bool {
        self.len() > 0
    }

    fn __contains__(&self, host: &Bound<'_, PyAny>) -> bool {
        let Ok(host) = host.cast::<PyString>() else {
            return false;
        };
        let list = self.snapshot();
        host.to_str().is_ok_and(|host| list.contains(host))
    }

    fn __iter__(slf: Bound<'_, Self>) -> HostlistIterator {
        HostlistIterator::new(slf.unbind(), None)
    }

    fn __reversed__(slf: Bound<'_, Self>) -> HostlistIterator {
        let len = slf.get().len();
        HostlistIterator::new(slf.unbind(), Some(len))
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = key.py();
        let list = self.snapshot();
        if let Ok(slice) = key.cast::<PySlice>() {
            let stride = Stride::new(slice, list.len())?;
            let part = Self::new(Self::pick(py, &list, stride)?);
            return Ok(Py::new(py, part)?.into_any());
        }
        let index = position(key, list.len(), "Hostlist")?;
        let host = list
            .get(index)
            .ok_or_else(|| PyIndexError::new_err("Hostlist index out of range"))?;
        Ok(PyString::new(py, &host).into_any().unbind())
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        let Ok(slice) = key.cast::<PySlice>() else {
            let index = position(key, self.len(), "Hostlist")?;
            let host = name(value)?;
            return self.change(py, |list| list.splice(index..index + 1, &host));
        };
        let hosts = required(value)?;
        let stride = Stride::new(slice, self.len())?;
        let (range, step) = stride.ascending();
        if step == 1 && !stride.is_descending() {
            return self.change(py, |list| list.splice(range, &hosts));
        }
        if hosts.len() != stride.count {
            return Err(PyValueError::new_err(format!(
                "attempt to assign {} hosts to a slice of {}",
                hosts.len(),
                stride.count
            )));
        }
        self.change(py, |list| {
            let mut parts = Parts::new(list);
            for (turn, position) in range.step_by(step).enumerate() {
                let turn = if stride.is_descending() {
                    stride.count - 1 - turn
                } else {
                    turn
                };
                parts.replace(position, &hosts.slice(turn..turn + 1))?;
            }
            *list = parts.finish()?;
            Ok(())
        })
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        let Ok(slice) = key.cast::<PySlice>() else {
            let index = position(key, self.len(), "Hostlist")?;
            return self.change(py, |list| {
                list.remove_range(index..index + 1);
                Ok(())
            });
        };
        let (range, step) = Stride::new(slice, self.len())?.ascending();
        self.change(py, |list| {
            if step == 1 {
                list.remove_range(range);
                return Ok(());
            }
            let mut parts = Parts::new(list);
            for position in range.step_by(step) {
                parts.replace(position, &hostlist::Hostlist::new())?;
            }
            *list = parts.finish()?;
            Ok(())
        })
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else {
            return Ok(py.NotImplemented());
        };
        let (left, right) = (self.snapshot(), other.get().snapshot());
        let equal = || detach_if(py, left.len() > MIN_DETACHED_SIZE, || left == right);
        let result = match op {
            CompareOp::Eq => equal(),
            CompareOp::Ne => !equal(),
            _ => return Ok(py.NotImplemented()),
        };
        Ok(result.into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate(other, CONCATENATION)
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operate_reflected(other, CONCATENATION)
    }

    fn __iadd__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.extend(other)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = PyString::new(py, &self.text(py)).repr()?;
        Ok(format!("Hostlist({text})"))
    }

    fn __str__(&self, py: Python<'_>) -> String {
        self.text(py)
    }

    fn __format__<'py>(&self, py: Python<'py>, spec: &str) -> PyResult<Bound<'py, PyAny>> {
        PyString::new(py, &self.text(py)).call_method1("__format__", (spec,))
    }

    fn __copy__(&self) -> Self {
        self.copy()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.copy()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (String,)) {
        (py.get_type::<Self>(), (self.text(py),))
    }

    /// parse_lenient(text: str, /) -> tuple[Hostlist, list[str]]
    ///
    /// Read a text that does not quite follow RFC 29.
    ///
    /// Valid texts are read as usual. In addition, blanks around items and within brackets and empty items are left out
    /// (`a, b,,c`), blanks between items count as commas (`a b`, one name per line), and a range whose end
    /// has more leading zeroes than its start gets them at both (`[1-003]`). A descending range is rejected.
    ///
    /// Args:
    ///     text: The text of a list.
    ///
    /// Returns:
    ///     The list, and the corrections, each with its byte: `left out blanks at byte 2`.
    ///
    /// Raises:
    ///     HostlistError: The text cannot be corrected.
    #[staticmethod]
    #[pyo3(signature = (text, /))]
    fn parse_lenient(text: &Bound<'_, PyString>) -> PyResult<(Self, Vec<String>)> {
        lenient::read(text).map(|(list, mended)| (Self::new(list), mended))
    }

    /// append(host: str, /) -> None
    ///
    /// Append one host.
    ///
    /// Args:
    ///     host: Its name; use `extend` for a text with brackets or commas.
    ///
    /// Raises:
    ///     HostlistError: It is not a name, or the list is full.
    #[pyo3(signature = (host, /))]
    fn append(&self, host: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = host.py();
        let host = name(host)?;
        self.change(py, |list| list.append(&host))
    }

    /// extend(hosts: str | Iterable[str], /) -> None
    ///
    /// Append hosts.
    ///
    /// Args:
    ///     hosts: A Hostlist, the text of one, or an iterable of names or texts.
    ///
    /// Raises:
    ///     HostlistError: A text is invalid, or the list would become too long. Nothing is appended then.
    #[pyo3(signature = (hosts, /))]
    fn extend(&self, hosts: &Bound<'_, PyAny>) -> PyResult<()> {
        let right = required(hosts)?;
        self.change(hosts.py(), |list| list.append(&right))
    }

    /// insert(index: int, host: str, /) -> None
    ///
    /// Insert one host before a position.
    ///
    /// Args:
    ///     index: Position, from 0; negative ones count from the end; positions outside are clamped.
    ///     host: Its name.
    ///
    /// Raises:
    ///     HostlistError: It is not a name, or the list is full.
    #[pyo3(signature = (index, host, /))]
    fn insert(&self, index: isize, host: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = host.py();
        let host = name(host)?;
        self.change(py, |list| {
            let index = clamp(index, list.len());
            list.splice(index..index, &host)
        })
    }

    /// pop(index: int | None = None, /) -> str
    ///
    /// Remove the host at a position and return it.
    ///
    /// Args:
    ///     index: Position, from 0; negative ones count from the end. The last one if left out.
    ///
    /// Raises:
    ///     IndexError: The position is outside the list.
    #[pyo3(signature = (index = None, /))]
    fn pop(&self, py: Python<'_>, index: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
        let len = self.len();
        let index = match index {
            Some(index) => position(index, len, "Hostlist")?,
            None => len.saturating_sub(1),
        };
        let host = self.change(py, |list| Ok(list.remove(index)))?;
        host.ok_or_else(|| PyIndexError::new_err("pop from an empty Hostlist"))
    }

    /// remove(host: str, /) -> None
    ///
    /// Remove the first occurrence of a host.
    ///
    /// Args:
    ///     host: A name in the list.
    ///
    /// Raises:
    ///     HostlistError: It is not in the list.
    #[pyo3(signature = (host, /))]
    fn remove(&self, py: Python<'_>, host: &str) -> PyResult<()> {
        let found = self.change(py, |list| {
            Ok(list.find(host).and_then(|index| list.remove(index)))
        })?;
        found.map(drop).ok_or_else(|| absent(host))
    }

    /// delete(hosts: str | Iterable[str], /) -> int
    ///
    /// Remove the first occurrence of each of some hosts; the first two of a host that is named twice, and so on.
    ///
    /// Args:
    ///     hosts: A Hostlist, the text of one, or an iterable of names or texts.
    ///
    /// Returns:
    ///     The number of removed hosts.
    #[pyo3(signature = (hosts, /))]
    fn delete(&self, hosts: &Bound<'_, PyAny>) -> PyResult<usize> {
        let hosts_to_go = required(hosts)?;
        self.change(hosts.py(), |list| Ok(list.delete(&hosts_to_go)))
    }

    /// clear() -> None
    ///
    /// Remove all hosts.
    fn clear(&self) {
        self.0.change(hostlist::Hostlist::clear);
    }

    /// copy() -> Hostlist
    ///
    /// Return an independent list of the same hosts. Costs nothing until one of the two changes.
    fn copy(&self) -> Self {
        Self::new(self.snapshot())
    }

    /// find(host: str, /) -> int | None
    ///
    /// Return the position of the first occurrence of a host, None without one.
    ///
    /// Args:
    ///     host: A name.
    #[pyo3(signature = (host, /))]
    fn find(&self, host: &str) -> Option<usize> {
        self.0.with(|list| list.find(host))
    }

    /// index(host: str, start: int = 0, stop: int = ..., /) -> int
    ///
    /// Return the position of the first occurrence of a host.
    ///
    /// Args:
    ///     host: A name.
    ///     start: First position to search; negative ones count from the end.
    ///     stop: Position behind the last one to search.
    ///
    /// Raises:
    ///     HostlistError: It is not there; a `ValueError`, as of any list.
    #[pyo3(signature = (host, start = 0, stop = isize::MAX, /))]
    fn index(&self, host: &str, start: isize, stop: isize) -> PyResult<usize> {
        let list = self.snapshot();
        let (start, stop) = (clamp(start, list.len()), clamp(stop, list.len()));
        let found = list.find_from(host, start).filter(|&found| found < stop);
        found.ok_or_else(|| absent(host))
    }

    /// nth(index: int, /) -> str
    ///
    /// Return the host at a position, as `hosts[index]` does.
    ///
    /// Args:
    ///     index: Position, from 0; negative ones count from the end.
    ///
    /// Raises:
    ///     IndexError: The position is outside the list.
    #[pyo3(signature = (index, /))]
    fn nth(&self, index: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let list = self.snapshot();
        Ok(list.get(position(index, list.len(), "Hostlist")?))
    }

    /// ranks(hosts: str | Iterable[str], /) -> IDset
    ///
    /// Return the positions of some hosts: their ranks, in a list of hosts by rank such as R's nodelist.
    ///
    /// Args:
    ///     hosts: A Hostlist, the text of one, or an iterable of names or texts. Of a host that is here several times
    ///         all positions count.
    ///
    /// Raises:
    ///     HostlistError: One of them is not in the list.
    #[pyo3(signature = (hosts, /))]
    fn ranks(&self, hosts: &Bound<'_, PyAny>) -> PyResult<PyIdSet> {
        let (list, hosts) = (self.snapshot(), required(hosts)?);
        if let Some(missing) = hosts.difference(&list).first() {
            return Err(absent(&missing));
        }
        let mut ranks = IdSet::new();
        for range in list.ranks(&hosts) {
            // No list is longer than the greatest id.
            if let (Ok(first), Ok(last)) = (range.start.try_into(), (range.end - 1).try_into()) {
                ranks.insert_range(first..=last);
            }
        }
        Ok(PyIdSet::new(ranks))
    }

    /// at(ranks: str | Iterable[int], /) -> Hostlist
    ///
    /// Return the hosts at some positions, in ascending order of these: the hosts of some ranks.
    ///
    /// Args:
    ///     ranks: An IDset, the text of one, or an iterable of positions from 0.
    ///
    /// Raises:
    ///     IdsetError: It is no set of positions.
    ///     IndexError: The position is outside the list.
    #[pyo3(signature = (ranks, /))]
    fn at(&self, ranks: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, list) = (ranks.py(), self.snapshot());
        let ranks = py.get_type::<PyIdSet>().call1((ranks,))?;
        let ranks = ranks.cast::<PyIdSet>()?.get().snapshot(py);
        let mut hosts = hostlist::Hostlist::new();
        for range in ranks.ranges() {
            let (start, end) = (*range.start() as usize, *range.end() as usize + 1);
            if end > list.len() {
                let absent = start.max(list.len());
                return Err(PyIndexError::new_err(format!(
                    "no position {absent} among {} hosts",
                    list.len()
                )));
            }
            // Part of a list, in its order: it is no longer than that.
            let appended = hosts.append(&list.slice(start..end));
            appended.map_err(raised)?;
        }
        Ok(Self::new(hosts))
    }

    /// count(host: str, /) -> int
    ///
    /// Return how often a host is in the list.
    ///
    /// Args:
    ///     host: A name.
    #[pyo3(signature = (host, /))]
    fn count(&self, host: &str) -> usize {
        self.snapshot().count(host)
    }

    /// reverse() -> None
    ///
    /// Reverse the list.
    ///
    /// Raises:
    ///     HostlistError: The list has more than 16,777,216 hosts: descending they do not fold.
    fn reverse(&self, py: Python<'_>) -> PyResult<()> {
        let list = self.snapshot();
        let reversed = Self::pick(py, &list, Stride::reversed(list.len())?)?;
        self.0.change(|list| *list = reversed);
        Ok(())
    }

    /// sort() -> None
    ///
    /// Sort in natural order: by prefix (runs of digits in it as numbers), number, its width, suffix.
    ///
    /// Raises:
    ///     HostlistError: Ranges that overlap would fall apart into more than 16,777,216 hosts.
    fn sort(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, hostlist::Hostlist::sort)
    }

    /// uniq() -> None
    ///
    /// Remove repeats: keep the first occurrence of each host, in order.
    fn uniq(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, |list| {
            list.uniq();
            Ok(())
        })
    }

    /// expand() -> list[str]
    ///
    /// Return the hosts as a list of str.
    fn expand<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = self.snapshot();
        strings(py, &mut list.iter())
    }

    /// split(parts: int, /) -> list[Hostlist]
    ///
    /// Split into parts in the list's order, whose lengths differ by at most one, longer parts first.
    ///
    /// Args:
    ///     parts: Number of parts; at most the number of hosts, so that no part is empty.
    ///
    /// Raises:
    ///     ValueError: The number is negative, or there would be more than 16777216 parts.
    #[pyo3(signature = (parts, /))]
    fn split(&self, parts: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        let list = self.snapshot();
        let parts = shared::count(parts, "parts")?.min(list.len() as u64);
        check_parts(parts)?;
        let parts = usize::try_from(parts)?;
        Ok(list.split(parts).into_iter().map(Self::new).collect())
    }

    /// encode() -> str
    ///
    /// Return the text (RFC 29): order and repeats kept, neighbours folded if the folded text denotes the same list.
    fn encode(&self, py: Python<'_>) -> String {
        self.text(py)
    }

    /// fold(*, nd: bool = False) -> str
    ///
    /// Return the text, as `encode` does, or one that folds every number that varies: `x[1000-1010]c[0-7]s[0-7]b0`.
    ///
    /// Args:
    ///     nd: Fold in as many dimensions as the names have numbers. Read again, the text gives the same hosts, each
    ///         as often, but not in the list's order: names of one form stand together, in natural order. RFC 29
    ///         knows one pair of brackets in a name; not every other reader knows more.
    #[pyo3(signature = (*, nd = false))]
    fn fold(&self, py: Python<'_>, nd: bool) -> String {
        if !nd {
            return self.text(py);
        }
        let list = self.snapshot();
        detach_if(py, list.len() > MIN_DETACHED_SIZE, || list.fold_nd())
    }
}

/// A position as list methods take it: negative ones count from the end; positions outside are clamped.
fn clamp(index: isize, len: usize) -> usize {
    if index < 0 {
        len.saturating_sub(index.unsigned_abs())
    } else {
        index.unsigned_abs().min(len)
    }
}

fn absent(host: &str) -> PyErr {
    HostlistError::new_err(format!("host {host:?} is not in the list"))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Hostlist>()
}
