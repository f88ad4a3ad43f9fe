"""Penstock's simulator against the reference: `python -m tests.reference.compare --help`.

Every start, end, backfilled flag and core must be equal. A workload that differs is made as small
as it gets and shown, with the file and the machine to replay it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.reference import shapes, simulator
from tests.reference.events import Job, SimulatedRun, simulate
from tests.reference.workloads import Workload, random_shapes, random_workload

from penstock._core import Simulation
from penstock._core import Workload as PenstockWorkload

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICIES = ["fcfs", "easy", "conservative", "hybrid:1", "hybrid:2", "hybrid:5"]
SHAPE_POLICIES = ["fcfs", "easy"]

Rows = dict[int, tuple[object, ...]]


def expected(workload: Workload, policy: str) -> dict[int, SimulatedRun]:
    """The results of the reference."""
    if workload.kind == "shapes":
        scheduler = shapes.scheduler(policy, list(workload.machine))
    elif workload.kind == "pool":
        scheduler = simulator.scheduler(policy, simulator.pool(workload.cores))
    else:
        units = simulator.slots if workload.kind == "slots" else simulator.whole_nodes
        scheduler = simulator.scheduler(policy, units(len(workload.machine), workload.cores))
    return simulate(workload.jobs_in_units(), scheduler, kill_at_limit=workload.kill_at_limit)


def penstock(workload: Workload, policy: str) -> Simulation:
    """The results of Penstock."""
    read = PenstockWorkload.from_swf if workload.form == "swf" else PenstockWorkload.from_jsonl
    options = {"pool_cores": workload.cores} if workload.kind == "pool" else {}
    simulation = Simulation(
        None if workload.kind == "pool" else workload.inventory(),
        read(workload.text().encode(), name="workload"),
        policy=policy,
        whole_nodes=workload.kind == "whole",
        kill_at_limit=workload.kill_at_limit,
        **options,
    )
    while simulation.advance(1_000_000):
        pass
    return simulation


def rows_expected(workload: Workload, policy: str) -> Rows:
    return {
        number: (outcome.start, outcome.end, outcome.backfilled, where(workload, outcome.holds))
        for number, outcome in expected(workload, policy).items()
    }


def rows_of_penstock(workload: Workload, policy: str) -> Rows:
    result = penstock(workload, policy).result()
    columns = {name: list(view) for name, view in columns_of(result).items()}
    rows: Rows = {}
    for index, number in enumerate(columns["id"]):
        start, end = columns["start"][index], columns["end"][index]
        if math.isnan(start):
            rows[number] = (None, None, False, "")
        else:
            place = result.allocation(index)
            if workload.kind == "pool":
                place = str(columns["cores"][index])
            rows[number] = (start, end, bool(columns["backfilled"][index]), place)
    return rows


def columns_of(result: object) -> dict[str, memoryview]:
    """The columns of a result as arrays, each of its own type."""
    formats = {"id": "Q", "cores": "I", "nodes": "I", "first_rank": "I"}
    formats |= dict.fromkeys(["submit", "start", "end", "wait", "estimate_start"], "d")
    views = {}
    for name, column in result.columns().items():
        view = memoryview(column)
        if name in formats and view.format == "B":
            view = view.cast(formats[name])
        views[name] = view
    return views


def where(workload: Workload, holds: list[tuple[int, int]]) -> str:
    """The compared form of an allocation: ranks as an idset, or the number of a pool's cores."""
    if workload.kind == "pool":
        return str(len(holds)) if holds else ""
    ids = sorted({node for node, _ in holds})
    ranges: list[list[int]] = []
    for last in ids:
        if ranges and ranges[-1][1] == last - 1:
            ranges[-1][1] = last
        else:
            ranges.append([last, last])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


@dataclass(frozen=True)
class Mismatch:
    """A workload on which the two differ, and the differences."""

    workload: Workload
    policy: str
    differences: list[str]

    def __str__(self) -> str:
        option = " kill_at_limit" if self.workload.kill_at_limit else ""
        machine = self.workload.inventory()
        if self.workload.kind == "pool":
            machine = f"pool of {self.workload.cores} cores"
        return "\n".join(
            [
                f"policy {self.policy}, {self.workload.kind}, {self.workload.form}{option}",
                machine,
                self.workload.text().rstrip(),
                *self.differences,
            ]
        )


def differences(workload: Workload, policy: str) -> list[str]:
    """The differences, one line per job."""
    ours = rows_expected(workload, policy)
    try:
        theirs = rows_of_penstock(workload, policy)
    except Exception as error:
        return [f"error: {type(error).__name__}: {error}"]
    if ours.keys() != theirs.keys():
        return [f"jobs {sorted(ours)} are {sorted(theirs)}"]
    return [
        f"job {number} (start, end, backfilled, where): {ours[number]}, is {theirs[number]}"
        for number in sorted(ours)
        if ours[number] != theirs[number]
    ]


