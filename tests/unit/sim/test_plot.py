"""Charts: well-formed SVG, lines inside their axes, readable ticks."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.sim.plot import Axis, Block, Box, Line, Size, bars, boxes, gantt, histogram, lines
from penstock.sim.plot.scale import fit
from penstock.sim.results import mean_over, peak_over, quantile
from penstock.sim.units import duration, plain, share

NUMBERS = st.floats(1e-9, 1e12)


def parts(svg, tag, kind):
    found = ElementTree.fromstring(svg).iter(tag)
    return [element for element in found if kind in (element.get("class") or "").split()]


@given(
    points=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20),
    log=st.booleans(),
    unit=st.sampled_from(["number", "duration", "share", "date"]),
    step=st.booleans(),
)
@example(points=[(1.0, 1.0), (1.0, 1.000000001)], log=True, unit="number", step=False)
def test_the_line_of_any_points_stays_inside_the_chart(points, log, unit, step):
    points.sort()
    line = Line("<&>", [x for x, _ in points], [y for _, y in points])
    svg = lines(
        [line], title="]]>", x=Axis(log=log), y=Axis("y", unit, log), step=step, points=True
    )
    for circle in parts(svg, "circle", "f0"):
        assert 0 <= float(circle.get("cx")) <= 720
        assert 0 <= float(circle.get("cy")) <= 300


def test_a_chart_of_its_own_has_its_style():
    svg = lines([Line("a", [1], [1])], x=Axis(), y=Axis(), size=Size(standalone=True))
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "<style>" in svg
    assert "<style>" not in lines([Line("a", [1], [1])], x=Axis(), y=Axis())


def test_bars_are_as_high_as_their_values():
    svg = bars(["a", "b"], [("one", [1.0, 2.0]), ("two", [math.nan, 4.0])], y=Axis())
    heights = [float(bar.get("height")) for bar in parts(svg, "rect", "bar")]
    assert [bar.find("title").text for bar in parts(svg, "rect", "bar")] == [
        *("one a: 1", "one b: 2", "two b: 4")
    ]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)
    assert heights[2] == pytest.approx(4 * heights[0], abs=0.2)


def test_boxes_without_values_are_left_out():
    none = Box(*[math.nan] * 6, 0)
    svg = boxes(["a", "b"], [("x", [Box(1, 2, 3, 4, 5, 3, 9), none])], y=Axis("s", "duration"))
    assert [hit.find("title").text.split("\n")[0] for hit in parts(svg, "rect", "hit")] == [
        "x a: 9 jobs"
    ]


def test_a_histogram_labels_its_bins():
    svg = histogram([0, 1, 2], [("x", [3, 4])], x=Axis(), y=Axis())
    tooltips = [hit.find("title").text for hit in parts(svg, "rect", "hit")]
    assert tooltips == ["0 to 1\nx: 3", "1 to 2\nx: 4"]


def test_blocks_outside_of_the_axes_are_cut_off():
    blocks = [Block(0, 5, 0, 1), Block(20, 30, 0, 1, text="gone"), Block(8, 99, 1, 2, 1)]
    svg = gantt(blocks, x=Axis(low=0, high=10), y=Axis(low=0, high=2))
    first, second = parts(svg, "rect", "job")
    assert "gone" not in svg
    right = float(second.get("x")) + float(second.get("width"))
    assert right == pytest.approx(720 - 16, abs=0.2)
    assert float(first.get("y")) > float(second.get("y")), "the axis goes upwards"


@given(st.floats(0, 1e9), st.floats(1, 1e9), st.booleans())
def test_ticks_are_on_the_axis_and_some(low, span, log):
    axis = Axis(unit="duration", log=log, low=low + 1, high=low + 1 + span)
    ticks = fit(axis, [], 0, 500).ticks()
    assert len(ticks) <= 12
    assert all(low + 1 - 1e-6 <= value <= (low + 1 + span) * (1 + 1e-9) for value, _ in ticks)


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (Axis(low=0, high=10), ["0", "5", "10"]),
        (Axis(unit="share", low=0, high=1), ["0 %", "50 %", "100 %"]),
        (Axis(unit="duration", low=0, high=7200), ["0", "1 h", "2 h"]),
        (Axis(log=True, low=1, high=1e6), ["1", "1,000", "1M"]),
        (
            Axis(unit="date", low=0, high=2 * 86400, origin=749433600),
            ["Oct 1", "Oct 2", "Oct 3"],
        ),
    ],
)
def test_ticks(axis, labels):
    assert [label for _, label in fit(axis, [], 0, 300).ticks()] == labels


def test_units():
    found = [
        duration(seconds) for seconds in (0, 5e-7, 0.0123, 42, 1000, 9999, 1e6, None, math.nan)
    ]
    assert found == [
        *("0 s", "0.50 µs", "12.3 ms", "42.0 s", "16.7 min", "2.78 h", "11.6 d", "-", "-")
    ]
    assert (plain(3.0), plain(0.1), plain(1e15)) == ("3", "0.1", "1000000000000000")
    assert share(0.12345) == "12.3 %"


def test_step_functions_over_bins():
    times, values = [0, 1, 3], [2, 4, 0]
    assert mean_over(times, values, 0, 4, 2) == [3, 2]
    assert peak_over(times, values, 0, 4, 2) == [4, 4]
    assert mean_over(times, values, 2, 3, 1) == [4]
    assert quantile([1, 2, 3, 4], 0.5) == 2
    assert math.isnan(quantile([], 0.5))


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 9),
)
def test_the_means_over_bins_add_up(steps, bins):
    times, now = [], 0
    for wide, _ in steps:
        times.append(now)
        now += wide
    values = [value for _, value in steps]
    means = mean_over(times, values, 0, now, bins)
    total = sum(wide * value for wide, value in steps)
    assert sum(means) * now / bins == pytest.approx(total)
    peaks = peak_over(times, values, 0, now, bins)
    assert max(peaks) == max(values)
    assert all(mean <= peak + 1e-9 for mean, peak in zip(means, peaks, strict=True))


def hits(svg):
    """Yields each tooltip: its left and right end in pixels, and its lines."""
    for hit in parts(svg, "rect", "hit"):
        left = float(hit.get("x"))
        yield left, left + float(hit.get("width")), hit.find("title").text.split("\n")


def test_each_step_has_its_label():
    edges = [float(n) for n in range(241)]
    line = Line("a", edges, [float(n % 7) for n in range(240)] + [6.0])
    svg = lines([line], x=Axis(low=0, high=240), y=Axis(), step=True, size=Size(1080, 260))
    tooltips = list(hits(svg))
    assert [words[1] for _, _, words in tooltips] == [f"a: {n % 7}" for n in range(240)]
    wide = (tooltips[-1][1] - tooltips[0][0]) / 240
    for n, (left, right, _) in enumerate(tooltips):
        assert left == pytest.approx(tooltips[0][0] + n * wide, abs=0.11)
        assert right == pytest.approx(tooltips[0][0] + (n + 1) * wide, abs=0.21)


def test_joined_points_have_a_label_between_them():
    line = Line("a", [0.0, 10.0], [0.0, 1000.0])
    other = Line("b", [0.0, 5.0], [4.0, 4.0])
    svg = lines([line, other], x=Axis(low=0, high=10), y=Axis(low=0, high=1000))
    tooltips = list(hits(svg))
    low, high = tooltips[0][0], tooltips[-1][1]
    for left, right, words in tooltips:
        part = ((left + right) / 2 - low) / (high - low)
        said = dict(word.split(": ") for word in words[1:])
        assert float(said["a"].replace(",", "")) == pytest.approx(1000 * part, abs=2)
        assert ("b" in said) == (part < 0.5)


def test_labels_on_a_logarithmic_axis_follow_the_drawing():
    line = Line("", [1.0, 100.0], [1.0, 10000.0])
    svg = lines([line], x=Axis(log=True, low=1, high=100), y=Axis(log=True, low=1, high=10000))
    for _, _, (x, y) in hits(svg):
        assert float(y.replace(",", "")) == pytest.approx(float(x) ** 2, rel=0.05)
