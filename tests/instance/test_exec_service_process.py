"""`penstock exec`: jobs that outlive their execution service, and the instance."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from tests.instance.conftest import PENSTOCK, is_running, kill_reapers, reaper_of

from penstock.client import Client
from penstock.jobid import parse

# After this long without an expected event a test fails instead of hanging, in seconds.
HANG_S = 120


@pytest.fixture
def instance(start):
    with start("--exec", "none") as instance:
        yield instance


def kill(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


def gate(path):
    """A FIFO at which a task waits, and the shell's command for that."""
    os.mkfifo(path)
    return f"cat {path}"


def open_gate(path) -> None:
    """Waits until a task is at the gate, and lets it pass."""
    with path.open("w"):
        pass


def events(instance, job: str) -> list[str]:
    return [json.loads(line)["name"] for line in instance.lines("eventlog", "--json", job)]


def reason(instance, job: str) -> str:
    return json.loads(instance.lines("info", "--json", job)[0])["reason"]


def test_jobs_run_with_their_output_and_exit_codes(instance, exec_process, tmp_path):
    with exec_process(instance):
        done = instance.penstock("run", "sh", "-c", "echo out; echo err >&2; exit 3")
        assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
        done = instance.penstock("run", "nosuchprogram")
        assert done.returncode == 127
        text = "exec: task 0: start failed: nosuchprogram: No such file or directory\n"
        assert done.stderr.endswith(text)
        script = "echo $PENSTOCK_JOB_ID $FLUX_TASK_RANK $PWD"
        options = ["--cwd", str(tmp_path), "--job-name=x", "--output", "{{name}}-{{id}}.out"]
        (job,) = instance.lines("submit", *options, "sh", "-c", script)
        assert instance.penstock("wait", job).returncode == 0
        assert (tmp_path / f"x-{job}.out").read_text() == f"{job} 0 {tmp_path}\n"
        jobs = instance.lines("submit", "--cc=0-39", "sh", "-c", "exit {cc}")
        codes = [instance.penstock("wait", job).returncode for job in jobs[::8]]
        assert codes == [0, 8, 16, 24, 32]
        instance.penstock("wait", *jobs)
        assert {events(instance, job)[-1] for job in jobs} == {"clean"}


def test_a_task_is_bound_to_its_core(instance, exec_process):
    with exec_process(instance):
        (row,) = instance.lines("run", "sh", "-c", "grep Cpus_allowed_list /proc/self/status")
        assert row.split()[1].isdecimal() or os.cpu_count() == 1


def test_a_killed_service_is_replaced_while_a_task_writes(instance, exec_process, tmp_path):
    first, second, third = tmp_path / "first", tmp_path / "second", tmp_path / "third"
    script = f"echo one; {gate(first)}; echo two; {gate(second)}; echo three; exit 5"
    with exec_process(instance) as process:
        (job,) = instance.lines("submit", "sh", "-c", script)
        (short,) = instance.lines("submit", "sh", "-c", f"{gate(third)}; exit 7")
        with first.open("w"), third.open("w"):
            # Both are at their gates. One ends while there is no service, the other writes on.
            kill(process)
    with exec_process(instance):
        assert instance.penstock("wait", short).returncode == 7
        open_gate(second)
        assert instance.penstock("wait", job).returncode == 5
        assert instance.lines("logs", job) == ["one", "two", "three"]
    log = events(instance, job)
    assert log.count("start") == 1
    assert log[log.index("start") + 1 :] == ["reattached", "finish", "release", "free", "clean"]


def test_a_job_continues_when_the_journal_is_lost(instance, exec_process, tmp_path):
    ends = tmp_path / "ends"
    with exec_process(instance) as process:
        (job,) = instance.lines("submit", "sh", "-c", f"echo on; {gate(ends)}; exit 6")
        with ends.open("w"):
            kill(process)
            (tmp_path / "exec/journal").unlink()
            with exec_process(instance):
                assert instance.penstock("run", "true").returncode == 0
                assert instance.lines("jobs", "-no", "{state}", job) == ["RUN"]
    with exec_process(instance):
        assert instance.penstock("wait", job).returncode == 6
    assert events(instance, job).count("start") == 1


