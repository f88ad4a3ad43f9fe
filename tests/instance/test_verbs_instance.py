"""Verbs about the instance as a whole: `uptime` and `shutdown`."""

from __future__ import annotations

import json
import os
import pwd
import shlex

import pytest
from tests.instance.conftest import PENSTOCK

QUEUES = """
[queues.batch]
[queues.debug]
[policy.jobspec.defaults.system]
queue = "batch"
"""
SHELL = shlex.join(PENSTOCK)


@pytest.fixture
def sim(start):
    with start("--nodes", "4", "--cores", "2") as instance:
        yield instance


# --- uptime


def test_uptime_shows_the_state_owner_and_size(sim):
    (row,) = map(json.loads, sim.lines("uptime", "--json"))
    owner = pwd.getpwuid(os.getuid()).pw_name
    assert row.pop("duration") >= 0
    assert row == {
        "state": "run",
        "owner": owner,
        "depth": 0,
        "size": 4,
        "drained": 0,
        "offline": 0,
        "is_disabled": False,
        "is_stopped": False,
    }
    (line,) = sim.lines("uptime")
    words = line.split(",  ")
    assert words[1:] == [f"owner {owner}", "depth 0", "size 4"]
    assert words[0].split()[1] == "run"


def test_uptime_shows_what_does_not_work(sim):
    sim.lines("resource", "drain", "1-2", "fans")
    sim.lines("queue", "stop")
    sim.lines("queue", "disable", "-m", "move")
    first, second = sim.lines("uptime")
    assert first.endswith(",  size 4,  2 drained")
    assert second == "  submit disabled, scheduler stopped"


def test_queues_that_work_in_part_are_no_note(start, tmp_path):
    (tmp_path / "c.toml").write_text(QUEUES)
    with start("--nodes=2", "--config", str(tmp_path / "c.toml")) as instance:
        instance.lines("queue", "stop", "batch")
        assert len(instance.lines("uptime")) == 1
        instance.lines("queue", "stop", "debug")
        assert instance.lines("uptime")[1:] == ["  scheduler stopped"]


# --- shutdown


@pytest.mark.parametrize("options", [[], ["--quiet", "--yes"]])
def test_shutdown_returns_when_the_daemon_has_ended(sim, options):
    sim.lines("submit", "-t", "1h", "true")
    done = sim.penstock("shutdown", *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sim.penstock("jobs").returncode == 69
    assert sim.penstock("shutdown").returncode == 69


def test_shutdown_in_the_background_returns_at_once(sim):
    assert sim.penstock("shutdown", "--background").returncode == 0
    sim.process.stdin.close()
    sim.process.wait(timeout=60)


def test_shutdown_ends_the_instance_in_a_job(start, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    inner = f"{SHELL} submit sh -c 'echo > {gate}; exec sleep 1000'; {SHELL} wait --all; exit 0"
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as instance:
        (job,) = instance.lines("submit", *PENSTOCK, "start", "--", "sh", "-c", inner)
        gate.read_text()
        assert instance.penstock("shutdown", job).returncode == 0
        instance.penstock("wait", job)
        done = instance.penstock("shutdown", job)
        assert done.returncode == 1
        assert "has ended" in done.stderr
