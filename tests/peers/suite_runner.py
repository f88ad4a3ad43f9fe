"""Runs the modules of another library's own tests, with that library or with ours in its place.

    python suite_runner.py theirs FOLDER_OF_LIBRARY FOLDER_OF_TESTS MODULE...
    python suite_runner.py ours MODULE=OUR_MODULE,... FOLDER_OF_TESTS MODULE...

    python suite_runner.py wordless ...as for ours

The last mode does not compare the words of errors on command lines.

Prints an object: for each test its outcome, and the processor seconds of its fastest run, without
those of the commands that it runs. Sleeps advance a clock of their own, so that a test that waits
for a cache to expire does not wait.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import time
import types
import unittest

RUNS = 3


def cpu_seconds():
    """The processor time of this process, without that of the commands that it runs."""
    return time.process_time()


class Result(unittest.TestResult):
    """Keeps the outcome and the time of each test."""

    def __init__(self):
        super().__init__()
        self.rows = {}

    def startTest(self, test):  # noqa: N802
        super().startTest(test)
        self.rows[test.id()] = ["passed", cpu_seconds()]

    def stopTest(self, test):  # noqa: N802
        self.rows[test.id()][1] = cpu_seconds() - self.rows[test.id()][1]
        super().stopTest(test)

    def addError(self, test, err):  # noqa: N802
        super().addError(test, err)
        self.rows.setdefault(test.id(), ["", 0.0])[0] = f"error: {err[1]!r}"[:300]

    def addFailure(self, test, err):  # noqa: N802
        super().addFailure(test, err)
        self.rows[test.id()][0] = f"failed: {err[1]}"[:300]

    def addSkip(self, test, reason):  # noqa: N802
        super().addSkip(test, reason)
        self.rows[test.id()][0] = f"skipped: {reason}"


def install_clock():
    """Makes `time.sleep` advance `time.time` instead of waiting."""
    real, offset = time.time, 0.0

    def sleep(seconds):
        nonlocal offset
        offset += seconds

    time.time = lambda: real() + offset
    time.sleep = sleep


def install_ours(names):
    """Puts modules of ours in place of the library's: `hostlist=penstock.compat.hostlist,...`."""
    for pair in names.split(","):
        theirs, _, ours = pair.partition("=")
        *packages, _ = theirs.split(".")
        for depth in range(len(packages)):
            package = ".".join(packages[: depth + 1])
            if package not in sys.modules:
                sys.modules[package] = types.ModuleType(package)
                sys.modules[package].__path__ = []
        # Their modules have no `__all__`: a wildcard imports what they import, too.
        found = vars(importlib.import_module(ours))
        module = types.ModuleType(theirs)
        vars(module).update({name: value for name, value in found.items() if name[:2] != "__"})
        module.time = time
        sys.modules[theirs] = module


def ignore_words():
    """Lets ClusterShell's tests of a command line accept any text on the standard error."""
    library = importlib.import_module("tests.TLib")
    original = library.CLI_main

    def main(test, function, arguments, stdin, stdout, code=0, stderr=None):
        original(test, function, arguments, stdin, stdout, code, None)

    library.CLI_main = main


def main(mode, library, tests, *modules):
    install_clock()
    if mode == "theirs":
        sys.path.insert(0, library)
    else:
        install_ours(library)
    sys.path.insert(0, tests)
    if mode == "wordless":
        ignore_words()
    best = {}
    for _ in range(RUNS):
        result = Result()
        names = unittest.defaultTestLoader.loadTestsFromNames(modules)
        # The output of tests is not part of the result.
        stdout, sys.stdout = sys.stdout, io.StringIO()
        try:
            names.run(result)
        finally:
            sys.stdout = stdout
        for name, (outcome, seconds) in result.rows.items():
            before = best.get(name, (outcome, seconds))
            worst = before[0] if outcome == "passed" else outcome
            best[name] = worst, min(seconds, before[1])
    json.dump(best, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
