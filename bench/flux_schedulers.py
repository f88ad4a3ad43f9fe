"""Schedulers inside a live Flux, one after the other: `make bench-flux FLUX=PREFIX`.

Starts an instance of one broker with simulated nodes for each scheduler, submits jobs of one core
to a stopped queue, starts the queue, and waits until all are inactive or the limit has expired.
Prints jobs/s, and CPU time per job and memory of the broker and of the scheduler's process if it
has one. Otherwise the scheduler is a thread of the broker: its share is the difference between two
rows.

`--soak SECONDS` submits jobs to Penstock all the time instead, and prints a sample a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
CORES_PER_NODE = 16
# The modules of each scheduler, in the order in which they are loaded.
MODULES = {
    "penstock": ["sched-penstock"],
    "simple": ["sched-simple"],
    "fluxion": ["sched-fluxion-resource", "sched-fluxion-feasibility", "sched-fluxion-qmanager"],
}
# The broker module is in the package, which Flux's own Python need not have.
PENSTOCK_MODULES = str(Path(__file__).resolve().parents[1] / "python" / "penstock" / "flux")
# Jobs of one step of a soak.
SOAK_STEP_JOBS = 500
SAMPLE_S = 60.0
# Inactive jobs that Flux keeps: more than those of a row.
KEPT_JOBS = 50_000


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, user and system, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def memory_mb(pid: int, key: str) -> float:
    """A number of `/proc/PID/status`, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"{key}:"))
    return int(value) * 1024 / 1e6


