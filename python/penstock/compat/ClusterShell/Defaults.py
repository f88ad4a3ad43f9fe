"""`ClusterShell.Defaults`: what `defaults.conf` says of sets of nodes.

Example:
    >>> from penstock.compat.ClusterShell.Defaults import DEFAULTS
    >>> from penstock.compat.ClusterShell.NodeSet import NodeSet
    >>> DEFAULTS.fold_axis = (-1,)
    >>> print(NodeSet("rack[1-2]n[1-3]"))
    rack1n[1-3],rack2n[1-3]
    >>> DEFAULTS.fold_axis = ()
"""

from __future__ import annotations

import configparser
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DEFAULTS", "Defaults", "config_paths"]


def config_paths(config_name: str) -> list[str]:
    """The paths of a configuration file, the one with the highest priority last."""
    user = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    folders = [
        Path("/etc/clustershell"),
        Path("~/.local/etc/clustershell").expanduser(),
        Path(sys.prefix, "etc/clustershell"),
        Path(user, "clustershell").expanduser(),
    ]
    chosen = os.environ.get("CLUSTERSHELL_CFGDIR")
    if chosen and Path(chosen).is_dir():
        folders.append(Path(chosen))
    return [str(folder / config_name) for folder in folders]


class Defaults:
    """The defaults of sets of nodes.

    ClusterShell's defaults for the execution of commands are not read.

    Args:
        filenames: The files to read on first use, the one with the highest priority last; missing
            ones are skipped.
    """

    __slots__ = ("_filenames", "_fold_axis")

    def __init__(self, filenames: Iterable[str]) -> None:
        self._filenames = list(filenames)
        self._fold_axis: Iterable[int] | None = None

    @property
    def fold_axis(self) -> Iterable[int]:
        """The dimensions that texts fold, from 0 on, or from -1 back; empty for all.

        Raises:
            ConfigError: a file has no sections and keys, or `fold_axis` is not integers with
                commas.
        """
        if self._fold_axis is None:
            axes: Iterable[int] = ()
            for filename in self._filenames:
                axes = _fold_axis(filename, axes)
            self._fold_axis = axes
        return self._fold_axis

    @fold_axis.setter
    def fold_axis(self, axes: Iterable[int]) -> None:
        self._fold_axis = axes


def _fold_axis(filename: str, default: Iterable[int]) -> Iterable[int]:
    """The axes that a file names, or the default."""
    config = configparser.ConfigParser()
    try:
        config.read(filename)
        text = config.get("nodeset", "fold_axis", fallback=None)
    except configparser.Error as error:
        raise ConfigError(filename, [error.message.splitlines()[0]]) from None
    if text is None:
        return default
    try:
        return tuple(int(axis) for axis in text.split(",") if axis.strip())
    except ValueError:
        problem = f"expected integers separated by commas, found `{text}`"
        raise ConfigError(filename, [f"nodeset.fold_axis: {problem}"]) from None


DEFAULTS = Defaults(config_paths("defaults.conf"))
"""The defaults of the files at the usual places."""