def compare(workload: Workload, policy: str) -> Mismatch | None:
    """None if equal; else the smallest workload found that differs."""
    if not differences(workload, policy):
        return None
    workload = shrink(workload, policy)
    return Mismatch(workload, policy, differences(workload, policy))


def shrink(workload: Workload, policy: str) -> Workload:
    """Simplifies a workload as long as the two differ on it."""
    progress = True
    while progress:
        progress = False
        for simpler in simplifications(workload):
            if differences(simpler, policy):
                workload = simpler
                progress = True
                break
    return workload


def simplifications(workload: Workload) -> Iterator[Workload]:
    """Workloads one step simpler: without a job, without a node, or with a smaller number."""
    jobs = workload.jobs
    for index in range(len(jobs)):
        yield replace(workload, jobs=jobs[:index] + jobs[index + 1 :])
    if len(workload.machine) > 1:
        for index in range(len(workload.machine)):
            machine = workload.machine[:index] + workload.machine[index + 1 :]
            yield replace(workload, machine=machine)
    if workload.kill_at_limit:
        yield replace(workload, kill_at_limit=False)
    if workload.form == "swf":
        yield replace(workload, form="jsonl")
    for index, job in enumerate(jobs):
        for simpler in simpler_jobs(job):
            yield replace(workload, jobs=(*jobs[:index], simpler, *jobs[index + 1 :]))


