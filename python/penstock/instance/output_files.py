"""Output files of jobs: retained in the instance's state, or where the jobspec sends them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock._core import fluid_f58
from penstock.errors import OutputError
from penstock.instance.file_watch import FileWatcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import trio

    from penstock._core import TaskPlacement

STREAMS = ("stdout", "stderr")
# Output files that the daemon has open for one job; a template can name one for every task.
MAX_OPEN_FILES = 16


class JobOutput:
    """The open output files of one job: `OutputFiles`.

    Args:
        jobspec: the job's jobspec; `attributes.system.shell.options.output` can redirect output.
        job: the job's id.
        directory: directory for output that is retained.
    """

    def __init__(self, jobspec: Mapping[str, Any], job: int, directory: Path) -> None:
        system = jobspec["attributes"]["system"]
        options = system.get("shell", {}).get("options", {}).get("output", {})
        self._templates = {
            stream: options[stream]["path"]
            for stream in STREAMS
            if options.get(stream, {}).get("path") is not None
        }
        # As in Flux: stderr goes to the file of stdout unless it has one of its own.
        if "stdout" in self._templates:
            self._templates.setdefault("stderr", self._templates["stdout"])
        self._cwd = Path(system.get("cwd") or "/")
        self._job = job
        self._name = (
            system.get("job", {}).get("name") or Path(jobspec["tasks"][0]["command"][0]).name
        )
        self._directory = directory
        self._open: dict[Path, int] = {}
        self._truncated: set[Path] = set()

    @property
    def redirected_to(self) -> str | None:
        return self._templates.get("stdout")

    def open(self, place: TaskPlacement) -> tuple[int, int]:
        return self._descriptor("stdout", place), self._descriptor("stderr", place)

    def _descriptor(self, stream: str, place: TaskPlacement) -> int:
        template = self._templates.get(stream)
        if template is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._directory / stream
        else:
            path = self._cwd / fill_in(template, self._job, self._name, place)
        descriptor = self._open.pop(path, None)
        if descriptor is None:
            if len(self._open) >= MAX_OPEN_FILES:
                os.close(self._open.pop(next(iter(self._open))))
            descriptor = _open_to_append(path, truncate=path not in self._truncated)
            self._truncated.add(path)
        # Reinserted at the end: the least recently used one is closed first.
        self._open[path] = descriptor
        return descriptor

    def write_line(self, file: int, text: str) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            with suppress(OSError):
                os.write(file, text.encode(errors="backslashreplace"))

    def retained_bytes(self) -> int:
        size = 0
        for stream in STREAMS:
            with suppress(OSError):
                size += (self._directory / stream).stat().st_size
        return size

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


class FileReader:
    """Reads one stream of a job's retained output: an `OutputReader`."""

    def __init__(self, file: BinaryIO, watcher: FileWatcher, number: int) -> None:
        self._file = file
        self._watcher = watcher
        self._number = number

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def changed(self) -> trio.Event:
        return self._watcher.changed(self._number)


class JobOutputs:
    """The `OutputDirectory` on disk: a subdirectory for each job.

    Args:
        directory: where it is; made when the first job writes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._watcher: FileWatcher | None = None

    def create(self, jobspec: Mapping[str, Any], job: int) -> JobOutput:
        return JobOutput(jobspec, job, self._path(job))

    def has(self, job: int) -> bool:
        return self._path(job).exists()

    @contextmanager
    def reader(self, job: int, stream: str) -> Iterator[FileReader | None]:
        path = self._path(job) / stream
        if not path.exists():
            yield None
            return
        assert self._watcher is not None, "readers are opened in `watching`"
        with path.open("rb") as file, self._watcher.watch(path) as number:
            yield FileReader(file, self._watcher, number)

    def jobs(self) -> list[int]:
        paths = self._directory.iterdir() if self._directory.is_dir() else ()
        return [int(path.name) for path in paths if path.name.isdecimal()]

    def remove(self, jobs: list[int]) -> None:
        for job in jobs:
            # Most jobs have none.
            shutil.rmtree(self._path(job), ignore_errors=True)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._watcher = FileWatcher()
        try:
            yield
        finally:
            self._watcher.close()

    async def run(self) -> None:
        assert self._watcher is not None, "`run` belongs in `watching`"
        await self._watcher.run()

    def _path(self, job: int) -> Path:
        return self._directory / str(job)


def _open_to_append(path: Path, *, truncate: bool) -> int:
    # O_APPEND: tasks that share a file do not overwrite each other. O_NONBLOCK: the daemon does not
    # wait until a FIFO has a reader.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    if truncate:
        flags |= os.O_TRUNC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        reason = "a FIFO without a reader" if error.errno == errno.ENXIO else error.strerror
        raise OutputError(error.errno, f"cannot write `{path}`: {reason}") from error
    except ValueError as error:
        raise OutputError(errno.EINVAL, f"cannot write `{path}`: {error}") from error
    os.set_blocking(descriptor, True)
    return descriptor


def fill_in(template: str, job: int, name: str, place: TaskPlacement) -> str:
    """Fills in the `{{…}}` of an output template.

    The names are `id`, `jobid` and `id.f58` (base 58), `id.dec`, `id.hex`, `name`, `task.rank` and
    `taskid`, `task.local`, `node.name` and `node.id`.

    Raises:
        OutputError: the template has an unknown name.
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
            raise OutputError(
                errno.EINVAL, f"output `{template}`: unknown `{match[0]}`: expected {known}"
            )
        return values[match[1]]

    return re.sub(r"\{\{\s*([^{}]*?)\s*\}\}", value, template)
