"""The default paths of an instance's socket and state, and text of a file that a user names."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.errors import AddressError

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_text(path: Path) -> str:
    """The text of a file, which may be a pipe.

    Raises:
        OSError: it cannot be read, or is too long.
        UnicodeDecodeError: it is not UTF-8.
    """
    with path.open("rb") as file:
        data = file.read(limits.MAX_TEXT_BYTES + 1)
    if len(data) > limits.MAX_TEXT_BYTES:
        text = f"too long: expected at most {limits.MAX_TEXT_BYTES} bytes"
        raise OSError(errno.EFBIG, text, str(path))
    return data.decode()


def default_socket() -> Path:
    """`$XDG_RUNTIME_DIR/penstock/default.sock`, or below `/tmp/penstock-UID` without that."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / "penstock" if runtime else Path(f"/tmp/penstock-{os.getuid()}")
    return base / "default.sock"


def default_state(kind: str = "machine") -> Path:
    """`$XDG_STATE_HOME/penstock`, or `~/.local/state/penstock` without that.

    Args:
        kind: of the instance; those of another kind than `machine` have directories of their own,
            such as `penstock-simulated`.
    """
    state = os.environ.get("XDG_STATE_HOME")
    name = "penstock" if kind == "machine" else f"penstock-{kind}"
    return (Path(state) if state else Path.home() / ".local/state") / name


def default_uri() -> str:
    """`$PENSTOCK_URI`, else the default socket."""
    return os.environ.get("PENSTOCK_URI") or f"local://{default_socket()}"


def socket_of(uri: str) -> Path:
    """The socket that a `local://PATH` address names; a bare path is one, too.

    Raises:
        AddressError: another scheme, or no path.
    """
    return _split(uri)[1]


def user_of(uri: str) -> str | None:
    """The user of a `local://USER@/PATH` address, by name or number; None without one."""
    return _split(uri)[0]


def memo_uri(memo: Mapping[str, Any]) -> str | None:
    """The address that a job's memo gives; None without one that can be printed.

    The job's user has written it: a `USER@` in it must not decide whose server is trusted, and is
    left out.
    """
    uri = memo.get("uri")
    if not isinstance(uri, str) or not uri.isprintable():
        return None
    try:
        user, path = _split(uri)
    except AddressError:
        # The client rejects it, too.
        return uri
    return uri if user is None else f"local://{path}"


def _split(uri: str) -> tuple[str | None, Path]:
    scheme, separator, path = uri.partition("://")
    if not separator:
        return None, Path(uri)
    if scheme != "local" or not path:
        raise AddressError(f"unsupported address `{uri}`: expected local:///path/to/socket")
    user, at, absolute = path.partition("@/")
    if user and at and "/" not in user:
        return user, Path(f"/{absolute}")
    return None, Path(path)
