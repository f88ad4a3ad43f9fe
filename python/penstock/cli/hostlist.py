"""`penstock hostlist`: lists of hosts (RFC 29) on the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.cli import sets
from penstock.errors import HostlistError
from penstock.hostlist import Hostlist

if TYPE_CHECKING:
    import argparse

SUMMARY = "Lists of hosts, such as node[0-99],login: expand, fold, count, combine."


# A group, also as an operand of ClusterShell's operators.
_GROUP = re.compile(r"(?:^|[,!&^])\s*(@[^,!&^]*)")


def _join(texts: list[str]) -> Hostlist:
    for text in texts:
        if "@" in text and (group := _GROUP.search(text)):
            raise HostlistError(
                f"`{group[1]}` is a group reference, which hostlists do not have: "
                "`penstock nodeset` resolves groups"
            )
    return Hostlist(text for text in texts if text)


def _sorted(hosts: Hostlist) -> Hostlist:
    hosts.sort()
    return hosts


def _without_repeats(hosts: Hostlist) -> Hostlist:
    hosts.uniq()
    return hosts


HOSTLIST_TYPE = sets.SetType(
    verb="hostlist",
    example="node[0-99],login",
    element="host",
    join=_join,
    find=Hostlist.find,
    read=Hostlist.parse_lenient,
    fold=lambda hosts, args: hosts.fold(nd=args.nd),
    changes={
        "sort": (_sorted, "print them in natural order"),
        "uniq": (_without_repeats, "print each once, in order of first occurrence"),
    },
    at=Hostlist.at,
)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the operations and their arguments."""
    sets.register(parser, HOSTLIST_TYPE)


def main(args: argparse.Namespace) -> int:
    """Runs the verb.

    Returns:
        0; 1 for bad input, which the standard error output names.
    """
    return sets.main(args, HOSTLIST_TYPE)
