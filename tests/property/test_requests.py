"""Random requests, as guest and as owner: none costs more than itself.

The payloads are well-formed ones in which values are replaced, keys removed or bytes changed. After
each request the instance answers `broker.ping`; at the end no service has failed and no exception
was logged. A failing run prints its seed and the fewest requests that fail;
`PENSTOCK_REQUESTS=SEED` replays it, `PENSTOCK_REQUESTS_COUNT` is the number of requests.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
import trio
from simulatedsystem import OPTIONS, in_virtual_time, instance_on

from penstock._core import Decoder, Message, topic
from penstock.config import parse
from penstock.instance.control import ControlService
from penstock.instance.requests import for_all
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulatedsystem import SimulatedMachine

SEEDS = [int(os.environ["PENSTOCK_REQUESTS"])] if "PENSTOCK_REQUESTS" in os.environ else [1, 2]
COUNT = int(os.environ.get("PENSTOCK_REQUESTS_COUNT", "1200"))
SIMULATED = dataclasses.replace(
    OPTIONS,
    exec="sim",
    config=parse(
        "[access]\nallow-guest-user = true\n[queues.batch]\n[queues.debug]\n"
        '[policy.jobspec.defaults.system]\nqueue = "batch"\n'
    ),
)
STREAMING, NORESPONSE = 16, 4
CLOSED = "the connection was closed"
FAULT = re.compile("internal error|has failed")

JOBSPEC = from_command(["sleep", "1m"], environment={"A": "b"}, cwd="/")
R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}],
        "starttime": 0,
        "expiration": 0,
        "nodelist": ["node[0-1]"],
        "properties": {"fast": "0"},
    },
}
ID = 1234567
ALLOC = {
    "job": ID,
    "rank": 0,
    "host": "node0",
    "directive": 2,
    "attributes": {"PMIX_ALLOC_NUM_NODES": 1, "PMIX_ALLOC_TIME": 60, "PMIX_ALLOC_ID": "x"},
}
# Well-formed payloads. A topic that is not in the table is sent the payloads of others.
PAYLOADS: dict[str, list[dict[str, Any]]] = {
    "service.add": [{"service": "other"}],
    "service.remove": [{"service": "other"}],
    "event.subscribe": [{"topic": "job"}],
    "event.unsubscribe": [{"topic": "job"}],
    "attr.get": [{"name": "size"}],
    "config.reload": [{"config": {"queues": {"batch": {"requires": ["fast"]}, "debug": {}}}}],
    "groups.get": [{"name": "broker.online"}],
    "log.append": [{"level": "info", "text": "x"}],
    "log.clear": [{"upto": 3}],
    "log.dmesg": [{"follow": True, "nobacklog": False}, {"follow": True, "rows": True}],
    "job-ingest.submit": [
        {"jobspec": JOBSPEC, "urgency": 16, "flags": 0, "count": 2},
        {"jobspec": json.dumps(JOBSPEC)},
        {"jobs": [{"jobspec": JOBSPEC, "urgency": 1}]},
    ],
    "job-list.list": [
        {"ids": [ID], "attrs": ["all"]},
        {"constraint": {"and": [{"states": ["running"]}, {"t_run": [">=1.0"]}]}, "max_entries": 3},
        {"order": "state", "max_entries": 3},
        {"since": 1.5, "constraint": {"not": [{"userid": [0]}]}, "attrs": ["id", "ranks"]},
    ],
    "job-list.list-id": [{"id": ID, "attrs": ["all"]}],
    "job-list.wait": [{"ids": [ID]}],
    "job-info.lookup": [{"id": ID, "keys": ["eventlog", "R", "jobspec"], "flags": 1}],
    "job-info.eventlog-watch": [{"id": ID, "path": "eventlog", "flags": 0}],
    "job-manager.sched-hello": [{"partial-ok": True}],
    "job-manager.sched-ready": [{"mode": "limited", "limit": 3}, {"mode": "unlimited"}],
    "job-manager.exec-hello": [{"service": "other", "journal": "j", "releases-shrunk": True}],
    "job-manager.raise": [
        {"id": ID, "type": "cancel", "severity": 0, "note": "x", "userid": 1},
        {"ids": [ID], "type": "x", "severity": 7},
        {"all": True, "type": "x", "severity": 7},
    ],
    "job-manager.kill": [{"id": ID, "signum": 15}, {"ids": [ID], "signum": 9}],
    "job-manager.urgency": [{"id": ID, "urgency": 3}, {"ids": [ID], "urgency": 31}],
    "job-manager.prioritize": [{"jobs": [[ID, 3]]}],
    "job-manager.memo": [{"id": ID, "memo": {"a": "b"}}],
    "job-manager.update": [
        {"id": ID, "updates": {"attributes.system.duration": 9, "attributes.system.queue": "debug"}}
    ],
    "job-manager.purge-id": [{"id": ID, "force": 1}],
    "job-manager.purge": [{"age_limit": 1.5, "num_limit": 3, "force": False}, {"ids": [ID]}],
    "job-manager.queue-status": [{"name": "batch"}],
    "job-manager.queue-enable": [{"name": "batch", "enable": True, "reason": "x", "all": False}],
    "job-manager.queue-start": [{"name": "batch", "start": True, "nocheckpoint": True}],
    "job-manager.drain": [{"name": "batch"}],
    "job-manager.idle": [{"name": "batch"}],
    "job-manager.history.get": [{"slice": "[:3]", "userid": 0}],
    "kvs.commit": [
        {
            "namespace": "primary",
            "flags": 0,
            "ops": [
                {"key": "a.b", "flags": 0, "dirent": {"ver": 1, "type": "val", "data": "YQ=="}}
            ],
        },
    ],
    "kvs.lookup": [{"key": "a.b", "namespace": "primary", "flags": 0}],
    "resource.acquire": [{"grow-ok": True}],
    "resource.drain": [{"targets": "1", "reason": "x", "mode": "update"}],
    "resource.reload": [{"path": "/etc/R", "xml": False, "force": False}],
    "resource.undrain": [{"targets": "1", "mode": "force"}],
    "resource.history": [{"targets": "node0"}],
    "resource.grow": [{"R": R}],
    "resource.shrink": [{"targets": "1"}],
    "resource.property-add": [{"name": "fast", "targets": "0"}],
    "resource.property-remove": [{"name": "fast", "targets": "0"}],
    "resource.expiration": [{"expiration": 2e9}],
    "resource.monitor": [{"ranks": "0"}],
    "resource.unmonitor": [{"targets": "0"}],
    "sched.alloc": [{"id": ID, "priority": 16, "userid": 0, "t_submit": 1.5, "jobspec": JOBSPEC}],
    "sched.cancel": [{"id": ID}],
    "sched.prioritize": [{"jobs": [[ID, 3]]}],
    "sched.free": [{"id": ID, "R": R, "final": True}],
    "sched.expiration": [{"id": ID, "expiration": 2e9}],
    "sched.config-reload": [{"policy": "fcfs", "selection": "pack", "overlong": "wait"}],
    "sched.explain": [{"ids": [ID]}, {"id": ID}],
    "sched.estimate": [{"ids": [ID], "max_entries": 3}],
    "sched.what-if": [
        {"submit": JOBSPEC, "urgency": 3},
        {"cancel": ID},
        {"fit": [ID]},
        {"down": "0"},
        {"job": ID, "nodes": "0", "duration": 3},
    ],
    "feasibility.check": [{"jobspec": JOBSPEC}],
    "job-exec.start": [
        {"id": ID, "userid": 0, "jobspec": JOBSPEC, "reattach": False, "R": R, "journal": "j"}
    ],
    "job-exec.expiration": [{"id": ID, "expiration": 2e9}],
    "job-exec.kill": [{"id": ID, "signum": 9}],
    "job-exec.shrink": [{"id": ID, "ranks": "0"}],
    "job-exec.config-reload": [{"kill-timeout": 5, "output-limit": "1M"}],
    "job-exec.output": [{"id": ID, "streams": ["stdout"], "follow": True}],
    "job-exec.input": [{"id": ID, "writer": 1, "offset": 0, "data": "YQ==", "end": True}],
    "job-exec.signal": [{"id": ID, "task": 0, "signum": 10}],
    "job-exec.resize": [{"id": ID, "rows": 3, "columns": 3}],
    "hooks.prolog": [{"id": ID, "userid": 0, "R": R}],
    "hooks.epilog": [{"id": ID, "userid": 0, "R": R, "status": 0}],
    "hooks.cancel": [{"id": ID}],
    "pmix.alloc": [ALLOC, {**ALLOC, "directive": 1}, {**ALLOC, "directive": 3}],
    "pmix.cancel": [{"job": ID, "rank": 0, "id": "x"}],
    "pmix.query": [{"job": ID, "id": "x"}],
    "pmix.events": [{"job": ID, "id": "x"}],
    "pmix-exec.start": [{"id": ID, "tasks": [[0, 0, "node0"]], "reattach": False}],
    "pmix-exec.ended": [{"id": ID, "rank": 0}],
    "pmix-exec.stop": [{"id": ID}],
}
# It ends the instance, as it is meant to.
OMITTED = {"broker.shutdown"}
CANCELS = [{"matchtag": 1}]
# JSON texts, valid or not; some are beyond the range of every type.
VALUES = [
    *"null true 0 -1 1 0.5 -0.0 1e308 -1e308 1e400 NaN Infinity x".split(),
    *"2147483648 -2147483649 4294967295 4294967296 9223372036854775807".split(),
    *"9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616".split(),
    *r'"" "x" "0" "0-" "0-4294967295" "1-0" "2-" "[0-9999999]" "node[0-4294967295]"'.split(),
    *r'"\u0000" "\ud800" "\ud83d\ude00" "ƒ1" "a.b.c" "job.0" "../x" "nan" "all" "batch"'.split(),
    *'[] {} [[]] {"":{}} [null] [0,0] {"and":[]} {"not":[{"x":[]}]}'.split(),
    "[" * 100 + "]" * 100,
    "[" * 5000 + "]" * 5000,
    '{"a":' * 200 + "1" + "}" * 200,
    '"' + "x" * 70_000 + '"',
    "[1" + ",1" * 3000 + "]",
]


@dataclasses.dataclass(frozen=True)
class Request:
    """A request, and the user who sends it."""

    topic: str
    body: bytes
    flags: int = 0
    guest: bool = False
    # Seconds that pass before it.
    delay: float = 0.0


class Raw:
    """A JSON text in the place of a value."""

    def __init__(self, text: str) -> None:
        self.text = text


def topics() -> list[str]:
    """Every topic that the instance or its services have."""
    services = [each for each in vars(topic).values() if isinstance(each, type)]
    known = {
        value
        for service in services
        for name, value in vars(service).items()
        if not name.startswith("_") and "." in value
    }
    return sorted((known | set(PAYLOADS)) - OMITTED)


def encode(value: Any) -> str:
    """The JSON text of a value with raw texts in it."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        items = (f"{json.dumps(key)}:{encode(each)}" for key, each in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value)


