"""Live instances of Flux, with Penstock as scheduler or as execution service.

`make test-flux FLUX=PREFIX` puts the `flux` of an installation on the PATH; without one the tests
are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.instance.conftest import attached, is_running, reaper_of

import penstock

FLUX = shutil.which("flux")
MODULES = str(Path(penstock.__file__).parent / "flux")
ENVIRONMENT = {
    **os.environ,
    "FLUX_MODULE_PATH": MODULES,
    "FLUX_MODPROBE_PATH_APPEND": MODULES,
}
PENSTOCK = [sys.executable, "-m", "penstock"]
TIMEOUT_S = 120


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if FLUX is None and here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="flux is not installed: see make test-flux"))


class Flux:
    """A running instance of Flux."""

    def __init__(self, uri: str, start_uri: str, directory: Path) -> None:
        self.uri = uri
        self.directory = directory
        self.env = {**ENVIRONMENT, "FLUX_URI": uri, "PENSTOCK_URI": uri}
        self._start_uri = start_uri

    def run(self, *words: str) -> subprocess.CompletedProcess:
        """Runs a command of Flux."""
        return self._command([str(FLUX), *words])

    def penstock(self, *words: str) -> subprocess.CompletedProcess:
        """Runs a command of Penstock."""
        return self._command([*PENSTOCK, *words])

    def _command(self, command: list[str]) -> subprocess.CompletedProcess:
        return subprocess.run(
            command,
            env=self.env,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )

    def flux(self, *words: str) -> str:
        """The output of a command of Flux, which must succeed."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def fails(self, *words: str) -> str:
        """The errors of a command of Flux, which must fail."""
        done = self.run(*words)
        assert done.returncode != 0, done.stdout
        return done.stderr.strip()

    def broker(self, action: str, rank: int, **more: int) -> None:
        """Lets `flux start` run or kill the broker of a rank."""
        request = {"rank": rank} | {key: int(value) for key, value in more.items()}
        script = (
            f"import flux; flux.Flux({self._start_uri!r}).rpc('start.{action}', {request}).get()"
        )
        self.flux("python", "-c", script)

    def annotation(self, job: str, key: str) -> str:
        """An annotation of the scheduler, once a job has it."""
        while not (text := self.flux("jobs", "-no", f"{{annotations.sched.{key}}}", job)):
            pass
        return text

    def stats(self) -> dict:
        """The statistics of the scheduler."""
        return json.loads(self.flux("module", "stats", "sched-penstock"))

    def log(self) -> list[str]:
        """The lines of the broker's log that the module has written."""
        lines = self.flux("dmesg").split("\n")
        return [line.partition(" ")[2] for line in lines if " sched-penstock." in line]

    def submit(self, *words: str, until: str = "start") -> str:
        """Submits a job and waits for an event of it."""
        return self.flux("submit", f"--wait-event={until}", *words)

    def wait(self, job: str, event: str = "clean") -> None:
        """Waits for an event of a job."""
        self.flux("job", "wait-event", f"--timeout={TIMEOUT_S}", job, event)

    def events(self, job: str) -> list[dict]:
        """The events of a job, once it is inactive."""
        self.wait(job)
        lines = self.flux("job", "eventlog", "-f", "json", job).split("\n")
        return [json.loads(line) for line in lines]

    def resources(self, job: str) -> dict:
        """The R of a job."""
        return json.loads(self.flux("job", "info", job, "R"))

    def ranks(self, job: str) -> str:
        """The ranks of a job."""
        entries = self.resources(job)["execution"]["R_lite"]
        return ",".join(entry["rank"] for entry in entries)

    def end(self, job: str) -> tuple[int, list[str]]:
        """The wait status of a job, and its events from the start on."""
        events = self.events(job)
        names = [event["name"] for event in events]
        (finish,) = (event["context"] for event in events if event["name"] == "finish")
        return finish["status"], names[names.index("start") :]

    def exec_service(self):
        """Runs the execution service."""
        directory = str(self.directory / "exec")
        return attached([*PENSTOCK, "exec", "--uri", self.uri, "--directory", directory], "ready")

    def simulation(self):
        """Runs simulated execution."""
        return attached([*PENSTOCK, "exec", "--uri", self.uri, "--simulate"], "ready")


@pytest.fixture
def start_flux(tmp_path):
    """Gives a context manager that starts an instance with options of `flux start`.

    `without` names modules that are removed first, `load` has arguments of `flux module load`.
    """

    @contextmanager
    def start(*options: str, without: tuple[str, ...] = (), load: str = ""):
        for name in ("uri", "hold"):
            os.mkfifo(tmp_path / name)
        steps = [f"flux module remove {name}" for name in without]
        steps += [f"flux module load {load}"] if load else []
        script = " && ".join([*steps, 'echo "$FLUX_URI" "$FLUX_START_URI" > uri', "cat hold"])
        # Ends with the test's end of the FIFO. A failed step opens the other one: nothing hangs.
        command = [str(FLUX), "start", *options, "sh", "-c", f"{script} || : > uri"]
        with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT) as process:
            uris = (tmp_path / "uri").read_text().split()
            assert uris, "the instance has not started"
            with (tmp_path / "hold").open("w"):
                yield Flux(uris[0], uris[-1], tmp_path)
            process.wait(timeout=TIMEOUT_S)
        for name in ("uri", "hold"):
            (tmp_path / name).unlink()

    yield start
    pid = reaper_of(tmp_path / "exec")
    if is_running(pid):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def flux(start_flux):
    """An instance with Penstock as its scheduler."""
    with start_flux(without=("sched-simple",), load="sched-penstock") as instance:
        yield instance


CLUSTER = """
[modules]
alternatives.sched = "sched-penstock"

[bootstrap]
curve_cert = "{directory}/cert"
default_bind = "ipc://{directory}/run/tbon-%h"
default_connect = "ipc://{directory}/run/tbon-%h"
hosts = [{{ host = "fake[0-{last}]" }}]

[resource]
noverify = true

[[resource.config]]
hosts = "fake[0-{last}]"
cores = "0-3"
"""


@pytest.fixture
def start_cluster(start_flux, tmp_path):
    """Gives a context manager that starts brokers that can be killed and run again.

    The nodes have 4 cores each. `configuration` is added to that of the instance.
    """

    @contextmanager
    def start(size: int, configuration: str = ""):
        (tmp_path / "run").mkdir()
        subprocess.run([str(FLUX), "keygen", str(tmp_path / "cert")], check=True)
        file = tmp_path / "flux.toml"
        file.write_text(CLUSTER.format(directory=tmp_path, last=size - 1) + configuration)
        options = [f"--test-size={size}", f"--test-hosts=fake[0-{size - 1}]"]
        options += [f"--config-path={file}", f"--test-rundir={tmp_path}/run"]
        options += ["--test-exit-mode=leader", "--test-exit-timeout=0"]
        with start_flux(*options, f"-Sbroker.quorum={size}", "-Stbon.topo=custom") as instance:
            yield instance

    return start
