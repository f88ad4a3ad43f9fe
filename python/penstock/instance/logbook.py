"""`log`: the newest lines of the daemon's log, for those who ask over the socket."""

from __future__ import annotations

import errno
import logging
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio

from penstock.errors import WireError
from penstock.instance.control import Methods, Refused, answer, field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock._core import Batch, Message
    from penstock.instance.broker import Broker
    from penstock.rows import LogRow

LINES = 1024
# The most of one line that is kept, in characters: a traceback has its place, a flood has not.
LONGEST = 16 * 1024
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

ROOT = "penstock"
appended = logging.getLogger(f"{ROOT}.user")


class Logbook(logging.Handler):
    """Keeps the newest records of a logger and serves them as `log.*`, to the owner only.

    - `log.dmesg` {"follow", "nobacklog"}, streaming: {"lines": [{"timestamp", "level",
      "component", "text", "sequence"}]}, what is kept and with `follow` what comes;
      `log.dmesg-cancel` {"matchtag"} ends it, as the asker's disconnect does. `sequence` counts
      the lines since the start, from 1.
    - `log.clear` {"upto"?}: forgets what is kept, or the lines up to this one.
    - `log.append` {"level", "text"}: logs a line.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._kept: deque[LogRow] = deque(maxlen=LINES)
        self._fresh: deque[LogRow] = deque(maxlen=LINES)
        self._followers: list[Message] = []
        self._count = 0
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        self._methods: Methods = {
            "log.clear": self._clear,
            "log.append": self._append,
            "log.dmesg-cancel": self._cancel,
            "log.stats-get": self._stats,
        }
        self.peer = broker.attach(self, names=["log"])

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keeps what is logged in the block: at least from INFO on, whatever is shown elsewhere."""
        logger, root = logging.getLogger(ROOT), logging.getLogger()
        levels, shown = (logger.level, appended.level), logger.getEffectiveLevel()
        others = {handler: handler.level for handler in root.handlers}
        for handler, level in others.items():
            handler.setLevel(max(level, shown))
        logger.setLevel(min(shown, logging.INFO))
        appended.setLevel(logging.DEBUG)
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(levels[0])
            appended.setLevel(levels[1])
            for handler, level in others.items():
                handler.setLevel(level)

    async def run(self) -> None:
        """Keeps what is logged until cancelled."""
        with self.listening():
            await trio.sleep_forever()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a record."""
        try:
            text = self.format(record)
        except Exception:
            return self.handleError(record)
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters)"
        # Under the handler's lock, as all of this is.
        self._count += 1
        row: LogRow = {
            "timestamp": record.created,
            "level": _level(record.levelno),
            "component": record.name.removeprefix(f"{ROOT}."),
            # What is not UTF-8, such as a file's name, has no JSON form.
            "text": text.encode(errors="backslashreplace").decode(),
            "sequence": self._count,
        }
        self._kept.append(row)
        if self._followers:
            self._fresh.append(row)
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
        answers: list[Message] = []
        for request in batch:
            if request.kind != "request":
                continue
            if request.topic == "log.disconnect":
                self._forget(request)
            elif request.topic == "log.dmesg":
                answers += self._dmesg(request)
            else:
                response = answer(request, self._methods)
                if response is not None:
                    answers.append(response)
        self._broker.post_messages(self.peer, answers)

    def settle(self, now: float) -> None:
        """Sends the followers what is new."""
        if not self._fresh:
            return
        lines = {"lines": list(self._fresh)}
        self._fresh.clear()
        messages = [request.respond(lines) for request in self._followers]
        self._broker.post_messages(self.peer, messages)

    def _owner(self, request: Message) -> None:
        if request.userid != self._broker.owner:
            raise Refused(errno.EPERM, "only the instance owner may read or write the log")

    def _dmesg(self, request: Message) -> list[Message]:
        if request.noresponse:
            return []
        try:
            self._owner(request)
            follow, backlog = _dmesg_options(request)
        except Refused as refused:
            return [request.respond(errnum=refused.errnum, errtext=refused.text)]
        # What is kept has what is fresh in it: others get that now, this one not twice.
        self.settle(0.0)
        answers = []
        if backlog and self._kept:
            answers.append(request.respond({"lines": list(self._kept)}))
        if follow:
            self._followers.append(request)
        else:
            answers.append(request.respond(errnum=errno.ENODATA))
        return answers

    def _cancel(self, request: Message) -> None:
        tag = _object(request).get("matchtag")
        for follower in self._followers:
            if follower.matchtag == tag and _origin(follower) == _origin(request):
                self._followers.remove(follower)
                end = follower.respond(errnum=errno.ENODATA)
                self._broker.post_messages(self.peer, [end])
                return

    def _forget(self, request: Message) -> None:
        gone = _origin(request)
        self._followers = [one for one in self._followers if _origin(one) != gone]

    def _clear(self, request: Message) -> None:
        self._owner(request)
        upto = _object(request).get("upto")
        if upto is not None and (not isinstance(upto, int) or isinstance(upto, bool)):
            raise Refused(errno.EPROTO, "log.clear: expected `upto` (a whole number)")
        # Other threads may log meanwhile.
        self.acquire()
        try:
            while self._kept and (upto is None or self._kept[0]["sequence"] <= upto):
                self._kept.popleft()
        finally:
            self.release()

    def _stats(self, _request: Message) -> dict[str, Any]:
        return {"lines": len(self._kept), "followers": len(self._followers)}

    def _append(self, request: Message) -> None:
        self._owner(request)
        level, text = field(request, "level", str), field(request, "text", str)
        if level not in LEVELS:
            expected = ", ".join(LEVELS)
            raise Refused(errno.EINVAL, f"unknown level `{level}`: expected {expected}")
        appended.log(LEVELS[level], "%s", text)


def _level(number: int) -> Any:
    """The word for a level: for a number in between the next lower one."""
    words = [word for word, least in LEVELS.items() if number >= least]
    return words[-1] if words else "debug"


def _object(request: Message) -> dict[str, Any]:
    try:
        payload = request.object()
    except WireError as error:
        raise Refused(errno.EPROTO, f"{request.topic}: {error}") from error
    if payload is None:
        return {}
    if not isinstance(payload, dict):
        raise Refused(errno.EPROTO, f"{request.topic}: expected an object")
    return payload


def _dmesg_options(request: Message) -> tuple[bool, bool]:
    if not request.streaming:
        raise Refused(errno.EPROTO, "log.dmesg is a streaming request")
    payload = _object(request)
    options = payload.get("follow", False), payload.get("nobacklog", False)
    if not all(isinstance(option, bool) for option in options):
        raise Refused(errno.EPROTO, "log.dmesg: expected `follow` and `nobacklog` (bool)")
    return options[0], not options[1]


def _origin(request: Message) -> bytes:
    return (request.routes or [b""])[-1]
