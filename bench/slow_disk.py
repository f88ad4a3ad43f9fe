"""Clients of an instance whose disk is slow: `make bench-slow-disk`.

Replaces `fdatasync` in the daemon by one that takes some milliseconds more. One client submits
copies of simulated jobs, waits until they have ended, and so on; a second one submits single jobs;
a third one pings the broker. Prints jobs/s, and the time of a submission and of a ping. With
`--against PYTHON` the build of that environment is measured in turn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from multiprocessing import Process, Queue
from pathlib import Path
from typing import TYPE_CHECKING

from instance import make_directory, running
from penstock.client import Client
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = """
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    usleep(DELAY_US);
    return (int)syscall(SYS_fdatasync, fd);
}
"""
JOBS_AT_ONCE = 2000


def slow_library(delay_ms: float) -> str:
    """Compiles a library to be loaded before others; returns its path."""
    folder = Path(make_directory("penstock-slow-disk-"))
    source, library = folder / "slow.c", folder / "slow.so"
    source.write_text(SOURCE)
    define = f"-DDELAY_US={delay_ms * 1000:.0f}"
    command = ["cc", "-shared", "-fPIC", define, "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return str(library)


def simulated_job() -> dict[str, object]:
    setattr_ = {"exec.test.run_duration": "0s"}
    return from_command(["true"], environment={}, cwd="/", duration=60.0, setattr=setattr_)


def run_copies(client: Client) -> int:
    client.submit(simulated_job(), count=JOBS_AT_ONCE)
    client.rpc("job-manager.drain", {})
    return JOBS_AT_ONCE


def submit_one(client: Client) -> int:
    client.submit(simulated_job())
    return 1


def ping(client: Client) -> int:
    client.ping("broker")
    return 1


def repeat(
    uri: str, request: Callable[[Client], int], until: float, results: Queue[list[float] | int]
) -> None:
    """Repeats a request. Sends how many jobs or answers there were, and how long each took."""
    times, count = [], 0
    with Client(uri, timeout=120) as client:
        while time.monotonic() < until:
            began = time.perf_counter()
            count += request(client)
            times.append(time.perf_counter() - began)
    results.put(count)
    results.put(times)


def milliseconds(times: list[float]) -> str:
    ordered = sorted(times)
    chosen = [ordered[len(ordered) * part // 100] for part in (50, 99)]
    return " / ".join(f"{each * 1e3:.1f}" for each in (*chosen, ordered[-1]))


def measure(python: str, delay_ms: float, seconds: float) -> str:
    """Measures one build; returns a row without its first column."""
    os.environ["LD_PRELOAD"] = slow_library(delay_ms)
    options = ("--nodes", "64", "--cores", "16", "--exec", "sim")
    columns: dict[Callable[[Client], int], Queue[list[float] | int]] = {
        request: Queue() for request in (run_copies, submit_one, ping)
    }
    with running(*options, python=python) as (client, _):
        del os.environ["LD_PRELOAD"]
        client.ping("job-manager")
        uri = client.uri
        until = time.monotonic() + seconds
        clients = [
            Process(target=repeat, args=(uri, request, until, results))
            for request, results in columns.items()
        ]
        for each in clients:
            each.start()
        found = [(results.get(), results.get()) for results in columns.values()]
        for each in clients:
            each.join()
    (jobs, _), (_, submissions), (_, pings) = found
    return f"{jobs / seconds:,.0f} | {milliseconds(submissions)} | {milliseconds(pings)}"


def main() -> None:
    """Prints a row for each delay and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delays", type=float, nargs="*", default=[0, 2, 10, 50], help="ms")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--against", metavar="PYTHON", help="of an environment with another build")
    args = parser.parse_args()
    builds = {"this": sys.executable}
    if args.against:
        builds["other"] = args.against
    print("| sync takes | build | jobs/s | submission, ms: p50 / p99 / max | ping |")
    print("|---|---|---|---|---|")
    for delay in args.delays:
        for name, python in builds.items():
            row = measure(python, delay, args.seconds)
            print(f"| {delay:g} ms more | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
