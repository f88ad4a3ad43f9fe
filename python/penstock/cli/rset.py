"""`penstock R`: resource sets (RFC 20) on the command line."""

from __future__ import annotations

import functools
import json
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.sets import slice_of
from penstock.errors import ResourceSetError, UsageError
from penstock.hostlist import Hostlist
from penstock.idset import IDset
from penstock.resource import ResourceSet

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

SUMMARY = "Resource sets, R of RFC 20: show, make, verify, combine."

EPILOG = """\
An R is given as the name of a file, as JSON text (it starts with `{`), or as `-` for the standard
input, which is also the default. It holds one R, or one a line.

examples:
  penstock R encode -r 0-3 -H 'node[0-3]' -c 0-7 >all
  penstock R restrict -c 'host:node[1-2] | fast' all >part
  penstock R difference all part | penstock R summary
  penstock R verify --jgf all
"""

COMBINATIONS: dict[str, tuple[Callable[..., ResourceSet], str]] = {
    "union": (ResourceSet.union, "what is in any of the sets"),
    "intersection": (ResourceSet.intersection, "what is in all of the sets"),
    "difference": (ResourceSet.difference, "what is in the first set and in no other"),
    "symmetric-difference": (
        ResourceSet.symmetric_difference,
        "what is in exactly one of two sets (of more: in an odd number of them)",
    ),
    "append": (ResourceSet.append, "all sets one after the other, with new ranks after the first"),
}

SECOND_DOCUMENT = re.compile(rb"\s*\{[^\n]*\}[^\S\n]*\n\s*\{")

COUNTS: dict[str, Callable[[ResourceSet], int]] = {
    "node": lambda r: r.nnodes,
    "core": lambda r: r.ncores,
    "gpu": lambda r: r.ngpus,
}

R_HELP = "an R: a file, JSON text, or - for the standard input (default)"


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the operations and their arguments."""
    parser.epilog = EPILOG
    operations = parser.add_subparsers(dest="operation", metavar="OPERATION", required=True)

    def add(
        name: str, text: str, *, many: bool = False, alias: str | None = None
    ) -> argparse.ArgumentParser:
        operation = operations.add_parser(
            name,
            help=text,
            description=f"R {name}: {text}.",
            aliases=[alias] if alias else [],
            allow_abbrev=False,
        )
        operation.set_defaults(operation=name)
        if many:
            operation.add_argument("sets", metavar="R", nargs="*", default=["-"], help=R_HELP)
        else:
            operation.add_argument("set", metavar="R", nargs="?", default="-", help=R_HELP)
        return operation

    encode = operations.add_parser(
        "encode", help="make an R", description="R encode: make an R.", allow_abbrev=False
    )
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

    show = add("show", "print a table of the nodes, equal ones together")
    expand = add(
        "expand",
        "print every node, a line each: rank, host, cores, gpus, properties",
        alias="list",
    )
    for operation in (show, expand):
        operation.add_argument("-i", "--include", metavar="IDSET", help="these ranks only")
        operation.add_argument(
            "--json", action="store_true", help="one object a line for each node"
        )

    count = add("count", "print the number of nodes, cores and gpus")
    count.add_argument("-w", "--what", choices=list(COUNTS), help="the number of these alone")
    add("summary", "print the short form of each R, a line each", many=True)
    verify = add("verify", "say everything that is wrong with each R, and where", many=True)
    verify.add_argument("--jgf", action="store_true", help="also verify the graph in `scheduling`")
    verify.add_argument("--json", action="store_true", help="one object a line for each R")
    for name, (_, text) in COMBINATIONS.items():
        add(name, text, many=True).add_argument(
            "--scheduling",
            choices=["left", "drop"],
            help="keep `scheduling` and `attributes` of the first set that has them, or drop them; "
            "without it, sets that have different ones are not combined",
        )
    add("rerank", "the same nodes in the same order with the ranks 0, 1, 2 …", alias="re-rank")
    nth = add("nth", "the node at a position, in the order of ranks")
    nth.add_argument("-n", "--position", type=int, required=True, help="from 0; -1 is the last")
    cut = add("slice", "the nodes at some positions, in the order of ranks")
    cut.add_argument(
        "-s", "--slice", type=slice_of, required=True, metavar="START:STOP[:STEP]", help="as Python"
    )
    find = add("find", "print the ranks on some hosts")
    find.add_argument("-H", "--hosts", metavar="HOSTLIST", required=True, help="the hosts")
    split = add("split", "even parts of the nodes, an R a line")
    split.add_argument("-n", "--parts", type=int, required=True, help="how many")
    add("sort", "the nodes in natural order of their hosts, with the ranks 0, 1, 2 …")
    add("uniq", "one node a host, with all that its ranks have, and the ranks 0, 1, 2 …")
    restrict = add("restrict", "the nodes that meet all that is given")
    restrict.add_argument("-r", "--ranks", metavar="IDSET", help="of these ranks")
    restrict.add_argument("-H", "--hosts", metavar="HOSTLIST", help="on these hosts")
    restrict.add_argument(
        "-c",
        "--constraint",
        metavar="QUERY",
        help="that meet a constraint: RFC 35, as in `fast -broken host:n[0-9]`, or RFC 31 as JSON",
    )
    restrict.add_argument(
        "--no-local",
        action="store_true",
        help="leave out the properties that start with `+`, which are for the instance alone",
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb.

    Returns:
        0; 1 if `verify` found fault.

    Raises:
        UsageError: options contradict each other.
    """
    operation: str = args.operation
    return _OPERATIONS[operation](args) or 0


