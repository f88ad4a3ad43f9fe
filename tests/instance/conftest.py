"""Instances as real processes, for tests at the level where a user meets them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

PENSTOCK = [sys.executable, "-m", "penstock"]
EXAMPLES = Path(__file__).parents[2] / "examples"


class RunningInstance:
    """A `penstock start` whose socket accepts."""

    def __init__(self, process: subprocess.Popen, state: Path) -> None:
        self.process = process
        self.state = state
        self.socket = state / "socket"
        self.uri = f"local://{self.socket}"

    def penstock(
        self, *args: str, stdin: str | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess:
        """Runs a command against the instance."""
        return subprocess.run(
            [*PENSTOCK, *args],
            env={**os.environ, "PENSTOCK_URI": self.uri, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def lines(self, *args: str) -> list[str]:
        """The output lines of a command that must succeed."""
        done = self.penstock(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def stop(self) -> int:
        """Stops the instance in order."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@pytest.fixture
def start(tmp_path):
    """Gives a context manager that starts an instance with options."""
    states = set()

    @contextmanager
    def start_instance(
        *options: str,
        name: str = "state",
        stderr: Path | None = None,
        may_panic: bool = False,
        prefix: Sequence[str] = (),
    ):
        state = tmp_path / name
        states.add(state)
        socket = ["--state", str(state), "--socket", str(state / "socket")]
        command = [*prefix, *PENSTOCK, "start", *socket]
        # The command says that the socket accepts, and ends the instance with its input.
        command += [*options, "--", "sh", "-c", "echo accepting; cat > /dev/null"]
        stderr = stderr or tmp_path / f"{name}.log"
        with (
            stderr.open("w") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            try:
                assert process.stdout.readline() == "accepting\n"
                yield RunningInstance(process, state)
            finally:
                if process.poll() is None:
                    process.stdin.close()
                    process.wait(timeout=60)
        said = stderr.read_text(errors="replace")
        # A panic is contained: without this, the failure of a check could go unnoticed.
        assert may_panic or "PanicException" not in said, said

    yield start_instance
    for state in states:
        end_service(state / "exec", f"local://{state}/socket")


def kill(instance) -> None:
    """Kills the daemon, as a crash would."""
    with instance.process.stdin:
        instance.process.kill()
    instance.process.wait()


@contextmanager
def foreground(state: Path, *options: str):
    """An instance without a command, once it answers."""
    socket = ["--state", str(state), "--socket", str(state / "socket")]
    command = [*PENSTOCK, "start", "-v", *socket, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as daemon:
        for line in daemon.stderr:
            if "ready, " in line:
                break
        try:
            yield daemon
        finally:
            daemon.terminate()
            daemon.communicate()


def end_service(directory: Path, uri: str) -> None:
    """Kills the service and the reapers of a directory, and the tasks that they have left."""
    used_by = (service_of(directory), *standbys_of(directory), reaper_of(directory))
    pids = [pid for pid in used_by if is_running(pid)]
    if not pids:
        return
    mark = f"PENSTOCK_URI={uri}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (path / "environ").read_bytes().split(b"\0"):
                pids.append(int(path.name))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


PF_EXITING = 4


def is_running(pid: int | None) -> bool:
    """Whether a process has not begun to exit. A process of an ended job may be a zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return not int(fields[6]) & PF_EXITING
    return False


@contextmanager
def attached(command: list[str], word: str, env: dict[str, str] | None = None):
    """A service as a process, once it has said `word`."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if word in line:
                    break
            else:
                raise AssertionError(f"{command} ended without saying `{word}`: {said}")
            yield process
        finally:
            process.kill()


@pytest.fixture
def scheduler():
    """Gives a context manager that attaches a scheduler, `process` (ours) or `example`."""

    def attach(kind: str, instance: RunningInstance, limit: int | None = None):
        if kind == "process":
            command = [*PENSTOCK, "sched", "--uri", instance.uri]
            command += ["--limit", str(limit)] if limit else []
        else:
            command = [sys.executable, str(EXAMPLES / "scheduler.py"), instance.uri]
            command += [str(limit)] if limit else []
        return attached(command, "ready")

    return attach


@pytest.fixture
def exec_service(tmp_path):
    """Gives a context manager that attaches the example of an execution service."""

    def attach(instance: RunningInstance, epilog: str = "", name: str = "example-exec"):
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        command = [sys.executable, str(EXAMPLES / "exec_service.py"), name, str(directory)]
        env = {**os.environ, "EPILOG": epilog}
        return attached([*command, instance.uri], "exec-hello is done", env)

    return attach


@pytest.fixture
def exec_process(tmp_path):
    """Gives a context manager that runs `penstock exec`; its reaper is killed after the test.

    The words of `prefix` are a command that executes its arguments.
    """
    directory = tmp_path / "exec"

    @contextmanager
    def attach(instance, *options: str, prefix: Sequence[str] = ()):
        command = [*prefix, *PENSTOCK, "exec", "--uri", instance.uri, "--directory", str(directory)]
        with attached([*command, *options], "ready") as process:
            yield process

    yield attach
    kill_reapers(directory)


def service_of(directory: Path) -> int | None:
    """The pid of the execution service that used a directory last."""
    return _locked_by(directory / "lock")


def reaper_of(directory: Path) -> int | None:
    """The pid of the reaper of an execution service."""
    return _locked_by(directory / "reaper" / "lock")


def standbys_of(directory: Path) -> list[int | None]:
    """The pids of the standbys of that reaper, the outer one first."""
    return [_locked_by(directory / "reaper" / name) for name in ("second-standby", "standby")]


def kill_reapers(directory: Path) -> None:
    """Kills the reaper of an execution service, and its standbys, which would take its place."""
    for pid in (*standbys_of(directory), reaper_of(directory)):
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


def _locked_by(lock: Path) -> int | None:
    return int(lock.read_text()) if lock.exists() else None
