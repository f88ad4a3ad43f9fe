"""The start of an instance whose pending jobs have long histories: `python bench/histories.py`.

Changes the priorities of all pending jobs many times, as a site does that computes them each hour,
kills the daemon, and prints the time and the CPU time of its next start.
"""

from __future__ import annotations

import argparse
import random
import time

from million import OPTIONS, PENDING, cpu_s, fill_nodes, stored, wait_for_scheduler

from instance import make_directory, running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="pending jobs")
    parser.add_argument("--changes", type=int, default=200, help="changes of each priority")
    args = parser.parse_args()
    state = make_directory("penstock-histories-")
    draw = random.Random(20).randrange
    with running(*OPTIONS, state=state) as (client, daemon):
        fill_nodes(client, ())
        ids = list(client.submit(PENDING, count=args.jobs))
        wait_for_scheduler(client)
        for _ in range(args.changes):
            client.prioritize([(job, draw(1, 1_000_000)) for job in ids])
        disk = stored(state) / args.jobs
        daemon.kill()
        daemon.wait()
    began = time.perf_counter()
    with running(*OPTIONS, state=state) as (client, daemon):
        client.ping("job-manager")
        took = time.perf_counter() - began
        print(
            f"{args.jobs:,} jobs, {args.changes:,} changes each: {disk:,.0f} B a job on disk, "
            f"start {took:.2f} s, CPU time of the daemon {cpu_s(daemon.pid):.2f} s"
        )


if __name__ == "__main__":
    main()
