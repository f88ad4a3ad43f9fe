"""Backpressure: clients that do not read their responses."""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import socket
import time
import tracemalloc
from contextlib import asynccontextmanager

import pytest
import trio
from rawclient import RawClient
from trio.testing import wait_all_tasks_blocked
from virtualtime import make_broker

from penstock._core import Batch, JobManager, Message
from penstock.instance import connection as connection_module
from penstock.instance import guests as guests_module
from penstock.instance import intake as intake_module
from penstock.instance.control import ControlService
from penstock.instance.services import ManagerService
from penstock.instance.sockets import LocalSockets
from penstock.jobspec import from_command

BIG = "x" * 100_000


class Talker:
    """A service with long responses."""

    def __init__(self, broker):
        self._broker = broker
        self.peer = broker.attach(self, names=["talker"])

    def deliver(self, batch):
        answers = [
            message.respond({"text": BIG}) for message in batch if message.topic[-4:] != "nect"
        ]
        self._broker.post_messages(self.peer, answers)

    def post_output(self, now):
        pass


@asynccontextmanager
async def broker_at(path, broker=None):
    broker = broker or make_broker(os.getuid())
    ControlService(broker, attributes={}, config={}, shut_down=lambda _how: None)
    sockets = LocalSockets()
    with trio.fail_after(60):
        async with sockets.listen(path, mode=0o700) as listener, trio.open_nursery() as nursery:
            nursery.start_soon(broker.pump)
            await nursery.start(broker.listen, listener, sockets)
            yield broker
            nursery.cancel_scope.cancel()


