"""The store is committed before a message leaves the daemon, and once for many within it."""

from __future__ import annotations

import dataclasses
import errno
import os
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from rawclient import RawClient
from simulatedsystem import OPTIONS, in_virtual_time, instance_on
from virtualtime import make_broker

from penstock import _core
from penstock._core import STREAMING, Message
from penstock.client import Client
from penstock.client.calls import raw_call
from penstock.errors import RpcError, StoreError
from penstock.instance import sockets
from penstock.instance.commits import Store
from penstock.instance.internal_client import InternalClient
from penstock.instance.services import MAX_COMMIT_DELAY_S
from penstock.instance.sockets import LocalSockets
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from simulatedsystem import SimulatedMachine

    from penstock._core import Batch, JobManager
    from penstock.instance.broker import Broker


SIMULATED = dataclasses.replace(OPTIONS, exec="sim")


def test_a_commit_syncs_the_data_of_the_log_alone():
    # The name of the function in the extension's table of symbols: only SQLite uses it.
    assert b"\0fdatasync\0" in Path(_core.__file__).read_bytes()


async def count_commits(client) -> int:
    return (await client.rpc("job-manager.stats-get"))["commits"]


def simulated_job(duration: str) -> dict[str, Any]:
    return from_command(["true"], setattr={"exec.test.run_duration": duration})


def test_services_commit_once_for_all_that_they_say_to_each_other():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, SIMULATED) as client:
            before = await count_commits(client)
            job = await client.submit(simulated_job("10s"))
            assert (await client.wait_row(job))["success"]
            # With the response to the submission, with the response to `wait`, and after a delay,
            # as no client gets a message at the start.
            assert await count_commits(client) - before <= 3

    in_virtual_time(scenario)


def test_changes_without_a_message_to_a_client_are_committed_after_a_delay():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, SIMULATED) as client:
            await client.submit(simulated_job("10s"))
            before = await count_commits(client)
            assert machine.instance is not None
            manager = machine.instance._manager
            await trio.sleep(10 + 2 * MAX_COMMIT_DELAY_S)
            assert not manager.has_uncommitted
            assert await count_commits(client) > before

    in_virtual_time(scenario)


def test_a_late_commit_that_fails_is_retried_by_a_job_manager_built_again():
    async def scenario(machine: SimulatedMachine) -> None:
        failures: list[float] = []

        def fail() -> None:
            failures.append(machine.clock.now())
            raise disk_full()

        async with instance_on(machine, SIMULATED) as client:
            job = await client.submit(simulated_job("10s"))
            instance = machine.instance
            assert instance is not None
            instance._broker.commits.store = Store(instance._jobs.peer, fail)
            await trio.sleep(20)
            assert len(failures) == 1
            assert (await client.wait_row(job))["success"]

    in_virtual_time(scenario)


def test_a_submission_is_rejected_that_cannot_be_committed_with_a_response_to_another_peer(
    monkeypatch,
):
    async def scenario(machine: SimulatedMachine) -> None:
        def fail() -> None:
            raise disk_full()

        async with instance_on(machine, SIMULATED) as client:
            instance = machine.instance
            assert instance is not None
            broker = instance._broker
            asking = AskingPeer(broker)
            broker.commits.store = Store(instance._jobs.peer, fail)
            # The job manager serves both requests in one round, and answers the first one first.
            monkeypatch.setattr(machine.network, "has_input", asking.ask)
            with pytest.raises(RpcError) as caught:
                await client.submit(simulated_job("10s"))
            assert caught.value.errno == errno.ENOSPC
            assert asking.questions == 1

    in_virtual_time(scenario)


