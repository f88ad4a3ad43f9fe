"""`ClusterShell.NodeSet` over `penstock.IDset`: sets of node names, and groups of nodes.

Example:
    >>> from penstock.compat.ClusterShell.NodeSet import NodeSet
    >>> nodes = NodeSet("node[10-42],login!node[12-14]")
    >>> print(nodes, len(nodes), nodes[-1])
    login,node[10-11,15-42] 31 node42
    >>> print(NodeSet("rack[1-2]n[1-3]") & NodeSet("rack1n[2-9]"))
    rack1n[2-3]
    >>> NodeSet("node[3-1]")
    Traceback (most recent call last):
    ...
    penstock.compat.ClusterShell.errors.NodeSetParseRangeError: invalid values in range : "3-1"

A name is a text with any number of indexes, such as `rack1n12`; a set has a `RangeSet` or
`RangeSetND` for each pattern of names, here `rack%sn%s`.
"""

from __future__ import annotations

import fnmatch
import re
from itertools import chain, product
from operator import index as to_index
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast, overload

import penstock
from penstock.compat.ClusterShell.Defaults import DEFAULTS, config_paths
from penstock.compat.ClusterShell.errors import (
    GroupResolverSourceError,
    GroupSourceError,
    GroupSourceNoUpcall,
    NodeSetError,
    NodeSetException,
    NodeSetExternalError,
    NodeSetParseError,
    NodeSetParseRangeError,
    RangeSetException,
    RangeSetPaddingError,
    RangeSetParseError,
)
from penstock.compat.ClusterShell.NodeUtils import GroupResolver, GroupResolverConfig
from penstock.compat.ClusterShell.RangeSet import AUTOSTEP_DISABLED, RangeSet, RangeSetND
from penstock.compat.ClusterShell.sets import SetAlgebra
from penstock.errors import HostlistError, IdsetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import SupportsIndex

__all__ = [
    "AUTOSTEP_DISABLED",
    "ILLEGAL_GROUP_CHARS",
    "NOGROUP_RESOLVER",
    "RESOLVER_NOGROUP",
    "RESOLVER_STD_GROUP",
    "NodeSet",
    "NodeSetBase",
    "NodeSetError",
    "NodeSetException",
    "NodeSetExternalError",
    "NodeSetParseError",
    "NodeSetParseRangeError",
    "ParsingEngine",
    "RangeSet",
    "RangeSetException",
    "RangeSetND",
    "RangeSetPaddingError",
    "RangeSetParseError",
    "expand",
    "fold",
    "grouplist",
    "set_std_group_resolver",
    "set_std_group_resolver_config",
    "std_group_resolver",
]

RESOLVER_NOGROUP = -1
"""The resolver of a set whose texts have no groups: `@` is a character as any other."""
NOGROUP_RESOLVER = RESOLVER_NOGROUP
ILLEGAL_GROUP_CHARS = set("@,!&^*")
"""The characters that no name of a group may have."""

_ENDS = r"[^\s\[\],!&^@*?%0-9]*"
# Names with at most one index and nothing to look at twice, which nearly all are.
_PLAIN = re.compile(rf"({_ENDS})(?:\[([0-9][0-9,-]*)\]|(0|[1-9][0-9]{{0,8}})|)({_ENDS})")
_OPERAND = re.compile(r"((?:[^\[,!&^]|\[[^\]]*\])*)([,!&^]|\Z)")
_INDEX = re.compile(r"([0-9]*)\[([^\]]*)\]([0-9]*)|([0-9]+)")
_WILDCARD = re.compile(r"[*?]")
_OPERATIONS = {
    ",": "update",
    "!": "difference_update",
    "&": "intersection_update",
    "^": "symmetric_difference_update",
}

Indexes: TypeAlias = "RangeSet | RangeSetND | None"
Resolver: TypeAlias = "GroupResolver | int | None"


def _text_of(pattern: str, texts: str | tuple[str, ...]) -> str:
    try:
        return pattern % texts
    except TypeError:
        message = "cannot fold: the number of indexes is not that of the pattern"
        raise NodeSetParseError(pattern, message) from None


def _bracketed(rangeset: RangeSet) -> str:
    text = str(rangeset)
    return f"[{text}]" if len(rangeset) > 1 else text


