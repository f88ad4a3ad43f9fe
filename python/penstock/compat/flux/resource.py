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
from numbers import Integral
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsFloat, TypeAlias

import penstock
from penstock.compat.flux.hostlist import Hostlist, _hosts
from penstock.compat.flux.idset import Ids, IDset, _ids
from penstock.errors import ResourceSetError

if TYPE_CHECKING:
    from penstock.compat.flux.hostlist import Hosts

__all__ = ["ResourceSet", "Rv1Set"]

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


class Rv1Set:
    """The resources of a `ResourceSet`: the `impl` of one, for version 1 of R.

    Args:
        arg: An R as a JSON text or an object; without one the set is empty. It need not have
            `nodelist`: the hosts of its nodes are then `rank0`, `rank1` and so on.
        keep_scheduling: Keep the key `scheduling` of the R, which is left out otherwise.

    Raises:
        TypeError: `arg` is of another type.
        json.JSONDecodeError, KeyError, ValueError: `arg` is not JSON, has no `version`, or is not
            an R; the last names the place in it.
    """

    __slots__ = ("_has_hosts", "_set", "_times", "_unnamed", "scheduling")
    __hash__ = None  # type: ignore[assignment]

    version = 1
    """The version of R."""
    scheduling: Any
    """The value of the R's key `scheduling`, which is not interpreted; None if there is none."""

    def __init__(
        self, arg: str | Mapping[str, Any] | None = None, keep_scheduling: bool = False
    ) -> None:
        if arg is not None and not isinstance(arg, str | Mapping):
            raise TypeError(f"Rv1Set cannot be instantiated from {type(arg)}")
        self.scheduling = None
        # The ranks whose host is a placeholder, since the R has none.
        self._unnamed = penstock.IDset()
        # The start time and expiration that R cannot have by RFC 20, in place of the set's.
        self._times: tuple[float, float] | None = None
        try:
            self._set = penstock.ResourceSet(arg)
            self._has_hosts = self._set.nnodes > 0
        except ResourceSetError as error:
            self._complete(arg, error)
        if self._set.scheduling is not None:
            document = self._set.to_dict()
            scheduling = document.pop("scheduling")
            self._set = penstock.ResourceSet(document)
            self.scheduling = scheduling if keep_scheduling else None

    def _complete(self, arg: str | Mapping[str, Any] | None, error: ResourceSetError) -> None:
        """Reads an R that RFC 20 does not allow and Flux accepts.

        Raises:
            ValueError: Flux rejects it, too.
        """
        document = json.loads(arg) if isinstance(arg, str) else arg
        if not isinstance(document, Mapping):
            raise ValueError(str(error)) from error  # noqa: TRY004
        if document["version"] != 1:
            raise ValueError(f"R version {document['version']} not supported") from error
        try:
            execution = _completed(document.get("execution", {}))
            times = execution.pop("starttime"), execution.pop("expiration")
            self._unnamed = execution.pop("unnamed")
            self._has_hosts = execution.pop("has_hosts")
            self._set = penstock.ResourceSet({**document, "execution": execution})
        except (AttributeError, KeyError, TypeError, ValueError, ResourceSetError):
            # The error of the document as it is says more.
            raise ValueError(str(error)) from error
        self._put_times(*times)

    def _put_times(self, starttime: float, expiration: float) -> None:
        self._set.starttime = self._set.expiration = self._times = None
        try:
            self._set.starttime = starttime or None
            self._set.expiration = expiration or None
        except ResourceSetError:
            self._set.starttime = self._set.expiration = None
            self._times = starttime, expiration

    def _like(self, resources: penstock.ResourceSet) -> Self:
        """A set of `resources`, which it may keep."""
        made = self.__class__.__new__(self.__class__)
        made._set = resources
        made._unnamed = self._unnamed.copy()
        made._has_hosts = self._has_hosts
        made._times = self._times
        made.scheduling = self.scheduling
        return made

    def _without_hosts(self) -> penstock.IDset:
        """The ranks whose host is not known."""
        return self._unnamed & self._set.ranks

    def _adopt(self, other: Self) -> None:
        """Takes over the resources of another set, and keeps the key `scheduling`."""
        self._set, self._unnamed = other._set, other._unnamed
        self._has_hosts, self._times = other._has_hosts, other._times

    def __eq__(self, other: object) -> bool:
        return self._set == other._set if isinstance(other, Rv1Set) else NotImplemented

    def copy(self) -> Self:
        """A set of the same resources, with the same properties and times."""
        return self._like(self._set.copy())

    __copy__ = copy

    def dumps(self) -> str:
        """The resources in short, such as `rank[0-3]/core[0-7],gpu[0-1]`."""
        return self._set.summary()

    def encode(self) -> str:
        """The R as a JSON text, RFC 20; without `nodelist` if no host was given."""
        if self.scheduling is None and self._has_hosts and self._times is None:
            return self._set.to_json()
        return json.dumps(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The R as an object, RFC 20; without `nodelist` if no host was given."""
        document: dict[str, Any] = self._set.to_dict()
        execution = document["execution"]
        if not self._has_hosts:
            del execution["nodelist"]
        if self._times is not None:
            execution["starttime"], execution["expiration"] = self._times
        if self.scheduling is not None:
            document["scheduling"] = self.scheduling
        return document

    def nnodes(self) -> int:
        """The number of execution targets."""
        return self._set.nnodes

    def ranks(self) -> IDset:
        """The execution targets, as a copy."""
        return IDset(self._set.ranks)

    def nodelist(self) -> Hostlist:
        """The hosts in the order of their ranks, as a copy; `rank3` if that of 3 is not known."""
        return Hostlist(self._set.nodelist)

    def count(self, name: str) -> int:
        """The number of cores (`"core"`) or gpus (`"gpu"`); 0 for any other name."""
        if name == "core":
            return self._set.ncores
        return self._set.ngpus if name == "gpu" else 0

    def get_starttime(self) -> float:
        """The start time, in seconds since the epoch; 0.0 if unset."""
        return self._times[0] if self._times is not None else self._set.starttime or 0.0

    def set_starttime(self, starttime: SupportsFloat | str) -> None:
        """Sets the start time."""
        self._put_times(float(starttime), self.get_expiration())

    def get_expiration(self) -> float:
        """The expiration, in seconds since the epoch; 0.0 if unset."""
        return self._times[1] if self._times is not None else self._set.expiration or 0.0

    def set_expiration(self, expiration: SupportsFloat | str) -> None:
        """Sets the expiration."""
        self._put_times(self.get_starttime(), float(expiration))

    def get_properties(self) -> str:
        """A JSON object with the ranks of each property."""
        return json.dumps({name: str(ranks) for name, ranks in self._set.properties.items()})

    def set_property(self, name: str, ranks: Ids | None = None) -> Self:
        """Gives ranks, or all without them, a property, and returns the set.

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
        return self

    def copy_ranks(self, ranks: Ids) -> Self:
        """A new set with what these ranks have of this one; ranks that it lacks do not matter."""
        return self._like(self._set.restrict(ranks=_ids(ranks)))

    def remove_ranks(self, ranks: Ids) -> Self:
        """Takes these ranks out, as far as they are there, and returns the set."""
        self._set.remove_ranks(_ids(ranks))
        return self

    def copy_constraint(self, constraint: str | Mapping[str, Any]) -> Self:
        """A new set with the ranks of this one that satisfy a constraint, RFC 31."""
        if isinstance(constraint, str):
            constraint = json.loads(constraint)
        return self._like(self._set.restrict(ranks=_matching(self._set, constraint)))

    def append(self, other: Self) -> None:
        """Adds resources, as `add` does."""
        self.add(other)

    def add(self, other: Self) -> None:
        """Adds resources; those of a rank it has are merged."""
        self._adopt(self.union(other))

    def union(self, other: Self) -> Self:
        """A new set with the resources of both."""
        return self._combined(penstock.ResourceSet.union, other)

    def diff(self, other: Self) -> Self:
        """A new set with the cores and gpus of this one that the other lacks."""
        return self._combined(penstock.ResourceSet.difference, other)

    def intersect(self, other: Self) -> Self:
        """A new set with the cores and gpus of this one that the other has, too."""
        return self._combined(penstock.ResourceSet.intersection, other)

    def _combined(
        self,
        operation: Callable[[penstock.ResourceSet, penstock.ResourceSet], penstock.ResourceSet],
        other: Self,
    ) -> Self:
        left, right = self._set, other._set
        unnamed, right_unnamed = self._without_hosts(), other._without_hosts()
        if unnamed or right_unnamed:
            # A host that one of the sets knows is that of both.
            right = _with_hosts(right, right_unnamed - unnamed, left)
            left = _with_hosts(left, unnamed - right_unnamed, right)
            known = (left.ranks - unnamed) | (right.ranks - right_unnamed)
            unnamed = (unnamed | right_unnamed) - known
        try:
            made = self._like(operation(left, right))
        except ResourceSetError as error:
            raise ValueError(str(error)) from error
        made._unnamed = unnamed
        if not made._has_hosts and other._has_hosts:
            made._has_hosts = bool(made._set.ranks - unnamed)
        if made._times is not None:
            made._put_times(*made._times)
        return made


class ResourceSet:
    """Which cores and gpus of which execution targets.

    Args:
        arg: An R as a JSON text or an object, or the `impl` of a set, which is then that of both;
            without one the set is empty. An R need not have `nodelist`: the hosts of its nodes
            are then `rank0`, `rank1` and so on.
        version: Of R, which is 1.
        keep_scheduling: Keep the key `scheduling` of the R, which is left out otherwise.

    Raises:
        TypeError: `arg` is of another type; a `ResourceSet` has `copy`.
        json.JSONDecodeError, KeyError, ValueError: `arg` is not JSON, has no `version`, or is not
            an R; the last names the place in it.
    """

    __slots__ = ("impl", "state")
    __hash__ = None  # type: ignore[assignment]

    impl: Rv1Set
    """The resources, in the object for their version of R."""
    state: str | None
    """A label for the program's own use, such as `"up"`; None at first."""

    def __init__(
        self,
        arg: str | Mapping[str, Any] | Rv1Set | None = None,
        version: int = 1,
        keep_scheduling: bool = False,
    ) -> None:
        if version != 1:
            raise ValueError(f"R version {version} not supported")
        if arg is not None and not isinstance(arg, str | Mapping | Rv1Set):
            raise TypeError(f"ResourceSet cannot be instantiated from {type(arg)}")
        self.state = None
        self.impl = arg if isinstance(arg, Rv1Set) else Rv1Set(arg, keep_scheduling)

    def _like(self, impl: Rv1Set) -> Self:
        """A set of the resources of `impl`, which it may keep."""
        made = self.__class__.__new__(self.__class__)
        made.impl = impl
        made.state = self.state
        return made

    def __str__(self) -> str:
        return self.dumps()

    def __repr__(self) -> str:
        return f"<ResourceSet {self.dumps() or 'empty'}>"

    def __eq__(self, other: object) -> bool:
        return self.impl == other.impl if isinstance(other, ResourceSet) else NotImplemented

    def __copy__(self) -> Self:
        return self.copy()

    def copy(self) -> Self:
        """A set of the same resources, with the same properties and times."""
        return self._like(self.impl.copy())

    @property
    def version(self) -> int:
        """The version of R, which is 1."""
        return self.impl.version

    @property
    def scheduling(self) -> Any:
        """The value of the R's key `scheduling`, which is not interpreted; None without one."""
        return self.impl.scheduling

    @scheduling.setter
    def scheduling(self, scheduling: Any) -> None:
        self.impl.scheduling = scheduling

    def dumps(self) -> str:
        """The resources in short, such as `rank[0-3]/core[0-7],gpu[0-1]`."""
        return self.impl.dumps()

    def encode(self) -> str:
        """The R as a JSON text, RFC 20; without `nodelist` if no host was given."""
        return self.impl.encode()

    def to_dict(self) -> dict[str, Any]:
        """The R as an object, RFC 20; without `nodelist` if no host was given."""
        return self.impl.to_dict()

    @property
    def rlist(self) -> str:
        """The resources in short, as `dumps` gives them."""
        return self.impl.dumps()

    @property
    def ranks(self) -> IDset:
        """The execution targets, as a copy."""
        return self.impl.ranks()

    @property
    def nodelist(self) -> Hostlist:
        """The hosts in the order of their ranks, as a copy; `rank3` if that of 3 is not known."""
        return self.impl.nodelist()

    @property
    def nnodes(self) -> int:
        """The number of execution targets."""
        return self.impl.nnodes()

    @property
    def ncores(self) -> int:
        """The number of cores."""
        return self.impl.count("core")

    @property
    def ngpus(self) -> int:
        """The number of gpus."""
        return self.impl.count("gpu")

    def count(self, name: str) -> int:
        """The number of cores (`"core"`) or gpus (`"gpu"`); 0 for any other name."""
        return self.impl.count(name)

    @property
    def starttime(self) -> float:
        """The start time, in seconds since the epoch; 0.0 if unset."""
        return self.impl.get_starttime()

    @starttime.setter
    def starttime(self, starttime: SupportsFloat | str) -> None:
        self.impl.set_starttime(starttime)

    @property
    def expiration(self) -> float:
        """The expiration, in seconds since the epoch; 0.0 if unset."""
        return self.impl.get_expiration()

    @expiration.setter
    def expiration(self, expiration: SupportsFloat | str) -> None:
        self.impl.set_expiration(expiration)

    @property
    def properties(self) -> str:
        """The names of the properties, separated by commas."""
        return ",".join(self.impl._set.properties)

    def get_properties(self) -> str:
        """A JSON object with the ranks of each property."""
        return self.impl.get_properties()

    def set_property(self, name: str, ranks: Ids | None = None) -> Self:
        """Gives ranks a property, and returns the set.

        Args:
            name: The property.
            ranks: Which ranks; without them, all.

        Raises:
            ValueError: a rank is not in the set, or the name is not one that RFC 20 allows.
        """
        self.impl.set_property(name, ranks)
        return self

    def host_ranks(self, hosts: Hosts, ignore_nomatch: bool = False) -> list[int]:
        """The ranks of hosts.

        Args:
            hosts: The hosts, in the order of which the ranks come.
            ignore_nomatch: Pass over hosts that are not in the set.

        Raises:
            FileNotFoundError: a host is not in the set.
        """
        resources = self.impl._set
        wanted, known = _hosts(hosts), resources.nodelist
        for host in wanted - known:
            if not ignore_nomatch:
                raise FileNotFoundError(f"host '{host}' not found")
            wanted = penstock.Hostlist([name for name in wanted if name in known])
            break
        return resources.host_ranks(wanted)

    def copy_ranks(self, ranks: Ids) -> Self:
        """A new set with what these ranks have of this one; ranks that it lacks do not matter."""
        return self._like(self.impl.copy_ranks(ranks))

    def remove_ranks(self, ranks: Ids) -> Self:
        """Takes these ranks out, as far as they are there, and returns the set."""
        self.impl.remove_ranks(ranks)
        return self

    def copy_constraint(self, constraint: str | Mapping[str, Any]) -> Self:
        """A new set with the ranks of this one that satisfy a constraint, RFC 31.

        Args:
            constraint: An object such as `{"properties": ["batch"]}`, or its JSON text. As in
                Flux, one operator of an object counts, and the first operand of `not`.

        Raises:
            json.JSONDecodeError: the text is not JSON.
            ValueError: what is given is not a constraint.
        """
        return self._like(self.impl.copy_constraint(constraint))

    def append(self, *args: Resources) -> Self:
        """Adds resources to the set, as `add` does, and returns it."""
        return self.add(*args)

    def add(self, *args: Resources) -> Self:
        """Adds resources to the set, and returns it; those of a rank it has are merged.

        Raises:
            ValueError: a rank has another host there; the set is then as it was.
        """
        self.impl._adopt(self.union(*args).impl)
        return self

    def union(self, *args: Resources) -> Self:
        """A new set with the resources of this one and of all `args`.

        Raises:
            ValueError: a rank has different hosts.
        """
        return self._folded(Rv1Set.union, args)

    def diff(self, *args: Resources) -> Self:
        """A new set with the cores and gpus of this one that none of `args` has."""
        return self._folded(Rv1Set.diff, args)

    def intersect(self, *args: Resources) -> Self:
        """A new set with the cores and gpus of this one that all of `args` have."""
        return self._folded(Rv1Set.intersect, args)

    __or__ = union
    __sub__ = diff
    __and__ = intersect

    def _folded(
        self, operation: Callable[[Rv1Set, Rv1Set], Rv1Set], args: tuple[Resources, ...]
    ) -> Self:
        impl = self.impl if args else self.impl.copy()
        for arg in args:
            other = arg if isinstance(arg, ResourceSet) else ResourceSet(arg)
            impl = operation(impl, other.impl)
        return self._like(impl)


def _completed(execution: Mapping[str, Any]) -> dict[str, Any]:
    """The key `execution` of an R as RFC 20 requires it, for one that Flux accepts.

    Ids may be integers and lists, and most may be missing. Hosts that are missing are named
    after their ranks; those and the properties of ranks that are not there are left out.

    Returns:
        The value of the key; and with it the ranks whose hosts are missing (`unnamed`), and
        whether any host was given (`has_hosts`).
    """
    ranks = penstock.IDset()
    entries = []
    for entry in execution.get("R_lite", ()):
        own = _ids(entry["rank"])
        children = {"core": "", **entry.get("children", {})}
        for name in children.keys() & {"core", "gpu"}:
            children[name] = str(_ids(children[name]))
        if own:
            entries.append({**entry, "rank": str(own), "children": children})
        ranks |= own
    # A text is a sequence of characters here, which Flux rejects unless each of them is a host.
    hosts = _hosts(list(execution.get("nodelist", ())))[: len(ranks)]
    unnamed = ranks[len(hosts) :]
    named = bool(hosts)
    if unnamed:
        hosts.extend(penstock.Hostlist(f"rank[{unnamed}]"))
    properties = {
        name: str(_ids(having) & ranks) for name, having in execution.get("properties", {}).items()
    }
    completed = {
        **execution,
        "R_lite": entries,
        "nodelist": [str(hosts)] if hosts else [],
        "properties": {name: having for name, having in properties.items() if having},
        "starttime": float(execution.get("starttime") or 0.0),
        "expiration": float(execution.get("expiration") or 0.0),
        "unnamed": unnamed,
        "has_hosts": named,
    }
    if nslots := int(completed.pop("nslots", 0)):
        completed["nslots"] = nslots
    return completed


def _with_hosts(
    resources: penstock.ResourceSet, ranks: penstock.IDset, source: penstock.ResourceSet
) -> penstock.ResourceSet:
    """The resources with the hosts that `source` has for some of their ranks."""
    known = source.restrict(ranks=ranks)
    if not known.nnodes:
        return resources
    if known.nnodes == resources.nnodes:
        nodelist = known.nodelist
    else:
        hosts = dict(zip(resources.ranks, resources.nodelist, strict=True))
        hosts |= dict(zip(known.ranks, known.nodelist, strict=True))
        nodelist = penstock.Hostlist(list(hosts.values()))
    document = resources.to_dict()
    document["execution"]["nodelist"] = [str(nodelist)]
    return penstock.ResourceSet(document)


def _matching(resources: penstock.ResourceSet, constraint: object) -> penstock.IDset:
    """The ranks that satisfy a constraint."""
    if not isinstance(constraint, Mapping):
        raise TypeError(f"a constraint is an object, not {type(constraint)}: {constraint!r}")
    operator = next((name for name in _OPERATORS if name in constraint), None)
    if operator is None:
        raise ValueError(f"unknown constraint operator(s): {list(constraint)}")
    values = constraint[operator]
    if isinstance(values, str) and operator == "hostlist":
        values = [values]
    if isinstance(values, str | Integral) and operator == "ranks":
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


def _not_first(resources: penstock.ResourceSet, constraints: Sequence[Any]) -> penstock.IDset:
    return resources.ranks - _matching(resources, constraints[0])


# Of several operators in one object Flux takes the first of these.
_OPERATORS: Mapping[str, Callable[[penstock.ResourceSet, Sequence[Any]], penstock.IDset]] = {
    "properties": _with_properties,
    "hostlist": _on_hosts,
    "ranks": _of_ranks,
    "and": _all,
    "or": _any,
    "not": _not_first,
}
