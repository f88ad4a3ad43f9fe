"""The operating system of a real instance: its clock, sockets, files and processes."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from penstock import inventory
from penstock._core import JobManager
from penstock.clock import SystemClock
from penstock.errors import StartError
from penstock.instance.directories import (
    DATABASE,
    check_local,
    check_private,
    check_trusted,
    claim_kind,
    lock_state,
)
from penstock.instance.pmix_server import PmixServers
from penstock.instance.processes import Children
from penstock.instance.sockets import LocalSockets
from penstock.instance.startup import MAX_SOCKET_PATH_BYTES
from penstock.instance.system import DiskSpace, ProcessUsage, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from penstock._core import ResourceSet
    from penstock.instance.kind import InstanceKind
    from penstock.instance.startup import StartOptions


OUTPUT_STREAMS = ("stdout", "stderr")
# The most input that is removed at once.
INPUT_BYTES = 4096
OTHER_STATE_HINT = "give this one its own with `--state DIR`"


@contextmanager
def private_umask() -> Iterator[int]:
    """Makes new files the owner's alone for the length of the block; yields the umask before."""
    umask = os.umask(0o077)
    try:
        yield umask
    finally:
        os.umask(umask)


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files to the hard one; returns the limit before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def host_system(options: StartOptions, umask: int, descriptors: int) -> System:
    """This machine, with the state directory of an instance.

    Args:
        options: the instance's options.
        umask: of the processes that the instance starts.
        descriptors: their soft limit of open files.
    """
    children = Children(umask, descriptors)
    synchronous = options.config.penstock.store.synchronous

    def open_manager(settings: str, now: float) -> JobManager:
        manager = JobManager(options.state / DATABASE, settings, now, synchronous=synchronous)
        manager.sync_in_thread()
        return manager

    return System(
        clock=SystemClock(),
        host=ThisHost(),
        random_bytes=os.urandom,
        network=LocalSockets(),
        open_manager=open_manager,
        reserve=ReserveFile(options.state / "reserve", options.config.penstock.store.reserve),
        children=children,
        output=OutputFiles(options.output_directory),
        pmix_servers=PmixServers(os.urandom),
        stop_signals=_stop_signals,
        in_thread=_in_thread,
        read_input=_read_input,
    )


