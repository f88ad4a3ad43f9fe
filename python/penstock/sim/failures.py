"""Failures of nodes: from a file, or by chance."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING

from penstock._core import parse_duration
from penstock.errors import Error
from penstock.instance.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from penstock._core import ResourceSet

__all__ = ["Failure", "FailuresError", "by_chance", "load"]

Failure = tuple[float, str, bool]
"""When (seconds of the trace), which ranks (an idset), and whether they come up or go down."""

MOST = 1_000_000


class FailuresError(Error, ValueError):
    """Failures of nodes cannot be made out; the text says what is wrong and where."""


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
    targets = Ledger(resources, None, {}).targets
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
            ranks = targets(words[1])
        except Error as error:
            raise FailuresError(f"{place}: {error}") from error
        found.append((time, str(ranks), words[2] == "up"))
    return sorted(found, key=lambda failure: failure[0])


def by_chance(
    resources: ResourceSet,
    *,
    mtbf: float,
    mttr: float,
    seed: int,
    start: float,
    end: float,
) -> list[Failure]:
    """Failures of single nodes, independent of each other.

    Times between failures of a node and times of repair have an exponential distribution.

    Args:
        resources: the machine.
        mtbf: the mean time from a node's return to its next failure, in seconds.
        mttr: the mean time of a repair, in seconds.
        seed: equal seeds give equal failures.
        start: when it begins, in seconds of the trace.
        end: no node fails after this; all that are down then come up again.

    Returns:
        The changes in order of time.

    Raises:
        FailuresError: there would be more than a million of them.
    """
    chance = random.Random(f"penstock failures {seed}")
    ranks = list(resources.ranks)
    expected = 2 * len(ranks) * (end - start) / (mtbf + mttr)
    if expected > MOST:
        raise FailuresError(
            f"about {expected:,.0f} changes of nodes would have to be simulated: expected at most "
            f"{MOST:,}\nhint: a node fails every {mtbf:g} s; give a longer --mtbf"
        )
    waiting = [(start + chance.expovariate(1 / mtbf), rank) for rank in ranks]
    heapq.heapify(waiting)
    found: list[Failure] = []
    while waiting and waiting[0][0] <= end:
        down, rank = waiting[0]
        up = down + chance.expovariate(1 / mttr)
        found += [(down, str(rank), False), (up, str(rank), True)]
        heapq.heapreplace(waiting, (up + chance.expovariate(1 / mtbf), rank))
    return sorted(found, key=lambda failure: failure[0])
