"""The runner and a job's PMIx server, without libpmix: the server is a script here."""

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
from runners import run

from penstock._core import STREAMING, Decoder, Message
from penstock.instance import pmix_server as pmix

# Topics of the messages that the instance sends without a request.
QUIET = ("pmix.ping", "pmix.ended")

SCRIPT = """#!{python}
import json, os, socket, sys
from penstock._core import STREAMING, Decoder, Message

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


class Instance:
    """An instance that answers the requests of a job."""

    def __init__(self, answers):
        self.answers = answers
        self.requests = []

    @contextmanager
    def ask(self, call):
        """Sends a request as a runner does; topics without an answer get none."""
        self.requests.append((call.topic, call.payload, call.streaming))
        request = Message.request(call.topic, {}, flags=STREAMING if call.streaming else 0)
        send, receive = trio.open_memory_channel(float("inf"))
        for answer in self.answers.get(call.topic, []):
            send.send_nowait(request.respond(**answer))
        with send:
            yield receive


def note(responses, kind="exception"):
    """The type and the note of a job's exception."""
    [data] = [data for word, data in responses if word == kind]
    return data["type"], data["note"]


def test_tasks_find_their_server_and_its_requests_are_the_jobs(tmp_path, server):
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
    instance = Instance(
        {
            "pmix.alloc": [{"payload": {"status": 0}}],
            "pmix.query": [{"errnum": errno.ENOSYS, "errtext": "no such service"}],
            "pmix.events": [{"payload": {"id": "A"}}],
        }
    )

    async def scenario(service):
        command = ["sh", "-c", f"echo $PMIX_RANK on $HOST; cat {tmp_path}/gate"]
        service.start(5, command, options={"pmix": True})
        responses = await service.over()
        assert [kind for kind, _ in responses] == ["start", "finish", "release"]
        assert (tmp_path / "output" / "5" / "stdout").read_text() == "<0> on localhost\n"

    run(tmp_path, scenario, send_request=instance.ask)
    result = json.loads((tmp_path / "result").read_text())
    start = result.pop("start")
    assert result == {
        "alloc": [0, {"status": 0}],
        "query": [errno.ENOSYS, "no such service"],
        "other": [errno.ENOSYS, "unknown method `job-manager.raise`"],
        "array": [errno.EPROTO, "pmix.alloc: expected an object, found an array"],
        "event": [0, {"id": "A"}],
    }
    assert instance.requests == [
        ("pmix.alloc", {"directive": 1, "job": 5}, False),
        ("pmix.query", {"job": 5}, False),
        ("pmix.events", {"job": 5}, True),
    ]
    assert start["mode"] & 0o777 == 0o700
    assert not Path(start["directory"]).exists()
    expected = {"size": 1, "local": [0], "nodes": ["localhost"], "ranks_per_node": [[0]]}
    assert {key: start[key] for key in expected} == expected


def test_requests_are_forwarded_in_order(tmp_path, server):
    body = """
requests = [Message.request('pmix.alloc', {'n': n}, matchtag=n) for n in range(1, 51)]
link.sendall(b''.join(request.encode() for request in requests))
for _ in requests:
    read()
"""
    tmp_path = server(START, body, GATE)
    instance = Instance({"pmix.alloc": [{"payload": {"status": 0}}]})

    async def scenario(service):
        service.start(1, ["sh", "-c", f"cat {tmp_path}/gate"], options={"pmix": True})
        await service.over()

    run(tmp_path, scenario, send_request=instance.ask)
    assert [payload["n"] for _, payload, _ in instance.requests] == list(range(1, 51))


def test_a_job_without_the_pmix_option_has_no_server(tmp_path, server):
    tmp_path = server("raise SystemExit(1)")

    async def scenario(service):
        for job, options in enumerate([None, {"pmix": False}, {"pmix": "off"}], 1):
            service.start(job, ["true"], options=options)
            await service.more()
        while sum(kind == "release" for kind, _ in service.responses()) < 3:
            await service.more()
        assert "exception" not in [kind for kind, _ in service.responses()]

    run(tmp_path, scenario)


