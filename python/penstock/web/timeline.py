"""A job's events in words, and its stages as a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.rows import Event

# The parts of contexts that are shown. Others may hold parts of the jobspec or of the environment.
SHOWN_KEYS = (
    "urgency",
    "priority",
    "type",
    "severity",
    "note",
    "status",
    "description",
    "ranks",
    "final",
    "userid",
    "reason",
)


@dataclass(frozen=True)
class Entry:
    """An event: its time, its name, the seconds since the first event, and its context in words."""

    time: float
    name: str
    offset: float
    text: str


@dataclass(frozen=True)
class Stage:
    """A stage of a job: its name and length, and where it is drawn, of 1000."""

    name: str
    seconds: float
    x: float
    width: float


def entries(events: Sequence[Event]) -> list[Entry]:
    """The events of a job or a node, in order."""
    first = events[0]["timestamp"] if events else 0.0
    return [
        Entry(
            event["timestamp"],
            event["name"],
            event["timestamp"] - first,
            _text(event.get("context", {})),
        )
        for event in events
    ]


def _text(context: Mapping[str, Any]) -> str:
    shown = ((key, context[key]) for key in SHOWN_KEYS if key in context)
    return ", ".join(
        f"{key} {value}" for key, value in shown if isinstance(value, (str, int, float))
    )


def stages(row: Mapping[str, Any], now: float) -> list[Stage]:
    """The stages of a job: pending, run, cleanup, each until the next one began or until now."""
    marks = [("pending", "t_submit"), ("run", "t_run"), ("cleanup", "t_cleanup")]
    begins = [(name, row[key]) for name, key in marks if key in row]
    end = max(row.get("t_inactive", now), *(begin for _, begin in begins))
    ends = [*(begin for _, begin in begins[1:]), end]
    total = max(end - begins[0][1], 1e-9)
    found, x = [], 0.0
    for (name, begin), until in zip(begins, ends, strict=True):
        seconds = max(0.0, until - begin)
        width = 1000 * seconds / total
        found.append(Stage(name, seconds, x, width))
        x += width
    return found
