"""The progress of jobs as a line on a terminal."""

from __future__ import annotations

import pytest
from virtualtime import SteppedClock

from penstock.cli.progress import ERASE_LINE, Progress

COMPLETED = {"id": 1, "state": 64, "returncode": 0}
FAILED = COMPLETED | {"returncode": 3}


@pytest.fixture
def clock():
    return SteppedClock()


def test_the_line_counts_jobs_and_failures(clock):
    written = []
    progress = Progress(4, clock, written.append, columns=38)
    progress.count([COMPLETED, FAILED])
    clock.time += 2.0
    progress.count([COMPLETED])
    assert written == [
        f"{ERASE_LINE}[#####-----] 2/4 ended, 1 failed, 0 s",
        f"{ERASE_LINE}[#######---] 3/4 ended, 1 failed, 2 s",
    ]
    progress.clear()
    progress.clear()
    assert written[2:] == [ERASE_LINE]
    progress.count([COMPLETED])
    progress.end()
    assert written[-1] == f"{ERASE_LINE}[##########] 4/4 ended, 1 failed, 2 s\n"


def test_the_line_has_the_rate_and_fits_the_terminal(clock):
    written = []
    progress = Progress(4, clock, written.append, shows_rate=True, columns=20)
    clock.time += 0.5
    progress.count([COMPLETED])
    assert written == [f"{ERASE_LINE}1/4 ended, 2.0 jobs/s"]


def test_nothing_is_shown_without_a_terminal(clock):
    progress = Progress(1, clock, None)
    progress.count([COMPLETED])
    progress.clear()
    progress.end()
