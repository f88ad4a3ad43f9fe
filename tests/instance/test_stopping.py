"""How an instance stops: what ends, what stays, and what cannot hold it up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

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
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert not instance.socket.exists()
    with start() as instance:
        row = json.loads(instance.lines("info", "--json", job)[0])
        assert (row["result"], row["reason"]) == ("CANCELED", "cancel: the instance was shut down")


def test_under_nohup_the_end_of_the_terminal_is_not_the_instance_s(tmp_path):
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
