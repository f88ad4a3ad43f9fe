"""The scheduler's process: its conversation over a socket, by the time of the given clock."""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from penstock._core import Batch, Message
from penstock.sched import _converse


class FixedClock:
    """A clock that has stopped; its steady time advances by a second with each reading."""

    def __init__(self):
        self.readings = itertools.count(5.0)

    def now(self):
        return 1000.0

    def monotonic(self):
        return next(self.readings)


class RecordingScheduler:
    """Records the times that are passed to it."""

    failure = None
    phase = "running"

    def __init__(self, deadline=None):
        self.deadline = deadline
        self.annotated = []
        self.deferred = []
        self.scheduled = []

    def start(self):
        pass

    def take_log(self):
        return []

    def take_out(self):
        return Batch([])

    def handle(self, batch):
        self.deadline = None

    def annotate(self, now):
        self.annotated.append(now)
        self.deadline = None

    def defer_annotations(self, now, took):
        self.deferred.append((now, took))

    def schedule(self, now):
        self.scheduled.append(now)
        return False


@pytest.fixture
def wire():
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.fixture
def stop():
    """The two ends of the socket that a signal makes readable."""
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_annotations_are_due_by_the_clock(wire, stop):
    near, far = wire

    class EndingScheduler(RecordingScheduler):
        def annotate(self, now):
            super().annotate(now)
            far.shutdown(socket.SHUT_WR)

    scheduler = EndingScheduler(deadline=999.0)
    assert _converse(near, scheduler, FixedClock(), stop[0]) == 0
    assert scheduler.annotated == [1000.0]
    assert scheduler.deferred == [(1000.0, 1.0)]


def test_annotations_come_between_the_parts_of_an_estimate(wire, stop):
    near, far = wire

    class EstimatingScheduler(RecordingScheduler):
        def schedule(self, now):
            super().schedule(now)
            if len(self.scheduled) == 3:
                far.shutdown(socket.SHUT_WR)
            return True

    scheduler = EstimatingScheduler(deadline=999.0)
    assert _converse(near, scheduler, FixedClock(), stop[0]) == 0
    assert scheduler.annotated == [1000.0]


def test_passes_are_at_the_time_of_the_clock(wire, stop):
    near, far = wire
    scheduler = RecordingScheduler(deadline=2000.0)
    far.sendall(Message.request("sched.stats-get").encode())
    far.shutdown(socket.SHUT_WR)
    assert _converse(near, scheduler, FixedClock(), stop[0]) == 0
    assert scheduler.scheduled == [1000.0]


def test_a_due_pass_comes_before_the_annotations(wire, stop):
    near, far = wire

    class RetryingScheduler(RecordingScheduler):
        def schedule(self, now):
            self.deadline = 2000.0
            far.shutdown(socket.SHUT_WR)
            return super().schedule(now)

    scheduler = RetryingScheduler(deadline=999.0)
    assert _converse(near, scheduler, FixedClock(), stop[0]) == 0
    assert scheduler.scheduled
    assert scheduler.annotated == []


def test_a_signal_stops_the_scheduler_once_its_services_are_unregistered(wire, stop):
    near, far = wire

    class StoppingScheduler(RecordingScheduler):
        def stop(self):
            self.phase = "stopping"
            far.sendall(Message.request("service.remove").encode())

        def handle(self, batch):
            self.phase = "stopped"

    stop[1].sendall(b"\x0f")
    scheduler = StoppingScheduler()
    assert _converse(near, scheduler, FixedClock(), stop[0]) == 0
    assert scheduler.phase == "stopped"


def test_registration_is_logged_once_before_the_scheduler_is_ready(wire, stop, caplog):
    near, far = wire
    caplog.set_level("DEBUG")

    class RegisteringScheduler(RecordingScheduler):
        phase = "registering"

        def handle(self, batch):
            assert caplog.messages == []
            self.phase = "acquiring"
            far.shutdown(socket.SHUT_WR)

    far.sendall(Message.request("service.add").encode())
    assert _converse(near, RegisteringScheduler(), FixedClock(), stop[0]) == 0
    assert caplog.messages == ["registered"]


def test_it_ends_if_the_instance_ends_while_it_waits_for_room(wire, stop):
    near, far = wire

    class SendingScheduler(RecordingScheduler):
        def take_out(self):
            threading.Thread(target=close_when_blocked).start()
            return Batch([Message.request("broker.ping", {}, matchtag=1)])

    def close_when_blocked():
        # The thread of the scheduler sleeps in the call to the kernel.
        state = Path(f"/proc/self/task/{scheduling}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "S":
            pass
        far.close()

    scheduling = threading.get_native_id()
    near.settimeout(0)
    with suppress(BlockingIOError):
        while True:
            near.send(b"x")
    near.settimeout(None)
    assert _converse(near, SendingScheduler(), FixedClock(), stop[0]) == 0
