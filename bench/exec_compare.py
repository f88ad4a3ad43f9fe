"""Real jobs on two builds in turn: `make bench-exec-compare BEFORE=FOLDER`.

An instance of each build runs on this machine. One after the other gets a `/bin/true` job, and then
a submission of many: whatever else the machine does slows both. Prints for each build the latency
of one job, jobs/s, and the CPU time of a job in each process.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from exec import WARM_UP_JOBS, cpu_s, run_jobs
from running_tasks import reaper_of, service_processes

from instance import running

if TYPE_CHECKING:
    from penstock.client import Client

REAPER = "penstock-reaper"


@dataclass
class Build:
    """An instance of one build, and what was measured of it."""

    folder: Path
    client: Client
    pids: dict[str, int]
    latencies_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def cpu_times_s(self) -> dict[str, float]:
        """The CPU time of each process so far; `task` are all children of the reaper."""
        times = {program: cpu_s(pid)[0] for program, pid in self.pids.items()}
        return times | {"task": cpu_s(self.pids[REAPER])[1]}


def start(folder: Path, stack: ExitStack) -> Build:
    """Starts an instance of the build in a clone."""
    client, daemon = stack.enter_context(running(python=str(folder / ".venv/bin/python")))
    run_jobs(client, WARM_UP_JOBS)
    state = client.rpc("attr.get", {"name": "statedir"})["value"]
    services = {program: pid for pid, program in service_processes(state).items()}
    services[REAPER] = reaper_of(state)
    return Build(folder, client, {"daemon": daemon.pid} | services)


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs=2, type=Path, help="clones with a build each")
    parser.add_argument("--latencies", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        builds = [start(folder.resolve(), stack) for folder in args.folders]
        for _ in range(args.latencies):
            for build in builds:
                build.latencies_s.append(run_jobs(build.client, 1))
        before = [build.cpu_times_s() for build in builds]
        for number in range(args.rounds):
            # The first one of a round has a cooler cache: each build in turn.
            for build in builds if number % 2 else reversed(builds):
                build.rates.append(args.jobs / run_jobs(build.client, args.jobs))
        count = args.jobs * args.rounds
        programs = list(before[0])
        print(f"| build | one job, median | quarter | jobs/s | {' | '.join(programs)} |")
        print("|---|---|---|---|" + "---|" * len(programs))
        for build, earlier in zip(builds, before, strict=True):
            median_ms = statistics.median(build.latencies_s) * 1e3
            quarter_ms = statistics.quantiles(build.latencies_s, n=4)[0] * 1e3
            times = build.cpu_times_s()
            used = [(times[program] - earlier[program]) / count * 1e6 for program in programs]
            print(
                f"| {os.path.relpath(build.folder)} | {median_ms:.2f} ms | {quarter_ms:.2f} ms | "
                f"{statistics.median(build.rates):,.0f} | "
                f"{' | '.join(f'{time_us:.0f} us' for time_us in used)} |"
            )


if __name__ == "__main__":
    main()
