"""The command line against an instance: what each verb prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from penstock.cli import VERBS, main


@pytest.fixture
def sim(start):
    """A small simulated cluster."""
    with start("--nodes", "4", "--cores", "2", "--gpus", "1") as instance:
        yield instance


def objects(instance, *args):
    return [json.loads(line) for line in instance.lines(*args, "--json")]


def test_help_lists_every_verb_and_imports_no_unneeded_module():
    code = (
        "import sys; from penstock.cli import main; main(['--help']);"
        "print(sorted(set(sys.modules) & {'trio', 'cbor2', 'asyncio', 'argparse', 'socket'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *shown, imported = done.stdout.splitlines()
    assert imported == "[]"
    for verb in VERBS:
        assert any(line.split()[:1] == [verb] for line in shown), verb


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capsys):
    assert main([verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: penstock {verb}")
    assert main(["help", verb]) == 0


def test_a_misspelt_verb_gets_a_hint(capsys):
    assert main(["sumbit"]) == 2
    text = "unknown verb `sumbit`; did you mean `submit`?"
    assert capsys.readouterr().err == f"penstock: {text} (`penstock --help` shows the usage)\n"


@pytest.mark.parametrize(
    "args",
    [
        ["submit"],
        ["submit", "-n", "0", "true"],
        ["submit", "-t", "soon", "true"],
        ["submit", "--urgency", "32", "true"],
        ["submit", "--requires", "a|", "true"],
        ["submit", "--cc", "3-1", "true"],
        ["submit", "--exclusive", "true"],
        ["wait"],
        ["cancel"],
        ["cancel", "--all", "ƒ1"],
        ["jobs", "-f", "sleeping"],
        ["start", "--nodes", "0"],
        ["start", "--cores", "4"],
        ["start", "--nodes", "2", "--exec", "local"],
        ["start", "--nodes", "2", "--R", "file"],
        ["sched", "--limit", "0"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_with_2_before_any_request(args, capsys, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URI", "local:///nowhere")
    assert main(args) == 2
    assert capsys.readouterr().err


def test_copies_names_and_order(sim):
    ids = sim.lines("submit", "--cc=1-3", "--job-name=copy-{cc}", "echo", "{cc}")
    assert len(set(ids)) == 3
    assert sim.penstock("wait", *ids).returncode == 0
    rows = objects(sim, "jobs", "-a")
    assert [row["name"] for row in rows] == ["copy-3", "copy-2", "copy-1"]
    (spec,) = sim.lines("info", ids[1], "jobspec")
    assert json.loads(spec)["tasks"][0]["command"] == ["echo", "2"]
    assert sim.penstock("jobs", "-a", "-n", "-c", "1").stdout.count("\n") == 1


def test_jobs_are_filtered_and_formatted(sim):
    (running,) = sim.lines("submit", "-t", "1h", "--job-name=long", "true")
    (bad,) = sim.lines("submit", "--no-check", "-N9", "true")
    (held,) = sim.lines("submit", "--urgency=hold", "true")
    sim.penstock("wait", bad)

    def ids(*args):
        return sim.lines("jobs", "-n", "-o", "{id}", *args)

    assert ids() == [running, held]
    assert ids("-a") == [running, held, bad]
    assert ids("-f", "failed") == [bad]
    assert ids("-f", "running,failed") == [running, bad]
    assert ids("--name", "long") == [running]
    assert ids("-u", "12345") == []
    assert ids("-A") == [running, held]
    assert ids(bad, running) == [bad, running]
    assert ids("-f", "running", "--name", "long", held, bad, running) == [running]
    assert ids("-f", "running", held) == ids("-u", "12345", held) == ids("--name", "x", held) == []
    nowhere = sim.penstock("jobs", "-q", "nosuch")
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert nowhere.stderr == "penstock jobs: queue `nosuch`: no queues are configured\n"
    line = sim.lines("jobs", "-n", "-o", "{name:>6}|{status}|{nnodes}|{returncode}|{reason}", held)
    assert line == ["  true|SCHED||| held".replace("| ", "|")]
    titles = sim.lines("jobs", "-o", "{id:>12} {name:<5} {ntasks:>6}")[0]
    assert titles == "       JOBID NAME  NTASKS"
    wrong = sim.penstock("jobs", "-o", "{nosuch}")
    assert wrong.returncode == 1
    assert "unknown field `nosuch`" in wrong.stderr
    unknown = sim.penstock("jobs", "ƒ1")
    assert unknown.returncode == 1
    assert "no job ƒ1" in unknown.stderr


def test_info_and_eventlog_show_a_job_and_its_events(sim):
    (job,) = sim.lines("submit", "-N2", "true")
    sim.penstock("wait", job)
    info = json.loads(sim.lines("info", "--json", job)[0])
    assert (info["nnodes"], info["nodelist"], info["ranks"]) == (2, "node[0-1]", "0-1")
    assert any(line.startswith("nodelist") for line in sim.lines("info", job))
    r = json.loads(sim.lines("info", job, "R")[0])
    # Nodes alone are whole nodes: all cores and gpus.
    assert r["execution"]["R_lite"] == [{"rank": "0-1", "children": {"core": "0-1", "gpu": "0"}}]
    names = [line.split()[1] for line in sim.lines("eventlog", job)]
    assert names == [
        *("submit", "validate", "depend", "priority", "alloc"),
        *("start", "finish", "release", "free", "clean"),
    ]
    followed = objects(sim, "eventlog", "-f", job)
    assert [event["name"] for event in followed] == names
    assert followed[-2]["name"] == "free"


def test_cancel_reports_each_job_that_it_cannot_cancel(sim):
    (over,) = sim.lines("submit", "true")
    sim.penstock("wait", over)
    (job,) = sim.lines("submit", "-t", "1h", "true")
    done = sim.penstock("cancel", "-m", "enough", job, over, "ƒ2")
    assert done.returncode == 1
    assert f"penstock cancel: {over}: is inactive" in done.stderr
    assert "penstock cancel: ƒ2: no such job" in done.stderr
    assert sim.penstock("wait", job).returncode == 143
    assert json.loads(sim.lines("info", "--json", job)[0])["reason"] == "cancel: enough"
    sim.lines("submit", "--cc=1-5", "-t", "1h", "true")
    assert sim.lines("cancel", "--all") == ["5 jobs cancelled"]


def test_resources_are_listed_by_state(sim):
    sim.lines("submit", "-t", "1h", "-n", "3", "true")
    sim.lines("resource", "drain", "3", "it", "smokes")
    states = {row["state"]: row for row in objects(sim, "resource", "list")}
    assert (states["free"]["ncores"], states["allocated"]["ncores"]) == (3, 3)
    assert states["down"]["nodelist"] == "node3"
    (drained,) = objects(sim, "resource", "drain")
    assert (drained["ranks"], drained["reason"]) == ("3", "it smokes")
    again = sim.penstock("resource", "drain", "node3", "other")
    assert (again.returncode, "already drained" in again.stderr) == (1, True)
    assert objects(sim, "resource", "drain")[0]["reason"] == "it smokes"
    assert sim.penstock("resource", "undrain", "0").returncode == 1
    assert sim.lines("resource", "status")[1].split()[:3] == ["avail", "3", "0-2"]


def test_services_and_configuration_are_shown(start, tmp_path):
    config = tmp_path / "penstock.toml"
    config.write_text('[queues.batch]\nrequires = []\n[resource]\nexclude = "node0"\n')
    with start("--nodes=2", "--config", str(config)) as instance:
        names = {row["name"] for row in objects(instance, "services")}
        assert {"sched", "job-manager", "job-exec", "resource", "kvs"} <= names
        live = json.loads(instance.lines("config", "dump", "--live", "--json")[0])
        assert live["resource"]["exclude"] == "node0"
        assert objects(instance, "resource", "list")[0]["nodelist"] == "node1"
        # With queues the table has a column for them.
        (job,) = instance.lines("submit", "-q", "batch", "true")
        instance.penstock("wait", job)
        assert "QUEUE" in instance.lines("jobs", "-a")[0]
        wrong = instance.penstock("submit", "-q", "nosuch", "true")
        assert wrong.returncode == 1
        assert "unknown queue `nosuch`: expected batch" in wrong.stderr


def test_submit_waits_and_prints_json(sim):
    done = sim.penstock("submit", "--wait", "--json", "--no-check", "-N9", "true")
    assert done.returncode == 1
    row = json.loads(done.stdout)
    assert row["id"].startswith("ƒ")
    assert isinstance(row["id_int"], int)


def test_an_interrupted_run_cancels_its_job(start, tmp_path):
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    with start() as instance:
        command = [sys.executable, "-m", "penstock", "run", "sh", "-c", f"echo > {fifo}; sleep 99"]
        env = {**os.environ, "PENSTOCK_URI": instance.uri}
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
            fifo.read_text()
            process.send_signal(signal.SIGINT)
            _, text = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "cancelling" in text
        assert objects(instance, "jobs", "-a")[0]["result"] == "CANCELED"


@pytest.mark.parametrize(
    ("attribute", "where", "expected"),
    [
        ("shell.options=3", "shell.options", "an object, found a number"),
        (
            "shell.options.output.stdout.path=3",
            "shell.options.output.stdout.path",
            "a string, found a number",
        ),
        (
            r'shell.options.output.stdout.path="a\u0000b"',
            "shell.options.output.stdout.path",
            "a string without NUL",
        ),
        ("attributes.system.job=3", "job", "an object, found a number"),
    ],
)
def test_attributes_that_no_job_can_run_with_are_rejected(start, attribute, where, expected):
    with start() as instance:
        done = instance.penstock("submit", "--setattr", attribute, "true")
        assert done.returncode == 1
        message = f"invalid jobspec: attributes.system.{where}: expected {expected}"
        assert message in done.stderr
        assert instance.lines("jobs", "-a", "--json") == []


@pytest.mark.parametrize("verb", ["wait", "cancel", "jobs", "info", "logs", "eventlog"])
def test_a_malformed_job_id_is_bad_usage(verb, capsys):
    assert main([verb, "nonsense!"]) == 2
    assert "argument ID: invalid job id" in capsys.readouterr().err


def test_a_directory_that_is_not_utf_8_is_named(sim, tmp_path):
    directory = tmp_path / os.fsdecode(b"\xff")
    directory.mkdir()
    env = {**os.environ, "PENSTOCK_URI": sim.uri}
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "true"],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    expected = f"working directory: expected UTF-8 without NUL, found '{tmp_path}/\\udcff'"
    assert done.stderr == f"penstock run: {expected}\n"
    assert sim.penstock("run", "--setattr=exec.test.run_duration=0s", "true").returncode == 0


def test_the_greatest_wait_status_is_the_status_of_the_job(start):
    options = ["--nodes=1", "--cores=2", "--exec=local", "--oversubscribe"]
    with start(*options) as instance:
        script = "[ $PENSTOCK_TASK_RANK = 0 ] && exit 1; kill -9 $$"
        assert instance.penstock("run", "-n2", "sh", "-c", script).returncode == 1
