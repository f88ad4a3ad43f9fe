"""Templates: every value is escaped, and made safe to read, before it is part of a page."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from penstock.cli.rows import RESULTS, STATES, reason
from penstock.cli.selection import username
from penstock.cli.text import clock, id_text, safe_lines, span
from penstock.web.charts import number_text
from penstock.web.live import output_text

FOLDER = Path(__file__).parent


def _safe_value(value: Any) -> Any:
    """A value of a template: of text, characters that could change the order of writing escaped."""
    if value is None:
        return ""
    return safe_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def status(row: dict[str, Any]) -> str:
    """The result of an inactive job, else its state."""
    return RESULTS.get(row.get("result", 0)) or STATES[row["state"]]


def when(seconds: float, now: float) -> Markup:
    """A time, as an element that names it in full."""
    try:
        full = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
        local = time.strftime("%F %T %Z", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        full = local = f"{seconds:g}"
    text = '<time datetime="{}" title="{}">{}</time>'
    return Markup(text).format(full, local, clock(seconds, now))


def offset(seconds: float) -> str:
    """The time since the first event, to the millisecond while it is short."""
    return f"{seconds:.3f} s" if seconds < 10 else span(seconds)


def output(text: str) -> Markup:
    """Output of a job, with its tabs and line ends as they are."""
    return escape(output_text(text))


def environment() -> Environment:
    """The templates' environment."""
    env = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "count": number_text,
        "job_id": id_text,
        "offset": offset,
        "output": output,
        "reason": reason,
        "span": span,
        "status": status,
        "user": username,
        "when": when,
    }
    return env
