"""Many running tasks at once: `make bench-running`, `python bench/running_tasks.py --tasks 10000`.

Submits one-task jobs that sleep to an instance with as many simulated cores, waits until all of
them run at once, and cancels them. Prints the times, and for each task the growth of: private
memory (USS) and page tables of the execution service and its reapers, the daemon's private memory,
and the kernel's memory for the whole system, which includes the sleeping processes themselves.

Fails if not all tasks run at once, or if something is left after the cancellation: a process, a
descriptor, a job of the service.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from instance import running
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from penstock.client import Client

SERVICE_PROGRAMS = {"penstock-exec", "penstock-reaper"}
# Jobs before the measurement: caches are warm and the reaper runs after them.
WARM_UP_JOBS = 20
# Processes that the machine needs beside the tasks.
SPARE_PIDS = 1000
POLL_INTERVAL_S = 0.1
TIMEOUT_S = 600.0
KERNEL_KEYS = ("Slab", "KernelStack", "PageTables")


def service_processes(state: str) -> dict[int, str]:
    """The programs of the execution service and its reapers of an instance, by pid."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        program = Path(os.fsdecode(arguments[0])).name
        if program in SERVICE_PROGRAMS and any(state.encode() in each for each in arguments):
            found[int(folder.name)] = program
    return found


def reaper_of(state: str) -> int:
    """The reaper that is the parent of tasks; the others are its standbys."""
    return int((Path(state) / "exec" / "reaper" / "lock").read_text())


def private_kib(pid: int) -> int:
    """Private memory of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = ("Private_Clean:", "Private_Dirty:")
    return sum(int(line.split()[1]) for line in lines if line.startswith(private))


def page_tables_kib(pid: int) -> int:
    """Page tables of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmPTE:"))


def descriptors(pid: int) -> int:
    """Number of open descriptors of a process, but those of cgroups.

    A reaper leaves the directories of some cgroups open for the next jobs: their number depends on
    how many jobs have run at a time.
    """
    targets = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return sum(not target.startswith("/sys/fs/cgroup/") for target in targets)


def children(pid: int) -> int:
    """Number of children of a process, zombies included."""
    lists = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return sum(map(len, lists))


@dataclass
class Memory:
    """Memory of the execution service and its reapers, of the daemon and of the kernel, in KiB."""

    private: int
    page_tables: int
    daemon: int
    kernel: int

    @classmethod
    def of(cls, services: dict[int, str], daemon: int) -> Memory:
        """The memory in use now."""
        sizes = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return cls(
            sum(map(private_kib, services)),
            sum(map(page_tables_kib, services)),
            private_kib(daemon),
            sum(int(sizes[key].split()[0]) for key in KERNEL_KEYS),
        )


@dataclass
class Result:
    """The times in seconds, and the growth of the memory for each task in KiB."""

    start_s: float
    cancel_s: float
    private: float
    page_tables: float
    daemon: float
    kernel: float


def running_tasks(client: Client) -> int:
    """The number of running tasks."""
    return int(client.rpc("job-exec.stats-get", {})["tasks"])


def wait_until_all_run(client: Client, count: int) -> None:
    """Returns when the tasks of `count` jobs run.

    Raises:
        TimeoutError: they do not.
    """
    deadline = time.perf_counter() + TIMEOUT_S
    while (found := running_tasks(client)) != count:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{found} of {count} tasks run")
        time.sleep(POLL_INTERVAL_S)


def measure(count: int) -> Result:
    """Runs `count` tasks at once and cancels them.

    Raises:
        AssertionError: not all of them ran at once, or something is left.
    """
    environment = dict(os.environ)
    sleep = from_command(["/bin/sleep", "3600"], environment=environment, cwd="/")
    true = from_command(["/bin/true"], environment=environment, cwd="/")
    options = ("--nodes", "1", "--cores", str(count), "--exec", "local", "--oversubscribe")
    with running(*options) as (client, daemon):
        client.submit(true, count=WARM_UP_JOBS)
        client.rpc("job-manager.drain", {})
        state = client.rpc("attr.get", {"name": "statedir"})["value"]
        services = service_processes(state)
        assert set(services.values()) == SERVICE_PROGRAMS, services
        reaper = reaper_of(state)
        open_before = {pid: descriptors(pid) for pid in services}
        before = Memory.of(services, daemon.pid)
        began = time.perf_counter()
        ids = client.submit(sleep, count=count)
        wait_until_all_run(client, count)
        start_s = time.perf_counter() - began
        assert children(reaper) == count, children(reaper)
        after = Memory.of(services, daemon.pid)
        began = time.perf_counter()
        client.cancel(ids)
        client.rpc("job-manager.drain", {})
        cancel_s = time.perf_counter() - began
        stats = client.rpc("job-list.job-stats", {})
        assert (stats["canceled"], stats["successful"]) == (count, WARM_UP_JOBS), stats
        assert service_processes_left(client, reaper) == (0, 0)
        assert {pid: descriptors(pid) for pid in services} == open_before
        assert service_processes(client.rpc("attr.get", {"name": "statedir"})["value"]) == services
    growth = [
        (late - early) / count
        for late, early in zip(vars(after).values(), vars(before).values(), strict=True)
    ]
    return Result(start_s, cancel_s, *growth)


def service_processes_left(client: Client, reaper: int) -> tuple[int, int]:
    """The number of the reaper's children and of the service's jobs, once both are settled."""
    deadline = time.perf_counter() + TIMEOUT_S
    while time.perf_counter() < deadline:
        left = children(reaper), int(client.rpc("job-exec.stats-get", {})["jobs"])
        if left == (0, 0):
            break
        time.sleep(POLL_INTERVAL_S)
    return left


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    if args.tasks + SPARE_PIDS > pid_max:
        parser.error(f"{args.tasks} tasks need a pid_max of {args.tasks + SPARE_PIDS}: {pid_max}")
    result = measure(args.tasks)
    print(
        f"{args.tasks:,} running tasks (pid_max {pid_max:,}): all run {result.start_s:.1f} s after "
        f"the submission, all are gone {result.cancel_s:.1f} s after the cancellation.\n"
        f"For each: {result.private:.1f} KiB private memory and {result.page_tables:.2f} KiB page "
        f"tables of service and reapers, {result.daemon:.1f} KiB private memory of the daemon, "
        f"{result.kernel:.1f} KiB kernel memory of the whole system, sleeping processes included."
    )


if __name__ == "__main__":
    main()
