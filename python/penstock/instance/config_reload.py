"""`config.reload`: checks a new configuration for a running instance, and merges it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from penstock.config import Config, from_dict
from penstock.config.declaration import reloadable_paths
from penstock.errors import ConfigError
from penstock.instance.queue_warnings import pending_by_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Names of tables and key, outermost first; a name can contain dots.
Path = tuple[str, ...]

RELOADABLE: tuple[Path, ...] = reloadable_paths(Config)


def merge(old: Config, document: dict[str, Any]) -> tuple[Config, list[str]]:
    """Makes the configuration that follows from a new document.

    A key that cannot change at run time keeps its value, which the document may omit or repeat. A
    key that can change gets its default if the document omits it.

    Args:
        old: the current configuration.
        document: the tables of the new one, as TOML has them.

    Returns:
        The new configuration, and the dotted names of the keys that differ.

    Raises:
        ConfigError: with every invalid key, and every changed key that cannot change at run time.
    """
    before, after = old.to_dict(), from_dict(document, "new configuration").to_dict()
    fixed = [
        f"`{'.'.join(key)}` cannot change while the instance runs"
        for key in dict.fromkeys([*_leaves(before), *_leaves(after)])
        if not _reloadable(key)
        and _named(document, key)
        and _value(before, key) != _value(after, key)
    ]
    if fixed:
        raise ConfigError("new configuration", fixed)
    merged = copy.deepcopy(before)
    for key in RELOADABLE:
        _set(merged, key, _value(after, key))
    new = from_dict(merged, "new configuration")
    plain = new.to_dict()
    keys = dict.fromkeys([*_leaves(before), *_leaves(plain)])
    return new, [".".join(key) for key in keys if _value(before, key) != _value(plain, key)]


def check_queues(old: Config, new: Config, stats: Callable[[], dict[str, Any]]) -> None:
    """Checks that no queue with pending jobs is removed: its constraints would be lost.

    Args:
        old: the current configuration.
        new: the new configuration.
        stats: requests `job-list.job-stats`.

    Raises:
        ConfigError: with every removed queue that has pending jobs.
    """
    removed = old.queues.keys() - new.queues.keys()
    problems = [
        f"queues.{name}: {jobs} pending: cancel its jobs first, or disable the queue until it "
        "is empty"
        for name, jobs in (pending_by_queue(stats()) if removed else {}).items()
        if name in removed
    ]
    if problems:
        raise ConfigError("new configuration", problems)


def _reloadable(path: Path) -> bool:
    return any(path[: len(key)] == key for key in RELOADABLE)


def _leaves(table: dict[str, Any], tables: Path = ()) -> Iterator[Path]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*tables, key))
        else:
            yield (*tables, key)


def _named(document: dict[str, Any], path: Path) -> bool:
    """Whether a document contains a key, with `_` or `-` between its words."""
    value: Any = document
    for key in path:
        if not isinstance(value, dict):
            return True
        key = key if key in value else key.replace("-", "_")
        if key not in value:
            return False
        value = value[key]
    return True


def _value(table: dict[str, Any], path: Path) -> Any:
    value: Any = table
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


def _set(table: dict[str, Any], path: Path, value: Any) -> None:
    *tables, last = path
    if value is None and _value(table, path) is None:
        return
    for key in tables:
        table = table.setdefault(key, {})
    if value is None:
        del table[last]
    else:
        table[last] = value
