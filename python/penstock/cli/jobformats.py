"""Formats of `penstock jobs` that have names: its own, the site's and the user's."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import ConfigError, FormatError

SITE_FORMATS = Path("/etc/penstock/jobs.toml")

DEFAULT_FORMAT = (
    "{id:>12} {username:<8.8} {name:<10.10} {status_abbrev:>2} {ntasks:>6} {nnodes:>6} "
    "{runtime:>9} {info}"
)
FORMAT_WITH_QUEUES = DEFAULT_FORMAT.replace("{username", "{queue:<8.8} {username", 1)
# As in flux jobs.
NAMED_FORMATS = {
    "default": DEFAULT_FORMAT,
    "long": (
        "{id:>12} {queue:<8.8} {username:<8.8} {name:<10.10} {status:>9} {urgency:>3} "
        "{priority:>10} {ntasks:>6} {nnodes:>6} {ncores:>6} {t_submit!d:%F %T} {runtime:>9} {info}"
    ),
    "endreason": (
        "{id:>12} {username:<8.8} {name:<10.10} {status_abbrev:>2} {t_inactive!d:%F %T} "
        "{runtime:>9} {returncode:>4} {reason}"
    ),
}


def user_formats() -> Path:
    """`$XDG_CONFIG_HOME/penstock/jobs.toml`, or below `~/.config` without that."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "penstock/jobs.toml"


def configured_formats() -> dict[str, str]:
    """The formats of the site, and those of the user in place of ones with the same name.

    Raises:
        ConfigError: a file is no TOML, or has another key than `formats`, a table of texts.
    """
    return _read(SITE_FORMATS) | _read(user_formats())


def named_format(text: str) -> str:
    """A format, or the one with this name.

    Raises:
        ConfigError: see `configured_formats`.
        FormatError: the text has no field and is no name.
    """
    if "{" in text:
        return text
    formats = NAMED_FORMATS | configured_formats()
    if text not in formats:
        raise FormatError(f"unknown format `{text}`: expected {', '.join(formats)}")
    return formats[text]


def _read(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), [str(error)]) from None
    formats = document.pop("formats", {})
    problems = [f"unknown key `{key}`: expected formats" for key in document]
    if not isinstance(formats, dict):
        raise ConfigError(str(path), [*problems, "formats: expected a table"])
    problems += [
        f"formats.{name}: expected a text"
        for name, form in formats.items()
        if not isinstance(form, str)
    ]
    if problems:
        raise ConfigError(str(path), problems)
    return formats
