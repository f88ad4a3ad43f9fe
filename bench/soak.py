"""Millions of jobs through one instance: `make soak`, `python bench/soak.py`.

Simulated jobs pass through an instance in rounds, while one client lists jobs, another one pings
the job manager and inactive jobs are purged. Halfway the daemon is killed while jobs are running
and others pending, and started again: each running job must complete. Then the jobs of real
processes pass through an instance on the same state directory, in the same way. After each round it
samples the daemon's memory (the most during the round, and at rest after it), descriptors and disk,
memory and descriptors of the execution service and its reapers, the ping that nine of ten do not
exceed, and the longest one; writes them to `bench/curves` as text and SVG, and prints whether each
but the longest ping is flat, by the slope of a line through the samples of each process after its
first rounds, a tenth of all, and whether the longest ping is within its bound. Where the disk is
slow, a ping waits for two syncs, the one under way and that of what its answer tells: one more
process syncs a file of its own beside the instance, and twice the longest of its syncs in the same
round is subtracted. After a round with a longer ping it prints the longest of what could have
delayed it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from million import jobspec, rss
from running_tasks import service_processes

from instance import make_directory, running
from penstock._core import job_result
from penstock.client import Client
from penstock.jobspec import from_command
from penstock.sim.plot import Axis, Line, Size, lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from penstock.jobid import JobId

OUT = Path(__file__).parent / "curves"
SIMULATED = ("--nodes", "1000", "--cores", "16")
REAL = ("--exec", "local", "--any-state")
# Inactive jobs that each round leaves: listings have something to list.
LEFT_JOBS = 10_000
SAMPLES_PER_PHASE = 50
# A series is flat if a line through the samples of a process after its first rounds grows by at
# most this part of its beginning, or by at most its floor.
MAX_GROWTH = 0.05
# By series: growth of this size is that of single pages, files and descriptors, or of the times of
# processes, whatever the level is.
FLOORS = {
    "memory_mb": 4.0,
    "peak_memory_mb": 4.0,
    "descriptors": 2.0,
    "disk_mb": 8.0,
    "exec_memory_mb": 4.0,
    "exec_descriptors": 16.0,
    "ping_ms": 1.0,
}
# The longest ping of a round is one sample of it, which varies too much for a slope. None after the
# first rounds may be longer, without a sync, than others may wait for a request about many jobs.
MAX_PING_MS = 50.0
LONGEST_PING = "longest_ping_ms"
# The longest sync of another file, which tells of the disk alone.
LONGEST_SYNC = "longest_sync_ms"
SERIES = (*FLOORS, LONGEST_PING, LONGEST_SYNC)
# The daemon returns free memory to the system a second after a commit.
REST_S = 2.0
# By service: the histograms of its statistics of what delays a ping.
DELAYS = {
    "broker": ("rounds", "slices", "commits"),
    "job-manager": ("checkpoints",),
    "sched": ("passes",),
}
# The time that jobs run which are running when the daemon is killed.
RUN_S = 5.0


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


class Pings(NamedTuple):
    """The pings of one process during a round.

    Attributes:
        times: of the pings, in seconds.
        late_s: the time by which this process itself was at most late after a pause: the others
            use all cores.
    """

    times: list[float]
    late_s: float


PAUSE_S = 0.01


def ping(uri: str, pipe: Connection) -> None:
    """Pings until the other end sends something; sends what it saw."""
    times: list[float] = []
    late_s = 0.0
    with Client(uri) as client:
        pipe.send(None)
        # Two at least, for the quantiles.
        while len(times) < 2 or not pipe.poll():
            times.append(client.ping("job-manager"))
            began = time.monotonic()
            time.sleep(PAUSE_S)
            late_s = max(late_s, time.monotonic() - began - PAUSE_S)
    pipe.send(Pings(times, late_s))


# The file that `sync` writes: a page at a time, in blocks that it has.
SYNCED_BYTES = 1 << 20
PAGE = bytes(4096)


def sync(path: str, pipe: Connection) -> None:
    """Syncs a file until the other end sends something; sends the longest time that one took."""
    longest_s = 0.0
    with Path(path).open("wb", buffering=0) as file:
        file.write(bytes(SYNCED_BYTES))
        os.fsync(file)
        pipe.send(None)
        position = 0
        while not pipe.poll():
            os.pwrite(file.fileno(), PAGE, position)
            position = (position + len(PAGE)) % SYNCED_BYTES
            began = time.monotonic()
            os.fdatasync(file)
            longest_s = max(longest_s, time.monotonic() - began)
            time.sleep(PAUSE_S)
    pipe.send(longest_s)


def list_jobs(uri: str, pipe: Connection) -> None:
    """Lists jobs until the other end sends something; sends None at the end."""
    with Client(uri) as client:
        pipe.send(None)
        while not pipe.poll():
            for _ in client.job_rows(max_entries=100):
                pass
            time.sleep(0.01)
    pipe.send(None)


@contextmanager
def beside(work: Callable[[str, Connection], None], argument: str) -> Iterator[list[Any]]:
    """Works in another process meanwhile; the list has what it sends at its end."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=work, args=(argument, there))
    process.start()
    # The child has its own: a read ends when the child does.
    there.close()
    here.recv()
    sent: list[Any] = []
    yield sent
    here.send(None)
    sent.append(here.recv())
    process.join()


