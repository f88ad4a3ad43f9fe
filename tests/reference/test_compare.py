"""Penstock's simulator against the reference, on random workloads.

Some hundred for each policy; `make compare` has thousands. Differing workloads are reduced:
`python -m tests.reference.compare --help`.
"""

from __future__ import annotations

import pytest
from tests.reference import compare
from tests.reference.workloads import random_shapes, random_workload

SEED = 5


@pytest.mark.parametrize("policy", compare.POLICIES)
def test_equal_units(policy):
    for index in range(250):
        found = compare.compare(random_workload(f"{SEED}:{index}"), policy)
        assert found is None, f"--seed {SEED} --only {index}\n{found}"


@pytest.mark.parametrize("policy", compare.SHAPE_POLICIES)
def test_shapes(policy):
    for index in range(250):
        found = compare.compare(random_shapes(f"{SEED}:{index}"), policy)
        assert found is None, f"--seed {SEED} --only {index}\n{found}"


@pytest.mark.parametrize("index", [1548, 1957])
def test_equal_units_that_once_differed(index):
    found = compare.compare(random_workload(f"{SEED}:{index}"), "conservative")
    assert found is None, f"--seed {SEED} --only {index}\n{found}"


@pytest.mark.parametrize("index", [982, 1961])
def test_shapes_that_once_differed(index):
    found = compare.compare(random_shapes(f"{SEED}:{index}"), "easy")
    assert found is None, f"--seed {SEED} --only {index}\n{found}"


def test_the_random_workloads_are_worth_comparing():
    """Each of the hard cases occurs often enough for the comparison to cover it."""
    workloads = [random_workload(f"{SEED}:{index}") for index in range(300)]
    jobs = [job for workload in workloads for job in workload.jobs]
    assert sum(job.run == 0 for job in jobs) > 50
    assert sum(job.estimate < job.run for job in jobs) > 50, "overruns"
    assert sum(job.estimate > job.run for job in jobs) > 50
    assert sum(job.priority != 16 for job in jobs) > 50
    assert {workload.kind for workload in workloads} == {"pool", "slots", "whole"}
    assert {workload.form for workload in workloads} == {"swf", "jsonl"}
    capacity = {id(one): sum(node.cores for node in one.machine) for one in workloads}
    assert sum(job.size > capacity[id(one)] for one in workloads for job in one.jobs) > 20
    outcomes = [outcome for one in workloads for outcome in compare.expected(one, "easy").values()]
    assert sum(outcome.backfilled for outcome in outcomes) > 100
    shaped = [random_shapes(f"{SEED}:{index}") for index in range(300)]
    outcomes = [outcome for one in shaped for outcome in compare.expected(one, "easy").values()]
    assert sum(outcome.backfilled for outcome in outcomes) > 100
    assert sum(outcome.start is None for outcome in outcomes) > 20


@pytest.mark.parametrize("index", range(3))
def test_files_of_the_command_line(index):
    found = compare.by_command_line(
        random_workload(f"{SEED}:{index}"), ["fcfs", "easy", "conservative", "hybrid:2"]
    )
    assert found == []
