"""Events at regular intervals, only while a peer is subscribed to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio
import trio.testing
from virtualtime import make_broker

from penstock.instance.control import ControlService
from penstock.instance.heartbeat import INTERVAL_S, PULSE, Heartbeat

if TYPE_CHECKING:
    from penstock._core import Batch
    from penstock.instance.broker import Broker


class Listener:
    """A peer that notes when events arrive."""

    def __init__(self, broker: Broker) -> None:
        self.times: list[float] = []
        self.peer = broker.attach(self, names=[])

    def deliver(self, batch: Batch) -> None:
        self.times += [trio.current_time() for event in batch if event.topic == PULSE]

    def post_output(self, now: float) -> None:
        """Does nothing."""


def test_a_pulse_is_published_while_a_peer_is_subscribed():
    async def main() -> None:
        broker = make_broker(os.geteuid())
        control = ControlService(broker, attributes={}, config={}, shut_down=lambda _how: None)
        listener = Listener(broker)
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.pump)
            nursery.start_soon(Heartbeat(broker, control).run)
            await trio.sleep(10 * INTERVAL_S + 1)
            broker.subscribe(listener.peer, "job-state")
            broker.subscribe(listener.peer, "heartbeat")
            await trio.sleep(2.5 * INTERVAL_S)
            broker.unsubscribe(listener.peer, "heartbeat")
            await trio.sleep(10 * INTERVAL_S)
            nursery.cancel_scope.cancel()
        begin = 10 * INTERVAL_S + 1
        assert [round(time - start, 3) for time in listener.times] == [
            begin + count * INTERVAL_S for count in range(3)
        ]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
