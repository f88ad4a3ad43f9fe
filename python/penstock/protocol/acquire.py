"""RFC 28 at both ends: the inventory and its changes, for one scheduler at a time.

`AcquireProvider` is the end that the instance has, `Acquired` what a scheduler knows.

Sans-IO: requests in, responses out. What there is comes from the resource service by
[`update`][penstock.protocol.acquire.AcquireProvider.update]; this module knows who listens and
what it has been told. An additional response is the difference between the two, so it holds
transitions only, never contradicts itself, and changes that cancel each other are never told.

The keys of an additional response:

| key | what |
|---|---|
| `up`, `down` | targets that have become available or unavailable |
| `shrink` | targets that are gone for good; those that were up are in `down` too |
| `property-add`, `property-remove` | properties that targets have got or lost |
| `expiration` | the new end of the resources, seconds since the epoch; 0.0 for none |
| `grow` | an R of targets that are new |

RFC 28 has no key for growth. `grow` is ours, for a scheduler that sends `{"grow-ok": true}` with
its request; targets in it are also in `up` where they are available, and bring their properties
with them. Any other scheduler hears of new targets at its next acquire, and never of a target that
was not in its `resources`. Targets that configuration excludes are left out of `resources` and of
`grow`; one that is excluded while a scheduler holds it goes down, and stays known to it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from penstock._core import IDset, ResourceSet
from penstock.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._core import Message


class AcquireProvider:
    """The one `resource.acquire` stream of an instance.

    Args:
        resources: the whole inventory.
        exclude: ranks that configuration keeps out of scheduling.
        up: ranks that are available.
    """

    def __init__(self, resources: ResourceSet, exclude: IDset, up: IDset) -> None:
        self._request: Message | None = None
        self._told = _View(IDset(), IDset(), {}, 0.0)
        self._grow_ok = False
        self._changed = False
        self._set(resources, exclude, up)

    def _set(self, resources: ResourceSet, exclude: IDset, up: IDset) -> None:
        self._resources = resources
        ranks = resources.ranks - exclude
        self._now = _View(ranks, up & ranks, resources.properties, resources.expiration or 0.0)

    def update(self, resources: ResourceSet, exclude: IDset, up: IDset) -> None:
        """Says what there is from now on; `changes` tells the scheduler.

        Args:
            resources: the whole inventory; a rank that was in it and is not is gone for good.
            exclude: ranks that configuration keeps out of scheduling.
            up: ranks that are available.
        """
        self._set(resources, exclude, up)
        self._changed = True

    @property
    def active(self) -> bool:
        """Whether a scheduler holds the resources."""
        return self._request is not None

    @property
    def schedulable(self) -> ResourceSet:
        """What may be allocated from: the inventory less the targets that are excluded."""
        return self._resources.restrict(ranks=self._now.ranks)

    @property
    def up(self) -> IDset:
        """Ranks that are available now."""
        return self._now.up

    def acquire(self, request: Message) -> Message:
        """Answers `resource.acquire` (RFC 28, Acquire Request).

        Returns:
            The initial response; `EBUSY` while another acquire is active, `EPROTO` without
            the streaming flag or with a payload that means nothing.
        """
        if self._request is not None:
            return request.respond(errnum=errno.EBUSY)
        if not request.streaming:
            text = "resource.acquire is a streaming request"
            return request.respond(errnum=errno.EPROTO, errtext=text)
        try:
            grow_ok = _grow_ok(request)
        except WireError as error:
            text = f"resource.acquire: {error}"
            return request.respond(errnum=errno.EPROTO, errtext=text)
        self._request, self._grow_ok = request, grow_ok
        self._told, self._changed = self._now, False
        return request.respond({"resources": self.schedulable.to_dict(), "up": str(self._now.up)})

    def cancel(self, origin: bytes, matchtag: int) -> list[Message]:
        """Ends the stream on its holder's own request (RFC 6).

        Returns:
            The stream's last response, `ENODATA`; nothing where there is no such stream.
        """
        request = self._request
        if request is None or _origin(request) != origin or request.matchtag != matchtag:
            return []
        self._request = None
        return [request.respond(errnum=errno.ENODATA)]

    def disconnect(self, origin: bytes) -> bool:
        """A peer went away. Returns whether it held the resources, which are free again."""
        held = self._request is not None and _origin(self._request) == origin
        if held:
            self._request = None
        return held

    def changes(self) -> list[Message]:
        """Tells the scheduler what has changed since it last heard.

        Returns:
            One additional response, or nothing where there is nothing to tell.
        """
        if self._request is None or not self._changed:
            return []
        self._changed = False
        told, now = self._told, self._now
        change: dict[str, Any] = {}
        if gone := told.ranks - self._resources.ranks:
            change["shrink"] = str(gone)
        # A target that is excluded from now on stays known: it may come back.
        kept = told.ranks - gone
        new = now.ranks - kept if self._grow_ok else IDset()
        if new:
            change["grow"] = self._resources.restrict(ranks=new).to_dict()
        ranks = kept | new
        up = now.up & ranks
        change |= _idsets(up=up - told.up, down=told.up - up)
        properties = {
            name: of & ranks for name, of in now.properties.items() if not ranks.isdisjoint(of)
        }
        change |= _idsets(
            property_add=_difference(properties, told.properties, kept),
            property_remove=_difference(told.properties, properties, kept),
        )
        if now.expiration != told.expiration:
            change["expiration"] = now.expiration
        self._told = _View(ranks, up, properties, now.expiration)
        return [self._request.respond(change)] if change else []


class Acquired:
    """What a scheduler has acquired: kept up to date by the responses to its request.

    Args:
        first: the payload of the first response.

    Attributes:
        resources: everything that it may ever allocate from.
        up: the targets that are available now.
    """

    def __init__(self, first: Mapping[str, Any]) -> None:
        self.resources = ResourceSet(first["resources"])
        self.up = IDset()
        self.take(first)

    def take(self, news: Mapping[str, Any]) -> None:
        """Takes the payload of a response in."""
        self.resources |= ResourceSet(news.get("grow"))
        self.resources.remove_ranks(news.get("shrink", ""))
        self.up = (self.up | IDset(news.get("up", ""))) - IDset(news.get("down", ""))
        for name, ranks in news.get("property-remove", {}).items():
            self.resources.remove_property(name, ranks)
        for name, ranks in news.get("property-add", {}).items():
            self.resources.add_property(name, ranks)
        if "expiration" in news:
            self.resources.expiration = news["expiration"] or None


class _View:
    """What there is, as far as a scheduler is concerned."""

    def __init__(
        self, ranks: IDset, up: IDset, properties: dict[str, IDset], expiration: float
    ) -> None:
        self.ranks = ranks
        self.up = up
        self.properties = properties
        self.expiration = expiration


def _idsets(**keys: Any) -> dict[str, Any]:
    """Idsets, and properties of idsets, as a response has them; what is empty is left out."""
    return {
        key.replace("_", "-"): {name: str(ranks) for name, ranks in value.items()}
        if isinstance(value, dict)
        else str(value)
        for key, value in keys.items()
        if value
    }


def _difference(these: dict[str, IDset], those: dict[str, IDset], ranks: IDset) -> dict[str, IDset]:
    """The properties that some of `ranks` have in `these` and not in `those`."""
    both = ((name, (of & ranks) - those.get(name, IDset())) for name, of in these.items())
    return {name: left for name, left in both if left}


def _grow_ok(request: Message) -> bool:
    if request.payload is None:
        return False
    payload = request.object()
    grow_ok = payload.get("grow-ok", False) if isinstance(payload, dict) else None
    if not isinstance(grow_ok, bool):
        raise WireError('expected no payload, or {"grow-ok": true or false}')
    return grow_ok


def _origin(request: Message) -> bytes:
    routes = request.routes
    return routes[-1] if routes else b""
