"""`penstock jobs`: a table of jobs."""

from __future__ import annotations

import math
import os
import re
import string
import sys
import textwrap
import time
from argparse import ArgumentTypeError
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain, islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from penstock._core import IDset
from penstock.cli import selection
from penstock.cli.arguments import seconds, whole
from penstock.cli.ids import JobIds
from penstock.cli.jobformats import (
    DEFAULT_FORMAT,
    FORMAT_WITH_QUEUES,
    NAMED_FORMATS,
    configured_formats,
    named_format,
)
from penstock.cli.rows import (
    ABBREVIATIONS,
    RESULTS,
    ROW_KEYS,
    STATES,
    job_row,
    nested_uri,
    user_uri,
)
from penstock.cli.text import clock, duration, first_jobs, id_text, json_text, safe
from penstock.client import Client
from penstock.errors import Error, FormatError, NotFoundError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.rows import JobRow

SUMMARY = """List jobs: by default the active ones of this user.

Running jobs come first, the most recently started first; then pending jobs in queue order; then
inactive jobs, the most recently ended first."""

DATE = "%FT%T"
TITLES = {
    "id": "JOBID",
    "username": "USER",
    "status_abbrev": "ST",
    "runtime": "TIME",
}


# The fields of a format: the keys of the result of `fields`.
FIELDS = frozenset(
    (
        *ROW_KEYS,
        *("id.f58", "id.dec", "id.hex", "username", "status_abbrev", "state_single"),
        *("runtime", "info", "uri", "t_estimate"),
    )
)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-a", action="store_true", dest="every_state", help="jobs in all states, not only active")
    selection.register(parser)
    add(
        "--skip",
        type=whole,
        default=0,
        metavar="N",
        help="without the first N: with -c, page by page",
    )
    add("--name", metavar="NAMES", help="jobs with these names")
    add("-n", "--no-header", action="store_true", help="without titles")
    add(
        "-o",
        "--format",
        metavar="FORMAT",
        help=f"such as `{{id:>12}} {{status}} {{reason}}`, or a name: {', '.join(NAMED_FORMATS)}, "
        "or one of your own",
    )
    add(
        "--color",
        nargs="?",
        choices=("auto", "always", "never"),
        default="auto",
        const="always",
        metavar="WHEN",
        help="colour rows by result: auto (default: in a terminal, unless NO_COLOR is set), always "
        "or never",
    )
    add(
        "--sort",
        type=_sort_keys,
        metavar="FIELDS",
        help="the order of the rows, such as `name,-t_submit`: with `-` the greatest first",
    )
    add("-i", "--include", metavar="NODES", help="jobs with these hosts or ranks")
    add(
        "-R",
        "--recursive",
        action="store_true",
        help="after the jobs of an instance, those of the instances that run in them",
    )
    add(
        "-L",
        "--level",
        type=whole,
        default=sys.maxsize,
        metavar="N",
        help="with -R: descend at most N levels",
    )
    add("--json", action="store_true", help="one object a line, with every key")
    add(
        "--since",
        type=lambda text: since(text, parser.get_default("clock").now()),
        metavar="WHEN",
        help="jobs that were active after this: a duration before now (2h), an ISO date, @SECONDS; "
        "it implies -a",
    )
    add(
        "--stats",
        "--stats-only",
        action="store_true",
        help="only the number of jobs in each state; implies -a",
    )
    add(
        "id",
        nargs="*",
        action=JobIds,
        metavar="ID",
        help="these jobs, of any user and in any state; `-`: from standard input",
    )
    parser.epilog = "\n".join(
        [
            "fields of a FORMAT:",
            *textwrap.wrap(
                ", ".join(sorted(FIELDS)), 78, initial_indent="  ", subsequent_indent="  "
            ),
            "",
            "Resource usage of ended tasks: max_rss_kib is the greatest resident set of one",
            "process in KiB; user_cpu and system_cpu are the CPU time of all tasks in seconds.",
            "",
            "The fields are the keys of --json, and some derived from them.",
            "A field is laid out as in Python: `{name:<10.10}` takes exactly ten columns. With !d",
            "a time is a date, laid out as by strftime: `{t_submit!d:%F %T}`. In a terminal `+`",
            "ends a line that does not fit.",
            "",
            "Formats of your own are in ~/.config/penstock/jobs.toml, those of the site in",
            "/etc/penstock/jobs.toml: a table [formats] with a line such as `mine = '{id} {name}'`",
            "for each. The one with the name `default` is used without -o.",
        ]
    )


