"""`penstock uptime`: how long the instance has run, and its state in a few words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock._core import IDset, ResourceSet, topic
from penstock.cli.selection import username
from penstock.cli.text import clock, safe, span
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = """Show how long the instance has run, its owner, depth and size, the number of drained
and offline nodes, and whether all queues are disabled or stopped."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--json", action="store_true", help="one object")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        row = _row(client)
    if args.json:
        print(json.dumps(row))
        return 0
    now = args.clock.now()
    words = [
        f"{clock(now, now)} {safe(row['state'])} {span(row['duration'])}",
        f"owner {safe(row['owner'])}",
        f"depth {row['depth']}",
        f"size {row['size']}",
        *(f"{row[key]} {key}" for key in ("drained", "offline") if row[key]),
    ]
    print(",  ".join(words))
    states = ["submit disabled"] * row["is_disabled"] + ["scheduler stopped"] * row["is_stopped"]
    if states:
        print("  " + ", ".join(states))
    return 0


def _row(client: Client) -> dict[str, Any]:
    def attribute(name: str) -> str:
        return str(client.rpc(topic.broker.ATTR_GET, {"name": name})["value"])

    state = client.rpc(topic.broker.STATE_GET)
    status = client.resource_status()
    names: list[str | None] = [*client.queue_list()]
    queues = [client.queue_status(name) for name in names or [None]]
    return {
        "state": state["state"],
        "duration": state["duration"],
        "owner": username(int(attribute("security.owner"))),
        "depth": int(attribute("instance-level")),
        "size": ResourceSet(status["R"]).nnodes,
        "drained": sum(len(IDset(ranks)) for ranks in status["drain"]),
        "offline": len(IDset(status["offline"])),
        "is_disabled": not any(queue["enable"] for queue in queues),
        "is_stopped": not any(queue["start"] for queue in queues),
    }
