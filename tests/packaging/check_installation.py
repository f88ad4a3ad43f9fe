"""Installs a wheel or an sdist into a clean environment, and checks what it has put on the PATH.

`make test-packaging` runs it for both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROGRAMS = ["penstock-reaper", "penstock-exec"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("distribution", type=Path, help="the wheel or sdist")
    distribution = parser.parse_args().distribution.resolve(strict=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        venv.create(environment, with_pip=True)
        scripts = environment / "bin"
        run(scripts / "python", "-m", "pip", "install", "--quiet", distribution)
        for program in PROGRAMS:
            check_static(scripts / program)
            check_version(scripts / program)
        check_reaper(scripts / "penstock-reaper", Path(folder, "reaper"))
        # Outside the checkout, so that the installed package is imported.
        count = run(scripts / "penstock", "idset", "count", "0-2", cwd=folder).strip()
        expect(count == "3", f"`penstock idset count 0-2` printed {count!r}")
    print(f"{distribution.name}: installed, {', '.join(PROGRAMS)} on the PATH, static")


def check_static(program: Path) -> None:
    """No interpreter, no library, no version of a symbol: any C library will do."""
    headers = run("readelf", "--wide", "--program-headers", program)
    expect("INTERP" not in headers, f"{program.name} has an interpreter")
    dynamic = run("readelf", "--wide", "--dynamic", program)
    expect("(NEEDED)" not in dynamic, f"{program.name} needs a library")
    versions = run("readelf", "--wide", "--version-info", program)
    expect("GLIBC_" not in versions, f"{program.name} needs a version of the C library")


def check_version(program: Path) -> None:
    printed = run(program, "--version").split()
    expect(printed[:1] == [program.name], f"{program.name} --version printed {printed}")


def check_reaper(program: Path, directory: Path) -> None:
    """It listens, and ends when it is idle."""
    directory.mkdir(mode=0o700)
    printed = run(program, "--directory", directory, "--idle-timeout", "1")
    expect(printed == "listening\n", f"the reaper printed {printed!r}")


def run(*command: str | Path, cwd: str | None = None) -> str:
    # The directory of this checkout is on no path of the environment that is tested.
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def expect(condition: object, text: str) -> None:
    if not condition:
        sys.exit(text)


if __name__ == "__main__":
    main()