def _sort_keys(text: str) -> list[tuple[str, bool]]:
    keys = [(name.removeprefix("-"), name.startswith("-")) for name in text.split(",")]
    for name, _ in keys:
        if name not in FIELDS:
            raise ArgumentTypeError(_unknown_field(name))
    return keys


def _unknown_field(name: str) -> str:
    return f"unknown field `{name}`: expected {', '.join(sorted(FIELDS))}"


def since(text: str, now: float) -> float:
    """A time in the past: `@SECONDS` since the epoch, an ISO date, or a duration before now.

    Raises:
        ArgumentTypeError: the text is not a time; that is bad usage.
    """
    try:
        if text.startswith("@"):
            when = float(text[1:])
        elif text.count("-") > 1:
            when = datetime.fromisoformat(text).timestamp()
        else:
            return now - seconds(text.removeprefix("-"))
        if math.isfinite(when):
            return when
    except (ArgumentTypeError, ValueError, OverflowError):
        pass
    expected = "a duration before now (2h), an ISO date and time, or @SECONDS since the epoch"
    raise ArgumentTypeError(f"expected {expected}, found `{text}`")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    ids = args.id or None
    # Reject an invalid format before any request.
    form = named_format(args.format) if args.format else configured_formats().get("default")
    formatter = RowFormatter(form) if form else None
    constraint = _constraint(args)
    with Client() as client:
        if args.queue:
            _check_queues(client, args.queue.split(","))
        if args.stats:
            rows = client.iter_job_rows(
                ids=ids, constraint=constraint, since=args.since or 0.0, attrs=STATS_ATTRIBUTES
            )
            counts = _stats(rows)
            text = ", ".join(f"{count} {kind}" for kind, count in counts.items())
            print(json_text(counts) if args.json else text)
            return 0
        _List(args, formatter).show(client, constraint, [])
    return 0


class _List:
    """The jobs of an instance, and of the instances in these jobs if that is requested."""

    def __init__(self, args: argparse.Namespace, formatter: RowFormatter | None) -> None:
        self._args = args
        self._formatter = formatter
        # The columns of the terminal.
        self._columns = get_terminal_size().columns if sys.stdout.isatty() else None
        self._is_colored = _is_colored(args.color)

    def show(self, client: Client, constraint: dict[str, Any], path: list[str]) -> None:
        """Prints the jobs of the instance in the job `path`, the last one of nested jobs."""
        args = self._args
        count = 0
        # Jobs of which nested ones are to be shown.
        nested = []
        with _rows(client, args, constraint) as listed:
            limit = args.count if args.count and not args.id else None
            rows: Iterator[JobRow] = islice(listed, limit)
            if args.sort:
                rows = iter(_sorted(list(rows), args.sort, args.clock.now()))
            # A request that is rejected shows nothing else.
            first = list(islice(rows, 1))
            write = self._writer(client, path)
            for row in chain(first, rows):
                write(row)
                count += 1
                if args.recursive and nested_uri(row) is not None:
                    nested.append(row)
            is_cut = limit is not None and next(listed, None) is not None
        if is_cut:
            sys.stdout.flush()
            shown = f"`--skip {args.skip + count}` shows the next, `-c 0` all"
            print(f"penstock jobs: only {_shown(args.skip, count)}: {shown}", file=sys.stderr)
        if len(path) < args.level:
            self._descend(nested, path)

    def _writer(self, client: Client, path: list[str]) -> Callable[[JobRow], None]:
        """Prints what comes before the rows; returns the function that prints one."""
        if self._args.json:
            place = {"instance": "/".join(path)} if self._args.recursive else {}
            return lambda row: print(json_text(job_row(row) | place))
        if path:
            print(f"\n{'/'.join(path)}:")
        if self._formatter is None:
            queues = client.config().get("queues")
            self._formatter = RowFormatter(FORMAT_WITH_QUEUES if queues else DEFAULT_FORMAT)
        formatter = self._formatter
        if not self._args.no_header:
            print(_fitted(formatter.header().rstrip(), self._columns))

        def write(row: JobRow) -> None:
            # Rows show jobs as they are when they are sent.
            values = fields(row, self._args.clock.now())
            line = _fitted(formatter.line(values).rstrip(), self._columns)
            color = COLORS.get(values["status"]) if self._is_colored else None
            print(f"\x1b[{color}m{line}\x1b[0m" if color else line)

        return write

    def _descend(self, rows: list[JobRow], path: list[str]) -> None:
        self._args.id = []
        constraint = _constraint(self._args)
        for row in rows:
            uri = nested_uri(row)
            # The instance may be another user's, or may have just ended.
            with suppress(Error, OSError):
                if uri is not None:
                    with Client(uri) as client:
                        self.show(client, constraint, [*path, id_text(row["id"])])


