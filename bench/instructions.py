"""Instructions of the rows of `make bench-engine` in two builds, counted by valgrind.

Build both with `cargo build --release -p penstock-engine --example rows`, and name the programs:

    python bench/instructions.py BEFORE AFTER

Counts do not depend on what else the machine does. They say nothing of caches and branches.
"""

from __future__ import annotations

import argparse
import re
import subprocess

# By row: the functions within which instructions are counted.
SCHEDULE, TIMED = "*Engine*schedule*", "rows::table::time*"
ROWS = {
    "match 1 core at 1000 nodes": SCHEDULE,
    "match 1 core at 10000 nodes": SCHEDULE,
    "match 1 core at 100000 nodes": SCHEDULE,
    "match 1 whole node at 10000 nodes": SCHEDULE,
    "match 64 nodes at 10000 nodes": SCHEDULE,
    "match 64 nodes of a tenth of 10000": SCHEDULE,
    "match 64 of 5000 scattered nodes by pack": TIMED,
    "match 64 of 5000 scattered nodes by spread": TIMED,
    "match 64 of 5000 scattered nodes by contiguous": TIMED,
    "pass with a match that is known to fail": TIMED,
    "pass with a match that fails after a free": TIMED,
    "free and match again at 100000 nodes": SCHEDULE,
    "R as text of 1 core": TIMED,
    "R as text of 64 nodes": TIMED,
    "R as text of 64 scattered nodes": TIMED,
    "deep: easy, pass after a release": TIMED,
    "deep: hybrid:8, first pass": TIMED,
    "deep: hybrid:8, pass after a release": TIMED,
    "deep: fcfs, estimates of 100000": TIMED,
}


def count(program: str, row: str, functions: str) -> int:
    """The instructions of a row, whose rounds are fixed in number."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [f"--toggle-collect={functions}", program, row]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    instructions = int(found[1]) if found else 0
    if not instructions:
        raise SystemExit(f"{program}: no instruction of `{row}` was counted: expected {functions}")
    return instructions


def main() -> None:
    """Counts, and prints a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--word", default="", help="only the rows whose name contains it")
    args = parser.parse_args()
    print("| row | before | after | change |\n|---|---|---|---|")
    for row, functions in ROWS.items():
        if args.word in row:
            before = count(args.before, row, functions)
            after = count(args.after, row, functions)
            change = after / before - 1
            print(f"| {row} | {before:,} | {after:,} | {change:+.2%} |", flush=True)


if __name__ == "__main__":
    main()
