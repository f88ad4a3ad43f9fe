"""Where a job's output goes, and how it is followed."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import fluid_f58
from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock._core import TaskPlacement


STREAMS = ("stdout", "stderr")
# Output files that the daemon has open at a time; a template may name one for every task.
MOST_OPEN = 16
IN_MODIFY = 0x2
IN_NONBLOCK, IN_CLOEXEC = 0o4000, 0o2000000
EVENT = struct.Struct("iIII")


class OutputError(Error, OSError):
    """An output file cannot be opened, or its template cannot be filled in."""


class Output:
    """The open output files of a job.

    Args:
        jobspec: the job's jobspec; `attributes.system.shell.options.output` says where output
            goes that is not kept.
        job: the job's id.
        kept: directory for what is kept.
    """

    def __init__(self, jobspec: Mapping[str, Any], job: int, kept: Path) -> None:
        system = jobspec["attributes"]["system"]
        options = system.get("shell", {}).get("options", {}).get("output", {})
        self._templates = {
            stream: options[stream]["path"]
            for stream in STREAMS
            if options.get(stream, {}).get("path") is not None
        }
        # As in Flux: errors go where output goes, unless they have a place of their own.
        if "stdout" in self._templates:
            self._templates.setdefault("stderr", self._templates["stdout"])
        self._cwd = Path(system.get("cwd") or "/")
        self._job = job
        self._name = (
            system.get("job", {}).get("name") or Path(jobspec["tasks"][0]["command"][0]).name
        )
        self._kept = kept
        self._open: dict[Path, int] = {}
        self._begun: set[Path] = set()

    @property
    def elsewhere(self) -> str | None:
        """The template of stdout where it is not kept."""
        return self._templates.get("stdout")

    def descriptors(self, place: TaskPlacement) -> tuple[int, int]:
        """Opens, or finds open, the files for a task's stdout and stderr."""
        return self._descriptor("stdout", place), self._descriptor("stderr", place)

    def _descriptor(self, stream: str, place: TaskPlacement) -> int:
        template = self._templates.get(stream)
        if template is None:
            self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._kept / stream
        else:
            path = self._cwd / fill_in(template, self._job, self._name, place)
        descriptor = self._open.pop(path, None)
        if descriptor is None:
            if len(self._open) >= MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            descriptor = _open(path, anew=path not in self._begun)
            self._begun.add(path)
        # The one that was used last is closed last.
        self._open[path] = descriptor
        return descriptor

    def kept_bytes(self) -> int:
        """How much output is kept by now."""
        size = 0
        for stream in STREAMS:
            with suppress(OSError):
                size += (self._kept / stream).stat().st_size
        return size

    def close(self) -> None:
        """Closes the daemon's own descriptors; the tasks have theirs."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


def _open(path: Path, *, anew: bool) -> int:
    # Tasks share a file: with O_APPEND they do not overwrite each other. The daemon never waits
    # for somebody to read a FIFO.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    if anew:
        flags |= os.O_TRUNC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        why = "a FIFO that nobody reads" if error.errno == errno.ENXIO else error.strerror
        raise OutputError(error.errno, f"cannot write `{path}`: {why}") from error
    os.set_blocking(descriptor, True)
    return descriptor


def say(descriptor: int, text: str) -> None:
    """Writes a line of the instance's own to a task's output, where that cannot block."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with suppress(OSError):
            os.write(descriptor, text.encode())


def fill_in(template: str, job: int, name: str, place: TaskPlacement) -> str:
    """An output template with its `{{…}}` filled in.

    Known are `id`, `jobid` and `id.f58` (base 58), `id.dec`, `id.hex`, `name`, `task.rank` and
    `taskid`, `task.local`, `node.name` and `node.id`.

    Raises:
        OutputError: an unknown name.
    """
    values = {
        "id": fluid_f58(job),
        "jobid": fluid_f58(job),
        "id.f58": fluid_f58(job),
        "id.dec": str(job),
        "id.hex": hex(job),
        "name": name,
        "task.rank": str(place.rank),
        "taskid": str(place.rank),
        "task.local": str(place.local_rank),
        "node.name": place.host,
        "node.id": str(place.node_index),
    }

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            known = ", ".join(values)
            raise OutputError(22, f"output `{template}`: unknown `{match[0]}`: expected {known}")
        return values[match[1]]

    return re.sub(r"\{\{\s*([^{}]*?)\s*\}\}", value, template)


class FileWatcher:
    """Tells when files grow, by inotify."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        if self._fd < 0:
            raise self._error("inotify_init1")
        self._changed: dict[int, trio.Event] = {}
        self._users: dict[int, int] = {}

    @staticmethod
    def _error(call: str) -> OSError:
        number = ctypes.get_errno()
        return OSError(number, f"{call}: {os.strerror(number)}")

    def close(self) -> None:
        """Stops watching."""
        os.close(self._fd)

    @contextmanager
    def watch(self, path: Path) -> Iterator[int]:
        """Watches a file; the number is for `changed`."""
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(path), IN_MODIFY)
        if number < 0:
            raise self._error("inotify_add_watch")
        self._changed.setdefault(number, trio.Event())
        self._users[number] = self._users.get(number, 0) + 1
        try:
            yield number
        finally:
            self._users[number] -= 1
            if not self._users[number]:
                del self._users[number], self._changed[number]
                self._libc.inotify_rm_watch(self._fd, number)

    def changed(self, number: int) -> trio.Event:
        """The event that the file's next growth sets. Take it before reading the file."""
        return self._changed[number]

    async def run(self) -> None:
        """Hands on what the kernel tells."""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            with suppress(BlockingIOError):
                data = os.read(self._fd, 64 * 1024)
                place = 0
                while place < len(data):
                    number, _mask, _cookie, length = EVENT.unpack_from(data, place)
                    place += EVENT.size + length
                    if number in self._changed:
                        self._changed[number].set()
                        self._changed[number] = trio.Event()
