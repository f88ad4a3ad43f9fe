"""Submission directives: options in the comments of a script (RFC 36).

```sh
#!/bin/sh
#FLUX: -N4 --queue=batch     # as `penstock batch` takes them
#FLUX: --job-name="my job"
```

The tags are `flux:` and `penstock:`, in lower or upper case.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import DirectiveError

if TYPE_CHECKING:
    from collections.abc import Iterator

SENTINEL = re.compile(r"([^\w]*)(?:flux|FLUX|penstock|PENSTOCK):")
# The characters that a backslash escapes within double quotes (POSIX shell).
ESCAPED = '$`"\\'


@dataclass(frozen=True)
class Directive:
    """The words of one directive, and the number of the line on which it begins."""

    line: int
    words: tuple[str, ...]


def parse(text: str) -> list[Directive]:
    r"""The directives of a script, in order.

    Raises:
        DirectiveError: one cannot be read, has another sentinel than the first, or comes after
            a line that has ended them.

    >>> parse("#!/bin/sh\n# flux: -N4 -c2  # comment\nhostname\n")
    [Directive(line=2, words=('-N4', '-c2'))]
    """
    lines = _lines(text)
    return [Directive(number, tuple(_words(rest, number, lines))) for number, rest in lines]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The text after the sentinel, line by line, until another line ends the directives."""
    first: re.Match[str] | None = None
    over = 0
    for number, line in enumerate(text.split("\n"), 1):
        match = SENTINEL.match(line)
        if match is None:
            if first is not None and line.strip() and not line.startswith(first[1]):
                over = over or number
            continue
        first = first or match
        if over:
            raise DirectiveError(
                f"line {number}: a directive after line {over}, which has ended them"
            )
        if match[0] != first[0]:
            raise DirectiveError(
                f"line {number}: expected `{first[0]}` as in the first directive, found "
                f"`{match[0]}`"
            )
        yield number, line[match.end() :].removesuffix("\r")


def _words(text: str, number: int, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """A directive's words, as a POSIX shell would have them, and with triple quotes.

    Args:
        text: the rest of the directive's line.
        number: that line.
        lines: the following lines, for a triple-quoted text.
    """
    word: str | None = None
    place = 0
    while place < len(text):
        character = text[place]
        place += 1
        if character == "#":
            break
        if character.isspace():
            if word is not None:
                yield word
            word = None
            continue
        word = word or ""
        if character == "\\":
            word += text[place : place + 1]
            place += 1
        elif character not in "'\"":
            word += character
        elif text.startswith(2 * character, place):
            quoted, place = _triple(text, place + 2, 3 * character, number, lines)
            word += quoted
        else:
            quoted, place = _quoted(text, place, character, number)
            word += quoted
    if word is not None:
        yield word


def _quoted(text: str, place: int, quote: str, number: int) -> tuple[str, int]:
    """The text up to the closing quote, and the offset after the quote."""
    quoted = ""
    while place < len(text):
        character = text[place]
        place += 1
        if character == quote:
            return quoted, place
        if character == "\\" and quote == '"' and text[place : place + 1] in tuple(ESCAPED):
            character = text[place]
            place += 1
        quoted += character
    raise DirectiveError(f"line {number}: expected a closing {quote}")


def _triple(
    text: str, place: int, quotes: str, number: int, lines: Iterator[tuple[int, str]]
) -> tuple[str, int]:
    """The text between triple quotes, on one line or several, and the offset after them."""
    end = text.find(quotes, place)
    if end >= 0:
        return text[place:end], end + 3
    if text[place:].strip():
        raise DirectiveError(
            f"line {number}: expected {quotes} at the end of the line, or closed on it"
        )
    parts: list[str] = []
    for there, line in lines:
        if there != number + 1 + len(parts):
            break
        if line.rstrip().endswith(quotes):
            last = line.rstrip()[:-3]
            parts.append(last if last.strip() else "")
            return textwrap.dedent("\n".join(parts)), len(text)
        parts.append(line)
    raise DirectiveError(
        f"line {number}: expected closing {quotes}, on lines that begin as this one does"
    )
