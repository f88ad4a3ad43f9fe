"""`penstock watch`: the output of jobs, until they have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import selection
from penstock.cli.attach import Attachment
from penstock.cli.ids import JobIds
from penstock.cli.jobs import since
from penstock.cli.progress import Progress
from penstock.client import Client
from penstock.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

SUMMARY = """Show the output of jobs until they have ended; exit with the greatest of their exit
codes.

The jobs are those with these ids, or those that the options select: --active, --all, --filter or
--since. Without a job it exits with 0."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-a", "--active", action="store_true", help="all active jobs")
    add("--all", action="store_true", help="all jobs, the inactive ones, too")
    add(
        "--since",
        type=lambda text: since(text, parser.get_default("clock").now()),
        metavar="WHEN",
        help="jobs that were active after this: a duration before now (2h), an ISO date, @SECONDS",
    )
    Progress.register(parser)
    selection.register(parser)
    add("id", nargs="*", action=JobIds, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    selects = args.active or args.all or args.filter is not None or args.since is not None
    if selects == bool(args.id):
        raise UsageError("expected job ids, or --active, --all, --filter, --since")
    if args.jps and not args.progress:
        raise UsageError("--jps: expected --progress, too")
    with Client() as client:
        ids = args.id or _selected(client, args)
        if not ids:
            return 0
        return watch(client, "watch", args, ids)


def _selected(client: Client, args: argparse.Namespace) -> list[int]:
    every_state = args.all or (args.since is not None and not args.active)
    states = None if every_state else selection.ACTIVE
    rows = client.job_rows(
        constraint={"and": selection.constraint(args, states)},
        max_entries=args.count,
        since=args.since or 0.0,
        attrs=["id"],
    )
    # In the order of submission.
    return sorted(row["id"] for row in rows)


def watch(client: Client, verb: str, args: argparse.Namespace, ids: Sequence[int]) -> int:
    """Shows the output of jobs, and their progress if that was requested.

    Returns:
        The greatest of their exit codes.
    """
    attachment = Attachment(client, verb, args.clock, unbuffered=False)
    attachment.begin(ids)
    with Progress.of(args, len(ids)) as progress:
        attachment.progress = progress
        return attachment.follow()