class NodeSetBase(SetAlgebra[object]):
    """A set of names without a parser; use `NodeSet`.

    Args:
        pattern: A pattern with `%s` for each index, and `%%` for a percent sign.
        rangeset: The indexes; None for a name without.
        copy_rangeset: Copy the indexes; otherwise the set keeps them.
        autostep: The least number of equally spaced indexes that a text shows with a step.
        fold_axis: The dimensions that a text folds, from 0 on, or from -1 back; None for those of
            `Defaults.DEFAULTS`, or all.
    """

    __slots__ = ("__dict__", "__weakref__", "_autostep", "_patterns", "fold_axis")

    _patterns: dict[str, Indexes]
    _autostep: float | None
    fold_axis: object

    def __init__(
        self,
        pattern: str | None = None,
        rangeset: Indexes = None,
        copy_rangeset: bool = True,
        autostep: float | None = None,
        fold_axis: object = None,
    ) -> None:
        self._autostep = _checked_autostep(autostep)
        self._patterns = {}
        self.fold_axis = fold_axis if fold_axis is not None else DEFAULTS.fold_axis or None
        if pattern:
            self._add(pattern, rangeset, copy_rangeset=copy_rangeset)
        elif rangeset:
            raise ValueError("missing pattern")

    def get_autostep(self) -> float | None:
        """The least number of indexes shown with a step, None for that of each set added."""
        return self._autostep

    def set_autostep(self, val: float | None) -> None:
        """Sets the least number of indexes shown with a step, for each pattern."""
        self._autostep = _checked_autostep(val)
        for indexes in self._patterns.values():
            if indexes is not None:
                indexes.autostep = val

    autostep = property(get_autostep, set_autostep)

    def _stepped(self, indexes: Indexes, *, copy: bool = True) -> Indexes:
        """Indexes to keep, with this set's autostep."""
        if indexes is None:
            return None
        kept = indexes.copy() if copy else indexes
        if self._autostep is not None:
            kept.autostep = self._autostep
        return kept

    def _add(self, pat: str, rangeset: Indexes, copy_rangeset: bool = True) -> None:
        if pat not in self._patterns:
            plain = rangeset is None and "%s" in pat.replace("%%", "")
            wrong = rangeset is not None and "%s" not in pat.replace("%%", "")
            if plain or wrong:
                raise NodeSetError(f"rangeset mismatch for pattern {pat}")
            self._patterns[pat] = self._stepped(rangeset, copy=copy_rangeset)
            return
        mine = self._patterns[pat]
        if mine is None:
            if rangeset is not None:
                raise NodeSetError(f"rangeset mismatch for pattern {pat}")
        elif rangeset is None:
            raise NodeSetError(f"missing rangeset for pattern {pat}")
        else:
            mine.update(cast("Any", rangeset))

    def _sorted(self) -> list[tuple[str, Indexes]]:
        return sorted(self._patterns.items(), key=lambda item: item[0])

    # Text and iteration.

    def _axes(self) -> set[int] | None:
        if self.fold_axis is None:
            return None
        try:
            axes = {int(axis) for axis in cast("Iterable[Any]", self.fold_axis)}
        except (TypeError, ValueError):
            raise NodeSetParseError(
                "", f"fold_axis: expected an iterable of integers, found {self.fold_axis!r}"
            ) from None
        return axes

    def _folded(self, pattern: str, indexes: Indexes, axes: set[int] | None) -> Iterator[str]:
        if indexes is None:
            yield pattern % ()
            return
        vectors = [[indexes]] if isinstance(indexes, RangeSet) else indexes.vectors()
        for vector in vectors:
            if axes is None:
                yield _text_of(pattern, tuple(map(_bracketed, vector)))
                continue
            count = len(vector)
            texts = [
                [_bracketed(rangeset)] if axis in axes or axis - count in axes else list(rangeset)
                for axis, rangeset in enumerate(vector)
            ]
            # The first dimension varies fastest.
            for one in product(*reversed(texts)):
                yield _text_of(pattern, one[::-1])

    def __str__(self) -> str:
        axes = self._axes()
        return ",".join(
            [
                text
                for pattern, indexes in self._sorted()
                for text in self._folded(pattern, indexes, axes)
            ]
        )

    def _names_of(self, pattern: str, indexes: Indexes) -> Iterable[str]:
        if indexes is None:
            return (pattern % (),)
        if isinstance(indexes, RangeSet):
            if "%%" in pattern:
                return [_text_of(pattern, text) for text in indexes]
            head, tail = pattern.split("%s", 1)
            if not indexes._padded and not indexes._odd:
                try:
                    return penstock.Hostlist(f"{head}[{indexes._ids}]{tail}")
                except HostlistError:
                    pass  # A name that RFC 29 does not have, such as one with blanks.
            return [f"{head}{text}{tail}" for text in indexes]
        return [_text_of(pattern, vector) for vector in indexes]

    def __iter__(self) -> Iterator[str]:
        parts = [self._names_of(pattern, indexes) for pattern, indexes in self._sorted()]
        return iter(parts[0]) if len(parts) == 1 else chain.from_iterable(parts)

    striter = __iter__

    def _part(self, pattern: str, indexes: Indexes) -> Self:
        """A set like this one with the names of one pattern only; it may keep the indexes."""
        made = self._empty()
        made._patterns[pattern] = indexes
        return made

    def _empty(self) -> Self:
        made = self.__class__.__new__(self.__class__)
        made._autostep = self._autostep
        made._patterns = {}
        made.fold_axis = self.fold_axis
        return made

    def nsiter(self) -> Iterator[Self]:
        """The nodes, a set each."""
        for pattern, indexes in self._sorted():
            if indexes is None:
                yield self._part(pattern, None)
            elif isinstance(indexes, RangeSet):
                for text in indexes:
                    yield self._part(pattern, RangeSet(text, autostep=indexes.autostep))
            else:
                for vector in indexes:
                    one = RangeSetND([vector], autostep=indexes.autostep)
                    yield self._part(pattern, one)

    def contiguous(self) -> Iterator[Self]:
        """The parts whose ranges are contiguous, a set each."""
        for pattern, indexes in self._sorted():
            if indexes is None:
                yield self._part(pattern, None)
            else:
                for part in indexes.contiguous():
                    yield self._part(pattern, part)

    def __len__(self) -> int:
        return sum(1 if indexes is None else len(indexes) for indexes in self._patterns.values())

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({str(self)!r})"

    def copy(self) -> Self:
        """A copy, with the same autostep, axes and resolver."""
        made = self._empty()
        made._patterns = {
            pattern: None if indexes is None else indexes.copy()
            for pattern, indexes in self._patterns.items()
        }
        return made

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    # Positions.

    def _counted(self) -> Iterator[tuple[int, str, Indexes, int]]:
        """For each pattern the position of its first name, and the number of names."""
        start = 0
        for pattern, indexes in self._sorted():
            count = 1 if indexes is None else len(indexes)
            yield start, pattern, indexes, count
            start += count

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice) -> str | Self:
        if isinstance(index, slice):
            return self._cut(range(*index.indices(len(self))))
        try:
            position = to_index(index)
        except TypeError:
            raise TypeError("NodeSet indices must be integers") from None
        length = len(self)
        if not -length <= position < length:
            raise IndexError(f"{position} out of range")
        position %= length
        for start, pattern, indexes, count in self._counted():
            if position < start + count:
                if indexes is None:
                    return pattern % ()
                return _text_of(pattern, indexes[position - start])
        raise AssertionError("unreachable")

    def _cut(self, positions: range) -> Self:
        """The nodes at positions."""
        made = self._empty()
        if positions.step < 0:
            positions = positions[::-1]
        for start, pattern, indexes, count in self._counted():
            begin = max(0, -((start - positions.start) // -positions.step))
            inside = positions[begin:]
            if not inside or inside[0] >= start + count:
                continue
            if indexes is None:
                made._patterns[pattern] = None
            else:
                part = indexes[inside[0] - start : min(inside[-1] + 1 - start, count) : inside.step]
                made._patterns[pattern] = made._stepped(part, copy=False)
        return made

    def index(self, other: object, start: int = 0, stop: int | None = None) -> int:
        """The position of a node.

        Raises:
            ValueError: `other` is not one node of the set, or not between the positions.
        """
        node = self._operand(other)
        if len(node) != 1:
            raise ValueError("index() argument must be a single node")
        (wanted, its), *_ = node._patterns.items()
        for first, pattern, indexes, _ in self._counted():
            if pattern != wanted:
                continue
            try:
                at = 0 if indexes is None else indexes.index(cast("Any", its)[0])
            except ValueError:
                break
            if first + at in range(*slice(start, stop).indices(len(self))):
                return first + at
        raise ValueError(f"{str(node)!r} is not in nodeset")

    # Comparison.

    def _operand(self, other: object) -> NodeSetBase:
        """`other` as a set.

        Raises:
            TypeError: it is not a node set.
        """
        if not isinstance(other, NodeSetBase):
            raise TypeError("Binary operation only permitted between NodeSetBase")
        return other

    def __contains__(self, other: object) -> bool:
        return self.issuperset(other)

    def issubset(self, other: object) -> bool:
        """Whether each node is in `other`."""
        return self._operand(other)._includes(self)

    def issuperset(self, other: object) -> bool:
        """Whether each node of `other` is in this set."""
        return self._includes(self._operand(other))

    def _includes(self, other: NodeSetBase) -> bool:
        for pattern, indexes in other._patterns.items():
            if pattern not in self._patterns:
                return False
            mine = self._patterns[pattern]
            if mine is not None and not mine.issuperset(indexes):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NodeSetBase):
            return NotImplemented
        return self._patterns == other._patterns

    __hash__ = None  # type: ignore[assignment]

    def _compared(self, other: object) -> NodeSetBase:
        return NodeSetBase._operand(self, other)

    def __le__(self, other: object) -> bool:
        return self._compared(other)._includes(self)

    def __ge__(self, other: object) -> bool:
        return self._includes(self._compared(other))

    def __lt__(self, other: object) -> bool:
        other = self._compared(other)
        return other._includes(self) and len(self) < len(other)

    def __gt__(self, other: object) -> bool:
        other = self._compared(other)
        return self._includes(other) and len(self) > len(other)

    # Combination.

    def update(self, other: object) -> None:
        """Adds the nodes of `other`."""
        for pattern, indexes in self._operand(other)._patterns.items():
            mine = self._patterns.get(pattern)
            if mine is not None:
                mine.update(cast("Any", indexes))
            elif pattern not in self._patterns:
                self._patterns[pattern] = self._stepped(indexes)

    def add(self, other: object) -> None:
        """Adds the nodes of `other`."""
        self.update(other)

    def updaten(self, others: Iterable[object]) -> None:
        """Adds the nodes of several sets."""
        for other in others:
            self.update(other)

    def intersection_update(self, other: object) -> None:
        """Keeps only the nodes that are also in `other`."""
        theirs = self._operand(other)
        if theirs is self:
            return
        for pattern, mine in list(self._patterns.items()):
            if pattern not in theirs._patterns:
                del self._patterns[pattern]
            elif mine is not None:
                mine.intersection_update(cast("Any", theirs._patterns[pattern]))
                if not mine:
                    del self._patterns[pattern]

    def difference_update(self, other: object, strict: bool = False) -> None:
        """Removes the nodes of `other`.

        Raises:
            KeyError: with `strict`, one of them is not in the set, which stays as it is.
        """
        theirs = self._operand(other)
        if strict and not self._includes(theirs):
            missing = theirs.copy()
            missing.difference_update(self)
            raise KeyError(str(missing))
        if theirs is self:
            self._patterns.clear()
            return
        for pattern, indexes in theirs._patterns.items():
            if pattern not in self._patterns:
                continue
            mine = self._patterns[pattern]
            if mine is not None:
                mine.difference_update(cast("Any", indexes))
            if not mine:
                del self._patterns[pattern]

    def symmetric_difference_update(self, other: object) -> None:
        """Keeps the nodes that are in exactly one of this set and `other`."""
        theirs = self._operand(other)
        if theirs is self:
            self._patterns.clear()
            return
        for pattern, indexes in theirs._patterns.items():
            if pattern not in self._patterns:
                self._patterns[pattern] = self._stepped(indexes)
                continue
            mine = self._patterns[pattern]
            if mine is not None:
                mine.symmetric_difference_update(cast("Any", indexes))
            if not mine:
                del self._patterns[pattern]

    def remove(self, elem: object) -> None:
        """Removes the nodes of `elem`.

        Raises:
            KeyError: one of them is not in the set.
        """
        self.difference_update(elem, strict=True)

    def clear(self) -> None:
        """Removes all nodes."""
        self._patterns = {}

    def _is_set(self, other: object) -> bool:
        return isinstance(other, NodeSetBase)

    def _is_set_in_place(self, other: object) -> bool:
        return self._is_set(self._compared(other))


# Parsing.


def _plain(text: str, autostep: float) -> tuple[str, Indexes] | None:
    """Pattern and indexes of a name with at most one index, None if it needs another look."""
    match = _PLAIN.fullmatch(text)
    if not match:
        return None
    head, ranges, number, tail = match.groups()
    if number is not None:
        return f"{head}%s{tail}", RangeSet._of(penstock.IDset(int(number)), autostep)
    if ranges is not None:
        try:
            return f"{head}%s{tail}", RangeSet._of(penstock.IDset(ranges), autostep)
        except IdsetError:
            return None
    return (head, None) if head else None


def _parse_index(lead: str, ranges: str, trail: str, text: str) -> RangeSet:
    """The indexes of a bracket with digits before and behind it."""
    indexes = RangeSet(ranges)
    if trail:
        if "/" in ranges:
            raise NodeSetParseError(text, "illegal use of bracket and step with trailing digits")
        step = 10 ** len(trail)
        parts = (
            run.text().split("-") if run.start >= 0 else [run.text()] for run in indexes._runs()
        )
        indexes = RangeSet(
            ",".join(
                f"{part[0]}{trail}-{part[-1]}{trail}/{step}" if len(part) > 1 else part[0] + trail
                for part in parts
            )
        )
    if lead:
        parts = (run.text().split("-") for run in indexes._runs())
        indexes = RangeSet(",".join("-".join(f"{lead}{end}" for end in part) for part in parts))
    return indexes


def _parse_name(text: str, autostep: float) -> tuple[str, Indexes]:
    """Pattern and indexes of a text without operators and groups.

    Raises:
        NodeSetParseError: it is no name.
        NodeSetParseRangeError: it has a bracket that is no set of indexes.
    """
    plain = _plain(text, autostep)
    if plain:
        return plain
    if not text:
        raise NodeSetParseError(text, "empty node name")
    pieces: list[str] = []
    axes: list[RangeSet] = []
    end = 0
    try:
        for match in _INDEX.finditer(text):
            before = text[end : match.start()]
            if axes and not before:
                raise NodeSetParseError(text, "illegal reopening bracket")
            pieces += [before.replace("%", "%%"), "%s"]
            if match[4] is None:
                axes.append(_parse_index(match[1], match[2], match[3], text))
            else:
                axes.append(RangeSet(match[4]))
            end = match.end()
    except RangeSetException as error:
        raise NodeSetParseRangeError(error) from error
    pieces.append(text[end:].replace("%", "%%"))
    pattern = "".join(pieces)
    if "[" in pattern or "]" in pattern:
        raise NodeSetParseError(text, "missing or unbalanced bracket")
    for rangeset in axes:
        rangeset._autostep = autostep
    if not axes:
        return pattern, None
    if len(axes) == 1:
        return pattern, axes[0]
    indexes = RangeSetND([axes], copy_rangeset=False)
    indexes._autostep = autostep
    return pattern, indexes


def _operands(text: str) -> Iterator[tuple[str, str]]:
    """The operands of a text, each with its operator.

    Raises:
        NodeSetParseError: an operand is empty, or a bracket is not closed.
    """
    operator = ","
    at = 0
    while True:
        match = _OPERAND.match(text, at)
        if not match:
            raise NodeSetParseError(text, "missing bracket")
        operand = match[1].strip()
        if not operand:
            raise NodeSetParseError(text, "empty node name")
        yield operator, operand
        operator = match[2]
        if not operator:
            return
        at = match.end()


class ParsingEngine:
    """Parses texts, and asks a resolver for the groups in them.

    Args:
        group_resolver: Resolver; None to read no groups.
        node_wildcard_enable: Whether names with `*` or `?` stand for all nodes that match.
    """

    OP_CODES = _OPERATIONS

    def __init__(
        self, group_resolver: GroupResolver | None, node_wildcard_enable: bool = True
    ) -> None:
        self.group_resolver = group_resolver
        self.node_wildcard_enable = node_wildcard_enable
        self._resolving: set[tuple[str | None, str]] = set()

    def parse(self, nsobj: object, autostep: float | None) -> NodeSetBase:
        """A text, a set or None as a set.

        Raises:
            NodeSetParseError: a text is no node set.
            TypeError: `nsobj` is of another type.
        """
        if isinstance(nsobj, NodeSetBase):
            return nsobj
        if nsobj is None:
            return NodeSetBase(autostep=autostep)
        if isinstance(nsobj, str):
            return self.parse_string(nsobj, autostep)
        raise TypeError(f"Unsupported NodeSet input {type(nsobj)}")

    def parse_string(
        self, nsstr: str, autostep: float | None, namespace: str | None = None
    ) -> NodeSetBase:
        """A text as a set, with groups of the source `namespace`."""
        nodes = NodeSetBase(autostep=autostep)
        if not nsstr.strip():
            return nodes
        for operator, operand in _operands(nsstr):
            part = self._parse_operand(operand, autostep, namespace)
            if operator == ",":
                nodes.update(part)
            else:
                getattr(nodes, _OPERATIONS[operator])(part)
        return nodes

    def parse_string_single(self, nsstr: str, autostep: float | None) -> NodeSetBase:
        """A text without operators and groups as a set."""
        pattern, indexes = _parse_name(nsstr.strip(), _steps(autostep))
        return NodeSetBase(pattern, indexes, copy_rangeset=False, autostep=autostep)

    def _parse_operand(
        self, text: str, autostep: float | None, namespace: str | None
    ) -> NodeSetBase:
        if self.group_resolver is not None:
            if text[0] == "@":
                return self._parse_group(text, autostep, namespace)
            if self.node_wildcard_enable and _WILDCARD.search(text):
                return self._match(text, autostep, namespace)
        return self.parse_string_single(text, autostep)

    def _match(self, text: str, autostep: float | None, namespace: str | None) -> NodeSetBase:
        """The nodes of the source that match a name with wildcards."""
        names = list(self._all_nodes(namespace))
        found: set[str] = set()
        for mask in self.parse_string_single(text, None):
            found.update(fnmatch.filter(names, mask))
        nodes = NodeSetBase(autostep=autostep)
        for name in found:
            nodes.update(self.parse_string_single(name, autostep))
        return nodes

    def _parse_group(self, text: str, autostep: float | None, namespace: str | None) -> NodeSetBase:
        if text.startswith("@@"):
            return self._parse_names_of_groups(text[2:], autostep, namespace)
        nodes = NodeSetBase(autostep=autostep)
        for name in self.parse_string_single(text[1:], None):
            source, colon, group = name.partition(":")
            if not colon:
                source, group = namespace or "", name
            nodes.update(self._group(group, source or namespace, autostep))
        return nodes

    def _parse_names_of_groups(
        self, sources: str, autostep: float | None, namespace: str | None
    ) -> NodeSetBase:
        assert self.group_resolver is not None
        nodes = NodeSetBase(autostep=autostep)
        for source in self.parse_string_single(sources, None) if sources else [namespace]:
            for name in _external(self.group_resolver.grouplist, source):
                nodes.update(self.parse_string(name, autostep, source))
        return nodes

    def _group(self, group: str, namespace: str | None, autostep: float | None) -> NodeSetBase:
        assert self.group_resolver is not None
        key = namespace, group
        if key in self._resolving:
            raise NodeSetParseError(f"@{group}", "group recursion detected")
        self._resolving.add(key)
        try:
            if group == "*":
                return self.all_nodes(namespace)
            nodes = NodeSetBase(autostep=autostep)
            for text in _external(self.group_resolver.group_nodes, group, namespace):
                nodes.update(self.parse_string(text, autostep, namespace))
            return nodes
        finally:
            self._resolving.discard(key)

    def parse_group(
        self, group: str, namespace: str | None = None, autostep: float | None = None
    ) -> NodeSetBase:
        """The nodes of a group."""
        return self._group(group, namespace, autostep)

    def grouplist(self, namespace: str | None = None) -> list[str]:
        """The names of the groups of a source, expanded and sorted."""
        assert self.group_resolver is not None
        names = NodeSetBase()
        for name in self.group_resolver.grouplist(namespace):
            names.update(self.parse_string_single(name, None))
        return list(names)

    def all_nodes(self, namespace: str | None = None) -> NodeSetBase:
        """All nodes of a source.

        Raises:
            NodeSetExternalError: the source does not know them.
        """
        nodes = NodeSetBase()
        for name in self._all_nodes(namespace):
            nodes.update(self.parse_string_single(name, None))
        return nodes

    def _all_nodes(self, namespace: str | None) -> NodeSetBase:
        if self.group_resolver is None:
            raise NodeSetExternalError("Group resolver disabled")
        # Names with wildcards in the answer are names.
        literal = ParsingEngine(self.group_resolver, node_wildcard_enable=False)
        literal._resolving = self._resolving
        nodes = NodeSetBase()
        try:
            texts = self.group_resolver.all_nodes(namespace)
        except GroupSourceNoUpcall:
            try:
                for group in self.grouplist(namespace):
                    nodes.update(literal._group(group, namespace, None))
            except GroupSourceNoUpcall:
                raise NodeSetExternalError(
                    "Not enough working methods (all or map + list) to get all nodes"
                ) from None
            except GroupSourceError as error:
                raise NodeSetExternalError(f"Failed to get all nodes: {error}") from error
        except GroupSourceError as error:
            raise NodeSetExternalError(f"Unable to get all nodes: {error}") from error
        else:
            for text in texts:
                nodes.update(literal.parse_string(text, None, namespace))
        return nodes


def _external(call: Callable[..., Any], *args: object) -> Any:
    """The result of a call whose errors of sources become `NodeSetExternalError`."""
    try:
        return call(*args)
    except GroupSourceError as error:
        message = f"{type(error).__name__}: {error}"
        raise NodeSetExternalError(message) from error


def _steps(autostep: float | None) -> float:
    return AUTOSTEP_DISABLED if autostep is None else autostep


def _checked_autostep(autostep: float | str | None) -> float | None:
    """A least number of indexes, also as a text; `AUTOSTEP_DISABLED` and None as they are."""
    return autostep if autostep in (None, AUTOSTEP_DISABLED) else int(autostep)


def _default_resolver() -> GroupResolver:
    return GroupResolverConfig(config_paths("groups.conf"), illegal_chars=ILLEGAL_GROUP_CHARS)


RESOLVER_STD_GROUP: GroupResolver = _default_resolver()
"""The resolver of sets that are given none."""


def std_group_resolver() -> GroupResolver:
    """The resolver of sets that are given none."""
    return RESOLVER_STD_GROUP


def set_std_group_resolver(new_resolver: GroupResolver | None) -> None:
    """Sets the resolver of sets that are given none; None for that of the default files."""
    global RESOLVER_STD_GROUP
    RESOLVER_STD_GROUP = new_resolver or _default_resolver()


def set_std_group_resolver_config(
    groupsconf: str, illegal_chars: Iterable[str] | None = None
) -> None:
    """Sets the resolver of sets that are given none to that of a `groups.conf`."""
    set_std_group_resolver(GroupResolverConfig(groupsconf, illegal_chars or ILLEGAL_GROUP_CHARS))


class NodeSet(NodeSetBase):
    """A mutable ordered set of nodes.

    Args:
        nodes: A text such as `node[1-9]!node[3-4],@gpu`, another set, or None.
        autostep: The least number of equally spaced indexes that a text shows with a step.
        resolver: The resolver of groups: `RESOLVER_NOGROUP` for none, None for the standard one.
        fold_axis: The dimensions that a text folds, from 0 on, or from -1 back; None for those of
            `Defaults.DEFAULTS`, or all.

    Raises:
        NodeSetParseError: a text is no node set.
        NodeSetExternalError: a source of groups cannot answer.
        TypeError: `nodes` is of another type.
    """

    __slots__ = ("_resolver",)

    _resolver: GroupResolver | None

    def __init__(
        self,
        nodes: str | NodeSetBase | None = None,
        autostep: float | None = None,
        resolver: Resolver = None,
        fold_axis: object = None,
    ) -> None:
        self._autostep = _checked_autostep(autostep)
        self._patterns = {}
        self.fold_axis = fold_axis if fold_axis is not None else DEFAULTS.fold_axis or None
        self._resolver = _resolver(resolver)
        if nodes is not None:
            if isinstance(nodes, str):
                self._update_text(nodes)
            else:
                self.update(nodes)

    def _update_text(self, text: str) -> None:
        steps = AUTOSTEP_DISABLED if self._autostep is None else self._autostep
        plain = _plain(text, steps)
        if not plain:
            nodes = ParsingEngine(self._resolver).parse_string(text, self._autostep)
            if self._patterns:
                super().update(nodes)
            else:
                self._patterns = nodes._patterns
            return
        pattern, indexes = plain
        mine = self._patterns.get(pattern)
        if mine is None:
            self._patterns[pattern] = indexes
        else:
            mine.update(cast("Any", indexes))

    def _empty(self) -> Self:
        made = super()._empty()
        made._resolver = self._resolver
        return made

    def _operand(self, other: object) -> NodeSetBase:
        if isinstance(other, NodeSetBase):
            return other
        if isinstance(other, str) and (plain := _plain(other, _steps(self._autostep))):
            nodes = NodeSetBase(autostep=self._autostep)
            nodes._patterns[plain[0]] = plain[1]
            return nodes
        return ParsingEngine(self._resolver).parse(other, self._autostep)

    @classmethod
    def fromlist(
        cls,
        nodelist: Iterable[object],
        autostep: float | None = None,
        resolver: Resolver = None,
    ) -> Self:
        """The union of texts and sets."""
        made = cls(autostep=autostep, resolver=resolver)
        made.updaten(nodelist)
        return made

    @classmethod
    def _fromlist1(
        cls,
        nodelist: Iterable[str],
        autostep: float | None = None,
        resolver: Resolver = None,
    ) -> Self:
        """The set of texts without operators and groups."""
        made = cls(autostep=autostep, resolver=resolver)
        engine = ParsingEngine(None)
        for text in nodelist:
            made.update(engine.parse_string_single(text, autostep))
        return made

    @classmethod
    def fromall(
        cls,
        groupsource: str | None = None,
        autostep: float | None = None,
        resolver: Resolver = None,
    ) -> Self:
        """All nodes of a source of groups.

        Raises:
            NodeSetExternalError: the source does not know them, or there is none.
        """
        made = cls(autostep=autostep, resolver=resolver)
        try:
            made.update(ParsingEngine(made._resolver)._all_nodes(groupsource))
        except GroupResolverSourceError as error:
            raise NodeSetExternalError(f"Group source not found: {error}") from error
        return made

    def update(self, other: object) -> None:
        """Adds the nodes of a text or set."""
        if isinstance(other, str):
            self._update_text(other)
        else:
            super().update(other)

    def split(self, nbr: int) -> Iterator[Self]:
        """At most `nbr` parts of nearly equal size, none of them empty."""
        assert nbr > 0
        size, larger = divmod(len(self), nbr)
        start = 0
        for number in range(min(nbr, len(self))):
            stop = start + size + (number < larger)
            yield self[start:stop]
            start = stop

    def pick(self, count: int) -> Self:
        """At most `count` nodes at random."""
        made = self._empty()
        for cut in RangeSet(range(len(self))).pick(count).slices():
            made.update(self[cut])
        return made

    # Groups.

    def _engine(self) -> ParsingEngine:
        if self._resolver is None:
            raise NodeSetExternalError("Group resolver disabled")
        return ParsingEngine(self._resolver)

    def _groups(self, namespace: str | None) -> dict[str, NodeSetBase]:
        """The groups with a node of this set, in order of their names."""
        engine = self._engine()
        resolver = cast("GroupResolver", self._resolver)
        try:
            names = engine.grouplist(namespace)
        except GroupSourceError:
            # Without a list, the set has the groups that the source knows of its nodes, if any.
            names = []
        if resolver.has_node_groups(namespace) and (not names or len(self) <= len(names)):
            found = {name for node in self for name in resolver.node_groups(node, namespace)}
            names = list(self._fromlist1(found, resolver=RESOLVER_NOGROUP))
        groups: dict[str, NodeSetBase] = {}
        for name in names:
            nodes = engine.parse_group(name, namespace)
            if any(pattern in self._patterns for pattern in nodes._patterns):
                groups[name] = nodes
        return groups

    def groups(
        self, groupsource: str | None = None, noprefix: bool = False
    ) -> dict[str, tuple[NodeSet, NodeSet]]:
        """The groups that have nodes of this set.

        Args:
            groupsource: The source to ask; None for the default one.
            noprefix: Write `@group`, not `@source:group`.

        Returns:
            For each group all its nodes, and those of this set.

        Raises:
            NodeSetExternalError: the source cannot answer.
        """
        prefix = f"@{groupsource}:" if groupsource and not noprefix else "@"
        found: dict[str, tuple[NodeSet, NodeSet]] = {}
        for name, nodes in _external(self._groups, groupsource).items():
            whole = NodeSet(nodes, resolver=self._resolver or RESOLVER_NOGROUP)
            inside = whole & self
            if inside:
                found[f"{prefix}{name}"] = whole, inside
        return found

    def regroup(
        self,
        groupsource: str | None = None,
        autostep: float | None = None,
        overlap: bool = False,
        noprefix: bool = False,
    ) -> str:
        """A text with groups in place of their nodes, the largest groups first.

        Args:
            groupsource: The source to ask; None for the default one.
            autostep: As of the class.
            overlap: Use each group whose nodes are all in the set, even those of another group.
            noprefix: Write `@group`, not `@source:group`.

        Raises:
            NodeSetExternalError: the source cannot answer.
        """
        try:
            groups = self._groups(groupsource)
        except GroupSourceNoUpcall:
            groups = {}
        except GroupSourceError as error:
            raise NodeSetExternalError(f"{type(error).__name__}: {error}") from error
        rest = self.copy()
        names = []
        largest_first = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        for name, nodes in largest_first:
            if nodes and (self if overlap else rest)._includes(nodes):
                names.append(name)
                rest.difference_update(nodes)
        prefix = f"@{groupsource}:" if groupsource and not noprefix else "@"
        if autostep is not None:
            rest.autostep = autostep
        found = self._fromlist1(
            [f"{prefix}{name}" for name in names], autostep=autostep, resolver=RESOLVER_NOGROUP
        )
        return ",".join(str(part) for part in (found, rest) if part)

    def __getstate__(self) -> dict[str, object]:
        return {
            "_patterns": self._patterns,
            "_autostep": self._autostep,
            "fold_axis": self.fold_axis,
            "_version": 2,
        }

    def __setstate__(self, dic: dict[str, Any]) -> None:
        """Restores what this module or ClusterShell has pickled."""
        self._autostep = dic.get("_autostep")
        self.fold_axis = dic.get("fold_axis")
        self._patterns = {}
        self._resolver = _resolver(None)
        engine = ParsingEngine(None)
        for pattern, indexes in dic["_patterns"].items():
            if isinstance(indexes, RangeSet) and re.search(r"[0-9\[]", pattern):
                # Before 1.7, only one dimension was of indexes.
                text = pattern % _bracketed(indexes)
                super().update(engine.parse_string_single(text, self._autostep))
            else:
                self._add(pattern, indexes)


def _resolver(resolver: Resolver) -> GroupResolver | None:
    if resolver is None:
        return RESOLVER_STD_GROUP
    return None if isinstance(resolver, int) else resolver


def expand(pat: str) -> list[str]:
    """The names of a text."""
    return list(NodeSet(pat))


def fold(pat: str) -> str:
    """The folded text of a text."""
    return str(NodeSet(pat))


def grouplist(namespace: str | None = None, resolver: GroupResolver | None = None) -> list[str]:
    """The names of the groups of a source, expanded and sorted."""
    return ParsingEngine(_resolver(resolver)).grouplist(namespace)
