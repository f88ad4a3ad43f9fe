"""`penstock queue`: which queues accept jobs, and which start them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.arguments import seconds
from penstock.cli.text import json_text, safe
from penstock.client import Client
from penstock.errors import UsageError

if TYPE_CHECKING:
    import argparse

SUMMARY = """List queues; enable and disable, start and stop them.

A disabled queue rejects submissions. A stopped queue keeps its jobs pending; running jobs
continue. Without configured queues there is one anonymous queue: give no name."""

ACTIONS = {
    "enable": "accept submissions",
    "disable": "reject submissions",
    "start": "schedule the jobs of queues",
    "stop": "keep the jobs of queues pending",
}
WAITS = {"drain": "wait until no job is active", "idle": "wait until no job is running"}


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="|".join(["list", *ACTIONS, *WAITS])
    )
    text = "show queues and their states"
    shown = verbs.add_parser("list", aliases=["status"], help=text, description=text)
    shown.add_argument("--json", action="store_true", help="one object a line")
    shown.add_argument("name", nargs="*", metavar="NAME", help="default: every queue")
    _add_queue(shown)
    for action, text in ACTIONS.items():
        verb = verbs.add_parser(action, help=text, description=text)
        verb.add_argument("-a", "--all", action="store_true", help="every queue")
        if action in ("disable", "stop"):
            verb.add_argument(
                "-m", "--message", metavar="REASON", help="the reason, shown to users"
            )
        verb.add_argument("name", nargs="*", metavar="NAME")
        _add_queue(verb)
    for wait, text in WAITS.items():
        verb = verbs.add_parser(wait, help=text, description=text)
        verb.add_argument(
            "-t", "--timeout", type=seconds, metavar="FSD", help="wait at most this long for each"
        )
        verb.add_argument("name", nargs="*", metavar="NAME", help="of these queues")
        _add_queue(verb)


def _add_queue(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "-q", "--queue", action="append", default=[], metavar="NAME", help="as an argument NAME"
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    args.name = [*args.name, *args.queue]
    if args.verb in WAITS:
        return _wait(args)
    with Client() as client:
        if args.verb in ("list", "status"):
            _list(client, args.name, as_json=args.json)
            return 0
        if args.name == ["all"] and "all" not in client.queue_list():
            raise UsageError(f"unknown queue `all`: `{args.verb} --all` names every queue")
        for name in args.name or [None]:
            _act(client, args, name)
    return 0


def _act(client: Client, args: argparse.Namespace, name: str | None) -> None:
    if args.verb == "enable":
        client.queue_enable(name, everything=args.all)
    elif args.verb == "start":
        client.queue_start(name, everything=args.all)
    elif args.verb == "disable":
        client.queue_disable(name, reason=args.message, everything=args.all)
    else:
        client.queue_stop(name, reason=args.message, everything=args.all)


def _wait(args: argparse.Namespace) -> int:
    with Client(timeout=args.timeout) as client:
        for name in args.name or [None]:
            if args.verb == "drain":
                client.queue_drain(name)
            else:
                client.queue_idle(name)
    return 0


def _list(client: Client, wanted: list[str], *, as_json: bool) -> None:
    names: list[str | None] = [*(wanted or client.queue_list())]
    if not as_json:
        print(f"{'QUEUE':<12} {'SUBMIT':<8} {'START':<8} REASON")
    for name in names or [None]:
        status = client.queue_status(name)
        disabled, stopped = status.get("disable_reason"), status.get("stop_reason")
        row = {
            "name": name,
            "enable": status["enable"],
            "start": status["start"],
            "disable_reason": disabled,
            "stop_reason": stopped,
        }
        takes = "enabled" if status["enable"] else "disabled"
        starts = "started" if status["start"] else "stopped"
        reasons = "; ".join(filter(None, [disabled, stopped]))
        text = f"{safe(name or '-'):<12} {takes:<8} {starts:<8} {safe(reasons)}"
        print(json_text(row) if as_json else text.rstrip())
