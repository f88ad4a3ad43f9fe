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
from penstock.errors import IdsetError, ResourceSetError

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
        arg: An R as a JSON text or an object; without one the set is empty. It need not have
            `nodelist`: then its nodes have no hosts.
        version: Of R, which is 1.
        keep_scheduling: Keep the key `scheduling` of the R, which is left out otherwise.

    Raises:
        TypeError: `arg` is of another type; a `ResourceSet` has `copy`.
        json.JSONDecodeError, KeyError, ValueError: `arg` is not JSON, has no `version`, or is not
            an R; the last names the place in it.
    """

    __slots__ = ("_set", "_unnamed", "scheduling", "state")
    __hash__ = None  # type: ignore[assignment]

    state: str | None
    """A label for the program's own use, such as `"up"`; None at first."""
    scheduling: Any
    """The value of the R's key `scheduling`, which is not interpreted; None if there is none."""

    def __init__(
        self,
        arg: str | Mapping[str, Any] | None = None,
        version: int = 1,
        keep_scheduling: bool = False,
    ) -> None:
        if version != 1:
            raise ValueError(f"R version {version} not supported")
        if arg is not None and not isinstance(arg, str | Mapping):
            raise TypeError(f"ResourceSet cannot be instantiated from {type(arg)}")
        self.state = self.scheduling = None
        # The ranks whose host is a placeholder, since the R has none.
        self._unnamed = penstock.IDset()
        try:
            self._set = penstock.ResourceSet(arg)
        except ResourceSetError as error:
            self._set, self._unnamed = _incomplete(arg, error)
        if self._set.scheduling is not None:
            document = self._set.to_dict()
            scheduling = document.pop("scheduling")
            self._set = ResourceSet(document)._set
            self.scheduling = scheduling if keep_scheduling else None

    @property
    def impl(self) -> Self:
        """The set itself, where Flux has an object for each version of R."""
        return self

    def _like(self, resources: penstock.ResourceSet, unnamed: penstock.IDset | None = None) -> Self:
        """A set of `resources`, which it may keep."""
        made = self.__class__.__new__(self.__class__)
        made._set = resources
        made._unnamed = (self._unnamed if unnamed is None else unnamed).copy()
        made.scheduling = self.scheduling
        made.state = self.state
        return made

    def _without_hosts(self) -> penstock.IDset:
        """The ranks whose host is not known."""
        return self._unnamed & self._set.ranks

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
        """The R as a JSON text, RFC 20; without `nodelist` if the host of a node is not known."""
        if self.scheduling is None and not self._unnamed:
            return self._set.to_json()
        return json.dumps(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The R as an object, RFC 20; without `nodelist` if the host of a node is not known."""
        document: dict[str, Any] = self._set.to_dict()
        if self._without_hosts():
            del document["execution"]["nodelist"]
        if self.scheduling is not None:
            document["scheduling"] = self.scheduling
        return document

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
        """The hosts that are known, in the order of their ranks, as a copy."""
        unnamed = self._without_hosts()
        named = self._set.restrict(ranks=self._set.ranks - unnamed) if unnamed else self._set
        return Hostlist(named.nodelist)

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
        self._set, self._unnamed = self._folded(penstock.ResourceSet.union, args)
        return self

    def union(self, *args: Resources) -> Self:
        """A new set with the resources of this one and of all `args`.

        Raises:
            ValueError: a rank has different hosts.
        """
        return self._like(*self._folded(penstock.ResourceSet.union, args))

    def diff(self, *args: Resources) -> Self:
        """A new set with the cores and gpus of this one that none of `args` has."""
        return self._like(*self._folded(penstock.ResourceSet.difference, args))

    def intersect(self, *args: Resources) -> Self:
        """A new set with the cores and gpus of this one that all of `args` have."""
        return self._like(*self._folded(penstock.ResourceSet.intersection, args))

    __or__ = union
    __sub__ = diff
    __and__ = intersect

    def _folded(
        self,
        operation: Callable[[penstock.ResourceSet, penstock.ResourceSet], penstock.ResourceSet],
        args: tuple[Resources, ...],
    ) -> tuple[penstock.ResourceSet, penstock.IDset]:
        resources = self._set if args else self._set.copy()
        unnamed = self._without_hosts()
        for arg in args:
            other = arg if isinstance(arg, ResourceSet) else ResourceSet(arg)
            right, right_unnamed = other._set, other._without_hosts()
            if unnamed or right_unnamed:
                # A host that one of the sets knows is that of both.
                right = _with_hosts(right, right_unnamed - unnamed, resources)
                resources = _with_hosts(resources, unnamed - right_unnamed, right)
                known = (resources.ranks - unnamed) | (right.ranks - right_unnamed)
                unnamed = (unnamed | right_unnamed) - known
            try:
                resources = operation(resources, right)
            except ResourceSetError as error:
                raise ValueError(str(error)) from error
        return resources, unnamed


def _incomplete(
    arg: str | Mapping[str, Any] | None, error: ResourceSetError
) -> tuple[penstock.ResourceSet, penstock.IDset]:
    """Reads an R that lacks what RFC 20 requires and Flux does not: `execution`, or its `nodelist`.

    Returns:
        The resources, and the ranks whose host is a placeholder.
    """
    document = json.loads(arg) if isinstance(arg, str) else arg
    if isinstance(document, Mapping):
        if document["version"] != 1:
            raise ValueError(f"R version {document['version']} not supported") from error
        if set(document) == {"version"}:
            return penstock.ResourceSet(), penstock.IDset()
        execution = document.get("execution")
        if isinstance(execution, Mapping):
            try:
                return _completed(document, execution)
            except (KeyError, TypeError, IdsetError, ResourceSetError):
                pass  # the error of the document as it is says more
    raise ValueError(str(error)) from error


def _completed(
    document: Mapping[str, Any], execution: Mapping[str, Any]
) -> tuple[penstock.ResourceSet, penstock.IDset]:
    """Reads an R after adding what may be missing: the cores of nodes, and all hosts."""
    entries = [
        {**entry, "children": {"core": "", **entry["children"]}} for entry in execution["R_lite"]
    ]
    unnamed = penstock.IDset()
    whole = {**execution, "R_lite": entries}
    if "nodelist" not in execution:
        unnamed = penstock.IDset().union(*(entry["rank"] for entry in entries))
        whole["nodelist"] = [_placeholder_hosts(unnamed)] if unnamed else []
    return penstock.ResourceSet({**document, "execution": whole}), unnamed


def _placeholder_hosts(ranks: penstock.IDset) -> str:
    """Hosts that do not exist: their domain is reserved (RFC 2606)."""
    return f"rank[{ranks}].invalid"


def _with_hosts(
    resources: penstock.ResourceSet, ranks: penstock.IDset, source: penstock.ResourceSet
) -> penstock.ResourceSet:
    """The resources with the hosts that `source` has for some of their ranks."""
    known = source.restrict(ranks=ranks)
    if not known.nnodes:
        return resources
    hosts = dict(zip(resources.ranks, resources.nodelist, strict=True))
    hosts |= dict(zip(known.ranks, known.nodelist, strict=True))
    document = resources.to_dict()
    document["execution"]["nodelist"] = [str(penstock.Hostlist(list(hosts.values())))]
    return penstock.ResourceSet(document)


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
    if isinstance(values, str) and operator in {"hostlist", "ranks"}:
        values = [values]
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"{operator!r} operand must be a list, got {values!r}")  # noqa: TRY004
    if not values and operator in {"or", "not"}:
        raise ValueError(f"{operator!r} operand must be a non-empty list, got {values!r}")
    return _OPERATORS[operator](resources, values)


def _with_properties(resources: penstock.ResourceSet, names: Sequence[Any]) -> penstock.IDset:
    ranks, properties = resources.ranks, resources.properties
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"a property is a string, not {type(name)}: {name!r}")  # noqa: TRY004
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
