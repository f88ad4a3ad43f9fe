"""Flux's own command line on the socket of an instance."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from tests.instance.conftest import start  # noqa: F401 - a fixture

FLUX = shutil.which("flux")


class Flux:
    """Commands of Flux on an instance."""

    def __init__(self, uri, directory):
        self.uri = uri
        self.directory = directory

    def run(self, *words, stdin=None):
        return subprocess.run(
            [str(FLUX), *words],
            env={**os.environ, "FLUX_URI": self.uri, "FLUX_F58_FORCE_ASCII": "1"},
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def __call__(self, *words, stdin=None):
        """The output of a command that must succeed."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout


@pytest.fixture
def flux(start, tmp_path):  # noqa: F811 - the fixture
    with start("--nodes", "2", "--cores", "4", "--exec", "local", "--oversubscribe") as instance:
        yield Flux(instance.uri, tmp_path)


def test_output_of_jobs_reaches_the_command_that_runs_them(flux):
    done = flux.run("run", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.returncode) == ("out\n", 3)
    assert "err\n" in done.stderr
    assert flux("submit", "--watch", "--quiet", "echo", "watched") == "watched\n"
    both = flux("bulksubmit", "--watch", "--quiet", "echo", "{}", ":::", "a", "b")
    assert sorted(both.split()) == ["a", "b"]
    job = flux("submit", "echo", "later").strip()
    assert flux("job", "attach", job) == "later\n"
    assert flux("job", "attach", job) == "later\n"


def test_standard_input_is_that_of_the_job(flux):
    option = "-oinput.stdin.type=service"
    assert flux("run", option, "cat", stdin="a\nb\n") == "a\nb\n"
    # Without a task that reads, data is an error; the end of the input is not.
    assert flux("run", "echo", "x", stdin="") == "x\n"


def test_a_batch_script_runs_in_a_child_instance_of_flux(flux):
    script = "#!/bin/sh\nflux getattr size; flux run -n2 echo task\n"
    (flux.directory / "script.sh").write_text(script)
    job = flux("batch", "-N1", "-n2", "--output=out", "script.sh").strip()
    flux("job", "wait-event", "--timeout=100", job, "clean")
    said = (flux.directory / "out").read_text()
    assert said.split() == ["1", "task", "task"], said


def test_listings_show_jobs_nodes_and_services(flux):
    job = flux("submit", "--job-name=named", "sleep", "1000").strip()
    assert flux("jobs", "-no", "{id} {name}").split() == [job, "named"]
    assert flux("pgrep", "named").split() == [job]
    assert "named" in flux("pstree")
    assert re.search(r"avail +\S* *2", flux("resource", "status"))
    assert "2" in flux("resource", "list")
    assert "job-manager" in flux("module", "list")
    assert flux("ping", "-c2", "job-manager").count("time=") == 2
    assert "canceled 1 job" in flux.run("cancel", "--all").stderr.lower()
    flux("job", "wait-event", "--timeout=100", job, "clean")
    assert flux("jobs", "-n") == ""


def test_keys_attributes_events_and_log(flux):
    flux("kvs", "put", "a.b=1", "c=2")
    assert flux("kvs", "get", "a.b") == "1\n"
    flux("kvs", "put", "--append", "c=3")
    assert flux("kvs", "get", "--raw", "c") == "23"
    assert flux("kvs", "ls", "-1").split() == ["a", "c", "job"]
    assert flux("kvs", "dir", "a") == "a.b = 1\n"
    assert int(flux("kvs", "version")) >= 0
    job = flux("submit", "true").strip()
    flux("job", "wait-event", "--timeout=100", job, "clean")
    assert "shell.init" in flux("job", "eventlog", "--path=guest.exec.eventlog", job)
    assert "submit" in flux("job", "info", job, "eventlog")
    flux("setattr", "site.x", "1")
    assert flux("getattr", "site.x") == "1\n"
    flux("logger", "--severity=info", "a line")
    assert "a line" in flux("dmesg")
    flux("event", "pub", "a.topic", '{"x":1}')


def test_what_penstock_lacks_is_an_unknown_service(flux):
    for words in (["overlay", "status"], ["exec", "true"], ["content", "flush"]):
        done = flux.run(*words)
        assert done.returncode != 0, words
        said = done.stderr.lower()
        assert any(text in said for text in ("not implemented", "no service")), (words, said)
