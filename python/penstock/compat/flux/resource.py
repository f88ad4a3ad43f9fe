"""`flux.resource.ResourceSet` over `penstock.ResourceSet`: *R*, RFC 20.

Example:
    >>> from penstock.compat.flux.resource import ResourceSet
    >>> resources = ResourceSet({
    ...     "version": 1,
    ...     "execution": {
    ...         "R_lite": [{"rank": "0-3", "children": {"core": "0-7"}}],
    ...         "nodelist": ["node[0-3]"],
    ...         "properties": {"batch": "0-1"},
    ...     },
    ... })
    >>> print(resources, resources.ncores)
    rank[0-3]/core[0-7] 32
    >>> print(resources.copy_constraint({"properties": ["batch"]}).nodelist)
    node[0-1]

The other names of `flux.resource` need an instance, or are parts of Flux's own scheduler; they
raise `NotImplementedError` with a hint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import penstock
from penstock.compat.flux.hostlist import Hostlist, _hosts
from penstock.compat.flux.idset import Ids, IDset, _ids
from penstock.errors import ResourceSetError

if TYPE_CHECKING:
    from penstock.compat.flux.hostlist import Hosts

__all__ = ["ResourceSet"]

_POOL = "use an instance, which allocates: penstock start runs one"
_CLIENT = "penstock.client.Client talks to an instance"
_ELSEWHERE = {
    "InfeasibleRequest": _POOL,
    "InsufficientResources": _POOL,
    "ResourceCount": _POOL,
    "ResourceJournalConsumer": _CLIENT,
    "ResourceJournalEvent": _CLIENT,
    "ResourcePool": _POOL,
    "ResourcePoolImplementation": _POOL,
    "ResourceRequest": _POOL,
    "ResourceSetImplementation": "use ResourceSet, or penstock.ResourceSet",
    "ResourceStatus": _CLIENT,
    "Rv1Pool": _POOL,
    "Rv1Set": "use ResourceSet, or penstock.ResourceSet",
    "SchedResourceList": _CLIENT,
    "resource_list": _CLIENT,
    "resource_status": _CLIENT,
}

Resources: TypeAlias = "ResourceSet | str | Mapping[str, Any] | None"
"""The types that a set's operators accept: another set, or an R as text or object."""


