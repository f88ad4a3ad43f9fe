"""`Simulation`: a workload replayed in virtual time."""

from __future__ import annotations

import json
import math
import random
import signal
import threading
from contextlib import suppress

import pytest

from penstock import ResourceSetError, WorkloadError
from penstock._core import Simulation, Workload
from penstock.sim import machine, runs


def workload(*jobs, name="test"):
    """Jobs as (submit, run, cores, limit)."""
    keys = ("submit", "run", "cores", "limit")
    lines = [json.dumps(dict(zip(keys, job, strict=True))) for job in jobs]
    return Workload.from_jsonl("\n".join(lines).encode(), name=name)


def nodes(count, cores):
    """R of `count` equal nodes of `cores` cores; both are at least 2."""
    return json.dumps(
        {
            "version": 1,
            "execution": {
                "R_lite": [{"rank": f"0-{count - 1}", "children": {"core": f"0-{cores - 1}"}}],
                "nodelist": [f"n[0-{count - 1}]"],
            },
        }
    )


def run(machine, jobs, **options):
    options.setdefault("policy", "easy")
    simulation = Simulation(machine, jobs, **options)
    while simulation.advance(2):
        pass
    assert simulation.done <= simulation.total
    return simulation.result()


BACKFILL = ((0, 10, 3, 10), (1, 5, 4, 5), (1, 9, 1, 9))


def test_columns_are_views_in_file_order():
    result = run(None, workload((5, 1, 1, 1), *BACKFILL), pool_cores=4)
    columns = result.columns()
    formats = {name: column.format for name, column in columns.items()}
    assert formats == {
        "id": "Q",
        "submit": "d",
        "start": "d",
        "end": "d",
        "cores": "I",
        "nodes": "I",
        "first_rank": "I",
        "wait": "d",
        "backfilled": "B",
        "killed": "B",
        "state": "B",
        "estimate_start": "d",
    }
    assert columns["id"].tolist() == [1, 2, 3, 4]
    assert columns["submit"].tolist() == [5, 0, 1, 1]
    assert columns["start"].tolist() == [15, 0, 10, 1]
    assert columns["end"].tolist() == [16, 10, 15, 10]
    assert columns["wait"].tolist() == [10, 0, 9, 0]
    assert columns["cores"].tolist() == [1, 3, 4, 1]
    assert columns["nodes"].tolist() == [1, 1, 1, 1]
    assert columns["backfilled"].tolist() == [0, 0, 0, 1]
    assert columns["state"].tolist() == [1, 1, 1, 1]
    assert all(math.isnan(start) for start in columns["estimate_start"])
    assert [result.allocation(job) for job in range(4)] == ["0", "0-2", "0-3", "3"]


def test_series_and_summary():
    result = run(None, workload(*BACKFILL), pool_cores=4)
    series = result.series()
    assert series["time"].tolist() == [0, 1, 10, 15]
    assert series["used_cores"].tolist() == [3, 4, 4, 0]
    assert series["queued"].tolist() == [0, 1, 0, 0]
    summary = result.summary()
    assert {key: summary[key] for key in ("jobs", "ended", "denied", "cores", "nodes")} == {
        "jobs": 3,
        "ended": 3,
        "denied": 0,
        "cores": 4,
        "nodes": 1,
    }
    assert summary["makespan"] == 15
    assert summary["utilisation"] == pytest.approx((30 + 20 + 9) / 60)
    assert summary["backfilled"] == 1
    assert summary["backfilled_share"] == pytest.approx(1 / 3)
    assert summary["wait_mean"] == pytest.approx(3)
    assert summary["wait_median"] == 0
    assert summary["wait_p95"] == pytest.approx(8.1)
    assert summary["wait_max"] == 9
    assert summary["slowdown_max"] == pytest.approx(1.4)
    assert summary["estimate_error_mean"] is None
    classes = result.size_classes()
    assert [(row["from"], row["to"], row["jobs"]) for row in classes] == [
        (1, 1, 1),
        (3, 4, 2),
    ]


def test_the_pool_defaults_to_that_of_the_trace():
    swf = b"; MaxProcs: 4\n1 0 -1 10 3 -1 -1 3 10 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
    jobs = Workload.from_swf(swf, name="a.swf")
    assert Simulation(None, jobs, policy="fcfs").cores == 4
    assert Simulation(None, jobs, policy="fcfs", pool_cores=9).cores == 9
    assert Simulation(None, workload((0, 1, 7, 1)), policy="fcfs").cores == 7


