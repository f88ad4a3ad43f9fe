"""Selections of jobs: the options and words that the verbs about many jobs share."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

from penstock.cli.arguments import userid, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    import argparse

ACTIVE: dict[str, Any] = {"states": ["active"]}
# The words of --filter, and the operators that take them.
FILTERS = {
    "pending": "states",
    "running": "states",
    "active": "states",
    "inactive": "states",
    "depend": "states",
    "priority": "states",
    "sched": "states",
    "run": "states",
    "cleanup": "states",
    "completed": "results",
    "failed": "results",
    "canceled": "results",
    "timeout": "results",
}


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select jobs."""
    add = parser.add_argument
    add("-A", action="store_true", dest="every_user", help="jobs of all users")
    add(
        "-u",
        "--user",
        type=user,
        metavar="USER",
        help="jobs of this user (name or id; `all` for everyone)",
    )
    add("-f", "--filter", metavar="WORDS", help=f"states or results: {', '.join(FILTERS)}")
    add("-q", "--queue", metavar="NAMES", help="jobs of these queues")
    add(
        "-c",
        "--count",
        type=whole,
        default=1000,
        metavar="N",
        help="the first N (default 1000; 0: all)",
    )


def user(text: str) -> int | str:
    """A user by name or number, or `all`."""
    return text if text == "all" else userid(text)


def filtered(text: str) -> dict[str, Any]:
    """The constraint (RFC 43) of the words of `--filter`.

    Raises:
        UsageError: a word is neither a state nor a result.
    """
    parts: dict[str, list[str]] = {}
    for word in text.lower().split(","):
        if word not in FILTERS:
            raise UsageError(f"unknown filter `{word}`: expected {', '.join(FILTERS)}")
        parts.setdefault(FILTERS[word], []).append(word)
    return {"or": [{operator: words} for operator, words in parts.items()]}


def constraint(
    args: argparse.Namespace, states: dict[str, Any] | None, *, of_everyone: bool = False
) -> list[dict[str, Any]]:
    """The constraints of the options of `register`, all of which hold for a selected job.

    Args:
        args: the options.
        states: the jobs that are selected without `--filter`; None for all.
        of_everyone: without `-A` and `--user` jobs of all users are selected, else of this one.

    Raises:
        UsageError: a word of `--filter` is neither a state nor a result.
    """
    parts: list[dict[str, Any]] = []
    if args.filter:
        parts.append(filtered(args.filter))
    elif states:
        parts.append(states)
    owner = args.user if args.user is not None or of_everyone else os.getuid()
    if owner not in (None, "all") and not args.every_user:
        parts.append({"userid": [owner]})
    if args.queue:
        parts.append({"queue": args.queue.split(",")})
    return parts


def username(userid: int) -> str:
    """The name of a user, or the number of one without a name."""
    try:
        return pwd.getpwuid(userid).pw_name
    except KeyError:
        return str(userid)
