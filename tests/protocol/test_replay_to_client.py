"""Recorded responses of a real broker, replayed to our client."""

from __future__ import annotations

import errno
import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from recordings import Frame, frames

from penstock._core import Decoder, Message
from penstock.client import Client
from penstock.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENT = frames("client")
ONE = 33051115520


def responses(topic: str) -> list[list[Frame]]:
    """The recorded responses of a topic, by request."""
    found: dict[tuple[int, int], list[Frame]] = {}
    exchanges = []
    for frame in CLIENT:
        if not frame.to_broker and frame.message.topic == topic:
            key = (frame.conn, frame.message.matchtag)
            found.setdefault(key, []).append(frame)
            if frame.message.errnum or not frame.message.streaming:
                exchanges.append(found.pop(key))
    assert exchanges, topic
    return exchanges


@contextmanager
def client_of(tmp_path: Path, answers: list[Frame]) -> Iterator[Client]:
    """Our client, whose request gets the recorded responses with its own matchtag."""
    path = tmp_path / "s"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"\0")
            decoder, left = Decoder(), list(answers)
            while data := peer.recv(1 << 16):
                for request in decoder.feed(data):
                    if request.topic != answers[0].message.topic:
                        continue
                    for frame in left:
                        answer = bytearray(frame.message.encode())
                        answer[-4:] = request.matchtag.to_bytes(4, "big")
                        assert Message.decode(answer).payload == frame.message.payload
                        peer.sendall(answer)
                    left.clear()

    server = threading.Thread(target=serve)
    server.start()
    try:
        with Client(f"local://{path}", timeout=60) as client:
            yield client
    finally:
        server.join()
        listener.close()


def objects(answers: list[Frame]) -> list[dict[str, Any]]:
    return [frame.payload for frame in answers if not frame.message.errnum]


def test_rows_of_jobs(tmp_path: Path) -> None:
    for answers in responses("job-list.list"):
        with client_of(tmp_path, answers) as client:
            rows = [row for payload in objects(answers) for row in payload["jobs"]]
            assert list(client.job_rows()) == rows


def test_events_of_a_job(tmp_path: Path) -> None:
    ends = set()
    for answers in responses("job-info.eventlog-watch"):
        events = [
            json.loads(line)
            for payload in objects(answers)
            for line in payload["event"].splitlines()
        ]
        ends.add(answers[-1].message.errnum)
        with client_of(tmp_path, answers) as client:
            assert list(client.eventlog(ONE, follow=True)) == events
    assert errno.ENODATA in ends


def test_documents_of_a_job(tmp_path: Path) -> None:
    for answers in responses("job-info.lookup"):
        (payload,) = objects(answers)
        with client_of(tmp_path, answers) as client:
            documents = client.lookup(ONE, *(key for key in payload if key != "id"))
            assert {key: payload[key] for key in documents} == dict(documents)


@pytest.mark.parametrize("topic", ["job-manager.queue-status", "job-manager.history.get"])
def test_small_responses(tmp_path: Path, topic: str) -> None:
    for answers in responses(topic):
        with client_of(tmp_path, answers) as client:
            if answers[0].message.errnum:
                with pytest.raises(RpcError):
                    client.rpc(topic, {})
            elif topic.endswith("history.get"):
                assert client.history() == answers[0].payload["jobs"]
            else:
                assert client.queue_status() == answers[0].payload


def test_every_other_response(tmp_path: Path) -> None:
    """Single responses, by `rpc`: the object or the error."""
    topics = {frame.message.topic or "" for frame in CLIENT if not frame.to_broker}
    errors = 0
    for topic in sorted(topics):
        for answers in responses(topic):
            if answers[0].message.streaming or len(answers) > 1:
                continue
            message = answers[0].message
            with client_of(tmp_path, answers) as client:
                if message.errnum:
                    errors += 1
                    with pytest.raises(RpcError) as rejected:
                        client.rpc(topic, {})
                    assert rejected.value.errno == message.errnum
                    assert message.error_text in (None, rejected.value.strerror)
                else:
                    assert client.rpc(topic, {}) == answers[0].payload
    assert errors
