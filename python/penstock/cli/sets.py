"""The operations common to `penstock idset` and `penstock hostlist`."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from penstock.errors import Error, IdsetError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.hostlist import Hostlist
    from penstock.idset import IDset

    Members: TypeAlias = IDset | Hostlist

# The number of elements written at a time.
CHUNK_MEMBERS = 65536

COMBINATIONS = {
    "union": "the elements of any of them",
    "intersection": "the elements of all of them",
    "difference": "the elements of the first that are in no other",
    "symmetric-difference": "the elements of exactly one of two",
}


class SetType(NamedTuple):
    """The type of set that a verb works on."""

    verb: str
    """The verb, as in `penstock VERB`."""
    example: str
    """An example of its text."""
    element: str
    """The word for one element."""
    join: Callable[[list[str]], Members]
    """Makes one set from the texts of several."""
    find: Callable[[Any, Any], int | None]
    """The position of an element in a set."""
    read: Callable[[str], tuple[Members, list[str]]]
    """Reads a text leniently; also returns the corrections."""
    fold: Callable[[Any, argparse.Namespace], str]
    """The text of a set, as the arguments of `fold` want it."""
    changes: dict[str, tuple[Callable[[Any], Members], str]]
    """Further operations that make another set of one."""
    at: Callable[[Any, IDset], Members]
    """The elements at positions, all of which exist."""


class _Step(argparse.Action):
    """Appends a step that changes the set to those before it on the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        namespace.steps = [*namespace.steps, (str(self.const), values)]


def register(parser: argparse.ArgumentParser, kind: SetType) -> None:
    """Adds the operations and their arguments.

    Args:
        parser: Parser of the verb.
        kind: The type on which the verb works.
    """
    text = kind.verb.upper()
    parser.epilog = (
        f"Each {text} is a text such as `{kind.example}`. Without any, or for `-`, they are read\n"
        "from the standard input, separated by blanks or new lines (with --lenient, new lines).\n"
        "Steps such as --difference change the set first, from left to right."
    )
    operations = parser.add_subparsers(dest="operation", metavar="OPERATION", required=True)

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return operations.add_parser(
            name, help=summary, description=f"{kind.verb} {name}: {summary}.", allow_abbrev=False
        )

    def add_sets(operation: argparse.ArgumentParser, summary: str) -> None:
        operation.add_argument(
            "--lenient",
            action="store_true",
            help="accept and correct small errors of syntax, with a warning",
        )
        steps = operation.add_argument_group("steps")

        def add_step(name: str, **options: Any) -> None:
            steps.add_argument(
                f"--{name}", action=_Step, const=name, dest="steps", default=[], **options
            )

        for name, kept in COMBINATIONS.items():
            add_step(name, metavar=text, help=f"with this one, {kept}")
        for name in kind.changes:
            add_step(name, nargs=0, help=f"as `{kind.verb} {name}`")
        add_step("slice", metavar="POSITIONS", type=slice_or_ids, help="only those at positions")
        operation.add_argument("sets", metavar=text, nargs="*", help=summary)

    one = "the text of one; of several, all of them together"
    expand = add("expand", f"print every {kind.element}, a line each")
    expand.add_argument(
        "-d", "--delimiter", metavar="TEXT", default="\n", help="the text between them"
    )
    expand.add_argument("--json", action="store_true", help="one object a line")
    fold = add("fold", "print the shortest text")
    if kind.verb == "idset":
        fold.add_argument("-b", "--brackets", action="store_true", help="put it in brackets")
    else:
        fold.add_argument(
            "--nd", action="store_true", help="a pair of brackets for every number that varies"
        )
    count = add("count", f"print the number of {kind.element}s")
    nth = add("nth", f"print the {kind.element} at a position")
    nth.add_argument("position", metavar="N", type=int, help="from 0; -1 is the last one")
    cut = add("slice", f"print the {kind.element}s at some positions")
    cut.add_argument(
        "slice",
        metavar="START:STOP[:STEP]|POSITIONS",
        type=slice_or_ids,
        help="a slice as in Python, or positions such as 0,2-4",
    )
    find = add("find", f"print the positions of {kind.element}s, from 0, a line each")
    find.add_argument("value", metavar=text, help=f"one {kind.element}, or the text of several")
    split = add("split", "print even parts, a line each")
    split.add_argument("parts", metavar="N", type=_parts, help="how many")
    split.add_argument("--json", action="store_true", help="one object a line")
    for name, (_, summary) in kind.changes.items():
        add_sets(add(name, summary), one)
    for operation in (expand, fold, count, nth, cut, find, split):
        add_sets(operation, one)
    for name, summary in COMBINATIONS.items():
        add_sets(add(name, f"print {summary}"), "the text of each")


def slice_of(text: str) -> slice:
    """Converts `START:STOP[:STEP]` to a slice."""
    try:
        start, stop, *step = (int(part) if part else None for part in text.split(":"))
    except ValueError:
        step = [0]
    if len(step) > 1 or 0 in step:
        expected = "START:STOP or START:STOP:STEP with a STEP that is not 0"
        raise argparse.ArgumentTypeError(f"expected {expected}, found `{text}`")
    return slice(start, stop, *step)


def slice_or_ids(text: str) -> slice | IDset:
    """Converts `START:STOP[:STEP]` to a slice, or a text such as `0,2-4` to ids."""
    if ":" in text:
        return slice_of(text)
    from penstock.idset import IDset

    try:
        return IDset(text)
    except IdsetError as error:
        raise argparse.ArgumentTypeError(f"expected START:STOP or positions: {error}") from None