def observed(uri: str, path: Path, call: Callable[[], object]) -> tuple[Pings, float]:
    """Calls a function while one process pings, another one lists, and a third one syncs a file.

    Returns the pings, and the seconds of the longest sync.
    """
    with beside(list_jobs, uri), beside(sync, str(path)) as syncs, beside(ping, uri) as sent:
        call()
    (pings,), (sync_s,) = sent, syncs
    assert isinstance(pings, Pings)
    assert isinstance(sync_s, float)
    return pings, sync_s


Histograms = dict[str, dict[str, Any]]


def durations(client: Client) -> Histograms:
    """The histograms of what delays a ping, by name."""
    return {
        name: client.stats(service)[name] for service, names in DELAYS.items() for name in names
    }


def longest(before: Histograms, after: Histograms) -> str:
    """The bounds of the longest duration of each histogram between two calls of `durations`."""
    texts = []
    for name, histogram in after.items():
        counts = [
            count - old
            for count, old in zip(histogram["buckets"], before[name]["buckets"], strict=True)
        ]
        total = histogram["count"] - before[name]["count"]
        bounds = [*histogram["le"], float("inf")]
        bound = bounds[sum(count < total for count in counts)]
        texts.append(f"{name} {bound * 1e3:g}" if total else f"{name} none")
    return ", ".join(texts)


def peak_memory(pid: int) -> int:
    """The most memory that a process had since `clear_peak_memory`, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def clear_peak_memory(pid: int) -> None:
    """Begins to measure the most memory of a process from now on (proc(5), `clear_refs`)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def service_usage(state: Path) -> tuple[float, int]:
    """The memory in MB, and the descriptors, of the execution service and its reapers."""
    memory, descriptors = 0.0, 0
    for pid in service_processes(str(state)):
        # A standby of a reaper may have ended meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            memory += rss(pid) / 1e6
            descriptors += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return memory, descriptors


class Spec(NamedTuple):
    """The jobs of a run.

    Attributes:
        short: the jobspec of the jobs that pass through.
        long: the jobspec of the jobs that are running when the daemon is killed.
        running: the number of these running jobs.
    """

    short: dict[str, Any]
    long: dict[str, Any]
    running: int


# Acknowledged jobs that are looked at after the kill, the first and the last ones.
CHECKED_JOBS = 1000


