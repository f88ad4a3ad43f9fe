"""`penstock resource`: the inventory, the state of its targets, and their administration."""

from __future__ import annotations

import errno
import json
import operator
import sys
from argparse import ArgumentTypeError
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._core import Hostlist, IDset, ResourceSet, parse_duration, topic
from penstock.cli import resource_eventlog
from penstock.cli.queue_settings import check_queue, queue_constraint
from penstock.cli.text import local_time, safe
from penstock.client import Client
from penstock.errors import Error, FormatError, RpcError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from penstock.resource import Node
    from penstock.rows import DrainMode, ResourceStatus, UndrainMode

SUMMARY = """List resources by state, and administer them: drain and undrain nodes, add and remove
nodes, properties, and the expiration of the resources. TARGETS are ranks (an idset) or hosts
(a hostlist). Changes survive a restart."""

# By default the first three are shown.
LIST_STATES = ("free", "allocated", "down", "up", "all")
STATUS_STATES = ("avail", "exclude", "offline", "online", "drained", "draining", "drain")
LIST_FIELDS = ("state", "nnodes", "ncores", "ngpus", "ranks", "nodelist")
STATUS_FIELDS = ("state", "nnodes", "ranks", "nodelist", "reason")


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def add(name: str, text: str, run: Any, *aliases: str) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(
            name, help=text, description=text, aliases=aliases
        )
        verb.set_defaults(run=run)
        return verb

    listed = add("list", "the scheduler's resources: free, allocated, down", _list)
    _register_selection(listed, LIST_STATES)
    _register_format(listed, LIST_FIELDS)
    status = add("status", "every node: available, drained, offline, excluded", _status)
    _register_selection(status, STATUS_STATES)
    _register_format(status, STATUS_FIELDS)
    info = add("info", "the number of nodes, cores and gpus", _info)
    _register_selection(info, LIST_STATES)
    info.add_argument("--json", action="store_true", help="one object")
    _register_selection(add("R", "the scheduler's resources as R (RFC 20)", _r), LIST_STATES)

    drain = add(
        "drain", "exclude nodes from new allocations; without TARGETS: list drained nodes", _drain
    )
    drain.add_argument("--json", action="store_true", help="the list as one object a line")
    modes = drain.add_mutually_exclusive_group()
    modes.add_argument(
        "-f", "--force", action="count", default=0,
        help="replace the reason of nodes that are drained already; twice: the time as well",
    )  # fmt: skip
    modes.add_argument(
        "-u", "--update", action="store_true", help="set the reason only of nodes without one"
    )
    drain.add_argument("targets", nargs="?", metavar="TARGETS")
    drain.add_argument("reason", nargs="*", metavar="REASON")

    undrain = add("undrain", "allow allocations on drained nodes again", _undrain)
    undrain.add_argument(
        "-f", "--force", action="store_true", help="accept nodes that are not drained"
    )
    undrain.add_argument("targets", metavar="TARGETS")
    undrain.add_argument("reason", nargs="*", metavar="REASON")

    text = "the resource events of nodes, such as drains"
    resource_eventlog.register(add("history", text, resource_eventlog.show, "eventlog"))

    grow = add("grow", "add the nodes of an R to the instance", _grow)
    grow.add_argument("file", metavar="FILE", help="an R (RFC 20); - for the standard input")
    shrink = add("shrink", "remove nodes permanently; jobs running on them continue", _shrink)
    shrink.add_argument("targets", metavar="TARGETS")

    reload = add(
        "reload",
        "add and remove nodes until they are those of an R",
        _reload,
    )
    reload.add_argument(
        "-f", "--force", action="store_true", help="remove nodes with running jobs, too"
    )
    reload.add_argument("file", metavar="FILE", help="an R (RFC 20); - for the standard input")

    change = add("property", "add a property to nodes, or remove it", _property)
    change.add_argument("what", choices=["add", "remove"])
    change.add_argument("name", metavar="NAME")
    change.add_argument("targets", metavar="TARGETS")

    expiration = add("expiration", "set the time by which all jobs must end", _expire)
    expiration.add_argument(
        "when", metavar="TIME", help="seconds since the epoch, `+DURATION` from now, or `none`"
    )
    unmonitor = add(
        "unmonitor", "count offline nodes as online if no monitor reports them", _unmonitor
    )
    unmonitor.add_argument("targets", metavar="TARGETS")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        return int(args.run(client, args) or 0)


