"""Jobs outlive the daemon and its execution service, which may be stopped, restarted or killed."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.instance.conftest import (
    PENSTOCK,
    foreground,
    is_running,
    kill,
    reaper_of,
    service_of,
)

from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobid import parse
from penstock.jobspec import from_command


def gate(path: Path) -> str:
    """A FIFO at which a task waits, and the shell's command for that."""
    os.mkfifo(path)
    return f"cat {path}"


def open_gate(path: Path) -> None:
    """Waits until a task is at the gate, and lets it pass."""
    with path.open("w"):
        pass


def events(instance, job: str) -> list[str]:
    return [json.loads(line)["name"] for line in instance.lines("eventlog", "--json", job)]


def process(instance, which) -> int:
    """The service or the reaper of an instance."""
    pid = which(instance.state / "exec")
    assert pid is not None
    return pid


@contextmanager
def end_of(*pids: int):
    """Waits at the end of the block until processes, which run at its start, have ended."""
    descriptors = [os.pidfd_open(pid) for pid in pids]
    yield
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)


class Jobs:
    """Two jobs: one ends while there is no daemon, the other one continues."""

    def __init__(self, instance, directory: Path) -> None:
        self._ends, self._runs, self._said = (directory / name for name in ("a", "b", "said"))
        said = f"echo start >> {self._said}"
        script = f"{said}; echo one; {gate(self._runs)}; echo two; exit 6"
        (self.ended,) = instance.lines("submit", "sh", "-c", f"{gate(self._ends)}; exit 4")
        (self.running,) = instance.lines("submit", "sh", "-c", script)
        self._runs_descriptor = self._runs.open("w")

    def end_first(self) -> None:
        open_gate(self._ends)

    def check(self, instance) -> None:
        """Both end with their status and output, and have run once."""
        assert instance.penstock("wait", self.ended).returncode == 4
        self._runs_descriptor.close()
        assert instance.penstock("wait", self.running).returncode == 6
        assert instance.lines("logs", self.running) == ["one", "two"]
        assert self._said.read_text() == "start\n"
        assert events(instance, self.running).count("start") == 1


@pytest.mark.parametrize("sleeps", [False, True], ids=["at once", "after the first job's end"])
def test_jobs_continue_when_the_daemon_is_killed(start, tmp_path, sleeps):
    with start() as instance:
        jobs = Jobs(instance, tmp_path)
        kill(instance)
    if sleeps:
        jobs.end_first()
    with start() as instance:
        if not sleeps:
            jobs.end_first()
        jobs.check(instance)
        assert instance.lines("run", "echo", "more") == ["more"]


def test_jobs_continue_when_their_service_is_killed(start, tmp_path):
    with start() as instance:
        jobs = Jobs(instance, tmp_path)
        first = process(instance, service_of)
        with end_of(first):
            os.kill(first, signal.SIGKILL)
        jobs.end_first()
        jobs.check(instance)
        assert process(instance, service_of) != first
        assert instance.lines("run", "echo", "more") == ["more"]


def test_the_output_that_run_shows_is_whole_when_the_service_is_killed(start, tmp_path):
    fifo = tmp_path / "gate"
    script = f"echo one; echo two >&2; {gate(fifo)}; echo three; echo four >&2"
    with start() as instance:
        command = [*PENSTOCK, "run", "sh", "-c", script]
        env = {**os.environ, "PENSTOCK_URI": instance.uri}
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as run:
            assert (run.stdout.readline(), run.stderr.readline()) == ("one\n", "two\n")
            service = process(instance, service_of)
            with fifo.open("w"), end_of(service):
                os.kill(service, signal.SIGKILL)
            assert run.communicate(timeout=60) == ("three\n", "four\n")
            assert run.returncode == 0


