"""The broker: peers, their connections, and the pump that moves batches of messages between them.

Rust routes (`Router`); this module accepts, authenticates, reads and writes, and settles the
in-process services at the end of every round.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from penstock._core import ROLE_LOCAL, ROLE_OWNER, ROLE_USER, Batch, Decoder, Router
from penstock.errors import WireError
from penstock.instance.requests import error_response, is_disconnect
from penstock.instance.supervision import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock._core import Message
    from penstock.clock import Clock
    from penstock.instance.system import Network

log = logging.getLogger("penstock.broker")

READ_BYTES = WRITE_BYTES = 256 * 1024
# Backpressure: producers of long responses pause while a client has more bytes than this unread.
BACKPRESSURE_BYTES = 1024 * 1024
# A client with more unread bytes is disconnected.
MAX_UNSENT_BYTES = 256 * 1024 * 1024
# Services within the daemon exchange messages this often before a commit.
MAX_EXCHANGES = 16
# Seconds in which clients get the last responses of an instance that ends.
SEND_TIMEOUT_S = 1.0


class Service(Protocol):
    """A peer within the daemon."""

    def deliver(self, batch: Batch) -> None:
        """Takes messages in. Responses are posted to the broker, now or later."""

    def settle(self, now: float) -> None:
        """Posts the messages that follow from the delivered ones.

        It is called at the end of an exchange in which the service has got or posted messages, and
        after `Broker.nudge`.
        """


@dataclass
class _Attached:
    """An in-process service at the broker."""

    service: Service
    on_failure: Callable[[], None] | None
    fatal: tuple[type[Exception], ...]
    transient: bool
    failed: bool = False
    # Whether it has got or posted messages since it was settled.
    is_due: bool = True


@dataclass(frozen=True)
class _Store:
    """How to commit, and the peer whose changes are committed; by default there is no store."""

    peer: int = 0
    commit: Callable[[], None] = lambda: None


class Broker:
    """Routes messages between connections and in-process services.

    Args:
        owner: user id of the instance owner.
        pid: the daemon's process id.
        clock: the time, for the services too.
        random_bytes: makes that many random bytes.
        allow_guests: whether other users may connect.
        allow_root: whether root counts as an owner.

    Attributes:
        clock: the time.
        owner: user id of the instance owner.
        pid: the daemon's process id.
        uuid: the broker's UUID.
    """

    def __init__(
        self,
        *,
        owner: int,
        pid: int,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        allow_guests: bool = False,
        allow_root: bool = True,
    ) -> None:
        self._random_bytes = random_bytes
        self.uuid = self._make_uuid()
        self.owner = owner
        self.pid = pid
        self.clock = clock
        self._allow_guests = allow_guests
        self._allow_root = allow_root
        self._router = Router(self.uuid, owner)
        self._services: dict[int, _Attached] = {}
        self._uuids: dict[int, bytes] = {}
        self._watchers: list[Callable[[dict[str, bytes]], None]] = []
        self._sockets: dict[int, _SocketPeer] = {}
        self._rounds: deque[tuple[int, Batch]] = deque()
        self._store = _Store()
        # Connections with queued messages that may tell what is not committed.
        self._held: set[_SocketPeer] = set()
        self._wake = trio.Event()
        # Whether any service may have something to settle.
        self._nudged = False
        self._settling = False
        self._next = 1

    # --- in-process services

    def attach(
        self,
        service: Service,
        *,
        names: Iterable[str] = (),
        on_failure: Callable[[], None] | None = None,
        fatal: tuple[type[Exception], ...] = (),
        transient: bool = False,
    ) -> int:
        """Adds an in-process service, with the owner's credentials, and registers its names.

        An exception, or a Rust panic, that leaves the service is contained: it is logged, the
        requests of the batch are answered with EIO, and the service has failed. A failed service
        gets no messages; its requests are answered with EIO until it is detached.

        Args:
            service: the service.
            names: the first words of the topics that it serves.
            on_failure: called when the service has failed, such as to restart it.
            fatal: exceptions that are not contained and end the instance.
            transient: whether all that the service does with a message is in memory, and in the
                messages that it posts. Others are given only what the store has committed.

        Returns:
            The peer's number, with which it posts.
        """
        peer = self._number()
        self._add_peer(peer, self.owner, ROLE_OWNER | ROLE_LOCAL)
        self._services[peer] = _Attached(service, on_failure, fatal, transient)
        for name in names:
            if self.add_service(name, peer):
                raise ValueError(f"service `{name}` is registered already")
        return peer

    def set_store(self, peer: int, commit: Callable[[], None]) -> None:
        """Sets the store, which makes changes durable before messages leave.

        Args:
            peer: the service that writes to the store. When it has failed, nothing is committed.
            commit: makes its changes durable. An exception that it raises ends the instance.
        """
        self._store = _Store(peer, commit)

    def detach(self, peer: int) -> None:
        """Removes an in-process service; the services that it used are sent its disconnect."""
        del self._services[peer]
        self._remove_peer(peer)

    def post(self, peer: int, batch: Batch) -> None:
        """Sends messages from a peer. They are routed in the next round."""
        if batch:
            self._rounds.append((peer, batch))
            self._wake.set()
            attached = self._services.get(peer)
            if attached is not None and not self._settling:
                attached.is_due = True

    def post_messages(self, peer: int, messages: list[Message]) -> None:
        """Sends a few messages from a peer."""
        self.post(peer, Batch(messages))

    def nudge(self) -> None:
        """Schedules a round in which all services are settled: one has something to do."""
        self._nudged = True
        self._wake.set()

    # --- for the control service

    def origin(self, request: Message) -> int | None:
        """The peer that sent a request; None if it has disconnected."""
        routes = request.routes
        return self._router.peer(routes[-1]) if routes else None

    async def wait_writable(self, request: Message) -> None:
        """Returns when the requester has little unread, or has disconnected."""
        peer = self.origin(request)
        remote = None if peer is None else self._sockets.get(peer)
        if remote is None:
            await trio.lowlevel.checkpoint()
        else:
            await remote.wait_writable()

    def is_writable(self, route: bytes) -> bool:
        """Whether the peer of a route has little unread, or has disconnected."""
        remote = self._sockets.get(self._router.peer(route) or 0)
        return remote is None or remote.unsent <= BACKPRESSURE_BYTES

    def nudge_when_writable(self, route: bytes) -> None:
        """Schedules a round for when the peer of a route, which is not writable, has read more."""
        remote = self._sockets.get(self._router.peer(route) or 0)
        if remote is not None:
            remote.is_awaited = True

    def add_service(self, name: str, peer: int) -> int:
        """Registers a service for a peer. Returns an errno, 0 for success."""
        errnum = self._router.add_service(name, peer)
        self._notify_watchers()
        return errnum

    def remove_service(self, name: str, peer: int) -> int:
        """Removes a peer's service. Returns an errno, 0 for success."""
        errnum = self._router.remove_service(name, peer)
        self._notify_watchers()
        return errnum

    def watch_services(self, watcher: Callable[[dict[str, bytes]], None]) -> None:
        """Calls a function, now and after every change, with the route of each service's peer."""
        self._watchers.append(watcher)
        watcher(self._service_routes())

    def _service_routes(self) -> dict[str, bytes]:
        return {name: self._uuids[peer] for name, peer in self._router.services()}

    def _notify_watchers(self) -> None:
        routes = self._service_routes()
        for watcher in self._watchers:
            watcher(routes)
        self.nudge()

    def subscribe(self, peer: int, prefix: str) -> None:
        """Sends a peer the events whose topic starts with `prefix`."""
        self._router.subscribe(peer, prefix)

    def unsubscribe(self, peer: int, prefix: str) -> bool:
        """Removes one subscription. Returns whether there was one."""
        return self._router.unsubscribe(peer, prefix)

    def services(self) -> list[dict[str, object]]:
        """The registered services: name, and process id and user of the peer."""
        rows: list[dict[str, object]] = []
        for name, peer in self._router.services():
            remote = self._sockets.get(peer)
            pid = remote.pid if remote else self.pid
            uid = remote.uid if remote else self.owner
            rows.append({"name": name, "pid": pid, "uid": uid, "inside": remote is None})
        return rows

    def stats(self) -> dict[str, object]:
        """Counts connections, services, failed services, and bytes that clients have unread."""
        return {
            "connections": len(self._sockets),
            "services": len(self._router.services()),
            "failed": sum(attached.failed for attached in self._services.values()),
            "unsent": sum(remote.unsent for remote in self._sockets.values()),
        }

    # --- the pump

    async def pump(self) -> None:
        """Runs rounds until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            self.run_round()
            # Connections get their turn, however many messages services exchange.
            await trio.lowlevel.checkpoint()

    def run_round(self) -> bool:
        """Routes the posted messages and settles the services, until they post nothing more.

        The changes of all exchanges in a round are committed once, at its end. Connections write
        only then.

        Returns:
            Whether there is more to route.
        """
        for _ in range(MAX_EXCHANGES):
            self._exchange()
            if not self._rounds:
                break
        if self._held:
            self.commit()
        return bool(self._rounds)

    def commit(self) -> None:
        """Commits the changes of this round.

        If that fails, no message of the round is sent, and the clients that were to get one are
        disconnected.
        """
        try:
            self._store.commit()
        except BaseException:
            self._discard_held()
            raise
        for remote in self._held:
            remote.flush()
        self._held.clear()

    def _abandon_store(self) -> None:
        """Sends nothing that the failed service has posted, as its changes are not committed."""
        rounds, self._rounds = self._rounds, deque()
        for peer, batch in rounds:
            if peer != self._store.peer:
                self._rounds.append((peer, batch))
                continue
            for receiver, _ in self._router.route(peer, batch):
                if receiver in self._sockets:
                    self._held.add(self._sockets[receiver])
        self._discard_held()
        self._store = _Store()

    def _discard_held(self) -> None:
        for remote in self._held:
            remote.discard()
        self._held.clear()

    def _exchange(self) -> None:
        """Routes the posted messages, then settles the services that have something to do."""
        while self._rounds:
            peer, batch = self._rounds.popleft()
            try:
                deliveries = self._router.route(peer, batch)
            except FAULTS:
                log.exception("cannot route messages of peer %d", peer)
                self._disconnect(peer)
            else:
                self._deliver(deliveries)
        nudged, self._nudged = self._nudged, False
        due = [each for each in self._services.values() if nudged or each.is_due]
        now = self.clock.now()
        for attached in due:
            attached.is_due = False
            if not attached.failed:
                self._settle(attached, now)

    def _settle(self, attached: _Attached, now: float) -> None:
        self._settling = True
        try:
            attached.service.settle(now)
        except attached.fatal:
            raise
        except FAULTS:
            self._fail(attached)
        finally:
            self._settling = False

    async def send_posted(self) -> None:
        """Returns when the posted messages have been sent, except to clients that do not read."""
        self.run_round()
        with trio.move_on_after(SEND_TIMEOUT_S):
            for remote in list(self._sockets.values()):
                await remote.wait_sent()

    def _deliver(self, deliveries: list[tuple[int, Batch]]) -> None:
        for peer, batch in deliveries:
            attached = self._services.get(peer)
            if attached is not None:
                self._serve_batch(peer, attached, batch)
            else:
                remote = self._sockets.get(peer)
                if remote is not None:
                    self._send(peer, remote, batch)

    def _serve_batch(self, peer: int, attached: _Attached, batch: Batch) -> None:
        if attached.failed:
            self._reject(peer, batch)
            return
        if not attached.transient:
            self.commit()
        attached.is_due = True
        try:
            attached.service.deliver(batch)
        except attached.fatal:
            raise
        except FAULTS:
            self._fail(attached)
            # `deliver` answers none of a batch's requests before it has taken all of them.
            self._reject(peer, batch)

    def _send(self, peer: int, remote: _SocketPeer, batch: Batch) -> None:
        try:
            remote.send(batch)
            self._held.add(remote)
        except FAULTS:
            log.exception("cannot send to pid %d", remote.pid)
            self._disconnect(peer)

    def _reject(self, peer: int, batch: Batch) -> None:
        """Answers the requests of a batch with EIO, in the name of a failed service."""
        responses = [
            error_response(message, errno.EIO, f"{message.topic}: the service has failed")
            for message in batch
            if message.kind == "request" and not is_disconnect(message)
        ]
        self.post_messages(peer, [response for response in responses if response is not None])

    def _fail(self, attached: _Attached) -> None:
        """Marks a service as failed while the exception that has left it is handled."""
        log.exception("service %s has failed", type(attached.service).__name__)
        attached.failed = True
        if attached is self._services.get(self._store.peer):
            self._abandon_store()
        if attached.on_failure is not None:
            attached.on_failure()

    def _disconnect(self, peer: int) -> None:
        """Ends a client's connection, or marks a service as failed; for exception handlers."""
        remote = self._sockets.get(peer)
        if remote is not None:
            remote.scope.cancel()
        elif peer in self._services:
            self._fail(self._services[peer])

    def _add_peer(self, peer: int, userid: int, roles: int, *, remote: bool = False) -> None:
        route = self._make_uuid()
        self._uuids[peer] = route.encode()
        self._router.add_peer(peer, route, userid, roles, remote=remote)

    def _remove_peer(self, peer: int) -> None:
        notices = self._router.remove_peer(peer)
        del self._uuids[peer]
        self._notify_watchers()
        self._deliver(notices)
        self.nudge()

    def _make_uuid(self) -> str:
        return str(uuid.UUID(bytes=self._random_bytes(16), version=4))

    def _number(self) -> int:
        number = self._next
        self._next += 1
        return number

    # --- connections

    async def listen(
        self,
        listener: trio.abc.Listener[trio.abc.Stream],
        network: Network,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves the connections that a listener accepts.

        Args:
            listener: accepts connections.
            network: made the listener.
            task_status: started when connections are accepted.
        """

        async def serve(stream: trio.abc.Stream) -> None:
            await self._serve(stream, network)

        await trio.serve_listeners(serve, [listener], task_status=_Started(task_status))

    async def _serve(self, stream: trio.abc.Stream, network: Network) -> None:
        pid, uid = network.credentials(stream)
        roles = self._roles(uid)
        async with stream:
            try:
                await stream.send_all(bytes([0 if roles else errno.EPERM]))
                if roles:
                    remote = _SocketPeer(
                        stream, pid, uid, partial(network.write, stream), self.nudge
                    )
                    await self._converse(remote, roles)
            except* trio.BrokenResourceError:
                # The peer has disconnected in the middle of a message.
                log.info("the connection of pid %d broke", pid)
            except* FAULTS:
                # A fault in one connection ends that one alone.
                log.exception("closing the connection of pid %d", pid)

    def _roles(self, uid: int) -> int:
        if uid == self.owner or (uid == 0 and self._allow_root):
            return ROLE_OWNER | ROLE_LOCAL
        return ROLE_USER | ROLE_LOCAL if self._allow_guests else 0

    async def _converse(self, peer: _SocketPeer, roles: int) -> None:
        number = self._number()
        # Root acts as the owner, not as another user with jobs of its own.
        userid = self.owner if roles & ROLE_OWNER else peer.uid
        self._add_peer(number, userid, roles, remote=True)
        self._sockets[number] = peer
        try:
            async with trio.open_nursery() as nursery:
                peer.scope = nursery.cancel_scope
                nursery.start_soon(peer.write)
                try:
                    await self._read(number, peer)
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            del self._sockets[number]
            self._remove_peer(number)

    async def _read(self, number: int, peer: _SocketPeer) -> None:
        decoder = Decoder()
        while data := await peer.stream.receive_some(READ_BYTES):
            try:
                batch = decoder.feed(data)
                if batch.has_cbor():
                    peer.cbor = True
                    batch.normalise()
            except WireError as error:
                log.warning("closing the connection of pid %d: %s", peer.pid, error)
                return
            self.post(number, batch)
            await trio.lowlevel.checkpoint()


class _SocketPeer:
    """A client's connection: its unsent bytes and its payload encoding."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        pid: int,
        uid: int,
        write: Callable[[bytearray], int],
        writable: Callable[[], None],
    ) -> None:
        self.stream = stream
        self.pid = pid
        self.uid = uid
        self.cbor = False
        # Whether `writable` is to be called when little is unsent.
        self.is_awaited = False
        self._write_now = write
        self._notify_writable = writable
        # Cancelling it disconnects the client.
        self.scope = trio.CancelScope()
        self._unsent = bytearray()
        self._sending = 0
        self._wake = trio.Event()
        self._sent = trio.Event()

    @property
    def unsent(self) -> int:
        """Bytes that the client has not read."""
        return len(self._unsent) + self._sending

    def discard(self) -> None:
        """Disconnects the client; queued messages are not sent."""
        self._unsent.clear()
        self.scope.cancel()

    def send(self, batch: Batch) -> None:
        """Queues messages; disconnects a client that leaves too many bytes unread."""
        if self.scope.cancel_called:
            return
        # Checked before the batch is added: a client that reads may get a batch of any length.
        if self.unsent > MAX_UNSENT_BYTES:
            log.warning(
                "closing the connection of pid %d: it leaves %d bytes unread", self.pid, self.unsent
            )
            self.discard()
            return
        self._unsent += batch.encode_cbor() if self.cbor else batch.encode()

    def flush(self) -> None:
        """Writes queued bytes as far as the socket takes them; `write` writes the rest."""
        if self._unsent and self._sending == 0:
            sent = self._write_now(self._unsent[:WRITE_BYTES])
            if sent:
                del self._unsent[:sent]
                self._note_sent()
        if self._unsent:
            self._wake.set()

    async def write(self) -> None:
        """Writes queued bytes until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._unsent:
                    data, self._unsent = memoryview(self._unsent), bytearray()
                    await self._send_all(data)
        finally:
            self._sent.set()

    async def _send_all(self, data: memoryview) -> None:
        self._sending = len(data)
        while data:
            await self.stream.send_all(data[:WRITE_BYTES])
            data = data[WRITE_BYTES:]
            self._sending = len(data)
            self._note_sent()

    def _note_sent(self) -> None:
        if self.is_awaited and self.unsent <= BACKPRESSURE_BYTES:
            self.is_awaited = False
            self._notify_writable()
        self._sent.set()
        self._sent = trio.Event()

    async def wait_writable(self) -> None:
        """Returns when little is unsent."""
        # Messages posted just now are queued first.
        await trio.lowlevel.checkpoint()
        while self.unsent > BACKPRESSURE_BYTES and not self.scope.cancel_called:
            await self._sent.wait()

    async def wait_sent(self) -> None:
        """Returns when nothing is unsent."""
        while self.unsent and not self.scope.cancel_called:
            await self._sent.wait()


class _Started:
    """Reports that the listeners are served, without returning them."""

    def __init__(self, status: trio.TaskStatus[None]) -> None:
        self._status = status

    def started(self, _value: object = None) -> None:
        self._status.started()
