"""Restarts of the scheduler in the daemon after a failure."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from virtualtime import VirtualClock, make_broker

from penstock._core import Batch
from penstock.instance.control import ControlService
from penstock.instance.services import SchedulerService

if TYPE_CHECKING:
    from penstock.instance.broker import Broker


class RejectingResource:
    """A resource service that rejects the first requests, and keeps the rest."""

    def __init__(self, broker: Broker, rejections: int) -> None:
        self._broker = broker
        self._rejections = rejections
        self.topics: list[str] = []
        self.acquire_sent = trio.Event()
        self.peer = broker.attach(self, names=["resource"])

    def deliver(self, batch: Batch) -> None:
        for request in batch:
            self.topics.append(request.topic)
            if request.topic != "resource.acquire":
                continue
            if self._rejections:
                self._rejections -= 1
                text = "not today"
                answer = request.respond(errnum=errno.EPERM, errtext=text)
                self._broker.post_messages(self.peer, [answer])
            else:
                self.acquire_sent.set()

    def post_output(self, now: float) -> None:
        """Has no output."""


def test_one_that_fails_is_logged_and_replaced(caplog):
    async def main() -> None:
        broker = make_broker(os.geteuid())
        ControlService(broker, attributes={}, config={}, shut_down=lambda _how: None)
        resource = RejectingResource(broker, rejections=2)
        service = SchedulerService(broker, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.pump)
            nursery.start_soon(service.run)
            await resource.acquire_sent.wait()
            nursery.cancel_scope.cancel()
        # Each that fails leaves: its successor finds the names free.
        assert resource.topics == ["resource.acquire", "resource.disconnect"] * 2 + [
            "resource.acquire"
        ]

    with caplog.at_level(logging.ERROR, "penstock"):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    texts = [record.getMessage() for record in caplog.records]
    assert texts == ["sched: resource.acquire failed: Operation not permitted: not today"] * 2


class EstimatingScheduler:
    """A scheduler with an open estimate and annotations that are due."""

    failure = None
    deadline = 999.0

    def __init__(self) -> None:
        self.annotated: list[float] = []

    def schedule(self, now: float) -> bool:
        return True

    def annotate(self, now: float) -> None:
        self.annotated.append(now)

    def defer_annotations(self, now: float, took: float) -> None:
        self.deadline = now + 1.0

    def take_out(self) -> Batch:
        return Batch([])

    def take_log(self) -> list[str]:
        return []


def test_annotations_come_between_the_parts_of_an_estimate():
    async def main() -> None:
        service = SchedulerService(make_broker(os.geteuid()), None)
        scheduler = service._scheduler = EstimatingScheduler()
        service.post_output(1000.0)
        service.post_output(1000.5)
        assert scheduler.annotated == [1000.0]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    ("max_pause_s", "lives", "expected"),
    [
        (30.0, [0.0, 0.0, 0.0], [0.1, 0.2, 0.4]),
        (30.0, [0.0, 10.0, 0.0], [0.1, 0.0, 0.1]),
        (0.3, [0.0, 0.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.3]),
    ],
)
def test_pauses_grow_with_short_lives_up_to_a_limit_and_end_with_long_ones(
    max_pause_s, lives, expected
):
    from penstock.instance.supervision import Backoff

    async def main() -> None:
        backoff = Backoff(VirtualClock(trio.lowlevel.current_clock()), max_pause_s)
        pauses = []
        for life in lives:
            backoff.begin()
            await trio.sleep(life)
            before = trio.current_time()
            await backoff.pause()
            pauses.append(round(trio.current_time() - before, 6))
        assert pauses == expected

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
