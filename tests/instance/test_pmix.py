"""Connections to PMIx servers of jobs, without libpmix: the server is a script here."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
import trio
import trio.testing
from pmixjobs import ExecService, Manager, run
from virtualtime import VirtualClock, make_broker

from penstock._core import STREAMING, Decoder, JobManager, Message
from penstock.client.calls import raw_call, raw_stream
from penstock.config import Quota
from penstock.errors import PmixError, RpcError
from penstock.instance import guests
from penstock.instance import pmix_server as pmix
from penstock.instance.guests import GuestServer
from penstock.instance.internal_client import InternalClient
from penstock.instance.pmix_service import PmixService
from penstock.instance.quotas import Quotas
from penstock.instance.services import ManagerService
from penstock.instance.system import Read

# Topics of the messages that the instance sends without a request.
QUIET = ("pmix.ping", "pmix.ended")

SCRIPT = """
import json, os, socket, sys
from penstock._core import Decoder, Message
from penstock.errors import RpcError

listener = socket.socket(socket.AF_UNIX)
listener.bind("socket")
listener.listen()
print("listening", flush=True)

def accept():
    global link, decoder, came
    link, _ = listener.accept()
    decoder, came = Decoder(), []

def read():
    while not came:
        data = link.recv(65536)
        if not data:
            sys.exit()
        came.extend(message for message in decoder.feed(data) if message.topic not in {quiet})
    return came.pop(0)

accept()
{body}
"""

START = """
start = read()
payload = start.object()
host = payload["nodes"][0]
ranks = {str(rank): {"PMIX_RANK": f"<{rank}>", "HOST": host} for rank in payload["local"]}
link.sendall(start.respond({"environment": ranks}).encode())
"""

ASK = """
def ask(topic, payload, flags=0):
    link.sendall(Message.request(topic, payload, matchtag=7, flags=flags).encode())
    answer = read()
    return [answer.errnum, answer.error_text if answer.errnum else answer.object()]
"""

RESULT = """
with open(os.environ["RESULT"], "w") as file:
    json.dump(result, file)
"""

# Opens the gate that a task blocks on.
GATE = """
open(os.environ["GATE"], "w").close()
read()
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Starts a server from code, in the directory that it returns."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("RESULT", str(tmp_path / "result"))
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))
    os.mkfifo(tmp_path / "gate")
    # Longer than the address of a socket can be.
    directory = tmp_path / ("directory" * 12)
    directory.mkdir()
    processes = []

    def make(*body):
        program = SCRIPT.format(quiet=QUIET, body="\n".join(body))
        process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=directory, stdout=subprocess.PIPE
        )
        processes.append(process)
        assert process.stdout.readline() == b"listening\n"
        return directory

    make.processes = processes
    yield make
    for process in processes:
        with process:
            process.kill()


async def unpaced(_count):
    await trio.lowlevel.checkpoint()


def uncounted(_size):
    pass


def unanswered(_call, _take):
    """Sends a request that gets no response."""
    return lambda: None


def answered(*responses):
    """Makes a function that sends a request, and has these responses taken soon."""

    def send(_call, take):
        token = trio.lowlevel.current_trio_token()
        for response in responses:
            token.run_sync_soon(take, response)
        return lambda: None

    return send


async def opened(gate):
    """Returns when the server has opened the gate."""
    await trio.to_thread.run_sync(gate.read_text)


