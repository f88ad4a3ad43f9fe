"""The execution service alone: malformed jobs, requests and events, and orphans."""

from __future__ import annotations

import errno
import os
import secrets
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from runners import run

from penstock._core import Message
from penstock.config import ExecSettings
from penstock.errors import SpawnError
from penstock.instance import runner as runner_module
from penstock.instance.environment import own_mark
from penstock.instance.processes import Children
from penstock.instance.reaper import Reaper, own_children


def test_a_task_that_cannot_be_started_ends_the_others(tmp_path, monkeypatch):
    started = []

    async def scenario(service):
        spawn = service.tasks.spawn

        def second_fails(command, **options):
            if started:
                raise SpawnError("no more processes", 126 << 8)
            started.append(spawn(command, **options))
            return started[0]

        monkeypatch.setattr(service.tasks, "spawn", second_fails)
        service.start(1, ["sleep", "1000"], ntasks=2)
        responses = await service.over()
        assert [kind for kind, _ in responses] == ["start", "finish", "release"]
        assert responses[1][1] == {"status": 126 << 8}
        assert (tmp_path / "output/1/stderr").read_text() == "penstock: no more processes\n"

    run(tmp_path, scenario)
    assert started[0].status == 15


def test_a_fifo_without_a_reader_is_rejected_and_one_with_a_reader_is_written(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def scenario(service):
        options = {"output": {"stdout": {"type": "file", "path": str(fifo)}}}
        service.start(1, ["echo", "hello"], options=options)
        responses = await service.over()
        assert [kind for kind, _ in responses] == ["exception", "release"]
        assert responses[0][1]["note"] == f"cannot write `{fifo}`: a FIFO without a reader"
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        service.answers.clear()
        service.start(2, ["echo", "hello"], options=options)
        responses = await service.over()
        assert responses[1] == ("finish", {"status": 0})
        assert os.read(reader, 100) == b"hello\n"
        os.close(reader)

    run(tmp_path, scenario)


def test_a_job_ends_when_its_retained_output_exceeds_the_limit(tmp_path):
    async def scenario(service):
        service.start(1, ["sh", "-c", "while :; do echo xxxxxxxxxxxxxxxx; done"])
        responses = await service.over()
        assert [kind for kind, _ in responses] == ["start", "exception", "finish", "release"]
        assert responses[1][1]["note"].startswith(
            "more than 1000 bytes of output: send it to a file"
        )

    run(tmp_path, scenario, output_limit=1000)


def test_a_changed_output_limit_holds_for_running_jobs(tmp_path):
    async def scenario(service):
        service.start(1, ["sh", "-c", "while :; do echo xxxxxxxxxxxxxxxx; done"])
        while not service.answers:
            await service.more()
        service.runner.set_settings(ExecSettings(output_limit=1000))
        responses = await service.over()
        assert responses[1][1]["note"].startswith("more than 1000 bytes of output")

    run(tmp_path, scenario, output_limit=0)


@pytest.mark.parametrize(
    ("topic", "payload", "errnum"),
    [
        ("job-exec.kill", {"id": 1, "signum": 10**6}, errno.EINVAL),
        ("job-exec.kill", {"id": 1, "signum": "TERM"}, errno.EPROTO),
        ("job-exec.kill", {"id": 1}, errno.EPROTO),
        ("job-exec.expiration", {"id": 1, "expiration": "soon"}, errno.EPROTO),
        ("job-exec.expiration", {"id": 1, "expiration": 10**400}, errno.EPROTO),
        ("job-exec.expiration", {"id": 1, "expiration": -1}, errno.EINVAL),
        ("job-exec.output", {"id": 1}, errno.EPROTO),
    ],
)
def test_a_malformed_request_is_rejected_and_the_job_continues(tmp_path, topic, payload, errnum):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async def scenario(service):
        service.start(1, ["cat", str(gate)])
        while not service.answers:
            await trio.lowlevel.checkpoint()
        service.ask(topic, payload)
        assert service.answers.pop().errnum == errnum
        event = Message.event("job-exception", {"severity": 0})
        service.runner.handle([event, Message.event("job-exception", b"[1]\0")])
        gate.write_text("open\n")
        responses = await service.over()
        assert responses[1] == ("finish", {"status": 0})

    run(tmp_path, scenario)


def rejected(*_args):
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_a_task_without_permission_to_signal_affects_no_other_job(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "killpg", rejected)
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async def scenario(service):
        service.start(1, ["cat", str(gate)])
        while not service.answers:
            await trio.lowlevel.checkpoint()
        service.ask("job-exec.kill", {"id": 1, "signum": 15})
        service.runner.handle([Message.event("job-exception", {"id": 1, "severity": 0})])
        service.answers.clear()
        service.start(2, ["true"])
        assert ("finish", {"status": 0}) in await service.over()
        # The first one ends in its own time, and not before.
        service.answers.clear()
        gate.write_text("open\n")
        assert ("finish", {"status": 0}) in await service.over()

    run(tmp_path, scenario)


def test_a_task_that_cannot_be_killed_does_not_delay_the_end(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(os, "killpg", rejected)
    kill = os.kill
    monkeypatch.setattr(os, "kill", rejected)
    monkeypatch.setattr(runner_module, "KILL_TIMEOUT_S", 0.01)
    tasks = []

    async def scenario(service):
        service.start(1, ["sleep", "1000"])
        while not service.answers:
            await trio.lowlevel.checkpoint()
        tasks.extend(task.process for task in service.runner._jobs[1].tasks)

    run(tmp_path, scenario)
    (task,) = tasks
    assert f"process {task.pid} outlives it" in caplog.text
    kill(task.pid, 9)
    task.reap()
    assert task.status == 9


def test_orphans_of_a_job_are_reaped_when_they_end(tmp_path):
    async def scenario(service):
        # The orphan has no mark of the job: it outlives that, and is still reaped.
        started, leave, end = (tmp_path / name for name in ("started", "leave", "end"))
        for fifo in (started, leave, end):
            os.mkfifo(fifo)
        orphan = f"echo $$ > {started}; read line < {end}"
        service.start(1, ["sh", "-c", f"setsid env -i sh -c '{orphan}' & read line < {leave}"])
        pid = int(await trio.to_thread.run_sync(started.read_text))
        await trio.to_thread.run_sync(leave.write_text, "now\n")
        await service.over()
        descriptor = os.pidfd_open(pid)
        await trio.to_thread.run_sync(end.write_text, "now\n")
        await trio.lowlevel.wait_readable(descriptor)
        os.close(descriptor)
        # The process has ended; SIGCHLD makes the instance reap it.
        while pid in own_children():
            await trio.lowlevel.checkpoint()

    run(tmp_path, scenario)


def test_orphans_of_a_lost_job_are_killed(tmp_path):
    # An id that no other job has: processes are searched on the whole machine.
    job = secrets.randbits(60)
    processes = []

    def left_of(job, command):
        mark, value = own_mark(os.environ, "local:///none", job)
        environment = {"PATH": os.environ["PATH"], mark: value}
        process = subprocess.Popen(
            ["sh", "-c", command], env=environment, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return [os.pidfd_open(int(pid)) for pid in process.stdout.readline().split()]

    async def scenario(service):
        # One in another session, and their parent, which does not heed SIGTERM.
        gone = left_of(job, "trap '' TERM; setsid sleep 1000 & echo $! $$; wait; sleep 1000")
        (stays,) = left_of(job + 1, "echo $$; exec sleep 1000")
        start = {"id": job, "userid": 0, "jobspec": {}, "R": {}, "reattach": True}
        service.ask("job-exec.start", start)
        responses = await service.over()
        assert [kind for kind, _ in responses] == ["exception", "release"]
        assert responses[0][1]["note"].startswith("lost: ")
        ended, _, _ = select.select([*gone, stays], [], [], 0)
        assert ended == gone
        for descriptor in (*gone, stays):
            os.close(descriptor)

    try:
        run(tmp_path, scenario)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()


def test_the_instance_s_own_processes_are_not_reaped_with_a_job():
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as own:
        os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{own.pid}/stat").read_text().split()[2] == "Z"
        for pids in ({own.pid}, None):
            reaper = Reaper(SimpleNamespace(pids=pids))
            trio.run(reaper.kill_escaped, b"PENSTOCK_JOB_ID=none")
        assert own.wait() == 7


def test_a_child_that_ends_after_the_reaper_finds_no_default_handler():
    # Python writes "Signal 17 ignored due to race condition" when a signal's handler was there
    # as it arrived, and is the default when it is to be delivered.
    async def scenario():
        reaper = Reaper(Children())
        async with trio.open_nursery() as nursery:
            await nursery.start(reaper.run)
            reaper.stop()

    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        trio.run(scenario)
        assert callable(signal.getsignal(signal.SIGCHLD))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_command_s_status_is_known_while_jobs_end(tmp_path):
    state = str(tmp_path / "state")
    command = [sys.executable, "-m", "penstock"]
    submit = " ".join([*command, "submit", "sh", "-c", "'setsid true &'"])
    script = f"for i in 1 2 3 4; do {submit}; done; exit 7"
    options = ["--state", state, "--socket", state + "/socket"]
    done = subprocess.run(
        [*command, "start", *options, "--", "sh", "-c", script],
        timeout=120,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 7, done.stderr


def test_a_replaced_service_ends_its_jobs_without_further_responses(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async def scenario(service):
        # The job holds the FIFO open until it is ended.
        service.start(1, ["sh", "-c", f"exec sleep 1000 > {gate}"])
        pipe = await trio.to_thread.run_sync(gate.open)
        notice = Message.request(
            "job-exec.replaced", {"service": "sim"}, userid=os.getuid(), flags=4
        )
        service.runner.handle([notice])
        assert await trio.to_thread.run_sync(pipe.read) == ""
        pipe.close()
        # The next job is that of a new request.
        service.start(2, ["true"])
        await service.over()
        assert [answer.object()["id"] for answer in service.answers] == [1, 2, 2, 2]

    run(tmp_path, scenario)


def test_a_runner_that_is_cancelled_before_it_runs_ends(tmp_path):
    async def scenario(_service):
        """Sends nothing, and never yields to the runner."""

    run(tmp_path, scenario)
