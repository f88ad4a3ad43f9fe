"""`flux.idset` over `penstock.IDset`: sets of ids and their text form, RFC 22.

Example:
    >>> from penstock.compat.flux.idset import IDSET_FLAG_BRACKETS, IDSET_FLAG_RANGE, IDset
    >>> ids = IDset("0-3") | [8, 9]
    >>> print(ids, ids.count(), ids.next(3))
    0-3,8-9 6 8
    >>> ids.encode(IDSET_FLAG_RANGE | IDSET_FLAG_BRACKETS)
    '[0-3,8-9]'
    >>> IDset("1-x")
    Traceback (most recent call last):
    ...
    ValueError: IDset(): Invalid argument: 1-x

Ids go from 0 to 4294967293: `IDSET_INVALID_ID`, which `first`, `last`, `next` and `prev` return
if there is no such id, is not an id.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypeAlias

import penstock
from penstock._core import parse_flux_idset
from penstock.errors import IdsetError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "IDSET_FLAG_BRACKETS",
    "IDSET_FLAG_RANGE",
    "IDSET_INVALID_ID",
    "IDset",
    "decode",
]

IDSET_FLAG_BRACKETS = 2
"""Encode in brackets, unless the set has one id or none."""
IDSET_FLAG_RANGE = 4
"""Encode consecutive ids as ranges; the default."""
IDSET_INVALID_ID = 4294967294
"""The result of `first`, `last`, `next` and `prev` if there is no such id."""

Ids: TypeAlias = "IDset | str | int | Iterable[SupportsIndex] | Iterable[str]"
"""The types that a set is constructed from, and that its operators accept."""

_UINT_MAX = 4294967295


class IDset:
    """A set of non-negative integers, which are in ascending order.

    Args:
        arg: An idset text, one id, any iterable of ids that does not repeat one, an iterable of
            parts of a text, or a set.
        flags: The defaults of `encode` and `str`: `IDSET_FLAG_RANGE`, `IDSET_FLAG_BRACKETS`,
            or both. Sets that are made from this one have them too.
        handle: Not supported, as there is no C object to wrap.

    Raises:
        ValueError: `arg` is not an idset; the cause names the byte.
        TypeError: `arg` is of another type.
        NotImplementedError: a handle is given.
    """

    __slots__ = ("_flags", "_ids")
    __hash__ = None  # type: ignore[assignment]

    class InnerWrapper:
        """Flux's wrapper of the C object, which is not there."""

        def __init__(self, *_args: object, **_options: object) -> None:
            raise NotImplementedError(
                "IDset.InnerWrapper wraps a C object of Flux: use IDset, or penstock.IDset"
            )

    def __init__(
        self, arg: Ids = "", flags: int = IDSET_FLAG_RANGE, handle: object | None = None
    ) -> None:
        if handle is not None:
            raise NotImplementedError(
                "IDset(handle=...) wraps a C object of Flux: give the idset's text instead"
            )
        self._ids = _parsed(arg) if isinstance(arg, str) else _ids(arg).copy()
        self._flags = flags

    def _like(self, ids: penstock.IDset) -> Self:
        """A set of `ids`, which it may keep, with this one's flags."""
        made = self.__class__.__new__(self.__class__)
        made._ids = ids
        made._flags = self._flags
        return made

    def set_flags(self, flags: int) -> None:
        """Sets the default flags of `encode` and `str`."""
        self._flags = flags

    def encode(self, flags: int | None = None) -> str:
        """The text of the set, RFC 22.

        Args:
            flags: In place of the set's own. Without `IDSET_FLAG_RANGE` the text names every id,
                and costs that.
        """
        if flags is None:
            flags = self._flags
        text = str(self._ids) if flags & IDSET_FLAG_RANGE else ",".join(map(str, self._ids))
        if flags & IDSET_FLAG_BRACKETS and len(self._ids) > 1:
            return f"[{text}]"
        return text

    def __str__(self) -> str:
        return self.encode()

    def __repr__(self) -> str:
        return f"IDset('{self._ids}')"

    def __len__(self) -> int:
        return len(self._ids)

    def __bool__(self) -> bool:
        return bool(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __contains__(self, i: object) -> bool:
        return _id(i, "test") in self._ids

    def __getitem__(self, i: int) -> bool:
        return self.test(i)

    def __setitem__(self, i: int, value: bool) -> None:
        if value not in (0, 1):
            raise TypeError(f"IDset setitem must be bool or 0,1 not {type(value)}")
        (self._ids.add if value else self._ids.discard)(_id(i, "set" if value else "clear"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IDset):
            raise TypeError(f"an IDset can only be compared with an IDset, not {type(other)}")
        return self._ids == other._ids

    def __copy__(self) -> Self:
        return self._like(self._ids.copy())

    def copy(self) -> Self:
        """A set of the same ids, with the same flags."""
        return self._like(self._ids.copy())

    def equal(self, idset: IDset) -> bool:
        """Whether the other has the same ids.

        Raises:
            TypeError: the other is not an `IDset`.
        """
        return self == idset

    def test(self, i: int) -> bool:
        """Whether `i` is in the set.

        Raises:
            TypeError, ValueError: `i` is not an integer, or negative.
        """
        return _id(i, "test") in self._ids

    def count(self) -> int:
        """The number of ids."""
        return len(self._ids)

    def expand(self) -> list[int]:
        """The ids, ascending."""
        return self._ids.expand()

    def first(self) -> int:
        """The least id, or `IDSET_INVALID_ID`."""
        return _or_invalid(self._ids.first())

    def last(self) -> int:
        """The greatest id, or `IDSET_INVALID_ID`."""
        return _or_invalid(self._ids.last())

    def next(self, i: int) -> int:
        """The least id above `i`, or `IDSET_INVALID_ID`."""
        i = _id(i, "next")
        return IDSET_INVALID_ID if i >= IDSET_INVALID_ID else _or_invalid(self._ids.next(i))

    def prev(self, i: int) -> int:
        """The greatest id below `i`, or `IDSET_INVALID_ID`."""
        return _or_invalid(self._ids.prev(min(_id(i, "prev"), IDSET_INVALID_ID)))

    def set(self, start: int, end: int | None = None) -> Self:
        """Puts an id, or all from `start` to `end`, into the set.

        Returns:
            The set itself.

        Raises:
            TypeError, ValueError, OverflowError: a bound is not an id, or `end` is below `start`.
        """
        ids = _range(start, end, "set")
        if ids.stop > IDSET_INVALID_ID:
            raise ValueError(f"id {ids[-1]} passed to IDset.set: expected one up to 4294967293")
        self._ids.update(ids)
        return self

    def clear(self, start: int, end: int | None = None) -> Self:
        """Takes an id, or all from `start` to `end`, out of the set.

        Returns:
            The set itself.

        Raises:
            TypeError, ValueError, OverflowError: a bound is not an id, or `end` is below `start`.
        """
        ids = _range(start, end, "clear")
        self._ids.difference_update(range(ids.start, min(ids.stop, IDSET_INVALID_ID)))
        return self

    def add(self, arg: Ids) -> Self:
        """Puts all ids of `arg` into the set, and returns it."""
        self._ids |= _ids(arg)
        return self

    def subtract(self, arg: Ids) -> Self:
        """Takes all ids of `arg` out of the set, and returns it."""
        self._ids -= _ids(arg)
        return self

    def union(self, *args: Ids) -> Self:
        """A new set with the ids of this one and of all `args`."""
        return self._like(self._ids.union(*map(_ids, args)))

    def difference(self, *args: Ids) -> Self:
        """A new set with the ids of this one that none of `args` has."""
        return self._like(self._ids.difference(*map(_ids, args)))

    def intersect(self, *args: Ids) -> Self:
        """A new set with the ids of this one that all of `args` have."""
        return self._like(self._ids.intersection(*map(_ids, args)))

    def __add__(self, other: Ids) -> Self:
        return self._like(self._ids | _ids(other))

    __or__ = __add__

    def __sub__(self, other: Ids) -> Self:
        return self._like(self._ids - _ids(other))

    def __and__(self, other: Ids) -> Self:
        return self._like(self._ids & _ids(other))

    def __iadd__(self, other: Ids) -> Self:
        return self.add(other)

    def __isub__(self, other: Ids) -> Self:
        return self.subtract(other)


def decode(string: str) -> IDset:
    """The set that a text stands for.

    Raises:
        ValueError: the text is not an idset.
    """
    return IDset(string)


def _invalid(text: str) -> ValueError:
    return ValueError(f"IDset(): Invalid argument: {text}")


def _parsed(text: str) -> penstock.IDset:
    try:
        ids = parse_flux_idset(text)
    except IdsetError as error:
        raise _invalid(text) from error
    if ids.last() == IDSET_INVALID_ID:
        raise _invalid(text)
    return ids


def _checked(ids: penstock.IDset, arg: object) -> penstock.IDset:
    if ids.last() == IDSET_INVALID_ID:
        raise _invalid(str(arg))
    return ids


def _ids(arg: Ids) -> penstock.IDset:
    """The compiled set for whatever an operation takes; that of an `IDset` itself, not a copy."""
    if isinstance(arg, IDset):
        return arg._ids
    if isinstance(arg, str):
        return _parsed(arg)
    if isinstance(arg, penstock.IDset | range):
        return _checked(penstock.IDset(arg), arg)
    if isinstance(arg, int):
        return _parsed(str(arg))
    if not isinstance(arg, Iterable):
        raise TypeError(f"IDset(): expected string, integer or iterable, got {type(arg)}")
    members: list[Any] = sorted(arg)
    if any(isinstance(member, str) for member in members):
        return _parsed(",".join(map(str, members)))
    try:
        ids = penstock.IDset(members)
    except (IdsetError, TypeError) as error:
        raise _invalid(",".join(map(str, members))) from error
    if len(ids) != len(members):
        raise _invalid(",".join(map(str, members)))
    return _checked(ids, ids)


def _id(i: object, method: str) -> int:
    if not isinstance(i, Integral):
        raise TypeError(f"IDset.{method} supports integers, not {type(i)}")
    i = index(i)
    if i < 0:
        raise ValueError(f"negative index passed to IDset.{method}")
    if i > _UINT_MAX:
        raise OverflowError(f"integer {i} does not fit '32-bit unsigned int'")
    return i


def _range(start: int, end: int | None, method: str) -> range:
    first = _id(start, method)
    last = first if end is None else _id(end, method)
    if last < first:
        raise ValueError(f"can't {method} range with {first} > {last}")
    return range(first, last + 1)


def _or_invalid(i: int | None) -> int:
    return IDSET_INVALID_ID if i is None else i
