"""The wire: frames of a real broker, the shared vectors, and the Python interface."""

from __future__ import annotations

import copy
import errno
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import WireError
from penstock.protocol.message import (
    NODEID_ANY,
    NORESPONSE,
    PAYLOAD,
    ROUTE,
    STREAMING,
    TOPIC,
    USER,
    USERID_UNKNOWN,
    Batch,
    Decoder,
    Message,
)

VECTORS = Path(__file__).parent.parent / "vectors"
FILES = ["client", "exec", "sched", "sched-reload", "services"]
WIRE = json.loads((VECTORS / "wire.json").read_text())


def recorded(name: str) -> list[tuple[dict[str, Any], bytes]]:
    lines = (VECTORS / "flux-wire" / f"{name}.jsonl").read_text().splitlines()
    frames = [json.loads(line) for line in lines]
    return [(frame["message"], bytes.fromhex(frame["hex"])) for frame in frames]


def by_name(vectors: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])


@pytest.mark.parametrize("name", FILES)
def test_recorded_frames_decode_as_recorded(name: str) -> None:
    for expected, frame in recorded(name):
        message = Message.decode(frame)
        assert message.kind == expected["type"]
        assert message.topic == expected["topic"]
        assert message.flags == expected["flags"]
        assert message.userid == expected["userid"]
        assert message.rolemask == expected["rolemask"]
        assert message.matchtag == expected["matchtag"]
        assert message.nodeid == expected.get("nodeid", NODEID_ANY)
        assert message.errnum == expected.get("errnum", 0)
        assert message.sequence == expected.get("sequence", 0)
        assert message.streaming == bool(expected["flags"] & STREAMING)
        assert message.noresponse == bool(expected["flags"] & NORESPONSE)
        assert message.routes is not None
        assert len(message.routes) == expected["routes"]
        assert all(len(route) == 36 for route in message.routes)
        if "payload_text" in expected:
            assert message.error_text == expected["payload_text"]
            with pytest.raises(WireError, match="invalid JSON"):
                message.object()
        else:
            assert message.object() == expected["payload"]
            assert message.error_text is None
        assert (message.payload is None) == (not expected["flags"] & PAYLOAD)
        assert message.encode() == frame


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 37, 4096, 1 << 20])
def test_recorded_streams_in_pieces(name: str, size: int) -> None:
    frames = [frame for _, frame in recorded(name)]
    stream = b"".join(frames)
    decoder = Decoder()
    batch = Batch()
    for start in range(0, len(stream), size):
        batch.extend(decoder.feed(stream[start : start + size]))
    assert decoder.pending == 0
    assert [message.encode() for message in batch] == frames
    assert batch.encode() == stream


def test_recorded_frames_cut_at_every_byte() -> None:
    for _, frame in recorded("exec"):
        for cut in range(len(frame)):
            decoder = Decoder()
            assert not decoder.feed(frame[:cut])
            assert decoder.pending == cut
            (message,) = decoder.feed(frame[cut:])
            assert message.encode() == frame


@pytest.mark.parametrize("name", FILES)
def test_recorded_payloads_through_cbor(name: str) -> None:
    batch = Batch(Message.decode(frame) for _, frame in recorded(name))
    other = Decoder().feed(batch.encode_cbor())
    assert (batch.has_cbor(), other.has_cbor()) == (False, True)
    for message, in_cbor in zip(batch, other, strict=True):
        if message.error_text is not None:
            assert in_cbor.payload == message.payload
            continue
        assert in_cbor.object() == message.object()
        if message.payload is not None:
            assert in_cbor.payload is not None
            assert in_cbor.payload[0] in range(0xA0, 0xC0)
            assert cbor2.loads(in_cbor.payload) == message.object()
    other.normalise()
    for message, back in zip(batch, other, strict=True):
        assert message.payload == back.payload or message.object() == back.object()
        assert back.payload is None or back.payload.endswith(b"\0")


