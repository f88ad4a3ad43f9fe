"""The log, `ping` and `stats` of a real instance."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
import trio

from penstock.aclient import connect
from penstock.client import Client
from penstock.errors import RpcError
from penstock.instance.log_service import MAX_LINE_CHARACTERS, MAX_RETAINED_LINES

PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.fixture
def instance(start):
    with start("--nodes=2") as instance:
        yield instance


def logged(client):
    return [row["text"] for row in client.dmesg()]


def test_log_lines_are_retained_and_shown(start):
    # Without a scheduler no other lines are logged.
    with start("--nodes=2", "--sched=none") as instance, Client(instance.uri) as client:
        first = next(client.dmesg())
        assert (first["level"], first["component"]) == ("info", "penstock")
        assert instance.uri in first["text"]
        client.log_append("smoke in rack ƒ", level="warning")
        client.log_append("fine print", level="debug")
        with pytest.raises(RpcError, match="unknown level `loud`"):
            client.log_append("boo", level="loud")
        *_, row, detail = client.dmesg()
        assert (row["level"], row["component"], row["text"]) == (
            *("warning", "user"),
            "smoke in rack ƒ",
        )
        assert detail["level"] == "debug"
        lines = instance.lines("dmesg")
        assert lines[-2].endswith(" user warning: smoke in rack ƒ")
        rows = [json.loads(line) for line in instance.lines("dmesg", "--json", "-c")]
        assert rows[-2] == row
        assert instance.lines("dmesg") == []


def test_the_log_on_stderr_has_the_requested_level(start, tmp_path):
    errors = tmp_path / "errors"
    with start("--nodes=2", stderr=errors) as instance, Client(instance.uri) as client:
        client.log_append("quiet", level="info")
        client.log_append("loud", level="warning")
        assert {"quiet", "loud"} <= set(logged(client))
    assert errors.read_text() == "penstock.user: loud\n"


def test_the_log_is_bounded(start):
    # Without a scheduler no other lines are logged.
    with start("--nodes=2", "--sched=none") as instance, Client(instance.uri) as client:
        client.log_append("x" * (MAX_LINE_CHARACTERS + 5), level="debug")
        last = logged(client)[-1]
        assert last == "x" * MAX_LINE_CHARACTERS + "… (5 more characters)"
        lines = [{"level": "debug", "text": str(n)} for n in range(MAX_RETAINED_LINES + 5)]
        assert not any(
            isinstance(response, RpcError) for response in client.call_many("log.append", lines)
        )
        assert logged(client) == [str(n) for n in range(5, MAX_RETAINED_LINES + 5)]


def test_the_log_is_followed_until_one_leaves(instance):
    async def main():
        with trio.fail_after(60):
            async with connect(instance.uri) as client, connect(instance.uri) as other:
                async with client.dmesg(follow=True, backlog=False) as lines:
                    assert (await client.stats("log"))["followers"] == 1
                    await other.log_append("one")
                    await other.log_append("two")
                    assert [(await anext(lines))["text"] for _ in range(2)] == ["one", "two"]
                    async with other.dmesg(follow=True) as more:
                        assert (await other.stats("log"))["followers"] == 2
                        await client.log_append("three")
                        assert (await anext(lines))["text"] == "three"
                        assert [row async for row in until(more, "three")][-2:] == ["two", "three"]
                    # The cancellation goes before the question.
                    assert (await other.stats("log"))["followers"] == 1
                assert (await client.stats("log"))["followers"] == 0
                await other.log_clear()
                assert [row async for row in client.dmesg()] == []

    async def until(rows, text):
        async for row in rows:
            yield row["text"]
            if row["text"] == text:
                return

    trio.run(main)


def test_a_follower_that_disconnects_is_removed(instance):
    command = [*PENSTOCK, "dmesg", "-f", "--new"]
    env = {**os.environ, "PENSTOCK_URI": instance.uri}
    with (
        Client(instance.uri) as client,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process,
    ):
        while not client.stats("log")["followers"]:
            pass
        client.log_append("hello")
        assert process.stdout.readline().endswith("user info: hello\n")
        process.kill()
        process.wait(timeout=60)
        while client.stats("log")["followers"]:
            pass


def test_malformed_log_requests_are_rejected(instance):
    with Client(instance.uri) as client:
        for topic, payload, errnum in (
            ("log.dmesg", {}, errno.EPROTO),
            ("log.append", {"text": "x"}, errno.EPROTO),
            ("log.append", {"level": "info", "text": 3}, errno.EPROTO),
            ("log.nosuch", {}, errno.ENOSYS),
            ("log.ping", b"[1]\0", errno.EPROTO),
        ):
            with pytest.raises(RpcError) as caught:
                client.rpc(topic, payload)
            assert caught.value.errno == errnum, topic
        with pytest.raises(RpcError, match="`follow`: expected a boolean"):
            next(client.stream("log.dmesg", {"follow": 1}))


@pytest.mark.parametrize("service", ["attr", "broker", "config", "event", "log", "resource"])
def test_services_echo_the_payload_of_a_ping(instance, service):
    with Client(instance.uri) as client:
        answer = client.rpc(f"{service}.ping", {"seq": 3, "pad": "ƒ"})
        assert {"seq": 3, "pad": "ƒ"}.items() <= answer.items()
        assert isinstance(client.stats(service), dict)
    (line,) = instance.lines("ping", "-c1", "--json", service)
    assert json.loads(line)["seconds"] > 0


def test_the_broker_counts_connections(instance):
    with Client(instance.uri) as client, Client(instance.uri) as other:
        other.ping("broker")
        stats = client.stats("broker")
        assert stats["connections"] == 2
        assert stats["services"] == len(client.services())
    lines = instance.lines("stats")
    assert any(line.startswith("job-manager.active_jobs ") for line in lines)
    assert any(line.startswith("sched.passes ") for line in lines)
