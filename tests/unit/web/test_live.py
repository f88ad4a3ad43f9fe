"""Server-sent events, in virtual time."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from penstock.errors import NoInstanceError, TooManyListenersError
from penstock.web import live
from penstock.web.live import Changes, EventStream, JobMessages


def run(function):
    """Runs an async function in virtual time, for no longer than an hour of it."""

    async def limited():
        with trio.fail_after(3600):
            return await function()

    return trio.run(limited, clock=trio.testing.MockClock(autojump_threshold=0))


class FakeLink:
    """A link whose client answers with `state`, or fails."""

    def __init__(self) -> None:
        self.state = 0
        self.requests = 0
        self.is_lost = False

    @property
    def client(self):
        if self.is_lost:
            raise NoInstanceError("gone")
        return self

    async def rpc(self, _topic):
        await trio.lowlevel.checkpoint()
        self.requests += 1
        return self.state


def test_listeners_are_notified_of_changes_and_only_then():
    async def main():
        link, sent = FakeLink(), []
        changes = Changes(link)

        async def send(text):
            sent.append((trio.current_time() - began, text))

        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            nursery.start_soon(changes.run)
            await trio.sleep(100)
            assert link.requests == 0
            began = trio.current_time()
            nursery.start_soon(changes.send, send)
            # The state at the begin is news, since the page may be older.
            await trio.sleep(40)
            link.state = 1
            await trio.sleep(3)
            link.is_lost = True
            await trio.sleep(3)
            nursery.cancel_scope.cancel()
        changed = [when for when, text in sent if text.startswith("event: changed\n")]
        assert len(changed) == 3
        assert changed[0] < live.POLL_S
        assert 40 <= changed[1] <= 40 + live.POLL_S < changed[2]
        beats = [when for when, text in sent if text == live.HEARTBEAT]
        assert len(beats) == 3

    run(main)


def test_without_listeners_nothing_is_requested():
    async def main():
        link = FakeLink()
        changes = Changes(link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(changes.run)

            async def send(_text):
                await trio.lowlevel.checkpoint()

            with trio.move_on_after(10):
                await changes.send(send)
            await trio.sleep(10)
            before = link.requests
            await trio.sleep(100)
            assert link.requests == before
            nursery.cancel_scope.cancel()

    run(main)


def test_the_number_of_listeners_is_limited(monkeypatch):
    monkeypatch.setattr(live, "MAX_LISTENERS", 2)

    async def main():
        changes = Changes(FakeLink())

        async def send(_text):
            await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                changes.check_listeners()
                nursery.start_soon(changes.send, send)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TooManyListenersError):
                changes.check_listeners()
            nursery.cancel_scope.cancel()
        changes.check_listeners()

    run(main)


class FakeView:
    """A job with an event each minute, and output."""

    def __init__(self, *parts: tuple[float, bytes]) -> None:
        self.parts = parts

    async def follow(self, _row):
        for name in ("start", "finish"):
            await trio.sleep(60)
            yield {"name": name}

    async def follow_output(self, _row):
        for delay, data in self.parts:
            await trio.sleep(delay)
            yield "stdout", data


def messages(*parts):
    async def main():
        sent = []

        async def send(text):
            await trio.lowlevel.checkpoint()
            sent.append(text)

        await JobMessages(FakeView(*parts), {}).send(send)
        return sent

    sent = [text for text in run(main) if text != live.HEARTBEAT]
    kinds = [text.splitlines()[0].removeprefix("event: ") for text in sent]
    return list(zip(kinds, [json.loads(text.splitlines()[1][6:]) for text in sent], strict=True))


def test_output_is_sent_as_it_comes_and_the_end_is_reported():
    found = messages((0, b"a\n"), (0, b"b\n"), (10, b"c<\n"), (100, "ƒ".encode()[:1]), (1, b"\x92"))
    assert [data for kind, data in found if kind == "output"] == [
        {"text": "a\nb\n", "replace": True},
        {"text": "c<\n", "replace": False},
        {"text": "ƒ", "replace": False},
    ]
    assert [kind for kind, _ in found if kind != "output"] == ["changed", "changed", "end"]


def test_of_a_backlog_the_end_is_sent():
    found = messages(*[(0, b"0123456789" * 1000)] * 100, (0, b"last"))
    (text,) = [data["text"] for kind, data in found if kind == "output"]
    assert (len(text), text[-8:]) == (live.MAX_TEXT_CHARACTERS, "6789last")


def test_a_stream_ends_when_the_browser_leaves():
    async def main():
        sent = []
        left = trio.Event()

        async def receive():
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            await trio.lowlevel.checkpoint()
            sent.append(message)

        async def produce(send_text):
            await send_text("one\n")
            left.set()
            await trio.sleep_forever()

        await EventStream(produce)({}, receive, send)
        assert sent[0]["headers"] == [(b"content-type", b"text/event-stream")]
        assert [message.get("body") for message in sent[1:]] == [b"one\n", b""]

    run(main)