@by_name(WIRE["malformed"])
def test_malformed_frames(vector: dict[str, Any]) -> None:
    good = Message.request("a.b", {"n": 1})
    frame = bytes.fromhex(vector["frame"])
    decoder = Decoder()
    with pytest.raises(WireError) as raised:
        decoder.feed(good.encode() + frame)
    assert str(raised.value) == vector["error"]
    assert raised.value.offset == vector["offset"]
    assert raised.value.messages is not None
    assert list(raised.value.messages) == [good]
    with pytest.raises(WireError) as again:
        decoder.feed(b"")
    assert str(again.value) == vector["error"]


# Only a map is taken for CBOR; cargo's tests read the others.
@by_name([vector for vector in WIRE["rejected_cbor"] if vector["cbor"][:1] in ("a", "b")])
def test_cbor_without_a_json_form(vector: dict[str, Any]) -> None:
    payload = bytes.fromhex(vector["cbor"])
    message = Message.request("some.service", payload)
    with pytest.raises(WireError) as raised:
        message.object()
    assert str(raised.value) == vector["error"]
    assert raised.value.offset == vector["offset"]
    valid, event = Message.request("a", b"\xa1\x61k\x01"), Message.event("some.event", payload)
    answer, failure = message.respond(payload), message.respond(errnum=2, errtext="none")
    batch = Batch([message, valid, answer, event, failure])
    (rejection,) = batch.normalise()
    text = f"some.service: {vector['error']}"
    assert (rejection.kind, rejection.errnum, rejection.error_text) == (
        "response",
        errno.EPROTO,
        text,
    )
    assert [each.topic for each in batch] == ["a", "some.service", "some.service"]
    assert batch[0].object() == {"k": 1}
    assert (batch[1].errnum, batch[1].error_text) == (errno.EPROTO, text)
    assert batch[2] == failure


@by_name(WIRE["rejected_json"])
def test_json_without_a_cbor_form_is_sent_as_json(vector: dict[str, Any]) -> None:
    payload = vector["json"].encode() + b"\0"
    message = Message.request("a", payload)
    assert Batch([message]).encode_cbor() == message.encode()


def test_length_limit() -> None:
    frame = Message.request("a", b"x" * 1000).encode()
    assert len(Decoder(len(frame) - 8).feed(frame)) == 1
    with pytest.raises(WireError, match="expected a length of at most 1028 at byte 4, found 1029"):
        Decoder(len(frame) - 9).feed(frame)


def test_decode_takes_exactly_one_frame() -> None:
    frame = Message.request("a", {}).encode()
    with pytest.raises(WireError, match=f"expected {len(frame)} bytes, found the end at byte 20"):
        Message.decode(frame[:20])
    with pytest.raises(WireError, match=f"expected the end at byte {len(frame)}, found 1 more"):
        Message.decode(bytearray(frame + b"\0"))


def test_request() -> None:
    message = Message.request("job-manager.submit", {"a": "ü", "b": [1, None]}, matchtag=5)
    assert message.payload == '{"a":"ü","b":[1,null]}\0'.encode()
    assert message.object() == {"a": "ü", "b": [1, None]}
    assert (message.kind, message.flags) == ("request", TOPIC | PAYLOAD | ROUTE)
    assert (message.userid, message.rolemask, message.nodeid) == (USERID_UNKNOWN, 0, NODEID_ANY)
    assert (message.matchtag, message.routes) == (5, [])
    assert repr(message) == '<Message request "job-manager.submit" matchtag=5 payload=24 bytes>'
    message = Message.request("a", flags=STREAMING | USER, nodeid=1, userid=2, rolemask=3)
    assert (message.flags, message.payload, message.object()) == (0xC9, None, None)
    assert (message.nodeid, message.userid, message.rolemask) == (1, 2, 3)
    assert Message.request("a", b"\x00\x01").payload == b"\x00\x01"
    assert Message.request("a", bytearray(b"x")).payload == b"x"


def test_event() -> None:
    message = Message.event("job-state", {"x": 1}, sequence=7)
    assert (message.kind, message.sequence, message.routes) == ("event", 7, [])
    assert repr(message) == '<Message event "job-state" matchtag=0 sequence=7 payload=8 bytes>'


