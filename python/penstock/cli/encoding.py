"""Locales other than UTF-8: what they cannot show is written in ASCII forms."""

from __future__ import annotations

import codecs
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

ASCII_FORMS = {"ƒ": "f", "…": "..."}
ERROR_HANDLER = "penstock.ascii_forms"


def is_unicode(stream: TextIO | None) -> bool:
    """Whether a stream can write any text."""
    return str(getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")


def open_missing_streams() -> None:
    """Opens /dev/null for each standard stream with which the process was started closed.

    Python has None in its place, where `print` writes to another stream, and the next file that is
    opened gets its descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, os.O_RDWR), mode)
            os.set_inheritable(stream.fileno(), True)  # noqa: FBT003
            setattr(sys, name, stream)


def adapt_streams() -> None:
    """Lets standard output and standard error write any text."""
    for stream in (sys.stdout, sys.stderr):
        if not is_unicode(stream):
            codecs.register_error(ERROR_HANDLER, _ascii_form)
            stream.reconfigure(errors=ERROR_HANDLER)  # type: ignore[union-attr]


def decoded_argument(text: str) -> str:
    """An argument of the command line as UTF-8, whatever the locale is."""
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text


def _ascii_form(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if character in ASCII_FORMS:
        return ASCII_FORMS[character], error.start + 1
    error.end = error.start + 1
    return codecs.backslashreplace_errors(error)
