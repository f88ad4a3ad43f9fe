"""Charts as SVG text: lines, steps, bars, boxes, histograms, Gantt charts.

Nothing but the standard library is needed, and nothing is loaded when a chart is looked at: it is
readable on light and on dark ground, and tells values where the pointer rests. A chart is either a
part of a page, which has `STYLE` once, or with `Size(standalone=True)` a file of its own.

>>> from penstock.sim.plot import Axis, Line, Size, lines
>>> cost = Line("easy", [100, 1000, 10000], [1.2e-7, 1.9e-7, 3.1e-7])
>>> text = lines(
...     [cost],
...     title="A match",
...     x=Axis("nodes", log=True),
...     y=Axis("time", unit="duration", log=True),
...     points=True,
...     size=Size(standalone=True),
... )
>>> text.startswith("<svg xmlns=")
True
"""

from penstock.sim.plot.bars import Box, bars, boxes, histogram
from penstock.sim.plot.frame import STYLE, Size
from penstock.sim.plot.gantt import Block, gantt
from penstock.sim.plot.lines import Line, lines
from penstock.sim.plot.scale import Axis

__all__ = [
    "STYLE",
    "Axis",
    "Block",
    "Box",
    "Line",
    "Size",
    "bars",
    "boxes",
    "gantt",
    "histogram",
    "lines",
]
