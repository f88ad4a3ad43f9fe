"""The operating system as an instance uses it: interfaces, each with one real implementation.

An instance reads no clock and no environment, draws no random numbers, and opens no socket, file or
process but by the `System` that it is given. `host.py` makes the real one; tests run whole
instances on a simulated one, in virtual time. A method is documented here, not in its
implementations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from pathlib import Path

    import trio

    from penstock._core import JobManager, Message, ResourceSet
    from penstock.aclient import Client
    from penstock.client.calls import AnyCall
    from penstock.clock import Clock
    from penstock.instance.kind import InstanceKind


@dataclass(frozen=True)
class ProcessUsage:
    """The resources that a process uses.

    Attributes:
        cpu_seconds: CPU time so far, user and system.
        resident_bytes: its resident memory.
        open_files: the number of its open files.
    """

    cpu_seconds: float
    resident_bytes: int
    open_files: int


class Host(Protocol):
    """The machine, and the daemon's process on it."""

    @property
    def pid(self) -> int:
        """The daemon's process id."""

    @property
    def uid(self) -> int:
        """The user id of the instance owner."""

    @property
    def descriptor_limit(self) -> int:
        """The most files that the daemon may open."""

    def usage(self) -> ProcessUsage:
        """The resources that the daemon's process uses now."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The daemon's environment, which tasks, hooks and the command inherit."""

    def claim(
        self, state: Path, socket: Path, kind: InstanceKind, *, any_state: bool
    ) -> AbstractContextManager[None]:
        """Locks the state directory for the length of the block, and removes a stale socket.

        Raises:
            StartError: another instance uses one of them, the state is of an instance of another
                kind, or the path of the socket is invalid.
        """

    def prepare_socket(self, path: Path, setting: str) -> None:
        """Removes a stale socket, for which a setting names the path.

        Raises:
            StartError: something listens there, the path is invalid, or others can replace the
                socket.
        """

    def prepare_output(self, directory: Path) -> None:
        """Makes the directory of retained output that the configuration names, if there is none.

        Its parent exists.

        Raises:
            StartError: other users have access to it, or can replace it.
        """

    def prepare_jobs(self, directory: Path) -> None:
        """Makes the directory of job directories that the configuration names, if there is none.

        Its parent exists.

        Raises:
            StartError: other users can write to it or replace it, or guests cannot enter it.
        """

    def discover(self) -> ResourceSet:
        """The machine as one execution target of rank 0."""

    def read_resources(self, path: Path) -> ResourceSet:
        """Reads the R in a file.

        Raises:
            InventoryError: the file cannot be read, or is not an R with execution targets.
        """

    def bind(self, cores: Iterable[int]) -> None:
        """Binds the daemon and its children to cores; does nothing if it has none of them."""


class Network(Protocol):
    """Sockets on this machine."""

    def listen(
        self, path: Path, *, mode: int
    ) -> AbstractAsyncContextManager[trio.abc.Listener[trio.abc.Stream]]:
        """Listens at a path, with these permission bits, for the length of the block.

        Raises:
            OSError: the socket cannot be made.
        """

    def listen_tcp(
        self, address: str, port: int
    ) -> AbstractAsyncContextManager[trio.abc.Listener[trio.abc.Stream]]:
        """Listens at a loopback address, for the length of the block; a port of 0 is any.

        Raises:
            OSError: the address or the port cannot be had.
        """

    def credentials(self, stream: trio.abc.Stream) -> tuple[int, int]:
        """Process id and user id of the other end of an accepted connection."""

    async def read(
        self, stream: trio.abc.Stream, size: int, is_idle: Callable[[], bool] = lambda: True
    ) -> bytes:
        """Waits until an accepted connection can be read, and reads at most `size` bytes.

        Other tasks that can run have their turn before it returns.

        Args:
            stream: the connection.
            size: the greatest number of bytes.
            is_idle: whether no other task is about to run. The event loop does not count the tasks
                that still have their turn in its present pass.

        Returns:
            The bytes; `b""` at the end of the connection.

        Raises:
            trio.BrokenResourceError: the connection has failed.
        """

    def watch(self, stream: trio.abc.Stream) -> None:
        """Makes an accepted connection count for `has_input` until it is closed."""

    def has_input(self) -> bool:
        """Whether a watched connection can be read, or has ended: its task will have its turn."""

    def write(self, stream: trio.abc.Stream, data: bytearray) -> int:
        """Writes to an accepted connection what it takes without waiting.

        Returns:
            The number of bytes: 0 if it takes none, or fails, which a later write reports.
        """

    def connect(self, uri: str) -> AbstractAsyncContextManager[Client]:
        """Connects to another instance for the length of the block."""


