"""The daemon's services without sockets, tasks and processes, run round by round."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from virtualtime import make_broker

from penstock._core import Batch, JobManager, Message, ResourceSet
from penstock.config import Resource
from penstock.instance.control import ControlService
from penstock.instance.resource import ResourceService
from penstock.instance.services import ManagerService

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.clock import Clock
    from penstock.instance.broker import Broker

# The owner in the recordings.
OWNER = 0


class HasNumber(Protocol):
    """A peer of the broker."""

    number: int


class Peer:
    """A client of the instance that collects received messages."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.received: list[Message] = []
        # Called with every message instead of keeping it, where set.
        self.react: Callable[[Message], None] | None = None
        self.number = instance.broker.attach(self)
        self._tag = 0

    def deliver(self, batch: Batch) -> None:
        """Takes messages in."""
        for message in batch:
            if self.react is None:
                self.received.append(message)
            else:
                self.react(message)

    def post_output(self, now: float) -> None:
        """Does nothing."""

    def post(self, *messages: Message) -> None:
        """Sends messages; they are routed in the next round."""
        self.instance.broker.post(self.number, Batch(messages))

    def send(self, *messages: Message) -> list[Message]:
        """Sends messages, settles, and returns the received messages."""
        self.post(*messages)
        self.instance.settle()
        return self.take()

    def take(self) -> list[Message]:
        """The messages received since the last call."""
        taken, self.received = self.received, []
        return taken

    def request(self, topic: str, payload: dict[str, Any] | None = None, flags: int = 0) -> Message:
        """A request with a matchtag of its own."""
        self._tag += 1
        return Message.request(topic, payload, matchtag=self._tag, flags=flags)

    def ask(self, topic: str, payload: dict[str, Any] | None = None, flags: int = 0) -> Message:
        """Sends a request and returns its first response, which must come at once."""
        request = self.request(topic, payload, flags)
        came = self.send(request)
        answers = [
            message
            for message in came
            if message.kind == "response" and message.matchtag == request.matchtag
        ]
        self.received += [message for message in came if message not in answers]
        assert answers, f"no answer to {topic} {payload}"
        return answers[0]


class Instance:
    """The broker, its control services, the job manager and the resource service.

    Args:
        resources: the inventory.
        exclude: ranks or hosts that are excluded from scheduling.
        config: the response to `config.get`.
        settings: more settings for the job manager.
        manages: attaches the job manager to the broker.
        store: path of the store; by default it is in memory.
        clock: the time; by default the system's.
    """

    def __init__(
        self,
        resources: ResourceSet,
        *,
        exclude: str | None = None,
        config: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
        manages: Callable[[Broker, JobManager], Any] = ManagerService,
        store: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.broker = make_broker(OWNER, clock)
        settings = {"owner": OWNER, **(settings or {})}
        self.manager = JobManager(store, json.dumps(settings), self.broker.clock.now())
        attributes = {
            "size": str(resources.nnodes),
            "security.owner": str(OWNER),
            "broker.starttime": "1000000000.0",
            "instance-level": "0",
        }
        ControlService(
            self.broker, attributes=attributes, config=config or {}, shut_down=lambda _how: None
        )
        self.jobs = manages(self.broker, self.manager)
        self.resource = ResourceService(
            self.broker, self.manager, resources, Resource(exclude=exclude)
        )

    def settle(self) -> None:
        """Runs rounds until no service has anything to send."""
        while self.broker.run_round():
            pass

    def connect(self) -> Peer:
        """A new client."""
        return Peer(self)

    def disconnect(self, peer: HasNumber) -> None:
        """Disconnects a client."""
        self.broker.detach(peer.number)
        self.settle()
