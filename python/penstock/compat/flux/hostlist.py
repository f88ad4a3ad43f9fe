"""`flux.hostlist` over `penstock.Hostlist`: ordered lists of host names, RFC 29.

Example:
    >>> from penstock.compat.flux.hostlist import Hostlist
    >>> hosts = Hostlist("node[0-3]")
    >>> hosts.append("login", "node7")
    2
    >>> print(hosts, hosts[-1], hosts.index("node[2-3]"))
    node[0-3],login,node7 node7 [2, 3]
    >>> Hostlist("node[0-")
    Traceback (most recent call last):
    ...
    ValueError: Invalid hostlist: 'node[0-'
"""

from __future__ import annotations

from collections.abc import Iterable
from errno import EINVAL, ENOENT
from numbers import Integral
from typing import TYPE_CHECKING, Self, SupportsIndex, TypeAlias, overload

import penstock
from penstock._core import parse_flux_hostlist
from penstock.compat.flux.idset import IDset
from penstock.errors import HostlistError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Hostlist", "decode"]

Hosts: TypeAlias = "Hostlist | str | Iterable[Hosts]"
"""The types that a list is constructed from: a hostlist's text, or an iterable of these."""


class Hostlist:
    """An ordered list of host names, which may repeat.

    Args:
        arg: A hostlist text, a `Hostlist`, or any iterable of such.
        handle: Not supported, as there is no C object to wrap.

    Raises:
        ValueError: a text is not a hostlist; the cause names the byte.
        TypeError: `arg`, or what it yields, is of another type.
        NotImplementedError: a handle is given.
    """

    __slots__ = ("_hosts",)

    class InnerWrapper:
        """Flux's wrapper of the C object, which is not there."""

        def __init__(self, *_args: object, **_options: object) -> None:
            raise NotImplementedError(
                "Hostlist.InnerWrapper wraps a C object of Flux: use Hostlist, or penstock.Hostlist"
            )

    def __init__(self, arg: Hosts = "", handle: object | None = None) -> None:
        if handle is not None:
            raise NotImplementedError(
                "Hostlist(handle=...) wraps a C object of Flux: give the hostlist's text instead"
            )
        self._hosts = _hosts(arg) if isinstance(arg, str) else _hosts(arg).copy()

    def _like(self, hosts: penstock.Hostlist) -> Self:
        """A list of `hosts`, which it may keep."""
        made = self.__class__.__new__(self.__class__)
        made._hosts = hosts
        return made

    def __str__(self) -> str:
        return str(self._hosts)

    def __repr__(self) -> str:
        return f"Hostlist('{self._hosts}')"

    def __len__(self) -> int:
        return len(self._hosts)

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __contains__(self, host: object) -> bool:
        return host in self._hosts

    def __eq__(self, other: object) -> bool:
        return self._hosts == other._hosts if isinstance(other, Hostlist) else NotImplemented

    def __hash__(self) -> int:
        raise TypeError(
            "unhashable type: 'Hostlist': it can change, and equal lists compare equal here; "
            "use its text, str(hosts), as a key"
        )

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice | IDset | Iterable[SupportsIndex]) -> Self: ...
    def __getitem__(
        self, index: SupportsIndex | slice | IDset | Iterable[SupportsIndex]
    ) -> str | Self:
        if isinstance(index, Integral):
            return self._hosts[index]
        if isinstance(index, slice):
            return self._like(self._hosts[index])
        if isinstance(index, IDset):
            if index and index.last() >= len(self._hosts):
                raise IndexError("Hostlist index out of range")
            hosts = penstock.Hostlist()
            for ids in index._ids.ranges():
                hosts.extend(self._hosts[ids.start : ids.stop])
            return self._like(hosts)
        if isinstance(index, str) or not isinstance(index, Iterable):
            raise TypeError(f"Invalid Hostlist index {index!r}")
        return self._like(penstock.Hostlist([self._hosts[i] for i in index]))

    def __copy__(self) -> Self:
        return self._like(self._hosts.copy())

    def copy(self) -> Self:
        """A list of the same hosts."""
        return self._like(self._hosts.copy())

    def encode(self) -> str:
        """The text of the list, RFC 29."""
        return str(self._hosts)

    def expand(self) -> list[str]:
        """The host names, in order."""
        return self._hosts.expand()

    def count(self) -> int:
        """The number of hosts, repeats included."""
        return len(self._hosts)

    def append(self, *args: Hosts) -> int:
        """Puts hosts at the end.

        Returns:
            How many they were.

        Raises:
            ValueError, TypeError: as for the class; the list is then as it was.
        """
        added = penstock.Hostlist()
        for arg in args:
            added.extend(_hosts(arg))
        self._hosts.extend(added)
        return len(added)

    def delete(self, hosts: Hostlist | str) -> int:
        """Takes out the first occurrence of each host that is given.

        Returns:
            How many were there to take out.

        Raises:
            OSError: EINVAL; `hosts` is neither a list nor a hostlist text.
        """
        if isinstance(hosts, Hostlist):
            return self._hosts.delete(hosts._hosts)
        try:
            if isinstance(hosts, str):
                return self._hosts.delete(parse_flux_hostlist(hosts))
        except HostlistError as error:
            raise OSError(EINVAL, "EINVAL: Invalid argument") from error
        raise OSError(EINVAL, "EINVAL: Invalid argument")

    def find(self, host: str) -> int:
        """The first position of a host.

        Raises:
            FileNotFoundError: ENOENT; it is not in the list.
        """
        position = self._hosts.find(host)
        if position is None:
            raise FileNotFoundError(ENOENT, "ENOENT: No such file or directory")
        return position

    def index(self, hosts: Hosts, ignore_nomatch: bool = False) -> list[int]:
        """The first position of each of several hosts.

        Args:
            hosts: The hosts, in the order of which the positions come.
            ignore_nomatch: Skip hosts that are not in the list.

        Raises:
            FileNotFoundError: a host is not in the list.
        """
        positions = []
        for host in _hosts(hosts):
            position = self._hosts.find(host)
            if position is not None:
                positions.append(position)
            elif not ignore_nomatch:
                raise FileNotFoundError(f"host '{host}' not found")
        return positions

    def sort(self) -> Self:
        """Sorts the list, numbers by value, and returns it."""
        self._hosts.sort()
        return self

    def uniq(self) -> Self:
        """Sorts the list, leaves one of each host, and returns it."""
        self._hosts.sort()
        self._hosts.uniq()
        return self


def decode(string: str) -> Hostlist:
    """The list that a text stands for.

    Raises:
        ValueError: the text is not a hostlist.
    """
    return Hostlist(string)


def _hosts(arg: Hosts) -> penstock.Hostlist:
    """The compiled list for whatever an operation takes; that of a `Hostlist` itself, no copy."""
    if isinstance(arg, Hostlist):
        return arg._hosts
    if isinstance(arg, penstock.Hostlist):
        return arg
    if isinstance(arg, str):
        try:
            return parse_flux_hostlist(arg)
        except HostlistError as error:
            raise ValueError(f"Invalid hostlist: {arg!r}") from error
    if not isinstance(arg, Iterable):
        raise TypeError(f"Hostlist(): expected string or Iterable, got {type(arg)}")
    items = list(arg)
    names = [item for item in items if isinstance(item, str)]
    if len(names) == len(items):
        try:
            return penstock.Hostlist(names)
        except HostlistError:
            pass  # Taken one by one, the text at fault names itself.
    hosts = penstock.Hostlist()
    for item in items:
        hosts.extend(_hosts(item))
    return hosts
