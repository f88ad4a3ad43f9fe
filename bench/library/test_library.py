"""The libraries against their targets and their peers: `make bench-lib`."""

from __future__ import annotations

import time

import pytest
from rows import ROWS, measure_memory

#: Seconds for one measurement, and the least for one round of it.
BUDGET, ROUND = 0.4, 0.002
CASES = [(row, who) for row in ROWS for who in row.makers]


@pytest.mark.parametrize(("row", "who"), CASES, ids=[f"{row.name}-{who}" for row, who in CASES])
def test_row(benchmark, record, row, who):
    call = row.makers[who]()
    began = time.perf_counter()
    call()
    once = max(time.perf_counter() - began, 1e-8)
    iterations = max(1, round(ROUND / once))
    rounds = min(max(int(BUDGET / (once * iterations)), 2), 200)
    benchmark.group = row.name
    benchmark.pedantic(call, rounds=rounds, iterations=iterations, warmup_rounds=1)
    record(row.name, who, benchmark.stats.stats.min)


def test_memory(benchmark):
    benchmark.pedantic(measure_memory, rounds=1)
