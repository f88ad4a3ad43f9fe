"""The address at which the instance listens for monitoring systems."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.errors import Error

# The path of a Unix socket, or loopback address and port.
ListenAddress = Path | tuple[str, int]

LOOPBACK = re.compile(r"(127(?:\.\d{1,3}){3}|localhost|\[::1\]):(\d{1,5})", re.ASCII)


def parse_address(text: str) -> ListenAddress:
    """Reads `ADDRESS:PORT`, or the absolute path of a Unix socket.

    Raises:
        Error: it is neither, or the address is not a loopback address.
    """
    if text.startswith("/"):
        return Path(text)
    found = LOOPBACK.fullmatch(text)
    if found is not None:
        host, port = found[1].strip("[]"), int(found[2])
        host = "127.0.0.1" if host == "localhost" else host
        if port < 1 << 16 and all(int(byte) < 1 << 8 for byte in re.findall(r"\d+", host)):
            return host, port
    raise Error(
        "expected the absolute path of a socket, or a loopback address (127.0.0.1, [::1] or "
        f"localhost) with a port, such as 127.0.0.1:9470, found `{text}`"
    )


def address_text(address: ListenAddress) -> str:
    """The text of an address."""
    if isinstance(address, Path):
        return str(address)
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
