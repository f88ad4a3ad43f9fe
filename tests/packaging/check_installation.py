"""Installs a wheel or an sdist into a clean environment, and runs what it has put on the PATH.

The library is used before the packages of the extra `daemon` are there; then an instance runs a
job, the tutorials are walked, and the pages and the screen of the extra `web` are shown.
`make test-packaging` runs it for both.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATIC_PROGRAMS = ["penstock-reaper", "penstock-exec"]
PROGRAMS = [*STATIC_PROGRAMS, "penstock-imp"]
LIBRARY_PROGRAM = """
from penstock import Engine, Hostlist, IDset, ResourceSet
cluster = ResourceSet.uniform("0-3", "node[0-3]", cores="0-7")
engine = Engine(cluster, up=False)
engine.mark_up(cluster.ranks - IDset("1-2"))
engine.submit([7], engine.shape(slots=2, cores=8), durations=60)
engine.schedule(now=0.0)
print(engine.r(7).nodelist, engine.r(7).nodelist == Hostlist("node[0,3]"))
"""
# Run in an instance: the first page of `penstock web`, as a browser gets it.
WEB_PROGRAM = """
import subprocess, urllib.request
from http.cookiejar import CookieJar

with subprocess.Popen(["penstock", "web"], stdout=subprocess.PIPE, text=True) as server:
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    page = urllib.request.build_opener(cookies).open(server.stdout.readline().strip())
    print(page.status, "<h1>Overview</h1>" in page.read().decode())
    server.terminate()
"""
# The same for the screen of `penstock top`, in a terminal.
TOP_PROGRAM = """
import fcntl, os, pty, struct, termios

child, terminal = pty.fork()
if child == 0:
    os.environ["TERM"] = "xterm"
    os.execvp("penstock", ["penstock", "top"])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
screen = b""
while b"[jobs]" not in screen:
    screen += os.read(terminal, 65536)
os.write(terminal, b"q")
try:
    while os.read(terminal, 65536):
        pass
