"""Malformed input of clients is answered or disconnected, and the instance continues."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

from penstock._core import Decoder, Message
from penstock.client import Client, connect
from penstock.errors import RpcError
from penstock.instance.connection_log import MAX_USER_LINES
from penstock.jobspec import from_command

TOPICS = """
job-ingest.submit job-manager.raise job-manager.kill job-manager.urgency job-manager.stats-get
job-manager.exec-hello job-manager.sched-ready job-manager.nosuch job-list.list-id job-info.lookup
job-info.eventlog-watch-cancel kvs.commit kvs.lookup resource.drain resource.undrain resource.status
resource.sched-status service.add service.remove service.list event.subscribe event.unsubscribe
attr.get config.get broker.ping job-exec.kill job-exec.expiration job-exec.output job-exec.nosuch
sched.expiration sched.nosuch feasibility.check resource.history resource.shrink
resource.grow resource.property-add resource.property-remove resource.expiration resource.unmonitor
resource.acquire-cancel resource.monitor-cancel resource.stats-get groups.get config.reload
""".split()
STREAMS = """
job-list.list job-list.wait job-info.eventlog-watch job-exec.output resource.acquire
job-manager.sched-hello resource.monitor sched.free
""".split()
VALUES = [None, -1, 0, 2**63, 2**64, 1.5, "", "x", "0-", "ƒ1", [], [[]], {}, {"a": {}}, True, "\0"]
KEYS = """
id ids all type severity note userid jobspec jobs count urgency flags keys path matchtag ops key
namespace targets reason service topic name signum expiration follow streams constraint max_entries
attrs since mode limit R final jobspecs ranks name config
""".split()


def payloads(rng):
    yield None
    yield {}
    for _ in range(12):
        keys = rng.sample(KEYS, rng.randint(1, 12))
        yield {key: rng.choice(VALUES) for key in keys}
    yield {"jobspec": {"version": 1}}
    yield {"id": 1, "jobspec": [[[[]]]], "R": {}}


@pytest.mark.parametrize("options", [[], ["--nodes", "4"]], ids=["local", "sim"])
def test_malformed_payloads_are_answered(start, options):
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    with start(*options) as instance:
        for topic in TOPICS:
            # Each topic its own connection: some of them (exec-hello) do succeed.
            with Client(instance.uri, timeout=60) as client:
                for payload in payloads(rng):
                    # Answered with whatever; a TimeoutError would be no answer.
                    with suppress(RpcError):
                        client.rpc(topic, payload)
        for topic in STREAMS:
            for payload in payloads(rng):
                with Client(instance.uri, timeout=60) as client:
                    # Answered or left open, as the service sees fit: the ping goes through.
                    client.stream(topic, payload)
                    assert client.rpc("broker.ping"), (seed, topic, payload)
        with Client(instance.uri) as client:
            assert client.rpc("broker.stats-get")["process"]["pid"] == instance.process.pid, seed


def test_a_foreign_start_request_affects_no_other_job(start):
    with start() as instance:
        with Client(instance.uri, timeout=60) as client:
            for payload in [
                {"id": 5, "userid": 0, "jobspec": {}, "R": {}},
                {"id": 5, "userid": 0, "jobspec": {"attributes": []}, "R": None},
                {"id": 5, "userid": 0, "jobspec": {}, "R": [1]},
            ]:
                responses = []
                for response in client.stream("job-exec.start", payload):
                    responses.append(response)
                    if response["type"] == "release":
                        break
                assert responses[-1]["data"]["final"] is True
                assert responses[0]["type"] == "exception"
        assert instance.penstock("run", "true").returncode == 0


def test_garbage_closes_its_own_connection_only(start):
    rng = random.Random(7)
    good = Message.request("broker.ping", {}, matchtag=1).encode()
    with start("--nodes", "1") as instance, Client(instance.uri) as bystander:
        for junk in [
            bytes(100),
            rng.randbytes(1000),
            good[:8] + b"\xff" * 100,
            b"\x12\x00\xee\xff\xff\xff\xff\xff",
            good + b"\0" + good,
        ]:
            with connect(instance.uri) as connection:
                connection.settimeout(60)
                connection.sendall(junk)
                while connection.recv(65536):
                    pass
            assert bystander.rpc("broker.ping")


def test_a_malformed_payload_fails_its_request_alone(start):
    ping = Message.request("broker.ping", {"seq": 1}, matchtag=1).encode()
    cut = Message.request("broker.ping", b"\xa1\x63seq", matchtag=2).encode()
    with start("--nodes", "1") as instance, connect(instance.uri) as connection:
        connection.settimeout(60)
        connection.sendall(ping + cut + ping)
        decoder, received = Decoder(), []
        while len(received) < 3:
            received += decoder.feed(connection.recv(65536).removeprefix(b"\0"))
        assert sorted(message.errnum for message in received) == [0, 0, errno.EPROTO]
        (rejected,) = (message for message in received if message.errnum)
        assert rejected.error_text.startswith("broker.ping: invalid CBOR")


def test_the_messages_before_a_malformed_frame_are_handled(start):
    spec = from_command(["true"], environment={}, cwd="/")
    submission = Message.request("job-ingest.submit", {"jobspec": spec}, matchtag=1).encode()
    with start("--nodes", "1") as instance, Client(instance.uri) as bystander:
        for count in range(1, 4):
            with connect(instance.uri) as connection:
                connection.settimeout(60)
                connection.sendall(submission + b"\0" * 20)
                while connection.recv(65536):
                    pass
            assert bystander.rpc("job-list.job-stats")["job_states"]["total"] == count


def test_the_log_has_few_lines_about_the_connections_of_a_user(start, tmp_path):
    with start("--nodes", "1", stderr=tmp_path / "log") as instance:
        for _ in range(100):
            with connect(instance.uri) as connection:
                connection.settimeout(60)
                connection.sendall(bytes(100))
                while connection.recv(65536):
                    pass
        with Client(instance.uri) as client:
            assert client.rpc("broker.ping")
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum("closing the connection" in line for line in lines) == MAX_USER_LINES


def test_many_clients_at_once(start):
    with start("--nodes", "1") as instance:
        clients = [Client(instance.uri) for _ in range(200)]
        try:
            pids = {client.rpc("broker.stats-get")["process"]["pid"] for client in clients}
        finally:
            for client in clients:
                client.close()
        assert pids == {instance.process.pid}
