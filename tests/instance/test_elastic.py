"""Elastic jobs in a real instance, from inside a job and from outside."""

from __future__ import annotations

import json
import os
import sys

from tests.support.jobs import events, newest, row

from penstock.client import Client
from penstock.jobid import f58, parse
from penstock.pmix import Job

PROGRAM = """
import os, signal
from penstock.pmix import DeniedError, Job

if os.environ["PENSTOCK_TASK_RANK"] != "0":
    # Until its node is released.
    signal.pause()
with Job() as job:
    more = job.extend(nodes=1, required=True, name="more")
    print("granted", more.hosts, flush=True)
    try:
        job.extend(nodes=4, required=True)
    except DeniedError as error:
        print("denied", error.status)
    print("released", job.release(alloc=more.alloc).hosts)
    print("released", job.release(nodes=9).hosts)
    new = job.new(nodes=3, name="mine", time=3600)
    print(new.hosts, [status.state for status in job.status("mine")])
"""
LOCAL = ("--nodes", "4", "--cores", "1", "--exec", "local", "--oversubscribe")


def test_a_job_grows_shrinks_and_leaves_an_allocation_behind(start):
    with start(*LOCAL) as instance, Client(instance.uri) as client:
        run = instance.penstock("run", "-N", "2", "-n", "2", sys.executable, "-c", PROGRAM)
        assert run.returncode == 0, run.stderr
        assert run.stdout.splitlines() == [
            "granted node2",
            "denied -29",
            "released node2",
            "released node1",
            "node[1-3] ['granted']",
        ]
        new = newest(client)
        assert (row(client, new)["state"], row(client, new)["ntasks"]) == (16, 0)
        (shown,) = instance.lines("jobs", "-o", "{id} {name} {status} {nnodes} {nodelist}", "-n")
        assert shown == f"{f58(new)} new:mine RUN 3 node[1-3]"
        explained = instance.lines("explain", str(new))
        assert explained == [f"{f58(new)}: it runs on node[1-3]"]
        instance.lines("cancel", str(new))
        assert instance.penstock("wait", str(new)).returncode == 1


def test_elastic_requests_from_outside_and_across_a_restart(start):
    with start(*LOCAL[:4]) as instance:
        work = parse(instance.lines("submit", "-N2", "-t1h", "sleep", "1000")[0])
        with Job(work, uri=instance.uri) as elastic:
            assert elastic.extend(nodes=1).hosts == "node2"
            waits = elastic.extend(nodes=2, name="waits", wait=False)
        (line,) = instance.lines("elastic", "status", "--job", str(work), "waits")
        assert line.split()[:3] == ["waits", "extend", "queued"]
        (reason,) = (text for text in instance.lines("explain", waits.alloc) if waits.alloc in text)
        assert "2" in reason
        instance.process.kill()
        instance.process.wait()
    with start(*LOCAL[:4]) as instance, Client(instance.uri) as client:
        assert row(client, work)["nodelist"] == "node[0-2]"
        instance.lines("elastic", "cancel", "--job", str(work), "waits")
        assert "penstock.resource-add" in events(client, work)
        (line,) = instance.lines("elastic", "status", "--job", str(work), "waits")
        assert line.split()[2] == "cancelled"


# The task on node1 and a process of it outside of its session outlive SIGTERM.
STUBBORN = """
if [ $PENSTOCK_TASK_RANK = 1 ]; then
    trap '' TERM
    setsid sh -c 'echo $$ >> pids; while :; do sleep 1; done' &
    echo $$ >> pids
    while [ $(wc -l < pids) -lt 2 ]; do sleep 0.01; done
fi
echo > ready$PENSTOCK_TASK_RANK
while :; do sleep 1; done
"""
CHECK = "for pid in $(cat pids); do ! kill -0 $pid 2> /dev/null || exit 9; done"


def test_a_released_node_is_given_to_the_next_job_when_nothing_of_the_first_runs_there(
    start, tmp_path
):
    config = tmp_path / "penstock.toml"
    config.write_text("[penstock.exec]\nkill-timeout = '0.2s'\n")
    ready = [tmp_path / f"ready{rank}" for rank in range(2)]
    for path in ready:
        os.mkfifo(path)
    at = ("--cwd", str(tmp_path))
    with start(*LOCAL, "--config", str(config)) as instance, Client(instance.uri) as client:
        first = parse(instance.lines("submit", "-N2", "-n2", *at, "sh", "-c", STUBBORN)[0])
        for path in ready:
            path.read_text()
        next_job = ("submit", "-N1", *at, "--requires=host:node1", "sh", "-c", CHECK)
        (second,) = instance.lines(*next_job)
        with Job(first, uri=instance.uri) as elastic:
            assert elastic.release(hosts="node1").hosts == "node1"
        assert instance.penstock("wait", second).returncode == 0
        assert len((tmp_path / "pids").read_text().split()) == 2
        assert row(client, first)["nodelist"] == "node0"
        (release,) = (
            event["context"]
            for event in map(json.loads, instance.lines("eventlog", "--json", str(first)))
            if event["name"] == "release"
        )
        assert release == {"ranks": "1", "final": False}
        assert row(client, first)["state"] == 16
        instance.lines("cancel", str(first))
        assert instance.penstock("wait", str(first)).returncode == 143


NESTED = """
from penstock.client import Client
from penstock.pmix import DeniedError, Job

def denied(job, **wanted):
    try:
        job.extend(required=True, **wanted)
    except DeniedError as error:
        print("denied", error.status)

with Client() as client:
    attribute = lambda name: client.rpc("attr.get", {"name": name})["value"]
    above = attribute("jobid"), attribute("parent-uri")
    with Job() as job, Job(above[0], uri=above[1]) as outer:
        print("here", job.extend(nodes=1, required=True, name="more").hosts)
        denied(job, nodes=1)
        more = outer.extend(nodes=1, required=True, name="more")
        print("above", more.hosts)
        denied(outer, nodes=2)
        # Each instance knows its own requests, and its own nodes.
        print([status.answer.hosts for status in job.status("more") + outer.status("more")])
        denied(job, nodes=1)
        print("above", outer.release(alloc=more.alloc).hosts)
        kept = outer.new(nodes=1, cpus=1, time=3600)
        print("above", kept.hosts)
"""


def test_a_nested_instance_serves_its_jobs_and_requests_from_its_parent(start):
    nested = (sys.executable, "-m", "penstock", "run", "-N1", sys.executable, "-c", NESTED)
    with start(*LOCAL) as instance, Client(instance.uri) as client:
        run = instance.penstock("alloc", "-N2", "--", *nested)
        assert run.returncode == 0, run.stderr
        assert run.stdout.splitlines() == [
            "here node1",
            "denied -29",
            "above node2",
            "denied -29",
            "['node1', 'node2']",
            "denied -29",
            "above node2",
            "above node2",
        ]
        # The grant from the parent instance belongs to the parent, and outlives the child.
        new = newest(client)
        shown = row(client, new)
        assert (shown["state"], shown["nodelist"]) == (16, "node2")
        assert instance.lines("jobs", "-no", "{id}") == [f58(new)]
