"""Malformed requests to services of the daemon and to `penstock-exec`: EPROTO, by topic and key."""

from __future__ import annotations

import errno
import itertools
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from simulatedsystem import in_virtual_time, instance_on

from penstock import aclient
from penstock.client import Client
from penstock.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulatedsystem import SimulatedMachine

ID = "a non-negative integer"
U32 = "an integer from 0 to 4294967295"

# Every method with a payload: a well-formed payload, the required keys, and the expected type of
# each key.
Method = tuple[str, dict[str, Any], set[str], dict[str, str]]
METHODS: list[Method] = [
    ("service.add", {"service": "x"}, {"service"}, {"service": "a string"}),
    ("service.remove", {"service": "x"}, {"service"}, {"service": "a string"}),
    ("event.subscribe", {"topic": "x"}, {"topic"}, {"topic": "a string"}),
    ("event.unsubscribe", {"topic": "x"}, {"topic"}, {"topic": "a string"}),
    ("attr.get", {"name": "size"}, {"name"}, {"name": "a string"}),
    ("config.reload", {"config": {}}, {"config"}, {"config": "an object"}),
    (
        "log.append",
        {"level": "info", "text": "x"},
        {"level", "text"},
        {"level": "a string", "text": "a string"},
    ),
    ("log.clear", {"upto": 1}, set(), {"upto": "an integer"}),
    (
        "log.dmesg",
        {"follow": False},
        set(),
        {"follow": "a boolean", "nobacklog": "a boolean", "rows": "a boolean"},
    ),
    ("log.dmesg-cancel", {"matchtag": 1}, {"matchtag"}, {"matchtag": U32}),
    (
        "hooks.prolog",
        {"id": 1, "userid": 0},
        {"id", "userid"},
        {"id": ID, "userid": U32, "status": "a 32-bit integer"},
    ),
    ("hooks.epilog", {"id": 1, "userid": 0}, {"id", "userid"}, {"id": ID, "userid": U32}),
    ("hooks.cancel", {"id": 1}, {"id"}, {"id": ID}),
    (
        "pmix-exec.start",
        {"id": 1, "directory": "/nonexistent", "tasks": []},
        {"id", "directory", "tasks"},
        {"id": ID, "directory": "a string", "tasks": "an array of objects"},
    ),
    ("pmix-exec.ended", {"id": 1, "rank": 0}, {"id", "rank"}, {"id": ID, "rank": U32}),
    ("pmix-exec.stop", {"id": 1}, {"id"}, {"id": ID}),
    (
        "broker.shutdown",
        {},
        set(),
        {"keep_running": "a boolean", "restart": "a boolean"},
    ),
]
EXEC_METHODS: list[Method] = [
    (
        "job-exec.kill",
        {"id": 1, "signum": 15},
        {"id", "signum"},
        {"id": ID, "signum": "a 32-bit integer"},
    ),
    (
        "job-exec.expiration",
        {"id": 1, "expiration": 0},
        {"id", "expiration"},
        {"id": ID, "expiration": "a number"},
    ),
    ("job-exec.shrink", {"id": 1, "ranks": "0"}, {"id", "ranks"}, {"id": ID}),
    ("job-exec.replaced", {"service": "x"}, {"service"}, {"service": "a string"}),
    (
        "job-exec.output",
        {"id": 1},
        {"id"},
        {"id": ID, "streams": "an array", "follow": "a boolean", "unbuffered": "a boolean"},
    ),
    (
        "job-exec.input",
        {"id": 1, "writer": 1, "offset": 0},
        {"id", "writer", "offset"},
        {"id": ID, "data": "a string", "end": "a boolean", "task": U32},
    ),
    (
        "job-exec.signal",
        {"id": 1, "task": 0, "signum": 10},
        {"id", "task", "signum"},
        {"id": ID, "task": U32},
    ),
    (
        "job-exec.resize",
        {"id": 1, "rows": 1, "columns": 1},
        {"id", "rows", "columns"},
        {"id": ID},
    ),
    ("job-exec.output-cancel", {"matchtag": 1}, {"matchtag"}, {"matchtag": U32}),
]
STREAMING = {"log.dmesg", "pmix-exec.start", "job-exec.output"}
# A value of the wrong type for every expectation, and its name.
WRONG: dict[str, tuple[Any, str]] = {
    "a string": ([1], "an array"),
    "an object": ([1], "an array"),
    "an array": ({}, "an object"),
    "an array of objects": ({}, "an object"),
    "a boolean": ("yes", 'string "yes"'),
    "a number": ("soon", 'string "soon"'),
}
NO_NUMBER: tuple[Any, str] = ({}, "an object")


