"""The file of a recording: writing and reading its lines."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from penstock._core import Message
from penstock.errors import RecordingError, WireError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.clock import Clock

MAGIC = bytes.fromhex("1200eeff")
# Magic and length.
PREFIX_BYTES = 8
TO_BROKER, FROM_BROKER = "to-broker", "from-broker"
EVENTS = ("connect", "disconnect")


@dataclass(frozen=True)
class Entry:
    """A line of a recording.

    Attributes:
        line: Number of the line, from 1 on.
        time: When, in seconds since the epoch; 0 if the recording does not say.
        connection: Number of the client.
        event: `connect`, `disconnect`, or `message` for a frame.
        to_broker: Whether the client has sent the frame.
        frame: The bytes of the frame.
    """

    line: int
    time: float
    connection: int
    event: Literal["connect", "disconnect", "message"]
    to_broker: bool = False
    frame: bytes = b""

    @cached_property
    def message(self) -> Message | None:
        """The message of the frame; None if it is not one."""
        try:
            return Message.decode(self.frame)
        except WireError:
            return None


def read(path: Path) -> Iterator[Entry]:
    """Yields the lines of a recording.

    Raises:
        RecordingError: a line is not one of a recording.
        OSError: the file cannot be read.
    """
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _entry(number, json.loads(line))
            except (AttributeError, KeyError, TypeError, ValueError):
                raise RecordingError(
                    f"`{path}`, line {number}: expected an object with `conn`, and with `event` "
                    "or with `dir` and `hex`"
                ) from None


def _entry(number: int, row: dict[str, Any]) -> Entry:
    time, connection = float(row.get("time", 0)), int(row.get("conn", 1))
    if "event" in row:
        if row["event"] not in EVENTS:
            raise ValueError
        return Entry(number, time, connection, row["event"])
    if row["dir"] not in (TO_BROKER, FROM_BROKER):
        raise ValueError
    frame = bytes.fromhex(row["hex"])
    return Entry(number, time, connection, "message", row["dir"] == TO_BROKER, frame)


class Recorder:
    """Writes a recording. Threads may share it.

    The file is new, and for its owner alone: it has the environment and the input of jobs.

    Args:
        path: the file.
        clock: the time.

    Raises:
        OSError: the file exists, or cannot be made.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = open(path, "x", encoding="utf-8", opener=_open_private)  # noqa: SIM115
        self._clock = clock
        self._lock = threading.Lock()
        # The bytes since the last whole frame, by connection and direction.
        self._rest: dict[tuple[int, str], bytearray] = {}

    def close(self) -> None:
        """Closes the file; what comes later is not written."""
        with self._lock:
            self._file.close()

    def connect(self, connection: int) -> None:
        """Adds the beginning of a connection."""
        with self._lock:
            self._write({"conn": connection, "event": "connect"})

    def disconnect(self, connection: int) -> None:
        """Adds the end of a connection, and the bytes of frames that have not ended."""
        with self._lock:
            for direction in (TO_BROKER, FROM_BROKER):
                if rest := self._rest.pop((connection, direction), None):
                    self._write({"conn": connection, "dir": direction, "hex": rest.hex()})
            self._write({"conn": connection, "event": "disconnect"})

    def add(self, connection: int, data: bytes, *, to_broker: bool) -> None:
        """Adds bytes of a connection, frame by frame."""
        direction = TO_BROKER if to_broker else FROM_BROKER
        with self._lock:
            rest = self._rest.setdefault((connection, direction), bytearray())
            rest += data
            begin = 0
            while size := _frame_bytes(rest, begin):
                frame = rest[begin : begin + size]
                self._write({"conn": connection, "dir": direction, "hex": frame.hex()})
                begin += size
            del rest[:begin]

    def _write(self, row: dict[str, Any]) -> None:
        if not self._file.closed:
            self._file.write(json.dumps({"time": self._clock.now(), **row}) + "\n")
            # A crash loses none of the lines before it.
            self._file.flush()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _frame_bytes(data: bytearray, begin: int) -> int:
    """The size of the frame that begins there: 0 if it is not whole, the rest if not a frame."""
    prefix = data[begin : begin + PREFIX_BYTES]
    if not MAGIC.startswith(prefix[: len(MAGIC)]):
        return len(data) - begin
    if len(prefix) < PREFIX_BYTES:
        return 0
    size = PREFIX_BYTES + int.from_bytes(prefix[len(MAGIC) :], "big")
    return size if len(data) - begin >= size else 0
