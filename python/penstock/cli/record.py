"""`penstock record`: the messages between clients and an instance, in a file."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.signals import handling_signals
from penstock.cli.text import safe_lines
from penstock.client.connection import connect
from penstock.paths import socket_of
from penstock.recording import Proxy, Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

SUMMARY = """Record every message between clients and an instance in FILE, for a bug report.

Runs COMMAND with PENSTOCK_URI and FLUX_URI naming a socket that passes messages on to the instance,
and ends with its exit code. Without COMMAND it prints the address of that socket and records until
it gets SIGINT or SIGTERM. `penstock replay` shows the file, and sends it to an instance again.

The file has what the messages have: commands, environments, input and output of jobs."""

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("--socket", type=Path, metavar="PATH", help="where to listen (default: a temporary path)")
    add("uri", metavar="URI", help="the instance, of Penstock or of Flux: local:///path")
    add("file", type=Path, metavar="FILE", help="the recording; it must not exist")
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="program and arguments")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    # An address at which there is no instance is an error now, not for the first client.
    connect(args.uri).close()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    recorder = Recorder(args.file, args.clock)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
            path = args.socket or Path(directory) / "socket"
            with Proxy(f"local://{socket_of(args.uri)}", path, recorder, _complain) as proxy:
                return _run(command, proxy.uri) if command else _wait(proxy.uri)
    finally:
        recorder.close()


def _complain(text: str) -> None:
    print(f"penstock record: {safe_lines(text)}", file=sys.stderr, flush=True)


def _wait(uri: str) -> int:
    """Prints the address and waits for a signal."""
    stopped = threading.Event()
    with handling_signals(lambda *_: stopped.set(), HANDLED):
        print(uri, flush=True)
        stopped.wait()
    return 0


def _run(command: Sequence[str], uri: str) -> int:
    """Runs the command; returns its exit code."""
    environment = {**os.environ, "PENSTOCK_URI": uri, "FLUX_URI": uri}
    try:
        with subprocess.Popen(command, env=environment) as process:

            def hand_on(number: int, _frame: object) -> None:
                # The terminal sends SIGINT to the command as well.
                if number != signal.SIGINT:
                    process.send_signal(number)

            with handling_signals(hand_on, HANDLED):
                code = process.wait()
    except FileNotFoundError:
        _complain(f"{command[0]}: command not found")
        return 127
    except PermissionError:
        _complain(f"{command[0]}: not executable")
        return 126
    return 128 - code if code < 0 else code
