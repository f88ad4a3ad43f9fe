"""`penstock R`: resource sets (RFC 20) on the command line."""

from __future__ import annotations

import functools
import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ResourceSetError
from penstock.hostlist import Hostlist
from penstock.idset import IDset
from penstock.resource import ResourceSet

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

SUMMARY = "Resource sets, R of RFC 20: show, make, verify, combine."

COMBINATIONS: dict[str, tuple[Callable[[ResourceSet, ResourceSet], ResourceSet], str]] = {
    "union": (ResourceSet.union, "what is in any of the sets"),
    "intersection": (ResourceSet.intersection, "what is in all of the sets"),
    "difference": (ResourceSet.difference, "what is in the first set and in no other"),
    "append": (ResourceSet.append, "all sets one after the other, with new ranks after the first"),
}

COUNTS: dict[str, Callable[[ResourceSet], int]] = {
    "node": lambda r: r.nnodes,
    "core": lambda r: r.ncores,
    "gpu": lambda r: r.ngpus,
}


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the operations and their arguments."""
    operations = parser.add_subparsers(dest="operation", metavar="OPERATION", required=True)

    def add(
        name: str, text: str, *, many: bool = False, aliases: list[str] | None = None
    ) -> argparse.ArgumentParser:
        operation = operations.add_parser(
            name,
            help=text,
            description=f"R {name}: {text}.",
            aliases=aliases or [],
            allow_abbrev=False,
        )
        operation.set_defaults(operation=name)
        if many:
            operation.add_argument(
                "files",
                metavar="FILE",
                nargs="*",
                default=["-"],
                help="R as JSON; - is the standard input (default)",
            )
        else:
            operation.add_argument(
                "file",
                metavar="FILE",
                nargs="?",
                default="-",
                help="R as JSON; - is the standard input (default)",
            )
        return operation

    encode = operations.add_parser(
        "encode", help="make an R", description="R encode: make an R.", allow_abbrev=False
    )
    encode.set_defaults(operation="encode")
    encode.add_argument(
        "-r", "--ranks", metavar="IDSET", help="ranks; by default one for each host, from 0 on"
    )
    encode.add_argument(
        "-H", "--hosts", metavar="HOSTLIST", help="hosts of the ranks; by default this host for all"
    )
    encode.add_argument(
        "-c", "--cores", metavar="IDSET", default="0", help="cores of each rank (default: 0)"
    )
    encode.add_argument(
        "-g", "--gpus", metavar="IDSET", default="", help="gpus of each rank (default: none)"
    )
    encode.add_argument(
        "-p",
        "--property",
        metavar="NAME:IDSET",
        action="append",
        default=[],
        help="a property and its ranks; may be repeated",
    )
    encode.add_argument(
        "-s",
        "--starttime",
        metavar="SECONDS",
        type=float,
        help="valid from this time since the epoch on",
    )
    encode.add_argument(
        "-e",
        "--expiration",
        metavar="SECONDS",
        type=float,
        help="valid until this time since the epoch",
    )

    decode = add("decode", "print R, or a part of it, or facts about it")
    decode.add_argument("-i", "--include", metavar="IDSET", help="these ranks only")
    decode.add_argument("-x", "--exclude", metavar="IDSET", help="without these ranks")
    facts = decode.add_mutually_exclusive_group()
    facts.add_argument("-s", "--short", action="store_true", help="the short form")
    facts.add_argument("-r", "--ranks", action="store_true", help="the ranks")
    facts.add_argument("-n", "--nodelist", action="store_true", help="the hosts")
    facts.add_argument(
        "-p", "--properties", action="store_true", help="the properties and their ranks"
    )
    facts.add_argument("-c", "--count", choices=list(COUNTS), help="how many there are")

    show = add("show", "print a table of the nodes")
    show.add_argument("-i", "--include", metavar="IDSET", help="these ranks only")
    show.add_argument("--json", action="store_true", help="one object a line for each node")

    add("summary", "print the short form of each R, a line each", many=True)
    add("verify", "say what is wrong with each R, and where", many=True)
    for name, (_, text) in COMBINATIONS.items():
        add(name, text, many=True)
    add("rerank", "the same nodes in the same order with the ranks 0, 1, 2 …")
    restrict = add("restrict", "some of the nodes")
    restrict.add_argument("-r", "--ranks", metavar="IDSET", help="of these ranks")
    restrict.add_argument("-H", "--hosts", metavar="HOSTLIST", help="on these hosts")


def main(args: argparse.Namespace) -> int:
    """Runs the verb.

    Returns:
        0; 1 if `verify` found fault; 2 for options that contradict each other.
    """
    operation: str = args.operation
    if operation == "verify":
        return _verify(args.files)
    try:
        _OPERATIONS[operation](args)
    except _UsageError as error:
        print(f"penstock R {operation}: {error}", file=sys.stderr)
        return 2
    return 0


class _UsageError(Exception):
    """Options that contradict each other."""


def _read(file: str) -> ResourceSet:
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return ResourceSet(data)
    except ResourceSetError as error:
        raise ResourceSetError(f"{_named(file)}: {error}") from error


def _named(file: str) -> str:
    return "standard input" if file == "-" else f"`{file}`"


def _read_all(files: list[str]) -> Iterator[ResourceSet]:
    if files.count("-") > 1:
        raise _UsageError("the standard input can be read only once")
    return map(_read, files)


def _verify(files: list[str]) -> int:
    code = 0
    for file in files:
        try:
            r = _read(file)
        except ResourceSetError as error:
            print(error)
            code = 1
        else:
            print(f"{_named(file)}: valid: {r.nnodes} nodes, {r.ncores} cores, {r.ngpus} gpus")
    return code


def _encode(args: argparse.Namespace) -> None:
    if args.hosts is None:
        ranks = IDset(args.ranks if args.ranks is not None else "0")
        hosts = Hostlist([socket.gethostname()] * len(ranks))
    else:
        hosts = Hostlist(args.hosts)
        ranks = IDset(args.ranks if args.ranks is not None else range(len(hosts)))
    r = ResourceSet.uniform(ranks, hosts, IDset(args.cores), IDset(args.gpus))
    for argument in args.property:
        name, colon, targets = argument.rpartition(":")
        if not colon:
            raise _UsageError(f"expected NAME:IDSET as property, found `{argument}`")
        r.add_property(name, targets)
    r.starttime = args.starttime
    r.expiration = args.expiration
    print(r.to_json())


def _decode(args: argparse.Namespace) -> None:
    r = _read(args.file)
    if args.include is not None:
        r = r.restrict(ranks=args.include)
    if args.exclude is not None:
        r.remove_ranks(args.exclude)
    if args.short:
        print(r.summary())
    elif args.ranks:
        print(r.ranks)
    elif args.nodelist:
        print(r.nodelist)
    elif args.properties:
        properties = {name: str(ranks) for name, ranks in r.properties.items()}
        print(json.dumps(properties, ensure_ascii=False))
    elif args.count:
        print(COUNTS[args.count](r))
    else:
        print(r.to_json())


def _show(args: argparse.Namespace) -> None:
    r = _read(args.file)
    if args.include is not None:
        r = r.restrict(ranks=args.include)
    properties = r.properties
    if args.json:
        for node in r.nodes():
            row = {
                "rank": node.rank,
                "host": node.host,
                "cores": str(node.cores),
                "gpus": str(node.gpus),
                "properties": [name for name, ranks in properties.items() if node.rank in ranks],
            }
            print(json.dumps(row, ensure_ascii=False))
        return
    table = [("RANKS", "HOSTS", "CORES", "GPUS", "PROPERTIES"), *_groups(r, properties)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())
    print(f"{r.nnodes} nodes, {r.ncores} cores, {r.ngpus} gpus")


def _groups(
    r: ResourceSet, properties: dict[str, IDset]
) -> Iterator[tuple[str, str, str, str, str]]:
    """The ranks with equal cores, gpus and properties, in the order of their first ranks."""
    if not r.nnodes:
        return
    for entry in r.to_dict()["execution"]["R_lite"]:
        children = entry["children"]
        parts: dict[tuple[str, ...], IDset] = {(): IDset(entry["rank"])}
        for name, ranks in properties.items():
            divided = {}
            for names, part in parts.items():
                divided[names] = part - ranks
                divided[(*names, name)] = part & ranks
            parts = {names: part for names, part in divided.items() if part}
        for names, part in sorted(parts.items(), key=lambda item: item[1][0]):
            hosts = str(r.restrict(ranks=part).nodelist)
            yield str(part), hosts, children["core"], children.get("gpu", ""), ",".join(names)


def _summary(args: argparse.Namespace) -> None:
    for r in _read_all(args.files):
        print(r.summary())


def _combine(args: argparse.Namespace) -> None:
    operation, _ = COMBINATIONS[args.operation]
    print(functools.reduce(operation, _read_all(args.files)).to_json())


def _rerank(args: argparse.Namespace) -> None:
    print(_read(args.file).rerank().to_json())


def _restrict(args: argparse.Namespace) -> None:
    if args.ranks is None and args.hosts is None:
        raise _UsageError("expected --ranks, --hosts or both")
    print(_read(args.file).restrict(ranks=args.ranks, hosts=args.hosts).to_json())


_OPERATIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "encode": _encode,
    "decode": _decode,
    "show": _show,
    "summary": _summary,
    "rerank": _rerank,
    "restrict": _restrict,
    **dict.fromkeys(COMBINATIONS, _combine),
}
