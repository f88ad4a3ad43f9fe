"""A fault in one request, client, service or task touches no other."""

from __future__ import annotations

import dataclasses
import errno
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio
from simulatedsystem import HOUR, OPTIONS, in_virtual_time, instance_on
from trio.testing import MockClock, wait_all_tasks_blocked
from virtualtime import VirtualClock

from penstock._core import PanicException
from penstock.config import parse
from penstock.errors import RpcError
from penstock.instance import services
from penstock.instance.supervision import contain, supervise
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from simulatedsystem import SimulatedMachine

    from penstock._core import Batch
    from penstock.aclient import Client
    from penstock.instance.broker import Broker

GUESTS = parse("[access]\nallow-guest-user = true\n")
FAULTS = [ValueError, PanicException]


def job(*command: str) -> dict[str, Any]:
    return from_command(list(command), environment={}, cwd="/")


async def rejected(client: Client, topic: str, payload: Any) -> int:
    """The errno with which a request is rejected."""
    with pytest.raises(RpcError) as caught:
        await client.rpc(topic, payload)
    number = caught.value.errno
    assert number is not None
    return number


# --- requests


SURROGATE = (
    rb'{"name":"\ud800","service":"\ud800","topic":"\ud800","level":"\ud800","text":"x"}' b"\0"
)


@pytest.mark.parametrize("guest", [True, False])
@pytest.mark.parametrize(
    "topic",
    ["attr.get", "groups.get", "service.add", "event.unsubscribe", "log.append", "broker.ping"],
)
def test_text_that_cannot_be_encoded_costs_its_request_only(topic, guest):
    async def scenario(machine: SimulatedMachine) -> None:
        options = dataclasses.replace(OPTIONS, config=GUESTS, exec="sim")
        machine.network.uid = machine.host.uid + guest
        async with instance_on(machine, options) as client:
            assert await rejected(client, topic, SURROGATE) != errno.EIO
            assert (await client.rpc("broker.ping", {"seq": 1}))["seq"] == 1

    in_virtual_time(scenario)


R = {"version": 1, "execution": {"R_lite": [{"rank": "0-", "children": {"core": "0"}}]}}


@pytest.mark.parametrize(
    "payload",
    [
        {"id": -1, "userid": 0},
        {"id": 2**64, "userid": 0},
        {"id": True, "userid": 0},
        {"id": 1, "userid": -1},
        {"id": 1, "userid": 0, "R": R},
        {"id": 1, "userid": 0, "R": 5},
        {"id": 1, "userid": 0, "status": "x"},
        [],
    ],
)
@pytest.mark.parametrize("topic", ["hooks.prolog", "hooks.epilog"])
def test_a_malformed_hook_request_costs_itself_only(topic, payload):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            text = json.dumps(payload).encode() + b"\0"
            assert await rejected(client, topic, text) in (errno.EPROTO, errno.EINVAL)
            assert (await client.wait_one(await client.submit(job("true"))))["success"]

    in_virtual_time(scenario)


# --- services


class Faulty:
    """A service that raises on demand, and answers otherwise."""

    def __init__(self, broker: Broker, fault: type[BaseException]) -> None:
        self._broker = broker
        self._fault = fault
        self.settles = True
        self.calls = 0
        self.peer = broker.attach(self, names=["faulty"])

    def deliver(self, batch: Batch) -> None:
        """Answers every request; raises for `faulty.raise`."""
        self.calls += 1
        for request in batch:
            if request.topic == "faulty.raise":
                raise self._fault("on demand")
            self._broker.post_messages(self.peer, [request.respond({})])

    def settle(self, now: float) -> None:
        """Raises unless `settles` is set."""
        if not self.settles:
            raise self._fault("on demand")


def broker_of(machine: SimulatedMachine) -> Broker:
    assert machine.instance is not None
    return machine.instance._broker


@pytest.mark.parametrize("fault", FAULTS)
def test_a_service_that_raises_fails_alone_and_its_requests_are_answered(fault, caplog):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            service = Faulty(broker_of(machine), fault)
            assert await client.rpc("faulty.fine") == {}
            assert await rejected(client, "faulty.raise", {}) == errno.EIO
            calls = service.calls
            assert await rejected(client, "faulty.fine", {}) == errno.EIO
            assert service.calls == calls
            assert (await client.rpc("broker.stats-get"))["failed"] == 1
            assert (await client.wait_one(await client.submit(job("true"))))["success"]

    in_virtual_time(scenario)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "service Faulty has failed"
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_service_that_cannot_settle_fails_alone(fault, caplog):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            Faulty(broker_of(machine), fault).settles = False
            assert (await client.wait_one(await client.submit(job("true"))))["success"]
            assert await rejected(client, "faulty.fine", {}) == errno.EIO

    in_virtual_time(scenario)
    assert len([record for record in caplog.records if record.exc_info]) == 1


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("name", "method"),
    [("Scheduler", "handle"), ("Scheduler", "schedule"), ("MockExec", "handle")],
)
def test_a_rust_service_that_panics_is_replaced(name, method, fault, monkeypatch):
    made: list[Any] = []
    real = getattr(services, name)

    class Panicking:
        """The first one panics at its third call; the others are real."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._real, self._calls = real(*args, **options), 0
            made.append(self)

        def __getattr__(self, attribute: str) -> Any:
            if attribute == method and made[0] is self:
                self._calls += 1
                if self._calls > 2:
                    raise fault("on demand")
            return getattr(self._real, attribute)

    monkeypatch.setattr(services, name, Panicking)

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, dataclasses.replace(OPTIONS, exec="sim")) as client:
            for _ in range(4):
                row = await client.wait_one(await client.submit(job("true")))
            assert row["success"]

    in_virtual_time(scenario)
    assert len(made) == 2


def fail_next(monkeypatch, service: Any, method: str, fault: type[BaseException]) -> None:
    """Makes the next call of a service's method raise."""

    def fail(*_args: Any) -> None:
        monkeypatch.undo()
        raise fault("on demand")

    monkeypatch.setattr(service, method, fail)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", ["deliver", "settle"])
