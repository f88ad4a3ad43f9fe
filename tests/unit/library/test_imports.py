"""Modules that an import loads: `import penstock` loads no other package."""

from __future__ import annotations

import subprocess
import sys


def imported_by(statement):
    code = (
        f"import sys; before = set(sys.modules); {statement};"
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def packages(statement):
    return {name.partition(".")[0] for name in imported_by(statement)}


def test_the_library_imports_itself_and_next_to_nothing():
    assert packages("import penstock") <= {"penstock"}


def test_job_ids_cost_no_more_than_the_library():
    library = imported_by("import penstock")
    assert imported_by("import penstock.jobid") == {*library, "penstock.jobid"}


def test_the_executor_is_imported_on_first_use():
    assert "penstock.executor" not in imported_by("import penstock")
    assert "penstock.executor" in imported_by("from penstock import JobExecutor")


def test_the_engine_is_imported_on_first_use():
    assert "penstock.engine" not in imported_by("import penstock")
    assert "penstock.engine" in imported_by("from penstock import Engine")


def test_the_library_and_the_blocking_client_do_not_import_asyncio():
    assert "asyncio" not in imported_by("import penstock, penstock.client, penstock.executor")
    assert "asyncio" in imported_by("import penstock.aioclient")
    assert "trio" not in imported_by("import penstock.aioclient")


def test_the_library_does_not_import_the_compat_modules():
    assert not {name for name in imported_by("import penstock") if "compat" in name}


def test_the_simulator_does_not_import_the_instance():
    names = imported_by("import penstock.sim.report, penstock.sim.runs, penstock.cli.sim")
    assert not {name for name in names if name.startswith(("penstock.instance", "trio"))}


def test_no_third_party_package_is_needed_by_library_or_client():
    for module in (
        "penstock",
        "penstock.resource",
        "penstock.client",
        "penstock.aioclient",
        "penstock.engine",
        "penstock.executor",
        "penstock.jobid",
        "penstock.jobspec",
        "penstock.compat.flux.resource",
        "penstock.compat.hostlist",
        "penstock.compat.ClusterShell.NodeSet",
    ):
        names = packages(f"import {module}")
        assert names <= {"penstock", *sys.stdlib_module_names}, module
