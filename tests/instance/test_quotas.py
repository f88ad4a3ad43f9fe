"""Limits of users: one that sends too much is stopped, and others are not."""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock._core import STREAMING, Batch, Decoder, Message, check_store
from penstock.client import Client
from penstock.errors import NoInstanceError, RpcError
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GUEST, OTHER = 54321, 54322
ECHO = {"text": "x"}
WATCH = "job-info.eventlog-watch"
LOOKUP = "job-info.lookup"
OUTPUT = "job-exec.output"
# A job that ends at once.
INSTANT = from_command(["true"], environment={}, cwd="/", setattr={"exec.test.run_duration": "0s"})
# The options of an instance that executes jobs.
REAL = ("--nodes=1", "--cores=1", "--oversubscribe")
# Requests, more than the buffers of a connection hold.
FLOOD = 20_000

if os.geteuid() != 0:
    pytest.skip("only root can connect as other users", allow_module_level=True)


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Gives the connections of the block to a user."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def site(start, tmp_path):
    """Gives a context manager that starts an instance with limits, and yields it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    folder.chmod(0o755)

    @contextmanager
    def start_site(quota: str = "", *options: str, prefix: Sequence[str] = ()):
        config = tmp_path / "config.toml"
        config.write_text(f"[access]\nallow-guest-user = true\n[penstock.quota]\n{quota}\n")
        options = options or ("--nodes=2", "--cores=2")
        words = ("--config", str(config), "--socket", str(folder / "socket"), *options)
        with start(*words, stderr=tmp_path / "log", prefix=prefix) as instance:
            instance.uri = f"local://{folder}/socket"
            instance.log = tmp_path / "log"
            with ExitStack() as instance.opened:
                yield instance

    yield start_site
    shutil.rmtree(folder)


def guest(instance, uid: int = GUEST) -> Client:
    with acting_as(uid):
        return Client(instance.uri, timeout=60)


class RawClient:
    """A user's connection that sends any bytes."""

    def __init__(self, instance, uid: int = GUEST) -> None:
        self.socket = instance.opened.enter_context(socket.socket(socket.AF_UNIX))
        self.socket.settimeout(60)
        with acting_as(uid):
            self.socket.connect(instance.uri.removeprefix("local://"))
        assert self.socket.recv(1) == b"\0"
        self._decoder = Decoder()

    def send(self, topic: str, payload: object, *, tag: int, flags: int = 0) -> None:
        request = Message.request(topic, payload, matchtag=tag, flags=flags)
        self.socket.sendall(Batch([request]).encode())

    def receive(self, count: int) -> list[Message]:
        """The next responses."""
        found: list[Message] = []
        while len(found) < count:
            data = self.socket.recv(1 << 16)
            assert data, "the connection was closed"
            found += self._decoder.feed(data)
        return found

    def is_closed(self) -> bool:
        """Waits until the instance closes the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def limited_files(count: int) -> Sequence[str]:
    """The words in front of a command that may open few files."""
    return ("sh", "-c", f'ulimit -n {count}; exec "$@"', "sh")


def guests_of(client: Client) -> dict:
    return client.stats("broker")["guests"]


def test_connections_of_a_guest_are_limited(site):
    with site("connections = 3") as instance, Client(instance.uri) as owner:
        held = [instance.opened.enter_context(guest(instance)) for _ in range(3)]
        with pytest.raises(NoInstanceError, match="too many connections of this user"):
            guest(instance)
        # Others have their own.
        with guest(instance, OTHER) as other, Client(instance.uri) as again:
            assert other.rpc("broker.ping", ECHO)["text"] == "x"
            assert again.jobs() == []
        while guests_of(owner)["connections"] > 3:
            pass
        assert guests_of(owner)["rejected"]["connections"] == 1
        held.pop().close()
        while guests_of(owner)["connections"] > 2:
            pass
        guest(instance).close()
    assert "(penstock.quota.connections)" in instance.log.read_text()


def test_connections_of_all_guests_leave_some_for_the_owner(site):
    with site("connections = 1", prefix=limited_files(256)) as instance:
        held: list[Client] = []
        with pytest.raises(NoInstanceError, match="too many"):
            held.extend(
                instance.opened.enter_context(guest(instance, GUEST + number))
                for number in range(256)
            )
        assert len(held) > 100
        owners = [
            instance.opened.enter_context(Client(instance.uri, timeout=60)) for _ in range(32)
        ]
        job = owners[-1].submit(from_command(["true"], environment={}, cwd="/"))
        assert owners[0].wait_row(job)["success"]
        assert held[0].rpc("broker.ping", ECHO)["text"] == "x"


def test_connections_of_all_guests_leave_descriptors_for_hooks(site):
    quota = '[job-manager.prolog]\ncommand = ["/bin/sleep", "0.5"]'
    options = ("--nodes=40", "--cores=1", "--exec=sim")
    with site(quota, *options, prefix=limited_files(256)) as instance:
        with suppress(NoInstanceError):
            for _ in range(256):
                instance.opened.enter_context(guest(instance))
        with Client(instance.uri, timeout=60) as owner:
            assert owner.stats("broker")["guests"]["rejected"]["connections"] == 1
            jobs = owner.submit(INSTANT, count=40)
            failed = [row for row in owner.wait_rows(jobs) if not row["success"]]
            assert [row["exception_note"] for row in failed] == []
        assert "cannot run" not in instance.log.read_text()


def test_a_hook_for_which_there_are_no_descriptors_is_run_later(site):
    quota = '[job-manager.prolog]\ncommand = ["/bin/true"]'
    options = ("--nodes=2", "--cores=1", "--exec=sim")
    with (
        site(quota, *options, prefix=limited_files(192)) as instance,
        Client(instance.uri, timeout=60) as owner,
        ExitStack() as others,
    ):
        while "cannot accept a connection" not in instance.log.read_text():
            connection = others.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(0)
            with suppress(BlockingIOError):
                connection.connect(instance.uri.removeprefix("local://"))
        job, cancelled = owner.submit(INSTANT, count=2)
        warning = "cannot run `/bin/true` now: Too many open files"
        while instance.log.read_text().count(warning) < 2:
            pass
        owner.cancel([cancelled])
        assert owner.wait_row(cancelled)["exception_type"] == "cancel"
        assert owner.stats("job-manager")["active_jobs"] == 1
        others.close()
        assert owner.wait_row(job)["success"]


def test_the_daemon_may_open_more_files_than_its_tasks(site):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(soft, 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    try:
        with site("", "--nodes=1", "--cores=1", "--oversubscribe") as instance:
            limits = Path(f"/proc/{instance.process.pid}/limits").read_text().splitlines()
            (row,) = (line.split()[3:5] for line in limits if line.startswith("Max open files"))
            assert row == [str(hard), str(hard)]
            with Client(instance.uri, timeout=60) as client:
                job = client.submit(from_command(["sh", "-c", "ulimit -Sn"], environment={}))
                assert client.wait_row(job)["success"]
            assert instance.lines("logs", str(job)) == [str(lower)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_unfinished_messages_of_a_guest_are_limited(site):
    size = 600_000
    start_of_frame = b"\x12\x00\xee\xff" + struct.pack(">I", 2 * size) + b"\x8e\x01" + b"x" * size
    with site("unfinished-bytes = 1000000") as instance, Client(instance.uri) as owner:
        one, two = RawClient(instance), RawClient(instance)
        other = RawClient(instance, OTHER)
        one.socket.sendall(start_of_frame)
        while guests_of(owner)["unfinished_bytes"] < size:
            pass
        # The instance closes the connection before it has read all of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            two.socket.sendall(start_of_frame)
        assert two.is_closed()
        other.socket.sendall(start_of_frame)
        while guests_of(owner)["unfinished_bytes"] < 2 * size:
            pass
        assert guests_of(owner)["rejected"]["unfinished_bytes"] == 1
        one.socket.close()
        while guests_of(owner)["connections"] > 1:
            pass
        assert guests_of(owner)["unfinished_bytes"] < size + 1000
    assert "(penstock.quota.unfinished-bytes)" in instance.log.read_text()


def test_unfinished_messages_of_all_guests_are_limited(site):
    size = 600_000
    start_of_frame = b"\x12\x00\xee\xff" + struct.pack(">I", 2 * size) + b"\x8e\x01" + b"x" * size
    with site("all-unfinished-bytes = 1000000") as instance, Client(instance.uri) as owner:
        one, other = RawClient(instance), RawClient(instance, OTHER)
        one.socket.sendall(start_of_frame)
        while guests_of(owner)["unfinished_bytes"] < size:
            pass
        # The connection with the most is closed, whoever sends.
        other.socket.sendall(start_of_frame[: size - 100_000])
        assert one.is_closed()
        assert guests_of(owner)["rejected"]["all_unfinished_bytes"] == 1
        other.socket.close()
        while guests_of(owner)["connections"] > 0:
            pass
        assert guests_of(owner)["unfinished_bytes"] == 0
    assert "(penstock.quota.all-unfinished-bytes)" in instance.log.read_text()


def test_what_a_guest_holds_in_many_connections_leaves_room_for_other_guests(site):
    size = 100_000
    start_of_frame = b"\x12\x00\xee\xff" + struct.pack(">I", 20 * size) + b"\x8e\x01"
    with site("all-unfinished-bytes = 1000000") as instance, Client(instance.uri) as owner:
        many = [RawClient(instance) for _ in range(9)]
        for number, each in enumerate(many, start=1):
            each.socket.sendall(start_of_frame + b"x" * size)
            while guests_of(owner)["unfinished_bytes"] < number * size:
                pass
        # Several are closed, one after the other, for one that is longer than each.
        other = RawClient(instance, OTHER)
        other.socket.sendall(start_of_frame + b"x" * 250_000)
        while guests_of(owner)["connections"] > 8:
            pass
        while guests_of(owner)["unfinished_bytes"] < 7 * size + 250_000:
            pass
        other.socket.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.socket.recv(1)
    assert "(penstock.quota.all-unfinished-bytes)" in instance.log.read_text()


def test_outstanding_requests_of_all_guests_are_limited(site):
    quota = "all-requests = 4\nall-request-bytes = 100000"
    with site(quota) as instance, Client(instance.uri) as owner:
        held = owner.submit(from_command(["true"], environment={}), urgency=0)
        raw, other = RawClient(instance), RawClient(instance, OTHER)
        for tag in range(1, 4):
            raw.send("job-manager.drain", {}, tag=tag)
        other.send("broker.ping", {"text": "x" * 200_000}, tag=1)
        (rejected,) = other.receive(1)
        assert rejected.errnum == errno.EAGAIN
        assert "all guests have" in rejected.error_text
        assert "(penstock.quota.all-request-bytes)" in rejected.error_text
        other.send("job-manager.drain", {}, tag=2)
        other.send("broker.ping", ECHO, tag=3)
        (rejected,) = other.receive(1)
        assert "(penstock.quota.all-requests)" in rejected.error_text
        counts = guests_of(owner)["rejected"]
        assert (counts["all_requests"], counts["all_request_bytes"]) == (1, 1)
        # The owner's do not count.
        owner.submit(from_command(["true", "x" * 200_000], environment={}), urgency=0)
        owner.cancel([held])


def test_outstanding_requests_of_a_guest_are_limited(site):
    with site("requests = 4\nrequest-bytes = 100000") as instance, Client(instance.uri) as owner:
        held = owner.submit(from_command(["true"], environment={}), urgency=0)
        raw, again = RawClient(instance), RawClient(instance)
        for tag in range(1, 5):
            raw.send("job-manager.drain", {}, tag=tag)
        raw.send("job-manager.drain", {}, tag=5)
        (rejected,) = raw.receive(1)
        assert (rejected.matchtag, rejected.errnum) == (5, errno.EAGAIN)
        assert "penstock.quota.requests" in rejected.error_text
        again.send("broker.ping", ECHO, tag=1)
        assert again.receive(1)[0].errnum == errno.EAGAIN
        assert guests_of(owner)["rejected"]["requests"] == 2
        # The owner, and other guests, have their own.
        with guest(instance, OTHER) as other:
            assert other.rpc("broker.ping", ECHO)["text"] == "x"
        owner.cancel([held])
        assert [message.errnum for message in raw.receive(4)] == [0] * 4
        again.send("broker.ping", {"text": "x" * 200_000}, tag=2)
        (rejected,) = again.receive(1)
        assert "penstock.quota.request-bytes" in rejected.error_text
        owner.submit(from_command(["true", "x" * 200_000], environment={}), urgency=0)
        assert guests_of(owner)["rejected"]["request_bytes"] == 1


def test_watches_of_a_guest_and_of_all_guests_are_limited(site):
    spec = from_command(["true"], environment={}, cwd="/")
    with site("watches = 3\nall-watches = 4") as instance, Client(instance.uri) as owner:
        one, two, other = RawClient(instance), RawClient(instance), RawClient(instance, OTHER)
        with guest(instance) as client, guest(instance, OTHER) as stranger:
            mine, others = client.submit(spec, urgency=0), stranger.submit(spec, urgency=0)
            watch = {"id": mine, "path": "eventlog", "flags": 0}
            # The connections of the user count together; each watch has sent the past events.
            for raw, tag in ((one, 1), (one, 2), (two, 3)):
                raw.send(WATCH, watch, tag=tag, flags=STREAMING)
                assert raw.receive(1)[0].errnum == 0
            two.send(WATCH, watch, tag=4, flags=STREAMING)
            (rejected,) = two.receive(1)
            assert (rejected.matchtag, rejected.errnum) == (4, errno.EAGAIN)
            assert "has 3 streaming requests, expected at most 3" in rejected.error_text
            assert "(penstock.quota.watches)" in rejected.error_text
            # Requests with one response are no watches.
            assert client.rpc("broker.ping", ECHO)["text"] == "x"
            theirs = {**watch, "id": others}
            other.send(WATCH, theirs, tag=1, flags=STREAMING)
            assert other.receive(1)[0].errnum == 0
            other.send(WATCH, theirs, tag=2, flags=STREAMING)
            (rejected,) = other.receive(1)
            assert rejected.errnum == errno.EAGAIN
            assert "(penstock.quota.all-watches)" in rejected.error_text
            counts = guests_of(owner)["rejected"]
            assert (counts["watches"], counts["all_watches"]) == (1, 1)
            # The owner has no limit, and the end of a connection makes room.
            assert next(owner.eventlog(mine, follow=True))["name"] == "submit"
            two.socket.close()
            while guests_of(owner)["connections"] > 4:
                pass
            other.send(WATCH, theirs, tag=3, flags=STREAMING)
            assert other.receive(1)[0].errnum == 0


def test_output_of_a_pending_job_takes_one_wait_however_many_follow_it(site):
    with (
        site("", *REAL) as instance,
        Client(instance.uri, timeout=60) as owner,
        guest(instance) as user,
    ):

        def waits() -> int:
            return owner.stats("job-manager")["outstanding"]["waits"]

        job = user.submit(from_command(["true"], environment={}, cwd="/"), urgency=0)
        raw, leaving = RawClient(instance), RawClient(instance)
        for tag in range(1, 6):
            for each in (raw, leaving):
                each.send(OUTPUT, {"id": job, "follow": True}, tag=tag, flags=STREAMING)
        while owner.stats("job-exec")["followers"] < 10 or not waits():
            pass
        assert waits() == 1
        for tag in range(1, 6):
            raw.send(f"{OUTPUT}-cancel", {"matchtag": tag}, tag=tag + 5)
        ended = [message.errnum for message in raw.receive(10)]
        assert sorted(ended) == [0] * 5 + [errno.ENODATA] * 5
        assert waits() == 1
        leaving.socket.close()
        while waits():
            pass
        # By way of the job manager.
        raw.send(WATCH, {"id": job, "path": "guest.output", "flags": 0}, tag=20, flags=STREAMING)
        while not waits():
            pass
        raw.send(f"{WATCH}-cancel", {"matchtag": 20}, tag=21)
        while waits():
            pass
        assert owner.stats("job-exec")["followers"] == 0


def test_output_is_not_followed_for_clients_that_have_left(site):
    with (
        site("", *REAL) as instance,
        Client(instance.uri, timeout=60) as owner,
        guest(instance) as user,
    ):
        job = user.submit(from_command(["true"], environment={}, cwd="/"), urgency=0)
        for _ in range(20):
            raw = RawClient(instance)
            for tag in range(1, 101):
                raw.send(OUTPUT, {"id": job, "follow": True}, tag=tag, flags=STREAMING)
            raw.socket.close()
        while guests_of(owner)["connections"] > 1:
            pass
        # The job manager responds to lookups before the last request.
        for service in ("job-exec", "job-manager", "job-exec"):
            stats = owner.stats(service)
        assert stats["followers"] == 0


def test_memos_of_a_guest_and_of_all_guests_are_limited(site):
    spec = from_command(["true"], environment={}, cwd="/")

    def set_memo(client: Client, job: int, size: int) -> None:
        client.rpc("job-manager.memo", {"id": job, "memo": {"x": "x" * size}})

    limits = "memo-bytes = 10000\nall-memo-bytes = 15000"
    with (
        site(limits) as instance,
        Client(instance.uri) as owner,
        guest(instance) as client,
        guest(instance, OTHER) as other,
    ):
        one, two, three = (client.submit(spec, urgency=0) for _ in range(3))
        theirs = other.submit(spec, urgency=0)
        set_memo(client, one, 4000)
        set_memo(client, two, 4000)
        # The size of a memo is that of its latest value.
        set_memo(client, two, 4000)
        with pytest.raises(RpcError, match=r"user 54321 would have .*quota.memo-bytes") as caught:
            set_memo(client, three, 4000)
        assert caught.value.errno == errno.EAGAIN
        with pytest.raises(RpcError, match=r"of all guests would have .*quota.all-memo-bytes"):
            set_memo(other, theirs, 8000)
        set_memo(other, theirs, 6000)
        counts = owner.stats("job-manager")["rejected"]
        assert (counts["memo_bytes"], counts["all_memo_bytes"]) == (1, 1)
        # The owner has no limit, and a memo above the limit can become shorter.
        set_memo(owner, three, 9000)
        set_memo(client, three, 8000)
        client.cancel([three, two])
        client.wait_rows([three, two])
        set_memo(client, one, 8000)


def test_the_payload_of_a_large_message_of_a_guest_is_not_read(site):
    with site("message-bytes = 100000") as instance, Client(instance.uri) as owner:
        raw = RawClient(instance)
        text = "x" * 200_000
        request = Message.request("job-ingest.submit", {"jobspec": {"x": text}}, matchtag=7)
        frame = Batch([request]).encode()
        raw.socket.sendall(frame[:-10])
        raw_two = RawClient(instance)
        raw_two.send("broker.ping", ECHO, tag=1)
        assert raw_two.receive(1)[0].errnum == 0
        raw.socket.sendall(frame[-10:])
        raw.send("broker.ping", ECHO, tag=8)
        rejected, ping = sorted(raw.receive(2), key=lambda message: message.matchtag)
        assert (rejected.matchtag, rejected.errnum) == (7, errno.EMSGSIZE)
        assert rejected.error_text == (
            "job-ingest.submit: expected a message of at most 100000 bytes "
            "(penstock.quota.message-bytes)"
        )
        assert (ping.matchtag, ping.errnum) == (8, 0)
        assert guests_of(owner)["rejected"]["message_bytes"] == 1
        owner.submit(from_command(["true", text], environment={}), urgency=0)


def test_nothing_is_read_of_a_guest_that_leaves_much_unread(site):
    with site() as instance, Client(instance.uri) as owner:
        one, two = RawClient(instance), RawClient(instance)
        ping = Message.request("broker.ping", {"text": "x" * 60_000}, matchtag=1)
        frames = Batch([ping] * 2000).encode()
        # Both send until the instance takes no more: 120 MB would be the responses to each.
        sent = []
        for raw in (one, two):
            raw.socket.settimeout(1)
            taken = 0
            with suppress(TimeoutError):
                while taken < len(frames):
                    taken += raw.socket.send(frames[taken : taken + 65536])
            sent.append(taken)
        assert max(sent) < len(frames)
        assert owner.stats("broker")["unsent"] < 48 << 20
        # A guest that reads is served again.
        other = guest(instance, OTHER)
        instance.opened.enter_context(other)
        assert other.rpc("broker.ping", ECHO)["text"] == "x"
        for raw, taken in zip((one, two), sent, strict=True):
            raw.socket.settimeout(60)
            raw.receive(taken * 2000 // len(frames))


def test_long_documents_of_a_guest_are_sent_one_after_the_other(site):
    spec = from_command(["true"], environment={}, cwd="/")
    with site("request-rate = 0") as instance, Client(instance.uri) as owner:
        raw = RawClient(instance)
        with guest(instance) as client:
            job = client.submit(spec, urgency=0)
        memos = [
            Message.request(
                "job-manager.memo", {"id": job, "memo": {"x": str(tag) * 15_000}}, matchtag=tag
            )
            for tag in range(1, 10)
        ]
        for _ in range(7):
            raw.socket.sendall(Batch(memos).encode())
            raw.receive(len(memos))
        payload = {"id": job, "keys": ["eventlog"], "flags": 0}
        lookups = [Message.request(LOOKUP, payload, matchtag=tag) for tag in range(1, 65)]
        raw.socket.sendall(Batch(lookups).encode())
        unread, found = 0, 0
        while found < len(lookups):
            # The first of these answers comes after the lookups have been read.
            unread = max(unread, owner.stats("broker")["unsent"])
            responses = raw.receive(1)
            assert {response.errnum for response in responses} == {0}
            found += len(responses)
        # All responses are 60 MB.
        assert len(responses[-1].payload) > 900_000
        assert 900_000 < unread < 48 << 20


def test_events_of_a_guest_for_many_watches_are_sent_one_after_the_other(site):
    spec = from_command(["true"], environment={}, cwd="/")
    with site("request-rate = 0") as instance, Client(instance.uri) as owner:
        watcher, writer = RawClient(instance), RawClient(instance)
        with guest(instance) as client:
            job = client.submit(spec, urgency=0)
            events = len(list(client.eventlog(job)))
        payload = {"id": job, "path": "eventlog", "flags": 0}
        watches = [
            Message.request(WATCH, payload, matchtag=tag, flags=STREAMING) for tag in range(1, 2001)
        ]
        watcher.socket.sendall(Batch(watches).encode())
        while owner.stats("job-manager")["outstanding"]["followers"] < len(watches):
            pass
        memo = {"id": job, "memo": {"x": "x" * 6_000}}
        memos = [Message.request("job-manager.memo", memo, matchtag=tag) for tag in range(1, 17)]
        writer.socket.sendall(Batch(memos).encode())
        writer.receive(1)
        # The watches get 12 MB for each memo: no more is read of the guest until it has read them.
        stats = owner.stats("broker")
        assert 8 << 20 < stats["unsent"] < 64 << 20
        assert stats["closed_unread"] == 0
        watcher.receive(len(watches) * (events + len(memos)))
        writer.receive(len(memos) - 1)


def test_pings_and_subscriptions_of_every_user_are_limited(site):
    with site() as instance, Client(instance.uri) as owner:
        for service in ("broker", "job-manager", "sched", "job-exec"):
            text = "x" * 60_000
            assert owner.rpc(f"{service}.ping", {"text": text})["text"] == text
            with pytest.raises(RpcError, match="expected at most 65536 bytes") as caught:
                owner.rpc(f"{service}.ping", {"text": "x" * 70_000})
            assert caught.value.errno == errno.EMSGSIZE
        with pytest.raises(RpcError, match="a prefix of at most 255 bytes"):
            owner.rpc("event.subscribe", {"topic": "x" * 256})
        for number in range(1000):
            owner.rpc("event.subscribe", {"topic": f"news-{number}"})
        with pytest.raises(RpcError, match="too many subscriptions") as caught:
            owner.rpc("event.subscribe", {"topic": "news"})
        assert caught.value.errno == errno.EAGAIN


def test_questions_to_the_scheduler_are_about_few_jobs(site):
    spec = from_command(["true"], environment={}, cwd="/")
    with site() as instance, Client(instance.uri) as owner:
        job = owner.submit(spec, urgency=0)
        for topic in ("sched.explain", "sched.estimate"):
            with pytest.raises(RpcError, match="1001 jobs: expected at most 1000"):
                owner.rpc(topic, {"ids": [job] * 1001})
        # A job that is named twice is explained once.
        assert len(owner.rpc("sched.explain", {"ids": [job] * 1000})["errors"]) == 1


def test_a_client_that_submits_without_end_is_read_more_slowly(site):
    jobspec = from_command(["true"], environment={}, cwd="/", duration=60.0)
    # No job is started, and each submission takes hundreds of slices.
    payload = {"jobspec": jobspec, "urgency": 0, "count": 50_000}
    request = Message.request("job-ingest.submit", payload, matchtag=1)
    frames = Batch([request] * FLOOD).encode()
    with site("", "--nodes=2", "--cores=2", "--exec=sim") as instance:
        flood = RawClient(instance, os.geteuid()).socket
        flood.settimeout(None)

        def send() -> None:
            with suppress(OSError):
                flood.sendall(frames)

        sender = threading.Thread(target=send)
        sender.start()
        with Client(instance.uri, timeout=60) as client:
            # Another client takes turns with it, until no more is read of it for three of them.
            held = 0
            received = client.stats("broker")["received"]
            while received < 100 or held < 3:
                assert len(client.submit(jobspec, urgency=0, count=2000)) == 2000
                before, received = received, client.stats("broker")["received"]
                held = held + 1 if received == before + 2 else 0
            assert received < FLOOD
            assert client.stats("broker")["held_back"] == 1
        flood.shutdown(socket.SHUT_RDWR)
        sender.join()


def test_outstanding_requests_of_the_owner_are_limited(site):
    with site("owner-requests = 4\nowner-request-bytes = 100000") as instance:
        held, raw = RawClient(instance, os.geteuid()), RawClient(instance, os.geteuid())
        jobspec = from_command(["true"], environment={}, cwd="/", duration=60.0)
        held.send("job-ingest.submit", {"jobspec": jobspec, "urgency": 0}, tag=1)
        assert held.receive(1)[0].errnum == 0
        for tag in range(2, 6):
            held.send("job-manager.drain", {}, tag=tag)
        held.send("job-manager.drain", {}, tag=6)
        (rejected,) = held.receive(1)
        assert (rejected.matchtag, rejected.errnum) == (6, errno.EAGAIN)
        assert "penstock.quota.owner-requests" in rejected.error_text
        # All connections count together. Guests have limits of their own.
        raw.send("broker.ping", ECHO, tag=1)
        assert raw.receive(1)[0].errnum == errno.EAGAIN
        with guest(instance) as other:
            assert other.rpc("broker.ping", ECHO)["text"] == "x"
        held.socket.close()
        # The end of a connection makes room.
        answer = errno.EAGAIN
        while answer == errno.EAGAIN:
            raw.send("broker.ping", ECHO, tag=2)
            answer = raw.receive(1)[0].errnum
        assert answer == 0
        raw.send("broker.ping", {"text": "x" * 200_000}, tag=3)
        (rejected,) = raw.receive(1)
        assert "penstock.quota.owner-request-bytes" in rejected.error_text
        with Client(instance.uri) as client:
            counts = client.stats("broker")["owner_rejected"]
        assert counts["owner_requests"] >= 2
        assert counts["owner_request_bytes"] == 1


def test_requests_above_the_rate_are_read_later(site):
    with site("request-rate = 100") as instance, Client(instance.uri) as owner:
        raw = RawClient(instance)
        requests = [Message.request("broker.ping", ECHO, matchtag=tag) for tag in range(1, 201)]
        raw.socket.sendall(Batch(requests).encode())
        assert {message.matchtag for message in raw.receive(200)} == set(range(1, 201))
        assert guests_of(owner)["delayed"] >= 1


def test_jobs_of_a_guest_are_limited(site):
    spec = from_command(["true"], environment={}, cwd="/")
    many = {"jobspec": spec, "urgency": 0, "count": 6}
    with site("active-jobs = 8\nsubmission-jobs = 6") as instance, guest(instance) as client:
        with pytest.raises(RpcError, match=r"has 7 jobs: expected at most 6 .*submission-jobs"):
            client.rpc("job-ingest.submit", {**many, "count": 7})
        with pytest.raises(RpcError, match="submission-jobs"):
            client.rpc("job-ingest.submit", {"jobs": [{"jobspec": spec}] * 7})
        ids = client.rpc("job-ingest.submit", many)["ids"]
        with pytest.raises(RpcError, match=r"has 6 active jobs: .*active-jobs") as caught:
            client.rpc("job-ingest.submit", many)
        assert caught.value.errno == errno.EAGAIN
        client.cancel(ids[:4])
        for row in client.wait_rows(ids[:4]):
            assert not row["success"]
        assert len(client.rpc("job-ingest.submit", many)["ids"]) == 6
        with Client(instance.uri) as owner, guest(instance, OTHER) as other:
            assert len(owner.rpc("job-ingest.submit", {**many, "count": 20})["ids"]) == 20
            assert len(other.rpc("job-ingest.submit", many)["ids"]) == 6
            rejected = owner.stats("job-manager")["rejected"]
        assert (rejected["submission_jobs"], rejected["active_jobs"]) == (2, 1)


def test_jobs_of_all_guests_and_their_memory_are_limited(site):
    def spec(number: int) -> dict:
        document = from_command(["true"], environment={}, cwd="/")
        document["attributes"]["system"]["job"] = {"name": "x" * 4000 + str(number)}
        return document

    quota = "all-active-jobs = 8\nall-job-bytes = 20000"
    with (
        site(quota) as instance,
        guest(instance) as client,
        guest(instance, OTHER) as other,
        Client(instance.uri) as owner,
    ):
        jobs = [client.submit(spec(number), urgency=0) for number in range(3)]
        other.submit(spec(3), urgency=0)
        with pytest.raises(RpcError, match=r"of all guests would take .*all-job-bytes") as caught:
            other.submit(spec(4), urgency=0)
        assert caught.value.errno == errno.EAGAIN
        many = {"jobspec": from_command(["true"], environment={}, cwd="/"), "urgency": 0}
        with pytest.raises(RpcError, match=r"all guests have \d active jobs: .*all-active-jobs"):
            other.rpc("job-ingest.submit", {**many, "count": 6})
        rejected = owner.stats("job-manager")["rejected"]
        assert (rejected["all_job_bytes"], rejected["all_active_jobs"]) == (1, 1)
        owner.rpc("job-ingest.submit", {**many, "count": 20})
        owner.submit(spec(9), urgency=0)
        client.cancel(jobs)
        for _ in client.wait_rows(jobs):
            pass
        other.submit(spec(9), urgency=0)
        other.rpc("job-ingest.submit", {**many, "count": 2})


def test_the_memory_of_jobspecs_of_a_guest_is_limited(site):
    def spec(number: int, kind: str, command: str = "true") -> dict:
        names = [f"name{number}.{place}" for place in range(100)]
        document = from_command([command], environment={}, cwd="/")
        attributes = document["attributes"]["system"]
        if kind == "constraint":
            attributes["constraints"] = {"or": [{"properties": [name]} for name in names]}
            attributes["constraints"]["or"].append({"hostlist": ["node0"]})
        elif kind == "dependencies":
            attributes["dependencies"] = [
                {"scheme": "begin-time", "value": str(4e9 + number + place)} for place in range(100)
            ]
        else:
            attributes["job"] = {"name": "x" * 4000 + str(number)}
        return document

    error = r"of user 54321 would take \d+ bytes of memory: expected at most 200000 .*job-bytes"
    with (
        site("job-bytes = 200000") as instance,
        guest(instance) as client,
        guest(instance, OTHER) as other,
        Client(instance.uri) as owner,
    ):
        for kind in ("constraint", "dependencies", "name"):
            jobs = []
            with pytest.raises(RpcError, match=error) as caught:
                jobs.extend(client.submit(spec(each, kind), urgency=0) for each in range(100))
            assert caught.value.errno == errno.EAGAIN
            assert 1 < len(jobs) < 60
            if kind == "dependencies":
                # Copies have dependencies of their own.
                copies = {"jobspec": spec(0, kind), "count": 10, "urgency": 0}
                with pytest.raises(RpcError, match=r"active jobs of user 54322 .*job-bytes"):
                    other.rpc("job-ingest.submit", copies)
            if kind == "constraint":
                # Jobs share their constraint, but not with another time limit.
                jobs.append(client.submit(spec(0, kind, "other"), urgency=0))
                with pytest.raises(RpcError, match=error):
                    client.update(jobs[-1], duration=60)
            for unaffected in (owner, other):
                unaffected.submit(spec(100, kind), urgency=0)
            client.cancel(jobs)
            for _ in client.wait_rows(jobs):
                pass
            client.cancel([client.submit(spec(100, kind), urgency=0)])
        assert owner.stats("job-manager")["rejected"]["job_bytes"] == 5


def test_limits_can_change_while_the_instance_runs(site, tmp_path):
    with site("connections = 1") as instance, guest(instance):
        with pytest.raises(NoInstanceError):
            guest(instance)
        config = tmp_path / "config.toml"
        config.write_text(config.read_text().replace("connections = 1", "connections = 2"))
        instance.penstock("config", "reload", str(config))
        guest(instance).close()


def test_texts_of_a_user_are_limited(site):
    spec = from_command(["true"], environment={}, cwd="/")
    with site() as instance, guest(instance) as client:
        job = client.submit(spec, urgency=0)
        raised = {"id": job, "type": "note", "severity": 7, "note": "x" * 5000}
        with pytest.raises(RpcError, match="`note` is too long: expected at most 4096 bytes"):
            client.rpc("job-manager.raise", raised)
        with pytest.raises(RpcError, match="`type` is too long"):
            client.rpc("job-manager.raise", {**raised, "type": "x" * 300, "note": ""})
        for key in ("a", "b"):
            client.rpc("job-manager.memo", {"id": job, "memo": {key: "x" * 7000}})
        with pytest.raises(RpcError, match="`memo` is too long: expected at most 16384 bytes"):
            client.rpc("job-manager.memo", {"id": job, "memo": {"c": "x" * 7000}})
        client.rpc("job-manager.memo", {"id": job, "memo": {"a": None}})
        client.rpc("job-manager.memo", {"id": job, "memo": {"c": "x" * 7000}})
        long_name = from_command(["true"], environment={}, cwd="/")
        long_name["attributes"]["system"]["job"] = {"name": "x" * 5000}
        with pytest.raises(RpcError, match=r"job\.name is too long: expected at most 4096"):
            client.submit(long_name)
        large = from_command(["true"], environment={"A": "x" * 2**20}, cwd="/")
        with pytest.raises(RpcError, match="the jobspec is too large: expected at most 1048576"):
            client.submit(large)
        counts = client.stats("job-manager")["rejected"]
        assert (counts["text_bytes"], counts["jobspec_bytes"]) == (4, 1)


def test_unfinished_submissions_of_a_guest_are_counted(site):
    spec = json.dumps(from_command(["true"], environment={}, cwd="/"))
    with site() as instance, guest(instance) as client:

        def part(number: int) -> None:
            jobs = [{"jobspec": json.loads(spec), "urgency": 0}]
            payload = {"token": f"list-{number}", "part": 0, "more": True, "jobs": jobs}
            client.rpc("job-ingest.submit-part", payload)

        for number in range(16):
            part(number)
        with pytest.raises(RpcError, match="16 submissions of which parts are missing"):
            part(16)
        assert client.stats("job-manager")["rejected"]["unfinished_submissions"] == 1


def test_a_document_is_read_once_however_often_a_lookup_names_it(site):
    spec = from_command(["true"], environment={"A": "x" * 100_000}, cwd="/")
    with site() as instance, guest(instance) as client:
        job = client.submit(spec, urgency=0)
        found = client.rpc("job-info.lookup", {"id": job, "keys": ["jobspec"] * 1_000})
        assert found.keys() == {"id", "jobspec"}


def large(number: int, size: int = 200_000) -> dict:
    """A jobspec of this size at least, other than those with other numbers."""
    return from_command(["true"], environment={"A": f"{number:0{size}}"}, cwd="/", duration=60.0)


def repeat(request: Callable[[int], object]) -> None:
    for number in itertools.count():
        request(number)


def first_rejection(request: Callable[[int], object], text: str) -> int:
    """Sends requests until one is rejected, with this pattern. Returns the error number."""
    with pytest.raises(RpcError, match=text) as caught:
        repeat(request)
    return caught.value.errno


def fill_store(client: Client) -> list[int]:
    """Submits and cancels jobs until one is rejected because of the store. Returns the others."""
    jobs: list[int] = []

    def submit(number: int) -> None:
        jobs.append(client.submit(large(number), urgency=0))
        client.cancel(jobs[-1:])

    text = (
        rf"user {GUEST} has \d+ bytes in the store: expected at most 1000000 with the \d+ of this "
        r"request \(penstock.quota.store-bytes\)\nhint: `penstock purge` removes"
    )
    assert first_rejection(submit, text) == errno.EDQUOT
    return jobs


def test_what_a_guest_has_in_the_store_is_limited(site, tmp_path):
    database = tmp_path / "state" / "jobs.sqlite"
    with (
        site("store-bytes = 1000000") as instance,
        Client(instance.uri, timeout=60) as owner,
        guest(instance) as client,
        guest(instance, OTHER) as other,
    ):
        jobs = fill_store(client)
        assert len(jobs) == 4
        for others in (owner, other):
            others.submit(large(9), urgency=0)
        # An active job can have notes and memos as far as there is room, and can always be ended.
        job = client.submit(from_command(["true"], environment={}, cwd="/"), urgency=0)
        memo = {"id": job, "memo": {"x": "x" * 16_000}}
        first_rejection(lambda _: client.rpc("job-manager.memo", memo), r"quota\.store-bytes")
        owner.rpc("job-manager.memo", memo)
        client.cancel([job])
        assert not client.wait_row(job)["success"]
        assert owner.stats("job-manager")["rejected"]["store_bytes"] == 2
        owner.wait_rows(jobs)
        before = instance.lines("store", "usage", "--state", str(tmp_path / "state"))
        users = [line.split()[0] for line in before]
        assert users[0] == str(GUEST)
        assert set(users) == {str(GUEST), str(OTHER), "root"}
    assert check_store(database) == []
    with site("store-bytes = 1000000") as instance, guest(instance) as client:
        assert instance.lines("store", "usage", "--state", str(tmp_path / "state")) == before
        with pytest.raises(RpcError, match=r"quota\.store-bytes"):
            client.submit(large(10), urgency=0)
        assert client.purge(force=True) == {"count": 5, "inactives": 0}
        assert len(fill_store(client)) == 4
    assert check_store(database) == []


def test_a_guest_purges_its_own_jobs_and_the_owner_those_of_one_user(site):
    spec = from_command(["true"], environment={}, cwd="/")
    with (
        site() as instance,
        Client(instance.uri, timeout=60) as owner,
        guest(instance) as client,
        guest(instance, OTHER) as other,
    ):
        jobs = [each.submit(spec, urgency=0) for each in (owner, client, client, other)]
        owner.cancel(jobs)
        owner.wait_rows(jobs)
        for request in (jobs[:1], [jobs[1], jobs[3]]):
            with pytest.raises(RpcError, match="belongs to another user") as caught:
                client.purge(request, force=True)
            assert caught.value.errno == errno.EPERM
        with pytest.raises(RpcError, match=f"the jobs of user {OTHER}"):
            client.purge(userid=OTHER, force=True)
        assert client.purge() == {"count": 2, "inactives": 2}
        assert client.purge(jobs[1:2], force=True)["count"] == 1
        purge = ("purge", "--user", str(GUEST))
        assert instance.lines(*purge) == [
            "1 inactive job would be purged of 1 (--force does it)",
        ]
        assert instance.lines(*purge, "--force") == ["1 inactive job purged, 0 left"]
        assert owner.purge() == {"count": 2, "inactives": 2}
        assert {row["id"] for row in owner.job_rows(max_entries=0)} == {jobs[0], jobs[3]}


def test_disk_space_is_left_for_the_owner(site, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128m", "none", str(state)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("a file system cannot be mounted")
    try:
        state.chmod(0o700)
        with (
            site() as instance,
            Client(instance.uri, timeout=60) as owner,
            guest(instance) as client,
        ):
            job = client.submit(large(0), urgency=0)
            space = os.statvfs(state)
            # Less than a tenth is left.
            length = space.f_bavail * space.f_frsize - (12 << 20)
            with (state / "ballast").open("wb") as ballast:
                os.posix_fallocate(ballast.fileno(), 0, length)
            text = r"free bytes: expected at least 13421772 for a request of a guest .*reserved-byt"
            rejected = first_rejection(lambda _: client.submit(large(1), urgency=0), text)
            assert rejected == errno.ENOSPC
            owner.submit(large(1), urgency=0)
            client.cancel([job])
            assert not client.wait_row(job)["success"]
            assert client.purge(force=True)["count"] >= 1
            (state / "ballast").unlink()
            # The space is read again soon.
            job = None
            while job is None:
                with suppress(RpcError):
                    job = client.submit(large(2), urgency=0)
            assert owner.stats("job-manager")["rejected"]["reserved_bytes"] >= 1
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)
