"""The libraries against their targets, their peers and the bound of each row: `make bench-lib`.

    python bench/library/table.py [WORD]

With a word, only the rows whose name contains it. The output is a part of `bench/RESULTS.md`. The
rounds of a row's calls alternate, since the machine's pace changes from minute to minute; the least
time of each call counts. Cycles are computed from times, since virtual machines often count none.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rows import MEMORY, ROWS, Row, measure_memory

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds of one round, and of all rounds of a call; the fewest and the most rounds.
ROUND_S, CALL_S, MIN_ROUNDS, MAX_ROUNDS = 0.002, 0.3, 3, 100


def measure(call: Callable[[], object], iterations: int) -> float:
    """Seconds of one of several calls."""
    began = time.perf_counter()
    for _ in range(iterations):
        call()
    return (time.perf_counter() - began) / iterations


def least_times(row: Row) -> dict[str, float]:
    """Seconds of each of the row's calls."""
    calls = {who: make() for who, make in row.makers.items()}
    least = {who: measure(call, 1) for who, call in calls.items()}
    iterations = {who: max(1, round(ROUND_S / max(once, 1e-8))) for who, once in least.items()}
    for turn in range(MAX_ROUNDS):
        for who, call in calls.items():
            if turn < MIN_ROUNDS or turn * iterations[who] * least[who] < CALL_S:
                least[who] = min(least[who], measure(call, iterations[who]))
    return least


def shown(seconds: float) -> str:
    """A time with its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def hertz() -> float | None:
    """The clock of `/proc/cpuinfo`; None if the system names none."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("cpu MHz"):
            return float(line.split(":")[1]) * 1e6
    return None


def rate(row: Row, seconds: float, clock: float | None) -> str:
    """Cycles, or ns without a clock, for each id, host, node or call; for few, of the whole."""
    number, unit = (seconds * 1e9, "ns") if clock is None else (seconds * clock, "cycles")
    count = row.count()
    return f"{number / count:.3g} {unit}/{row.unit}" if count else f"{number:.3g} {unit}"


def main() -> None:
    """Measures, and prints the tables."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    measured = {row: least_times(row) for row in ROWS if word in row.name}
    command = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    clock = hertz()
    lines, verdicts = [], Counter[str]()
    for row, times in measured.items():
        own, bound = times.pop("penstock"), times.pop("bound")
        target, verdict = row.verdict(own, times, bound)
        verdicts[verdict] += 1
        peers = ", ".join(f"{who} {shown(one)} ({own / one:.3g})" for who, one in times.items())
        rates = f"{rate(row, own, clock)} | {rate(row, bound, clock)}"
        lines.append(
            f"| {row.name} | {target} | {shown(own)} | {peers or '-'} "
            f"| {row.bound} {shown(bound)} ({own / bound:.3g}) | {rates} | {row.work or '-'} "
            f"| {verdict} |"
        )
    if not word:
        measure_memory()
    memory = []
    for name, (bytes_here, theirs, most) in MEMORY.items():
        verdict = "met" if bytes_here <= most else "missed"
        verdicts[verdict] += 1
        memory.append(f"| {name} | {most} B | {bytes_here} B | {theirs or '-'} | {verdict} |")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    print(
        f"`make bench-lib` at {commit}, least times: {counts}. In brackets is Penstock's time as\n"
        "a multiple of a peer's or the yardstick's."
    )
    if clock is not None:
        print(
            f"Cycles are those of the clock of `/proc/cpuinfo`, {clock / 1e6:.0f} MHz; in virtual\n"
            "machines the time stamp counter's."
        )
    columns = [
        *("row", "target", "penstock", "peers", "yardstick", "cycles"),
        *("cycles of the yardstick", "what takes the time", "verdict"),
    ]
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    print("\n".join(lines))
    if memory:
        print("\n| memory | target | penstock | pyroaring's containers | verdict |")
        print("|---|---|---|---|---|")
        print("\n".join(memory))


if __name__ == "__main__":
    main()
