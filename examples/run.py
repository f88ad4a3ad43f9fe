"""The main job, as `make run` shows it.

First the jobs of `jobs.jsonl` run on this machine's real cores, then the same engine serves
10,000 simulated nodes with 100,000 mock jobs. Each part is an instance of its own, started by
`penstock start … -- python run.py PART`, so this is also an example of the client.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from penstock import jobid, jobspec
from penstock.client import Client

HERE = Path(__file__).parent
STATES = {1: "NEW", 2: "DEPEND", 4: "PRIORITY", 8: "SCHED", 16: "RUN", 32: "CLEANUP"}
RESULTS = {1: "COMPLETED", 2: "FAILED", 4: "CANCELED", 8: "TIMEOUT"}
BARS = " ▁▂▃▄▅▆▇█"


class Progress:
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total = title, total
        self.began = time.monotonic()
        self.shown = 0.0
        self.terminal = sys.stdout.isatty()

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        last = done >= self.total
        if not last and now - self.shown < (0.1 if self.terminal else 2.0):
            return
        self.shown = now
        filled = 30 * done // max(self.total, 1)
        bar = "█" * filled + "·" * (30 - filled)
        line = f"{self.title} {bar} {done}/{self.total} {now - self.began:5.1f} s {note}"
        if self.terminal:
            print(f"\r{line:<100}", end="\n" if last else "", flush=True)
        else:
            print(line, flush=True)


def read_jobs(path: Path) -> list[dict]:
    with path.open() as lines:
        return [json.loads(line) for line in lines if line.strip()]


def submit(client: Client, jobs: list[dict]) -> list[int]:
    """Submits in order, so that a job can name an earlier one in `after`."""
    ids: dict[str, int] = {}
    progress = Progress("submitting", len(jobs))
    for number, job in enumerate(jobs, 1):
        options = {key: value for key, value in job.items() if key not in ("after", "command")}
        if "after" in job:
            scheme, name = job["after"].split(":")
            options["dependencies"] = [f"{scheme}:{jobid.f58(ids[name])}"]
        spec = jobspec.from_command(job["command"], **options)
        ids[job["name"]] = client.submit(spec)
        progress.update(number)
    return list(ids.values())


def reason(row: dict) -> str:
    if row.get("exception_occurred") and row.get("exception_severity") == 0:
        return f"{row['exception_type']}: {row['exception_note']}"
    code = row.get("returncode", 0)
    if code > 128:
        return f"ended by signal {code - 128}"
    return f"exited with code {code}" if code else ""


def print_table(rows: list[dict]) -> None:
    """Every job that did not just end well, and a count of those that did."""
    print(f"\n{'JOB':>12} {'NAME':<14} {'RESULT':<10} {'NTASKS':>6} {'TIME':>8}  REASON")
    for row in sorted(rows, key=lambda row: row["id"]):
        result = RESULTS[row["result"]]
        if result == "COMPLETED" and not row["name"].startswith("chain"):
            continue
        ran = row["t_cleanup"] - row["t_run"] if "t_run" in row else 0.0
        print(
            f"{jobid.f58(row['id']):>12} {row['name']:<14.14} {result:<10} "
            f"{row['ntasks']:>6} {ran:>7.2f}s  {reason(row)}"
        )
    results = Counter(RESULTS[row["result"]] for row in rows)
    print("\n" + ", ".join(f"{count} {result}" for result, count in results.most_common()))


def print_utilisation(rows: list[dict], cores: int, width: int = 72, height: int = 8) -> None:
    """Cores in use over time, as bars of eighths."""
    spans = [(r["t_run"], r["t_cleanup"], r["ncores"]) for r in rows if "t_run" in r]
    if not spans:
        return
    begin, end = min(s[0] for s in spans), max(s[1] for s in spans)
    step = max(end - begin, 1e-9) / width
    used = [0.0] * width
    for start, stop, ncores in spans:
        first, last = int((start - begin) / step), int((stop - begin) / step)
        for column in range(first, min(last, width - 1) + 1):
            left = begin + column * step
            share = max(0.0, min(stop, left + step) - max(start, left)) / step
            used[column] += share * ncores
    print(f"\nutilisation of {cores} cores over {end - begin:.1f} s")
    for level in range(height, 0, -1):
        eighths = [round((u / cores * height - (level - 1)) * 8) for u in used]
        label = "100%" if level == height else "  0%" if level == 1 else ""
        print(f"{label:>5} │" + "".join(BARS[max(0, min(8, e))] for e in eighths))
    print("      └" + "─" * width)
    area = sum((stop - start) * ncores for start, stop, ncores in spans)
    print(f"       mean {area / (cores * max(end - begin, 1e-9)):.0%}")


def real() -> int:
    jobs = read_jobs(HERE / "jobs.jsonl")
    with Client() as client:
        r = client.rpc("resource.status", {})["R"]["execution"]
        state = client.rpc("attr.get", {"name": "statedir"})["value"]
        print(f"instance on {','.join(r['nodelist'])}: {r['R_lite'][0]['children']}")
        ids = submit(client, jobs)
        progress = Progress("running   ", len(ids))
        rows: list[dict] = []
        for answer in client.stream("job-list.wait", {"ids": ids}):
            rows += answer["jobs"]
            progress.update(len(rows))
        cores = client.rpc("resource.sched-status", {})["all"]
    from penstock import ResourceSet

    print_table(rows)
    print_utilisation(rows, ResourceSet(cores).ncores)
    print(f"\nhistory: {state}/jobs.sqlite (any SQLite tool reads it); output: {state}/exec/output")
    print(f"         penstock start --state {state} -- penstock jobs -a")
    return 0


def mock(count: int) -> int:
    shapes = [
        {"ntasks": 1},
        {"ntasks": 4, "cores_per_task": 8},
        {"ntasks": 2, "nodes": 2, "cores_per_task": 16},
        {"nodes": 4},
    ]
    run_duration = {"attributes.system.exec.test.run_duration": "50ms"}
    with Client() as client:
        began = time.monotonic()
        for shape in shapes:
            spec = jobspec.from_command(
                ["mock"], environment={}, duration=60.0, setattr=run_duration, **shape
            )
            client.submit(spec, count=count // len(shapes))
        taken = time.monotonic() - began
        total = count // len(shapes) * len(shapes)
        print(f"submitted {total} jobs in {taken:.1f} s: {total / taken:,.0f} jobs/s, durable")
        progress = Progress("running   ", total)
        while True:
            stats = client.rpc("job-manager.stats-get", {})
            done = stats["inactive_jobs"]
            progress.update(done, f"{stats['running']} running")
            if done >= total:
                break
            time.sleep(0.2)
        taken = time.monotonic() - began
    print(f"{total} jobs on 10,000 nodes, submit to inactive: {total / taken:,.0f} jobs/s")
    return 0


def start(part: str, *options: str) -> int:
    """Runs a part under an instance of its own."""
    directory = Path(tempfile.mkdtemp(prefix=f"penstock-{part}-"))
    command = [sys.executable, "-m", "penstock", "start"]
    command += ["--state", str(directory), "--socket", str(directory / "socket"), *options]
    command += ["--", sys.executable, __file__, part]
    code = subprocess.run(command, check=False).returncode
    if part == "mock":
        shutil.rmtree(directory, ignore_errors=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["real", "mock"])
    parser.add_argument("--count", type=int, default=100_000, help="mock jobs")
    args = parser.parse_args()
    if args.part == "real":
        return real()
    if args.part == "mock":
        return mock(int(os.environ.get("MOCK_JOBS", args.count)))
    os.environ["MOCK_JOBS"] = str(args.count)
    print("── real commands on this machine's cores ──", flush=True)
    code = start("real")
    print("\n── 10,000 simulated nodes, execution simulated ──", flush=True)
    return start("mock", "--nodes", "10000", "--cores", "64") or code


if __name__ == "__main__":
    sys.exit(main())
