"""Nodes as drawings: the map of all nodes by state, and the cores of a node by job."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._core import IDset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.cli.topdata import NodeRow

# In the order of the legend; the texts say what a state means.
STATES = {
    "free": "no job",
    "mixed": "some cores allocated",
    "allocated": "all cores allocated",
    "draining": "takes no new jobs, some still run",
    "drained": "takes no jobs",
    "offline": "not connected",
    "excluded": "excluded by the configuration",
}
MAX_MAP_WIDTH = 1120
COLOUR_COUNT = 12
MAX_COLOURED_JOBS = 100_000


@dataclass(frozen=True)
class StateShape:
    """The nodes of one state in the map: a path (SVG) with a mark for each."""

    state: str
    count: int
    path: str


@dataclass(frozen=True)
class NodeMap:
    """The map: `pitch` is the distance of two nodes, in units of the drawing and in pixels."""

    columns: int
    pitch: int
    width: int
    height: int
    shapes: Sequence[StateShape]


def node_map(nodes: Sequence[NodeRow]) -> NodeMap:
    """The map of nodes, line by line in the order of their ranks.

    There is one path for each state, so that 10,000 nodes are a few elements of a page.
    """
    count = len(nodes)
    pitch = next((size for most, size in ((200, 24), (1000, 16), (4000, 11)) if count <= most), 8)
    columns = max(1, min(count, MAX_MAP_WIDTH // pitch))
    marks: dict[str, list[str]] = {state: [] for state in STATES}
    size = pitch - max(1, pitch // 8)
    for place, node in enumerate(nodes):
        x, y = place % columns * pitch, place // columns * pitch
        marks[node.state].append(_mark(node.state, x, y, size))
    shapes = [StateShape(state, len(found), "".join(found)) for state, found in marks.items()]
    return NodeMap(columns, pitch, columns * pitch, -(-count // columns) * pitch, shapes)


def _mark(state: str, x: int, y: int, size: int) -> str:
    """A square; of states that take no jobs another shape, since not all readers see colours."""
    if state in ("drained", "draining"):
        return f"M{x} {y}h{size}l-{size} {size}z"
    if state == "offline":
        return f"M{x} {y}l{size} {size}M{x + size} {y}l-{size} {size}"
    if state == "excluded":
        return f"M{x + size // 4} {y + size // 4}h{size // 2}v{size // 2}h-{size // 2}z"
    return f"M{x} {y}h{size}v{size}h-{size}z"


# --- the cores and gpus of a node


@dataclass(frozen=True)
class Unit:
    """Consecutive cores or gpus of one node that one job has, or none.

    Attributes:
        kind: `core` or `gpu`.
        first: the first one's number.
        count: their number.
        job: the job that has them, if it may be shown.
        is_allocated: whether a job has them.
    """

    kind: str
    first: int
    count: int
    job: int | None
    is_allocated: bool

    @property
    def last(self) -> int:
        """The last one's number."""
        return self.first + self.count - 1


Children = dict[str, IDset]


def children_by_rank(document: Mapping[str, Any], ranks: IDset) -> dict[int, Children]:
    """The cores and gpus of some ranks in an R (RFC 20): idsets by `core` and `gpu`."""
    found: dict[int, Children] = {}
    for entry in document["execution"]["R_lite"]:
        wanted = IDset(str(entry["rank"])) & ranks
        if wanted:
            children = {
                kind: IDset(str(entry["children"].get(kind, ""))) for kind in ("core", "gpu")
            }
            found |= dict.fromkeys(wanted, children)
    return found


def units(total: Children, allocated: Children | None, jobs: Mapping[int, Children]) -> list[Unit]:
    """The cores, then the gpus of a node, divided by the jobs that have them.

    Args:
        total: all of the node.
        allocated: those that jobs have, also jobs that may not be shown.
        jobs: those of each job that may be shown.
    """
    return list(
        itertools.chain.from_iterable(_runs(kind, total, allocated, jobs) for kind in total)
    )


def _runs(
    kind: str, total: Children, allocated: Children | None, jobs: Mapping[int, Children]
) -> Iterator[Unit]:
    holders = {number: job for job, children in jobs.items() for number in children[kind]}
    taken = allocated[kind] if allocated else IDset()

    def holder(number: int) -> tuple[int | None, bool]:
        return holders.get(number), number in holders or number in taken

    # Numbers that follow each other and have one holder have one key.
    keyed = ((place, number, holder(number)) for place, number in enumerate(total[kind]))
    for (_, key), group in itertools.groupby(keyed, lambda each: (each[1] - each[0], each[2])):
        numbers = [number for _, number, _ in group]
        yield Unit(kind, numbers[0], len(numbers), *key)


class Colours:
    """A colour for each job, from 0 to `COLOUR_COUNT` - 1, which it keeps while the server runs."""

    def __init__(self) -> None:
        self._colours: dict[int, int] = {}
        self._next = itertools.count()

    def of(self, job: int) -> int:
        """The colour of a job. Jobs that are first seen together have different ones."""
        if job not in self._colours:
            if len(self._colours) >= MAX_COLOURED_JOBS:
                self._colours.clear()
            self._colours[job] = next(self._next) % COLOUR_COUNT
        return self._colours[job]


def counts(nodes: Iterable[NodeRow]) -> dict[str, int]:
    """The number of nodes in each state."""
    found = dict.fromkeys(STATES, 0)
    for node in nodes:
        found[node.state] += 1
    return found
