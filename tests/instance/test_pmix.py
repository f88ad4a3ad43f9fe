"""The PMIx servers of jobs, without libpmix: the server is a script here."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from pmixjobs import run

from penstock._core import Decoder
from penstock.errors import RpcError
from penstock.instance import pmix_server as pmix

# Topics of the messages that the instance sends without a request.
QUIET = ("pmix.ping", "pmix.ended")

SCRIPT = """#!{python}
import json, os, socket, sys
from penstock._core import Decoder, Message
from penstock.errors import RpcError

link = socket.socket(fileno=int(sys.argv[2]))
decoder, came = Decoder(), []

def read():
    while not came:
        data = link.recv(65536)
        if not data:
            sys.exit()
        came.extend(message for message in decoder.feed(data) if message.topic not in {quiet})
    return came.pop(0)

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
    """Makes a server from code; its files are in a directory of the test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    files = tmp_path / "tmp"
    files.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(files))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("RESULT", str(tmp_path / "result"))
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))
    os.mkfifo(tmp_path / "gate")

    def make(*body):
        program = programs / "penstock-pmix"
        program.write_text(SCRIPT.format(python=sys.executable, quiet=QUIET, body="\n".join(body)))
        program.chmod(0o755)
        return tmp_path

    yield make
    assert list(files.iterdir()) == []


@contextmanager
def unanswered(_call):
    """Sends a request that gets no response."""
    _, receive = trio.open_memory_channel(float("inf"))
    yield receive


async def opened(gate):
    """Returns when the server has opened the gate."""
    await trio.to_thread.run_sync(gate.read_text)


def test_the_requests_of_a_server_are_those_of_its_job(tmp_path, server):
    tmp_path = server(
        START,
        ASK,
        "result = {'alloc': ask('pmix.alloc', {'directive': 1, 'job': 99})}",
        "result['query'] = ask('pmix.query', {})",
        "result['other'] = ask('job-manager.raise', {'id': 1})",
        "result['array'] = ask('pmix.alloc', b'[]')",
        "result['event'] = ask('pmix.events', {}, 64)",
        "result['start'] = payload | {'mode': os.stat(payload['directory']).st_mode}",
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
        assert await end_of(service, tag) == errno.ENODATA
        requests.extend(manager.requests)

    run(scenario, answers)
    result = json.loads((tmp_path / "result").read_text())
    start = result.pop("start")
    assert result == {
        "alloc": [0, {"status": 0}],
        "query": [errno.ENOSYS, "no such service"],
        "other": [errno.ENOSYS, "unknown method `job-manager.raise`"],
        "array": [errno.EPROTO, "pmix.alloc: expected an object, found an array"],
        "event": [0, {"id": "A"}],
    }
    assert requests == [
        ("pmix.alloc", {"directive": 1, "job": 5}, False),
        ("pmix.query", {"job": 5}, False),
        ("pmix.events", {"job": 5}, True),
    ]
    assert start["mode"] & 0o777 == 0o700
    assert not Path(start["directory"]).exists()
    expected = {"size": 1, "local": [0], "nodes": ["localhost"], "ranks_per_node": [[0]]}
    assert {key: start[key] for key in expected} == expected


async def end_of(service, tag):
    """The errno with which the stream of a start request ends."""
    with pytest.raises(RpcError) as caught:
        await service.response(tag)
    return caught.value.errno


def test_requests_are_forwarded_in_order(tmp_path, server):
    body = """
requests = [Message.request('pmix.alloc', {'n': n}, matchtag=n) for n in range(1, 51)]
link.sendall(b''.join(request.encode() for request in requests))
for _ in requests:
    read()
