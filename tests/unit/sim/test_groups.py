"""Users, groups and queues of traces, their shares, and preceding jobs."""

from __future__ import annotations

import csv
import json
import math

import pytest

from penstock import WorkloadError
from penstock._core import Workload
from penstock.cli import main
from penstock.errors import TraceError
from penstock.sim import groups, machine, runs

# Job 3 comes first in time; job 2 has no user.
SWF = b"""\
; MaxProcs: 4
1 10 -1 60 4 -1 -1 4 60 -1 1 7 2 5 1 -1 -1 -1
2 11 -1 60 4 -1 -1 4 60 -1 1 -1 2 -1 1 -1 1 100
3 0 -1 20 4 -1 -1 4 20 -1 1 3 1 -1 2 -1 -1 -1
4 5 -1 10 1 -1 -1 1 10 -1 1 7 2 -1 1 -1 3 0
"""


def shortest_first(jobs):
    return [-job["run"] for job in jobs]


def by_arrival(context):
    return [0.0] * len(context)


def rows(workload, policy="fcfs"):
    found = runs.run(workload, machine.pool(4), runs.Options(), policy=policy)
    columns = found.columns
    return list(zip(columns["id"], columns["start"], columns["end"], strict=True))


def test_columns_are_in_the_order_of_the_file():
    workload = Workload.from_swf(SWF, name="a.swf")
    columns = {name: list(column) for name, column in workload.columns().items()}
    unknown = math.nan
    assert columns.keys() == {"status", "user", "group", "executable", "queue", "preceding"}
    assert columns["group"] == [2, 2, 1, 2]
    assert columns["queue"] == [1, 1, 2, 1]
    assert columns["preceding"] == pytest.approx([unknown, 1, unknown, 3], nan_ok=True)
    assert columns["user"] == pytest.approx([7, unknown, 3, 7], nan_ok=True)
    assert workload.file_order == [2, 3, 0, 1]
    assert groups.labels(workload, "user") == ["7", "", "3", "7"]
    assert list(workload.vary(pace=2.0).columns()["group"]) == [2, 2, 1, 2]


def test_users_survive_both_formats():
    workload = Workload.from_swf(SWF, name="a.swf")
    again = Workload.from_jsonl(workload.to_jsonl(), name="a")
    columns = again.columns()
    assert columns["user"] == ["3", "7", "7", ""]
    assert columns["group"] == ["1", "2", "2", "2"]
    for name in ("executable", "preceding", "status"):
        # The lines are in the order of submission.
        assert sorted(map(str, columns[name])) == sorted(map(str, workload.columns()[name]))
    swf = Workload.from_swf(workload.to_swf(), name="a.swf")
    assert groups.labels(swf, "user") == ["3", "7", "7", ""]
    assert groups.labels(swf, "queue") == ["2", "1", "1", "1"]
    lines = b'{"submit": 0, "run": 1, "cores": 1, "user": "ann, b", "group": 5, "queue": "q"}'
    workload = Workload.from_jsonl(lines, name="b")
    assert workload.columns() == {"user": ["ann, b"], "group": ["5"], "queue": ["q"]}
    assert Workload.from_jsonl(workload.to_jsonl(), name="b").columns() == workload.columns()


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("user", "[]", "user: expected a name or a number, found []"),
        ("group", "1.5", "group: expected a name or a number, found 1.5"),
        ("think", "-1", "think: expected seconds from 0 on, at most 1e12"),
    ],
)
def test_malformed_values_are_errors(key, value, error):
    line = f'{{"submit": 0, "run": 1, "cores": 1, "{key}": {value}}}'
    with pytest.raises(WorkloadError) as caught:
        Workload.from_jsonl(line.encode(), name="a")
    assert error in str(caught.value)


@pytest.mark.parametrize("policy", ["fcfs", by_arrival])
def test_a_job_waits_for_its_preceding_one_and_the_think_time(policy):
    ignored = Workload.from_swf(SWF, name="a.swf")
    assert rows(ignored, policy) == [(1, 30, 90), (2, 90, 150), (3, 0, 20), (4, 20, 30)]
    awaited = Workload.from_swf(SWF, name="a.swf", preceding=True)
    # Job 1 ends at 90, and 100 seconds later job 2 comes.
    expected = [(1, 30, 90), (2, 190, 250), (3, 0, 20), (4, 20, 30)]
    assert rows(awaited, policy) == expected
    assert rows(Workload.from_jsonl(awaited.to_jsonl(), name="a"), policy) == sorted(
        expected, key=lambda row: [3, 4, 1, 2].index(row[0])
    )
    assert not any("preceding" in text for text in awaited.assumptions)
    assert any("preceding" in text for text in ignored.assumptions)


