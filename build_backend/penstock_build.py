"""The PEP 517 build backend: maturin, and the programs that a wheel installs beside `penstock`.

maturin builds either a library or programs. Before maturin builds the wheel, this backend builds
the programs into the wheel's data directory (`[tool.maturin] data` in pyproject.toml); pip installs
the `scripts` of it on the PATH. They are linked statically, so that they need no certain version of
the C library, except `penstock-imp`: it asks the C library for users and groups, which loads the
modules of the site. The sdist has their sources.

A wheel also has pages for man(1) and completion scripts, which follow from the parsers of the
command line, and units for systemd. The parsers import the extension, so that these files are made
with the built wheel, and added to it.

`python build_backend/penstock_build.py` builds the programs alone, for `maturin develop` and
`maturin build`; `… portable ARCHITECTURE` builds them by zig, for machines of that architecture
with an earlier C library; `… add-shared WHEEL [OTHER]` adds the other files to a wheel. OTHER is a
wheel of this machine to make them with, if WHEEL is of another one.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
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
# The earliest C library of portable programs that are not static: that of the tag manylinux_2_28.
PORTABLE_GLIBC = "2.28"
# The places of completion scripts, below `share`.
COMPLETIONS = {
    "bash": "bash-completion/completions/penstock",
    "zsh": "zsh/site-functions/_penstock",
    "fish": "fish/vendor_completions.d/penstock.fish",
}


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds the wheel, with the programs in it."""
    build_programs()
    name = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    add_shared_files(Path(wheel_directory) / name)
    return name


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


def build_programs(profile: str = "release") -> None:
    """Builds the programs into the wheel's data directory.

    Args:
        profile: the profile of `Cargo.toml`.

    Raises:
        subprocess.CalledProcessError: a program could not be built; cargo has written why.
    """
    scripts = empty_scripts_directory()
    # An sdist has fewer crates than Cargo.lock lists: cargo removes the others from it, and changes
    # no version.
    locked = [] if (ROOT / "PKG-INFO").exists() else ["--locked"]
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    for package, program, is_static in PROGRAMS:
        # `cargo rustc` passes the flags to the program alone: its dependencies are those of other
        # builds.
        command = ["cargo", "rustc", "--profile", profile, "--quiet", *locked]
        command += ["--package", package, "--bin", program]
        command += ["--", "-C", "strip=symbols"]
        if is_static:
            command += ["-C", "target-feature=+crt-static"]
        subprocess.run(command, cwd=ROOT, check=True)
        shutil.copy2(target / profile / program, scripts / program)


def build_portable_programs(architecture: str) -> None:
    """Builds the programs for another C library, and perhaps another machine.

    Args:
        architecture: `x86_64` or `aarch64`.

    Raises:
        subprocess.CalledProcessError: a program could not be built; cargo has written why.
    """
    scripts = empty_scripts_directory()
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    environment = os.environ | {"CARGO_PROFILE_RELEASE_STRIP": "symbols"}
    for package, program, is_static in PROGRAMS:
        triple = f"{architecture}-unknown-linux-{'musl' if is_static else 'gnu'}"
        version = "" if is_static else f".{PORTABLE_GLIBC}"
        command = ["cargo", "zigbuild", "--release", "--locked", "--target", triple + version]
        command += ["--package", package, "--bin", program]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        shutil.copy2(target / triple / "release" / program, scripts / program)


def empty_scripts_directory() -> Path:
    """The directory of `scripts_directory`, without files."""
    scripts = scripts_directory()
    shutil.rmtree(scripts, ignore_errors=True)
    scripts.mkdir(parents=True)
    return scripts


def scripts_directory() -> Path:
    """The directory whose files the wheel installs on the PATH."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return ROOT / str(settings["tool"]["maturin"]["data"]) / "scripts"


def add_shared_files(wheel: Path, made_with: Path | None = None) -> None:
    """Adds manual pages, completion scripts and units to a wheel, below `share` of its prefix.

    Args:
        wheel: the wheel.
        made_with: a wheel that this Python can import, by default the same.
    """
    with tempfile.TemporaryDirectory() as folder:
        modules, shared = Path(folder) / "modules", Path(folder) / "shared"
        with zipfile.ZipFile(made_with or wheel) as archive:
            archive.extractall(modules)
        make_shared_files(shared, modules)
        files = {
            path.relative_to(shared).as_posix(): path.read_bytes()
            for path in sorted(shared.rglob("*"))
            if path.is_file()
        }
    _add_to_wheel(wheel, files)


def make_shared_files(shared: Path, modules: Path) -> None:
    """Writes manual pages, completion scripts and units.

    Args:
        shared: the directory to write to, which stands for `share` below a prefix.
        modules: the directory with the package `penstock`, extension included.
    """

    def run(*words: str | Path) -> str:
        environment = os.environ | {"PYTHONPATH": str(modules)}
        command = [sys.executable, *words]
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, encoding="utf-8"
        )
        return done.stdout

    run(ROOT / "build_backend" / "command_reference.py", shared / "man" / "man1")
    for shell, path in COMPLETIONS.items():
        script = run("-m", "penstock", "completion", shell)
        if shell == "zsh":
            # As a file of `fpath` it is the function itself.
            script = f"#compdef penstock\n{script}".replace(
                "compdef _penstock penstock", '_penstock "$@"'
            )
        (shared / path).parent.mkdir(parents=True)
        (shared / path).write_text(script, encoding="utf-8")
    shutil.copytree(ROOT / "packaging" / "systemd", shared / "penstock" / "systemd")


def _add_to_wheel(wheel: Path, files: Mapping[str, bytes]) -> None:
    """Rewrites a wheel with further files below `share`, and their rows in its RECORD."""
    rewritten = wheel.with_suffix(".rewritten")
    with (
        zipfile.ZipFile(wheel) as before,
        zipfile.ZipFile(rewritten, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        (record,) = [name for name in before.namelist() if name.endswith(".dist-info/RECORD")]
        data = f"{record.removesuffix('.dist-info/RECORD')}.data/data/share"
        rows = list(csv.reader(io.StringIO(before.read(record).decode())))
        for item in before.infolist():
            if item.filename != record and not item.filename.startswith(f"{data}/"):
                after.writestr(item, before.read(item))
        rows = [row for row in rows if row and not row[0].startswith(f"{data}/")]
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            rows.append([f"{data}/{name}", f"sha256={digest.decode()}", str(len(content))])
            # The permissions are those of a file that all may read.
            item = zipfile.ZipInfo(f"{data}/{name}")
            item.external_attr = 0o100644 << 16
            after.writestr(item, content, zipfile.ZIP_DEFLATED)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        after.writestr(record, text.getvalue())
    rewritten.replace(wheel)


if __name__ == "__main__":
    if sys.argv[1:2] == ["add-shared"]:
        add_shared_files(*map(Path, sys.argv[2:]))
    elif sys.argv[1:2] == ["portable"]:
        build_portable_programs(sys.argv[2])
    else:
        build_programs(*sys.argv[1:2])
