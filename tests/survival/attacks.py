"""The attacks of a guest that crowd others out: a function for one round of each.

`bench/attacks.py` measures the owner's submissions meanwhile; `tests/instance/test_attacks.py` runs
each attack for some rounds.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import socket
import struct
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock._core import STREAMING, Batch, Decoder, Message
from penstock.client import Client
from penstock.errors import Error
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.sharedctypes import Synchronized

    # Of one round: the address of the instance, the number of the round.
    Attack = Callable[[str, int], None]

GUEST_UID = 54321
CONFIG = """
[access]
allow-guest-user = true
[job-manager]
inactive-num-limit = 1000
"""
OPTIONS = ("--nodes=8", "--cores=4", "--exec=sim")
SPEC = from_command(["true"], environment={}, cwd="/", setattr={"exec.test.run_duration": "0s"})
MIB = 1 << 20
TIMEOUT_S = 60.0
# Seconds between two attempts to connect when the instance rejects them.
PAUSE_S = 0.001


def _raw(uri: str) -> socket.socket | None:
    """A connection that sends any bytes; None if the instance rejects it."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_S)
    with suppress(OSError):
        connection.connect(uri.removeprefix("local://"))
        if connection.recv(1) == b"\0":
            return connection
    connection.close()
    return None


def _exchange(uri: str, requests: list[Message]) -> None:
    """Sends requests, and reads until each has a response or the connection is closed."""
    connection = _raw(uri)
    if connection is None:
        return
    decoder = Decoder()
    left = len(requests)
    with connection, suppress(OSError):
        connection.sendall(Batch(requests).encode())
        while left > 0 and (data := connection.recv(MIB)):
            left -= len(decoder.feed(data))


def connections(uri: str, number: int) -> None:
    """300 connections at once, more than a guest may have."""
    held = [_raw(uri) for _ in range(300)]
    for connection in held:
        if connection is not None:
            connection.close()


def large_requests(uri: str, number: int) -> None:
    """Five drains of 12 MiB, which stay outstanding until the connection is closed."""
    connection = _raw(uri)
    if connection is None:
        return
    with connection, suppress(OSError):
        for tag in range(1, 6):
            request = Message.request("job-manager.drain", {"x": "x" * (12 * MIB)}, matchtag=tag)
            connection.sendall(Batch([request]).encode())
        ping = Message.request("broker.ping", {}, matchtag=9)
        connection.sendall(Batch([ping]).encode())
        connection.recv(MIB)


def forged_routes(uri: str, number: int) -> None:
    """200 drains with 1,000 routes of no peer, and a connection closed at once."""
    routes = b"".join(b"\x24%036d" % hop for hop in range(1000))
    frames = []
    for tag in range(1, 201):
        request = Message.request("job-manager.drain", {}, matchtag=tag)
        # Magic, length, and the parts, of which the routes are the first.
        frame = Batch([request]).encode()
        length = struct.pack(">I", len(frame) - 8 + len(routes))
        frames.append(frame[:4] + length + routes + frame[8:])
    connection = _raw(uri)
    if connection is None:
        return
    with connection, suppress(OSError):
        connection.sendall(b"".join(frames))


def drain_flood(uri: str, number: int) -> None:
    """1,000 drains, which stay outstanding until the connection is closed."""
    connection = _raw(uri)
    if connection is None:
        return
    requests = [Message.request("job-manager.drain", {}, matchtag=tag) for tag in range(1, 1001)]
    requests.append(Message.request("broker.ping", {}, matchtag=1001))
    with connection, suppress(OSError):
        connection.sendall(Batch(requests).encode())
        connection.recv(MIB)


def repeated_keys(uri: str, number: int) -> None:
    """A lookup that names one document as often as it may."""
    with Client(uri, timeout=TIMEOUT_S) as client:
        job = client.submit(SPEC, urgency=0)
        client.rpc("job-info.lookup", {"id": job, "keys": ["jobspec"] * 1_000})
        client.cancel([job])


def many_copies(uri: str, number: int) -> None:
    """A submission of 500,000 copies, then one of 10,000, cancelled at once."""
    with Client(uri, timeout=TIMEOUT_S) as client:
        with suppress(Error):
            client.submit(SPEC, count=500_000, urgency=0)
        with suppress(Error):
            client.cancel(client.submit(SPEC, count=10_000, urgency=0))


def unfinished_lists(uri: str, number: int) -> None:
    """The first parts of 1,000 lists that have no further ones, and a closed connection."""
    requests = [
        Message.request(
            "job-ingest.submit-part",
            {
                "token": f"{number}-{tag}",
                "part": 0,
                "more": True,
                "jobs": [{"jobspec": SPEC, "urgency": 0}] * 100,
            },
            matchtag=tag,
        )
        for tag in range(1, 1001)
    ]
    _exchange(uri, requests)


