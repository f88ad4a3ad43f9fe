"""A simulated operating system: virtual time, a host, sockets, output and processes in memory.

A whole instance runs on it in one thread and in no real time. Its parts that survive a crash of the
instance (the store, the output, the disk's random seed) survive here too, if the same
`SimulatedMachine` is used for the next instance.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
import trio.testing
from trio.testing import MockClock
from virtualtime import VirtualClock

from penstock._core import IDset, JobManager, ResourceSet, parse_duration
from penstock.aclient import Client, NoInstanceError
from penstock.client.trio_connection import running
from penstock.config import parse
from penstock.errors import InventoryError, SpawnError, StartError
from penstock.instance.daemon import Instance
from penstock.instance.startup import StartOptions
from penstock.instance.system import System
from penstock.inventory import resource_set

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from penstock._core import TaskPlacement

PROGRAMS = ("sleep", "stubborn", "echo", "true", "false")
NOT_FOUND = 127 << 8
DAEMON_PID, FIRST_PID = 999, 1000
OWNER = 5000


class SimulatedHost:
    """A machine with four cores and files in memory; the daemon's process on it."""

    pid = DAEMON_PID
    uid = OWNER

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        # The R in files, by path.
        self.files: dict[Path, ResourceSet] = {}
        self.cores = IDset("0-3")
        # The cores that the daemon is bound to; None for all.
        self.bound: IDset | None = None
        self._claimed: set[Path] = set()

    @contextmanager
    def claim(self, state: Path, socket: Path) -> Iterator[None]:
        """Locks the state directory for the length of the block."""
        if state in self._claimed:
            raise StartError(f"state directory `{state}` is in use by another instance")
        self._claimed.add(state)
        try:
            yield
        finally:
            self._claimed.remove(state)

    def discover(self) -> ResourceSet:
        """The machine as one execution target of rank 0."""
        cores = self.cores if self.bound is None else self.cores & self.bound
        return resource_set("0", ["simulated"], cores, IDset())

    def read_resources(self, path: Path) -> ResourceSet:
        """The R in a file."""
        if path not in self.files:
            raise InventoryError(f"`{path}`: No such file or directory")
        return self.files[path]

    def bind(self, cores: Iterable[int]) -> None:
        """Binds the daemon to cores."""
        self.bound = IDset(cores)


class MemoryListener(trio.abc.Listener[trio.abc.Stream]):
    """Accepts the connections of clients in the same thread."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[trio.abc.Stream](math.inf)

    def connect(self) -> trio.abc.Stream:
        """Connects to the listener; returns the client's end."""
        client, server = trio.testing.memory_stream_pair()
        self._send.send_nowait(server)
        return client

    async def accept(self) -> trio.abc.Stream:
        """Returns the listener's end of the next connection."""
        return await self._receive.receive()

    async def aclose(self) -> None:
        """Rejects further connections."""
        self._receive.close()
        await trio.lowlevel.checkpoint()


class SimulatedNetwork:
    """Sockets by path, in memory."""

    def __init__(self) -> None:
        # The user of clients that connect from now on.
        self.uid = OWNER
        self._listeners: dict[str, MemoryListener] = {}

    @asynccontextmanager
    async def listen(self, path: Path, *, mode: int) -> AsyncIterator[MemoryListener]:
        """Listens at a path for the length of the block."""
        assert str(path) not in self._listeners
        self._listeners[str(path)] = listener = MemoryListener()
        try:
            yield listener
        finally:
            del self._listeners[str(path)]

    def credentials(self, _stream: trio.abc.Stream) -> tuple[int, int]:
        """Every client is a process of one user."""
        return DAEMON_PID, self.uid

    @asynccontextmanager
    async def connect(self, uri: str) -> AsyncIterator[Client]:
        """Connects to an instance for the length of the block."""
        listener = self._listeners.get(uri.removeprefix("local://"))
        if listener is None:
            raise NoInstanceError(f"no instance at `{uri}`")
        stream = listener.connect()
        assert await stream.receive_some(1) == b"\0"
        client = Client(uri, stream, encoding="json")
        async with running(client):
            yield client


