"""The declaration of configuration keys: a dataclass field with its documentation and its checks.

A table of the configuration is a frozen dataclass; a key is a field made by `key`. Everything else
follows from that one declaration: the default, the checks, the row in `docs/configuration.md`,
whether a reload may change the key, and the settings of the services in Rust.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Raises `penstock.Error` for an invalid value.
    Check = Callable[[Any], object]

Seconds = typing.NewType("Seconds", float)
# A number of things, or -1 for any number.
Count = typing.NewType("Count", int)
# A constraint of RFC 31.
Constraint = typing.NewType("Constraint", dict[str, Any])

SPECIFICATION = "https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_{}.html"


def key(
    default: Any,
    doc: str,
    *,
    kind: str | None = None,
    shown_default: str | None = None,
    reload: bool = False,
    required: bool = False,
    check: Check | None = None,
    check_item: Check | None = None,
    check_name: Check | None = None,
    manager: str | None = None,
    scheduler: str | None = None,
) -> Any:
    """Declares a key.

    Args:
        default: The default. A callable makes one (`dict`).
        doc: The effect of the key: a clause in Markdown, for the reference page.
        kind: The kind of value, where the annotation does not tell it: `targets`, `hosts`, `ids`.
        shown_default: The default as the page shows it, where that is no value.
        reload: Whether the key may change while an instance runs.
        required: Whether the table must have the key.
        check: Raises `penstock.Error` for an invalid value.
        check_item: The same for an item of a list, or a value in a table of the user's names.
        check_name: The same for the names in such a table.
        manager: The name of the job manager's setting, if the key is one.
        scheduler: The name of the scheduler's setting, if the key is one.
    """
    metadata = {
        "doc": doc,
        "kind": kind,
        "shown_default": "required" if required else shown_default,
        "required": required,
        "reload": reload,
        "check": check,
        "check_item": check_item,
        "check_name": check_name,
        "manager": manager,
        "scheduler": scheduler,
    }
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def table(
    default: Any, *, manager: str | None = None, scheduler: str | None = None, prefix: str = ""
) -> Any:
    """Declares a table of keys.

    Args:
        default: The table with its defaults, or `dict` for tables by the user's names.
        manager: The name under which the job manager gets the table; without one, its settings
            are among those of the table around it.
        scheduler: The same for the scheduler.
        prefix: The prefix of the names of the settings in it.
    """
    metadata = {"manager": manager, "scheduler": scheduler, "prefix": prefix}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Key:
    """A declared key.

    Attributes:
        path: The tables and the key, in TOML's spelling. `NAME` stands for a name of the user's;
            the keys of a list of tables follow `…[]`.
        kind: The kind of value, as the reference page names it.
        default: The default as the page shows it.
        doc: The effect of the key.
        reloadable: Whether the key may change while an instance runs.
    """

    path: tuple[str, ...]
    kind: str
    default: str
    doc: str
    reloadable: bool


def spelled(field: dataclasses.Field[Any]) -> str:
    """The key of a field in TOML."""
    return field.name.replace("_", "-")


def annotation(hint: Any) -> Any:
    """An annotation without `None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    return hint


def keys(kind: Any, path: tuple[str, ...] = ()) -> Iterator[Key]:
    """All keys of a table, in the order of declaration."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = annotation(hints[field.name])
        here = (*path, spelled(field))
        args = typing.get_args(hint)
        if "doc" not in field.metadata:
            if dataclasses.is_dataclass(hint):
                yield from keys(hint, here)
            else:
                yield from keys(args[1], (*here, "NAME"))
            continue
        if typing.get_origin(hint) is dict and hint is not Constraint:
            here, hint = (*here, "NAME"), args[1]
        yield Key(
            path=here,
            kind=field.metadata["kind"] or _kind(hint),
            default=field.metadata["shown_default"] or _default(hint, field.default),
            doc=field.metadata["doc"],
            reloadable=field.metadata["reload"],
        )
        if typing.get_origin(hint) is tuple and dataclasses.is_dataclass(args[0]):
            yield from keys(args[0], (*here[:-1], f"{here[-1]}[]"))


def _kind(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f'`"{value}"`' for value in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        tables = dataclasses.is_dataclass(typing.get_args(hint)[0])
        return "list of tables" if tables else "list of strings"
    if dataclasses.is_dataclass(hint):
        return "table"
    names = {
        str: "string",
        bool: "boolean",
        int: "number",
        Path: "path",
        Seconds: "duration",
        Count: "limit",
        Constraint: f"[RFC 31]({SPECIFICATION.format(31)})",
    }
    return names[hint]


def _default(hint: Any, value: Any) -> str:
    if value in (None, "", (), dataclasses.MISSING) or dataclasses.is_dataclass(value):
        return "none"
    if hint is Seconds:
        return f"`{value / 60:g}m`" if value % 60 == 0 else f"`{value:g}s`"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def invalid_values(values: Any, path: str = "") -> Iterator[str]:
    """The problems that the checks of the keys find, each with the key's path."""
    for field in dataclasses.fields(values):
        value, here = getattr(values, field.name), joined(path, spelled(field))
        metadata = field.metadata
        if value is None:
            continue
        if metadata.get("required") and not value:
            yield f"{path}: expected the key `{spelled(field)}`"
        if check := metadata.get("check"):
            yield from _problems(check, value, here)
        if isinstance(value, tuple):
            items = [(f"{here}[{index}]", item) for index, item in enumerate(value)]
        elif isinstance(value, dict):
            if check := metadata.get("check_name"):
                for name in value:
                    yield from _problems(check, name, here)
            items = [(joined(here, name), item) for name, item in value.items()]
        else:
            items = [(here, value)]
        for place, item in items:
            if dataclasses.is_dataclass(item):
                yield from invalid_values(item, place)
            elif check := metadata.get("check_item"):
                yield from _problems(check, item, place)


def _problems(check: Check, value: Any, path: str) -> Iterator[str]:
    try:
        check(value)
    except Error as error:
        yield f"{path}: {error}"


def joined(path: str, key: str) -> str:
    """The dotted path of a key in a table."""
    return f"{path}.{key}" if path else key


def reloadable_paths(kind: Any) -> tuple[tuple[str, ...], ...]:
    """The keys that may change while an instance runs; one path for a table of nothing else."""
    found: list[tuple[str, ...]] = []
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, name = annotation(hints[field.name]), spelled(field)
        if "doc" in field.metadata:
            found += [(name,)] if field.metadata["reload"] else []
            continue
        inner = hint if dataclasses.is_dataclass(hint) else typing.get_args(hint)[1]
        if all(each.reloadable for each in keys(inner)):
            found.append((name,))
        else:
            found += [(name, *path) for path in reloadable_paths(hint)]
    return tuple(found)


def settings(values: Any, service: str) -> dict[str, Any]:
    """The settings of a service (`manager`, `scheduler`) in a table, by their declared names.

    Unset keys are left out.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(values):
        value, name = getattr(values, field.name), field.metadata.get(service)
        if "doc" in field.metadata and not dataclasses.is_dataclass(value):
            if name is not None and value is not None:
                found[name] = list(value) if isinstance(value, tuple) else value
            continue
        if isinstance(value, dict):
            inner = {each: settings(table, service) for each, table in value.items()}
        else:
            inner = settings(value, service)
            if name is None:
                prefix = field.metadata.get("prefix", "")
                found |= {prefix + each: setting for each, setting in inner.items()}
        if name is not None:
            found[name] = inner
    return found


def choices(kind: Any, service: str) -> Iterator[dict[str, Any]]:
    """Settings of a service, each with one choice of one key that has a list of them.

    A table by the user's names has the name `NAME`.
    """
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, name = annotation(hints[field.name]), field.metadata.get(service)
        args = typing.get_args(hint)
        if typing.get_origin(hint) is typing.Literal:
            yield from ({name: choice} for choice in args if name is not None)
            continue
        named = typing.get_origin(hint) is dict
        table = args[1] if named and hint is not Constraint else hint
        if not dataclasses.is_dataclass(table):
            continue
        for inner in choices(table, service):
            below = {"NAME": inner} if named else inner
            if name is not None:
                yield {name: below}
            else:
                prefix = field.metadata.get("prefix", "")
                yield {prefix + each: choice for each, choice in below.items()}


def full_settings(kind: Any, service: str) -> dict[str, Any]:
    """The settings of a service with every key that it has, the optional ones too.

    A key without a default has a value of its kind; a table by the user's names has the name
    `NAME`.
    """
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, name = annotation(hints[field.name]), field.metadata.get(service)
        args = typing.get_args(hint)
        named = typing.get_origin(hint) is dict
        table = args[1] if named and hint is not Constraint else hint
        if not dataclasses.is_dataclass(table):
            if name is not None:
                found[name] = field.default or _example(hint)
            continue
        inner = full_settings(table, service)
        if name is not None:
            found[name] = {"NAME": inner} if named else inner
        else:
            prefix = field.metadata.get("prefix", "")
            found |= {prefix + each: value for each, value in inner.items()}
    return found


def _example(hint: Any) -> Any:
    """A value of a kind."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        return ["x"]
    examples = {
        str: "x",
        bool: True,
        int: 1,
        Seconds: 1.0,
        Count: 1,
        Constraint: {"ranks": ["0"]},
    }
    return examples[hint]
