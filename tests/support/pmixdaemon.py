"""The instance's end of a connection to a PMIx server, with answers of the test."""

from __future__ import annotations

import errno
import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock._core import Decoder, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Seconds until a test fails with the name of the message that it waits for.
PATIENCE = 60
EXAMPLE = Path(__file__).parents[2] / "examples" / "pmix" / "alloc.c"


def needed(what: str) -> None:
    """Skips the test, or fails it where it must not be skipped."""
    if os.environ.get("PENSTOCK_NEED_PMIX"):
        pytest.fail(what)
    pytest.skip(what)


def server_program() -> Path:
    """The server, built by `make pmix`; skips the test if it is not built."""
    name = "penstock-pmix"
    program = shutil.which(name) or shutil.which(Path(sys.executable).with_name(name))
    if program is None:
        needed("no PMIx server: `make pmix` builds it where libpmix-dev (4.2 or later) is there")
    return Path(str(program))


def compile_program(source: Path, directory: Path) -> Path:
    """Compiles a program against the system's libpmix; skips the test without libpmix."""
    flags = ["pkg-config", "--cflags", "--libs", "pmix >= 4.2"]
    compiler = shutil.which("cc")
    if compiler is None or shutil.which("pkg-config") is None:
        needed("no C compiler, or no pkg-config")
    answer = subprocess.run(flags, capture_output=True, text=True, check=False)
    if answer.returncode:
        needed(f"no libpmix: {answer.stderr.strip()}")
    program = directory / source.stem
    extra = os.environ.get("PENSTOCK_PMIX_CFLAGS", "").split()
    command = [compiler or "cc", "-Wall", "-Werror", *extra, "-o", str(program), str(source)]
    subprocess.run([*command, *answer.stdout.split()], check=True)
    return program


def attributes(request: Message) -> dict[str, Any]:
    """The attributes of a request for resources."""
    return {each["key"]: each["value"] for each in request.object()["attributes"]}


def text(key: str, value: str) -> dict[str, Any]:
    """A text attribute."""
    return {"key": key, "type": "string", "value": value}


def codes(lines: list[str]) -> list[str]:
    """Lines without the names of status codes, which differ by version."""
    return [line.partition(" (")[0] for line in lines]


