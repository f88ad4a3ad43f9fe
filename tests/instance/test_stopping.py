"""The end of an instance: jobs, commands and signals."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from tests.instance.conftest import is_running

PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_instance_ends_its_jobs(start, tmp_path, number):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with start() as instance:
        (job,) = instance.lines("submit", "sh", "-c", f"echo $$ > {fifo}; exec sleep 1000")
        pid = int(fifo.read_text())
        instance.process.send_signal(number)
        instance.process.wait(timeout=60)
        assert not is_running(pid)
        assert not instance.socket.exists()
    with start() as instance:
        row = json.loads(instance.lines("info", "--json", job)[0])
        assert (row["result"], row["reason"]) == ("CANCELED", "cancel: the instance was shut down")


def test_under_nohup_the_instance_outlives_its_terminal(tmp_path):
    state = str(tmp_path / "state")
    command = [*PENSTOCK, "start", "--nodes=1", "--state", state, "--socket", state + "/socket"]
    script = "kill -HUP $PPID; exit 7"
    done = subprocess.run(
        ["nohup", *command, "--", "sh", "-c", script],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 7


@pytest.mark.parametrize("sched", ["inside", "process"])
def test_pending_jobs_stay_pending_over_a_restart(start, tmp_path, sched):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    options = ["--nodes=1", "--cores=2", "--exec=local", "--oversubscribe", "--sched", sched]
    with start(*options) as instance:
        (first,) = instance.lines("submit", "sh", "-c", f"echo > {fifo}; exec sleep 1000")
        fifo.read_text()
        # This one ends later: there is time to give the first one's core to others.
        penstock = " ".join(PENSTOCK)
        linger = f"trap '{penstock} wait {first}; {penstock} jobs > /dev/null; exit' TERM"
        instance.lines("submit", "sh", "-c", f"{linger}; echo > {fifo}; sleep 1000")
        fifo.read_text()
        instance.lines("submit", "--cc=1-20", "sleep", "1000")
        instance.stop()
    with sqlite3.connect(instance.state / "jobs.sqlite") as database:
        of_copies = "SELECT lines FROM jobs JOIN common_events ON id BETWEEN first AND last"
        query = f"{of_copies} UNION ALL SELECT lines FROM events"
        lines = [line for (line,) in database.execute(query)]
    database.close()
    names = [json.loads(line)["name"] for text in lines for line in text.splitlines()]
    assert names.count("priority") == 22
    assert names.count("alloc") == 2
    with start(*options[:-1], "none") as instance:
        states = [json.loads(line)["status"] for line in instance.lines("jobs", "-a", "--json")]
        assert sorted(states) == 2 * ["CANCELED"] + 20 * ["SCHED"]
        assert json.loads(instance.lines("info", "--json", first)[0])["status"] == "CANCELED"


@pytest.mark.parametrize(("ignored", "code"), [("TERM", 129), ("TERM HUP", 137)])
def test_a_command_that_ignores_sigterm_is_killed(tmp_path, ignored, code):
    config = tmp_path / "penstock.toml"
    config.write_text("[penstock.exec]\nkill-timeout = '0.1s'\n")
    state = str(tmp_path / "state")
    command = [*PENSTOCK, "start", "--nodes=1", "--config", str(config), "--state", state]
    script = f"trap '' {ignored}; echo ready; read line"
    with subprocess.Popen(
        [*command, "--socket", state + "/socket", "--", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(timeout=60) == code
