"""Nested instances: their resources, their jobs and their end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.instance.conftest import is_running

from penstock import ResourceSet
from penstock.client import Client

PENSTOCK = [sys.executable, "-P", "-m", "penstock"]
SHELL = shlex.join(PENSTOCK)

# Prints, as JSON, the instance and the jobs that its initial command sees.
PROBE = """
import json, os
from penstock.client import Client
from penstock.jobspec import from_command
with Client() as client:
    def attribute(name):
        return client.rpc("attr.get", {"name": name})["value"]
    script = "echo $PENSTOCK_URI $FLUX_URI"
    job = client.submit(from_command(["sh", "-c", script]))
    (row,) = client.wait_rows([job])
    print(json.dumps({
        "R": client.resource_status()["R"],
        "attributes": {
            name: attribute(name)
            for name in ("instance-level", "parent-uri", "jobid", "local-uri", "statedir")
        },
        "config": client.config(),
        "job": client.lookup(job, "R")["R"],
        "returncode": row["returncode"],
        "output": b"".join(data for _, data in client.output(job)).decode().split(),
        "environment": dict(os.environ),
        "affinity": sorted(os.sched_getaffinity(0)),
    }))
"""


@pytest.fixture
def probe(tmp_path):
    """A command that prints what it finds in its environment."""
    path = tmp_path / "probe.py"
    path.write_text(PROBE)
    return [sys.executable, str(path)]


@pytest.fixture
def cluster(start, tmp_path):
    """Simulated nodes whose jobs all run on this machine."""
    nodes = ResourceSet.uniform("0-3", "n[0-3]", cores="0-3", gpus="0")
    nodes.add_property("fast", "2-3")
    (tmp_path / "R").write_text(nodes.to_json())
    with start("--R", str(tmp_path / "R"), "--oversubscribe") as instance:
        yield instance


def output(instance, *args):
    done = instance.penstock(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_s_resources_are_the_nested_instance_s_counted_from_0(cluster, probe):
    options = ["-N1", "-c4", "-g1", "-t30", "--requires=fast", "-n1"]
    found = json.loads(output(cluster, "run", *options, *PENSTOCK, "start", "--", *probe))
    (name,) = cluster.lines("jobs", "-a", "-no", "{id}")
    (document,) = cluster.lines("info", name, "R")
    outer, inner, job = map(ResourceSet, (document, found["R"], found["job"]))
    assert outer.summary() == "rank2/core[0-3],gpu0"
    assert inner.summary() == "rank0/core[0-3],gpu0"
    assert str(inner.nodelist) == "n2"
    assert {name: str(ranks) for name, ranks in inner.properties.items()} == {"fast": "0"}
    assert inner.expiration == outer.expiration == job.expiration
    assert outer.expiration > 0
    assert inner.nslots is None
    attributes = found["attributes"]
    assert attributes["instance-level"] == "1"
    assert attributes["parent-uri"] == cluster.uri
    assert attributes["jobid"] == name
    uri = attributes["local-uri"]
    assert uri != cluster.uri
    assert found["output"] == [uri, uri]
    assert found["returncode"] == 0
    environment = found["environment"]
    assert environment["PENSTOCK_URI"] == environment["FLUX_URI"] == uri
    assert not {"PENSTOCK_JOB_ID", "FLUX_JOB_ID", "FLUX_TASK_RANK"} & environment.keys()
    assert found["config"]["penstock"]["exec"]["oversubscribe"]
    assert not Path(attributes["statedir"]).exists()


def test_options_for_resources_and_state_override_those_of_the_job(cluster, probe, tmp_path):
    state = tmp_path / ("long" * 30)
    options = ["--nodes=9", "--exec=local", "--oversubscribe", "--state", str(state)]
    found = json.loads(output(cluster, "run", *PENSTOCK, "start", *options, "--", *probe))
    assert ResourceSet(found["R"]).nnodes == 9
    assert found["attributes"]["instance-level"] == "1"
    assert found["attributes"]["statedir"] == str(state)
    assert (state / "jobs.sqlite").exists()


def test_an_instance_in_an_instance_in_an_instance(cluster, probe):
    inner = [*PENSTOCK, "run", "-c2", *PENSTOCK, "start", "--", *probe]
    found = json.loads(output(cluster, "run", "-c3", *PENSTOCK, "start", "--", *inner))
    assert found["attributes"]["instance-level"] == "2"
    assert found["attributes"]["parent-uri"] not in (cluster.uri, found["attributes"]["local-uri"])
    assert ResourceSet(found["R"]).summary() == "rank0/core[0-1]"


def test_local_jobs_run_on_the_cores_of_the_nested_instance(start, probe):
    cores = sorted(os.sched_getaffinity(0))
    with start() as instance:
        text = output(instance, "run", "-c1", *PENSTOCK, "start", "--", *probe)
        found = json.loads(text)
        (node,) = ResourceSet(found["R"]).nodes()
        assert list(node.cores) == found["affinity"] == cores[:1]
        if len(cores) > 1:
            whole = ["-N1", "-n2", "--setattr=shell.options.cpu-affinity=off"]
            rejected = instance.penstock("run", *whole, *PENSTOCK, "start", "--", *probe)
            assert rejected.returncode == 1
            assert "this is one of 2 tasks: " in rejected.stderr
            assert "\nhint: submit with `penstock batch`" in rejected.stderr


def test_a_start_in_a_job_without_its_instance_fails_with_a_hint(tmp_path, start):
    with start("--nodes=1") as instance:
        for uri, reason in [("local:///nowhere", "no instance at"), (instance.uri, "no job ƒ1")]:
            env = {"PENSTOCK_URI": uri, "PENSTOCK_JOB_ID": "ƒ1"}
            done = instance.penstock("start", "--", "true", env=env)
            assert done.returncode == 1
            assert f"cannot look up the resources of job ƒ1 at `{uri}`: {reason}" in done.stderr
            assert "\nhint: unset PENSTOCK_JOB_ID to start outside of any job, or" in done.stderr
            done = instance.penstock("start", "--nodes=1", "--", "true", env=env)
            assert done.returncode == 0
            assert "cannot look up the resources" in done.stderr
        env = {"PENSTOCK_URI": "", "PENSTOCK_JOB_ID": "ƒ1"}
        done = instance.penstock("start", "--", "true", env=env)
        assert "PENSTOCK_JOB_ID is set, but PENSTOCK_URI is not\nhint: " in done.stderr


def test_a_nested_instance_ends_with_its_job(cluster, tmp_path):
    gate, output = tmp_path / "gate", tmp_path / "output"
    os.mkfifo(gate)
    script = f"{SHELL} submit sh -c 'echo $$ > {gate}; exec sleep 1000'; {SHELL} wait --all"
    words = [*PENSTOCK, "start", "--", "sh", "-c", script]
    (job,) = cluster.lines("submit", "--output", str(output), *words)
    pid = int(gate.read_text())
    cluster.lines("cancel", job)
    assert cluster.penstock("wait", job).returncode == 143
    assert not is_running(pid)


def script(path, *lines, shell="#!/bin/sh"):
    path.write_text("\n".join([shell, *lines]) + "\n")
    return str(path)


def batch(instance, cwd, *args, stdin=None, code=0):
    """Submits a script and waits for it; returns the job's name."""
    done = instance.penstock("batch", "--wait", "--cwd", str(cwd), *args, stdin=stdin)
    assert done.returncode == code, done.stderr
    return done.stdout.strip()