def changed(chance: random.Random, value: Any) -> Any:
    """A value with one change at a random depth."""
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value)
    elif isinstance(value, list):
        inner = list(range(len(value)))
    if not inner or chance.random() < 0.15:
        return Raw(chance.choice(VALUES))
    key = chance.choice(inner)
    copy = value.copy()
    if chance.random() < 0.15:
        del copy[key]
    elif isinstance(copy, dict) and chance.random() < 0.1:
        copy[chance.choice(["", "x", "id", "version", "\0"])] = Raw(chance.choice(VALUES))
    else:
        copy[key] = changed(chance, value[key])
    return copy


def with_job(value: Any, job: int) -> Any:
    """A payload that names an existing job."""
    if isinstance(value, dict):
        return {key: with_job(each, job) for key, each in value.items()}
    if isinstance(value, list):
        return [with_job(each, job) for each in value]
    return job if value == ID else value


def random_requests(seed: int, count: int, jobs: list[int]) -> Iterator[Request]:
    """Requests that a seed determines, some of them about these jobs."""
    chance = random.Random(seed)
    known = topics()
    for _ in range(count):
        name = chance.choice(known)
        if chance.random() < 0.02:
            service = name.partition(".")[0]
            name = chance.choice([f"{name}.x", service, f"{service}.ping", "."])
        default = CANCELS if name.endswith("-cancel") else chance.choice(list(PAYLOADS.values()))
        payload = chance.choice(PAYLOADS.get(name, default))
        if jobs and chance.random() < 0.7:
            payload = with_job(payload, chance.choice(jobs))
        for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
            if not isinstance(payload, Raw):
                payload = changed(chance, payload)
        body = encode(payload).encode("utf-8", "surrogatepass") + b"\0"
        if chance.random() < 0.05:
            cut = chance.randrange(len(body))
            body = body[:cut] + chance.randbytes(chance.randrange(3)) + body[cut + 1 :]
        flags = chance.choice([0, 0, 0, STREAMING, STREAMING, STREAMING, NORESPONSE])
        delay = chance.choice([0.001, 0.1, 30.0]) if chance.random() < 0.05 else 0.0
        yield Request(name, body, flags, chance.random() < 0.4, delay)


