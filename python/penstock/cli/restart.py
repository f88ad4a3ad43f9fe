"""`penstock restart`: starts an instance again, with the same options."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock._core import topic
from penstock.cli.stop import DaemonProcess
from penstock.client import Call, Client
from penstock.client.responses import expect
from penstock.errors import NoInstanceError, StartError

if TYPE_CHECKING:
    import argparse

SUMMARY = """Start the instance again, with the same options; an upgraded Penstock is used.

The daemon executes its own command line again, as the same process: in its terminal, or under its
supervisor. Running jobs continue, as with `penstock stop --keep-running`. An instance that runs a
command, or that was started in a job, cannot be restarted."""

# Delays before an attempt to connect: the first, and the longest.
MIN_PAUSE_S, MAX_PAUSE_S = 0.02, 1.0
START_TIMEOUT_S = 60.0


def register(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments."""


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client, DaemonProcess.of(client.uri) as daemon:
        before = _start_time(client)
        with suppress(NoInstanceError):
            client.shutdown(restart=True)
        daemon.wait_for_close()
        pause, deadline = MIN_PAUSE_S, args.clock.monotonic() + START_TIMEOUT_S
        while not daemon.has_ended and args.clock.monotonic() < deadline:
            with suppress(NoInstanceError), Client(client.uri) as again:
                if _start_time(again) != before:
                    return 0
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)
        state = "has ended" if daemon.has_ended else "does not answer"
        raise StartError(f"the instance at `{client.uri}` {state}: its log says why")


def _start_time(client: Client) -> str:
    """When the instance was started."""
    name = {"name": "broker.starttime"}
    call = Call(topic.broker.ATTR_GET, name, lambda answer: expect(answer, "value", str))
    return client.do(call)
