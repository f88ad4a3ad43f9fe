"""Formats and selections of `penstock resource`, against an instance with queues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from datetime import datetime

import pytest

from penstock import ResourceSet
from penstock.client import Client

CONFIG = """
[queues.batch]
requires = ["fast"]
[queues.debug]
constraint = {hostlist = ["node[2-4]"]}
[queues.any]
[policy.jobspec.defaults.system]
queue = "batch"
[resource.properties]
fast = "node[0-2]"
"""


@pytest.fixture
def sim(start, tmp_path):
    """Five nodes of 4 cores and 2 gpus: node 0 is allocated, node 1 is drained."""
    (tmp_path / "c.toml").write_text(CONFIG)
    options = ["--nodes=5", "--cores=4", "--gpus=2", "--config", str(tmp_path / "c.toml")]
    with start(*options) as instance:
        for name in ("batch", "debug", "any"):
            instance.lines("queue", "start", name)
        (job,) = instance.lines("submit", "-N1", "-t1h", "true")
        instance.lines("job-wait-event", "-q", job, "start")
        instance.lines("resource", "drain", "1", "fan of", "node 1")
        yield instance


def shown(instance, verb, *options, form="{state} {nodelist}"):
    return instance.lines("resource", verb, "-n", "-o", form, *options)


# --- list


def test_list_has_formats_states_and_selections(sim):
    assert shown(sim, "list") == ["free node[2-4]", "allocated node0", "down node1"]
    assert shown(sim, "list", "-s", "all,up") == ["all node[0-4]", "up node[0,2-4]"]
    assert shown(sim, "list", "-s", "free", "-i", "node[3-9]") == ["free node[3-4]"]
    assert shown(sim, "list", "-s", "free", "-i", "2,4-9") == ["free node[2,4]"]
    assert shown(sim, "list", "-s", "free", "-i", "x[0-3]") == ["free"]
    for queue, nodes in (
        ("batch", "node[0-2]"),
        ("debug", "node[2-4]"),
        ("any", "node[0-4]"),
        ("batch,debug", "node[0-4]"),
    ):
        assert shown(sim, "list", "-s", "all", "-q", queue) == [f"all {nodes}"]
    form = "{state:>4}|{nnodes}|{ncores}|{ngpus:<3}|{ranks}"
    lines = sim.lines("resource", "list", "-o", form, "-s", "down")
    assert lines == ["STATE|NNODES|NCORES|NGPUS|RANKS", "down|1|4|2  |1"]
    (row,) = map(json.loads, sim.lines("resource", "list", "--json", "-s", "down"))
    expected = {"state": "down", "nnodes": 1, "ncores": 4, "ngpus": 2, "ranks": "1"}
    assert row == expected | {"nodelist": "node1"}


def test_info_and_r_show_the_selected_resources(sim):
    assert sim.lines("resource", "info", "-s", "up", "-q", "batch")[0].startswith(
        "2 nodes, 8 cores"
    )
    (text,) = sim.lines("resource", "R", "-s", "free,down", "-i", "0-3")
    assert ResourceSet(text).summary() == "rank[1-3]/core[0-3],gpu[0-1]"
    with Client(sim.uri) as client:
        (text,) = sim.lines("resource", "R")
        assert ResourceSet(text) == ResourceSet(client.sched_status()["all"])


# --- status


def test_status_has_formats_states_and_selections(sim):
    assert shown(sim, "status") == ["avail node[0,2-4]", "drained node1"]
    form = "{state} {nnodes} {ranks} {reason}"
    assert shown(sim, "status", "-s", "drain", form=form) == ["drained 1 1 fan of node 1"]
    assert shown(sim, "status", "-s", "online,offline") == ["offline", "online node[0-4]"]
    assert shown(sim, "status", "-q", "debug") == ["avail node[2-4]"]
    assert shown(sim, "status", "-i", "node[1-2]") == ["avail node2", "drained node1"]
    sim.lines("resource", "drain", "0")
    assert shown(sim, "status", "-s", "draining") == ["draining node0"]


def test_eventlog_is_the_history(sim):
    assert sim.lines("resource", "eventlog") == sim.lines("resource", "history")
    (event,) = map(json.loads, sim.lines("resource", "eventlog", "--json", "1")[-1:])
    assert event["name"] == "drain"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["list", "-s", "fre"], 2, "unknown state `fre`"),
        (["status", "-s", "free"], 2, "unknown state `free`: expected avail"),
        (["list", "-q", "nosuch"], 1, "unknown queue `nosuch`: expected any, batch, debug"),
        (["list", "-n", "-o", "{nosuch}"], 1, "unknown field `nosuch`: expected state"),
        (["list", "-o", "{state"], 1, "format `{state`: "),
        (["list", "-o", "{}"], 1, "format `{}`: "),
        (["list", "-o", "long"], 1, "format `long`: expected fields in braces, such as {nodelist}"),
        (["status", "-o", "long"], 1, "format `long`: expected fields in braces"),
        (["list", "-i", "a["], 1, "a["),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_invalid_selections_are_errors(sim, words, code, text):
    done = sim.penstock("resource", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr


# --- usage


def test_usage_counts_the_resources_of_jobs(sim):
    (row,) = map(json.loads, sim.lines("usage", "--json", "--by", "queue"))
    assert (row["queue"], row["jobs"]) == ("batch", 1)
    assert 0 < row["node_hours"] < 1
    assert row["core_hours"] == pytest.approx(4 * row["node_hours"])
    assert row["gpu_hours"] == pytest.approx(2 * row["node_hours"])
    title, line = sim.lines("usage")
    assert title.split() == ["USER", "MONTH", "JOBS", "NODE_HOURS", "CORE_HOURS", "GPU_HOURS"]
    assert line.split()[2] == "1"
    assert sim.lines("usage", "-n", "-u", "12345") == []


# --- reload


def r_text(ranks, hosts, cores="0-3", gpus="0-1"):
    return ResourceSet.uniform(ranks, hosts, cores=cores, gpus=gpus).to_json()


def test_reload_adds_and_removes_nodes(sim, tmp_path):
    (tmp_path / "R").write_text(r_text("0-2,7-8", "node[0-2],new[0-1]"))
    sim.lines("resource", "reload", str(tmp_path / "R"))
    assert shown(sim, "list", "-s", "all") == ["all node[0-2],new[0-1]"]
    # A second time there is nothing to do.
    done = sim.penstock("resource", "reload", "-", stdin=(tmp_path / "R").read_text())
    assert (done.returncode, done.stderr) == (0, "")
    events = [line.split()[2] for line in sim.lines("resource", "eventlog")[1:]]
    assert events == ["drain", "grow", "shrink"]


def test_reload_removes_a_node_with_a_job_only_by_force(sim, tmp_path):
    (tmp_path / "R").write_text(r_text("1-4", "node[1-4]"))
    done = sim.penstock("resource", "reload", str(tmp_path / "R"))
    assert (done.returncode, done.stderr) == (
        1,
        (
            "penstock resource: jobs are running on node0, which would be removed: `--force` "
            "removes it\n"
        ),
    )
    assert shown(sim, "list", "-s", "all") == ["all node[0-4]"]
    sim.lines("resource", "reload", "-f", str(tmp_path / "R"))
    assert shown(sim, "list", "-s", "all") == ["all node[1-4]"]


def test_reload_changes_no_node(sim, tmp_path):
    (tmp_path / "R").write_text(r_text("0-4", "node[0-4]", cores="0-7"))
    done = sim.penstock("resource", "reload", str(tmp_path / "R"))
    assert done.returncode == 1
    assert done.stderr == (
        f"penstock resource: `{tmp_path}/R`: rank 0 is node0 with cores 0-7 and gpus 0-1, in the "
        "instance node0 with cores 0-3 and gpus 0-1: a node that changes needs a new rank\n"
    )


def test_the_eventlog_is_followed(sim):
    command = [sys.executable, "-m", "penstock", "resource", "eventlog", "-f", "json", "-F", "-i3"]
    environment = os.environ | {"PENSTOCK_URI": sim.uri}
    with ExitStack() as stack:
        follower = stack.enter_context(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(follower.kill)
        assert follower.stdout
        first = [json.loads(follower.stdout.readline())["name"] for _ in range(2)]
        assert first == ["restart", "online"]
        sim.lines("resource", "drain", "2", "other")
        sim.lines("resource", "drain", "3-4", "fans")
        event = json.loads(follower.stdout.readline())
        assert (event["name"], event["context"]["reason"]) == ("drain", "fans")
        sim.lines("resource", "undrain", "node3")
        assert json.loads(follower.stdout.readline())["name"] == "undrain"
        follower.send_signal(signal.SIGINT)
        assert follower.wait() == 130


def test_the_eventlog_until_an_event(sim):
    sim.lines("resource", "drain", "2", "fans")
    sim.lines("resource", "drain", "3", "disk")

    def names(*words: str) -> list[str]:
        lines = sim.lines("resource", "eventlog", "-f", "json", *words)
        return [json.loads(line)["name"] for line in lines]

    assert names("--wait=restart") == ["restart"]
    assert names("-w", "drain", "-m", "idset=3")[-2:] == ["drain", "drain"]
    assert names("-w", "drain", "-m", "reason=disk", "-i", "node3")[-1:] == ["drain"]
    (title, *_, last) = sim.lines("resource", "eventlog", "-w", "drain", "-m", "reason=fans")
    assert title.split()[0] == "TIME"
    assert last.split()[2:] == ["drain", "2", "node2", "fans"]
    done = sim.penstock("resource", "eventlog", "-w", "shrink", "-t", "0.01s")
    assert done.returncode == 1
    assert done.stderr == "penstock resource: the event `shrink` did not come (--timeout)\n"
    done = sim.penstock("resource", "eventlog", "-F", "-t", "0.01s")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("words", "text"),
    [(["-t", "1s"], "--timeout: expected --follow"), (["-F", "-m", "a=b"], "expected --wait")],
)
def test_options_of_the_eventlog_that_need_others(sim, words, text):
    done = sim.penstock("resource", "eventlog", *words)
    assert done.returncode == 2
    assert text in done.stderr


def test_the_eventlog_in_the_formats_of_flux(sim):
    sim.lines("resource", "drain", "2", "fans")
    lines = sim.lines("resource", "eventlog", "-f", "json", "-i", "2")
    assert lines == sim.lines("resource", "history", "--json", "2")
    (event,) = map(json.loads, lines)
    time = event["timestamp"]
    (_, line) = sim.lines("resource", "eventlog", "-T", "raw", "-i", "2")
    assert line.split() == [f"{time:.6f}", "drain", "2", "node2", "fans"]
    (_, line) = sim.lines("resource", "eventlog", "-T", "iso", "2")
    assert datetime.fromisoformat(line.split()[0]).timestamp() == pytest.approx(time, abs=1e-5)
    (_, first, *_, second) = sim.lines("resource", "eventlog", "--time-format=offset")
    assert first.split()[0] == "0.000000"
    assert float(second.split()[0]) >= 0
    assert sim.lines("resource", "eventlog", "-H") == sim.lines("resource", "eventlog")
    done = sim.penstock("resource", "eventlog", "-i", "1", "0")
    assert done.returncode == 2
    assert "--include: the targets are given twice" in done.stderr
