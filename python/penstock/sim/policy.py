"""Policies of one's own in a simulation: callables that order the pending jobs."""

from __future__ import annotations

import heapq
import importlib.util
import json
import math
from array import array
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from penstock.engine import Engine
from penstock.errors import PolicyError
from penstock.resource import ResourceSet
from penstock.sim.results import DENIED, ENDED, KILLED, PENDING, Denial, Results
from penstock.sim.units import bounded_slowdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.clock import Clock
    from penstock.engine.views import Pending
    from penstock.sim.machine import Machine
    from penstock.sim.options import Options
    from penstock.sim.workload import Workload

    Order = Callable[[Pending], Any]

__all__ = ["Policy", "load"]


@dataclass(frozen=True)
class Policy:
    """A policy of one's own.

    Attributes:
        name: what it is called in tables.
        score: called with the pending jobs (`penstock.engine.Pending`) before each pass; returns a
            number for each: the highest comes first, equal ones stay in queue order.
        order: in place of `score`: returns positions, the first job first. Jobs that it omits do
            not start in this pass.
        base: how the jobs start in this order: `fcfs`, `easy`, `conservative` or `hybrid:N`.
        source: the `FILE.py:NAME` that it was loaded from.
    """

    name: str
    score: Order | None = None
    order: Order | None = None
    base: str = "easy"
    source: str = ""

    def __str__(self) -> str:
        return self.source or self.name

    def __post_init__(self) -> None:
        if (self.score is None) == (self.order is None):
            raise PolicyError(f"policy `{self.name}`: expected either a score or an order")

    @classmethod
    def of(cls, value: Policy | Order | type) -> Policy:
        """The policy itself; of a callable, or of a class of them, one that scores by it.

        Raises:
            PolicyError: it is nothing of these.
        """
        if isinstance(value, Policy):
            return value
        name = getattr(value, "__name__", type(value).__name__)
        made = value() if isinstance(value, type) else value
        if isinstance(made, Policy):
            return made
        if not callable(made):
            raise PolicyError(f"`{name}`: expected a callable, or a `penstock.sim.policy.Policy`")
        return cls(name, score=made)


