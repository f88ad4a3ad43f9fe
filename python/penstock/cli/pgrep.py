"""`penstock pgrep`: jobs by name."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._core import fluid_parse
from penstock.cli import selection
from penstock.cli.jobformats import NAMED_FORMATS, named_format
from penstock.cli.jobs import RowFormatter, fields
from penstock.cli.text import first_jobs, id_text
from penstock.client import Client
from penstock.errors import JobspecError

if TYPE_CHECKING:
    import argparse

    from penstock.rows import JobRow

SUMMARY = """Print the ids of jobs whose names match, by default of your active ones.

An EXPRESSION is a regular expression, or a range of ids `ID..ID`; `name:` before it makes it a
regular expression in any case. A job must match all of them. Exits with 1 if no job does."""


class Expression(NamedTuple):
    """A condition on a job: a pattern of its name, or a range of ids."""

    pattern: re.Pattern[str] | None
    first: int = 0
    last: int = 0

    def matches(self, row: JobRow) -> bool:
        """Whether a job meets the condition."""
        if self.pattern is None:
            return self.first <= row["id"] <= self.last
        return self.pattern.search(row["name"]) is not None


def expression(text: str) -> Expression:
    """`PATTERN`, `name:PATTERN` or `ID..ID`.

    Raises:
        ArgumentTypeError: the pattern is invalid; that is bad usage.
    """
    first, dots, last = text.partition("..")
    if dots:
        try:
            return Expression(None, fluid_parse(first), fluid_parse(last))
        except JobspecError:
            # Not a range: a pattern with two dots.
            pass
    try:
        return Expression(re.compile(text.removeprefix("name:")))
    except re.error as error:
        raise ArgumentTypeError(f"invalid regular expression `{text}`: {error}") from None


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-a", action="store_true", dest="every_state", help="jobs in all states, not only active")
    add("-n", "--no-header", action="store_true", help="without titles")
    add(
        "-o",
        "--format",
        metavar="FORMAT",
        help=f"as of `penstock jobs`, or a name: {', '.join(NAMED_FORMATS)} (default: the id)",
    )
    register_expressions(parser)


def register_expressions(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `pkill` has as well."""
    selection.register(parser)
    parser.add_argument("expression", nargs="+", type=expression, metavar="EXPRESSION")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    formatter = RowFormatter(named_format(args.format)) if args.format else None
    states = None if args.every_state else selection.ACTIVE
    with Client() as client:
        rows = matching(client, "pgrep", args, states, ["all"] if formatter else ["name"])
    if formatter is not None and not args.no_header:
        print(formatter.header().rstrip())
    for row in rows:
        if formatter is None:
            print(id_text(row["id"]))
        else:
            print(formatter.line(fields(row, args.clock.now())).rstrip())
    return 0 if rows else 1


def matching(
    client: Client,
    verb: str,
    args: argparse.Namespace,
    states: dict[str, Any] | None,
    attrs: list[str],
) -> list[JobRow]:
    """The rows of the jobs that match, the newest first."""
    parts = selection.constraint(args, states)
    rows: list[JobRow] = []
    with client.iter_job_rows(constraint={"and": parts}, attrs=attrs) as listed:
        for row in listed:
            if all(expression.matches(row) for expression in args.expression):
                if args.count and len(rows) == args.count:
                    text = f"only {first_jobs(args.count)} selected: `-c 0` selects all"
                    print(f"penstock {verb}: {text}", file=sys.stderr)
                    break
                rows.append(row)
    return rows
