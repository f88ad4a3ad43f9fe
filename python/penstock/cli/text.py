"""Text for a terminal: names and notes of other users made safe, times and durations in words.

Users choose what their jobs are called and why they cancel them. Without escapes a name could move
the cursor, or look like further rows of a table.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock._core import fluid_f58
from penstock.cli.encoding import is_unicode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock._core import ResourceSet

# Control characters, separators of lines, what changes the direction of writing or has no width,
# and surrogates, which have no UTF-8.
UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ud800-\udfff]"
)
# In seconds.
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def safe(text: str) -> str:
    r"""The text in one line, with unprintable characters as `\n`, `\x1b` or `\u2028`."""
    return text if text.isprintable() else UNSAFE.sub(_escaped, text)


def first_jobs(count: int) -> str:
    """The subject and the verb of a sentence about the first jobs of a list."""
    return "the first job is" if count == 1 else f"the first {count} jobs are"


def safe_lines(text: str, indent: str = "") -> str:
    """The same for text of several lines, such as a traceback; all but the first are indented."""
    return f"\n{indent}".join(safe(line) for line in text.split("\n"))


def id_text(job: int) -> str:
    """A job id in F58, or in its ASCII form if FLUX_F58_FORCE_ASCII is set (RFC 19)."""
    return next(id_texts([job]))


def id_texts(jobs: Iterable[int]) -> Iterator[str]:
    """The texts of many job ids, as `id_text` gives them."""
    names = map(fluid_f58, jobs)
    if os.environ.get("FLUX_F58_FORCE_ASCII"):
        return (name.replace("ƒ", "f") for name in names)
    return names


def json_text(value: Any) -> str:
    """A value as JSON in one line, readable and still JSON."""
    return safe_json(json.dumps(value, ensure_ascii=False))


def safe_json(text: str) -> str:
    r"""JSON from other users, possibly of several lines, with unprintable characters escaped.

    The JSON value does not change: outside of strings JSON has no such characters but white space.
    """
    text = UNSAFE.sub(lambda found: found[0] if found[0] in "\t\n\r" else _in_json(found), text)
    return text if is_unicode(sys.stdout) else NOT_ASCII.sub(_in_json, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in SHORT:
        return SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _in_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


# --- times


def resources_text(resources: ResourceSet) -> str:
    """The nodes, cores and gpus of a resource set, for people."""
    amounts = {"node": resources.nnodes, "core": resources.ncores, "gpu": resources.ngpus}
    shown = [f"{count} {name}{'s' * (count != 1)}" for name, count in amounts.items() if count]
    return f"{', '.join(shown)}: {resources.nodelist}"


def clock(when: float, now: float) -> str:
    """A time of day, with its date unless that is today.

    Args:
        when: seconds since the epoch.
        now: the current time, seconds since the epoch.
    """
    try:
        there, here = time.localtime(when), time.localtime(now)
    except (OverflowError, ValueError, OSError):
        # Out of the range of local times.
        return f"{when:g}"
    same = there[:3] == here[:3]
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", there)


def local_time(when: float) -> str:
    """A time in seconds since the epoch, as date and time of this time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def duration(seconds: float) -> str:
    """A duration (RFC 23) in the largest unit of which it has at least one: `45.000s`, `1.5h`."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.4g}{unit}"
    return f"{seconds:.3f}s"


def span(seconds: float) -> str:
    """A duration in the largest unit of which it has at least two: `45 s`, `12 min`, `3 h`."""
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"
