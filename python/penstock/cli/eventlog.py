"""`penstock eventlog`: the events of a job, with their times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.cli.arguments import attribute
from penstock.cli.ids import OneJobId
from penstock.cli.text import json_text, safe, safe_json
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

    from penstock.rows import Event

SUMMARY = "Show a job's events (RFC 21): seconds since submission, name, context."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the job ends")
    parser.add_argument("--json", action="store_true", help="the events as they are logged")
    parser.add_argument("id", action=OneJobId, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    began: float | None = None
    with Client() as client:
        for event in client.eventlog(args.id, follow=args.follow):
            if args.json:
                print(
                    safe_json(json.dumps(event, ensure_ascii=False, separators=(",", ":"))),
                    flush=True,
                )
                continue
            began = event["timestamp"] if began is None else began
            context = event.get("context", {}).items()
            words = [f"{safe(key)}={json_text(value)}" for key, value in context]
            print(
                f"{event['timestamp'] - began:.6f} {' '.join([safe(event['name']), *words])}",
                flush=True,
            )
    return 0


def has_context(event: Event, pair: tuple[str, str] | None) -> bool:
    """Whether an event has a key with this value in its context.

    Args:
        event: The event.
        pair: The key, and the value as a text or as JSON. None is in every context.
    """
    if pair is None:
        return True
    key, text = pair
    context = event.get("context", {})
    return key in context and context[key] in (text, attribute(f"={text}")[1])
