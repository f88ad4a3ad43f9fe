"""The start of an instance: its state directory, lock and socket."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import pytest

PENSTOCK = [sys.executable, "-m", "penstock"]


def start_here(directory, *args, env=None):
    """Runs `penstock start` with its state in the current directory."""
    return subprocess.run(
        [*PENSTOCK, "start", "--state", "state", *args],
        cwd=directory,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def rows(instance):
    return [json.loads(line) for line in instance.lines("jobs", "-a", "--json")]


@pytest.mark.parametrize("how", ["option", "environment", "configuration"])
def test_a_file_at_the_socket_path_is_not_removed(tmp_path, how):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious\n")
    options, env = ["--nodes=1"], {}
    if how == "option":
        options.append(f"--socket={victim}")
    elif how == "environment":
        env["PENSTOCK_URI"] = f"local://{victim}"
    else:
        (tmp_path / "config.toml").write_text(f'[penstock]\nsocket = "{victim}"\n')
        options.append("--config=config.toml")
    done = start_here(tmp_path, *options, "--", "true", env=env)
    assert done.returncode == 1
    assert f"`{victim}` exists and is not a socket\nhint: " in done.stderr
    assert victim.read_text() == "precious\n"


def test_a_file_at_the_lock_path_keeps_its_contents(tmp_path):
    lock = tmp_path / "state" / "lock"
    lock.parent.mkdir()
    lock.write_text("precious\n")
    assert start_here(tmp_path, "--nodes=1", "--socket=sock", "--", "true").returncode == 0
    assert lock.read_text() == "precious\n"


def test_a_stale_socket_is_replaced(tmp_path):
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert start_here(tmp_path, "--nodes=1", f"--socket={path}", "--", "true").returncode == 0
    assert not path.exists()


def test_only_the_instance_s_own_socket_is_removed_at_the_end(tmp_path):
    script = "rm sock && echo mine > sock"
    done = start_here(tmp_path, "--nodes=1", "--socket=sock", "--", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "sock").read_text() == "mine\n"


def test_a_relative_socket_path_works_from_any_directory(tmp_path):
    penstock = " ".join(PENSTOCK)
    script = f"cd /; {penstock} run --cwd=/ {penstock} jobs -a --json"
    done = start_here(tmp_path, "--socket", "state/sock", "--", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"state": "RUN"' in done.stdout


def test_jobs_run_after_a_start_with_the_same_state_and_another_socket(tmp_path):
    for name in ("one", "two"):
        done = start_here(
            tmp_path, f"--socket={name}", "--", *PENSTOCK, "run", "-t", "1m", "echo", name
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{name}\n", "")


def test_a_running_job_continues_at_another_socket(tmp_path):
    penstock = shlex.join(PENSTOCK)
    submit = [*PENSTOCK, "submit", "sh", "-c", "while [ ! -e end ]; do sleep 0.1; done; exit 3"]
    script = f"{shlex.join(submit)} && {penstock} job-wait-event -q $({penstock} last) start"
    script += f" && {penstock} stop --keep-running"
    first = start_here(tmp_path, "--socket=one", "--", "sh", "-c", script)
    assert first.stderr == ""
    script = f"touch end; {penstock} wait $({penstock} last)"
    second = start_here(tmp_path, "--socket=two", "--", "sh", "-c", script)
    assert (second.returncode, second.stderr) == (3, "")


def test_a_socket_path_that_is_too_long_is_named(tmp_path):
    path = tmp_path / ("x" * 120)
    done = start_here(tmp_path, "--nodes=1", "--socket", str(path), "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"penstock start: `{path}` is too long for a socket: ")
    assert "at most 107" in done.stderr


@pytest.mark.parametrize(
    ("file", "contents", "text"),
    [
        ("reaper/log", b"PnstkRp1 and records", "a reaper's log of version 1: expected version 2"),
        (
            "journal",
            b"PnstkSv1 and records",
            "a service's journal of version 1: expected version 2",
        ),
    ],
)
@pytest.mark.parametrize("command", [["--", "true"], []])
def test_files_of_another_version_are_named_and_nothing_runs(
    tmp_path, file, contents, text, command
):
    path = tmp_path / "state/exec" / file
    for folder in [tmp_path / "state", tmp_path / "state/exec", path.parent]:
        folder.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(contents)
    done = start_here(tmp_path, "--socket=sock", *command)
    assert done.returncode == 1
    assert f"penstock start: `{path}`: {text}\nhint: start the earlier version" in done.stderr
    assert path.read_bytes() == contents


@contextmanager
def reaper_of_version(version, path):
    """A process that says hello as a reaper of this version does."""
    hello = struct.pack("<BI16sIQ", 0, version, bytes(16), os.getpid(), 1)

    def answer(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(100)
                    peer.sendall(struct.pack("<I", len(hello)) + hello)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=answer, args=[listener])
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("command", [["--", "true"], []])
def test_a_running_reaper_of_another_version_is_named_and_nothing_runs(tmp_path, command):
    folder = tmp_path / "state/exec/reaper"
    folder.mkdir(mode=0o700, parents=True)
    for path in [tmp_path / "state", folder.parent]:
        path.chmod(0o700)
    with reaper_of_version(2, folder / "socket"):
        done = start_here(tmp_path, "--socket=sock", *command)
    assert done.returncode == 1
    text = f"penstock start: `{folder}`: the running reaper speaks version 2: expected "
    _, found, rest = done.stderr.partition(text)
    assert found
    assert "\nhint: " in rest
    assert sorted(path.name for path in folder.iterdir()) == ["socket"]


def test_an_unreadable_row_of_the_store_affects_its_own_job_only(start, tmp_path):
    names = "finished running pending broken logless".split()
    with start("--nodes=1", "--cores=3") as instance:
        ids = {}
        for name in names:
            options = ["--setattr=exec.test.run_duration=0s"] if name == "finished" else ["-t1h"]
            options += ["--urgency=hold"] if name == "pending" else []
            (ids[name],) = instance.lines("submit", *options, "--job-name", name, "true")
        instance.lines("wait", ids["finished"])
        numbers = {row["name"]: row["id_int"] for row in rows(instance)}
        instance.process.kill()
        instance.process.wait()
    with sqlite3.connect(instance.state / "jobs.sqlite") as database:
        update = database.execute
        update("UPDATE jobs SET r = 'garbage' WHERE id = ?", [numbers["finished"]])
        update("UPDATE jobs SET r = '{}' WHERE id = ?", [numbers["running"]])
        spec = "SELECT spec FROM jobs WHERE id = ?"
        update(f"UPDATE jobspecs SET text = 'x' WHERE id = ({spec})", [numbers["broken"]])
        update("UPDATE events SET lines = '?' || lines WHERE job = ?", [numbers["logless"]])
    database.close()
    (instance.state / "socket").unlink()
    with start("--nodes=1", "--cores=3", "-v", stderr=tmp_path / "log") as instance:
        shown = {row["name"]: row for row in rows(instance)}
        assert sorted(shown) == ["finished", "pending", "running"]
        assert shown["finished"]["status"] == "COMPLETED"
        assert shown["pending"]["status"] == "SCHED"
        assert shown["running"]["status"] == "FAILED"
        reason = "alloc: its resources cannot be read from the store"
        assert shown["running"]["reason"] == reason
        done = instance.penstock("run", "--setattr=exec.test.run_duration=0s", "true")
        assert done.returncode == 0
    log = (tmp_path / "log").read_text()
    for text in [
        f"the resources of job {ids['finished']} are lost: ",
        f"the resources of job {ids['running']} are lost: ",
        f"job {ids['broken']} is left out: invalid jobspec: ",
        f"job {ids['logless']} is left out: event `?{{",
    ]:
        assert f"job-manager: store: {text}" in log


def test_jobs_of_simulated_nodes_do_not_run_here_at_the_next_start(tmp_path):
    home = {"XDG_STATE_HOME": str(tmp_path / "states"), "XDG_RUNTIME_DIR": str(tmp_path)}
    ran = tmp_path / "ran"

    def start(*args):
        command = [*PENSTOCK, "start", *args]
        env = {**os.environ, **home}
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=60
        )

    submit = [*PENSTOCK, "submit", "--urgency=hold", "touch", str(ran)]
    assert start("--nodes=4", "--", *submit).returncode == 0
    release = f"for id in $({PENSTOCK[0]} -m penstock jobs -no '{{id}}'); do exit 9; done"
    assert start("--", "sh", "-c", release).returncode == 0
    assert sorted(path.name for path in (tmp_path / "states").iterdir()) == [
        "penstock",
        "penstock-simulated",
    ]
    mixed = start("--state", str(tmp_path / "states/penstock-simulated"), "--", "true")
    assert mixed.returncode == 1
    assert mixed.stderr == (
        f"penstock start: state directory `{tmp_path}/states/penstock-simulated` is of an instance "
        "that simulates its jobs; this one runs its jobs on this machine\n"
        "hint: name another one with `--state DIR`, or take over its pending jobs with "
        "`--any-state`\n"
    )
    taken = ["--state", str(tmp_path / "states/penstock-simulated"), "--any-state"]
    assert start(*taken, "--", "sh", "-c", release).returncode == 9
    # It is of the new kind from now on.
    assert start(*taken[:2], "--", "true").returncode == 0
    assert not ran.exists()


def test_stopped_and_disabled_queues_are_named_at_the_start(tmp_path):
    script = "; ".join(
        f"{' '.join(PENSTOCK)} queue {command}"
        for command in ("stop -m fans", "disable -m upgrade")
    )
    first = start_here(tmp_path, "--nodes=1", "--socket=sock", "--", "sh", "-c", script)
    assert (first.returncode, first.stderr) == (0, "")
    second = start_here(tmp_path, "--nodes=1", "--socket=sock", "--", "true")
    assert second.stderr.splitlines() == [
        "penstock: the queue is disabled and takes no jobs: `penstock queue enable` (upgrade)",
        "penstock: the queue is stopped and starts no jobs: `penstock queue start` (fans)",
    ]
    (tmp_path / "config.toml").write_text("[queues.batch]\n")
    options = ["--nodes=1", "--socket=sock", "--config=config.toml"]
    stop = f"{' '.join(PENSTOCK)} queue stop batch -m fans"
    start_here(tmp_path, *options, "--", "sh", "-c", stop)
    third = start_here(tmp_path, *options, "--", "true")
    text = "queue `batch` is stopped and starts no jobs: `penstock queue start batch` (fans)"
    assert third.stderr == f"penstock: {text}\n"


def test_a_start_in_a_terminal_names_resources_places_and_the_way_out(tmp_path):
    master, slave = pty.openpty()
    where = ["--state", str(tmp_path / "state"), "--socket", str(tmp_path / "sock")]
    command = [*PENSTOCK, "start", "--nodes=3", "--cores=2", *where]
    with (
        os.fdopen(master, "rb", buffering=0) as screen,
        subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process,
    ):
        os.close(slave)
        text = b""
        while b"ends it" not in text:
            text += screen.read(65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert text.decode().replace("\r", "").splitlines() == [
        "penstock start: 3 nodes, 6 cores: node[0-2]; execution is simulated",
        f"penstock start: socket {tmp_path}/sock",
        f"penstock start: in other terminals: export PENSTOCK_URI=local://{tmp_path}/sock",
        f"penstock start: state {tmp_path}/state",
        "penstock start: Ctrl-C or `penstock stop` ends it",
    ]


def test_a_start_with_a_command_in_a_terminal_names_resources_state_and_the_end(tmp_path):
    master, slave = pty.openpty()
    where = ["--state", str(tmp_path / "state"), "--socket", str(tmp_path / "sock")]
    command = [*PENSTOCK, "start", "--nodes=3", "--cores=2", *where, "--", "sh", "-c", "echo go"]
    with os.fdopen(master, "rb", buffering=0) as screen:
        assert (
            subprocess.run(
                command, stdin=slave, stdout=slave, stderr=slave, check=False, timeout=60
            ).returncode
            == 0
        )
        os.close(slave)
        text = b""
        with suppress(OSError):
            while part := screen.read(65536):
                text += part
    assert text.decode().replace("\r", "").splitlines() == [
        "penstock start: 3 nodes, 6 cores: node[0-2]; execution is simulated",
        f"penstock start: state {tmp_path}/state; it ends with `sh`",
        "go",
    ]
