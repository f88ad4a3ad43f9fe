"""A policy of one's own against the engine's: who waits how long on a small cluster?

It needs nothing but the wheel: `pip install penstock-hpc && python examples/engine.py`.
"""

from __future__ import annotations

import heapq
import random
from statistics import mean

from penstock import Engine, ResourceSet

CLUSTER = ResourceSet.uniform("0-15", "node[0-15]", cores="0-31")
JOBS = 2000


def workload(seed):
    """Submit time, run time, limit and cores of jobs that keep the cluster nearly full."""
    make, time = random.Random(seed), 0.0
    for _ in range(JOBS):
        time += make.expovariate(1 / 42)
        seconds = make.lognormvariate(6.5, 1.5)
        yield time, seconds, seconds * make.uniform(1, 5), 2 ** make.randrange(6)


def simulate(engine, jobs):
    """The wait of every job, in virtual time."""
    shapes = {2**power: engine.shape(slots=2**power) for power in range(6)}
    arrivals = [(time, job, limit, cores) for job, (time, _, limit, cores) in enumerate(jobs)]
    ends, waits, now = [], {}, 0.0
    while arrivals or ends:
        now = min(queue[0][0] for queue in (arrivals, ends) if queue)
        while ends and ends[0][0] <= now:
            engine.free(heapq.heappop(ends)[1])
        while arrivals and arrivals[0][0] <= now:
            time, job, limit, cores = arrivals.pop(0)
            engine.submit(job, shapes[cores], limit, now=time)
        for job in engine.schedule(now).ids:
            waits[job] = now - jobs[job][0]
            heapq.heappush(ends, (now + jobs[job][1], job))
    return waits


def wfp3(pending):
    """Wide jobs first, and those that have waited for long compared with their limit."""
    rows = zip(pending.waits, pending.durations, pending.cores, strict=True)
    return [(wait / limit) ** 3 * cores for wait, limit, cores in rows]


def shortest(pending):
    return [-limit for limit in pending.durations]


def main():
    jobs = list(workload(seed=1))
    print("policy            mean wait  mean bounded slowdown")
    for name, options in {
        "fcfs": {"policy": "fcfs"},
        "easy": {"policy": "easy"},
        "easy, wfp3": {"policy": "easy", "score": wfp3},
        "easy, shortest": {"policy": "easy", "score": shortest},
    }.items():
        waits = simulate(Engine(CLUSTER, **options), jobs)
        slow = mean(max(1.0, (waits[j] + jobs[j][1]) / max(10.0, jobs[j][1])) for j in waits)
        print(f"{name:16} {mean(waits.values()):8,.0f} s {slow:12,.1f}")


if __name__ == "__main__":
    main()
