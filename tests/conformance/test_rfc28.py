"""RFC 28, acquisition: the scheduler, and the resource service of an instance."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys

import pytest
from tests.conformance.harness import (
    DENY,
    Manager,
    Sched,
    Wire,
    allocs,
    granted,
    inventory,
    requests,
    topics,
)
from tests.conformance.requirements import requirement

from penstock import IDset, ResourceSet
from penstock._core import Scheduler
from penstock.client import Client
from penstock.clock import SystemClock
from penstock.errors import RpcError
from penstock.sched import _converse


@pytest.fixture
def provider(start):
    """A client of an instance of four simulated nodes without a scheduler, and its acquire."""
    options = ["--nodes=4", "--cores=2", "--sched=none"]
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        yield client, client.stream("resource.acquire")


@requirement("rfc28.general.acquire", "rfc28.request.empty")
def test_the_scheduler_acquires_before_anything_else():
    # By default the scheduler requests Penstock's own `grow`.
    (request,) = Sched().register()
    assert (request.topic, request.object()) == ("resource.acquire", {"grow-ok": True})
    sched = Sched(grow=False)
    assert set(topics(sched.sent_first)) == {"service.add"}
    sent = sched.register()
    assert topics(sent) == ["resource.acquire"]
    assert (sent[0].streaming, sent[0].payload) == (True, None)
    # The stream stays open for later changes.
    sched.acquire(inventory(2, 1), up="")
    sched.end_hello()
    sched.respond("job-manager.sched-ready", {"count": 0})
    assert granted(sched.alloc(1)) == {}
    assert list(granted(sched.change(up="1"))) == [1]


@requirement("rfc28.request.empty", "rfc28.initial.resources", "rfc28.initial.up")
def test_the_first_response_has_the_inventory_without_exclusions_and_up(start, tmp_path):
    config = tmp_path / "penstock.toml"
    config.write_text("[resource]\nexclude = '3'\n")
    options = ["--nodes=4", "--cores=2", "--sched=none", "--config", str(config)]
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        client.drain("1")
        first = next(client.stream("resource.acquire"))
        resources = ResourceSet(first["resources"])
        assert (str(resources.ranks), resources.ncores) == ("0-2", 6)
        assert str(resources.nodelist) == "node[0-2]"
        assert first["up"] == "0,2"
    # The scheduler needs both keys.
    whole = {"resources": inventory().to_dict(), "up": "0-3"}
    for missing in whole:
        sched = Sched()
        sched.register()
        sched.respond("resource.acquire", {key: whole[key] for key in whole if key != missing})
        assert sched.phase == "failed"
        assert missing in sched.scheduler.failure


@requirement("rfc28.initial.allocate-up")
def test_only_targets_that_are_up_are_allocated():
    sched = Sched.running(inventory(4, 1), up="1,3")
    granted_ranks = IDset()
    for job in range(4):
        for r in granted(sched.alloc(job)).values():
            granted_ranks |= r.ranks
    assert str(granted_ranks) == "1,3"
    # A job that fits the inventory, but not the targets that are up, is not denied.
    assert DENY not in [response["type"] for response in allocs(sched.alloc(9, nodes=4))]


@requirement(
    "rfc28.additional.keys",
    "rfc28.additional.drained",
    "rfc28.additional.up",
    "rfc28.additional.up-changes",
    "rfc28.additional.down",
    "rfc28.additional.down-changes",
)
def test_changes_hold_transitions_only(provider):
    client, changes = provider
    assert next(changes)["up"] == "0-3"
    client.drain("0-1")
    assert next(changes) == {"down": "0-1"}
    # One of these is down already.
    client.drain("1-2")
    assert next(changes) == {"down": "2"}
    # Without a change there is no response: the next one is of the request after.
    client.drain("0-2")
    client.undrain("0,2")
    assert next(changes) == {"up": "0,2"}


@requirement("rfc28.additional.up", "rfc28.additional.down")
def test_the_scheduler_follows_up_and_down():
    sched = Sched.running(inventory(2, 1), up="0")
    sched.change(up="1", down="0")
    assert granted(sched.alloc(1))[1].summary() == "rank1/core0"
    assert granted(sched.alloc(2)) == {}
    assert granted(sched.change(up="0"))[2].summary() == "rank0/core0"


def add(client, name, targets):
    """Adds a property to targets."""
    client.rpc("resource.property-add", {"name": name, "targets": targets})


def remove(client, name, targets):
    """Removes a property from targets."""
    client.rpc("resource.property-remove", {"name": name, "targets": targets})


@requirement("rfc28.additional.property-add", "rfc28.additional.property-remove")
def test_properties_are_added_and_removed(provider):
    client, changes = provider
    next(changes)
    add(client, "big", "0-1")
    assert next(changes) == {"property-add": {"big": "0-1"}}
    add(client, "big", "1-2")
    assert next(changes) == {"property-add": {"big": "2"}}
    remove(client, "big", "0,2")
    assert next(changes) == {"property-remove": {"big": "0,2"}}


@requirement(
    "rfc28.initial.satisfiability",
    "rfc28.additional.property-add",
    "rfc28.additional.properties-decide",
    "rfc28.additional.property-remove",
)
def test_the_scheduler_follows_properties():
    sched = Sched.running(inventory(2, 1))
    big = {"constraints": {"properties": ["big"]}}
    assert [response["type"] for response in allocs(sched.alloc(1, **big))] == [DENY]
    sched.change(property_add={"big": "1"})
    assert str(granted(sched.alloc(2, **big))[2].ranks) == "1"
    sched.free(2)
    sched.change(property_remove={"big": "1"})
    assert [response["type"] for response in allocs(sched.alloc(3, **big))] == [DENY]


@requirement("rfc28.additional.expiration")
def test_a_new_expiration_of_the_resources_is_sent(provider):
    client, changes = provider
    next(changes)
    end = 4102444800.5
    client.rpc("resource.expiration", {"expiration": end})
    assert next(changes) == {"expiration": end}


@requirement("rfc28.additional.expiration")
def test_the_scheduler_follows_the_expiration_of_the_resources():
    sched = Sched.running(inventory(2, 1))
    sched.change(expiration=1105.0)
    # No R outlasts the resources, whatever the job requests.
    assert granted(sched.alloc(1))[1].expiration == 1105.0
    assert granted(sched.alloc(2, duration=1000))[2].expiration == 1105.0
    sched.free(1)
    sched.change(expiration=9000.0)
    assert granted(sched.alloc(3))[3].expiration == 9000.0
    # After their expiration nothing is allocated.
    sched.free(3)
    sched.change(expiration=sched.now)
    assert granted(sched.alloc(4)) == {}


@requirement("rfc28.additional.no-exception")
def test_a_job_on_a_target_that_goes_down_is_left_alone():
    sched = Sched.running(inventory(2, 2))
    sched.alloc(1, nodes=2, cores=2)
    assert sched.change(down="0-1") == []
    # The free comes as usual, and targets that are down are not allocated again.
    sent = sched.alloc(2) + sched.free(1)
    assert granted(sent) == {}
    assert not [
        message for message in sent if "raise" in (message.topic or "") or message.kind == "event"
    ]
    assert list(granted(sched.change(up="1"))) == [2]


@requirement("rfc28.error.exit")
def test_the_scheduler_logs_an_error_to_acquire_and_exits(caplog):
    caplog.set_level(logging.INFO)
    wire = Wire({"service.add": [{}], "resource.acquire": [{"errnum": errno.EBUSY}]})
    readable = lambda sources, _delay: sources[:1]  # noqa: E731
    assert _converse(wire, Scheduler(), SystemClock(), None, readable) == 1
    assert wire.topics[-1] == "resource.acquire"
    assert f"resource.acquire failed: {os.strerror(errno.EBUSY)}" in caplog.text
    # Also as the end of a stream that started well.
    sched = Sched.running()
    sched.respond("resource.acquire", errnum=errno.ENODATA)
    assert sched.phase == "failed"


def acquired(client):
    """The first response of an acquire, once no other client has the resources."""
    for _ in range(10_000):
        stream = client.stream("resource.acquire")
        try:
            return next(stream)
        except RpcError as error:
            if error.errno != errno.EBUSY:
                raise
    raise AssertionError("the resources were never released")


@requirement("rfc28.disconnect.release", "rfc28.disconnect.jobs")
def test_a_disconnect_ends_the_acquire_and_no_job(start):
    with start("--nodes=2", "--sched=none") as instance, Client(instance.uri, timeout=60) as client:
        instance.lines("submit", "--time-limit=1h", "true")
        number = client.job_rows(constraint={})[0]["id"]
        command = [sys.executable, "-m", "penstock", "sched", "--uri", instance.uri]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            assert any(event["name"] == "start" for event in client.eventlog(number, follow=True))
            stream = client.stream("resource.acquire")
            with pytest.raises(RpcError) as busy:
                next(stream)
            assert busy.value.errno == errno.EBUSY
            process.kill()
        first = acquired(client)
        assert (str(ResourceSet(first["resources"]).ranks), first["up"]) == ("0-1", "0-1")
        events = client.lookup(number, "eventlog")["eventlog"]
        assert '"exception"' not in events
        assert '"free"' not in events
        (row,) = client.job_rows(constraint={})
        assert row["state"] == 16


@requirement("rfc28.disconnect.jobs")
def test_a_job_ends_normally_after_its_scheduler_disconnected():
    manager = Manager()
    job = manager.running()
    assert topics(manager.disconnect(b"sched")) == []
    assert manager.row(job)["state"] == 16
    # No scheduler gets the free, and hello does not announce the job to the next one.
    assert requests(manager.finish(job), "sched.free") == []
    assert manager.row(job)["state"] == 64
    assert len(manager.hello()) == 1
