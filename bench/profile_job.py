"""The CPU time of each stage of a simulated job: `make bench-profile`.

Passes copies of a job through an instance with a durable store while `perf` samples the daemon.
Prints the microseconds of a job by stage, and the functions with the most samples in each.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

from million import (
    CORES,
    NODES,
    OPTIONS,
    PENDING,
    jobspec,
    measure_rate,
    wait_for_scheduler,
)

from instance import make_directory, running

# The first group with a match has the sample: the file of the code, then the function.
STAGES = {
    "disk: write and sync": (
        r"kernel",
        r"ext4|jbd2|blk|fsync|fdatasync|writeback|iomap|nvme|virtio|bio_",
    ),
    "sockets": (r"kernel", r"sock|unix_|skb|epoll|poll"),
    "kernel, other": (r"kernel", r""),
    "Python": (r"python", r""),
    "allocation": (r"", r"^_?mi_|malloc|free$|calloc"),
    "copies of memory": (r"", r"mem(cpy|move|set|cmp)"),
    "job manager": (r"_core", r"penstock_manager|penstock_flux"),
    "scheduler": (r"_core", r"penstock_(sched|engine|elastic|resource)"),
    "simulated execution": (r"_core", r"penstock_mockexec"),
    "resource sets": (r"_core", r"penstock_(rset|idset|hostlist|jobspec)"),
    "router and messages": (r"_core", r"penstock_(broker|wire)|_core::|pyo3"),
    "store: Rust": (r"_core", r"penstock_store|rusqlite"),
    "JSON": (r"_core", r"serde|ryu|itoa|zmij"),
    "standard library": (r"_core", r"::"),
    # The only C code of the extension.
    "store: SQLite": (r"_core", r""),
    "other": (r"", r""),
}
ROW = re.compile(r"^\s*(\d+\.\d+)%\s+(\S+)\s+\[.\]\s+(.+?)\s*$")
FUNCTIONS_PER_STAGE = 3


def stage_of(file: str, function: str) -> str:
    """The stage that a sample belongs to."""
    return next(
        name
        for name, (of_file, of_function) in STAGES.items()
        if re.search(of_file, file) and re.search(of_function, function)
    )


def shares(data: str) -> dict[str, Counter[str]]:
    """By stage and function, the percentages of the samples in a file of `perf record`."""
    command = ["perf", "report", "-i", data, "--stdio", "--no-children", "--sort", "dso,sym"]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in map(ROW.match, report.splitlines()):
        if row:
            share, file, function = row.groups()
            found[stage_of(file, function)][function] += float(share)
    return found


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs that are sampled")
    parser.add_argument("--pending", type=int, default=0, help="jobs that are pending meanwhile")
    args = parser.parse_args()
    directory = make_directory("penstock-profile-")
    data = str(Path(directory) / "perf.data")
    with running(*OPTIONS, state=directory) as (client, daemon):
        client.submit(jobspec(CORES - 1, 86_400.0), count=NODES)
        if args.pending:
            client.submit(PENDING, count=args.pending)
        wait_for_scheduler(client)
        measure_rate(client, daemon.pid, args.jobs // 10)
        command = ["perf", "record", "-q", "-F", "4999", "-p", str(daemon.pid), "-o", data]
        with subprocess.Popen(command) as perf:
            rate, cpu_s = measure_rate(client, daemon.pid, args.jobs)
            perf.terminate()
    stages = shares(data)
    print(f"{args.jobs:,} jobs, {args.pending:,} pending: {rate:,.0f} jobs/s\n")
    print("| stage | us a job | functions |\n|---|---|---|")
    for name, functions in sorted(stages.items(), key=lambda item: -item[1].total()):
        us = cpu_s * 1e6 * functions.total() / 100
        most = ", ".join(f"`{name[:60]}`" for name, _ in functions.most_common(FUNCTIONS_PER_STAGE))
        print(f"| {name} | {us:.2f} | {most} |")
    print(f"| all | {cpu_s * 1e6:.1f} | |")


if __name__ == "__main__":
    main()
