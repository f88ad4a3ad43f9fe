"""The broker: peers, their connections, and the pump that moves batches of messages between them.

Rust routes (`Router`); this module accepts and authenticates, has messages read (`Intake`) and
written (`Connection`), has the in-process services post their output, and has it committed
(`Commits`) before it is sent.
"""

from __future__ import annotations

import errno
import logging
import sys
import uuid
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from penstock._core import (
    ROLE_LOCAL,
    ROLE_OWNER,
    ROLE_USER,
    Batch,
    Histogram,
    JobManager,
    MockExec,
    Router,
    Scheduler,
)
from penstock.errors import Error, RequestError, StoreError
from penstock.instance.alarm import Alarm
from penstock.instance.commits import Commits
from penstock.instance.connection import Connection
from penstock.instance.connection_log import ConnectionLog
from penstock.instance.failure import Failure
from penstock.instance.guests import (
    LITTLE_UNREAD_BYTES,
    GuestLimits,
    GuestPeer,
    GuestServer,
)
from penstock.instance.intake import Intake
from penstock.instance.quotas import Quotas
from penstock.instance.requests import describe_messages, rejections
from penstock.instance.supervision import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock._core import Message
    from penstock.clock import Clock
    from penstock.config import Quota
    from penstock.instance.system import Network, Read

log = logging.getLogger("penstock.broker")

# Services within the daemon exchange messages this often before a commit.
MAX_EXCHANGES = 16
# Seconds until the next attempt, when a connection cannot be accepted.
ACCEPT_PAUSE_S = 0.1
# Seconds in which clients get the last responses of an instance that ends.
SEND_TIMEOUT_S = 1.0


class Service(Protocol):
    """A peer within the daemon."""

    def deliver(self, batch: Batch) -> None:
        """Takes messages in. Responses are posted to the broker, now or later."""

    def post_output(self, now: float) -> None:
        """Posts the messages that follow from the delivered ones.

        It is called at the end of an exchange in which the service has got or posted messages, and
        after `Broker.nudge`.
        """


@dataclass
class _Attached:
    """An in-process service at the broker."""

    peer: int
    service: Service
    on_failure: Callable[[BaseException], None] | None
    in_memory: bool
    answer_on_failure: bool
    serve_reads: Callable[[Batch], bool] | None = None
    failure: Failure | None = None
    # Whether it is among the services whose output is due.
    is_due: bool = False

    @property
    def needs_commit(self) -> bool:
        """Whether it is served, and gets only what the store has committed."""
        return not self.in_memory and self.failure is None


# The receiver of responses, and the routes and the matchtag of their request.
_ResponseKey = tuple[int, tuple[bytes, ...], int]


def _key(receiver: int, message: Message) -> _ResponseKey | None:
    """The request to which a message responds; None if it is no response."""
    if message.kind != "response":
        return None
    return receiver, tuple(message.routes or ()), message.matchtag


