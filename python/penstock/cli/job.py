"""`penstock job`: exceptions, events, time and task map of a job, where Flux has them."""

from __future__ import annotations

import json
import os
import re
from argparse import ArgumentTypeError
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from penstock._core import ResourceSet, fluid_parse, job_state, tasks_by_node, topic
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
    resources = ResourceSet(found["R"])
    counts = tasks_by_node(found["jobspec"], resources)
    if not any(counts):
        raise NotFoundError(f"{id_text(args.id)} has no tasks")
    if args.nodeid is not None:
        print(_node_of(args.nodeid, counts))
    elif args.hostname is not None:
        hosts = [node.host for node in resources.nodes()]
        print(safe(hosts[_node_of(args.hostname, counts)]))
    elif args.taskids is not None or args.ntasks is not None:
        wanted = args.ntasks if args.taskids is None else args.taskids
        ranks = _ranks_by_node(counts)
        if not 0 <= wanted < len(ranks) or not ranks[wanted]:
            raise NotFoundError(f"no task runs on node {wanted}: expected 0 to {len(ranks) - 1}")
        print(len(ranks[wanted]) if args.taskids is None else _set_text(ranks[wanted]))
    elif args.to == "multiline":
        # A job can have millions of tasks.
        for node, tasks in enumerate(_ranks_by_node(counts)):
            for task in tasks:
                print(f"{task}: {node}")
    else:
        print(_map_text(counts, args.to))
    return 0


def _ranks_by_node(counts: Sequence[int]) -> list[range]:
    """The ranks of the tasks on each node, up to the last node with tasks."""
    ends = list(accumulate(counts))
    ranks = [range(end - count, end) for count, end in zip(counts, ends, strict=True)]
    while ranks and not ranks[-1]:
        ranks.pop()
    return ranks


def _node_of(task: int, counts: Sequence[int]) -> int:
    ends = list(accumulate(counts))
    if not 0 <= task < ends[-1]:
        raise NotFoundError(f"no task {task}: expected 0 to {ends[-1] - 1}")
    return bisect_right(ends, task)


def _set_text(ranks: range) -> str:
    if len(ranks) > 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return "".join(map(str, ranks))


def _map_text(counts: Sequence[int], form: str | None) -> str:
    if form == "raw":
        return ";".join(_set_text(ranks) for ranks in _ranks_by_node(counts))
    blocks = taskmap(counts)
    if form == "pmi":
        vector = [f"({first},{count},{per})" for first, count, per, _ in blocks]
        return f"(vector,{','.join(vector)})"
    return json.dumps(blocks, separators=(",", ":"))


def taskmap(counts: Sequence[int]) -> list[list[int]]:
    """The blocks of a task map (RFC 34): first node, number of nodes, tasks of each, repetitions.

    Args:
        counts: the number of tasks on each node. Ranks ascend from node to node.

    >>> taskmap([2, 2, 1])
    [[0, 2, 2, 1], [2, 1, 1, 1]]
    """
    blocks: list[list[int]] = []
    for node, count in enumerate(counts):
        last = blocks[-1] if blocks else None
        if last and last[0] + last[1] == node and last[2] == count:
            last[1] += 1
        elif count:
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
