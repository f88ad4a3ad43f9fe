"""How an instance starts: what it takes for its own, and what it leaves alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

PENSTOCK = [sys.executable, "-m", "penstock"]


def start_here(directory, *args, env=None):
    """Runs `penstock start` in a directory, with its state there."""
    return subprocess.run(
        [*PENSTOCK, "start", "--state", "state", *args],
        cwd=directory,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("how", ["option", "environment", "configuration"])
def test_a_file_in_the_socket_s_place_stays(tmp_path, how):
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


def test_a_socket_that_was_left_behind_is_replaced(tmp_path):
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


def test_a_relative_socket_is_found_from_anywhere(tmp_path):
    penstock = " ".join(PENSTOCK)
    script = f"cd /; {penstock} run --cwd=/ {penstock} jobs -a --json"
    done = start_here(tmp_path, "--socket", "state/sock", "--", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"state": "RUN"' in done.stdout


def test_a_path_that_is_too_long_for_a_socket_is_named(tmp_path):
    path = tmp_path / ("x" * 120)
    done = start_here(tmp_path, "--nodes=1", "--socket", str(path), "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"penstock start: `{path}` is too long for a socket: ")
    assert "at most 107" in done.stderr
