"""`penstock pstree`: jobs as a tree, with those of the instances in jobs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import selection
from penstock.cli.encoding import is_unicode
from penstock.cli.ids import JobIds
from penstock.cli.jobs import RowFormatter, fields
from penstock.cli.rows import nested_uri
from penstock.cli.text import id_text, safe
from penstock.client import Client
from penstock.errors import Error

if TYPE_CHECKING:
    import argparse

    from penstock.rows import JobRow

SUMMARY = """Show jobs as a tree: below a job that runs an instance are the jobs of that.

Without ids these are your running jobs. Equal jobs without jobs below them are combined:
`3*[sleep]`."""

RUNNING = {"states": ["running"]}


class Connectors(NamedTuple):
    """The starts of lines: of a job, of the last job, and of the lines below each of them."""

    middle: str
    last: str
    past: str
    beyond: str = "    "


LINES = Connectors("├── ", "└── ", "│   ")
ASCII_LINES = Connectors("|-- ", "`-- ", "|   ")


class Node(NamedTuple):
    """A job in the tree, with its label."""

    label: str
    children: list[Node]


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-a", "--all", action="store_true", help="jobs in all states; labels have the state")
    add("-L", "--level", type=int, metavar="N", help="descend at most N levels")
    add("-l", "--long", action="store_true", help="do not cut long lines")
    add("-p", "--parent-ids", action="store_true", help="the ids of jobs with jobs below them")
    add("-X", "--no-combine", action="store_true", help="do not combine equal jobs")
    add("-o", "--label", metavar="FORMAT", help="of each job, as of `penstock jobs`: `{name}`")
    add("--parent-label", metavar="FORMAT", help="of jobs with jobs below them")
    add("--ascii", action="store_true", help="no characters beyond ASCII")
    selection.register(parser)
    add("id", nargs="*", action=JobIds, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    tree = Tree(args)
    with Client() as client:
        nodes = tree.nodes(client, args.id, 0)
    lines = ASCII_LINES if args.ascii or not is_unicode(sys.stdout) else LINES
    shown = nodes_text(nodes, lines, "", combine=not args.no_combine)
    if args.id:
        # Each job is a root, and has no connector.
        shown = [line[len(lines.last) :] for line in shown]
    else:
        shown.insert(0, ".")
    columns = None
    if not args.long and sys.stdout.isatty():
        columns = os.get_terminal_size(1).columns
    for line in shown:
        print(line if columns is None or len(line) <= columns else f"{line[: columns - 1]}+")
    return 0


class Tree:
    """The jobs below an instance.

    Args:
        args: the options.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        label = args.label or ("{name}:{status_abbrev}" if args.all else "{name}")
        self._label = RowFormatter(label)
        self._parent_label = RowFormatter(args.parent_label or args.label or "{name}")

    def nodes(self, client: Client, ids: list[int], level: int) -> list[Node]:
        """The jobs of an instance: these, or those that the options select."""
        if ids:
            rows = client.job_rows(ids=ids)
        else:
            states = None if self._args.all else RUNNING
            parts = selection.constraint(self._args, states)
            rows = client.job_rows(
                constraint={"and": parts}, max_entries=self._args.count, order="state"
            )
        return [self._node(row, level + 1) for row in rows]

    def _node(self, row: JobRow, level: int) -> Node:
        uri = nested_uri(row)
        now = self._args.clock.now()
        if uri is None:
            return Node(self._label.line(fields(row, now)), [])
        children: list[Node] = []
        if self._args.level is None or level < self._args.level:
            try:
                with Client(uri) as client:
                    children = self.nodes(client, [], level)
            except (Error, OSError):
                # The instance is another user's, or has just ended.
                children = []
        label = self._parent_label.line(fields(row, now))
        return Node(f"{id_text(row['id'])} {label}" if self._args.parent_ids else label, children)


def nodes_text(nodes: list[Node], lines: Connectors, indent: str, *, combine: bool) -> list[str]:
    """The lines of a tree."""
    leaves = Counter(node.label for node in nodes if not node.children) if combine else Counter()
    # Equal jobs are shown in the place of the first of them.
    seen: set[str] = set()
    shown: list[Node] = []
    for node in nodes:
        count = 1 if node.children else leaves.get(node.label, 1)
        if count > 1:
            if node.label in seen:
                continue
            seen.add(node.label)
            shown.append(Node(f"{count}*[{node.label}]", []))
        else:
            shown.append(node)
    text = []
    for place, node in enumerate(shown):
        is_last = place == len(shown) - 1
        text.append(f"{indent}{lines.last if is_last else lines.middle}{safe(node.label)}")
        below = indent + (lines.beyond if is_last else lines.past)
        text += nodes_text(node.children, lines, below, combine=combine)
    return text
