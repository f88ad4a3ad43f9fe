"""`penstock top`: the instance on the whole screen, live."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from penstock.cli.arguments import seconds
from penstock.cli.text import id_text
from penstock.cli.topdata import snapshot
from penstock.cli.topview import KEYS, Cancel, CloseLog, Drain, OpenLog, Quit, Undrain, View
from penstock.cli.uri import address_of
from penstock.client import Client
from penstock.errors import RpcError, UsageError
from penstock.interpreter import environment_of, penstock_command

if TYPE_CHECKING:
    import argparse
    import curses

    from penstock.cli.topview import Action
    from penstock.clock import Clock

SUMMARY = """Show the instance on the whole screen, live: utilisation, jobs, nodes, queues, and the
log of the selected job.

TARGET is an address, or a job that runs an instance (JOB/JOB is a job of that instance)."""

# While a log is shown, its file is read this often, in seconds.
LOG_INTERVAL_S = 0.2
LOG_BYTES = 65536
# Lines and columns without a terminal.
DEFAULT_SIZE = (100, 40)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-A", action="store_true", dest="every_user", help="begin with the jobs of all users")
    add(
        "-d",
        "--interval",
        type=seconds,
        default=2.0,
        metavar="FSD",
        help="the time between two requests (default 2s)",
    )
    add("--once", action="store_true", help="print one screen, as text, and end")
    add(
        "--view", choices=("jobs", "nodes", "queues"), default="jobs", help="the view to begin with"
    )
    add("target", nargs="?", metavar="TARGET", help="default: the instance of PENSTOCK_URI")
    width = max(len(keys) for keys, _ in KEYS)
    parser.epilog = "\n".join(["keys:", *(f"  {keys:<{width}}  {text}" for keys, text in KEYS)])


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    if not args.once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("expected a terminal: `--once` prints one screen without one")
    uri = args.target
    if uri is not None and "://" not in uri:
        uri = address_of(uri)
    with Client(uri) as client:
        view = View(client.uri, of_everyone=args.every_user)
        view.view = args.view
        if args.once:
            refresh(view, client, args.clock)
            print(view.text(*get_terminal_size(DEFAULT_SIZE)))
            return 0
        import curses

        # Esc is a key, too: the rest of a sequence comes at once.
        os.environ.setdefault("ESCDELAY", "25")
        # With these curses would not follow the size of the terminal.
        for name in ("LINES", "COLUMNS"):
            os.environ.pop(name, None)
        _check_terminal()
        with suppress(KeyboardInterrupt):
            curses.wrapper(_Screen(view, client, args.clock, args.interval).run)
    return 0


def _check_terminal() -> None:
    """Checks that the terminal can show a whole screen.

    Raises:
        UsageError: its type is unknown, or it cannot position the cursor.
    """
    import curses

    name = os.environ.get("TERM", "")
    try:
        curses.setupterm()
        can_position = curses.tigetstr("cup")
    except curses.error:
        raise UsageError(f"TERM: unknown terminal type `{name}`: `--once` needs none") from None
    if not can_position:
        raise UsageError(f"TERM: `{name}` cannot position the cursor: `--once` need not")


def refresh(view: View, client: Client, clock: Clock) -> None:
    """Has the view show the present state of the instance.

    Raises:
        RpcError: a service answered with an error.
        NoInstanceError: the connection was lost.
    """
    now = clock.now()
    view.update(snapshot(client, now, view.constraint(), with_nodes=view.view == "nodes"))


class _Log:
    """The output of a job, from a process that follows it."""

    def __init__(self, uri: str, job: int) -> None:
        self._process = subprocess.Popen(
            penstock_command("logs", "--follow", id_text(job)),
            env={**environment_of(os.environ), "PENSTOCK_URI": uri},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        os.set_blocking(self._descriptor, False)

    def read(self) -> str:
        """The output since the last call; at most `LOG_BYTES`."""
        try:
            return os.read(self._descriptor, LOG_BYTES).decode(errors="replace")
        except BlockingIOError:
            return ""

    def close(self) -> None:
        self._process.kill()
        # It closes the pipe, too.
        self._process.communicate()


class _Screen:
    """The view in a terminal."""

    def __init__(self, view: View, client: Client, clock: Clock, interval_s: float) -> None:
        self._view = view
        self._client = client
        self._clock = clock
        self._interval_s = interval_s
        self._log: _Log | None = None
        self._styles: dict[str, int] = {}

    def run(self, screen: curses.window) -> None:
        """Shows the view until the user quits."""
        self._prepare()
        due = 0.0
        try:
            while True:
                now = self._clock.monotonic()
                if now >= due:
                    self._refresh()
                    due = now + self._interval_s
                if self._log is not None and (text := self._log.read()):
                    self._view.add_log(text)
                self._draw(screen)
                wait = max(due - self._clock.monotonic(), 0.0)
                if self._log is not None:
                    wait = min(wait, LOG_INTERVAL_S)
                key = _key(screen, wait)
                action = self._view.press(key) if key else None
                if isinstance(action, Quit):
                    return
                if action is not None:
                    self._do(action)
                    due = 0.0
        finally:
            self._close_log()

    def _prepare(self) -> None:
        import curses

        with suppress(curses.error):
            curses.curs_set(0)
        self._styles = {
            "title": curses.A_BOLD,
            "selected": curses.A_REVERSE,
            "error": curses.A_BOLD,
            "bar": curses.A_NORMAL,
        }
        if not curses.has_colors() or os.environ.get("NO_COLOR"):
            return
        curses.use_default_colors()
        colors = [curses.COLOR_GREEN, curses.COLOR_YELLOW, curses.COLOR_RED, curses.COLOR_BLUE]
        for number, color in enumerate(colors, 1):
            curses.init_pair(number, color, -1)
        green, yellow, red, blue = map(curses.color_pair, range(1, 5))
        self._styles |= {
            **dict.fromkeys(["RUN", "COMPLETED", "allocated", "mixed"], green),
            **dict.fromkeys(["SCHED", "DEPEND", "PRIORITY", "draining", "drained"], yellow),
            **dict.fromkeys(["FAILED", "TIMEOUT", "offline", "excluded", "error"], red),
            **dict.fromkeys(["CANCELED", "bar"], blue),
        }

    def _refresh(self) -> None:
        try:
            refresh(self._view, self._client, self._clock)
        except RpcError as error:
            self._view.message = str(error)

    def _draw(self, screen: curses.window) -> None:
        import curses

        rows, columns = screen.getmaxyx()
        screen.erase()
        for row, line in enumerate(self._view.lines(rows, columns)):
            # The last cell of the screen cannot be written without an error.
            with suppress(curses.error):
                screen.addnstr(row, 0, line.text, columns, self._styles.get(line.style, 0))
        screen.refresh()

    def _do(self, action: Action) -> None:
        client, view = self._client, self._view
        try:
            if isinstance(action, OpenLog):
                self._close_log()
                self._log = _Log(client.uri, action.job)
            elif isinstance(action, CloseLog):
                self._close_log()
            elif isinstance(action, Cancel):
                errors = client.cancel([action.job]).errors
                view.message = "".join(errors.values())
            elif isinstance(action, Drain):
                client.drain(str(action.rank), action.reason)
            elif isinstance(action, Undrain):
                client.undrain(str(action.rank))
        except RpcError as error:
            view.message = str(error)

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def _key(screen: curses.window, wait_s: float) -> str | None:
    """The next key, as `View.press` takes it; None if there was none in this time."""
    import curses

    screen.timeout(max(int(wait_s * 1000), 1))
    try:
        key: Any = screen.get_wch()
    except curses.error:
        return None
    if isinstance(key, str):
        return {"\r": "\n", "\x1b": "ESC", "\x7f": "BACKSPACE", "\b": "BACKSPACE"}.get(key, key)
    if key == curses.KEY_RESIZE:
        # Text that was written for the former size is in the wrong place.
        screen.redrawwin()
    names = {
        curses.KEY_UP: "UP",
        curses.KEY_DOWN: "DOWN",
        curses.KEY_PPAGE: "PAGE_UP",
        curses.KEY_NPAGE: "PAGE_DOWN",
        curses.KEY_HOME: "HOME",
        curses.KEY_END: "END",
        curses.KEY_ENTER: "\n",
        curses.KEY_BACKSPACE: "BACKSPACE",
    }
    return names.get(key)
