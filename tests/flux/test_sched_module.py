"""The broker module sched-penstock: commands of `flux module`, arguments, configuration, log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.instance.conftest import is_running


@pytest.fixture
def broker(start_flux):
    """An instance without a scheduler."""
    with start_flux(without=("sched-simple",)) as instance:
        yield instance


def process_of(flux) -> int:
    """The pid of the scheduler below the module."""
    done = subprocess.run(
        ["ps", "-wweo", "pid=,args="], capture_output=True, text=True, check=True, timeout=60
    )
    wanted = f"penstock sched --uri {flux.uri} "
    (pid,) = (int(line.split()[0]) for line in done.stdout.split("\n") if wanted in line)
    return pid


def test_it_loads_schedules_and_ends_like_any_module(broker):
    broker.flux("module", "load", "sched-penstock", "policy=conservative", "queue-depth=unlimited")
    assert broker.flux("run", "echo", "hello") == "hello"
    listed = broker.flux("module", "list").split("\n")
    assert sum("sched-penstock" in line for line in listed) == 1
    assert sum("feasibility,sched" in line for line in listed) == 1
    stats = broker.stats()
    assert (stats["ready"], stats["policy"], stats["running"]) == (True, "conservative", 0)
    assert broker.flux("module", "debug", "--setbit=1", "sched-penstock") == "0x1"
    broker.flux("module", "reload", "sched-penstock", "policy=fcfs", "queue-depth=2")
    assert broker.stats()["policy"] == "fcfs"
    assert broker.flux("run", "echo", "again") == "again"
    pid = process_of(broker)
    broker.flux("module", "remove", "sched-penstock")
    assert not is_running(pid)
    # The services are free at once.
    broker.flux("module", "load", "sched-simple")
    assert broker.flux("run", "echo", "simple") == "simple"
    assert broker.log() == ["sched-penstock.info[0]: ready"] * 2


def test_a_job_keeps_its_resources_while_the_module_is_reloaded(broker):
    broker.flux("module", "load", "sched-penstock")
    os.mkfifo(broker.directory / "gate")
    cores = broker.flux("resource", "list", "-s", "up", "-no", "{ncores}")
    first = broker.submit("-n1", "-c", cores, "cat", "gate")
    broker.flux("module", "reload", "sched-penstock")
    second = broker.flux("submit", "-n1", "-c", cores, "true")
    assert broker.flux("resource", "list", "-s", "free", "-no", "{ncores}") == "0"
    assert broker.stats()["running"] == 1
    (broker.directory / "gate").write_text("")
    assert broker.end(first)[0] == 0
    assert broker.end(second)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "text", "error"),
    [
        (["policy"], "argument `policy`: expected KEY=VALUE", "Invalid argument"),
        (["mode=single"], "unknown option `mode`: expected one of policy, ", "Invalid argument"),
        (["policy=best"], "policy: invalid policy `best`: expected `fcfs`, ", "Invalid argument"),
        (["annotate=many"], "annotate: expected a whole number, found ", "Invalid argument"),
        (["queue-depth=0"], "--limit: expected 1 to 2147483647, found 0", "Invalid argument"),
        (["log-level=loud"], "invalid log level 'loud'", "Invalid argument"),
    ],
)
def test_an_invalid_argument_is_an_error(broker, arguments, text, error):
    errors = broker.fails("module", "load", "sched-penstock", *arguments)
    assert errors.endswith(error)
    assert [text in line for line in broker.log()] == [True]
    broker.flux("module", "load", "sched-penstock")
    assert broker.flux("run", "echo", "hello") == "hello"


def test_a_second_scheduler_is_rejected(start_flux):
    with start_flux() as broker:
        assert "File exists" in broker.fails("module", "load", "sched-penstock")
        assert broker.log() == ["sched-penstock.err[0]: another scheduler is registered as `sched`"]
        assert broker.flux("run", "echo", "hello") == "hello"


def test_the_end_of_the_scheduler_is_the_end_of_the_module(broker):
    broker.flux("module", "load", "sched-penstock")
    os.kill(process_of(broker), signal.SIGKILL)
    while "sched-penstock" in broker.flux("module", "list"):
        pass
    assert broker.log()[-1] == "sched-penstock.err[0]: penstock sched has ended with status -9"
    broker.flux("module", "load", "sched-penstock")
    assert broker.flux("run", "echo", "hello") == "hello"


def test_the_instance_survives_a_reload_of_the_resource_module(broker):
    broker.flux("module", "load", "sched-penstock")
    assert broker.flux("run", "echo", "hello") == "hello"
    broker.flux("module", "reload", "-f", "resource")
    while "sched-penstock" in broker.flux("module", "list"):
        pass
    assert "resource.acquire failed" in broker.log()[-2]
    broker.flux("module", "load", "sched-penstock")
    assert broker.flux("run", "echo", "hello") == "hello"


def test_a_killed_module_leaves_no_scheduler(broker):
    broker.flux("module", "load", "sched-penstock")
    pid = process_of(broker)
    broker.flux("module", "remove", "--cancel", "sched-penstock")
    while is_running(pid):
        pass


CONFIGURATION = """
[modules]
alternatives.sched = "sched-penstock"