@pytest.mark.parametrize(
    ("name", "topic", "payload"),
    [
        ("_control", "broker.ping", {"seq": 1}),
        ("_log", "log.stats-get", {}),
        ("_hooks", "hooks.stats-get", {}),
    ],
)
def test_a_service_of_the_daemon_that_fails_is_restarted(
    name, topic, payload, method, fault, monkeypatch, caplog
):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            assert machine.instance is not None
            fail_next(monkeypatch, getattr(machine.instance, name), method, fault)
            # A failure in `settle` follows the response.
            if method == "deliver":
                assert await rejected(client, topic, payload) == errno.EIO
            else:
                await client.rpc(topic, payload)
            await trio.sleep(1)
            await client.rpc(topic, payload)
            assert (await client.rpc("broker.stats-get"))["failed"] == 0

    in_virtual_time(scenario)
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_a_service_that_fails_again_and_again_answers_eio_between_its_restarts(monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            assert machine.instance is not None
            failing = machine.instance._log

            def fail(*_args: Any) -> None:
                raise ValueError("on demand")

            monkeypatch.setattr(failing, "deliver", fail)
            for _ in range(20):
                assert await rejected(client, "log.stats-get", {}) == errno.EIO
                await trio.sleep(1)
            monkeypatch.undo()
            await trio.sleep(HOUR)
            await client.rpc("log.stats-get")

    in_virtual_time(scenario)


def test_a_running_prolog_survives_a_fault_of_its_service(monkeypatch):
    config = parse('[job-manager.prolog]\ncommand = ["sleep", "10m"]\n')

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, dataclasses.replace(OPTIONS, config=config)) as client:
            submitted = await client.submit(job("true"))
            await trio.sleep(HOUR / 12)
            assert machine.instance is not None
            fail_next(monkeypatch, machine.instance._hooks, "deliver", ValueError)
            assert await rejected(client, "hooks.ping", {}) == errno.EIO
            assert (await client.wait_one(submitted))["success"]

    in_virtual_time(scenario)


def test_followers_of_a_log_that_fails_get_an_error(monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            assert machine.instance is not None
            async with client.dmesg(follow=True) as lines:
                await anext(lines)
                fail_next(monkeypatch, machine.instance._log, "deliver", ValueError)
                assert await rejected(client, "log.ping", {}) == errno.EIO
                with pytest.raises(RpcError) as caught:
                    async for _line in lines:
                        pass
            assert caught.value.errno == errno.EIO
            assert [line async for line in client.dmesg()]

    in_virtual_time(scenario)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_manager_that_panics_leaves_the_rest_running(fault):
    class Panicking:
        def __init__(self, manager: Any) -> None:
            self._manager = manager

        def __getattr__(self, attribute: str) -> Any:
            if attribute == "handle":
                raise fault("on demand")
            return getattr(self._manager, attribute)

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            await client.submit(job("sleep", "1h"))
            await wait_all_tasks_blocked()
            assert machine.instance is not None
            machine.instance._jobs._manager = Panicking(machine.instance._manager)
            assert await rejected(client, "job-list.job-stats", {}) == errno.EIO
            assert (await client.rpc("broker.ping", {"seq": 1}))["seq"] == 1
            # The task continues to its end.
            await trio.sleep(2 * HOUR)
            (task,) = machine.processes.tasks.values()
            assert task.status == 0
            assert task.signals == []

    in_virtual_time(scenario)


# --- clients


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_sending_to_one_client_closes_that_connection_only(fault, monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        async with (
            instance_on(machine, dataclasses.replace(OPTIONS, exec="sim")) as client,
            machine.network.connect(f"local://{OPTIONS.socket}") as other,
        ):
            first = min(broker_of(machine)._sockets)
            remote = broker_of(machine)._sockets[first]

            def fail(_batch: Batch) -> None:
                raise fault("on demand")

            monkeypatch.setattr(remote, "send", fail)
            with pytest.raises(OSError, match="closed the connection"):
                await client.rpc("broker.ping")
            assert (await other.rpc("broker.ping", {"seq": 1}))["seq"] == 1

    in_virtual_time(scenario)


# --- tasks


@pytest.mark.parametrize("fault", FAULTS)
def test_a_task_that_fails_is_restarted_with_growing_pauses(fault, caplog):
    starts: list[float] = []

    async def fails_thrice() -> None:
        starts.append(trio.current_time())
        if len(starts) < 4:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(raise_in_nursery)

    async def raise_in_nursery() -> None:
        raise fault("on demand")

    async def main() -> None:
        clock = VirtualClock(trio.lowlevel.current_clock())
        await supervise("task", fails_thrice, clock)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    pauses = [round(late - early, 6) for early, late in pairwise(starts)]
    assert pauses == [0.1, 0.2, 0.4]
    assert caplog.text.count("task has failed and is restarted") == 3


def test_a_fatal_exception_is_not_contained():
    async def fails() -> None:
        raise KeyError("fatal")

    async def main() -> None:
        clock = VirtualClock(trio.lowlevel.current_clock())
        await supervise("task", fails, clock, (KeyError,))

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(main)
    assert caught.group_contains(KeyError)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_background_function_that_fails_ends_alone(fault, caplog):
    async def fails(text: str) -> None:
        raise fault(text)

    trio.run(contain, "function", fails, "on demand")
    assert "function has failed" in caplog.text
