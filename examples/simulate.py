"""Better estimates of run times and their effect on waiting times: a study with the simulator.

It needs nothing but the wheel: `pip install penstock-hpc && python examples/simulate.py`. To run
the study on a trace whose jobs arrive 1.6 times as fast: `python examples/simulate.py a.swf 1.6`.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import fmean

from penstock.sim import machine, runs, workload
from penstock.sim.units import duration, share

POLICIES = ("fcfs", "easy", "conservative")
# Estimates of users: exact, up to five times the run time, round values.
ESTIMATES = ("exact", "factor:5", "modal")
CORES, LOAD, JOBS, SEEDS = 256, 0.9, 2000, (1, 2, 3)


def workloads(estimates, jobs=JOBS):
    """The same jobs for each way to guess, a workload a seed."""
    for seed in SEEDS:
        made = workload.Synthesis(jobs=jobs, seed=seed, load=LOAD, estimates="exact")
        yield workload.synthesize(made, CORES).vary(estimates=estimates, seed=seed)


def waits_by_size(results):
    """Mean waits of jobs of one core, and of jobs of a quarter of the machine or more."""
    columns = results.columns
    rows = [
        (cores, wait)
        for cores, wait in zip(columns["cores"], columns["wait"], strict=True)
        if not math.isnan(wait)
    ]
    largest = max((cores for cores, _ in rows), default=1)
    small = [wait for cores, wait in rows if cores == 1]
    large = [wait for cores, wait in rows if cores >= largest / 4]
    return tuple(fmean(waits) if waits else math.nan for waits in (small, large))


def compare(make, on):
    """A row for each policy and way to guess: means over the workloads that `make` yields."""
    for estimates in ESTIMATES:
        studies = [
            runs.study(jobs, on, runs.Options(estimates=True, estimate_every=10), policies=POLICIES)
            for jobs in make(estimates)
        ]
        for number, policy in enumerate(POLICIES):
            results = [study.runs[number].results for study in studies]
            summaries = [result.summary for result in results]
            sizes = [waits_by_size(result) for result in results]
            yield {
                "policy": policy,
                "estimates": estimates,
                "wait": fmean(summary["wait_mean"] for summary in summaries),
                "small": fmean(small for small, _ in sizes),
                "large": fmean(large for _, large in sizes),
                "slowdown": fmean(summary["slowdown_mean"] for summary in summaries),
                "utilisation": fmean(
                    summary["utilisation_to_last_submit"] for summary in summaries
                ),
                "error": fmean(summary["estimate_error_mean"] or 0.0 for summary in summaries),
            }


def rows_of(arguments):
    """Rows for the given trace and pace, or for generated workloads."""
    if not arguments:
        return compare(workloads, machine.pool(CORES))
    trace = workload.load(Path(arguments[0]))
    pace = float(arguments[1]) if len(arguments) > 1 else 1.0
    trace.vary(pace=pace)  # Rejects an invalid pace before the simulations start.
    return compare(
        lambda estimates: [trace.vary(pace=pace, estimates=estimates, seed=1)], machine.pool()
    )


def main(arguments):
    try:
        rows = rows_of(arguments)
    except (OSError, ValueError) as error:
        sys.exit(f"simulate.py: {error}")
    print(
        "policy        estimates  mean wait   1 core      wide  slowdown  in use    estimate error"
    )
    for row in rows:
        print(
            f"{row['policy']:<13} {row['estimates']:<9} {duration(row['wait']):>10}"
            f" {duration(row['small']):>8} {duration(row['large']):>9} {row['slowdown']:>9,.1f}"
            f" {share(row['utilisation']):>7} {duration(row['error']):>17}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