except OSError:
    pass
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Installation:
    """A clean environment with the distribution in it.

    Args:
        distribution: the wheel or sdist.
        folder: an empty folder, which holds everything.
    """

    def __init__(self, distribution: Path, folder: Path) -> None:
        self._distribution = distribution
        self._folder = folder
        self._scripts = folder / "environment" / "bin"
        venv.create(self._scripts.parent, with_pip=True)
        self._pip("install", distribution)

    def check_library(self) -> None:
        """The library needs no other package."""
        count = self._run("penstock", "idset", "count", "0-2").strip()
        expect(f"`penstock idset count 0-2` printed {count!r}", met=count == "3")
        printed = self._run("python", "-c", LIBRARY_PROGRAM).strip()
        expect(f"a program printed {printed!r}", met=printed == "node[0,3] True")
        others = self._run(
            "pip", "list", "--format=freeze", "--exclude=pip", "--exclude=setuptools"
        )
        names = [line.partition("==")[0] for line in others.split()]
        expect(f"installed with the library: {names}", met=names == ["penstock-hpc"])

    def check_c_library(self) -> None:
        """The extension needs no later C library than the tag names; SQLite uses `fdatasync`."""
        code = "import penstock._core; print(penstock._core.__file__)"
        extension = Path(self._run("python", "-c", code).strip())
        symbols = read_elf("--dyn-syms", extension)
        expect(f"{extension.name} does not use fdatasync", met=" fdatasync@" in symbols)
        needed = max(c_library_versions(extension))
        promised = re.search(r"-manylinux_(\d+)_(\d+)_\w+\.whl$", self._distribution.name)
        if self._distribution.suffix == ".whl":
            expect(f"{self._distribution.name} has no manylinux tag", met=promised is not None)
        if promised:
            tag = (int(promised[1]), int(promised[2]))
            expect(f"{extension.name} needs glibc {needed}, the tag says {tag}", met=needed <= tag)
            needed = max(c_library_versions(self._scripts / "penstock-imp"))
            expect(f"penstock-imp needs glibc {needed}, the tag says {tag}", met=needed <= tag)
        for name in STATIC_PROGRAMS:
            program = self._scripts / name
            # Neither an interpreter nor a library: any C library will do, and none.
            headers = read_elf("--program-headers", program)
            expect(f"{name} has an interpreter", met="INTERP" not in headers)
            dynamic = read_elf("--dynamic", program)
            expect(f"{name} needs a library", met="(NEEDED)" not in dynamic)
            expect(f"{name} needs versions of glibc", met=not c_library_versions(program))

    def check_programs(self) -> None:
        """The programs have a version; the reaper listens, and ends when it is idle."""
        for name in PROGRAMS:
            printed = self._run(name, "--version").split()
            expect(f"{name} --version printed {printed}", met=printed[:1] == [name])
        directory = self._folder / "reaper"
        directory.mkdir(mode=0o700)
        printed = self._run("penstock-reaper", "--directory", directory, "--idle-timeout", "1")
        expect(f"the reaper printed {printed!r}", met=printed == "listening\n")

    def check_shared_files(self) -> None:
        """Manual pages, completion scripts and units are below the prefix."""
        share = self._scripts.parent / "share"
        pages = {path.name for path in (share / "man" / "man1").iterdir()}
        expect(f"manual pages: {pages}", met={"penstock.1", "penstock-submit.1"} <= pages)
        completion = share / "bash-completion" / "completions" / "penstock"
        command = f". {completion}; COMP_WORDS=(penstock what); COMP_CWORD=1; "
        command += "_penstock; echo ${COMPREPLY[@]}"
        done = subprocess.run(
            ["bash", "--norc", "-c", command],
            env={"PATH": f"{self._scripts}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        expect(f"completion offered {done.stdout!r}", met=done.stdout == "what-if\n")
        for path in ("zsh/site-functions/_penstock", "fish/vendor_completions.d/penstock.fish"):
            expect(f"no {path}", met=(share / path).is_file())
        units = [path.name for path in (share / "penstock" / "systemd" / "user").iterdir()]
        expect(f"units: {units}", met="penstock-exec.service" in units)

    def check_job(self) -> None:
        """An instance, which needs the packages of the extra `daemon`, runs a job of two tasks."""
        without = self._call("penstock", "start", "--", "true")
        expect(
            f"`penstock start` without trio: {without.stderr!r}",
            met=without.returncode == 1 and "penstock-hpc[daemon]" in without.stderr,
        )
        self._pip("install", "penstock-hpc[daemon]")
        start = ["penstock", "start", "--state", self._folder / "state", "--oversubscribe"]
        job = ["penstock", "run", "-n2", "sh", "-c", "echo task $PENSTOCK_TASK_RANK; exit 3"]
        done = self._call(*start, "--", *job)
        printed = sorted(done.stdout.splitlines())
        expect(
            f"{job} returned {done.returncode}, printed {printed} and {done.stderr!r}",
            met=done.returncode == 3 and printed == ["task 0", "task 1"],
        )

    def check_top_and_web(self) -> None:
        """`penstock top` needs no further package, `penstock web` those of the extra `web`."""
        start = ["penstock", "start", "--nodes=2", "--state", self._folder / "simulated", "--"]
        printed = self._run(*start, "python", "-c", TOP_PROGRAM)
        expect(f"`penstock top` printed {printed!r}", met=printed == "0\n")
        without = self._call(*start, "penstock", "web")
        expect(
            f"`penstock web` without starlette: {without.stderr!r}",
            met=without.returncode == 1 and "penstock-hpc[web]" in without.stderr,
        )
        self._pip("install", "penstock-hpc[web]")
        printed = self._run(*start, "python", "-c", WEB_PROGRAM)
        expect(f"`penstock web` printed {printed!r}", met=printed == "200 True\n")

    def check_tutorials(self) -> None:
        """The tutorials print what they show, with the commands that are installed here."""
        self._pip("install", "pytest")
        walk = self._folder / "walk"
        test = Path("tests/instance/test_tutorials.py")
        (walk / test.parent).mkdir(parents=True)
        shutil.copy2(ROOT / test, walk / test)
        for name in ("docs", "examples"):
            shutil.copytree(ROOT / name, walk / name)
        options = [
            "--quiet",
            "-p",
            "no:cacheprovider",
            f"--rootdir={walk}",
            "--config-file=/dev/null",
        ]
        done = self._call("python", "-m", "pytest", *options, walk / test)
        expect(f"the tutorials: {done.stdout}\n{done.stderr}", met=done.returncode == 0)

    def _pip(self, *words: str | Path) -> None:
        self._run("pip", "--quiet", "--disable-pip-version-check", *words)

    def _run(self, *command: str | Path) -> str:
        done = self._call(*command)
        expect(f"{command}: {done.returncode}\n{done.stderr}", met=done.returncode == 0)
        return done.stdout

    def _call(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        # The checkout is neither the working directory nor on a path, and no instance is known.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "FLUX_", "PYTHON", "XDG_"))
        }
        environment["PATH"] = f"{self._scripts}:{os.environ['PATH']}"
        environment["XDG_RUNTIME_DIR"] = str(self._folder)
        program = self._scripts / command[0]
        return subprocess.run(
            [program, *command[1:]],
            cwd=self._folder,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )


def c_library_versions(file: Path) -> set[tuple[int, int]]:
    """The versions of glibc that have the symbols that an ELF file needs."""
    versions = read_elf("--version-info", file)
    return {(int(a), int(b)) for a, b in re.findall(r"\bGLIBC_(\d+)\.(\d+)", versions)}


def read_elf(option: str, file: Path) -> str:
    """The output of `readelf`."""
    command = ["readelf", "--wide", option, file]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def expect(problem: str, *, met: bool) -> None:
    """Exits with the problem unless a condition is met."""
    if not met:
        sys.exit(problem)


def main() -> None:
    """Checks the distribution that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("distribution", type=Path, help="the wheel or sdist")
    distribution = parser.parse_args().distribution.resolve(strict=True)
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(distribution, Path(folder))
        installation.check_library()
        installation.check_c_library()
        installation.check_programs()
        installation.check_shared_files()
        installation.check_job()
        installation.check_top_and_web()
        if distribution.suffix == ".whl":
            installation.check_tutorials()
    static = " and ".join(STATIC_PROGRAMS)
    print(f"{distribution.name}: installed; ran a job; {static} are static")


if __name__ == "__main__":
    main()
