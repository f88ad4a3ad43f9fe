"""Jobs as real processes: their output, environment and end."""

from __future__ import annotations

import json
import os
import socket
import subprocess

import cbor2
import pytest
from tests.instance.conftest import PENSTOCK, is_running

from penstock._core import Decoder, Message
from penstock.client import Client, connect


@pytest.fixture(params=["daemon", "process"])
def local(request, start, exec_process):
    """An instance on this machine, with either of its execution services."""
    if request.param == "daemon":
        with start() as instance:
            yield instance
    else:
        with start("--exec", "none") as instance, exec_process(instance):
            yield instance


def test_output_goes_where_the_templates_say(local, tmp_path):
    options = ["--cwd", str(tmp_path), "-n2", "--job-name=x"]
    script = "echo out $PENSTOCK_TASK_RANK; echo err >&2"
    args = [
        *options,
        "--output",
        "{{name}}-{{id}}-{{taskid}}.out",
        "--error",
        "err",
        "sh",
        "-c",
        script,
    ]
    (job,) = local.lines("submit", *args)
    if os.cpu_count() == 1:
        pytest.skip("needs two cores")
    assert local.penstock("wait", job).returncode == 0
    for task in range(2):
        assert (tmp_path / f"x-{job}-{task}.out").read_text() == f"out {task}\n"
    assert (tmp_path / "err").read_text() == "err\nerr\n"
    (job,) = local.lines("submit", "--cwd", str(tmp_path), "--output", "both", "sh", "-c", script)
    assert local.penstock("wait", job).returncode == 0
    assert sorted((tmp_path / "both").read_text().splitlines()) == ["err", "out 0"]
    for template, text in [("{{nosuch}}", "unknown `{{nosuch}}`"), ("/no/dir/x", "cannot write")]:
        (job,) = local.lines("submit", "--output", template, "true")
        assert local.penstock("wait", job).returncode == 1
        assert text in json.loads(local.lines("info", "--json", job)[0])["reason"]


@pytest.mark.parametrize("options", [["-n2-4"], ["-N1+"], ["-N1", "-n2-4"], ["-n1+", "-c2"]])
def test_a_job_with_a_count_range_runs_a_task_in_every_slot(start, options):
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as instance:
        words = instance.lines("run", *options, "sh", "-c", "echo $PENSTOCK_NTASKS")
        (row,) = map(json.loads, instance.lines("jobs", "-a", "--json"))
        r = json.loads(instance.lines("info", row["id"], "R")[0])
        assert words == [str(len(words))] * r["execution"]["nslots"]
        assert row["ntasks"] == len(words)


def test_a_job_that_ignores_sigterm_is_killed(start, tmp_path):
    config = tmp_path / "penstock.toml"
    config.write_text("[penstock.exec]\nkill-timeout = '0.2s'\n")
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    with start("--config", str(config)) as instance:
        script = f"trap '' TERM; echo > {fifo}; while :; do sleep 1; done"
        (job,) = instance.lines("submit", "sh", "-c", script)
        fifo.read_text()
        instance.lines("cancel", job)
        assert instance.penstock("wait", job).returncode == 137
        row = json.loads(instance.lines("info", "--json", job)[0])
        assert (row["waitstatus"], row["result"]) == (9, "CANCELED")