class SimulatedProcess:
    """A process that does nothing for a while.

    `sleep TIME` ends after that time (RFC 23), `echo WORDS` writes and ends, `true` and `false` end
    at once; `stubborn TIME` sleeps, and ignores every signal but SIGKILL.
    """

    def __init__(
        self,
        pid: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        cores: IDset | None,
        write: Callable[[bytes], None],
    ) -> None:
        self.pid = pid
        self.environment = environment
        self.cores = cores
        self.status: int | None = None
        self.ended = trio.Event()
        self.signals: list[int] = []
        # Whether the instance that started it can still send signals.
        self.controlled = True
        self._command = command
        self._write = write
        self._killed = trio.CancelScope()

    @property
    def returncode(self) -> int | None:
        """As in `subprocess.Popen`."""
        return None if self.status is None else os.waitstatus_to_exitcode(self.status)

    async def run(self) -> None:
        """Runs the program to its end."""
        program, *arguments = self._command
        status = 1 << 8 if program == "false" else 0
        with self._killed:
            if program in ("sleep", "stubborn"):
                await trio.sleep(parse_duration(arguments[0]))
            elif program == "echo":
                self._write(" ".join(arguments).encode() + b"\n")
        if self._killed.cancelled_caught:
            status = self.signals[-1]
        self.status = status
        self.ended.set()

    async def wait(self) -> int:
        """Returns the return code when the process has ended."""
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode

    def signal(self, signum: int) -> None:
        """Sends a signal in the name of the instance; all but SIGCONT end the process."""
        if self.controlled and signum != signal.SIGCONT:
            self.end(signum)

    def end(self, signum: int) -> None:
        """Delivers a signal that ends the process."""
        if self.status is None:
            self.signals.append(signum)
            if self._command[0] != "stubborn" or signum == signal.SIGKILL:
                self._killed.cancel()

    signal_group = signal

    async def read(self) -> bytes:
        """Reads captured output: none."""
        await self.ended.wait()
        return b""

    def drain(self) -> bytes:
        """Reads captured output: none."""
        return b""


class SimulatedProcesses:
    """Tasks and children of an instance; they survive it."""

    def __init__(self, host: SimulatedHost, output: SimulatedOutput) -> None:
        self.cpus = set(host.cores)
        self._host = host
        self.started: list[SimulatedProcess] = []
        self._output = output
        self._nursery: trio.Nursery | None = None
        self._stopped = trio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the processes that are started in the block; kills those left at its end."""
        async with trio.open_nursery() as self._nursery:
            yield
            self._nursery.cancel_scope.cancel()

    def _start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        write: Callable[[bytes], None],
        cores: Iterable[int] | None = None,
    ) -> SimulatedProcess:
        assert self._nursery is not None
        process = SimulatedProcess(
            FIRST_PID + len(self.started),
            command,
            dict(self._host.environment if environment is None else environment),
            None if cores is None else IDset(cores),
            write,
        )
        self.started.append(process)
        self._nursery.start_soon(process.run)
        return process

    def detach(self) -> None:
        """Ignores the signals of the current instance from now on, as if it were killed."""
        for process in self.started:
            process.controlled = False

    def is_directory(self, path: str) -> bool:
        """Whether a task can have this working directory."""
        return path.startswith("/") and path.isprintable()

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: str | None,
        stdout: int,
        stderr: int,
        cores: Iterable[int] | None,
    ) -> SimulatedProcess:
        """Starts a task."""
        if command[0] not in PROGRAMS:
            raise SpawnError(f"{command[0]}: command not found", NOT_FOUND)
        return self._start(
            command, environment, lambda data: self._output.write(stdout, data), cores
        )

    @asynccontextmanager
    async def open(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bool = True,
        capture: bool = False,
        new_session: bool = False,
    ) -> AsyncIterator[SimulatedProcess]:
        """Starts a child for the length of the block."""
        process = self._start(command, environment, lambda _data: None)
        try:
            yield process
        finally:
            process.signal(signal.SIGTERM)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reaps tasks until `stop`."""
        self._stopped = trio.Event()
        task_status.started()
        with trio.CancelScope(shield=True):
            await self._stopped.wait()

    def stop(self) -> None:
        """Ends `run`."""
        self._stopped.set()

    async def kill_escaped(self, _mark: bytes) -> None:
        """Does nothing: simulated tasks start no other processes."""
        await trio.lowlevel.checkpoint()

    async def kill_orphans(self, mark: bytes) -> set[int]:
        """Kills what is left of a job from before a restart."""
        name, _, value = mark.decode().partition("=")
        for process in self.started:
            if process.environment.get(name) == value and process.status is None:
                process.end(signal.SIGKILL)
                await process.ended.wait()
        return set()


