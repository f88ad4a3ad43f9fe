"""Schedulers of a machine of equal units: fcfs, easy, conservative, hybrid.

A unit is what a job asks for a number of: a core of a pool, or a whole node. Each unit is a list
of (node, core) pairs, and a job holds the pairs of the lowest units that are free.

The queue is in order of priority (the highest first), then of submission.
"""

from __future__ import annotations

import math

from tests.reference.events import NO_LIMIT, Job, Running, order, planned_end

Unit = list[tuple[int, int]]


def pool(cores: int) -> list[Unit]:
    """A machine of `cores` cores, each of which is a unit."""
    return [[(0, core)] for core in range(cores)]


def slots(nodes: int, cores: int) -> list[Unit]:
    """A machine of nodes whose cores are allocated singly, on the lowest node first."""
    return [[(node, core)] for node in range(nodes) for core in range(cores)]


def whole_nodes(nodes: int, cores: int) -> list[Unit]:
    """A machine of nodes that are allocated whole."""
    return [[(node, core) for core in range(cores)] for node in range(nodes)]


class Base:
    """A machine of units, the queue, and the running jobs; a policy defines a pass."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = units
        self.free = [True] * len(units)
        self.waiting: list[Job] = []
        self.running: list[Running] = []

    def can_ever_run(self, job: Job) -> bool:
        return job.size <= len(self.units)

    def arrive(self, job: Job) -> None:
        self.waiting.append(job)
        self.waiting.sort(key=order)

    def complete(self, job: Job) -> None:
        for running in list(self.running):
            if running.job.id == job.id:
                self.running.remove(running)
                for index, unit in enumerate(self.units):
                    if unit[0] in running.holds:
                        assert not self.free[index]
                        self.free[index] = True

    def free_units(self) -> int:
        return self.free.count(True)

    def start(self, job: Job, now: float) -> Running:
        """Starts a job that fits, on the lowest units that are free."""
        running = Running(job, now)
        units_taken = 0
        for index, unit in enumerate(self.units):
            if self.free[index] and units_taken < job.size:
                self.free[index] = False
                running.holds.extend(unit)
                units_taken += 1
        assert units_taken == job.size
        self.running.append(running)
        self.waiting.remove(job)
        return running

    def ready(self) -> list[Job]:
        """Pending jobs in queue order, without held ones (priority 0)."""
        return [job for job in self.waiting if job.priority > 0]


class Fcfs(Base):
    """First come, first served: the first job that does not fit ends the pass."""

    def schedule(self, now: float) -> list[tuple[Running, bool]]:
        started = []
        for job in self.ready():
            if job.size > self.free_units():
                break
            started.append((self.start(job, now), False))
        return started


class Easy(Base):
    """EASY backfill: later jobs may start if they do not delay the blocked head."""

    def schedule(self, now: float) -> list[tuple[Running, bool]]:
        started = []
        blocked = None
        for job in self.ready():
            if blocked is None:
                if job.size <= self.free_units():
                    started.append((self.start(job, now), False))
                else:
                    blocked = job
                    shadow, spare = self.shadow(job, now)
            elif job.size <= self.free_units():
                if now + job.estimate <= shadow and job.estimate != NO_LIMIT:
                    # It is expected to end by the shadow time: it uses no spare units.
                    started.append((self.start(job, now), True))
                elif job.size <= spare:
                    spare -= job.size
                    started.append((self.start(job, now), True))
        return started

    def shadow(self, blocked: Job, now: float) -> tuple[float, int]:
        """The expected start of the job, and the units that stay free then.

        A job whose planned end is the shadow time has ended by it.
        """
        ends = [planned_end(placed.start, placed.job.estimate, now) for placed in self.running]
        for shadow in sorted(ends):
            free = self.free_units()
            for running, end in zip(self.running, ends, strict=True):
                if end <= shadow:
                    free += running.job.size
            if free >= blocked.size:
                return shadow, free - blocked.size
        raise AssertionError("when all have ended there is room for any job that may wait")


class Plan:
    """Units held per job and interval; an interval includes its start and not its end."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: list[tuple[float, float, int]] = []

    def add(self, start: float, end: float, size: int) -> None:
        self.held.append((start, end, size))

    def used(self, instant: float) -> int:
        return sum(size for start, end, size in self.held if start <= instant < end)

    def fits(self, start: float, length: float, size: int) -> bool:
        """Whether that many units are free at every instant of [start, start + length)."""
        # Units are taken only where something begins, so those are the instants to look at.
        instants = [start]
        for begin, _, _ in self.held:
            if start < begin < start + length:
                instants.append(begin)
        return all(self.used(instant) + size <= self.capacity for instant in instants)

    def earliest(self, not_before: float, length: float, size: int) -> float:
        """The first time at which that many units are free for that long; infinity without one."""
        # Units are released only at ends: no other time can be the first.
        candidates = [not_before] + [end for _, end, _ in self.held if end > not_before]
        for candidate in sorted(candidates):
            if self.fits(candidate, length, size):
                return candidate
        raise AssertionError("at the latest it fits when all have ended")


