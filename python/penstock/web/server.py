"""The server: a loopback port or a Unix socket, with HTTP by hypercorn on Trio."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from penstock.aclient import connect
from penstock.client.server_identity import peer_credentials
from penstock.config.listen_address import address_text
from penstock.errors import Error
from penstock.web.guard import Guard
from penstock.web.link import Link
from penstock.web.live import Changes
from penstock.web.pages import Site
from penstock.web.sessions import PeerSessions, TokenSessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypercorn.typing import ASGIFramework

    from penstock.clock import Clock
    from penstock.config.listen_address import ListenAddress

LISTEN_BACKLOG = 100


@contextmanager
def listening(address: ListenAddress) -> Iterator[socket.socket]:
    """A socket that listens, for the duration of the block.

    A Unix socket admits connections of every user; the guard decides by the user who connects.

    Raises:
        Error: something else is at the path, or the address is in use.
    """
    if isinstance(address, Path):
        if address.exists() and not address.is_socket():
            raise Error(f"`{address}` exists, and is not a socket")
        with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(address))
            except ConnectionRefusedError:
                address.unlink()
            else:
                raise Error(f"`{address}`: another process listens there")
        family, name = socket.AF_UNIX, str(address)
    else:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        name = address  # type: ignore[assignment]
    with socket.socket(family) as listener:
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(name)
        except OSError as error:
            where = str(address) if isinstance(address, Path) else address_text(address)
            raise Error(f"`{where}`: {error.strerror}") from error
        try:
            if isinstance(address, Path):
                address.chmod(0o666)
            listener.listen(LISTEN_BACKLOG)
            yield listener
        finally:
            if isinstance(address, Path):
                address.unlink(missing_ok=True)


async def serve(
    address: ListenAddress,
    uri: str,
    clock: Clock,
    *,
    allow_actions: bool,
    announce: Callable[[str], None],
) -> None:
    """Serves the pages of an instance until SIGINT or SIGTERM.

    Args:
        address: where to listen.
        uri: the address of the instance.
        clock: the time.
        allow_actions: whether pages may change anything.
        announce: gets the address to open, once it accepts.

    Raises:
        NoInstanceError: no instance listens at `uri`.
        Error: the address cannot be used.
    """
    # An error of the first connection ends the command, later ones are shown by the pages.
    async with connect(uri):
        pass
    with listening(address) as listener:
        link = Link(uri)
        changes = Changes(link)
        owners = frozenset([os.geteuid(), 0])
        site = Site(link, clock, owners=owners, allow_actions=allow_actions, changes=changes)
        sessions: TokenSessions | PeerSessions
        if isinstance(address, Path):
            sessions, cookie, where = PeerSessions(), "penstock", f"unix:{address}"
        else:
            sessions = TokenSessions(os.geteuid())
            host, port = listener.getsockname()[:2]
            cookie = f"penstock-{port}"
            where = f"http://{address_text((host, port))}/?token={sessions.new_token()}"
        guard = Guard(site.app(), sessions, cookie=cookie, allow_actions=allow_actions)
        async with trio.open_nursery() as nursery:
            await nursery.start(link.run)
            nursery.start_soon(changes.run)
            nursery.start_soon(_accept, guard, listener)
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                announce(where)
                await anext(signals)
            nursery.cancel_scope.cancel()


async def _accept(guard: Guard, listener: socket.socket) -> None:
    config = Config()
    config.include_server_header = False
    # A browser that has left is noticed when it closes its connection.
    config.keep_alive_timeout = 60
    config.errorlog = None
    context = WorkerContext(None)
    app = ASGIWrapper(cast("ASGIFramework", guard))

    async def handle(stream: trio.SocketStream) -> None:
        state = {"peer": _peer(stream.socket)}
        await TCPServer(app, config, context, state, stream)  # type: ignore[arg-type]

    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listener))]
    await trio.serve_listeners(handle, listeners)


def _peer(connected: trio.socket.SocketType) -> int | None:
    """The user at the other end of a Unix socket, from the kernel."""
    if connected.family != socket.AF_UNIX:
        return None
    _pid, uid, _gid = peer_credentials(connected)
    return uid
