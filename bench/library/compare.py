"""The set libraries of two builds, measured in turn: each row's time before and after.

Give the folders of two clones, each with its `.venv` (`make bench-lib` makes it):

    python bench/library/compare.py BEFORE AFTER

The rows are those of this clone. Short rounds of both builds alternate, in several pairs of
processes since the layout of memory differs from process to process, and the least time of each
build counts: the rest of the machine slows both alike.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

#: Pairs of processes; rounds of each build in a pair; seconds of a round.
PROCESSES, ROUNDS, ROUND_S = 5, 12, 0.004


def serve() -> None:
    """Measures the rows that are named on standard input: a least time for each line."""
    from rows import ROWS

    rows = {row.name: row.makers["penstock"] for row in ROWS}
    call, iterations, last = None, 1, ""
    for line in sys.stdin:
        name = line.rstrip("\n")
        if name != last:
            last, call = name, rows[name]()
            began = time.perf_counter()
            call()
            iterations = max(1, round(ROUND_S / max(time.perf_counter() - began, 1e-8)))
        began = time.perf_counter()
        for _ in range(iterations):
            call()
        print((time.perf_counter() - began) / iterations, flush=True)


class Build:
    """A process that measures one build."""

    def __init__(self, folder: str) -> None:
        python = Path(folder).resolve() / ".venv/bin/python"
        environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(__file__).parent)}
        self._process = subprocess.Popen(
            [python, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def measure(self, row: str) -> float:
        """Seconds of one call, in one round."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(row, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args[0]}: `{row}` cannot be measured")
        return float(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def main() -> None:
    """Measures, and prints a row for each."""
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    from rows import ROWS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--word", default="", help="only the rows whose name contains it")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
    names = [row.name for row in ROWS if args.word in row.name]
    best = {name: [float("inf")] * 2 for name in names}
    for number in range(args.processes):
        builds = [Build(folder) for folder in (args.before, args.after)]
        for name in names:
            for build in builds:
                build.measure(name)
            for turn in range(ROUNDS):
                for side in (0, 1) if (turn + number) % 2 else (1, 0):
                    best[name][side] = min(best[name][side], builds[side].measure(name))
        for build in builds:
            build.close()
    print("| row | before, us | after, us | change |\n|---|---|---|---|")
    for name, (before, after) in best.items():
        print(f"| {name} | {before * 1e6:,.3f} | {after * 1e6:,.3f} | {after / before - 1:+.1%} |")


if __name__ == "__main__":
    main()