def test_the_requests_of_a_server_are_those_of_its_job(tmp_path, server):
    directory = server(
        START,
        ASK,
        "result = {'alloc': ask('pmix.alloc', {'directive': 1, 'job': 99})}",
        "result['query'] = ask('pmix.query', {})",
        "result['other'] = ask('job-manager.raise', {'id': 1})",
        "result['array'] = ask('pmix.alloc', b'[]')",
        "result['event'] = ask('pmix.events', {}, 64)",
        "result['start'] = payload",
        RESULT,
        GATE,
    )
    answers = {
        "pmix.alloc": [{"payload": {"status": 0}}],
        "pmix.query": [{"errnum": errno.ENOSYS, "errtext": "no such service"}],
        "pmix.events": [{"payload": {"id": "A"}}],
    }
    requests = []

    async def scenario(service, manager):
        tag, environment = await service.start(5)
        assert environment == {"0": {"PMIX_RANK": "<0>", "HOST": "localhost"}}
        await opened(tmp_path / "gate")
        await service.stop(5)
        assert (await end_of(service, tag))[0] == errno.ENODATA
        requests.extend(manager.requests)

    run(directory, scenario, answers)
    result = json.loads((tmp_path / "result").read_text())
    start = result.pop("start")
    assert result == {
        "alloc": [0, {"status": 0}],
        "query": [errno.ENOSYS, "no such service"],
        "other": [errno.ENOSYS, "unknown method `job-manager.raise`"],
        "array": [errno.EPROTO, "pmix.alloc: expected an object, found an array"],
        "event": [0, {"id": "A"}],
    }
    *sent, cancelled = requests
    assert sent == [
        ("pmix.alloc", {"directive": 1, "job": 5}, False),
        ("pmix.query", {"job": 5}, False),
        ("pmix.events", {"job": 5}, True),
    ]
    # The stream ends with the connection to the server.
    assert cancelled[0] == "pmix.events-cancel"
    expected = {"size": 1, "local": [0], "nodes": ["localhost"], "ranks_per_node": [[0]]}
    assert {key: start[key] for key in expected} == expected


async def end_of(service, tag):
    """The errno and the text with which the stream of a start request ends."""
    with pytest.raises(RpcError) as caught:
        await service.response(tag)
    return caught.value.errno, caught.value.strerror


def test_requests_are_forwarded_in_order(tmp_path, server):
    body = """
requests = [Message.request('pmix.alloc', {'n': n}, matchtag=n) for n in range(1, 51)]
link.sendall(b''.join(request.encode() for request in requests))
for _ in requests:
    read()
"""
    directory = server(START, body, GATE)

    async def scenario(service, manager):
        await service.start(1)
        await opened(tmp_path / "gate")
        assert [payload["n"] for _, payload, _ in manager.requests] == list(range(1, 51))

    run(directory, scenario, {"pmix.alloc": [{"payload": {"status": 0}}]})


def test_a_server_that_does_not_listen_is_an_error(tmp_path):
    async def main():
        with pytest.raises(PmixError, match=r"the PMIx server does not listen: the `pmix\.log`"):
            await pmix.connect(str(tmp_path))
        assert trio.current_time() - start >= pmix.START_TIMEOUT_S
        # Not there yet, then no longer.
        with socket.socket(socket.AF_UNIX) as listener:
            folder = os.open(tmp_path, os.O_PATH)
            listener.bind(f"/proc/self/fd/{folder}/socket")
            os.close(folder)
        with pytest.raises(PmixError):
            await pmix.connect(str(tmp_path))
        with pytest.raises(NotADirectoryError):
            await pmix.connect(str(tmp_path / "socket"))

    clock = trio.testing.MockClock(autojump_threshold=0)
    start = clock.current_time()
    trio.run(main, clock=clock)


def test_the_server_of_a_guest_is_the_guests(server, tmp_path):
    """The directory is the guest's choice: a link in it leads to another user's server."""
    # It serves several connections.
    directory = server("while True:\n    listener.accept()")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "socket").symlink_to(directory / "socket")
    (tmp_path / "link").symlink_to(directory)

    async def main():
        for path in (directory, linked):
            async with await pmix.connect(str(path), os.geteuid()):
                pass
            with pytest.raises(PmixError, match="the socket of the PMIx server is another user's"):
                await pmix.connect(str(path), os.geteuid() + 1)
        with pytest.raises(NotADirectoryError):
            await pmix.connect(str(tmp_path / "link"), os.geteuid())

    trio.run(main)


