"""An instance as a PMIx server sees it: the other end of its socket, and what is answered there."""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock._core import Decoder, Message
from penstock.instance.pmix import find_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Seconds until a test says what it waits for, and that it has not come.
PATIENCE = 60
EXAMPLE = Path(__file__).parents[2] / "examples" / "pmix" / "alloc.c"


def needed(what: str) -> None:
    """Skips the test, or fails it where it must not be skipped."""
    if os.environ.get("PENSTOCK_NEED_PMIX"):
        pytest.fail(what)
    pytest.skip(what)


def server_program() -> Path:
    """The server, built by `make pmix`; skips the test where there is none."""
    program = find_server()
    if program is None:
        needed("no PMIx server: `make pmix` builds it where libpmix-dev (4.2 or later) is there")
    return Path(str(program))


def compile_program(source: Path, directory: Path) -> Path:
    """Compiles a program against the system's libpmix; skips the test where there is none."""
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


class Daemon:
    """Starts a server for a job of some tasks, and answers it.

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
        directory.mkdir(mode=0o700)
        self._answer = answer
        self.size = size
        ours, theirs = socket.socketpair()
        self.socket = ours
        self._tasks: list[subprocess.Popen[str]] = []
        self._sending = threading.Lock()
        self.stderr = directory.with_suffix(".stderr")
        with theirs, self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [program, "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=stderr,
            )
        # Requests in the order they came; answers to what was asked here.
        self.asked: queue.Queue[Message] = queue.Queue()
        self._told: queue.Queue[Message] = queue.Queue()
        self.events: Message | None = None
        self._registered = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.start = {
            "namespace": f"penstock-{secrets.token_hex(16)}",
            "job": "ƒ2Aa",
            "size": size,
            "universe": 2 * size,
            "local": list(range(size)),
            "nodes": [socket.gethostname()],
            "ranks_per_node": [list(range(size))],
            "directory": str(directory),
        }

    def send(self, message: Message) -> None:
        """Sends one message."""
        with self._sending:
            self.socket.sendall(message.encode())

    def ask(self, topic: str, payload: dict[str, Any]) -> Message:
        """Asks the server."""
        self.send(Message.request(topic, payload, matchtag=1))
        return self._told.get(timeout=PATIENCE)

    def begin(self) -> dict[str, dict[str, str]]:
        """Starts the library; the tasks' environments, by rank."""
        response = self.ask("pmix.start", self.start)
        assert response.errnum == 0, response.error_text
        assert self._registered.wait(PATIENCE)
        return dict(response.object()["environment"])

    def tell(self, event: dict[str, Any]) -> None:
        """Tells that a request is over."""
        assert self.events is not None
        self.send(self.events.respond(event))

    def stats(self) -> dict[str, int]:
        """What the server has counted."""
        return dict(self.ask("pmix.stats", {}).object())

    def _read(self) -> None:
        decoder = Decoder()
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except OSError:
                return
            if not data:
                return
            for message in decoder.feed(data):
                self._take(message)

    def _take(self, message: Message) -> None:
        if message.kind == "response":
            self._told.put(message)
        elif message.topic == "pmix.events":
            self.events = message
            self._registered.set()
        else:
            answer = self._answer(self, message)
            self.asked.put(message)
            if answer is not None:
                self.send(message.respond(answer))

    def run(
        self, program: Path, arguments: Sequence[str], *, ranks: Sequence[int] | None = None
    ) -> list[subprocess.Popen[str]]:
        """Starts the tasks."""
        environment = self.begin()
        self._tasks += [
            subprocess.Popen(
                [program, *arguments],
                env={**os.environ, **environment[str(rank)]},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in (range(self.size) if ranks is None else ranks)
        ]
        return self._tasks

    def close(self) -> int:
        """Closes the socket, as an instance does that ends; the server's exit code."""
        self.socket.shutdown(socket.SHUT_RDWR)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.socket.close()
        return code

    def abandon(self) -> None:
        """Leaves nothing behind where a test has failed."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            self.socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(PATIENCE)
        self.socket.close()
        for task in self._tasks:
            with task:
                task.kill()


def finish(tasks: Sequence[subprocess.Popen[str]]) -> list[tuple[int, list[str]]]:
    """Waits for tasks: their exit codes and lines."""
    ended = []
    for task in tasks:
        output, _ = task.communicate(timeout=PATIENCE)
        ended.append((task.returncode, output.splitlines()))
    return ended
