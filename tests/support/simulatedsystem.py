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
from simulatedexec import SimulatedExec
from trio.testing import MockClock
from virtualtime import VirtualClock

from penstock._core import IDset, JobManager, ResourceSet, parse_duration
from penstock.aclient import Client, NoInstanceError
from penstock.client.trio_connection import running
from penstock.config import Config
from penstock.errors import InventoryError, StartError
from penstock.instance.daemon import Instance
from penstock.instance.startup import StartOptions
from penstock.instance.system import ProcessUsage, System
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
    from contextlib import AbstractAsyncContextManager

    from penstock.instance.kind import InstanceKind


EXEC_PROGRAM = "/nowhere/penstock-exec"
DAEMON_PID, FIRST_PID = 999, 1000
OWNER = 5000


class SimulatedHost:
    """A machine with four cores and files in memory; the daemon's process on it."""

    pid = DAEMON_PID
    uid = OWNER
    descriptor_limit = 1024

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        # The R in files, by path.
        self.files: dict[Path, ResourceSet] = {}
        self.cores = IDset("0-3")
        # The cores that the daemon is bound to; None for all.
        self.bound: IDset | None = None
        self._claimed: set[Path] = set()

    @contextmanager
    def claim(
        self, state: Path, socket: Path, kind: InstanceKind, *, any_state: bool
    ) -> Iterator[None]:
        """Locks the state directory for the length of the block."""
        if state in self._claimed:
            raise StartError(f"state directory `{state}` is in use by another instance")
        self._claimed.add(state)
        try:
            yield
        finally:
            self._claimed.remove(state)

    def prepare_output(self, directory: Path) -> None:
        pass

    def prepare_jobs(self, directory: Path) -> None:
        pass

    def prepare_socket(self, path: Path, setting: str) -> None:
        """Removes a stale socket: there is none."""

    def usage(self) -> ProcessUsage:
        """The resources that the daemon uses."""
        return ProcessUsage(cpu_seconds=1.5, resident_bytes=1 << 20, open_files=7)

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
        self.is_open = True

    def offer(self, stream: trio.abc.Stream) -> None:
        """Has the listener's end of a connection accepted."""
        self._send.send_nowait(stream)

    async def accept(self) -> trio.abc.Stream:
        """Returns the listener's end of the next connection."""
        return await self._receive.receive()

    async def aclose(self) -> None:
        """Rejects further connections."""
        self.is_open = False
        self._receive.close()
        await trio.lowlevel.checkpoint()


class SimulatedNetwork:
    """Sockets by path, in memory."""

    def __init__(self) -> None:
        # The user of clients that connect from now on.
        self.uid = OWNER
        self._listeners: dict[str, MemoryListener] = {}
        self._listening = trio.Event()
        # The process that has connected, by the listener's end of a connection.
        self._pids: dict[trio.abc.Stream, int] = {}

    @asynccontextmanager
    async def listen(self, path: Path, *, mode: int) -> AsyncIterator[MemoryListener]:
        """Listens at a path for the length of the block."""
        assert str(path) not in self._listeners
        self._listeners[str(path)] = listener = MemoryListener()
        self._listening.set()
        self._listening = trio.Event()
        try:
            yield listener
        finally:
            del self._listeners[str(path)]

    def credentials(self, stream: trio.abc.Stream) -> tuple[int, int]:
        """Every client is a process of one user."""
        return self._pids[stream], self.uid

    async def read(
        self, stream: trio.abc.Stream, size: int, is_idle: Callable[[], bool] = lambda: True
    ) -> bytes:
        return await stream.receive_some(size)

    def watch(self, _stream: trio.abc.Stream) -> None:
        """Every message waits for the next round."""

    def has_input(self) -> bool:
        return True

    def write(self, _stream: trio.abc.Stream, _data: bytearray) -> int:
        """Every write waits."""
        return 0

    def listen_tcp(self, address: str, port: int) -> AbstractAsyncContextManager[MemoryListener]:
        """Listens at an address for the length of the block."""
        return self.listen(Path(f"{address}:{port}"), mode=0)

    async def wait_for_listener(self, uri: str) -> None:
        """Returns when something listens at an address."""
        while self._listener(uri) is None:
            await self._listening.wait()

    def _listener(self, uri: str) -> MemoryListener | None:
        listener = self._listeners.get(uri.removeprefix("local://"))
        return listener if listener is not None and listener.is_open else None

    async def open(self, uri: str, pid: int = DAEMON_PID) -> trio.abc.Stream:
        """Connects a process to an instance; returns the client's end, which it has accepted."""
        listener = self._listener(uri)
        if listener is None:
            raise NoInstanceError(f"no instance at `{uri}`")
        stream, end = trio.testing.memory_stream_pair()
        self._pids[end] = pid
        listener.offer(end)
        if await stream.receive_some(1) != b"\0":
            raise NoInstanceError(f"the instance at `{uri}` has closed the connection")
        return stream

    @asynccontextmanager
    async def connect(self, uri: str, pid: int = DAEMON_PID) -> AsyncIterator[Client]:
        """Connects a process to an instance for the length of the block."""
        stream = await self.open(uri, pid)
        client = Client(uri, stream, encoding="json")
        async with running(client):
            yield client