def test_no_more_is_read_from_a_server_that_reads_nothing():
    async def main():
        ours, theirs = socket.socketpair()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        link = pmix.Link(1, stream, unanswered, unpaced, uncounted, lambda *_why: None)
        unknown = Message.request("pmix.unknown", {}, matchtag=1).encode()
        os.set_blocking(theirs.fileno(), False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            # All that both ends hold, and the daemon no more.
            is_full = False
            while not is_full:
                await trio.testing.wait_all_tasks_blocked()
                try:
                    theirs.send(unknown * 100)
                except BlockingIOError:
                    is_full = True
            assert pmix.MAX_UNSENT_BYTES < link._unread_bytes < 2 * pmix.MAX_UNSENT_BYTES
            await link.close()
        theirs.close()

    trio.run(main)


def test_responses_to_a_server_that_reads_no_longer_are_dropped():
    long = Message.request("pmix.query", {}).respond({"x": "x" * 100_000})

    async def main():
        ours, theirs = socket.socketpair()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        link = pmix.Link(1, stream, answered(long), unpaced, uncounted, lambda *_why: None)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.run)
                theirs.shutdown(socket.SHUT_RD)
                for tag in range(1, 41):
                    theirs.send(Message.request("pmix.query", {}, matchtag=tag).encode())
                # No task is busy, and nothing more is kept.
                await trio.testing.wait_all_tasks_blocked()
                assert not link._can_send
                assert link._unread_bytes < 2 * pmix.MAX_UNSENT_BYTES
                await link.close()
        theirs.close()

    trio.run(main)


def test_the_connection_to_a_server_that_reads_no_responses_ends(monkeypatch):
    monkeypatch.setattr(pmix, "MAX_UNREAD_BYTES", 3_000_000)
    event = Message.request("pmix.events", {}, flags=STREAMING).respond({"x": "x" * 1000})

    async def main():
        ours, theirs = socket.socketpair()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        link = pmix.Link(
            1, stream, answered(*[event] * 5000), unpaced, uncounted, lambda *_why: None
        )
        request = Message.request("pmix.events", {}, matchtag=1, flags=STREAMING)
        theirs.send(request.encode())
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.run)
                reason = await link.wait_end()
                assert link._unread_bytes < pmix.MAX_UNREAD_BYTES + 10_000
                await link.close()
        assert reason == "the job's PMIx server leaves too many messages unread"
        theirs.close()

    trio.run(main)


def test_streams_of_a_server_are_limited():
    sent = []

    def record(call, take):
        sent.append(call.topic)
        return unanswered(call, take)

    async def main():
        ours, theirs = (
            trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in socket.socketpair()
        )
        link = pmix.Link(1, ours, record, unpaced, uncounted, lambda *_why: None)
        async with theirs, trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            for tag in range(pmix.MAX_STREAMS + 1):
                stream = Message.request("pmix.events", {}, matchtag=tag + 1, flags=STREAMING)
                await theirs.send_all(stream.encode())
            (rejected,) = Decoder().feed(await theirs.receive_some(1 << 16))
            assert (rejected.matchtag, rejected.errnum) == (pmix.MAX_STREAMS + 1, errno.ENOSPC)
            assert rejected.error_text == "16 streams of the job are open"
            assert sent == ["pmix.events"] * pmix.MAX_STREAMS
            await link.close()

    trio.run(main)


@pytest.mark.parametrize(("quota", "error"), [({}, None), ({"watches": 5}, "quota.watches")])
def test_requests_of_the_server_of_a_guest_count_for_its_limits(quota, error):
    guest = os.getuid() + 1
    seen = []

    class Server:
        environment: ClassVar[dict[int, dict[str, str]]] = {}

        async def wait_end(self):
            await trio.sleep_forever()

    @asynccontextmanager
    async def servers(_job, _tasks, _directory, *, userid, send_request, pace, **_others):
        assert userid == guest
        calls = [raw_stream("pmix.events", {"job": 1}) for _ in range(6)]
        abandon = [send_request(call, seen.append) for call in calls]
        # It waits for the responses.
        assert await pace(Read(len(calls), 1000, 2000)) is None
        assert len(seen) == 6
        assert broker.stats()["guests"]["unfinished_bytes"] == 2000
        problem = await pace(Read(0, 0, 10**9))
        assert "(penstock.quota.unfinished-bytes)" in problem
        for each in abandon:
            each()
        yield Server()

    broker = make_broker(os.getuid())

    async def started_and_ended(exec_service):
        tag, _ = await exec_service.start(1, userid=guest)
        await exec_service.response(tag)

    async def main():
        broker.set_quota(Quota(**quota))
        service = PmixService(broker, servers)
        answers = {"pmix.events": [{"payload": {"x": 1}}]}
        manager = Manager(broker, answers)
        exec_service = ExecService(broker, Path("/unused"))
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker.pump)
                nursery.start_soon(service.run)
                with pytest.raises(RpcError, match=r"is closed: unfinished .*unfinished-bytes"):
                    await started_and_ended(exec_service)
                await trio.testing.wait_all_tasks_blocked()
                assert broker.stats()["guests"]["unfinished_bytes"] == 0
                nursery.cancel_scope.cancel()
        assert set(manager.userids) == {guest}

    trio.run(main)
    errors = [response.error_text for response in seen if response.errnum]
    assert len(seen) == 6
    assert len(errors) == (error is not None)
    assert all(error in text for text in errors)