class Broker:
    """Routes messages between connections and in-process services.

    Args:
        owner: user id of the instance owner.
        pid: the daemon's process id.
        clock: the time, for the services too.
        random_bytes: makes that many random bytes.
        allow_guests: whether other users may connect.
        allow_root: whether root counts as an owner.
        descriptor_limit: the most files that the daemon may open.

    Attributes:
        clock: the time.
        commits: commits the store, and holds messages until then.
        connection_log: the log's lines about connections.
        intake: reads what clients send.
        owner: user id of the instance owner.
        pid: the daemon's process id.
        uuid: the broker's UUID.
    """

    def __init__(
        self,
        *,
        owner: int,
        pid: int,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        allow_guests: bool = False,
        allow_root: bool = True,
        descriptor_limit: int = sys.maxsize,
    ) -> None:
        self._random_bytes = random_bytes
        self.uuid = self._make_uuid()
        self.owner = owner
        self.pid = pid
        self.clock = clock
        self._allow_guests = allow_guests
        self._allow_root = allow_root
        self._router = Router(self.uuid, owner)
        self._quotas = Quotas(clock, descriptor_limit)
        self._services: dict[int, _Attached] = {}
        # The services that have got or posted messages since they posted their output.
        self._due: list[_Attached] = []
        # The services between which Rust exchanges messages, and what they do before.
        self._cores: dict[int, JobManager | Scheduler | MockExec] = {}
        self._preparations: dict[int, Callable[[], None]] = {}
        # The failed services with outstanding requests to be answered.
        self._abandoned: list[_Attached] = []
        # The requests that the last failure of the store has answered in place of their responses.
        self._retracted: set[_ResponseKey] = set()
        self._failures = 0
        self._closed_unread = 0
        self.connection_log = ConnectionLog(clock)
        # The names of services that are not restarted for now.
        self._suspended: set[str] = set()
        self._uuids: dict[int, bytes] = {}
        self._watchers: list[Callable[[dict[str, bytes]], None]] = []
        # For each reserved name, whether the process with an id may register it.
        self._reserved: dict[str, Callable[[int], bool]] = {}
        self._sockets: dict[int, Connection] = {}
        # The PMIx servers of the jobs of guests: services with the credentials of these.
        self._servers: dict[int, GuestServer] = {}
        self._guests = GuestLimits(self._quotas, self._sockets, self._servers)
        self.intake = Intake(self, clock, self._quotas, self._guests, self._sockets, self._servers)
        self._networks: list[Network] = []
        self._posted: deque[tuple[int, Batch]] = deque()
        # Posted messages for the next exchange of a round.
        self._unrouted: deque[tuple[int, Batch]] = deque()
        self.commits = Commits(
            clock,
            lambda: (*self._posted, *self._unrouted),
            lambda fault: self.fail(self.commits.store.peer, fault),
        )
        self._alarms: list[Alarm] = []
        self._wake = trio.Event()
        # Whether a round is running: at its end it wakes the pump if there is more to do.
        self._in_round = False
        # Whether any service may have output to post.
        self._nudged = False
        # Whether one has more output than it has posted: others are served before the next round.
        self._has_rest = False
        self._subscribed = trio.Event()
        self._is_posting_output = False
        self._next_peer = 1
        # For the statistics.
        self._rounds = Histogram()
        self._slices = Histogram()

    def set_quota(self, quota: Quota) -> None:
        """Applies changed limits of users."""
        self._quotas.set_settings(quota)
        self._router.set_limits(quota)

    # --- in-process services

    def attach(
        self,
        service: Service,
        *,
        names: Iterable[str] = (),
        on_failure: Callable[[BaseException], None] | None = None,
        in_memory: bool = False,
        answer_on_failure: bool = False,
        serve_reads: Callable[[Batch], bool] | None = None,
        guest: GuestServer | None = None,
    ) -> int:
        """Adds an in-process service, with the owner's credentials, and registers its names.

        An exception, or a Rust panic, that leaves the service is contained: it is logged, the
        requests of the batch are answered with EIO, and the service has failed. A failed service
        gets no messages; its requests are answered with EIO until it is detached. If the store
        fails, they are answered with its error.

        Args:
            service: the service.
            names: the first words of the topics that it serves.
            on_failure: called with the fault when the service has failed, such as to restart it.
            in_memory: whether all that the service does with a message is in memory, and in the
                messages that it posts. Others are given only what the store has committed.
            serve_reads: gets requests while the service has failed; returns whether it serves them.
            answer_on_failure: whether the broker answers the service's outstanding requests when it
                fails, because it cannot do that when it is restarted.
            guest: the server of a guest's job for which it acts, with the credentials of the guest:
                the limits of guests hold for it as for a connection.

        Returns:
            The peer's number, with which it posts.
        """
        peer = self._number_peer()
        if guest is None:
            self._add_peer(peer, self.owner, ROLE_OWNER | ROLE_LOCAL)
        else:
            self._add_peer(peer, guest.uid, ROLE_USER | ROLE_LOCAL, remote=True)
            self._servers[peer] = guest
        attached = _Attached(peer, service, on_failure, in_memory, answer_on_failure, serve_reads)
        self._services[peer] = attached
        self._make_due(attached)
        if answer_on_failure:
            self._router.track_requests(peer)
        for name in names:
            if self.add_service(name, peer):
                self.detach(peer)
                raise ValueError(f"service `{name}` is registered already")
        return peer

    def set_core(
        self,
        peer: int,
        core: JobManager | Scheduler | MockExec,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """Has messages for an in-memory service passed to its part in Rust, not to `deliver`.

        In Rust such services exchange messages without a call of Python's for each.

        Args:
            peer: the service.
            core: its part in Rust, which does all that `deliver` would do. A service with another
                object is served by `deliver`.
            prepare: is called before each exchange.
        """
        self._remove_core(peer)
        if isinstance(core, (JobManager, Scheduler, MockExec)):
            self._cores[peer] = core
            if prepare is not None:
                self._preparations[peer] = prepare

    def _remove_core(self, peer: int) -> None:
        self._cores.pop(peer, None)
        self._preparations.pop(peer, None)

    def detach(self, peer: int) -> None:
        """Removes an in-process service; the services that it used are sent its disconnect."""
        self._answer_abandoned()
        self._remove_core(peer)
        if self._services.pop(peer, None) is None:
            return
        server = self._servers.pop(peer, None)
        if server is not None:
            self._quotas.set_unfinished(server.uid, peer, 0)
        self._remove_peer(peer)

    def fail(self, peer: int, fault: BaseException) -> None:
        """Marks a service as failed; for its exception handlers."""
        attached = self._services.get(peer)
        if attached is not None:
            self._fail(attached, fault)

    def replace(self, peer: int) -> None:
        """Marks a service as failed that is to be restarted, without a fault."""
        attached = self._services.get(peer)
        if attached is not None and attached.failure is None:
            self._mark_failed(attached, Failure(errno.EIO, "the service is restarted"))

    @contextmanager
    def guard(self, peer: int) -> Iterator[None]:
        """Contains the faults of a service in calls other than `deliver` and `post_output`.

        Raises:
            Error: the call is rejected; the service has not failed.
            RequestError: the same, or the service has failed.
        """
        try:
            yield
        except StoreError as error:
            self.fail(peer, error)
            failure = Failure.of(error)
            raise RequestError(failure.errnum, failure.text) from error
        except (Error, RequestError):
            raise
        except FAULTS as error:
            self.fail(peer, error)
            failure = Failure.of(error)
            raise RequestError(failure.errnum, failure.text) from error

    async def pace(self, peer: int, read: Read) -> str | None:
        """Counts what an attached guest has sent, and waits until more of it may be taken.

        Meanwhile the requests that it has posted are routed, and some of them answered.

        Returns:
            The limit that is exceeded.
        """
        server = self._servers.get(peer)
        if server is not None:
            self._quotas.count_requests(server.uid, read.messages, read.message_bytes)
            problem = self.intake.count_unfinished(server.uid, peer, read.unfinished_bytes)
            if problem is not None:
                return problem
        await self.intake.wait_routed(peer)
        await trio.sleep(0 if server is None else self._quotas.pause(server.uid))
        return None

    def set_unread(self, peer: int, size: int) -> None:
        """Sets the bytes that an attached guest has not read."""
        server = self._servers.get(peer)
        if server is not None:
            is_more, server.unsent = size > server.unsent, size
            if is_more and size > LITTLE_UNREAD_BYTES:
                self._closed_unread += self._guests.bound_unread(server.uid)

    def set_suspended(self, name: str) -> None:
        """Records that a service is not restarted for now."""
        self._suspended.add(name)

    def clear_suspended(self, name: str) -> None:
        """Records that a service is restarted."""
        self._suspended.discard(name)

    def serving_clients(self, peer: int) -> list[int]:
        """The connected clients that have used this service and have services themselves."""
        return self._router.serving_clients(peer)

    def disconnect(self, peer: int) -> None:
        """Ends a client's connection."""
        remote = self._sockets.get(peer)
        if remote is not None:
            remote.scope.cancel()

    def post(self, peer: int, batch: Batch) -> None:
        """Sends messages from a peer. They are routed in the next round."""
        if batch:
            self._posted.append((peer, batch))
            self._wake_pump()
            attached = self._services.get(peer)
            if attached is not None and not self._is_posting_output:
                self._make_due(attached)

    def post_messages(self, peer: int, messages: list[Message]) -> None:
        """Sends a few messages from a peer."""
        self.post(peer, Batch(messages))

    def count_slice(self, seconds: float) -> None:
        """Counts the duration of a slice of a large request, for the statistics."""
        self._slices.observe(seconds)

    def nudge(self) -> None:
        """Schedules a round in which all services post their output: one has some.

        A service that has posted a part of its output posts the next one in another round, after
        the requests that have come meanwhile.
        """
        if self._is_posting_output:
            self._has_rest = True
        else:
            self._nudged = True
        self._wake_pump()

    # --- for the control service

    def origin(self, request: Message) -> int | None:
        """The peer that sent a request; None if it has disconnected."""
        routes = request.routes
        return self._router.peer(routes[-1]) if routes else None

    async def wait_writable(self, request: Message) -> None:
        """Returns when the requester has little unread, or has disconnected."""
        peer = self.origin(request)
        remote = None if peer is None else self._sockets.get(peer)
        if remote is None:
            await trio.lowlevel.checkpoint()
        else:
            await remote.wait_writable()

    def has_input(self) -> bool:
        """Whether a connection can be read."""
        return any(network.has_input() for network in self._networks)

    def is_writable(self, route: bytes) -> bool:
        """Whether the peer of a route has little unread, or has disconnected."""
        remote = self._sockets.get(self._router.peer(route) or 0)
        return remote is None or remote.is_writable

    def nudge_when_writable(self, route: bytes) -> None:
        """Schedules a round for when the peer of a route, which is not writable, has read more."""
        remote = self._sockets.get(self._router.peer(route) or 0)
        if remote is not None:
            remote.is_awaited = True

    def reserve_service(self, name: str, may_register: Callable[[int], bool]) -> None:
        """Reserves the name of a service for one process.

        Args:
            name: the name.
            may_register: returns whether the process with this id may register the name.
        """
        self._reserved[name] = may_register

    def is_reserved(self, name: str, peer: int) -> bool:
        """Whether the name of a service is reserved for another process than a client's."""
        may_register, remote = self._reserved.get(name), self._sockets.get(peer)
        return may_register is not None and remote is not None and not may_register(remote.pid)

    def add_service(self, name: str, peer: int) -> int:
        """Registers a service for a peer. Returns an errno, 0 for success."""
        if self.is_reserved(name, peer):
            return errno.EEXIST
        errnum = self._router.add_service(name, peer)
        if errnum == 0 and peer in self._sockets:
            self._sockets[peer].is_client = False
        self._notify_watchers()
        return errnum

    def remove_service(self, name: str, peer: int) -> int:
        """Removes a peer's service. Returns an errno, 0 for success."""
        errnum = self._router.remove_service(name, peer)
        self._notify_watchers()
        return errnum

    def watch_services(self, watcher: Callable[[dict[str, bytes]], None]) -> None:
        """Calls a function, now and after every change, with the route of each service's peer."""
        self._watchers.append(watcher)
        watcher(self._service_routes())

    def _service_routes(self) -> dict[str, bytes]:
        return {name: self._uuids[peer] for name, peer in self._router.services()}

    def _notify_watchers(self) -> None:
        routes = self._service_routes()
        for watcher in self._watchers:
            try:
                watcher(routes)
            except FAULTS:
                log.exception("cannot report the services")
        self.nudge()

    def subscribe(self, peer: int, prefix: str) -> bool:
        """Sends a peer the events whose topic starts with `prefix`.

        Returns:
            Whether it may have one more subscription.
        """
        has_room = self._router.subscribe(peer, prefix)
        self._subscribed.set()
        self._subscribed = trio.Event()
        return has_room

    async def wait_for_subscriber(self, topic: str) -> None:
        """Returns when a peer is subscribed to events with this topic."""
        while not self._router.has_subscriber(topic):
            await self._subscribed.wait()

    def unsubscribe(self, peer: int, prefix: str) -> bool:
        """Removes one subscription. Returns whether there was one."""
        return self._router.unsubscribe(peer, prefix)

    def publish(self, peer: int, event: Message) -> int:
        """Sends an event of a peer to its subscribers; returns the number of the event."""
        deliveries = self._router.route(peer, Batch([event]))
        number = self._router.sequence
        self._deliver((peer, receiver, messages) for receiver, messages in deliveries)
        return number

    def services(self) -> list[dict[str, object]]:
        """The registered services: name, process id and user of the peer, and state."""
        rows: list[dict[str, object]] = []
        for name, peer in self._router.services():
            remote = self._sockets.get(peer)
            pid = remote.pid if remote else self.pid
            uid = remote.uid if remote else self.owner
            attached = self._services.get(peer)
            if name in self._suspended:
                state = "suspended"
            else:
                state = "failed" if attached and attached.failure else "running"
            row = {"name": name, "pid": pid, "uid": uid, "inside": remote is None, "state": state}
            rows.append(row)
        return rows

    def stats(self) -> dict[str, object]:
        """Counts connections, services, failures, and bytes that clients have unread.

        `failed` is the number of services that have failed and are not restarted yet, `failures`
        that of all failures since the start; `suspended` names the services that are not restarted
        for now because they have failed again and again. `closed_unread` counts clients that were
        disconnected because they left too much unread. `guests` has their connections and the
        bytes of messages that have arrived in part, `rejected` what exceeded a limit of
        `penstock.quota`, `delayed` how often requests were read later because of their rate.
        `owner_rejected` is what exceeded a limit of the owner, `held_back` the number of
        connections of which no more is read until requests about many jobs have ended.
        `received` is the number of messages from connections; `rounds`, `commits` and `slices` are
        histograms of their durations in seconds.
        """
        rejections = self._router.rejections()
        owner = {name: rejections.pop(name) for name in ("owner_requests", "owner_request_bytes")}
        return {
            "connections": len(self._sockets),
            "services": len(self._router.services()),
            "failed": sum(each.failure is not None for each in self._services.values()),
            "failures": self._failures,
            "suspended": sorted(self._suspended),
            "unsent": sum(remote.unsent for remote in self._sockets.values()),
            "closed_unread": self._closed_unread,
            "guests": self._guests.stats(rejections),
            "owner_rejected": owner,
            "held_back": self.intake.held_back,
            "received": self.intake.received,
            "rounds": self._rounds.stats(),
            "commits": self.commits.durations.stats(),
            "slices": self._slices.stats(),
        }

    # --- the pump

    async def pump(self) -> None:
        """Runs rounds until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            # Connections get their turn in `wait`, however many messages services exchange.
            self.run_round()

    def alarm(self) -> Alarm:
        """An alarm of a service, which has its turn before connections that may be read soon."""
        alarm = Alarm(self.clock)
        self._alarms.append(alarm)
        return alarm

    def _is_idle(self) -> bool:
        """Whether neither a round nor a service is about to have its turn."""
        return not self._wake.is_set() and not any(alarm.is_due() for alarm in self._alarms)

    def _wake_pump(self) -> None:
        if not self._in_round:
            self._wake.set()

    def take_in(self, peer: int, batch: Batch, network: Network) -> None:
        """Routes what a client has sent: at once, or in one round with what others have sent."""
        if network.has_input():
            self.post(peer, batch)
        elif batch:
            self._posted.append((peer, batch))
            self.run_round()

    def is_posted(self, peer: int) -> bool:
        """Whether messages of a peer are still to be routed."""
        return any(sender == peer for sender, _ in (*self._posted, *self._unrouted))

    def respond(self, peer: int, responses: Batch) -> None:
        """Sends a client responses of the broker itself."""
        self._send(peer, self._sockets[peer], responses, is_committed=True)
        self._wake_pump()

    def route_of(self, peer: int) -> bytes:
        """The first hop of the routes of a peer's requests."""
        return self._uuids[peer]

    def run_round(self) -> bool:
        """Routes the posted messages, and has services post their output, until there is none.

        The changes of all exchanges in a round are committed once, at its end. Connections write
        only then.

        Returns:
            Whether there is more to route.
        """
        self._in_round = True
        self._nudged |= self._has_rest
        self._has_rest = False
        began = self.clock.monotonic()
        try:
            exchanges = 0
            while exchanges < MAX_EXCHANGES:
                exchanges += self._exchange(MAX_EXCHANGES - exchanges)
                if not self._posted:
                    break
            if self.commits.is_due:
                self.commits.commit()
            if self._abandoned:
                # Questions behind this round are answered by the service that only reads.
                self._exchange(1)
                self.commits.commit()
        finally:
            self._in_round = False
            self._rounds.observe(self.clock.monotonic() - began)
            if self._posted or self._nudged or self._has_rest or self._abandoned:
                self._wake.set()
            self.intake.end_round()
        return bool(self._posted)

    def _abandon_store(self, failure: Failure) -> None:
        """Sends nothing that could tell the changes of the failed service.

        Services in memory have changes in its transaction, too.
        """
        # The last commit may be durable.
        with suppress(*FAULTS):
            self.commits.send_synced()
        self._retracted.clear()
        posted = [*self._posted, *self._unrouted]
        self._posted.clear()
        self._unrouted.clear()
        for peer, batch in posted:
            if self._knows_committed(peer) or self.commits.is_committed(batch):
                self._posted.append((peer, batch))
                continue
            for receiver, messages in self._router.route(peer, batch):
                self._withhold(receiver, messages, failure)
        for number, remote in self._sockets.items():
            if self.commits.holds(remote):
                self._retract(number, remote, failure)
        self.commits.abandon()

    def _withhold(self, receiver: int, batch: Batch, failure: Failure) -> None:
        """Sends errors in place of responses that tell changes which cannot be committed."""
        attached, remote = self._services.get(receiver), self._sockets.get(receiver)
        batch = Batch(each for each in batch if _key(receiver, each) not in self._retracted)
        if remote is not None:
            remote.send(batch)
            self._retract(receiver, remote, failure)
        elif attached is not None and not attached.in_memory:
            # Services in memory are replaced when the store's service is built again.
            errors = batch.errors_in_place(failure.errnum, failure.text)
            self._end_requests(receiver, errors)
            self._serve_batch(attached, errors)

    def _retract(self, number: int, remote: Connection, failure: Failure) -> None:
        """Sends a client errors in place of the responses since the last commit."""
        self._end_requests(number, remote.retract(failure.errnum, failure.text))

    def _end_requests(self, number: int, errors: Batch) -> None:
        """Has a stream end with its one error: neither the service nor the broker sends another."""
        self._router.end_requests(number, errors)
        self._retracted |= {key for error in errors if (key := _key(number, error)) is not None}

    def _exchange(self, limit: int) -> int:
        """Routes the posted messages, then has the services that may have output post it.

        Returns:
            The number of exchanges, at most `limit`: services in Rust may have had several.
        """
        count = 1
        while self._posted:
            peer, batch = self._posted.popleft()
            guest = self._guest_of(peer)
            if guest is not None:
                self._route_turn(peer, guest, batch)
                continue
            # A service posts nothing more before its messages that are posted already are routed.
            is_alone = not self._posted and not self._unrouted
            if self._cores and is_alone and not self.commits.is_committed(batch):
                count = max(count, self._exchange_in_rust(peer, batch, limit))
            else:
                self._route(peer, batch)
        self._posted, self._unrouted = self._unrouted, self._posted
        self._answer_abandoned()
        due, self._due = self._due, []
        for attached in due:
            attached.is_due = False
        if self._nudged:
            self._nudged = False
            due = list(self._services.values())
        now = self.clock.now()
        for attached in due:
            serves = attached.failure is None or attached.serve_reads is not None
            if serves and attached.peer in self._services:
                self._post_output_of(attached, now)
        return count

    def _guest_of(self, peer: int) -> GuestPeer | None:
        remote = self._sockets.get(peer)
        return remote if remote is not None and remote.is_guest else self._servers.get(peer)

    def _route(self, peer: int, batch: Batch) -> None:
        is_committed = self.commits.take_committed(batch)
        self._route_messages(peer, batch, is_committed=is_committed)

    def _route_turn(self, peer: int, remote: GuestPeer, batch: Batch) -> None:
        """Routes what a guest has sent, message by message, until the end of its turn.

        The last message may have led to much more than a turn: the guest's next request is read
        later.
        """
        is_committed = self.commits.take_committed(batch)
        began, before = self.clock.monotonic(), self._out_bytes()
        size, seconds = 0, 0.0
        for index in range(len(batch)):
            posted = len(self._posted)
            self._route_messages(peer, batch[index : index + 1], is_committed=is_committed)
            remote.routed += 1
            answers = (self._posted[place][1] for place in range(posted, len(self._posted)))
            before -= sum(answer.payload_bytes for answer in answers)
            size = self._out_bytes() - before
            seconds = self.clock.monotonic() - began
            if self._guests.charge_turn(remote, size, seconds):
                break

    def _out_bytes(self) -> int:
        """The size of the payloads that services in Rust are about to post."""
        return sum(
            core.out_bytes for core in self._cores.values() if not isinstance(core, MockExec)
        )

    def _route_messages(self, peer: int, batch: Batch, *, is_committed: bool) -> None:
        try:
            routed = self._router.route(peer, batch)
        except FAULTS as error:
            self._contain_fault(peer, error)
        else:
            deliveries = ((peer, receiver, messages) for receiver, messages in routed)
            self._deliver(deliveries, is_committed=is_committed)

    def _exchange_in_rust(self, peer: int, batch: Batch, limit: int) -> int:
        """Routes messages, and those that services in Rust post in turn, to the other peers.

        Returns:
            The number of exchanges, at most `limit`. Messages of the last one are left unrouted.
        """
        for prepare in self._preparations.values():
            prepare()
        cores, now = list(self._cores.items()), self.clock.now()
        try:
            exchange = self._router.exchange(peer, batch, cores, now, limit)
        except FAULTS as error:
            self._contain_fault(peer, error)
            return 1
        deliveries, posted, served, iterations, failures = exchange
        (self._posted if failures else self._unrouted).extend(posted)
        for number in served:
            self._make_due(self._services[number])
        self._deliver(deliveries)
        for number, messages, fault in failures:
            self._fail_serving(self._services[number], messages, fault)
        return iterations

    def _fail_serving(self, attached: _Attached, batch: Batch, fault: BaseException) -> None:
        self._fail(attached, fault, batch)
        if not attached.answer_on_failure:
            # No request of a batch is answered before all of them have been taken.
            self._reject(attached, batch)

    def _make_due(self, attached: _Attached) -> None:
        if not attached.is_due:
            attached.is_due = True
            self._due.append(attached)

    def _post_output_of(self, attached: _Attached, now: float) -> None:
        self._is_posting_output = True
        try:
            attached.service.post_output(now)
        except FAULTS as error:
            self._fail(attached, error)
        finally:
            self._is_posting_output = False

    async def send_posted(self) -> None:
        """Returns when the posted messages have been sent, except to clients that do not read."""
        self.run_round()
        self.commits.commit_durably()
        with trio.move_on_after(SEND_TIMEOUT_S):
            for remote in list(self._sockets.values()):
                await remote.wait_sent()
        # A request that has come meanwhile.
        self.commits.commit_durably()

    def _deliver(
        self, deliveries: Iterable[tuple[int, int, Batch]], *, is_committed: bool = False
    ) -> None:
        """Passes on all messages that were routed at once, each batch with its sender and receiver.

        If a commit between them fails, the store's service has posted the messages behind it before
        that failure: they are not sent.

        Args:
            deliveries: the messages.
            is_committed: whether they tell nothing that is uncommitted.
        """
        store = self.commits.store
        for sender, peer, batch in deliveries:
            attached = self._services.get(peer)
            remote = self._sockets.get(peer)
            is_known = is_committed or self._knows_committed(sender)
            if attached is not None and attached.needs_commit and not is_known:
                self._commit_posted()
                is_committed = self.commits.store is store
            if sender == store.peer and self.commits.store is not store and not is_committed:
                failure = self._services[sender].failure
                if failure is not None:
                    self._withhold(peer, batch, failure)
            elif attached is not None:
                self._serve_batch(attached, batch)
            elif remote is not None:
                is_known = is_committed or self._knows_committed(sender)
                self._send(peer, remote, batch, is_committed=is_known)

    def _commit_posted(self) -> None:
        """Commits before a delivery, in a round with the messages that follow from what it handled.

        If a later commit of the round fails, the responses to what this one has committed are sent.
        Between rounds no service has such messages.
        """
        attached = self._services.get(self.commits.store.peer)
        if attached is not None and self._in_round:
            self._post_output_of(attached, self.clock.now())
        self.commits.commit_durably()

    def _deliver_notices(self, notices: list[tuple[int, Batch]]) -> None:
        """Passes on messages of the broker itself, by receiver."""
        self._deliver((0, receiver, messages) for receiver, messages in notices)

    def _serve_batch(self, attached: _Attached, batch: Batch) -> None:
        if attached.failure is not None:
            if not self._is_served_for_reading(attached, batch):
                self._reject(attached, batch)
            return
        self._make_due(attached)
        try:
            attached.service.deliver(batch)
        except FAULTS as error:
            self._fail_serving(attached, batch, error)

    def _is_served_for_reading(self, attached: _Attached, batch: Batch) -> bool:
        """Has a failed service serve requests that change nothing. Returns whether it does."""
        # Requests from before the failure are answered with its error first.
        if attached.serve_reads is None or attached in self._abandoned:
            return False
        try:
            return attached.serve_reads(batch)
        except FAULTS as error:
            self._fail(attached, error, batch)
            return False

    def _knows_committed(self, sender: int) -> bool:
        """Whether a peer, or the broker itself (0), receives only what the store has committed."""
        attached = self._services.get(sender)
        is_outside = attached is not None and not attached.in_memory
        return is_outside or sender == 0 or sender in self._sockets

    def _send(self, peer: int, remote: Connection, batch: Batch, *, is_committed: bool) -> None:
        if remote.is_guest and remote.unsent > LITTLE_UNREAD_BYTES:
            self._closed_unread += self._guests.bound_unread(remote.uid)
        try:
            if not remote.send(batch, is_committed=is_committed):
                self._closed_unread += 1
            self.commits.add(remote)
        except FAULTS as error:
            self._contain_fault(peer, error)

    def _reject(self, attached: _Attached, batch: Batch) -> None:
        """Answers the requests of a batch with an error, in the name of a failed service."""
        failure = attached.failure or Failure(errno.EIO, "the service has failed")
        self.post_messages(attached.peer, rejections(batch, failure.errnum, failure.text))

    def _fail(self, attached: _Attached, fault: BaseException, batch: Batch | None = None) -> None:
        """Marks a service as failed that a fault has left, and logs the fault.

        Args:
            attached: the service.
            fault: what has left it.
            batch: the messages that it was given; none if it had another occasion.
        """
        name = type(attached.service).__name__
        given = f" at {describe_messages(batch)}" if batch else ""
        failure = Failure.of(fault)
        self._failures += attached.failure is None
        if not isinstance(fault, StoreError):
            log.error("service %s has failed%s", name, given, exc_info=fault)
        elif attached.failure != failure:
            log.error("service %s has failed: %s", name, fault)
        if batch is not None and not isinstance(fault, StoreError):
            self._guests.blame(batch)
        self._mark_failed(attached, failure)
        if attached.on_failure is not None:
            attached.on_failure(fault)

    def _mark_failed(self, attached: _Attached, failure: Failure) -> None:
        attached.failure = failure
        self._remove_core(attached.peer)
        if attached.answer_on_failure:
            self._abandoned.append(attached)
            self._wake_pump()
        if attached.peer == self.commits.store.peer:
            self._abandon_store(failure)

    def _answer_abandoned(self) -> None:
        """Answers the outstanding requests of failed services that cannot do it themselves.

        The responses that these posted before are routed by now.
        """
        abandoned, self._abandoned = self._abandoned, []
        for attached in abandoned:
            failure = attached.failure
            if failure is not None and attached.peer in self._services:
                self._deliver_notices(
                    self._router.abandon_requests(attached.peer, failure.errnum, failure.text)
                )

    def _contain_fault(self, peer: int, fault: BaseException) -> None:
        """Ends a client's connection, or marks a service as failed, after a fault."""
        remote = self._sockets.get(peer)
        if remote is not None:
            log.error("closing the connection of pid %d", remote.pid, exc_info=fault)
            remote.scope.cancel()
        else:
            self.fail(peer, fault)

    def _add_peer(self, peer: int, userid: int, roles: int, *, remote: bool = False) -> None:
        route = self._make_uuid()
        self._uuids[peer] = route.encode()
        self._router.add_peer(peer, route, userid, roles, remote=remote)

    def _remove_peer(self, peer: int) -> None:
        notices = self._router.remove_peer(peer)
        del self._uuids[peer]
        self._notify_watchers()
        self._deliver_notices(notices)
        self.nudge()

    def _make_uuid(self) -> str:
        return str(uuid.UUID(bytes=self._random_bytes(16), version=4))

    def _number_peer(self) -> int:
        number = self._next_peer
        self._next_peer += 1
        return number

    # --- connections

    async def listen(
        self,
        listener: trio.abc.Listener[trio.abc.Stream],
        network: Network,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves the connections that a listener accepts.

        Args:
            listener: accepts connections.
            network: made the listener.
            task_status: started when connections are accepted.
        """
        if network not in self._networks:
            self._networks.append(network)
        async with listener, trio.open_nursery() as connections:
            task_status.started()
            accepts = True
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    # There are too many descriptors, or the client has gone.
                    if accepts:
                        log.warning("cannot accept a connection: %s", error)
                    accepts = False
                    await trio.sleep(ACCEPT_PAUSE_S)
                else:
                    accepts = True
                    connections.start_soon(self._serve_connection, connections, stream, network)

    async def _serve_connection(
        self, connections: trio.Nursery, stream: trio.abc.Stream, network: Network
    ) -> None:
        pid = uid = 0

        def report(level: int, text: str, *args: object, exc_info: bool = False) -> None:
            self.connection_log.write(connections, uid, level, text, *args, exc_info=exc_info)

        async with stream:
            connection = ExitStack()
            try:
                pid, uid = network.credentials(stream)
                roles = self._roles(uid)
                status = 0 if roles else errno.EPERM
                is_guest = bool(roles) and not roles & ROLE_OWNER
                number = self._number_peer()
                if is_guest and (problem := self._quotas.add_connection(uid)):
                    report(logging.WARNING, "pid %d of user %d: rejected: %s", pid, uid, problem)
                    status = errno.EPERM if self._quotas.is_rejected(uid) else errno.EMFILE
                    is_guest = False
                if is_guest:
                    connection.callback(self._quotas.remove_connection, uid, number)
                await stream.send_all(bytes([status]))
                if not status:
                    remote = Connection(
                        stream,
                        pid,
                        uid,
                        partial(network.read, stream, is_idle=self._is_idle),
                        partial(network.write, stream),
                        self.nudge,
                        report,
                    )
                    await self._serve_peer(number, remote, roles, network)
            except* trio.BrokenResourceError:
                # The peer has disconnected in the middle of a message.
                report(logging.INFO, "the connection of pid %d broke", pid)
            except* FAULTS:
                # A fault in one connection ends that one alone.
                report(logging.ERROR, "closing the connection of pid %d", pid, exc_info=True)
            finally:
                connection.close()

    def _roles(self, uid: int) -> int:
        if uid == self.owner or (uid == 0 and self._allow_root):
            return ROLE_OWNER | ROLE_LOCAL
        return ROLE_USER | ROLE_LOCAL if self._allow_guests else 0

    async def _serve_peer(
        self, number: int, peer: Connection, roles: int, network: Network
    ) -> None:
        peer.is_guest = not roles & ROLE_OWNER
        # Root acts as the owner, not as another user with jobs of its own.
        peer.userid = self.owner if roles & ROLE_OWNER else peer.uid
        if peer.is_guest:
            peer.on_read = partial(self._guests.record_read, peer.uid)
        self._add_peer(number, peer.userid, roles, remote=True)
        self._sockets[number] = peer
        network.watch(peer.stream)
        try:
            async with trio.open_nursery() as nursery:
                peer.scope = nursery.cancel_scope
                nursery.start_soon(peer.write)
                try:
                    await self.intake.read(number, peer, network)
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            del self._sockets[number]
            self.commits.remove(peer)
            self._remove_peer(number)
            self._guests.record_read(peer.uid)
