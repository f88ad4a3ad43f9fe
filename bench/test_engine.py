"""The engine through Python, a batch a call. Run by `make bench`.

Every test puts what one job costs, in nanoseconds, into its `extra_info`.
"""

from __future__ import annotations

from array import array

import pytest

from penstock import Engine, IDset, ResourceSet

SHAPES = {"core": {}, "node": {"nodes": 1, "exclusive": True}, "64 nodes": {"nodes": 64}}
# The shape, nodes of 64 cores, jobs of a batch.
PASSES = [
    ("core", 1_000, 1_000),
    ("core", 10_000, 1_000),
    ("core", 100_000, 1_000),
    ("core", 10_000, 100_000),
    ("core", 100_000, 100_000),
    ("node", 10_000, 1_000),
    ("node", 100_000, 100_000),
    ("64 nodes", 10_000, 100),
]
WAITING = 100_000


def machine(nodes, **options):
    ranks = IDset(range(nodes))
    return Engine(ResourceSet.uniform(ranks, f"node[{ranks}]", cores="0-63"), **options)


def measured(benchmark, run, jobs, setup=None, rounds=10):
    result = benchmark.pedantic(run, setup=setup, rounds=rounds)
    benchmark.extra_info["ns per job"] = round(benchmark.stats.stats.min / jobs * 1e9)
    return result


@pytest.mark.parametrize(("shape", "nodes", "jobs"), PASSES)
def test_schedule(benchmark, shape, nodes, jobs):
    engine = machine(nodes)
    number = engine.shape(**SHAPES[shape])
    ids = array("Q", range(jobs))

    def queue():
        if engine.nrunning:
            engine.free(ids)
        engine.submit(ids, number)

    decisions = measured(benchmark, lambda: engine.schedule(1.0), jobs, queue)
    assert len(decisions) == jobs


@pytest.mark.parametrize("kind", [array, list])
def test_submit(benchmark, kind):
    engine = machine(1)
    shape = engine.shape()
    ids = array("Q", range(WAITING))
    durations = array("d", (job % 3600 for job in ids))
    if kind is list:
        ids, durations = ids.tolist(), durations.tolist()

    def run():
        engine.submit(ids, shape, durations)

    measured(benchmark, run, WAITING, lambda: engine.cancel(ids) and None)
    assert engine.npending == WAITING


def test_free(benchmark):
    engine = machine(10_000)
    shape = engine.shape()
    ids = array("Q", range(WAITING))

    def start():
        engine.submit(ids, shape)
        engine.schedule(1.0)

    measured(benchmark, lambda: engine.free(ids), WAITING, start)
    assert engine.nrunning == 0


def waiting(policy):
    """A full machine, and a queue of 100 shapes with 1,000 time limits."""
    engine = machine(100, policy=policy)
    engine.submit(2**40, engine.shape(nodes=100, exclusive=True), 10.0)
    engine.schedule(1.0)
    shapes = [engine.shape(cores=cores % 32 + 1, slots=cores // 32 + 1) for cores in range(100)]
    ids = array("Q", range(WAITING))
    columns = (
        array("I", (shapes[job % 100] for job in ids)),
        array("d", (job % 1000 for job in ids)),
    )
    engine.submit(ids, *columns)
    return engine


@pytest.mark.parametrize("arranged", ["by priority", "by score", "by order"])
def test_pass_with_a_policy_in_python(benchmark, arranged):
    """The overhead of calling a policy in Python: the callables do next to nothing."""
    engine = waiting("easy")
    scores = array("d", (job * 7919 % WAITING for job in range(WAITING)))
    order = array("Q", range(WAITING))
    options = {
        "by priority": {},
        "by score": {"score": lambda _: scores},
        "by order": {"order": lambda _: order},
    }[arranged]
    decisions = measured(benchmark, lambda: engine.schedule(2.0, **options), WAITING)
    assert not decisions


def test_pending(benchmark):
    engine = waiting("easy")
    assert len(measured(benchmark, engine.pending, WAITING)) == WAITING


def test_prioritize(benchmark):
    engine = waiting("easy")
    ids = array("Q", range(WAITING))
    priorities = [array("I", (job % 1000 + up for job in ids)) for up in (1, 2)]

    def run():
        priorities.reverse()
        return engine.prioritize(ids, priorities[0])

    assert measured(benchmark, run, WAITING) == WAITING


def test_snapshot(benchmark):
    engine = machine(100_000)
    engine.submit(range(100_000), engine.shape())
    engine.schedule(1.0)
    assert measured(benchmark, engine.snapshot, 1).nrunning == 100_000