def test_a_server_that_exceeds_a_limit_is_disconnected_and_long_messages_count():
    reads = []

    async def pace(read):
        await trio.lowlevel.checkpoint()
        reads.append(read)
        return "its limit" if read.unfinished_bytes else None

    async def main():
        ours, theirs = socket.socketpair()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        link = pmix.Link(1, stream, unanswered, pace, uncounted, lambda *_why: None)
        whole = Message.request("pmix.unknown", {"x": "x" * 5000}, matchtag=1).encode()
        theirs.send(whole)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.run)
                await trio.testing.wait_all_tasks_blocked()
                theirs.send(whole[:4000])
                reason = await link.wait_end()
                await link.close()
        assert reason == "the job's PMIx server sends too much: its limit"
        assert reads[0].messages == 1
        assert reads[0].message_bytes > 5000
        theirs.close()

    trio.run(main)


def test_unfinished_messages_of_a_guest_without_a_connection_stay_counted():
    clock = Still()
    quotas = Quotas(clock, 1024)
    quotas.set_settings(Quota(request_rate=10, all_unfinished_bytes=5000))
    quotas.count_requests(7, 1)
    assert quotas.set_unfinished(7, 1, 1000) is None
    clock.now += 60.0
    assert quotas.add_connection(8) is None
    quotas.remove_connection(8, 2)
    assert quotas.stats()["unfinished_bytes"] == 1000
    # The largest of the guest with the most.
    assert quotas.add_connection(8) is None
    assert quotas.set_unfinished(8, 2, 1400) is None
    assert quotas.set_unfinished(8, 3, 1300) is None
    assert quotas.set_unfinished(7, 1, 2500).number == 2
    assert quotas.set_unfinished(7, 1, 2800).number == 1
    assert quotas.set_unfinished(7, 1, 0) is None
    assert quotas.stats()["unfinished_bytes"] == 2700


