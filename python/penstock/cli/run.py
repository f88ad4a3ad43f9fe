"""`penstock run`: submit, show the output, end with the job's exit code."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from penstock._core import IDset
from penstock.cli import feasibility, joboptions, terminal
from penstock.cli.attach import Attachment
from penstock.cli.pending import pending_notice
from penstock.cli.submit import register_verbose, show_ids, submit
from penstock.client import Client
from penstock.errors import Error, UsageError

if TYPE_CHECKING:
    import argparse

SUMMARY = """Run a job: submit it, show its output, end with its exit code.

Standard input goes to all tasks of the job. SIGTERM, SIGHUP, SIGALRM, SIGUSR1 and SIGUSR2 are
forwarded to the tasks. In a terminal, Ctrl-C twice within 2 seconds cancels the job, and Ctrl-C
Ctrl-Z detaches: the job continues, and `penstock attach` shows it. Elsewhere SIGINT cancels it.

The exit code is that of the task with the greatest wait status (RFC 21), 128 + N if signal N
ended it. There an exit code other than 0 is greater than any signal: if one task exits with 1 and
another is killed, it is 1."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    joboptions.register_streams(
        parser,
        "FILE|RANKS",
        "file for stdin of every task, or the ranks of the tasks that get this command's stdin; "
        "default: all get it",
    )
    parser.add_argument(
        "--pty",
        action="store_true",
        help="give the first task a terminal, to which keys go; Ctrl-\\ detaches",
    )
    feasibility.register(parser)
    register_verbose(parser)
    joboptions.register(parser)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    if args.pty and args.input is not None:
        raise UsageError("--input: the standard input of a terminal is its keys")
    args.stream_attributes = _streams(args)
    specs = joboptions.jobspecs(args)
    with Client() as client:
        feasibility.check(client, args, specs)
        attachment = Attachment(client, "run", args.clock, unbuffered=args.unbuffered)
        attachment.has_terminal = args.pty
        is_copied = joboptions.copy_ids(args) is not None
        attachment.reads_input = not is_copied and (args.pty or args.input is None)
        attachment.cancels_at_once = not terminal.is_terminal()
        with attachment.handling_signals():
            ids = submit(client, specs, args.urgency)
            show_ids("run", args, ids)
            attachment.begin(ids)
            # Of copies each has another reason.
            notice = (
                pending_notice("run", client.uri, ids[0], is_raw=args.pty)
                if len(ids) == 1
                else nullcontext()
            )
            with notice:
                return attachment.run()


def _streams(args: argparse.Namespace) -> dict[str, Any]:
    """The shell options for standard input and the terminal."""
    if args.pty:
        size = terminal.window()
        window = size._asdict() if size else {}
        return {"shell.options.pty": {"interactive": 1, **window}}
    ranks = _ranks(args.input)
    if ranks is not None:
        args.input = None
    if joboptions.copy_ids(args) is not None or args.input is not None or not terminal.has_input():
        return {}
    return {
        "shell.options.input.stdin": {
            "type": "service",
            **({"ranks": ranks} if ranks is not None else {}),
        }
    }


def _ranks(text: str | None) -> str | None:
    """The argument of `--input`, if it names tasks and not a file."""
    if text is None or text == "all":
        return text
    try:
        return str(IDset(text))
    except Error:
        return None
