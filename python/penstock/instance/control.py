"""The broker's own services: `service`, `event`, `attr`, `config`, `broker`, `module` and more."""

from __future__ import annotations

import base64
import dataclasses
import errno
from typing import TYPE_CHECKING, Any, ClassVar

from penstock._core import (
    PRIVATE,
    AttributeResponse,
    AttributeSetRequest,
    ConfigReloadRequest,
    Message,
    NameRequest,
    PublishRequest,
    ServiceRequest,
    ShutdownRequest,
    StateResponse,
    SubscriptionRequest,
    __version__,
    read_object,
    topic,
)
from penstock.client.calls import void_call
from penstock.errors import Error, RequestError
from penstock.instance.internal_client import InternalClient
from penstock.instance.requests import (
    DEFERRED,
    Deferred,
    MethodTable,
    for_all,
    for_owner,
    serve_batch,
)
from penstock.instance.restart import Restarts

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._core import Batch
    from penstock.config import Config
    from penstock.instance.broker import Broker
    from penstock.instance.system import ProcessUsage

MAX_SET_ATTRIBUTES = 1024
# The length of the prefix of a subscription.
MAX_PREFIX_BYTES = 255
# Attributes for the owner alone: processes and paths.
OWNER_ATTRIBUTES = frozenset({"broker.pid", "local-uri", "parent-uri", "statedir"})
# The tables of the configuration that guests can read: with which jobs the instance accepts.
GUEST_TABLES = ("policy", "queues")
# The states of modules (RFC 5): serves requests, has failed.
MODULE_RUNNING = 1
MODULE_EXITED = 3


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
    NAMES = ("service", "event", "attr", "config", "broker", "module", "state-machine")

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
        self._client = InternalClient(broker)
        self._attributes = attributes
        # The attributes that the owner has set; they end with the daemon.
        self._set_attributes: dict[str, str] = {}
        self._config = config
        self._reload = reload
        self._shut_down = shut_down
        self._start = broker.clock.monotonic()
        self._started = broker.clock.now()
        self._usage = usage
        self.restarts = Restarts(broker, self, self.NAMES)
        self.restarts.start()

    def restart(self) -> None:
        """Does nothing: there is no state that a fault can damage."""

    def deliver(self, batch: Batch) -> None:
        """Serves requests."""
        self._broker.post_messages(self.peer, serve_batch(self, batch))

    def disconnect(self, notice: Message) -> None:
        """Does nothing: the broker itself forgets the services and subscriptions of a client."""

    def post_output(self, now: float) -> None:
        """Does nothing: every response is posted when it is known."""

    def _origin(self, request: Message) -> int:
        peer = self._broker.origin(request)
        if peer is None:
            raise RequestError(errno.EHOSTUNREACH, "the peer has gone")
        return peer

    def _service_add(self, request: Message) -> None:
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

    def _service_list(self, request: Message) -> dict[str, Any]:
        rows = self._broker.services()
        if not request.has_owner_role:
            for row in rows:
                del row["pid"]
        return {"services": rows}

    def _subscribe(self, request: Message) -> None:
        prefix = SubscriptionRequest.read(request).topic
        if len(prefix.encode()) > MAX_PREFIX_BYTES:
            text = f"{request.topic}: expected a prefix of at most {MAX_PREFIX_BYTES} bytes"
            raise RequestError(errno.EINVAL, text)
        if not self._broker.subscribe(self._origin(request), prefix):
            raise RequestError(errno.EAGAIN, f"{request.topic}: too many subscriptions")

    def _unsubscribe(self, request: Message) -> None:
        prefix = SubscriptionRequest.read(request).topic
        if not self._broker.unsubscribe(self._origin(request), prefix):
            raise RequestError(errno.ENOENT, f"not subscribed to `{prefix}`")

    def _publish(self, request: Message) -> dict[str, Any]:
        event = PublishRequest.read(request)
        if not event.topic or "\0" in event.topic:
            text = "event.publish: `topic`: expected a word without NUL"
            raise RequestError(errno.EPROTO, text)
        try:
            payload = None if event.payload is None else base64.b64decode(event.payload)
        except ValueError as error:
            raise RequestError(errno.EPROTO, f"event.publish: `payload`: {error}") from error
        is_private = bool(event.flags & PRIVATE)
        message = Message.event(event.topic, payload, private=is_private)
        return {"seq": self._broker.publish(self._origin(request), message)}

    def _attr_get(self, request: Message) -> bytes:
        name = NameRequest.read(request).name
        if name in OWNER_ATTRIBUTES and not request.has_owner_role:
            raise RequestError(errno.EPERM, f"only the instance owner may read `{name}`")
        value = self._attributes.get(name)
        if value is not None:
            return AttributeResponse.immutable(value)
        value = self._set_attributes.get(name)
        if value is None:
            raise RequestError(errno.ENOENT, f"no attribute `{name}`")
        return AttributeResponse.mutable(value)

    def _attr_list(self, request: Message) -> dict[str, Any]:
        names = {*self._attributes, *self._set_attributes}
        return {"names": sorted(names if request.has_owner_role else names - OWNER_ATTRIBUTES)}

    def _attr_set(self, request: Message) -> None:
        attribute = AttributeSetRequest.read(request)
        name = attribute.name
        self._check_mutable(name)
        is_new = name not in self._set_attributes
        if is_new and len(self._set_attributes) >= MAX_SET_ATTRIBUTES:
            text = f"more than {MAX_SET_ATTRIBUTES} attributes: remove one"
            raise RequestError(errno.ENOSPC, text)
        self._set_attributes[name] = attribute.value

    def _attr_rm(self, request: Message) -> None:
        name = NameRequest.read(request).name
        self._check_mutable(name)
        if self._set_attributes.pop(name, None) is None:
            raise RequestError(errno.ENOENT, f"no attribute `{name}`")

    def _check_mutable(self, name: str) -> None:
        if name in self._attributes:
            raise RequestError(errno.EPERM, f"attribute `{name}` cannot be changed")

    def _module_list(self, request: Message) -> dict[str, Any]:
        """Lists each service as a module (RFC 5)."""

        def path(row: dict[str, Any]) -> str:
            if row["inside"]:
                return "builtin"
            return f"pid {row['pid']}" if request.has_owner_role else "process"

        mods = [
            {
                "name": row["name"],
                "path": path(row),
                "idle": 0,
                "status": MODULE_RUNNING if row["state"] == "running" else MODULE_EXITED,
                "services": [],
                "sendqueue": 0,
                "recvqueue": 0,
            }
            for row in self._broker.services()
        ]
        return {"mods": mods}

    def _config_get(self, request: Message) -> dict[str, Any]:
        """The configuration; for a guest without paths, commands and settings of the daemon."""
        if request.has_owner_role:
            return self._config
        return {table: self._config[table] for table in GUEST_TABLES if table in self._config}

    def _config_reload(self, request: Message) -> Deferred:
        changed = self._apply_config(ConfigReloadRequest.read(request).config)
        return self._respond_when_applied(request, {"changed": changed})

    def _config_load(self, request: Message) -> Deferred:
        self._apply_config(read_object(request))
        return self._respond_when_applied(request, None)

    def _respond_when_applied(self, request: Message, payload: dict[str, Any] | None) -> Deferred:
        """Responds when the requests for resources of pending jobs agree with the configuration."""

        def respond(_response: Message) -> None:
            # A job manager that has failed meanwhile begins again with the configuration.
            if not request.noresponse:
                self._broker.post_messages(self.peer, [request.respond(payload)])

        self._client.send(void_call(topic.job_manager.CONFIG_WAIT), respond)
        return DEFERRED

    def _apply_config(self, document: dict[str, Any]) -> list[str]:
        if self._reload is None:
            raise RequestError(errno.ENOSYS, "the configuration cannot change")
        try:
            config, changed = self._reload(document)
        except Error as error:
            raise RequestError(errno.EINVAL, str(error)) from error
        self._config = config.to_dict()
        return changed

    def _stats(self, request: Message) -> dict[str, Any]:
        usage = {} if self._usage is None else dataclasses.asdict(self._usage())
        process = {**usage, "start_time": self._started}
        if request.has_owner_role:
            process["pid"] = self._broker.pid
        return {**self._broker.stats(), "process": process, "build": {"version": __version__}}

    def _state(self, _request: Message) -> bytes:
        # The socket exists in this state only: a client can never see Flux's other states.
        return StateResponse.run(self._broker.clock.monotonic() - self._start)

    def _shutdown(self, request: Message) -> None:
        shutdown = ShutdownRequest.read(request)
        try:
            self._shut_down(shutdown)
        except Error as error:
            raise RequestError(errno.EINVAL, str(error)) from error

    METHODS: ClassVar[MethodTable] = {
        topic.service.ADD: for_owner(_service_add),
        topic.service.REMOVE: for_all(_service_remove),
        topic.service.LIST: for_all(_service_list),
        topic.event.SUBSCRIBE: for_all(_subscribe),
        topic.event.UNSUBSCRIBE: for_all(_unsubscribe),
        topic.event.PUBLISH: for_owner(_publish),
        topic.broker.ATTR_GET: for_all(_attr_get),
        topic.broker.ATTR_LIST: for_all(_attr_list),
        topic.broker.ATTR_SET: for_owner(_attr_set),
        topic.broker.ATTR_RM: for_owner(_attr_rm),
        topic.broker.MODULE_LIST: for_all(_module_list),
        topic.broker.CONFIG_GET: for_all(_config_get),
        topic.broker.CONFIG_RELOAD: for_owner(_config_reload),
        topic.broker.CONFIG_LOAD: for_owner(_config_load),
        topic.broker.STATS_GET: for_all(_stats),
        topic.broker.SHUTDOWN: for_owner(_shutdown),
        topic.broker.STATE_GET: for_all(_state),
    }
