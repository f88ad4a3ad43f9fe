"""Failures of nodes, as a file lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._core import ResourceLedger, parse_duration
from penstock.errors import Error, FailuresError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock._core import ResourceSet

__all__ = ["Failure", "FailuresError", "load"]

Failure = tuple[float, str, bool]
"""When (seconds of the trace), which ranks (an idset), and whether they come up or go down."""


def load(path: Path, resources: ResourceSet) -> list[Failure]:
    """Reads a file with a line for each change: `TIME NODES down`, or `up`.

    TIME is in seconds of the trace, or a duration such as `2h`; NODES are ranks (an idset) or
    hosts. Blank lines and what follows `#` do not count.

    Args:
        path: the file.
        resources: the machine.

    Returns:
        The changes in order of time, those at one time in order of lines.

    Raises:
        FailuresError: a line is wrong, or names nodes that are not there.
        OSError: the file cannot be read.
    """
    find = ResourceLedger(resources).find
    found: list[Failure] = []
    for number, line in enumerate(path.read_text(errors="surrogateescape").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"`{path}`: line {number}"
        if len(words) != 3 or words[2] not in ("up", "down"):
            raise FailuresError(
                f"{place}: expected TIME NODES up or down, found `{' '.join(words)}`"
            )
        try:
            time = parse_duration(words[0])
        except Error:
            time = float("inf")
        if time == float("inf"):
            raise FailuresError(f"{place}: expected a time in seconds, found `{words[0]}`")
        try:
            ranks = find(words[1])
        except Error as error:
            raise FailuresError(f"{place}: {error}") from error
        found.append((time, str(ranks), words[2] == "up"))
    return sorted(found, key=lambda failure: failure[0])
