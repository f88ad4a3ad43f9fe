"""Standard input, terminals and signals of jobs: `run`, `attach` and the execution service."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import termios
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from tests.instance.conftest import PENSTOCK

from penstock._core import job_result
from penstock.cli.attach import TaskLines
from penstock.client import Client
from penstock.jobid import parse

# After this long without an expected text a test fails instead of hanging, in seconds.
HANG_S = 120


@pytest.fixture
def local(start):
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as instance:
        yield instance


class Screen:
    """A terminal with a command of `penstock` in it, at the user's end."""

    def __init__(self, master: int, slave: int, process: subprocess.Popen) -> None:
        self.master, self.slave, self.process = master, slave, process
        self.text = ""

    def wait_for(self, text: str) -> str:
        """Reads until the text has come; returns what came before it."""
        while text not in self.text:
            readable, _, _ = select.select([self.master], [], [], HANG_S)
            assert readable, f"no `{text}` in {self.text!r}"
            self.text += os.read(self.master, 65536).decode()
        before, _, self.text = self.text.partition(text)
        return before

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def hang_up(self) -> None:
        """Closes the terminal at the user's end."""
        with Path(os.devnull).open() as other:
            os.dup2(other.fileno(), self.master)

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


@contextmanager
def screen(instance, *args: str, stdin: int | None = None):
    """Runs a command in a terminal of 30 rows and 100 columns, or with this standard input."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 30, 100, 0, 0))
    # Without it Ctrl-C and Ctrl-Z discard the output of the command that has not been read yet.
    attributes = termios.tcgetattr(slave)
    attributes[3] |= termios.NOFLSH
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    process = subprocess.Popen(
        [*PENSTOCK, *args],
        env={**os.environ, "PENSTOCK_URI": instance.uri},
        stdin=slave if stdin is None else stdin,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
    )
    try:
        yield Screen(master, slave, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


@contextmanager
def piped(instance, *args: str):
    """Runs a command whose standard streams are pipes."""
    env = {**os.environ, "PENSTOCK_URI": instance.uri}
    pipe = subprocess.PIPE
    command = [*PENSTOCK, *args]
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def write(process: subprocess.Popen, data: bytes) -> None:
    process.stdin.write(data)
    process.stdin.flush()


def active(instance) -> list[str]:
    return instance.lines("jobs", "-n", "-o", "{id}")


# --- input


def test_tasks_read_what_is_piped_into_run(local):
    text = "".join(f"{number}\n" for number in range(100_000))
    done = local.penstock("run", "sh", "-c", "cat; echo end", stdin=text)
    assert (done.returncode, done.stdout) == (0, f"{text}end\n")
    done = local.penstock("run", "-n3", "-l", "sh", "-c", "wc -c", stdin=text)
    assert sorted(done.stdout.splitlines()) == [f"{rank}: {len(text)}" for rank in range(3)]
    done = local.penstock("run", "-n3", "-l", "--input=0,2", "wc", "-c", stdin="abc")
    assert sorted(done.stdout.splitlines()) == ["0: 3", "1: 0", "2: 3"]


def test_a_task_that_does_not_read_does_not_keep_run(local):
    done = local.penstock("run", "sh", "-c", "exec 0<&-; echo closed", stdin="x" * 1_000_000)
    assert (done.returncode, done.stdout) == (0, "closed\n")


def test_attach_writes_to_a_job_whose_run_was_killed(local):
    with piped(local, "run", "sh", "-c", "read a; echo $a; read b; echo $b") as run:
        write(run, b"one\n")
        assert run.stdout.readline() == b"one\n"
        (job,) = active(local)
        run.kill()
    done = local.penstock("attach", job, stdin="two\n")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")


def test_output_is_shown_live_by_a_service_that_connects_later(start, exec_process):
    with (
        start("--exec", "none") as instance,
        piped(instance, "run", "sh", "-c", "echo ready; read line; echo $line") as run,
    ):
        while not active(instance):
            pass
        with exec_process(instance):
            assert run.stdout.readline() == b"ready\n"
            write(run, b"go\n")
            assert run.stdout.read() == b"go\n"
            assert run.wait(HANG_S) == 0


# --- labels


def test_lines_have_the_rank_in_front(local, tmp_path):
    script = "echo out; printf 'no end' >&2"
    done = local.penstock("run", "-n2", "--label-io", "sh", "-c", script)
    assert sorted(done.stdout.splitlines()) == ["0: out", "1: out"]
    assert sorted(done.stderr.splitlines()) == ["0: no end", "1: no end"]
    options = ["-n2", "-l", "--cwd", str(tmp_path), "--output", "file"]
    (job,) = local.lines("submit", *options, "sh", "-c", "echo out; echo err >&2")
    assert local.penstock("wait", job).returncode == 0
    lines = (tmp_path / "file").read_text().splitlines()
    assert sorted(lines) == ["0: err", "0: out", "1: err", "1: out"]
    (job,) = local.lines("submit", "-l", "echo", "one")
    assert local.penstock("wait", job).returncode == 0
    assert local.lines("logs", job) == local.lines("attach", job) == ["0: one"]


def test_parts_of_lines_are_shown_unbuffered(local):
    with piped(local, "run", "-lu", "sh", "-c", "printf part; read _; echo more") as run:
        assert run.stdout.read(7) == b"0: part"
        write(run, b"\n")
        assert run.stdout.readline() == b"more\n"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_the_lines_of_one_task_are_selected(size):
    text = b"1: one\n0: other\n11: x\n1: \n1: 0: y\n\n1: no end"
    lines = TaskLines(1)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert b"".join(map(lines.select, pieces)) == b"one\n\n0: y\nno end"


def test_attach_chooses_a_task_for_output_input_and_signals(local):
    script = "trap 'echo got it; exit 3' USR1; echo ready; read a; echo $a; echo err >&2;"
    script += "read b"
    with piped(local, "run", "-n3", "-l", "sh", "-c", script) as run:
        while not (jobs := active(local)):
            pass
        (job,) = jobs
        with piped(local, "attach", "--task", "1", job) as attach:
            assert attach.stdout.readline() == b"ready\n"
            write(attach, b"for one\n")
            assert attach.stdout.readline() == b"for one\n"
            assert attach.stderr.readline() == b"err\n"
            attach.send_signal(signal.SIGUSR1)
            assert attach.stdout.readline() == b"got it\n"
            write(run, b"for all\n")
            seen = [run.stdout.readline() for _ in range(7)]
            expected = [b"0: for all", b"0: ready", b"1: for one", b"1: got it", b"1: ready"]
            expected += [b"2: for all", b"2: ready"]
            assert sorted(seen) == [line + b"\n" for line in expected]
            assert local.penstock("cancel", job).returncode == 0
            assert attach.wait(HANG_S) == run.wait(HANG_S) != 0
    done = local.penstock("attach", "--task=2", job)
    assert done.stdout == "ready\nfor all\n"
    done = local.penstock("attach", "--task=3", job)
    assert done.returncode == 1
    assert f"{job} has no task 3: expected 0 to 2" in done.stderr


def test_attach_to_a_task_of_a_job_without_labels_shows_all_output(local):
    (job,) = local.lines("submit", "-n2", "echo", "text")
    done = local.penstock("attach", "--task", "0", job)
    assert (done.returncode, done.stdout) == (0, "text\ntext\n")
    assert "the output of all tasks is shown" in done.stderr


# --- terminals


def test_run_gives_the_first_task_a_terminal(local):
    resized = "while [ \"$(stty size)\" != '40 120' ]; do sleep 0.01; done; echo resized"
    script = f"stty size; tty -s && echo all; read line; echo got $line; {resized}; exec cat"
    with screen(local, "run", "--pty", "sh", "-c", script) as terminal:
        terminal.wait_for("30 100\r\nall\r\n")
        assert terminal.is_raw()
        terminal.press("hello\r")
        terminal.wait_for("got hello\r\n")
        terminal.resize(40, 120)
        terminal.wait_for("resized")
        terminal.press("line\r")
        terminal.wait_for("line\r\nline\r\n")
        # The program gets the signal, and not `run`.
        terminal.press("\x03")
        assert terminal.process.wait(HANG_S) == 130
        assert not terminal.is_raw()
    (row,) = map(json.loads, local.lines("jobs", "-a", "--json"))
    assert row["waitstatus"] == 2
    assert "got hello" in "\n".join(local.lines("logs", row["id"]))


def test_the_terminal_is_restored_when_run_is_killed(local):
    with screen(local, "run", "--pty", "sh", "-c", "echo ready; exec cat") as terminal:
        terminal.wait_for("ready")
        assert terminal.is_raw()
        terminal.process.kill()
        terminal.process.wait()
        while terminal.is_raw():
            pass
    (job,) = active(local)
    assert local.penstock("cancel", job).returncode == 0


def test_a_terminal_is_left_and_attached_again(local):
    with screen(local, "run", "--pty", "sh", "-c", "echo ready; read a; echo got $a") as terminal:
        terminal.wait_for("ready")
        terminal.press("\x1c")
        terminal.wait_for("penstock run: detached: `penstock attach ")
        assert terminal.process.wait(HANG_S) == 0
        assert not terminal.is_raw()
    (job,) = active(local)
    with screen(local, "attach", job) as terminal:
        terminal.wait_for("ready")
        terminal.press("keys\r")
        terminal.wait_for("got keys")
        assert terminal.process.wait(HANG_S) == 0


def test_run_without_a_terminal_gives_the_task_one(local):
    done = local.penstock("run", "--pty", "sh", "-c", "test -t 0 && cat", stdin="text")
    assert done.returncode == 0
    assert done.stdout.startswith("texttext")
    assert local.penstock("run", "--pty", "--input=0", "cat").returncode == 2


def test_an_allocation_is_a_shell_in_the_terminal(start):
    with (
        start("--nodes=2", "--cores=4", "--oversubscribe") as instance,
        screen(instance, "alloc", "-N2", "sh") as terminal,
    ):
        terminal.wait_for(": granted 2 nodes, 8 cores: node[0-1]\r\n")
        run = shlex.join([*PENSTOCK, "run", "-N2", "echo", "in the job"])
        terminal.press(f"stty size; {run}; exit 3\r")
        terminal.wait_for("30 100\r\n")
        terminal.wait_for("in the job\r\nin the job\r\n")
        terminal.wait_for(": released\r\n")
        assert terminal.process.wait(HANG_S) == 3
        assert active(instance) == []


# --- signals


READY = "trap 'echo got it' USR1; trap 'echo asked; exit 5' TERM; echo ready; "
LOOP = "while :; do sleep 0.01; done"


def test_attach_shows_a_running_job_and_forwards_signals(local):
    (job,) = local.lines("submit", "sh", "-c", READY + LOOP)
    with piped(local, "attach", job) as attach:
        assert attach.stdout.readline() == b"ready\n"
        attach.send_signal(signal.SIGUSR1)
        assert attach.stdout.readline() == b"got it\n"
        attach.send_signal(signal.SIGTERM)
        assert attach.stdout.read() == b"asked\n"
        assert attach.wait(HANG_S) == 5
    done = local.penstock("attach", job)
    assert (done.returncode, done.stdout) == (5, "ready\ngot it\nasked\n")


def test_ctrl_c_and_ctrl_z_leave_the_job_alone(local):
    with screen(local, "run", "sh", "-c", READY + LOOP) as terminal:
        terminal.wait_for("ready")
        # Both at once: the second one is awaited for 2 seconds only.
        terminal.press("\x03\x1a")
        terminal.wait_for("Ctrl-Z to detach")
        terminal.wait_for("detached")
        assert terminal.process.wait(HANG_S) == 0
    (job,) = active(local)
    with screen(local, "attach", job) as terminal:
        terminal.wait_for("ready\r\n")
        said = ""
        while "cancelling" not in said:
            # On a slow machine the second one may come too late, and is the first one then.
            terminal.press("\x03")
            said = terminal.wait_for("^C") + terminal.wait_for("\n")
        assert terminal.process.wait(HANG_S) == 130
    assert active(local) == []


def test_a_pending_job_is_cancelled_by_a_signal_to_run_alone(local):
    (blocker,) = local.lines("submit", "-n4", "sleep", "1000")
    with piped(local, "run", "-n4", "true") as run:
        while not (jobs := [job for job in active(local) if job != blocker]):
            pass
        for verb, code in (("attach", 128 + signal.SIGTERM), ("run", 1)):
            with nullcontext(run) if verb == "run" else piped(local, verb, *jobs) as command:
                while not _handles_term(command):
                    pass
                command.send_signal(signal.SIGTERM)
                assert command.wait(HANG_S) == code
    assert local.penstock("cancel", blocker).returncode == 0


@pytest.fixture
def starting(start, tmp_path):
    """An instance whose jobs do not start: their prolog does not end."""
    hook, config = tmp_path / "prolog", tmp_path / "penstock.toml"
    hook.write_text("#!/bin/sh\nexec sleep 1000\n")
    hook.chmod(0o755)
    config.write_text(f"[job-manager.prolog]\ncommand = ['{hook}']\n")
    options = ("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe")
    with start(*options, "--config", str(config)) as instance:
        yield instance


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("verb", ["run", "alloc"])
def test_a_job_that_has_not_started_is_cancelled_by_a_signal(starting, verb, number):
    with piped(starting, verb, "sleep", "1000") as command:
        while not (jobs := active(starting)):
            pass
        (job,) = jobs
        with Client(starting.uri, timeout=HANG_S) as client:
            _wait_for_prolog(client, job)
            while not _handles_term(command):
                pass
            command.send_signal(number)
            assert command.wait(HANG_S) == (128 + number if verb == "alloc" else 1)
            assert client.wait_row(parse(job))["result"] == job_result.CANCELED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("options", [(), ("--task=0",)])
def test_a_job_that_has_not_started_outlives_the_end_of_attach(starting, options, number):
    (job,) = starting.lines("submit", "sleep", "1000")
    with Client(starting.uri, timeout=HANG_S) as client:
        _wait_for_prolog(client, job)
        with piped(starting, "attach", *options, job) as command:
            while not _handles_term(command):
                pass
            command.send_signal(number)
            assert command.wait(HANG_S) == 128 + number
            text = f"penstock attach: signal {number:d}: the job continues\n"
            assert command.stderr.read().decode().endswith(text)
        assert not any(event["name"] == "exception" for event in client.eventlog(parse(job)))


@pytest.mark.parametrize("is_piped", [False, True])
def test_a_job_outlives_the_terminal_in_which_it_is_shown(local, is_piped):
    with screen(local, "run", "sh", "-c", "echo ready; cat") as terminal:
        terminal.wait_for("ready")
        terminal.press("\x03\x1a")
        terminal.wait_for("detached")
        assert terminal.process.wait(HANG_S) == 0
    (job,) = active(local)
    reader, writer = os.pipe()
    with screen(local, "attach", job, stdin=reader if is_piped else None) as terminal:
        os.close(reader)
        terminal.wait_for("ready\r\n")
        terminal.hang_up()
        os.close(writer)
        assert terminal.process.wait(HANG_S) == 128 + signal.SIGHUP
    # Its input has not ended either.
    done = local.penstock("attach", job, stdin="later\n")
    assert (done.returncode, done.stdout) == (0, "ready\nlater\n")


def test_attach_in_an_open_terminal_forwards_sighup(local):
    script = "trap 'echo hung up; exit 3' HUP; echo ready; while :; do sleep 0.05; done"
    (job,) = local.lines("submit", "sh", "-c", script)
    with screen(local, "attach", job) as terminal:
        terminal.wait_for("ready\r\n")
        terminal.process.send_signal(signal.SIGHUP)
        terminal.wait_for("hung up\r\n")
        assert terminal.process.wait(HANG_S) == 3


def _wait_for_prolog(client: Client, job: str) -> None:
    events = client.eventlog(parse(job), follow=True)
    assert any(event["name"] == "prolog-start" for event in events)


def _handles_term(process: subprocess.Popen) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = [line for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


# --- survival


def test_streams_survive_the_death_of_the_service(start, exec_process):
    def kill(process) -> None:
        process.kill()
        process.wait()

    writing = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done"
    reading = "while read line; do echo read $line; done; echo end"
    typing = "while read line; do echo typed $line; done"
    with start("--exec", "none", "--nodes=1", "--cores=4", "--oversubscribe") as instance:
        options = ["run", "sh", "-c"]
        with exec_process(instance, "--oversubscribe") as service:
            (writer,) = instance.lines("submit", "sh", "-c", writing)
            with (
                piped(instance, *options, reading) as reader,
                screen(instance, "run", "--pty", "sh", "-c", typing) as terminal,
            ):
                write(reader, b"one\n")
                assert reader.stdout.readline() == b"read one\n"
                terminal.press("one\r")
                terminal.wait_for("typed one")
                kill(service)
                write(reader, b"two\n")
                terminal.press("two\r")
                with exec_process(instance, "--oversubscribe") as service:
                    assert reader.stdout.readline() == b"read two\n"
                    terminal.wait_for("typed two")
                    kill(service)
                with exec_process(instance, "--oversubscribe"):
                    terminal.press("three\r")
                    terminal.wait_for("typed three")
                    terminal.press("\x04")
                    assert terminal.process.wait(HANG_S) == 0
                    write(reader, b"three\n")
                    reader.stdin.close()
                    assert reader.stdout.read() == b"read three\nend\n"
                    assert reader.wait(HANG_S) == 0
                    assert instance.penstock("wait", writer).returncode == 0
                    lines = instance.lines("logs", writer)
                    assert lines == [f"line {number}" for number in range(300)]


@pytest.mark.parametrize(
    ("verb", "granted"), [("run", ""), ("run --pty", ""), ("alloc", "granted 1 node")]
)
def test_a_pending_job_is_explained_at_a_terminal(start, verb, granted):
    with start("--nodes=1", "--cores=1", "--exec=local", "--oversubscribe") as instance:
        (blocker,) = instance.lines("submit", "-t", "1h", "sleep", "1000")
        with screen(instance, *verb.split(), "-t", "1m", "echo", "it has run") as terminal:
            before = terminal.wait_for(": pending: needs 1 core: none is free")
            assert before.startswith(f"penstock {verb.split()[0]}: ƒ")
            instance.lines("cancel", blocker)
            assert granted in terminal.wait_for("it has run")
            assert terminal.process.wait(timeout=60) == 0


def test_a_job_that_is_attached_to_is_explained_while_it_is_pending(start):
    with start("--nodes=1", "--cores=1", "--exec=local", "--oversubscribe") as instance:
        (blocker,) = instance.lines("submit", "-t", "1h", "sleep", "1000")
        (job,) = instance.lines("submit", "-t", "1m", "echo", "it has run")
        with (
            screen(instance, "attach", job) as terminal,
            screen(instance, "attach", "--read-only", job) as reader,
        ):
            for each in (terminal, reader):
                each.wait_for(f"penstock attach: {job}: pending: needs 1 core: none is free")
            instance.lines("cancel", blocker)
            for each in (terminal, reader):
                each.wait_for("it has run")
                assert each.process.wait(timeout=60) == 0
