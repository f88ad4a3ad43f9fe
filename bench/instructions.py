"""Instructions of the rows of `make bench-engine` in two builds, counted by valgrind.

Build both with `cargo build --release -p penstock-engine --example rows`, and name the programs:

    python bench/instructions.py BEFORE AFTER

Counts do not depend on what else the machine does. With `--cache` the misses of a simulated cache
are counted as well: of the nearest one (D1) and of the last level (LL).

The count of a row is that of its timed part, the function `time` of the example, in at most
`ROUNDS` rounds.
`--word` selects some of the rows: those with 100,000 pending jobs under conservative backfill take
half an hour each, that with 6.4 million running jobs (free and match again) ten minutes.

In a build of an older commit, `time` must be made `#[inline(never)]`, and `rounds` be added.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: The most rounds of a row, enough for the first one, which allocates memory, to count little; of a
#: long row.
ROUNDS, LONG_ROUNDS = 20, 1
ONE_CORE, MANY_NODES = "match 1 core at 10000 nodes", "match 64 nodes at 10000 nodes"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: its name, as far as the builds have it in common.
        besides: rows that the program counts together with it.
        rounds: the most rounds of it.
    """

    name: str
    besides: tuple[str, ...] = ()
    rounds: int = ROUNDS


def rows() -> list[Row]:
    """All rows that take time, in the order of the table."""
    others = ("pack", "spread", "thrifty", "contiguous")
    selected = [("1 core", ONE_CORE), ("64 nodes", MANY_NODES)]
    return [
        *(Row(f"load {nodes} nodes") for nodes in (1000, 10_000, 100_000)),
        *(Row(f"match 1 core at {nodes} nodes") for nodes in (1000, 10_000, 100_000)),
        Row("match 1 whole node at 10000 nodes"),
        Row(MANY_NODES),
        Row("match 1 core on a tenth of 10000 nodes", (ONE_CORE,)),
        Row("match 64 nodes of a tenth of 10000", (MANY_NODES,)),
        *(
            Row(f"match {what} by {selection} at 10000 nodes", (first,))
            for selection in others
            for what, first in selected
        ),
        # The program measures `first` beside each of them, which is no row of its own.
        *(Row(f"match 64 of 5000 scattered nodes by {selection}") for selection in others),
        Row("pass with a match that is known to fail"),
        Row("pass with a match that fails after a free"),
        Row("free and match again at 100000 nodes"),
        Row("R as text of 1 core"),
        Row("R as text of 64 nodes"),
        Row("R as text of 64 scattered nodes"),
        Row("full: fcfs pass"),
        Row("deep: easy, first pass", ("deep: easy, first pass with 10000 shapes",)),
        Row("deep: easy, first pass with 10000 shapes"),
        Row("deep: easy, pass after a release"),
        Row("deep: hybrid:8, first pass"),
        Row("deep: hybrid:8, pass after a release"),
        Row("deep, 1000 pending: conservative, first pass"),
        Row("deep, 1000 pending: conservative, pass after a release"),
        Row("deep: conservative, first pass"),
        Row("deep: conservative, pass after a release"),
        *(Row(f"fragments, {jobs} pending", (), LONG_ROUNDS) for jobs in (1000, 4000, 20_000)),
        *(
            Row(f"deep: {policy}, estimates of 100000", (), LONG_ROUNDS)
            for policy in ("fcfs", "conservative", "easy")
        ),
        Row("wide: snapshot"),
        *(
            Row(f"snapshot, {jobs} pending of {shapes}")
            for jobs in (200_000, 1_000_000)
            for shapes in ("1 x 1", "1000 x 50")
        ),
        *(
            Row(f"wide: {policy}, {what}", (), LONG_ROUNDS)
            for policy in ("fcfs", "easy")
            for what in ("what if", "estimates of 1000")
        ),
        Row("pass after a property has come"),
    ]


@cache
def events(program: str, word: str, rounds: int, options: tuple[str, ...]) -> dict[str, int]:
    """The events of the rows whose name contains a word, by their names in callgrind.

    `options` are those of callgrind.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={file}", *options]
        command += ["--toggle-collect=rows::table::time*", program, word, str(rounds)]
        subprocess.run(command, capture_output=True, check=True)
        text = file.read_text()
    names = re.search(r"^events: (.*)$", text, re.MULTILINE)
    numbers = re.search(r"^(?:totals|summary): (.*)$", text, re.MULTILINE)
    if names is None or numbers is None:
        raise SystemExit(f"{program}: no instruction of `{word}` was counted")
    return dict(zip(names[1].split(), map(int, numbers[1].split()), strict=True))


def count(program: str, row: Row, options: tuple[str, ...]) -> dict[str, int]:
    """The instructions of a row, and its misses in two levels of cache."""
    costs = {"instructions": 0, "D1 misses": 0, "LL misses": 0}
    kinds = {"instructions": ["Ir"], "D1 misses": ["D1mr", "D1mw"], "LL misses": ["DLmr", "DLmw"]}
    for word, sign in [(row.name, 1), *((other, -1) for other in row.besides)]:
        found = events(program, word, row.rounds, options)
        for kind, names in kinds.items():
            costs[kind] += sign * sum(found.get(name, 0) for name in names)
    if not costs["instructions"]:
        raise SystemExit(f"{program}: no instruction of `{row.name}` was counted")
    return costs


def main() -> None:
    """Counts, and prints a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--word", default="", help="only the rows whose name contains it")
    parser.add_argument("--cache", action="store_true", help="simulate a cache as well")
    args = parser.parse_args()
    kinds = ["instructions", *(["D1 misses", "LL misses"] if args.cache else [])]
    options = ("--cache-sim=yes",) if args.cache else ()
    print("| row |", " | ".join(f"{kind} before | after | change" for kind in kinds), "|")
    print("|---" * (1 + 3 * len(kinds)) + "|")
    with ThreadPoolExecutor(2) as both:
        for row in rows():
            if args.word not in row.name:
                continue
            programs = (args.before, args.after)
            before, after = both.map(count, programs, (row, row), (options, options))
            cells = [row.name]
            for kind in kinds:
                change = after[kind] / max(before[kind], 1) - 1
                cells += [f"{before[kind]:,}", f"{after[kind]:,}", f"{change:+.2%}"]
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