def test_respond_copies_route_topic_and_matchtag() -> None:
    (frame,) = [
        frame
        for expected, frame in recorded("sched")
        if expected["topic"] == "sched.alloc" and expected["type"] == "request"
    ][:1]
    request = Message.decode(frame)
    response = request.respond({"id": 1})
    assert (response.kind, response.errnum, response.object()) == ("response", 0, {"id": 1})
    assert (response.routes, response.topic, response.matchtag) == (
        request.routes,
        request.topic,
        request.matchtag,
    )
    assert response.flags == TOPIC | PAYLOAD | ROUTE
    assert (response.userid, response.rolemask) == (USERID_UNKNOWN, 0)
    assert request.respond().flags == TOPIC | ROUTE
    assert request.respond(streaming=True).streaming
    error = request.respond(errnum=errno.EINVAL, errtext="missing `jobspec`")
    assert (error.errnum, error.payload) == (errno.EINVAL, b"missing `jobspec`\0")
    assert error.error_text == "missing `jobspec`"
    assert repr(error).endswith("errnum=22 payload=18 bytes>")


def test_respond_to_streams_and_nul_topics() -> None:
    frame = Message.request("a.b", flags=STREAMING, matchtag=1).encode()
    with_nul = frame.replace(b"\x03a.b", b"\x04a.b\0")
    with_nul = with_nul[:4] + struct.pack(">I", len(with_nul) - 8) + with_nul[8:]
    request = Message.decode(with_nul)
    assert request.topic == "a.b"
    assert request != Message.decode(frame)
    response = request.respond()
    assert response.streaming
    assert b"\x04a.b\0" in response.encode()
    assert not request.respond(streaming=False).streaming


def test_respond_rejects_invalid_arguments() -> None:
    request = Message.request("a")
    with pytest.raises(ValueError, match=r"expected a request to respond to, found .* response"):
        request.respond().respond()
    with pytest.raises(ValueError, match="errtext needs an errnum"):
        request.respond(errtext="no")
    with pytest.raises(ValueError, match="takes the place of a payload"):
        request.respond({}, errnum=1, errtext="no")


@pytest.mark.parametrize("topic", ["", "a\0b", "\0"])
def test_topics_that_have_no_frame(topic: str) -> None:
    with pytest.raises(WireError, match="expected a topic"):
        Message.request(topic)
    with pytest.raises(WireError, match="expected a topic"):
        Message.event(topic)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ({"a": float("nan")}, "Out of range float"),
        ({"a": "\ud800"}, "a string holds a lone surrogate, which has no UTF-8"),
    ],
)
def test_payloads_without_json(payload: dict[str, Any], problem: str) -> None:
    with pytest.raises(WireError, match=f"the payload has no JSON form: {problem}"):
        Message.request("a", payload)


def test_circular_payload() -> None:
    payload: dict[str, Any] = {}
    payload["a"] = payload
    with pytest.raises(WireError, match="Circular reference"):
        Message.request("a", payload)


@pytest.mark.parametrize("payload", [[1], "text", 5, {"a": {1}}])
def test_payloads_of_other_types(payload: Any) -> None:
    with pytest.raises(TypeError):
        Message.request("a", payload)


@pytest.mark.parametrize(
    ("payload", "problem", "offset"),
    [
        ('{"ü": x}'.encode(), "invalid JSON: Expecting value at byte 7", 7),
        (b'{"a":1', "invalid JSON: Expecting ',' delimiter at byte 6", 6),
        (b"", "invalid JSON: Expecting value at byte 0", 0),
        (b'{"a":NaN}', "invalid JSON: expected a finite number, found NaN", None),
        (b'{"a":1e400}', "invalid JSON: expected a finite number, found 1e400", None),
        (b'{"a":-1E999}', "invalid JSON: expected a finite number, found -1E999", None),
        (
            b'{"a":' + 400 * b"9" + b".5}",
            "invalid JSON: expected a finite number, found " + 32 * "9",
            None,
        ),
        (b'{"\xff":1}', "invalid JSON: expected UTF-8 at byte 2", 2),
        (b"[" * 100_000, "invalid JSON: nested too deeply", None),
    ],
)
def test_malformed_payloads(payload: bytes, problem: str, offset: int | None) -> None:
    with pytest.raises(WireError) as raised:
        Message.request("a", payload).object()
    assert (str(raised.value), raised.value.offset) == (problem, offset)