def planned_length(job: Job) -> float:
    """The length of a job in a plan, at least a second."""
    return planned_end(0, job.estimate, 0)


class Planner(Base):
    """Common part of conservative and hybrid: a plan that has the running jobs."""

    def plan_of_running(self, now: float) -> Plan:
        plan = Plan(len(self.units))
        for placed in self.running:
            plan.add(now, planned_end(placed.start, placed.job.estimate, now), placed.job.size)
        return plan


class Hybrid(Planner):
    """The first `depth` blocked jobs have reservations, which the others respect.

    Nothing is remembered between passes.
    """

    def __init__(self, units: list[Unit], depth: int) -> None:
        super().__init__(units)
        self.depth = depth

    def schedule(self, now: float) -> list[tuple[Running, bool]]:
        started = []
        plan = self.plan_of_running(now)
        reservations = 0
        for job in self.ready():
            length = planned_length(job)
            if plan.fits(now, length, job.size):
                plan.add(now, now + length, job.size)
                started.append((self.start(job, now), job_before(self.ready(), job)))
            elif reservations < self.depth:
                start = plan.earliest(now, length, job.size)
                plan.add(start, start + length, job.size)
                reservations += 1
        return started


class Conservative(Planner):
    """Every job has a reservation from its arrival on, which only gets earlier.

    It gets later where jobs outrun their estimates, and there only.
    """

    def __init__(self, units: list[Unit]) -> None:
        super().__init__(units)
        self.reserved: dict[int, float] = {}

    def schedule(self, now: float) -> list[tuple[Running, bool]]:
        self.repair(now)
        while self.compress(now):
            pass
        for job in self.ready():
            if job.id not in self.reserved:
                plan = self.plan_without(job, now)
                self.reserved[job.id] = plan.earliest(now, planned_length(job), job.size)
        due = [job for job in self.ready() if self.reserved[job.id] == now]
        started = [self.start(job, now) for job in due]
        for job in due:
            del self.reserved[job.id]
        return [(running, job_before(self.ready(), running.job)) for running in started]

    def plan_without(self, job: Job, now: float) -> Plan:
        """The running jobs and the reservations of all others."""
        plan = self.plan_of_running(now)
        for other in self.ready():
            if other.id != job.id and other.id in self.reserved:
                start = self.reserved[other.id]
                plan.add(start, start + planned_length(other), other.size)
        return plan

    def repair(self, now: float) -> None:
        """Delays reservations that no longer fit, in queue order, each as little as possible."""
        plan = self.plan_of_running(now)
        for job in self.ready():
            if job.id in self.reserved:
                length = planned_length(job)
                start = plan.earliest(max(now, self.reserved[job.id]), length, job.size)
                plan.add(start, start + length, job.size)
                self.reserved[job.id] = start

    def compress(self, now: float) -> bool:
        """Moves each reservation to its earliest time; returns whether one has moved.

        In the order of their starts, and of the queue where they start together; first those for
        which there is no time yet.
        """

        def rank(job: Job) -> float:
            start = self.reserved[job.id]
            return start if math.isfinite(start) else -math.inf

        moved = False
        reserved = [job for job in self.ready() if job.id in self.reserved]
        for job in sorted(reserved, key=rank):
            plan = self.plan_without(job, now)
            start = plan.earliest(now, planned_length(job), job.size)
            assert start <= self.reserved[job.id], "a reservation is never delayed"
            if start < self.reserved[job.id]:
                self.reserved[job.id] = start
                moved = True
        return moved


def job_before(waiting: list[Job], job: Job) -> bool:
    """Whether a job that is earlier in the order is still pending."""
    return any(order(other) < order(job) for other in waiting)


def scheduler(policy: str, units: list[Unit]) -> Base:
    """The scheduler of that name: fcfs, easy, conservative, hybrid:N."""
    if policy == "fcfs":
        return Fcfs(units)
    if policy == "easy":
        return Easy(units)
    if policy == "conservative":
        return Conservative(units)
    name, _, depth = policy.partition(":")
    assert name == "hybrid", policy
    return Hybrid(units, int(depth))
