"""`penstock alloc`: an instance in a job, for a command that runs here."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.cli import feasibility, joboptions
from penstock.cli.pending import pending_notice
from penstock.cli.rows import exit_code, reason
from penstock.cli.signals import handling_signals
from penstock.cli.submit import register_verbose, show_ids
from penstock.cli.text import id_text, resources_text, safe
from penstock.client import Client
from penstock.errors import Error, UsageError
from penstock.paths import memo_uri
from penstock.resource import ResourceSet

if TYPE_CHECKING:
    import argparse

SUMMARY = """Get an instance with the requested resources, and run a command with it.

A job starts the instance. COMMAND, by default $SHELL, runs here and not in the job, with
PENSTOCK_URI set, so that `penstock run` and the rest use the job's resources. When it ends, so does
the job. Exits with the command's exit code. Ctrl-C while waiting cancels the job. In a terminal it
says why the job is pending, and what is granted and released."""

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    register_verbose(parser)
    joboptions.register(parser, words_help="program and arguments; default: $SHELL")
    feasibility.register(parser)
    parser.set_defaults(cc=None, bcc=None)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    command = words or [os.environ.get("SHELL") or "/bin/sh"]
    if joboptions.copy_ids(args) is not None:
        raise UsageError("--cc and --bcc: expected one job")
    args.job_name = args.job_name or "alloc"
    (spec,) = joboptions.instance_jobspecs(args, [])
    with Client() as client:
        feasibility.check(client, args, [spec])
        interrupts = _Interrupts()
        with handling_signals(interrupts, HANDLED, client=client):
            job = client.submit(spec, urgency=args.urgency)
            try:
                interrupts.begin()
                show_ids("alloc", args, [job])
                with pending_notice("alloc", client.uri, job):
                    uri = _wait_for_address(client, job)
            except BaseException:
                with suppress(Error, OSError):
                    client.cancel([job], note="interrupted")
                raise
        if uri is None:
            (row,) = client.wait_rows([job])
            why = reason(row) or "it has ended, and no instance ran in it"
            print(f"penstock alloc: {id_text(job)}: {safe(why)}", file=sys.stderr)
            return exit_code(row) or 1
        granted = ResourceSet(client.lookup(job, "R")["R"])
        _tell(f"{id_text(job)}: granted {resources_text(granted)}")
        return _run(command, client, job, uri)


class _Interrupts:
    """A signal handler that ends the program, but for the first signal until `begin`.

    During the submission there is no id to cancel.
    """

    def __init__(self) -> None:
        self._begun = False
        self._came: int | None = None
        # Signals so far: one step, for the second may come while the first is being handled.
        self._earlier = itertools.count()

    def __call__(self, number: int, _frame: object) -> None:
        if self._begun or next(self._earlier):
            raise SystemExit(128 + number)
        self._came = number

    def begin(self) -> None:
        """Lets signals end the program from now on, including one received earlier."""
        self._begun = True
        if self._came is not None:
            raise SystemExit(128 + self._came)


def _wait_for_address(client: Client, job: int) -> str | None:
    """The address of the instance in a job, from the job's memo; None if the job ends first."""
    with client.eventlog(job, follow=True) as events:
        for event in events:
            uri = memo_uri(event.get("context", {})) if event["name"] == "memo" else None
            if uri is not None:
                return uri
    return None


def _tell(text: str) -> None:
    """Tells the user at a terminal what becomes of the allocation."""
    if sys.stderr.isatty():
        print(f"penstock alloc: {safe(text)}", file=sys.stderr, flush=True)


def _run(command: list[str], client: Client, job: int, uri: str) -> int:
    """Runs the command and ends the job, whichever comes first; returns the command's exit code."""
    environment = {**os.environ, "PENSTOCK_URI": uri, "FLUX_URI": uri}
    for name in ("PENSTOCK_JOB_ID", "FLUX_JOB_ID"):
        environment.pop(name, None)
    ended = threading.Event()
    try:
        with subprocess.Popen(command, env=environment) as process:
            watcher = threading.Thread(target=_watch, args=[client.uri, job, process, ended])
            watcher.start()

            def hand_on(number: int, _frame: object) -> None:
                # The terminal sends SIGINT to the command as well.
                if number != signal.SIGINT:
                    process.send_signal(number)

            with handling_signals(hand_on, HANDLED, client=client):
                code = process.wait()
            ended.set()
    except FileNotFoundError:
        print(f"penstock alloc: {command[0]}: command not found", file=sys.stderr)
        code = 127
    except PermissionError:
        print(f"penstock alloc: {command[0]}: not executable", file=sys.stderr)
        code = 126
    finally:
        _end(client, job, uri)
    return 128 - code if code < 0 else code


def _watch(uri: str, job: int, process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    """Ends the command when the job has ended, as the end of a terminal does."""
    with suppress(Error, OSError), Client(uri) as client:
        (row,) = client.wait_rows([job])
        if not ended.is_set():
            why = reason(row) or "it has ended"
            print(f"penstock alloc: {id_text(job)}: {safe(why)}", file=sys.stderr)
            process.send_signal(signal.SIGHUP)


def _end(client: Client, job: int, uri: str) -> None:
    """Ends the instance, and with it the job."""
    try:
        with Client(uri) as nested:
            nested.shutdown()
    except (Error, OSError):
        client.cancel([job], note="the instance does not answer")
    for _ in client.wait_rows([job]):
        pass
    _tell(f"{id_text(job)}: released")
