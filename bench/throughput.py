"""The cost of a simulated job from submit to inactive: `make bench-throughput`.

Submits copies of one job in one request to an instance with a durable store, scheduler and
simulated execution, and waits until all are inactive. Prints jobs/s and the daemon's CPU time per
job, user and system, after the submission: CPU time is comparable on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from instance import running
from penstock.jobspec import from_command

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, user and system, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def measure(nodes: int, jobs: int, nnodes: int | None) -> tuple[float, float]:
    """Runs `jobs` jobs on `nodes` nodes; returns jobs/s and the daemon's CPU seconds per job."""
    spec = from_command(
        ["true"], environment={}, cwd="/", duration=60.0, nodes=nnodes,
        ntasks=nnodes or 1, setattr={"exec.test.run_duration": "0s"},
    )  # fmt: skip
    with running("--nodes", str(nodes), "--cores", "16") as (client, daemon):
        client.ping("job-manager")
        began, before = time.perf_counter(), cpu_s(daemon.pid)
        client.submit(spec, count=jobs)
        client.rpc("job-manager.drain", {})
        took, used = time.perf_counter() - began, cpu_s(daemon.pid) - before
        states = client.rpc("job-list.job-stats", {})
        assert states["successful"] == jobs, states
    return jobs / took, used / jobs


def main() -> None:
    """Measures and prints a row for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, nargs="*", default=[16, 1000, 100_000])
    parser.add_argument(
        "--repeat",
        type=int,
        default=3,
        help="measurements, of which the one with the least CPU time counts",
    )
    args = parser.parse_args()
    print("| nodes | nodes of a job | jobs/s | daemon CPU per job |\n|---|---|---|---|")
    for nodes in args.nodes:
        for nnodes in (None, 2):
            runs = [measure(nodes, args.jobs, nnodes) for _ in range(args.repeat)]
            rate, cpu = max(run[0] for run in runs), min(run[1] for run in runs)
            print(
                f"| {nodes:,} | {nnodes or 'a core'} | {rate:,.0f} | {cpu * 1e6:.1f} us |",
                flush=True,
            )


if __name__ == "__main__":
    main()
