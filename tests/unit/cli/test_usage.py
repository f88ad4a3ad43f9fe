"""Node, core and gpu hours of jobs, by their keys and months."""

from __future__ import annotations

import json
import math
import os
import pwd
import time
from datetime import datetime
from itertools import pairwise

import pytest
from virtualtime import SteppedClock

from penstock.cli import main


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def when(text):
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


def job(begin, end=None, **more):
    row = {"id": 1, "userid": os.getuid(), "t_run": when(begin), "nnodes": 2, "ncores": 8}
    if end is not None:
        row["t_inactive"] = when(end)
    return row | {"ngpus": 4} | more


def summing(*rows):
    """A `job-list.usage` of these jobs."""

    def method(request):
        payload = request.object()
        keys = [{"user": "userid"}.get(key, key) for key in payload["by"]]
        sums = {}
        for row in rows:
            for span, (begin, end) in enumerate(pairwise(payload["times"])):
                end = min(row.get("t_inactive", math.inf), end)
                seconds = end - max(row.get("t_run", math.inf), begin)
                if seconds <= 0:
                    continue
                values = {key: row[key] for key in keys if key in row}
                key = (*(str(values.get(key, "")) for key in keys), span)
                amounts = {"node": row["nnodes"], "core": row["ncores"], "gpu": row["ngpus"]}
                before = sums.get(key, {})
                sums[key] = values | {"span": span, "jobs": before.get("jobs", 0) + 1}
                for name, amount in amounts.items():
                    name = f"{name}_seconds"
                    sums[key][name] = before.get(name, 0.0) + amount * seconds
        yield request.respond({"sums": list(sums.values())})

    return method


@pytest.fixture
def usage(fake, capsys):
    """Returns the rows of `penstock usage` about these jobs."""

    def show(keys, *jobs, now="2026-06-01T00:00", options=()):
        fake.methods["job-list.usage"] = summing(*jobs)
        command = ["usage", "--json", f"--by={keys}", *options]
        assert main(command, SteppedClock(when(now))) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return show


def test_hours_are_summed_by_the_keys(usage):
    jobs = [
        job("2026-01-01T00:00", "2026-01-01T01:00", queue="debug"),
        job("2026-01-01T00:00", "2026-01-01T02:00", queue="batch", project="a"),
        job("2026-01-01T00:00", "2026-01-01T01:00", queue="batch", project="a", nnodes=1),
        {"id": 4, "userid": 0, "ncores": 3},
    ]
    assert usage("queue,project", *jobs) == [
        {
            "queue": "batch",
            "project": "a",
            "jobs": 2,
            "node_hours": 5.0,
            "core_hours": 24.0,
            "gpu_hours": 12.0,
        },
        {
            "queue": "debug",
            "project": None,
            "jobs": 1,
            "node_hours": 2.0,
            "core_hours": 8.0,
            "gpu_hours": 4.0,
        },
    ]


def test_a_job_counts_in_each_month_of_its_time(usage):
    rows = usage("month", job("2025-12-31T23:00", "2026-02-01T02:00"))
    assert [(row["month"], row["jobs"], row["node_hours"]) for row in rows] == [
        ("2025-12", 1, 2.0),
        ("2026-01", 1, 2.0 * 31 * 24),
        ("2026-02", 1, 4.0),
    ]


def test_months_are_those_of_local_time(usage, fake, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    usage("month", options=["--since=2026-03-15", "--until=2026-05-02"], now="2026-06-01T00:00")
    times = fake.wait_for("job-list.usage").object()["times"]
    # Summer time begins in March.
    expected = ["2026-03-14T23:00", "2026-03-31T22:00", "2026-04-30T22:00", "2026-05-01T22:00"]
    assert times == [when(text) for text in expected]


def test_only_the_time_in_question_counts(usage):
    span = ["--since=2026-01-01T01:00", "--until=2026-01-01T03:00"]
    inside = job("2026-01-01T00:00", "2026-01-01T02:00")
    outside = job("2025-01-01T00:00", "2025-01-01T01:00")
    (row,) = usage("user", inside, outside, options=span)
    assert (row["jobs"], row["node_hours"]) == (1, 2.0)
    # A running job counts until now.
    (row,) = usage("user", job("2026-05-31T23:00"))
    assert row["node_hours"] == 2.0
    assert row["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert usage("user", inside, options=["--since=2027-01-01"]) == []


def test_the_table_and_json(fake, capsys):
    fake.methods["job-list.usage"] = summing(
        job("2026-01-01T00:00", "2026-01-01T02:00"),
        job("2026-02-01T00:00", "2026-02-01T00:30", bank="x"),
    )
    clock = SteppedClock(when("2026-06-01T00:00"))
    assert main(["usage", "--by", "bank,month", "-q", "a,b", "--since", "2025-01-01"], clock) == 0
    assert capsys.readouterr().out == (
        "BANK  MONTH    JOBS  NODE_HOURS  CORE_HOURS  GPU_HOURS\n"
        "-     2026-01     1        4.00       16.00       8.00\n"
        "x     2026-02     1        1.00        4.00       2.00\n"
    )
    request = fake.wait_for("job-list.usage").object()
    assert (request["by"], request["queues"]) == (["bank"], ["a", "b"])
    assert request["times"][0] == when("2025-01-01")
    assert main(["usage", "--json", "--by=month", "--until=2026-02-01T00:15"], clock) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["core_hours"] for row in rows] == [16.0, 2.0]
    assert main(["usage", "--by=day"], clock) == 2
    assert "unknown key `day`: expected user, queue" in capsys.readouterr().err


def test_no_jobs_have_no_usage(fake, capsys):
    fake.methods["job-list.usage"] = summing()
    assert main(["usage", "-n"]) == 0
    assert capsys.readouterr().out == ""
