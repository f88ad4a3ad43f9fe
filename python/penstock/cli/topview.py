"""The view of `penstock top`: keys change it, and it draws itself as lines; no terminal here."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cli.jobformats import DEFAULT_FORMAT, FORMAT_WITH_QUEUES
from penstock.cli.jobs import RowFormatter, fields
from penstock.cli.text import clock, id_text, safe
from penstock.cli.topdata import MAX_JOBS, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cli.topdata import NodeRow, QueueRow
    from penstock.rows import JobRow

MAX_LOG_LINES = 1000
# The shortest list that is shown above a log.
MIN_LIST_LINES = 4
BAR_COLUMNS = 24

VIEWS = ("jobs", "nodes", "queues")
FILTERS = ("active", "running", "pending", "inactive")
# `order` is that of the instance: running, pending by position, inactive.
JOB_SORTS = ("state", "runtime", "nnodes", "username", "name", "priority")
NODE_SORTS = ("rank", "state", "used", "host")
# The fields of a job that a search looks into.
SEARCHED = ("id", "username", "name", "queue", "status", "nodelist", "reason")

KEYS = (
    ("1 2 3, Tab", "jobs, nodes, queues"),
    ("Up Down j k, PgUp PgDn, g G", "select a row"),
    ("/", "search: only rows with a text; Esc shows all"),
    ("f", "jobs: active, running, pending, inactive"),
    ("a", "jobs of all users, or of this one"),
    ("s, r", "the next order; reverse it"),
    ("Enter", "the log of the selected job, and back"),
    ("c", "cancel the selected job"),
    ("d, u", "drain the selected node, undrain it"),
    ("Space", "refresh now"),
    ("?", "this page"),
    ("q", "quit"),
)


# --- requests of the view


@dataclass(frozen=True)
class Quit:
    """End the program."""


@dataclass(frozen=True)
class Refresh:
    """Request another snapshot now."""


@dataclass(frozen=True)
class Cancel:
    """Cancel a job."""

    job: int


@dataclass(frozen=True)
class Drain:
    """Drain a node."""

    rank: int
    reason: str


@dataclass(frozen=True)
class Undrain:
    """Undrain a node."""

    rank: int


@dataclass(frozen=True)
class OpenLog:
    """Follow the output of a job."""

    job: int


@dataclass(frozen=True)
class CloseLog:
    """Follow no output."""


Action = Quit | Refresh | Cancel | Drain | Undrain | OpenLog | CloseLog


class Line(NamedTuple):
    """A line of the screen; its style is a status, `title`, `selected`, `bar`, `error` or none."""

    text: str
    style: str = ""


class View:
    """The contents of the screen.

    Args:
        uri: the address of the instance.
        of_everyone: begin with the jobs of all users.
    """

    def __init__(self, uri: str, *, of_everyone: bool) -> None:
        self._uri = uri
        self.of_everyone = of_everyone
        self.view = "jobs"
        self.filter = "active"
        self.message = ""
        self._snapshot = Snapshot(now=0.0)
        self._search = ""
        self._sorts = {"jobs": "state", "nodes": "rank", "queues": "name"}
        self._is_reversed = False
        # The key of the selected row of each view: it stays selected when rows move.
        self._selected: dict[str, int | str] = {}
        self._first = 0
        self._page = 1
        self._shows_help = False
        # A question at the bottom, its answer so far, and what is done with it.
        self._question = ""
        self._answer = ""
        self._answered: Callable[[str], Action | None] | None = None
        self._log_job: int | None = None
        self._log: deque[str] = deque([""], MAX_LOG_LINES)

    # --- data

    def constraint(self) -> dict[str, Any]:
        """The jobs to request (RFC 43)."""
        parts: list[dict[str, Any]] = [{"states": [self.filter]}]
        if not self.of_everyone:
            parts.append({"userid": [os.getuid()]})
        return {"and": parts}

    def update(self, snapshot: Snapshot) -> None:
        """Takes the state of the instance."""
        self._snapshot = snapshot

    def add_log(self, text: str) -> None:
        """Adds output of the job whose log is shown."""
        first, *rest = text.split("\n")
        self._log[-1] += first
        self._log.extend(rest)

    def _rows(self) -> list[tuple[int | str, str, str]]:
        """Key, text and style of each row that the view has."""
        rows = {"jobs": self._job_rows, "nodes": self._node_rows, "queues": self._queue_rows}
        return rows[self.view]()

    def _job_rows(self) -> list[tuple[int | str, str, str]]:
        now = self._snapshot.now
        formatter = self._job_formatter()
        rows = [(row, fields(row, now)) for row in self._snapshot.jobs]
        if self._search:
            rows = [
                pair
                for pair in rows
                if any(self._search in str(pair[1].get(key) or "").lower() for key in SEARCHED)
            ]
        key = self._sorts["jobs"]
        if key == "runtime":
            rows.sort(key=lambda pair: _runtime(pair[0], now), reverse=True)
        elif key in ("nnodes", "priority"):
            rows.sort(key=lambda pair: pair[1][key] or 0, reverse=True)
        elif key != "state":
            rows.sort(key=lambda pair: pair[1][key] or "")
        if self._is_reversed:
            rows.reverse()
        return [
            (row["id"], formatter.line(values).rstrip(), values["status"]) for row, values in rows
        ]

    def _job_formatter(self) -> RowFormatter:
        has_queues = [queue.name for queue in self._snapshot.queues] not in ([], ["-"])
        return RowFormatter(FORMAT_WITH_QUEUES if has_queues else DEFAULT_FORMAT)

    def _node_rows(self) -> list[tuple[int | str, str, str]]:
        keys: dict[str, Callable[[NodeRow], Any]] = {
            "rank": lambda node: node.rank,
            "state": lambda node: node.state,
            "used": lambda node: -node.used.cores / max(node.total.cores, 1),
            "host": lambda node: node.host,
        }
        nodes = sorted(self._snapshot.nodes, key=keys[self._sorts["nodes"]])
        if self._is_reversed:
            nodes.reverse()
        return [
            (node.rank, _node_line(node), node.state)
            for node in nodes
            if self._search in f"{node.rank} {node.host} {node.state} {node.reason}".lower()
        ]

    def _queue_rows(self) -> list[tuple[int | str, str, str]]:
        queues = sorted(self._snapshot.queues, key=lambda queue: queue.name)
        if self._is_reversed:
            queues.reverse()
        return [
            (queue.name, _queue_line(queue), "")
            for queue in queues
            if self._search in queue.name.lower()
        ]

    def _position(self, rows: Sequence[tuple[int | str, str, str]]) -> int:
        """The position of the selected row; that of the first if it is no longer there."""
        keys = [key for key, _, _ in rows]
        selected = self._selected.get(self.view)
        return keys.index(selected) if selected in keys else 0

    # --- keys

    def press(self, key: str) -> Action | None:
        """Takes a key: a character, or a name such as `UP`; returns what it requests."""
        if self._answered is not None:
            return self._press_in_answer(key)
        self.message = ""
        if self._shows_help:
            self._shows_help = False
            return Quit() if key == "q" else None
        if key in ("1", "2", "3"):
            return self._show(VIEWS[int(key) - 1])
        if key == "\t":
            return self._show(VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)])
        if key in MOVES:
            self._move(MOVES[key])
            return None
        command = self._commands().get(key)
        return command() if command else None

    def _commands(self) -> dict[str, Callable[[], Action | None]]:
        common: dict[str, Callable[[], Action | None]] = {
            "q": Quit,
            " ": Refresh,
            "?": self._help,
            "h": self._help,
            "/": self._begin_search,
            "ESC": self._escape,
            "s": self._next_sort,
            "r": self._reverse,
        }
        of_view: dict[str, dict[str, Callable[[], Action | None]]] = {
            "jobs": {
                "f": self._next_filter,
                "a": self._other_users,
                "\n": self._toggle_log,
                "c": self._begin_cancel,
            },
            "nodes": {"d": self._begin_drain, "u": self._undrain},
            "queues": {},
        }
        return common | of_view[self.view]

    def _press_in_answer(self, key: str) -> Action | None:
        if key == "\n":
            answered, answer = self._answered, self._answer
            self._answered = None
            return answered(answer) if answered else None
        if key == "ESC":
            self._answered = None
        elif key == "BACKSPACE":
            self._answer = self._answer[:-1]
        elif len(key) == 1 and key.isprintable():
            self._answer += key
        return None

    def _ask(self, question: str, answered: Callable[[str], Action | None]) -> None:
        self._question, self._answer, self._answered = question, "", answered

    def _show(self, view: str) -> Action | None:
        if view == self.view:
            return None
        self.view, self._first = view, 0
        return self._close_log() or Refresh()

    def _move(self, distance: float) -> None:
        rows = self._rows()
        if not rows:
            return
        if abs(distance) == WHOLE_PAGE:
            distance = self._page if distance > 0 else -self._page
        position = min(max(self._position(rows) + distance, 0), len(rows) - 1)
        self._selected[self.view] = rows[int(position)][0]

    def _help(self) -> None:
        self._shows_help = True

    def _begin_search(self) -> None:
        self._ask("search: ", self._set_search)

    def _set_search(self, text: str) -> None:
        self._search, self._first = text.lower(), 0

    def _escape(self) -> Action | None:
        if self._log_job is not None:
            return self._close_log()
        self._search = ""
        return None

    def _next_sort(self) -> None:
        sorts = {"jobs": JOB_SORTS, "nodes": NODE_SORTS, "queues": ("name",)}[self.view]
        self._sorts[self.view] = sorts[(sorts.index(self._sorts[self.view]) + 1) % len(sorts)]

    def _reverse(self) -> None:
        self._is_reversed = not self._is_reversed

    def _next_filter(self) -> Action:
        self.filter = FILTERS[(FILTERS.index(self.filter) + 1) % len(FILTERS)]
        self._first = 0
        return Refresh()

    def _other_users(self) -> Action:
        self.of_everyone = not self.of_everyone
        return Refresh()

    def _selected_key(self) -> int | str | None:
        rows = self._rows()
        if not rows:
            self.message = f"no {self.view[:-1]} is selected"
            return None
        return rows[self._position(rows)][0]

    def _toggle_log(self) -> Action | None:
        if self._log_job is not None:
            return self._close_log()
        key = self._selected_key()
        if not isinstance(key, int):
            return None
        self._selected[self.view] = key
        self._log_job = key
        self._log = deque([""], MAX_LOG_LINES)
        return OpenLog(key)

    def _close_log(self) -> Action | None:
        if self._log_job is None:
            return None
        self._log_job = None
        return CloseLog()

    def _begin_cancel(self) -> None:
        key = self._selected_key()
        if isinstance(key, int):
            self._ask(
                f"cancel {id_text(key)}? y/n, then Enter: ",
                lambda answer: Cancel(key) if answer == "y" else None,
            )

    def _begin_drain(self) -> None:
        key = self._selected_key()
        if isinstance(key, int):
            self._ask(f"drain rank {key}, reason: ", lambda reason: Drain(key, reason))

    def _undrain(self) -> Action | None:
        key = self._selected_key()
        return Undrain(key) if isinstance(key, int) else None

    # --- lines

    def lines(self, rows: int, columns: int) -> list[Line]:
        """The screen: at most `rows` lines, none longer than `columns`."""
        if self._shows_help:
            width = max(len(keys) for keys, _ in KEYS)
            shown = [Line(f"{keys:<{width}}  {text}") for keys, text in KEYS]
            lines = [Line("penstock top: keys", "title"), *shown]
        else:
            lines = self._header(columns)
            lines += self._list(max(rows - len(lines) - 1, 0), columns)
            lines = lines[: rows - 1]
            lines += [Line("")] * (rows - 1 - len(lines))
            lines.append(self._footer())
        return [Line(_fitted(line.text, columns), line.style) for line in lines[:rows]]

    def text(self, columns: int, rows: int) -> str:
        """The screen as text, without the empty lines below the list."""
        lines = [line.text.rstrip() for line in self.lines(rows, columns)]
        footer = lines.pop()
        return "\n".join(["\n".join(lines).rstrip(), "", footer])

    def _header(self, columns: int) -> list[Line]:
        shot = self._snapshot
        when = clock(shot.now, shot.now)
        uri = _fitted(safe(self._uri), max(columns - len(when) - 16, 0))
        counts = f"{shot.running} running, {shot.pending} pending, {shot.inactive} inactive"
        total = shot.total.nodes
        nodes = (
            f"{total} node{'s' * (total != 1)}: {shot.used.nodes} with jobs, {shot.down.nodes} down"
        )
        used = [("cores", shot.used.cores, shot.total.cores)]
        if shot.total.gpus:
            used.append(("gpus", shot.used.gpus, shot.total.gpus))
        bars = "  ".join(_bar(name, part, total) for name, part, total in used)
        return [
            Line(f"penstock top  {when}  {uri}", "title"),
            Line(f"jobs  {counts}"),
            Line(f"      {nodes}"),
            Line(bars, "bar"),
            Line(""),
        ]

    def _list(self, lines: int, columns: int) -> list[Line]:
        log_lines = max(lines - MIN_LIST_LINES, 0) * 2 // 3 if self._log_job is not None else 0
        rows = self._rows()
        position = self._position(rows)
        self._page = max(lines - log_lines - 1, 1)
        self._first = min(self._first, position)
        self._first = max(self._first, position - self._page + 1)
        shown = [Line(self._titles(), "title")]
        for place, (_, text, style) in enumerate(rows[self._first : self._first + self._page]):
            is_selected = self._first + place == position
            shown.append(
                Line(_fitted(text, columns).ljust(columns), "selected")
                if is_selected
                else Line(text, style)
            )
        if log_lines and self._log_job is not None:
            shown += [Line("")] * (lines - log_lines - len(shown))
            shown.append(Line(f"--- log of {id_text(self._log_job)} (Enter closes it)", "title"))
            shown += [Line(safe(text)) for text in self._last_log_lines(log_lines - 1)]
        return shown

    def _last_log_lines(self, count: int) -> list[str]:
        lines = list(self._log)
        if not lines[-1]:
            lines.pop()
        return lines[-count:] if count else []

    def _titles(self) -> str:
        if self.view == "jobs":
            return self._job_formatter().header().rstrip()
        return NODE_TITLES if self.view == "nodes" else QUEUE_TITLES

    def _footer(self) -> Line:
        if self._answered is not None:
            return Line(f"{self._question}{self._answer}_", "title")
        if self.message:
            return Line(safe(self.message), "error")
        words = [
            f"[{self.view}]",
            f"order: {self._sorts[self.view]}{' reversed' * self._is_reversed}",
        ]
        if self.view == "jobs":
            words += [self.filter, "all users" if self.of_everyone else "this user"]
            if len(self._snapshot.jobs) == MAX_JOBS:
                words.append(f"the first {MAX_JOBS}")
        if self._search:
            words.append(f"search: {safe(self._search)}")
        return Line("  ".join([*words, "? keys  q quit"]), "title")


WHOLE_PAGE = 1_000_000_000
MOVES: dict[str, float] = {
    "UP": -1,
    "k": -1,
    "DOWN": 1,
    "j": 1,
    "PAGE_UP": -WHOLE_PAGE,
    "PAGE_DOWN": WHOLE_PAGE,
    "g": float("-inf"),
    "HOME": float("-inf"),
    "G": float("inf"),
    "END": float("inf"),
}
NODE_TITLES = f"{'RANK':>7} {'HOST':<20} {'STATE':<9} {'CORES':>11} {'GPUS':>7} REASON"
QUEUE_TITLES = f"{'QUEUE':<16} {'SUBMIT':<8} {'START':<7} {'RUNNING':>8} {'PENDING':>8} REASON"


def _runtime(row: JobRow, now: float) -> float:
    return (row.get("t_cleanup") or now) - row["t_run"] if row.get("t_run") else -1.0


def _node_line(node: NodeRow) -> str:
    cores = f"{node.used.cores}/{node.total.cores}"
    gpus = f"{node.used.gpus}/{node.total.gpus}"
    host = f"{safe(node.host):<20.20}"
    return (
        f"{node.rank:>7} {host} {node.state:<9} {cores:>11} {gpus:>7} {safe(node.reason)}".rstrip()
    )


def _queue_line(queue: QueueRow) -> str:
    submit = "enabled" if queue.is_enabled else "disabled"
    start = "started" if queue.is_started else "stopped"
    numbers = f"{queue.running:>8} {queue.pending:>8}"
    return (
        f"{safe(queue.name):<16.16} {submit:<8} {start:<7} {numbers} {safe(queue.reason)}".rstrip()
    )


def _bar(name: str, used: int, total: int) -> str:
    filled = BAR_COLUMNS * used // total if total else 0
    percent = 100 * used / total if total else 0.0
    bar = "#" * filled + "-" * (BAR_COLUMNS - filled)
    return f"{name} [{bar}] {percent:.0f} % ({used}/{total})"


def _fitted(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: max(columns - 1, 0)]}+"[:columns]
