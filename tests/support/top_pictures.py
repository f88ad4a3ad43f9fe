"""Pictures of `penstock top` for the documentation, from the screen of a terminal.

`make pictures` starts a simulated cluster with jobs, and writes `docs/images/top-*.svg`.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyte

if TYPE_CHECKING:
    from pyte.screens import Char

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PENSTOCK = [sys.executable, "-P", "-m", "penstock"]
ROWS, COLUMNS = 24, 100
TIMEOUT_S = 60.0
# A screen that has not changed for this long is complete; it is drawn every two seconds.
QUIET_S = 1.0
# Pixels of a character, and the margin.
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14
FONT = 'font-family="ui-monospace, Menlo, DejaVu Sans Mono, monospace" font-size="14"'
BACKGROUND, FOREGROUND = "#16191d", "#d6dbe0"
COLOURS = {
    "black": "#16191d",
    "red": "#f07178",
    "green": "#8fce6b",
    "brown": "#e6c34f",
    "blue": "#6ea8fe",
    "magenta": "#c792ea",
    "cyan": "#5ccfe6",
    "white": "#d6dbe0",
}
JOBS = [
    ["-N4", "-t4h", "--job-name=climate", "model"],
    ["-n12", "-c2", "-t90m", "--job-name=assemble", "asm"],
    ["-n4", "-g2", "-c4", "-t2h", "--job-name=train", "train"],
    ["--cc=1-6", "-n4", "-t30m", "--job-name=sweep-{cc}", "sweep"],
    ["-N12", "-t1h", "--job-name=reanalysis", "model"],
    ["-N8", "-t20m", "--job-name=post", "post"],
    ["-N2", "-t20m", "--urgency=hold", "--job-name=report", "report"],
]
# The name of each picture, the keys that lead to it, and a text that it has.
PICTURES = [("top-jobs", "", "[jobs]"), ("top-nodes", "2", "[nodes]")]


def main() -> None:
    """Writes the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "cluster"
        environment = os.environ | {
            "PENSTOCK_URI": f"local://{state}/socket",
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }
        command = [*PENSTOCK, "start", "--nodes=16", "--cores=8", "--gpus=2", f"--state={state}"]
        daemon = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            submit_jobs(environment, state / "socket")
            for name, keys, text in PICTURES:
                screen = run_top(environment, keys, text)
                shown = re.sub(re.escape(folder), "/run/penstock", picture(screen))
                (IMAGES / f"{name}.svg").write_text(shown, encoding="utf-8")
        finally:
            daemon.terminate()
            daemon.wait()


def submit_jobs(environment: dict[str, str], socket: Path) -> None:
    """Submits the jobs, and drains a node, once the instance listens."""
    deadline = time.monotonic() + TIMEOUT_S
    while not socket.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the instance does not listen")
        time.sleep(0.05)
    commands = [["submit", "--quiet", *job] for job in JOBS]
    commands.append(["resource", "drain", "node15", "fan replaced on Monday"])
    for command in commands:
        subprocess.run([*PENSTOCK, *command], env=environment, check=True)


def run_top(environment: dict[str, str], keys: str, text: str) -> pyte.Screen:
    """The screen of `penstock top` in a terminal, once it has a text."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    top = subprocess.Popen(
        [*PENSTOCK, "top"], env=environment, stdin=slave, stdout=slave, start_new_session=True
    )
    try:
        has_pressed = False
        while True:
            is_shown = has_pressed and text in "\n".join(screen.display)
            if not select.select([master], [], [], QUIET_S if is_shown else TIMEOUT_S)[0]:
                if is_shown:
                    break
                raise TimeoutError(f"no `{text}` on the screen")
            stream.feed(os.read(master, 65536))
            if not has_pressed and "[jobs]" in "\n".join(screen.display):
                os.write(master, keys.encode())
                has_pressed = True
    finally:
        os.write(master, b"q")
        top.wait()
        os.close(master)
        os.close(slave)
    return screen


def picture(screen: pyte.Screen) -> str:
    """A screen as SVG."""
    width, height = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" {FONT}>',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for row in range(ROWS):
        cells = [screen.buffer[row][column] for column in range(COLUMNS)]
        column = 0
        for style, group in groupby(cells, key=Style.of):
            text = "".join(cell.data for cell in group)
            lines += draw(text, row, column, style)
            column += len(text)
    return "\n".join([*lines, "</svg>", ""])


class Style(NamedTuple):
    """The style of characters."""

    ink: str
    paper: str
    is_bold: bool

    @classmethod
    def of(cls, cell: Char) -> Style:
        """That of a cell of the screen."""
        ink, paper = COLOURS.get(cell.fg, FOREGROUND), COLOURS.get(cell.bg, BACKGROUND)
        return cls(paper, ink, cell.bold) if cell.reverse else cls(ink, paper, cell.bold)


def draw(text: str, row: int, column: int, style: Style) -> list[str]:
    """Characters of one style, and the rectangle behind them."""
    x, y, length = MARGIN + column * WIDTH, MARGIN + row * HEIGHT, len(text) * WIDTH
    found = []
    if style.paper != BACKGROUND:
        found.append(
            f'<rect x="{x:g}" y="{y:g}" width="{length:g}" height="{HEIGHT}" fill="{style.paper}"/>'
        )
    if text.strip():
        weight = ' font-weight="bold"' if style.is_bold else ""
        found.append(
            f'<text x="{x:g}" y="{y + 13:g}" textLength="{length:g}" xml:space="preserve" '
            f'fill="{style.ink}"{weight}>{escape(text)}</text>'
        )
    return found


if __name__ == "__main__":
    main()