@pytest.mark.parametrize("made", [0, 1, 60])
def test_files_of_a_job_are_whole_when_the_service_is_killed_while_it_makes_them(
    start, tmp_path, made
):
    file = {"mode": 0o100600, "encoding": "utf-8", "data": "x" * 100_000}
    script = f"{gate(tmp_path / 'gate')}; cat {{{{tmpdir}}}}/* | wc -c"
    spec = from_command(["sh", "-c", script], cwd="/", environment=dict(os.environ))
    spec["attributes"]["system"]["files"] = {str(number): file for number in range(100)}
    with start() as instance, Client(instance.uri) as client:
        directories = instance.state / "exec" / "jobs"
        service = process(instance, service_of)
        with end_of(service):
            job = client.submit(spec)
            deadline = time.monotonic() + 60
            # A directory may be renamed meanwhile.
            while sum(len(files) for _, _, files in os.walk(directories)) <= made:
                assert time.monotonic() < deadline
            os.kill(service, signal.SIGKILL)
        open_gate(tmp_path / "gate")
        assert client.wait_row(job)["returncode"] == 0
        assert list(client.output(job)) == [("stdout", b"10000000\n")]
        while list(directories.iterdir()):
            assert time.monotonic() < deadline + 60, "the directories are removed"


def test_jobs_continue_when_daemon_and_service_are_killed(start, tmp_path):
    with start() as instance:
        jobs = Jobs(instance, tmp_path)
        os.kill(process(instance, service_of), signal.SIGKILL)
        kill(instance)
    jobs.end_first()
    with start() as instance:
        jobs.check(instance)


def test_jobs_continue_when_the_instance_is_stopped_without_them(start, tmp_path):
    with start() as instance:
        jobs = Jobs(instance, tmp_path)
        instance.lines("stop", "--keep-running")
        assert instance.process.wait() != 0
        # The service enforces time limits until the next start.
        assert is_running(process(instance, service_of))
    jobs.end_first()
    with start() as instance:
        jobs.check(instance)