class Daemon:
    """Starts a server for a job, and answers its requests.

    Args:
        directory: for the server's files.
        size: tasks of the job.
        answer: what to answer a request; None leaves it waiting.
    """

    def __init__(
        self,
        directory: Path,
        size: int,
        answer: Callable[[Daemon, Message], dict[str, Any] | None],
    ) -> None:
        program = server_program()
        self.size = size
        self.directory = directory
        self.stderr = directory.with_suffix(".stderr")
        self._tasks: list[subprocess.Popen[str]] = []
        self._environment: dict[str, dict[str, str]] = {}
        with self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [program, "--directory", directory], stdout=subprocess.PIPE, stderr=stderr
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"listening\n", self.stderr.read_text()
        self._answer = answer
        self._sending = threading.Lock()
        # Requests of the server in order of arrival, and its responses to ours.
        self.requests: queue.Queue[Message] = queue.Queue()
        self._reported: queue.Queue[Message] = queue.Queue()
        self.events: Message | None = None
        self.registered = threading.Event()
        self.connect()
        self.start = {
            "namespace": f"penstock-{secrets.token_hex(16)}",
            "job": "ƒ2Aa",
            "size": size,
            "universe": 2 * size,
            "local": list(range(size)),
            "nodes": [socket.gethostname()],
            "ranks_per_node": [list(range(size))],
        }

    def connect(self) -> None:
        """Connects to the server."""
        self.socket = socket.socket(socket.AF_UNIX)
        folder = os.open(self.directory, os.O_PATH)
        # The address of a socket is 107 bytes at most.
        self.socket.connect(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        self._reader = threading.Thread(target=self._read, args=(self.socket,))
        self._reader.start()

    def send(self, message: Message) -> None:
        """Sends one message."""
        with self._sending:
            self.socket.sendall(message.encode())

    def ask(self, topic: str, payload: dict[str, Any]) -> Message:
        """Sends a request to the server; returns the response."""
        self.send(Message.request(topic, payload, matchtag=1))
        return self._reported.get(timeout=PATIENCE)

    def tell(self, event: dict[str, Any]) -> None:
        """Publishes the completion of a request."""
        assert self.registered.wait(PATIENCE)
        assert self.events is not None
        self.send(self.events.respond(event))

    def hang_up(self) -> None:
        """Closes the socket."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(PATIENCE)
        self.socket.close()

    def await_end(self) -> None:
        """Returns when the server has ended the connection."""
        self._reader.join(PATIENCE)
        assert not self._reader.is_alive()

    def _read(self, connection: socket.socket) -> None:
        decoder = Decoder()
        while True:
            try:
                data = connection.recv(1 << 16)
            except OSError:
                return
            if not data:
                return
            for message in decoder.feed(data):
                self._take(message)

    def _take(self, message: Message) -> None:
        if message.kind == "response":
            self._reported.put(message)
        elif message.topic == "pmix.events":
            self.events = message
            self.registered.set()
        else:
            answer = self._answer(self, message)
            self.requests.put(message)
            if answer is not None:
                self.send(message.respond(answer))

    def begin(self) -> dict[str, dict[str, str]]:
        """Starts the library once; returns the tasks' environments, by rank."""
        if not self._environment:
            response = self.ask("pmix.start", self.start)
            assert response.errnum == 0, response.error_text
            assert self.registered.wait(PATIENCE)
            self._environment = dict(response.object()["environment"])
        return self._environment

    def port(self) -> int:
        """The port on 127.0.0.1 to which the server's clients connect."""
        return int(self.begin()["0"]["PMIX_SERVER_URI41"].rpartition(":")[2])

    def stats(self) -> dict[str, int]:
        """The server's counters."""
        return dict(self.ask("pmix.stats", {}).object())

    def run(
        self,
        program: Path,
        arguments: Sequence[str],
        *,
        ranks: Sequence[int] | None = None,
        user: int | None = None,
        stdin: int | None = None,
    ) -> list[subprocess.Popen[str]]:
        """Starts the tasks, if wanted as another user."""
        environment = self.begin()
        tasks = [
            subprocess.Popen(
                [program, *arguments],
                env={**os.environ, **environment[str(rank)]},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                user=user,
            )
            for rank in (range(self.size) if ranks is None else ranks)
        ]
        self._tasks += tasks
        return tasks

    def restart(self) -> None:
        """Ends the connection and begins another one, as an instance that is started again."""
        self.hang_up()
        self.registered.clear()
        self.connect()
        response = self.ask("pmix.start", {**self.start, "namespace": secrets.token_hex(16)})
        assert response.object()["environment"] == self._environment
        assert self.registered.wait(PATIENCE)

    def close(self) -> None:
        """Checks that the server outlives the connection, and kills it."""
        self.hang_up()
        self.connect()
        assert self.ask("pmix.other", {}).errnum == errno.ENOSYS
        self.process.kill()
        assert self.process.wait(PATIENCE) == -signal.SIGKILL
        self.hang_up()

    def abandon(self) -> None:
        """Kills the processes that a failed test has left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for task in self._tasks:
            with task:
                task.kill()


class Book:
    """Requests by their user's id, as an instance keeps them: new, perhaps queued, decided.

    The thread that reads a daemon's socket answers, while the test may grant.
    """

    def __init__(self, outcomes: dict[str, tuple[int, str, list[dict[str, Any]]]]) -> None:
        self._lock = threading.Lock()
        self.outcomes = outcomes
        self.waiting: dict[str, Message] = {}
        self.over: dict[str, dict[str, Any]] = {}

    def answer(self, daemon: Daemon, request: Message) -> dict[str, Any] | None:
        """Answers requests and queries; undecided requests stay pending."""
        if request.topic == "pmix.query":
            name = request.object().get("id")
            with self._lock:
                waiting = {ident: self._row(ident, 1, "", "queued") for ident in self.waiting}
                known = self.over | waiting
            found = [row for ident, row in known.items() if name in (None, ident)]
            return {"status": 0 if found or name is None else -46, "requests": found}
        assert request.topic == "pmix.alloc"
        name = attributes(request).get("pmix.alloc.reqid", "")
        if request.object()["directive"] == 5:
            return self._cancel(daemon, name)
        if name not in self.outcomes:
            self.waiting[name] = request
            return None
        return self._end(daemon, name)

    @staticmethod
    def _row(name: str, status: int, reason: str, state: str) -> dict[str, Any]:
        """A request as `pmix.query` tells it."""
        return {
            "id": name,
            "alloc": None if state == "queued" else "ƒ3",
            "directive": "new",
            "rank": 0,
            "status": status,
            "state": state,
            "reason": reason,
            "nodes": 0,
            "cores": 0,
            "time": 0,
            "estimate": None,
            "results": [],
        }

    def _end(self, daemon: Daemon, name: str) -> dict[str, Any]:
        status, reason, results = self.outcomes[name]
        states = {0: "granted", -180: "cancelled"}
        row = self._row(name, status, reason, states.get(status, "denied"))
        with self._lock:
            self.waiting.pop(name, None)
            self.over[name] = row
        daemon.tell({**row, "results": results})
        return {"status": status, "reason": reason, "results": results}

    def grant(self, daemon: Daemon, name: str) -> None:
        """Decides a pending request."""
        request = self.waiting[name]
        daemon.send(request.respond(self._end(daemon, name)))

    def _cancel(self, daemon: Daemon, name: str) -> dict[str, Any]:
        self.outcomes[name] = (-180, "cancelled", [])
        self.grant(daemon, name)
        return {"status": 0, "reason": "", "results": [text("pmix.alloc.reqid", name)]}


class Gates:
    """FIFOs that tasks of `tests/pmix/between.c` read, to pass after this context.

    Args:
        directory: where they are made.
        size: tasks of the job.
    """

    def __init__(self, directory: Path, size: int) -> None:
        self.name = str(directory / f"gate-{secrets.token_hex(4)}")
        self._paths = [f"{self.name}.{rank}" for rank in range(size)]
        self._open: list[int] = []
        for path in self._paths:
            os.mkfifo(path)

    def __enter__(self) -> None:
        """Returns when all tasks are there."""
        self._open = [os.open(path, os.O_WRONLY) for path in self._paths]

    def __exit__(self, *_error: object) -> None:
        """Lets them pass."""
        for gate in self._open:
            os.close(gate)


GRANTED = [
    text("pmix.alloc.id", "ƒ3"),
    text("pmix.alloc.reqid", "MYALLOCATION"),
    text("pmix.alloc.nlist", "n[1-12]"),
]


def finish(tasks: Sequence[subprocess.Popen[str]]) -> list[tuple[int, list[str]]]:
    """Waits for tasks; returns their exit codes and lines."""
    ended = []
    for task in tasks:
        output, _ = task.communicate(timeout=PATIENCE)
        ended.append((task.returncode, output.splitlines()))
    return ended


def requests(daemon: Daemon, topic: str) -> list[Message]:
    """The requests of the server."""
    came = [daemon.requests.get_nowait() for _ in range(daemon.requests.qsize())]
    return [message for message in came if message.topic == topic]


def ended_well(daemon: Daemon) -> None:
    """Checks that every request was answered and every loan reclaimed."""
    stats = daemon.stats()
    assert stats["parked"] == 0
    assert stats["lent"] == stats["back"]
    daemon.close()
    assert daemon.stderr.read_text() == ""
