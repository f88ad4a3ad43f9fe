"""Other libraries' own tests, run with our drop-in modules and with the libraries themselves.

    make test-peer-suites

Downloads the libraries' sdists, unpacks them in `target/peers`, and prints a row for each module of
tests: how many pass with our module in place of theirs, and how long both take. A test that fails
with ours fails the run unless `EXCLUDED` says why it does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "target" / "peers"
RUNNER = Path(__file__).parent / "suite_runner.py"


class Peer(NamedTuple):
    """Another library with its own tests."""

    package: str
    """Name and version of the sdist."""
    library: str
    """The folder in the sdist with its modules."""
    tests: str
    """The folder in the sdist from which its tests are imported."""
    ours: dict[str, str]
    """For each of its modules, ours."""
    modules: list[str]
    """Its modules of tests."""


CLUSTERSHELL = {
    **{
        f"ClusterShell.{name}": f"penstock.compat.ClusterShell.{name}"
        for name in ("RangeSet", "NodeUtils", "NodeSet")
    },
    "ClusterShell.CLI.Nodeset": "nodeset_main",
}
PEERS = [
    Peer(
        "ClusterShell==1.10.1",
        "lib",
        ".",
        CLUSTERSHELL,
        [
            "tests.RangeSetTest",
            "tests.RangeSetNDTest",
            "tests.NodeSetTest",
            "tests.NodeSetGroupTest",
        ],
    ),
    Peer("ClusterShell==1.10.1", "lib", ".", CLUSTERSHELL, ["tests.CLINodesetTest"]),
    Peer(
        "python-hostlist==2.3.0",
        ".",
        "test",
        {"hostlist": "penstock.compat.hostlist"},
        ["test_hostlist"],
    ),
]

CLI = "tests.CLINodesetTest"
WORDS = "checks the words of an error"
EXCLUDED = {
    f"{CLI}.CLINodesetTest.test_023_axis": WORDS,
    f"{CLI}.CLINodesetTest.test_024_axis_stdin": WORDS,
    f"{CLI}.CLINodesetTest.test_026_index": WORDS,
    f"{CLI}.CLINodesetGroupResolverConfigErrorTest.test_bad_yaml_config": WORDS,
    f"{CLI}.CLINodesetGroupResolverTest2.test_041_completion": (
        "an option for ClusterShell's own completion of command lines"
    ),
}
"""Tests that fail with ours, by their names, and why that is right; without `WORDS` they pass."""


def unpacked(package: str) -> Path:
    """The folder of a package's sdist, which is downloaded if it is not there."""
    folder = FOLDER / package.replace("==", "-")
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--no-binary", ":all:", "--dest", str(folder), package),
            ],
            check=True,
        )
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    (inside,) = (path for path in folder.iterdir() if path.is_dir())
    return inside


def run(mode: str, library: str, tests: Path, module: str) -> dict[str, tuple[str, float]]:
    """The outcomes and times of a module's tests."""
    command = [sys.executable, str(RUNNER), mode, library, str(tests), module]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> int:
    print(f"{'tests':28} {'passed':>9} {'theirs (s)':>11} {'ours (s)':>9} {'ratio':>6}")
    failed = False
    for peer in PEERS:
        root = unpacked(peer.package)
        names = ",".join(f"{theirs}={ours}" for theirs, ours in peer.ours.items())
        totals = [0.0, 0.0]
        for module in peer.modules:
            theirs = run("theirs", str(root / peer.library), root / peer.tests, module)
            ours = run("ours", names, root / peer.tests, module)
            passed = [name for name, (outcome, _) in ours.items() if outcome == "passed"]
            wrong = {name: outcome for name, (outcome, _) in ours.items() if name not in passed}
            wrong.update({name: "missing" for name in theirs if name not in ours})
            for name, outcome in wrong.items():
                # A test that fails with the library itself, as for lack of a program, says nothing.
                if theirs.get(name, ("passed",))[0] == "passed" and name not in EXCLUDED:
                    failed = True
                    print(f"{name}: {outcome}", file=sys.stderr)
            if any(EXCLUDED.get(name) == WORDS for name in wrong):
                wordless = run("wordless", names, root / peer.tests, module)
                for name, (outcome, _) in wordless.items():
                    if outcome != "passed" and EXCLUDED.get(name) in (None, WORDS):
                        failed = True
                        print(f"{name}, without words of errors: {outcome}", file=sys.stderr)
            for name in EXCLUDED:
                if name in passed:
                    failed = True
                    print(f"{name}: passes: remove it from EXCLUDED", file=sys.stderr)
            times = [sum(seconds for _, seconds in rows.values()) for rows in (theirs, ours)]
            totals = [total + time for total, time in zip(totals, times, strict=True)]
            print(row(module, f"{len(passed)}/{len(theirs)}", *times))
        print(row(peer.package, "", *totals))
    return int(failed)


def row(name: str, passed: str, theirs: float, ours: float) -> str:
    return f"{name:28} {passed:>9} {theirs:11.3f} {ours:9.3f} {theirs / ours:6.1f}"


if __name__ == "__main__":
    sys.exit(main())
