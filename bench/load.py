"""Response times of an instance under load: `make bench-load` (simulated execution)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.client import Client
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = 200_000
DEPENDENCIES = 4_000
SPEC = from_command(["true"], environment={}, cwd="/", setattr={"exec.test.run_duration": "0s"})


@contextmanager
def instance(state: Path, *options: str) -> Iterator[str]:
    """An instance, from when its socket accepts; gives its address."""
    socket = state / "socket"
    command = [sys.executable, "-m", "penstock", "start", "--state", str(state), "--socket"]
    command += [str(socket), *options, "--", "sh", "-c", "echo accepting; cat > /dev/null"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        yield f"local://{socket}"
        process.stdin.close()


@contextmanager
def pinging(uri: str) -> Iterator[list[float]]:
    """Pings the instance from another client meanwhile; yields the round-trip times in seconds."""
    times: list[float] = []
    over = threading.Event()

    def ping() -> None:
        with Client(uri) as client:
            while not over.is_set():
                times.append(client.ping("job-manager"))

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join()


def show(request: str, seconds: float, times: list[float]) -> None:
    """A row of the table."""
    print(f"| {request} | {seconds:.2f} s | {max(times) * 1e3:.0f} ms |", flush=True)


def main() -> None:
    """Measures, and prints a table."""
    print("| request | time | slowest ping of another client |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="penstock-load-") as name:
        state = Path(name)
        with instance(state, "--nodes", "1", "--sched", "none") as uri, Client(uri) as client:
            began = time.perf_counter()
            with pinging(uri) as times:
                ids = client.submit(SPEC, count=JOBS)
            show(f"submit {JOBS:,} copies", time.perf_counter() - began, times)
            began = time.perf_counter()
            with pinging(uri) as times:
                assert len(client.job_rows(max_entries=0)) == JOBS
            show(f"list {JOBS:,} jobs", time.perf_counter() - began, times)
            began = time.perf_counter()
            with pinging(uri) as times:
                pairs = [(job, 1000 + place) for place, job in enumerate(ids[:100_000])]
                assert client.prioritize(pairs).done == 100_000
            show("change the priorities of 100,000 jobs", time.perf_counter() - began, times)
        began = time.perf_counter()
        with instance(state, "--nodes", "1", "--sched", "none") as uri, Client(uri) as client:
            client.ping("job-manager")
            show(f"restart with {JOBS:,} pending jobs", time.perf_counter() - began, [0.0])
            began = time.perf_counter()
            with pinging(uri) as times:
                assert client.cancel().done == JOBS
            show(f"cancel {JOBS:,} jobs", time.perf_counter() - began, times)
    with tempfile.TemporaryDirectory(prefix="penstock-load-") as name:
        options = ("--nodes", "16", "--cores", "64")
        with instance(Path(name), *options) as uri, Client(uri) as client:
            began = time.perf_counter()
            with pinging(uri) as times:
                ids = client.submit(SPEC, count=DEPENDENCIES)
                after = [f"afterok:{job}" for job in ids]
                last = client.submit(
                    from_command(["true"], environment={}, cwd="/", dependencies=after)
                )
                client.wait_row(last)
            show(
                f"one job that depends on {DEPENDENCIES:,} others",
                time.perf_counter() - began,
                times,
            )


if __name__ == "__main__":
    main()