def test_requests_of_a_server_are_taken_when_it_has_read_the_responses_before():
    long = {"x": "x" * 500_000}

    async def main():
        broker = make_broker(os.getuid())
        manager = Manager(broker, {"pmix.query": [{"payload": long}]})
        for client in (
            InternalClient(broker),
            InternalClient(broker, GuestServer(os.getuid() + 1, lambda _why: None)),
        ):
            ours, theirs = (
                trio.SocketStream(trio.socket.from_stdlib_socket(each))
                for each in socket.socketpair()
            )
            link = pmix.Link(
                1, ours, client.open, client.pace, client.set_unread, lambda *_why: None
            )
            query = [Message.request("pmix.query", {}, matchtag=tag) for tag in range(1, 101)]
            async with theirs, trio.open_nursery() as nursery:
                nursery.start_soon(broker.pump)
                nursery.start_soon(link.run)
                # In one read.
                await theirs.send_all(b"".join(request.encode() for request in query))
                await trio.testing.wait_all_tasks_blocked()
                assert len(manager.requests) < 5
                assert link._unread_bytes < pmix.MAX_UNSENT_BYTES + 600_000
                decoder, tags = Decoder(), []
                while len(tags) < 100:
                    for response in decoder.feed(await theirs.receive_some(1 << 16)):
                        if response.kind == "response":
                            assert response.object() == long
                            tags.append(response.matchtag)
                assert tags == list(range(1, 101))
                manager.requests.clear()
                await link.close()
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_long_responses_to_the_server_of_a_guest_count_for_its_rate(monkeypatch):
    monkeypatch.setattr(guests, "GUEST_RESPONSE_BYTES", 32 * 1024)
    guest = os.getuid() + 1

    async def main(clock):
        broker = make_broker(os.getuid(), VirtualClock(clock))
        broker.set_quota(Quota(request_rate=1))
        manager = JobManager(None, json.dumps({"owner": os.getuid()}), 0.0)
        ManagerService(broker, manager)
        client = InternalClient(broker, GuestServer(guest, lambda _why: None))
        taken = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.pump)
            client.open(raw_call("job-manager.ping", {"x": "x" * 56 * 1024}), taken.append)
            began = trio.current_time()
            assert await client.pace(Read(1, 0, 0)) is None
            assert [response.errnum for response in taken] == [0]
            # It counts as a request for each 32 KiB, of which a second has one.
            assert trio.current_time() - began == pytest.approx(1.75, abs=0.05)
            nursery.cancel_scope.cancel()

    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(main, clock, clock=clock)


def test_the_servers_of_guests_that_leave_most_unread_are_disconnected(monkeypatch):
    monkeypatch.setattr(guests, "MAX_GUEST_UNREAD_BYTES", 4_000_000)
    monkeypatch.setattr(guests, "MAX_ALL_GUESTS_UNREAD_BYTES", 7_000_000)
    broker = make_broker(os.getuid())
    closed = []

    def server(uid, name):
        return InternalClient(broker, GuestServer(uid, lambda why: closed.append((name, why))))

    one, two, other = server(7, "one"), server(7, "two"), server(8, "other")
    one.set_unread(2_500_000)
    two.set_unread(1_000_000)
    assert closed == []
    two.set_unread(2_000_000)
    assert closed == [("one", "it leaves 2500000 bytes unread")]
    other.set_unread(3_900_000)
    assert len(closed) == 1
    two.set_unread(3_500_000)
    assert closed[1:] == [("other", "it leaves 3900000 bytes unread")]
    assert broker.stats()["closed_unread"] == 2


def test_the_server_of_the_guest_with_the_most_unfinished_is_disconnected():
    broker = make_broker(os.getuid())
    broker.set_quota(Quota(all_unfinished_bytes=5000))
    guest = os.getuid() + 1
    problems = []

    class Server:
        environment: ClassVar[dict[int, dict[str, str]]] = {}

        async def wait_end(self):
            await trio.sleep_forever()

    @asynccontextmanager
    async def servers(job, _tasks, _directory, *, pace, **_others):
        problems.append(await pace(Read(0, 0, {1: 1500, 2: 2000, 3: 1600}[job])))
        yield Server()

    async def main():
        service = PmixService(broker, servers)
        Manager(broker, {})
        exec_service = ExecService(broker, Path("/unused"))
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker.pump)
                nursery.start_soon(service.run)
                tags = [(await exec_service.start(job, userid=guest))[0] for job in (1, 2)]
                await exec_service.start(3, userid=guest + 1)
                ended, text = await end_of(exec_service, tags[1])
                assert ended == errno.EIO
                assert text.startswith("the connection to the job's PMIx server is closed: unfin")
                assert "(penstock.quota.all-unfinished-bytes)" in text
                assert broker.stats()["guests"]["unfinished_bytes"] == 3100
                nursery.cancel_scope.cancel()

    trio.run(main)
    assert problems == [None, None, None]


class Still:
    """A clock that stands."""

    now = 0.0

    def monotonic(self):
        return self.now


def test_the_bytes_of_long_requests_of_a_guest_count():
    quotas = Quotas(Still(), 1024)
    quotas.set_settings(Quota(request_rate=10))
    quotas.count_requests(7, 2, 1000)
    assert quotas.pause(7) == 0
    quotas.count_requests(7, 1, 32 * 1024 * 28)
    assert quotas.pause(7) == pytest.approx(2.0)


