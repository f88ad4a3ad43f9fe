"""The frame of a chart: title, legend, axes and background."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from penstock.sim.plot.scale import Axis, Scale, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

COLOUR_COUNT = 8

# Distinguishable with colour blindness, on white and on black.
_LIGHT_COLOURS = "#2a6fdb #d9601a #16876b #b0419a #8a6a00 #6d4fd0 #4f6272 #c03434".split()
_DARK_COLOURS = "#6aa5ff #ff9a57 #3fc9a2 #e884d3 #d3b04a #a99bff #9fb2c2 #ff8181".split()


def _variables(colours: Sequence[str], rest: str) -> str:
    return "".join(f"--c{n}:{colour};" for n, colour in enumerate(colours)) + rest


STYLE = (
    ":root{color-scheme:light dark;"
    + _variables(
        _LIGHT_COLOURS, "--paper:#fff;--ink:#1c2733;--faint:#5c6b7a;--grid:#e3e8ee;--hit:#0000000d"
    )
    + "}@media (prefers-color-scheme:dark){:root{"
    + _variables(
        _DARK_COLOURS,
        "--paper:#14191f;--ink:#e6ecf2;--faint:#9aa8b6;--grid:#2b343e;--hit:#ffffff14",
    )
    + "}}"
    "svg.plot{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
    "color:var(--ink);max-width:100%;height:auto;display:block}"
    "svg.plot text{fill:var(--faint);font-variant-numeric:tabular-nums}"
    "svg.plot text.head{fill:var(--ink);font-size:14px;font-weight:600}"
    "svg.plot text.name{fill:var(--ink)}"
    "svg.plot .grid{stroke:var(--grid);stroke-width:1;shape-rendering:crispEdges}"
    "svg.plot .axis{stroke:var(--faint);stroke-width:1;shape-rendering:crispEdges}"
    "svg.plot .paper{fill:var(--paper)}"
    "svg.plot .line{fill:none;stroke-width:1.6;stroke-linejoin:round}"
    "svg.plot .dash{stroke:var(--faint);stroke-width:1.2;stroke-dasharray:5 4;fill:none}"
    "svg.plot .hit{fill:transparent}svg.plot .hit:hover{fill:var(--hit)}"
    "svg.plot .job{stroke:var(--paper);stroke-width:.6}"
    "svg.plot .job:hover,svg.plot .bar:hover{fill-opacity:.7}"
    "svg.plot .box{fill-opacity:.28;stroke-width:1.2}svg.plot .middle{stroke-width:2.4}"
    "svg.plot .area{fill-opacity:.14;stroke:none}"
    + "".join(
        f"svg.plot .s{n}{{stroke:var(--c{n})}}svg.plot .f{n}{{fill:var(--c{n})}}"
        for n in range(COLOUR_COUNT)
    )
)
"""The style sheet of all charts. A page that holds several has it once."""


@dataclass(frozen=True)
class Size:
    """The size of a chart, in pixels, and whether it stands by itself in a file."""

    width: int = 720
    height: int = 300
    standalone: bool = False


@dataclass
class Frame:
    """A chart as it is put together: parts are drawn in the order in which they are added."""

    title: str
    x: Axis
    y: Axis
    size: Size = field(default_factory=Size)
    names: Sequence[str] = ()
    shape: str = "line"
    colours: Sequence[int] | None = None
    left: float = 0.0
    top: float = 0.0
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Finds how much room title and legend take."""
        self.legend, rows = self._legend()
        self.top = 30.0 + 18.0 * rows if self.title or rows else 12.0

    @property
    def right(self) -> float:
        """The pixel at which the plot ends on the right."""
        return self.size.width - 16.0

    @property
    def bottom(self) -> float:
        """The pixel at which the plot ends below."""
        return self.size.height - (44.0 if self.x.label else 28.0)

    def scales(self, xs: list[float], ys: list[float]) -> tuple[Scale, Scale]:
        """Scales for both axes; the left margin is as wide as the labels there."""
        y = fit(self.y, ys, self.bottom, self.top + 4)
        widest = max((text_width(label) for _, label in y.ticks()), default=0.0)
        self.left = 14.0 + widest + (20.0 if self.y.label else 0.0)
        return fit(self.x, xs, self.left, self.right), y

    def draw_y(self, scale: Scale) -> None:
        """Ticks, grid and label of the vertical axis."""
        for value, label in scale.ticks():
            at = pixel(scale(value))
            self.parts.append(
                f'<path class="grid" d="M{pixel(self.left)} {at}H{pixel(self.right)}"/>'
                f'<text x="{pixel(self.left - 7)}" y="{pixel(scale(value) + 4)}"'
                f' text-anchor="end">{escape(label)}</text>'
            )
        if self.y.label:
            middle = pixel((self.top + self.bottom) / 2)
            self.parts.append(
                f'<text transform="translate(13 {middle}) rotate(-90)"'
                f' text-anchor="middle">{escape(self.y.label)}</text>'
            )

    def draw_x(self, scale: Scale) -> None:
        """Ticks and label of the horizontal axis; labels that would touch are left out."""
        free = -math.inf
        for value, label in scale.ticks():
            at, half = scale(value), text_width(label) / 2
            self.parts.append(f'<path class="axis" d="M{pixel(at)} {pixel(self.bottom)}v4"/>')
            centre = min(max(at, self.left + half - 12), self.size.width - half - 2)
            if centre - half > free:
                self.parts.append(self.below(centre, label))
                free = centre + half + 6
        self.draw_base()

    def draw_base(self) -> None:
        """Draws the line under the plot and the label of the horizontal axis."""
        self.parts.append(
            f'<path class="axis" d="M{pixel(self.left)} {pixel(self.bottom)}H{pixel(self.right)}"/>'
        )
        if self.x.label:
            self.parts.append(
                f'<text x="{pixel((self.left + self.right) / 2)}" y="{self.size.height - 8}"'
                f' text-anchor="middle">{escape(self.x.label)}</text>'
            )

    def below(self, at: float, label: str) -> str:
        """A label under the plot."""
        return (
            f'<text x="{pixel(at)}" y="{pixel(self.bottom + 17)}"'
            f' text-anchor="middle">{escape(label)}</text>'
        )

    def svg(self) -> str:
        """The chart as SVG text, well-formed XML."""
        width, height = self.size.width, self.size.height
        alone = self.size.standalone
        name = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
        opening = (
            f'<svg{name} class="plot" role="img" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" aria-label="{escape(self.title)}">'
        )
        head = [opening]
        if alone:
            head.append(f"<style>{STYLE}</style>")
            head.append(f'<rect class="paper" width="{width}" height="{height}"/>')
        if self.title:
            head.append(f'<text class="head" x="4" y="18">{escape(self.title)}</text>')
        return "\n".join([*head, *self.legend, *self.parts, "</svg>"]) + "\n"

    def _legend(self) -> tuple[list[str], int]:
        """Names and their marks, in as many rows as they need."""
        if not self.names:
            return [], 0
        drawn: list[str] = []
        x, row = 4.0, 0
        for colour, name in zip(self.colours or range(len(self.names)), self.names, strict=True):
            n = colour % COLOUR_COUNT
            width = 24.0 + text_width(name) + 16.0
            if x + width > self.size.width and x > 4.0:
                x, row = 4.0, row + 1
            y = (26.0 if self.title else 2.0) + 18.0 * row
            if self.shape == "line":
                mark = f'<path class="line s{n}" d="M{pixel(x)} {pixel(y + 8)}h18"/>'
            else:
                mark = (
                    f'<rect class="f{n}" x="{pixel(x + 3)}" y="{pixel(y + 3)}"'
                    ' width="11" height="11" rx="2"/>'
                )
            drawn.append(
                mark + f'<text class="name" x="{pixel(x + 23)}" y="{pixel(y + 12.5)}">'
                f"{escape(name)}</text>"
            )
            x += width
        return drawn, row + 1


def pixel(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


def text_width(text: str) -> float:
    """About how wide a text is at 12 pixels, rather too much than too little."""
    return sum(3.6 if letter in "ijl.,:' |" else 7.1 for letter in text)


def tooltip(text: str) -> str:
    """The text shown when the pointer rests on a part of the chart."""
    return f"<title>{escape(text)}</title>"
