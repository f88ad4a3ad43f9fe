"""The PMIx server of a job: started before its tasks, ended after them, its requests handed on."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

PROGRAM = "penstock-pmix"


def find_server() -> Path | None:
    """The server's program: that of `PATH`, else that beside this Python; None if there is none."""
    found = shutil.which(PROGRAM) or shutil.which(Path(sys.executable).with_name(PROGRAM))
    return Path(found) if found is not None else None