@pytest.mark.parametrize("errnum", [errno.EIO, errno.ENOSPC, errno.EBUSY, errno.ESTALE])
def test_the_connection_outlasts_an_outage_of_the_store(server, errnum):
    directory = server(START, "read()")

    async def scenario(service, manager):
        manager.outages.append(errnum)
        await service.start(1)
        # It waits for the end of the job again.
        await manager.awaited.wait()
        assert manager.outages == []
        tag, environment = await service.start(1)
        assert environment["0"]["PMIX_RANK"] == "<0>"
        manager.end_jobs()
        assert (await end_of(service, tag))[0] == errno.ENODATA

    run(directory, scenario)


def test_a_job_that_ends_before_its_server_listens_is_not_served(tmp_path):
    async def scenario(service, _manager):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_end, service)
            await trio.testing.wait_all_tasks_blocked()
            await service.stop(1)

    async def expect_end(service):
        with pytest.raises(RpcError) as caught:
            await service.start(1)
        assert caught.value.errno == errno.ENODATA

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise SystemExit(1)", f"the PMIx server has not started: {pmix.HINT}"),
        (
            "link.sendall(read().respond(errnum=5, errtext='PMIx_server_init: -1').encode())",
            "the PMIx server has not started: PMIx_server_init: -1",
        ),
        (
            "link.sendall(read().respond({}).encode()); read()",
            "the PMIx server has not started: pmix.start: missing key `environment`",
        ),
    ],
)
def test_a_server_that_does_not_start_is_an_error(server, body, expected):
    directory = server(body)

    async def scenario(service, manager):
        with pytest.raises(RpcError) as caught:
            await service.start(1)
        assert caught.value.strerror == expected
        assert manager.exceptions == []

    run(directory, scenario)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "link.send(b'GET /'); read()"])
def test_the_end_of_a_server_ends_the_stream(tmp_path, server, end):
    directory = server(START, "open(os.environ['GATE']).close()", end)

    async def scenario(service, manager):
        tag, _ = await service.start(1)
        await trio.to_thread.run_sync((tmp_path / "gate").write_text, "")
        note = "the job's PMIx server has ended before the tasks"
        assert await end_of(service, tag) == (errno.EIO, note)
        # The execution service knows whether the tasks have ended before.
        assert manager.exceptions == []

    run(directory, scenario)


def test_a_stopped_server_ends_the_stream(tmp_path, server, monkeypatch):
    monkeypatch.setattr(pmix, "PING_INTERVAL_S", 0.01)
    directory = server(START, "open(os.environ['GATE']).close()", "os.kill(os.getpid(), 19)")

    async def scenario(service, _manager):
        tag, _ = await service.start(1)
        await trio.to_thread.run_sync((tmp_path / "gate").write_text, "")
        note = "the job's PMIx server does not answer"
        assert await end_of(service, tag) == (errno.EIO, note)

    run(directory, scenario)


def test_a_server_is_pinged():
    ended = []

    async def answer(stream, pings):
        decoder = Decoder()
        while pings:
            for request in decoder.feed(await stream.receive_some(1 << 16)):
                assert ended == []
                if request.topic == "pmix.start":
                    await stream.send_all(request.respond({"environment": {}}).encode())
                else:
                    assert request.topic == "pmix.ping"
                    # Late, but not too late.
                    await trio.sleep((pmix.MAX_UNANSWERED_PINGS - 0.5) * pmix.PING_INTERVAL_S)
                    await stream.send_all(request.respond({}).encode())
                    pings -= 1

    async def main():
        ours, theirs = (
            trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in socket.socketpair()
        )
        link = pmix.Link(1, ours, unanswered, unpaced, uncounted, lambda *_why: None)
        async with theirs, trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            nursery.start_soon(answer, theirs, 20)
            await link.start({})
            ended.append(await link.wait_end())
            await link.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert ended == ["the job's PMIx server does not answer"]