def test_nothing_is_left_when_the_instance_is_stopped(start, tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = f"setsid env -i sh -c 'echo $$ > {ready}; exec sleep 1000' & wait"
    with start() as instance:
        instance.lines("submit", "sh", "-c", script)
        pids = [int(ready.read_text())]
        pids += [process(instance, service_of), process(instance, reaper_of)]
        assert instance.penstock("stop").returncode == 0
        # `stop` returns when the daemon has ended, and that is the last of them.
        assert [pid for pid in pids if is_running(pid)] == []
    with start() as instance:
        (row,) = [json.loads(line) for line in instance.lines("jobs", "-a", "--json")]
        assert row["reason"] == "cancel: the instance was shut down"


def test_an_idle_service_ends_with_a_killed_daemon(start):
    with start() as instance:
        assert instance.lines("run", "echo", "done") == ["done"]
        with end_of(process(instance, service_of), process(instance, reaper_of)):
            kill(instance)


def penstock(state: Path, *words: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PENSTOCK_URI": f"local://{state}/socket"}
    return subprocess.run(
        [*PENSTOCK, *words], env=env, capture_output=True, text=True, check=False, timeout=120
    )


def test_jobs_continue_when_the_instance_is_restarted(tmp_path):
    state = tmp_path / "state"
    with foreground(state) as daemon:
        done = penstock(state, "submit", "sh", "-c", f"echo a; {gate(tmp_path / 'gate')}; echo b")
        job = done.stdout.strip()
        with (tmp_path / "gate").open("w"):
            done = penstock(state, "restart")
            assert (done.returncode, done.stderr) == (0, "")
            assert daemon.poll() is None
            # The same process, and one execution service.
            with Client(f"local://{state}/socket") as client:
                pid = client.rpc("attr.get", {"name": "broker.pid"})["value"]
                assert pid == str(daemon.pid)
        assert penstock(state, "wait", job).returncode == 0
        assert penstock(state, "logs", job).stdout == "a\nb\n"
        threads = Path(f"/proc/{pid}/task").iterdir()
        children = [pid for each in threads for pid in (each / "children").read_text().split()]
        assert children == [str(service_of(state / "exec"))]


def test_an_instance_that_runs_a_command_is_not_restarted(start):
    with start("--nodes=1") as instance:
        done = instance.penstock("restart")
        assert done.returncode == 1
        assert "the instance runs a command, which would run twice\nhint: " in done.stderr


def test_an_instance_with_temporary_state_does_not_end_without_its_jobs(start):
    with start("--nodes=1", "--exec=local", "--oversubscribe") as instance:
        inner = [*PENSTOCK, "start", "--", *PENSTOCK, "stop", "--keep-running"]
        done = instance.penstock("run", *inner)
        assert done.returncode == 1
        assert "the state of the instance is temporary: its jobs end with it\nhint: " in done.stderr


def test_a_missing_program_is_named_at_the_start(tmp_path):
    # A Python without the programs beside it: the module is found by its path.
    script = (
        "import sysconfig; sysconfig.get_path = lambda _: '/nowhere'; "
        "from penstock.cli import main; raise SystemExit(main())"
    )
    words = ["start", "--state", str(tmp_path / "state"), "--socket", str(tmp_path / "socket")]
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "--", shutil.which("true")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    expected = "`penstock-exec` is not installed beside `penstock`, nor on the PATH"
    assert done.stderr == f"penstock start: {expected}\n"


def test_a_changed_kill_timeout_applies_to_running_jobs(start, tmp_path):
    fifo, config = tmp_path / "ready", tmp_path / "penstock.toml"
    os.mkfifo(fifo)
    config.write_text("[penstock.exec]\nkill-timeout = '10m'\n")
    with start("--config", str(config)) as instance:
        script = f"trap '' TERM; echo > {fifo}; while :; do sleep 1; done"
        (job,) = instance.lines("submit", "sh", "-c", script)
        fifo.read_text()
        config.write_text("[penstock.exec]\nkill-timeout = '0.1s'\n")
        instance.lines("config", "reload", str(config))
        instance.lines("cancel", job)
        assert instance.penstock("wait", job).returncode == 128 + signal.SIGKILL
        row = json.loads(instance.lines("info", "--json", job)[0])
        assert row["waitstatus"] == signal.SIGKILL


def test_a_changed_output_limit_applies_to_running_jobs(start, tmp_path):
    fifo, config = tmp_path / "gate", tmp_path / "penstock.toml"
    config.write_text("[penstock.exec]\noutput-limit = 1000\n")
    with start() as instance:
        script = f"{gate(fifo)}; while :; do echo xxxxxxxxxxxxxxxx; done"
        (job,) = instance.lines("submit", "sh", "-c", script)
        with fifo.open("w"):
            instance.lines("config", "reload", str(config))
        assert instance.penstock("wait", job).returncode == 128 + signal.SIGTERM
        row = json.loads(instance.lines("info", "--json", job)[0])
        assert row["reason"].startswith("exec: more than 1000 bytes of output: ")


def test_output_is_kept_in_the_directory_that_the_configuration_names(start, tmp_path):
    output, config = tmp_path / "output", tmp_path / "penstock.toml"
    config.write_text(f"[penstock.exec]\noutput-directory = '{output}'\n")
    with start("--config", str(config)) as instance:
        (job,) = instance.lines("submit", "echo", "hello")
        assert instance.penstock("wait", job).returncode == 0
        assert [path.name for path in output.glob("*.stdout")] == [f"{parse(job)}.stdout"]
        assert output.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in output.glob("*.std*")} == {0o600}
        assert not (instance.state / "exec" / "output").exists()
        assert instance.lines("logs", job) == ["hello"]
    with start("--config", str(config)) as instance:
        assert instance.lines("logs", job) == ["hello"]
        # Another service does not mix its output with this.
        other = tmp_path / "other"
        places = ["--state", str(other), "--socket", str(other / "socket")]
        done = instance.penstock("start", *places, "--config", str(config), "--", "true")
        assert done.returncode == 1
        owner = f"has the output of the service in `{instance.state / 'exec'}`"
        assert owner in done.stderr
        instance.lines("purge", "--force", "--num-limit=0")
    assert list(output.glob("[0-9]*")) == []


def test_output_in_a_former_directory_is_shown_and_limited(start, tmp_path):
    gates, config = [tmp_path / name for name in ("first", "second")], tmp_path / "penstock.toml"
    config.write_text("[penstock.exec]\noutput-limit = 1000\n")
    with start("--config", str(config)) as instance:
        script = f"{gate(gates[0])}; echo later; {gate(gates[1])}; while :; do echo xxxxxxxx; done"
        (job,) = instance.lines("submit", "sh", "-c", script)
        with Client(instance.uri) as client:
            names = (event["name"] for event in client.eventlog(parse(job), follow=True))
            assert "start" in names
        instance.lines("stop", "--keep-running")
        assert instance.process.wait() != 0
    config.write_text(
        f"[penstock.exec]\noutput-limit = 1000\noutput-directory = '{tmp_path / 'output'}'\n"
    )
    with start("--config", str(config)) as instance:
        open_gate(gates[0])
        with Client(instance.uri) as client:
            output = client.output(parse(job), follow=True)
            assert next(iter(output)) == ("stdout", b"later\n")
        open_gate(gates[1])
        assert instance.penstock("wait", job).returncode == 128 + signal.SIGTERM
        row = json.loads(instance.lines("info", "--json", job)[0])
        assert row["reason"].startswith("exec: more than 1000 bytes of output: ")
        assert list((tmp_path / "output").glob("*.std*")) == []


def test_directories_of_jobs_are_made_where_the_configuration_names(start, tmp_path):
    gates, named = [tmp_path / name for name in ("first", "second")], tmp_path / "named"
    config = tmp_path / "penstock.toml"
    add = "--add-file=data=text\n"
    with start() as instance:
        script = f"{gate(gates[0])}; cat {{{{tmpdir}}}}/data; echo {{{{tmpdir}}}}; {gate(gates[1])}"
        (job,) = instance.lines("submit", add, "sh", "-c", script)
        with Client(instance.uri) as client:
            wait_for_event(client, parse(job), "start")
        instance.lines("stop", "--keep-running")
        assert instance.process.wait() != 0
    config.write_text(f"[penstock.exec]\njob-directory = '{named}'\n")
    with start("--config", str(config)) as instance:
        directory = instance.state / "exec" / "jobs" / str(parse(job))
        assert directory.exists()
        done = instance.lines("run", add, "sh", "-c", "cat {{tmpdir}}/data; echo {{tmpdir}}")
        place = Path(done[1]).parent
        assert (done[0], place.parents[1], place.name) == ("text", named, "jobs")
        assert {path.stat().st_mode & 0o7777 for path in (place, *place.parents[:2])} == {0o711}
        # The job that began before has its files.
        open_gate(gates[0])
        with Client(instance.uri) as client:
            lines = iter(client.output(parse(job), follow=True))
            output = b""
            while output.count(b"\n") < 2:
                output += next(lines)[1]
        assert output.decode() == f"text\n{directory}\n"
        open_gate(gates[1])
        assert instance.penstock("wait", job).returncode == 0
        deadline = time.monotonic() + 60
        while directory.exists() or list(place.iterdir()):
            assert time.monotonic() < deadline, "the directories are removed after the jobs"


@pytest.mark.parametrize(
    ("parent", "mode", "problem"),
    [
        (0o777, None, "cannot be trusted: other users can write to it"),
        (0o755, 0o777, "cannot be trusted: other users can write to it"),
        pytest.param(
            *(0o755, 0o700, "guests cannot enter"),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="an instance of root has guests"),
        ),
    ],
)
def test_directories_of_jobs_are_not_made_where_others_have_access(
    start, tmp_path, parent, mode, problem
):
    shared, config = tmp_path / "shared", tmp_path / "penstock.toml"
    named = shared / "named"
    shared.mkdir()
    if mode is not None:
        named.mkdir()
        named.chmod(mode)
    shared.chmod(parent)
    config.write_text(f"[penstock.exec]\njob-directory = '{named}'\n")
    places = ["--state", str(tmp_path / "other"), "--socket", str(tmp_path / "other" / "socket")]
    with start() as instance:
        done = instance.penstock("start", *places, "--config", str(config), "--", "true")
        assert done.returncode == 1
        assert problem in done.stderr
        if mode == 0o777:
            by_hand = ["exec", "--directory", str(tmp_path / "exec"), "--name", "other"]
            done = instance.penstock(*by_hand, "--job-directory", str(named))
            assert done.returncode == 1
            assert f"directory `{named}` has mode 777: expected 711" in done.stderr
    assert [path.name for path in shared.iterdir()] == ([] if mode is None else ["named"])