def load(text: str) -> Policy:
    """The policy that `FILE.py:NAME` names: a callable, a class or a `Policy` in the file.

    The file is executed.

    Raises:
        PolicyError: the file cannot be executed, or has no such name.
    """
    file, _, name = text.rpartition(":")
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PolicyError(f"`{text}`: expected FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError as error:
        raise PolicyError(f"`{file}`: {error.strerror}") from error
    except Exception as error:
        raise PolicyError(f"`{file}`: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        known = [word for word in vars(module) if not word.startswith("_")]
        raise PolicyError(f"`{file}`: unknown name `{name}`: expected {', '.join(known)}")
    return replace(Policy.of(getattr(module, name)), source=text)


def simulate(
    workload: Workload,
    machine: Machine,
    options: Options,
    policy: Policy,
    *,
    selection: str,
    clock: Clock,
    report: Callable[[int, float], object] = lambda _done, _now: None,
) -> Results:
    """Simulates a workload under a policy of one's own, with the engine.

    Args:
        workload: the jobs.
        machine: the simulated machine.
        options: the options; those about failures, estimates and whole nodes are not supported.
        policy: orders the pending jobs.
        selection: which nodes are taken first.
        clock: measures the time that the simulation takes.
        report: called with the number of ended jobs and the time of the trace.

    Raises:
        PolicyError: an option is not supported.
        EngineError: the callable returned something else than expected.
    """
    for name in ("whole_nodes", "estimates", "failures", "mtbf"):
        if getattr(options, name):
            raise PolicyError(f"policy `{policy.name}`: `{name}` needs a policy of Penstock's own")
    begun = clock.monotonic()
    simulation = _Simulation(workload, machine, options, policy, selection)
    simulation.run(report)
    return simulation.results(clock.monotonic() - begun)


class _Simulation:
    """Events of a workload in the order of time, and the engine's decisions on them."""

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        options: Options,
        policy: Policy,
        selection: str,
    ) -> None:
        self._kills = options.kill_at_limit
        self._is_pool = machine.resources is None
        self._cores = machine.cores or max(workload.max_cores, 1)
        resources = machine.resources or ResourceSet.uniform(
            "0", "pool", cores=f"0-{self._cores - 1}"
        )
        self._engine = Engine(
            resources,
            policy=policy.base,
            selection=selection,
            score=policy.score,
            order=policy.order,
        )
        self._nodes = resources.nnodes
        self._jobs: list[dict[str, Any]] = [
            json.loads(line) for line in workload.to_jsonl().splitlines()
        ]
        self._shapes = [self._shape(job) for job in self._jobs]
        self._add_columns()
        count = len(self._jobs)
        self._allocated = [""] * count
        self._arrivals = sorted(range(count), key=lambda index: self._jobs[index]["submit"])
        self._arrived = 0
        self._has_arrived = bytearray(count)
        # Jobs that are due, and those that they have to wait for.
        self._open: dict[int, set[int]] = {}
        self._dependents: dict[int, list[int]] = {}
        self._find_dependencies()
        self._ends: list[tuple[float, int]] = []
        # The ends of think times, of the job and the one before it.
        self._think_ends: list[tuple[float, int, int]] = []
        self._file_order = workload.file_order
        self._due: list[int] = []
        self._queued = self._used = 0
        self._passes = self._events = self._done = 0
        self._denials: dict[str, list[int]] = {}

    def _add_columns(self) -> None:
        count = len(self._jobs)
        self.start = array("d", [math.nan] * count)
        self.end = array("d", [math.nan] * count)
        self.cores = array("I", [self._requested(shape)["cores"] for shape in self._shapes])
        self.nodes = array("I", [self._requested(shape)["nodes"] for shape in self._shapes])
        self.first_rank = array("I", [0] * count)
        self.backfilled = array("B", [0] * count)
        self.state = array("B", [PENDING] * count)
        self._series: list[tuple[float, int, int]] = []

    def _shape(self, job: Mapping[str, Any]) -> int:
        if "cores" in job:
            return self._engine.shape(slots=_count(job["cores"]), constraint=job.get("constraint"))
        return self._engine.shape(
            nodes=_count(job["nodes"]) if "nodes" in job else None,
            slots=_count(job.get("slots", 1)),
            cores=_count(job.get("cores_per_slot", 1)),
            gpus=_count(job.get("gpus_per_slot", 0)),
            exclusive=job.get("exclusive", False),
            constraint=job.get("constraint"),
        )

    def _requested(self, shape: int) -> dict[str, int]:
        """The least of a shape's cores and nodes."""
        request = self._engine.shape_request(shape)
        nodes = request.get("nodes")
        least = _least(nodes) if nodes is not None else 0
        cores = _least(request.get("slots", 1)) * _least(request.get("cores", 1))
        return {"cores": cores * max(least, 1), "nodes": least}

    def _find_dependencies(self) -> None:
        places = {job.get("id", place + 1): place for place, job in enumerate(self._jobs)}
        for place, job in enumerate(self._jobs):
            after = job.get("after", [])
            before = {places[name] for name in (after if isinstance(after, list) else [after])}
            if before:
                self._open[place] = before
            for other in before:
                self._dependents.setdefault(other, []).append(place)

    # --- time

    def run(self, report: Callable[[int, float], object]) -> None:
        """Processes all events."""
        while (now := self._next_time()) is not None:
            while self._ends and self._ends[0][0] <= now:
                self._complete(heapq.heappop(self._ends)[1], now)
            while self._think_ends and self._think_ends[0][0] <= now:
                _, place, before = heapq.heappop(self._think_ends)
                self._events += 1
                self._close_dependency(place, before)
            while self._arrived < len(self._arrivals):
                place = self._arrivals[self._arrived]
                if self._jobs[place]["submit"] > now:
                    break
                self._arrived += 1
                self._has_arrived[place] = True
                self._events += 1
                if not self._open.get(place):
                    self._due.append(place)
            self._submit(now)
            self._pass(now)
            self._record(now)
            report(self._done, now)

    def _next_time(self) -> float | None:
        times = [heap[0][0] for heap in (self._ends, self._think_ends) if heap]
        if self._arrived < len(self._arrivals):
            times.append(self._jobs[self._arrivals[self._arrived]]["submit"])
        return float(min(times)) if times else None

    def _complete(self, place: int, now: float) -> None:
        self._engine.free(place)
        self._used -= self.cores[place]
        self._events += 1
        self._finish(place, now)

    def _finish(self, place: int, now: float) -> None:
        """Counts a job that has ended or was denied, and releases those after it."""
        self._done += 1
        for other in self._dependents.get(place, ()):
            think = self._jobs[other].get("think", 0)
            if think:
                heapq.heappush(self._think_ends, (now + think, other, place))
            else:
                self._close_dependency(other, place)

    def _close_dependency(self, place: int, before: int) -> None:
        """Removes a dependency of a job, and releases the job after the last one."""
        self._open[place].discard(before)
        if not self._open[place] and self._has_arrived[place]:
            self._due.append(place)

    def _submit(self, now: float) -> None:
        due, self._due = sorted(self._due), []
        if not due:
            return
        jobs = [self._jobs[place] for place in due]
        self._engine.submit(
            due,
            [self._shapes[place] for place in due],
            durations=[_limit(job) or 0.0 for job in jobs],
            priorities=[job.get("priority", 16) for job in jobs],
            queues=[job.get("queue") for job in jobs],
            now=now,
        )
        self._queued += len(due)

    def _pass(self, now: float) -> None:
        if not self._queued:
            return
        self._passes += 1
        decisions = self._engine.schedule(now)
        for decision, resources in zip(decisions, decisions.rs(), strict=True):
            place = decision.id
            job, limit = self._jobs[place], _limit(self._jobs[place])
            is_killed = self._kills and limit is not None and job["run"] > limit
            run = limit if is_killed and limit is not None else job["run"]
            self.start[place], self.end[place] = now, now + run
            self.cores[place], self.nodes[place] = decision.cores, decision.nodes
            self.backfilled[place] = decision.backfilled
            self.state[place] = KILLED if is_killed else ENDED
            ranks = resources.ranks
            self.first_rank[place] = ranks.first() or 0
            allocated = resources.node(0).cores if self._is_pool else ranks
            self._allocated[place] = str(allocated)
            self._used += decision.cores
            self._queued -= 1
            heapq.heappush(self._ends, (now + run, place))
        for denial in decisions.denied:
            self.state[denial.id] = DENIED
            self._denials.setdefault(denial.note, []).append(denial.id)
            self._queued -= 1
            self._finish(denial.id, now)
        if decisions.denied:
            # Jobs that come after a denied one.
            self._submit(now)

    def _record(self, now: float) -> None:
        values = (self._used, self._queued)
        if self._series and self._series[-1][0] == now:
            self._series.pop()
        if not self._series or self._series[-1][1:] != values:
            self._series.append((now, *values))

    # --- results

    def results(self, seconds: float) -> Results:
        """The results, after `seconds` of real time."""
        submits = array("d", (job["submit"] for job in self._jobs))
        waits = array("d", (a - b for a, b in zip(self.start, submits, strict=True)))
        times, used, queued = ([row[column] for row in self._series] for column in range(3))
        columns = {
            "id": array("Q", (job.get("id", n + 1) for n, job in enumerate(self._jobs))),
            "submit": submits,
            "start": self.start,
            "end": self.end,
            "cores": self.cores,
            "nodes": self.nodes,
            "first_rank": self.first_rank,
            "wait": waits,
            "backfilled": self.backfilled,
            "killed": array("B", (state == KILLED for state in self.state)),
            "state": self.state,
            "estimate_start": array("d", [math.nan] * len(self._jobs)),
        }
        ids = columns["id"]
        # As every other policy's: in the order of the file.
        order = self._file_order or range(len(ids))
        columns = {
            name: array(column.typecode, (column[place] for place in order))
            for name, column in columns.items()
        }
        series = {
            "time": array("d", times),
            "used_cores": array("Q", used),
            "queued": array("I", queued),
        }
        return Results(
            {name: memoryview(column) for name, column in columns.items()},
            {name: memoryview(column) for name, column in series.items()},
            {**self._summary(submits, waits, max(map(int, queued), default=0)), "seconds": seconds},
            lambda place: self._allocated[order[place]],
            tuple(
                Denial(note, len(places), ids[places[0]]) for note, places in self._denials.items()
            ),
        )

    def _summary(
        self, submits: Sequence[float], waits: Sequence[float], max_queued: int
    ) -> dict[str, Any]:
        states = Counter(self.state)
        ran = [place for place, state in enumerate(self.state) if state in (ENDED, KILLED)]
        slowdowns = []
        for place in ran:
            run = self.end[place] - self.start[place]
            slowdowns.append(bounded_slowdown(waits[place], run))
        work = sum((self.end[place] - self.start[place]) * self.cores[place] for place in ran)
        first = min((submits[place] for place in ran), default=math.nan)
        makespan = max((self.end[place] for place in ran), default=math.nan) - first
        last = max(submits, default=math.nan)
        early = sum(
            max(min(self.end[place], last) - self.start[place], 0.0) * self.cores[place]
            for place in ran
        )
        backfilled = sum(self.backfilled)
        estimates = [f"estimate_error_{name}" for name in ("mean", "median", "p95", "max")]
        no_estimates: dict[str, None] = dict.fromkeys([*estimates, "estimate_bias"])
        return {
            "jobs": len(self._jobs),
            "ended": states[ENDED],
            "killed": states[KILLED],
            "lost": 0,
            "denied": states[DENIED],
            "pending": states[PENDING],
            "backfilled": backfilled,
            "nodes": self._nodes,
            "cores": self._cores,
            "passes": self._passes,
            "events": self._events,
            "node_failures": 0,
            "max_queued": max_queued,
            "backfilled_share": backfilled / len(ran) if ran else None,
            "utilisation": _share(work, self._cores * makespan),
            "utilisation_to_last_submit": _share(early, self._cores * (last - first)),
            "makespan": makespan if ran else None,
            "core_seconds": work,
            "lost_core_seconds": 0.0,
            **_spread("wait", [waits[place] for place in ran]),
            **_spread("slowdown", slowdowns),
            "estimate_jobs": 0,
            **no_estimates,
        }


def _count(value: Any) -> int | str:
    """A count as `Engine.shape` takes it: a number, or a range as text."""
    if not isinstance(value, dict):
        return int(value) if isinstance(value, (int, float)) else str(value)
    end = value.get("max", "")
    step = f":{value['operand']}:{value['operator']}" if "operand" in value else ""
    return f"{value['min']}-{end}{step}" if end != "" else f"{value['min']}+{step}"


def _least(value: Any) -> int:
    if isinstance(value, dict):
        return int(value["min"])
    return int(str(value).split("-")[0].split("+")[0].split(":")[0].split(",")[0])


def _limit(job: Mapping[str, Any]) -> float | None:
    limit: float | None = job.get("limit", job["run"])
    return limit


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _spread(name: str, values: Iterable[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    found = {
        "mean": fmean(ordered) if ordered else None,
        "median": _quantile(ordered, 0.5),
        "p95": _quantile(ordered, 0.95),
        "max": ordered[-1] if ordered else None,
    }
    return {f"{name}_{key}": value for key, value in found.items()}


def _quantile(ordered: Sequence[float], part: float) -> float | None:
    """The quantile of ascending values, linear between two of them."""
    if not ordered:
        return None
    position = (len(ordered) - 1) * part
    below = int(position)
    low = ordered[below]
    high = ordered[min(below + 1, len(ordered) - 1)]
    return low + (high - low) * (position - below)
