"""Gantt charts: rectangles of jobs over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sim.plot.frame import COLOUR_COUNT, Frame, Size, pixel, tooltip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sim.plot.scale import Axis


@dataclass(frozen=True)
class Block:
    """A rectangle.

    Attributes:
        start: where it begins on the horizontal axis.
        end: where it ends.
        low: where it begins on the vertical axis.
        high: where it ends there.
        colour: which of the colours it has.
        faint: whether it is lighter, to set it off from its neighbours.
        text: the text shown when the pointer rests on it.
    """

    start: float
    end: float
    low: float
    high: float
    colour: int = 0
    faint: float = 1.0
    text: str = ""


def gantt(
    blocks: Sequence[Block],
    *,
    title: str = "",
    names: Sequence[tuple[int, str]] = (),
    x: Axis,
    y: Axis,
    size: Size | None = None,
) -> str:
    """A chart of blocks, clipped to the axes.

    Args:
        blocks: what is drawn; the later is on top.
        title: the title above the chart.
        names: colours and what they mean, for the legend.
        x: the horizontal axis, with both ends.
        y: the vertical one, with both ends.
        size: the size of the chart.

    Returns:
        SVG text.
    """
    frame = Frame(
        title,
        x,
        y,
        size or Size(),
        [name for _, name in names],
        shape="bar",
        colours=[colour for colour, _ in names],
    )
    across, up = frame.scales([], [])
    frame.draw_y(up)
    for block in blocks:
        if block.end < across.low or block.start > across.high or block.low >= up.high:
            continue
        left, right = across(block.start), across(block.end)
        low, high = sorted((up(block.low), up(block.high)))
        shade = f' fill-opacity="{block.faint:g}"' if block.faint < 1 else ""
        frame.parts.append(
            f'<rect class="job f{block.colour % COLOUR_COUNT}"{shade} x="{pixel(left)}"'
            f' y="{pixel(low)}" width="{pixel(max(right - left, 0.6))}"'
            f' height="{pixel(max(high - low, 0.6))}">' + tooltip(block.text) + "</rect>"
        )
    frame.draw_x(across)
    return frame.svg()