def test_background_processes_of_a_job_end_with_it(local, tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! >> {pids}; setsid sleep 1000 & echo $! >> {pids}"
    (job,) = local.lines("submit", "sh", "-c", script)
    assert local.penstock("wait", job).returncode == 0
    for pid in map(int, pids.read_text().split()):
        assert not is_running(pid)


def test_output_is_followed_while_the_job_runs(local, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with Client(local.uri) as client:
        (job,) = local.lines("submit", "sh", "-c", f"echo one; cat {gate}")
        number = client.job_rows(constraint={})[0]["id"]
        output = client.output(number, follow=True)
        assert next(output) == ("stdout", b"one\n")
        gate.write_text("two\n")
        assert list(output) == [("stdout", b"two\n")]
        assert list(client.output(number)) == [("stdout", b"one\ntwo\n")]
    assert local.penstock("logs", "-f", job).stdout == "one\ntwo\n"
    assert local.penstock("logs", "--stream=stderr", job).stdout == ""
    missing = local.penstock("logs", "ƒ1")
    assert missing.returncode == 1
    assert "no job ƒ1: it may have been purged" in missing.stderr
    (job,) = local.lines("submit", "--cwd", str(tmp_path), "--output=file", "--error=err", "true")
    elsewhere = local.penstock("logs", "-f", job)
    assert elsewhere.returncode == 1
    assert elsewhere.stderr == (
        f"penstock logs: {job}: stdout went to the file `{tmp_path}/file`\n"
        f"penstock logs: {job}: stderr went to the file `{tmp_path}/err`\n"
    )


def test_logs_names_the_file_of_a_template(local, tmp_path):
    options = ["--cwd", str(tmp_path), "--output={{name}}-{{id.dec}}-{{id}}-{{taskid}}"]
    (job,) = local.lines("submit", "--job-name={{jobid}}", "--wait", *options, "true")
    (row,) = map(json.loads, local.lines("jobs", "-a", "--json"))
    done = local.penstock("logs", job)
    file = f"{tmp_path}/{{{{jobid}}}}-{row['id_int']}-{job}-{{{{taskid}}}}"
    expected = f"penstock logs: {job}: stdout went to the file `{file}`\n"
    assert (done.returncode, done.stderr) == (1, expected)
    assert (tmp_path / f"{{{{jobid}}}}-{row['id_int']}-{job}-0").is_file()


def test_following_a_job_that_never_starts_ends_with_it(local):
    with Client(local.uri) as client:
        (job,) = local.lines("submit", "--urgency=hold", "true")
        number = client.job_rows(constraint={})[0]["id"]
        output = client.output(number, follow=True)
        local.lines("cancel", job)
        assert list(output) == []


def test_signals_reach_the_tasks(local, tmp_path):
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    script = f"trap 'exit 5' USR1; echo > {fifo}; while :; do sleep 0.05; done"
    with Client(local.uri) as client:
        (job,) = local.lines("submit", "sh", "-c", script)
        fifo.read_text()
        number = client.job_rows(constraint={})[0]["id"]
        client.rpc("job-manager.kill", {"id": number, "signum": 10})
        assert local.penstock("wait", job).returncode == 5


def test_tasks_have_the_job_s_working_directory_and_environment(local, tmp_path):
    args = ["--cwd", str(tmp_path), "--env=-*", "--env=PATH", "--env=A=b", "sh", "-c"]
    done = local.penstock("run", *args, "pwd; echo $A; echo ${HOME-none}")
    assert done.stdout.splitlines() == [str(tmp_path), "b", "none"]


def test_a_client_can_use_cbor(local):
    with connect(local.uri) as connection:
        request = Message.request("attr.get", cbor2.dumps({"name": "size"}), matchtag=5)
        connection.sendall(request.encode())
        decoder = Decoder()
        batch = decoder.feed(connection.recv(65536))
        while not batch:
            batch = decoder.feed(connection.recv(65536))
        (response,) = batch
        assert cbor2.loads(response.payload) == {"value": "1", "flags": 1}
        assert response.matchtag == 5


def test_state_of_a_disconnected_client_is_removed(local):
    (job,) = local.lines("submit", "--urgency=hold", "true")
    for _ in range(3):
        with Client(local.uri) as client:
            number = client.job_rows(constraint={})[0]["id"]
            stream = client.stream("job-list.wait", {"ids": [number]})
            client.stream("job-exec.output", {"id": number, "follow": True})
            client._socket.shutdown(socket.SHUT_RDWR)
            with pytest.raises(ConnectionError):
                next(stream)
    assert local.penstock("cancel", job).returncode == 0
    assert local.penstock("run", "true").returncode == 0


def test_many_tasks_need_few_descriptors(start, tmp_path):
    options = ["--nodes=1", "--cores=100", "--exec=local", "--oversubscribe"]
    limited = ["sh", "-c", 'ulimit -S -n 64; exec "$0" "$@"']
    with start(*options, prefix=limited) as instance:
        args = ["-n100", "--cwd", str(tmp_path), "--output", "{{taskid}}", "sh", "-c"]
        script = "echo $PENSTOCK_TASK_RANK; ulimit -n"
        # Tasks have the limit of the submitter.
        submission = [*limited, *PENSTOCK, "run", *args, script]
        environment = {**os.environ, "PENSTOCK_URI": instance.uri}
        assert subprocess.run(submission, env=environment, check=False).returncode == 0
    for task in range(100):
        assert (tmp_path / str(task)).read_text() == f"{task}\n64\n"


def test_a_shared_output_file_is_truncated_once(start, tmp_path):
    options = ["--nodes=1", "--cores=100", "--exec=local", "--oversubscribe"]
    with start(*options) as instance:
        (tmp_path / "err").write_text("old\n")
        files = ["--output", "{{taskid}}.out", "--error", "err"]
        args = ["-n100", "--cwd", str(tmp_path), *files, "sh", "-c", "echo $FLUX_TASK_RANK >&2"]
        assert instance.penstock("run", *args).returncode == 0
    lines = (tmp_path / "err").read_text().splitlines()
    assert sorted(map(int, lines)) == list(range(100))