class ThisHost:
    """The `Host` that this process runs on."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.uid = os.geteuid()
        self.environment = os.environ
        self.descriptor_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    @contextmanager
    def claim(
        self, state: Path, socket: Path, kind: InstanceKind, *, any_state: bool
    ) -> Iterator[None]:
        for directory in (state, socket.parent):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(state, self.uid, "--state DIR")
        check_local(state, Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
        check_trusted(socket.parent, self.uid, "--socket PATH")
        with lock_state(state, OTHER_STATE_HINT):
            claim_kind(state, kind, any_state=any_state)
            _remove_stale_socket(socket, "--socket PATH")
            yield

    def prepare_socket(self, path: Path, setting: str) -> None:
        check_trusted(path.parent, self.uid, setting)
        _remove_stale_socket(path, setting)

    def prepare_output(self, directory: Path) -> None:
        setting = "penstock.exec.output-directory"
        self._prepare(directory, 0o700, setting)
        if directory.stat().st_mode & 0o077:
            raise StartError(f"{setting}: other users have access to `{directory}`")

    def prepare_jobs(self, directory: Path) -> None:
        setting = "penstock.exec.job-directory"
        self._prepare(directory, 0o711, setting)
        if self.uid == 0 and not directory.stat().st_mode & stat.S_IXOTH:
            raise StartError(f"{setting}: guests cannot enter `{directory}`: expected mode 711")

    def _prepare(self, directory: Path, mode: int, setting: str) -> None:
        """Makes a directory that a setting names, unless it is there, and checks its user."""
        try:
            # Its parent is checked before anything is made there.
            check_trusted(directory.parent, self.uid, setting)
            if not directory.exists():
                directory.mkdir(mode=0o700)
                directory.chmod(mode)
        except OSError as error:
            raise StartError(f"{setting}: cannot make `{directory}`: {error.strerror}") from error
        check_private(directory, self.uid, setting)

    def usage(self) -> ProcessUsage:
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return ProcessUsage(
            cpu_seconds=used.ru_utime + used.ru_stime,
            resident_bytes=pages * resource.getpagesize(),
            open_files=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        )

    def discover(self) -> ResourceSet:
        return inventory.discover()

    def read_resources(self, path: Path) -> ResourceSet:
        return inventory.from_file(path)

    def bind(self, cores: Iterable[int]) -> None:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)


def _remove_stale_socket(path: Path, option: str) -> None:
    """Removes a socket on which nothing listens, left behind by a killed instance.

    Args:
        path: the path of the socket.
        option: what names it, for the errors.

    Raises:
        StartError: an instance listens there, the path is not a socket, or it is too long for one.
    """
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise StartError(
            f"`{path}` is too long for a socket: {length} bytes, expected at most "
            f"{MAX_SOCKET_PATH_BYTES}\nhint: give a shorter one with `{option}`"
        )
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(
            f"`{path}` exists and is not a socket\nhint: give another path with `{option}`"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise StartError(
        f"an instance listens at `{path}` already\nhint: give this one its own with `{option}`"
    )


def _stop_signals() -> AbstractContextManager[AsyncIterator[int]]:
    # Users send these to the command, which is in the process group: `batch --signal` for example.
    # A handler, unlike SIG_IGN, is not inherited by the command.
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: None)
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Under nohup the instance outlives its terminal.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return trio.open_signal_receiver(*numbers)


async def _read_input(descriptor: int) -> None:
    await trio.lowlevel.wait_readable(descriptor)
    os.read(descriptor, INPUT_BYTES)


async def _in_thread(function: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(function)


# Files of the output directory that are looked at for each job whose output is removed.
MAX_FILES_PER_JOB = 8


class OutputFiles:
    """The `RetainedOutput` on disk: files `ID.stdout` and `ID.stderr`.

    Args:
        directory: where they are; it may not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def jobs(self) -> list[int]:
        paths = self._directory.iterdir() if self._directory.is_dir() else ()
        names = {path.stem for path in paths if path.suffix[1:] in OUTPUT_STREAMS}
        return [int(name) for name in names if name.isdecimal()]

    def remove(self, jobs: list[int]) -> None:
        names = self._existing(jobs)
        if names is None:
            names = [f"{job}.{stream}" for job in jobs for stream in OUTPUT_STREAMS]
        for name in names:
            # Redirected output has none. Another file is found at the next start.
            with suppress(OSError):
                (self._directory / name).unlink()

    def _existing(self, jobs: list[int]) -> list[str] | None:
        """The files of jobs, from a listing of the directory: most of many jobs may have none.

        None if the directory has many more files than there are jobs.
        """
        wanted = set(jobs)
        found = []
        with suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            for number, entry in enumerate(entries):
                if number > MAX_FILES_PER_JOB * len(wanted):
                    return None
                job, _, stream = entry.name.partition(".")
                if stream in OUTPUT_STREAMS and job.isdecimal() and int(job) in wanted:
                    found.append(entry.name)
        return found


class ReserveFile:
    """The `SpaceReserve` in a file, whose blocks are allocated.

    Args:
        path: the file.
        size: its size in bytes; 0 for no reserve.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size

    def hold(self) -> bool:
        with suppress(OSError):
            if self._is_held():
                return self._size > 0
            space = self.space()
            if space is None or space.free < 2 * self._size:
                return False
            return self._allocate()
        return False

    def release(self) -> bool:
        was_held = False
        with suppress(OSError):
            was_held = self._size > 0 and self._is_held()
            self._path.unlink(missing_ok=True)
        return was_held

    def space(self) -> DiskSpace | None:
        with suppress(OSError):
            found = os.statvfs(self._path.parent)
            return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
        return None

    def _is_held(self) -> bool:
        try:
            return self._path.stat().st_size == self._size
        except FileNotFoundError:
            return self._size == 0

    def _allocate(self) -> bool:
        descriptor = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        try:
            os.posix_fallocate(descriptor, 0, self._size)
        except OSError:
            self._path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
        return True