def test_without_the_program_the_exception_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    async def scenario(service):
        service.start(1, ["true"], options={"pmix": True})
        kind, text = note(await service.over())
        assert kind == "exec"
        assert text.startswith("the job requests PMIx, and there is no `penstock-pmix` in `PATH`")
        assert "hint: " in text

    run(tmp_path, scenario)


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
def test_a_server_that_does_not_start_fails_its_job(tmp_path, server, body, expected):
    tmp_path = server(body)

    async def scenario(service):
        service.start(1, ["true"], options={"pmix": True})
        assert note(await service.over()) == ("exec", expected)

    run(tmp_path, scenario)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "link.send(b'GET /'); read()"])
def test_a_server_that_exits_fails_its_job(tmp_path, server, end):
    # The task opens the gate when it runs.
    tmp_path = server(START, "open(os.environ['GATE']).close()", end)

    async def scenario(service):
        command = ["sh", "-c", f": > {tmp_path}/gate; exec sleep 1000"]
        service.start(1, command, options={"pmix": True})
        responses = await service.over()
        assert note(responses) == ("pmix", "the job's PMIx server has ended before the tasks")

    run(tmp_path, scenario)


def test_a_stopped_server_fails_its_job(tmp_path, server, monkeypatch):
    monkeypatch.setattr(pmix, "PING_INTERVAL_S", 0.01)
    # It is not waited for.
    monkeypatch.setattr(pmix, "KILL_TIMEOUT_S", 1000.0)
    tmp_path = server(START, "os.kill(os.getpid(), 19)")

    async def scenario(service):
        service.start(1, ["sleep", "1000"], options={"pmix": True})
        responses = await service.over()
        assert note(responses) == ("pmix", "the job's PMIx server does not answer")

    run(tmp_path, scenario)


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

        link = pmix.Link(1, ours, Instance({}).ask, fail)
        async with theirs, trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            nursery.start_soon(answer, theirs, 20)
            await link.start({})
            await ended.wait()
            await link.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert failed == [("pmix", "the job's PMIx server does not answer")]


def test_the_server_is_notified_of_the_task_that_has_ended(tmp_path, server):
    # The other rank runs until the server is notified.
    body = """
data = link.recv(65536)
result = [[message.topic, message.object()] for message in decoder.feed(data)]
"""
    tmp_path = server(START, body, RESULT, GATE)

    async def scenario(service):
        script = f"[ $PMIX_RANK = '<1>' ] || cat {tmp_path}/gate"
        service.start(1, ["sh", "-c", script], ntasks=2, options={"pmix": True})
        responses = await service.over()
        assert [kind for kind, _ in responses] == ["start", "finish", "release"]

    run(tmp_path, scenario)
    assert json.loads((tmp_path / "result").read_text()) == [["pmix.ended", {"rank": 1}]]


def test_an_abort_ends_the_job(tmp_path, server):
    tmp_path = server(
        START,
        ASK,
        # Without its trap the task would end at once, and the server with it.
        "open(os.environ['GATE']).read()",
        "result = [ask('pmix.abort', {'rank': 'x'})]",
        "result += [ask('pmix.abort', {'rank': 0, 'status': 7, 'message': 'given up'})]",
        RESULT,
        GATE,
    )

    async def scenario(service):
        # The server runs as long as the task.
        command = ["sh", "-c", f"trap '' TERM; : > {tmp_path}/gate; cat {tmp_path}/gate"]
        service.start(1, command, options={"pmix": True})
        responses = await service.over()
        assert note(responses) == ("abort", "rank 0 aborted with status 7: given up")

    run(tmp_path, scenario)
    [rejected, granted] = json.loads((tmp_path / "result").read_text())
    assert (rejected[0], granted) == (errno.EPROTO, [0, {}])


def test_the_end_of_the_instance_ends_servers(tmp_path, server):
    tmp_path = server(START, "read()")

    async def scenario(service):
        service.start(1, ["sleep", "1000"], options={"pmix": True})
        while not service.answers:
            await service.more()

    run(tmp_path, scenario)