class SimulatedOutput:
    """Retained output in memory: a buffer for each job and stream."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, str], bytearray] = {}
        self._handles: list[tuple[int, str]] = []
        self._changed: dict[tuple[int, str], trio.Event] = {}

    def create(self, _jobspec: Mapping[str, Any], job: int) -> SimulatedJobOutput:
        """The output files of a job that starts."""
        return SimulatedJobOutput(self, job)

    def open(self, job: int, stream: str) -> int:
        """Opens a stream to append to it."""
        self.files.setdefault((job, stream), bytearray())
        self._handles.append((job, stream))
        return len(self._handles) - 1

    def write(self, handle: int, data: bytes) -> None:
        """Appends to an open stream."""
        key = self._handles[handle]
        self.files[key] += data
        self._changed.pop(key, trio.Event()).set()

    def changed(self, key: tuple[int, str]) -> trio.Event:
        """The event that the next growth sets."""
        return self._changed.setdefault(key, trio.Event())

    def has(self, job: int) -> bool:
        """Whether output of a job is retained."""
        return job in self.jobs()

    @contextmanager
    def reader(self, job: int, stream: str) -> Iterator[SimulatedReader | None]:
        """Opens a stream to read it."""
        key = (job, stream)
        yield SimulatedReader(self, key) if key in self.files else None

    def jobs(self) -> list[int]:
        """The jobs with retained output."""
        return sorted({job for job, _stream in self.files})

    def remove(self, jobs: list[int]) -> None:
        """Removes the output of jobs."""
        for key in [key for key in self.files if key[0] in jobs]:
            del self.files[key]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Allows readers to wait for changes."""
        yield

    async def run(self) -> None:
        """Does nothing: `write` sets the events."""
        await trio.sleep_forever()


class SimulatedJobOutput:
    """The output files of one job."""

    redirected_to = None

    def __init__(self, output: SimulatedOutput, job: int) -> None:
        self._output = output
        self._job = job

    def open(self, _place: TaskPlacement) -> tuple[int, int]:
        """Opens stdout and stderr."""
        return self._output.open(self._job, "stdout"), self._output.open(self._job, "stderr")

    def write_line(self, file: int, text: str) -> None:
        """Writes a line of the instance's own."""
        self._output.write(file, text.encode())

    def retained_bytes(self) -> int:
        """The size of the retained output."""
        files = self._output.files.items()
        return sum(len(data) for (job, _stream), data in files if job == self._job)

    def close(self) -> None:
        """Does nothing: handles are not scarce."""


class SimulatedReader:
    """Reads one stream of a job's output."""

    def __init__(self, output: SimulatedOutput, key: tuple[int, str]) -> None:
        self._output = output
        self._key = key
        self._position = 0

    def read(self, size: int) -> bytes:
        """The next bytes; `b""` at the current end."""
        data = bytes(self._output.files[self._key][self._position : self._position + size])
        self._position += len(data)
        return data

    def changed(self) -> trio.Event:
        """The event that the next growth sets."""
        return self._output.changed(self._key)