def test_a_script_runs_in_an_instance_with_the_requested_resources(cluster, tmp_path, probe):
    path = script(
        tmp_path / "x.sh",
        "#FLUX: -N2 -n4         # on two nodes",
        "#FLUX: --cores-per-task=2 --setattr=user.word='a b'",
        "#FLUX: --job-name=from-the-script --env=A=1 --env=B=1",
        "echo $0 $# $1:$2 $A$B",
        shlex.join(probe),
    )
    args = ["--job-name=from-the-line", "--env=B=2", "--", path, "one two", "-N3"]
    name = batch(cluster, tmp_path, *args)
    first, second = (tmp_path / f"penstock-{name}.out").read_text().splitlines()
    zero, *rest = first.split()
    assert rest == ["2", "one", "two:-N3", "12"]
    found = json.loads(second)
    assert ResourceSet(found["R"]).summary() == "rank[0-1]/core[0-3]"
    assert not Path(zero).exists()
    (row,) = [json.loads(line) for line in cluster.lines("jobs", "-a", "--json")]
    assert (row["name"], row["nnodes"], row["ncores"]) == ("from-the-line", 2, 8)
    (spec,) = cluster.lines("info", name, "jobspec")
    attributes = json.loads(spec)["attributes"]
    assert attributes["user"] == {"word": "a b"}
    kept = attributes["system"]["files"]["script"]
    assert kept["data"] == Path(path).read_text()
    assert (kept["encoding"], kept["mode"]) == ("utf-8", 0o100700)
    assert kept["size"] == Path(path).stat().st_size


