"""The picture of the documentation's first page: a chart of a report of `penstock sim`.

python tests/support/report_picture.py    # writes docs/report.svg
"""

from __future__ import annotations

from pathlib import Path

from penstock.sim import figures, machine, runs, workload
from penstock.sim.plot import STYLE

PICTURE = Path(__file__).parents[2] / "docs" / "report.svg"
JOBS, CORES, LOAD, SEED = 2000, 256, 0.85, 3
# Outside of a report the page has no background of its own.
BACKGROUND = '<rect width="100%" height="100%" fill="var(--paper)"/>'


def picture() -> str:
    """The chart as an SVG file: waits of three policies."""
    jobs = workload.synthesize(workload.Synthesis(jobs=JOBS, seed=SEED, load=LOAD), CORES)
    study = runs.study(
        jobs,
        machine.pool(CORES),
        runs.Options(),
        policies=("fcfs", "easy", "conservative"),
    )
    chart = figures.over_time(study)[0]
    head, _, rest = chart.partition(">")
    if "xmlns=" not in head:
        head += ' xmlns="http://www.w3.org/2000/svg"'
    return f"{head}><style>{STYLE}</style>{BACKGROUND}{rest}\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
