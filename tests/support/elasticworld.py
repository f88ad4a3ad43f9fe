"""An instance, a scheduler and an execution service for elastic jobs, on a stepped clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors import ExecutionService, User, jobspec_of
from ends import SlowScheduler
from inprocess import Instance

from penstock import ResourceSet
from penstock._core import STREAMING, fluid_parse
from penstock.inventory import simulated
from penstock.pmix import attributes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from inprocess import Peer
    from virtualtime import SteppedClock

    from penstock._core import Message

NODES, CORES = 6, 2
RUN, INACTIVE = 16, 64


class World:
    """An instance with our scheduler, an execution service and requesters."""

    def __init__(
        self,
        clock: SteppedClock,
        store: Path | None = None,
        cores: int = CORES,
        scheduler: Callable[[Instance], Any] = SlowScheduler,
    ) -> None:
        self.clock, self.store, self.cores = clock, store, cores
        self.attach = scheduler
        # The questions of the job manager that get lost.
        self.lose = 0
        self.start()

    def start(self) -> None:
        """Starts an instance on the store."""
        self.instance = Instance(simulated(NODES, self.cores), store=self.store, clock=self.clock)
        self.user = User(self.instance)
        self.scheduler = self.attach(self.instance)
        self.execution = ExecutionService(self.instance)
        self.settle()

    def settle(self) -> None:
        """Runs rounds until no peer has anything to send."""
        self.instance.settle()
        while self.scheduler.inbox:
            kept = [message for message in self.scheduler.inbox if not self._lost(message)]
            self.scheduler.inbox.clear()
            self.scheduler.inbox.extend(kept)
            self.scheduler.work()
            self.instance.settle()

    def _lost(self, message: Message) -> bool:
        if message.topic != "sched.explain" or not self.lose:
            return False
        self.lose -= 1
        return True

    def advance(self, seconds: float) -> None:
        """Advances the clock and settles."""
        self.clock.time += seconds
        self.instance.manager.advance(self.clock.now())
        self.instance.broker.nudge()
        self.settle()
        self.settle()

    def run_job(self, nodes: int, duration: float = 3600.0) -> int:
        """Submits a job that starts at once; returns its id."""
        job = self.user.submit(jobspec_of(nodes=nodes, duration=duration))
        self.settle()
        assert self.row(job)["state"] == RUN
        return job

    def row(self, job: int) -> dict[str, Any]:
        """A job, as a row of `job-list`."""
        return self.user.ask("job-list.list-id", {"id": job})["job"]

    def send(self, peer: Peer, job: int, directive: str, **wanted: Any) -> Message:
        """Sends a request without waiting for the response."""
        payload = {"job": job, "rank": 0, "directive": directive}
        payload["attributes"] = attributes(wanted)  # type: ignore[arg-type]
        request = peer.request("pmix.alloc", payload, STREAMING)
        peer.post(request)
        self.settle()
        return request

    def ask(self, job: int, directive: str, **wanted: Any) -> dict[str, Any]:
        """Sends a request; returns the last response that is there."""
        peer = self.instance.connect()
        self.send(peer, job, directive, **wanted)
        answers = [message.object() for message in peer.take() if not message.errnum]
        self.instance.disconnect(peer)
        return answers[-1]

    def query(self, job: int) -> list[dict[str, Any]]:
        """The job's requests."""
        return self.user.ask("pmix.query", {"job": job})["requests"]

    def scheduler_explains(self, job: int) -> dict[str, Any]:
        """The scheduler's explanation of a pending job."""
        peer = self.instance.connect()
        peer.post(peer.request("sched.explain", {"ids": [job]}))
        self.settle()
        (response,) = peer.take()
        return response.object()["jobs"][0]

    def check(self) -> None:
        """Checks that the scheduler has the jobs' allocations, and that they are disjoint."""
        status = self.user.ask("resource.sched-status")
        running = [row for row in self.user.rows() if row["state"] == RUN]
        # Granted resources count as the requester's; the rest is reserved for pending requests.
        elastic = [row.get("annotations", {}).get("elastic", {}) for row in running]
        granted = {
            fluid_parse(grant) for annotation in elastic for grant in annotation.get("grants", ())
        }
        plain = [
            row
            for row, annotation in zip(running, elastic, strict=True)
            if "directive" not in annotation
        ]
        total = ResourceSet()
        for row in plain:
            total = total.union(self.extent(row["id"]), scheduling="drop")
        for row in running:
            if row in plain or row["id"] in granted:
                continue
            mine = self.extent(row["id"])
            assert total.isdisjoint(mine), "two have the same"
            total = total.union(mine, scheduling="drop")
        held = ResourceSet(self.instance.manager.held())
        taken = ResourceSet(status["allocated"])
        assert (total.ranks, total.ncores) == (held.ranks, held.ncores)
        assert (taken.ranks, taken.ncores) == (held.ranks, held.ncores)

    def extent(self, job: int) -> ResourceSet:
        """The extent of a job."""
        return ResourceSet(self.user.lookup(job, "R"))
