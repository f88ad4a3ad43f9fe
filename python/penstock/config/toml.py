"""The configuration as TOML: read into the declared tables, and written.

Reading finds every problem, each named by its key.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
import types
import typing
from pathlib import Path
from typing import Any

from penstock._core import parse_duration, validate_constraint
from penstock.config.contradictions import contradictions
from penstock.config.declaration import (
    Constraint,
    Count,
    Seconds,
    annotation,
    invalid_values,
    joined,
    spelled,
)
from penstock.config.tables import Config
from penstock.errors import ConfigError, Error
from penstock.paths import read_text
from penstock.suggestion import closest

# TOML's integers are 64-bit signed numbers, as the services' settings are; `tomllib` reads longer
# ones, too.
MAX_INTEGER = 2**63 - 1


def parse(text: str, name: str = "configuration") -> Config:
    """Reads a configuration.

    Args:
        text: TOML.
        name: The name of the document in errors.

    Raises:
        ConfigError: it is invalid; the error has every problem.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(name, [str(error)]) from error
    return from_dict(document, name)


def from_dict(document: dict[str, Any], name: str = "configuration") -> Config:
    """A configuration from the tables of a TOML document, or of `to_dict`.

    Raises:
        ConfigError: it is invalid; the error has every problem.
    """
    problems: list[str] = []
    config = _build(Config, document, "", problems)
    # A value of another kind is left out: its key is as good as absent from here on.
    rest = [*invalid_values(config), *contradictions(config)]
    problems += [problem for problem in rest if not _follows(problem, problems)]
    if problems:
        raise ConfigError(name, problems)
    assert isinstance(config, Config)
    return config


def load(path: Path) -> Config:
    """Reads a configuration file, or the files of a directory.

    Raises:
        ConfigError: a file cannot be read, or the configuration is invalid.
    """
    return from_dict(document(path), f"`{path}`")


def document(path: Path) -> dict[str, Any]:
    """The tables of a file, or those of the files `*.toml` of a directory together.

    The files of a directory are read by name; a value of a later one replaces that of an earlier
    one, and tables are joined key by key.

    Raises:
        ConfigError: a file cannot be read, or is not TOML.
    """
    if not path.is_dir():
        return _tables(path)
    merged: dict[str, Any] = {}
    for file in sorted(path.glob("*.toml")):
        _merge(merged, _tables(file))
    return merged


def _tables(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"`{path}`", [reason]) from error


def _merge(tables: dict[str, Any], later: dict[str, Any]) -> None:
    for key, value in later.items():
        before = tables.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            _merge(before, value)
        else:
            tables[key] = value


def _build(kind: Any, value: Any, path: str, problems: list[str]) -> Any:
    """A value of the annotated kind; a value of another kind is a problem with its path."""

    def wrong(expected: str) -> None:
        problems.append(f"{path}: expected {expected}, found {_show(value)}")

    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _build(annotation(kind), value, path, problems)
    if dataclasses.is_dataclass(kind):
        return _build_table(kind, value, path, problems)
    if origin is dict:
        if not isinstance(value, dict):
            return wrong("a table")
        tables = {
            key: _build(args[1], item, joined(path, key), problems) for key, item in value.items()
        }
        return {key: item for key, item in tables.items() if item is not None}
    if origin is tuple:
        if not isinstance(value, list):
            return wrong("a list")
        items = enumerate(value)
        built = (_build(args[0], item, f"{path}[{n}]", problems) for n, item in items)
        return tuple(item for item in built if item is not None)
    if origin is typing.Literal:
        return value if value in args else wrong(" or ".join(f'"{arg}"' for arg in args))
    return _build_scalar(kind, value, wrong)


def _build_scalar(kind: Any, value: Any, wrong: typing.Callable[[str], None]) -> Any:
    if kind is Seconds:
        try:
            if isinstance(value, str):
                seconds = parse_duration(value)
            else:
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                seconds = float(value) if number and value >= 0 else math.nan
        except (Error, OverflowError):
            seconds = math.nan
        if math.isinf(seconds):
            return wrong("a finite duration")
        if math.isnan(seconds):
            return wrong('a duration such as "30m", or seconds')
        return Seconds(seconds)
    if kind is Constraint:
        return _build_constraint(value, wrong)
    if kind is Count:
        good = _is_whole(value) and -1 <= value <= MAX_INTEGER
        return value if good else wrong(f"a whole number up to {MAX_INTEGER}, or -1 for any number")
    if kind is Path:
        return Path(value) if isinstance(value, str) and value else wrong("a path")
    if kind is int:
        good = _is_whole(value) and 0 <= value <= MAX_INTEGER
        return value if good else wrong(f"a whole number up to {MAX_INTEGER}")
    names = {str: "a string", bool: "true or false"}
    return value if isinstance(value, kind) else wrong(names[kind])


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _build_constraint(value: Any, wrong: typing.Callable[[str], None]) -> Any:
    if not isinstance(value, dict):
        return wrong("a constraint of RFC 31")
    try:
        validate_constraint(json.dumps(value, default=str))
    except Error as error:
        return wrong(f"a constraint of RFC 31 ({error})")
    return value


def _build_table(kind: Any, value: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(value, dict):
        problems.append(f"{path}: expected a table, found {_show(value)}")
        return kind()
    hints = typing.get_type_hints(kind)
    known = {spelled(field): field.name for field in dataclasses.fields(kind)}
    built = {}
    for key, item in value.items():
        # Flux spells some of its keys with `_`; both spellings are accepted.
        name = known.get(key.replace("_", "-"))
        if name in built:
            problems.append(f"`{joined(path, key)}` is given twice, with `-` and with `_`")
        elif name is not None:
            built[name] = _build(hints[name], item, joined(path, key), problems)
        else:
            close = closest(key, known)
            hint = f"did you mean `{close}`?" if close else f"expected {', '.join(known)}"
            problems.append(f"unknown key `{joined(path, key)}`: {hint}")
    return kind(**{name: item for name, item in built.items() if item is not None})


def _follows(problem: str, problems: list[str]) -> bool:
    """Whether a key is missing only because its value is of another kind."""
    path, _, key = problem.partition(": expected the key ")
    path = joined(path, key.strip("`")) if key else problem.partition(": ")[0]
    return any(each.startswith((f"{path}:", f"{path}[")) for each in problems)


def _show(value: Any) -> str:
    return "a table" if isinstance(value, dict) else json.dumps(value, default=str)


# --- writing


def to_toml(document: dict[str, Any], prefix: str = "") -> str:
    """The TOML text of a configuration's tables."""
    lines, tables = [], []
    for key, value in document.items():
        name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            tables.append(to_toml(value, path))
        else:
            lines.append(f"{name} = {_inline(value)}\n")
    # An empty table is kept: its name means something.
    head = f"[{prefix}]\n" if prefix and (lines or not tables) else ""
    body = head + "".join(lines)
    return "\n".join(part for part in [body, *tables] if part)


def _inline(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and value == float("inf"):
        return "inf"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, except surrogate pairs and DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
