"""A real instance with real processes, sockets and commands, from submit to wait."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys

import pytest
from tests.instance.conftest import is_running

from penstock import ResourceSet
from penstock._core import Message
from penstock.client import Client, connect

KEYS = (
    "id id_int userid urgency priority queue state result status waitstatus returncode name ntasks "
    "nnodes ncores duration nodelist ranks t_submit t_run t_cleanup t_inactive annotations "
    "exception reason max_rss_kib user_cpu system_cpu"
).split()


def rows(instance, *args):
    return [json.loads(line) for line in instance.lines("jobs", "-a", "--json", *args)]


def test_jobs_run_and_their_output_is_retained(start):
    with start() as instance:
        (job,) = instance.lines("submit", "sh", "-c", "echo out; echo err >&2")
        assert job.startswith("ƒ")
        assert instance.penstock("wait", job).returncode == 0
        logs = instance.penstock("logs", job)
        assert (logs.stdout, logs.stderr) == ("out\n", "err\n")
        (row,) = rows(instance)
        assert sorted(row) == sorted(KEYS)
        assert (row["state"], row["result"], row["returncode"]) == ("INACTIVE", "COMPLETED", 0)
        assert row["t_submit"] <= row["t_run"] <= row["t_cleanup"] <= row["t_inactive"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 42"], 42),
        (["sh", "-c", "kill -9 $$"], 137),
        (["no-such-command-at-all"], 127),
        (["/etc/passwd"], 126),
        (["-t", "0.5s", "sleep", "60"], 143),
        (["-n", "100000", "true"], 1),
        (["--no-such-option"], 2),
    ],
)
def test_run_exits_with_the_job_s_exit_code(start, command, code):
    with start() as instance:
        assert instance.penstock("run", *command).returncode == code


def test_without_an_instance_the_exit_code_is_69(tmp_path):
    import subprocess

    env = {**os.environ, "PENSTOCK_URI": f"local://{tmp_path}/missing"}
    command = [sys.executable, "-m", "penstock", "submit", "true"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 69
    assert "hint:" in done.stderr


def test_tasks_know_their_rank_and_are_bound_to_their_cores(start):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    script = "echo $PENSTOCK_TASK_RANK $FLUX_TASK_RANK $PENSTOCK_NTASKS $(nproc)"
    with start() as instance:
        done = instance.penstock("run", "-n2", "sh", "-c", script)
        assert sorted(done.stdout.splitlines()) == ["0 0 2 1", "1 1 2 1"]


def test_a_cancelled_job_leaves_no_process_behind(start):
    with start() as instance:
        # The background process writes its pid to the fifo when it has started.
        fifo = instance.state / "fifo"
        os.mkfifo(fifo)
        script = f"(setsid sh -c 'echo $$ > {fifo}; exec sleep 1000') & exec sleep 1000"
        (job,) = instance.lines("submit", "sh", "-c", script)
        escaped = int(fifo.read_text())
        assert instance.penstock("cancel", job).returncode == 0
        assert instance.penstock("wait", job).returncode == 143
        assert not is_running(escaped)
        (row,) = rows(instance)
        assert row["result"] == "CANCELED"


def test_an_unsatisfiable_job_is_denied_with_the_reason(start):
    with start("--nodes", "2", "--cores", "4") as instance:
        ids = [
            instance.lines("submit", "--no-check", *options, "true")[0]
            for options in (["-n9"], ["-N3"], ["-g1"], ["--requires=nosuch"])
        ]
        assert instance.penstock("wait", *ids).returncode == 1
        reasons = {row["id"]: row["exception"] for row in rows(instance)}
        for job in ids:
            assert reasons[job]["type"] == "alloc"
            assert reasons[job]["note"]


def test_dependencies_order_jobs_and_fail_with_them(start):
    with start() as instance:
        (first,) = instance.lines("submit", "false")
        (ok,) = instance.lines("submit", "--dependency", f"afterok:{first}", "true")
        (notok,) = instance.lines("submit", "--dependency", f"afternotok:{first}", "true")
        instance.penstock("wait", first, ok, notok)
        results = {row["id"]: row for row in rows(instance)}
        assert results[ok]["exception"]["type"] == "dependency"
        assert results[notok]["result"] == "COMPLETED"


def test_urgency_decides_which_job_starts_first(start):
    with start("--nodes", "1", "--cores", "1") as instance:
        blocker = instance.lines("submit", "-t", "1h", "true")[0]
        low = instance.lines("submit", "--urgency", "1", "true")[0]
        high = instance.lines("submit", "--urgency", "20", "true")[0]
        instance.lines("cancel", blocker)
        assert instance.penstock("wait", low, high).returncode == 0
        times = {row["id"]: row["t_run"] for row in rows(instance)}
        assert times[high] <= times[low]


def test_pending_jobs_and_drains_survive_a_restart(start):
    with start("--nodes", "2", "--cores", "1") as instance:
        instance.lines("resource", "drain", "1", "bad fan")
        running = instance.lines("submit", "-t", "1h", "true")[0]
        pending = instance.lines("submit", "--setattr=exec.test.run_duration=0s", "true")[0]
        assert rows(instance, "-f", "run")[0]["id"] == running
    with start("--nodes", "2", "--cores", "1") as instance:
        assert instance.penstock("wait", pending).returncode == 0
        by_id = {row["id"]: row for row in rows(instance)}
        assert by_id[running]["result"] == "CANCELED"
        assert by_id[pending]["nodelist"] == "node0"
        drained = "\n".join(instance.lines("resource", "drain"))
        assert "bad fan" in drained
        instance.lines("resource", "undrain", "node1")
        row = [json.loads(line) for line in instance.lines("resource", "status", "--json")]
        assert "bad fan" not in json.dumps(row)


def test_drained_targets_get_no_jobs_and_the_job_stays_pending(start):
    with start("--nodes", "2", "--cores", "1") as instance:
        instance.lines("resource", "drain", "node0", "maintenance")
        (job,) = instance.lines("submit", "-N2", "-n2", "true")
        (other,) = instance.lines("submit", "--urgency=20", "true")
        assert instance.penstock("wait", other).returncode == 0
        by_id = {row["id"]: row for row in rows(instance)}
        assert by_id[other]["ranks"] == "1"
        assert by_id[job]["state"] == "SCHED"
        instance.lines("resource", "undrain", "0")
        assert instance.penstock("wait", job).returncode == 0
        bad = instance.penstock("resource", "drain", "node[7-8]")
        assert bad.returncode == 1
        assert "node[7-8]" in bad.stderr


def test_any_sqlite_tool_can_read_the_store(start):
    with start("--nodes", "1", "--cores", "1") as instance:
        (job,) = instance.lines("submit", "true")
        instance.penstock("wait", job)
        with sqlite3.connect(instance.state / "jobs.sqlite") as database:
            (count,) = database.execute("SELECT count(*) FROM jobs").fetchone()
            (r,) = database.execute("SELECT r FROM jobs").fetchone()
        database.close()
        assert count == 1
        assert ResourceSet(r).ncores == 1


def test_two_instances_do_not_share_a_state_or_a_socket(start):
    with start("--nodes", "1") as instance:
        same_state = instance.penstock(
            "start", "--nodes", "1", "--state", str(instance.state), "--socket", "/nowhere/s"
        )
        assert same_state.returncode == 1
        assert "in use" in same_state.stderr
        other = instance.state.parent / "other"
        same_socket = instance.penstock(
            "start", "--nodes=1", "--state", str(other), "--socket", str(instance.socket)
        )
        assert same_socket.returncode == 1
        assert "already" in same_socket.stderr


def test_a_misbehaving_client_is_answered_or_disconnected(start):
    import socket

    with start("--nodes", "1") as instance, Client(instance.uri) as client:
        with socket.socket(socket.AF_UNIX) as bad:
            bad.connect(str(instance.socket))
            assert bad.recv(1) == b"\0"
            bad.sendall(b"this is not a frame at all")
            assert bad.recv(1) == b""
        for topic, payload, errnum in [
            ("nosuch.thing", {}, 38),
            ("job-ingest.submit", {"jobspec": {"version": 1}}, 22),
            ("job-manager.raise", {"id": "x", "type": "cancel"}, 71),
            ("resource.drain", {"targets": 7}, 71),
            ("service.add", {"service": "job-manager"}, 17),
            ("service.add", {"service": "a b"}, 22),
        ]:
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is what is checked
                client.rpc(topic, payload)
            assert caught.value.errno == errnum, topic
        assert client.rpc("broker.ping", {})["rank"] == 0


def test_a_client_that_does_not_read_affects_no_other(start):
    with start("--nodes", "1") as instance:
        for _ in range(20):
            # Closing with answers unread resets the connection under the daemon's hands.
            with connect(instance.uri) as connection:
                request = Message.request("attr.get", {"name": "size"}, matchtag=1)
                connection.sendall(request.encode() * 100)
                assert connection.recv(1)
        with Client(instance.uri) as client:
            assert client.rpc("broker.stats-get")["process"]["pid"] == instance.process.pid


def test_a_store_that_cannot_be_opened_is_a_plain_message(tmp_path):
    import subprocess

    command = [sys.executable, "-m", "penstock", "start", "--nodes", "1"]
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "jobs.sqlite").write_text("this is not a database, but long enough to be looked at")
    options = ["--state", str(broken), "--socket", str(tmp_path / "s")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "penstock start: store: cannot read the format of the database: file is not a database\n"
        "hint: while the instance is stopped, `penstock store repair` saves what can be read, "
        "`penstock store restore BACKUP` puts a back-up in its place\n"
    )


def test_submissions_are_rejected_while_the_store_cannot_be_written(tmp_path):
    import resource
    import subprocess

    # Files cannot grow beyond a limit, as on a disk that is full.
    penstock = f"{sys.executable} -m penstock"
    submit = f"{penstock} submit --cc=1-10000 -t 1h true > /dev/null"
    script = f"{submit}; {submit}; {penstock} services > /dev/null; echo services $?"
    options = ["--nodes", "1", "--state", str(tmp_path / "full"), "--socket", str(tmp_path / "s")]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "start", *options, "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )
    # The instance still runs.
    assert done.stdout == "services 0\n"
    assert "job-ingest.submit: the store cannot be written: " in done.stderr
    assert "Traceback" not in done.stderr


def test_resources_come_from_r_or_configuration_and_local_jobs_need_real_cores(start, tmp_path):
    r = tmp_path / "R"
    r.write_text(ResourceSet.uniform("3-4", "far[0-1]", cores="0-7").to_json())
    with start("--R", str(r), "--exec", "sim") as instance:
        (job,) = instance.lines("submit", "-N2", "true")
        assert instance.penstock("wait", job).returncode == 0
        (row,) = rows(instance)
        assert (row["nodelist"], row["ranks"], row["ncores"]) == ("far[0-1]", "3-4", 16)
        options = ["--state", str(tmp_path / "x"), "--socket", str(tmp_path / "y")]
        rejected = instance.penstock("start", "--R", str(r), *options)
        assert rejected.returncode == 1
        assert "hint: simulate execution" in rejected.stderr
    document = json.loads(r.read_text())
    document["version"] = 1.0
    document["execution"]["R_lite"][0]["children"]["nic"] = "0-1"
    document["execution"]["rack"] = 7
    r.write_text(json.dumps(document))
    with (
        start("--R", str(r), "--exec=sim", "--sched=none", name="extended") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        with client.stream("resource.acquire") as responses:
            inventory = next(iter(responses))["resources"]["execution"]
        assert inventory["R_lite"][0]["children"] == {"core": "0-7", "nic": "0-1"}
        assert inventory["rack"] == 7
    config = tmp_path / "penstock.toml"
    config.write_text('[[resource.config]]\nhosts = "a[0-3]"\ncores = "0-1"\nproperties = ["p"]\n')
    options = ["--config", str(config), "--exec", "local", "--oversubscribe"]
    with start(*options, name="configured") as instance:
        done = instance.penstock("run", "-n3", "--requires=p", "sh", "-c", "echo $FLUX_TASK_RANK")
        assert sorted(done.stdout.split()) == ["0", "1", "2"]


def test_signals_stop_the_instance_in_order(start):
    with start("--nodes", "1", "--cores", "1") as instance:
        (job,) = instance.lines("submit", "-t", "1h", "true")
        rows(instance)
        instance.process.send_signal(signal.SIGINT)
        instance.process.wait(timeout=60)
        assert not instance.socket.exists()
    with start("--nodes", "1", "--cores", "1") as instance:
        (row,) = rows(instance)
        assert (row["id"], row["result"]) == (job, "CANCELED")
        assert "shut down" in row["reason"]


def test_the_command_s_exit_code_is_the_instance_s(tmp_path):
    import subprocess

    command = [sys.executable, "-m", "penstock", "start", "--nodes", "1"]
    command += ["--state", str(tmp_path), "--socket", str(tmp_path / "s")]
    for script, code in [("exit 7", 7), ("kill -15 $$", 143)]:
        done = subprocess.run([*command, "--", "sh", "-c", script], check=False)
        assert done.returncode == code