def __getattr__(name: str) -> NoReturn:
    if hint := _ELSEWHERE.get(name):
        raise NotImplementedError(f"flux.resource.{name} is not part of penstock.compat: {hint}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ResourceSet:
    """Which cores and gpus of which execution targets.

    Args:
        arg: An R as a JSON text or an object; without one the set is empty.
        version: Of R, which is 1.

    Raises:
        TypeError: `arg` is of another type; a `ResourceSet` has `copy`.
        json.JSONDecodeError, KeyError, ValueError: `arg` is not JSON, has no `version`, or is not
            an R; the last names the place in it.
    """

    __slots__ = ("_set", "state")
    __hash__ = None  # type: ignore[assignment]

    state: str | None
    """A label for the program's own use, such as `"up"`; None at first."""

    def __init__(self, arg: str | Mapping[str, Any] | None = None, version: int = 1) -> None:
        if version != 1:
            raise ValueError(f"R version {version} not supported")
        if arg is not None and not isinstance(arg, str | Mapping):
            raise TypeError(f"ResourceSet cannot be instantiated from {type(arg)}")
        try:
            self._set = penstock.ResourceSet(arg)
        except ResourceSetError as error:
            self._set = _without_execution(arg, error)
        self.state = None

    def _like(self, resources: penstock.ResourceSet) -> Self:
        """A set of `resources`, which it may keep."""
        made = self.__class__.__new__(self.__class__)
        made._set = resources
        made.state = self.state
        return made

    def __str__(self) -> str:
        return self._set.summary()

    def __repr__(self) -> str:
        return f"<ResourceSet {self._set.summary() or 'empty'}>"

    def __eq__(self, other: object) -> bool:
        return self._set == other._set if isinstance(other, ResourceSet) else NotImplemented

    def __copy__(self) -> Self:
        return self._like(self._set.copy())

    def copy(self) -> Self:
        """A set of the same resources, with the same properties and times."""
        return self._like(self._set.copy())

    def dumps(self) -> str:
        """The resources in short, such as `rank[0-3]/core[0-7],gpu[0-1]`."""
        return self._set.summary()

    def encode(self) -> str:
        """The R as a JSON text, RFC 20."""
        return self._set.to_json()

    def to_dict(self) -> dict[str, Any]:
        """The R as an object, RFC 20."""
        return self._set.to_dict()

    @property
    def rlist(self) -> str:
        """The resources in short, as `dumps` gives them."""
        return self._set.summary()

    @property
    def ranks(self) -> IDset:
        """The execution targets, as a copy."""
        return IDset(self._set.ranks)

    @property
    def nodelist(self) -> Hostlist:
        """The hosts in the order of their ranks, as a copy."""
        return Hostlist(self._set.nodelist)

    @property
    def nnodes(self) -> int:
        """The number of execution targets."""
        return self._set.nnodes

    @property
    def ncores(self) -> int:
        """The number of cores."""
        return self._set.ncores

    @property
    def ngpus(self) -> int:
        """The number of gpus."""
        return self._set.ngpus

    def count(self, name: str) -> int:
        """The number of cores (`"core"`) or gpus (`"gpu"`); 0 for any other name."""
        if name == "core":
            return self._set.ncores
        return self._set.ngpus if name == "gpu" else 0

    @property
    def starttime(self) -> float:
        """The start time, in seconds since the epoch; 0.0 if unset."""
        return self._set.starttime or 0.0

    @starttime.setter
    def starttime(self, starttime: float) -> None:
        self._set.starttime = starttime or None

    @property
    def expiration(self) -> float:
        """The expiration, in seconds since the epoch; 0.0 if unset."""
        return self._set.expiration or 0.0

    @expiration.setter
    def expiration(self, expiration: float) -> None:
        self._set.expiration = expiration or None

    @property
    def properties(self) -> str:
        """The names of the properties, separated by commas."""
        return ",".join(self._set.properties)

    def get_properties(self) -> str:
        """A JSON object with the ranks of each property."""
        return json.dumps({name: str(ranks) for name, ranks in self._set.properties.items()})

    def set_property(self, name: str, ranks: Ids | None = None) -> None:
        """Gives ranks a property.

        Args:
            name: The property.
            ranks: Which ranks; without them, all.

        Raises:
            ValueError: a rank is not in the set, or the name is not one that RFC 20 allows.
        """
        own = self._set.ranks
        chosen = own if ranks is None else _ids(ranks)
        if missing := chosen - own:
            raise ValueError(f"ranks {missing} not in resource set")
        try:
            self._set.add_property(name, chosen)
        except ResourceSetError as error:
            raise ValueError(str(error)) from error

    def host_ranks(self, hosts: Hosts, ignore_nomatch: bool = False) -> list[int]:
        """The ranks of hosts.

        Args:
            hosts: The hosts, in the order of which the ranks come.
            ignore_nomatch: Pass over hosts that are not in the set.

        Raises:
            FileNotFoundError: a host is not in the set.
        """
        wanted, known = _hosts(hosts), self._set.nodelist
        for host in wanted - known:
            if not ignore_nomatch:
                raise FileNotFoundError(f"host '{host}' not found")
            wanted = penstock.Hostlist([name for name in wanted if name in known])
            break
        return self._set.host_ranks(wanted)

    def copy_ranks(self, ranks: Ids) -> Self:
        """A new set with what these ranks have of this one; ranks that it lacks do not matter."""
        return self._like(self._set.restrict(ranks=_ids(ranks)))

    def remove_ranks(self, ranks: Ids) -> Self:
        """Takes these ranks out, as far as they are there, and returns the set."""
        self._set.remove_ranks(_ids(ranks))
        return self

    def copy_constraint(self, constraint: str | Mapping[str, Any]) -> Self:
        """A new set with the ranks of this one that satisfy a constraint, RFC 31.

        Args:
            constraint: An object such as `{"properties": ["batch"]}`, or its JSON text.

        Raises:
            json.JSONDecodeError: the text is not JSON.
            ValueError: what is given is not a constraint.
        """
        if isinstance(constraint, str):
            constraint = json.loads(constraint)
        return self._like(self._set.restrict(ranks=_matching(self._set, constraint)))

    def append(self, *args: Resources) -> Self:
        """Adds resources to the set, as `add` does, and returns it."""
        return self.add(*args)

    def add(self, *args: Resources) -> Self:
        """Adds resources to the set, and returns it; those of a rank it has are merged.

        Raises:
            ValueError: a rank has another host there; the set is then as it was.
        """
        self._set = self._folded(penstock.ResourceSet.union, args)
        return self

    def union(self, *args: Resources) -> Self:
        """A new set with the resources of this one and of all `args`.

        Raises:
            ValueError: a rank has different hosts.
        """
        return self._like(self._folded(penstock.ResourceSet.union, args))

    def diff(self, *args: Resources) -> Self:
        """A new set with the cores and gpus of this one that none of `args` has."""
        return self._like(self._folded(penstock.ResourceSet.difference, args))

    def intersect(self, *args: Resources) -> Self:
        """A new set with the cores and gpus of this one that all of `args` have."""
        return self._like(self._folded(penstock.ResourceSet.intersection, args))

    __or__ = union
    __sub__ = diff
    __and__ = intersect

    def _folded(
        self,
        operation: Callable[[penstock.ResourceSet, penstock.ResourceSet], penstock.ResourceSet],
        args: tuple[Resources, ...],
    ) -> penstock.ResourceSet:
        resources = self._set if args else self._set.copy()
        for arg in args:
            other = arg if isinstance(arg, ResourceSet) else ResourceSet(arg)
            try:
                resources = operation(resources, other._set)
            except ResourceSetError as error:
                raise ValueError(str(error)) from error
        return resources


def _without_execution(
    arg: str | Mapping[str, Any] | None, error: ResourceSetError
) -> penstock.ResourceSet:
    """Reads an invalid R as Flux does: an empty set if `version` is the only key."""
    document = json.loads(arg) if isinstance(arg, str) else arg
    if isinstance(document, Mapping):
        if document["version"] != 1:
            raise ValueError(f"R version {document['version']} not supported") from error
        if set(document) == {"version"}:
            return penstock.ResourceSet()
    raise ValueError(str(error)) from error


def _matching(resources: penstock.ResourceSet, constraint: object) -> penstock.IDset:
    """The ranks that satisfy a constraint."""
    if not isinstance(constraint, Mapping):
        raise TypeError(f"a constraint is an object, not {type(constraint)}: {constraint!r}")
    operators = list(constraint)
    if not operators or not _OPERATORS.keys() >= set(operators):
        unknown = [name for name in operators if name not in _OPERATORS]
        raise ValueError(f"unknown constraint operator(s): {unknown}")
    if len(operators) > 1:
        raise ValueError(f"a constraint has one operator, got {operators}: put them under 'and'")
    ((operator, values),) = constraint.items()
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"{operator!r} operand must be a list, got {values!r}")  # noqa: TRY004
    if not values and operator in {"or", "not"}:
        raise ValueError(f"{operator!r} operand must be a non-empty list, got {values!r}")
    return _OPERATORS[operator](resources, values)


