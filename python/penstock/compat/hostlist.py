"""`hostlist` (python-hostlist 2) over `penstock.Hostlist` and `penstock.IDset`.

Example:
    >>> from penstock.compat.hostlist import collect_hostlist, expand_hostlist
    >>> expand_hostlist("n[9-11],d[01-02]")
    ['n9', 'n10', 'n11', 'd01', 'd02']
    >>> collect_hostlist(["x1y1", "x2y2", "x1y2", "x2y1"])
    'x[1-2]y[1-2]'
    >>> expand_hostlist("n[3-1]")
    Traceback (most recent call last):
    ...
    penstock.errors.BadHostlist: start > stop: `3-1` in `n[3-1]`

The syntax is python-hostlist's, not RFC 29's: a name may have several pairs of brackets, and a
range has the width of its own first number. The messages are python-hostlist's, with the
fault added.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

import penstock
from penstock.errors import BadHostlist, HostlistError, IdsetError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MAX_SIZE",
    "BadHostlist",
    "collect_hostlist",
    "collect_hostlist_1",
    "expand_hostlist",
    "expand_part",
    "expand_range",
    "expand_rangelist",
    "format_range",
    "numeric_sort_key",
    "numeric_sort_key_regexp",
    "numerically_sorted",
    "parse_slurm_tasks_per_node",
    "remove_duplicates",
]

MAX_SIZE = 100000
"""The limit of hosts that a range, or a name with brackets, expands to; a program may set it."""

_BRACKETS = re.compile(r"[\[\]]")
_BALANCED = re.compile(r"[^\[\]]*+(?:\[[^\[\]]*+\][^\[\]]*+)*+")
_PART = re.compile(r"(?:[^,\[]++|\[[^\]]*+\]?+)++")
_PIECE = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_LAST_NUMBER = re.compile(r"(?<![0-9])([0-9]++)([^0-9]*+)\Z")
_NUMBER = re.compile(r"([0-9]+)")
_TASKS = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


numeric_sort_key_regexp = re.compile("([0-9]+)|([^0-9]+)")
"""Finds the parts of a name that `numeric_sort_key` makes its key of."""


def expand_hostlist(hostlist: str, allow_duplicates: bool = False, sort: bool = False) -> list[str]:
    """The hosts that a hostlist stands for.

    Args:
        hostlist: Names separated by commas, with numbers and ranges in brackets.
        allow_duplicates: Leave a host in each time that it comes; else only the first.
        sort: Sort as `numerically_sorted` does; else they come in the order of the text.

    Raises:
        BadHostlist: the text is not a hostlist, or a name in it stands for more than `MAX_SIZE`.
        TypeError: it is not a text.
    """
    if not isinstance(hostlist, str):
        raise TypeError(f"expected a hostlist (str), not {type(hostlist)}")
    hosts: list[str] = []
    for part in _PART.findall(hostlist):
        hosts += expand_part(part)
    # One pair of brackets with one range expands to distinct names.
    if not allow_duplicates and ("," in hostlist or hostlist.count("[") > 1):
        hosts = remove_duplicates(hosts)
    return numerically_sorted(hosts) if sort else hosts


def _shown(text: str) -> str:
    """A text as errors show it: whole, or its beginning."""
    return f"`{text}`" if len(text) <= 64 else f"`{text[:64]}…`"


def _bracket_fault(text: str) -> BadHostlist:
    opened = False
    for bracket in _BRACKETS.finditer(text):
        if opened == (bracket[0] == "["):
            fault = "nested" if opened else "unbalanced"
            return BadHostlist(
                f"{fault} brackets: `{bracket[0]}` at {bracket.start()} in {_shown(text)}"
            )
        opened = not opened
    return BadHostlist(f"unbalanced brackets: expected `]` at {len(text)} in {_shown(text)}")


def expand_part(s: str) -> list[str]:
    """The hosts of one name with any number of brackets, such as `x[1-2]y[1-3]`.

    Raises:
        BadHostlist: as for `expand_hostlist`.
    """
    if "[" not in s and "]" not in s:
        return [s]
    if not _BALANCED.fullmatch(s):
        raise _bracket_fault(s)
    pieces = _PIECE.split(s)  # Texts, and between them what is in brackets.
    if len(pieces) == 3:
        hosts = _expanded(pieces[0], pieces[1], pieces[2], s)
    else:
        size = 1
        numbers = []
        for place, piece in enumerate(pieces):
            numbers.append(_expanded("", piece, "", s) if place % 2 else [piece])
            size *= len(numbers[-1])
            _check_size(size, s)
        hosts = ["".join(parts) for parts in product(*numbers)]
    _check_size(len(hosts), s)
    return hosts


def _check_size(size: int, text: str) -> None:
    if size > MAX_SIZE:
        raise BadHostlist(
            f"results too large: {_shown(text)} stands for more than {MAX_SIZE} hosts"
        )


def _expanded(prefix: str, rangelist: str, suffix: str, text: str) -> list[str]:
    hosts: list[str] = []
    for item in rangelist.split(","):
        hosts += _expanded_range(prefix, item, suffix, text)
        _check_size(len(hosts), text)
    return hosts


def _expanded_range(prefix: str, item: str, suffix: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(item)
    if not match:
        raise BadHostlist(f"bad range: {_shown(item)} in {_shown(text)}")
    if match[2] is None:
        return [f"{prefix}{item}{suffix}"]
    if len(item) > 512:  # Longer than any two names.
        raise BadHostlist(f"range too large: {_shown(item)} in {_shown(text)}")
    low, high, width = int(match[1]), int(match[2]), len(match[1])
    if high < low:
        raise BadHostlist(f"start > stop: {_shown(item)} in {_shown(text)}")
    if high - low > MAX_SIZE:
        raise BadHostlist(
            f"range too large: {_shown(item)} in {_shown(text)} has more than {MAX_SIZE} numbers"
        )
    try:
        return penstock.Hostlist(f"{prefix}[{match[1]}-{high:0{width}}]{suffix}").expand()
    except HostlistError:
        # A name that RFC 29 does not have, such as one with blanks.
        return [f"{prefix}{number:0{width}}{suffix}" for number in range(low, high + 1)]


def expand_rangelist(prefix: str, rangelist: str) -> list[str]:
    """The names that a prefix makes with a list of numbers and ranges, such as `1-10,14`.

    Raises:
        BadHostlist: it is not such a list.
    """
    return _expanded(prefix, rangelist, "", rangelist)


def expand_range(prefix: str, range_: str) -> list[str]:
    """The names that a prefix makes with a number or a range, such as `1-10`.

    Raises:
        BadHostlist: it is neither.
    """
    return _expanded_range(prefix, range_, "", range_)


def format_range(low: int, high: int, width: int) -> str:
    """A range as it is in brackets, its numbers with zeroes up to `width`.

    >>> format_range(8, 11, 3), format_range(8, 8, 0)
    ('008-011', '8')
    """
    return f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}"


def collect_hostlist(hosts: Iterable[str], silently_discard_bad: bool = False) -> str:
    """The hostlist of hosts: sorted, each once, with the rightmost numbers folded first.

    Args:
        hosts: The names; blanks around them, and empty ones, do not matter.
        silently_discard_bad: Leave out what cannot be the name of a host.

    Raises:
        BadHostlist: a name has a bracket or a comma.
    """
    left_right = []
    for name in hosts:
        host = name.strip()
        if "[" in host or "]" in host or "," in host:
            if silently_discard_bad:
                continue
            raise BadHostlist(f"forbidden character: expected no `[`, `]` or `,` in {_shown(host)}")
        if host:
            left_right.append((host, ""))
    looping = True
    while looping:
        left_right, looping = collect_hostlist_1(left_right)
    return ",".join(left + right for left, right in left_right)


def collect_hostlist_1(
    left_right: Iterable[tuple[str, str]],
) -> tuple[list[tuple[str, str]], bool]:
    """Folds the rightmost number of each left part.

    Args:
        left_right: Names in two: what is still to be folded, and what is.

    Returns:
        The names that are left, sorted, and whether there was a number to fold.
    """
    plain: set[str] = set()
    groups: dict[tuple[str, str], list[str]] = {}
    for left, right in left_right:
        if match := _LAST_NUMBER.search(left):
            around = (left[: match.start()], match[2] + right)
            groups.setdefault(around, []).append(match[1])
        else:
            plain.add(left + right)
    # Sorted by what is around the numbers, as python-hostlist does.
    names = [((name, ""), ("", name)) for name in plain]
    for (prefix, suffix), numbers in groups.items():
        names.append(((prefix, suffix), (prefix, _folded(numbers) + suffix)))
    names.sort()
    return [name for _, name in names], bool(groups)


def _folded(numbers: list[str]) -> str:
    """Numbers, each once, as ranges; in brackets if they are several."""
    distinct = set(numbers)
    if len(distinct) == 1:
        return numbers[0]
    widths = set(map(len, distinct))
    if len(widths) == 1:
        width = widths.pop()
    elif all(number[0] != "0" or number == "0" for number in distinct):
        width = 0
    else:
        return f"[{_folded_by_width(distinct)}]"
    try:
        ranges = penstock.IDset([int(number) for number in distinct]).ranges()
    except IdsetError:
        # Numbers above 32 bits.
        return f"[{_folded_by_width(distinct)}]"
    folded = ",".join(format_range(ids.start, ids.stop - 1, width) for ids in ranges)
    return f"[{folded}]"


def _folded_by_width(numbers: set[str]) -> str:
    """Numbers as ranges of equal width, since leading zeroes may differ."""
    ranges = []
    for number in sorted(numbers, key=lambda number: (int(number), len(number))):
        if number not in numbers:
            continue  # It is in a range already.
        low = high = int(number)
        width = len(number)
        numbers.remove(number)
        while (following := f"{high + 1:0{width}d}") in numbers:
            numbers.remove(following)
            high += 1
        ranges.append(format_range(low, high, width))
    return ",".join(ranges)


def numeric_sort_key(x: str) -> list[str | int]:
    """The sort key of `numerically_sorted`: the text split into numbers and other text.

    >>> numeric_sort_key("x10y"), numeric_sort_key("10")
    (['x', 10, 'y'], ['', 10])
    """
    key = _cut(x)
    if not key[-1]:
        key.pop()
    return key


def _cut(text: str) -> list[str | int]:
    """Texts and numbers in turns, so that any two cuts can be compared; the ends may be empty."""
    cut: list[str | int] = [*_NUMBER.split(text)]
    cut[1::2] = map(int, cut[1::2])
    return cut


def numerically_sorted(l: Iterable[str]) -> list[str]:  # noqa: E741 - python-hostlist's name
    """Names sorted with their numbers by value: `n1`, `n2`, `n10`."""
    return sorted(l, key=_cut)


def remove_duplicates(l: Iterable[str]) -> list[str]:  # noqa: E741 - python-hostlist's name
    """Distinct names, in order of first occurrence."""
    return list(dict.fromkeys(l))


def parse_slurm_tasks_per_node(s: str) -> list[int]:
    """The tasks of each node, from a text as in `SLURM_TASKS_PER_NODE`.

    Raises:
        BadHostlist: it is not such a text, or repeats a number more than `MAX_SIZE` times.

    >>> parse_slurm_tasks_per_node("4(x2),3")
    [4, 4, 3]
    """
    tasks: list[int] = []
    for item in s.split(","):
        match = _TASKS.fullmatch(item)
        if not match:
            raise BadHostlist(f"bad task list syntax: {_shown(item)} in {_shown(s)}")
        times = 1 if match[2] is None else int(match[2])
        if times > MAX_SIZE:
            raise BadHostlist(f"task list repetitions too large: {_shown(item)} in {_shown(s)}")
        tasks += [int(match[1])] * times
    return tasks
