"""Suggestions in errors about unknown names: the most similar known name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["closest", "suggestion", "with_suggestion"]

# The form of these errors in all parts of Penstock: unknown queue `x`: expected batch, debug
UNKNOWN = re.compile(r"\bunknown [\w -]*`([^`]*)`: expected ([^;`\n]+)$")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name, upper and lower case alike; None if no name is similar.

    The dashes that begin an option do not count.
    """
    import difflib

    names = {each.lower().lstrip("-"): each for each in known}
    close = difflib.get_close_matches(name.lower().lstrip("-"), names, 1)
    return names[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """The suggestion at the end of an error message; empty if no known name is similar."""
    close = closest(name, known)
    return f"; did you mean `{close}`?" if close else ""


def with_suggestion(text: str) -> str:
    """An error message; one about an unknown name among known ones gets a suggestion."""
    found = UNKNOWN.search(text)
    return text + suggestion(found[1], re.split(", | or ", found[2])) if found else text
