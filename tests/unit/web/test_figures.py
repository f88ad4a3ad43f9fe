"""Figures of past jobs, and their charts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.web import charts, figures
from penstock.web.figures import BUCKET_COUNT, Period

# Buckets of 10 s.
PERIOD = Period(1000.0, 1000.0 + 10 * BUCKET_COUNT)


def test_cores_in_use_are_means_over_buckets():
    rows = [
        {"t_run": 1000.0, "t_inactive": 1010.0, "ncores": 4},
        {"t_run": 1015.0, "t_inactive": 1025.0, "ncores": 2},
        # It began before the period.
        {"t_run": 500.0, "t_inactive": 1005.0, "ncores": 8},
        # It still runs.
        {"t_run": 1940.0, "ncores": 1},
        # It has never run; it has ended before.
        {"ncores": 100},
        {"t_run": 1.0, "t_inactive": 1000.0, "ncores": 100},
    ]
    used = figures.cores_in_use(rows, PERIOD)
    assert used[:4] == pytest.approx([8.0, 1.0, 1.0, 0.0])
    assert used[-3:] == pytest.approx([0.0, 1.0, 1.0])


@given(
    st.lists(st.tuples(st.floats(0, 3000), st.floats(0, 3000), st.integers(0, 100)), max_size=20)
)
def test_no_core_second_is_lost(spans):
    rows = [{"t_run": begin, "t_inactive": begin + run, "ncores": n} for begin, run, n in spans]
    inside = [
        max(0.0, min(begin + run, PERIOD.end) - max(begin, PERIOD.begin)) * n
        for begin, run, n in spans
    ]
    used = figures.cores_in_use(rows, PERIOD)
    assert sum(used) * PERIOD.width == pytest.approx(sum(inside), abs=1e-6)


def ended(wait: float, run: float, end: float) -> dict:
    begin = end - run
    return {"t_submit": begin - wait, "t_run": begin, "t_cleanup": end, "t_inactive": end}


def test_waits_and_slowdowns_are_of_jobs_that_ended_in_the_period():
    rows = [ended(30.0, 60.0, 1005.0), ended(90.0, 1.0, 1006.0), ended(0.0, 5.0, 1955.0)]
    # Still running, cancelled while pending, ended before.
    rows += [{"t_submit": 1.0, "t_run": 2.0}, {"t_submit": 1.0, "t_inactive": 1005.0}]
    rows += [ended(1.0, 1.0, 999.0)]
    found = figures.waits(rows, PERIOD)
    assert (found.count, found.median_wait) == (3, 30.0)
    first, last = found.waits
    assert (first.time, first.count, first.median) == (1005.0, 2, 60.0)
    assert first.high == pytest.approx(84.0)
    assert (last.median, last.high) == (0.0, 0.0)
    # (30 + 60) / 60, (90 + 1) / 10: a shorter run time counts as 10 s.
    assert found.slowdowns[0].median == pytest.approx((1.5 + 9.1) / 2)
    assert found.slowdowns[1].median == 1.0


def test_without_jobs_there_are_no_figures():
    found = figures.waits([], PERIOD)
    assert (found.count, found.median_wait, found.waits) == (0, None, [])


def test_the_area_of_a_chart_is_inside_of_it():
    chart = charts.step_chart([0.0, 5.0, 20.0], 10.0, PERIOD)
    assert [tick.text for tick in chart.y_ticks] == ["0", "5", "10", "15", "20"]
    assert chart.lines[0].path.startswith(f"M{chart.left} {chart.bottom}V{chart.bottom}.0h")
    assert f"V{chart.top}.0h" in chart.lines[0].path
    assert [line.name for line in chart.lines] == ["area", "limit"]
    large = charts.step_chart([0.0], 80_000.0, PERIOD)
    assert large.y_ticks[1].text == "20\u202f000"
    # Without a limit, and without any use.
    assert charts.step_chart([0.0], 0.0, PERIOD).y_ticks[-1].text == "1"


def test_a_logarithmic_chart_has_a_tick_for_powers_of_ten():
    found = figures.waits([ended(3000.0, 60.0, 1005.0)], PERIOD)
    chart = charts.spread_chart(found.waits, PERIOD, 0.1, charts.wait_text)
    assert [tick.text for tick in chart.y_ticks] == ["0.1 s", "10 s", "17 min"]
    # One point is a line of no length with a round end.
    assert chart.lines[0].path.count("L") == 1
    empty = charts.spread_chart([], PERIOD, 1.0, str)
    assert [line.path for line in empty.lines] == ["", ""]
