"""The broker: peers, their sockets, and the pump that moves batches between them.

Rust decides who gets what (`Router`); this module owns the conversation: accepting,
authenticating, reading, writing, and telling the services when a round is over.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
import time
import uuid
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from penstock._core import ROLE_LOCAL, ROLE_OWNER, ROLE_USER, Batch, Decoder, Router
from penstock.errors import WireError
from penstock.instance.requests import error_response
from penstock.instance.supervision import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from penstock._core import Message

log = logging.getLogger("penstock.broker")

READ_SIZE = WRITE_SIZE = 256 * 1024
# Whoever produces much for a client waits while it has more than this to read.
FEW_UNSENT = 1024 * 1024
# A client that does not read what it asked for is cut off here rather than let grow.
MAX_UNSENT = 256 * 1024 * 1024


class Service(Protocol):
    """What the broker needs of a peer that lives in the daemon."""

    def deliver(self, batch: Batch) -> None:
        """Takes messages in. Answers are posted to the broker, now or later."""

    def settle(self, now: float) -> None:
        """A round is over: makes durable what must be, posts what may now be sent."""


@dataclass
class _Attached:
    """An in-process service at the broker."""

    service: Service
    on_failure: Callable[[], None] | None
    fatal: tuple[type[Exception], ...]
    failed: bool = False


class Broker:
    """Routes messages between connections and in-process services.

    Args:
        owner: user id of the instance owner.
        allow_guests: whether other users may connect.
        allow_root: whether root counts as an owner.
    """

    def __init__(self, *, owner: int, allow_guests: bool = False, allow_root: bool = True) -> None:
        self.uuid = str(uuid.uuid4())
        self.owner = owner
        self._allow_guests = allow_guests
        self._allow_root = allow_root
        self._router = Router(self.uuid, owner)
        self._services: dict[int, _Attached] = {}
        self._uuids: dict[int, bytes] = {}
        self._watcher: Callable[[dict[str, bytes]], None] | None = None
        self._sockets: dict[int, _SocketPeer] = {}
        self._rounds: deque[tuple[int, Batch]] = deque()
        self._wake = trio.Event()
        self._next = 1

    # --- peers in the daemon

    def attach(
        self,
        service: Service,
        *,
        names: Iterable[str] = (),
        on_failure: Callable[[], None] | None = None,
        fatal: tuple[type[Exception], ...] = (),
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

        Returns:
            The peer's number, with which it posts.
        """
        peer = self._number()
        self._add_peer(peer, self.owner, ROLE_OWNER | ROLE_LOCAL)
        self._services[peer] = _Attached(service, on_failure, fatal)
        for name in names:
            if self.add_service(name, peer):
                raise ValueError(f"service `{name}` is registered already")
        return peer

    def detach(self, peer: int) -> None:
        """Removes an in-process service; the services that it used are sent its disconnect."""
        del self._services[peer]
        self._remove_peer(peer)

    def post(self, peer: int, batch: Batch) -> None:
        """Sends messages from a peer. They are routed in the next round."""
        if batch:
            self._rounds.append((peer, batch))
            self._wake.set()

    def post_messages(self, peer: int, messages: list[Message]) -> None:
        """Sends a few messages from a peer."""
        self.post(peer, Batch(messages))

    def nudge(self) -> None:
        """Asks for a round: a service has something to settle."""
        self._wake.set()

    # --- control, for the services that serve it

    def origin(self, request: Message) -> int | None:
        """The peer that a request comes from, or None where it has gone."""
        routes = request.routes
        return self._router.peer(routes[-1]) if routes else None

    async def room(self, request: Message) -> None:
        """Returns when the peer that a request comes from has little left to read, or has gone."""
        peer = self.origin(request)
        remote = None if peer is None else self._sockets.get(peer)
        if remote is None:
            await trio.lowlevel.checkpoint()
        else:
            await remote.room()

    def has_room(self, route: bytes) -> bool:
        """Whether the peer that a route names has little left to read, or has gone.

        Where it has not, there will be a round when it has.
        """
        remote = self._sockets.get(self._router.peer(route) or 0)
        if remote is None or remote.unsent <= FEW_UNSENT:
            return True
        remote.awaited = True
        return False

    def add_service(self, name: str, peer: int) -> int:
        """Registers a service for a peer. Returns an errno, 0 for success."""
        errnum = self._router.add_service(name, peer)
        self._tell_services()
        return errnum

    def remove_service(self, name: str, peer: int) -> int:
        """Removes a peer's service. Returns an errno, 0 for success."""
        errnum = self._router.remove_service(name, peer)
        self._tell_services()
        return errnum

    def watch_services(self, watcher: Callable[[dict[str, bytes]], None]) -> None:
        """Has a function called, now and at changes, with the route of who serves what."""
        self._watcher = watcher
        self._tell_services()

    def _tell_services(self) -> None:
        if self._watcher is not None:
            served = self._router.services()
            self._watcher({name: self._uuids[peer] for name, peer in served})

    def subscribe(self, peer: int, prefix: str) -> None:
        """Sends a peer the events whose topic starts with `prefix`."""
        self._router.subscribe(peer, prefix)

    def unsubscribe(self, peer: int, prefix: str) -> bool:
        """Takes one subscription back. Returns whether there was one."""
        return self._router.unsubscribe(peer, prefix)

    def services(self) -> list[dict[str, object]]:
        """The registered services: name, process id and user of who serves them."""
        rows: list[dict[str, object]] = []
        for name, peer in self._router.services():
            remote = self._sockets.get(peer)
            pid = remote.pid if remote else os.getpid()
            uid = remote.uid if remote else self.owner
            rows.append({"name": name, "pid": pid, "uid": uid, "inside": remote is None})
        return rows

    def stats(self) -> dict[str, object]:
        """How many connect and serve, and how many bytes wait to be read by them."""
        return {
            "connections": len(self._sockets),
            "services": len(self._router.services()),
            "unsent": sum(remote.unsent for remote in self._sockets.values()),
        }

    # --- the pump

    async def pump(self) -> None:
        """Routes rounds of messages for as long as the daemon lives."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            self.run_round()
            # However busy the services keep each other, the sockets get their turn.
            await trio.lowlevel.checkpoint()

    def run_round(self) -> bool:
        """Routes the posted messages, then settles the services.

        Returns:
            Whether there is more to route: messages that services posted while settling.
        """
        while self._rounds:
            peer, batch = self._rounds.popleft()
            try:
                deliveries = self._router.route(peer, batch)
            except FAULTS:
                log.exception("cannot route messages of peer %d", peer)
                self._disconnect(peer)
            else:
                self._deliver(deliveries)
        now = time.time()
        for peer, attached in list(self._services.items()):
            if not attached.failed:
                try:
                    attached.service.settle(now)
                except attached.fatal:
                    raise
                except FAULTS:
                    self._fail(peer, attached)
        return bool(self._rounds)

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
        try:
            attached.service.deliver(batch)
        except attached.fatal:
            raise
        except FAULTS:
            # `deliver` answers none of a batch's requests before it has taken all of them.
            self._reject(peer, batch)
            self._fail(peer, attached)

    def _send(self, peer: int, remote: _SocketPeer, batch: Batch) -> None:
        try:
            remote.send(batch)
        except FAULTS:
            log.exception("cannot send to pid %d", remote.pid)
            self._disconnect(peer)

    def _reject(self, peer: int, batch: Batch) -> None:
        """Answers the requests of a batch with EIO, in the name of a failed service."""
        responses = [
            error_response(message, errno.EIO, f"{message.topic}: the service has failed")
            for message in batch
            if message.kind == "request" and not (message.topic or "").endswith(".disconnect")
        ]
        self.post_messages(peer, [response for response in responses if response is not None])

    def _fail(self, peer: int, attached: _Attached) -> None:
        """Marks a service as failed while the exception that has left it is handled."""
        log.exception("service %s has failed", type(attached.service).__name__)
        attached.failed = True
        if attached.on_failure is not None:
            attached.on_failure()

    def _disconnect(self, peer: int) -> None:
        """Ends a client's connection, or marks a service as failed; for exception handlers."""
        remote = self._sockets.get(peer)
        if remote is not None:
            remote.scope.cancel()
        elif peer in self._services:
            self._fail(peer, self._services[peer])

    def _add_peer(self, peer: int, userid: int, roles: int) -> None:
        route = str(uuid.uuid4())
        self._uuids[peer] = route.encode()
        self._router.add_peer(peer, route, userid, roles)

    def _remove_peer(self, peer: int) -> None:
        notices = self._router.remove_peer(peer)
        del self._uuids[peer]
        self._tell_services()
        self._deliver(notices)
        self.nudge()

    def _number(self) -> int:
        number = self._next
        self._next += 1
        return number

    # --- peers at sockets

    async def listen(
        self,
        path: Path,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves the Unix socket at `path`; tells the nursery once it accepts."""
        listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with listener:
            await listener.bind(str(path))
            mode = 0o777 if self._allow_guests else 0o700
            await trio.Path(path).chmod(mode)
            listener.listen(1024)
            own = os.stat(path, follow_symlinks=False)  # noqa: PTH116
            try:
                await trio.serve_listeners(
                    self._serve, [trio.SocketListener(listener)], task_status=_Quiet(task_status)
                )
            finally:
                _remove_own(path, own)

    async def _serve(self, stream: trio.SocketStream) -> None:
        credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _gid = struct.unpack("3i", credentials)
        roles = self._roles(uid)
        async with stream:
            try:
                await stream.send_all(bytes([0 if roles else errno.EPERM]))
                if roles:
                    await self._converse(stream, pid, uid, roles)
            except* trio.BrokenResourceError:
                # The peer has gone in the middle of something; there is nobody left to tell.
                log.info("the connection of pid %d broke", pid)
            except* FAULTS:
                # A fault in one connection ends that one alone.
                log.exception("closing the connection of pid %d", pid)

    def _roles(self, uid: int) -> int:
        if uid == self.owner or (uid == 0 and self._allow_root):
            return ROLE_OWNER | ROLE_LOCAL
        return ROLE_USER | ROLE_LOCAL if self._allow_guests else 0

    async def _converse(self, stream: trio.SocketStream, pid: int, uid: int, roles: int) -> None:
        number = self._number()
        # Root is the owner's equal, not another user with jobs of its own.
        userid = self.owner if roles & ROLE_OWNER else uid
        self._add_peer(number, userid, roles)
        peer = _SocketPeer(stream, pid, uid, self.nudge)
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
        while data := await peer.stream.receive_some(READ_SIZE):
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


def _remove_own(path: Path, own: os.stat_result) -> None:
    """Removes the socket, unless somebody has put something else in its place."""
    with suppress(FileNotFoundError):
        if os.path.samestat(path.lstat(), own):
            path.unlink()


class _SocketPeer:
    """A client's connection: what is to be written to it, and in which encoding."""

    def __init__(
        self, stream: trio.SocketStream, pid: int, uid: int, room: Callable[[], None]
    ) -> None:
        self.stream = stream
        self.pid = pid
        self.uid = uid
        self.cbor = False
        # Whether somebody is to be told when there is little left to write.
        self.awaited = False
        self._tell_room = room
        # Ends the conversation when cancelled.
        self.scope = trio.CancelScope()
        self._unsent = bytearray()
        self._sending = 0
        self._wake = trio.Event()
        self._sent = trio.Event()

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""
        return len(self._unsent) + self._sending

    def send(self, batch: Batch) -> None:
        """Queues messages, or ends the conversation with a client that lets too many wait."""
        if self.scope.cancel_called:
            return
        # Looked at before: one answer may be as long as it likes, for a client that reads.
        if self.unsent > MAX_UNSENT:
            log.warning(
                "closing the connection of pid %d: it leaves %d bytes unread", self.pid, self.unsent
            )
            self._unsent.clear()
            self.scope.cancel()
            return
        self._unsent += batch.encode_cbor() if self.cbor else batch.encode()
        self._wake.set()

    async def write(self) -> None:
        """Writes what is queued, for as long as the conversation lasts."""
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
            await self.stream.send_all(data[:WRITE_SIZE])
            data = data[WRITE_SIZE:]
            self._sending = len(data)
            if self.awaited and self.unsent <= FEW_UNSENT:
                self.awaited = False
                self._tell_room()
            self._sent.set()
            self._sent = trio.Event()

    async def room(self) -> None:
        """Returns when little waits to be written."""
        # What was posted just now gets here first.
        await trio.lowlevel.checkpoint()
        while self.unsent > FEW_UNSENT and not self.scope.cancel_called:
            await self._sent.wait()


class _Quiet:
    """Passes on that the listeners are served, without naming them."""

    def __init__(self, status: trio.TaskStatus[None]) -> None:
        self._status = status

    def started(self, _value: object = None) -> None:
        self._status.started()