class AskingPeer:
    """A peer within the daemon that asks the job manager once, just before a client's request."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.peer = broker.attach(self)
        self.questions = 0

    def ask(self) -> bool:
        if not self.questions:
            self.questions += 1
            request = Message.request("job-manager.queue-list", {}, matchtag=1)
            self._broker.post_messages(self.peer, [request])
        # The client's request waits for the same round.
        return True

    def deliver(self, batch: Batch) -> None:
        pass

    def post_output(self, now: float) -> None:
        pass


def disk_full() -> StoreError:
    error = StoreError("disk full")
    error.errno = errno.ENOSPC
    return error


class Writer:
    """A service that writes to the store, responds, and tells the service `recorder`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.calls: list[str] = []
        self.fault: str | None = None
        self.peer = broker.attach(self, names=["writer"], in_memory=True)
        # Whether the disk is slow: a commit is durable at the end of a sync.
        self.is_slow = False
        self.is_syncing = False
        broker.commits.store = Store(
            self.peer, self.commit, lambda: self.is_syncing, self.finish_sync
        )

    def commit(self) -> None:
        if self.fault == "commit":
            raise disk_full()
        if "write" in self.calls:
            self.calls.append("commit")
            self.is_syncing = self.is_slow

    def finish_sync(self) -> None:
        self.is_syncing = False
        if self.fault == "sync":
            raise disk_full()
        self.calls.append("synced")

    def deliver(self, batch: Batch) -> None:
        for message in batch:
            if message.topic == "writer.stream":
                # Behind the request, the second response is routed when a commit has failed.
                told = Message.request("recorder.told", {})
                for messages in ([message.respond({})], [told, message.respond({})]):
                    self.broker.post_messages(self.peer, messages)
            if message.topic == "writer.write":
                self.calls.append("write")
                told = Message.request("recorder.told", {})
                self.broker.post_messages(self.peer, [told, message.respond({})])

    def post_output(self, now: float) -> None:
        if self.fault == "post_output" and "write" in self.calls:
            raise RuntimeError("on demand")


@asynccontextmanager
async def writer_at(path: Path):
    broker = make_broker(os.getuid())
    writer = Writer(broker)
    network = LocalSockets()
    with trio.fail_after(60):
        async with network.listen(path, mode=0o700) as listener, trio.open_nursery() as nursery:
            await nursery.start(broker.listen, listener, network)
            client, other = await RawClient.connect(path), await RawClient.connect(path)
            async with client.stream, other.stream:
                yield writer, nursery, client, other
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_response_is_sent_after_the_commit(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, _):
        nursery.start_soon(writer.broker.pump)
        await client.send("writer.write", {})
        (response,) = await client.receive()
        assert response.errnum == 0
        assert writer.calls[:2] == ["write", "commit"]


async def commits(writer: Writer, number: int) -> None:
    """Returns after a number of commits."""
    while writer.calls.count("commit") < number:
        await trio.lowlevel.checkpoint()


@pytest.mark.trio
async def test_responses_wait_for_a_slow_sync_and_others_do_not(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, other):
        writer.is_slow = True
        nursery.start_soon(writer.broker.pump)
        await client.send("writer.write", {})
        await commits(writer, 1)
        # They are answered during the sync, in their order on each connection.
        await other.send("broker.nothing", {})
        (response,) = await other.receive()
        assert response.errnum == errno.ENOSYS
        await client.send("broker.nothing", {})
        await other.send("writer.write", {})
        while writer.calls.count("write") < 2:
            await trio.lowlevel.checkpoint()
        assert writer.calls == ["write", "commit", "write"]
        # The end of the sync is that of the first commit alone; another one follows.
        writer.broker.commits.end_sync()
        responses = await client.receive()
        while len(responses) < 2:
            responses += await client.receive()
        assert [each.topic for each in responses] == ["writer.write", "broker.nothing"]
        assert writer.calls == ["write", "commit", "write", "synced", "commit"]
        writer.broker.commits.end_sync()
        (response,) = await other.receive()
        assert (response.topic, response.errnum) == ("writer.write", 0)


@pytest.mark.trio
async def test_a_sync_that_fails_rejects_the_held_responses(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, other):
        writer.is_slow = True
        nursery.start_soon(writer.broker.pump)
        await client.send("writer.write", {})
        await commits(writer, 1)
        await other.send("writer.write", {})
        while writer.calls.count("write") < 2:
            await trio.lowlevel.checkpoint()
        writer.fault = "sync"
        writer.broker.commits.end_sync()
        for each in (client, other):
            (response,) = await each.receive()
            assert (response.topic, response.errnum) == ("writer.write", errno.ENOSPC)
        assert writer.calls == ["write", "commit", "write"]


@pytest.mark.trio
async def test_a_writer_that_fails_during_a_sync_keeps_what_is_durable(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, other):
        writer.is_slow = True
        nursery.start_soon(writer.broker.pump)
        await client.send("writer.write", {})
        await commits(writer, 1)
        writer.fault = "post_output"
        await other.send("writer.write", {})
        (response,) = await client.receive()
        assert response.errnum == 0
        (response,) = await other.receive()
        assert response.errnum == errno.EIO
        assert writer.calls == ["write", "commit", "write", "synced"]