"""
    tmp_path = server(START, body, GATE)

    async def scenario(service, manager):
        await service.start(1)
        await opened(tmp_path / "gate")
        assert [payload["n"] for _, payload, _ in manager.requests] == list(range(1, 51))

    run(scenario, {"pmix.alloc": [{"payload": {"status": 0}}]})


def test_without_the_program_the_error_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    async def scenario(service, _manager):
        text = "the job requests PMIx, and there is no `penstock-pmix` in `PATH`"
        with pytest.raises(RpcError, match=text) as caught:
            await service.start(1)
        assert "hint: " in caught.value.strerror

    run(scenario)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise SystemExit(1)", "the PMIx server has not started: the instance's log may say why"),
        (
            "link.sendall(read().respond(errnum=5, errtext='PMIx_server_init: -1').encode())",
            "the PMIx server has not started: PMIx_server_init: -1",
        ),
    ],
)
def test_a_server_that_does_not_start_is_an_error(server, body, expected):
    server(body)

    async def scenario(service, manager):
        with pytest.raises(RpcError) as caught:
            await service.start(1)
        assert caught.value.strerror == expected
        assert manager.exceptions == []

    run(scenario)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "link.send(b'GET /'); read()"])
def test_a_server_that_exits_is_an_exception(server, end):
    tmp_path = server(START, "open(os.environ['GATE']).close()", end)

    async def scenario(service, manager):
        await service.start(1)
        await trio.to_thread.run_sync((tmp_path / "gate").write_text, "")
        await manager.raised.wait()
        note = "the job's PMIx server has ended before the tasks"
        assert manager.exceptions == [("pmix", note)]

    run(scenario)


def test_a_stopped_server_is_an_exception(server, monkeypatch):
    monkeypatch.setattr(pmix, "PING_INTERVAL_S", 0.01)
    # It is not waited for.
    monkeypatch.setattr(pmix, "KILL_TIMEOUT_S", 1000.0)
    tmp_path = server(START, "open(os.environ['GATE']).close()", "os.kill(os.getpid(), 19)")

    async def scenario(service, manager):
        await service.start(1)
        await trio.to_thread.run_sync((tmp_path / "gate").write_text, "")
        await manager.raised.wait()
        assert manager.exceptions == [("pmix", "the job's PMIx server does not answer")]

    run(scenario)


def test_a_server_is_pinged():
    failed = []

    async def answer(stream, pings):
        decoder = Decoder()
        while pings:
            for request in decoder.feed(await stream.receive_some(1 << 16)):
                assert failed == []
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
        ended = trio.Event()

        def fail(*why):
            failed.append(why)
            ended.set()

        link = pmix.Link(1, ours, unanswered, fail)
        async with theirs, trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            nursery.start_soon(answer, theirs, 20)
            await link.start({})
            await ended.wait()
            await link.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert failed == [("pmix", "the job's PMIx server does not answer")]


def test_the_server_is_notified_of_the_task_that_has_ended(tmp_path, server):
    body = """
data = link.recv(65536)
result = [[message.topic, message.object()] for message in decoder.feed(data)]
"""
    tmp_path = server(START, body, RESULT, GATE)

    async def scenario(service, _manager):
        await service.start(1, ntasks=2)
        await service.request("pmix-exec.ended", {"id": 1, "rank": 1})
        await opened(tmp_path / "gate")

    run(scenario)
    assert json.loads((tmp_path / "result").read_text()) == [["pmix.ended", {"rank": 1}]]


def test_an_abort_is_an_exception(tmp_path, server):
    tmp_path = server(
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

    run(scenario)
    [rejected, granted] = json.loads((tmp_path / "result").read_text())
    assert (rejected[0], granted) == (errno.EPROTO, [0, {}])


def test_a_server_is_found_again_by_another_execution_service(server):
    server(START, "read()")

    async def scenario(service, _manager):
        _, first = await service.start(1)
        tag, second = await service.start(1, reattach=True)
        assert first == second
        await service.stop(1)
        assert await end_of(service, tag) == errno.ENODATA
        with pytest.raises(RpcError, match="the job's PMIx server ended with the instance"):
            await service.start(1, reattach=True)

    run(scenario)


def test_a_server_ends_with_its_job(server):
    server(START, "read()")

    async def scenario(service, manager):
        tag, _ = await service.start(1)
        await trio.testing.wait_all_tasks_blocked()
        manager.end_jobs()
        assert await end_of(service, tag) == errno.ENODATA

    run(scenario)


def test_the_end_of_the_instance_ends_servers(server):
    server(START, "read()")

    async def scenario(service, _manager):
        await service.start(1)

    run(scenario)
