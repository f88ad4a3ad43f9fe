"""Millions of jobs through one instance: `make soak`, `python bench/soak.py`.

Simulated jobs pass through an instance in rounds, while one client lists jobs, one pings the job
manager and inactive jobs are purged; halfway the daemon is killed and started again. Then the jobs
of real processes pass through an instance on the same state directory. After each round it samples
the daemon's memory, descriptors and disk, and the ping that nine of ten do not exceed; writes them
to `bench/curves` as text and SVG, and prints whether each is flat after the first tenth.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from million import jobspec, rss

from instance import make_directory, running
from penstock.client import Client
from penstock.jobspec import from_command
from penstock.sim.plot import Axis, Line, Size, lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

OUT = Path(__file__).parent / "curves"
SIMULATED = ("--nodes", "1000", "--cores", "16")
REAL = ("--exec", "local", "--any-state")
# Inactive jobs that each round leaves: listings have something to list.
LEFT_JOBS = 10_000
SAMPLES_PER_PHASE = 100
# A series is flat if its last tenth is at most this much above its second tenth.
TOLERANCE = 1.2
SERIES = ("memory_mb", "descriptors", "disk_mb", "ping_ms")


def tree_size(directory: Path) -> int:
    """The bytes of all files below a directory; a file may be removed meanwhile."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def observe(uri: str, pipe: Connection) -> None:
    """Pings and lists jobs until the other end sends something; sends the times of the pings."""
    times = []
    with Client(uri) as client:
        pipe.send(None)
        # Two at least, for the quantiles.
        while len(times) < 2 or not pipe.poll():
            times.append(client.ping("job-manager"))
            for _ in client.job_rows(max_entries=100):
                pass
            time.sleep(0.01)
    pipe.send(times)


def observed(uri: str, call: Callable[[], object]) -> float:
    """Calls a function while another process pings and lists.

    Returns the time that nine of ten pings do not exceed, in seconds. A ping waits for one slice of
    the job manager or for two, about as many each: the median would be now the one, now the other.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=observe, args=(uri, there))
    process.start()
    # The child has its own: a read ends when the child does.
    there.close()
    here.recv()
    call()
    here.send(None)
    times = here.recv()
    process.join()
    return statistics.quantiles(times, n=10)[-1]


class Soak:
    """The samples of one run."""

    def __init__(self, state: str) -> None:
        self.state = Path(state)
        self.uri = f"local://{state}/socket"
        self.samples: list[tuple[float, ...]] = []
        self.done = 0

    def run(self, options: tuple[str, ...], spec: dict[str, Any], jobs: int, size: int) -> None:
        """Passes `jobs` jobs through an instance, in rounds of `size`."""
        with running(*options, state=str(self.state)) as (client, daemon):
            for count in rounds(jobs, size):

                def pass_through(count: int = count) -> None:
                    client.submit(spec, count=count)
                    client.queue_drain()
                    client.purge(force=True, num_limit=LEFT_JOBS)

                ping_s = observed(self.uri, pass_through)
                self.done += count
                descriptors = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
                memory, disk = rss(daemon.pid) / 1e6, tree_size(self.state) / 1e6
                self.samples.append((self.done, memory, descriptors, disk, ping_s * 1e3))
            daemon.kill()
            daemon.wait()

    def report(self, name: str, since: int) -> bool:
        """Writes the samples from one on; prints and returns whether all series are flat."""
        samples = self.samples[since:]
        text = "\n".join("\t".join(f"{value:.3f}" for value in sample) for sample in samples)
        (OUT / f"soak-{name}.tsv").write_text("\t".join(("jobs", *SERIES)) + f"\n{text}\n")
        tenth = max(1, len(samples) // 10)
        is_flat = True
        for index, series in enumerate(SERIES, 1):
            values = [sample[index] for sample in samples]
            early = statistics.median(values[tenth : 2 * tenth] or values)
            late = statistics.median(values[-tenth:])
            met = late <= TOLERANCE * early
            is_flat &= met
            verdict = "met" if met else "missed"
            print(f"| {name}: {series} | {early:,.2f} | {late:,.2f} | {verdict} |", flush=True)
            drawn = Line(series, [sample[0] for sample in samples], values)
            (OUT / f"soak-{name}-{series}.svg").write_text(
                lines(
                    [drawn],
                    title=f"{series} of {name} jobs",
                    x=Axis("jobs", log=False),
                    y=Axis(series, log=False, low=0.0),
                    points=True,
                    size=Size(720, 400, standalone=True),
                )
            )
        return is_flat


def rounds(jobs: int, size: int) -> Iterator[int]:
    """The number of jobs of each round."""
    while jobs > 0:
        yield min(jobs, size)
        jobs -= size


def main() -> None:
    """Runs the soak, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000_000, help="simulated jobs")
    parser.add_argument("--real", type=int, default=50_000, help="jobs of real processes")
    args = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    soak = Soak(make_directory("penstock-soak-"))
    size = max(1, args.jobs // SAMPLES_PER_PHASE)
    print("| series | second tenth | last tenth | verdict |\n|---|---|---|---|", flush=True)
    for _ in range(2):
        # Each instance is killed at its end.
        soak.run(SIMULATED, jobspec(1, 0.0), args.jobs // 2, size)
    is_flat = soak.report("simulated", 0)
    if args.real:
        since = len(soak.samples)
        spec = from_command(["/bin/true"], environment={}, cwd="/", duration=60.0)
        soak.run(REAL, spec, args.real, max(1, args.real // SAMPLES_PER_PHASE))
        is_flat &= soak.report("real", since)
    raise SystemExit(not is_flat)


if __name__ == "__main__":
    main()
