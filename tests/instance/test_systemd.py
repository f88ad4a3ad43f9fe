"""The units for systemd: notifications of the daemon, restarts, the checks of systemd-analyze."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.instance.conftest import PENSTOCK, attached, end_service

from penstock.client import Client

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"
NAMES = ["penstock.service", "penstock-exec.service"]
HANG_S = 120


def settings(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read(unit)
    return parser["Service"]


class ServiceManager:
    """The receiver of notifications, as systemd is one for its services."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(HANG_S)
        self.environment = {**os.environ, "NOTIFY_SOCKET": str(path)}
        self.received: list[str] = []
        self._unread: list[str] = []

    def wait_for(self, state: str) -> None:
        while state not in self._unread:
            self._unread += self._socket.recv(4096).decode().splitlines()
        self.received += self._unread
        del self._unread[: self._unread.index(state) + 1]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path):
    manager = ServiceManager(tmp_path / "notify")
    yield manager
    manager.close()


@contextmanager
def service(command: list[str], environment: dict[str, str]):
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def start_command(tmp_path: Path, *options: str) -> list[str]:
    state = tmp_path / "state"
    return [*PENSTOCK, "start", "--state", str(state), "--socket", str(state / "socket"), *options]


def test_the_daemon_is_ready_when_it_accepts_and_tells_that_it_stops(tmp_path, manager):
    command = start_command(tmp_path, "--nodes=2")
    with service(command, manager.environment) as daemon:
        manager.wait_for("READY=1")
        manager.wait_for("STATUS=2 nodes, 2 cores")
        with Client(f"local://{tmp_path}/state/socket") as client:
            client.ping("job-manager")
        daemon.send_signal(signal.SIGTERM)
        manager.wait_for("STOPPING=1")
        assert daemon.wait(timeout=HANG_S) == 0
    assert "WATCHDOG=1" not in manager.received


def test_the_watchdog_is_reset_again_and_again(tmp_path, manager):
    environment = manager.environment | {"WATCHDOG_USEC": "200000"}
    with service(start_command(tmp_path, "--nodes=1"), environment):
        manager.wait_for("READY=1")
        for _ in range(3):
            manager.wait_for("WATCHDOG=1")


def test_the_watchdog_of_another_process_is_not_reset(tmp_path, manager):
    environment = manager.environment | {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    with service(start_command(tmp_path, "--nodes=1"), environment) as daemon:
        manager.wait_for("READY=1")
        daemon.send_signal(signal.SIGTERM)
        manager.wait_for("STOPPING=1")
    assert "WATCHDOG=1" not in manager.received


def test_a_failed_start_is_not_ready(tmp_path, manager):
    command = start_command(tmp_path, "--R=/nonexistent")
    with service(command, manager.environment) as daemon:
        assert daemon.wait(timeout=HANG_S) == 1
        assert "/nonexistent" in daemon.stderr.read()
    manager.wait_for("STOPPING=1")
    assert manager.received == ["STOPPING=1"]


def test_the_command_of_an_instance_does_not_notify(tmp_path, manager):
    environment = manager.environment | {"WATCHDOG_USEC": "1000000"}
    command = start_command(tmp_path, "--nodes=1", "--", "env")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as daemon:
        text, _ = daemon.communicate(timeout=HANG_S)
    assert "PENSTOCK_URI=" in text
    assert "NOTIFY_SOCKET" not in text
    assert "WATCHDOG" not in text


# --- the units


class Unit:
    """The command of a unit for users, with the folders of a test in it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.settings = settings(UNITS / "user" / name)
        text = self.settings["ExecStart"]
        for specifier, path in (("%h", folder), ("%t", folder / "run"), ("%E", folder / "config")):
            text = text.replace(specifier, str(path))
        program, *words = shlex.split(text)
        assert Path(program) == folder / ".local/bin/penstock"
        self.command = [*PENSTOCK, *words]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config/penstock/conf.d").mkdir(parents=True)
    (tmp_path / "config/penstock/conf.d/10.toml").write_text(
        "[penstock.exec]\noversubscribe = true\n"
    )
    yield tmp_path
    state = tmp_path / ".local/state/penstock-service"
    end_service(state / "exec", f"local://{tmp_path}/run/penstock/default.sock")


def test_jobs_continue_when_either_service_is_restarted(folder, manager):
    daemon = Unit("penstock.service", folder)
    execution = Unit("penstock-exec.service", folder)
    # A stop sends SIGTERM to the main process, and nothing to the others.
    assert execution.settings["KillMode"] == "process"
    assert execution.settings["SendSIGKILL"] == "no"
    uri = f"local://{folder}/run/penstock/default.sock"
    environment = {**os.environ, "PENSTOCK_URI": uri}
    fifo = folder / "fifo"
    os.mkfifo(fifo)

    def penstock(*words: str) -> str:
        done = subprocess.run(
            [*PENSTOCK, *words], env=environment, capture_output=True, text=True, timeout=HANG_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def restart_execution(process):
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=HANG_S)

    with service(daemon.command, manager.environment) as first:
        manager.wait_for("READY=1")
        with attached(execution.command, "ready") as process:
            job = penstock("submit", "sh", "-c", f"echo started; cat {fifo}; echo ended")
            penstock("job-wait-event", job, "start")
            restart_execution(process)
        with attached(execution.command, "ready") as process:
            first.send_signal(signal.SIGTERM)
            assert first.wait(timeout=HANG_S) == 0
            with service(daemon.command, manager.environment):
                manager.wait_for("READY=1")
                assert penstock("jobs", "-n", "-o", "{id} {state}") == f"{job} RUN"
                fifo.write_text("continued\n")
                penstock("wait", job)
                text = penstock("logs", job)
            restart_execution(process)
    assert text.splitlines() == ["started", "continued", "ended"]


def test_the_services_have_what_restarts_need():
    for kind in ("system", "user"):
        execution = settings(UNITS / kind / "penstock-exec.service")
        needed = {"Delegate": "yes", "KillMode": "process", "OOMPolicy": "continue"}
        assert {key: execution.get(key) for key in needed} == needed
        # Tasks would inherit it.
        sandboxing = ("Protect", "Private", "Restrict", "NoNewPrivileges", "SystemCall", "Capab")
        names = [name for name in execution if name not in ("Restart", "RestartSec")]
        assert [name for name in names if name.startswith(sandboxing)] == []
        daemon = settings(UNITS / kind / "penstock.service")
        assert daemon["Type"] == "notify"
        assert "--exec none" in daemon["ExecStart"]


needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@needs_analyze
@pytest.mark.parametrize("kind", ["system", "user"])
def test_systemd_accepts_the_units(kind, tmp_path):
    for name in NAMES:
        text = (UNITS / kind / name).read_text()
        # The programs are in an environment here.
        text = text.replace("/usr/bin/penstock", sys.executable)
        text = text.replace("%h/.local/bin/penstock", sys.executable)
        (tmp_path / name).write_text(text)
    command = ["systemd-analyze", "verify", f"--{kind}", "--man=no"]
    done = subprocess.run(
        [*command, *(str(tmp_path / name) for name in NAMES)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    # Unknown before systemd 254, and ignored.
    problems = [
        line
        for line in done.stderr.splitlines()
        if str(tmp_path) in line and "DelegateSubgroup" not in line
    ]
    assert problems == []
    assert done.returncode == 0, done.stderr


@needs_analyze
def test_the_daemon_is_hardened():
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=30", "--no-pager"]
    done = subprocess.run(
        [*command, str(UNITS / "system" / "penstock.service")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:]
