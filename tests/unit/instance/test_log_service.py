"""The log service alone: permissions, and lines from other threads."""

from __future__ import annotations

import errno
import logging

import pytest
import trio

from penstock._core import ROLE_OWNER, ROLE_USER, Batch, Message
from penstock.clock import SystemClock
from penstock.instance.log_service import LogService


class Broker:
    """A broker that collects the posted messages."""

    owner = 1000
    clock = SystemClock()

    def __init__(self):
        self.posted = []
        self.nudged = trio.Event()

    def attach(self, _service, *, names, **_options):
        assert names == ("log",)
        return 1

    def post_messages(self, _peer, messages):
        self.posted += messages

    def nudge(self):
        self.nudged.set()


def ask(topic, payload=None, *, roles=ROLE_OWNER, flags=0):
    return Message.request(topic, payload, userid=1000, rolemask=roles, matchtag=1, flags=flags)


@pytest.mark.parametrize(
    "request_",
    [
        ("log.dmesg", {"rows": True}, 0x40),
        ("log.append", {"level": "info", "text": "x"}, 0),
        ("log.clear", {}, 0),
    ],
    ids=lambda request: request[0],
)
def test_guests_are_rejected(request_):
    topic, payload, flags = request_

    async def main():
        broker = Broker()
        LogService(broker).deliver(Batch([ask(topic, payload, roles=ROLE_USER, flags=flags)]))
        return broker.posted

    (answer,) = trio.run(main)
    assert answer.errnum == errno.EPERM


def test_lines_of_other_threads_reach_followers(monkeypatch):
    # pytest sends captured text between its processes, and can send only text that can be encoded.
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", False)

    async def main():
        with trio.fail_after(60):
            broker = Broker()
            service = LogService(broker)
            with service.listening():
                service.deliver(
                    Batch([ask("log.dmesg", {"follow": True, "rows": True}, flags=0x40)])
                )
                warning = logging.getLogger("penstock.broker").warning
                await trio.to_thread.run_sync(warning, "from %s, %s", "afar", "\udcff")
                await broker.nudged.wait()
            logging.getLogger("penstock.broker").warning("no longer kept")
            service.post_output(0.0)
            return [row for message in broker.posted for row in message.object()["lines"]]

    (row,) = trio.run(main)
    assert (row["component"], row["level"]) == ("broker", "warning")
    assert row["text"] == "from afar, \\udcff"


def test_other_loggers_are_unchanged(caplog):
    logger = logging.getLogger("penstock")

    async def main():
        before = logger.level, logging.getLogger("penstock.user").level, list(logger.handlers)
        handlers = [handler.level for handler in logging.getLogger().handlers]
        with LogService(Broker()).listening():
            assert logger.isEnabledFor(logging.INFO)
        after = logger.level, logging.getLogger("penstock.user").level, list(logger.handlers)
        assert after == before
        assert [handler.level for handler in logging.getLogger().handlers] == handlers

    trio.run(main)


def test_the_log_is_cleared_up_to_a_line():
    async def main():
        service = LogService(Broker())

        def texts():
            service.deliver(Batch([ask("log.dmesg", {"rows": True}, flags=0x40)]))
            *answers, _end = service._broker.posted
            service._broker.posted.clear()
            return [row["text"] for answer in answers for row in answer.object()["lines"]]

        def clear(payload):
            service.deliver(Batch([ask("log.clear", payload)]))
            return service._broker.posted.pop().errnum

        with service.listening():
            for n in range(1, 6):
                logging.getLogger("penstock.broker").warning("line %d", n)
            assert clear({"upto": 3}) == 0
            assert texts() == ["line 4", "line 5"]
            assert clear({"upto": 3}) == 0
            assert clear({"upto": "4"}) == errno.EPROTO
            assert texts() == ["line 4", "line 5"]
            assert clear({"upto": 99}) == 0
            assert texts() == []
            logging.getLogger("penstock.broker").warning("line 6")
            assert clear({}) == 0
            assert texts() == []

    trio.run(main)