class _Document(NamedTuple):
    """The text of an R, before it is read."""

    name: str
    """The name of the document in error messages."""
    text: str | bytes

    def read(self) -> ResourceSet:
        try:
            return ResourceSet(self.text)
        except ResourceSetError as error:
            raise ResourceSetError(f"{self.name}: {error}") from error


def _documents(arguments: list[str]) -> Iterator[_Document]:
    """The documents that arguments name, in order."""
    if arguments.count("-") > 1:
        raise UsageError("the standard input can be read only once")
    for number, argument in enumerate(arguments, 1):
        if argument.lstrip().startswith("{"):
            name = "argument" if len(arguments) == 1 else f"argument {number}"
            yield _Document(name, argument)
            continue
        name = "standard input" if argument == "-" else f"`{argument}`"
        data = sys.stdin.buffer.read() if argument == "-" else Path(argument).read_bytes()
        # One document is not split: it may be large.
        lines = []
        if SECOND_DOCUMENT.match(data):
            lines = [line.strip() for line in data.splitlines() if line.strip()]
        whole = (line.startswith(b"{") and line.endswith(b"}") for line in lines)
        if len(lines) > 1 and all(whole):
            yield from (_Document(f"{name}: R {at}", line) for at, line in enumerate(lines, 1))
        else:
            yield _Document(name, data)


def _read(argument: str) -> ResourceSet:
    first, *others = _documents([argument])
    if others:
        raise UsageError(f"expected one R, found {len(others) + 1}")
    return first.read()


def _read_all(arguments: list[str]) -> Iterator[ResourceSet]:
    return (document.read() for document in _documents(arguments))


def _verify(args: argparse.Namespace) -> int:
    code = 0
    for document in _documents(args.sets):
        problems = ResourceSet.verify(document.text, jgf=args.jgf)
        code = 1 if problems else code
        if args.json:
            print(json.dumps({"name": document.name, "problems": problems}, ensure_ascii=False))
            continue
        for problem in problems:
            print(f"{document.name}: {problem}")
        if not problems:
            print(f"{document.name}: valid: {_counts(ResourceSet(document.text))}")
    return code


def _counts(r: ResourceSet) -> str:
    counts = [(count(r), what) for what, count in COUNTS.items()]
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)


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
            raise UsageError(f"expected NAME:IDSET as property, found `{argument}`")
        r.add_property(name, targets)
    r.starttime = args.starttime
    r.expiration = args.expiration
    print(r.to_json())


def _decode(args: argparse.Namespace) -> None:
    r = _read(args.set)
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


def _part(args: argparse.Namespace) -> ResourceSet:
    r = _read(args.set)
    return r if args.include is None else r.restrict(ranks=args.include)


def _show(args: argparse.Namespace) -> None:
    r = _part(args)
    if args.json:
        _print_nodes(r, as_json=True)
        return
    table = [("RANKS", "HOSTS", "CORES", "GPUS", "PROPERTIES"), *_groups(r, r.properties)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())
    print(_counts(r))


