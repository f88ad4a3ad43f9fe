"""`log`: the newest lines of the daemon's log, served to the owner."""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections import deque
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import trio

from penstock._core import (
    DmesgRequest,
    LogAppendRequest,
    LogClearRequest,
    StreamCancelRequest,
    topic,
)
from penstock.errors import RequestError
from penstock.instance.requests import (
    DEFERRED,
    MethodTable,
    for_all,
    for_owner,
    printable,
    requester,
    require_streaming,
    serve_batch,
)
from penstock.instance.restart import Restarts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock._core import Batch, Message
    from penstock.instance.broker import Broker
    from penstock.rows import LogRow

MAX_RETAINED_LINES = 1024
# Long enough for a traceback; longer lines are truncated.
MAX_LINE_CHARACTERS = 16 * 1024
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

# The severities of RFC 5424, from the most severe.
SYSLOG_LEVELS = (
    logging.CRITICAL,
    logging.CRITICAL,
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.INFO,
    logging.DEBUG,
)
SYSLOG_SEVERITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
# Priority, version, and five words, then structured data and the text.
SYSLOG_LINE = re.compile(
    rb"<(?P<priority>\d{1,3})>1 (?:\S+ ){5}(?:-|\[[^\]]*\]) ?(?P<text>[^\0]*?)\n?\0?", re.DOTALL
)

ROOT = "penstock"
# The logger of lines that users append.
user_log = logging.getLogger(f"{ROOT}.user")