@contextmanager
def _rows(
    client: Client, args: argparse.Namespace, constraint: dict[str, Any]
) -> Iterator[Iterator[JobRow]]:
    """The rows in the order of the output as they arrive, one more than the limit."""
    since = args.since or 0.0
    if args.id:
        with client.iter_job_rows(ids=args.id, constraint=constraint, since=since) as rows:
            yield islice(rows, args.skip, None)
        return
    limit = args.count + 1 if args.count else 0
    with client.iter_job_rows(
        constraint=constraint, max_entries=limit, since=since, order="state", skip=args.skip
    ) as rows:
        yield iter(rows)


def _shown(skipped: int, count: int) -> str:
    """Names the rows that a limit has left."""
    if not skipped:
        return f"{first_jobs(count)} shown"
    return f"jobs {skipped + 1} to {skipped + count} are shown"


def _sorted(rows: list[JobRow], keys: list[tuple[str, bool]], now: float) -> list[JobRow]:
    """Rows sorted by fields; those without a value come last."""
    values: dict[int, list[Any]] = {}
    for row in rows:
        found = fields(row, now)
        columns = [found[name] for name, _ in keys]
        values[row["id"]] = [json_text(v) if isinstance(v, (dict, list)) else v for v in columns]
    for column, (_, is_descending) in reversed(list(enumerate(keys))):
        empty = [row for row in rows if values[row["id"]][column] in (None, "")]
        full = [row for row in rows if values[row["id"]][column] not in (None, "")]
        full.sort(key=lambda row: values[row["id"]][column], reverse=is_descending)
        rows = full + empty
    return rows


# By status: the parameter of "select graphic rendition" (ECMA-48).
COLORS = {"COMPLETED": 32, "FAILED": 31, "TIMEOUT": 31, "CANCELED": 90, "SCHED": 33}


def _is_colored(when: str) -> bool:
    if when == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return when == "always"


def _fitted(line: str, columns: int | None) -> str:
    """A line cut to the width of the terminal, with `+` at its end if it was longer."""
    return line if columns is None or len(line) <= columns else f"{line[: columns - 1]}+"


def _constraint(args: argparse.Namespace) -> dict[str, Any]:
    every_state = args.id or args.every_state or args.since is not None or args.stats
    states = None if every_state else selection.ACTIVE
    parts = selection.constraint(args, states, of_everyone=bool(args.id))
    if args.name:
        parts.append({"name": args.name.split(",")})
    if args.include:
        parts.append({"ranks" if _is_idset(args.include) else "hostlist": [args.include]})
    return {"and": parts}


def _is_idset(text: str) -> bool:
    try:
        IDset(text)
    except Error:
        return False
    return True


def _check_queues(client: Client, wanted: Sequence[str]) -> None:
    """Rejects a queue that does not exist, unless it has jobs from a time when it did.

    Raises:
        NotFoundError: there is no such queue.
    """
    known = client.queue_list()
    for name in wanted:
        if name in known or client.job_rows(
            constraint={"queue": [name]}, max_entries=1, attrs=["id"]
        ):
            continue
        if not known:
            raise NotFoundError(f"queue `{name}`: no queues are configured")
        raise NotFoundError(f"unknown queue `{name}`: expected {', '.join(known)}")