def invalid_lists(uri: str, number: int) -> None:
    """Lists of 5,000 jobspecs with long errors and a valid one; every second one is independent."""
    invalid = from_command(["true"], environment={}, cwd="/", setattr={"queue": "x" * 200})
    jobs = [*[{"jobspec": invalid}] * 5000, {"jobspec": SPEC}]
    requests = [
        Message.request(
            "job-ingest.submit",
            {"token": f"{number}-{tag}", "independent": tag % 2 == 0, "jobs": jobs},
            matchtag=tag,
        )
        for tag in range(1, 9)
    ]
    _exchange(uri, requests)


def long_names(uri: str, number: int) -> None:
    """Jobs with names as long as is permitted, and lists of them."""
    with Client(uri, timeout=TIMEOUT_S) as client:
        ids = []
        for size in (MIB - 4096, 200, 200):
            spec = {**SPEC, "attributes": {"system": {**SPEC["attributes"]["system"]}}}
            spec["attributes"]["system"]["job"] = {"name": "x" * size}
            with suppress(Error):
                ids.append(client.submit(spec, urgency=0))
        for _ in range(10):
            client.job_rows()
        client.cancel(ids)


def unfinished_frames(uri: str, number: int) -> None:
    """Eight frames of 16 and eight of 60 MiB of which all but the last byte is sent."""
    held = []
    for size in [16 * MIB] * 8 + [60 * MIB] * 8:
        start = b"\x12\x00\xee\xff" + struct.pack(">I", size) + b"\x8e\x01"
        connection = _raw(uri)
        if connection is not None:
            held.append(connection)
            with suppress(OSError):
                connection.sendall(start)
                connection.sendall(bytes(size - 16))
    for connection in held:
        connection.close()


def large_jobspecs(uri: str, number: int) -> None:
    """A jobspec as large as is permitted; 16 MiB, as large as a message may be, and 63 MiB."""
    with Client(uri, timeout=TIMEOUT_S) as client:
        spec = from_command(["true"], environment={"X": "x" * (MIB - 4096)}, cwd="/")
        with suppress(Error):
            client.cancel([client.submit(spec, urgency=0)])
        for size in (16, 63):
            with suppress(Error):
                client.rpc("job-ingest.submit", {"jobspec": {"x": "x" * (size * MIB)}})


def request_flood(uri: str, number: int) -> None:
    """5,000 requests in one write, more than the rate permits."""
    requests = [Message.request("broker.ping", {}, matchtag=tag) for tag in range(1, 5001)]
    _exchange(uri, requests)


def rejected_requests(uri: str, number: int) -> None:
    """1,000 requests that are errors, which the log could name one by one."""
    topics = ("nothing.here", "job-manager.purge", "kvs.commit", "job-exec.start")
    requests = [
        Message.request(topics[tag % len(topics)], {"n": number}, matchtag=tag)
        for tag in range(1, 1001)
    ]
    _exchange(uri, requests)


def watches(uri: str, number: int) -> None:
    """5,000 watches of a pending job, and its end."""
    with Client(uri, timeout=TIMEOUT_S) as client:
        job = client.submit(SPEC, urgency=0)
        payload = {"id": job, "path": "eventlog", "flags": 0}
        requests = [
            Message.request("job-info.eventlog-watch", payload, matchtag=tag, flags=STREAMING)
            for tag in range(1, 5001)
        ]
        connection = _raw(uri)
        if connection is None:
            return
        with connection, suppress(OSError):
            connection.sendall(Batch(requests).encode())
            client.cancel([job])
            connection.recv(MIB)


def memos(uri: str, number: int) -> None:
    """1,000 memos of 15 KiB on one job."""
    with Client(uri, timeout=TIMEOUT_S) as client:
        job = client.submit(SPEC, urgency=0)
        requests = [
            Message.request(
                "job-manager.memo", {"id": job, "memo": {"x": "x" * 15_000}}, matchtag=tag
            )
            for tag in range(1, 1001)
        ]
        _exchange(uri, requests)
        client.cancel([job])


def _with_long_eventlog(client: Client) -> int:
    """A pending job with an eventlog of 1 MiB, the longest that a guest can make."""
    job = client.submit(SPEC, urgency=0)
    memo = {"id": job, "memo": {"x": "x" * 15_000}}
    memos = [Message.request("job-manager.memo", memo, matchtag=tag) for tag in range(1, 81)]
    _exchange(client.uri, memos)
    return job


def _look_up(uri: str, key: str) -> None:
    with Client(uri, timeout=TIMEOUT_S) as client:
        job = _with_long_eventlog(client)
        payload = {"id": job, "keys": [key], "flags": 0}
        lookups = [Message.request("job-info.lookup", payload, matchtag=n) for n in range(1, 65)]
        _exchange(uri, lookups)
        client.cancel([job])


def long_documents(uri: str, number: int) -> None:
    """64 lookups of an eventlog of 1 MiB in one write."""
    _look_up(uri, "eventlog")


def logs_not_started(uri: str, number: int) -> None:
    """64 lookups of the execution log of a pending job with such an eventlog, in one write."""
    _look_up(uri, "guest.exec.eventlog")


