"""The broker's own services: `service`, `event`, `attr`, `config`, `broker`, `state-machine`."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock._core import Batch
from penstock.errors import Error, WireError

if TYPE_CHECKING:
    from penstock._core import Message
    from penstock.config import Config
    from penstock.instance.broker import Broker

log = logging.getLogger("penstock")


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A request is not served: an errno and a text for the asker."""

    def __init__(self, errnum: int, text: str = "") -> None:
        super().__init__(errnum, text)
        self.errnum = errnum
        self.text = text


def field(request: Message, key: str, kind: type[str]) -> str:
    """A field of a request's payload, of the kind that is expected.

    Raises:
        Refused: the payload is not an object, or the field is missing or of another kind.
    """
    try:
        payload = request.object()
    except WireError as error:
        raise Refused(errno.EPROTO, f"{request.topic}: {error}") from error
    value = payload.get(key) if isinstance(payload, dict) else None
    if not isinstance(value, kind):
        raise Refused(errno.EPROTO, f"{request.topic}: expected `{key}` ({kind.__name__})")
    return value


def echo(request: Message) -> dict[str, Any]:
    """`ping`: the payload comes back as it went.

    Raises:
        Refused: the payload is not an object.
    """
    try:
        payload = request.object()
    except WireError as error:
        raise Refused(errno.EPROTO, f"{request.topic}: {error}") from error
    if not isinstance(payload, dict | None):
        raise Refused(errno.EPROTO, f"{request.topic}: expected an object")
    return payload or {}


Methods = Mapping[str, Callable[["Message"], dict[str, Any] | None]]
# What every service answers; one that has numbers to tell does so by a method of its own.
EVERY: Methods = {"ping": echo, "stats-get": lambda _request: {}}


def answer(request: Message, methods: Methods) -> Message | None:
    """Serves a request by the method that its topic names.

    Returns:
        The response; None where none is wanted. A fault of ours is the asker's `EIO` and a
        traceback in the log, and harms nobody else.
    """
    try:
        topic = request.topic or ""
        method = methods.get(topic) or EVERY.get(topic.partition(".")[2])
        if method is None:
            raise Refused(errno.ENOSYS, f"unknown method `{request.topic}`")
        response = request.respond(method(request))
    except Refused as refused:
        response = request.respond(errnum=refused.errnum, errtext=refused.text)
    except Exception:
        log.exception("%s", request.topic)
        response = request.respond(errnum=errno.EIO, errtext="internal error: see the log")
    return None if request.noresponse else response


class ControlService:
    """Serves what the broker itself offers.

    Args:
        broker: the broker.
        attributes: values for `attr.get`.
        config: the effective configuration for `config.get`.
        shut_down: called by `broker.shutdown`.
        reload: called by `config.reload` with the tables of a new configuration; returns what
            comes of it, and the keys that differ, or raises an `Error` and changes nothing.
    """

    NAMES = ("service", "event", "attr", "config", "broker", "state-machine")

    def __init__(
        self,
        broker: Broker,
        *,
        attributes: dict[str, str],
        config: dict[str, Any],
        shut_down: Callable[[], None],
        reload: Callable[[dict[str, Any]], tuple[Config, list[str]]] | None = None,
    ) -> None:
        self._broker = broker
        self._attributes = attributes
        self._config = config
        self._reload = reload
        self._shut_down = shut_down
        self._began = time.monotonic()
        self._methods: Methods = {
            "service.add": self._service_add,
            "service.remove": self._service_remove,
            "service.list": self._service_list,
            "event.subscribe": self._subscribe,
            "event.unsubscribe": self._unsubscribe,
            "attr.get": self._attr_get,
            "config.get": self._config_get,
            "config.reload": self._config_reload,
            "broker.ping": self._ping,
            "broker.stats-get": self._stats,
            "broker.shutdown": self._shutdown,
            "state-machine.get": self._state,
        }
        self.peer = broker.attach(self, names=self.NAMES)

    def deliver(self, batch: Batch) -> None:
        """Serves requests."""
        answers = Batch()
        for request in batch:
            if request.kind != "request" or (request.topic or "").endswith(".disconnect"):
                continue
            response = answer(request, self._methods)
            if response is not None:
                answers.append(response)
        self._broker.post(self.peer, answers)

    def settle(self, now: float) -> None:
        """Has nothing to settle."""

    def _origin(self, request: Message) -> int:
        peer = self._broker.origin(request)
        if peer is None:
            raise Refused(errno.EHOSTUNREACH, "the peer has gone")
        return peer

    def _service_add(self, request: Message) -> None:
        name = field(request, "service", str)
        if request.userid != self._broker.owner:
            raise Refused(errno.EPERM, "only the instance owner may register a service")
        errnum = self._broker.add_service(name, self._origin(request))
        if errnum == errno.EEXIST:
            raise Refused(errnum)
        if errnum:
            raise Refused(
                errnum, f"invalid service name `{name}`: expected letters, digits, - or _"
            )

    def _service_remove(self, request: Message) -> None:
        name = field(request, "service", str)
        if self._broker.remove_service(name, self._origin(request)):
            raise Refused(errno.ENOENT, f"service `{name}` is not yours")

    def _service_list(self, _request: Message) -> dict[str, Any]:
        return {"services": self._broker.services()}

    def _subscribe(self, request: Message) -> None:
        self._broker.subscribe(self._origin(request), field(request, "topic", str))

    def _unsubscribe(self, request: Message) -> None:
        topic = field(request, "topic", str)
        if not self._broker.unsubscribe(self._origin(request), topic):
            raise Refused(errno.ENOENT, f"not subscribed to `{topic}`")

    def _attr_get(self, request: Message) -> dict[str, Any]:
        name = field(request, "name", str)
        value = self._attributes.get(name)
        if value is None:
            raise Refused(errno.ENOENT, f"no attribute `{name}`")
        return {"value": value, "flags": 1}

    def _config_get(self, _request: Message) -> dict[str, Any]:
        return self._config

    def _config_reload(self, request: Message) -> dict[str, Any]:
        if request.userid != self._broker.owner:
            raise Refused(errno.EPERM, "only the instance owner may change the configuration")
        if self._reload is None:
            raise Refused(errno.ENOSYS, "the configuration cannot change")
        try:
            payload = request.object()
        except WireError as error:
            raise Refused(errno.EPROTO, f"config.reload: {error}") from error
        document = payload.get("config") if isinstance(payload, dict) else None
        if not isinstance(document, dict):
            raise Refused(errno.EPROTO, "config.reload: expected `config` (object)")
        try:
            config, changed = self._reload(document)
        except Error as error:
            raise Refused(errno.EINVAL, str(error)) from error
        self._config = config.to_dict()
        return {"changed": changed}

    def _ping(self, request: Message) -> dict[str, Any]:
        return {**echo(request), "pid": os.getpid()}

    def _stats(self, _request: Message) -> dict[str, Any]:
        return self._broker.stats()

    def _state(self, _request: Message) -> dict[str, Any]:
        # Who can ask is served: Flux's other states are before the socket is there, or after.
        return {"state": "run", "duration": time.monotonic() - self._began}

    def _shutdown(self, request: Message) -> None:
        if request.userid != self._broker.owner:
            raise Refused(errno.EPERM, "only the instance owner may stop the instance")
        self._shut_down()