def _with_properties(resources: penstock.ResourceSet, names: Sequence[Any]) -> penstock.IDset:
    ranks, properties = resources.ranks, resources.properties
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a property is a string, not {type(name)}: {name!r}")
        having = properties.get(name.removeprefix("^"), penstock.IDset())
        if name.startswith("^"):
            ranks -= having
        else:
            ranks &= having
    return ranks


def _on_hosts(resources: penstock.ResourceSet, hosts: Sequence[Any]) -> penstock.IDset:
    return resources.restrict(hosts=_hosts(hosts) & resources.nodelist).ranks


def _of_ranks(resources: penstock.ResourceSet, ranks: Sequence[Any]) -> penstock.IDset:
    return resources.ranks & penstock.IDset().union(*map(_ids, ranks))


def _all(resources: penstock.ResourceSet, constraints: Sequence[Any]) -> penstock.IDset:
    return resources.ranks.intersection(*(_matching(resources, one) for one in constraints))


def _any(resources: penstock.ResourceSet, constraints: Sequence[Any]) -> penstock.IDset:
    return penstock.IDset().union(*(_matching(resources, one) for one in constraints))


def _not_all(resources: penstock.ResourceSet, constraints: Sequence[Any]) -> penstock.IDset:
    return resources.ranks - _all(resources, constraints)


_OPERATORS: Mapping[str, Callable[[penstock.ResourceSet, Sequence[Any]], penstock.IDset]] = {
    "and": _all,
    "hostlist": _on_hosts,
    "not": _not_all,
    "or": _any,
    "properties": _with_properties,
    "ranks": _of_ranks,
}