def test_empty_output_files_are_used_again_and_every_job_keeps_its_output(
    instance, exec_process, tmp_path
):
    output = tmp_path / "exec/output"

    def run(script: str) -> tuple[str, int]:
        (job,) = instance.lines("submit", "sh", "-c", script)
        assert instance.penstock("wait", job).returncode == 0
        return job, (output / f"{parse(job)}.stdout").stat().st_ino

    with exec_process(instance):
        silent, inode = run("true")
        inodes = {inode}
        deadline = time.monotonic() + HANG_S
        while True:
            assert time.monotonic() < deadline
            job, inode = run("echo out; echo err >&2")
            assert instance.penstock("logs", job).stdout == "out\n"
            if inode in inodes:
                break
        done = instance.penstock("logs", silent)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_jobs_outlive_a_killed_instance(start, exec_process, tmp_path):
    ends, runs = tmp_path / "ends", tmp_path / "runs"
    with start("--exec", "none") as instance:
        service_of_both = exec_process(instance)
        service_of_both.__enter__()
        (ended,) = instance.lines("submit", "sh", "-c", f"{gate(ends)}; exit 4")
        (running,) = instance.lines("submit", "sh", "-c", f"echo on; {gate(runs)}; exit 6")
        with instance.process.stdin:
            instance.process.kill()
        instance.process.wait()
    try:
        open_gate(ends)
        with start("--exec", "none") as instance:
            assert instance.penstock("wait", ended).returncode == 4
            open_gate(runs)
            assert instance.penstock("wait", running).returncode == 6
            assert instance.lines("logs", running) == ["on"]
            assert instance.penstock("run", "true").returncode == 0
    finally:
        service_of_both.__exit__(None, None, None)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_service_is_taken_over_while_a_task_runs(instance, exec_process, tmp_path, is_stopped):
    with exec_process(instance) as first:
        (job,) = instance.lines("submit", "sh", "-c", f"{gate(tmp_path / 'gate')}; exit 5")
        with (tmp_path / "gate").open("w"):
            if is_stopped:
                first.send_signal(signal.SIGSTOP)
            with exec_process(instance, "--take-over") as second:
                assert first.wait() == -signal.SIGTERM
                assert (tmp_path / "exec" / "lock").read_text() == f"{second.pid}\n"
                open_gate(tmp_path / "gate")
                assert instance.penstock("run", "true").returncode == 0
        with exec_process(instance, "--take-over"):
            assert instance.penstock("wait", job).returncode == 5
    assert "reattached" in events(instance, job)


def test_a_service_of_another_instance_is_not_taken_over(instance, exec_process, tmp_path):
    command = [*PENSTOCK, "exec", "--take-over", "--directory", str(tmp_path / "exec")]
    with exec_process(instance):
        absent = [*command, "--uri", f"local://{tmp_path}/absent"]
        done = subprocess.run(absent, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"belongs to the instance at `{instance.uri}`" in done.stderr
        assert instance.penstock("run", "true").returncode == 0


def test_a_service_of_no_use_ends_with_its_reaper(start, exec_process, tmp_path):
    with (
        start("--exec", "none") as instance,
        exec_process(instance, "--end-when-idle") as process,
    ):
        (job,) = instance.lines("submit", "sh", "-c", f"{gate(tmp_path / 'gate')}; exit 4")
        with (tmp_path / "gate").open("w"):
            with instance.process.stdin:
                instance.process.kill()
            instance.process.wait()
            reaper = os.pidfd_open(reaper_of(tmp_path / "exec"))
        # The task ends now, and with it its reaper and its service.
        assert process.wait() == 0
        with os.fdopen(reaper) as pidfd:
            assert select.select([pidfd], [], [], HANG_S)[0]
    with start("--exec", "none") as instance, exec_process(instance):
        assert instance.penstock("wait", job).returncode == 4


def test_running_jobs_end_while_the_journal_cannot_be_written(instance, exec_process, tmp_path):
    ends, runs = tmp_path / "ends", tmp_path / "runs"
    with exec_process(instance) as process:
        (ended,) = instance.lines("submit", "sh", "-c", f"{gate(ends)}; exit 4")
        (cancelled,) = instance.lines("submit", "sh", "-c", gate(runs))
        with ends.open("w"), runs.open("w"):
            full = ((tmp_path / "exec" / "journal").stat().st_size, resource.RLIM_INFINITY)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, full)
            (pending,) = instance.lines("submit", "sh", "-c", "exit 5")
            instance.lines("cancel", cancelled)
            assert instance.penstock("wait", cancelled).returncode != 0
        assert instance.penstock("wait", ended).returncode == 4
        assert "start" not in events(instance, pending)
        endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, endless)
        assert instance.penstock("wait", pending).returncode == 5


def test_a_lost_wait_status_is_an_exception(instance, exec_process, tmp_path):
    with exec_process(instance) as process:
        (job,) = instance.lines("submit", "sh", "-c", gate(tmp_path / "gate"))
        opened = (tmp_path / "gate").open("w")
        kill(process)
    kill_reapers(tmp_path / "exec")
    with exec_process(instance):
        # The task continues without its parent.
        assert instance.lines("run", "echo", "more") == ["more"]
        opened.close()
        assert instance.penstock("wait", job).returncode != 0
    assert "the wait status of task 0 is lost: the reaper was killed" in reason(instance, job)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can replace the boot id")
