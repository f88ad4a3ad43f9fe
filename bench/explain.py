"""The time of `explain` behind a long queue: `make bench-explain`.

Fills the machine with jobs that run for an hour, queues copies of several shapes behind them, and
asks an instance with a durable store why single pending jobs are pending. Prints the median and
the longest time of a call through the client's socket. The time is to be the same at every depth.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

from instance import running
from penstock.jobspec import from_command

CORES = 16
# Cores of the pending jobs: a shape each.
SHAPES = (1, 2, 4, 8)


def jobspec(cores: int) -> dict[str, Any]:
    """A jobspec of one task with `cores` cores and a time limit of an hour."""
    return from_command(["true"], environment={}, cwd="/", duration=3600.0, cores_per_task=cores)


def measure(policy: str, nodes: int, pending: int, calls: int) -> tuple[float, float]:
    """Explains `calls` of `pending` jobs, one at a time; returns median and maximum in seconds."""
    options = ["--nodes", str(nodes), "--cores", str(CORES), "--policy", policy]
    with running(*options) as (client, _):
        client.submit(jobspec(CORES), count=nodes)
        jobs: list[int] = []
        for cores in SHAPES:
            jobs += client.submit(jobspec(cores), count=pending // len(SHAPES))
        # The scheduler has received them all when it knows the last one.
        while client.explain(jobs[-1:]).errors:
            pass
        times = []
        for job in random.Random(1).choices(jobs, k=calls):
            began = time.perf_counter()
            explained = client.explain([job])
            times.append(time.perf_counter() - began)
            assert not explained.errors, explained.errors
    return statistics.median(times), max(times)


def main() -> None:
    """Measures and prints a row for each policy and depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, nargs="*", default=[1_000, 1_000_000])
    parser.add_argument("--policy", nargs="*", default=["easy"])
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--calls", type=int, default=50)
    args = parser.parse_args()
    print("| policy | pending | median | longest |\n|---|---|---|---|")
    for policy in args.policy:
        for pending in args.pending:
            median, longest = measure(policy, args.nodes, pending, args.calls)
            print(
                f"| {policy} | {pending:,} | {median * 1e3:.2f} ms | {longest * 1e3:.2f} ms |",
                flush=True,
            )


if __name__ == "__main__":
    main()
