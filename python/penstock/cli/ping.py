"""`penstock ping`: how long a service takes to answer."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING

from penstock.cli.arguments import seconds, whole
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = "Measure the round-trip time of a service of the instance (see `penstock services`)."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-c", "--count", type=whole, default=4, metavar="N", help="N times (default 4; 0: forever)")
    add(
        "-i", "--interval", type=seconds, default=1.0, metavar="FSD", help="in between (default 1s)"
    )
    add("--json", action="store_true", help="one object a line")
    add("service", metavar="SERVICE")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        number = 0
        while number < (args.count or math.inf):
            if number:
                time.sleep(args.interval)
            taken = client.ping(args.service, {"seq": number})
            row = {"service": args.service, "seq": number, "seconds": taken}
            text = f"{args.service}.ping seq={number} time={taken * 1000:.3f} ms"
            print(json.dumps(row) if args.json else text, flush=True)
            number += 1
    return 0
