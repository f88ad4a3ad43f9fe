"""Suggestions for unknown names: the known one that may have been meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["closest", "suggestion", "with_suggestion"]

# As every part of Penstock writes it: unknown queue `x`: expected batch, debug
UNKNOWN = re.compile(r"\bunknown [\w -]*`([^`]*)`: expected ([^;`\n]+)$")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; None if none is."""
    import difflib

    names = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), names, 1)
    return names[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name."""
    close = closest(name, known)
    return f"; did you mean `{close}`?" if close else ""


def with_suggestion(text: str) -> str:
    """An error message that lists the known names, with the one that may have been meant."""
    found = UNKNOWN.search(text)
    return text + suggestion(found[1], re.split(", | or ", found[2])) if found else text