def test_a_job_that_comes_after_the_think_time_does_not_wait_longer():
    late = SWF.replace(b"2 11 ", b"2 500 ")
    assert rows(Workload.from_swf(late, name="a.swf", preceding=True))[1] == (2, 500, 560)


def test_a_preceding_job_that_is_no_earlier_one_is_an_assumption():
    wrong = SWF.replace(b"-1 3 0\n", b"-1 9 0\n").replace(b" 1 100\n", b" 2 100\n")
    workload = Workload.from_swf(wrong, name="a.swf", preceding=True)
    assert rows(workload)[1] == (2, 90, 150)
    assert (
        "2 of 4 jobs name a preceding job that is no earlier one of the trace: it is not waited for"
    ) in workload.assumptions


def test_shares_and_their_fairness():
    workload = Workload.from_swf(SWF, name="a.swf")
    results = runs.run(workload, machine.pool(4), runs.Options(), policy="fcfs")
    served = groups.shares(results, groups.labels(workload, "user"))
    assert [(share.name, share.jobs, share.core_seconds) for share in served] == [
        ("7", 2, 250.0),
        ("", 1, 240.0),
        ("3", 1, 80.0),
    ]
    assert [share.wait_mean for share in served] == [17.5, 79.0, 0.0]
    slowdowns = [(80 / 60 + 25 / 10) / 2, 139 / 60, 1.0]
    assert [share.slowdown_mean for share in served] == pytest.approx(slowdowns)
    index = sum(slowdowns) ** 2 / (3 * sum(value**2 for value in slowdowns))
    assert groups.fairness(served) == pytest.approx(index)
    assert math.isnan(groups.fairness([]))
    with pytest.raises(TraceError, match="`b`: no job names its user"):
        groups.labels(Workload.from_jsonl(b'{"submit":0,"run":1,"cores":1}', name="b"), "user")


def test_the_command_shows_shares_and_writes_users(tmp_path, capsys):
    trace, out = tmp_path / "a.swf", tmp_path / "out"
    trace.write_bytes(SWF)
    assert main(["sim", "-q", "--by", "user", "--out", str(out), str(trace)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-5] == "easy: 3 by user, fairness of slowdowns 0.909"
    assert shown[-4].split() == ["user", "jobs", "core-hours", "mean", "wait", "mean", "slowdown"]
    assert [line.split()[0] for line in shown[-3:]] == ["7", "-", "3"]
    with (out / "jobs.csv").open(newline="") as file:
        found = [
            (row["id"], row["user"], row["group"], row["queue"]) for row in csv.DictReader(file)
        ]
    assert found == [
        ("1", "7", "2", "1"),
        ("2", "", "2", "1"),
        ("3", "3", "1", "2"),
        ("4", "7", "2", "1"),
    ]
    (run,) = json.loads((out / "summary.json").read_text())["runs"]
    assert run["by_user"]["fairness"] == pytest.approx(0.909, abs=0.001)
    assert [share["name"] for share in run["by_user"]["shares"]] == ["7", "", "3"]
    assert main(["sim", "-q", "--preceding", "--json", str(trace)]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["makespan"] == 250.0
    assert main(["sim", "--by", "user"]) == 2
    assert "--by needs a trace" in capsys.readouterr().err


def test_a_name_with_a_comma_is_one_field_of_the_rows(tmp_path):
    trace, out = tmp_path / "a.jsonl", tmp_path / "out"
    trace.write_text('{"submit": 0, "run": 1, "cores": 1, "user": "ann \\"a\\", ƒ"}\n')
    assert main(["sim", "-q", "--out", str(out), str(trace)]) == 0
    with (out / "jobs.csv").open(newline="", encoding="utf-8") as file:
        assert [row["user"] for row in csv.DictReader(file)] == ['ann "a", ƒ']


def test_unknown_keys_of_json_lines_are_columns():
    lines = [
        b'{"submit": 0, "run": 1, "cores": 1, "power": 2.5, "site": "a", "tags": ["x"]}',
        b'{"submit": 1, "run": 1, "cores": 1, "site": "b"}',
    ]
    workload = Workload.from_jsonl(b"\n".join(lines), name="t")
    columns = workload.columns()
    assert list(columns["power"]) == pytest.approx([2.5, math.nan], nan_ok=True)
    assert columns["site"] == ["a", "b"]
    assert columns["tags"] == ['["x"]', ""]
    assert "no effect on the simulation: `power`, `site`, `tags`" in " ".join(workload.assumptions)
    again = Workload.from_jsonl(workload.to_jsonl(), name="t").columns()
    assert (again["site"], again["tags"]) == (columns["site"], columns["tags"])