@pytest.mark.trio
async def test_a_service_that_acts_on_the_outside_waits_for_a_slow_sync(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, _):
        Recorder(writer)
        writer.is_slow = True
        nursery.start_soon(writer.broker.pump)
        await client.send("writer.write", {})
        (response,) = await client.receive()
        assert response.errnum == 0
        assert writer.calls[:4] == ["write", "commit", "synced", "recorder.told"]


@pytest.mark.trio
async def test_a_request_to_a_service_that_acts_on_the_outside_waits_for_no_sync(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, other):
        writer.is_slow = True
        nursery.start_soon(writer.broker.pump)
        await client.send("writer.write", {})
        await commits(writer, 1)
        Recorder(writer)
        await other.send("recorder.told", {})
        while writer.calls != ["write", "commit", "recorder.told"]:
            await trio.lowlevel.checkpoint()


class SlowManager:
    """A job manager whose commits are durable at the end of a sync."""

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        self.is_failing = False

    def __getattr__(self, name: str) -> Any:
        """Everything else is the job manager's."""
        return getattr(self._manager, name)

    def begin_commit(self) -> tuple[bool, bool]:
        """Commits; the sync is to be waited for."""
        has_changed, _ = self._manager.begin_commit()
        return has_changed, has_changed

    def record_commit(self, monotonic: float) -> None:
        """Takes the time of a commit, unless a panic has left the job manager."""
        if self.is_failing:
            raise RuntimeError("the job manager has failed before")
        self._manager.record_commit(monotonic)


async def end_syncs(broker: Broker) -> None:
    """Ends each sync that is under way, until none is."""
    while broker.commits.is_syncing:
        broker.commits.end_sync()
        await trio.testing.wait_all_tasks_blocked()


def test_the_output_of_purged_jobs_is_removed_when_the_purge_is_durable(monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, SIMULATED) as client, trio.open_nursery() as nursery:
            assert machine.instance is not None
            broker, service = machine.instance._broker, machine.instance._jobs
            job = await client.submit(simulated_job("1s"))
            assert (await client.wait_row(job))["success"]
            machine.output.retained.add(job)
            monkeypatch.setattr(service, "_manager", SlowManager(service._manager))
            # A commit is being synced when the jobs are purged.
            nursery.start_soon(client.submit, simulated_job("1s"))
            await trio.testing.wait_all_tasks_blocked()
            assert broker.commits.is_syncing
            nursery.start_soon(client.rpc, "job-manager.purge", {"force": True, "num_limit": 0})
            await trio.testing.wait_all_tasks_blocked()
            assert machine.output.retained == {job}
            broker.commits.end_sync()
            await trio.testing.wait_all_tasks_blocked()
            assert broker.commits.is_syncing
            assert machine.output.retained == {job}
            await end_syncs(broker)
            assert machine.output.retained == set()
            monkeypatch.undo()

    in_virtual_time(scenario)


def test_a_durable_response_is_sent_although_the_job_manager_has_panicked_since(monkeypatch):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, SIMULATED) as client, trio.open_nursery() as nursery:
            assert machine.instance is not None
            broker, service = machine.instance._broker, machine.instance._jobs
            manager = SlowManager(service._manager)
            monkeypatch.setattr(service, "_manager", manager)
            submitted: list[int] = []

            async def submit() -> None:
                submitted.append(await client.submit(simulated_job("1s"), urgency=0))

            nursery.start_soon(submit)
            await trio.testing.wait_all_tasks_blocked()
            assert broker.commits.is_syncing
            assert not submitted
            manager.is_failing = True
            broker.fail(service.peer, RuntimeError("on demand"))
            monkeypatch.undo()
            await trio.testing.wait_all_tasks_blocked()
            assert len(submitted) == 1

    in_virtual_time(scenario)


@pytest.mark.trio
async def test_messages_of_two_clients_that_arrive_together_are_committed_once(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, other):
        nursery.start_soon(writer.broker.pump)
        request = Message.request("writer.write", {}, matchtag=1).encode()
        # No task of the broker has its turn between the two.
        os.write(client.stream.socket.fileno(), request)
        os.write(other.stream.socket.fileno(), request)
        for each in (client, other):
            (response,) = await each.receive()
            assert response.errnum == 0
        assert writer.calls == ["write", "write", "commit"]