class LogService(logging.Handler):
    """Retains the newest records of a logger and serves them as `log.*`, to the owner only.

    - `log.dmesg` {"follow", "nobacklog", "rows"}, streaming: {"lines": [{"timestamp", "level",
      "component", "text", "sequence"}]}, the retained lines, and later ones with `follow`;
      `log.dmesg-cancel` {"matchtag"} ends it, as a disconnect does. `sequence` counts the lines
      since the start, from 1.
    - `log.clear` {"upto"?}: removes the retained lines, with `upto` up to that one.
    - `log.append` {"level", "text"}, or a line of RFC 5424: logs a line.

    Lines are as RFC 5424 has them, one a response, unless the request has `rows`.

    Args:
        broker: the broker.
    """

    peer: int

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._lines: deque[LogRow] = deque(maxlen=MAX_RETAINED_LINES)
        self._unsent: deque[LogRow] = deque(maxlen=MAX_RETAINED_LINES)
        # Each with the form of its lines.
        self._followers: list[tuple[Message, bool]] = []
        self._count = 0
        self._faults = 0
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        self.restarts = Restarts(broker, self, ("log",))
        self.restarts.start()

    def restart(self) -> None:
        """Ends the streams of all followers; the retained lines stay."""
        ends = [request.respond(errnum=errno.EIO) for request, _ in self._followers]
        self._followers.clear()
        self._unsent.clear()
        self._broker.post_messages(self.peer, ends)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Retains records from INFO on in the block; other handlers get what they got before."""
        logger, root = logging.getLogger(ROOT), logging.getLogger()
        levels, shown = (logger.level, user_log.level), logger.getEffectiveLevel()
        others = {handler: handler.level for handler in root.handlers}
        for handler, level in others.items():
            handler.setLevel(max(level, shown))
        logger.setLevel(min(shown, logging.INFO))
        user_log.setLevel(logging.DEBUG)
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(levels[0])
            user_log.setLevel(levels[1])
            for handler, level in others.items():
                handler.setLevel(level)

    async def run(self) -> None:
        """Retains records until cancelled."""
        with self.listening():
            await trio.sleep_forever()

    def emit(self, record: logging.LogRecord) -> None:
        """Retains a record."""
        try:
            text = self.format(record)
        except Exception:
            return self.handleError(record)
        if len(text) > MAX_LINE_CHARACTERS:
            rest = len(text) - MAX_LINE_CHARACTERS
            text = f"{text[:MAX_LINE_CHARACTERS]}… ({rest} more characters)"
        # The handler's lock is held: `emit` is called by `logging` only.
        self._count += 1
        self._faults += bool(record.exc_info)
        row: LogRow = {
            "timestamp": self._broker.clock.now(),
            "level": _level(record.levelno),
            "component": record.name.removeprefix(f"{ROOT}."),
            "text": printable(text),
            "sequence": self._count,
        }
        self._lines.append(row)
        if self._followers:
            self._unsent.append(row)
            self._nudge()
        return None

    def _nudge(self) -> None:
        if threading.get_ident() == self._thread:
            self._broker.nudge()
        else:
            self._token.run_sync_soon(self._broker.nudge, idempotent=True)

    # --- the service

    def deliver(self, batch: Batch) -> None:
        """Serves requests."""
        self._broker.post_messages(self.peer, serve_batch(self, batch))

    def post_output(self, now: float) -> None:
        """Sends new lines to the followers."""
        self._flush()

    def _flush(self) -> None:
        if not self._unsent:
            return
        lines = list(self._unsent)
        self._unsent.clear()
        for request, rows in self._followers:
            self._broker.post_messages(self.peer, self._responses(request, lines, rows=rows))

    def _responses(self, request: Message, lines: list[LogRow], *, rows: bool) -> list[Message]:
        """The responses with lines: one with all as objects, or one for each as Flux has them."""
        if rows:
            return [request.respond({"lines": lines})]
        return [request.respond(syslog_line(line).encode() + b"\0") for line in lines]

    def _dmesg(self, request: Message) -> Any:
        if request.noresponse:
            return DEFERRED
        require_streaming(request)
        options = DmesgRequest.read(request)
        # Flush unsent lines to existing followers first, or the new one gets them twice.
        self._flush()
        responses = []
        if self._lines and not options.nobacklog:
            responses += self._responses(request, list(self._lines), rows=options.rows)
        if options.follow:
            self._followers.append((request, options.rows))
        else:
            responses.append(request.respond(errnum=errno.ENODATA))
        self._broker.post_messages(self.peer, responses)
        return DEFERRED

    def _cancel(self, request: Message) -> None:
        tag = StreamCancelRequest.read(request).matchtag
        for entry in self._followers:
            follower = entry[0]
            if follower.matchtag == tag and requester(follower) == requester(request):
                self._followers.remove(entry)
                end = follower.respond(errnum=errno.ENODATA)
                self._broker.post_messages(self.peer, [end])
                return

    def disconnect(self, notice: Message) -> None:
        """Ends the streams of a client that has disconnected."""
        gone = requester(notice)
        self._followers = [entry for entry in self._followers if requester(entry[0]) != gone]

    def _clear(self, request: Message) -> None:
        upto = LogClearRequest.read(request).upto
        # Other threads can log at the same time.
        self.acquire()
        try:
            while self._lines and (upto is None or self._lines[0]["sequence"] <= upto):
                self._lines.popleft()
        finally:
            self.release()

    def _stats(self, _request: Message) -> dict[str, Any]:
        """Counts retained lines, followers, and the faults that were contained since the start."""
        return {
            "lines": len(self._lines),
            "followers": len(self._followers),
            "faults": self._faults + self._broker.connection_log.suppressed_faults,
        }

    def _append(self, request: Message) -> None:
        found = SYSLOG_LINE.fullmatch(request.payload or b"")
        if found is not None:
            level, text = found["priority"], found["text"].decode(errors="replace")
            user_log.log(SYSLOG_LEVELS[int(level) >> 3 & 7], "%s", text)
            return
        line = LogAppendRequest.read(request)
        if line.level not in LEVELS:
            expected = ", ".join(LEVELS)
            raise RequestError(errno.EINVAL, f"unknown level `{line.level}`: expected {expected}")
        user_log.log(LEVELS[line.level], "%s", line.text)

    METHODS: ClassVar[MethodTable] = {
        topic.log.DMESG: for_owner(_dmesg),
        topic.log.CLEAR: for_owner(_clear),
        topic.log.APPEND: for_owner(_append),
        topic.log.DMESG_CANCEL: for_all(_cancel),
        topic.log.STATS_GET: for_all(_stats),
    }


def syslog_line(line: LogRow) -> str:
    """A line as RFC 5424 has it; the component is the name of the application."""
    # In Flux the severity comes before the facility, which is 0 here.
    priority = SYSLOG_SEVERITIES[line["level"]] << 3
    time = datetime.fromtimestamp(line["timestamp"], tz=UTC)
    stamp = time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    component = re.sub(r"[^\x21-\x7e]", "_", line["component"])[:48] or "-"
    return f"<{priority}>1 {stamp} 0 {component} - - - {line['text']}"


def _level(number: int) -> Any:
    """The name of a level; of the next lower one for a number in between."""
    names = [name for name, lowest in LEVELS.items() if number >= lowest]
    return names[-1] if names else "debug"