class Peer:
    """A connection to the instance that ignores all responses but those to its own pings."""

    def __init__(self, machine: SimulatedMachine, uid: int) -> None:
        self._machine = machine
        self._uid = uid
        self._sequence = 0

    async def connect(self) -> None:
        """Connects, or connects again."""
        network = self._machine.network
        network.uid = self._uid
        self._stream = await network.open(f"local://{OPTIONS.socket}")
        self._decoder = Decoder()

    async def send(self, request: Request, tag: int) -> str | None:
        """Sends a request. Returns what is wrong after it, if anything is."""
        message = Message.request(request.topic, request.body, matchtag=tag, flags=request.flags)
        fault = await self._exchange(message, tag)
        if fault is not None:
            return fault
        self._sequence += 1
        ping = Message.request("broker.ping", {"seq": self._sequence}, matchtag=tag + 1)
        return await self._exchange(ping, tag + 1, is_ping=True)

    async def _exchange(self, message: Message, tag: int, *, is_ping: bool = False) -> str | None:
        await self._stream.send_all(message.encode())
        if not is_ping:
            return None
        with trio.move_on_after(60):
            while data := await self._stream.receive_some(1 << 20):
                for response in self._decoder.feed(data):
                    if response.kind == "request":
                        continue
                    text = response.error_text or ""
                    if response.errnum == errno.EIO and FAULT.search(text):
                        return text
                    if response.kind == "response" and response.matchtag == tag:
                        return (
                            None if response.object()["seq"] == self._sequence else "wrong response"
                        )
            return CLOSED
        return "no response to broker.ping"