def test_a_script_reads_its_input(cluster, tmp_path):
    (tmp_path / "in").write_text("one\ntwo\n")
    path = script(tmp_path / "x.sh", "#FLUX: --input=nosuch", "cat")
    name = batch(cluster, tmp_path, "--input", "in", path)
    assert (tmp_path / f"penstock-{name}.out").read_text() == "one\ntwo\n"
    # Otherwise it is empty.
    name = batch(cluster, tmp_path, "--wrap", "cat; echo end", stdin="of the submitter")
    assert (tmp_path / f"penstock-{name}.out").read_text() == "end\n"
    name = batch(cluster, tmp_path, path, code=1)
    (row,) = map(json.loads, cluster.lines("info", "--json", name))
    assert "cannot read `nosuch`" in row["reason"]


def test_a_script_s_jobs_run_on_its_job_s_resources(cluster, tmp_path):
    lines = ["for i in 1 2 3; do", f"{SHELL} submit --cc=1-2 sh -c 'echo $PENSTOCK_JOB_ID'", "done"]
    path = script(tmp_path / "x.sh", *lines, f"{SHELL} wait --all && exit 7")
    name = batch(cluster, tmp_path, "-c2", "--output", "{{name}}.log", path, code=7)
    (row,) = [json.loads(line) for line in cluster.lines("jobs", "-a", "--json")]
    assert (row["returncode"], row["status"]) == (7, "FAILED")
    assert len((tmp_path / "x.sh.log").read_text().splitlines()) == 6
    assert row["id"] == name


