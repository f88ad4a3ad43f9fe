"""Schedulers of nodes with cores, gpus and properties: fcfs and easy, selection `first`.

Nothing is counted that can be tried: how many units of a request a machine holds is found by
placing one after the other on a copy of it.

A request without a node level asks for slots, anywhere: its unit is a slot. A request with a node
level asks for nodes with a number of slots each: its unit is a node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from tests.reference.events import NO_LIMIT, Job, Request, Running, order, planned_end


@dataclass
class Node:
    """A node: its resources, and the free ones among them, as lists of ids."""

    cores: int
    gpus: int
    properties: frozenset[str] = frozenset()
    free_cores: list[int] = field(default_factory=list)
    free_gpus: list[int] = field(default_factory=list)

    def whole(self) -> bool:
        return len(self.free_cores) == self.cores and len(self.free_gpus) == self.gpus


Machine = list[Node]
Part = tuple[int, list[int], list[int]]  # rank, cores, gpus
Accept = Callable[[Part], bool]


def empty(machine: Machine) -> Machine:
    """The same nodes with nothing in use."""
    return [
        Node(
            node.cores, node.gpus, node.properties, list(range(node.cores)), list(range(node.gpus))
        )
        for node in machine
    ]


def take(machine: Machine, parts: list[Part]) -> None:
    for rank, cores, gpus in parts:
        for core in cores:
            machine[rank].free_cores.remove(core)
        for gpu in gpus:
            machine[rank].free_gpus.remove(gpu)


def give(machine: Machine, parts: list[Part]) -> None:
    for rank, cores, gpus in parts:
        node = machine[rank]
        assert not set(cores) & set(node.free_cores)
        assert not set(gpus) & set(node.free_gpus)
        node.free_cores = sorted(node.free_cores + cores)
        node.free_gpus = sorted(node.free_gpus + gpus)


def allowed(node: Node, request: Request) -> bool:
    if request.property is None:
        return True
    if request.property.startswith("^"):
        return request.property[1:] not in node.properties
    return request.property in node.properties


def slots_on(node: Node, request: Request, most: int) -> tuple[int, list[int], list[int]]:
    """The slots that a node holds, up to a maximum: their number, cores and gpus."""
    cores, gpus = list(node.free_cores), list(node.free_gpus)
    count, its_cores, its_gpus = 0, [], []
    while count < most and len(cores) >= request.cores and len(gpus) >= request.gpus:
        its_cores += cores[: request.cores]
        its_gpus += gpus[: request.gpus]
        cores, gpus = cores[request.cores :], gpus[request.gpus :]
        count += 1
    return count, its_cores, its_gpus


def place(machine: Machine, request: Request, accept: Accept | None = None) -> list[Part] | None:
    """Places a request on the lowest ranks; a node that `accept` rejects is skipped."""
    parts = []
    wanted = request.slots if request.nodes is None else request.nodes
    for rank, node in enumerate(machine):
        if wanted == 0 or not allowed(node, request):
            continue
        if request.nodes is None:
            count, cores, gpus = slots_on(node, request, wanted)
        else:
            count, cores, gpus = slots_on(node, request, request.slots)
            count = 1 if count == request.slots else 0
            if request.exclusive:
                cores, gpus = list(range(node.cores)), list(range(node.gpus))
                if not node.whole():
                    count = 0
        if count > 0 and (accept is None or accept((rank, cores, gpus))):
            parts.append((rank, cores, gpus))
            wanted -= count
    return parts if wanted == 0 else None


def units(machine: Machine, request: Request) -> int:
    """The number of units of the request that the machine holds, tried one by one."""
    count = 0
    while place(machine, with_units(request, count + 1)) is not None:
        count += 1
    return count


def with_units(request: Request, count: int) -> Request:
    if request.nodes is None:
        return Request(None, count, request.cores, request.gpus, property=request.property)
    return Request(
        count, request.slots, request.cores, request.gpus, request.exclusive, request.property
    )


def need(request: Request) -> int:
    return request.slots if request.nodes is None else request.nodes


class Base:
    """A machine, the queue, and the running jobs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = empty(machine)
        self.waiting: list[Job] = []
        self.running: list[Running] = []
        self.parts: dict[int, list[Part]] = {}

    def can_ever_run(self, job: Job) -> bool:
        return place(empty(self.machine), job.request) is not None

    def arrive(self, job: Job) -> None:
        self.waiting.append(job)
        self.waiting.sort(key=order)

    def complete(self, job: Job) -> None:
        self.running = [placed for placed in self.running if placed.job.id != job.id]
        give(self.machine, self.parts.pop(job.id))

    def start(self, job: Job, parts: list[Part], now: float) -> Running:
        take(self.machine, parts)
        holds = [(rank, core) for rank, cores, _ in parts for core in cores]
        running = Running(job, now, holds)
        self.running.append(running)
        self.waiting.remove(job)
        self.parts[job.id] = parts
        return running

    def ready(self) -> list[Job]:
        return [job for job in self.waiting if job.priority > 0]


class Fcfs(Base):
    """First come, first served: the first job that does not fit ends the pass."""

    def schedule(self, now: float) -> list[tuple[Running, bool]]:
        started = []
        for job in self.ready():
            parts = place(self.machine, job.request)
            if parts is None:
                break
            started.append((self.start(job, parts, now), False))
        return started


class Easy(Base):
    """EASY backfill: later jobs may start if they do not delay the blocked head."""

    def schedule(self, now: float) -> list[tuple[Running, bool]]:
        started = []
        blocked = None
        for job in self.ready():
            parts = place(self.machine, job.request)
            if parts is None:
                if blocked is None:
                    blocked = job
                    shadow, later = self.shadow(blocked, now)
                    spare = units(later, blocked.request) - need(blocked.request)
                continue
            ends = now + job.estimate
            # A job without a limit never ends as planned, not even at an unknown time.
            if blocked is not None and (ends > shadow or job.estimate == NO_LIMIT):
                lost = units_lost(later, blocked.request, parts)
                if lost > spare:
                    # Place the job again, only on resources that the blocked head can spare.
                    parts = place(self.machine, job.request, harmless(later, blocked.request))
                    if parts is None:
                        continue
                    lost = 0
                take(later, parts)
                spare -= lost
            started.append((self.start(job, parts, now), blocked is not None))
        return started

    def shadow(self, blocked: Job, now: float) -> tuple[float, Machine]:
        """The expected start of the job, and the expected machine at that time."""
        ends = [planned_end(placed.start, placed.job.estimate, now) for placed in self.running]
        later = deepcopy(self.machine)
        for shadow in sorted(ends):
            later = deepcopy(self.machine)
            for running, end in zip(self.running, ends, strict=True):
                if end <= shadow:
                    give(later, self.parts[running.job.id])
            if place(later, blocked.request) is not None:
                return shadow, later
        return math.inf, later


def units_lost(machine: Machine, request: Request, parts: list[Part]) -> int:
    """The number of units of the request that a machine loses when those parts are taken."""
    without = deepcopy(machine)
    take(without, parts)
    return units(machine, request) - units(without, request)


def harmless(machine: Machine, request: Request) -> Accept:
    """Whether taking a part costs the machine no unit of the request."""
    return lambda part: units_lost(machine, request, [part]) == 0


def scheduler(policy: str, machine: Machine) -> Base:
    """The scheduler of that name: fcfs or easy."""
    return {"fcfs": Fcfs, "easy": Easy}[policy](machine)