def job(duration: str) -> dict[str, Any]:
    """A simulated job."""
    return from_command(["x"], queue="batch", setattr={"exec.test.run_duration": duration})


def run(requests: list[Request] | None, seed: int) -> tuple[list[Request], str] | None:
    """Sends requests, by default the random ones of a seed. Returns those until a fault, and it."""
    sent: list[Request] = []
    faults: list[str] = []

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, SIMULATED) as client:
            jobs = [await client.submit(job(duration)) for duration in ["1s", *["1h"] * 5]]
            await trio.sleep(60)
            peers = [Peer(machine, machine.host.uid), Peer(machine, machine.host.uid + 1)]
            for peer in peers:
                await peer.connect()
            chosen = requests if requests is not None else random_requests(seed, COUNT, jobs)
            for number, request in enumerate(chosen):
                sent.append(request)
                if request.delay:
                    await trio.sleep(request.delay)
                peer = peers[request.guest]
                fault = await peer.send(request, 2 * number + 1)
                if fault == CLOSED and request.body[0] >= 0x80:
                    # The payload is taken for CBOR, in which the end of the frame may be lost.
                    await peer.connect()
                elif fault is not None:
                    faults.append(fault)
                    return
            await trio.sleep(600)
            machine.network.uid = machine.host.uid
            async with machine.network.connect(f"local://{OPTIONS.socket}") as last:
                stats = await last.rpc("broker.stats-get")
                if stats["failures"] or (await last.rpc("log.stats-get"))["faults"]:
                    faults.append(f"failures: {stats}")
                for service in ("job-manager", "resource", "sched", "hooks", "pmix-exec"):
                    await last.rpc(f"{service}.ping", {})

    in_virtual_time(scenario)
    return (sent, faults[0]) if faults else None


def reduced(requests: list[Request], seed: int) -> list[Request]:
    """The fewest requests, found by removal, after which there is a fault."""
    size = len(requests)
    while size:
        start = 0
        while start < len(requests):
            rest = requests[:start] + requests[start + size :]
            if rest and run(rest, seed) is not None:
                requests = rest
            else:
                start += size
        size //= 2
    return requests


@pytest.mark.parametrize("seed", SEEDS)
def test_random_requests_cost_themselves_only(seed, caplog):
    found = run(None, seed)
    if found is None:
        tracebacks = [record for record in caplog.records if record.exc_info]
        assert tracebacks == []
        return
    requests, fault = found
    # In most cases the last one suffices.
    requests = requests[-1:] if run(requests[-1:], seed) else reduced(requests, seed)
    shown = "\n".join(map(repr, requests))
    pytest.fail(f"PENSTOCK_REQUESTS={seed}: {fault}\n{shown}")


def test_a_faulty_request_is_found_and_reduced_to(monkeypatch):
    def fail(*_args: object) -> None:
        raise ValueError("on demand")

    monkeypatch.setitem(ControlService.METHODS, "state-machine.get", for_all(fail))
    faulty = Request("state-machine.get", b"{}\0")
    chosen = [request for request in random_requests(1, 20, []) if request.topic != faulty.topic]
    found = run([*chosen, faulty, *chosen], 1)
    assert found is not None
    assert found[0] == [*chosen, faulty]
    assert reduced(found[0], 1) == [faulty]
