"""Prints what `bench/library` has measured against the targets and the peers."""

from __future__ import annotations

import statistics

import pytest

MEASURED: dict[str, dict[str, float]] = {}


@pytest.fixture
def record():
    """Keeps a row's best time in seconds, by who did it."""

    def keep(row: str, who: str, seconds: float) -> None:
        MEASURED.setdefault(row, {})[who] = seconds

    return keep


def shown(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, scale in (("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.2g} ns"


def pytest_terminal_summary(terminalreporter):
    """The table: a row a measurement, with its target, figure, peers and verdict."""
    from rows import MEMORY, ROWS, THEN

    if not MEASURED:
        return
    write = terminalreporter.write_line
    times = [MEASURED.get(row, {}).get(who, 0) / then for (row, who), then in THEN.items()]
    drift = statistics.median(sorted(filter(None, times)) or [1.0])
    write("")
    write(f"The peers take {drift:.2f} times as long here as where the targets were measured.")
    write("")
    write("| row | target | penstock | peers (times as long) | verdict |")
    write("|---|---|---|---|---|")
    missed = 0
    for row in ROWS:
        times = MEASURED.get(row.name)
        if times is None or "penstock" not in times:
            continue
        own = times.pop("penstock")
        target, verdict = row.verdict(own, times, drift)
        missed += verdict == "missed"
        peers = ", ".join(
            f"{who} {shown(seconds)} ({seconds / own:.3g})" for who, seconds in times.items()
        )
        write(f"| {row.name} | {target} | {shown(own)} | {peers or '-'} | {verdict} |")
    write("")
    write("| memory | target | penstock | pyroaring's containers | verdict |")
    write("|---|---|---|---|---|")
    for name, (own, theirs, most) in MEMORY.items():
        missed += own > most
        verdict = "met" if own <= most else "missed"
        write(f"| {name} | {most} B | {own} B | {theirs or '-'} | {verdict} |")
    write("")
    write(f"{missed} targets missed")