class SimulatedProcess:
    """A process that does nothing for a while.

    `sleep TIME` ends after that time (RFC 23), `true` and `false` end at once; `penstock-exec` is
    an execution service.
    """

    def __init__(
        self,
        pid: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        service: SimulatedExec | None = None,
    ) -> None:
        self.pid = pid
        self.command = command
        self.environment = environment
        self.service = service
        self.status: int | None = None
        self.ended = trio.Event()
        self.signals: list[int] = []
        self._killed = trio.CancelScope()

    @property
    def returncode(self) -> int | None:
        """As in `subprocess.Popen`."""
        return None if self.status is None else os.waitstatus_to_exitcode(self.status)

    async def run(self) -> None:
        """Runs the program to its end."""
        program, *arguments = self.command
        status = 1 << 8 if program == "false" else 0
        with self._killed:
            if program == "sleep":
                await trio.sleep(parse_duration(arguments[0]))
            elif self.service is not None:
                await self.service.run()
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
        """Sends a signal; all but SIGCONT end the process."""
        if signum != signal.SIGCONT and self.status is None:
            self.signals.append(signum)
            self._killed.cancel()

    end = signal_group = signal

    async def read(self) -> bytes:
        """Reads captured output: none."""
        await self.ended.wait()
        return b""

    def drain(self) -> bytes:
        """Reads captured output: none."""
        return b""


class SimulatedProcesses:
    """Children of an instance, and the tasks of its jobs; services and tasks survive it."""

    def __init__(self, host: SimulatedHost, network: SimulatedNetwork) -> None:
        self._host = host
        self._network = network
        self.started: list[SimulatedProcess] = []
        # The tasks by job.
        self.tasks: dict[int, SimulatedProcess] = {}
        self._nursery: trio.Nursery | None = None

    @property
    def services(self) -> list[SimulatedProcess]:
        """The execution services, in the order of their start."""
        return [process for process in self.started if process.service is not None]

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
        service: SimulatedExec | None = None,
    ) -> SimulatedProcess:
        assert self._nursery is not None
        process = SimulatedProcess(
            FIRST_PID + len(self.started),
            command,
            dict(self._host.environment if environment is None else environment),
            service,
        )
        if service is not None:
            service.pid = process.pid
        self.started.append(process)
        self._nursery.start_soon(process.run)
        return process

    def _start_task(self, jobspec: dict[str, Any]) -> SimulatedProcess:
        return self._start(jobspec["tasks"][0]["command"], {})

    def _make_service(self, command: Sequence[str]) -> SimulatedExec:
        assert "--take-over" in command
        for service in self.services:
            service.end(signal.SIGTERM)
        uri = command[command.index("--uri") + 1]
        return SimulatedExec(self._network, uri, self.tasks, self._start_task)

    @asynccontextmanager
    async def open(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bool = True,
        capture: bool = False,
        new_session: bool = False,
        outlives: bool = False,
    ) -> AsyncIterator[SimulatedProcess]:
        """Starts a child for the length of the block."""
        service = self._make_service(command) if command[0] == EXEC_PROGRAM else None
        process = self._start(command, environment, service)
        try:
            yield process
        finally:
            if not outlives:
                process.signal(signal.SIGTERM)


class SimulatedOutput:
    """Retained output: the jobs that have some."""

    def __init__(self) -> None:
        self.retained: set[int] = set()

    def jobs(self) -> list[int]:
        """The jobs with retained output."""
        return sorted(self.retained)

    def remove(self, jobs: list[int]) -> None:
        """Removes the output of jobs."""
        self.retained.difference_update(jobs)


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
        self.processes = SimulatedProcesses(self.host, self.network)
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
            reserve=NoReserve(),
            children=self.processes,
            output=self.output,
            pmix_servers=self._no_pmix,
            stop_signals=self._stop_signals,
            in_thread=self._inline,
            read_input=self._no_input,
        )

    async def _no_input(self, descriptor: int) -> None:
        raise OSError(f"no descriptor {descriptor} on a simulated machine")

    def _no_pmix(self, *_args: Any, **_options: Any) -> Any:
        raise OSError("no PMIx on a simulated machine")


class NoReserve:
    """The disk space of a machine whose disk is never full."""

    def hold(self) -> bool:
        return False

    def release(self) -> bool:
        return False

    def space(self) -> None:
        """The space of the disk is unknown."""


HOUR = 3600.0
STATE = Path("/nowhere/state")
OPTIONS = StartOptions(
    state=STATE,
    socket=STATE / "socket",
    config=Config(),
    nodes=2,
    cores=2,
    exec="local",
    exec_program=Path(EXEC_PROGRAM),
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
    with machine.host.claim(
        options.state, options.socket, options.kind, any_state=options.any_state
    ):
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
