//! Read-only methods, common to `IDset` and `FrozenIDset`.

/// The methods of a class that implements [`super::classes::Ids`].
macro_rules! reading_methods {
    ($class:ident) => {
        membership::slot!($class);

        #[pymethods]
        impl $class {
            fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
                Ok(usize::try_from(self.with(py, IdSet::len))?)
            }

            fn __bool__(&self, py: Python<'_>) -> bool {
                !self.with(py, IdSet::is_empty)
            }

            fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                iterator::forwards(py, self.snapshot(py))
            }

            fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                iterator::backwards(py, self.snapshot(py))
            }

            /// The id at a position, or a set of those at the positions of a slice.
            fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                let py = key.py();
                let Ok(slice) = key.cast::<PySlice>() else {
                    return Ok(self.nth(key)?.into_pyobject(py)?.into_any().unbind());
                };
                let part = sliced(py, &self.snapshot(py), slice)?;
                Ok(Py::new(py, Self::of(part))?.into_any())
            }

            fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
                compared(&self.snapshot(other.py()), other, op)
            }

            fn __or__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                operate::<Self>(self, other, |a, b| a.union(b))
            }

            fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                self.__or__(other)
            }

            fn __and__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                operate::<Self>(self, other, |a, b| a.intersection(b))
            }

            fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                self.__and__(other)
            }

            fn __xor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                operate::<Self>(self, other, |a, b| a.symmetric_difference(b))
            }

            fn __rxor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                self.__xor__(other)
            }

            fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                operate::<Self>(self, other, |a, b| a.difference(b))
            }

            fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                operate::<Self>(self, other, |a, b| b.difference(a))
            }

            fn __str__(&self, py: Python<'_>) -> PyResult<String> {
                text(py, &self.snapshot(py))
            }

            fn __format__<'py>(&self, py: Python<'py>, spec: &str) -> PyResult<Bound<'py, PyAny>> {
                let text = text(py, &self.snapshot(py))?;
                PyString::new(py, &text).call_method1("__format__", (spec,))
            }

            fn __reduce__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Bound<'py, PyType>, (String,))> {
                let text = text(py, &self.snapshot(py))?;
                Ok((py.get_type::<Self>(), (text,)))
            }

            fn __sizeof__(&self, py: Python<'_>) -> usize {
                size_of::<Self>() + self.with(py, IdSet::heap_bytes)
            }

            #[expect(unsafe_code, reason = "the buffer protocol is made of raw pointers")]
            unsafe fn __getbuffer__(
                slf: Bound<'_, Self>,
                view: *mut pyo3::ffi::Py_buffer,
                flags: std::ffi::c_int,
            ) -> PyResult<()> {
                let set = slf.get().snapshot(slf.py());
                // SAFETY: Python hands over a view to be filled in.
                unsafe { buffer::fill(slf.into_any(), &set, view, flags) }
            }

            #[expect(unsafe_code, reason = "the buffer protocol is made of raw pointers")]
            unsafe fn __releasebuffer__(&self, view: *mut pyo3::ffi::Py_buffer) {
                // SAFETY: Python releases a view that `__getbuffer__` has filled in, once.
                unsafe { buffer::release(view) }
            }

            /// Tells numpy's arrays to leave operators with a set to the set.
            #[classattr]
            fn __array_ufunc__() -> Option<u8> {
                None
            }

            /// union(*others: str | Iterable[int]) -> Self
            ///
            /// Return the ids of this set and of all others.
            ///
            /// Args:
            ///     *others: Each a set of ids, its text, or an iterable of ids.
            #[pyo3(signature = (*others))]
            fn union(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
                operate_all(self, others, IdSet::union)
            }

            /// intersection(*others: str | Iterable[int]) -> Self
            ///
            /// Return the ids of this set that are in all others.
            ///
            /// Args:
            ///     *others: Each a set of ids, its text, or an iterable of ids.
            #[pyo3(signature = (*others))]
            fn intersection(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
                operate_all(self, others, IdSet::intersection)
            }

            /// difference(*others: str | Iterable[int]) -> Self
            ///
            /// Return the ids of this set that are in none of the others.
            ///
            /// Args:
            ///     *others: Each a set of ids, its text, or an iterable of ids.
            #[pyo3(signature = (*others))]
            fn difference(&self, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
                operate_all(self, others, IdSet::difference)
            }

            /// symmetric_difference(other: str | Iterable[int], /) -> Self
            ///
            /// Return the ids that are in exactly one of the two sets.
            ///
            /// Args:
            ///     other: A set of ids, its text, or an iterable of ids.
            #[pyo3(signature = (other, /))]
            fn symmetric_difference(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
                let (left, right) = (self.snapshot(other.py()), required(other)?);
                let operation = |a: &IdSet, b: &IdSet| a.symmetric_difference(b);
                Ok(Self::of(apply(other.py(), operation, &left, &right)))
            }

            /// isdisjoint(other: str | Iterable[int], /) -> bool
            ///
            /// Return whether the two have no id in common.
            ///
            /// Args:
            ///     other: A set of ids, its text, or an iterable of ids.
            #[pyo3(signature = (other, /))]
            fn isdisjoint(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
                Ok(self.snapshot(other.py()).is_disjoint(&required(other)?))
            }

            /// has_intersection(other: str | Iterable[int], /) -> bool
            ///
            /// Return whether the two have an id in common.
            ///
            /// Args:
            ///     other: A set of ids, its text, or an iterable of ids.
            #[pyo3(signature = (other, /))]
            fn has_intersection(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
                Ok(self.snapshot(other.py()).intersects(&required(other)?))
            }

            /// issubset(other: str | Iterable[int], /) -> bool
            ///
            /// Return whether all ids are in the other.
            ///
            /// Args:
            ///     other: A set of ids, its text, or an iterable of ids.
            #[pyo3(signature = (other, /))]
            fn issubset(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
                Ok(self.snapshot(other.py()).is_subset(&required(other)?))
            }

            /// issuperset(other: str | Iterable[int], /) -> bool
            ///
            /// Return whether all ids of the other are in this set.
            ///
            /// Args:
            ///     other: A set of ids, its text, or an iterable of ids.
            #[pyo3(signature = (other, /))]
            fn issuperset(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
                Ok(self.snapshot(other.py()).is_superset(&required(other)?))
            }

            /// first() -> int | None
            ///
            /// Return the lowest id, None if the set is empty.
            fn first(&self, py: Python<'_>) -> Option<u32> {
                self.with(py, IdSet::first)
            }

            /// last() -> int | None
            ///
            /// Return the greatest id, None if the set is empty.
            fn last(&self, py: Python<'_>) -> Option<u32> {
                self.with(py, IdSet::last)
            }

            /// next(member: int, /) -> int | None
            ///
            /// Return the lowest id above another, None without one.
            ///
            /// Args:
            ///     member: An id, in the set or not.
            #[pyo3(signature = (member, /))]
            fn next(&self, member: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
                let id = valid_id(member)?;
                Ok(self.with(member.py(), |set| set.next(id)))
            }

            /// prev(member: int, /) -> int | None
            ///
            /// Return the greatest id below another, None without one.
            ///
            /// Args:
            ///     member: An id, in the set or not.
            #[pyo3(signature = (member, /))]
            fn prev(&self, member: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
                let id = valid_id(member)?;
                Ok(self.with(member.py(), |set| set.prev(id)))
            }

            /// nth(n: int, /) -> int
            ///
            /// Return the id at a position; `ids.nth(n)` is `ids[n]`.
            ///
            /// Args:
            ///     n: Position in ascending order, from 0; negative ones count from the end.
            ///
            /// Raises:
            ///     IndexError: The set has no id at that position.
            #[pyo3(signature = (n, /))]
            fn nth(&self, n: &Bound<'_, PyAny>) -> PyResult<u32> {
                let set = self.snapshot(n.py());
                let n = position(n, usize::try_from(set.len())?, "IDset")?;
                let id = set.nth(n as u64);
                id.ok_or_else(|| PyIndexError::new_err("IDset index out of range"))
            }

            /// index(member: int, /) -> int
            ///
            /// Return the position of an id in ascending order, from 0.
            ///
            /// Args:
            ///     member: An id of the set.
            ///
            /// Raises:
            ///     NotFoundError: It is not in the set.
            #[pyo3(signature = (member, /))]
            fn index(&self, member: &Bound<'_, PyAny>) -> PyResult<u64> {
                let id = valid_id(member)?;
                let index = self.with(member.py(), |set| set.find(id));
                index.ok_or_else(|| NotFoundError::new_err(format!("id {id} is not in the set")))
            }

            /// ranges() -> list[range]
            ///
            /// Return the ranges of the canonical text, ascending, as `range` objects: `1-3` is `range(1, 4)`.
            fn ranges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
                let set = self.snapshot(py);
                let ranges = set.ranges().map(|range| {
                    let (start, stop) = (i64::from(*range.start()), i64::from(*range.end()) + 1);
                    PyRange::new(py, isize::try_from(start)?, isize::try_from(stop)?)
                });
                PyList::new(py, ranges.collect::<PyResult<Vec<_>>>()?)
            }

            /// expand() -> list[int]
            ///
            /// Return the ids as a list of int, ascending.
            fn expand<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
                PyList::new(py, self.snapshot(py).iter())
            }

            /// split(parts: int, /) -> list[Self]
            ///
            /// Split into parts, lower ids first, whose sizes differ by at most one, larger parts first.
            ///
            /// Args:
            ///     parts: Number of parts; at most the number of ids, so that no part is empty.
            ///
            /// Raises:
            ///     ValueError: The number is negative, or there would be more than 16777216 parts.
            #[pyo3(signature = (parts, /))]
            fn split(&self, parts: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
                let (py, parts) = (parts.py(), shared::count(parts, "parts")?);
                let set = self.snapshot(py);
                check_parts(parts.min(set.len()))?;
                Ok(set.split(parts).into_iter().map(Self::of).collect())
            }

            /// encode(*, brackets: bool = False) -> str
            ///
            /// Return the canonical text (RFC 22): ascending, ranges folded.
            ///
            /// Args:
            ///     brackets: Whether to put the text in brackets; the empty set is `[]` then.
            #[pyo3(signature = (*, brackets = false))]
            fn encode(&self, py: Python<'_>, brackets: bool) -> PyResult<String> {
                let set = self.snapshot(py);
                if brackets {
                    bracketed_text(py, &set)
                } else {
                    text(py, &set)
                }
            }

            /// to_numpy() -> Any
            ///
            /// Return the ids as a numpy array of uint32, ascending. The caller owns it.
            ///
            /// Without numpy, `memoryview(ids)` gives the same numbers, read-only.
            ///
            /// Raises:
            ///     ImportError: numpy is not installed.
            fn to_numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                let view = pyo3::types::PyMemoryView::from(slf.as_any())?;
                slf.py().import("numpy")?.call_method1("array", (view,))
            }

            /// from_numpy(array: Buffer, /) -> Self
            ///
            /// Make a set of the numbers of an array: numpy's, or anything else with the buffer protocol.
            ///
            /// Args:
            ///     array: One dimension of integers, in any order.
            ///
            /// Raises:
            ///     IdsetError: A number is not from 0 to 4294967294.
            ///     TypeError: The elements are not integers, or there are more dimensions.
            #[staticmethod]
            #[pyo3(signature = (array, /))]
            fn from_numpy(array: &Bound<'_, PyAny>) -> PyResult<Self> {
                buffer::required(array).map(Self::of)
            }

            /// parse_lenient(text: str, /) -> tuple[Self, list[str]]
            ///
            /// Read a text that does not quite follow RFC 22, and report the corrections.
            ///
            /// Args:
            ///     text: Ids and ranges in any order, with blanks, leading zeroes, repeats or empty items.
            ///
            /// Returns:
            ///     The set, and the first hundred corrections, each with its byte.
            ///
            /// Raises:
            ///     IdsetError: The text cannot be corrected.
            #[staticmethod]
            #[pyo3(signature = (text, /))]
            fn parse_lenient(text: &Bound<'_, PyString>) -> PyResult<(Self, Vec<String>)> {
                let (set, mended) = operand::parse_lenient(text)?;
                Ok((Self::of(set), mended))
            }
        }
    };
}

pub(super) use reading_methods;
