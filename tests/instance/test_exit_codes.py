"""The exit codes of jobs: the table in docs/index.md, a test for each line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# For each line of the tables: files, and a test in each. Without a file it is below.
TESTS = {
    "of commands": {
        "0": [
            "test_a_job_has_the_greatest_exit_code_of_its_tasks",
            (
                "tests/instance/test_starting.py "
                "test_a_start_in_a_terminal_names_resources_places_and_the_way_out"
            ),
            "tests/instance/test_web.py test_a_socket_shows_the_owner_all_and_ends_without_a_trace",
            "tests/instance/test_schedulers.py test_a_signal_ends_a_scheduler_after_its_services",
        ],
        "1": [
            "test_a_job_without_tasks_has_1",
            (
                "tests/instance/test_store_maintenance.py "
                "test_a_start_whose_job_manager_has_failed_when_its_command_ends_fails"
            ),
        ],
        "2": ["tests/instance/test_cli.py test_bad_usage_exits_with_2_before_any_request"],
        "69": ["tests/instance/test_instance.py test_without_an_instance_the_exit_code_is_69"],
        "78": [
            (
                "tests/instance/test_exec_service_process.py "
                "test_files_of_another_version_have_an_exit_code_of_their_own"
            )
        ],
        "130": ["tests/instance/test_cli.py test_an_interrupted_run_cancels_its_job"],
        "141": ["tests/unit/cli/test_main.py test_a_reader_that_has_gone_is_no_fault"],
    },
    "of jobs": {
        "the greatest exit code of its tasks": [
            "test_a_job_has_the_greatest_exit_code_of_its_tasks"
        ],
        "128 + N": ["test_a_cancelled_job_has_the_code_that_its_tasks_end_with"],
        "127, 126": ["test_a_job_has_the_greatest_exit_code_of_its_tasks"],
        "1": ["test_a_job_without_tasks_has_1"],
        "143": ["test_a_job_that_exceeds_its_time_limit"],
    },
}


def test_each_line_of_the_tables_has_a_test():
    page = (ROOT / "docs/index.md").read_text()
    section = page.partition("### Exit codes\n")[2].partition("\n#")[0]
    tables = re.findall(r"\|---\|---\|\n((?:\|.*\n)+)", section)
    found = [re.findall(r"^\| (.+?) \|", table, re.MULTILINE) for table in tables]
    assert found == [list(tests) for tests in TESTS.values()]
    for text in (test for lines in TESTS.values() for tests in lines.values() for test in tests):
        file, _, name = text.rpartition(" ")
        path = ROOT / file if file else Path(__file__)
        assert f"\ndef {name}(" in path.read_text()


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
