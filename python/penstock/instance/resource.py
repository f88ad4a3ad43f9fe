"""The resource service: what the instance has, what state it is in, and who may schedule it.

Serves RFC 28 to the scheduler and administration to people. What is done is an event in the
store, so a restart knows it; answers wait until it is on disk. `groups.get` is served here as
well, because who is online is known here.
"""

from __future__ import annotations

import errno
import json
import logging
import time
from typing import TYPE_CHECKING, Any

from penstock._core import Batch, Hostlist, IDset, ResourceSet
from penstock.errors import Error, WireError
from penstock.instance.ledger import ALL, KEEP, REASON, Ledger, TargetError, expiration
from penstock.instance.requests import Methods, RequestError, serve, text_field
from penstock.protocol.acquire import AcquireProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._core import JobManager, Message
    from penstock.config import Resource
    from penstock.instance.broker import Broker

log = logging.getLogger("penstock")

MODES = {None: KEEP, "update": KEEP, "overwrite": REASON, "force-overwrite": ALL}


class ResourceService:
    """Serves `resource.*` and `groups.get`.

    Args:
        broker: the broker.
        manager: the job manager, whose store keeps the events and who knows what is held.
        resources: what the instance was started with.
        config: the configuration's `[resource]`.
        admit: raises an `Error` for resources on which this instance cannot run jobs.

    Raises:
        TargetError: the configuration names hosts that are not there.
    """

    NAMES = ("resource", "groups")

    def __init__(
        self,
        broker: Broker,
        manager: JobManager,
        resources: ResourceSet,
        config: Resource,
        admit: Callable[[ResourceSet], None],
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._admit = admit
        self.ledger = Ledger(resources, config.exclude, config.properties)
        for line in manager.resource_events():
            self.ledger.apply(json.loads(line))
        self.ledger.check()
        admit(self.ledger.resources)
        self._provider = AcquireProvider(self.ledger.resources, self.ledger.exclude, self.ledger.up)
        self._monitors: list[tuple[Message, IDset]] = []
        # Answers wait here until what they tell is on disk.
        self._answers: list[Message] = []
        self._changed = False
        self._grant()
        self._methods: Methods = {
            "resource.status": self._status,
            "resource.sched-status": self._sched_status,
            "resource.history": self._history,
            "resource.drain": self._drain,
            "resource.undrain": self._undrain,
            "resource.grow": self._grow,
            "resource.shrink": self._shrink,
            "resource.property-add": self._property,
            "resource.property-remove": self._property,
            "resource.expiration": self._expire,
            "resource.monitor": self._monitor,
            "resource.acquire-cancel": self._cancel,
            "resource.monitor-cancel": self._cancel,
            "resource.unmonitor": self._unmonitor,
            "resource.stats-get": self._stats,
            "groups.get": self._group,
        }
        self.peer = broker.attach(self, names=self.NAMES)

    def deliver(self, batch: Batch) -> None:
        """Serves requests."""
        for request in batch:
            if request.kind != "request":
                continue
            topic = request.topic or ""
            if topic.endswith(".disconnect"):
                self._disconnect((request.routes or [b""])[-1])
                continue
            if topic == "resource.acquire":
                response = self._acquire(request)
            else:
                response = serve(request, self._methods)
            if response is not None:
                self._answers.append(response)

    def settle(self, now: float) -> None:
        """Sends the answers: the job manager, settled before, has committed what they tell."""
        self._refresh()
        self._answers += self._provider.changes()
        answers, self._answers = self._answers, []
        self._broker.post_messages(self.peer, answers)

    def reconfigure(self, config: Resource) -> None:
        """Takes another configuration of what is excluded, and of properties.

        Raises:
            TargetError: it names hosts that are not there. Nothing has changed then.
        """
        before = self.ledger.exclude
        self.ledger.configure(config.exclude, config.properties)
        self._changed = True
        self._note("exclude", self.ledger.exclude - before)
        self._note("unexclude", before - self.ledger.exclude)
        self._broker.nudge()

    # --- what has happened, and who is told

    def _log(self, name: str, /, **context: Any) -> None:
        """Makes an event: into the store, into the books, and on to the scheduler."""
        event = {"timestamp": time.time(), "name": name, "context": context}
        self._manager.append_resource_event(json.dumps(event, separators=(",", ":")))
        self.ledger.apply(event)
        self._changed = True

    def _note(self, name: str, ranks: IDset, /, **context: Any) -> None:
        """Makes an event that is about ranks, where there are any."""
        if ranks:
            hosts = self.ledger.nodelist(ranks)
            self._log(name, idset=str(ranks), nodelist=hosts, **context)

    def _refresh(self) -> None:
        if self._changed:
            self._changed = False
            ledger = self.ledger
            self._provider.update(ledger.resources, ledger.exclude, ledger.up)
            self._grant()

    def _grant(self) -> None:
        """Tells the job manager from what the scheduler may allocate."""
        self._manager.set_inventory(self._provider.schedulable.to_json())

    # --- streams

    def _acquire(self, request: Message) -> Message | None:
        if request.noresponse:
            return None
        if request.userid != self._broker.owner:
            text = "only the instance owner may acquire resources"
            return request.respond(errnum=errno.EPERM, errtext=text)
        self._refresh()
        return self._provider.acquire(request)

    def _monitor(self, request: Message) -> dict[str, Any]:
        self._owner_only(request)
        if not request.streaming or request.noresponse:
            raise RequestError(errno.EPROTO, "resource.monitor is a streaming request")
        try:
            ranks = IDset(text_field(request, "ranks"))
        except Error as error:
            raise RequestError(errno.EINVAL, f"resource.monitor: {error}") from error
        known = self.ledger.resources.ranks
        if unknown := ranks - known:
            raise RequestError(errno.EINVAL, f"no such ranks: {unknown} (there are {known})")
        if not ranks:
            raise RequestError(errno.EINVAL, "resource.monitor: expected at least one rank")
        self._monitors.append((request, ranks))
        self._note("online", self.ledger.live(ranks))
        return {"ranks": str(ranks)}

    def _cancel(self, request: Message) -> None:
        matchtag = _payload(request).get("matchtag")
        if not isinstance(matchtag, int):
            raise RequestError(errno.EPROTO, f"{request.topic}: expected `matchtag` (int)")
        origin = (request.routes or [b""])[-1]
        if request.topic == "resource.acquire-cancel":
            self._answers += self._provider.cancel(origin, matchtag)
            return
        for monitor in self._monitors:
            if _origin(monitor[0]) == origin and monitor[0].matchtag == matchtag:
                self._lose(monitor)
                self._answers.append(monitor[0].respond(errnum=errno.ENODATA))
                return

    def _disconnect(self, origin: bytes) -> None:
        self._provider.disconnect(origin)
        for monitor in [it for it in self._monitors if _origin(it[0]) == origin]:
            self._lose(monitor)

    def _lose(self, monitor: tuple[Message, IDset]) -> None:
        self._monitors.remove(monitor)
        lost = self.ledger.dead(monitor[1]) & self.ledger.resources.ranks
        if lost:
            log.warning("resource: ranks %s are offline", lost)
        self._note("offline", lost)

    # --- administration

    def _owner_only(self, request: Message) -> None:
        if request.userid != self._broker.owner:
            text = f"{request.topic}: only the instance owner may do that"
            raise RequestError(errno.EPERM, text)

    def _targets(self, request: Message) -> IDset:
        """The ranks that an owner's request names, as an idset or as hosts."""
        self._owner_only(request)
        return self._named(text_field(request, "targets"))

    def _named(self, text: str) -> IDset:
        try:
            return self.ledger.targets(text)
        except TargetError as error:
            raise RequestError(errno.EINVAL, str(error)) from error

    def _drain(self, request: Message) -> None:
        """Drained targets keep their reason and time, unless `mode` says something else."""
        ranks = self._targets(request)
        payload = _payload(request)
        reason, mode = payload.get("reason") or "", payload.get("mode")
        if not isinstance(reason, str):
            raise RequestError(errno.EPROTO, "resource.drain: expected `reason` (str)")
        if mode is not None and (not isinstance(mode, str) or mode not in MODES):
            expected = ", ".join(str(it) for it in MODES if it)
            raise RequestError(
                errno.EINVAL, f"resource.drain: unknown mode {mode!r}: expected {expected}"
            )
        if mode in (None, "update"):
            kept = self.ledger.drained
            if mode == "update" and reason:
                kept = {rank: drain for rank, drain in kept.items() if drain.reason}
            ranks = ranks - IDset(kept)
        self._note("drain", ranks, reason=reason, overwrite=MODES[mode])

    def _undrain(self, request: Message) -> None:
        ranks = self._targets(request)
        payload = _payload(request)
        mode, reason = payload.get("mode"), payload.get("reason")
        if mode not in (None, "force"):
            raise RequestError(
                errno.EINVAL, f"resource.undrain: unknown mode {mode!r}: expected force"
            )
        drained = IDset(self.ledger.drained)
        if mode is None and (idle := ranks - drained):
            hosts = self.ledger.nodelist(idle)
            raise RequestError(errno.EINVAL, f"not drained: {idle} ({hosts})")
        more = {"reason": reason} if isinstance(reason, str) and reason else {}
        self._note("undrain", ranks & drained, **more)

    def _grow(self, request: Message) -> None:
        self._owner_only(request)
        document = _payload(request).get("R")
        if not isinstance(document, dict):
            raise RequestError(errno.EPROTO, "resource.grow: expected `R` (object)")
        try:
            more = ResourceSet(document)
            self.ledger.check_growth(more)
            self._admit(self.ledger.resources.union(more, scheduling="left"))
        except Error as error:
            raise RequestError(errno.EINVAL, f"resource.grow: {error}") from error
        hosts = str(more.nodelist)
        self._log("grow", idset=str(more.ranks), nodelist=hosts, R=more.to_dict())

    def _shrink(self, request: Message) -> None:
        ranks = self._targets(request)
        if ranks == self.ledger.resources.ranks:
            raise RequestError(
                errno.EINVAL, "resource.shrink: expected at least one target to stay"
            )
        self._note("shrink", ranks)

    def _property(self, request: Message) -> None:
        ranks = self._targets(request)
        name = text_field(request, "name")
        has = self.ledger.resources.properties.get(name, IDset())
        if request.topic == "resource.property-remove":
            if lacking := ranks - has:
                raise RequestError(errno.EINVAL, f"without the property `{name}`: {lacking}")
            self._note("property-remove", ranks, name=name)
            return
        try:
            self.ledger.resources.copy().add_property(name, ranks)
        except Error as error:
            raise RequestError(errno.EINVAL, str(error)) from error
        self._note("property-add", ranks - has, name=name)

    def _expire(self, request: Message) -> None:
        self._owner_only(request)
        try:
            end = expiration(_payload(request).get("expiration"))
            self.ledger.resources.copy().expiration = end or None
        except ValueError as error:
            raise RequestError(errno.EINVAL, f"resource.expiration: {error}") from error
        if end != (self.ledger.resources.expiration or 0.0):
            self._log("expiration", expiration=end)

    def _unmonitor(self, request: Message) -> None:
        """Targets of which nobody tells count as online again."""
        self._note("unmonitor", self._targets(request) & self.ledger.offline)

    # --- status

    def _status(self, _request: Message) -> dict[str, Any]:
        ledger = self.ledger
        groups: dict[tuple[float, str], IDset] = {}
        for rank, drain in ledger.drained.items():
            groups.setdefault(drain, IDset()).add(rank)
        return {
            "R": ledger.resources.to_dict(),
            "drain": {
                str(ranks): {"timestamp": timestamp, "reason": reason}
                for (timestamp, reason), ranks in groups.items()
            },
            "online": str(ledger.resources.ranks - ledger.offline),
            "offline": str(ledger.offline),
            "exclude": str(ledger.exclude),
            "torpid": "",
        }

    def _sched_status(self, _request: Message) -> dict[str, Any]:
        self._refresh()
        everything = self._provider.schedulable
        down = everything.restrict(ranks=everything.ranks - self._provider.up)
        # What is held outside the inventory, on targets that are gone, is nobody's to schedule.
        held = ResourceSet(self._manager.held())
        return {
            "all": everything.to_dict(),
            "down": down.to_dict(),
            "allocated": held.restrict(ranks=held.ranks & everything.ranks).to_dict(),
        }

    def _history(self, request: Message) -> dict[str, Any]:
        events = [json.loads(line) for line in self._manager.resource_events()]
        targets = _payload(request).get("targets")
        if targets is None:
            return {"events": events}
        if not isinstance(targets, str):
            raise RequestError(errno.EPROTO, "resource.history: expected `targets` (str)")
        return {"events": self._about(events, targets)}

    def _about(self, events: list[dict[str, Any]], targets: str) -> list[dict[str, Any]]:
        """The events about some targets, which need not be there any more."""

        def told(event: dict[str, Any], key: str) -> str:
            return str(event["context"].get(key, ""))

        try:
            ranks = IDset(targets)
            return [it for it in events if not ranks.isdisjoint(IDset(told(it, "idset")))]
        except Error:
            pass
        try:
            hosts = Hostlist(targets)
        except Error as error:
            raise RequestError(errno.EINVAL, f"resource.history: {error}") from error
        known = self.ledger.resources.nodelist
        found = []
        for event in events:
            there = Hostlist(told(event, "nodelist"))
            known += there
            if hosts & there:
                found.append(event)
        if unknown := hosts - known:
            raise RequestError(errno.EINVAL, f"no such hosts: {unknown}")
        return found

    def _stats(self, _request: Message) -> dict[str, Any]:
        ledger = self.ledger
        return {
            "ranks": str(ledger.resources.ranks),
            "up": str(ledger.up),
            "drained": len(ledger.drained),
            "acquired": self._provider.active,
            "monitors": len(self._monitors),
            "events": len(self._manager.resource_events()),
        }

    def _group(self, request: Message) -> dict[str, Any]:
        name = text_field(request, "name")
        if name != "broker.online":
            text = f"no group `{name}`: expected broker.online"
            raise RequestError(errno.ENOENT, text)
        return {"members": str(self.ledger.resources.ranks - self.ledger.offline)}


def _payload(request: Message) -> dict[str, Any]:
    """A request's payload; none is an empty one."""
    if request.payload is None:
        return {}
    try:
        payload = request.object()
    except WireError as error:
        raise RequestError(errno.EPROTO, f"{request.topic}: {error}") from error
    if not isinstance(payload, dict):
        raise RequestError(errno.EPROTO, f"{request.topic}: expected an object")
    return payload


def _origin(request: Message) -> bytes:
    return (request.routes or [b""])[-1]
