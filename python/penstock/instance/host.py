"""The operating system of a real instance: its clock, sockets, files and processes."""

from __future__ import annotations

import fcntl
import os
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
from penstock.instance.directories import check_local, check_private, check_trusted, claim_kind
from penstock.instance.pmix_server import PmixServers
from penstock.instance.processes import Children
from penstock.instance.sockets import UnixSockets
from penstock.instance.startup import MAX_SOCKET_PATH_BYTES
from penstock.instance.system import System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from penstock._core import ResourceSet
    from penstock.instance.kind import InstanceKind
    from penstock.instance.startup import StartOptions


OUTPUT_STREAMS = ("stdout", "stderr")


@contextmanager
def private_umask() -> Iterator[int]:
    """Makes new files the owner's alone for the length of the block; yields the umask before."""
    umask = os.umask(0o077)
    try:
        yield umask
    finally:
        os.umask(umask)


def host_system(options: StartOptions, umask: int) -> System:
    """This machine, with the state directory of an instance.

    Args:
        options: the instance's options.
        umask: of the processes that the instance starts.
    """
    children = Children(umask)
    synchronous = options.config.penstock.store.synchronous

    def open_manager(settings: str, now: float) -> JobManager:
        path = options.state / "jobs.sqlite"
        return JobManager(path, settings, now, synchronous=synchronous)

    return System(
        clock=SystemClock(),
        host=ThisHost(),
        random_bytes=os.urandom,
        network=UnixSockets(),
        open_manager=open_manager,
        children=children,
        output=OutputFiles(options.exec_directory / "output"),
        pmix_servers=PmixServers(os.urandom),
        stop_signals=_stop_signals,
        in_thread=_in_thread,
    )


class ThisHost:
    """The `Host` that this process runs on."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.uid = os.geteuid()
        self.environment = os.environ

    @contextmanager
    def claim(
        self, state: Path, socket: Path, kind: InstanceKind, *, any_state: bool
    ) -> Iterator[None]:
        for directory in (state, socket.parent):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(state, self.uid, "--state DIR")
        check_local(state, Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
        check_trusted(socket.parent, self.uid, "--socket PATH")
        with _lock(state):
            claim_kind(state, kind, any_state=any_state)
            _remove_stale_socket(socket)
            yield

    def discover(self) -> ResourceSet:
        return inventory.discover()

    def read_resources(self, path: Path) -> ResourceSet:
        return inventory.from_file(path)

    def bind(self, cores: Iterable[int]) -> None:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)


@contextmanager
def _lock(state: Path) -> Iterator[None]:
    """Locks the state directory for the length of the block.

    The lock is on the directory itself: a file with the lock could be removed and made again.

    Raises:
        StartError: another instance holds the lock.
    """
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(
                f"state directory `{state}` is in use by another instance\n"
                "hint: give this one its own with `--state DIR`"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _remove_stale_socket(path: Path) -> None:
    """Removes a socket on which nothing listens, left behind by a killed instance.

    Raises:
        StartError: an instance listens there, the path is not a socket, or it is too long for one.
    """
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise StartError(
            f"`{path}` is too long for a socket: {length} bytes, expected at most "
            f"{MAX_SOCKET_PATH_BYTES}\nhint: give a shorter one with `--socket PATH`"
        )
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(
            f"`{path}` exists and is not a socket\nhint: give another path with `--socket PATH`"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise StartError(
        f"an instance listens at `{path}` already\nhint: give this one its own with `--socket PATH`"
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


async def _in_thread(function: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(function)


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
        for job in jobs:
            for stream in OUTPUT_STREAMS:
                # Redirected output has none. Another file is found at the next start.
                with suppress(OSError):
                    (self._directory / f"{job}.{stream}").unlink()