def test_nodes_and_allocations():
    jobs = workload((0, 10, 3, 10), (0, 10, 4, 10), (0, 10, 1, 10))
    machine = nodes(3, 2)
    result = run(machine, jobs, policy="fcfs")
    assert result.columns()["start"].tolist() == [0, 10, 10]
    assert [result.allocation(job) for job in range(3)] == ["0-1", "0-1", "2"]
    assert result.columns()["nodes"].tolist() == [2, 2, 1]
    whole = run(machine, jobs, policy="fcfs", whole_nodes=True)
    assert whole.columns()["cores"].tolist() == [4, 4, 2]
    assert run(machine, jobs, policy="fcfs", allocations=False).allocation(0) == ""
    with pytest.raises(IndexError, match="job 3: expected a number below 3"):
        result.allocation(3)


def test_estimates_assume_no_further_arrivals():
    # The estimate of the third is 15, the end of the second. The first ends at 6, four seconds
    # early, so both start four seconds before their estimates. The last starts at once.
    jobs = workload((0, 6, 4, 10), (1, 5, 4, 5), (2, 9, 4, 9), (20, 1, 1, 1))
    result = run(None, jobs, policy="easy", pool_cores=4, estimates=True)
    columns = result.columns()
    predicted = columns["estimate_start"].tolist()
    assert predicted[1:3] == [10, 15]
    assert math.isnan(predicted[0])
    assert math.isnan(predicted[3])
    summary = result.summary()
    assert columns["start"].tolist() == [0, 6, 11, 20]
    assert summary["estimate_jobs"] == 2
    assert (summary["estimate_error_mean"], summary["estimate_bias"]) == (4, -4)


def test_failed_nodes():
    jobs = b"""{"submit": 0, "run": 10, "nodes": 2}
{"submit": 5, "run": 5, "nodes": 1}"""
    jobs = Workload.from_jsonl(jobs, name="test")
    failures = [(4.0, "1", False), (30.0, "1", True)]
    result = run(nodes(2, 2), jobs, policy="fcfs", failures=failures)
    # Both wait for rank 1: the first needs it, the second is behind the first.
    assert result.columns()["start"].tolist() == [30, 30]
    assert result.summary()["node_failures"] == 1
    result = run(nodes(2, 2), jobs, policy="fcfs", failures=failures, requeue=False)
    assert result.columns()["state"].tolist() == [3, 1]
    assert result.columns()["killed"].tolist() == [1, 0]
    assert result.summary()["lost"] == 1


def test_denials_have_their_reasons():
    jobs = workload((0, 10, 5, 10), (0, 1, 1, 1), (0, 2, 5, 2), (0, 2, 6, 2))
    result = run(None, jobs, pool_cores=4)
    assert result.columns()["state"].tolist() == [4, 1, 4, 4]
    assert math.isnan(result.columns()["start"][0])
    [(reason, count, first), (other, *rest)] = result.denials()
    assert (count, first) == (2, 1)
    assert "5" in reason
    assert "6" in other
    assert rest == [1, 4]


def test_unknown_values_are_missing():
    summary = run(None, workload((0, 10, 5, 10)), pool_cores=4).summary()
    assert summary["denied"] == 1
    names = [f"{what}_{part}" for what in ("wait", "slowdown") for part in ("mean", "p95", "max")]
    for name in [*names, "utilisation", "makespan", "backfilled_share"]:
        assert summary[name] is None, name


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None,), {"policy": "best"}, "policy `best`: expected"),
        ((None,), {"selection": "best"}, "invalid selection policy `best`: expected"),
        ((None,), {"pool_cores": 0}, "a pool: expected 1 to 100,000,000 cores, found 0"),
        ((None,), {"failures": [(0, "0", False)]}, "failures: a pool of cores has no nodes"),
        ((nodes(2, 2),), {"failures": [(0, "7", False)]}, "there are no ranks 7"),
        ((nodes(2, 2),), {"failures": [(0, "x", False)]}, "failures: at 0: invalid idset"),
        ((nodes(2, 2),), {"pool_cores": 3}, "pool_cores: expected no inventory beside it"),
    ],
)
def test_invalid_simulations_are_rejected(arguments, options, message):
    options = {"policy": "fcfs", **options}
    with pytest.raises(WorkloadError, match=message):
        Simulation(*arguments, workload((0, 1, 1, 1)), **options)


def test_an_invalid_inventory_is_rejected():
    with pytest.raises(ResourceSetError):
        Simulation("{}", workload((0, 1, 1, 1)), policy="fcfs")


def test_simulations_are_deterministic():
    jobs = Workload.lublin(2000, cores=128, seed=3, load=1.1)
    results = [run(None, jobs, policy="easy") for _ in range(2)]
    first, second = (
        {name: bytes(column) for name, column in result.columns().items()} for result in results
    )
    assert first == second


