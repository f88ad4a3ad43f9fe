"""`penstock resource`: what there is, what is free, what is drained."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from penstock._core import IDset, ResourceSet
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = "List resources by state; drain and undrain nodes."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|status|drain|undrain")
    for name, text in (
        ("list", "what the scheduler may use: free, allocated, down"),
        ("status", "every node: available, drained, excluded"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        verb.add_argument("--json", action="store_true", help="one object a line")
    drain = verbs.add_parser("drain", help="keep nodes from getting jobs; alone: list the drained")
    drain.add_argument("--json", action="store_true", help="the list as one object a line")
    drain.add_argument("targets", nargs="?", metavar="TARGETS", help="ranks or hosts")
    drain.add_argument("reason", nargs="*", metavar="REASON")
    undrain = verbs.add_parser("undrain", help="let drained nodes have jobs again")
    undrain.add_argument("targets", metavar="TARGETS", help="ranks or hosts")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        if args.verb == "undrain":
            client.undrain(args.targets)
        elif args.verb == "drain" and args.targets:
            client.drain(args.targets, " ".join(args.reason))
        elif args.verb == "drain":
            _drained(client, as_json=args.json)
        elif args.verb == "status":
            _status(client, as_json=args.json)
        else:
            _list(client, as_json=args.json)
    return 0


def _list(client: Client, *, as_json: bool) -> None:
    status = client.rpc("resource.sched-status")
    everything, down, allocated = (ResourceSet(status[key]) for key in ("all", "down", "allocated"))
    groups = [
        ("free", everything - down - allocated),
        ("allocated", allocated),
        ("down", down),
    ]
    if not as_json:
        print(f"{'STATE':>10} {'NNODES':>7} {'NCORES':>8} {'NGPUS':>7} NODELIST")
    for state, part in groups:
        row = {
            "state": state,
            "nnodes": part.nnodes,
            "ncores": part.ncores,
            "ngpus": part.ngpus,
            "ranks": str(part.ranks),
            "nodelist": str(part.nodelist),
        }
        text = f"{state:>10} {part.nnodes:>7} {part.ncores:>8} {part.ngpus:>7} {row['nodelist']}"
        print(json.dumps(row) if as_json else text.rstrip())


def _status(client: Client, *, as_json: bool) -> None:
    status = client.resource_status()
    resources = ResourceSet(status["R"])
    exclude = IDset(status["exclude"])
    drained = IDset()
    for idset in status["drain"]:
        drained |= IDset(idset)
    groups = [
        ("avail", resources.ranks - exclude - drained, ""),
        ("exclude", exclude, ""),
        *(("drained", IDset(ranks), it["reason"]) for ranks, it in status["drain"].items()),
    ]
    if not as_json:
        print(f"{'STATE':>10} {'NNODES':>7} {'RANKS':<12} {'NODELIST':<16} REASON")
    for state, ranks, reason in groups:
        if not ranks and state != "avail":
            continue
        hosts = str(resources.restrict(ranks=ranks).nodelist)
        row = {"state": state, "nnodes": len(ranks), "ranks": str(ranks), "nodelist": hosts}
        row["reason"] = reason or None
        text = f"{state:>10} {len(ranks):>7} {row['ranks']:<12} {hosts:<16} {reason}"
        print(json.dumps(row) if as_json else text.rstrip())


def _drained(client: Client, *, as_json: bool) -> None:
    status = client.resource_status()
    resources = ResourceSet(status["R"])
    if not as_json:
        print(f"{'TIME':<19} {'RANKS':<12} {'NODELIST':<16} REASON")
    for ranks, drain in status["drain"].items():
        hosts = str(resources.restrict(ranks=IDset(ranks)).nodelist)
        row = {"timestamp": drain["timestamp"], "ranks": ranks, "nodelist": hosts}
        row["reason"] = drain["reason"] or None
        when = datetime.fromtimestamp(drain["timestamp"]).astimezone()
        text = f"{when:%Y-%m-%d %H:%M:%S} {ranks:<12} {hosts:<16} {drain['reason']}"
        print(json.dumps(row) if as_json else text.rstrip())
