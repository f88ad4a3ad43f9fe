"""Rounds of the broker: how much of its output a service posts in one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from virtualtime import make_broker

from penstock._core import Message

if TYPE_CHECKING:
    from penstock._core import Batch
    from penstock.instance.broker import Broker


class Reader:
    """A service that counts what it gets."""

    def __init__(self, broker: Broker) -> None:
        self.received = 0
        self.peer = broker.attach(self, names=["reader"])

    def deliver(self, batch: Batch) -> None:
        self.received += len(batch)

    def post_output(self, now: float) -> None:
        """Has no output."""


class Lister:
    """A service that posts a long output in parts."""

    def __init__(self, broker: Broker, parts: int) -> None:
        self._broker = broker
        self._parts = parts
        self.peer = broker.attach(self, names=["lister"], in_memory=True)

    def deliver(self, batch: Batch) -> None:
        """Takes nothing."""

    def post_output(self, now: float) -> None:
        if self._parts:
            self._parts -= 1
            self._broker.post_messages(self.peer, [Message.request("reader.part", {})])
            self._broker.nudge()


def test_a_round_has_one_part_of_a_long_output() -> None:
    broker = make_broker(os.geteuid())
    reader = Reader(broker)
    Lister(broker, parts=20)
    received = []
    for _ in range(20):
        broker.run_round()
        received.append(reader.received)
    # Requests of clients are read between two rounds.
    assert received == list(range(1, 21))
    broker.run_round()
    assert reader.received == 20
