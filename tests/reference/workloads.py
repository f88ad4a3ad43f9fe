"""Random small workloads and machines, determined by a seed, and their files."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, replace

from tests.reference.events import NO_LIMIT, Job, Request
from tests.reference.shapes import Node


@dataclass(frozen=True)
class Workload:
    """Jobs and the machine they run on. The `size` of a job is in processors."""

    kind: str  # "pool", "slots" (single cores of nodes), "whole" (whole nodes) or "shapes"
    machine: tuple[Node, ...]  # a pool is one node
    jobs: tuple[Job, ...]
    form: str = "jsonl"  # or "swf"
    kill_at_limit: bool = False

    @property
    def cores(self) -> int:
        """Cores of a node."""
        return self.machine[0].cores

    def jobs_in_units(self) -> list[Job]:
        """The jobs with `size` in units of the machine: cores, or whole nodes."""
        if self.kind != "whole":
            return list(self.jobs)
        return [replace(job, size=math.ceil(job.size / self.cores)) for job in self.jobs]

    def inventory(self) -> str:
        """The machine as R (RFC 20)."""
        lite, properties = [], {}
        for rank, node in enumerate(self.machine):
            children = {"core": idset(node.cores)}
            if node.gpus:
                children["gpu"] = idset(node.gpus)
            lite.append({"rank": str(rank), "children": children})
            for name in sorted(node.properties):
                properties.setdefault(name, []).append(str(rank))
        execution = {
            "R_lite": lite,
            "nodelist": [f"n{rank}" for rank in range(len(self.machine))],
            "properties": {name: ",".join(ranks) for name, ranks in properties.items()},
        }
        return json.dumps({"version": 1, "execution": execution})

    def text(self) -> str:
        """The jobs as a file of the workload's form."""
        line = swf_line if self.form == "swf" else json_line
        return "".join(line(job) + "\n" for job in self.jobs)


def idset(count: int) -> str:
    return "0" if count == 1 else f"0-{count - 1}"


def number(value: float) -> int | float:
    """The shortest text of a number."""
    return int(value) if value == int(value) else value


def json_line(job: Job) -> str:
    fields: dict[str, object] = {
        "id": job.id,
        "submit": number(job.submit),
        "run": number(job.run),
        "limit": None if job.estimate == NO_LIMIT else number(job.estimate),
    }
    if job.priority != 16:
        fields["priority"] = job.priority
    request = job.request
    if request is None:
        fields["cores"] = job.size
        return json.dumps(fields)
    if request.nodes is not None:
        fields["nodes"] = request.nodes
        if request.exclusive:
            fields["exclusive"] = True
    fields["slots"] = request.slots
    fields["cores_per_slot"] = request.cores
    if request.gpus:
        fields["gpus_per_slot"] = request.gpus
    if request.property is not None:
        fields["constraint"] = {"properties": [request.property]}
    return json.dumps(fields)


def swf_line(job: Job) -> str:
    """The 18 fields of the Standard Workload Format.

    The requested size is left out (-1) if the reader is to take the used one, in every
    other job.
    """
    fields = [-1] * 18
    fields[0], fields[1], fields[3] = job.id, number(job.submit), number(job.run)
    fields[4] = job.size if job.id % 2 else max(1, job.size - 1)
    fields[7] = -1 if job.id % 2 else job.size
    fields[8] = -1 if job.estimate == job.run else number(job.estimate)
    fields[10] = 1
    return " ".join(str(field) for field in fields)


def random_workload(seed: str) -> Workload:
    """A small workload on a machine of equal units."""
    rng = random.Random(seed)
    kind = rng.choice(["pool", "slots", "whole"])
    if kind == "pool":
        machine = [Node(rng.choice([1, 2, 3, 4, 5, 6, 8, 16, 64, 65, 130]), 0)]
    else:
        cores = rng.choice([1, 2, 3, 4])
        machine = [Node(cores, 0) for _ in range(rng.choice([1, 2, 3, 4, 8]))]
    capacity = sum(node.cores for node in machine)
    form = rng.choice(["swf", "jsonl", "jsonl"])
    with_priorities = form == "jsonl" and rng.random() < 0.3
    jobs = [
        replace(
            job,
            size=random_size(rng, capacity),
            priority=rng.choice([0, 1, 15, 16, 16, 17, 31]) if with_priorities else 16,
        )
        for job in random_times(rng, form)
    ]
    return Workload(kind, tuple(machine), tuple(jobs), form, rng.random() < 0.2)


