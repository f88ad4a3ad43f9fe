"""Prolog and epilog of a site, as commands that a real instance runs."""

from __future__ import annotations

import json
import os
import select
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.jobs import events, newest, row

from penstock.client import Client

SIM = ("--nodes", "2", "--cores", "2")


@pytest.fixture
def site(tmp_path):
    """Gives a function that configures hooks as shell scripts."""

    def configure(prolog=None, epilog=None, timeout="1m"):
        text = ""
        for kind, script in (("prolog", prolog), ("epilog", epilog)):
            if script is not None:
                file = tmp_path / kind
                file.write_text(f"#!/bin/sh\n{script}\n")
                file.chmod(0o755)
                command = json.dumps([str(file), "an argument"])
                text += f'[job-manager.{kind}]\ncommand = {command}\ntimeout = "{timeout}"\n'
        config = tmp_path / "penstock.toml"
        config.write_text(text)
        return ("--config", str(config))

    return configure


def logged(client):
    """The texts of the daemon's log."""
    answers = list(client.stream("log.dmesg", {"follow": False, "rows": True}))
    return [row["text"] for answer in answers for row in answer["lines"]]


def test_hooks_run_before_and_after_a_job_with_its_variables(start, site, tmp_path):
    say = f'echo "$0 $1 $PENSTOCK_HOOK $FLUX_JOB_ID $FLUX_JOB_USERID $PENSTOCK_JOB_HOSTS \
$PENSTOCK_JOB_RANKS $PENSTOCK_JOB_STATUS" >> {tmp_path}/said; echo "told by $PENSTOCK_HOOK"'
    with start(*SIM, *site(say, say)) as instance, Client(instance.uri) as client:
        (name,) = instance.lines(
            "submit", "-N2", "-t", "1h", "--setattr=exec.test.run_duration=0s", "true"
        )
        assert instance.penstock("wait", name).returncode == 0
        expected = ["alloc", "prolog-start", "prolog-finish", "start", "finish", "release"]
        expected += ["epilog-start", "epilog-finish", "free", "clean"]
        assert events(client, newest(client))[4:] == expected
        for kind in ("prolog", "epilog"):
            assert f"{kind} of {name}: told by {kind}" in logged(client)
    uid = os.geteuid()
    assert (tmp_path / "said").read_text().splitlines() == [
        f"{tmp_path}/prolog an argument prolog {name} {uid} node[0-1] 0-1 ",
        f"{tmp_path}/epilog an argument epilog {name} {uid} node[0-1] 0-1 0",
    ]


@pytest.mark.parametrize(
    ("script", "timeout", "note"),
    [
        ("exit 3", "1m", "prolog failed with exit code 3"),
        ("kill -9 $$", "1m", "prolog was killed by signal 9"),
        ("exec sleep 1000", "0.1s", "prolog timed out after 0.1 s"),
        (
            "trap 'exit 0' TERM; while :; do sleep 0.01; done",
            "0.3s",
            "prolog timed out after 0.3 s",
        ),
    ],
)
def test_a_prolog_that_fails_ends_the_job_which_gets_its_epilog(
    start, site, tmp_path, script, timeout, note
):
    options = site(script, f"echo ran > {tmp_path}/epilogged", timeout)
    with start(*SIM, *options) as instance, Client(instance.uri) as client:
        (name,) = instance.lines("submit", "true")
        assert instance.penstock("wait", name).returncode == 1
        found = row(client, newest(client))
        assert (found["exception_type"], found["exception_note"]) == ("prolog", note)
        assert "start" not in events(client, newest(client))
    assert (tmp_path / "epilogged").read_text() == "ran\n"


def test_a_prolog_that_cannot_be_run_is_named_in_the_exception(start, tmp_path):
    config = tmp_path / "penstock.toml"
    config.write_text('[job-manager.prolog]\ncommand = ["/no/such/prolog"]\n')
    with start(*SIM, "--config", str(config)) as instance, Client(instance.uri) as client:
        (name,) = instance.lines("submit", "true")
        assert instance.penstock("wait", name).returncode == 1
        note = "prolog: cannot run `/no/such/prolog`: No such file or directory"
        assert row(client, newest(client))["exception_note"] == note


