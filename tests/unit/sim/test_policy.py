"""Policies of one's own: the same results as those of Penstock where they order alike."""

from __future__ import annotations

import json
import math

import pytest

from penstock.cli import main
from penstock.errors import PolicyError
from penstock.sim import machine, runs, workload
from penstock.sim.policy import Policy, load
from penstock.sim.workload import Workload

OPTIONS = runs.Options()
SAME = ("start", "end", "wait", "cores", "nodes", "backfilled", "state", "killed")


def in_order(pending):
    """The order of the queue."""
    return range(len(pending))


def longest_first(pending):
    return pending.durations


def jobs(**options):
    return workload.synthesize(workload.Synthesis(**{"jobs": 400, "load": 0.95, **options}), 64)


def assert_same(own, penstock):
    for name in SAME:
        one, other = own.columns[name].tolist(), penstock.columns[name].tolist()
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert a == b or (math.isnan(a) and math.isnan(b)), name
    for name in ("seconds", "passes", "events"):
        assert name in own.summary
    assert own.summary.keys() == penstock.summary.keys()
    for name, value in penstock.summary.items():
        if name not in ("seconds", "passes", "events"):
            assert own.summary[name] == pytest.approx(value, abs=1e-9), name
    used = dict(zip(own.series["time"], own.series["used_cores"], strict=True))
    for time, cores in zip(penstock.series["time"], penstock.series["used_cores"], strict=True):
        assert used.get(time, cores) == cores


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("base", ["fcfs", "easy", "conservative"])
def test_the_order_of_the_queue_gives_the_results_of_the_policy(base, seed):
    trace, pool = jobs(seed=seed), machine.pool(64)
    own = runs.run(trace, pool, OPTIONS, policy=Policy("own", order=in_order, base=base))
    assert_same(own, runs.run(trace, pool, OPTIONS, policy=base))


@pytest.mark.parametrize("selection", ["first", "spread"])
def test_nodes_gpus_and_limits(selection):
    lines = b"".join(
        b'{"submit": %d, "run": %d, "nodes": %d, "slots": 2, "gpus_per_slot": %d, "limit": %d}\n'
        % (n * 30, 100 + n % 7 * 50, 1 + n % 3, n % 2, 150 + n % 5 * 60)
        for n in range(80)
    )
    trace, nodes = Workload.from_jsonl(lines, name="x"), machine.simulated(4, 8, 2)
    options = runs.Options(kill_at_limit=True)
    own = Policy("own", order=in_order)
    found = runs.run(trace, nodes, options, policy=own, selection=selection)
    assert_same(found, runs.run(trace, nodes, options, policy="easy", selection=selection))
    other = runs.run(trace, nodes, options, policy="easy", selection=selection)
    assert [found.allocation(n) for n in range(80)] == [other.allocation(n) for n in range(80)]


def test_dependencies_denials_and_held_jobs():
    lines = (
        b'{"id": 1, "submit": 0, "run": 100, "cores": 4}\n'
        b'{"id": 2, "submit": 10, "run": 10, "cores": 1, "after": 1}\n'
        b'{"id": 3, "submit": 20, "run": 10, "cores": 99}\n'
        b'{"id": 4, "submit": 30, "run": 10, "cores": 1, "after": [2, 3]}\n'
        b'{"id": 5, "submit": 40, "run": 10, "cores": 1, "priority": 0}\n'
        b'{"id": 6, "submit": 50, "run": 0, "cores": 2}\n'
    )
    trace, nodes = Workload.from_jsonl(lines, name="x"), machine.simulated(1, 8)
    own = runs.run(trace, nodes, OPTIONS, policy=Policy("own", order=in_order))
    assert_same(own, runs.run(trace, nodes, OPTIONS, policy="easy"))
    assert [denial.first for denial in own.denials] == [3]


def test_a_score_changes_who_is_first():
    lines = b"".join(
        b'{"submit": 0, "run": %d, "cores": 8, "limit": %d}\n' % (run, run) for run in (10, 30, 20)
    )
    trace = Workload.from_jsonl(lines, name="x")
    results = runs.run(trace, machine.pool(8), OPTIONS, policy=longest_first)
    assert results.columns["start"].tolist() == [50, 0, 30]


def test_a_study_has_policies_of_both_kinds():
    study = runs.study(
        jobs(jobs=50, seed=1), machine.pool(64), OPTIONS, policies=["easy", longest_first]
    )
    assert [run.policy for run in study.runs] == ["easy", "longest_first"]


def test_options_that_need_a_policy_of_penstock_are_named():
    with pytest.raises(PolicyError, match="`longest_first`: `estimates` needs a policy"):
        runs.run(
            jobs(jobs=5, seed=1),
            machine.pool(64),
            runs.Options(estimates=True),
            policy=longest_first,
        )


def test_a_policy_is_a_score_or_an_order():
    with pytest.raises(PolicyError, match="policy `x`: expected either a score or an order"):
        Policy("x")
    with pytest.raises(PolicyError, match="`int`: expected a callable"):
        Policy.of(3)


def test_the_command_line_takes_a_function_of_a_file(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "from penstock.sim.policy import Policy\n"
        "def shortest(pending):\n    return [-d for d in pending.durations]\n"
        "strict = Policy('strict', score=shortest, base='fcfs')\n"
    )
    words = ["sim", "--lublin", "100", "--cores", "64", "-q"]
    report = tmp_path / "report.html"
    own = f"{file}:shortest,{file}:strict"
    assert main([*words, "--policy", f"easy,{own}", "--report", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["easy", "shortest", "strict"]
    assert f"{file}:shortest" in report.read_text()
    assert main([*words, "--policy", own, "--json", "--out", str(tmp_path / "out")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["options"]["policy"] == [f"{file}:shortest", f"{file}:strict"]
    assert (tmp_path / "out" / "jobs.csv").read_text().count("strict,") == 100


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def other(p): pass", "unknown name `score`: expected other"),
        ("import nosuch", "ModuleNotFoundError: No module named 'nosuch'"),
        ("score = 3", "`int`: expected a callable"),
    ],
)
def test_a_file_without_the_policy_is_named(tmp_path, capsys, text, error):
    (tmp_path / "mine.py").write_text(text)
    assert main(["sim", "--lublin", "5", "--policy", f"{tmp_path}/mine.py:score"]) == 2
    assert error in capsys.readouterr().err
    with pytest.raises(PolicyError, match=r"nosuch\.py`: No such file"):
        load(f"{tmp_path}/nosuch.py:score")
