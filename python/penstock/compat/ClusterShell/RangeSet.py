"""`ClusterShell.RangeSet` over `penstock.IDset`: sets of indexes in one or several dimensions.

Example:
    >>> from penstock.compat.ClusterShell.RangeSet import RangeSet, RangeSetND
    >>> indexes = RangeSet("1-9/2,08-11")
    >>> print(indexes, len(indexes), indexes[-1])
    1,3,5,7,9,08-11 9 11
    >>> print(RangeSet("1-9/2", autostep=3))
    1-9/2
    >>> print(RangeSetND([["0-3", "1-2"], ["4", "1-2"]]), end="")
    0-4; 1-2
    >>> RangeSet("3-1")
    Traceback (most recent call last):
    ...
    penstock.compat.ClusterShell.errors.RangeSetParseError: invalid values in range : "3-1"

An index is a decimal text: `1`, `01` and `001` are three indexes. Indexes are ordered by length
and then by value, negative ones before all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableSet
from itertools import chain, product
from math import prod
from operator import index as to_index
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, cast, overload

import penstock
from penstock.compat.ClusterShell.errors import (
    RangeSetException,
    RangeSetPaddingError,
    RangeSetParseError,
)
from penstock.compat.ClusterShell.sets import SetAlgebra
from penstock.errors import IdsetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import SupportsIndex

__all__ = [
    "AUTOSTEP_DISABLED",
    "RangeSet",
    "RangeSetException",
    "RangeSetND",
    "RangeSetPaddingError",
    "RangeSetParseError",
]

AUTOSTEP_DISABLED = 1e100
"""The `autostep` with which no text has steps."""

# The ids of an `IDset`; what is above, and what is negative, is in `RangeSet._odd`.
_MAX_ID = 4294967294
_MAX_INDEX = 10**100
_MAX_ODD = 10**9

_PART = re.compile(
    r"\s*(?P<start>[+-]?\s*[0-9_]+)\s*(?:-\s*(?P<stop>-?[0-9_]+)\s*)?(?:/\s*(?P<step>[+-]?[0-9_]+)\s*)?"
)
_INDEX = re.compile(r"-?[0-9]+")

Indexes: TypeAlias = "RangeSet | set[str] | frozenset[str]"


class _Run(NamedTuple):
    """Indexes from `start` to `stop` (included), each written with at least `width` digits."""

    start: int
    stop: int
    step: int
    width: int

    def text(self) -> str:
        first = f"{self.start:0{self.width}d}"
        if self.start == self.stop:
            return first
        last = f"{self.stop:0{self.width}d}"
        return f"{first}-{last}" if self.step == 1 else f"{first}-{last}/{self.step}"

    def indexes(self) -> Iterator[str]:
        numbers = range(self.start, self.stop + 1, self.step)
        return (
            (f"{number:0{self.width}d}" for number in numbers) if self.width else map(str, numbers)
        )


def _order(text: str) -> tuple[int, int]:
    """The sort key of an index: negative ones first, then by length, then by value."""
    return (0 if text[0] == "-" else len(text), int(text))


def _parse_part(part: str) -> _Run:
    """Reads one index or range.

    Raises:
        RangeSetParseError: `part` is neither.
    """
    match = _PART.fullmatch(part)
    try:
        if not match:
            raise ValueError
        start_text = match["start"].replace(" ", "")
        stop_text = start_text if match["stop"] is None else match["stop"]
        if stop_text[0] == "-" != start_text[0]:
            raise ValueError
        start, stop, step = int(start_text), int(stop_text), int(match["step"] or 1)
    except ValueError:
        fault = "cannot convert string to integer" if part.strip() else "empty range"
        raise RangeSetParseError(part if part.strip() else None, fault) from None
    if step != 1 and match["stop"] is None and start_text[0] != "-":
        raise RangeSetParseError(part, "invalid step usage")
    start_width = _padding(start_text)
    # Zero as the end is not padded, however many digits it has: ClusterShell reads `0-00` as 0.
    if max(start_width, _padding(stop_text) if stop else 0) > 0:
        start_width = len(start_text.lstrip("+-"))
        if start_width != len(stop_text.lstrip("+-")):
            raise RangeSetParseError(part, "padding length mismatch")
        if start_text[0] == "-":
            raise RangeSetParseError(part, "padding not supported in negative ranges")
    if stop > _MAX_INDEX or start > stop or step < 1:
        raise RangeSetParseError(part, "invalid values in range")
    return _Run(start, stop, step, start_width)


def _padding(text: str) -> int:
    """The length of a zero-padded index, 0 for one without padding."""
    digits = text.lstrip("+-")
    return len(digits) if len(digits) > 1 and digits[0] == "0" else 0


def _continues(text: str, width: int) -> bool:
    """Whether an index can follow in a range of indexes padded to `width`, 0 for none."""
    return len(text) == width if width else not _padding(text)


class RangeSet(SetAlgebra[object]):
    """A mutable ordered set of indexes.

    Args:
        pattern: A text such as `0-10/2,14,020-030`, or an iterable of indexes or texts.
        autostep: The least number of equally spaced indexes that a text shows with a step;
            None for none.

    Raises:
        RangeSetParseError: a text is no set of indexes.
        TypeError: `pattern` is of another type.
    """

    __slots__ = ("__dict__", "_autostep", "_ids", "_odd", "_padded")

    _ids: penstock.IDset
    """Indexes without padding."""
    _padded: dict[int, penstock.IDset]
    """By length, the zero-padded indexes; none of the sets is empty."""
    _odd: set[str]
    """Indexes that no IDset can hold: negative ones, and those above 32 bits."""
    _autostep: float

    def __init__(
        self, pattern: str | Iterable[object] | None = None, autostep: float | None = None
    ) -> None:
        self._padded = {}
        self._odd = set()
        self._autostep = AUTOSTEP_DISABLED if autostep is None else int(autostep)
        if isinstance(pattern, str):
            # Most texts are idsets; the first byte tells them from those in brackets.
            if pattern[:1].isdecimal():
                try:
                    self._ids = penstock.IDset(pattern)
                except IdsetError:
                    pass
                else:
                    return
            self._ids = penstock.IDset()
            self._add_text(pattern)
        elif isinstance(pattern, RangeSet):
            self._take(pattern)
        else:
            self._ids = penstock.IDset()
            if pattern is not None:
                self._add_all(pattern)

    @classmethod
    def _of(cls, ids: penstock.IDset, autostep: float) -> Self:
        """A set of `ids`, which it may keep."""
        made = cls.__new__(cls)
        made._ids = ids
        made._padded = {}
        made._odd = set()
        made._autostep = autostep
        return made

    @classmethod
    def fromlist(
        cls, rnglist: Iterable[str | Iterable[object]], autostep: float | None = None
    ) -> Self:
        """The union of texts, sets or iterables of indexes."""
        made = cls(autostep=autostep)
        made.updaten(rnglist)
        return made

    @classmethod
    def fromone(cls, index: str | int | slice, pad: int = 0, autostep: float | None = None) -> Self:
        """One index, or those of a slice with a stop.

        Args:
            index: Index, or slice.
            pad: Length up to which an index that is a number is padded.
            autostep: As of the class.

        Raises:
            ValueError: the slice has no stop, or the text is no index.
        """
        made = cls(autostep=autostep)
        if isinstance(index, slice):
            if index.stop is None:
                raise ValueError(f"Invalid range upper limit ({index.stop})")
            made.add_range(index.start or 0, index.stop, index.step or 1, pad)
        else:
            made.add(index, pad)
        return made

    # Building.

    def _add_text(self, text: str) -> None:
        for part in text.split(","):
            self._add_run(_parse_part(part))

    def _add_all(self, items: Iterable[object]) -> None:
        for item in items:
            if isinstance(item, int):
                self._add_run(_Run(item, item, 1, 0))
            else:
                self._add_text(str(item))

    def _add_run(self, run: _Run) -> None:
        start, stop, step, width = run
        if start < 0 or stop > _MAX_ID:
            self._add_odd(run)
            return
        if width:
            # Indexes with all digits have no zero in front.
            least = 10 ** (width - 1)
            if start < least:
                padded = range(start, min(stop, least - 1) + 1, step)
                self._padded.setdefault(width, penstock.IDset()).add(padded)
                start = padded[-1] + step
        if start <= stop:
            self._ids.add(start if start == stop else range(start, stop + 1, step))

    def _add_odd(self, run: _Run) -> None:
        if (run.stop - run.start) // run.step >= _MAX_ODD:
            raise AssertionError("range too large")
        for number in range(run.start, run.stop + 1, run.step):
            if 0 <= number <= _MAX_ID:
                self._add_run(_Run(number, number, 1, run.width))
            else:
                self._odd.add(f"{number:0{run.width}d}")

    def _take(self, other: RangeSet) -> None:
        """Becomes a copy of `other` but for its autostep."""
        self._ids = other._ids.copy()
        self._padded = {width: ids.copy() for width, ids in other._padded.items()}
        self._odd = other._odd.copy()

    def copy(self) -> Self:
        """A copy with the same autostep."""
        made = self.__class__.__new__(self.__class__)
        made._autostep = self._autostep
        made._ids = self._ids.copy()
        made._padded = (
            {width: ids.copy() for width, ids in self._padded.items()} if self._padded else {}
        )
        made._odd = self._odd.copy() if self._odd else set()
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[type[Self], tuple[str | None], dict[str, object]]:
        text = ",".join(run.text() for run in self._runs()) or None
        state: dict[str, object] = {
            "padding": self.padding,
            "_autostep": self._autostep,
            "_version": 4,
        }
        return self.__class__, (text,), state

    def __setstate__(self, dic: dict[str, Any]) -> None:
        """Restores the autostep, or a whole set that ClusterShell before 1.6 has pickled."""
        ranges = dic.get("_ranges")
        if ranges is not None:
            self.__init__()  # type: ignore[misc]
            for item in ranges:
                if len(item) == 4:
                    start, stop, step, width = item
                else:
                    cut, width = item
                    start, stop, step = (
                        cut if isinstance(cut, tuple) else (cut.start, cut.stop, cut.step)
                    )
                    stop -= 1
                self._add_run(_Run(start, stop, step, width))
        self._autostep = dic.get("_autostep", AUTOSTEP_DISABLED)

    # Properties.

    @property
    def padding(self) -> int | None:
        """The length of the longest zero-padded index, None if no index is padded.

        Setting it pads every index; None removes all padding.
        """
        longest = max((len(text) for text in self._odd if _padding(text)), default=0)
        return max(longest, *self._padded) if self._padded else longest or None

    @padding.setter
    def padding(self, value: int | None) -> None:
        width = value if value is not None and value > 1 else 0
        numbers = list(self.intiter())
        self.clear()
        for number in numbers:
            self._add_run(_Run(number, number, 1, width))

    def get_autostep(self) -> float | None:
        """The least number of indexes shown with a step, None for no steps."""
        return None if self._autostep >= AUTOSTEP_DISABLED else self._autostep

    def set_autostep(self, val: float | None) -> None:
        """Sets the least number of indexes shown with a step."""
        self._autostep = AUTOSTEP_DISABLED if val is None else int(val)

    autostep = property(get_autostep, set_autostep)

    def dim(self) -> int:
        """The number of dimensions: 1, or 0 if the set is empty."""
        return int(bool(self))

    def __len__(self) -> int:
        if self._padded or self._odd:
            return len(self._ids) + sum(map(len, self._padded.values())) + len(self._odd)
        return len(self._ids)

    def __bool__(self) -> bool:
        return bool(self._ids or self._padded or self._odd)

    # Order and text.

    def _blocks(self) -> Iterator[tuple[int, penstock.IDset]]:
        """The indexes of IDsets in order: each with the length of padded ones, or 0."""
        done = 0
        for width in sorted(self._padded):
            least = 10 ** (width - 1)
            if done <= _MAX_ID and (shorter := self._between(done, least)):
                yield 0, shorter
            yield width, self._padded[width]
            done = least
        if done <= _MAX_ID and (longest := self._between(done, _MAX_ID + 1)):
            yield 0, longest

    def _between(self, start: int, stop: int) -> penstock.IDset:
        if not start and stop > _MAX_ID:
            return self._ids
        return self._ids & penstock.IDset(range(start, min(stop, _MAX_ID + 1)))

    def _runs(self) -> list[_Run]:
        """The contiguous ranges, in order."""
        runs: list[_Run] = []
        if self._odd:
            for text in self._list():
                last = runs[-1] if runs else None
                if last and last.stop + 1 == int(text) and _continues(text, last.width):
                    runs[-1] = last._replace(stop=last.stop + 1)
                else:
                    runs.append(_Run(int(text), int(text), 1, _padding(text)))
            return runs
        if not self._padded:
            return [_Run(ids.start, ids.stop - 1, 1, 0) for ids in self._ids.ranges()]
        for width, ids in self._blocks():
            for part in ids.ranges():
                start, stop = part.start, part.stop - 1
                last = runs[-1] if runs else None
                if not width and last and last.width and last.stop + 1 == start:
                    # All digits are used: the same length without a zero in front.
                    full = min(stop, 10**last.width - 1)
                    if full >= start:
                        runs[-1] = last._replace(stop=full)
                        start = full + 1
                if start <= stop:
                    runs.append(_Run(start, stop, 1, width))
        return runs

    def _stepped_runs(self) -> list[_Run]:
        """The ranges, those with steps included, in order."""
        if self._autostep >= AUTOSTEP_DISABLED:
            return self._runs()
        runs: list[_Run] = []
        group: list[int] = []
        step = width = 0
        for text in self._list():
            number = int(text)
            if group:
                gap = number - group[-1] if _continues(text, width) else 0
                if gap and (gap == step or (not step and len(group) == 1)):
                    step = gap
                    group.append(number)
                    continue
                kept = self._close_group(runs, group, step, width, keep=bool(gap))
                if kept:
                    group = [*kept, number]
                    step = gap
                    continue
                # An index beside a range with a step begins a range without.
                step = 1 if gap == 1 and len(group) > 1 else 0
            group = [number]
            width = _padding(text)
        if group:
            self._close_group(runs, group, step, width, keep=False)
        return runs

    def _close_group(
        self, runs: list[_Run], group: list[int], step: int, width: int, *, keep: bool
    ) -> list[int]:
        """Appends the runs of equally spaced numbers.

        Returns:
            With `keep`, the last number of too few for a step: it may begin another group.
        """
        if len(group) == 1 or step == 1 or len(group) >= self._autostep:
            runs.append(_Run(group[0], group[-1], max(step, 1), width))
            return []
        kept = group[-1:] if keep else []
        runs.extend(_Run(number, number, 1, width) for number in group[: len(group) - len(kept)])
        return kept

    def _list(self) -> list[str]:
        """All indexes in order."""
        if self._odd:
            texts = set(chain.from_iterable(run.indexes() for run in self._plain()._runs()))
            return sorted(texts | self._odd, key=_order)
        if self._padded:
            return list(chain.from_iterable(run.indexes() for run in self._runs()))
        return list(map(str, self._ids.expand()))

    def _plain(self) -> RangeSet:
        """A view without the odd indexes."""
        made = RangeSet._of(self._ids, AUTOSTEP_DISABLED)
        made._padded = self._padded
        return made

    def __str__(self) -> str:
        if self._padded or self._odd or self._autostep < AUTOSTEP_DISABLED:
            return ",".join([run.text() for run in self._stepped_runs()])
        return str(self._ids)

    __repr__ = __str__

    def __iter__(self) -> Iterator[str]:
        return iter(self._list())

    def striter(self) -> Iterator[str]:
        """The indexes as texts, in order."""
        return iter(self._list())

    def intiter(self) -> Iterator[int]:
        """The indexes as numbers, in order; padded ones may repeat a number."""
        if self._padded or self._odd:
            return map(int, self._list())
        return iter(self._ids)

    def slices(self) -> Iterator[slice]:
        """The ranges as slices of numbers, in order."""
        for run in self._stepped_runs():
            yield slice(run.start, run.stop + 1, run.step)

    def contiguous(self) -> Iterator[Self]:
        """The ranges without steps, a set each."""
        for run in self._runs():
            made = self.__class__(autostep=self.autostep)
            made._add_run(run)
            yield made

    def split(self, nbr: int) -> Iterator[Self]:
        """At most `nbr` parts of nearly equal size, none of them empty."""
        assert nbr > 0
        size, larger = divmod(len(self), nbr)
        start = 0
        for number in range(min(nbr, len(self))):
            stop = start + size + (number < larger)
            yield self[start:stop]
            start = stop

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice) -> str | Self:
        if isinstance(index, slice):
            if not self._padded and not self._odd:
                return self._of(self._ids[index], self._autostep)
            made = self.__class__(autostep=self.autostep)
            made._add_all(self._list()[index])
            return made
        try:
            position = to_index(index)
        except TypeError:
            raise TypeError("RangeSet indices must be integers") from None
        try:
            if not self._padded and not self._odd:
                return str(self._ids[position])
            return self._list()[position]
        except IndexError:
            raise IndexError("RangeSet index out of range") from None

    def index(self, elem: object, start: int = 0, stop: int | None = None) -> int:
        """The position of an index.

        Raises:
            ValueError: it is not in the set, or not between the positions `start` and `stop`.
        """
        if isinstance(elem, (str, int)) and elem in self:
            text = str(elem)
            if self._padded or self._odd:
                found = self._list().index(text)
            else:
                found = self._ids.index(int(text))
            if found in range(*slice(start, stop).indices(len(self))):
                return found
        raise ValueError(f"{elem} is not in RangeSet")

    # Membership and comparison.

    def _has(self, text: str) -> bool:
        if not _INDEX.fullmatch(text):
            return False
        number, width = int(text), _padding(text)
        if not 0 <= number <= _MAX_ID or text[0] == "-":
            return text in self._odd
        if width:
            return width in self._padded and number in self._padded[width]
        return number in self._ids

    def __contains__(self, element: object) -> bool:
        if isinstance(element, str):
            return self._has(element)
        if isinstance(element, int):
            return element in self._ids if 0 <= element <= _MAX_ID else str(element) in self._odd
        if isinstance(element, (RangeSet, set, frozenset)):
            return self.issuperset(element)
        return False

    def _comparable(self, other: object) -> RangeSet | None:
        """`other` as a set of indexes, None if it is no set or has something else in it."""
        if isinstance(other, RangeSet):
            return other
        if isinstance(other, (set, frozenset)):
            texts = RangeSet()
            for item in other:
                if not isinstance(item, str) or not _INDEX.fullmatch(item):
                    return None
                texts.add(item)
            return texts
        return None

    @staticmethod
    def _check_set(other: object) -> None:
        if not isinstance(other, (RangeSet, set, frozenset)):
            raise TypeError("Binary operation only permitted between sets")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RangeSet):
            return (
                self._ids == other._ids
                and self._padded == other._padded
                and self._odd == other._odd
            )
        if isinstance(other, (set, frozenset)):
            same = self._comparable(other)
            return same is not None and self == same
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def issubset(self, other: object) -> bool:
        """Whether each index is in `other`, a set."""
        self._check_set(other)
        if not isinstance(other, RangeSet):
            return all(text in cast("set[str]", other) for text in self._list())
        return (
            self._ids <= other._ids
            and all(
                width in other._padded and ids <= other._padded[width]
                for width, ids in self._padded.items()
            )
            and self._odd <= other._odd
        )

    def issuperset(self, other: object) -> bool:
        """Whether each index of `other`, a set, is in this one."""
        self._check_set(other)
        if not isinstance(other, RangeSet):
            return all(
                isinstance(text, str) and self._has(text) for text in cast("set[str]", other)
            )
        return other.issubset(self)

    def isdisjoint(self, other: Iterable[object]) -> bool:
        """Whether no index is in `other`."""
        return not self.intersection(other)

    def __le__(self, other: object) -> bool:
        return self.issubset(other)

    def __ge__(self, other: object) -> bool:
        return self.issuperset(other)

    def __lt__(self, other: object) -> bool:
        self._check_set(other)
        return len(self) < len(cast("RangeSet", other)) and self.issubset(other)

    def __gt__(self, other: object) -> bool:
        self._check_set(other)
        return len(self) > len(cast("RangeSet", other)) and self.issuperset(other)

    # Combination.

    def _operand(self, other: object) -> RangeSet:
        return other if isinstance(other, RangeSet) else RangeSet(cast("Iterable[object]", other))

    def update(self, iterable: object) -> None:
        """Adds the indexes of a set, an iterable or a text."""
        other = self._operand(iterable)
        self._ids |= other._ids
        for width, ids in other._padded.items():
            if width in self._padded:
                self._padded[width] |= ids
            else:
                self._padded[width] = ids.copy()
        if other._odd:
            self._odd |= other._odd

    union_update = update

    def updaten(self, rangesets: Iterable[object]) -> None:
        """Adds the indexes of several sets, iterables or texts."""
        for rangeset in rangesets:
            self.update(rangeset)

    def intersection_update(self, other: object) -> None:
        """Keeps only the indexes that are also in `other`."""
        other = self._operand(other)
        self._ids &= other._ids
        if self._padded:
            kept = {
                width: ids & other._padded[width]
                for width, ids in self._padded.items()
                if width in other._padded
            }
            self._padded = {width: ids for width, ids in kept.items() if ids}
        if self._odd:
            self._odd &= other._odd

    def difference_update(self, other: object, strict: bool = False) -> None:
        """Removes the indexes of `other`.

        Raises:
            KeyError: with `strict`, one of them is not in the set, which stays as it is.
        """
        other = self._operand(other)
        if strict and not other.issubset(self):
            raise KeyError(other.difference(self)[0])
        if other is self:
            self.clear()
            return
        self._ids -= other._ids
        for width, ids in other._padded.items():
            if width in self._padded:
                self._padded[width] -= ids
                if not self._padded[width]:
                    del self._padded[width]
        if self._odd:
            self._odd -= other._odd

    def symmetric_difference_update(self, other: object) -> None:
        """Keeps the indexes that are in exactly one of this set and `other`."""
        other = self._operand(other)
        if other is self:
            self.clear()
            return
        self._ids ^= other._ids
        for width, ids in other._padded.items():
            both = self._padded.get(width, penstock.IDset()) ^ ids
            if both:
                self._padded[width] = both
            else:
                self._padded.pop(width, None)
        self._odd ^= other._odd

    def _is_set(self, other: object) -> bool:
        return isinstance(other, (RangeSet, set, frozenset))

    # With a set on the left the result is one of its type.

    def __ror__(self, other: object) -> Any:
        return other | set(self) if isinstance(other, (set, frozenset)) else NotImplemented

    def __rand__(self, other: object) -> Any:
        return other & set(self) if isinstance(other, (set, frozenset)) else NotImplemented

    def __rsub__(self, other: object) -> Any:
        return other - set(self) if isinstance(other, (set, frozenset)) else NotImplemented

    def __rxor__(self, other: object) -> Any:
        return other ^ set(self) if isinstance(other, (set, frozenset)) else NotImplemented

    # Single indexes.

    def add(self, element: str | int, pad: int = 0) -> None:
        """Adds an index; a number is padded to the length `pad`.

        Raises:
            ValueError: a text is no index.
        """
        if isinstance(element, str):
            if not _INDEX.fullmatch(element):
                raise ValueError(f"invalid index {element!r}: expected a decimal number")
            self._add_run(_Run(int(element), int(element), 1, _padding(element)))
        else:
            number = int(element)
            self._add_run(_Run(number, number, 1, pad))

    def pick(self, count: int) -> Self:
        """At most `count` indexes at random."""
        import random

        length = len(self)
        made = self.__class__(autostep=self.autostep)
        for position in random.sample(range(length), min(count, length)):
            made.add(self[position])
        return made

    def add_range(self, start: int, stop: int, step: int = 1, pad: int = 0) -> None:
        """Adds the numbers from `start` up to `stop` (excluded), padded to the length `pad`."""
        assert start < stop, "please provide ordered node index ranges"
        assert step > 0
        last = range(start, stop, step)[-1]
        if pad and last >= 10**pad:
            # Longer numbers have no padding.
            for number in range(start, stop, step):
                self._add_run(_Run(number, number, 1, pad if number < 10**pad else 0))
        else:
            self._add_run(_Run(start, last, step, pad))

    def remove(self, element: str | int, pad: int = 0) -> None:
        """Removes an index.

        Raises:
            KeyError: it is not in the set.
        """
        text = element if isinstance(element, str) else f"{int(element):0{pad}d}"
        if not self._has(text):
            raise KeyError(text)
        self._remove(text)

    def discard(self, element: str | int, pad: int = 0) -> None:
        """Removes an index if it is in the set."""
        text = element if isinstance(element, str) else f"{int(element):0{pad}d}"
        if self._has(text):
            self._remove(text)

    def _remove(self, text: str) -> None:
        number, width = int(text), _padding(text)
        if text in self._odd:
            self._odd.remove(text)
        elif width:
            self._padded[width].remove(number)
            if not self._padded[width]:
                del self._padded[width]
        else:
            self._ids.remove(number)

    def pop(self) -> str:
        """Removes and returns the first index.

        Raises:
            KeyError: the set is empty.
        """
        if not self:
            raise KeyError("pop from an empty set")
        first = self[0]
        self._remove(first)
        return first

    def clear(self) -> None:
        """Removes all indexes."""
        self._ids = penstock.IDset()
        self._padded = {}
        self._odd = set()


MutableSet.register(RangeSet)


Vector: TypeAlias = "Sequence[RangeSet | str | int]"


class RangeSetND(SetAlgebra["RangeSetND | Iterable[Vector]"]):
    """A mutable set of vectors of indexes.

    Args:
        args: Vectors, each with an index, a text or a `RangeSet` for each dimension: it stands for
            the product of them.
        pads: Not used: an index has its padding.
        autostep: As of `RangeSet`, for each dimension.
        copy_rangeset: Copy the `RangeSet`s; otherwise the set keeps them.

    Raises:
        IndexError: vectors have different numbers of dimensions, also those of two operands.
    """

    def __init__(
        self,
        args: Iterable[Vector] | RangeSetND | None = None,
        pads: object = None,
        autostep: float | None = None,
        copy_rangeset: bool = True,
    ) -> None:
        self._autostep = AUTOSTEP_DISABLED if autostep is None else int(autostep)
        self._veclist: list[list[RangeSet]] = []
        self._veclist = self._operand(args or (), copy=copy_rangeset)
        self._dirty = True
        if autostep is not None:
            self.set_autostep(autostep)

    def copy(self) -> Self:
        """A copy with the same autostep."""
        made = self.__class__.__new__(self.__class__)
        made._autostep = self._autostep
        made._veclist = [[rangeset.copy() for rangeset in vector] for vector in self._veclist]
        made._dirty = self._dirty
        return made

    __copy__ = copy

    @property
    def veclist(self) -> list[list[RangeSet]]:
        """The folded vectors."""
        self.fold()
        return self._veclist

    def vectors(self) -> Iterator[list[RangeSet]]:
        """The folded vectors, a list with a `RangeSet` for each dimension."""
        return iter(self.veclist)

    def fold(self) -> None:
        """Reduces the vectors to few that do not overlap, the largest first."""
        if self._dirty:
            if len(self._veclist) > 1:
                self._veclist = _fold(self._veclist, self._autostep)
            self._dirty = False

    def dim(self) -> int:
        """The number of dimensions, 0 if the set is empty."""
        return len(self._veclist[0]) if self._veclist else 0

    def pads(self) -> tuple[int, ...]:
        """For each dimension the length of the longest zero-padded index, or 0."""
        return tuple(
            max((vector[axis].padding or 0 for vector in self._veclist), default=0)
            for axis in range(self.dim())
        )

    def get_autostep(self) -> float | None:
        """The least number of indexes shown with a step, None for no steps."""
        return None if self._autostep >= AUTOSTEP_DISABLED else self._autostep

    def set_autostep(self, val: float | None) -> None:
        """Sets the least number of indexes shown with a step, in each dimension."""
        self._autostep = AUTOSTEP_DISABLED if val is None else int(val)
        for vector in self._veclist:
            for rangeset in vector:
                rangeset.autostep = val

    autostep = property(get_autostep, set_autostep)

    def __setstate__(self, dic: dict[str, Any]) -> None:
        """Restores what this module or ClusterShell since 1.7 has pickled."""
        self._autostep = dic.get("_autostep", AUTOSTEP_DISABLED)
        self._veclist = dic["_veclist"]
        self._dirty = True

    def __bool__(self) -> bool:
        return bool(self._veclist)

    def __len__(self) -> int:
        total = 0
        for vector in self.veclist:
            size = 1
            for rangeset in vector:
                size *= len(rangeset)
            total += size
        return total

    def __str__(self) -> str:
        return "".join("; ".join(map(str, vector)) + "\n" for vector in self.veclist)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for vector in self.veclist:
            yield from product(*[rangeset._list() for rangeset in vector])

    def iter_padding(self) -> Iterator[tuple[tuple[str, ...], list[int | None]]]:
        """For each vector its indexes, and the length of each that is padded, or None."""
        for vector in self:
            yield vector, [_padding(text) or None for text in vector]

    def _vector_of(self, element: object) -> tuple[str, ...] | None:
        if isinstance(element, (str, int)):
            return (str(element),)
        try:
            return tuple(map(str, cast("Iterable[object]", element)))
        except TypeError:
            return None

    def _offsets(self) -> Iterator[tuple[int, list[RangeSet], int]]:
        """For each vector the position of its first element, and the number of elements."""
        start = 0
        for vector in self.veclist:
            size = 1
            for rangeset in vector:
                size *= len(rangeset)
            yield start, vector, size
            start += size

    @overload
    def __getitem__(self, index: int) -> tuple[str, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> tuple[str, ...] | Self:
        if isinstance(index, slice):
            picked = self._pick(range(*index.indices(len(self))))
            return self.__class__([list(element) for element in picked], autostep=self.autostep)
        try:
            position = to_index(index)
        except TypeError:
            raise TypeError(f"{self.__class__.__name__} indices must be integers") from None
        length = len(self)
        if not -length <= position < length:
            raise IndexError(f"{position} out of range")
        return next(self._pick(range(position % length, position % length + 1)))

    def _pick(self, positions: range) -> Iterator[tuple[str, ...]]:
        """The elements at positions, in order of the set."""
        if positions.step < 0:
            positions = positions[::-1]
        for start, vector, size in self._offsets():
            begin = max(0, -((start - positions.start) // -positions.step))
            inside = positions[begin:]
            if not inside or inside[0] >= start + size:
                continue
            lists = [rangeset._list() for rangeset in vector]
            for position in inside:
                rest = position - start
                if rest >= size:
                    break
                element = []
                for texts in reversed(lists):
                    rest, at = divmod(rest, len(texts))
                    element.append(texts[at])
                yield tuple(reversed(element))

    def index(self, elem: object, start: int = 0, stop: int | None = None) -> int:
        """The position of a vector.

        Raises:
            ValueError: it is not in the set, or not between the positions `start` and `stop`.
            TypeError: it is no vector.
        """
        if isinstance(elem, (str, int)):
            raise TypeError(f"a vector of indexes is required, not {type(elem).__name__}")
        element = tuple(map(str, cast("Iterable[object]", elem)))
        for first, vector, _ in self._offsets():
            if len(element) == len(vector) and all(map(RangeSet._has, vector, element)):
                found = 0
                for rangeset, text in zip(vector, element, strict=True):
                    found = found * len(rangeset) + rangeset.index(text)
                found += first
                if found in range(*slice(start, stop).indices(len(self))):
                    return found
        raise ValueError(f"{elem} is not in RangeSetND")

    def contiguous(self) -> Iterator[Self]:
        """The parts whose ranges are contiguous in each dimension."""
        for vector in self.veclist:
            for part in product(*[list(rangeset.contiguous()) for rangeset in vector]):
                yield self.__class__([part], autostep=self.autostep, copy_rangeset=False)

    # Comparison.

    def __contains__(self, element: object) -> bool:
        if isinstance(element, RangeSetND):
            return self.issuperset(element)
        vector = self._vector_of(element)
        return vector is not None and any(
            len(vector) == len(box) and all(map(RangeSet._has, box, vector))
            for box in self._veclist
        )

    @staticmethod
    def _check(other: object) -> RangeSetND:
        if not isinstance(other, RangeSetND):
            raise TypeError("Binary operation only permitted between RangeSetND")
        return other

    def issubset(self, other: object) -> bool:
        """Whether each vector is in `other`, a `RangeSetND`."""
        return self._check(other).issuperset(self)

    def issuperset(self, other: object) -> bool:
        """Whether each vector of `other`, a `RangeSetND`, is in this set."""
        other = self._check(other)
        if not other:
            return True
        if not self or self.dim() != other.dim():
            return False
        return not _subtract(other._veclist, self._veclist)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSetND):
            return NotImplemented
        return len(self) == len(other) and self.issubset(other)

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: object) -> bool:
        return self.issubset(other)

    def __ge__(self, other: object) -> bool:
        return self.issuperset(other)

    def __lt__(self, other: object) -> bool:
        return self.issubset(other) and self != other

    def __gt__(self, other: object) -> bool:
        return self.issuperset(other) and self != other

    # Combination.

    def _operand(
        self, source: RangeSetND | Iterable[Vector], *, copy: bool = True
    ) -> list[list[RangeSet]]:
        """The vectors of the other operand, which have as many dimensions as this set."""
        vectors = _vectors(source, copy=copy)
        dimensions = self.dim() or (len(vectors[0]) if vectors else 0)
        for vector in vectors:
            if len(vector) != dimensions:
                raise IndexError(
                    f"expected a vector of {dimensions} dimensions, found one of {len(vector)}"
                )
        return vectors

    def _set_vectors(self, veclist: list[list[RangeSet]]) -> None:
        self._veclist = veclist
        self._dirty = True

    def update(self, other: RangeSetND | Iterable[Vector]) -> None:
        """Adds the vectors of another set."""
        vectors = self._operand(other)
        for vector in vectors:
            for rangeset in vector:
                rangeset._autostep = self._autostep
        # In place: a set of many names is made by as many updates.
        self._veclist += vectors
        self._dirty = True

    union_update = update

    def difference_update(self, other: RangeSetND | Iterable[Vector], strict: bool = False) -> None:
        """Removes the vectors of another set.

        Raises:
            KeyError: with `strict`, one of them is not in this set, which stays as it is.
        """
        vectors = self._operand(other, copy=False)
        if strict and (missing := _subtract(vectors, self._veclist)):
            raise KeyError(tuple(str(rangeset[0]) for rangeset in missing[0]))
        self._set_vectors(_subtract(self._veclist, vectors))

    def intersection_update(self, other: RangeSetND | Iterable[Vector]) -> None:
        """Keeps only the vectors that are also in another set."""
        if other is not self:
            self._set_vectors(_intersect(self._veclist, self._operand(other, copy=False)))

    def symmetric_difference_update(self, other: RangeSetND | Iterable[Vector]) -> None:
        """Keeps the vectors that are in exactly one of the sets."""
        vectors = self._operand(other)
        only = _subtract(vectors, self._veclist)
        self._set_vectors(_subtract(self._veclist, vectors) + only)

    def _is_set(self, other: object) -> bool:
        return isinstance(other, RangeSetND)

    def _is_set_in_place(self, other: object) -> bool:
        return self._is_set(self._check(other))


def _vectors(source: RangeSetND | Iterable[Vector], *, copy: bool = True) -> list[list[RangeSet]]:
    """Vectors as lists of `RangeSet`s, without those that are empty."""
    vectors = []
    for vector in source._veclist if isinstance(source, RangeSetND) else source:
        made = []
        for item in vector:
            if isinstance(item, RangeSet):
                made.append(item.copy() if copy else item)
            else:
                made.append(RangeSet(str(item)))
        if all(made):
            vectors.append(made)
    return vectors


# Vectors are always written out where these are few, whatever the size of each.
FEW_PREFIXES = 4096
# Pairs of vectors that are combined one by one. A pair takes as long as this number of starts, for
# each difference leaves several vectors.
FEW_PAIRS = 64
PREFIXES_PER_PAIR = 64
# Boxes of which each is compared with each.
FEW_BOXES = 200


def _prefixes(veclist: list[list[RangeSet]]) -> int:
    """The number of starts of vectors, without the last axis."""
    return sum(prod(map(len, vector[:-1])) for vector in veclist)


def _is_combined_by_prefix(left: list[list[RangeSet]], right: list[list[RangeSet]]) -> bool:
    """Whether writing out both sets takes less time than combining each pair of vectors."""
    pairs = len(left) * len(right)
    prefixes = _prefixes(left) + _prefixes(right)
    return pairs > FEW_PAIRS and prefixes <= max(FEW_PREFIXES, PREFIXES_PER_PAIR * pairs)


def _vector(prefix: tuple[str, ...], last: RangeSet) -> list[RangeSet]:
    return [*map(RangeSet, prefix), last]


def _intersect(left: list[list[RangeSet]], right: list[list[RangeSet]]) -> list[list[RangeSet]]:
    """The intersection of each vector of `left` with each of `right`."""
    if _is_combined_by_prefix(left, right):
        others = dict(_by_prefix(right))
        common = (
            (prefix, last & others[prefix]) for prefix, last in _by_prefix(left) if prefix in others
        )
        return [_vector(prefix, both) for prefix, both in common if both]
    boxes = []
    for one in left:
        for other in right:
            both = [a & b for a, b in zip(one, other, strict=True)]
            if all(both):
                boxes.append(both)
    return boxes


def _subtract(left: list[list[RangeSet]], right: list[list[RangeSet]]) -> list[list[RangeSet]]:
    """The vectors of `left` without those of `right`."""
    if _is_combined_by_prefix(left, right):
        others = dict(_by_prefix(right))
        rests = (
            (prefix, last - others[prefix] if prefix in others else last.copy())
            for prefix, last in _by_prefix(left)
        )
        return [_vector(prefix, rest) for prefix, rest in rests if rest]
    boxes = left
    for other in right:
        rest: list[list[RangeSet]] = []
        for box in boxes:
            common = [a & b for a, b in zip(box, other, strict=True)]
            if not all(common):
                rest.append(box)
                continue
            # The part that lies outside on one axis, and inside on all axes before.
            for axis, inside in enumerate(common):
                outside = box[axis] - inside
                if outside:
                    rest.append([*common[:axis], outside, *box[axis + 1 :]])
        boxes = rest
    return boxes


def _fold(veclist: list[list[RangeSet]], autostep: float) -> list[list[RangeSet]]:
    """Few vectors, none overlapping, that stand for the same set: the largest first."""
    if len(veclist[0]) == 1:
        whole = veclist[0][0].copy()
        whole.updaten(vector[0] for vector in veclist[1:])
        return [[whole]]
    if _prefixes(veclist) <= max(FEW_PREFIXES, len(veclist) ** 2):
        boxes = _merge_neighbours(_by_prefix(veclist))
    else:
        boxes = _disjoint(veclist)
    boxes = _merge_boxes(boxes)
    for box in boxes:
        for rangeset in box:
            rangeset._autostep = autostep
    return boxes


def _disjoint(veclist: list[list[RangeSet]]) -> list[list[RangeSet]]:
    """Vectors that stand for the same set, none overlapping. None is written out."""
    boxes: list[list[RangeSet]] = []
    for vector in veclist:
        parts = [[rangeset.copy() for rangeset in box] for box in _subtract([vector], boxes)]
        boxes += parts
    return boxes


def _by_prefix(veclist: list[list[RangeSet]]) -> list[tuple[tuple[str, ...], RangeSet]]:
    """For each start of a vector, in order of the texts, the indexes of the last axis."""
    lasts: dict[tuple[str, ...], RangeSet] = {}
    for vector in veclist:
        last = vector[-1]
        for prefix in product(*[rangeset._list() for rangeset in vector[:-1]]):
            other = lasts.setdefault(prefix, last)
            if other is not last:
                lasts[prefix] = other | last
    return sorted(lasts.items(), key=lambda item: item[0])


def _merge_neighbours(
    items: list[tuple[tuple[str, ...], RangeSet]],
) -> list[list[RangeSet]]:
    """Boxes of vectors that follow each other in order of the texts and differ on one axis."""
    boxes: list[list[RangeSet]] = []
    # The box to which the next vector may be added: it has one index on the last axis.
    prefix: tuple[str, ...] = ()
    single: str | None = None
    axis: int | None = None
    values: list[str] = []

    def close() -> None:
        nonlocal single
        if single is not None:
            box = [RangeSet(text) for text in (*prefix, single)]
            if axis is not None:
                box[axis] = RangeSet(values)
            boxes.append(box)
        single = None

    for start, last in items:
        first = last[0] if len(last) == 1 else min(last._list())
        rest: RangeSet | None = last
        if single == first:
            different = [at for at, text in enumerate(prefix) if text != start[at]]
            if len(different) == 1 and axis in (None, different[0]):
                if axis is None:
                    axis = different[0]
                    values = [prefix[axis]]
                values.append(start[axis])
                rest = last - RangeSet(first) if len(last) > 1 else None
        if rest is None:
            continue
        close()
        if len(rest) == 1:
            prefix, single, axis = start, rest[0], None
        else:
            boxes.append([*(RangeSet(text) for text in start), rest.copy()])
    close()
    return boxes


def _merge_many_boxes(boxes: list[list[RangeSet]]) -> list[list[RangeSet]]:
    """Merges all boxes that differ on one axis, the last axis first, until there are no more."""
    axes = range(len(boxes[0]) - 1, -1, -1)
    count = 0
    while count != len(boxes):
        count = len(boxes)
        for axis in axes:
            groups: dict[tuple[str, ...], list[list[RangeSet]]] = {}
            for box in boxes:
                others = (str(rangeset) for at, rangeset in enumerate(box) if at != axis)
                groups.setdefault(tuple(others), []).append(box)
            for group in groups.values():
                group[0][axis].updaten(box[axis] for box in group[1:])
            boxes = [group[0] for group in groups.values()]
    return boxes


def _merge_boxes(boxes: list[list[RangeSet]]) -> list[list[RangeSet]]:
    """Merges boxes that differ on one axis, neighbours first, until there are no more."""
    if len(boxes) > FEW_BOXES:
        return sorted(_merge_many_boxes(boxes), key=_rank)
    texts = [tuple(map(str, box)) for box in boxes]

    def merge(at: int, other: int) -> bool:
        mine, its = texts[at], texts[other]
        different = [axis for axis, text in enumerate(mine) if text != its[axis]]
        if len(different) != 1:
            return False
        axis = different[0]
        boxes[at][axis].update(boxes[other][axis])
        texts[at] = (*mine[:axis], str(boxes[at][axis]), *mine[axis + 1 :])
        del boxes[other], texts[other]
        return True

    merged = True
    while merged:
        merged = False
        at = 0
        while at + 1 < len(boxes):
            if merge(at, at + 1):
                merged = True
            else:
                at += 1
    merged = True
    while merged:
        merged = False
        at = 0
        while at < len(boxes):
            other = at + 1
            while other < len(boxes):
                if merge(at, other):
                    merged = True
                else:
                    other += 1
            at += 1
    return sorted(boxes, key=_rank)


def _rank(box: list[RangeSet]) -> tuple[object, ...]:
    """The sort key of a box: the largest first, then the longest on the first axes."""
    lengths = [len(rangeset) for rangeset in box]
    return (
        -prod(lengths),
        *[-length for length in lengths],
        *[rangeset._list() for rangeset in box],
    )
