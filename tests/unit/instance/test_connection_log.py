"""The rate limit of the log's lines about connections."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing
from virtualtime import VirtualClock

from penstock.instance.connection_log import MAX_USER_LINES, USER_LINES_PERIOD_S, ConnectionLog


def test_the_number_of_suppressed_lines_follows(caplog):
    clock = trio.testing.MockClock(autojump_threshold=0)

    async def main() -> None:
        log = ConnectionLog(VirtualClock(clock))
        async with trio.open_nursery() as nursery:
            for _ in range(MAX_USER_LINES + 7):
                log.write(nursery, 5, logging.WARNING, "x")
            log.write(nursery, 6, logging.WARNING, "y")
        async with trio.open_nursery() as nursery:
            log.write(nursery, 5, logging.WARNING, "z")

    trio.run(main, clock=clock)
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [
        *["x"] * MAX_USER_LINES,
        "y",
        "user 5: 7 more lines about connections were suppressed",
        "z",
    ]


class HalfSpeedClock(VirtualClock):
    """A clock by which everything takes half the time."""

    def monotonic(self) -> float:
        """Seconds since some fixed time."""
        return super().monotonic() / 2


def test_a_period_is_measured_by_the_clock_of_the_instance():
    clock = trio.testing.MockClock(autojump_threshold=0)

    async def main() -> None:
        log = ConnectionLog(HalfSpeedClock(clock))
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            log.write(nursery, 5, logging.WARNING, "x")
        assert trio.current_time() - began == pytest.approx(2 * USER_LINES_PERIOD_S)

    trio.run(main, clock=clock)


def test_suppressed_faults_are_counted():
    async def main() -> None:
        log = ConnectionLog(VirtualClock(clock))
        async with trio.open_nursery() as nursery:
            for _ in range(MAX_USER_LINES + 1):
                log.write(nursery, 5, logging.INFO, "no fault")
            assert log.suppressed_faults == 0
            try:
                raise ValueError("on demand")
            except ValueError:
                log.write(nursery, 5, logging.ERROR, "a fault", exc_info=True)
            assert log.suppressed_faults == 1

    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(main, clock=clock)
