"""Commands that start another one execute no module of the working directory."""

from __future__ import annotations

import os
import subprocess

import pytest

from penstock.interpreter import environment_of, penstock_command


@pytest.mark.parametrize("path", [None, "", ".", ":", "{real}:", ":{real}", "code:{real}:."])
def test_a_module_of_the_working_directory_is_not_executed(tmp_path, path):
    real = tmp_path / "real"
    for folder in (tmp_path, tmp_path / "code"):
        (folder / "penstock").mkdir(parents=True)
        for name in ("penstock/__init__.py", "json.py", "argparse.py"):
            (folder / name).write_text("raise SystemExit('executed')\n")
    inherited = {**os.environ, "KEPT": "yes"}
    inherited.pop("PYTHONPATH", None)
    if path is not None:
        inherited["PYTHONPATH"] = path.format(real=real)
    environment = environment_of(inherited)
    done = subprocess.run(
        penstock_command("--version"),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith("penstock ")
    assert environment["KEPT"] == "yes"
    expected = str(real) if "{real}" in (path or "") else None
    assert environment.get("PYTHONPATH") == expected
