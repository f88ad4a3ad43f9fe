"""Verbs about jobs by name, as a tree, and by ids from standard input."""

from __future__ import annotations

import json
import os
import shlex
import subprocess

import pytest
from tests.instance.conftest import PENSTOCK

from penstock._core import fluid_parse
from penstock.client import Client

SHELL = shlex.join(PENSTOCK)


@pytest.fixture
def sim(start):
    with start("--nodes", "2", "--cores", "4") as instance:
        yield instance


def submit(instance, name, *options):
    """Submits a job, and waits until it runs unless it is held."""
    (job,) = instance.lines("submit", "-t", "1h", f"--job-name={name}", *options, "true")
    if "--urgency=hold" not in options:
        wait_for_start(instance, job)
    return job


def wait_for_start(instance, job):
    with Client(instance.uri) as client, client.eventlog(fluid_parse(job), follow=True) as events:
        assert any(event["name"] == "start" for event in events)


def state(instance, job):
    return json.loads(instance.lines("info", "--json", job)[0])["status"]


# --- pgrep, pkill


def test_pgrep_finds_active_jobs_by_name_and_id(sim):
    first, second, other = (submit(sim, name) for name in ("sweep-1", "sweep-2", "render"))
    assert sim.lines("pgrep", "sweep") == [second, first]
    assert sim.lines("pgrep", "^.*-1$") == [first]
    assert sim.lines("pgrep", "sweep", "name:2") == [second]
    assert sim.lines("pgrep", f"{second}..{other}") == [other, second]
    assert sim.lines("pgrep", "-o", "{name} {status}", "render") == ["NAME STATUS", "render RUN"]
    assert sim.lines("pgrep", "-n", "-o", "{name}", "-f", "running", "e") == [
        "render",
        "sweep-2",
        "sweep-1",
    ]
    assert sim.penstock("pgrep", "-f", "pending", "e").returncode == 1
    assert sim.penstock("pgrep", "-u", "12345", "e").returncode == 1
    assert sim.lines("pgrep", "-A", "render") == [other]
    sim.lines("cancel", other)
    sim.penstock("wait", other)
    nothing = sim.penstock("pgrep", "render")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (1, "", "")
    assert (
        sim.lines("pgrep", "-a", "render") == sim.lines("pgrep", "-f", "canceled", "r") == [other]
    )
    cut = sim.penstock("pgrep", "-c", "1", "sweep")
    assert (cut.returncode, cut.stdout.split()) == (0, [second])
    assert cut.stderr == "penstock pgrep: only the first job is selected: `-c 0` selects all\n"


def test_pkill_cancels_what_pgrep_lists(sim):
    first, second, other = (submit(sim, name) for name in ("sweep-1", "sweep-2", "render"))
    assert sim.lines("pkill", "--wait", "-m", "not needed", "sweep") == []
    assert [state(sim, job) for job in (first, second, other)] == ["CANCELED", "CANCELED", "RUN"]
    shown = json.loads(sim.lines("info", "--json", first)[0])
    assert shown["exception"]["note"] == "not needed"
    assert sim.penstock("pkill", "sweep").returncode == 1


@pytest.mark.parametrize("verb", ["pgrep", "pkill"])
def test_invalid_expressions_are_bad_usage(sim, verb):
    done = sim.penstock(verb, "a(")
    assert done.returncode == 2
    assert "invalid regular expression `a(`" in done.stderr
    unknown = sim.penstock(verb, "-f", "runing", "a")
    assert unknown.returncode == 2
    assert "unknown filter `runing`" in unknown.stderr


# --- ids from standard input


