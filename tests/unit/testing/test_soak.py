"""The verdicts of `bench/soak.py`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"
JOBS = [100_000.0 * number for number in range(11, 101)]


@pytest.fixture
def judge(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import soak

    return soak.judge


def growing(start, end):
    """Samples about a line from `start` to `end`, each off by up to 3 % of the start."""
    noise = random.Random(1)
    step = (end - start) / (len(JOBS) - 1)
    return [start * (1 + noise.uniform(-0.03, 0.03)) + step * number for number in range(len(JOBS))]


@pytest.mark.parametrize(
    ("series", "start", "end", "is_met"),
    [
        ("memory_mb", 80.0, 80.0, True),
        ("memory_mb", 80.0, 60.0, True),
        # Within the floor; beyond it and 5 %, which the former verdict of 20 % would have let pass.
        ("memory_mb", 40.0, 43.0, True),
        ("memory_mb", 400.0, 415.0, True),
        ("memory_mb", 400.0, 430.0, False),
        ("descriptors", 21.0, 22.0, True),
        ("descriptors", 21.0, 25.0, False),
        ("disk_mb", 100.0, 106.0, True),
        ("disk_mb", 100.0, 112.0, False),
        ("ping_ms", 6.0, 6.5, True),
        ("ping_ms", 6.0, 8.0, False),
    ],
)
def test_a_series_is_judged_by_its_slope(judge, series, start, end, is_met):
    samples = list(zip(JOBS, growing(start, end), strict=True))
    assert judge(series, 1, samples).is_met == is_met


def test_one_long_ping_is_too_long_unless_syncs_of_its_round_were(judge):
    samples = [(jobs, 20.0, 3.0) for jobs in JOBS]
    bound = "at most 50 without them"
    figure = "20.00, 14.00 without two syncs"
    assert judge("longest_ping_ms", 1, samples) == (figure, bound, True)
    samples[40] = (JOBS[40], 56.5, 3.0)
    figure = "56.50, 50.50 without two syncs"
    assert judge("longest_ping_ms", 1, samples) == (figure, bound, False)
    samples[40] = (JOBS[40], 56.5, 56.0)
    # A long sync of another round tells nothing.
    samples[41] = (JOBS[41], 60.0, 3.0)
    figure = "60.00, 54.00 without two syncs"
    assert judge("longest_ping_ms", 1, samples) == (figure, bound, False)


def test_a_single_sample_has_no_slope(judge):
    assert judge("memory_mb", 1, [(1.0, 80.0)]) == ("80.00 to 80.00", "at most 84.00", True)