[sched-penstock]
policy = "{policy}"
selection = "pack"
queue-depth = 8
"""


def test_the_configuration_chooses_it_and_a_reload_changes_the_policy(start_flux, tmp_path):
    file = tmp_path / "flux.toml"
    file.write_text(CONFIGURATION.format(policy="fcfs"))
    with start_flux(f"--config-path={file}") as flux:
        assert "sched-penstock" in flux.flux("module", "list")
        stats = flux.stats()
        assert (stats["policy"], stats["selection"]) == ("fcfs", "pack")
        assert flux.flux("run", "echo", "hello") == "hello"
        file.write_text(CONFIGURATION.format(policy="hybrid:4"))
        flux.flux("config", "reload")
        assert flux.stats()["policy"] == "hybrid:4"
        file.write_text(CONFIGURATION.format(policy="best"))
        assert "invalid policy `best`" in flux.fails("config", "reload")
        assert flux.stats()["policy"] == "hybrid:4"
        # An argument overrides the table.
        flux.flux("module", "reload", "sched-penstock", "policy=easy")
        assert flux.stats()["policy"] == "easy"
        file.write_text(CONFIGURATION.format(policy="conservative"))
        flux.flux("config", "reload")
        assert flux.stats()["policy"] == "easy"


def test_an_instance_of_several_brokers_starts_with_it(start_flux):
    conf = '--conf=modules.alternatives.sched="sched-penstock"'
    # The resources are those that the brokers find, once all are there.
    with start_flux("--test-size=3", conf) as flux:
        assert flux.flux("run", "-N3", "echo", "hello").split() == ["hello"] * 3


def test_an_instance_in_a_job_uses_it_at_every_level(flux):
    conf = '--conf=modules.alternatives.sched="sched-penstock"'
    inner = "flux module list | grep -c sched-penstock && flux run echo inner"
    outer = f"flux module list | grep -c sched-penstock && flux alloc -n1 '{conf}' sh -c '{inner}'"
    done = flux.flux("alloc", "-n1", conf, "sh", "-c", outer)
    assert done.split() == ["1", "1", "inner"]


def test_another_interpreter_can_run_the_scheduler(broker):
    errors = broker.fails("module", "load", "sched-penstock", "python=/dev/null/python")
    assert errors.endswith("Not a directory")
    assert broker.log() == ["sched-penstock.err[0]: /dev/null/python: Not a directory"]
    broker.flux("module", "load", "sched-penstock", f"python={sys.executable}")
    assert broker.flux("run", "echo", "hello") == "hello"
    command = Path(f"/proc/{process_of(broker)}/cmdline").read_text().split("\0")
    assert command[0] == sys.executable
