"""Watching jobs: `watch`, and what `submit` and its relatives do with the jobs they submit."""

from __future__ import annotations

import json

import pytest
from tests.instance.conftest import PENSTOCK
from tests.instance.test_attach import screen

from penstock._core import fluid_parse


@pytest.fixture
def local(start):
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as instance:
        yield instance


def shell(text):
    return ["sh", "-c", text]


# --- watch


def test_watch_shows_the_output_of_jobs_until_they_end(local, tmp_path):
    first, second = local.lines("submit", "--bcc=1-2", *shell("echo out {cc}; exit {cc}"))
    watched = local.penstock("watch", first, second)
    assert (watched.returncode, sorted(watched.stdout.splitlines())) == (2, ["out 1", "out 2"])
    assert local.penstock("watch", "-", stdin=first).stdout == "out 1\n"
    assert local.penstock("watch", "--all").returncode == 2
    assert local.penstock("watch", "--since", "1h").returncode == 2
    failed = local.penstock("watch", "-f", "failed", "-c", "1")
    assert (failed.returncode, failed.stdout) == (2, "out 2\n")
    assert local.penstock("watch", "-f", "completed").returncode == 0
    assert local.penstock("watch", "--all", "-u", "12345").stdout == ""


def test_watch_follows_active_jobs(local, tmp_path):
    gate = tmp_path / "gate"
    (job,) = local.lines("submit", *shell(f"echo begins; until [ -e {gate} ]; do sleep 0.1; done"))
    with screen(local, "watch", "--active", "--progress", "--jps") as terminal:
        assert "0/1 ended, 0.0 jobs/s" in terminal.wait_for("begins")
        gate.touch()
        terminal.wait_for("] 1/1 ended, ")
        assert terminal.process.wait(timeout=120) == 0
    # There is no active job.
    assert local.penstock("watch", "--active").returncode == 0
    assert local.penstock("wait", job).returncode == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["watch"], "expected job ids, or --active, --all, --filter, --since"),
        (["watch", "--all", "ƒ1"], "expected job ids, or --active, --all, --filter, --since"),
        (["watch", "--jps", "ƒ1"], "--jps: expected --progress, too"),
        (["submit", "--wait", "--jps", "true"], "--jps: expected --progress, too"),
        (["batch", "--progress", "--wrap", "true"], "--progress: expected --wait or --watch, too"),
        (["submit", "--cc=1", "--bcc=2", "true"], "--cc and --bcc exclude each other"),
        (["run", "--cc=1", "--bcc=2", "true"], "--cc and --bcc exclude each other"),
        (["alloc", "--bcc=2", "true"], "--cc and --bcc: expected one job"),
    ],
    ids=" ".join,
)
def test_options_that_lack_another_are_bad_usage(local, words, text):
    done = local.penstock(*words)
    assert done.returncode == 2
    assert text in done.stderr
    assert local.lines("jobs", "-a", "-n") == []


# --- submission


def test_submit_watches_its_jobs(local):
    text = "echo $PENSTOCK_CC $FLUX_JOB_CC {cc}; exit $PENSTOCK_CC"
    done = local.penstock("submit", "--watch", "--progress", "--cc=3-5", *shell(text))
    ids, shown = done.stdout.splitlines()[:3], done.stdout.splitlines()[3:]
    assert ids == local.lines("jobs", "-a", "-n", "-o", "{id}", *ids)
    assert sorted(shown) == ["3 3 3", "4 4 4", "5 5 5"]
    assert (done.returncode, done.stderr) == (5, "")


def test_copies_have_the_variables_of_their_id_unless_by_bcc(local):
    text = "echo {cc}:$PENSTOCK_CC:$FLUX_JOB_CC"
    done = local.penstock("submit", "--quiet", "--watch", "--bcc=3", *shell(text))
    assert (done.returncode, done.stdout) == (0, "3::\n")
    done = local.penstock("run", "--bcc=3", *shell(text))
    assert done.stdout == "3::\n"
    done = local.penstock("run", "--cc=3", *shell(text))
    assert done.stdout == "3:3:3\n"
    # In a jobspec for each copy.
    named = ["--setattr=user.name={cc}", "--env=FLUX_JOB_CC=x"]
    done = local.penstock("run", "--cc=3", *named, *shell(text))
    assert done.stdout == "3:3:3\n"


def test_submit_prints_ids_as_requested(local):
    done = local.penstock("submit", "--quiet", "-v", "--wait", "true")
    assert (done.returncode, done.stdout) == (0, "")
    (job,) = local.lines("jobs", "-a", "-n", "-o", "{id}")
    assert done.stderr == f"penstock submit: job {job}\n"
    done = local.penstock("submit", "-v", "--json", "--cc=1-2", "true")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    expected = [f"penstock submit: job {row['id']}" for row in rows]
    assert done.stderr.splitlines() == expected
    assert [fluid_parse(row["id"]) for row in rows] == [row["id_int"] for row in rows]
    assert local.penstock("submit", "--quiet", "--json", "true").stdout == ""
    done = local.penstock("run", "-v", "echo", "x")
    assert done.stdout == "x\n"
    assert done.stderr.startswith("penstock run: job ")


def test_batch_and_alloc_follow_their_jobs(local, tmp_path):
    output = f"--output={tmp_path}/out"
    done = local.penstock("batch", "--quiet", "--watch", output, "--wrap", "exit 3")
    assert (done.returncode, done.stdout) == (3, "")
    done = local.penstock("alloc", "-v", "-n1", *PENSTOCK, "uptime")
    assert done.returncode == 0
    assert done.stderr.startswith("penstock alloc: job ")
    assert "depth 1" in done.stdout


def test_a_wait_shows_its_progress_in_a_terminal(local):
    options = ["--wait", "--progress", "--quiet", "--cc=0-2"]
    with screen(local, "submit", *options, *shell("exit {cc}")) as terminal:
        terminal.wait_for("] 3/3 ended, 2 failed, ")
        assert terminal.process.wait(timeout=120) == 2


# --- bulksubmit


def test_bulksubmit_submits_a_job_for_each_input(local):
    options = ["--quiet", "--watch", "--job-name=step-{seq}"]
    text = "echo {}-{}-$PENSTOCK_CC; exit {0}"
    done = local.penstock("bulksubmit", *options, *shell(text), ":::", "1", "2", ":::", "a", "b")
    assert sorted(done.stdout.split()) == ["1-a-", "1-b-", "2-a-", "2-b-"]
    assert done.returncode == 2
    names = local.lines("jobs", "-a", "-n", "-o", "{name}", "--sort", "name")
    assert names == [f"step-{number}" for number in range(4)]


def test_bulksubmit_prints_ids_in_order_and_copies_jobs(local):
    done = local.penstock("bulksubmit", "--cc=1-2", "echo", "{}", stdin="a\nb\n")
    ids = done.stdout.split()
    specs = [json.loads(local.lines("info", job, "jobspec")[0]) for job in ids]
    commands = [spec["tasks"][0]["command"] for spec in specs]
    assert commands == [["echo", "a"]] * 2 + [["echo", "b"]] * 2
    assert local.penstock("wait", *ids).returncode == 0
    done = local.penstock("bulksubmit", "echo", "{}", stdin="")
    assert (done.returncode, done.stdout) == (0, "")


def test_bulksubmit_rejects_a_job_that_can_never_run(local):
    done = local.penstock("bulksubmit", "-n{}", "true", ":::", "1", "400")
    assert done.returncode == 1
    assert "penstock bulksubmit: the job can never run (see --no-check)" in done.stderr
    assert local.lines("jobs", "-a", "-n") == []
