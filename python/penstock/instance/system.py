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
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from pathlib import Path

    import trio

    from penstock._core import JobManager, Message, ResourceSet, TaskPlacement
    from penstock.aclient import Client
    from penstock.client.calls import AnyCall
    from penstock.clock import Clock


class Host(Protocol):
    """The machine, and the daemon's process on it."""

    @property
    def pid(self) -> int:
        """The daemon's process id."""

    @property
    def uid(self) -> int:
        """The user id of the instance owner."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The daemon's environment, which tasks, hooks and the command inherit."""

    def claim(self, state: Path, socket: Path) -> AbstractContextManager[None]:
        """Locks the state directory for the length of the block, and removes a stale socket.

        Raises:
            StartError: another instance uses one of them, or the path of the socket is invalid.
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
    """Local sockets."""

    def listen(
        self, path: Path, *, mode: int
    ) -> AbstractAsyncContextManager[trio.abc.Listener[trio.abc.Stream]]:
        """Listens at a path, with these permission bits, for the length of the block.

        Raises:
            OSError: the socket cannot be made.
        """

    def credentials(self, stream: trio.abc.Stream) -> tuple[int, int]:
        """Process id and user id of the other end of an accepted connection."""

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
        """Reads the captured output that is there now; `b""` if there is none."""


class ChildProcesses(Protocol):
    """Starts processes that belong to the instance: its command, its scheduler, hooks."""

    def open(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bool = True,
        capture: bool = False,
        new_session: bool = False,
    ) -> AbstractAsyncContextManager[ChildProcess]:
        """Starts a process; at the end of the block it is terminated if it has not ended.

        Args:
            command: program and arguments.
            environment: the whole environment; None for the instance's own.
            stdin: whether the process inherits the standard input; it is empty otherwise.
            capture: whether `read` gets standard output and error; they are inherited otherwise.
            new_session: whether the process leads a session of its own.

        Raises:
            OSError: the process cannot be started.
        """


class Task(Protocol):
    """A task: one process of a job, and the process group that it leads."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def status(self) -> int | None:
        """Its wait status; None until it is reaped."""

    @property
    def ended(self) -> trio.Event:
        """Set when it is reaped."""

    def signal(self, signum: int) -> None:
        """Sends a signal to the task's process group, if the task has not been reaped."""


class Tasks(Protocol):
    """Spawns and reaps the tasks of jobs."""

    @property
    def cpus(self) -> Collection[int]:
        """The CPUs that tasks can be bound to."""

    def is_directory(self, path: str) -> bool:
        """Whether a task can have this working directory."""

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: str | None,
        stdout: int,
        stderr: int,
        cores: Iterable[int] | None,
    ) -> Task:
        """Starts a task in a process group of its own.

        Args:
            command: program and arguments; the program is looked up on the task's own `PATH`.
            environment: the whole environment.
            cwd: working directory.
            stdout: a file of `OutputFiles`.
            stderr: a file of `OutputFiles`.
            cores: the CPUs that the task may run on; None for any.

        Raises:
            SpawnError: there is no such program, or it cannot be executed.
        """

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Reaps tasks until `stop`, even if the nursery is cancelled."""

    def stop(self) -> None:
        """Ends `run`."""

    async def kill_escaped(self, mark: bytes) -> None:
        """Kills and reaps the processes of a job that have left their groups.

        Args:
            mark: the entry of the environment that marks the job's processes.

        Raises:
            OSError: the processes cannot be listed.
        """

    async def kill_orphans(self, mark: bytes) -> set[int]:
        """Kills the remaining processes of a job from before a restart.

        Args:
            mark: the entry of the environment that marks the job's processes.

        Returns:
            The processes that are still there.
        """


class OutputFiles(Protocol):
    """The open output files of one job."""

    @property
    def redirected_to(self) -> str | None:
        """The template of the file for stdout; None if the instance retains the output."""

    def open(self, place: TaskPlacement) -> tuple[int, int]:
        """Opens the files for a task's stdout and stderr, or finds them open.

        Raises:
            OutputError: a file cannot be opened, or its template cannot be filled in.
        """

    def write_line(self, file: int, text: str) -> None:
        """Writes a line of the instance's own to a task's output, if that cannot block."""

    def retained_bytes(self) -> int:
        """The size of the retained output."""

    def close(self) -> None:
        """Closes the instance's descriptors; the tasks have theirs."""


class OutputReader(Protocol):
    """Reads one stream of a job's retained output."""

    def read(self, size: int) -> bytes:
        """The next bytes; `b""` at the current end."""

    def changed(self) -> trio.Event:
        """The event that the next growth sets. Take it before reading."""


class OutputDirectory(Protocol):
    """The retained output of all jobs."""

    def create(self, jobspec: Mapping[str, Any], job: int) -> OutputFiles:
        """The output files of a job that starts."""

    def has(self, job: int) -> bool:
        """Whether output of a job is retained."""

    def reader(self, job: int, stream: str) -> AbstractContextManager[OutputReader | None]:
        """Opens a stream of a job's output; None if the job has written none."""

    def jobs(self) -> list[int]:
        """The jobs with retained output."""

    def remove(self, jobs: list[int]) -> None:
        """Removes the output of jobs; it can take long and may be called in a thread."""

    def watching(self) -> AbstractContextManager[None]:
        """Allows readers to wait for changes in the block."""

    async def run(self) -> None:
        """Sets the events of changed files."""


# Sends a request to the instance; the responses come by the channel.
SendRequest = Callable[
    ["AnyCall[Any]"], "AbstractContextManager[trio.MemoryReceiveChannel[Message]]"
]
# The environment that each task rank needs for PMIx, and what to call when a rank has ended.
PmixClients = tuple[dict[int, dict[str, str]], Callable[[int], None]]


class PmixServers(Protocol):
    """Starts a PMIx server for each job that wants one."""

    def __call__(
        self,
        job: int,
        places: Sequence[TaskPlacement],
        *,
        send_request: SendRequest,
        fail: Callable[[str, str], None],
        start_soon: Callable[..., None],
    ) -> AbstractAsyncContextManager[PmixClients]:
        """Runs the server of a job's tasks for the length of the block.

        Args:
            job: the job's id.
            places: its tasks.
            send_request: sends a request to the instance.
            fail: ends the job, with an exception's type and note.
            start_soon: runs a function in the background.

        Raises:
            PmixError: the server cannot be started.
        """


@dataclass(frozen=True)
class System:
    """All that an instance uses of the operating system.

    Attributes:
        clock: the time.
        host: the machine, and the daemon's process.
        random_bytes: makes that many random bytes.
        network: sockets.
        open_manager: opens the store and makes the job manager on it, from settings and time.
        children: processes of the instance itself.
        tasks: processes of jobs.
        output: files with the output of jobs.
        pmix_servers: PMIx servers of jobs.
        stop_signals: receives the signals that stop the instance.
        in_thread: runs a function that can take long.
    """

    clock: Clock
    host: Host
    random_bytes: Callable[[int], bytes]
    network: Network
    open_manager: Callable[[str, float], JobManager]
    children: ChildProcesses
    tasks: Tasks
    output: OutputDirectory
    pmix_servers: PmixServers
    stop_signals: Callable[[], AbstractContextManager[AsyncIterator[int]]]
    in_thread: Callable[[Callable[[], None]], Awaitable[None]]
