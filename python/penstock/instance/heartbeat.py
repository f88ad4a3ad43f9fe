"""`heartbeat.pulse`: an event at regular intervals, at which clients of Flux read values again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from penstock._core import Batch, Message

if TYPE_CHECKING:
    from penstock.instance.broker import Broker
    from penstock.instance.control import ControlService

PULSE = "heartbeat.pulse"
# That of Flux by default.
INTERVAL_S = 2.0


class Heartbeat:
    """Publishes `heartbeat.pulse` while a peer is subscribed to it: an idle instance does not wake.

    Args:
        broker: the broker.
        publisher: the service that publishes.
    """

    def __init__(self, broker: Broker, publisher: ControlService) -> None:
        self._broker = broker
        self._publisher = publisher

    async def run(self) -> None:
        """Publishes the events, without an end."""
        while True:
            await self._broker.wait_for_subscriber(PULSE)
            self._broker.post(self._publisher.peer, Batch([Message.event(PULSE)]))
            await trio.sleep(INTERVAL_S)
