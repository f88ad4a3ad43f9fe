"""`docs/configuration.md` has every key of the configuration, as it is."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
import typing
from pathlib import Path

import pytest

from penstock import config as module
from penstock._core import parse_duration
from penstock.config import Config, parse
from penstock.instance.config_reload import RELOADABLE

PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
# The kinds of values, by how a field is annotated.
KINDS = {
    str: {"string", "targets", "hosts", "ids"},
    bool: {"boolean"},
    int: {"number"},
    Path: {"path"},
    module.Seconds: {"duration"},
    module.Count: {"limit"},
    tuple: {"list of strings", "list of tables"},
}


@dataclasses.dataclass
class Key:
    """A key as the dataclasses have it."""

    hint: typing.Any
    default: typing.Any


def keys(kind: type, path: str = "") -> dict[str, Key]:
    """The keys of a table, in dotted form; those of `queues.NAME.policy` are `policy`'s."""
    found: dict[str, Key] = {}
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name = path + field.name.replace("_", "-")
        hint = hints[field.name]
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            (hint,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        args = typing.get_args(hint)
        if dataclasses.is_dataclass(hint) and name != "queues.NAME.policy":
            found |= keys(hint, f"{name}.")
        elif typing.get_origin(hint) is dict and dataclasses.is_dataclass(args[1]):
            found |= keys(args[1], f"{name}.NAME.")
        elif typing.get_origin(hint) is dict:
            found[f"{name}.NAME"] = Key(args[1], None)
        else:
            default = field.default if field.default is not dataclasses.MISSING else None
            found[name] = Key(hint, default)
            if args and dataclasses.is_dataclass(args[0]):
                found |= keys(args[0], f"{name}[].")
    return found


def rows() -> dict[str, list[str]]:
    """The page's rows: kind, default, what and reload by key."""
    found = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and (key := re.fullmatch("`([^`]+)`", cells[0])):
            assert key[1] not in found, f"{key[1]} has two rows"
            found[key[1]] = cells[1:]
    return found


KEYS, ROWS = keys(Config), rows()


def test_every_key_has_a_row_and_every_row_is_a_key() -> None:
    assert set(ROWS) == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_a_row_says_kind_and_default(key: str) -> None:
    kind, default, what, _ = ROWS[key]
    assert what
    hint, value = KEYS[key].hint, KEYS[key].default
    if typing.get_origin(hint) is typing.Literal:
        assert re.findall('"([a-z]+)"', kind) == list(typing.get_args(hint))
    elif not dataclasses.is_dataclass(hint) and hint is not module.Constraint:
        assert kind in KINDS[typing.get_origin(hint) or hint]
    if key in ("penstock.socket", "penstock.state"):
        assert default == "see below"
    elif key == "resource.config[].hosts":
        assert default == "required"
    elif value in (None, "", ()) or dataclasses.is_dataclass(value):
        assert default == "none"
    else:
        told = default.strip("`")
        plain = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
        if hint is module.Seconds:
            assert parse_duration(told) == value
        else:
            assert told == (plain or (f'"{value}"' if isinstance(value, str) else str(value)))


@pytest.mark.parametrize("key", KEYS)
def test_a_row_says_whether_a_reload_may_change_the_key(key: str) -> None:
    names = tuple(key.split("."))
    reloadable = any(names[: len(it)] == it for it in RELOADABLE)
    assert ROWS[key][3] == ("yes" if reloadable else "")


def test_the_examples_are_right_and_have_every_key() -> None:
    said: set[str] = set()
    for block in re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        text = block.replace("# path", "path")
        parse(text)
        said |= set(leaves(tomllib.loads(text)))
    assert set(KEYS) - {"queues.NAME.policy"} <= said


def leaves(value: object, path: str = "") -> typing.Iterator[str]:
    """The dotted keys of a document, with `NAME` for what a user has named."""
    if isinstance(value, list):
        yield path
        for item in value:
            if isinstance(item, dict):
                yield from leaves(item, f"{path}[]")
    elif isinstance(value, dict) and path != "queues.NAME.constraint":
        for key, item in value.items():
            named = path in ("queues", "resource.properties", "penstock.scheduler.queues")
            name = "NAME" if named else key.replace("_", "-")
            yield from leaves(item, f"{path}.{name}" if path else name)
    else:
        yield path
