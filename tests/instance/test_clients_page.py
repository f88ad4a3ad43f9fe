"""The programs on the page about clients run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/clients.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
SAID = [
    r"hostname 0\n(\d+\.\d+ [a-z]+\n)+\Z",
    r"\d+ cancelled, \d+ not\n\Z",
    r"submit\n([a-z]+\n)+cancel\n\Z",
    r"2\n\Z",
]


@pytest.mark.parametrize(("program", "said"), [*zip(PROGRAMS, SAID, strict=True)])
def test_programs_run(start, program, said):
    with start("--nodes=2") as instance:
        env = {**os.environ, "PENSTOCK_URI": instance.uri}
        command = [sys.executable, "-c", program.replace("duration=60.0", "duration=0.01")]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert re.match(said, done.stdout), done.stdout
