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

from penstock._core import Batch, Decoder, Message
from penstock.config import parse
from penstock.instance.intake import MIN_PART_MESSAGES, ROUND_MESSAGES
from penstock.instance.services import MAX_SLICES, SLICES_PER_COMMIT_TIME
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from simulatedsystem import SimulatedMachine

    from penstock._core import JobManager
    from penstock.instance.system import Network

GUESTS = parse("[access]\nallow-guest-user = true\n")
SPEC = from_command(["true"], environment={}, cwd="/")
JOBS = 10_000
SLICE_S = 0.001
TURN_S = 0.005
COMMIT_S = 0.0015


class TimedManager:
    """A job manager whose slices and commits take time.

    Attributes:
        slices: when each slice has begun, and whether changes were uncommitted then.
        committed: how many of them were committed.
    """

    def __init__(self, manager: JobManager, commit_s: float = 0.0) -> None:
        self._manager = manager
        self._commit_s = commit_s
        self.slices: list[tuple[float, bool]] = []
        self.committed = 0

    def __getattr__(self, name: str) -> Any:
        """Everything else is the job manager's."""
        return getattr(self._manager, name)

    def begin_commit(self) -> tuple[bool, bool]:
        """Commits, which takes time."""
        self.committed = len(self.slices)
        self._pass(self._commit_s)
        return self._manager.begin_commit()

    def advance(self, now: float) -> bool:
        """Does a slice."""
        self.slices.append((trio.current_time(), self._manager.has_uncommitted))
        self._pass(SLICE_S)
        return self._manager.advance(now)

    @staticmethod
    def _pass(seconds: float) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump(seconds)


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


def test_slices_between_requests_take_longer_than_the_commit_of_a_response(monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        # Slices that a request could have interrupted, and those that were committed.
        interruptible: list[int] = []

        def has_input() -> bool:
            interruptible.append(len(manager.slices) - manager.committed)
            return True

        async with instance_on(machine, dataclasses.replace(OPTIONS, exec="sim")) as client:
            assert machine.instance is not None
            service = machine.instance._jobs
            manager = TimedManager(service._manager, COMMIT_S)
            monkeypatch.setattr(service, "_manager", manager)
            await client.submit(SPEC, urgency=0)
            monkeypatch.setattr(machine.instance._broker, "has_input", has_input)
            await client.submit(SPEC, count=JOBS, urgency=0)
        interruptible = [slices for slices in interruptible if slices]
        assert len(interruptible) > 5
        assert min(interruptible) * SLICE_S >= SLICES_PER_COMMIT_TIME * COMMIT_S

    in_virtual_time(scenario)


CLIENTS = 24
PINGS = 400


def test_a_round_takes_some_messages_of_each_connection(monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        # By round: the connection and the number of messages of each part.
        rounds: list[list[tuple[int, int]]] = [[]]
        answered: list[int] = []
        async with instance_on(machine, OPTIONS) as client, trio.open_nursery() as nursery:
            assert machine.instance is not None
            broker = machine.instance._broker
            take_in, run_round = broker.take_in, broker.run_round

            def take(peer: int, batch: Batch, network: Network) -> None:
                rounds[-1].append((peer, len(batch)))
                take_in(peer, batch, network)

            def run() -> bool:
                rounds.append([])
                return run_round()

            async def ping_often() -> None:
                stream = await machine.network.open(client.uri)
                pings = Batch(
                    Message.request("broker.ping", {}, matchtag=tag + 1) for tag in range(PINGS)
                )
                await stream.send_all(pings.encode())
                decoder, tags = Decoder(), list[int]()
                while len(tags) < PINGS:
                    tags += [each.matchtag for each in decoder.feed(await stream.receive_some())]
                assert tags == list(range(1, PINGS + 1))
                answered.append(tags[-1])

            monkeypatch.setattr(broker, "take_in", take)
            monkeypatch.setattr(broker, "run_round", run)
            for _ in range(CLIENTS):
                nursery.start_soon(ping_often)
        taken = [sum(size for _, size in parts) for parts in rounds]
        assert max(taken) <= ROUND_MESSAGES + CLIENTS * MIN_PART_MESSAGES
        assert sum(taken) >= CLIENTS * PINGS
        # Each connection has one part of a round.
        assert all(len({peer for peer, _ in parts}) == len(parts) for parts in rounds)
        assert max(len(parts) for parts in rounds) > CLIENTS // 4
        assert len(answered) == CLIENTS

    in_virtual_time(scenario)
