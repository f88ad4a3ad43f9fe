"""`examples/simulate.py`: the simulator from Python."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import pytest

from penstock.sim import machine
from penstock.sim.workload import Workload

EXAMPLE = Path(__file__).parents[3] / "examples" / "simulate.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_accuracy_of_estimates(example):
    make = partial(example["workloads"], jobs=300)
    found = list(example["compare"](make, machine.pool(example["CORES"])))
    rows = {(row["policy"], row["estimates"]): row for row in found}
    assert len(rows) == len(example["POLICIES"]) * len(example["ESTIMATES"])
    # First come first served uses no estimates; its predictions depend on them.
    assert len({rows["fcfs", estimate]["wait"] for estimate in example["ESTIMATES"]}) == 1
    for policy in ("fcfs", "conservative"):
        assert rows[policy, "exact"]["error"] == pytest.approx(0)
        assert rows[policy, "modal"]["error"] > 0
    for estimates in example["ESTIMATES"]:
        assert rows["easy", estimates]["wait"] < rows["fcfs", estimates]["wait"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["nosuch.swf"], "nosuch.swf"), (["a.swf", "0"], "pace"), (["a.swf", "fast"], "fast")],
)
def test_errors_take_one_line(example, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    Path("a.swf").write_bytes(Workload.lublin(5, cores=16, seed=1).to_swf())
    with pytest.raises(SystemExit, match=f"^simulate.py: .*{said}"):
        example["main"](arguments)


def test_the_table_of_a_trace(example, tmp_path, capsys):
    trace = tmp_path / "a.swf"
    trace.write_bytes(Workload.lublin(50, cores=16, seed=1, load=0.8).to_swf())
    example["main"]([str(trace), "1.5"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("policy")
    assert [row.split()[:2] for row in rows[:2]] == [["fcfs", "exact"], ["easy", "exact"]]
    assert len(rows) == 9
