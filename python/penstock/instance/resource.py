"""The resource service: what the instance has, what is drained, and who may schedule it.

Serves RFC 28 to the scheduler and administration to people. Drains are events in the store,
so a restart knows them.
"""

from __future__ import annotations

import errno
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._core import Batch, Hostlist, IDset, ResourceSet
from penstock.errors import Error, WireError
from penstock.instance.control import Methods, Refused, answer, field
from penstock.protocol.acquire import AcquireProvider

if TYPE_CHECKING:
    from penstock._core import JobManager, Message
    from penstock.instance.broker import Broker


class Drain(NamedTuple):
    """Why a target is drained: since when (seconds since the epoch), and the reason given."""

    timestamp: float
    reason: str


class ResourceService:
    """Serves `resource.*`.

    Args:
        broker: the broker.
        manager: the job manager, whose store keeps the drains and who knows what is held.
        resources: everything the instance has.
        exclude: ranks that configuration keeps out of scheduling.
    """

    def __init__(
        self, broker: Broker, manager: JobManager, resources: ResourceSet, exclude: IDset
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._resources = resources
        self._exclude = exclude & resources.ranks
        self._drained: dict[int, Drain] = {}
        # Answers wait here until what they tell is on disk.
        self._answers: list[Message] = []
        self._replay()
        schedulable = resources.restrict(ranks=resources.ranks - self._exclude)
        self._provider = AcquireProvider(schedulable, self._up())
        self._methods: Methods = {
            "resource.status": self._status,
            "resource.sched-status": self._sched_status,
            "resource.drain": self._drain,
            "resource.undrain": self._undrain,
        }
        self.peer = broker.attach(self, names=["resource"])

    def deliver(self, batch: Batch) -> None:
        """Serves requests."""
        for request in batch:
            if request.kind != "request":
                continue
            topic = request.topic or ""
            if topic == "resource.acquire":
                self._answers.append(self._acquire(request))
            elif topic == "resource.disconnect":
                self._provider.disconnect((request.routes or [b""])[-1])
            else:
                response = answer(request, self._methods)
                if response is not None:
                    self._answers.append(response)

    def settle(self, now: float) -> None:
        """Sends the answers: the job manager, settled before, has committed what they tell."""
        answers, self._answers = self._answers, []
        self._broker.post_messages(self.peer, answers)

    def _acquire(self, request: Message) -> Message:
        if request.userid != self._broker.owner:
            text = "only the instance owner may acquire resources"
            return request.respond(errnum=errno.EPERM, errtext=text)
        return self._provider.acquire(request)

    # --- drains

    def _up(self) -> IDset:
        return self._resources.ranks - self._exclude - IDset(self._drained)

    def _replay(self) -> None:
        for line in self._manager.resource_events():
            event = json.loads(line)
            self._apply(event["name"], IDset(event["context"]["idset"]), event)

    def _apply(self, name: str, ranks: IDset, event: dict[str, Any]) -> None:
        for rank in ranks:
            if name == "drain":
                self._drained[rank] = Drain(event["timestamp"], event["context"]["reason"])
            else:
                self._drained.pop(rank, None)

    def _log(self, name: str, ranks: IDset, **context: str) -> None:
        event = {
            "timestamp": time.time(),
            "name": name,
            "context": {
                "idset": str(ranks),
                "nodelist": str(self._resources.restrict(ranks=ranks).nodelist),
                **context,
            },
        }
        self._manager.append_resource_event(json.dumps(event, separators=(",", ":")))
        self._apply(name, ranks, event)
        self._answers += self._provider.set_up(self._up())

    def _targets(self, request: Message) -> IDset:
        """The ranks that a request names, as an idset or as hosts."""
        if request.userid != self._broker.owner:
            raise Refused(errno.EPERM, "only the instance owner may drain or undrain targets")
        text = field(request, "targets", str)
        known = self._resources.ranks
        try:
            ranks = IDset(text)
        except Error:
            ranks = self._ranks_of_hosts(text)
        if unknown := ranks - known:
            raise Refused(errno.EINVAL, f"no such ranks: {unknown} (there are {known})")
        if not ranks:
            raise Refused(errno.EINVAL, "expected at least one rank or host")
        return ranks

    def _ranks_of_hosts(self, text: str) -> IDset:
        try:
            wanted = Hostlist(text)
        except Error as error:
            raise Refused(
                errno.EINVAL, f"`{text}` is neither an idset nor a hostlist: {error}"
            ) from error
        ranks, unknown = IDset(), Hostlist()
        places: dict[str, IDset] = {}
        for node in self._resources.nodes():
            places.setdefault(node.host, IDset()).add(node.rank)
        for host in wanted:
            found = places.get(host)
            if found is None:
                unknown.append(host)
            else:
                ranks |= found
        if unknown:
            raise Refused(errno.EINVAL, f"no such hosts: {unknown}")
        return ranks

    def _drain(self, request: Message) -> None:
        ranks = self._targets(request)
        try:
            reason = request.object().get("reason") or ""
        except WireError as error:
            raise Refused(errno.EPROTO, str(error)) from error
        if not isinstance(reason, str):
            raise Refused(errno.EPROTO, "resource.drain: expected `reason` (str)")
        # Draining again changes nothing: the first reason and time stay.
        if fresh := ranks - IDset(self._drained):
            self._log("drain", fresh, reason=reason)

    def _undrain(self, request: Message) -> None:
        ranks = self._targets(request)
        if idle := ranks - IDset(self._drained):
            raise Refused(errno.EINVAL, f"not drained: {idle}")
        self._log("undrain", ranks)

    # --- status

    def _status(self, _request: Message) -> dict[str, Any]:
        groups: dict[Drain, IDset] = {}
        for rank, drain in self._drained.items():
            groups.setdefault(drain, IDset()).add(rank)
        return {
            "R": self._resources.to_dict(),
            "drain": {str(ranks): drain._asdict() for drain, ranks in groups.items()},
            "online": str(self._resources.ranks),
            "offline": "",
            "exclude": str(self._exclude),
            "torpid": "",
        }

    def _sched_status(self, _request: Message) -> dict[str, Any]:
        everything = self._resources.restrict(ranks=self._resources.ranks - self._exclude)
        down = everything.restrict(ranks=everything.ranks - self._provider.up)
        return {
            "all": everything.to_dict(),
            "down": down.to_dict(),
            "allocated": ResourceSet(self._manager.held()).to_dict(),
        }
