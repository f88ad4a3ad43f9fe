"""Which users' servers a client trusts: it sends nothing to a server of another user.

Environment and jobspecs are secrets, and a socket below `/tmp` can be made by anybody.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
from pathlib import Path
from typing import Protocol

from penstock.errors import AddressError, NoInstanceError
from penstock.paths import user_of

# The site's file: `server-users`, a list of names and numbers of users.
CLIENT_CONFIG = Path("/etc/penstock/client.toml")
ROOT = 0


class Socket(Protocol):
    """A socket, of the standard library or of Trio."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """As in `socket.socket`."""


def check_server(connection: Socket, uri: str) -> None:
    """Checks that a server may get this user's requests, before a byte is sent.

    Accepted are servers of this process's user, of root, of the user that the address names, and of
    the users in `/etc/penstock/client.toml`.

    Args:
        connection: a connected Unix socket.
        uri: the address.

    Raises:
        NoInstanceError: the server is another user's.
        AddressError: the address or the file names an unknown user, or the file is invalid.
    """
    _pid, uid, _gid = peer_credentials(connection)
    if uid in (os.geteuid(), ROOT) or uid in named_users(uri):
        return
    raise NoInstanceError(
        f"the server at `{uri}` is not trusted: it runs as user {_describe(uid)}\n"
        f"hint: to trust that user, name it in the address (`local://{uid}@/PATH`), or in "
        f"`server-users` of {CLIENT_CONFIG}"
    )


def named_users(uri: str) -> set[int]:
    """The users beside this process's and root whose server may be at an address.

    Raises:
        AddressError: the address or the file names an unknown user, or the file is invalid.
    """
    named = user_of(uri)
    if named is not None:
        return {_user_number(named, f"address `{uri}`")}
    return _site_users(CLIENT_CONFIG)


def peer_credentials(connection: Socket) -> tuple[int, int, int]:
    """The process id, user id and group id of a Unix socket's other end (unix(7))."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, gid = struct.unpack("iII", credentials)
    return pid, uid, gid


def _site_users(path: Path) -> set[int]:
    """The users whose servers the site trusts; none without the file."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return set()
    except (OSError, ValueError) as error:
        raise AddressError(f"`{path}`: {error}") from None
    # Most machines have no such file.
    import tomllib

    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise AddressError(f"`{path}`: {error}") from None
    users = document.pop("server-users", [])
    if document:
        raise AddressError(f"`{path}`: unknown key `{min(document)}`, expected `server-users`")
    if not isinstance(users, list) or not all(type(user) in (int, str) for user in users):
        raise AddressError(f"`{path}`: `server-users`: expected an array of users")
    return {_user_number(str(user), f"`{path}`") for user in users}


def _user_number(user: str, place: str) -> int:
    if user.isascii() and user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise AddressError(f"{place}: unknown user `{user}`") from None


def _describe(uid: int) -> str:
    try:
        return f"{uid} ({pwd.getpwuid(uid).pw_name})"
    except KeyError:
        return str(uid)