def _expand(args: argparse.Namespace) -> None:
    _print_nodes(_part(args), as_json=args.json)


def _print_nodes(r: ResourceSet, *, as_json: bool) -> None:
    properties = r.properties.items()
    for node in r.nodes():
        names = [name for name, ranks in properties if node.rank in ranks]
        if as_json:
            row = {
                "rank": node.rank,
                "host": node.host,
                "cores": str(node.cores),
                "gpus": str(node.gpus),
                "properties": names,
            }
            print(json.dumps(row, ensure_ascii=False))
        else:
            cells = (node.cores or "-", node.gpus or "-", ",".join(names) or "-")
            print(node.rank, node.host, *cells)


def _count(args: argparse.Namespace) -> None:
    r = _read(args.set)
    print(COUNTS[args.what](r) if args.what else _counts(r))


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
    for r in _read_all(args.sets):
        print(r.summary())


def _combine(args: argparse.Namespace) -> None:
    operation, _ = COMBINATIONS[args.operation]
    combine = functools.partial(operation, scheduling=args.scheduling)
    print(functools.reduce(combine, _read_all(args.sets)).to_json())


def _rerank(args: argparse.Namespace) -> None:
    print(_read(args.set).rerank().to_json())


def _nth(args: argparse.Namespace) -> None:
    r = _read(args.set)
    try:
        rank = r.ranks.nth(args.position)
    except IndexError:
        raise ResourceSetError(f"no position {args.position} among {r.nnodes} nodes") from None
    print(r.restrict(ranks=[rank]).to_json())


def _slice(args: argparse.Namespace) -> None:
    r = _read(args.set)
    print(r.restrict(ranks=r.ranks[args.slice]).to_json())


def _find(args: argparse.Namespace) -> None:
    print(IDset(_read(args.set).host_ranks(args.hosts)))


def _split(args: argparse.Namespace) -> None:
    if args.parts < 1:
        raise UsageError(f"expected at least 1 part, found {args.parts}")
    r = _read(args.set)
    for ranks in r.ranks.split(args.parts):
        print(r.restrict(ranks=ranks).to_json())


def _sort(args: argparse.Namespace) -> None:
    r = _read(args.set)
    hosts = r.nodelist.copy()
    hosts.sort()
    hosts.uniq()
    print(_regrouped(r, [[rank] for host in hosts for rank in r.host_ranks(host)]).to_json())


def _uniq(args: argparse.Namespace) -> None:
    r = _read(args.set)
    hosts = r.nodelist.copy()
    hosts.uniq()
    print(_regrouped(r, [r.host_ranks(host) for host in hosts]).to_json())


def _regrouped(r: ResourceSet, groups: list[list[int]]) -> ResourceSet:
    """The ranks of each group as one node, with new ranks in the order of the groups."""
    if r.scheduling is not None:
        raise ResourceSetError("`scheduling` names ranks, which would change")
    made = ResourceSet()
    for rank, old in enumerate(groups):
        for node in map(r.node, old):
            made.insert(rank, node.host, node.cores, node.gpus)
    for name, ranks in r.properties.items():
        new = [rank for rank, old in enumerate(groups) if ranks.has_intersection(old)]
        made.add_property(name, new)
    made.starttime, made.expiration, made.nslots = r.starttime, r.expiration, r.nslots
    return made


def _restrict(args: argparse.Namespace) -> None:
    wanted = {name: getattr(args, name) for name in ("ranks", "hosts", "constraint")}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if not wanted and not args.no_local:
        raise UsageError("expected --ranks, --hosts, --constraint or --no-local")
    r = _read(args.set)
    if wanted:
        r = r.restrict(**wanted)
    print((r.without_local_properties() if args.no_local else r).to_json())


_OPERATIONS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "encode": _encode,
    "decode": _decode,
    "show": _show,
    "expand": _expand,
    "count": _count,
    "verify": _verify,
    "summary": _summary,
    "rerank": _rerank,
    "nth": _nth,
    "slice": _slice,
    "find": _find,
    "split": _split,
    "sort": _sort,
    "uniq": _uniq,
    "restrict": _restrict,
    **dict.fromkeys(COMBINATIONS, _combine),
}
