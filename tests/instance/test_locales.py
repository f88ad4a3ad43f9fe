"""Commands in a locale that is not UTF-8."""

from __future__ import annotations

import json

import pytest

LOCALES = {
    "C": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "ASCII streams": {"PYTHONIOENCODING": "ascii"},
}
NAME = "naïve 日本 🙂"


@pytest.fixture
def sim(start):
    with start("--nodes", "2", "--cores", "2") as instance:
        yield instance


@pytest.mark.parametrize("locale", LOCALES.values(), ids=LOCALES)
def test_commands_work_in_other_locales(sim, locale):
    def run(*args: str) -> str:
        done = sim.penstock(*args, env=locale)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.isascii()
        return done.stdout

    job = run("submit", f"--job-name={NAME}", "--urgency=hold", "true").strip()
    assert job.startswith("f")
    assert job in run("jobs")
    (row,) = map(json.loads, run("jobs", "--json").splitlines())
    assert row["name"] == NAME
    # In the arguments both forms are understood.
    assert json.loads(run("info", "--json", job))["id"] == "ƒ" + job[1:]
    assert json.loads(run("info", "--json", "ƒ" + job[1:]))["id"] == "ƒ" + job[1:]
    assert sim.lines("jobs", "-n", "-o", "{id} {name}") == [f"ƒ{job[1:]} {NAME}"]
    done = sim.penstock("wait", "ƒ2222", env=locale)
    assert done.returncode == 1
    assert done.stderr.isascii()
    assert "f2222" in done.stderr
    run("cancel", job)


def test_job_ids_can_be_forced_to_ascii(sim):
    env = {"FLUX_F58_FORCE_ASCII": "1"}
    job = sim.penstock("submit", "--urgency=hold", f"--job-name={NAME}", "true", env=env)
    job = job.stdout.strip()
    assert job.startswith("f")
    shown = sim.penstock("jobs", "-n", "-o", "{id} {name}", env=env).stdout
    assert shown == f"{job} {NAME}\n"
    (row,) = map(json.loads, sim.penstock("jobs", "--json", env=env).stdout.splitlines())
    assert (row["id"], row["name"]) == (job, NAME)
