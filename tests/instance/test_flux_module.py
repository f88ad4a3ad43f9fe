"""The broker module sched-penstock on a Penstock instance, with stand-ins for what it uses of Flux.

`tests/flux` has the tests with a live Flux.
"""

from __future__ import annotations

import ast
import errno
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent / "flux" / "sched-penstock.py"
SEVERITIES = {"info": 6, "err": 3}


class Log:
    level = "debug"

    def __init__(self, handle):
        self._handle = handle

    def __call__(self, severity, text):
        if severity <= SEVERITIES.get(self.level, 7):
            self._handle.log(severity, text)

    def error(self, text):
        self(3, text)


class BrokerModule:
    """A module whose reactor ends at once."""

    name = "sched-penstock"

    def __init__(self, handle, *args):
        self.handle = handle
        self.log = Log(handle)

    def debug_test(self, flag):
        return self.handle.debug_flags & flag

    def run(self):
        self.handle.during_run()


class Handle:
    """A handle of an instance."""

    debug_flags = 0

    def __init__(self, uri, table=None):
        self.uri = uri
        self.table = table or {}
        self.lines = []
        self.during_run = lambda: None

    def conf_get(self, key, default):
        return self.table or default

    def attr_get(self, name):
        return {"local-uri": self.uri}[name]

    def log(self, severity, text):
        self.lines.append((severity, text))

    def fd_watcher_create(self, fd, callback, events):
        return SimpleNamespace(start=lambda: None, stop=lambda: None)


@pytest.fixture
def module(monkeypatch):
    """The module, which imports the parts of Flux that are above."""
    brokermod, constants = ModuleType("flux.brokermod"), ModuleType("flux.constants")
    brokermod.BrokerModule = BrokerModule
    brokermod.request_handler = lambda topic: lambda method: method
    constants.FLUX_POLLIN, constants.FLUX_POLLERR = 1, 2
    for loaded in (ModuleType("flux"), brokermod, constants):
        monkeypatch.setitem(sys.modules, loaded.__name__, loaded)
    spec = importlib.util.spec_from_file_location("sched_penstock", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_schedules_until_its_reactor_ends(module, start):
    with start("--sched", "none", "--exec", "sim") as instance:
        handle = Handle(instance.uri, {"policy": "fcfs", "log-level": "info"})
        scheduler = module.SchedPenstock(handle, "policy=conservative", "queue-depth=4")

        def during_run():
            assert instance.penstock("run", "true").returncode == 0
            stats = json.loads("".join(instance.lines("stats", "--json", "sched")))
            assert stats["policy"] == "conservative"

        handle.during_run = during_run
        scheduler.run()
        assert handle.lines == [(6, "ready")]
        # Its services are free.
        second = module.SchedPenstock(Handle(instance.uri))
        with pytest.raises(FileExistsError):
            module.SchedPenstock(Handle(instance.uri))
        second.run()
        rejecting = Handle(instance.uri)
        with pytest.raises(OSError, match="invalid policy `best`") as raised:
            module.SchedPenstock(rejecting, "policy=best")
        assert raised.value.errno == errno.EINVAL
        assert [severity for severity, _ in rejecting.lines] == [3]


@pytest.mark.parametrize(
    ("arguments", "table", "text"),
    [
        (["policy"], {}, "argument `policy`: expected KEY=VALUE"),
        (["x=1"], {}, "unknown option `x`: expected one of policy, "),
        ([], {"x": 1}, "unknown option `x`: expected one of policy, "),
        (["queue-depth=0"], {}, "--limit: expected 1 to 2147483647, found 0"),
        (["python=/dev/null/python"], {}, "/dev/null/python: Not a directory"),
    ],
)
def test_an_invalid_option_is_in_the_log(module, arguments, table, text):
    handle = Handle("local:///nowhere", table)
    with pytest.raises(OSError, match=r".+"):
        module.SchedPenstock(handle, *arguments)
    ((severity, line),) = handle.lines
    assert severity == 3
    assert text in line


def test_the_interpreter_is_that_of_the_installation_or_that_of_flux(module, monkeypatch, tmp_path):
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    monkeypatch.setattr(module, "SITE", str(site))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert module.interpreter("/a/python") == (["/a/python"], {})
    # Nothing is installed there: the Python of Flux runs it from that folder.
    assert module.interpreter(None) == ([sys.executable], {"PYTHONPATH": str(site)})
    monkeypatch.setenv("PYTHONPATH", "/b")
    assert module.interpreter(None)[1] == {"PYTHONPATH": f"{site}{os.pathsep}/b"}
    monkeypatch.setattr(module.sys, "version_info", (3, 6, 8))
    with pytest.raises(ValueError, match=r"needs Python 3\.11 or newer, Flux has 3\.6: expected"):
        module.interpreter(None)
    (tmp_path / "bin").mkdir()
    for name in ("python3", "penstock"):
        (tmp_path / "bin" / name).touch()
    assert module.interpreter(None) == ([str(tmp_path / "bin" / "python3")], {})


def test_it_is_python_3_6_and_imports_the_standard_library_and_flux_only():
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 6))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    assert names <= sys.stdlib_module_names | {"flux"}