def flux(*words: str) -> str:
    """The output of a command of Flux."""
    done = subprocess.run(["flux", *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def scheduler_process(uri: str) -> int | None:
    """The pid of the process of `sched-penstock`."""
    listing = subprocess.run(
        ["ps", "-wweo", "pid=,args="], stdout=subprocess.PIPE, text=True, check=True
    )
    wanted = f"penstock sched --uri {uri} "
    pids = [int(line.split()[0]) for line in listing.stdout.splitlines() if wanted in line]
    return pids[0] if pids else None


class Inside:
    """The part of a measurement that runs in the instance, under Flux's own Python."""

    def __init__(self, scheduler: str) -> None:
        import flux as flux_core

        began = time.monotonic()
        for name in MODULES[scheduler]:
            flux("module", "load", name)
        self.handle = flux_core.Flux()
        self.broker = int(self.handle.attr_get("broker.pid"))
        self.wait(self.submit(1))
        self.load_s = time.monotonic() - began
        self.scheduler = scheduler_process(os.environ["FLUX_URI"])

    def submit(self, jobs: int) -> int:
        """Submits jobs of one core that end at once. Returns how many will be inactive."""
        from flux.job import JobspecV1, submit_async

        jobspec = JobspecV1.from_command(["true"], num_tasks=1, cores_per_task=1)
        jobspec.setattr("system.exec.test.run_duration", "0.001s")
        text = jobspec.dumps()
        finished = self.statistics()["inactive"]
        futures = [submit_async(self.handle, text) for _ in range(jobs)]
        for future in futures:
            future.get_id()
        return finished + jobs

    def statistics(self) -> dict[str, int]:
        """The numbers of jobs by state, and of failed ones."""
        answer = self.handle.rpc("job-list.job-stats", {}).get()
        return {**answer["job_states"], "failed": answer["failed"]}

    def wait(self, jobs: int, limit_s: float = -1.0) -> int:
        """Waits until no job is active, and returns `jobs`, the number of inactive ones.

        After the limit, in seconds, it returns how many are inactive by then.
        """
        drained = self.handle.rpc("job-manager.drain")
        try:
            drained.wait_for(limit_s)
        except TimeoutError:
            return self.statistics()["inactive"]
        drained.get()
        return jobs

    def measure(self, jobs: int, limit_s: float) -> dict[str, float]:
        """Runs jobs that are all pending at the start."""
        flux("queue", "stop", "--all")
        wanted = self.submit(jobs)
        pids = [pid for pid in (self.broker, self.scheduler) if pid is not None]
        began, before = time.monotonic(), [cpu_s(pid) for pid in pids]
        flux("queue", "start", "--all")
        done = self.wait(wanted, limit_s) - (wanted - jobs)
        took = time.monotonic() - began
        used = [cpu_s(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
        assert self.statistics()["failed"] == 0
        row = {
            "load_s": self.load_s,
            "done": done,
            "rate": done / took,
            "broker_us": used[0] / max(done, 1) * 1e6,
            "broker_mb": memory_mb(self.broker, "VmHWM"),
        }
        if self.scheduler is not None:
            row["scheduler_us"] = used[1] / max(done, 1) * 1e6
            row["scheduler_mb"] = memory_mb(self.scheduler, "VmHWM")
        return row

    def soak(self, seconds: float) -> None:
        """Runs jobs for some time, and prints samples of memory."""
        assert self.scheduler is not None
        began = sampled = time.monotonic()
        total = 0
        print(
            "| minutes | jobs | jobs/s | scheduler MB | scheduler descriptors | scheduler us/job "
            "| broker MB |\n|---|---|---|---|---|---|---|",
            flush=True,
        )
        count, used = 0, cpu_s(self.scheduler)
        while time.monotonic() - began < seconds:
            self.wait(self.submit(SOAK_STEP_JOBS))
            total, count = total + SOAK_STEP_JOBS, count + SOAK_STEP_JOBS
            now = time.monotonic()
            if now - sampled < SAMPLE_S:
                continue
            mine = memory_mb(self.scheduler, "VmRSS")
            broker = memory_mb(self.broker, "VmRSS")
            descriptors = len(list(Path(f"/proc/{self.scheduler}/fd").iterdir()))
            cpu_us = (cpu_s(self.scheduler) - used) / count * 1e6
            minutes, rate = (now - began) / 60, count / (now - sampled)
            print(
                f"| {minutes:.0f} | {total:,} | {rate:.0f} | {mine:.1f} | {descriptors} "
                f"| {cpu_us:.0f} | {broker:.0f} |",
                flush=True,
            )
            sampled, count, used = now, 0, cpu_s(self.scheduler)
        assert self.statistics()["failed"] == 0
        print(f"{total:,} jobs, none failed")


def start(scheduler: str, nodes: int, words: list[str], output: int | None) -> str | None:
    """Runs this file in an instance of its own with simulated nodes.

    Returns its output if `output` is a pipe, and None if it has failed.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        configuration = Path(directory, "flux.toml")
        configuration.write_text(
            "[resource]\nnoverify = true\nnorestrict = true\n[[resource.config]]\n"
            f'hosts = "node[0-{nodes - 1}]"\ncores = "0-{CORES_PER_NODE - 1}"\n'
            f'[penstock.scheduler]\npython = "{sys.executable}"\n'
            # Flux keeps all inactive jobs in memory: a soak would use all of it.
            f"[job-manager]\ninactive-num-limit = {KEPT_JOBS}\n"
        )
        inner = [str(Path(__file__).resolve()), "--inside", scheduler, *words]
        steps = (
            "for name in $(flux module list | grep -o '^sched-[a-z-]*'); do "
            "flux module remove $name || exit; done; "
            'flux module reload resource noverify monitor-force-up && exec flux python "$@"'
        )
        command = ["flux", "start", f"--config-path={configuration}", f"-Sstatedir={directory}"]
        modules = f"{PENSTOCK_MODULES}:{os.environ.get('FLUX_MODULE_PATH', '')}"
        environment = {
            **os.environ,
            "FLUX_MODULE_PATH": modules,
            "FLUX_MODPROBE_PATH_APPEND": PENSTOCK_MODULES,
        }
        done = subprocess.run(
            [*command, "sh", "-c", steps, "sh", *inner],
            check=False,
            env=environment,
            stdout=output,
            text=True,
        )
        return done.stdout or "" if done.returncode == 0 else None


def main() -> None:
    """Measures each scheduler with each number of nodes and pending jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedulers", nargs="*", choices=MODULES, default=["penstock", "simple"])
    parser.add_argument("--nodes", type=int, nargs="*", default=[16, 1000, 10_000])
    parser.add_argument("--jobs", type=int, nargs="*", default=[2000], help="pending at the start")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of one measurement")
    parser.add_argument("--soak", type=float, metavar="SECONDS")
    parser.add_argument("--inside", choices=MODULES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        inside = Inside(args.inside)
        if args.soak is not None:
            inside.soak(args.soak)
        else:
            print(json.dumps(inside.measure(args.jobs[0], args.limit)))
        return
    if args.soak is not None:
        output = start("penstock", args.nodes[0], ["--soak", str(args.soak)], None)
        raise SystemExit(output is None)
    columns = ("scheduler", "nodes", "pending", "ready s", "jobs/s", "broker us/job", "broker MB",
               "scheduler us/job", "scheduler MB")  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    has_failed = False
    for nodes in args.nodes:
        for jobs in args.jobs:
            for scheduler in args.schedulers:
                words = ["--jobs", str(jobs), "--limit", str(args.limit)]
                output = start(scheduler, nodes, words, subprocess.PIPE)
                if output is None:
                    print(f"| {scheduler} | {nodes:,} | {jobs:,} | failed |", flush=True)
                    has_failed = True
                    continue
                row = json.loads(output.splitlines()[-1])
                rate = f"{row['rate']:,.0f}" + (
                    "" if row["done"] == jobs else f" ({row['done']:,} done)"
                )
                own = [
                    f"{row[key]:,.0f}" if key in row else ""
                    for key in ("scheduler_us", "scheduler_mb")
                ]
                print(
                    f"| {scheduler} | {nodes:,} | {jobs:,} | {row['load_s']:.1f} | {rate} "
                    f"| {row['broker_us']:,.0f} | {row['broker_mb']:,.0f} | {own[0]} | {own[1]} |",
                    flush=True,
                )
    raise SystemExit(has_failed)


if __name__ == "__main__":
    main()
