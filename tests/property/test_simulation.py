"""Published properties of the policies in simulations, and conservation of cores.

Whether each single start is right is compared with the reference (tests/reference).
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.compare import columns_of, penstock
from tests.reference.workloads import random_workload

from penstock._core import Simulation, Workload

POLICIES = ["fcfs", "easy", "conservative", "hybrid:3"]
CORES = 128
# Loads of 100 % and 80 % of the machine.
LOADS = [0.8, 1.0]
SEEDS = [1, 2]
# 100; with `--hypothesis-profile=thorough` (make compare) 3,000.
EXAMPLES = settings.default.max_examples


@cache
def lublin(policy, seed, load, estimates="modal"):
    """Columns and summary of 1,500 jobs of the model of Lublin and Feitelson."""
    workload = Workload.lublin(1500, cores=CORES, seed=seed, load=load, estimates=estimates)
    simulation = Simulation(None, workload, policy=policy, pool_cores=CORES)
    while simulation.advance(1_000_000):
        pass
    result = simulation.result()
    columns = {name: list(view) for name, view in columns_of(result).items()}
    series = {name: list(view) for name, view in series_of(result).items()}
    return columns, result.summary(), series


def series_of(result):
    formats = {"time": "d", "used_cores": "Q", "queued": "I"}
    views = {name: memoryview(column) for name, column in result.series().items()}
    return {
        name: view.cast(formats[name]) if view.format == "B" else view
        for name, view in views.items()
    }


def rows(columns):
    """One dict per job that has run."""
    names = list(columns)
    every = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [row for row in every if not math.isnan(row["start"])]


def slowdown(row):
    """Bounded slowdown, bound 10 s."""
    run = row["end"] - row["start"]
    return max(1.0, (row["start"] - row["submit"] + run) / max(run, 10))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_backfill_uses_the_machine_no_less_than_first_come_first_served(seed, load):
    used = {policy: lublin(policy, seed, load)[1]["utilisation"] for policy in POLICIES}
    assert used["easy"] >= used["fcfs"]
    assert used["conservative"] >= used["fcfs"]
    assert used["hybrid:3"] >= used["fcfs"]


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_backfill_lowers_waits_and_slowdowns(seed, load):
    """Lifka 1995; Mu'alem and Feitelson 2001: EASY and conservative are near each other."""
    slowdowns, waits = {}, {}
    for policy in POLICIES:
        done = rows(lublin(policy, seed, load)[0])
        slowdowns[policy] = fmean(slowdown(row) for row in done)
        waits[policy] = fmean(row["start"] - row["submit"] for row in done)
    assert slowdowns["fcfs"] > 2 * slowdowns["easy"]
    for policy in ["conservative", "hybrid:3"]:
        assert slowdowns[policy] < slowdowns["fcfs"]
        assert waits[policy] < waits["fcfs"]
        assert 1 / 3 < slowdowns[policy] / slowdowns["easy"] < 3
    assert waits["easy"] < waits["fcfs"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_work_is_conserved_and_the_makespan_has_its_bounds(seed, policy):
    columns, summary, series = lublin(policy, seed, 1.0)
    first_columns = lublin("fcfs", seed, 1.0)[0]
    done = rows(columns)
    assert len(done) == 1500
    # The same jobs, run for the same time, whatever the policy.
    length = Counter((row["id"], row["cores"], round(row["end"] - row["start"], 6)) for row in done)
    assert length == Counter(
        (row["id"], row["cores"], round(row["end"] - row["start"], 6))
        for row in rows(first_columns)
    )
    work = math.fsum(row["cores"] * (row["end"] - row["start"]) for row in done)
    first = min(row["submit"] for row in done)
    makespan = max(row["end"] for row in done) - first
    # No less than the work on all cores, nor than any job after its submission.
    assert makespan >= work / CORES
    assert makespan >= max(row["submit"] - first + row["end"] - row["start"] for row in done)
    assert summary["makespan"] == pytest.approx(makespan)
    assert summary["utilisation"] == pytest.approx(work / (CORES * makespan))
    # The series has the same utilisation.
    time, used = series["time"], series["used_cores"]
    area = math.fsum(
        cores * (until - since) for cores, since, until in zip(used, time, time[1:], strict=False)
    )
    assert max(used) <= CORES
    assert used[-1] == 0
    assert series["queued"][-1] == 0
    assert area == pytest.approx(work, rel=0.02), "the series may be thinned"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_summary_agrees_with_the_columns(policy):
    columns, summary, _ = lublin(policy, 1, 1.0)
    done = rows(columns)
    waits = [row["start"] - row["submit"] for row in done]
    slowdowns = [slowdown(row) for row in done]
    assert list(columns["wait"]) == pytest.approx(waits)
    for name, values in (("wait", waits), ("slowdown", slowdowns)):
        assert summary[f"{name}_mean"] == pytest.approx(fmean(values))
        assert summary[f"{name}_median"] == pytest.approx(median(values))
        assert summary[f"{name}_max"] == pytest.approx(max(values))
        below = sum(value <= summary[f"{name}_p95"] for value in values)
        assert below == pytest.approx(0.95 * len(values), abs=2)
    assert summary["jobs"] == len(done)
    assert summary["backfilled"] == sum(bool(row["backfilled"]) for row in done)
    assert summary["backfilled_share"] == pytest.approx(summary["backfilled"] / len(done))
    assert (summary["backfilled"] == 0) == (policy == "fcfs")


def test_conservative_backfill_keeps_estimates():
    """With exact estimates no job ends early: each starts at the estimate of its arrival."""
    workload = Workload.lublin(800, cores=CORES, seed=3, load=1.0, estimates="exact")
    simulation = Simulation(None, workload, policy="conservative", pool_cores=CORES, estimates=True)
    while simulation.advance(1_000_000):
        pass
    columns = {name: list(view) for name, view in columns_of(simulation.result()).items()}
    waited = [row for row in rows(columns) if row["wait"] > 0]
    assert len(waited) > 300
    assert [row["start"] for row in waited] == [row["estimate_start"] for row in waited]


@given(st.integers(0, 2**32), st.sampled_from(POLICIES))
@settings(max_examples=EXAMPLES)
def test_no_core_is_allocated_twice_and_a_head_that_fits_starts(seed, policy):
    workload = random_workload(f"property:{seed}")
    capacity = sum(node.cores for node in workload.machine)
    priorities = {job.id: job.priority for job in workload.jobs}
    columns = columns_of(penstock(workload, policy).result())
    done = rows({name: list(view) for name, view in columns.items()})

    def order(row):
        return (-priorities[row["id"]], row["submit"], row["id"])

    def used_at(time):
        return sum(row["cores"] for row in done if row["start"] <= time < row["end"])

    for row in done:
        assert row["submit"] <= row["start"] <= row["end"]
        assert used_at(row["start"]) <= capacity
        assert used_at(row["submit"]) <= capacity
    # The first job starts if it fits: at the end of an instant with pending jobs, the first of
    # them is too large for what is free. (Under conservative backfill it may also wait for what
    # others have been promised: so there, only where no other waits.)
    for time in {row["submit"] for row in done} | {row["end"] for row in done}:
        waiting = [row for row in done if row["submit"] <= time < row["start"]]
        if waiting and (policy != "conservative" or len(waiting) == 1):
            first = min(waiting, key=order)
            assert first["cores"] > capacity - used_at(time)
    if policy == "fcfs":
        assert not any(row["backfilled"] for row in done)
        for row in done:
            for other in done:
                if order(row) < order(other) and row["submit"] <= other["start"]:
                    assert row["start"] <= other["start"], "an earlier job starts later"


@given(st.integers(0, 2**32), st.sampled_from(POLICIES))
@settings(max_examples=EXAMPLES // 3)
def test_simulations_are_deterministic(seed, policy):
    workload = random_workload(f"twice:{seed}")
    first, second = penstock(workload, policy).result(), penstock(workload, policy).result()
    assert {name: bytes(view) for name, view in columns_of(first).items()} == {
        name: bytes(view) for name, view in columns_of(second).items()
    }
