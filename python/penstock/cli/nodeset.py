"""`penstock nodeset`: ClusterShell's `nodeset` (or `cluset`): sets of nodes and groups of nodes."""

from __future__ import annotations

import argparse
import codecs
import re
import sys
from decimal import Decimal
from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from penstock.compat.ClusterShell.errors import (
    GroupResolverError,
    GroupSourceError,
    GroupSourceNoUpcall,
    NodeSetException,
    RangeSetException,
)
from penstock.compat.ClusterShell.NodeSet import (
    NodeSet,
    grouplist,
    set_std_group_resolver_config,
    std_group_resolver,
)
from penstock.compat.ClusterShell.RangeSet import AUTOSTEP_DISABLED, RangeSet
from penstock.errors import Error, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli.parser import Parser

    Nodes: TypeAlias = NodeSet | RangeSet

SUMMARY = """Sets of nodes and groups of nodes, as ClusterShell's nodeset has them.

Each NODESET is a text such as `node[1-9/2],@gpu!node3`. NODESETs and operations are applied from
left to right. Without any NODESET, or for `-`, they are read from the standard input."""

OPERATIONS = {
    "union": ("", "update", "add these nodes, as a NODESET without an option"),
    "exclude": ("-x", "difference_update", "remove these nodes"),
    "intersection": ("-i", "intersection_update", "keep only nodes that are also in these"),
    "xor": ("-X", "symmetric_difference_update", "keep nodes that are in exactly one of the sets"),
}
COMMANDS = {
    "count": ("-c", "print the number of nodes"),
    "expand": ("-e", "print the nodes"),
    "fold": ("-f", "print one folded text"),
    "regroup": ("-r", "print a folded text with groups in place of their nodes"),
}


