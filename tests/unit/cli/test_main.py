"""The command line against a fake instance: formats, interrupts, exit codes."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.rows import ROW_KEYS

PENSTOCK = [sys.executable, "-m", "penstock"]
# The keys of a row in JSON, in their order.
EXPECTED_KEYS = (
    "id id_int userid urgency priority queue state result status waitstatus returncode name ntasks "
    "nnodes ncores duration nodelist ranks t_submit t_run t_cleanup t_inactive max_rss_kib "
    "user_cpu system_cpu annotations exception reason"
).split()
ROW = {"id": 1, "userid": 0, "urgency": 16, "t_submit": 1.0, "state": 64, "name": "x", "ntasks": 1}


def over(**more):
    return ROW | {"result": 1, "returncode": 0, "waitstatus": 0} | more


def output(stream, data):
    return {"stream": stream, "data": base64.b64encode(data).decode()}


@pytest.fixture
def job(fake, answers, listing):
    """Makes the instance take job 1, which writes these parts and ends with this row."""

    def make(row, *parts):
        fake.methods["job-ingest.submit"] = lambda request: [request.respond({"id": 1})]
        fake.methods["job-exec.output"] = answers(*parts)
        fake.methods["job-list.wait"] = answers({"jobs": [row]})
        fake.methods["job-list.list"] = listing(row)
        raised = {"count": 1, "errors": {}}
        fake.methods["job-manager.raise"] = lambda request: [request.respond(raised)]

    return make


def test_keys_are_printed_in_the_requested_order(job, capsys):
    assert list(ROW_KEYS) == EXPECTED_KEYS
    job(ROW | {"state": 8})
    assert main(["jobs", "-a", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == EXPECTED_KEYS
    assert (shown["id"], shown["state"], shown["status"], shown["result"]) == (
        "ƒ2",
        "SCHED",
        "SCHED",
        None,
    )


EXCEPTION = {"exception_occurred": True, "exception_severity": 0}


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        ({}, 0, None),
        ({"result": 2, "returncode": 3, "waitstatus": 768}, 3, "exited with code 3"),
        ({"result": 2, "returncode": 137, "waitstatus": 9}, 137, "ended by signal 9"),
        (EXCEPTION | {"result": 8, "exception_type": "timeout"}, 143, "timeout"),
        (EXCEPTION | {"result": 4, "exception_type": "cancel"}, 1, "cancel"),
        (EXCEPTION | {"exception_type": "alloc", "exception_note": "no"}, 1, "alloc: no"),
        # A remark, not the job's end.
        ({"exception_occurred": True, "exception_severity": 7, "exception_type": "n"}, 0, None),
    ],
)
def test_run_and_wait_end_with_the_job_s_code(job, capfd, more, code, reason):
    job(over(**more), output("stdout", b"out\xff"), output("stderr", b"err"))
    assert main(["wait", "ƒ2"]) == code
    done = subprocess.run([*PENSTOCK, "run", "x"], capture_output=True, check=False)
    assert done.returncode == code
    assert done.stdout == b"out\xff"
    assert done.stderr.startswith(b"err")
    assert main(["jobs", "-a", "-n", "-o", "{reason}"]) == 0
    assert capfd.readouterr().out.strip() == (reason or "")


def test_run_shows_nothing_where_nothing_is_kept(job, fake, capfd):
    job(over())
    fake.methods["job-exec.output"] = lambda request: [request.respond(errnum=errno.ENOENT)]
    assert main(["run", "x"]) == 0
    assert capfd.readouterr() == ("", "")


def test_run_tells_why_it_shows_no_output(job, fake, capfd):
    job(over())
    fake.methods["job-exec.output"] = lambda request: [
        request.respond(errnum=errno.EAGAIN, errtext="too many \x1b[31mrequests")
    ]
    assert main(["run", "x"]) == 0
    shown = capfd.readouterr().err
    assert "its output is not shown: " in shown
    assert "requests" in shown
    assert "\x1b" not in shown


def test_the_first_interrupt_cancels_and_the_second_exits(job, fake):
    job(over())
    fake.methods["job-exec.output"] = fake.methods["job-list.wait"] = lambda _request: []
    with subprocess.Popen([*PENSTOCK, "run", "x"], stderr=subprocess.PIPE, text=True) as process:
        fake.wait_for("job-list.wait")
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("penstock run: interrupted: cancelling")
        raised = fake.wait_for("job-manager.raise").object()
        assert (raised["ids"], raised["type"], raised["note"]) == ([1], "cancel", "interrupted")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == ""


def test_run_cancels_and_ends_when_its_reader_closes(job, fake):
    job(over())
    part = output("stdout", b"y\n" * 50_000)

    def endless(request):
        while True:
            yield request.respond(part)

    fake.methods["job-exec.output"] = endless
    fake.methods["job-list.wait"] = lambda _request: []
    with subprocess.Popen(
        [*PENSTOCK, "run", "yes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""
    assert (
        fake.wait_for("job-manager.raise").object()["note"] == "the reader of the output has gone"
    )


@pytest.mark.parametrize("args", [["--help"], ["help"], ["--version"]])
def test_a_reader_that_has_gone_is_no_fault(args):
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen([*PENSTOCK, *args], stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""


def test_an_invalid_address_is_an_error(monkeypatch, capsys):
    monkeypatch.setenv("PENSTOCK_URI", "tcp://host")
    assert main(["jobs"]) == 1
    assert capsys.readouterr().err == (
        "penstock jobs: unsupported address `tcp://host`: expected local:///path/to/socket\n"
    )


def test_without_an_instance_the_exit_code_is_69(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PENSTOCK_URI", f"local://{tmp_path}/absent")
    assert main(["jobs"]) == 69
    text = capsys.readouterr().err
    assert f"local://{tmp_path}/absent" in text
    assert "hint: start one with `penstock start`" in text


def test_a_format_is_checked_before_any_request(monkeypatch, capsys):
    monkeypatch.setenv("PENSTOCK_URI", "local:///nowhere")
    assert main(["jobs", "-n", "-o", "{id} {nosuch}"]) == 1
    assert "unknown field `nosuch`: expected annotations, duration" in capsys.readouterr().err


def test_help_for_a_verb_that_does_not_exist(capsys):
    assert main(["help", "sumbit"]) == 2
    assert "did you mean `submit`?" in capsys.readouterr().err


def test_bad_environment_rules_are_usage_errors(monkeypatch, capsys):
    monkeypatch.setenv("PENSTOCK_URI", "local:///nowhere")
    monkeypatch.delenv("NOSUCH", raising=False)
    assert main(["submit", "--env", "X=$NOSUCH", "true"]) == 2
    assert "`NOSUCH` is not set" in capsys.readouterr().err


def test_a_submission_imports_nothing_that_is_slow():
    """Modules that were a large part of the time of `penstock submit`."""
    code = (
        "import sys; from penstock.cli import main; main(['submit', '--dry-run', 'true']); "
        "import penstock.client, penstock.client.repeating; "
        "print(sorted({'bz2', 'lzma', 'random', 'shutil', 'tomllib', 'trio'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", ["--help", "--version", "idset expand 1-3", "config dump"])
def test_a_full_disk_is_an_error_in_one_line(verb):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PENSTOCK, *verb.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert re.fullmatch(r"penstock( \w+)?: No space left on device\n", done.stderr)


@pytest.mark.parametrize("closed", ["0", "1", "2"])
@pytest.mark.parametrize("words", ["idset expand 1-3", "hostlist count a[1-3]", "jobs", "--help"])
def test_a_closed_standard_stream_is_as_dev_null(tmp_path, words, closed):
    script = f"exec {closed}>&-; {shlex.join(PENSTOCK)} {words}"
    done = subprocess.run(
        ["sh", "-c", script],
        env={**os.environ, "PENSTOCK_URI": f"local://{tmp_path}/none"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == (69 if words == "jobs" else 0)
    assert "Traceback" not in done.stderr
    assert (done.stdout == "") == (closed == "1" or words == "jobs")