@pytest.mark.trio
async def test_a_message_is_answered_without_a_turn_of_the_pump(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, _, client, _):
        await client.send("writer.write", {})
        (response,) = await client.receive()
        assert response.errnum == 0
        assert writer.calls == ["write", "commit"]


@pytest.mark.trio
async def test_requests_of_a_busy_client_do_not_hold_up_a_service_that_is_due(
    tmp_path, monkeypatch
):
    # Time for many requests.
    monkeypatch.setattr(sockets, "LINGER_S", 1.0)
    monkeypatch.setattr(sockets, "MAX_LINGER_S", 1.0)
    path = tmp_path / "socket"
    async with writer_at(path) as (writer, nursery, _, _):
        broker = writer.broker
        alarm = broker.alarm()
        nursery.start_soon(broker.pump)
        has_ended = False

        def ping() -> None:
            with Client(f"local://{path}") as client:
                while not has_ended:
                    with suppress(RpcError):
                        client.ping("nothing")

        async def be_due() -> None:
            nonlocal has_ended
            # Until the client is busy.
            while broker.stats()["received"] < 50:
                await trio.lowlevel.checkpoint()
            for _ in range(200):
                alarm.set(broker.clock.now())
                before = broker.stats()["received"]
                await alarm.wait()
                # One may be in the same pass of the event loop, and one in each of the next.
                assert broker.stats()["received"] - before <= 5
            has_ended = True

        async with trio.open_nursery() as tasks:
            tasks.start_soon(trio.to_thread.run_sync, ping)
            tasks.start_soon(be_due)


@pytest.mark.trio
async def test_what_cannot_be_committed_is_not_sent(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, other):
        Recorder(writer)
        nursery.start_soon(writer.broker.pump)
        writer.fault = "commit"
        await client.send("writer.write", {})
        (response,) = await client.receive()
        assert response.errnum == errno.ENOSPC
        assert response.error_text == "writer.write: the store cannot be written: the disk is full"
        await other.send("writer.write", {})
        (response,) = await other.receive()
        assert response.errnum == errno.ENOSPC
        assert response.error_text == "writer.write: the store cannot be written: the disk is full"
        assert writer.calls == ["write"]


@pytest.mark.trio
async def test_a_stream_with_responses_before_and_after_a_failed_commit_has_one_error(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, _):
        Recorder(writer)
        nursery.start_soon(writer.broker.pump)
        writer.fault = "commit"
        await client.send("writer.stream", {}, flags=STREAMING)
        responses = await client.receive()
        # The errors of the stream come before the response to a later request.
        await client.send("broker.nothing", {})
        while responses[-1].topic != "broker.nothing":
            responses += await client.receive()
        assert [(each.topic, each.errnum) for each in responses] == [
            ("writer.stream", errno.ENOSPC),
            ("broker.nothing", errno.ENOSYS),
        ]


@pytest.mark.trio
async def test_what_a_failed_writer_has_said_is_not_sent(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, other):
        nursery.start_soon(writer.broker.pump)
        writer.fault = "post_output"
        await client.send("writer.write", {})
        # The response was posted before the fault.
        (response,) = await client.receive()
        assert response.errnum == errno.EIO
        await other.send("writer.write", {})
        (response,) = await other.receive()
        assert response.errnum == errno.EIO
        assert writer.calls == ["write"]


def test_a_client_within_the_daemon_gets_the_error_of_a_commit_that_fails_before_its_response():
    broker = make_broker(os.getuid())
    writer = Writer(broker)
    writer.fault = "commit"
    received: list[Message] = []
    InternalClient(broker).send(raw_call("writer.write"), received.append)
    while broker.run_round():
        pass
    assert [response.errnum for response in received] == [errno.ENOSPC]


class Recorder:
    """A service that acts on the outside: it records the messages."""

    def __init__(self, writer: Writer) -> None:
        self._calls = writer.calls
        self.peer = writer.broker.attach(self, names=["recorder"])

    def deliver(self, batch: Batch) -> None:
        self._calls += [message.topic for message in batch if message.topic == "recorder.told"]

    def post_output(self, now: float) -> None:
        pass


@pytest.mark.trio
async def test_a_service_that_acts_on_the_outside_gets_messages_after_the_commit(tmp_path):
    async with writer_at(tmp_path / "socket") as (writer, nursery, client, _):
        Recorder(writer)
        nursery.start_soon(writer.broker.pump)
        await client.send("writer.write", {})
        await client.receive()
        assert writer.calls[:3] == ["write", "commit", "recorder.told"]