class Soak:
    """The samples of one run."""

    def __init__(self, state: str) -> None:
        self.state = Path(state)
        self.uri = f"local://{state}/socket"
        self.samples: list[tuple[float, ...]] = []
        # The daemon's process of each sample.
        self.pids: list[int] = []
        self.done = 0

    def run(self, options: tuple[str, ...], spec: Spec, jobs: int, size: int) -> None:
        """Passes jobs through an instance, in rounds of `size`, with a kill in the middle."""
        counts = list(rounds(jobs, size))
        half = len(counts) // 2
        with running(*options, state=str(self.state)) as (client, daemon):
            for count in counts[:half]:
                self.pass_round(client, daemon.pid, spec, count)
            ids = self.submit_running(client, spec)
            waiting = client.submit(spec.short, count=size)
            daemon.kill()
            daemon.wait()
        self.done += size + len(ids)
        with running(*options, state=str(self.state)) as (client, daemon):
            # The first jobs may have ended, the last ones have not begun.
            acknowledged = [*ids, *waiting[:CHECKED_JOBS], *waiting[-CHECKED_JOBS:]]
            results = {row["result"] for row in client.wait_rows(acknowledged)}
            assert results == {job_result.COMPLETED}, results
            client.queue_drain()
            client.purge(force=True, num_limit=LEFT_JOBS)
            for count in counts[half:]:
                self.pass_round(client, daemon.pid, spec, count)

    def submit_running(self, client: Client, spec: Spec) -> list[JobId]:
        """Submits jobs that run for a while; returns when all of them are running."""
        ids = client.submit(spec.long, count=spec.running)
        while client.stats()["running"] < len(ids):
            time.sleep(0.01)
        return ids

    def pass_round(self, client: Client, pid: int, spec: Spec, count: int) -> None:
        """Passes one round through, and adds the samples after it."""

        def pass_through() -> None:
            client.submit(spec.short, count=count)
            client.queue_drain()
            client.purge(force=True, num_limit=LEFT_JOBS)

        before = durations(client)
        clear_peak_memory(pid)
        synced = self.state.with_name(f"{self.state.name}.synced")
        (times, late_s), sync_s = observed(self.uri, synced, pass_through)
        synced.unlink()
        self.done += count
        peak = peak_memory(pid) / 1e6
        if max(times) * 1e3 > MAX_PING_MS:
            print(
                f"{self.done} jobs: longest ping {max(times) * 1e3:.0f} ms, longest sync of "
                f"another file {sync_s * 1e3:.0f} ms, the process that pings was late by "
                f"{late_s * 1e3:.0f} ms; at most, in ms: "
                f"{longest(before, durations(client))}",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(REST_S)
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        memory, disk = rss(pid) / 1e6, tree_size(self.state) / 1e6
        # A ping waits for one slice of the job manager or for two, about as many each: the median
        # would be now the one, now the other.
        ping_s = statistics.quantiles(times, n=10, method="inclusive")[-1]
        pings = (ping_s * 1e3, max(times) * 1e3, sync_s * 1e3)
        services = service_usage(self.state)
        self.samples.append((self.done, memory, peak, descriptors, disk, *services, *pings))
        self.pids.append(pid)

    def report(self, name: str, since: int) -> bool:
        """Writes the samples from one on; prints and returns whether all series are flat."""
        samples = self.samples[since:]
        text = "\n".join("\t".join(f"{value:.3f}" for value in sample) for sample in samples)
        (OUT / f"soak-{name}.tsv").write_text("\t".join(("jobs", *SERIES)) + f"\n{text}\n")
        tenth = max(1, len(samples) // 10)
        # A killed daemon's successor fills its caches again.
        flat_since = [
            (process[tenth:] or process)
            for _, group in groupby(zip(self.pids[since:], samples, strict=True), itemgetter(0))
            for process in [[sample for _, sample in group]]
        ]
        is_flat = True
        jobs = [sample[0] for sample in samples]
        for index, series in enumerate(SERIES, 1):
            values = [sample[index] for sample in samples]
            for number, rounds_of_process in enumerate(flat_since, 1):
                if series == LONGEST_SYNC:
                    continue
                judged = judge(series, index, rounds_of_process)
                is_flat &= judged.is_met
                verdict = "met" if judged.is_met else "missed"
                print(
                    f"| {name}, process {number}: {series} | {judged.figure} | {judged.bound} "
                    f"| {verdict} |",
                    flush=True,
                )
            drawn = Line(series, jobs, values)
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


class Verdict(NamedTuple):
    """The figure of a series, its bound, and whether it is within it."""

    figure: str
    bound: str
    is_met: bool


def judge(series: str, index: int, samples: list[tuple[float, ...]]) -> Verdict:
    """Judges a series, which has this index in the samples."""
    values = [sample[index] for sample in samples]
    if series == LONGEST_PING:
        # The longest sync is that of the same round, the last value of its sample.
        without = max(sample[index] - 2 * sample[-1] for sample in samples)
        figure = f"{max(values):,.2f}, {max(0.0, without):,.2f} without two syncs"
        return Verdict(figure, f"at most {MAX_PING_MS:g} without them", without <= MAX_PING_MS)
    start, end = ends_of_line([sample[0] for sample in samples], values)
    bound = max(MAX_GROWTH * start, FLOORS[series])
    figure = f"{start:,.2f} to {end:,.2f}"
    return Verdict(figure, f"at most {start + bound:,.2f}", end - start <= bound)


def ends_of_line(x: list[float], y: list[float]) -> tuple[float, float]:
    """The values at the first and the last point of the line with the least squares."""
    if len(x) == 1:
        return y[0], y[0]
    slope, intercept = statistics.linear_regression(x, y)
    return intercept + slope * x[0], intercept + slope * x[-1]


def process(*command: str) -> dict[str, Any]:
    """The jobspec of a real process."""
    return from_command(command, environment={}, cwd="/", duration=60.0)


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
    print("| series | after the first rounds | bound | verdict |\n|---|---|---|---|", flush=True)
    simulated = Spec(jobspec(1, 0.0), jobspec(1, RUN_S), running=1000)
    soak.run(SIMULATED, simulated, args.jobs, size)
    is_flat = soak.report("simulated", 0)
    if args.real:
        since = len(soak.samples)
        real = Spec(process("/bin/true"), process("sleep", str(RUN_S)), running=1)
        soak.run(REAL, real, args.real, max(1, args.real // SAMPLES_PER_PHASE))
        is_flat &= soak.report("real", since)
    raise SystemExit(not is_flat)


if __name__ == "__main__":
    main()
