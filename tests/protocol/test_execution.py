"""RFC 32, the service's end: every allowed sequence of responses, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._core import Message
from penstock.errors import ProtocolError
from penstock.protocol.execution import StartStream


def stream():
    return StartStream(Message.request("job-exec.start", {"id": 7}), 7)


def content(message):
    payload = message.object()
    assert (message.topic, message.streaming, payload["id"]) == ("job-exec.start", True, 7)
    return payload["type"], payload["data"]


def test_a_mild_exception_changes_nothing():
    job = stream()
    job.exception("oom", "", severity=3)
    with pytest.raises(ProtocolError):
        job.release()
    job.start()
    job.finish(0)
    job.release()


def test_reattached_replaces_start_if_requested():
    job = StartStream(Message.request("job-exec.start", {"id": 7}), 7, reattach=True)
    assert content(job.reattached()) == ("reattached", {})
    with pytest.raises(ProtocolError):
        job.start()
    job.finish(0)
    job.release()
    with pytest.raises(ProtocolError):
        stream().reattached()


@pytest.mark.parametrize(
    ("wait_status", "status"),
    [(None, 9), (0, 0), (3 << 8, 3 << 8), (15, (128 + 15) << 8), (11 | 0x80, (128 + 11) << 8)],
)
@pytest.mark.parametrize("own", [True, False])
def test_the_first_fatal_exception_determines_the_wait_status(wait_status, status, own):
    job = stream()
    job.start()
    # Exceptions that are not fatal, and those after the first fatal one, do not affect the status.
    job.exception("slow", "", severity=3, wait_status=1 << 8)
    if own:
        data = {"severity": 0, "type": "timeout", "note": "over"}
        if wait_status is not None:
            data["wait_status"] = wait_status
        assert content(job.exception("timeout", "over", wait_status=wait_status))[1] == data
    else:
        job.interrupt(wait_status)
    job.interrupt(2 << 8)
    job.exception("late", "", wait_status=2 << 8)
    assert content(job.finish(9)) == ("finish", {"status": status})


@given(st.lists(st.sampled_from(["start", "exception", "interrupt", "finish", "part", "release"])))
def test_nothing_follows_the_final_release_which_needs_an_end(calls):
    job = stream()
    sent = []
    calls_of = {
        "start": job.start,
        "exception": lambda: job.exception("x", ""),
        "interrupt": job.interrupt,
        "finish": lambda: job.finish(0),
        "part": lambda: job.release("0", final=False),
        "release": job.release,
    }
    interrupted = False
    for call in calls:
        interrupted = interrupted or call == "interrupt"
        try:
            message = calls_of[call]()
        except ProtocolError:
            continue
        if message is not None:
            kind, data = content(message)
            sent.append("final" if data.get("final") else kind)
    assert sent.count("final") <= 1
    assert "final" not in sent[:-1]
    assert sent.count("start") <= 1
    assert sent.count("finish") <= 1
    if "final" in sent and not interrupted and "exception" not in sent:
        assert sent[0] == "start"
        assert "finish" in sent
