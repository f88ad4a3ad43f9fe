"""`penstock job`: exceptions, events, time and task map of a job, where Flux has them."""

from __future__ import annotations

import json
import os
import re
from argparse import ArgumentTypeError
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock._core import IDset, ResourceSet, fluid_parse, job_state, lay_out, topic
from penstock.cli.arguments import key_value, seconds
from penstock.cli.eventlog import has_context
from penstock.cli.ids import JobIds, OneJobId
from penstock.cli.rows import show_changes
from penstock.cli.text import duration, id_text, json_text, safe
from penstock.client import Client
from penstock.errors import Error, NotFoundError, RpcError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from penstock.rows import Event

SUMMARY = """Raise exceptions of jobs, wait for their events, show their remaining time and task
map.

`penstock raise`, `last`, `timeleft`, `taskmap` and `job-wait-event` are short forms. `penstock job`
also takes the verbs attach, cancel, eventlog, info, kill, memo, purge and urgency."""

NO_LIMIT = 2**32 - 1
SLICE = re.compile(r"\[-?\d*:-?\d*(:-?\d*)?\]")


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    verbs = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")

    def add(name: str, text: str, run: Any) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=run)
        return verb

    _register_raise(add("raise", "raise an exception (RFC 21) of jobs", _raise))
    _register_wait_event(add("wait-event", "wait until a job has an event", _wait_event))
    _register_taskmap(add("taskmap", "show which tasks run on which nodes (RFC 34)", _taskmap))
    left = add("timeleft", "show the seconds left of a job's time limit", _timeleft)
    left.add_argument("-H", "--human", action="store_true", help="as a duration (RFC 23)")
    left.add_argument(
        "id", nargs="?", action=OneJobId, metavar="ID", help="default: the job that this runs in"
    )
    last = add("last", "show the id of this user's newest job, or of several", _last)
    last.add_argument(
        "range",
        nargs="?",
        type=_slice,
        default="[:1]",
        metavar="N|SLICE",
        help="the N newest, or a slice of the 1,000 newest: `[1:4]`, `[:]`",
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    return int(args.run(args))


# --- raise


def _register_raise(verb: argparse.ArgumentParser) -> None:
    add = verb.add_argument
    add(
        "-s",
        "--severity",
        type=int,
        choices=range(8),
        default=0,
        metavar="N",
        help="0, which ends the job, to 7 (default 0)",
    )
    add("-t", "--type", default="cancel", metavar="TYPE", help="a word (default cancel)")
    add("-m", "--message", default="", metavar="NOTE", help="a note for the record")
    add("id", nargs="+", action=JobIds, metavar="ID")


def _raise(args: argparse.Namespace) -> int:
    with Client() as client:
        response = client.raise_exception(
            args.id, args.type, severity=args.severity, note=args.message
        )
    return show_changes("job raise", args.id, response, "got the exception")


# --- wait-event


def _register_wait_event(verb: argparse.ArgumentParser) -> None:
    add = verb.add_argument
    add("-t", "--timeout", type=seconds, metavar="FSD", help="fail if no event comes for this long")
    add(
        "-m",
        "--match-context",
        type=key_value,
        metavar="KEY=VALUE",
        help="only an event with this in its context",
    )
    add("-c", "--count", type=_count, default=1, metavar="N", help="the Nth such event (default 1)")
    add("-f", "--format", choices=("text", "json"), default="text", help="of the event")
    add("-q", "--quiet", action="store_true", help="do not print the event")
    add("-v", "--verbose", action="store_true", help="print the events before it, too")
    add("id", action=OneJobId, metavar="ID")
    add("event", metavar="EVENT", help="its name, such as `start` or `clean`")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ArgumentTypeError(f"expected a number from 1, found `{text}`")
    return int(text)


def _wait_event(args: argparse.Namespace) -> int:
    left = args.count
    with Client(timeout=args.timeout) as client, client.eventlog(args.id, follow=True) as events:
        for event in events:
            is_match = event["name"] == args.event and has_context(event, args.match_context)
            left -= is_match
            if (left == 0 and not args.quiet) or args.verbose:
                print(_event_text(event, args.format), flush=True)
            if left == 0:
                return 0
    raise NotFoundError(f"{id_text(args.id)} has ended without the event `{args.event}`")


def _event_text(event: Event, form: str) -> str:
    if form == "json":
        return json_text(event)
    words = [f"{safe(key)}={json_text(value)}" for key, value in event.get("context", {}).items()]
    return " ".join([f"{event['timestamp']:.6f}", safe(event["name"]), *words])


# --- taskmap


def _register_taskmap(verb: argparse.ArgumentParser) -> None:
    one = verb.add_mutually_exclusive_group()
    for name, metavar, text in (
        ("--taskids", "NODE", "the ranks of the tasks of a node of the job"),
        ("--ntasks", "NODE", "the number of tasks of a node of the job"),
        ("--nodeid", "TASK", "the node of a task, from 0 within the job"),
        ("--hostname", "TASK", "the host of a task"),
    ):
        one.add_argument(name, type=int, metavar=metavar, help=text)
    one.add_argument(
        "--to", choices=("raw", "pmi", "multiline"), help="another form (default: RFC 34's)"
    )
    verb.add_argument("id", action=OneJobId, metavar="ID")


def _taskmap(args: argparse.Namespace) -> int:
    with Client() as client:
        with client.eventlog(args.id, follow=True) as events:
            if not any(event["name"] == "alloc" for event in events):
                raise NotFoundError(f"{id_text(args.id)} has ended without resources")
        found = client.lookup(args.id, "jobspec", "R")
    tasks = lay_out(found["jobspec"], ResourceSet(found["R"]))
    nodes = [task.node_index for task in tasks]
    if args.nodeid is not None:
        print(_item(nodes, args.nodeid))
    elif args.hostname is not None:
        print(safe(_item([task.host for task in tasks], args.hostname)))
    elif args.taskids is not None or args.ntasks is not None:
        wanted = args.ntasks if args.taskids is None else args.taskids
        ranks = [task for task, node in enumerate(nodes) if node == wanted]
        if not ranks:
            raise NotFoundError(f"no task runs on node {wanted}: expected 0 to {max(nodes)}")
        print(len(ranks) if args.taskids is None else IDset(ranks))
    else:
        print(_map_text(nodes, args.to))
    return 0


def _item(values: Sequence[Any], task: int) -> Any:
    if not 0 <= task < len(values):
        raise NotFoundError(f"no task {task}: expected 0 to {len(values) - 1}")
    return values[task]


def _map_text(nodes: list[int], form: str | None) -> str:
    if form == "multiline":
        return "\n".join(f"{task}: {node}" for task, node in enumerate(nodes))
    if form == "raw":
        by_node = [
            [task for task, node in enumerate(nodes) if node == wanted]
            for wanted in range(max(nodes) + 1)
        ]
        return ";".join(str(IDset(ranks)) for ranks in by_node)
    blocks = taskmap(nodes)
    if form == "pmi":
        vector = [f"({first},{count},{per})" for first, count, per, _ in blocks]
        return f"(vector,{','.join(vector)})"
    return json.dumps(blocks, separators=(",", ":"))


def taskmap(nodes: Sequence[int]) -> list[list[int]]:
    """The blocks of a task map (RFC 34): first node, number of nodes, tasks of each, repetitions.

    Args:
        nodes: the node of each task, by task rank.

    >>> taskmap([0, 0, 1, 1, 2])
    [[0, 2, 2, 1], [2, 1, 1, 1]]
    """
    blocks: list[list[int]] = []
    for node, tasks in groupby(nodes):
        count = len(list(tasks))
        last = blocks[-1] if blocks else None
        if last and last[0] + last[1] == node and last[2] == count:
            last[1] += 1
        else:
            blocks.append([node, 1, count, 1])
    return blocks


# --- timeleft


def _timeleft(args: argparse.Namespace) -> int:
    job = args.id
    if job is None and (text := os.environ.get("PENSTOCK_JOB_ID")):
        job = fluid_parse(text)
    with Client() as client:
        if job is None:
            end = _own_expiration(client)
        else:
            row = client.job_row(job)
            if row["state"] < job_state.RUN:
                raise Error(f"{id_text(job)} is pending: it has no end yet")
            ended = row["state"] != job_state.RUN
            end = args.clock.now() if ended else row.get("expiration", 0.0)
    left = max(int(end - args.clock.now()), 0) if end else NO_LIMIT
    if args.human:
        print(duration(left) if end else "infinity")
    else:
        print(left)
    return 0


def _own_expiration(client: Client) -> float:
    """The end of the instance, if it runs in a job; 0 without a time limit."""
    try:
        client.rpc(topic.broker.ATTR_GET, {"name": "jobid"})
    except RpcError:
        raise Error("not in a job: expected a job id") from None
    return ResourceSet(client.resource_status()["R"]).expiration or 0.0


# --- last


def _slice(text: str) -> str:
    if text.isascii() and text.isdecimal():
        return f"[:{text}]"
    if not SLICE.fullmatch(text):
        raise ArgumentTypeError(f"expected a number or a slice such as `[1:4]`, found `{text}`")
    return text


def _last(args: argparse.Namespace) -> int:
    with Client() as client:
        jobs = client.rpc(topic.job_manager.HISTORY_GET, {"slice": args.range})["jobs"]
    if not jobs and args.range == "[:1]":
        raise NotFoundError("you have submitted no job yet")
    for job in jobs:
        print(id_text(job))
    return 0
