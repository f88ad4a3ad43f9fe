"""Our services on the socket of another broker: one bad message is answered, and ends nothing."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.instance.conftest import PENSTOCK, kill_reapers

from penstock import ResourceSet
from penstock.protocol.message import ROLE_OWNER, Decoder, Message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Longer than any answer takes, in seconds.
HANG_S = 60
# CBOR that ends within its map.
CUT_OFF = b"\xa1"
INVENTORY = ResourceSet.uniform("0", "node0", cores="0-3").to_json()


class ForeignBroker:
    """The broker's end of the connection of one service: it accepts what that requests."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder = Decoder()
        self.services: list[str] = []
        self.answered: dict[int, Message] = {}

    def send(self, message: Message) -> None:
        self._connection.sendall(message.encode())

    def read(self) -> None:
        """Takes the next messages: accepts the requests, and keeps the responses."""
        for message in self._decoder.feed(self._connection.recv(65536)):
            if message.kind == "response":
                self.answered[message.matchtag] = message
            elif message.topic == "service.add":
                self.services.append(message.object()["service"])
                self.send(message.respond({}))
            elif message.topic == "resource.acquire":
                found = {"resources": INVENTORY, "up": "0"}
                self.send(message.respond(found, streaming=True))
            elif message.topic == "job-manager.sched-hello":
                self.send(message.respond(errnum=errno.ENODATA))
            elif not message.noresponse:
                self.send(message.respond({"ops": ["start"]}))


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "broker"))
        listener.listen()
        listener.settimeout(HANG_S)
        yield listener


@contextmanager
def accepted(listener: socket.socket) -> Iterator[ForeignBroker]:
    """The broker's end of the connection of a service; one that only looks is passed over."""
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(HANG_S)
            with suppress(BrokenPipeError):
                connection.sendall(b"\0")
                yield ForeignBroker(connection)
                return


def request(topic: str, payload: bytes, matchtag: int) -> Message:
    """A request of the owner."""
    owner = {"userid": os.getuid(), "rolemask": ROLE_OWNER}
    return Message.request(topic, payload, matchtag=matchtag, **owner)


@pytest.mark.parametrize(
    "command",
    [
        ["sched"],
        ["exec", "--simulate"],
        ["exec", "--directory", "exec", "--oversubscribe"],
    ],
    ids=["sched", "simulated", "exec"],
)
def test_a_message_that_cannot_be_read_is_answered(tmp_path, listener, command):
    verb, *options = command
    started = [*PENSTOCK, verb, "--uri", f"local://{tmp_path / 'broker'}", *options]
    with subprocess.Popen(started, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            with accepted(listener) as broker:
                while not broker.services:
                    broker.read()
                name = broker.services[0]
                bad = request(f"{name}.ping", CUT_OFF, 7)
                # A response without a request, and an event without a subscriber.
                for message in (bad, bad.respond(CUT_OFF), Message.event("some.event", CUT_OFF)):
                    broker.send(message)
                broker.send(request(f"{name}.no-such-method", b"{}\0", 8))
                while not {7, 8} <= broker.answered.keys():
                    broker.read()
                assert process.poll() is None
            assert broker.answered[7].errnum == errno.EPROTO
            assert f"{name}.ping: " in broker.answered[7].error_text
            assert broker.answered[8].errnum == errno.ENOSYS
        finally:
            process.kill()
            kill_reapers(tmp_path / "exec")
