"""Peers that handle their messages on demand, not on arrival.

Between two ends messages keep their order, and wait as long as a test wants them to.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock._core import Batch, Message, Scheduler
from penstock.instance.services import ManagerService

if TYPE_CHECKING:
    from collections.abc import Callable

    from inprocess import Instance

    from penstock._core import JobManager
    from penstock.instance.broker import Broker


def take_log(manager: JobManager) -> list[str]:
    """Takes the lines of a manager's log whose messages have been flushed."""
    messages, _, _, _, lines, _ = manager.take_output(lambda _route: True)
    assert not messages
    return lines


class SlowManager:
    """The job manager at the broker; messages of listed peers are delayed.

    Messages of all other peers are handled at once.
    """

    def __init__(self, broker: Broker, manager: JobManager) -> None:
        self._broker = broker
        self._manager = manager
        self.inbox: deque[Message] = deque()
        # Peers whose requests are delayed; if there are any, responses are delayed as well.
        self.slow: set[int] = set()
        # Services whose responses are not delayed.
        self.quick: set[str] = set()
        self.log: list[str] = []
        # Called with every message that the manager takes in, and that it sends.
        self.on_received: Callable[[Message], None] = lambda _message: None
        self.on_sent: Callable[[Message], None] = lambda _message: None
        self.number = self.peer = broker.attach(self, names=ManagerService.NAMES)

    def deliver(self, batch: Batch) -> None:
        """Handles messages at once, or delays them."""
        now = Batch()
        for message in batch:
            if self._waits(message):
                self.inbox.append(message)
            else:
                self.on_received(message)
                now.append(message)
        if now:
            self._manager.handle(now, self._broker.clock.now())

    def _waits(self, message: Message) -> bool:
        if not self.slow:
            return False
        if message.kind == "response":
            return (message.topic or "").partition(".")[0] not in self.quick
        origin = self._broker.origin(message)
        # A disconnect follows the exit of its peer, and all messages of that peer.
        return origin is None or origin in self.slow

    def work(self, count: int | None = None) -> None:
        """Handles the next delayed messages."""
        for _ in range(len(self.inbox) if count is None else min(count, len(self.inbox))):
            message = self.inbox.popleft()
            self.on_received(message)
            self._manager.handle(Batch([message]), self._broker.clock.now())
            self.post_output(0.0)

    def post_output(self, now: float) -> None:
        """Commits and sends."""
        out = self._manager.flush()
        # The further parts of long lists.
        while rest := self._take_rest():
            out.extend(rest)
        for message in out:
            self.on_sent(message)
        self._broker.post(self.peer, out)

    def _take_rest(self) -> Batch:
        messages, _, _, _, lines, _ = self._manager.take_output(lambda _route: True)
        self.log += lines
        return messages


class SlowScheduler:
    """Our scheduler at the broker; its messages are delayed."""

    def __init__(self, instance: Instance, limit: int | None = None) -> None:
        self.limit = limit
        self.scheduler = Scheduler(limit=limit)
        self.inbox: deque[Message] = deque()
        self.on_received: Callable[[Message], None] = lambda _message: None
        self.on_sent: Callable[[Message], None] = lambda _message: None
        self._broker = instance.broker
        self.number = instance.broker.attach(self)
        self.scheduler.start()
        self._speak()

    def deliver(self, batch: Batch) -> None:
        """Delays messages."""
        self.inbox.extend(batch)

    def post_output(self, now: float) -> None:
        """Does nothing."""

    def work(self, count: int | None = None) -> None:
        """Handles the next delayed messages, schedules and sends."""
        for _ in range(len(self.inbox) if count is None else min(count, len(self.inbox))):
            message = self.inbox.popleft()
            self.on_received(message)
            self.scheduler.handle(Batch([message]))
        self._speak()

    def _speak(self) -> None:
        while self.scheduler.schedule(self._broker.clock.now()):
            pass
        out = Batch([self.worded(sent) for sent in self.scheduler.take_out()])
        for message in out:
            self.on_sent(message)
        self._broker.post(self.number, out)

    def worded(self, message: Message) -> Message:
        """Returns the message to send."""
        return message
