"""Malformed requests to the services in Python: rejected with EPROTO, by topic and key."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

import pytest
from simulatedsystem import in_virtual_time, instance_on

from penstock.aclient import Client
from penstock.errors import RpcError

if TYPE_CHECKING:
    from simulatedsystem import SimulatedMachine

ID = "a non-negative integer"
U32 = "an integer from 0 to 4294967295"
JOB: dict[str, Any] = {"id": 1, "userid": 0, "jobspec": {}}

# Every method with a payload: a well-formed payload, the required keys, and the expected type of
# each key.
METHODS: list[tuple[str, dict[str, Any], set[str], dict[str, str]]] = [
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
    ("log.dmesg", {"follow": False}, set(), {"follow": "a boolean", "nobacklog": "a boolean"}),
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
        "job-exec.start",
        JOB,
        {"id", "userid", "jobspec"},
        {"id": ID, "userid": U32, "jobspec": "an object", "reattach": "a boolean"},
    ),
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
        {"id": ID, "streams": "an array", "follow": "a boolean"},
    ),
    ("job-exec.output-cancel", {"matchtag": 1}, {"matchtag"}, {"matchtag": U32}),
]
STREAMING = {"log.dmesg", "job-exec.start", "job-exec.output"}
# A value of the wrong type for every expectation, and its name.
WRONG: dict[str, tuple[Any, str]] = {
    "a string": ([1], "an array"),
    "an object": ([1], "an array"),
    "an array": ({}, "an object"),
    "a boolean": ("yes", 'string "yes"'),
    "a number": ("soon", 'string "soon"'),
}
NO_NUMBER: tuple[Any, str] = ({}, "an object")


async def drain(client: Client, topic: str, body: bytes) -> None:
    async with client.stream(topic, body) as responses:
        async for _ in responses:
            pass


async def rejection(client: Client, topic: str, payload: Any) -> tuple[int | None, str | None]:
    """The errno and the text with which a request is rejected."""
    body = json.dumps(payload).encode() + b"\0"
    with pytest.raises(RpcError) as caught:
        await (drain if topic in STREAMING else Client.rpc)(client, topic, body)
    return caught.value.errno, caught.value.strerror


@pytest.mark.parametrize(
    ("topic", "payload", "required", "types"), METHODS, ids=[topic for topic, *_ in METHODS]
)
def test_a_malformed_request_is_rejected_by_topic_and_key(topic, payload, required, types):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:

            async def error(sent: Any) -> str | None:
                errnum, text = await rejection(client, topic, sent)
                assert errnum == errno.EPROTO
                return text

            assert await error([payload]) == f"{topic}: expected an object, found an array"
            assert await error("x") == f'{topic}: expected an object, found string "x"'
            for key in required:
                sent = {name: value for name, value in payload.items() if name != key}
                assert await error(sent) == f"{topic}: missing key `{key}`"
            for key, expected in types.items():
                value, found = WRONG.get(expected, NO_NUMBER)
                text = f"{topic}: `{key}`: expected {expected}, found {found}"
                assert await error({**payload, key: value}) == text
            # None of them has touched the service.
            assert (await client.rpc(f"{topic.partition('.')[0]}.ping", {"seq": 1}))["seq"] == 1

    in_virtual_time(scenario)


def test_ranks_that_are_no_idset_are_rejected_by_their_key():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            found = await rejection(client, "job-exec.shrink", {"id": 1, "ranks": "3-"})
            assert found[0] == errno.EPROTO
            assert found[1].startswith("job-exec.shrink: `ranks`: ")

    in_virtual_time(scenario)


def test_text_that_is_no_json_is_rejected_with_the_byte():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            with pytest.raises(RpcError) as caught:
                await client.rpc("attr.get", b'{"name": size}\0')
            assert caught.value.errno == errno.EPROTO
            assert caught.value.strerror.startswith("attr.get: invalid JSON: ")
            assert caught.value.strerror.endswith(" at byte 10")

    in_virtual_time(scenario)
