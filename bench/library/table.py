"""The libraries against their targets, their peers and the bound of each row: `make bench-lib`.

    python bench/library/table.py [WORD]

With a word, only the rows whose name contains it. The rounds of a row's calls alternate, since the
machine's pace changes from minute to minute; the least time of each call counts.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING

from rows import MEMORY, ROWS, THEN, Row, measure_memory

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


def main() -> None:
    """Measures, and prints the tables."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    measured = {row: least_times(row) for row in ROWS if word in row.name}
    ratios = [
        times[who] / THEN[row.name, who]
        for row, times in measured.items()
        for who in times
        if (row.name, who) in THEN
    ]
    drift = statistics.median(ratios or [1.0])
    print(f"The peers take {drift:.2f} times as long here as where the targets were measured.\n")
    print("| row | target | penstock | of each | peers (times) | bound (times) | verdict |")
    print("|---|---|---|---|---|---|---|")
    missed = 0
    for row, times in measured.items():
        own = times.pop("penstock")
        bound = times.pop("bound", None)
        target, verdict = row.verdict(own, times, bound, drift)
        missed += verdict == "missed"
        peers = ", ".join(f"{who} {shown(one)} ({own / one:.3g})" for who, one in times.items())
        count = row.count()
        each = f"{own / count * 1e9:.3g} ns/{row.unit}" if count else "-"
        limit = f"{row.bound} {shown(bound)} ({own / bound:.3g})" if bound else "-"
        print(
            f"| {row.name} | {target} | {shown(own)} | {each} | {peers or '-'} | {limit} "
            f"| {verdict} |"
        )
    if not word:
        measure_memory()
        print("\n| memory | target | penstock | pyroaring's containers | verdict |")
        print("|---|---|---|---|---|")
    for name, (bytes_here, theirs, most) in MEMORY.items():
        verdict = "met" if bytes_here <= most else "missed"
        missed += verdict == "missed"
        print(f"| {name} | {most} B | {bytes_here} B | {theirs or '-'} | {verdict} |")
    print(f"\n{missed} targets missed")


if __name__ == "__main__":
    main()