class SimulatedMachine:
    """A machine that survives the instances that run on it.

    Args:
        clock: the mock clock of the Trio run.
        name: a name for the store that no other machine in this process has.
        seed: of the machine's random numbers.
    """

    def __init__(self, clock: trio.testing.MockClock, name: str, seed: int = 1) -> None:
        self.clock = VirtualClock(clock)
        self.network = SimulatedNetwork()
        self.output = SimulatedOutput()
        self.host = SimulatedHost()
        self.processes = SimulatedProcesses(self.host, self.output)
        self.stop = trio.Event()
        # The instance that was started last.
        self.instance: Instance | None = None
        self._random = random.Random(seed)
        # A database in memory lives as long as it is open: the last job manager is held here.
        self._store = f"file:penstock-{name}?mode=memory&cache=shared"
        self._manager: JobManager | None = None

    def _open_manager(self, settings: str, now: float) -> JobManager:
        self._manager = JobManager(self._store, settings, now)
        return self._manager

    @contextmanager
    def _stop_signals(self) -> Iterator[AsyncIterator[int]]:
        async def signals() -> AsyncIterator[int]:
            await self.stop.wait()
            yield int(signal.SIGTERM)
            await trio.sleep_forever()

        yield signals()

    async def _inline(self, function: Callable[[], None]) -> None:
        await trio.lowlevel.checkpoint()
        function()

    def system(self) -> System:
        """The system of the next instance on this machine."""
        self.stop = trio.Event()
        return System(
            clock=self.clock,
            host=self.host,
            random_bytes=self._random.randbytes,
            network=self.network,
            open_manager=self._open_manager,
            children=self.processes,
            tasks=self.processes,
            output=self.output,
            pmix_servers=self._no_pmix,
            stop_signals=self._stop_signals,
            in_thread=self._inline,
        )

    def _no_pmix(self, *_args: Any, **_options: Any) -> Any:
        raise OSError("no PMIx on a simulated machine")


HOUR = 3600.0
# The check of output sizes wakes up once a second: without it hours cost no more than seconds.
NO_OUTPUT_CHECK = "[penstock.exec]\noutput-limit = 0\n"
STATE = Path("/nowhere/state")
OPTIONS = StartOptions(
    state=STATE,
    socket=STATE / "socket",
    config=parse(NO_OUTPUT_CHECK),
    nodes=2,
    cores=2,
    exec="local",
    oversubscribe=True,
)
machine_numbers = itertools.count()


def in_virtual_time(scenario: Callable[[SimulatedMachine], Awaitable[None]]) -> float:
    """Runs a scenario on a simulated machine; returns the virtual seconds that it took."""
    clock = MockClock(autojump_threshold=0)

    async def main() -> float:
        machine = SimulatedMachine(clock, str(next(machine_numbers)))
        async with machine.processes.running():
            await scenario(machine)
        return trio.current_time()

    began = clock.current_time()
    return trio.run(main, clock=clock) - began


@asynccontextmanager
async def instance_on(
    machine: SimulatedMachine, options: StartOptions = OPTIONS, *, crash: bool = False
) -> AsyncIterator[Client]:
    """An instance on a machine and a client of it; at the end it is stopped, or it crashes."""
    with machine.host.claim(options.state, options.socket):
        async with trio.open_nursery() as nursery:
            machine.instance = Instance(options, machine.system())
            nursery.start_soon(machine.instance.run)
            await trio.testing.wait_all_tasks_blocked()
            async with machine.network.connect(f"local://{options.socket}") as client:
                yield client
            if crash:
                nursery.cancel_scope.cancel()
            else:
                machine.stop.set()