def test_a_job_of_another_boot_ends_with_an_exception_and_is_not_started_again(
    instance, exec_process, tmp_path
):
    said, boot = tmp_path / "said", tmp_path / "boot"
    script = f"echo $$ >> {said}; {gate(tmp_path / 'gate')}"
    with exec_process(instance) as process:
        (job,) = instance.lines("submit", "sh", "-c", script)
        opened = (tmp_path / "gate").open("w")
        kill(process)
    kill_reapers(tmp_path / "exec")
    # As at a reboot, nothing of the job is left.
    opened.close()
    boot.write_text("11111111-2222-3333-4444-555555555555\n")
    bind = f'mount --bind {boot} /proc/sys/kernel/random/boot_id && exec "$@"'
    with exec_process(instance, prefix=["unshare", "--mount", "sh", "-c", bind, "sh"]):
        assert instance.penstock("wait", job).returncode != 0
        assert instance.lines("run", "echo", "more") == ["more"]
    assert reason(instance, job) == "exec: the machine was rebooted while the job ran"
    assert len(said.read_text().splitlines()) == 1


def test_no_wait_status_is_lost_when_a_reaper_is_killed(instance, exec_process, tmp_path):
    waiting = f"{gate(tmp_path / 'gate')}; exit 3"
    with exec_process(instance):
        (job,) = instance.lines("submit", "sh", "-c", waiting)
        with (tmp_path / "gate").open("w"):
            os.kill(reaper_of(tmp_path / "exec"), signal.SIGKILL)
            assert instance.lines("run", "echo", "more") == ["more"]
        assert instance.penstock("wait", job).returncode == 3
        assert "exception" not in events(instance, job)


def test_two_killed_reapers_lose_no_wait_status(instance, exec_process, tmp_path):
    waiting = f"{gate(tmp_path / 'gate')}; exit 3"
    with exec_process(instance):
        (job,) = instance.lines("submit", "sh", "-c", waiting)
        with (tmp_path / "gate").open("w"):
            for _ in range(2):
                os.kill(reaper_of(tmp_path / "exec"), signal.SIGKILL)
                assert instance.lines("run", "echo", "more") == ["more"]
        assert instance.penstock("wait", job).returncode == 3
        assert "exception" not in events(instance, job)


def test_the_break_of_a_lease_does_not_end_the_service(instance, exec_process):
    with exec_process(instance) as process:
        # Linux sends it if a file that the service looks at is opened.
        os.kill(process.pid, signal.SIGIO)
        assert instance.lines("run", "echo", "more") == ["more"]
        assert process.poll() is None


def test_killed_reapers_are_not_left_as_zombies(instance, exec_process, tmp_path):
    with exec_process(instance):
        assert instance.lines("run", "echo", "first") == ["first"]
        for _ in range(5):
            reaper = reaper_of(tmp_path / "exec")
            with os.fdopen(os.pidfd_open(reaper)) as pidfd:
                os.kill(reaper, signal.SIGKILL)
                assert select.select([pidfd], [], [], HANG_S)[0]
            assert instance.lines("run", "echo", "more") == ["more"]
            with pytest.raises(ProcessLookupError):
                os.kill(reaper, 0)