STATS_ATTRIBUTES = ("state", "result")
# In the order of the output.
STATS_KEYS = ("pending", "running", "completed", "failed", "canceled", "timeout")


def _stats(rows: Iterable[JobRow]) -> dict[str, int]:
    counts = dict.fromkeys(STATS_KEYS, 0)
    for row in rows:
        result = RESULTS.get(row.get("result", 0))
        state = STATES[row["state"]]
        running = "running" if state in ("RUN", "CLEANUP") else "pending"
        counts[result.lower() if result else running] += 1
    return counts


def fields(row: JobRow, now: float) -> dict[str, Any]:
    """The fields that a format can name: the `--json` keys and some derived from them."""
    shown = job_row(row)
    job = shown["id_int"]
    began = shown["t_run"]
    runtime = max(0.0, (shown["t_cleanup"] or now) - began) if began else 0.0
    start = row.get("annotations", {}).get("sched", {}).get("t_estimate")
    estimate = clock(start, now) if isinstance(start, (int, float)) and not began else ""
    info = shown["reason"] or shown["nodelist"] or ""
    return shown | {
        "id.f58": shown["id"],
        "id.dec": job,
        "id.hex": hex(job),
        "username": selection.username(shown["userid"]),
        "status_abbrev": ABBREVIATIONS[shown["status"]],
        "state_single": ABBREVIATIONS[shown["state"]] if shown["state"] != "INACTIVE" else "I",
        "runtime": duration(runtime) if began else "-",
        # The address of the instance in the job, if there is one.
        "uri": user_uri(row) or "",
        # When it is expected to start.
        "t_estimate": estimate,
        "info": f"{info}; starts at {estimate}" if estimate else info,
    }


class RowFormatter:
    """Formats rows by a format string with named fields.

    Args:
        form: as for `str.format`, such as `{id:>12} {name:<10.10}`.

    Raises:
        FormatError: the text cannot be read, or names a field that does not exist.
    """

    def __init__(self, form: str) -> None:
        try:
            # A dot in a field name is part of the name here.
            self._parts = list(string.Formatter().parse(form))
        except ValueError as error:
            raise FormatError(f"format `{form}`: {error}") from error
        for _, name, _, _ in self._parts:
            if name is not None and name not in FIELDS:
                raise FormatError(_unknown_field(name))

    def _fill(self, values: Mapping[str, Any]) -> str:
        text = []
        for literal, name, spec, conversion in self._parts:
            text.append(literal)
            if name is None:
                continue
            value, layout = values[name], spec or ""
            if conversion == "d":
                value, layout = _date(value, layout)
            text.append(_format(value, layout))
        return "".join(text)

    def line(self, values: Mapping[str, Any]) -> str:
        """A row's line."""
        return self._fill(values)

    def header(self) -> str:
        """The titles, in the columns of the rows."""
        names: Sequence[str] = [name for _, name, _, _ in self._parts if name is not None]
        titles = {name: TITLES.get(name, name.upper()) for name in names}
        return self._fill(titles)


def _date(value: Any, spec: str) -> tuple[str, str]:
    """A time as a date, and the layout of its column, whose width is that of every date."""
    layout = spec or DATE
    width = len(time.strftime(layout, time.localtime(0)))
    if isinstance(value, str):
        return value, f"<{width}"
    return time.strftime(layout, time.localtime(value)) if value else "-", f"<{width}"


def _format(value: Any, spec: str) -> str:
    if value is None:
        value = ""
    elif isinstance(value, (dict, list, bool)):
        value = json_text(value)
    elif isinstance(value, str):
        value = safe(value)
    try:
        return format(value, spec)
    except ValueError:
        # A number's format for what is a text here (a title, or nothing): its width is kept.
        width = re.match(r"([^<>^]?[<>^])?\D*(\d+)?", spec)
        align, size = (width[1] or "<", width[2] or "") if width else ("<", "")
        return format(str(value), f"{align}{size}")
