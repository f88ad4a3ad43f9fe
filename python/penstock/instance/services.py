"""The Rust services as the broker's peers: job manager, scheduler, simulated execution."""

from __future__ import annotations

import errno
import logging
import time
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import Batch, Message, MockExec, Scheduler
from penstock.errors import StoreError
from penstock.instance.supervision import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._core import JobManager
    from penstock.instance.broker import Broker

log = logging.getLogger("penstock")


class Alarm:
    """Wakes a service when its next deadline comes, however often that changes."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self._changed = trio.Event()

    def set(self, deadline: float | None) -> None:
        """Sets the time of the next call, in seconds since the epoch, or none."""
        if deadline != self._deadline:
            self._deadline = deadline
            self._changed.set()

    async def wait(self) -> None:
        """Returns when the deadline has come."""
        while True:
            self._changed = trio.Event()
            if self._deadline is None:
                await self._changed.wait()
                continue
            left = self._deadline - time.time()
            if left <= 0:
                await trio.lowlevel.checkpoint()
                self._deadline = None
                return
            with trio.move_on_after(left):
                await self._changed.wait()


class ManagerService:
    """The job manager in the daemon: `job-*` and `kvs`.

    Args:
        broker: the broker.
        manager: the job manager.
        purged: is told which jobs are not known any more, if anybody is.
    """

    NAMES = ("job-manager", "job-ingest", "job-list", "job-info", "kvs", "pmix")

    def __init__(
        self,
        broker: Broker,
        manager: JobManager,
        purged: Callable[[list[int]], None] | None = None,
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._purged = purged
        self._alarm = Alarm()
        # What the store does not hold may not be answered: its failure ends the instance.
        self.peer = broker.attach(self, names=self.NAMES, fatal=(StoreError,))
        broker.watch_services(manager.set_services)

    def deliver(self, batch: Batch) -> None:
        """Takes messages in; the answers follow when they are durable."""
        self._manager.handle(batch, time.time())

    def ask(self, topic: str) -> dict[str, Any]:
        """What the job manager answers at once to a request without payload."""
        self._manager.handle(Batch([Message.request(topic, {})]), time.time())
        answer: dict[str, Any] = {}
        others = Batch()
        for message in self._flush():
            # Whatever comes from a peer has a route.
            if message.topic == topic and not message.routes:
                answer = message.object()
            else:
                others.append(message)
        self._broker.post(self.peer, others)
        return answer

    def settle(self, now: float) -> None:
        """Commits, then sends: long listings, and long queues, as far as their readers keep up."""
        self._broker.post(self.peer, self._flush())
        if self._manager.busy:
            self._broker.nudge()
        for line in self._manager.take_log():
            log.warning("job-manager: %s", line)
        jobs = self._manager.take_purged()
        if jobs and self._purged is not None:
            self._purged(jobs)
        self._alarm.set(self._manager.deadline())

    def _flush(self) -> Batch:
        full = [it for it in self._manager.readers() if not self._broker.has_room(it)]
        return self._manager.flush(full)

    async def run(self) -> None:
        """Lets jobs begin when their time comes."""
        while True:
            await self._alarm.wait()
            self._manager.advance(time.time())
            self._broker.nudge()


class SchedulerService:
    """The scheduler in the daemon. It speaks what it would speak from outside.

    One that fails ends, as RFC 27 and RFC 28 want it, and another takes its place.

    Args:
        broker: the broker.
        limit: the most requests that it takes at a time; None for all.
        settings: called for what it gets to know of the configuration, whenever one starts.
    """

    def __init__(
        self, broker: Broker, limit: int | None, settings: Callable[[], str] = lambda: "{}"
    ) -> None:
        self._broker = broker
        self._limit = limit
        self._settings = settings
        self._failed = trio.Event()
        self._alarm = Alarm()
        self._start()

    def _start(self) -> None:
        self._scheduler = Scheduler(limit=self._limit, settings=self._settings())
        self.peer = self._broker.attach(self)
        self._scheduler.start()
        self._broker.nudge()

    def deliver(self, batch: Batch) -> None:
        """Takes messages in."""
        self._scheduler.handle(batch)

    def settle(self, now: float) -> None:
        """Decides, then sends."""
        if self._scheduler.schedule(now):
            self._broker.nudge()
        elif self._scheduler.deadline is not None and self._scheduler.deadline <= now:
            self._scheduler.annotate(now)
        self._alarm.set(self._scheduler.deadline)
        self._broker.post(self.peer, self._scheduler.take_out())
        failed = self._scheduler.failure is not None
        for line in self._scheduler.take_log():
            log.log(logging.ERROR if failed else logging.INFO, "sched: %s", line)
        if failed:
            self._failed.set()

    async def run(self) -> None:
        """Starts another scheduler whenever one has failed."""
        backoff = Backoff()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wake)
            while True:
                await self._failed.wait()
                self._broker.detach(self.peer)
                await backoff.pause()
                backoff.begin()
                self._failed = trio.Event()
                self._start()

    async def _wake(self) -> None:
        """Has it settle when it is time to tell the jobs that wait what they wait for."""
        while True:
            await self._alarm.wait()
            self._broker.nudge()


class MockExecService:
    """Simulated execution in the daemon."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self._exec = MockExec(name)
        self._alarm = Alarm()
        self.peer = broker.attach(self)
        broker.post(self.peer, self._exec.start())

    def deliver(self, batch: Batch) -> None:
        """Takes messages in and answers."""
        self._broker.post(self.peer, self._exec.handle(batch, time.time()))

    def settle(self, now: float) -> None:
        """Sets the alarm for the next job's end."""
        if self._exec.failure is not None:
            raise OSError(errno.EPROTO, f"simulated execution: {self._exec.failure}")
        self._alarm.set(self._exec.deadline)

    async def run(self) -> None:
        """Ends jobs when their time comes."""
        while True:
            await self._alarm.wait()
            self._broker.post(self.peer, self._exec.advance(time.time()))