async def drain(client: aclient.Client, topic: str, body: bytes) -> None:
    async with client.stream(topic, body) as responses:
        async for _ in responses:
            pass


Error = tuple[int | None, str | None]


async def rejection(client: aclient.Client, topic: str, payload: Any) -> Error:
    """The errno and the text with which a request is rejected."""
    body = json.dumps(payload).encode() + b"\0"
    with pytest.raises(RpcError) as caught:
        await (drain if topic in STREAMING else aclient.Client.rpc)(client, topic, body)
    return caught.value.errno, caught.value.strerror


def malformed(method: Method) -> Iterator[tuple[Any, str]]:
    """Malformed payloads of a method, and the text of the error of each."""
    topic, payload, required, types = method
    yield [payload], f"{topic}: expected an object, found an array"
    yield "x", f'{topic}: expected an object, found string "x"'
    for key in required:
        sent = {name: value for name, value in payload.items() if name != key}
        yield sent, f"{topic}: missing key `{key}`"
    for key, expected in types.items():
        value, found = WRONG.get(expected, NO_NUMBER)
        yield {**payload, key: value}, f"{topic}: `{key}`: expected {expected}, found {found}"


@pytest.mark.parametrize("method", METHODS, ids=[topic for topic, *_ in METHODS])
def test_a_malformed_request_is_rejected_by_topic_and_key(method):
    topic = method[0]

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            for sent, text in malformed(method):
                assert await rejection(client, topic, sent) == (errno.EPROTO, text)
            # None of them has touched the service.
            assert (await client.rpc(f"{topic.partition('.')[0]}.ping", {"seq": 1}))["seq"] == 1

    in_virtual_time(scenario)


def test_the_execution_service_rejects_malformed_requests_by_topic_and_key(start):
    with start() as instance, Client(instance.uri, timeout=60) as client:
        for method in EXEC_METHODS:
            topic = method[0]
            for sent, text in malformed(method):
                body = json.dumps(sent).encode() + b"\0"
                with pytest.raises(RpcError) as caught:
                    [*client.stream(topic, body)] if topic in STREAMING else client.rpc(topic, body)
                assert (caught.value.errno, caught.value.strerror) == (errno.EPROTO, text)
        body = {"id": 1, "ranks": "3-"}
        with pytest.raises(RpcError, match=r"job-exec\.shrink: `ranks`: "):
            client.rpc("job-exec.shrink", body)
        assert client.rpc("job-exec.ping", {"seq": 1})["seq"] == 1


def test_a_start_request_with_an_empty_jobspec_fails_its_job_alone(start):
    r = {
        "version": 1,
        "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["a"]},
    }
    request = {"id": 1, "userid": os.geteuid(), "jobspec": {}, "reattach": False, "R": r}
    with start() as instance, Client(instance.uri, timeout=60) as client:
        (raised, released) = itertools.islice(client.stream("job-exec.start", request), 2)
        assert (raised["type"], released["type"]) == ("exception", "release")
        assert raised["data"]["severity"] == 0
        assert "expected the key `version`" in raised["data"]["note"]
        assert client.rpc("job-exec.ping", {"seq": 1})["seq"] == 1
        assert instance.penstock("run", "true").returncode == 0


def test_text_that_is_no_json_is_rejected_with_the_byte():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            with pytest.raises(RpcError) as caught:
                await client.rpc("attr.get", b'{"name": size}\0')
            assert caught.value.errno == errno.EPROTO
            assert caught.value.strerror.startswith("attr.get: invalid JSON: ")
            assert caught.value.strerror.endswith(" at byte 10")

    in_virtual_time(scenario)


@pytest.mark.parametrize("topic", ["", "a\0b", "\0"])
def test_an_event_has_a_topic_that_a_message_can_have(topic):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            found = await rejection(client, "event.publish", {"topic": topic, "flags": 0})
            text = "event.publish: `topic`: expected a word without NUL"
            assert found == (errno.EPROTO, text)

    in_virtual_time(scenario)
