"""`penstock elastic`: a running job extends, releases, lends and reacquires resources."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from penstock.cli.arguments import seconds, whole
from penstock.cli.ids import OneJobId
from penstock.cli.text import clock, json_text, safe
from penstock.errors import DeniedError
from penstock.pmix import ATTRIBUTE_KEYS, Answer, Job

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

SUMMARY = """Extend, release, lend and reacquire resources from inside a job (PMIx RFC 0005).

The job is the one that the command runs in, or that of --job."""

VERBS = {
    "new": "get an allocation of its own, without tasks",
    "extend": "get more resources, or more time",
    "release": "release nodes",
    "lend": "lend nodes for some time",
    "reacquire": "reacquire lent nodes",
    "cancel": "cancel queued requests",
    "status": "show requests and loans",
}
GROWING_VERBS = ("new", "extend", "reacquire")


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS))
    for verb, text in VERBS.items():
        own = verbs.add_parser(verb, help=text, description=text)
        add = own.add_argument
        text = "the job; `-`: from standard input; default: the one this runs in"
        add("--job", action=OneJobId, metavar="ID", help=text)
        add("--json", action="store_true", help="as an object (status: one a line)")
        if verb in ("cancel", "status"):
            add("name", nargs="?", metavar="NAME", help="the request; default: all")
            continue
        add("--name", help="a name for the request")
        add("-N", "--nodes", type=whole, metavar="N", help="number of nodes")
        add("--required", action="store_true", help="deny unless all of it is available now")
        what = "the loan of this name" if verb == "reacquire" else "the allocation"
        if verb != "new":
            add("--alloc", metavar="ID", help=what)
        if verb != "reacquire":
            add("-w", "--hosts", metavar="LIST", help="the nodes, as a hostlist")
        if verb in ("new", "extend"):
            add("-c", "--cpus", type=whole, metavar="N", help="total number of cpus")
            add(
                "--cpus-per-host",
                metavar="LIST",
                help="cpus on each of --hosts, or of as many nodes: such as 5,3",
            )
            add("-q", "--queue", metavar="NAME", help="the queue of the request")
        if verb in ("new", "extend", "lend"):
            needed = verb == "lend"
            add("-t", "--time", type=seconds, metavar="FSD", required=needed, help="time (RFC 23)")
        if verb in GROWING_VERBS:
            text = "accept a part after this time"
            add("--timeout", type=seconds, metavar="FSD", help=text)
            text = "return once the request is queued"
            add("--no-wait", action="store_false", dest="wait", help=text)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    try:
        with Job(args.job) as job:
            return _main(job, args)
    except DeniedError as error:
        if not args.json:
            raise
        print(json_text({"status": error.status, "reason": error.reason}))
        return 1


def _main(job: Job, args: argparse.Namespace) -> int:
    if args.verb == "cancel":
        names = job.cancel(args.name)
        _show([{"cancelled": names}] if args.json else names, as_json=args.json)
        return 0
    if args.verb == "status":
        _status(job, args)
        return 0
    fields = [*ATTRIBUTE_KEYS, "required", "wait"]
    attributes = {field: getattr(args, field) for field in fields if hasattr(args, field)}
    answer: Answer = getattr(job, args.verb)(**attributes)
    shown = dataclasses.asdict(answer)
    if args.json:
        print(json_text(shown))
        return 0
    if not answer.granted:
        print(f"queued: {safe(answer.id or answer.alloc or '')}")
        return 0
    shown["cpus"] = _each(answer.cpus)
    for key in ("alloc", "hosts", "cpus", "time", "reason"):
        if shown[key]:
            print(f"{key:<8} {safe(str(shown[key]))}")
    return 0


def _status(job: Job, args: argparse.Namespace) -> None:
    rows = job.status(args.name)
    lent = [] if args.name else job.lent()
    if args.json:
        objects = [dataclasses.asdict(row) for row in rows]
        _show([*objects, *(dataclasses.asdict(one) for one in lent)], as_json=True)
        return
    lines, now = [], args.clock.now()
    for row in rows:
        text = row.reason or row.answer.hosts or _more(row.answer.time)
        if row.estimate is not None:
            text = f"{text}; expected at {clock(row.estimate, now)}".removeprefix("; ")
        lines.append(f"{row.id or row.alloc or '-':<16} {row.directive:<9} {row.state:<9} {text}")
    for one in lent:
        back = "" if one.until is None else f", until {clock(one.until, now)}"
        why = f": {one.reason}" if one.reason else ""
        lines.append(f"{one.id or '-':<16} {'lent':<9} {one.nodes:<9} of {one.hosts}{back}{why}")
    _show(lines, as_json=False)


def _each(cpus: Sequence[int]) -> str:
    """Cpus of each host, in order; one number if all are equal."""
    if len(set(cpus)) == 1:
        return f"{cpus[0]} each" if len(cpus) > 1 else f"{cpus[0]}"
    return ",".join(map(str, cpus))


def _more(time: int | None) -> str:
    return "" if time is None else f"{time} s more"


def _show(lines: Iterable[Any], *, as_json: bool) -> None:
    for line in lines:
        print(json_text(line) if as_json else safe(line))