def watched_memos(uri: str, number: int) -> None:
    """2,000 watches of one job, then 16 memos for it in one write, of which each is sent to all."""
    with Client(uri, timeout=TIMEOUT_S) as client:
        job = client.submit(SPEC, urgency=0)
        payload = {"id": job, "path": "eventlog", "flags": 0}
        watches = [
            Message.request("job-info.eventlog-watch", payload, matchtag=tag, flags=STREAMING)
            for tag in range(1, 2001)
        ]
        memo = {"id": job, "memo": {"x": "x" * 6_000}}
        memos = [Message.request("job-manager.memo", memo, matchtag=tag) for tag in range(1, 17)]
        writer, watcher = _raw(uri), _raw(uri)
        if writer is None or watcher is None:
            return
        with writer, watcher, suppress(OSError):
            watcher.sendall(Batch(watches).encode())
            writer.sendall(Batch(memos).encode())
            left, decoder = len(watches) * len(memos), Decoder()
            while left > 0 and (data := watcher.recv(MIB)):
                left -= len(decoder.feed(data))
        client.cancel([job])


def slow_filters(uri: str, number: int) -> None:
    """Lists of 500 jobs by 20,000 hosts, and by 2,000 operators."""
    hosts = ",".join(f"x{host}y{host % 7}" for host in range(20_000))
    operators = [{"hostlist": ["x[1-9]"]}] * 2000
    with Client(uri, timeout=TIMEOUT_S) as client:
        jobs = client.submit(SPEC, count=500)
        for _ in client.wait_rows(jobs):
            pass
        for constraint in ({"hostlist": [hosts]}, {"or": operators}):
            client.job_rows(constraint=constraint, max_entries=0)


def unread_responses(uri: str, number: int) -> None:
    """8 connections with pings of 60 KiB and histories, of which no response is read."""
    ping = Message.request("job-manager.ping", {"text": "x" * 60_000}, matchtag=1)
    history = Message.request("job-manager.history.get", {"slice": "[:]"}, matchtag=2)
    data = memoryview(Batch([ping, history] * 400).encode())
    held = [connection for _ in range(8) if (connection := _raw(uri)) is not None]
    for connection in held:
        connection.settimeout(0.05)
        sent = 0
        # The instance reads no more after some time.
        with suppress(OSError):
            while sent < len(data):
                sent += connection.send(data[sent : sent + MIB])
    for connection in held:
        connection.close()


def subscriptions(uri: str, number: int) -> None:
    """2,000 subscriptions with prefixes of 200 bytes, and some with 3 MiB."""
    prefixes = [f"{count:0200}" for count in range(2000)] + ["x" * (3 * MIB)] * 5
    requests = [
        Message.request("event.subscribe", {"topic": prefix}, matchtag=tag)
        for tag, prefix in enumerate(prefixes, 1)
    ]
    _exchange(uri, requests)


def long_questions(uri: str, number: int) -> None:
    """Pings with 3 MiB of arrays, and a job that is named 300,000 times."""
    arrays = b'{"a":[' + b"[]," * MIB + b"0]}\0"
    pings = [
        Message.request(topic, arrays, matchtag=tag)
        for tag, topic in enumerate(["attr.ping", "job-manager.ping", "sched.ping"], 1)
    ]
    with Client(uri, timeout=TIMEOUT_S) as client:
        job = client.submit(SPEC, urgency=0)
        ids = {"ids": [job] * 100_000}
        questions = [
            Message.request(topic, ids, matchtag=tag)
            for tag, topic in enumerate(["sched.explain", "sched.estimate"], 4)
        ]
        _exchange(uri, pings + questions)
        client.cancel([job])


ATTACKS: list[Attack] = [
    connections,
    large_requests,
    forged_routes,
    drain_flood,
    repeated_keys,
    many_copies,
    unfinished_lists,
    invalid_lists,
    long_names,
    unfinished_frames,
    large_jobspecs,
    request_flood,
    rejected_requests,
    watches,
    memos,
    long_documents,
    logs_not_started,
    watched_memos,
    slow_filters,
    unread_responses,
    subscriptions,
    long_questions,
]


def repeat(
    attack: Attack, uri: str, cpu: int | None, rounds: Synchronized[int], limit: int | None
) -> None:
    """Repeats an attack as a guest: the work of a process, until it is killed."""
    # The default of a program that many connections are opened with.
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    os.setgid(GUEST_UID)
    os.setuid(GUEST_UID)
    while limit is None or rounds.value < limit:
        try:
            attack(uri, rounds.value)
        except (Error, OSError) as error:
            # Rejected as a whole, for instance because of too many connections.
            if getattr(error, "errno", 0) == errno.EPERM:
                print(f"{attack.__name__}: {error}", file=sys.stderr)
            time.sleep(PAUSE_S)
        rounds.value += 1


@contextmanager
def under(
    attack: Attack, uri: str, *, cpu: int | None = None, limit: int | None = None
) -> Iterator[tuple[multiprocessing.process.BaseProcess, Synchronized[int]]]:
    """A process that attacks while the block runs, with the number of its rounds."""
    fork = multiprocessing.get_context("fork")
    rounds = fork.Value("q", 0)
    process = fork.Process(target=repeat, args=(attack, uri, cpu, rounds, limit))
    process.start()
    try:
        yield process, rounds
    finally:
        process.kill()
        process.join()
