"""`penstock sched`: the scheduler as a process of its own."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import get_args

from penstock.cli.arguments import queue_policy
from penstock.config.tables import SchedulerSettings, Selection
from penstock.errors import UsageError

SUMMARY = """Run a scheduler as a process of its own, attached to an instance that has none
(`penstock start --sched none`). It can be killed and restarted while jobs run."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--uri", help="the instance (default: PENSTOCK_URI)")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="take at most N requests at a time (default: all)"
    )
    parser.add_argument(
        "--policy",
        type=queue_policy,
        metavar="NAME",
        help="queue policy: fcfs, easy, conservative, hybrid:N "
        f"(default {SchedulerSettings.policy})",
    )
    parser.add_argument(
        "--selection",
        choices=get_args(Selection),
        help=f"the choice among suitable nodes (default {SchedulerSettings.selection})",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a configuration (TOML) with the table penstock.scheduler, which options override",
    )
    # The daemon passes its own configuration by this option.
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    parser.add_argument(
        "--no-grow",
        action="store_true",
        help="do not request new nodes, for a broker that rejects a payload of resource.acquire",
    )
    parser.add_argument(
        "--severities",
        action="store_true",
        help="begin each line of the log with its severity, such as <6>, for systemd or another "
        "supervisor",
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    from penstock import sched
    from penstock.cli.logformat import log_to_stderr

    if args.limit is not None and not 1 <= args.limit <= 0x7FFFFFFF:
        raise UsageError(f"--limit: expected 1 to 2147483647, found {args.limit}")
    if args.severities:
        log_to_stderr(logging.DEBUG, "%(message)s", severities=True)
    else:
        log_to_stderr(logging.INFO, "penstock sched: %(message)s")
    settings, limit = _settings(args)
    return sched.run(args.uri, limit, grow=not args.no_grow, settings=settings)


def _settings(args: argparse.Namespace) -> tuple[str, int | None]:
    """The scheduler's settings as JSON, and the limit of outstanding requests."""
    from penstock.config import Config, load, scheduler_settings

    config = load(args.config) if args.config else Config()
    settings = json.loads(args.settings) if args.settings else scheduler_settings(config)
    chosen = {key: getattr(args, key) for key in ("policy", "selection")}
    settings |= {key: value for key, value in chosen.items() if value}
    return json.dumps(settings), args.limit or config.penstock.scheduler.limit or None
