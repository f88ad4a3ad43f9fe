"""Instructions of the daemon for a job, counted by valgrind: comparable on a busy machine.

Runs the daemons of several source trees, each with its own `.venv` and extension:

    python bench/daemon_instructions.py . ../before

A job is counted from its request to its end, with all that the daemon does meanwhile. Valgrind
counts each byte that `rep movsb` and `rep stosb` move, and has no AVX-512: idset operations take
another path than on a processor with it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from million import (
    CORES,
    HOLD,
    NODES,
    OPTIONS,
    PENDING,
    jobspec,
    measure_rate,
    wait_for_scheduler,
)

from instance import make_directory
from penstock.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def counted_daemon(tree: Path, out: Path, *options: str) -> Iterator[tuple[Client, int]]:
    """Starts a tree's daemon under valgrind, which counts nothing yet."""
    state = make_directory("penstock-instructions-")
    command = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={out}", str(tree / ".venv/bin/python"), "-m", "penstock"]
    command += ["start", "--state", state, "--socket", f"{state}/socket", *OPTIONS, *options]
    command += ["--", "sh", "-c", "echo accepting; cat > /dev/null"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=tree, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            with Client(f"local://{state}/socket") as client:
                yield client, process.pid
        finally:
            process.stdin.close()
            process.wait()


def fill(client: Client) -> None:
    """Fills the nodes but for a core of each."""
    client.submit(jobspec(CORES - 1, 86_400.0), count=NODES)
    wait_for_scheduler(client)


def prepare(name: str, client: Client, pid: int, jobs: int) -> Callable[[], object]:
    """Makes the jobs that a row needs, and returns the call that is counted."""
    if name == "mock":
        fill(client)
        measure_rate(client, pid, 500)
        return partial(measure_rate, client, pid, jobs)
    if name == "distinct":
        first = [{"jobspec": jobspec(CORES, 0.0, name=f"first{i}")} for i in range(200)]
        specs = [{"jobspec": jobspec(CORES, 0.0, name=f"job{i}")} for i in range(jobs)]
        client.submit_many(first)
        return partial(client.submit_many, specs)
    if name == "each":
        client.call_many("job-ingest.submit", [{"jobspec": PENDING}] * 200)
        return partial(client.call_many, "job-ingest.submit", [{"jobspec": PENDING}] * jobs)

    def cancel() -> None:
        client.cancel()
        client.queue_drain()

    if name == "cancel":
        fill(client)
        client.submit(PENDING, count=jobs)
        wait_for_scheduler(client)
        return cancel
    if name == "purge":
        client.submit(PENDING, count=jobs, urgency=HOLD)
    else:
        client.call_many("job-ingest.submit", [{"jobspec": PENDING, "urgency": HOLD}] * jobs)
    cancel()
    return partial(client.purge, force=True)


ROWS = {
    "mock": (4000, "a mock job, with its row"),
    "distinct": (4000, "a different jobspec of a list"),
    "each": (5000, "one request for each job"),
    "cancel": (20_000, "`cancel --all` of pending jobs"),
    "purge": (5000, "`purge` of cancelled copies"),
    "purge-each": (5000, "the same, submitted one by one"),
}


def count(tree: Path, name: str, jobs: int) -> float:
    """The instructions of a job."""
    out = Path(make_directory("penstock-instructions-")) / "out"
    options = ("--sched", "none") if name in ("distinct", "each") else ()
    with counted_daemon(tree, out, *options) as (client, pid):
        work = prepare(name, client, pid, jobs)
        for switch in ("on", "off"):
            command = ["callgrind_control", "-i", switch, str(pid)]
            subprocess.run(command, check=True, capture_output=True)
            if switch == "on":
                work()
    totals = re.findall(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    return max(map(int, totals)) / jobs


def main() -> None:
    """Counts and prints a row for each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", type=Path, nargs="+", help="source trees with a built extension")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    args = parser.parse_args()
    trees = [tree.resolve() for tree in args.trees]
    print("| work | " + " | ".join(tree.name for tree in trees) + " |")
    print("|---" * (len(trees) + 1) + "|", flush=True)
    for name in args.rows:
        jobs, text = ROWS[name]
        counts = [f"{count(tree, name, jobs):,.0f}" for tree in trees]
        print(f"| {text} | " + " | ".join(counts) + " |", flush=True)


if __name__ == "__main__":
    main()
