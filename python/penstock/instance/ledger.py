"""What the resource service knows: the inventory, and the state of every target in it.

The state is what configuration says plus what has happened since: events, one after the other.
The same events in the same order give the same state, so a restart knows what was done before.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._core import Hostlist, IDset, ResourceSet
from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("penstock")

# How a drain event treats targets that are drained already (`overwrite` in its context).
KEEP, REASON, ALL = 0, 1, 2


class TargetError(Error, ValueError):
    """Targets are not there, or cannot be what they are to be; the text names all of them."""


class Drain(NamedTuple):
    """Why a target is drained: since when (seconds since the epoch), and the reason given."""

    timestamp: float
    reason: str


class Ledger:
    """The inventory and the state of its targets.

    Args:
        base: what the instance was started with.
        exclude: an idset of ranks or a hostlist that is kept out of scheduling.
        properties: names, and the ranks or hosts that have them, in addition to those of `base`.
    """

    def __init__(
        self, base: ResourceSet, exclude: str | None, properties: Mapping[str, str]
    ) -> None:
        self._base = base
        self._exclude, self._configured = exclude, dict(properties)
        self._grown: list[ResourceSet] = []
        self._gone, self._gone_hosts = IDset(), Hostlist()
        self._added: dict[str, IDset] = {}
        self._removed: dict[str, IDset] = {}
        self._expiration = base.expiration
        self._monitored = IDset()
        self._live: Counter[int] = Counter()
        self.drained: dict[int, Drain] = {}
        self.resources = base
        self.exclude = IDset()
        self._rebuild()

    def configure(self, exclude: str | None, properties: Mapping[str, str]) -> None:
        """Takes another configuration in place of the one there was.

        Raises:
            TargetError: it names hosts that are not there. Nothing has changed then.
        """
        before = self._exclude, self._configured
        self._exclude, self._configured = exclude, dict(properties)
        try:
            self._rebuild()
            self.check()
        except Error:
            self._exclude, self._configured = before
            self._rebuild()
            raise

    def check(self) -> None:
        """Looks for hosts in the configuration that have never been there.

        Raises:
            TargetError: with every one of them.
        """
        texts = {"resource.exclude": self._exclude or ""}
        texts |= {f"resource.properties.{name}": text for name, text in self._configured.items()}
        wrong = [
            f"{key}: no such hosts: {unknown}"
            for key, text in texts.items()
            if (unknown := self._find(text)[1] - self._gone_hosts)
        ]
        if wrong:
            raise TargetError("\n".join(wrong))

    # --- what there is

    @property
    def offline(self) -> IDset:
        """Targets whose liveness was told of once, and is told of by nobody now."""
        return self._monitored - IDset(self._live)

    @property
    def up(self) -> IDset:
        """Targets that jobs may be put on."""
        return self.resources.ranks - self.exclude - IDset(self.drained) - self.offline

    def nodelist(self, ranks: IDset) -> str:
        """The hosts of ranks."""
        return str(self.resources.restrict(ranks=ranks).nodelist)

    def targets(self, text: str) -> IDset:
        """The ranks that a text names, as an idset or as hosts.

        Raises:
            TargetError: it names none, or some that are not there; all of them are told.
        """
        ranks, hosts = self._find(text)
        if hosts:
            raise TargetError(f"no such hosts: {hosts} (there are {self.resources.nodelist})")
        if unknown := ranks - self.resources.ranks:
            raise TargetError(f"no such ranks: {unknown} (there are {self.resources.ranks})")
        if not ranks:
            raise TargetError("expected at least one rank or host")
        return ranks

    def _find(self, text: str) -> tuple[IDset, Hostlist]:
        """The ranks that a text names, there or not, and the hosts that are not there."""
        try:
            return IDset(text), Hostlist()
        except Error:
            pass
        try:
            wanted = Hostlist(text)
        except Error as error:
            raise TargetError(f"`{text}` is neither an idset nor a hostlist: {error}") from error
        unknown = wanted - self.resources.nodelist
        if len(unknown) == len(wanted) and (ranks := _ranks(wanted)) is not None:
            return ranks, Hostlist()
        return IDset(self.resources.host_ranks(wanted - unknown)), unknown

    def check_growth(self, more: ResourceSet) -> None:
        """Whether these targets can be added.

        Raises:
            TargetError: with every rank and host that cannot.
        """
        if not (ranks := more.ranks):
            raise TargetError("expected an R with at least one rank")
        hosts = more.nodelist
        wrong = [
            f"{what}: {which}"
            for what, which in (
                ("ranks that are there already", ranks & self.resources.ranks),
                ("ranks that were removed for good", ranks & self._gone),
                ("hosts that are there already", hosts & self.resources.nodelist),
            )
            if which
        ]
        if wrong:
            raise TargetError("; ".join(wrong))

    # --- what happens

    def apply(self, event: Mapping[str, Any]) -> None:
        """Takes an event in; one that means nothing to this version is passed over."""
        name, context = event["name"], event["context"]
        if name == "expiration":
            self._expiration = context["expiration"] or None
        elif name == "grow":
            self._grown.append(ResourceSet(context["R"]))
        else:
            ranks = self._located(context)
            if name in ("shrink", "property-add", "property-remove"):
                self._change(name, ranks, context)
            else:
                self._mark(name, ranks, event)
                return
        self._rebuild()

    def _located(self, context: Mapping[str, Any]) -> IDset:
        """The ranks that an event is about: its hosts, where their ranks have changed since."""
        ranks = IDset(context["idset"])
        hosts = Hostlist(context.get("nodelist", ""))
        here, there = self.resources.ranks, self.resources.nodelist
        if not hosts or (ranks <= here and self.nodelist(ranks) == str(hosts)):
            return ranks & here
        # A host with several ranks does not tell which one is meant.
        if len(there.copy().uniq()) < len(there):
            return ranks & here
        return IDset(self.resources.host_ranks(hosts & there))

    def _change(self, name: str, ranks: IDset, context: Mapping[str, Any]) -> None:
        if name == "shrink":
            self._gone |= ranks | (IDset(context["idset"]) - self.resources.ranks)
            self._gone_hosts += Hostlist(context.get("nodelist", ""))
            return
        more, less = self._added, self._removed
        if name == "property-remove":
            more, less = less, more
        key = context["name"]
        more[key] = more.get(key, IDset()) | ranks
        less[key] = less.get(key, IDset()) - ranks

    def _mark(self, name: str, ranks: IDset, event: Mapping[str, Any]) -> None:
        if name == "drain":
            context = event["context"]
            drain = Drain(event["timestamp"], context.get("reason") or "")
            overwrite = context.get("overwrite", KEEP)
            for rank in ranks:
                old = self.drained.get(rank)
                if old is None or overwrite == ALL:
                    self.drained[rank] = drain
                elif overwrite == REASON or not old.reason:
                    self.drained[rank] = old._replace(reason=drain.reason)
        elif name == "undrain":
            for rank in ranks:
                self.drained.pop(rank, None)
        elif name in ("online", "offline"):
            self._monitored |= ranks
        elif name == "unmonitor":
            self._monitored -= ranks

    def live(self, ranks: IDset) -> IDset:
        """Somebody begins to tell that targets live. Returns those of which nobody did."""
        new = ranks - IDset(self._live)
        self._live.update(ranks)
        return new

    def dead(self, ranks: IDset) -> IDset:
        """Somebody tells no more that targets live. Returns those of which nobody does now."""
        self._live.subtract(ranks)
        left = IDset(rank for rank in ranks if self._live[rank] <= 0)
        for rank in left:
            del self._live[rank]
        return left

    def _rebuild(self) -> None:
        """Works out the inventory anew."""
        resources = self._base.copy()
        for grown in self._grown:
            # What configuration has come to name since is configuration's.
            new = grown.ranks - resources.ranks
            resources = resources.union(grown.restrict(ranks=new), scheduling="left")
        resources.remove_ranks(self._gone)
        self.resources = resources
        ranks = resources.ranks
        for name, text in self._configured.items():
            _add(resources, name, self._find(text)[0])
        for name, of in self._added.items():
            _add(resources, name, of)
        for name, of in self._removed.items():
            if here := of & resources.properties.get(name, IDset()):
                resources.remove_property(name, here)
        resources.expiration = self._expiration
        self.exclude = self._find(self._exclude)[0] & ranks if self._exclude else IDset()
        self.drained = {rank: it for rank, it in self.drained.items() if rank in ranks}
        self._monitored &= ranks


def _ranks(words: Hostlist) -> IDset | None:
    """Words that are ranks in no order, which an idset must not be (RFC 22)."""
    if not all(word.isdigit() and str(int(word)) == word for word in words):
        return None
    try:
        return IDset(int(word) for word in words)
    except Error:
        return None


def _add(resources: ResourceSet, name: str, ranks: IDset) -> None:
    if here := ranks & resources.ranks:
        resources.add_property(name, here)


def expiration(value: object) -> float:
    """A time as a request has it, checked.

    Raises:
        ValueError: it is no time.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(float(value)) or float(value) < 0:  # type: ignore[arg-type]
        raise ValueError("expected `expiration`: seconds since the epoch, 0 for none")
    return float(value)  # type: ignore[arg-type]