def test_ids_are_read_from_standard_input(sim):
    jobs = [submit(sim, "x", "--urgency=hold") for _ in range(3)]
    done = sim.penstock("urgency", "-", "default", stdin="\n".join(jobs[:2]))
    assert (done.returncode, done.stderr) == (0, "")
    for job in jobs[:2]:
        wait_for_start(sim, job)
    assert [state(sim, job) for job in jobs] == ["RUN", "RUN", "SCHED"]
    done = sim.penstock("update", "-", "duration=2h", stdin=jobs[2])
    assert (done.returncode, done.stderr) == (0, "")
    listed = sim.penstock("jobs", "-n", "-o", "{id} {duration}", "-", stdin=f" {jobs[2]}\n\n")
    assert listed.stdout.split() == [jobs[2], "7200.0"]
    requests = sim.penstock("elastic", "status", "--job", "-", stdin=jobs[0])
    assert (requests.returncode, requests.stdout, requests.stderr) == (0, "", "")
    several = sim.penstock("elastic", "status", "--job=-", stdin="\n".join(jobs))
    assert several.returncode == 2
    assert "--job: expected one job id on standard input, found 3" in several.stderr
    reasons = sim.penstock("explain", "-", stdin=jobs[2])
    assert jobs[2] in reasons.stdout
    done = sim.penstock("cancel", jobs[0], "-", stdin=" ".join(jobs[1:]))
    assert (done.returncode, done.stderr) == (0, "")
    assert sim.penstock("wait", "-", stdin="\n".join(jobs)).returncode == 143
    assert [state(sim, job) for job in jobs] == ["CANCELED"] * 3
    purged = sim.penstock("purge", "--force", "-", stdin="\n".join(jobs[:2]))
    assert purged.returncode == 0
    assert sim.lines("jobs", "-a", "-n", "-o", "{id}") == [jobs[2]]


@pytest.mark.parametrize("verb", ["cancel", "kill", "wait", "explain", "purge", "estimate"])
@pytest.mark.parametrize(("text", "expected"), [("", "no job id"), ("ƒ1 soon", "soon")])
def test_missing_and_malformed_ids_are_bad_usage(verb, text, expected):
    done = subprocess.run(
        [*PENSTOCK, verb, "-"],
        env={**os.environ, "PENSTOCK_URI": "local:///nowhere"},
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert expected in done.stderr


# --- pstree


def test_pstree_combines_equal_jobs_and_shows_states(sim):
    for name in ("sweep", "sweep", "render"):
        submit(sim, name)
    held = submit(sim, "later", "--urgency=hold")
    assert sim.lines("pstree") == [".", "├── render", "└── 2*[sweep]"]
    assert sim.lines("pstree", "--ascii", "-X") == [
        ".",
        "|-- render",
        "|-- sweep",
        "`-- sweep",
    ]
    assert sim.lines("pstree", "-a") == [
        ".",
        "├── render:R",
        "├── 2*[sweep:R]",
        "└── later:S",
    ]
    assert sim.lines("pstree", "-o", "{id} {name}", held) == [f"{held} later"]
    assert sim.lines("pstree", "-u", "12345") == ["."]
    assert "unknown field `nosuch`" in sim.penstock("pstree", "-o", "{nosuch}").stderr


def test_pstree_shows_the_jobs_of_nested_instances(start, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    inner = f"{SHELL} submit --job-name=inner sh -c 'echo > {gate}; exec sleep 1000'"
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as instance:
        (study,) = instance.lines(
            *("submit", "-c2", "--job-name=study", *PENSTOCK, "start"),
            *("--", "sh", "-c", f"{inner}; {SHELL} wait --all"),
        )
        # The inner job runs.
        gate.read_text()
        (leaf,) = instance.lines("submit", "--job-name=outer", "sleep", "1000")
        wait_for_start(instance, leaf)
        tree = [".", "├── outer", "└── study", "    └── inner"]
        assert instance.lines("pstree") == tree
        assert instance.lines("pstree", "-L", "1") == tree[:3]
        assert instance.lines("pstree", "-p", study) == [f"{study} study", "└── inner"]
        listed = ("jobs", "-R", "-n", "-o", "{name}")
        assert instance.lines(*listed) == ["outer", "study", "", f"{study}:", "inner"]
        assert instance.lines(*listed, "-L", "0") == ["outer", "study"]
        assert instance.lines(*listed, study) == ["study", "", f"{study}:", "inner"]
        rows = map(json.loads, instance.lines("jobs", "-R", "--json"))
        places = [(row["name"], row["instance"]) for row in rows]
        assert places == [("outer", ""), ("study", ""), ("inner", study)]
        instance.lines("cancel", "--all")
        instance.penstock("wait", study)
