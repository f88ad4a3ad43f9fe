"""Metrics by HTTP: what the listener answers, to whom, and what its faults cost."""

from __future__ import annotations

import dataclasses
import re
import socket
from contextlib import contextmanager
from pathlib import Path

import openmetrics
import pytest
import trio
from simulatedsystem import OPTIONS, in_virtual_time, instance_on

from penstock import metrics
from penstock.config import parse
from penstock.config.listen_address import parse_address
from penstock.errors import ConfigError, Error
from penstock.instance import metrics_listener
from penstock.jobspec import from_command

GET = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
LABELS = {"state", "queue", "result", "stage", "limit", "service", "le", "version"}


def ask(address, request, family=socket.AF_INET):
    """The response to the text of a request: status line, headers, body."""
    with socket.socket(family) as client:
        client.settimeout(60)
        client.connect(address)
        client.sendall(request.encode("latin-1"))
        received = b""
        while data := client.recv(65536):
            received += data
    head, _, body = received.decode().partition("\r\n\r\n")
    status, *headers = head.split("\r\n")
    return status, dict(header.split(": ", 1) for header in headers), body


@contextmanager
def listening(start, tmp_path, listen="127.0.0.1:0", name="state", more=""):
    """An instance with a listener; yields it and the address."""
    config = tmp_path / f"{name}.toml"
    config.write_text(f'{more}[penstock.metrics]\nlisten = "{listen}"\n')
    nodes = ("--nodes", "2", "--cores", "1")
    with start("-v", "--config", str(config), *nodes, name=name) as instance:
        found = re.search(r"http://127.0.0.1:(\d+)/metrics", (tmp_path / f"{name}.log").read_text())
        yield instance, ("127.0.0.1", int(found[1])) if found else None


@pytest.fixture
def served(start, tmp_path):
    with listening(start, tmp_path) as found:
        yield found


def test_a_monitoring_system_gets_the_metrics_of_all_services(served):
    instance, address = served
    (job,) = instance.lines("submit", "true")
    instance.penstock("wait", job)
    status, headers, body = ask(address, GET)
    assert status == "HTTP/1.1 200 OK"
    assert headers["Content-Type"] == metrics.CONTENT_TYPE
    assert headers["Content-Length"] == str(len(body.encode()))
    found = openmetrics.parse(body)
    assert found["penstock_jobs_ended"].value("_total", result="completed") == 1
    up = found["penstock_service_up"].samples
    assert {dict(labels)["service"]: value for (_, labels), value in up.items()} == dict.fromkeys(
        metrics.SERVICES, 1
    )


def test_it_is_said_what_a_request_lacks(served):
    _, address = served
    for request, status in [
        (GET.replace("/metrics", "/"), "404 Not Found"),
        (GET.replace("/metrics", "/metrics/x"), "404 Not Found"),
        (GET.replace("/metrics", "http://localhost/metrics"), "404 Not Found"),
        (GET.replace("GET", "POST"), "405 Method Not Allowed"),
        (GET.replace("GET", "get"), "405 Method Not Allowed"),
        (GET.replace(" HTTP/1.1", ""), "400 Bad Request"),
        (GET.replace("HTTP/1.1", "HTTP/2"), "400 Bad Request"),
        ("\0\xff\r\n\r\n", "400 Bad Request"),
        (f"GET /metrics HTTP/1.1\r\nX: {'x' * 8200}", "431 Request Header Fields Too Large"),
        (GET.replace("/metrics", "/metrics?x=1"), "200 OK"),
    ]:
        assert ask(address, request)[0] == f"HTTP/1.1 {status}", request
    assert ask(address, GET.replace("GET", "POST"))[1]["Allow"] == "GET, HEAD"
    status, headers, body = ask(address, GET.replace("GET", "HEAD"))
    assert (status, body) == ("HTTP/1.1 200 OK", "")
    assert int(headers["Content-Length"]) > 1000


def test_no_metric_tells_of_a_user_or_a_job(start, tmp_path):
    queue = "[queues.batch]\n"
    with listening(start, tmp_path, more=queue) as (instance, address):
        (job,) = instance.lines(
            "submit", "-q", "batch", "--job-name=secret", "--env=SECRET=secret", "echo", "secret"
        )
        instance.penstock("wait", job)
        body = ask(address, GET)[2]
        assert "secret" not in body.lower()
        assert job not in body
        found = openmetrics.parse(body)
        samples = [labels for family in found.values() for _, labels in family.samples]
        assert {label for labels in samples for label, _ in labels} <= LABELS
        assert found["penstock_queue_jobs"].value(queue="batch", state="running") == 0


def test_a_socket_serves_the_owner_alone_and_is_removed(start, tmp_path):
    path = tmp_path / "metrics"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with listening(start, tmp_path, str(path)) as _:
        assert path.stat().st_mode & 0o777 == 0o600
        status, _, body = ask(str(path), GET, socket.AF_UNIX)
        assert status == "HTTP/1.1 200 OK"
        assert openmetrics.parse(body)["penstock_nodes"].value() == 2
    assert not path.exists()


