"""Commands of Penstock that start another one: without modules of the working directory.

Others may write to the working directory, and a `penstock/` or `json.py` there would be executed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def penstock_command(*words: str) -> list[str]:
    """A command of Penstock, run by this interpreter.

    Args:
        words: the name of the command, and its arguments.
    """
    return [sys.executable, "-P", "-m", "penstock", *words]


def environment_of(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of such a command, without the working directory in `PYTHONPATH`.

    An entry that is empty or relative would be that, or below it.

    Args:
        inherited: the environment of this process.
    """
    environment = dict(inherited)
    entries = environment.pop("PYTHONPATH", "").split(os.pathsep)
    if absolute := [entry for entry in entries if Path(entry).is_absolute()]:
        environment["PYTHONPATH"] = os.pathsep.join(absolute)
    return environment
