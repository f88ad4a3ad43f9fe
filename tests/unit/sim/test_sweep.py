"""Several seeds and loads: means with confidence intervals."""

from __future__ import annotations

import json

import pytest

from penstock.cli import main
from penstock.sim import machine, runs, workload
from penstock.sim.sweep import Band, sweep

SMALL_WORKLOAD = ["sim", "--lublin", "60", "--cores", "64"]


def test_a_band_is_the_interval_of_students_distribution():
    band = Band.of([1.0, 2.0, 3.0])
    # Standard error 1 / sqrt(3), quantile 4.303.
    assert band.mean == 2.0
    assert band.half == pytest.approx(4.303 / 3**0.5)
    assert Band.of([5.0]) == Band(5.0, None, 1)
    assert Band.of([]) is None
    assert Band.of([1.0] * 100).half == 0.0


def test_points_are_the_means_of_the_runs():
    def make(load, seed):
        return workload.synthesize(workload.Synthesis(jobs=50, seed=seed, load=load), 64)

    pool = machine.pool(64)
    policies = ["fcfs", "easy"]
    points = sweep(make, pool, runs.Options(), policies=policies, loads=[0.5, 0.9], seeds=[1, 2, 3])
    assert [(point.load, point.policy) for point in points] == [
        (load, policy) for load in (0.5, 0.9) for policy in policies
    ]
    results = [runs.run(make(0.9, n), pool, runs.Options(), policy="easy") for n in (1, 2, 3)]
    band = points[-1].metrics["wait_mean"]
    assert band == Band.of([result.summary["wait_mean"] for result in results])
    assert band.count == 3


def test_a_table_of_loads(capsys):
    assert (
        main([*SMALL_WORKLOAD, "--loads", "0.5,0.9", "--seeds", "3", "--policy", "fcfs,easy"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": 3 seeds, on one pool of 64 cores")
    assert lines[2].split()[:2] == ["load", "policy"]
    rows = [line.split()[:2] for line in lines[3:]]
    assert rows == [["0.5", "fcfs"], ["0.5", "easy"], ["0.9", "fcfs"], ["0.9", "easy"]]
    assert all(line.count("±") == 4 for line in lines[3:])


def test_objects_for_programs(capsys):
    assert main([*SMALL_WORKLOAD, "--seeds", "2", "--seed", "5", "--json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["load"], row["policy"]) == (None, "easy")
    waits = []
    for seed in ("5", "6"):
        assert main([*SMALL_WORKLOAD, "--seed", seed, "--json"]) == 0
        waits.append(json.loads(capsys.readouterr().out)["runs"][0]["wait_mean"])
    assert row["wait_mean"]["mean"] == pytest.approx(sum(waits) / 2)
    assert row["wait_mean"]["seeds"] == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--loads", "0.5", "--load", "0.5"], "--loads and --load exclude each other"),
        (["--seeds", "2", "--out", "x"], "--seeds and --loads exclude --out: they show means"),
        (["--seeds", "0"], "expected 1 to "),
        (["--loads", "x"], "expected a number above 0, found `x`"),
    ],
)
def test_options_that_do_not_go_together(capsys, options, error):
    assert main(["sim", *options]) == 2
    assert error in capsys.readouterr().err


def test_seeds_of_a_trace_need_chance(capsys, tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"submit": 0, "run": 10, "cores": 1}\n')
    assert main(["sim", str(trace), "--seeds", "2"]) == 2
    assert "--seeds needs a model, --user-estimates or --mtbf" in capsys.readouterr().err
    assert main(["sim", str(trace), "--seeds", "2", "--user-estimates", "modal", "-q"]) == 0
