"""Builds a Debian package from a wheel of this machine: `python packaging/deb.py WHEEL DIRECTORY`.

The package has an environment of its own in /usr/lib/penstock, for the Python of Debian, with the
packages that an instance needs: those of Debian are older. It is for the version of Python and the
architecture that it was built with.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON = "/usr/bin/python3"
PREFIX = Path("/usr/lib/penstock")
ROOT = Path(__file__).resolve().parent.parent
SHARED = (
    ("share/man", "usr/share/man"),
    ("share/bash-completion", "usr/share/bash-completion"),
    ("share/zsh/site-functions", "usr/share/zsh/vendor-completions"),
    ("share/fish", "usr/share/fish"),
    ("share/penstock/systemd/system", "usr/lib/systemd/system"),
    ("share/penstock/systemd/user", "usr/lib/systemd/user"),
)
CONTROL = """\
Package: penstock
Version: {version}
Architecture: {architecture}
Maintainer: The Penstock maintainers <maintainers@penstock.invalid>
Section: admin
Priority: optional
Depends: python3 (>= {python}), python3 (<< {next_python}), libc6 (>= 2.28)
Description: resource sets and a scheduler for clusters
 A queue, a scheduler and an execution service, for the cores of a machine or a simulated cluster.
 .
 Enable the services with: systemctl enable --now penstock penstock-exec
"""
# New units are read; an upgraded daemon is restarted, and jobs continue.
POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart penstock.service penstock-exec.service
fi
"""
# Removal ends the services; `prerm upgrade` leaves them to the new version.
PRERM = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl disable --now penstock.service penstock-exec.service
fi
"""


def build(wheel: Path, directory: Path) -> Path:
    """Builds the package; returns its path.

    Raises:
        subprocess.CalledProcessError: a program failed, which has written why.
    """
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        stage.chmod(0o755)
        environment = stage / PREFIX.relative_to("/")
        run(PYTHON, "-m", "venv", "--without-pip", environment)
        pip = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python3"]
        run(*pip, "install", "--quiet", "--no-compile", f"penstock-hpc[daemon] @ {wheel.as_uri()}")
        relocate(environment)
        for source, target in SHARED:
            copy(environment / source, stage / target)
        shutil.rmtree(environment / "share")
        for unit in (stage / "usr/lib/systemd/user").iterdir():
            unit.write_text(unit.read_text().replace("%h/.local/bin/", "/usr/bin/"))
        (stage / "usr/bin").mkdir()
        (stage / "usr/bin/penstock").symlink_to(PREFIX / "bin/penstock")
        (stage / "etc/penstock/conf.d").mkdir(parents=True)
        documents = stage / "usr/share/doc/penstock"
        documents.mkdir(parents=True)
        licences = [(ROOT / name).read_text() for name in ("LICENSE-MIT", "LICENSE-APACHE")]
        (documents / "copyright").write_text("\n\n".join(licences))
        return pack(stage, directory, version_of(wheel))


def relocate(environment: Path) -> None:
    """Has the programs of an environment use it where it will be installed."""
    for program in (environment / "bin").iterdir():
        if program.is_symlink() or program.read_bytes()[:2] != b"#!":
            continue
        text = program.read_text().replace(str(environment), str(PREFIX))
        program.write_text(text)
    settings = environment / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace(str(environment), str(PREFIX)))


def copy(source: Path, target: Path) -> None:
    """Copies a directory, whose files all may read."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def pack(stage: Path, directory: Path, version: str) -> Path:
    """Packs the staged files."""
    python = output(PYTHON, "-c", "import sys; print(*sys.version_info[:2])").split()
    control = stage / "DEBIAN"
    control.mkdir(mode=0o755)
    architecture = output("dpkg", "--print-architecture")
    (control / "control").write_text(
        CONTROL.format(
            version=version,
            architecture=architecture,
            python=".".join(python),
            next_python=f"{python[0]}.{int(python[1]) + 1}",
        )
    )
    for name, text in (("postinst", POSTINST), ("prerm", PRERM)):
        (control / name).write_text(text)
        (control / name).chmod(0o755)
    directory.mkdir(exist_ok=True)
    package = directory / f"penstock_{version}_{architecture}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", stage, package)
    return package


def version_of(wheel: Path) -> str:
    """The version in the name of a wheel."""
    return wheel.name.split("-")[1]


def run(*command: str | Path) -> None:
    """Runs a program that must succeed."""
    subprocess.run(command, check=True)


def output(*command: str | Path) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    print(build(Path(sys.argv[1]).resolve(strict=True), Path(sys.argv[2])))
