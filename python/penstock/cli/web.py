"""`penstock web`: an instance in a browser."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.listen_address import parse_address
from penstock.errors import Error
from penstock.paths import default_uri

if TYPE_CHECKING:
    import argparse

    from penstock.config.listen_address import ListenAddress

SUMMARY = """Show an instance in a browser: utilisation, nodes, queue, jobs and history, live.

Other programs of this machine cannot read it: on a port a browser needs the address that is
printed, which can be used once; on a Unix socket the kernel tells which user connects. It shows
what this user may see, and changes nothing without --allow-actions."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add(
        "--listen",
        type=_address,
        default=("127.0.0.1", 0),
        metavar="ADDRESS",
        help="a loopback address and port, such as 127.0.0.1:8080, or unix:PATH "
        "(default 127.0.0.1:0, a free port)",
    )
    add("--allow-actions", action="store_true", help="let pages cancel, hold and drain")
    add("--uri", metavar="URI", help="the instance (default: that of PENSTOCK_URI)")


def _address(text: str) -> ListenAddress:
    is_path = text.startswith("unix:")
    with suppress(Error):
        address = parse_address(text.removeprefix("unix:"))
        if isinstance(address, Path) == is_path:
            return address
    raise ArgumentTypeError(
        "expected a loopback address (127.0.0.1, [::1] or localhost) with a port, or unix: and an "
        f"absolute path, found `{text}`"
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    try:
        import trio

        from penstock.web.server import serve
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise Error(
            f"the package {package} is not installed\nhint: pip install 'penstock-hpc[web]'"
        ) from None

    uri = args.uri or default_uri()
    run = partial(serve, allow_actions=args.allow_actions, announce=_announce)
    trio.run(run, args.listen, uri, args.clock)
    return 0


def _announce(where: str) -> None:
    print(where, flush=True)
    if where.startswith("http"):
        print("open this address in a browser; it can be used once; Ctrl-C ends", file=sys.stderr)
