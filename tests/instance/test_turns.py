"""Slices of large requests take turns with the requests of other users.

Each slice takes a virtual millisecond.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio
from simulatedsystem import OPTIONS, in_virtual_time, instance_on

from penstock.config import parse
from penstock.instance.services import MAX_SLICES
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from simulatedsystem import SimulatedMachine

    from penstock._core import JobManager

GUESTS = parse("[access]\nallow-guest-user = true\n")
SPEC = from_command(["true"], environment={}, cwd="/")
JOBS = 10_000
SLICE_S = 0.001
TURN_S = 0.005


class TimedManager:
    """A job manager whose slices take time.

    Attributes:
        slices: when each slice has begun, and whether changes were uncommitted then.
    """

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        self.slices: list[tuple[float, bool]] = []

    def __getattr__(self, name: str) -> Any:
        """Everything else is the job manager's."""
        return getattr(self._manager, name)

    def advance(self, now: float) -> bool:
        """Does a slice."""
        self.slices.append((trio.current_time(), self._manager.has_uncommitted))
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump(SLICE_S)
        return self._manager.advance(now)


@pytest.mark.parametrize("guest", [True, False])
def test_slices_pause_while_another_user_sends_requests(monkeypatch, guest):
    async def scenario(machine: SimulatedMachine) -> None:
        options = dataclasses.replace(OPTIONS, config=GUESTS, exec="sim")
        monkeypatch.setattr(machine.network, "has_input", lambda: False)
        async with instance_on(machine, options) as client, trio.open_nursery() as nursery:
            assert machine.instance is not None
            service = machine.instance._jobs
            monkeypatch.setattr(service, "_manager", manager := TimedManager(service._manager))
            # The large request is the guest's or the owner's, the others are the owner's.
            machine.network.uid = machine.host.uid + guest
            async with machine.network.connect(client.uri) as bulk:

                async def take_turns() -> None:
                    while True:
                        await client.rpc("broker.ping", {})
                        await trio.sleep(TURN_S)

                nursery.start_soon(take_turns)
                await client.rpc("broker.ping", {})
                manager.slices.clear()
                await bulk.submit(SPEC, count=JOBS, urgency=0)
            nursery.cancel_scope.cancel()
        begun = [time for time, _ in manager.slices]
        pauses = [later - time - SLICE_S for time, later in pairwise(begun)]
        paused = sum(pause for pause in pauses if pause > SLICE_S / 2)
        working = len(begun) * SLICE_S
        assert len(begun) > 5 * MAX_SLICES
        if guest:
            assert paused > 0.9 * working
            # After each pause changes of other users are committed without those of slices.
            resumed = zip(pauses, manager.slices[1:], strict=True)
            after_pauses = [later for pause, later in resumed if pause > SLICE_S / 2]
            assert not any(uncommitted for _, uncommitted in after_pauses)
        else:
            assert paused < 0.1 * working

    in_virtual_time(scenario)