def test_messages_are_values() -> None:
    message = Message.request("a", {"x": 1}, matchtag=1)
    same = Message.decode(message.encode())
    assert message == same
    assert len({message, same, Message.request("a", {"x": 1}, matchtag=2)}) == 2
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message
    assert message != "a"
    with pytest.raises(AttributeError):
        message.topic = "b"  # type: ignore[misc]


@pytest.mark.parametrize("kind", [Message, Batch, Decoder])
def test_documentation(kind: type) -> None:
    members = {name: member for name, member in vars(kind).items() if name[0] != "_"}
    undocumented = [name for name, member in members.items() if not member.__doc__]
    assert undocumented == []


def test_batch_is_a_list_that_grows() -> None:
    messages = [Message.request("a", matchtag=tag) for tag in range(5)]
    batch = Batch(messages[:3])
    batch.append(messages[3])
    batch.extend(Batch(messages[4:]))
    assert len(batch) == 5
    assert list(batch) == messages
    assert [batch[at] for at in range(-5, 0)] == messages
    assert list(batch[1:4]) == messages[1:4]
    assert list(batch[::-2]) == messages[::-2]
    assert list(batch[4:1]) == []
    with pytest.raises(IndexError, match="batch index out of range"):
        batch[5]
    with pytest.raises(TypeError):
        batch["a"]  # type: ignore[call-overload]
    assert batch
    assert not Batch()
    batch.extend(batch)
    assert list(batch) == messages * 2
    assert repr(batch) == "<Batch of 10 messages>"
    with pytest.raises(TypeError):
        Batch([1])  # type: ignore[list-item]


json_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
json_objects = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.recursive(
        json_leaves,
        lambda inner: (
            st.lists(inner, max_size=30)
            | st.dictionaries(st.text("abc", max_size=3), inner, max_size=30)
        ),
        max_leaves=40,
    ),
    max_size=30,
)


@given(json_objects)
def test_payloads_of_cbor2(payload: dict[str, Any]) -> None:
    """cbor2 reads and writes the same values, floats and integers apart."""
    theirs = Message.request("a", cbor2.dumps(payload))
    assert theirs.object() == payload
    assert repr(theirs.object()) == repr(payload)
    shortest = Message.request("a", cbor2.dumps(payload, canonical=True))
    assert shortest.object() == payload
    (ours,) = Decoder().feed(Batch([Message.request("a", payload)]).encode_cbor())
    assert ours.payload is not None
    assert repr(cbor2.loads(ours.payload)) == repr(payload)


@given(st.lists(st.binary(max_size=400), max_size=6), st.integers(1, 50))
def test_any_payload_in_any_pieces(payloads: list[bytes], size: int) -> None:
    batch = Batch(Message.request("a.b", payload) for payload in payloads)
    stream = batch.encode()
    decoder = Decoder()
    out = Batch()
    for start in range(0, len(stream), size):
        out.extend(decoder.feed(stream[start : start + size]))
    assert list(out) == list(batch)
    assert [message.payload for message in out] == payloads


@given(st.binary(max_size=80))
def test_noise_is_always_an_error(noise: bytes) -> None:
    frame = b"\x12\x00\xee\xff" + struct.pack(">I", len(noise)) + noise
    try:
        message = Message.decode(frame)
    except WireError as error:
        assert error.offset in range(len(frame) + 1)  # noqa: PT017
    else:
        assert message.encode() == frame


def test_a_document_of_a_payload_is_its_text_as_sent():
    payload = b'{"id":1,"R":{"a": [1]},"none":null}\0'
    message = Message.request("hooks.prolog", payload)
    assert message.document("R") == '{"a": [1]}'
    assert (message.document("none"), message.document("absent")) == (None, None)
    assert Message.request("hooks.prolog").document("R") is None
    batch = Batch([message])
    (cbor,) = Decoder().feed(batch.encode_cbor())
    assert cbor.document("R") == '{"a":[1]}'
    for bad in (b"[1]\0", b'{"R":\0'):
        with pytest.raises(WireError):
            Message.request("hooks.prolog", bad).document("R")