class ChildProcess(Protocol):
    """A process that the instance has started for itself."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """As in `subprocess.Popen`; None until it has ended."""

    async def wait(self) -> int:
        """Returns the return code when the process has ended."""

    def signal(self, signum: int) -> None:
        """Sends a signal.

        Raises:
            PermissionError: the process runs as another user.
        """

    def signal_group(self, signum: int) -> None:
        """Sends a signal to the session that the process leads, if there still is one."""

    async def read(self) -> bytes:
        """Reads captured output; `b""` when the last writer has closed it."""

    def drain(self) -> bytes:
        """Reads the captured output without blocking; `b""` if there is none."""


class ChildProcesses(Protocol):
    """Starts the instance's processes: its command, scheduler, execution service, hooks."""

    def open(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bool = True,
        capture: bool = False,
        new_session: bool = False,
        outlives: bool = False,
    ) -> AbstractAsyncContextManager[ChildProcess]:
        """Starts a process; at the end of the block it is terminated if it has not ended.

        Args:
            command: program and arguments.
            environment: the whole environment; None for the instance's own.
            stdin: whether the process inherits the standard input; it is empty otherwise.
            capture: whether `read` gets standard output and error; they are inherited otherwise.
            new_session: whether the process leads a session of its own.
            outlives: whether it is left running at the end of the block.

        Raises:
            OSError: the process cannot be started.
        """


class RetainedOutput(Protocol):
    """The output of jobs that the execution service of this machine retains."""

    def jobs(self) -> list[int]:
        """The jobs with retained output."""

    def remove(self, jobs: list[int]) -> None:
        """Removes the output of jobs; it can take long and may be called in a thread."""


@dataclass(frozen=True)
class DiskSpace:
    """The free and all bytes of a file system."""

    free: int
    total: int


class SpaceReserve(Protocol):
    """Disk space that is held beside the store for when the disk is full."""

    def hold(self) -> bool:
        """Takes the space, if there is as much again. Returns whether it is held."""

    def release(self) -> bool:
        """Releases the space for the store. Returns whether it was held."""

    def space(self) -> DiskSpace | None:
        """The space of the file system with the store; None if it is unknown."""


@dataclass(frozen=True)
class PmixTask:
    """A task of a job that requests PMIx, and the host of its execution target."""

    task_rank: int
    host: str


# Sends a request to the instance, and calls a function with each response; returns a function that
# abandons the request.
SendRequest = Callable[["AnyCall[Any]", Callable[["Message"], None]], Callable[[], None]]


@dataclass(frozen=True)
class Read:
    """The messages of one read from a connection, their bytes, and those of an unfinished one."""

    messages: int
    message_bytes: int
    unfinished_bytes: int


class PmixLink(Protocol):
    """A connection to the PMIx server of a job."""

    @property
    def environment(self) -> dict[int, dict[str, str]]:
        """The environment that each task rank needs."""

    def report_task_end(self, task_rank: int) -> None:
        """Tells the server that a task has ended: fences no longer wait for it."""

    async def wait_end(self) -> str:
        """Waits until the connection ends; returns why, for the note of an exception."""


class PmixServers(Protocol):
    """Connects to the PMIx servers of jobs."""

    def __call__(
        self,
        job: int,
        tasks: Sequence[PmixTask],
        directory: str,
        *,
        userid: int | None,
        send_request: SendRequest,
        pace: Callable[[Read], Awaitable[str | None]],
        set_unread: Callable[[int], None],
        fail: Callable[[str, str], None],
        start_soon: Callable[..., None],
    ) -> AbstractAsyncContextManager[PmixLink]:
        """Connects to the server of a job's tasks, for the length of the block.

        Args:
            job: the job's id.
            tasks: its tasks.
            directory: where the server listens.
            userid: the server's user, if that is a guest.
            send_request: sends a request to the instance.
            pace: waits after a message of the server, or a part of one, until the next; returns a
                limit that it exceeds.
            set_unread: takes the bytes that the server has not read.
            fail: ends the job, with an exception's type and note.
            start_soon: runs a function in the background.

        Raises:
            PmixError: the server cannot be reached, or has not started.
        """


@dataclass(frozen=True)
class System:
    """All that an instance uses of the operating system.

    Attributes:
        clock: the time.
        host: the machine, and the daemon's process.
        random_bytes: makes that many random bytes.
        network: sockets.
        reserve: disk space for the store when the disk is full.
        open_manager: opens the store and makes the job manager on it, from settings and time.
        children: processes of the instance itself.
        output: the retained output of jobs.
        pmix_servers: connections to PMIx servers of jobs.
        stop_signals: receives the signals that stop the instance.
        in_thread: runs a function that can take long.
        read_input: waits until a descriptor has input, and removes it.
    """

    clock: Clock
    host: Host
    random_bytes: Callable[[int], bytes]
    network: Network
    open_manager: Callable[[str, float], JobManager]
    reserve: SpaceReserve
    children: ChildProcesses
    output: RetainedOutput
    pmix_servers: PmixServers
    stop_signals: Callable[[], AbstractContextManager[AsyncIterator[int]]]
    in_thread: Callable[[Callable[[], None]], Awaitable[None]]
    read_input: Callable[[int], Awaitable[None]]