class _Operation(argparse.Action):
    """Appends an operation and its operand to those before it on the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        namespace.operations = [*namespace.operations, (str(self.const), str(values))]


def register(parser: Parser) -> None:
    """Adds the commands and their options."""
    parser.operand_option = "--union"
    parser.usage = "penstock nodeset COMMAND [OPTION …] [NODESET | OPERATION NODESET] …"
    parser.set_defaults(operations=[])
    commands = parser.add_argument_group("commands").add_mutually_exclusive_group(required=True)
    for name, (short, summary) in COMMANDS.items():
        commands.add_argument(short, f"--{name}", action="store_true", help=summary)
    commands.add_argument(
        *("-l", "--list"),
        action="count",
        default=0,
        help="print the groups, or those of given nodes; -ll: with nodes, -lll: and their count",
    )
    commands.add_argument(
        *("-L", "--list-all"), action="count", default=0, help="the same of all sources of groups"
    )
    commands.add_argument("--index", metavar="NODE", help="print the position of a node, from 0")
    commands.add_argument(
        *("--list-sources", "--groupsources"), action="store_true", help="print the sources"
    )
    operations = parser.add_argument_group("operations")
    for name, (short, _, summary) in OPERATIONS.items():
        flags = [short, f"--{name}"] if short else [f"--{name}"]
        operations.add_argument(
            *flags, action=_Operation, const=name, metavar="NODESET", help=summary
        )
    add = parser.add_argument
    add("-a", "--all", action="store_true", help="start with all nodes of the source of groups")
    add("-s", "--groupsource", metavar="SOURCE", help="the source of groups to use")
    add("--groupsconf", metavar="FILE", help="a groups.conf to read instead of the usual ones")
    add("-G", "--groupbase", action="store_true", help="write @group, not @source:group")
    add("-R", "--rangeset", action="store_true", help="work on sets of indexes, such as 1-9/2,20")
    add("-I", "--slice", metavar="INDEXES", type=_indexes, help="only nodes at positions, from 0")
    add("--pick", metavar="N", type=_positive, help="only N nodes, at random")
    add("--split", metavar="N", type=_positive, help="print N parts, a line each")
    add("--contiguous", action="store_true", help="print contiguous parts, a line each")
    add(
        "--axis",
        metavar="AXES",
        type=_axes,
        help="fold these axes only: 1, 1-2, or -1 for the last",
    )
    add(
        "--autostep",
        metavar="N",
        type=_autostep,
        help="show N or more equally spaced indexes with a step; N%% of the nodes, or auto for all",
    )
    add("-S", "--separator", metavar="TEXT", type=_unescaped, default=" ", help="between nodes")
    add("-O", "--output-format", metavar="FORMAT", default="%s", help="of nodes, such as %%s-ib0")
    add("-q", "--quiet", action="store_true", help="print the essential only")
    add("-d", "--debug", action="store_true", help=argparse.SUPPRESS)


def _indexes(text: str) -> RangeSet:
    try:
        return RangeSet(text)
    except RangeSetException as error:
        raise argparse.ArgumentTypeError(f"expected indexes such as 0-9/2,12: {error}") from None


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found `{text}`")
    return int(text)


def _axes(text: str) -> tuple[int, ...]:
    """Axes from 0 on, or the last ones from -1 back."""
    if text[:1] == "-" and text[1:].isascii() and text[1:].isdigit():
        return (int(text),)
    # There is no axis 0, and it is not the last one.
    return tuple(axis - 1 for axis in map(int, _indexes(text)) if axis > 0)


def _autostep(text: str) -> tuple[Decimal, bool]:
    """A number of nodes, or a percentage of them."""
    match = re.fullmatch(r"([0-9]{1,9})|([0-9]{1,9}(?:\.[0-9]{1,9})?)%", text)
    if not match and text != "auto":
        raise argparse.ArgumentTypeError(
            f"expected a number, a percentage such as 50% or `auto`, found `{text}`"
        )
    return (Decimal(match[1] or match[2]), match[1] is None) if match else (Decimal(100), True)


def _unescaped(text: str) -> str:
    try:
        return codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"invalid escape in `{text}`: {error.reason}") from None


def main(args: argparse.Namespace) -> int:
    """Runs the verb.

    Returns:
        0; 1 for bad input or if the groups cannot be found out, which the standard error names.
    """
    if args.axis is not None and (args.rangeset or not args.fold):
        raise UsageError("--axis is for --fold of nodes only")
    if args.index is not None and args.pick:
        raise UsageError("--index cannot be combined with --pick")
    if args.rangeset and (args.all or args.regroup or args.list or args.list_all):
        raise UsageError("--rangeset has no groups: it goes with -c, -e, -f and --index")
    try:
        args.output_format % ""
    except (TypeError, ValueError):
        raise UsageError(
            f"invalid --output-format `{args.output_format}`: expected one %s"
        ) from None
    try:
        return _run(args)
    except GroupSourceNoUpcall as error:
        source = getattr(error.group_source, "name", "")
        raise Error(f'No {error} upcall defined for group source "{source}"') from None
    except (RangeSetException, GroupResolverError, GroupSourceError) as error:
        # Some say no more than a name.
        raise Error(f"{type(error).__name__}: {error}") from None


def _run(args: argparse.Namespace) -> int:
    if args.groupsconf:
        set_std_group_resolver_config(args.groupsconf)
    resolver = std_group_resolver()
    if args.groupsource:
        resolver.default_source_name = args.groupsource
    if args.list_sources:
        default = resolver.default_source_name
        for source in resolver.sources():
            print(f"{source} (default)" if source == default and not args.quiet else source)
        return 0
    given = bool(args.operations or args.all)
    nodes = _working_set(args)
    if args.list or args.list_all:
        _list(args, cast("NodeSet", nodes) if given else None)
        return 0
    if args.slice is not None:
        nodes = _sliced(nodes, args.slice)
    if args.pick:
        nodes = nodes.pick(args.pick)
    if args.autostep:
        least, is_percentage = args.autostep
        # The least number of nodes that is not below the percentage.
        count = ceil(len(nodes) * least / 100) if is_percentage else int(least)
        nodes.autostep = max(count, 2)
    if isinstance(nodes, NodeSet) and args.axis is not None:
        nodes.fold_axis = args.axis
    if args.index is not None:
        try:
            print(args.output_format % nodes.index(args.index))
        except ValueError as error:
            raise Error(str(error)) from None
        return 0
    for part in _parts(nodes, args):
        print(_shown(part, args))
    return 0


def _words_of_input() -> list[str]:
    """The words of standard input; a line ends at its comment, as in ClusterShell."""
    return [word for line in sys.stdin for word in line.partition("#")[0].split()]


def _working_set(args: argparse.Namespace) -> Nodes:
    """The set that the operations make, from left to right."""
    empty: Nodes = RangeSet() if args.rangeset else NodeSet()
    nodes = NodeSet.fromall() if args.all else empty.copy()
    operations = list(args.operations)
    # The operation that has no set of nodes before it.
    first = None if args.all or not operations or operations[0][0] == "union" else operations[0]
    has_operand = any(name == "union" for name, _ in operations)
    if not has_operand and not args.all and not args.list and not args.list_all:
        operations.insert(0, ("union", "-"))
    for operation in operations:
        name, text = operation
        words = _words_of_input() if text == "-" else text.splitlines()
        operand = empty.copy()
        operand.updaten(word for word in words if word.strip())
        if operation is first and not nodes and not args.quiet:
            print("WARNING: empty left operand for set operation", file=sys.stderr)
        getattr(nodes, OPERATIONS[name][1])(operand)
    return nodes


def _sliced(nodes: Nodes, positions: RangeSet) -> Nodes:
    """The nodes at positions."""
    found = nodes[:0]
    for cut in positions.slices():
        found.update(nodes[cut])
    return found


def _parts(nodes: Nodes, args: argparse.Namespace) -> Iterator[Nodes]:
    """The sets to print."""
    if not nodes or (not args.contiguous and not args.split):
        yield nodes
        return
    for part in nodes.contiguous() if args.contiguous else [nodes]:
        yield from part.split(args.split) if args.split else [part]


def _shown(nodes: Nodes, args: argparse.Namespace) -> str:
    """The output for a set."""
    output: str = args.output_format
    if args.expand:
        separator: str = args.separator
        return separator.join(nodes if output == "%s" else [output % node for node in nodes])
    if args.count:
        return output % len(nodes)
    if isinstance(nodes, RangeSet):
        return output % nodes
    if args.regroup:
        return output % nodes.regroup(args.groupsource, noprefix=args.groupbase)
    if output == "%s":
        return str(nodes)
    # The format is that of each node, and the result is folded.
    steps = AUTOSTEP_DISABLED if nodes.autostep is None else nodes.autostep
    names = [output % node for node in nodes]
    try:
        formatted = NodeSet._fromlist1(names, autostep=steps, resolver=-1)
    except NodeSetException:
        return ",".join(names)
    formatted.fold_axis = nodes.fold_axis
    return str(formatted)


def _list(args: argparse.Namespace, nodes: NodeSet | None) -> None:
    """Prints the groups, or those of nodes."""
    resolver = std_group_resolver()
    level = max(args.list, args.list_all)
    # The default source of -L needs no prefix.
    sources = resolver.sources() if args.list_all else [args.groupsource]
    for source in sources:
        is_default = args.list_all and source == resolver.default_source_name
        namespace = None if is_default else source
        try:
            rows = list(_groups(namespace, nodes, level, noprefix=args.groupbase))
        except GroupSourceNoUpcall as error:
            if not args.list_all:
                raise
            print(f"Warning: No {error} upcall defined for group source {source}", file=sys.stderr)
            continue
        for name, *columns in rows:
            print(" ".join([name, *columns[: level - 1]]))


def _groups(
    source: str | None, nodes: NodeSet | None, level: int, *, noprefix: bool
) -> Iterator[tuple[str, ...]]:
    """For each group its name, its nodes and their number; of given nodes, those in it."""
    if nodes is not None:
        for name, (whole, inside) in nodes.groups(source, noprefix).items():
            yield name, str(inside), f"{len(inside)}/{len(whole)}"
        return
    prefix = f"@{source}:" if source and not noprefix else "@"
    for group in grouplist(source):
        if level == 1:
            yield (f"{prefix}{group}",)
        else:
            whole = NodeSet(f"@{source}:{group}" if source else f"@{group}")
            yield f"{prefix}{group}", str(whole), str(len(whole))
