"""`penstock purge`: remove inactive jobs from the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.cli.arguments import seconds, userid, whole
from penstock.cli.ids import JobIds
from penstock.client import Client
from penstock.errors import UsageError

if TYPE_CHECKING:
    import argparse

SUMMARY = """Remove inactive jobs permanently; without --force, only count them.

For the instance owner these are jobs of all users, or with --user those of one; a guest can remove
the guest's own. The limits are about the jobs of that user then. The configuration's [job-manager]
has the same limits for automatic purging: inactive-age-limit and inactive-num-limit."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-f", "--force", action="store_true", help="remove them")
    add("--age-limit", type=seconds, metavar="FSD", help="jobs that ended longer ago than this")
    add("--num-limit", type=whole, metavar="N", help="the oldest, until N are left")
    add("-u", "--user", type=userid, metavar="USER", help="jobs of this user (name or id)")
    add("--json", action="store_true", help="the numbers as one object")
    add("id", nargs="*", action=JobIds, metavar="ID", help="these jobs; `-`: from standard input")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    limits = (args.age_limit, args.num_limit, args.user)
    if not args.id and all(limit is None for limit in limits):
        raise UsageError("expected job ids, --user, --age-limit or --num-limit (0: all)")
    with Client() as client:
        purged = client.purge(
            args.id or None,
            age_limit=args.age_limit,
            num_limit=args.num_limit,
            userid=args.user,
            force=args.force,
        )
    if args.json:
        print(json.dumps(purged))
        return 0
    count, left = purged["count"], purged["inactives"]
    if args.force:
        print(f"{_jobs(count)} purged, {left} left")
    else:
        print(f"{_jobs(count)} would be purged of {left} (--force does it)")
    return 0


def _jobs(count: int) -> str:
    return f"{count} inactive {'job' if count == 1 else 'jobs'}"
