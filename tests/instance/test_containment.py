"""A fault in one request, client, service or task touches no other."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import re
import signal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import pytest
import trio
from rawclient import RawClient
from simulatedsystem import HOUR, OPTIONS, in_virtual_time, instance_on
from trio.testing import MockClock, wait_all_tasks_blocked
from virtualtime import VirtualClock

from penstock._core import STREAMING, Message, PanicException
from penstock.config import parse
from penstock.errors import NoInstanceError, RpcError, StoreError
from penstock.instance import services
from penstock.instance.commits import Store
from penstock.instance.connection_log import MAX_USER_LINES
from penstock.instance.quotas import MAX_FAILURES, REJECTION_S
from penstock.instance.supervision import SUSPENSION_S, contain, supervise
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from simulatedsystem import SimulatedMachine

    from penstock._core import Batch, Router
    from penstock.aclient import Client
    from penstock.instance.broker import Broker
    from penstock.instance.daemon import Instance

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
START = rb'{"id":1,"userid":0,"jobspec":{"attributes":{"system":{"cwd":"\ud800"}}}}' b"\0"


@pytest.mark.parametrize("guest", [True, False])
@pytest.mark.parametrize(
    "topic",
    [
        *("attr.get", "groups.get", "service.add", "event.unsubscribe", "log.append"),
        *("broker.ping", "job-exec.start"),
    ],
)
def test_text_that_cannot_be_encoded_costs_its_request_only(topic, guest):
    async def scenario(machine: SimulatedMachine) -> None:
        options = dataclasses.replace(OPTIONS, config=GUESTS, exec="sim")
        machine.network.uid = machine.host.uid + guest
        async with instance_on(machine, options) as client:
            payload = START if topic == "job-exec.start" else SURROGATE
            assert await rejected(client, topic, payload) != errno.EIO
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
            assert (await client.wait_row(await client.submit(job("true"))))["success"]

    in_virtual_time(scenario)


# --- services


class Faulty:
    """A service that raises on demand, and answers otherwise."""

    def __init__(self, broker: Broker, fault: type[BaseException]) -> None:
        self._broker = broker
        self._fault = fault
        self.posts_output = True
        self.calls = 0
        self.peer = broker.attach(self, names=["faulty"])

    def deliver(self, batch: Batch) -> None:
        """Answers every request; raises for `faulty.raise`."""
        self.calls += 1
        for request in batch:
            if request.topic == "faulty.raise":
                raise self._fault("on demand")
            self._broker.post_messages(self.peer, [request.respond({})])

    def post_output(self, now: float) -> None:
        """Raises unless `posts_output` is set."""
        if not self.posts_output:
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
            assert (await client.wait_row(await client.submit(job("true"))))["success"]

    in_virtual_time(scenario)
    (logged,) = [record.getMessage() for record in caplog.records if record.exc_info]
    assert re.fullmatch(
        r"service Faulty has failed at request faulty\.raise of user \d+ \('\{\}'\)", logged
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_service_that_cannot_post_its_output_fails_alone(fault, caplog):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            Faulty(broker_of(machine), fault).posts_output = False
            assert (await client.wait_row(await client.submit(job("true"))))["success"]
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
                row = await client.wait_row(await client.submit(job("true")))
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
@pytest.mark.parametrize("method", ["deliver", "post_output"])
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
            # A failure in `post_output` follows the response.
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
            assert (await client.wait_row(submitted))["success"]

    in_virtual_time(scenario)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_while_a_prolog_runs_is_its_status(monkeypatch, fault):
    config = parse('[job-manager.prolog]\ncommand = ["true"]\n')

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, dataclasses.replace(OPTIONS, config=config)) as client:
            assert machine.instance is not None
            fail_next(monkeypatch, machine.instance._hooks, "_execute", fault)
            # An error would tell a job manager that was built again that the command may run.
            response = await client.rpc("hooks.prolog", {"id": 1, "userid": 0})
            assert response["status"] == 1 << 8
            assert "internal error" in response["note"]
            fail_next(monkeypatch, machine.instance._hooks, "_execute", fault)
            ended = await client.wait_one(await client.submit(job("true")))
            assert ended.exception is not None
            assert ended.exception.type == "prolog"
            assert (await client.wait_one(await client.submit(job("true")))).success

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


class FaultyOnce:
    """A job manager, or another object in Rust, whose method raises at its first call."""

    def __init__(self, real: Any, method: str, fault: Any) -> None:
        self._real, self._method, self._fault = real, method, fault
        self.calls = 0

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._real, attribute)
        if attribute != self._method:
            return found

        def call(*args: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise self._fault
            return found(*args)

        return call


def put_before_job_manager(machine: SimulatedMachine, faulty: Any) -> None:
    """Has the daemon call another object in place of its job manager."""
    instance = machine.instance
    assert instance is not None
    instance._jobs._manager = faulty
    instance._broker.commits.store = Store(instance._jobs.peer, faulty.commit)
    instance._broker.set_core(instance._jobs.peer, faulty)


class FaultyExchange:
    """A router in whose first exchange a service fails."""

    def __init__(self, router: Router, peer: int, fault: Any) -> None:
        self._router, self._peer, self._fault = router, peer, fault
        self.calls = 0

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._router, attribute)

    def exchange(self, sender: int, batch: Batch, cores: Any, now: float, limit: int) -> Any:
        self.calls += 1
        if self.calls > 1:
            return self._router.exchange(sender, batch, cores, now, limit)
        others = [each for each in cores if each[0] != self._peer]
        deliveries, *rest, _ = self._router.exchange(sender, batch, others, now, limit)
        failures = [(peer, got, self._fault) for _, peer, got in deliveries if peer == self._peer]
        deliveries = [each for each in deliveries if each[1] != self._peer]
        return (deliveries, *rest, failures)


DISK_FULL = StoreError("store: cannot commit: database or disk is full")
DISK_FULL.errno = errno.ENOSPC


@pytest.mark.parametrize("execution", ["local", "sim"])
@pytest.mark.parametrize(
    "method", ["handle", "exchange", "take_output", "commit", "advance", "set_services"]
)
@pytest.mark.parametrize("fault", [ValueError("on demand"), PanicException("on demand"), DISK_FULL])
def test_a_job_manager_that_fails_is_built_again_from_its_store(fault, method, execution, caplog):
    async def scenario(machine: SimulatedMachine) -> None:
        options = dataclasses.replace(OPTIONS, exec=execution)
        async with instance_on(machine, options) as client:
            uri = f"local://{options.socket}"
            instance = machine.instance
            assert instance is not None
            running = await client.submit(simulated_job("1h"))
            pending = await client.submit(simulated_job("1h", cores=4))
            delayed = await client.submit(simulated_job("1m", begin=machine.clock.now() + 60))
            await wait_all_tasks_blocked()
            faulty: FaultyOnce | FaultyExchange
            if method == "exchange":
                broker = instance._broker
                faulty = FaultyExchange(broker._router, instance._jobs.peer, fault)
                vars(broker)["_router"] = faulty
            else:
                faulty = FaultyOnce(instance._manager, method, fault)
                put_before_job_manager(machine, faulty)
            if method == "set_services":
                async with machine.network.connect(uri) as other:
                    await other.rpc("service.add", {"service": "other"})
            # The clients of a round that is not committed are disconnected.
            with contextlib.suppress(RpcError, NoInstanceError):
                await client.rpc("job-list.job-stats")
            await trio.sleep(90)
            assert faulty.calls > 0
            async with machine.network.connect(uri) as other:
                stats = await other.rpc("broker.stats-get")
                assert (stats["failed"], stats["suspended"]) == (0, [])
                assert stats["failures"] == 1
                later = await other.submit(simulated_job("1m"))
                for job in (running, pending, delayed, later):
                    assert (await other.wait_row(job))["success"]
            tasks = machine.processes.tasks.values()
            assert [task.signals for task in tasks] == [[]] * len(tasks)
            # Each job was started once.
            assert len(tasks) == (4 if execution == "local" else 0)

    in_virtual_time(scenario)
    assert caplog.text.count("service ManagerService has failed") == 1
    # No other fault follows from it. The cause of an outage is in the text.
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert len(tracebacks) == (0 if fault is DISK_FULL else 1)


def test_a_running_prolog_is_ended_and_run_again_when_the_job_manager_is_built_again():
    config = parse('[job-manager.prolog]\ncommand = ["sleep", "10m"]\n')

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, dataclasses.replace(OPTIONS, config=config)) as client:
            submitted = await client.submit(job("true"))
            await trio.sleep(HOUR / 12)
            instance = machine.instance
            assert instance is not None
            faulty = FaultyOnce(instance._manager, "handle", ValueError("x"))
            put_before_job_manager(machine, faulty)
            assert await rejected(client, "job-list.job-stats", {}) == errno.EIO
            await trio.sleep(1)
            assert (await client.wait_row(submitted))["success"]
            prologs = [each for each in machine.processes.started if "10m" in each.command]
            assert [each.signals for each in prologs] == [[signal.SIGTERM], []]

    in_virtual_time(scenario)


def simulated_job(duration: str, cores: int = 1, begin: float | None = None) -> dict[str, Any]:
    """A job of this duration, whatever the execution service."""
    attributes: dict[str, Any] = {"exec.test.run_duration": duration}
    if begin is not None:
        attributes["dependencies"] = [{"scheme": "begin-time", "value": str(begin)}]
    command = ["sleep", duration]
    return from_command(command, ntasks=cores, environment={}, cwd="/", setattr=attributes)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_outstanding_requests_of_a_job_manager_that_fails_are_answered(fault):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            job = await client.submit(simulated_job("1h"))
            await wait_all_tasks_blocked()
            instance = machine.instance
            assert instance is not None

            async def follow() -> None:
                with pytest.raises(RpcError, match=r"the service has failed") as caught:
                    await client.wait_row(job)
                assert caught.value.errno == errno.EIO

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await wait_all_tasks_blocked()
                faulty = FaultyOnce(instance._manager, "handle", fault("x"))
                put_before_job_manager(machine, faulty)
                assert await rejected(client, "job-list.job-stats", {}) == errno.EIO
            # The tracked requests have one answer each.
            await trio.sleep(1)
            assert (await client.wait_row(job))["success"]

    in_virtual_time(scenario)


def test_a_stream_whose_responses_are_not_committed_ends_once():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            job = await client.submit(simulated_job("1h"))
            # Nothing is left to be committed later.
            await trio.sleep(1)
            instance = machine.instance
            assert instance is not None
            raw = RawClient(await machine.network.open(f"local://{OPTIONS.socket}"))
            faulty = FaultyOnce(instance._manager, "commit", DISK_FULL)
            instance._broker.commits.store = Store(instance._jobs.peer, faulty.commit)
            payload = {"id": job, "flags": 0}
            await raw.send("job-info.eventlog-watch", payload, flags=STREAMING)
            (error,) = await raw.receive()
            assert error.errnum == errno.ENOSPC
            with trio.move_on_after(60):
                pytest.fail(f"{await raw.receive()} after the end of the stream")

    in_virtual_time(scenario)


def fail_commits(instance: Instance) -> None:
    """Has each commit of changes fail, until the job manager is built again: the disk is full."""
    manager = instance._manager

    def commit() -> None:
        if manager.has_uncommitted:
            raise DISK_FULL
        manager.commit()

    instance._broker.commits.store = Store(instance._jobs.peer, commit)


def test_a_follower_of_the_log_stays_when_another_response_to_it_cannot_be_committed():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            await trio.sleep(1)
            instance = machine.instance
            assert instance is not None
            fail_commits(instance)
            stream = await machine.network.open(f"local://{OPTIONS.socket}")
            requests = [
                Message.request("log.dmesg", {"follow": True}, matchtag=1, flags=STREAMING),
                Message.request("job-ingest.submit", {"jobspec": job("true")}, matchtag=2),
            ]
            # Both are served in one round.
            await stream.send_all(b"".join(request.encode() for request in requests))
            raw = RawClient(stream)
            received: list[Message] = []
            while not any("ManagerService is restarted" in str(each.payload) for each in received):
                received += await raw.receive()
            assert [(each.matchtag, each.errnum) for each in received if each.errnum] == [
                (2, errno.ENOSPC)
            ]
            assert (await client.wait_row(await client.submit(job("true"))))["success"]

    in_virtual_time(scenario)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_manager_that_fails_while_the_instance_starts_is_built_again(fault, monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        fail_next(monkeypatch, services.ManagerService, "_do", fault)
        async with instance_on(machine) as client:
            await trio.sleep(1)
            assert (await client.wait_row(await client.submit(job("true"))))["success"]
            assert (await client.rpc("broker.stats-get"))["failures"] == 1

    in_virtual_time(scenario)


@pytest.mark.parametrize("fault", [*FAULTS, None])
@pytest.mark.parametrize("later", [False, True])
def test_a_node_is_drained_or_its_drain_is_rejected_when_the_job_manager_fails(fault, later):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            await trio.sleep(1)
            instance = machine.instance
            assert instance is not None
            faulty = FaultyOnce(instance._manager, "handle", fault("x") if fault else DISK_FULL)
            put_before_job_manager(machine, faulty)
            raw = RawClient(await machine.network.open(f"local://{OPTIONS.socket}"))
            payload = {"targets": "1", "reason": "broken"}
            drain = Message.request("resource.drain", payload, matchtag=1).encode()
            stats = Message.request("job-list.job-stats", {}, matchtag=2).encode()
            # Before the failure, in its round, or before the restart.
            await raw.stream.send_all(stats if later else drain + stats)
            received = await raw.receive()
            if later:
                await raw.stream.send_all(drain)
            while not (errors := [each.errnum for each in received if each.matchtag == 1]):
                received += await raw.receive()
            await trio.sleep(60)
            status = await client.rpc("resource.status")
            assert (errors == [0]) == ("1" in status["drain"])

    in_virtual_time(scenario)


def test_a_drain_is_answered_once_when_resource_module_and_store_fail(monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine):
            await trio.sleep(1)
            instance = machine.instance
            assert instance is not None
            fail_commits(instance)
            fail_next(monkeypatch, instance._resource, "post_output", ValueError)
            raw = RawClient(await machine.network.open(f"local://{OPTIONS.socket}"))
            await raw.send("resource.drain", {"targets": "1", "reason": "broken"})
            (error,) = await raw.receive()
            assert error.errnum == errno.EIO
            with trio.move_on_after(60):
                pytest.fail(f"{await raw.receive()} after the response")

    in_virtual_time(scenario)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", ["handle", "take_output", "configure"])
def test_a_resource_module_that_fails_is_built_again_from_its_eventlog(fault, method):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            await client.rpc("resource.drain", {"targets": "1", "reason": "broken"})
            instance = machine.instance
            assert instance is not None
            service = instance._resource
            service._module = FaultyOnce(service._module, method, fault("on demand"))
            if method == "configure":
                config = {"resource": {"exclude": "0"}}
                assert await rejected(client, "config.reload", {"config": config}) == errno.EIO
            else:
                assert await rejected(client, "resource.status", {}) == errno.EIO
            await trio.sleep(60)
            assert (await client.rpc("resource.status"))["drain"]["1"]["reason"] == "broken"
            assert (await client.wait_row(await client.submit(job("true"))))["success"]
            stats = await client.rpc("broker.stats-get")
            assert (stats["failed"], stats["failures"]) == (0, 1)

    in_virtual_time(scenario)


def test_a_job_manager_that_fails_again_and_again_is_suspended_visibly(caplog):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            task = await client.submit(job("sleep", "1h"))
            await wait_all_tasks_blocked()
            instance = machine.instance
            assert instance is not None

            class Failing:
                def __getattr__(self, attribute: str) -> Any:
                    raise PanicException("on demand")

            failing: Any = Failing()
            real, instance._jobs._manager = instance._manager, failing
            instance._broker.set_core(instance._jobs.peer, failing)
            assert await rejected(client, "job-list.job-stats", {}) == errno.EIO
            await trio.sleep(SUSPENSION_S / 2)
            stats = await client.rpc("broker.stats-get")
            assert stats["suspended"] == sorted(instance._jobs.NAMES)
            states = {row["name"]: row["state"] for row in await client.services()}
            assert (states["job-manager"], states["log"]) == ("suspended", "running")
            assert await rejected(client, "job-list.job-stats", {}) == errno.EIO
            instance._jobs._manager = real
            await trio.sleep(SUSPENSION_S)
            states = {row["name"]: row["state"] for row in await client.services()}
            assert states["job-manager"] == "running"
            assert (await client.wait_row(task))["success"]

    in_virtual_time(scenario)
    assert "job-manager, job-ingest" in caplog.text
    assert "suspended for 600 s after 8 failures in a row" in caplog.text


def test_a_guest_at_whose_requests_a_service_fails_is_not_served_for_a_while(caplog):
    async def scenario(machine: SimulatedMachine) -> None:
        options = dataclasses.replace(OPTIONS, config=GUESTS, exec="sim")
        uri = f"local://{options.socket}"
        async with instance_on(machine, options) as owner:
            instance = machine.instance
            assert instance is not None
            machine.network.uid = machine.host.uid + 1
            for _ in range(MAX_FAILURES):
                async with machine.network.connect(uri) as guest:
                    faulty = FaultyOnce(instance._manager, "handle", PanicException("on demand"))
                    put_before_job_manager(machine, faulty)
                    with pytest.raises((RpcError, NoInstanceError)):
                        await guest.rpc("job-list.job-stats", {})
                    assert faulty.calls > 0
                # The job manager is restarted meanwhile.
                await trio.sleep(60)
            with pytest.raises(NoInstanceError):
                async with machine.network.connect(uri):
                    pass
            machine.network.uid += 1
            async with machine.network.connect(uri) as other:
                assert await other.rpc("job-list.job-stats")
            stats = await owner.rpc("broker.stats-get")
            assert (stats["failures"], stats["suspended"]) == (MAX_FAILURES, [])
            assert stats["guests"]["rejected"]["connections"] == 1
            await trio.sleep(REJECTION_S)
            machine.network.uid -= 1
            async with machine.network.connect(uri) as guest:
                assert await guest.rpc("job-list.job-stats")

    in_virtual_time(scenario)
    assert "disconnected: services have failed at its requests" in caplog.text


def test_a_watcher_of_services_that_fails_leaves_the_others(caplog):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:

            def fail(_services: dict[str, bytes]) -> None:
                if armed:
                    raise ValueError("on demand")

            armed: list[bool] = []
            broker_of(machine).watch_services(fail)
            armed.append(True)
            async with machine.network.connect(f"local://{OPTIONS.socket}") as other:
                await other.rpc("service.add", {"service": "other"})
            assert (await client.wait_row(await client.submit(job("true"))))["success"]

    in_virtual_time(scenario)
    assert "cannot report the services" in caplog.text


@pytest.mark.parametrize("fault", FAULTS)
def test_a_simulated_execution_that_panics_at_a_deadline_is_replaced(fault):
    async def scenario(machine: SimulatedMachine) -> None:
        made: list[FaultyOnce] = []

        def make(name: str) -> Any:
            made.append(FaultyOnce(real(name), "advance", fault("on demand")))
            return made[0] if len(made) == 1 else real(name)

        real = services.MockExec
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(services, "MockExec", make)
            async with instance_on(machine, dataclasses.replace(OPTIONS, exec="sim")) as client:
                submitted = await client.submit(simulated_job("1m"))
                await trio.sleep(HOUR)
                assert (await client.wait_row(submitted))["id"] == submitted
                later = await client.submit(simulated_job("1m"))
                assert (await client.wait_row(later))["success"]
        assert [faulty.calls for faulty in made][:1] == [1]

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


class FailingListener:
    """Accepts connections after some errors."""

    def __init__(self, listener: Any, faults: list[OSError]) -> None:
        self._listener, self._faults = listener, faults

    async def accept(self) -> Any:
        if self._faults:
            await trio.lowlevel.checkpoint()
            raise self._faults.pop()
        return await self._listener.accept()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_args: object) -> None:
        await self._listener.aclose()


def test_a_connection_that_cannot_be_accepted_leaves_the_others(monkeypatch, caplog):
    async def scenario(machine: SimulatedMachine) -> None:
        faults = [OSError(number, "on demand") for number in (errno.EMFILE, errno.ECONNABORTED)]
        listen = machine.network.listen

        @contextlib.asynccontextmanager
        async def failing(path: Any, *, mode: int) -> Any:
            async with listen(path, mode=mode) as listener:
                yield FailingListener(listener, faults)

        monkeypatch.setattr(machine.network, "listen", failing)
        async with instance_on(machine) as client:
            assert (await client.rpc("broker.ping", {"seq": 1}))["seq"] == 1
        assert faults == []

    in_virtual_time(scenario)
    assert caplog.text.count("cannot accept a connection") == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_connection_whose_user_is_unknown_is_closed_alone(fault, monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:

            def fail(_stream: Any) -> tuple[int, int]:
                raise fault("on demand")

            with monkeypatch.context() as patch:
                patch.setattr(machine.network, "credentials", fail)
                with pytest.raises(OSError, match="closed the connection"):
                    async with machine.network.connect(f"local://{OPTIONS.socket}"):
                        pass
            assert (await client.rpc("broker.ping", {"seq": 1}))["seq"] == 1

    in_virtual_time(scenario)


def test_faults_of_connections_are_counted_beyond_the_lines_in_the_log(monkeypatch, caplog):
    count = MAX_USER_LINES + 5

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            before = (await client.stats("log"))["faults"]

            def fail(_stream: Any) -> tuple[int, int]:
                raise ValueError("on demand")

            with monkeypatch.context() as patch:
                patch.setattr(machine.network, "credentials", fail)
                for _ in range(count):
                    with pytest.raises(OSError, match="closed the connection"):
                        async with machine.network.connect(f"local://{OPTIONS.socket}"):
                            pass
            assert (await client.stats("log"))["faults"] - before == count

    in_virtual_time(scenario)
    assert caplog.text.count("closing the connection") == MAX_USER_LINES


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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_background_function_that_fails_ends_alone(fault, caplog):
    async def fails(text: str) -> None:
        raise fault(text)

    trio.run(contain, "function", fails, "on demand")
    assert "function has failed" in caplog.text
