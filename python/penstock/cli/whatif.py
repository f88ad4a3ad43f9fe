"""`penstock what-if`: the predicted effect of a change."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from penstock._core import IDset, ResourceSet
from penstock.cli import joboptions, planned
from penstock.cli.arguments import seconds, whole
from penstock.cli.ids import OneJobId
from penstock.cli.planned import Planner, by_states
from penstock.cli.queue_settings import check_queue, queue_constraint
from penstock.cli.rows import tell
from penstock.cli.text import clock, json_text, safe, span
from penstock.client import Client
from penstock.errors import Error, RpcError, UsageError
from penstock.jobid import f58

if TYPE_CHECKING:
    import argparse

    from penstock.rows import Moved

SUMMARY = """Predict the effect of a change, without making it: the scheduler simulates a snapshot
in which running jobs end at their time limits and nothing else is submitted."""

MAX_SHOWN_JOBS = 20


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    planned.register(parser)
    parser.add_argument("--json", action="store_true", help="the answer as one object")
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="submit|change|fit|cancel|down|up"
    )
    submit = verbs.add_parser("submit", help="when a new job would start")
    joboptions.register(submit, words_help="program and arguments, which may be omitted")
    change = verbs.add_parser("change", help="a pending job with another node count or time limit")
    change.add_argument("id", action=OneJobId, metavar="ID")
    wanted = change.add_mutually_exclusive_group(required=True)
    wanted.add_argument("-N", "--nodes", type=whole, metavar="N", help="nodes")
    wanted.add_argument(
        *("-t", "--time-limit"),
        type=seconds,
        metavar="FSD",
        help="time limit: seconds, or with a suffix (30m, 2h)",
    )
    fit = verbs.add_parser("fit", help="the node or task count with which a job would start now")
    fit.add_argument("id", action=OneJobId, metavar="ID")
    cancel = verbs.add_parser("cancel", help="which jobs would start earlier without a job")
    cancel.add_argument("id", action=OneJobId, metavar="ID")
    for name, text in (("down", "nodes went down"), ("up", "nodes came up")):
        nodes = verbs.add_parser(name, help=f"{text}: which jobs would start at another time")
        nodes.add_argument("targets", metavar="TARGETS", help="an idset of ranks or a hostlist")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    change: dict[str, Any]
    if args.verb == "submit":
        args.command = args.command or ["true"]  # the command makes no difference
        specs = joboptions.jobspecs(args)
        if len(specs) != 1:
            raise UsageError("--cc: expected one copy")
        change = {"submit": specs[0], "urgency": args.urgency}
    elif args.verb in ("cancel", "fit"):
        change = {args.verb: args.id}
    elif args.verb == "change" and args.nodes is not None:
        change = {"job": args.id, "nodes": args.nodes}
    elif args.verb == "change":
        change = {"job": args.id, "duration": args.time_limit}
    else:
        change = {}
    with Client(args.uri) as client:
        if "submit" in change:
            _complete(change["submit"], client.config())
        elif not change:
            change = {args.verb: _ranks(client, args.targets)}
        try:
            answer = Planner(client, args, "what-if").ask(
                lambda scheduler: scheduler.what_if(change)
            )
        except RpcError as error:
            if error.errno != errno.EINVAL or "id" not in args:
                raise
            # The scheduler knows pending jobs only: the state tells why it does not know this one.
            _, unknown = by_states(client, [args.id])
            if not unknown:
                raise
            return tell("what-if", unknown)
    if args.json:
        print(json_text(answer))
        return 0
    print(safe(answer["text"]))
    now = args.clock.now()
    for moved in answer["moved"][:MAX_SHOWN_JOBS]:
        print(f"  {_moved(moved, now)}")
    if more := answer["moved"][MAX_SHOWN_JOBS:]:
        print(f"  and {len(more)} more")
    return 0


def _complete(spec: dict[str, Any], config: dict[str, Any]) -> None:
    """Fills in the defaults that an instance with this configuration adds at submission.

    Raises:
        Error: there is no such queue.
    """
    system = spec["attributes"]["system"]
    policy = config.get("policy", {})
    queues = config.get("queues", {})
    defaults = policy.get("jobspec", {}).get("defaults", {}).get("system", {})
    name = system.get("queue") or defaults.get("queue")
    if name is not None:
        system["queue"] = name
        check_queue(name, queues)
    queue = queues.get(name, {})
    own = queue.get("policy", {}).get("jobspec", {}).get("defaults", {}).get("system", {})
    if not system.get("duration"):
        system["duration"] = own.get("duration", defaults.get("duration", 0.0))
    parts = [part for part in (system.get("constraints"), queue_constraint(queue)) if part]
    if parts:
        system["constraints"] = {"and": parts} if len(parts) > 1 else parts[0]


def _ranks(client: Client, targets: str) -> str:
    """The ranks of targets that are named by ranks or by hosts.

    Raises:
        Error: the scheduler has no such rank or host.
    """
    resources = ResourceSet(client.sched_status()["all"])
    try:
        ranks = IDset(targets)
    except Error:
        ranks = IDset(resources.host_ranks(targets))
    if not ranks or not ranks <= resources.ranks:
        known = resources.nodelist
        raise Error(f"`{targets}`: expected ranks or hosts that the scheduler may use: {known}")
    return str(ranks)


def _moved(moved: Moved, now: float) -> str:
    """A job's start before and after."""
    before, after = moved["before"], moved["after"]
    words = [("not foreseen" if start is None else clock(start, now)) for start in (before, after)]
    text = f"{f58(moved['id'])}: {words[0]} → {words[1]}"
    if before is None or after is None:
        return text
    change = after - before
    long = span(abs(change)) if abs(change) >= 1 else "less than 1 s"
    return f"{text} ({long} {'later' if change > 0 else 'earlier'})"
