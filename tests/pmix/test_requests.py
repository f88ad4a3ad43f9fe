"""Requests of a program as the server forwards them: every attribute has its own type."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pmixdaemon import compile_program, ended_well, finish, requests, server_program
from tests.conformance.requirements import requirement

if TYPE_CHECKING:
    from collections.abc import Callable

    from pmixdaemon import Daemon

    Start = Callable[..., Daemon]

WORDS = [
    "pmix.alloc.reqid:string=mine",
    "pmix.alloc.id:string=ƒ3",
    "pmix.alloc.nnodes:uint64=18446744073709551615",
    "pmix.alloc.nlist:regex=node08,node09,node11,login",
    ":blank=",
    "pmix.alloc.ncpus:nodes=node1,node2/3,2",
    "pmix.alloc.cpulist:string=0-1;2",
    "pmix.alloc.msize:float=1.5",
    "pmix.alloc.time:uint32=4294967295!",
    "pmix.alloc.time:string=1:2:3:4:5",
    "pmix.alloc.net:network=eth0/fast!",
    "pmix.alloc.queue:string=batch",
    "pmix.timeout:int=-1",
]


def attribute(key: str, kind: str, value: Any, *, required: bool = False) -> dict[str, Any]:
    """An attribute as the instance receives it."""
    return {"key": key, "type": kind, "value": value, "required": required}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that asks for what its arguments say, compiled."""
    server_program()
    source = Path(__file__).with_name("attributes.c")
    return compile_program(source, tmp_path_factory.mktemp("attributes"))


@requirement(
    "pmix5.server.forward",
    "pmix5.attributes.array",
    "pmix5.attributes.network",
    "pmix5.attributes.time",
)
def test_every_attribute_comes_in_its_type(start: Start, program: Path) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": 0, "results": []})
    [(code, lines)] = finish(daemon.run(program, ["2", *WORDS]))
    assert (code, lines) == (0, ["status: 0"])
    [request] = requests(daemon, "pmix.alloc")
    payload = request.object()
    assert (payload["rank"], payload["directive"]) == (0, 2)
    hosts = attribute("pmix.alloc.nlist", "string", "node1,node2")
    net = [
        attribute("pmix.alloc.netid", "string", "eth0"),
        attribute("pmix.alloc.bw", "float", 1.5),
        attribute("pmix.alloc.netqos", "string", "fast"),
    ]
    # The output of PMIx_generate_regex depends on the version.
    regex = payload["attributes"][3]["value"]
    assert regex in ("pmix[node[2:8-9,11],login]", "node08,node09,node11,login")
    assert payload["attributes"] == [
        attribute("pmix.alloc.reqid", "string", "mine"),
        attribute("pmix.alloc.id", "string", "ƒ3"),
        attribute("pmix.alloc.nnodes", "uint64", 2**64 - 1),
        attribute("pmix.alloc.nlist", "string", regex),
        attribute(
            "pmix.alloc.ncpus", "array", [hosts, attribute("pmix.alloc.ncpulist", "string", "3,2")]
        ),
        attribute("pmix.alloc.cpulist", "string", "0-1;2"),
        attribute("pmix.alloc.msize", "float", 1.5),
        attribute("pmix.alloc.time", "uint32", 2**32 - 1, required=True),
        attribute("pmix.alloc.time", "string", "1:2:3:4:5"),
        attribute("pmix.alloc.net", "array", net, required=True),
        attribute("pmix.alloc.queue", "string", "batch"),
        attribute("pmix.timeout", "int", -1),
    ]
    ended_well(daemon)


@pytest.mark.parametrize("directive", [1, 2, 3, 4, 5, 6, 128, 255])
def test_every_directive_is_the_instances_to_judge(
    start: Start, program: Path, directive: int
) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": -47, "reason": "no", "results": []})
    [(code, lines)] = finish(daemon.run(program, [str(directive)]))
    assert (code, lines) == (0, ["status: -47"])
    [request] = requests(daemon, "pmix.alloc")
    assert request.object() == {"rank": 0, "directive": directive, "attributes": []}
    ended_well(daemon)


@pytest.mark.parametrize(
    "status", [-29, -23, -47, -27, -46, -180, -24, -25], ids=lambda status: f"status{status}"
)
@requirement("pmix5.answer.status")
def test_every_denial_comes_as_its_code(start: Start, program: Path, status: int) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": status, "reason": "no", "results": []})
    [(code, lines)] = finish(daemon.run(program, ["1", "pmix.alloc.nnodes:uint64=1"]))
    assert (code, lines) == (0, [f"status: {status}"])
    ended_well(daemon)
