"""The broker's own services: `service`, `event`, `attr`, `config`, `broker`, `state-machine`."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING, Any

from penstock._core import (
    AttributeResponse,
    Batch,
    ConfigReloadRequest,
    NameRequest,
    ServiceRequest,
    ShutdownRequest,
    StateResponse,
    SubscriptionRequest,
    __version__,
    topic,
)
from penstock.errors import Error, RequestError
from penstock.instance.requests import Handlers, echo, is_disconnect, require_owner, serve
from penstock.instance.restart import Restarts

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._core import Message
    from penstock.config import Config
    from penstock.instance.broker import Broker
    from penstock.instance.system import ProcessUsage


class ControlService:
    """The services of the broker itself.

    Args:
        broker: the broker.
        attributes: values for `attr.get`.
        config: the effective configuration for `config.get`.
        shut_down: called by `broker.shutdown`; raises `Error` if it cannot be done as requested.
        reload: called by `config.reload` with the tables of a new configuration; returns the
            effective configuration and the keys that differ, or raises `Error` without a change.
        usage: returns what the daemon's process uses, for the statistics.
    """

    peer: int
    NAMES = ("service", "event", "attr", "config", "broker", "state-machine")

    def __init__(
        self,
        broker: Broker,
        *,
        attributes: dict[str, str],
        config: dict[str, Any],
        shut_down: Callable[[ShutdownRequest], None],
        reload: Callable[[dict[str, Any]], tuple[Config, list[str]]] | None = None,
        usage: Callable[[], ProcessUsage] | None = None,
    ) -> None:
        self._broker = broker
        self._attributes = attributes
        self._config = config
        self._reload = reload
        self._shut_down = shut_down
        self._start = broker.clock.monotonic()
        self._started = broker.clock.now()
        self._usage = usage
        self._methods: Handlers = {
            topic.service.ADD: self._service_add,
            topic.service.REMOVE: self._service_remove,
            topic.service.LIST: self._service_list,
            topic.event.SUBSCRIBE: self._subscribe,
            topic.event.UNSUBSCRIBE: self._unsubscribe,
            topic.broker.ATTR_GET: self._attr_get,
            topic.broker.CONFIG_GET: self._config_get,
            topic.broker.CONFIG_RELOAD: self._config_reload,
            topic.broker.PING: self._ping,
            topic.broker.STATS_GET: self._stats,
            topic.broker.SHUTDOWN: self._shutdown,
            topic.broker.STATE_GET: self._state,
        }
        self.restarts = Restarts(broker, self, self.NAMES)
        self.restarts.start()

    def restart(self) -> None:
        """Does nothing: there is no state that a fault can damage."""

    def deliver(self, batch: Batch) -> None:
        """Serves requests."""
        responses = Batch()
        for request in batch:
            if request.kind != "request" or is_disconnect(request):
                continue
            response = serve(request, self._methods)
            if response is not None:
                responses.append(response)
        self._broker.post(self.peer, responses)

    def post_output(self, now: float) -> None:
        """Does nothing: every response is posted at once."""

    def _origin(self, request: Message) -> int:
        peer = self._broker.origin(request)
        if peer is None:
            raise RequestError(errno.EHOSTUNREACH, "the peer has gone")
        return peer

    def _service_add(self, request: Message) -> None:
        require_owner(request)
        name = ServiceRequest.read(request).service
        peer = self._origin(request)
        errnum = self._broker.add_service(name, peer)
        if self._broker.is_reserved(name, peer):
            raise RequestError(errnum, f"the name `{name}` is that of the instance's own service")
        if errnum == errno.EEXIST:
            raise RequestError(errnum)
        if errnum:
            raise RequestError(
                errnum, f"invalid service name `{name}`: expected letters, digits, - or _"
            )

    def _service_remove(self, request: Message) -> None:
        name = ServiceRequest.read(request).service
        if self._broker.remove_service(name, self._origin(request)):
            raise RequestError(errno.ENOENT, f"service `{name}` is not yours")

    def _service_list(self, _request: Message) -> dict[str, Any]:
        return {"services": self._broker.services()}

    def _subscribe(self, request: Message) -> None:
        prefix = SubscriptionRequest.read(request).topic
        self._broker.subscribe(self._origin(request), prefix)

    def _unsubscribe(self, request: Message) -> None:
        prefix = SubscriptionRequest.read(request).topic
        if not self._broker.unsubscribe(self._origin(request), prefix):
            raise RequestError(errno.ENOENT, f"not subscribed to `{prefix}`")

    def _attr_get(self, request: Message) -> bytes:
        name = NameRequest.read(request).name
        value = self._attributes.get(name)
        if value is None:
            raise RequestError(errno.ENOENT, f"no attribute `{name}`")
        return AttributeResponse.immutable(value)

    def _config_get(self, _request: Message) -> dict[str, Any]:
        return self._config

    def _config_reload(self, request: Message) -> dict[str, Any]:
        require_owner(request)
        if self._reload is None:
            raise RequestError(errno.ENOSYS, "the configuration cannot change")
        document = ConfigReloadRequest.read(request)
        try:
            config, changed = self._reload(document.config)
        except Error as error:
            raise RequestError(errno.EINVAL, str(error)) from error
        self._config = config.to_dict()
        return {"changed": changed}

    def _ping(self, request: Message) -> dict[str, Any]:
        return {**echo(request), "pid": self._broker.pid}

    def _stats(self, _request: Message) -> dict[str, Any]:
        usage = {} if self._usage is None else dataclasses.asdict(self._usage())
        return {
            **self._broker.stats(),
            "process": {**usage, "start_time": self._started},
            "build": {"version": __version__},
        }

    def _state(self, _request: Message) -> bytes:
        # The socket exists in this state only: a client can never see Flux's other states.
        return StateResponse.run(self._broker.clock.monotonic() - self._start)

    def _shutdown(self, request: Message) -> None:
        require_owner(request)
        shutdown = ShutdownRequest.read(request)
        try:
            self._shut_down(shutdown)
        except Error as error:
            raise RequestError(errno.EINVAL, str(error)) from error