def test_scripts_from_standard_input_and_lines_for_the_shell(cluster, tmp_path):
    name = batch(cluster, tmp_path, stdin="#!/bin/sh\necho a; echo b >&2\n")
    assert (tmp_path / f"penstock-{name}.out").read_text() == "a\nb\n"
    name = batch(
        cluster, tmp_path, "--error", "err", "--wrap", "echo", "$((1 + 1))", ";", "echo b >&2"
    )
    assert (tmp_path / f"penstock-{name}.out").read_text() == "2\n"
    assert (tmp_path / "err").read_text() == "b\n"
    assert cluster.lines("jobs", "-a", "-no", "{name}", name) == ["echo"]
    ids = cluster.lines(
        *("batch", "--wait", "--cc=1-2", "--cwd", str(tmp_path), "--output", "cc-{cc}"),
        *("--wrap", "echo", "{cc}", "and", "{cc}"),
    )
    assert len(ids) == 2
    assert [(tmp_path / f"cc-{n}").read_text() for n in (1, 2)] == ["1 and 1\n", "2 and 2\n"]
    name = batch(cluster, tmp_path, "--wrap", stdin="# flux: --output=wrapped\necho c\n")
    assert (tmp_path / "wrapped").read_text() == "c\n"
    binary = tmp_path / "binary"
    binary.write_bytes(b"#!/bin/sh\n# \xff\necho d\n")
    name = batch(cluster, tmp_path, str(binary))
    assert (tmp_path / f"penstock-{name}.out").read_text() == "d\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo\n", "standard input: expected a script that begins with `#!`\nhint: `--wrap`"),
        ("#!/bin/sh\n# flux: -N0\n", "`batch`: line 2: argument -N/--nodes: expected a whole"),
        ("#!/bin/sh\n# flux: --nosuch\n", "`batch`: line 2: unrecognized arguments: --nosuch"),
        ("#!/bin/sh\n# flux: true\n", "`batch`: line 2: expected options, found `true`"),
        ("#!/bin/sh\n# flux: 'a\n", "`batch`: line 2: expected a closing '"),
        ("#!/bin/sh\n#flux: -n1\n:\n#flux: -n1\n", "`batch`: line 4: a directive after line 3"),
    ],
)
def test_a_script_that_cannot_be_submitted(start, text, message):
    with start("--nodes=1") as instance:
        done = instance.penstock("batch", stdin=text)
        assert done.returncode == 1
        assert done.stderr.startswith(f"penstock batch: {message}")
        assert instance.lines("jobs", "-a", "-n") == []


def test_a_script_option_needs_a_job_with_a_script(cluster):
    done = cluster.penstock("start", "--script")
    assert done.returncode == 2
    assert (
        "--script: expected to run in a job\nhint: submit a script with `penstock batch`"
        in done.stderr
    )
    done = cluster.penstock("run", *PENSTOCK, "start", "--script")
    assert done.returncode == 1
    assert "this job carries no script\nhint: submit one with `penstock batch`" in done.stderr


def test_a_command_here_uses_an_instance_in_a_job(cluster, tmp_path, probe):
    done = cluster.penstock("alloc", "-N2", "-n3", "--", *probe)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert ResourceSet(found["R"]).nnodes == 2
    assert found["attributes"]["parent-uri"] == cluster.uri
    assert found["returncode"] == 0
    (row,) = [json.loads(line) for line in cluster.lines("jobs", "-a", "--json")]
    assert (row["name"], row["status"]) == ("alloc", "COMPLETED")
    assert row["annotations"]["user"]["uri"] == found["attributes"]["local-uri"]
    assert cluster.penstock("alloc", "sh", "-c", "exit 7").returncode == 7
    assert cluster.penstock("alloc", "sh", "-c", "kill -9 $$").returncode == 137
    assert cluster.penstock("alloc", "nosuch").returncode == 127
    shell = script(tmp_path / "shell", "echo from a shell")
    Path(shell).chmod(0o700)
    assert cluster.penstock("alloc", env={"SHELL": shell}).stdout == "from a shell\n"
    assert cluster.lines("jobs", "-n") == []


def test_an_unreachable_instance_is_reported(cluster, start):
    done = cluster.penstock("alloc", "--no-check", "-N9", "true")
    assert done.returncode == 1
    assert "penstock alloc: ƒ" in done.stderr
    assert cluster.penstock("alloc", "--cc=1-2", "true").returncode == 2
    with start("--nodes=1", name="simulated") as instance:
        done = instance.penstock("alloc", "--setattr=exec.test.run_duration=0s", "true")
        assert done.returncode == 1
        assert "it has ended, and no instance ran in it" in done.stderr