def random_size(rng: random.Random, capacity: int) -> int:
    """A size: small, large, the whole machine, or (rarely) more than the machine."""
    kind = rng.random()
    if kind < 0.25:
        return 1
    if kind < 0.45:
        return rng.randint(1, max(1, capacity // 2))
    if kind < 0.85:
        return rng.randint(1, capacity)
    if kind < 0.97:
        return capacity
    return capacity + rng.randint(1, 3)


def random_times(rng: random.Random, form: str) -> list[Job]:
    """Jobs with times only. Times are small numbers, so that many of them are equal."""
    scale = rng.choice([2, 4, 10, 30, 1000])
    step = 0.5 if form == "jsonl" and rng.random() < 0.2 else 1
    burst = rng.choice([0.0, 0.3, 0.7, 1.0])
    gap = rng.choice([1, scale // 2 + 1, scale])
    jobs = []
    submit = 0.0
    for index in range(1, rng.randint(1, rng.choice([4, 8, 15, 25])) + 1):
        if rng.random() >= burst:
            submit += step * rng.randint(0, gap)
        run = 0.0 if rng.random() < 0.1 else step * rng.randint(0, scale)
        jobs.append(Job(index, submit, run, random_estimate(rng, run, scale, step, form)))
    if rng.random() < 0.1:
        # Not in order of time in the file; ids are those of the lines.
        submits = [job.submit for job in jobs]
        rng.shuffle(submits)
        jobs = [replace(job, submit=time) for job, time in zip(jobs, submits, strict=True)]
    return jobs


def random_estimate(rng: random.Random, run: float, scale: int, step: float, form: str) -> float:
    """An estimate: exact, too long, too short, or random; in JSON lines also none."""
    kind = rng.random()
    if kind < 0.4:
        estimate = run
    elif kind < 0.6:
        estimate = run * rng.randint(1, 4)
    elif kind < 0.75:
        estimate = step * rng.randint(0, int(run / step))
    elif kind < 0.97 or form == "swf":
        estimate = step * rng.randint(0, 2 * scale)
    else:
        estimate = NO_LIMIT
    return estimate


def random_shapes(seed: str) -> Workload:
    """A small workload of requests on nodes of several kinds."""
    rng = random.Random(seed)
    kinds = [
        Node(
            rng.choice([1, 2, 4, 4, 6]),
            rng.choice([0, 0, 1, 2]),
            frozenset(name for name in "ab" if rng.random() < 0.5),
        )
        for _ in range(rng.randint(1, 3))
    ]
    machine = [rng.choice(kinds) for _ in range(rng.randint(1, 6))]
    jobs = [
        replace(job, request=random_request(rng, machine)) for job in random_times(rng, "jsonl")
    ]
    if rng.random() < 0.2:
        jobs = [replace(job, priority=rng.choice([0, 15, 16, 17])) for job in jobs]
    return Workload("shapes", tuple(machine), tuple(jobs), "jsonl", rng.random() < 0.2)


def random_request(rng: random.Random, machine: list[Node]) -> Request:
    """A request that mostly fits one of the nodes, and mostly the machine."""
    like = rng.choice(machine)
    cores = rng.randint(1, like.cores)
    gpus = rng.randint(0, like.gpus) if rng.random() < 0.6 else 0
    name = rng.choice(["a", "b"])
    wanted = None
    if rng.random() < 0.4:
        wanted = name if name in like.properties else f"^{name}"
    if rng.random() < 0.5:
        slots = rng.choice([1, 1, 2])
        cores = max(1, cores // slots)
        nodes = rng.randint(1, rng.randint(1, len(machine)))
        return Request(nodes, slots, cores, gpus, rng.random() < 0.4, wanted)
    return Request(
        None, rng.randint(1, rng.randint(1, 2 * len(machine))), cores, gpus, property=wanted
    )
