"""The PEP 517 build backend: maturin, and the programs that a wheel installs beside `penstock`.

maturin builds either a library or programs. Before maturin builds the wheel, this backend builds
the programs into the wheel's data directory (`[tool.maturin] data` in pyproject.toml); pip installs
the `scripts` of it on the PATH. They are linked statically, so that they need no certain version of
the C library, except `penstock-imp`: it asks the C library for users and groups, which loads the
modules of the site. The sdist has their sources.

`python build_backend/penstock_build.py` builds the programs alone, for `maturin develop` and
`maturin build`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
# The cargo package and the name of each program, and whether it is static.
PROGRAMS = [
    ("penstock-exec", "penstock-reaper", True),
    ("penstock-exec", "penstock-exec", True),
    ("penstock-imp", "penstock-imp", False),
]


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds the wheel, with the programs in it."""
    build_programs()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds the wheel of an editable installation, with the programs in it."""
    build_programs()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Builds the sdist, without built programs."""
    # maturin checks that the directory exists; it packs none of it.
    scripts_directory().mkdir(parents=True, exist_ok=True)
    return maturin.build_sdist(sdist_directory, config_settings)


def build_programs() -> None:
    """Builds the programs into the wheel's data directory.

    Raises:
        subprocess.CalledProcessError: a program could not be built; cargo has written why.
    """
    scripts = scripts_directory()
    shutil.rmtree(scripts, ignore_errors=True)
    scripts.mkdir(parents=True)
    # An sdist has fewer crates than Cargo.lock lists: cargo removes the others from it, and changes
    # no version.
    locked = [] if (ROOT / "PKG-INFO").exists() else ["--locked"]
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    for package, program, is_static in PROGRAMS:
        # `cargo rustc` passes the flags to the program alone: its dependencies are those of other
        # builds.
        command = ["cargo", "rustc", "--release", "--quiet", *locked]
        command += ["--package", package, "--bin", program]
        command += ["--", "-C", "strip=symbols"]
        if is_static:
            command += ["-C", "target-feature=+crt-static"]
        subprocess.run(command, cwd=ROOT, check=True)
        shutil.copy2(target / "release" / program, scripts / program)


def scripts_directory() -> Path:
    """The directory whose files the wheel installs on the PATH."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return ROOT / str(settings["tool"]["maturin"]["data"]) / "scripts"


if __name__ == "__main__":
    build_programs()
