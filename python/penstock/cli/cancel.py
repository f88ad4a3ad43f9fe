"""`penstock cancel`: end jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from penstock.cli.arguments import userid
from penstock.cli.ids import JobIds
from penstock.cli.rows import count_text, show_count, tell_all
from penstock.client import Client
from penstock.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from penstock.rows import BulkResponse

SUMMARY = """Cancel jobs, pending or running.

--all selects all active jobs (for a guest, all of the guest's own), --user those of one user.
--states selects those in these states: of your own jobs, or of those of --all or --user. Job ids
exclude these options."""

STATES = ("active", "pending", "running", "depend", "priority", "sched", "run")


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("--all", action="store_true", help="all active jobs")
    add("-u", "--user", type=userid, metavar="USER", help="active jobs of this user (name or id)")
    add("-S", "--states", metavar="STATES", help=f"jobs in these states: {', '.join(STATES)}")
    add("-q", "--quiet", action="store_true", help="without the number of cancelled jobs")
    add("-m", "--message", default="", metavar="NOTE", help="a note for the record")
    add("id", nargs="*", action=JobIds, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    many = args.all or args.user is not None or args.states is not None
    if many == bool(args.id):
        raise UsageError("expected job ids, or --all, --user, --states")
    states = args.states.lower().split(",") if args.states else []
    if unknown := [state for state in states if state not in STATES]:
        raise UsageError(f"unknown state `{unknown[0]}`: expected {', '.join(STATES)}")
    with Client() as client:
        if args.id:
            response = client.cancel(args.id, note=args.message)
            if not args.quiet:
                show_count(args.id, response.done, "cancelled")
            return tell_all("cancel", response)
        response = _cancel_many(client, args, states)
    if not args.quiet:
        print(count_text(response.done, "cancelled"))
    return tell_all("cancel", response)


def _cancel_many(client: Client, args: argparse.Namespace, states: list[str]) -> BulkResponse:
    if not states:
        return client.cancel(note=args.message, userid=args.user)
    parts: list[dict[str, Any]] = [{"states": states}, {"states": ["active"]}]
    if args.user is not None:
        parts.append({"userid": [args.user]})
    elif not args.all:
        parts.append({"userid": [os.getuid()]})
    rows = client.iter_job_rows(constraint={"and": parts}, attrs=["id"])
    return client.cancel([row["id"] for row in rows], note=args.message)