def test_an_instance_without_its_port_runs(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with listening(start, tmp_path, listen) as (instance, address):
            assert address is None
            (job,) = instance.lines("submit", "true")
            assert instance.penstock("wait", job).returncode == 0
    said = (tmp_path / "state.log").read_text()
    assert said.count(f"no metrics at `{listen}`: ") == 1
    assert "Traceback" not in said


def test_a_file_in_the_place_of_the_socket_is_left_alone(start, tmp_path):
    path = tmp_path / "metrics"
    path.write_text("mine")
    with listening(start, tmp_path, str(path)) as (instance, _):
        assert instance.penstock("ping", "-c1", "broker").returncode == 0
    assert path.read_text() == "mine"
    said = (tmp_path / "state.log").read_text()
    assert f"no metrics at `{path}`: `{path}` exists and is not a socket" in said


def with_listener(listen="127.0.0.1:9470"):
    return dataclasses.replace(
        OPTIONS, config=parse(f'[penstock.metrics]\nlisten = "{listen}"\n'), exec="sim"
    )


async def connected(machine):
    """A connection to the listener of a simulated machine."""
    ours, theirs = trio.testing.memory_stream_pair()
    machine.network._listener("127.0.0.1:9470").offer(theirs)
    return ours


async def answered(stream, request=GET):
    await stream.send_all(request.encode())
    received = b""
    while data := await stream.receive_some():
        received += data
    return received.decode()


def test_a_fault_of_the_listener_touches_nothing_else(monkeypatch, caplog):
    def fail(_stats):
        raise RuntimeError("a defect")

    async def scenario(machine):
        async with instance_on(machine, with_listener()) as client:
            with monkeypatch.context() as patched:
                patched.setattr(metrics_listener.metrics, "openmetrics", fail)
                text = await answered(await connected(machine))
                assert text.startswith("HTTP/1.1 500 ")
                assert "defect" not in text
            job = await client.submit(from_command(["true"], environment={}, cwd="/"))
            assert (await client.wait_row(job))["success"]
            assert (await client.stats("broker"))["failures"] == 0
            assert (await answered(await connected(machine))).startswith("HTTP/1.1 200 ")

    in_virtual_time(scenario)
    assert "the metrics cannot be collected" in caplog.text


def test_connections_are_few_and_end():
    async def scenario(machine):
        async with instance_on(machine, with_listener()):
            idle = [await connected(machine) for _ in range(metrics_listener.MAX_CONNECTIONS)]
            await trio.testing.wait_all_tasks_blocked()
            # Idle connections do not keep others away: the oldest is closed.
            await idle[0].send_all(b"GET")
            assert (await answered(await connected(machine))).startswith("HTTP/1.1 200 ")
            assert await idle[0].receive_some() == b""
            # Each new connection closes another one, also if many come at once.
            more = [await connected(machine) for _ in range(3)]
            await trio.testing.wait_all_tasks_blocked()
            for stream in idle[1:3]:
                assert await stream.receive_some() == b""
            assert (await answered(more[-1])).startswith("HTTP/1.1 200 ")
            # The others are closed when they have sent no whole request in time.
            for stream in [*idle[3:], *more[:-1]]:
                assert await stream.receive_some() == b""
            assert (await answered(await connected(machine))).startswith("HTTP/1.1 200 ")

    took = in_virtual_time(scenario)
    assert took >= metrics_listener.REQUEST_TIMEOUT_S


def test_a_service_that_does_not_answer_delays_no_other_metric():
    async def scenario(machine):
        async with (
            instance_on(machine, dataclasses.replace(with_listener(), sched="none")) as client,
            machine.network.connect(f"local://{OPTIONS.socket}") as other,
        ):
            # A scheduler that answers no request.
            await other.rpc("service.add", {"service": "sched"})
            text = await answered(await connected(machine))
            found = openmetrics.parse(text.partition("\r\n\r\n")[2])
            assert found["penstock_service_up"].value(service="sched") == 0
            assert found["penstock_service_up"].value(service="job-exec") == 1
            assert found["penstock_nodes"].value() > 0
            assert await client.ping("broker") >= 0

    in_virtual_time(scenario)


def test_a_text_is_made_at_most_twice_a_second():
    async def scenario(machine):
        async with instance_on(machine, with_listener()) as client:
            first = await answered(await connected(machine))
            await client.submit(from_command(["true"], environment={}, cwd="/"))
            assert await answered(await connected(machine)) == first
            await trio.sleep(1)
            assert await answered(await connected(machine)) != first

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9470", ("127.0.0.1", 9470)),
        ("127.1.2.3:1", ("127.1.2.3", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("localhost:0", ("127.0.0.1", 0)),
    ],
)
def test_loopback_addresses_are_accepted(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "9470", ":9470", "0.0.0.0:9470", "*:9470", "[::]:9470", "10.0.0.1:9470"),
        *("127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", "127.0.0.256:1"),
        *("127.0.0.1:-1", "::1:9470", "example.org:9470", "127.0.0.1.example.org:1", "metrics"),
        *("128.0.0.1:1", "localhost.example.org:1", "127.0.0.1:\N{ARABIC-INDIC DIGIT ONE}"),
    ],
)
def test_other_addresses_are_rejected(text):
    with pytest.raises(Error, match="a loopback address"):
        parse_address(text)
    with pytest.raises(ConfigError, match=r"penstock\.metrics\.listen: expected the absolute path"):
        parse(f'[penstock.metrics]\nlisten = "{text}"\n')


def test_only_the_loopback_address_is_listened_at(served):
    _, (_, port) = served
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening_at = {
        line[1].partition(":")[0]
        for line in lines
        if line[3] == "0A" and line[1].endswith(f":{port:04X}")
    }
    assert listening_at == {"0100007F"}