def test_a_server_whose_messages_wait_for_their_turn_counts_as_alive():
    ended, waited = [], []

    async def wait_long(read):
        if read.messages and not waited:
            waited.append(read)
            await trio.sleep(2 * pmix.MAX_UNANSWERED_PINGS * pmix.PING_INTERVAL_S)

    async def answer(stream):
        decoder = Decoder()
        async for data in stream:
            for request in decoder.feed(data):
                if request.kind == "request" and request.topic == "pmix.start":
                    await stream.send_all(request.respond({"environment": {}}).encode())
                    unknown = Message.request("pmix.unknown", {}, matchtag=1).encode()
                    await stream.send_all(unknown * 64)
                elif request.kind == "request":
                    await stream.send_all(request.respond({}).encode())

    async def main():
        ours, theirs = (
            trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in socket.socketpair()
        )
        link = pmix.Link(1, ours, unanswered, wait_long, uncounted, lambda *_why: None)
        async with theirs, trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            nursery.start_soon(answer, theirs)
            await link.start({})
            with trio.move_on_after(4 * pmix.MAX_UNANSWERED_PINGS * pmix.PING_INTERVAL_S):
                ended.append(await link.wait_end())
            await link.close()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert ended == []


def test_the_server_is_notified_of_the_task_that_has_ended(tmp_path, server):
    body = """
data = link.recv(65536)
result = [[message.topic, message.object()] for message in decoder.feed(data)]
"""
    directory = server(START, body, RESULT, GATE)

    async def scenario(service, _manager):
        await service.start(1, ntasks=2)
        await service.request("pmix-exec.ended", {"id": 1, "rank": 1})
        await opened(tmp_path / "gate")

    run(directory, scenario)
    assert json.loads((tmp_path / "result").read_text()) == [["pmix.ended", {"rank": 1}]]


def test_an_abort_is_an_exception(tmp_path, server):
    directory = server(
        START,
        ASK,
        "result = [ask('pmix.abort', {'rank': 'x'})]",
        "result += [ask('pmix.abort', {'rank': 0, 'status': 7, 'message': 'given up'})]",
        RESULT,
        GATE,
    )

    async def scenario(service, manager):
        await service.start(1)
        await opened(tmp_path / "gate")
        assert manager.exceptions == [("abort", "rank 0 aborted with status 7: given up")]

    run(directory, scenario)
    [rejected, granted] = json.loads((tmp_path / "result").read_text())
    assert (rejected[0], granted) == (errno.EPROTO, [0, {}])


def test_a_server_is_found_again_by_another_execution_service(server):
    directory = server(START, "read()")

    async def scenario(service, _manager):
        _, first = await service.start(1)
        tag, second = await service.start(1)
        assert first == second
        await service.stop(1)
        assert (await end_of(service, tag))[0] == errno.ENODATA

    run(directory, scenario)


def test_a_server_outlives_instances(tmp_path, server):
    body = """
def events():
    request = Message.request("pmix.events", {}, matchtag=7, flags=64)
    link.sendall(request.encode())
    return read().object()

result = [events()]
# Ends with the connection.
while link.recv(65536):
    pass
accept()
"""
    # The names of the environment are those of the first start.
    directory = server(START, body, START, "result.append(events())", RESULT, GATE)
    answers = {"pmix.events": [{"payload": {"id": "A"}}]}

    async def first(service, _manager):
        await service.start(1)
        await trio.testing.wait_all_tasks_blocked(0.01)

    async def second(service, manager):
        await service.start(1)
        await opened(tmp_path / "gate")
        assert manager.requests == [("pmix.events", {"job": 1}, True)]

    run(directory, first, answers)
    run(directory, second, answers)
    assert json.loads((tmp_path / "result").read_text()) == [{"id": "A"}] * 2


def test_the_connection_ends_with_the_job(server):
    directory = server(START, "read()")

    async def scenario(service, manager):
        tag, _ = await service.start(1)
        await trio.testing.wait_all_tasks_blocked()
        manager.end_jobs()
        assert (await end_of(service, tag))[0] == errno.ENODATA

    run(directory, scenario)
    [process] = server.processes
    assert process.wait() == 0