def test_the_command_ends_with_its_job(cluster, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = [*PENSTOCK, "alloc", "sh", "-c", f"echo > {gate}; exec sleep 1000"]
    env = {**os.environ, "PENSTOCK_URI": cluster.uri}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        gate.read_text()
        cluster.lines("cancel", "--all")
        _, printed = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP
    assert ": cancel" in printed
    assert cluster.lines("jobs", "-n") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_waiting_cancels_the_job(start, number):
    with start("--nodes=1") as instance:
        (busy,) = instance.lines("submit", "-t1h", "true")
        command = [*PENSTOCK, "alloc", "true"]
        env = {**os.environ, "PENSTOCK_URI": instance.uri}
        with Client(instance.uri) as client:
            (first,) = [row["id"] for row in client.job_rows()]
            with subprocess.Popen(command, env=env) as process:
                # The one after the first: it waits for the resources, and the command for it.
                while len(client.job_rows()) < 2:
                    pass
                (job,) = {row["id"] for row in client.job_rows()} - {first}
                process.send_signal(number)
                assert process.wait(60) == 128 + number
            (row,) = client.wait_rows([job])
        assert row["exception_type"] == "cancel"
        instance.lines("cancel", busy)


def test_addresses_of_instances_in_jobs(cluster, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    inner = script(tmp_path / "inner", f"echo $PENSTOCK_URI > {gate}; exec cat {gate}")
    outer = script(tmp_path / "outer", f"{SHELL} batch {inner} > {tmp_path}/id; exec sleep 1000")
    (name,) = cluster.lines("batch", "-c2", "--cwd", str(tmp_path), outer)
    uri = gate.read_text().strip()
    path = f"{name}/{(tmp_path / 'id').read_text().strip()}"
    assert cluster.lines("uri", path) == [uri]
    (first,) = cluster.lines("uri", name)
    assert first not in (uri, cluster.uri)
    cluster.lines("cancel", name)
    cluster.penstock("wait", name)
    done = cluster.penstock("uri", name)
    assert done.returncode == 1
    assert f"job {name} has ended\nhint: " in done.stderr
    (plain,) = cluster.lines("submit", "--urgency=hold", "true")
    assert f"job {plain} has no address yet\n" in cluster.penstock("uri", plain).stderr


def test_a_new_time_limit_of_the_job_applies_to_its_instance_s_resources(cluster):
    script = (
        "import json, os, time\n"
        "from penstock.client import Client\n"
        "from penstock.jobspec import from_command\n"
        "from penstock import ResourceSet\n"
        "parent, job = os.environ['OUTER'], None\n"
        "with Client(parent) as outer, Client() as own:\n"
        "    (row,) = outer.job_rows(constraint={'states': ['running']})\n"
        "    outer.update(row['id'], duration=7200)\n"
        "    (row,) = outer.job_rows(ids=[row['id']])\n"
        "    while ResourceSet(own.resource_status()['R']).expiration != row['expiration']: pass\n"
        "    job = own.submit(from_command(['true']))\n"
        "    (inner,) = own.wait_rows([job])\n"
        "    print(row['expiration'] - row['t_run'], inner['expiration'] == row['expiration'])\n"
    )
    env = f"--env=OUTER={cluster.uri}"
    words = ["run", "-t1h", env, *PENSTOCK, "start", "--", sys.executable, "-c", script]
    seconds, same = output(cluster, *words).split()
    assert (round(float(seconds)), same) == (7200, "True")


def test_orphans_of_a_killed_nested_instance_end_with_its_job(cluster, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # A mark of another instance's job, which the environment brings along, is ignored.
    env = "--env=PENSTOCK_WITHIN_0=stale"
    sleeper = f"{SHELL} submit {env} sh -c 'echo $$ > {gate}; exec sleep 1000'; {SHELL} wait --all"
    inner = shlex.join([*PENSTOCK, "run", *PENSTOCK, "start", "--", "sh", "-c", sleeper])
    # A killed instance leaves its directory behind: here.
    where = f"--env=TMPDIR={tmp_path}"
    (job,) = cluster.lines("submit", where, *PENSTOCK, "start", "--", "sh", "-c", inner)
    pid = int(gate.read_text())
    (uri,) = cluster.lines("uri", job)
    with Client(uri) as client:
        os.kill(int(client.rpc("attr.get", {"name": "broker.pid"})["value"]), signal.SIGKILL)
    assert cluster.penstock("wait", job).returncode == 137
    assert not is_running(pid)