def deep(jobs):
    """A simulation of jobs that are all submitted, and their starts estimated, at one instant."""
    line = b'{"submit":0,"run":1,"cores":1}\n'
    return Simulation(
        None,
        Workload.from_jsonl(line * jobs, name="deep"),
        policy="fcfs",
        estimates=True,
        pool_cores=1,
    )


def test_a_callback_can_stop_a_simulation_which_continues_later():
    reports = []

    def stop(*progress):
        reports.append(progress)
        raise LookupError

    simulation = deep(300)
    with pytest.raises(LookupError):
        simulation.advance(1, stop)
    # Called before the first instant, so no job has an estimate.
    assert reports == [(0, 0)]
    estimates = simulation.result().columns()["estimate_start"].tolist()
    assert all(math.isnan(estimate) for estimate in estimates)
    while simulation.advance(50):
        pass
    estimates = simulation.result().columns()["estimate_start"].tolist()
    assert estimates[1:] == list(range(1, 300))


def interrupt(work, after=0.001):
    """Runs `work` and interrupts it by a signal, after some seconds."""

    def handler(*_):
        raise InterruptedError

    def interrupted():
        signal.setitimer(signal.ITIMER_REAL, after)
        work()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        # The timer starts inside the block: on a busy machine the signal may precede the work.
        with pytest.raises(InterruptedError):
            interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "make_up",
    [
        lambda jobs: Workload.lublin(jobs, cores=64, seed=1),
        lambda jobs: Workload.mix("1-64c:1h", jobs, cores=64, seed=1),
    ],
)
def test_a_signal_is_heeded_while_jobs_are_generated(make_up):
    most = 100_000_000  # all of them would take a minute and some GB
    interrupt(lambda: make_up(most))
    with pytest.raises(
        WorkloadError, match="jobs: expected at most 100,000,000, found 100,000,001"
    ):
        make_up(most + 1)


def test_a_signal_is_heeded_within_an_estimate():
    simulation = deep(200_000)
    estimates = None
    while estimates is None:
        interrupt(lambda: simulation.advance(1))
        # The signal may come within the pass before; the next call continues from there.
        with suppress(WorkloadError):
            estimates = simulation.result().columns()["estimate_start"]
    assert math.isnan(estimates[-1]), "it was stopped before the end of the estimate"


def test_a_signal_is_heeded_within_a_pass():
    chance = random.Random(1)
    jobs = "".join(
        f'{{"submit":0,"run":{chance.randint(1, 9999)},"slots":{chance.randint(1, 40)},'
        f'"cores_per_slot":{chance.randint(1, 7)}}}\n'
        for _ in range(8000)
    )
    trace = Workload.from_jsonl(jobs.encode(), name="deep")
    simulation = Simulation(nodes(100, 8), trace, policy="conservative")
    after = 0.001
    interrupt(lambda: simulation.advance(1), after)
    # On a busy machine the first signals precede the pass.
    while not is_within_a_pass(simulation):
        after *= 2
        interrupt(lambda: simulation.advance(1), after)
    with pytest.raises(WorkloadError, match="stopped within a pass of the scheduler"):
        assert simulation.now
    with pytest.raises(WorkloadError, match="stopped within a pass of the scheduler"):
        simulation.result().summary()
    # The interrupted pass is complete after the next call.
    assert simulation.advance(0)
    summary = simulation.result().summary()
    assert summary["pending"] + len(started(simulation)) == simulation.total


def is_within_a_pass(simulation):
    try:
        assert simulation.now == 0
    except WorkloadError:
        return True
    return False


def started(simulation):
    starts = simulation.result().columns()["start"]
    return [start for start in starts if not math.isnan(start)]


def test_simulations_run_beside_each_other():
    jobs = Workload.lublin(3000, cores=128, seed=4, load=0.9)
    alone = bytes(run(None, jobs, policy="easy").columns()["start"])
    found = []

    def work():
        found.append(bytes(run(None, jobs, policy="easy").columns()["start"]))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone, alone]


class Steps:
    """A clock that goes forward by two and a half seconds with every reading."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        raise AssertionError("a simulation is measured by the monotonic clock")

    def monotonic(self):
        self.time += 2.5
        return self.time


def test_the_time_of_a_simulation_is_that_of_the_given_clock():
    jobs, options = workload(*BACKFILL), runs.Options()
    results = runs.run(jobs, machine.pool(4), options, policy="easy", clock=Steps())
    assert results.summary["seconds"] == 2.5