def test_nothing_is_made_for_output_below_a_place_that_others_can_write_to(start, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    config = tmp_path / "penstock.toml"
    config.write_text(f"[penstock.exec]\noutput-directory = '{shared / 'output'}'\n")
    places = ["--state", str(tmp_path / "other"), "--socket", str(tmp_path / "other" / "socket")]
    with start() as instance:
        done = instance.penstock("start", *places, "--config", str(config), "--", "true")
    assert done.returncode == 1
    assert f"directory `{shared}` cannot be trusted" in done.stderr
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "problem"),
    [(0o777, "cannot be trusted: other users can write to it"), (0o755, "have access to")],
)
def test_output_is_not_kept_where_others_have_access(start, tmp_path, mode, problem):
    output, config = tmp_path / "output", tmp_path / "penstock.toml"
    output.mkdir()
    output.chmod(mode)
    config.write_text(f"[penstock.exec]\noutput-directory = '{output}'\n")
    with start() as instance:
        places = [
            "--state",
            str(tmp_path / "other"),
            "--socket",
            str(tmp_path / "other" / "socket"),
        ]
        done = instance.penstock("start", *places, "--config", str(config), "--", "true")
        assert done.returncode == 1
        assert problem in done.stderr
        # Nor by a service that is started by hand.
        by_hand = ["exec", "--directory", str(tmp_path / "exec"), "--name", "other"]
        done = instance.penstock(*by_hand, "--output-directory", str(output))
        assert done.returncode == 1
        assert f"directory `{output}` has mode {mode:o}: expected 700" in done.stderr


