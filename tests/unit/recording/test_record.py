"""`penstock record` and `penstock replay`, against instances in memory."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock._core import STREAMING, Decoder, Message, fluid_f58
from penstock.cli import main
from penstock.client import Client
from penstock.client.connection import connect
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import NoInstanceError, RpcError
from penstock.jobspec import from_command
from penstock.recording import Player, Proxy, Recorder, read
from penstock.testing import FakeBroker, MemoryInstance

PENSTOCK = [sys.executable, "-m", "penstock"]
HOUR = 3600


@pytest.fixture
def instance():
    with MemoryInstance(nodes=2, cores=4) as started:
        yield started


@pytest.fixture
def recording(tmp_path):
    """The path of a recording."""
    return tmp_path / "recording"


@contextmanager
def recorded(uri, recording, complain=pytest.fail):
    """Records the clients of the address that it yields."""
    with (
        closing(Recorder(recording, SYSTEM_CLOCK)) as recorder,
        Proxy(uri, recording.with_name("proxy"), recorder, complain) as proxy,
    ):
        yield proxy.uri


@pytest.fixture
def record(instance, recording):
    """Runs a function with a client whose connection is recorded."""

    def run(function):
        with recorded(instance.uri, recording) as uri, Client(uri) as client:
            function(client)

    return run


def job(**options):
    return from_command(["model"], duration=HOUR, **options)


def cancel_one(client):
    """Submits two jobs that cannot run at once, cancels the second, and asks about another one."""
    jobs = [client.submit(job(nodes=2)) for _ in range(2)]
    client.cancel(jobs[1:])
    (row,) = client.wait_rows(jobs[1:])
    assert row["id"] == jobs[1]
    assert client.lookup(jobs[1], "eventlog")
    with pytest.raises(RpcError):
        client.lookup(77, "eventlog")


def lines_of(recording):
    return [json.loads(line) for line in recording.read_text().splitlines()]


def shown(recording, capsys, *options):
    assert main(["replay", *options, str(recording)]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_command_is_recorded(instance, recording):
    script = 'test "$FLUX_URI" = "$PENSTOCK_URI" && penstock submit --quiet sleep 1h && exit 3'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*PENSTOCK, "record", instance.uri, str(recording), "--", "sh", "-c", script],
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.returncode == 3
    entries = list(read(recording))
    assert entries[0].event == "connect"
    assert entries[-1].event == "disconnect"
    topics = [entry.message.topic for entry in entries[1:-1]]
    assert topics == ["feasibility.check"] * 2 + ["job-ingest.submit"] * 2
    assert [entry.to_broker for entry in entries[1:-1]] == [True, False] * 2
    with instance.client() as client:
        assert entries[-2].message.object()["id"] == client.job_rows()[0]["id"]


def test_the_file_is_private_and_never_overwritten(instance, recording, capsys):
    assert main(["record", instance.uri, str(recording), "true"]) == 0
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600
    recording.write_text("precious")
    assert main(["record", instance.uri, str(recording), "true"]) == 1
    assert capsys.readouterr().err == f"penstock record: `{recording}`: File exists\n"
    assert recording.read_text() == "precious"


def test_exit_codes_of_the_command(instance, tmp_path, capfd):
    codes = [
        main(["record", instance.uri, str(tmp_path / str(number)), *command])
        for number, command in enumerate([["sh", "-c", "kill -9 $$"], ["no-such"], ["/"]])
    ]
    assert codes == [137, 127, 126]
    assert capfd.readouterr().err.splitlines() == [
        "penstock record: no-such: command not found",
        "penstock record: /: not executable",
    ]


def test_no_instance_is_an_error_before_the_file_is_made(tmp_path, recording, capsys):
    assert main(["record", f"local://{tmp_path}/none", str(recording), "true"]) == 69
    assert "no instance at" in capsys.readouterr().err
    assert not recording.exists()


def test_without_a_command_it_records_until_a_signal(instance, recording):
    command = [*PENSTOCK, "record", instance.uri, str(recording)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        uri = process.stdout.readline().strip()
        with Client(uri) as client:
            client.ping("job-manager")
            # A client is connected: it is ended.
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
    names = [entry.event for entry in read(recording)]
    assert names == ["connect", "message", "message", "disconnect"]


def test_bytes_that_are_no_frame_are_recorded_and_passed(instance, recording, capsys):
    ping = Message.request("job-manager.ping", {}, matchtag=1).encode()
    with recorded(instance.uri, recording) as uri, connect(uri) as client:
        # A frame in two parts, and rubbish, after which the instance hangs up.
        client.sendall(ping[:11])
        client.sendall(ping[11:])
        assert received(client).topic == "job-manager.ping"
        client.sendall(b"rubbish")
        assert client.recv(65536) == b""
    sent = [entry.frame for entry in read(recording) if entry.to_broker]
    assert sent == [ping, b"rubbish"]
    assert shown(recording, capsys)[3].split()[2:] == [">", "no", "message:", "7", "bytes"]


def test_a_client_for_which_there_is_no_instance_is_rejected(tmp_path, recording):
    complaints = []
    nowhere = f"local://{tmp_path}/none"
    with (
        recorded(nowhere, recording, complaints.append) as uri,
        pytest.raises(NoInstanceError, match="No route to host"),
    ):
        Client(uri)
    assert f"no instance at `{nowhere}`" in complaints[0]


def test_show(record, recording, capsys):
    record(cancel_one)
    lines = shown(recording, capsys)
    assert lines[0].split() == ["0.000000", "1", "connect"]
    submit = next(line for line in lines if "job-ingest.submit" in line)
    assert submit.split()[2:6] == [">", "request", "job-ingest.submit", "#1"]
    assert submit.endswith("…")
    assert len(submit) < 180
    assert any(line.endswith("error 2: no job ƒ2L") for line in lines)
    only = shown(recording, capsys, "--topic", "job-manager.raise", "--full")
    assert [line.split()[2] for line in only] == [">", "<"]
    assert '"type": "cancel"' in only[0]


def test_replay_to_another_instance(record, recording, capsys):
    record(cancel_one)
    with MemoryInstance(nodes=2, cores=4) as other:
        with other.client() as client:
            # The ids of the recorded jobs are unknown there.
            before = client.submit(job())
        assert main(["replay", "--uri", other.uri, str(recording)]) == 0
        assert capsys.readouterr().err == "6 requests, 0 with another end\n"
        with other.client() as client:
            rows = {row["id"]: row["state"] for row in client.job_rows() if row["id"] != before}
            assert len(rows) == 2
            cancelled = list(client.wait_rows([max(rows)]))
            assert [row["result"] for row in cancelled] == [4]


def test_replay_prints_what_ends_otherwise(record, recording, capsys):
    record(cancel_one)
    with MemoryInstance(nodes=2, config="policy.limits.job-size.max.nnodes = 1") as small:
        assert main(["replay", "--uri", small.uri, str(recording)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert f"{recording}, line 2: job-ingest.submit: recorded success, now error 22 (" in out[0]


def test_a_response_that_never_comes_is_a_difference(record, recording):
    record(lambda client: client.ping("job-manager"))
    with FakeBroker() as silent:
        player = Player(silent.uri, timeout=0, clock=SYSTEM_CLOCK)
        (difference,) = player.play(read(recording))
    assert (difference.topic, difference.now) == ("job-manager.ping", "no response")


def test_ids_in_texts_and_topics_are_replaced(recording):
    """Requests name jobs by number, in F58, in keys of the KVS and in names of services."""
    before, now = 0x1234567890, 0x2345678901
    other = 0x3456789012

    def requests(number):
        dothex = ".".join(f"{number:016x}"[at : at + 4] for at in range(0, 16, 4))
        return [
            ("kvs.lookup", {"key": f"job.{dothex}.R"}),
            ("test.list", {"ids": [number, other], "text": f"{fluid_f58(number)},"}),
            (f"job-shell.{number}.stdin", {"is": True}),
        ]

    with FakeBroker() as first:
        first.respond("job-ingest.submit", {"id": before})
        for topic, _ in requests(before):
            first.respond(topic)
        with recorded(first.uri, recording) as uri, Client(uri) as client:
            for topic, payload in [("job-ingest.submit", {}), *requests(before)]:
                client.rpc(topic, payload)
    with FakeBroker() as second:
        second.respond("job-ingest.submit", {"id": now})
        for topic, _ in requests(now):
            second.respond(topic)
        assert not Player(second.uri, timeout=60, clock=SYSTEM_CLOCK).play(read(recording))
        second.wait_for("job-ingest.submit")
        for topic, payload in requests(now):
            assert second.wait_for(topic).object() == payload


def test_a_client_that_serves_requests_answers_again(recording, instance):
    """A service of a client answers requests of other clients, as schedulers do."""
    with (
        recorded(instance.uri, recording) as uri,
        connect(uri) as service,
        connect(uri) as user,
    ):
        exchange(service, Message.request("service.add", {"service": "count"}, matchtag=1))
        asked = Message.request("count.up", {"from": 1}, matchtag=5, flags=STREAMING)
        user.sendall(asked.encode())
        request = received(service)
        service.sendall(request.respond({"n": 1}).encode())
        assert received(user).object() == {"n": 1}
        service.sendall(request.respond(errnum=61).encode())
        assert received(user).errnum == 61
    # There the instance gives other routes.
    arrived = []
    with MemoryInstance() as other, other.client() as client:
        client.ping("job-manager")
        player = Player(
            other.uri,
            timeout=60,
            clock=SYSTEM_CLOCK,
            observe=lambda number, message: arrived.append((number, message)),
        )
        assert player.play(read(recording)) == []
    responses = [message for number, message in arrived if number == 2]
    assert [message.errnum for message in responses] == [0, 61]
    assert responses[0].object() == {"n": 1}


def exchange(connection, request):
    connection.sendall(request.encode())
    return received(connection)


def received(connection):
    (message,) = Decoder().feed(connection.recv(65536))
    return message


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"dir": "up", "hex": ""}',
        '{"dir": "to-broker", "hex": "xy"}',
        '{"event": "end"}',
        '{"conn": null, "event": "connect"}',
    ],
)
def test_a_line_that_does_not_belong_to_a_recording(recording, capsys, line):
    recording.write_text(f'{{"event": "connect"}}\n{line}\n')
    assert main(["replay", str(recording)]) == 1
    expected = "expected an object with `conn`, and with `event` or with `dir` and `hex`"
    assert capsys.readouterr().err == f"penstock replay: `{recording}`, line 2: {expected}\n"


def test_a_fake_broker_answers_as_recorded(record, recording):
    rows = []

    def ask(client):
        client.submit(job())
        rows.extend(client.job_rows())
        with pytest.raises(RpcError):
            client.lookup(77, "eventlog")

    record(ask)
    with FakeBroker.of_recording(recording) as broker, Client(broker.uri) as client:
        assert client.job_rows() == rows
        assert client.job_rows() == rows
        with pytest.raises(RpcError, match="no job ƒ2L"):
            client.lookup(77, "eventlog")