def _parts(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a number of parts from 1 on, found `{text}`")
    return int(text)


def main(args: argparse.Namespace, kind: SetType) -> int:
    """Runs the verb.

    Args:
        args: The parsed arguments.
        kind: The type on which the verb works.

    Returns:
        0; 1 for bad input, which the standard error output names.
    """
    try:
        _run(args, kind)
    except Error as error:
        print(f"penstock {kind.verb}: {error}", file=sys.stderr)
        return 1
    return 0


def _texts(arguments: list[str], *, lines: bool) -> list[str]:
    texts: list[str] = []
    for text in arguments or ["-"]:
        if text != "-":
            texts.append(text)
            continue
        # Bytes that are no text become characters that no set has: the error shows them.
        read = sys.stdin.buffer.read().decode(errors="replace")
        texts.extend(read.splitlines() if lines else read.split())
    return texts


def _mend(text: str, kind: SetType) -> str:
    """The corrected text; prints the corrections to the standard error."""
    members, mended = kind.read(text)
    if mended:
        shown = json.dumps(text[:64])
        print(f"penstock {kind.verb}: mended {shown}: {', '.join(mended)}", file=sys.stderr)
    return str(members)


def _run(args: argparse.Namespace, kind: SetType) -> None:
    texts = _texts(args.sets, lines=args.lenient)
    if args.lenient:
        texts = [_mend(text, kind) for text in texts]
    if args.operation in COMBINATIONS:
        print(_changed(_combine(args.operation, texts, kind), args.steps, kind))
        return
    whole = _changed(kind.join(texts), args.steps, kind)
    if args.operation in kind.changes:
        change, _ = kind.changes[args.operation]
        print(change(whole))
    else:
        _OPERATIONS[args.operation](whole, args, kind)


def _changed(whole: Members, steps: Iterable[tuple[str, Any]], kind: SetType) -> Members:
    """The set after the steps."""
    for name, value in steps:
        if name in COMBINATIONS:
            whole = getattr(whole, name.replace("-", "_"))(kind.join([value]))
        elif name in kind.changes:
            whole = kind.changes[name][0](whole)
        else:
            whole = _slice(whole, value, kind)
    return whole


def _slice(whole: Members, positions: slice | IDset, kind: SetType) -> Members:
    if isinstance(positions, slice):
        return whole[positions]
    last = positions.last()
    if last is not None and last >= len(whole):
        raise _no_position(last, whole, kind)
    return kind.at(whole, positions)


def _no_position(position: int, whole: Members, kind: SetType) -> NotFoundError:
    number = f"{len(whole)} {kind.element}{'' if len(whole) == 1 else 's'}"
    return NotFoundError(f"no position {position} among {number}")


def _combine(operation: str, texts: list[str], kind: SetType) -> Members:
    """Combines the sets from the left, several at a time where the operation permits it."""
    if operation == "union":
        # Of a list of hosts this drops the repeats.
        return kind.join(texts).union("")
    first, others = kind.join(texts[:1]).union(""), texts[1:]
    if operation == "intersection":
        return first.intersection(*others)
    if operation == "difference":
        return first.difference(str(kind.join(others)))
    return functools.reduce(lambda left, right: left.symmetric_difference(right), others, first)


def _chunks(whole: Members) -> Iterator[list[int] | list[str]]:
    for start in range(0, len(whole), CHUNK_MEMBERS):
        yield whole[start : start + CHUNK_MEMBERS].expand()


def _expand(whole: Members, args: argparse.Namespace, kind: SetType) -> None:
    position = 0
    for chunk in _chunks(whole):
        if args.json:
            rows = enumerate(chunk, position)
            lines = (json.dumps({"position": at, kind.element: element}) for at, element in rows)
            sys.stdout.write("\n".join(lines) + "\n")
        else:
            sys.stdout.write(args.delimiter if position else "")
            sys.stdout.write(args.delimiter.join(map(str, chunk)))
        position += len(chunk)
    if position and not args.json:
        sys.stdout.write("\n")


def _fold(whole: Members, args: argparse.Namespace, kind: SetType) -> None:
    print(kind.fold(whole, args))


def _count(whole: Members, args: argparse.Namespace, kind: SetType) -> None:
    print(len(whole))


def _nth(whole: Members, args: argparse.Namespace, kind: SetType) -> None:
    end = args.position + 1 or len(whole)
    found = whole[args.position : end].expand()
    if not found:
        raise _no_position(args.position, whole, kind)
    print(found[0])


def _cut(whole: Members, args: argparse.Namespace, kind: SetType) -> None:
    print(_slice(whole, args.slice, kind))


def _find(whole: Members, args: argparse.Namespace, kind: SetType) -> None:
    positions = []
    for element in kind.join([args.value]):
        position = kind.find(whole, element)
        if position is None:
            raise NotFoundError(f"{kind.element} `{element}` is not in it")
        positions.append(position)
    for position in positions:
        print(position)


def _split(whole: Members, args: argparse.Namespace, kind: SetType) -> None:
    parts: Sequence[Members] = whole.split(args.parts)
    for number, part in enumerate(parts):
        if args.json:
            row = {"part": number, f"{kind.element}s": str(part), "count": len(part)}
            print(json.dumps(row))
        else:
            print(part)


_OPERATIONS: dict[str, Callable[[Members, argparse.Namespace, SetType], None]] = {
    "expand": _expand,
    "fold": _fold,
    "count": _count,
    "nth": _nth,
    "slice": _cut,
    "find": _find,
    "split": _split,
}