def test_a_cancelled_job_leaves_nothing(instance, exec_process, tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = f"trap '' TERM; setsid sh -c 'echo $$ > {ready}; exec sleep 1000' & wait; wait"
    with exec_process(instance, "--kill-timeout", "0.1s"):
        (job,) = instance.lines("submit", "sh", "-c", script)
        pid = int(ready.read_text())
        instance.lines("cancel", job)
        assert instance.penstock("wait", job).returncode != 0
        assert not is_running(pid)


def test_a_task_has_the_resource_limits_of_its_job(instance, exec_process):
    script = "ulimit -S -n; ulimit -S -c; ulimit -H -n"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = [
        "--setattr",
        "shell.options.rlimit.nofile=64",
        "--setattr",
        "shell.options.rlimit.core=0",
    ]
    with exec_process(instance):
        assert instance.lines("run", *limits, "sh", "-c", script) == ["64", "0", str(hard)]
        (job,) = instance.lines("submit", "--setattr", "shell.options.rlimit.lunch=1", "true")
        assert instance.penstock("wait", job).returncode != 0
        assert "`rlimit.lunch`: unknown resource" in reason(instance, job)


def test_tasks_read_their_standard_input_from_a_file(instance, exec_process, tmp_path):
    (tmp_path / "data").write_text("one\ntwo\n")
    options = ["--cwd", str(tmp_path), "--setattr", "shell.options.input.stdin.type=file"]
    path = "shell.options.input.stdin.path="
    with exec_process(instance):
        done = instance.lines("run", "-n2", *options, "--setattr", f"{path}data", "cat")
        assert sorted(done) == ["one", "one", "two", "two"]
        (job,) = instance.lines("submit", *options, "--setattr", f"{path}absent", "cat")
        assert instance.penstock("wait", job).returncode != 0
        assert "cannot read `absent`: No such file" in reason(instance, job)


def test_the_resource_usage_of_the_tasks_is_known_when_they_have_ended(instance, exec_process):
    script = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    with exec_process(instance):
        (job,) = instance.lines("submit", sys.executable, "-c", script)
        assert instance.penstock("wait", job).returncode == 0
        (max_rss_kib,) = instance.lines("logs", job)
    log = [json.loads(line) for line in instance.lines("eventlog", "--json", job)]
    (context,) = [event["context"] for event in log if event["name"] == "finish"]
    assert context["status"] == 0
    assert context["usage"]["max_rss_kib"] >= int(max_rss_kib)
    assert context["usage"]["user_us"] + context["usage"]["system_us"] > 0
    fields = "{max_rss_kib} {user_cpu:.6f} {system_cpu:.6f}"
    usage = context["usage"]
    expected = f"{usage['max_rss_kib']} {usage['user_us'] / 1e6:.6f} {usage['system_us'] / 1e6:.6f}"
    assert instance.lines("jobs", "-no", fields, job) == [expected]
    assert f"max_rss_kib  {usage['max_rss_kib']}" in instance.lines("info", job)


def test_a_task_gets_a_signal_before_its_time_limit(instance, exec_process, tmp_path):
    ready = tmp_path / "ready"
    script = f"trap 'exit 7' USR2; {gate(ready)}; sleep 1000 & wait"
    options = ["-t", "1h", "--setattr", "shell.options.signal.signum=12"]
    with exec_process(instance):
        left = "shell.options.signal.timeleft=30m"
        (job,) = instance.lines("submit", *options, "--setattr", left, "sh", "-c", script)
        open_gate(ready)
        instance.lines("update", job, "duration=29m")
        assert instance.penstock("wait", job).returncode == 7


def test_what_is_not_supported_is_rejected(instance, exec_process):
    with exec_process(instance):
        option = "shell.options.input.stdout.type=file"
        (job,) = instance.lines("submit", "--setattr", option, "true")
        assert instance.penstock("wait", job).returncode != 0
        assert "does not support `input.stdout`" in reason(instance, job)


def test_jobs_run_while_the_log_is_not_read(instance, exec_process):
    with exec_process(instance) as process, Client(instance.uri) as client:
        # Each of these requests is a line of the log. Together they do not fit the pipe.
        for _ in range(200):
            client.rpc("job-exec.replaced", {"service": "x" * 1000})
        assert instance.lines("run", "echo", "ran") == ["ran"]
        os.set_blocking(process.stderr.fileno(), False)
        with suppress(BlockingIOError):
            while os.read(process.stderr.fileno(), 1 << 16):
                pass
        client.rpc("job-exec.replaced", {"service": "y"})
        os.set_blocking(process.stderr.fileno(), True)
        assert "lines were dropped" in process.stderr.readline()
        assert "`y` runs the jobs now" in process.stderr.readline()


def test_an_empty_address_is_rejected(tmp_path):
    command = [*PENSTOCK, "exec", "--directory", str(tmp_path / "exec"), "--uri", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid --uri ``: expected local:///path or a path" in done.stderr


def test_files_of_another_version_have_an_exit_code_of_their_own(instance, tmp_path):
    directory = tmp_path / "exec"
    directory.mkdir(mode=0o700)
    (directory / "journal").write_bytes(b"PnstkSv1 and records")
    command = [*PENSTOCK, "exec", "--directory", str(directory), "--uri", instance.uri]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 78
    assert "a service's journal of version 1: expected version 2" in done.stderr


def test_the_service_needs_an_instance_and_a_directory_of_its_own(instance, exec_process, tmp_path):
    command = [*PENSTOCK, "exec", "--directory", str(tmp_path / "exec")]
    absent = f"local://{tmp_path}/absent"
    done = subprocess.run([*command, "--uri", absent], capture_output=True, text=True, check=False)
    assert done.returncode == 69
    assert f"no instance at `{absent}`" in done.stderr
    with exec_process(instance):
        again = [*command, "--uri", instance.uri]
        done = subprocess.run(again, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "another execution service (pid " in done.stderr
        other = [*PENSTOCK, "exec", "--directory", str(tmp_path / "other"), "--uri", instance.uri]
        done = subprocess.run(other, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "service.add failed" in done.stderr
