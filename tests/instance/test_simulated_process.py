"""`penstock exec --simulate`: simulated execution as a process of its own."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager

import pytest
from tests.instance.conftest import PENSTOCK, attached

DURATION = "--setattr=exec.test.run_duration="


@pytest.fixture
def instance(start):
    with start("--nodes", "4", "--exec", "none") as instance:
        yield instance


@contextmanager
def simulation(instance, *options: str):
    command = [*PENSTOCK, "exec", "--simulate", "--uri", instance.uri, *options]
    with attached(command, "ready, execution is simulated") as process:
        yield process


def shown(instance, job: str, *keys: str) -> list:
    (line,) = instance.lines("info", "--json", job)
    row = json.loads(line)
    return [row[key] for key in keys]


def names(instance, job: str) -> list[str]:
    return [json.loads(line)["name"] for line in instance.lines("eventlog", "--json", job)]


def test_jobs_last_as_long_as_their_jobspecs_say(instance):
    (early,) = instance.lines("submit", "-N4", "-t1h", f"{DURATION}0.1s", "false")
    assert shown(instance, early, "state") == ["RUN"]
    with simulation(instance):
        assert instance.penstock("wait", early).returncode == 0
        began, ended = shown(instance, early, "t_run", "t_cleanup")
        assert ended - began >= 0.1
        done = instance.penstock("run", "-N4", "-t0.1s", f"{DURATION}1h", "true")
        assert done.returncode == 143
        (job,) = instance.lines("submit", "-N4", "-t1h", "true")
        instance.lines("cancel", job)
        assert instance.penstock("wait", job).returncode == 143


def test_jobs_end_in_their_time_when_the_service_is_started_again(instance):
    with simulation(instance):
        (short,) = instance.lines("submit", "-N1", "-t1h", f"{DURATION}0.5s", "true")
        (long,) = instance.lines("submit", "-N1", "-t1h", "true")
    with simulation(instance):
        assert instance.penstock("wait", short).returncode == 0
        assert shown(instance, long, "state") == ["RUN"]
        assert "reattached" in names(instance, long)
        instance.lines("cancel", long)


def test_it_reconnects_to_an_instance_that_was_killed(start):
    options = ("--nodes", "4", "--exec", "none")
    with start(*options) as instance, simulation(instance) as process:
        (job,) = instance.lines("submit", "-N1", "-t1h", f"{DURATION}0.5s", "true")
        instance.process.kill()
        instance.process.wait()
        with start(*options) as instance:
            assert instance.penstock("wait", job).returncode == 0
            assert process.poll() is None


def test_only_options_with_an_effect_are_accepted(instance):
    command = [*PENSTOCK, "exec", "--simulate", "--uri", instance.uri]

    def said(*options: str) -> tuple[int, str]:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.splitlines()[0]

    assert said("--sync") == (2, "penstock-exec: `--sync` has no effect with `--simulate`")
    with simulation(instance):
        code, text = said()
        assert (code, "service.add failed" in text) == (1, True)
    code, text = said("--uri", "local:///nonexistent/socket")
    assert (code, text.startswith("penstock-exec: no instance at")) == (69, True)