def test_cancelling_a_job_ends_its_prolog(start, site, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    options = site(f"sleep 1000 & echo $! > {fifo}; wait")
    with start(*SIM, *options) as instance, Client(instance.uri) as client:
        (name,) = instance.lines("submit", "true")
        # Becomes readable when the process ends, whichever process reaps it.
        child = os.pidfd_open(int(fifo.read_text()))
        instance.lines("cancel", name)
        assert instance.penstock("wait", name).returncode == 1
        assert row(client, newest(client))["result"] == 4
        assert events(client, newest(client))[-4:] == [
            "exception",
            "prolog-finish",
            "free",
            "clean",
        ]
        # It got the signal together with the command itself.
        assert select.select([child], [], [], 60)[0]
        os.close(child)


def test_a_failing_epilog_is_logged_only(start, site, tmp_path):
    log = tmp_path / "log"
    options = site(epilog="exit 7")
    with start(*SIM, *options, stderr=log) as instance, Client(instance.uri) as client:
        (name,) = instance.lines("submit", "--setattr=exec.test.run_duration=0s", "true")
        assert instance.penstock("wait", name).returncode == 0
        assert row(client, newest(client))["exception_severity"] == 1
    assert f"epilog of job {name}: epilog failed with exit code 7" in log.read_text()


def test_a_prolog_that_a_crash_interrupts_runs_again(start, site, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    options = site(f"echo began > {fifo}; test -e {tmp_path}/go || exec sleep 1000")
    with start(*SIM, *options) as instance, Client(instance.uri) as client:
        (name,) = instance.lines("submit", "--setattr=exec.test.run_duration=0s", "true")
        assert fifo.read_text() == "began\n"
        job = newest(client)
        instance.process.kill()
        instance.process.wait()
    (tmp_path / "go").touch()
    with start(*SIM, *options) as instance, Client(instance.uri) as client:
        assert fifo.read_text() == "began\n"
        assert instance.penstock("wait", name).returncode == 0
        log = events(client, job)
        assert (log.count("prolog-start"), log.count("prolog-finish")) == (1, 1)


def test_a_reload_changes_hooks(start, site, tmp_path):
    with start(*SIM) as instance, Client(instance.uri) as client:
        (name,) = instance.lines("submit", "--setattr=exec.test.run_duration=0s", "true")
        assert instance.penstock("wait", name).returncode == 0
        file = tmp_path / "new"
        file.write_text("#!/bin/sh\nexit 1\n")
        file.chmod(0o755)
        prolog = {"prolog": {"command": [str(file)]}}
        client.rpc("config.reload", {"config": {"job-manager": prolog}})
        (name,) = instance.lines("submit", "true")
        assert instance.penstock("wait", name).returncode == 1
        assert row(client, newest(client))["exception_type"] == "prolog"


def test_a_cancellation_is_answered_when_the_command_has_ended(start, site, tmp_path):
    up, go, ended = (tmp_path / name for name in ("up", "go", "ended"))
    os.mkfifo(up)
    os.mkfifo(go)
    # It ends when the test has written to `go`, which it reads after SIGTERM.
    options = site(
        f"trap 'read x < {go}; touch {ended}; exit 1' TERM; echo > {up}; sleep 1000 & wait"
    )
    with start(*SIM, *options) as instance, Client(instance.uri) as client:
        instance.lines("submit", "true")
        up.read_text()
        with ThreadPoolExecutor(1) as pool:
            released = pool.submit(go.write_text, "\n")
            client.rpc("hooks.cancel", {"id": newest(client)})
            assert ended.exists()
            released.result()
        # Nothing of the job runs now.
        client.rpc("hooks.cancel", {"id": newest(client)})
