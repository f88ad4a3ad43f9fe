"""The exit codes of jobs: the table in docs/index.md, a test for each line."""

from __future__ import annotations

import json
import os

import pytest


@pytest.fixture
def local(start):
    with start() as instance:
        yield instance


def code_of(instance, job: str) -> int:
    """The exit code of a job, which `wait`, `attach` and its row agree on."""
    code = instance.penstock("wait", job).returncode
    assert instance.penstock("attach", "--read-only", job).returncode == code
    (row,) = map(json.loads, instance.lines("jobs", "--json", job))
    if row["returncode"]:
        assert row["returncode"] == code
    return code


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit $((PENSTOCK_TASK_RANK + 3))"], 4),
        (["sh", "-c", "test $PENSTOCK_TASK_RANK = 0 || kill -9 $$"], 137),
        (["sh", "-c", "test $PENSTOCK_TASK_RANK = 0 && exit 1; kill -9 $$"], 1),
        (["nosuchcommand"], 127),
        (["/"], 126),
    ],
)
def test_a_job_has_the_greatest_exit_code_of_its_tasks(local, command, code):
    assert local.penstock("run", "-n2", *command).returncode == code
    (row,) = map(json.loads, local.lines("jobs", "-a", "--json"))
    assert code_of(local, row["id"]) == code


def submit_ready(instance, tmp_path, script: str) -> str:
    """Submits a script; returns the job when its task has written to the FIFO of the script."""
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    (job,) = instance.lines("submit", "sh", "-c", script.format(fifo=fifo))
    fifo.read_text()
    return job


TRAP = "trap 'exit {code}' TERM; echo > {{fifo}}; while :; do sleep 0.05; done"
NO_TRAP = "echo > {fifo}; exec sleep 1000"


@pytest.mark.parametrize(
    ("script", "code"),
    [(TRAP.format(code=0), 1), (TRAP.format(code=3), 3), (NO_TRAP, 143)],
)
def test_a_cancelled_job_has_the_code_that_its_tasks_end_with(local, tmp_path, script, code):
    job = submit_ready(local, tmp_path, script)
    local.lines("cancel", job)
    assert code_of(local, job) == code


@pytest.mark.parametrize(
    ("script", "code"),
    [(TRAP.format(code=0), 143), (TRAP.format(code=3), 3), (NO_TRAP, 143)],
)
def test_a_job_that_exceeds_its_time_limit(local, tmp_path, script, code):
    job = submit_ready(local, tmp_path, script)
    local.lines("update", job, "duration=0.001s")
    assert code_of(local, job) == code


def test_a_job_without_tasks_has_1(local):
    (pending,) = local.lines("submit", "--urgency=hold", "true")
    local.lines("cancel", pending)
    assert code_of(local, pending) == 1
    (denied,) = local.lines("submit", "--no-check", "-n1000000", "true")
    assert code_of(local, denied) == 1