def simpler_jobs(job: Job) -> Iterator[Job]:
    if job.priority != 16:
        yield replace(job, priority=16)
    if job.estimate > job.run:
        yield replace(job, estimate=job.run)
    for name in ("submit", "run", "estimate", "size"):
        value = getattr(job, name)
        smaller = 1 if name == "size" else 0
        if value > smaller and value != math.inf:
            for less in {smaller, value // 2, value - 1}:
                if smaller <= less < value:
                    yield replace(job, **{name: less})
    request = job.request
    if request is not None:
        if request.property is not None:
            yield replace(job, request=replace(request, property=None))
        if request.exclusive:
            yield replace(job, request=replace(request, exclusive=False))
        if request.gpus:
            yield replace(job, request=replace(request, gpus=0))
        for name in ("slots", "cores", "nodes"):
            if (getattr(request, name) or 0) > 1:
                yield replace(job, request=replace(request, **{name: getattr(request, name) - 1}))


def by_command_line(workload: Workload, policies: list[str]) -> list[str]:
    """Differences between the reference and the files that `penstock sim --out` writes."""
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory, f"trace.{workload.form}")
        trace.write_text(workload.text())
        command = [sys.executable, "-m", "penstock", "sim", str(trace), "--quiet"]
        command += ["--policy", ",".join(policies), "--out", f"{directory}/out"]
        if workload.kind == "shapes":
            inventory = Path(directory, "R.json")
            inventory.write_text(workload.inventory())
            command += ["--inventory", str(inventory)]
        elif workload.kind == "pool":
            command += ["--cores", str(workload.cores)]
        else:
            command += ["--nodes", str(len(workload.machine)), "--cores", str(workload.cores)]
        if workload.kind == "whole":
            command.append("--whole-nodes")
        if workload.kill_at_limit:
            command.append("--kill-at-limit")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return [f"{' '.join(command)}: {done.stderr.strip()}"]
        with Path(directory, "out", "jobs.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    found = []
    for policy in policies:
        theirs = {int(row["id"]): row for row in rows if row["policy"] == policy}
        for number, outcome in expected(workload, policy).items():
            row = theirs.get(number)
            if outcome.start is None:
                if row is not None and row["start"]:
                    found.append(f"{policy}: job {number} never starts, is {row}")
                continue
            job = next(job for job in workload.jobs if job.id == number)
            wanted = {
                "submit": job.submit,
                "start": outcome.start,
                "end": outcome.end,
                "wait": outcome.start - job.submit,
                "cores": len(outcome.holds),
                "nodes": len({node for node, _ in outcome.holds}),
                "backfilled": outcome.backfilled,
            }
            if row is None or any(as_number(row[name]) != value for name, value in wanted.items()):
                found.append(f"{policy}: job {number}: expected {wanted}, is {row}")
    return found


def as_number(text: str) -> float:
    """A cell of the file: a number, or a truth value."""
    return {"true": 1.0, "false": 0.0}.get(text.lower(), 0.0) if text.isalpha() else float(text)


def read_trace(path: Path, limit: int | None, squeeze: float) -> Workload:
    """A trace in the Standard Workload Format, by what its documentation says of the fields.

    Its jobs come `squeeze` times as fast, in whole seconds.
    """
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        lines = [line.strip() for line in file]
    cores = next(int(line.split(":")[1]) for line in lines if line.startswith("; MaxProcs:"))
    jobs: list[Job] = []
    for line in lines:
        if not line or line.startswith(";"):
            continue
        fields = [float(field) for field in line.split()]
        submit, run, used, requested, estimate = (fields[place - 1] for place in (2, 4, 5, 8, 9))
        size = int(requested if requested > 0 else used)
        if size > 0 and run >= 0 and (limit is None or len(jobs) < limit):
            submit = math.floor(submit / squeeze)
            jobs.append(Job(int(fields[0]), submit, run, estimate if estimate >= 0 else run, size))
    return Workload("pool", (shapes.Node(cores, 0),), tuple(jobs), "swf")


@dataclass
class Tally:
    """The workloads on which a policy was compared."""

    workloads: int = 0
    jobs: int = 0
    backfilled: int = 0
    mismatches: int = 0


def compare_many(
    seed: int, indices: Iterator[int] | range, policies: list[str], *, stop_after: int
) -> dict[str, Tally]:
    """Compares on random workloads; prints differences up to a number of workloads."""
    tallies = {policy: Tally() for policy in policies}
    for index in indices:
        for make, its_policies in ((random_workload, POLICIES), (random_shapes, SHAPE_POLICIES)):
            workload = make(f"{seed}:{index}")
            for policy in policies:
                if policy not in its_policies:
                    continue
                tally = tallies[policy]
                tally.workloads += 1
                tally.jobs += len(workload.jobs)
                ours = expected(workload, policy).values()
                tally.backfilled += sum(outcome.backfilled for outcome in ours)
                found = compare(workload, policy)
                if found is not None:
                    tally.mismatches += 1
                    print(f"--- mismatch: --seed {seed} --only {index}\n{found}", flush=True)
                    if sum(each.mismatches for each in tallies.values()) >= stop_after:
                        return tallies
    return tallies


def compare_trace(workload: Workload, policies: list[str]) -> dict[str, Tally]:
    """Compares on one workload, and prints the results of each policy."""
    tallies = {}
    for policy in policies:
        began = time.monotonic()
        ours = expected(workload, policy)
        spent = time.monotonic() - began
        theirs = rows_of_penstock(workload, policy)
        wrong = [
            f"job {number}: expected {(outcome.start, outcome.end, outcome.backfilled)}, "
            f"is {theirs.get(number)}"
            for number, outcome in ours.items()
            if theirs.get(number, ())[:3] != (outcome.start, outcome.end, outcome.backfilled)
        ]
        waits = [outcome.start - job.submit for job, outcome in jobs_with(workload, ours)]
        print(
            f"{policy}: mean wait {sum(waits) / len(waits):.1f} s; the reference: {spent:.1f} s",
            *wrong[:5],
            sep="\n  ",
        )
        backfilled = sum(outcome.backfilled for outcome in ours.values())
        tallies[policy] = Tally(1, len(ours), backfilled, len(wrong))
    return tallies


def jobs_with(
    workload: Workload, outcomes: dict[int, SimulatedRun]
) -> Iterator[tuple[Job, SimulatedRun]]:
    """The jobs that have run, with their results."""
    for job in workload.jobs:
        if outcomes[job.id].start is not None:
            yield job, outcomes[job.id]


def main() -> int:
    """Runs the comparison; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.reference.compare", description=__doc__)
    parser.add_argument("--workloads", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="INDEX", help="this one of the workloads only")
    parser.add_argument("--policy", type=lambda text: text.split(","), default=POLICIES)
    parser.add_argument("--stop-after", type=int, default=5, metavar="MISMATCHES")
    parser.add_argument("--trace", type=Path, help="compare on this .swf or .swf.gz instead")
    parser.add_argument("--limit", type=int, metavar="JOBS", help="of the trace")
    parser.add_argument(
        "--squeeze", type=float, default=1, help="divides the submission times of the trace"
    )
    parser.add_argument("--files", type=int, metavar="N", help="N by `penstock sim --out` instead")
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.trace is not None:
        tallies = compare_trace(
            read_trace(arguments.trace, arguments.limit, arguments.squeeze), arguments.policy
        )
    elif arguments.files is not None:
        tallies = {"files": Tally(arguments.files)}
        for index in range(arguments.files):
            workload = random_workload(f"{arguments.seed}:{index}")
            found = by_command_line(workload, arguments.policy)
            tallies["files"].jobs += len(workload.jobs) * len(arguments.policy)
            tallies["files"].mismatches += bool(found)
            print(*found, sep="\n", end="\n" if found else "")
    else:
        indices = range(arguments.workloads)
        if arguments.only is not None:
            indices = range(arguments.only, arguments.only + 1)
        tallies = compare_many(
            arguments.seed, indices, arguments.policy, stop_after=arguments.stop_after
        )
    print(f"seed {arguments.seed}, {time.monotonic() - began:.1f} s")
    for policy, tally in tallies.items():
        print(
            f"{policy:>12}: {tally.workloads} workloads, {tally.jobs} jobs, "
            f"{tally.backfilled} backfilled, {tally.mismatches} mismatches"
        )
    return 1 if any(tally.mismatches for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