def test_a_service_by_hand_does_not_replace_the_instances_own(start, exec_process):
    """One that served an earlier instance at the same address, and its tasks, run on."""
    with start("--exec=none") as instance, exec_process(instance) as leftover:
        (job,) = instance.lines("submit", "sleep", "1000")
        with Client(instance.uri) as client:
            wait_for_event(client, parse(job), "start")
        kill(instance)
        with start() as instance:
            assert instance.lines("run", "echo", "hello") == ["hello"]
            (row,) = [row for row in services(instance) if row["name"] == "job-exec"]
            assert row["pid"] == process(instance, service_of)
            # It reconnects, and gives up.
            assert leftover.wait(60) == 1
            assert leftover.stderr.read().endswith(
                "penstock-exec: service.add failed: File exists: the name `job-exec` is that of "
                "the instance's own service\n"
                "hint: the instance has another execution service: start it with `--exec none`\n"
            )
            # A job is never started twice.
            assert instance.penstock("wait", job).returncode == 1
            (line,) = instance.lines("info", "--json", job)
            assert "the execution service has no record of the job's start" in line


def test_the_name_of_the_instances_own_service_is_reserved_while_it_does_not_run(start):
    with start() as instance, Client(instance.uri) as client:
        instance.lines("run", "true")
        own = process(instance, service_of)
        with end_of(own):
            os.kill(own, signal.SIGKILL)
        with pytest.raises(RpcError, match="is that of the instance's own service"):
            client.rpc("service.add", {"service": "job-exec"})
        instance.lines("run", "true")


def services(instance) -> list[dict[str, Any]]:
    with Client(instance.uri) as client:
        return client.services()


def wait_for_event(client: Client, job: int, name: str) -> None:
    """Returns when a job has an event."""
    with client.eventlog(job, follow=True) as log:
        for event in log:
            if event["name"] == name:
                return
