"""Instructions of one call of rows of `make bench-lib` in two builds, counted by valgrind.

Give the folders of two clones, as for `compare.py`, and words of the rows' names:

    python bench/library/instructions.py BEFORE AFTER "equality" "hostlist sort"

Each row is counted with one call and with more, and the difference is divided by their number:
neither the start of Python nor what a row prepares counts. Valgrind has no AVX-512, so both builds
take their paths for AVX2.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Seconds of the calls that are counted, without valgrind; the least and the greatest number of
#: calls.
COUNTED_S, MIN_CALLS, MAX_CALLS = 0.005, 2, 2000
#: Libraries of other rows, which take long to import.
PEERS = ("pyroaring", "ClusterShell", "hostlist")


def call_row(name: str, calls: int | None) -> None:
    """Calls a row some times. Prints how many calls should be counted if `calls` is None."""
    sys.modules.update(dict.fromkeys(PEERS))  # type: ignore[arg-type]
    from rows import ROWS

    call = next(row for row in ROWS if row.name == name).makers["penstock"]()
    call()
    if calls is None:
        began = time.perf_counter()
        call()
        took = max(time.perf_counter() - began, 1e-8)
        print(min(MAX_CALLS, max(MIN_CALLS, round(COUNTED_S / took))))
    else:
        for _ in range(calls):
            call()


def run(
    folder: str, row: str, calls: int | None, tool: list[str]
) -> subprocess.CompletedProcess[str]:
    """Runs the calls of a row in a process of a build."""
    python = Path(folder).resolve() / ".venv/bin/python"
    environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(__file__).parent)}
    command = [
        *tool,
        str(python),
        __file__,
        "--call",
        row,
        *([] if calls is None else [str(calls)]),
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def count(folder: str, row: str, calls: int) -> float:
    """Instructions of one call."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    counted = []
    for number in (0, calls):
        found = re.search(r"Collected : (\d+)", run(folder, row, number, valgrind).stderr)
        if found is None:
            raise SystemExit(f"{folder}: no instruction of `{row}` was counted")
        counted.append(int(found[1]))
    return (counted[1] - counted[0]) / calls


def main() -> None:
    """Counts, and prints a row for each."""
    if sys.argv[1:2] == ["--call"]:
        call_row(sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None)
        return
    from rows import ROWS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("words", nargs="+", help="the rows whose name contains one of them")
    args = parser.parse_args()
    print("| row | before | after | change |\n|---|---|---|---|")
    with ThreadPoolExecutor(2) as both:
        for name in (row.name for row in ROWS):
            if any(word in name for word in args.words):
                calls = int(run(args.after, name, None, []).stdout)
                counting = [
                    both.submit(count, folder, name, calls) for folder in (args.before, args.after)
                ]
                before, after = (counted.result() for counted in counting)
                print(
                    f"| {name} | {before:,.0f} | {after:,.0f} | {after / before - 1:+.2%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
