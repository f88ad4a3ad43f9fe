"""`penstock stats`: the statistics of a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.text import json_text, safe
from penstock.client import Client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SUMMARY = "Show the statistics of a service."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--json", action="store_true", help="as one object")
    parser.add_argument(
        "service", nargs="?", default="job-manager", metavar="SERVICE", help="default: job-manager"
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        stats = client.stats(args.service)
    if args.json:
        print(json_text(stats))
        return 0
    rows = list(_flat("", stats))
    if not rows:
        print(f"`{safe(args.service)}` has no statistics")
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    return 0


def _flat(prefix: str, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(f"{prefix}{key}.", value)
        else:
            text = safe(value) if isinstance(value, str) else json_text(value)
            yield safe(prefix + key), text