def test_a_client_with_too_much_unread_is_disconnected(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(connection_module, "MAX_UNSENT_BYTES", 1_000_000)

    async def main():
        path = tmp_path / "socket"
        async with broker_at(path) as broker:
            Talker(broker)
            lazy, keen = await RawClient.connect(path), await RawClient.connect(path)
            await lazy.send("service.add", {"service": "lazy"})
            assert (await lazy.receive())[0].errnum == 0
            # The first answers are being written already when there get to be too many.
            for _ in range(30):
                assert "lazy" in {row["name"] for row in broker.services()}
                await lazy.send("talker.talk", {})
                await wait_all_tasks_blocked()
                if f"closing the connection of pid {os.getpid()}: it leaves" in caplog.text:
                    break
            assert "lazy" not in {row["name"] for row in broker.services()}
            assert broker.stats()["closed_unread"] == 1
            for _ in range(30):
                await keen.send("talker.talk", {})
                (answer,) = await keen.receive()
                assert answer.object() == {"text": BIG}
            await lazy.stream.aclose()
            await keen.stream.aclose()

    trio.run(main)


class Counter:
    """A service that answers and counts requests."""

    def __init__(self, broker):
        self._broker = broker
        self.count = 0
        self.counted = trio.Event()
        self.peer = broker.attach(self, names=["counter"])

    def deliver(self, batch):
        requests = [message for message in batch if message.topic == "counter.count"]
        self.count += len(requests)
        self._broker.post_messages(self.peer, [request.respond({}) for request in requests])
        self.counted.set()
        self.counted = trio.Event()

    def post_output(self, now):
        pass


def test_all_is_served_that_clients_have_sent_before_they_leave_without_reading(tmp_path):
    clients, requests = 4, 4000

    async def main():
        path = tmp_path / "socket"
        async with broker_at(path) as broker:
            counter = Counter(broker)

            async def send_and_leave():
                client = await RawClient.connect(path)
                request = Message.request("counter.count", {}, matchtag=1)
                await client.stream.send_all(Batch([request] * requests).encode())
                await client.stream.aclose()

            async with trio.open_nursery() as nursery:
                for _ in range(clients):
                    nursery.start_soon(send_and_leave)
            while counter.count < clients * requests:
                await counter.counted.wait()
            assert counter.count == clients * requests
            while broker.stats()["connections"]:
                await wait_all_tasks_blocked()
            assert broker.stats()["unsent"] == 0

    trio.run(main)


def test_requests_to_a_service_that_reads_no_longer_are_answered(tmp_path):
    async def main():
        path = tmp_path / "socket"
        async with broker_at(path):
            service, client = await RawClient.connect(path), await RawClient.connect(path)
            await service.send("service.add", {"service": "deaf"})
            assert (await service.receive())[0].errnum == 0
            service.stream.socket.shutdown(socket.SHUT_RD)
            await client.send("deaf.call", {})
            (answer,) = await client.receive()
            assert answer.errnum == errno.EHOSTUNREACH
            # A client that has left before it becomes a service.
            late = await RawClient.connect(path)
            late.stream.socket.shutdown(socket.SHUT_RD)
            await late.send("broker.ping", {})
            await wait_all_tasks_blocked()
            await late.send("service.add", {"service": "late"})
            await wait_all_tasks_blocked()
            await client.send("late.call", {})
            (answer,) = await client.receive()
            assert answer.errnum in (errno.EHOSTUNREACH, errno.ENOSYS)
            for each in (service, client, late):
                await each.stream.aclose()

    trio.run(main)


def test_a_long_response_takes_no_memory_once_it_is_read(tmp_path):
    responses = 300

    async def main():
        path = tmp_path / "socket"
        async with broker_at(path) as broker:
            Talker(broker)
            client = await RawClient.connect(path)
            await client.send("talker.talk", {})
            assert (await client.receive())[0].errnum == 0
            await wait_all_tasks_blocked()
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                request = Message.request("talker.talk", {}, matchtag=1)
                await client.stream.send_all(Batch([request] * responses).encode())
                received = 0
                while received < responses:
                    received += len(await client.receive())
                await wait_all_tasks_blocked()
                gc.collect()
                after, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak - before > responses * len(BIG) // 2
            assert after - before < 1_000_000
            await client.stream.aclose()

    trio.run(main)


class Teller(Talker):
    """A service that sends several long responses to each request."""

    def deliver(self, batch):
        self.requests = [*getattr(self, "requests", []), *batch]

    def tell(self):
        """Sends one response to each request."""
        answers = [request.respond({"text": BIG}) for request in self.requests]
        self._broker.post_messages(self.peer, answers)


@pytest.mark.parametrize("limit", ["MAX_GUEST_UNREAD_BYTES", "MAX_ALL_GUESTS_UNREAD_BYTES"])
def test_streams_that_guests_do_not_read_are_bounded_on_all_their_connections(
    tmp_path, monkeypatch, caplog, limit
):
    monkeypatch.setattr(guests_module, limit, 4_000_000)

    async def main():
        path = tmp_path / "socket"
        owner = os.getuid() + 1
        async with broker_at(path, make_broker(owner, only_guests=True)) as broker:
            teller = Teller(broker)
            clients = [await RawClient.connect(path) for _ in range(8)]
            for client in clients:
                await client.send("talker.follow", {}, flags=64)
            await wait_all_tasks_blocked()
            for _ in range(100):
                teller.tell()
                await wait_all_tasks_blocked()
                # Each connection may have a response more, and one is being written.
                assert broker.stats()["unsent"] <= 4_000_000 + 8 * 2 * len(BIG)
            assert broker.stats()["closed_unread"] > 0
            assert f"closing the connection of pid {os.getpid()}: it leaves" in caplog.text
            for client in clients:
                await client.stream.aclose()

    trio.run(main)


@pytest.mark.parametrize("reads", [False, True])
def test_a_guest_is_served_when_it_leaves_little_unread_whichever_it_reads(
    tmp_path, monkeypatch, reads
):
    monkeypatch.setattr(guests_module, "GUEST_UNREAD_BYTES", 3_000_000)
    monkeypatch.setattr(connection_module, "BACKPRESSURE_BYTES", 200_000)

    async def main():
        path = tmp_path / "socket"
        async with broker_at(path, make_broker(os.getuid() + 1, only_guests=True)) as broker:
            Talker(broker)
            most, less, other = [await RawClient.connect(path) for _ in range(3)]
            for client, count in ((most, 24), (less, 14)):
                for _ in range(count):
                    await client.send("talker.talk", {})
                    await wait_all_tasks_blocked()
            assert broker.stats()["unsent"] > 3_000_000
            await other.send("talker.talk", {})
            await wait_all_tasks_blocked()
            assert select.select([other.stream.socket], [], [], 0)[0] == []
            assert broker.stats()["unsent"] > 3_000_000
            # The first stays unread.
            if reads:
                count = 0
                while count < 14:
                    count += len(await less.receive())
            else:
                await less.stream.aclose()
            (answer,) = await other.receive()
            assert answer.object() == {"text": BIG}
            for client in (most, less, other):
                await client.stream.aclose()

    trio.run(main)


def test_what_the_owner_does_not_read_is_bounded_on_all_its_connections(tmp_path, monkeypatch):
    most, little = 4_000_000, 200_000
    monkeypatch.setattr(intake_module, "ALL_UNREAD_BYTES", most)
    monkeypatch.setattr(connection_module, "BACKPRESSURE_BYTES", little)

    async def main():
        path = tmp_path / "socket"
        async with broker_at(path) as broker:
            Talker(broker)
            lazy = [await RawClient.connect(path) for _ in range(8)]
            keen = await RawClient.connect(path)
            for _ in range(30):
                for client in lazy:
                    await client.send("talker.talk", {})
                    await wait_all_tasks_blocked()
                # Of each connection a request is read that makes it leave more than a little.
                assert broker.stats()["unsent"] <= most + 8 * (little + len(BIG) + 1000)
            assert broker.stats()["unsent"] > most
            # The requests of others are read, and the rest of these when the responses are.
            for _ in range(30):
                await keen.send("talker.talk", {})
                (answer,) = await keen.receive()
                assert answer.object() == {"text": BIG}
            for client in lazy:
                count = 0
                while count < 30:
                    count += len(await client.receive())
            assert broker.stats()["closed_unread"] == 0
            for client in [*lazy, keen]:
                await client.stream.aclose()

    trio.run(main)


@asynccontextmanager
async def listing_of(path, count):
    """A job manager with `count` jobs, and a client that has requested all of them."""
    async with broker_at(path) as broker, trio.open_nursery() as nursery:
        settings = {"owner": os.getuid()}
        manager = JobManager(None, json.dumps(settings), time.time())
        nursery.start_soon(ManagerService(broker, manager).run)
        client = await RawClient.connect(path)
        spec = from_command(["true"], duration=1, environment={}, cwd="/")
        await client.send("job-ingest.submit", {"jobspec": spec, "count": count})
        (submitted,) = await client.receive()
        ids = submitted.object()["ids"]
        await client.send("job-list.list", {}, flags=64)
        yield broker, manager, client, ids
        nursery.cancel_scope.cancel()


def test_alloc_requests_respect_backpressure(tmp_path, monkeypatch):
    most = 16 * 1024 * 1024
    monkeypatch.setattr(connection_module, "MAX_UNSENT_BYTES", most)
    count = 1000
    job = {"jobspec": from_command(["true", BIG], duration=1, environment={}, cwd="/")}

    async def main():
        path = tmp_path / "socket"
        async with broker_at(path) as broker, trio.open_nursery() as nursery:
            manager = JobManager(None, json.dumps({"owner": os.getuid()}), time.time())
            nursery.start_soon(ManagerService(broker, manager).run)
            client, scheduler = await RawClient.connect(path), await RawClient.connect(path)
            await client.send("job-ingest.submit", {**job, "count": count})
            (submitted,) = await client.receive()
            ids = submitted.object()["ids"]
            await scheduler.send("service.add", {"service": "sched"})
            await scheduler.receive()
            await scheduler.send("job-manager.sched-hello", {}, flags=64)
            (end,) = await scheduler.receive()
            assert end.errnum == errno.ENODATA
            await scheduler.send("job-manager.sched-ready", {"mode": "unlimited"})
            await wait_all_tasks_blocked()
            assert 0 < broker.stats()["unsent"] < most / 2
            # More jobs are no more to read.
            for _ in range(3):
                await client.send("job-ingest.submit", {**job, "count": 100})
                (submitted,) = await client.receive()
                ids += submitted.object()["ids"]
            await wait_all_tasks_blocked()
            assert broker.stats()["unsent"] < most / 2
            requested: list[int] = []
            while len(requested) < len(ids):
                messages = await scheduler.receive()
                requested += [
                    message.object()["id"] for message in messages if message.topic == "sched.alloc"
                ]
            assert requested == ids
            await client.stream.aclose()
            await scheduler.stream.aclose()
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_long_listing_respects_backpressure_and_yields_to_other_clients(tmp_path):
    count = 20_000

    async def main():
        path = tmp_path / "socket"
        async with listing_of(path, count) as (broker, manager, client, ids):
            await wait_all_tasks_blocked()
            (remote,) = broker._sockets.values()
            assert 0 < remote.unsent < 2 * connection_module.BACKPRESSURE_BYTES
            assert len(manager.readers()) == 1
            other = await RawClient.connect(path)
            await other.send("job-manager.ping", {"seq": 1})
            (pong,) = await other.receive()
            assert pong.object()["seq"] == 1
            await other.send("job-list.list", {"max_entries": 1}, flags=64)
            (rows,) = await other.receive_until_end()
            assert [row["id"] for row in rows.object()["jobs"]] == ids[:1]
            # A later request is answered before the end of the listing.
            await client.send("job-manager.ping", {"seq": 2})
            answers = await client.receive_until_end()
            topics = [answer.topic for answer in answers]
            assert topics.index("job-manager.ping") < len(topics) - 1
            lists = [answer for answer in answers if answer.topic == "job-list.list"]
            assert [row["id"] for part in lists for row in part.object()["jobs"]] == ids
            assert manager.readers() == []
            await client.stream.aclose()
            await other.stream.aclose()

    trio.run(main)


def test_a_request_about_many_jobs_yields_to_other_clients(tmp_path):
    count = 10_000
    answered = []

    async def main():
        path = tmp_path / "socket"
        async with broker_at(path) as broker, trio.open_nursery() as nursery:
            now = broker.clock.now()
            manager = JobManager(None, json.dumps({"owner": os.getuid()}), now)
            nursery.start_soon(ManagerService(broker, manager).run)
            client, other = await RawClient.connect(path), await RawClient.connect(path)
            spec = from_command(["true"], environment={}, cwd="/")
            await client.send("job-ingest.submit", {"jobspec": spec, "count": count})
            assert len((await client.receive())[0].object()["ids"]) == count

            async def receive():
                (response,) = await client.receive()
                answered.append(response.object())
                await client.stream.aclose()
                nursery.cancel_scope.cancel()

            await client.send("job-manager.raise", {"all": True, "type": "cancel"})
            nursery.start_soon(receive)
            await other.send("job-manager.ping", {"seq": 1})
            (pong,) = await other.receive()
            assert pong.object()["seq"] == 1
            assert not answered
            await other.stream.aclose()

    trio.run(main)
    assert answered == [{"count": count, "errors": {}}]


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "leaves"])
def test_a_submission_of_many_jobs_yields_to_other_clients(tmp_path, stays):
    count = 10_000
    spec = from_command(["true"], environment={}, cwd="/")
    submission = {"jobspec": spec, "count": count, "token": "mine"}

    async def main():
        path = tmp_path / "socket"
        async with broker_at(path) as broker, trio.open_nursery() as nursery:
            now = broker.clock.now()
            manager = JobManager(None, json.dumps({"owner": os.getuid()}), now)
            nursery.start_soon(ManagerService(broker, manager).run)
            client, other = await RawClient.connect(path), await RawClient.connect(path)
            await client.send("job-ingest.submit", submission)
            for _ in range(3):
                await other.send("job-list.job-stats", {})
                (stats,) = await other.receive()
                assert stats.object()["job_states"]["total"] == 0
            if not stays:
                await client.stream.aclose()
            # The repeated request is answered with the first one.
            await other.send("job-ingest.submit", submission)
            (submitted,) = await other.receive()
            ids = submitted.object()["ids"]
            assert len(ids) == count
            if stays:
                (submitted,) = await client.receive()
                assert submitted.object()["ids"] == ids
                await client.stream.aclose()
            await other.send("job-list.job-stats", {})
            (stats,) = await other.receive()
            assert stats.object()["job_states"]["total"] == count
            await other.stream.aclose()
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_listing_ends_when_its_reader_disconnects_or_cancels(tmp_path):
    async def main():
        path = tmp_path / "socket"
        async with listing_of(path, 20_000) as (broker, manager, client, _):
            await wait_all_tasks_blocked()
            assert len(manager.readers()) == 1
            await client.stream.aclose()
            await wait_all_tasks_blocked()
            assert not broker._sockets
            assert manager.readers() == []
            client = await RawClient.connect(path)
            await client.send("job-list.list", {}, flags=64)
            await wait_all_tasks_blocked()
            assert len(manager.readers()) == 1
            await client.send("job-list.list-cancel", {"matchtag": 1}, flags=4)
            await wait_all_tasks_blocked()
            assert manager.readers() == []
            rows = [
                row
                for message in await client.receive_until_end()
                for row in message.object()["jobs"]
            ]
            assert 0 < len(rows) < 20_000
            await client.stream.aclose()

    trio.run(main)
