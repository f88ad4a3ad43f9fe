"""`penstock idset`: sets of ids (RFC 22) on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import sets
from penstock.idset import IDset

if TYPE_CHECKING:
    import argparse

SUMMARY = "Sets of ids, such as 0-3,8: expand, fold, count, combine."


def _join(texts: list[str]) -> IDset:
    ids = IDset()
    ids.update(*texts)
    return ids


def _find(ids: IDset, member: int) -> int | None:
    return ids.index(member) if member in ids else None


IDSET_TYPE = sets.SetType(
    verb="idset",
    example="0-3,8",
    element="id",
    join=_join,
    find=_find,
    read=IDset.parse_lenient,
    fold=lambda ids, args: ids.encode(brackets=args.brackets),
    changes={
        "sort": (IDset.copy, "print them in ascending order, as every set is"),
        "uniq": (IDset.copy, "print each once, as in every set"),
    },
    at=lambda ids, positions: IDset(ids[position] for position in positions),
)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the operations and their arguments."""
    sets.register(parser, IDSET_TYPE)


def main(args: argparse.Namespace) -> int:
    """Runs the verb.

    Returns:
        0; 1 for bad input, which the standard error output names.
    """
    return sets.main(args, IDSET_TYPE)