# --- lists


def _register_selection(verb: argparse.ArgumentParser, states: Sequence[str]) -> None:
    add = verb.add_argument
    text = f"only these: {', '.join(states)}"
    add("-s", "--states", type=_words(states), metavar="STATES", help=text)
    add("-q", "--queue", metavar="NAMES", help="only nodes of these queues")
    text = "only these ranks or hosts; unknown ones are left out"
    add("-i", "--include", metavar="TARGETS", help=text)


def _register_format(verb: argparse.ArgumentParser, fields: Sequence[str]) -> None:
    add = verb.add_argument
    text = f"such as `{{state:>10}} {{nodelist}}`; fields: {', '.join(fields)}"
    add("-o", "--format", metavar="FORMAT", help=text)
    add("-n", "--no-header", action="store_true", help="without titles")
    add("--json", action="store_true", help="one object a line")


def _words(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        words = text.lower().split(",")
        if unknown := [word for word in words if word not in known]:
            raise ArgumentTypeError(f"unknown state `{unknown[0]}`: expected {', '.join(known)}")
        return words

    return parse


def _selected(client: Client, args: argparse.Namespace, resources: ResourceSet) -> ResourceSet:
    """The part of the resources that `--queue` and `--include` select."""
    if args.queue:
        queues = client.config().get("queues", {})
        ranks = IDset()
        for name in args.queue.split(","):
            check_queue(name, queues)
            constraint = queue_constraint(queues[name])
            ranks |= resources.restrict(constraint=constraint).ranks
        resources = resources.restrict(ranks=ranks)
    if args.include:
        resources = resources.restrict(ranks=_ranks_of(resources, args.include))
    return resources


def _ranks_of(resources: ResourceSet, targets: str) -> IDset:
    """The ranks of those targets that are among the resources."""
    try:
        return IDset(targets) & resources.ranks
    except Error:
        hosts = Hostlist(targets) & resources.nodelist
        return resources.restrict(hosts=hosts).ranks if hosts else IDset()


def _scheduled(client: Client, args: argparse.Namespace) -> dict[str, ResourceSet]:
    """The selected resources by the states of the scheduler's view."""
    status = client.sched_status()
    everything, down, allocated = (ResourceSet(status[key]) for key in ("all", "down", "allocated"))
    groups = {
        "free": everything - down - allocated,
        "allocated": allocated,
        "down": down,
        "up": everything - down,
        "all": everything,
    }
    return {state: _selected(client, args, part) for state, part in groups.items()}


def _list(client: Client, args: argparse.Namespace) -> None:
    groups = _scheduled(client, args)
    rows = []
    for state in args.states or LIST_STATES[:3]:
        part = groups[state]
        rows.append(
            {
                "state": state,
                "nnodes": part.nnodes,
                "ncores": part.ncores,
                "ngpus": part.ngpus,
                "ranks": str(part.ranks),
                "nodelist": str(part.nodelist),
            }
        )
    form = "{state:>10} {nnodes:>7} {ncores:>8} {ngpus:>7} {nodelist}"
    _print_rows(args, rows, form, LIST_FIELDS)


def _print_rows(
    args: argparse.Namespace, rows: list[dict[str, Any]], form: str, fields: Sequence[str]
) -> None:
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return
    form = args.format or form
    if "{" not in form:
        raise FormatError(f"format `{form}`: expected fields in braces, such as {{nodelist}}")
    titles = {name: name.upper() for name in fields}
    shown = [{name: _cell(row[name]) for name in fields} for row in rows]
    try:
        header, *lines = [form.format(**values).rstrip() for values in [titles, *shown]]
    except KeyError as error:
        name, expected = error.args[0], ", ".join(fields)
        raise FormatError(f"unknown field `{name}`: expected {expected}") from None
    except (ValueError, IndexError, AttributeError) as error:
        raise FormatError(f"format `{form}`: {error}") from None
    for line in lines if args.no_header else [header, *lines]:
        print(line)


def _cell(value: Any) -> str:
    return safe("" if value is None else str(value))


def _info(client: Client, args: argparse.Namespace) -> None:
    if args.states:
        resources = _in_states(client, args)
    else:
        resources = _selected(client, args, ResourceSet(client.resource_status()["R"]))
    row = {
        "nnodes": resources.nnodes,
        "ncores": resources.ncores,
        "ngpus": resources.ngpus,
        "properties": {name: str(ranks) for name, ranks in resources.properties.items()},
        "expiration": resources.expiration,
    }
    if args.json:
        print(json.dumps(row))
        return
    print(f"{resources.nnodes} nodes, {resources.ncores} cores, {resources.ngpus} gpus")
    for name, ranks in resources.properties.items():
        print(f"property {safe(name)}: {resources.restrict(ranks=ranks).nodelist}")
    if resources.expiration:
        print(f"until {local_time(resources.expiration)}")


def _r(client: Client, args: argparse.Namespace) -> None:
    print(_in_states(client, args).encode())


def _in_states(client: Client, args: argparse.Namespace) -> ResourceSet:
    groups = _scheduled(client, args)
    states = args.states or ["all"]
    return reduce(operator.or_, (groups[state] for state in states))


def _status(client: Client, args: argparse.Namespace) -> None:
    status = client.resource_status()
    resources = ResourceSet(status["R"])
    selected = _selected(client, args, resources).ranks
    exclude, offline = IDset(status["exclude"]), IDset(status["offline"])
    drained = IDset()
    for idset in status["drain"]:
        drained |= IDset(idset)
    groups = [
        ("avail", resources.ranks - exclude - drained - offline, ""),
        ("exclude", exclude, ""),
        ("offline", offline, ""),
        ("online", resources.ranks - offline, ""),
        *(
            (row["state"], IDset(row["ranks"]), row["reason"] or "")
            for row in _drains(client, status)
        ),
    ]
    wanted = args.states or [state for state in STATUS_STATES if state != "online"]
    if "drain" in wanted:
        wanted = [*wanted, "draining", "drained"]
    rows = []
    for state, ranks, reason in groups:
        part = ranks & selected
        # A state that is requested by name is shown without nodes, too.
        is_shown = bool(part) or state == "avail" or bool(args.states)
        if is_shown and state.removesuffix("*") in wanted:
            hosts = str(resources.restrict(ranks=part).nodelist)
            row = {"state": state, "nnodes": len(part), "ranks": str(part), "nodelist": hosts}
            rows.append(row | {"reason": reason or None})
    form = "{state:>10} {nnodes:>7} {ranks:<12} {nodelist:<16} {reason}"
    _print_rows(args, rows, form, STATUS_FIELDS)


def _drains(client: Client, status: ResourceStatus) -> list[dict[str, Any]]:
    """The drained targets, by time and reason, and by whether jobs are still on them.

    A `*` after the state says that the targets are offline.
    """
    if not status["drain"]:
        return []
    resources = ResourceSet(status["R"])
    busy = ResourceSet(client.sched_status()["allocated"]).ranks
    offline = IDset(status["offline"])
    rows = []
    for text, drain in status["drain"].items():
        for state, ranks in (("draining", IDset(text) & busy), ("drained", IDset(text) - busy)):
            for mark, part in (("", ranks - offline), ("*", ranks & offline)):
                if part:
                    hosts = str(resources.restrict(ranks=part).nodelist)
                    row = {"timestamp": drain["timestamp"], "state": state + mark}
                    row |= {"ranks": str(part), "nodelist": hosts}
                    rows.append(row | {"reason": drain["reason"] or None})
    return rows


# --- changes


def _drain(client: Client, args: argparse.Namespace) -> int:
    if args.targets is None:
        if args.force or args.update:
            raise UsageError("--force and --update require TARGETS")
        _list_drained(client, as_json=args.json)
        return 0
    mode: DrainMode | None = "update" if args.update else None
    if args.force:
        mode = "overwrite" if args.force == 1 else "force-overwrite"
    try:
        client.drain(args.targets, " ".join(args.reason), mode=mode)
    except RpcError as error:
        if error.errno != errno.EEXIST:
            raise
        hint = "hint: --update drains the others, --force replaces the reason"
        raise RpcError(error.errno, f"{error.strerror}\n{hint}") from error
    return 0


def _list_drained(client: Client, *, as_json: bool) -> None:
    rows = _drains(client, client.resource_status())
    if not as_json:
        print(f"{'TIME':<19} {'STATE':<9} {'RANKS':<12} {'NODELIST':<16} REASON")
    for row in rows:
        text = (
            f"{local_time(row['timestamp'])} {row['state']:<9} {row['ranks']:<12} "
            f"{row['nodelist']:<16} {safe(row['reason'] or '')}"
        )
        print(json.dumps(row) if as_json else text.rstrip())


def _undrain(client: Client, args: argparse.Namespace) -> None:
    mode: UndrainMode | None = "force" if args.force else None
    client.undrain(args.targets, " ".join(args.reason), mode=mode)


def _grow(client: Client, args: argparse.Namespace) -> None:
    client.rpc(topic.resource.GROW, {"R": _read_r(args.file).to_dict()})


def _read_r(file: str) -> ResourceSet:
    """The R in a file, or in the standard input.

    Raises:
        ResourceSetError: it is no R; the error names the file.
    """
    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    try:
        return ResourceSet(text)
    except Error as error:
        raise type(error)(f"`{file}`: {error}") from error


def _reload(client: Client, args: argparse.Namespace) -> None:
    wanted = _read_r(args.file)
    present = ResourceSet(client.resource_status()["R"])
    common = wanted.ranks & present.ranks
    there = {node.rank: node for node in wanted.nodes()}
    for here in present.nodes():
        node = there.get(here.rank, here)
        if _node_text(node) != _node_text(here):
            raise Error(
                f"`{args.file}`: rank {here.rank} is {_node_text(node)}, in the instance "
                f"{_node_text(here)}: a node that changes needs a new rank"
            )
    added, removed = wanted.ranks - common, present.ranks - common
    busy = ResourceSet(client.sched_status()["allocated"]).ranks & removed
    if busy and not args.force:
        hosts = present.restrict(ranks=busy).nodelist
        raise Error(f"jobs are running on {hosts}, which would be removed: `--force` removes it")
    # Nodes are added first: an instance keeps at least one.
    if added:
        client.rpc(topic.resource.GROW, {"R": wanted.restrict(ranks=added).to_dict()})
    if removed:
        client.rpc(topic.resource.SHRINK, {"targets": str(removed)})


def _node_text(node: Node) -> str:
    """A node's host, cores and gpus."""
    gpus = f" and gpus {node.gpus}" if node.gpus else ""
    return f"{node.host} with cores {node.cores}{gpus}"


def _shrink(client: Client, args: argparse.Namespace) -> None:
    client.rpc(topic.resource.SHRINK, {"targets": args.targets})


def _property(client: Client, args: argparse.Namespace) -> None:
    payload = {"name": args.name, "targets": args.targets}
    resource = topic.resource
    name = resource.PROPERTY_ADD if args.what == "add" else resource.PROPERTY_REMOVE
    client.rpc(name, payload)


def _expire(client: Client, args: argparse.Namespace) -> int:
    try:
        if args.when == "none":
            end = 0.0
        elif args.when.startswith("+"):
            end = args.clock.now() + parse_duration(args.when[1:])
        else:
            end = float(args.when)
    except ValueError as error:
        raise UsageError(f"`{args.when}`: expected a time: {error}") from None
    client.rpc(topic.resource.EXPIRATION, {"expiration": end})
    return 0


def _unmonitor(client: Client, args: argparse.Namespace) -> None:
    client.rpc(topic.resource.UNMONITOR, {"targets": args.targets})
