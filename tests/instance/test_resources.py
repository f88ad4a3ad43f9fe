"""Administration and acquisition of resources, with real daemons."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from penstock import IDset, ResourceSet
from penstock.client import Client
from penstock.errors import RpcError

# Acquires, prints every response as a line, and ends when it is killed.
ACQUIRE = """
import json, sys
from penstock.client import Client
with Client(sys.argv[1]) as client:
    for response in client.stream("resource.acquire", json.loads(sys.argv[2])):
        print(json.dumps(response), flush=True)
"""
MONITOR = ACQUIRE.replace("resource.acquire", "resource.monitor")
GROW_OK = {"grow-ok": True}


@contextmanager
def stream(instance, script, payload=None):
    """A process with an open stream; returns a function that reads the next response."""
    command = [sys.executable, "-c", script, instance.uri, json.dumps(payload)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, lambda: json.loads(process.stdout.readline())
        finally:
            process.kill()


def objects(instance, *args):
    return [json.loads(line) for line in instance.lines(*args, "--json")]


def status(instance):
    with Client(instance.uri) as client:
        return client.rpc("resource.status")


def job(instance, ident):
    return json.loads(instance.lines("info", "--json", ident)[0])


def r_file(tmp_path, ranks, hosts, cores="0-1", name="R"):
    path = tmp_path / name
    path.write_text(ResourceSet.uniform(ranks, hosts, cores=cores).to_json())
    return str(path)


def rejected(instance, topic, payload=None):
    with Client(instance.uri) as client, pytest.raises(RpcError) as error:
        client.rpc(topic, payload)
    return error.value


def until(condition):
    """Polls until the daemon has noticed an event outside."""
    for _ in range(10_000):
        if condition():
            return
    raise AssertionError("never came true")


def test_the_acquire_stream_ends_when_it_is_cancelled(start):
    with start("--sched=none", "--nodes=2") as instance, Client(instance.uri) as client:
        responses = client.stream("resource.acquire")
        assert next(responses)["up"] == "0-1"
        # Matchtags start at 1 in each client: only the client of a stream can cancel it.
        with Client(instance.uri) as other:
            other.rpc("resource.acquire-cancel", {"matchtag": 1})
            assert other.rpc("resource.stats-get")["acquired"] is True
        client.rpc("resource.acquire-cancel", {"matchtag": 1})
        assert list(responses) == []
        assert client.rpc("resource.stats-get")["acquired"] is False


def test_changes_are_sent_as_transitions_with_every_key(start, tmp_path):
    with start("--sched=none", "--nodes=4") as instance:
        with stream(instance, ACQUIRE, GROW_OK) as (_, read):
            assert read()["up"] == "0-3"
            instance.lines("resource", "drain", "0-1", "dust")
            assert read() == {"down": "0-1"}
            instance.lines("resource", "drain", "--update", "1-2", "more dust")
            assert read() == {"down": "2"}
            instance.lines("resource", "undrain", "node[0-1]")
            assert read() == {"up": "0-1"}
            instance.lines("resource", "property", "add", "fast", "node[0-2]")
            assert read() == {"property-add": {"fast": "0-2"}}
            instance.lines("resource", "property", "remove", "fast", "0")
            assert read() == {"property-remove": {"fast": "0"}}
            instance.lines("resource", "expiration", "4000000000.5")
            assert read() == {"expiration": 4000000000.5}
            instance.lines("resource", "shrink", "1-2")
            assert read() == {"shrink": "1-2", "down": "1"}
            instance.lines("resource", "grow", r_file(tmp_path, "7", "new0"))
            grown = read()
            assert ResourceSet(grown.pop("grow")).summary() == "rank7/core[0-1]"
            assert grown == {"up": "7"}
        with stream(instance, ACQUIRE) as (_, read):
            resources = read()["resources"]["execution"]
            assert resources["nodelist"] == ["node[0,3]", "new0"] or resources["nodelist"] == [
                "node[0,3],new0"
            ]
            assert resources["expiration"] == 4000000000.5
            # This request does not accept growth: its next response is a change of another kind.
            instance.lines("resource", "grow", r_file(tmp_path, "9", "new1"))
            instance.lines("resource", "drain", "7,9")
            assert read() == {"down": "7"}


def test_drains_say_when_why_and_for_which_state(start):
    with start("--nodes=4") as instance:
        instance.lines("resource", "drain", "node[1-2]", "it", "smokes")
        (first,) = objects(instance, "resource", "drain")
        assert (first["state"], first["ranks"], first["reason"]) == ("drained", "1-2", "it smokes")
        # A drained node is an error. --update sets a reason only on nodes without one.
        again = instance.penstock("resource", "drain", "0-1", "other")
        assert (again.returncode, "rank 1 already drained: node1" in again.stderr) == (1, True)
        assert "hint: --update drains the others, --force replaces the reason" in again.stderr
        instance.lines("resource", "drain", "3")
        instance.lines("resource", "drain", "--update", "2-3", "late")
        rows = {row["ranks"]: row for row in objects(instance, "resource", "drain")}
        assert rows["1-2"] == first
        assert rows["3"]["reason"] == "late"
        since = rows["3"]["timestamp"]
        assert since >= first["timestamp"]
        # --force replaces the reason and keeps the time; twice it replaces both.
        instance.lines("resource", "drain", "--force", "1", "flames")
        rows = {row["ranks"]: row for row in objects(instance, "resource", "drain")}
        assert rows["1"] == {**first, "ranks": "1", "nodelist": "node1", "reason": "flames"}
        instance.lines("resource", "drain", "-ff", "1", "gone out")
        rows = {row["ranks"]: row for row in objects(instance, "resource", "drain")}
        assert rows["1"]["timestamp"] >= since
        assert rows["2"]["reason"] == "it smokes"
        table = instance.lines("resource", "drain")
        assert table[0].split() == ["TIME", "STATE", "RANKS", "NODELIST", "REASON"]
        assert table[1].split(maxsplit=2)[2].startswith("drained")


def test_every_invalid_target_is_reported_at_once(start):
    with start("--nodes=4") as instance:
        for verb in ("drain", "undrain", "shrink"):
            bad = instance.penstock("resource", verb, "node[3-5],x,node0")
            assert (bad.returncode, bad.stdout) == (1, "")
            assert "no such hosts: " in bad.stderr
            for host in ("node[4-5]", "x"):
                assert host in bad.stderr
            bad = instance.penstock("resource", verb, "2-5,9")
            assert "no such ranks: 4-5,9; the ranks are 0-3" in bad.stderr
        assert objects(instance, "resource", "drain") == []
        instance.lines("resource", "drain", "1")
        bad = instance.penstock("resource", "undrain", "0-2")
        assert bad.returncode == 1
        assert "ranks 0,2 not drained: node[0,2]" in bad.stderr
        assert objects(instance, "resource", "drain")[0]["ranks"] == "1"
        instance.lines("resource", "undrain", "--force", "0-2", "clean", "now")
        assert objects(instance, "resource", "drain") == []
        assert instance.penstock("resource", "shrink", "0-3").returncode == 1
        assert rejected(instance, "resource.drain", {"targets": ""}).errno == errno.EINVAL
        wrong = rejected(instance, "resource.drain", {"targets": "0", "mode": "maybe"})
        assert "update, overwrite, force-overwrite" in str(wrong)
        assert instance.penstock("resource", "drain", "--force").returncode == 2


def test_a_node_is_draining_while_a_job_is_on_it(start):
    with start("--nodes=2", "--cores=1") as instance:
        (ident,) = instance.lines("submit", "-t", "1h", "true")
        instance.lines("resource", "drain", "0-1", "dust")
        rows = {row["ranks"]: row["state"] for row in objects(instance, "resource", "drain")}
        assert rows == {"0": "draining", "1": "drained"}
        assert job(instance, ident)["state"] == "RUN"
        instance.lines("cancel", ident)
        instance.penstock("wait", ident)
        assert [row["state"] for row in objects(instance, "resource", "drain")] == ["drained"]


def test_history_shows_events_of_all_or_some_targets(start, tmp_path):
    with start("--nodes=4") as instance:
        instance.lines("resource", "drain", "0-1", "dust")
        instance.lines("resource", "undrain", "0", "wiped")
        instance.lines("resource", "grow", r_file(tmp_path, "8", "extra"))
        instance.lines("resource", "property", "add", "p", "extra")
        instance.lines("resource", "shrink", "node3")
        instance.lines("resource", "expiration", "+1d")
        events = objects(instance, "resource", "history")
        assert [event["name"] for event in events] == [
            *("drain", "undrain", "grow", "property-add", "shrink", "expiration"),
        ]
        first = events[0]["context"]
        assert first == {
            "idset": "0-1",
            "nodelist": "node[0-1]",
            "reason": "dust",
            "overwrite": 0,
        }
        assert events[1]["context"]["reason"] == "wiped"

        def names(targets):
            return [event["name"] for event in objects(instance, "resource", "history", targets)]

        assert names("1") == names("node1") == ["drain"]
        assert names("0") == ["drain", "undrain"]
        # Targets that were removed have a history, too.
        assert names("3") == names("node3") == ["shrink"]
        assert names("node2") == []
        bad = instance.penstock("resource", "history", "node[1,9],no")
        assert bad.returncode == 1
        assert "no such hosts: " in bad.stderr
        lines = instance.lines("resource", "history")
        assert lines[0].split() == ["TIME", "EVENT", "RANKS", "NODELIST", "ABOUT"]
        assert lines[1].split()[2:] == ["drain", "0-1", "node[0-1]", "dust"]


def test_a_restart_restores_all_resource_state(start, tmp_path):
    with start("--nodes=4", "--cores=2") as instance:
        instance.lines("resource", "drain", "1", "bad fan")
        instance.lines("resource", "drain", "--force", "1", "worse fan")
        instance.lines("resource", "drain", "2")
        instance.lines("resource", "undrain", "2")
        instance.lines("resource", "shrink", "node0")
        instance.lines("resource", "grow", r_file(tmp_path, "5-6", "late[0-1]", "0-3"))
        instance.lines("resource", "property", "add", "p", "2,5-6")
        instance.lines("resource", "property", "remove", "p", "6")
        instance.lines("resource", "expiration", "4e9")
        before = status(instance)
    with start("--nodes=4", "--cores=2") as instance:
        assert status(instance) == before
        resources = ResourceSet(before["R"])
        assert str(resources.ranks) == "1-3,5-6"
        assert str(resources.properties["p"]) == "2,5"
        assert resources.expiration == 4e9
        assert before["drain"]["1"]["reason"] == "worse fan"
        (ident,) = instance.lines("submit", "-N1", "-n1", "-c4", "true")
        assert instance.penstock("wait", ident).returncode == 0
        assert job(instance, ident)["nodelist"] == "late0"
        again = instance.penstock("resource", "grow", r_file(tmp_path, "0,5", "late0,x"))
        assert again.returncode == 1
        for part in (
            "ranks that exist already: 5",
            "ranks that were removed for good: 0",
            "hosts that exist already: late0",
        ):
            assert part in again.stderr
        assert instance.lines("resource", "info")[0] == "5 nodes, 14 cores, 0 gpus"
    # Drains follow the hosts, should their ranks change.
    with start("--R", r_file(tmp_path, "0-2", "x,node1,node3"), "--exec=sim") as instance:
        assert {ranks: entry["reason"] for ranks, entry in status(instance)["drain"].items()} == {
            "1": "worse fan"
        }
    with start("--R", r_file(tmp_path, "0-2", "node1,x,y"), "--exec=sim") as instance:
        assert list(status(instance)["drain"]) == ["0"]


def test_a_job_that_needs_new_nodes_runs_after_growth(start, tmp_path):
    with start("--nodes=2", "--cores=2") as instance:
        impossible = instance.penstock("run", "-c4", "true")
        assert "no node has more than 2" in impossible.stderr
        instance.lines("resource", "grow", r_file(tmp_path, "2-3", "big[0-1]", "0-3"))
        (ident,) = instance.lines("submit", "-N2", "-n2", "-c4", "true")
        assert instance.penstock("wait", ident).returncode == 0
        assert job(instance, ident)["nodelist"] == "big[0-1]"
        rows = {row["state"]: row for row in objects(instance, "resource", "list")}
        assert rows["free"]["ncores"] == 12
        bad = instance.penstock("resource", "grow", str(tmp_path / "none"))
        assert bad.returncode == 1
        assert "none" in bad.stderr
        (tmp_path / "junk").write_text('{"version": 1}')
        bad = instance.penstock("resource", "grow", str(tmp_path / "junk"))
        assert bad.returncode == 1
        assert "junk" in bad.stderr


def test_after_a_shrink_impossible_jobs_are_denied_and_running_ones_continue(start):
    with start("--nodes=3", "--cores=1") as instance:
        (running,) = instance.lines("submit", "-N2", "-t", "1h", "true")
        (wide,) = instance.lines("submit", "-N3", "true")
        (narrow,) = instance.lines("submit", "-N2", "true")
        assert job(instance, wide)["state"] == "SCHED"
        instance.lines("resource", "shrink", "1")
        assert instance.penstock("wait", wide).returncode == 1
        assert "3 nodes requested, 2 exist" in job(instance, wide)["reason"]
        assert job(instance, running)["state"] == "RUN"
        assert job(instance, narrow)["state"] == "SCHED"
        instance.lines("cancel", running)
        assert instance.penstock("wait", narrow).returncode == 0
        assert job(instance, narrow)["ranks"] == "0,2"
        rows = {row["state"]: row["ranks"] for row in objects(instance, "resource", "list")}
        assert rows == {"free": "0,2", "allocated": "", "down": ""}


def test_a_new_property_lets_a_pending_job_start(start):
    with start("--nodes=2", "--cores=1") as instance:
        denied = instance.penstock("run", "--requires=fast", "true")
        assert "no node meets the constraint" in denied.stderr
        instance.lines("resource", "property", "add", "fast", "1")
        instance.lines("resource", "drain", "1")
        (ident,) = instance.lines("submit", "--requires=fast", "true")
        assert job(instance, ident)["state"] == "SCHED"
        instance.lines("resource", "property", "remove", "fast", "1")
        assert instance.penstock("wait", ident).returncode == 1
        assert "no node meets the constraint" in job(instance, ident)["reason"]
        bad = instance.penstock("resource", "property", "remove", "fast", "0-1")
        assert "without the property `fast`: 0-1" in bad.stderr
        bad = instance.penstock("resource", "property", "add", "a&b", "0")
        assert bad.returncode == 1
        assert "a&b" in bad.stderr


def test_the_end_of_the_resources_limits_jobs(start):
    with start("--nodes=1", "--cores=2") as instance, Client(instance.uri) as client:
        instance.lines("resource", "expiration", "4000000000")
        (ident,) = instance.lines("submit", "true")
        instance.penstock("wait", ident)
        r = json.loads(instance.lines("info", ident, "R")[0])
        assert r["execution"]["expiration"] == 4000000000.0
        for value in (-1, True, "soon", None):
            wrong = rejected(instance, "resource.expiration", {"expiration": value})
            assert "`expiration`" in str(wrong)
        client.rpc("resource.expiration", {"expiration": 0})
        assert status(instance)["R"]["execution"]["expiration"] == 0.0
        assert instance.penstock("resource", "expiration", "soon").returncode == 2


def test_targets_are_online_while_a_monitor_reports_them(start):
    with start("--nodes=3", "--cores=1") as instance:
        with stream(instance, MONITOR, {"ranks": "1-2"}) as (process, read):
            assert read() == {"ranks": "1-2"}
            assert status(instance)["online"] == "0-2"
            (running,) = instance.lines("submit", "-N3", "-t", "1h", "true")
            with Client(instance.uri) as client:
                acquired = client.rpc("resource.stats-get")
                assert (acquired["monitors"], acquired["acquired"]) == (1, True)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            until(lambda: status(instance)["offline"] == "1-2")
            assert status(instance)["online"] == "0"
            rows = {row["state"]: row["ranks"] for row in objects(instance, "resource", "status")}
            assert rows == {"avail": "0", "offline": "1-2"}
        # The scheduler leaves the job alone; nothing else is put there.
        assert job(instance, running)["state"] == "RUN"
        instance.lines("cancel", running)
        (ident,) = instance.lines("submit", "-N2", "true")
        with Client(instance.uri) as client:
            members = client.rpc("groups.get", {"name": "broker.online"})
            assert members == {"members": "0"}
        assert job(instance, ident)["state"] == "SCHED"
        names = [event["name"] for event in objects(instance, "resource", "history", "1")]
        assert names == ["online", "offline"]
        instance.lines("resource", "drain", "2", "dust")
        assert objects(instance, "resource", "drain")[0]["state"] == "drained*"
        with stream(instance, MONITOR, {"ranks": "1"}) as (_, read):
            assert read() == {"ranks": "1"}
            assert instance.penstock("wait", ident).returncode == 0
            assert job(instance, ident)["ranks"] == "0-1"
    # After a restart monitored nodes are offline until a monitor or `unmonitor` says otherwise.
    with start("--nodes=3", "--cores=1") as instance:
        assert status(instance)["offline"] == "1-2"
        instance.lines("resource", "unmonitor", "node[1-2]")
        assert (status(instance)["online"], status(instance)["offline"]) == ("0-2", "")


def test_a_monitor_can_cancel_its_stream_and_another_continues(start):
    with start("--nodes=2") as instance, Client(instance.uri) as client:
        streams = [client.stream("resource.monitor", {"ranks": ranks}) for ranks in ("0-1", "1")]
        assert [next(monitor) for monitor in streams] == [{"ranks": "0-1"}, {"ranks": "1"}]
        # Tags are counted from 1.
        client.rpc("resource.monitor-cancel", {"matchtag": 1})
        assert list(streams[0]) == []
        assert status(instance)["offline"] == "0"
        for payload, number in [
            ({"ranks": "0-9"}, errno.EINVAL),
            ({"ranks": ""}, errno.EINVAL),
            ({"ranks": "x"}, errno.EINVAL),
            ({}, errno.EPROTO),
        ]:
            with pytest.raises(RpcError) as error:
                next(iter(client.stream("resource.monitor", payload)))
            assert error.value.errno == number
        assert rejected(instance, "resource.monitor", {"ranks": "0"}).errno == errno.EPROTO


def test_a_reload_is_atomic(start, tmp_path):
    file = tmp_path / "penstock.toml"
    file.write_text('[resource]\nexclude = "node0"\n[resource.properties]\nfast = "1-2"\n')
    options = ["--nodes=4", "--cores=1", "--config", str(file)]
    with start(*options) as instance:
        assert status(instance)["exclude"] == "0"
        (running,) = instance.lines("submit", "-t", "1h", "--requires=fast", "true")
        assert job(instance, running)["ranks"] == "1"
        file.write_text(
            '[resource]\nexclude = "1,node0"\n[access]\nallow-guest-user = true\n'
            "[penstock.store]\nsynchronous = 'normal'\n"
        )
        bad = instance.penstock("config", "reload", str(file))
        assert bad.returncode == 1
        assert "`access.allow-guest-user` cannot change" in bad.stderr
        assert "`penstock.store.synchronous` cannot change" in bad.stderr
        file.write_text('[resource]\nexclude = "nosuch,node[0,7]"\nfoo = 1\n')
        assert "resource.foo" in instance.penstock("config", "reload", str(file)).stderr
        file.write_text('[resource]\nexclude = "nosuch,node[0,7]"\n')
        bad = instance.penstock("config", "reload", str(file))
        assert "resource.exclude: no such hosts: " in bad.stderr
        assert status(instance)["exclude"] == "0"
        live = json.loads(instance.lines("config", "dump", "--live", "--json")[0])
        assert live["resource"]["exclude"] == "node0"

        # A newly excluded node gets no jobs; its running job continues. A node that is no longer
        # excluded is new to the scheduler.
        file.write_text(
            '[resource]\nexclude = "1"\n[resource.properties]\nfast = "2"\n'
            '[penstock.exec]\nkill-timeout = "1s"\n'
        )
        assert instance.lines("config", "reload", str(file)) == [
            "changed: resource.exclude",
            "changed: resource.properties.fast",
            "changed: penstock.exec.kill-timeout",
        ]
        assert instance.lines("config", "reload", str(file)) == ["nothing has changed"]
        assert job(instance, running)["state"] == "RUN"
        assert status(instance)["exclude"] == "1"
        assert status(instance)["R"]["execution"]["properties"] == {"fast": "2"}
        (ident,) = instance.lines("submit", "-N3", "true")
        assert instance.penstock("wait", ident).returncode == 0
        assert job(instance, ident)["ranks"] == "0,2-3"
        names = [event["name"] for event in objects(instance, "resource", "history")]
        assert names == ["exclude", "unexclude"]
        live = json.loads(instance.lines("config", "dump", "--live", "--json")[0])
        assert live["resource"] == {"exclude": "1", "properties": {"fast": "2"}}


def test_queues_and_limits_change_with_the_configuration(start, tmp_path):
    file = tmp_path / "penstock.toml"
    file.write_text('[policy.limits]\nduration = "1h"\n')
    with start("--nodes=2", "--config", str(file)) as instance:
        assert instance.penstock("submit", "-t", "2h", "true").returncode == 1
        assert instance.penstock("submit", "-q", "batch", "true").returncode == 1
        file.write_text(
            '[policy.limits]\nduration = "3h"\n[queues.batch]\nrequires = ["p"]\n'
            '[policy.jobspec.defaults.system]\nqueue = "batch"\nduration = "1h"\n'
            '[resource.properties]\np = "node1"\n'
        )
        changed = instance.lines("config", "reload", str(file))
        assert "changed: queues.batch.requires" in changed
        assert "changed: policy.limits.duration" in changed
        (ident,) = instance.lines("submit", "-t", "2h", "true")
        assert (job(instance, ident)["queue"], job(instance, ident)["ranks"]) == ("batch", "1")
        # An error in one section leaves the others unchanged.
        file.write_text('[policy.limits]\nduration = "1h"\n[resource]\nexclude = "nosuch"\n')
        assert instance.penstock("config", "reload", str(file)).returncode == 1
        assert instance.penstock("submit", "-t", "2h", "true").returncode == 0


def test_resources_of_local_jobs_cannot_grow_beyond_this_machine(start, tmp_path):
    with start() as instance:
        bad = instance.penstock("resource", "grow", r_file(tmp_path, "1", "elsewhere", "0"))
        assert bad.returncode == 1
        assert "jobs run on this machine, which does not have ranks 1" in bad.stderr
        assert "hint: " in bad.stderr


def test_the_resource_service_answers_the_requests_of_tools(start):
    with start("--nodes=2") as instance, Client(instance.uri) as client:
        assert client.rpc("resource.ping", {"seq": 7})["seq"] == 7
        stats = client.rpc("resource.stats-get")
        assert (stats["ranks"], stats["up"], stats["acquired"]) == ("0-1", "0-1", True)
        assert rejected(instance, "groups.get", {"name": "nosuch"}).errno == errno.ENOENT
        assert IDset(client.rpc("groups.get", {"name": "broker.online"})["members"]) == IDset("0-1")
        assert rejected(instance, "resource.nosuch").errno == errno.ENOSYS
        for topic in ("resource.grow", "resource.acquire-cancel", "resource.monitor-cancel"):
            assert rejected(instance, topic).errno == errno.EPROTO
        assert rejected(instance, "resource.grow", {"R": {}}).errno == errno.EINVAL
        assert rejected(instance, "config.reload").errno == errno.EPROTO
