"""Real jobs from submit to inactive: `make bench-exec`.

An instance on this machine with a durable store, scheduler, binding and retained output runs
`/bin/true` jobs of one core each. In the same run: bare posix_spawn with as many processes at a
time as there are cores, and HyperQueue (its wheel), which is not durable.

Prints jobs/s, the CPU time of a job in each process, the latency of one job on an idle instance,
and the memory of the execution service and its reapers for each running one-task job: private
memory (USS) and page tables.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from running_tasks import measure, reaper_of, service_processes

from instance import make_directory, running
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client import Client

PROGRAM = "/bin/true"
# Jobs of a round that is not measured: caches are warm and reapers run after it.
WARM_UP_JOBS = 20
# HyperQueue's client looks once per second whether the tasks have ended: it gets more of them.
HYPERQUEUE_FACTOR = 3


def spawn_rate(count: int, at_a_time: int) -> float:
    """Processes per second by posix_spawn and waitpid."""
    began = time.perf_counter()
    for index in range(count):
        if index >= at_a_time:
            os.wait()
        os.posix_spawn(PROGRAM, [PROGRAM], {})
    for _ in range(min(count, at_a_time)):
        os.wait()
    return count / (time.perf_counter() - began)


@contextmanager
def silenced() -> Iterator[None]:
    """Discards the progress bars of the block."""
    saved = [(stream, os.dup(stream)) for stream in (1, 2)]
    with Path(os.devnull).open("wb") as null:
        for stream, _ in saved:
            os.dup2(null.fileno(), stream)
    try:
        yield
    finally:
        for stream, copy in saved:
            os.dup2(copy, stream)
            os.close(copy)


def hyperqueue_rate(count: int, cores: int) -> float:
    """Tasks per second by HyperQueue, server and worker in this machine's memory."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    directory = make_directory("hq-bench-")
    with silenced(), LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=cores))
        client = cluster.client()

        def run(tasks: int) -> float:
            job = Job(default_workdir=directory)
            for _ in range(tasks):
                job.program([PROGRAM])
            began = time.perf_counter()
            client.wait_for_jobs([client.submit(job)])
            return time.perf_counter() - began

        run(WARM_UP_JOBS)
        return count / run(count)


def run_jobs(client: Client, count: int) -> float:
    """Seconds from one submission of `count` copies until all jobs are inactive."""
    spec = from_command([PROGRAM], environment=dict(os.environ), cwd="/", duration=60.0)
    began = time.perf_counter()
    client.submit(spec, count=count)
    client.rpc("job-manager.drain", {})
    return time.perf_counter() - began


def cpu_s(pid: int) -> tuple[float, float]:
    """CPU time of a process, and of its children that have been waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    user, system, children_user, children_system = map(int, fields[11:15])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + system) / ticks, (children_user + children_system) / ticks


def penstock_rate(count: int) -> tuple[float, dict[str, float]]:
    """Jobs per second by Penstock, and the CPU seconds of a job in each process."""
    with running() as (client, daemon):
        run_jobs(client, WARM_UP_JOBS)
        state = client.rpc("attr.get", {"name": "statedir"})["value"]
        pids = {"daemon": daemon.pid}
        pids |= {program: pid for pid, program in service_processes(state).items()}
        pids["penstock-reaper"] = reaper_of(state)
        before = {program: cpu_s(pid) for program, pid in pids.items()}
        took = run_jobs(client, count)
        after = {program: cpu_s(pid) for program, pid in pids.items()}
        stats = client.rpc("job-list.job-stats", {})
        assert stats["successful"] == count + WARM_UP_JOBS, stats
    cpu = {program: (after[program][0] - before[program][0]) / count for program in pids}
    # The tasks are the reaper's children.
    reaper = "penstock-reaper"
    cpu["task"] = (after[reaper][1] - before[reaper][1]) / count
    return count / took, cpu


def latencies_s(count: int) -> list[float]:
    """Times from submit to inactive of one job after another."""
    with running() as (client, _):
        run_jobs(client, WARM_UP_JOBS)
        return sorted(run_jobs(client, 1) for _ in range(count))


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--latencies", type=int, default=500)
    parser.add_argument("--running", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    cores = len(os.sched_getaffinity(0))
    print("| round | posix_spawn | HyperQueue | Penstock |\n|---|---|---|---|", flush=True)
    for number in range(1, args.rounds + 1):
        spawn = spawn_rate(args.jobs, cores)
        hyperqueue = hyperqueue_rate(HYPERQUEUE_FACTOR * args.jobs, cores)
        penstock, cpu = penstock_rate(args.jobs)
        print(
            f"| {number} | {spawn:,.0f}/s | {hyperqueue:,.0f}/s | {penstock:,.0f}/s "
            f"({penstock / spawn:.2f} of posix_spawn, {penstock / hyperqueue:.2f} of HyperQueue) |",
            flush=True,
        )
    times_us = ", ".join(f"{program} {seconds * 1e6:.0f} us" for program, seconds in cpu.items())
    print(f"\nCPU time of a job in the last round: {times_us}")
    times = latencies_s(args.latencies)
    print(
        f"\nOne job on an idle instance: {statistics.median(times) * 1e3:.2f} ms, 99 % in "
        f"{times[len(times) * 99 // 100] * 1e3:.2f} ms ({args.latencies} jobs)"
    )
    memory = measure(args.running)
    print(
        f"{args.running:,} running jobs: {memory.private:.1f} KiB private memory and "
        f"{memory.page_tables:.2f} KiB page tables for each, service and reapers together"
    )


if __name__ == "__main__":
    main()
