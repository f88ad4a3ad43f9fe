"""`penstock shutdown`: ends an instance, with the options of `flux shutdown`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.cli.stop import DaemonProcess
from penstock.cli.uri import address_of
from penstock.client import Client
from penstock.errors import NoInstanceError

if TYPE_CHECKING:
    import argparse

SUMMARY = """End an instance: running jobs are cancelled, pending ones stay for its next start.

TARGET is an address, or a job that runs an instance (JOB/JOB is a job of that instance). `penstock
stop --keep-running` ends an instance without its jobs."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("--background", action="store_true", help="do not wait until its daemon has ended")
    add("--quiet", action="store_true", help="print nothing")
    add(
        "-y",
        "--yes",
        action="store_true",
        help="no effect: there is no question; for scripts that call `flux shutdown -y`",
    )
    add("target", nargs="?", metavar="TARGET", help="default: the instance of PENSTOCK_URI")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    uri = args.target
    if uri is not None and "://" not in uri:
        uri = address_of(uri)
    with Client(uri) as client, DaemonProcess.of(client.uri) as daemon:
        # The daemon may end before its response is read.
        with suppress(NoInstanceError):
            client.shutdown()
        if args.background:
            return 0
        daemon.wait()
    if not args.quiet and sys.stderr.isatty():
        print("penstock shutdown: the instance has ended", file=sys.stderr)
    return 0
