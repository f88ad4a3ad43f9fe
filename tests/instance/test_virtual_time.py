"""A whole instance in virtual time, in one thread, without a socket, a file or a process."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import errno
import json
import os
import pathlib
import signal
import socket
import tomllib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from simulatedsystem import HOUR, OPTIONS, in_virtual_time, instance_on
from trio.testing import wait_all_tasks_blocked

import penstock.instance
from penstock._core import IDset, ResourceSet
from penstock.aclient import Client, NoInstanceError
from penstock.clock import SystemClock
from penstock.config import parse
from penstock.errors import RpcError
from penstock.instance import services
from penstock.instance.parent_instance import Parent
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from simulatedsystem import SimulatedMachine


class ForbiddenEnvironment(dict[str, str]):
    """An environment that can be written, as pytest does, and not be read."""

    def _forbidden(self, *_args: Any) -> Any:
        raise AssertionError("the environment of the test's process is read")

    __getitem__ = __iter__ = __contains__ = get = items = keys = values = copy = _forbidden


@pytest.fixture(autouse=True)
def no_system_calls(monkeypatch):
    """Makes an instance fail that uses the real system: clock, host, sockets, files, processes."""

    def forbidden(*args: Any, **_options: Any) -> None:
        raise AssertionError(f"a call of the operating system: {args}")

    for module, name in [
        (trio.lowlevel, "open_process"),
        (trio.socket, "socket"),
        (trio.to_thread, "run_sync"),
        (os, "open"),
        (os, "kill"),
        (os, "killpg"),
        (os, "urandom"),
        (os, "geteuid"),
        (os, "sched_getaffinity"),
        (os, "sched_setaffinity"),
        (socket, "gethostname"),
        (pathlib.Path, "mkdir"),
        (pathlib.Path, "open"),
        (builtins, "open"),
        (SystemClock, "now"),
        (SystemClock, "monotonic"),
    ]:
        monkeypatch.setattr(module, name, forbidden)
    monkeypatch.setattr(os, "environ", ForbiddenEnvironment())


def jobspec(*command: str, duration: float = 0, run_s: float = 0, **options: Any) -> dict[str, Any]:
    """A job that simulated execution runs for `run_s` seconds."""
    spec = from_command(list(command), duration=duration, environment={}, cwd="/", **options)
    spec["attributes"]["system"]["exec"] = {"test": {"run_duration": f"{run_s:g}s"}}
    return spec


# Simulated execution: a job runs as long as its jobspec says.
SIMULATED = dataclasses.replace(OPTIONS, exec="sim")


def test_a_time_limit_expires_hours_later():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, SIMULATED) as client:
            short = await client.submit(jobspec("true", duration=5 * HOUR, run_s=60))
            long = await client.submit(jobspec("true", duration=5 * HOUR, run_s=9 * HOUR))
            rows = {row["id"]: row async for row in client.wait_rows([short, long])}
            assert rows[short]["waitstatus"] == 0
            assert rows[long]["exception_type"] == "timeout"
            assert rows[long]["t_cleanup"] - rows[long]["t_run"] == pytest.approx(5 * HOUR, abs=1)

    assert in_virtual_time(scenario) >= 5 * HOUR


def test_pending_jobs_survive_a_restart_and_running_ones_are_cancelled():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            running, pending = [
                await client.submit(jobspec("sleep", "2h", nodes=2, exclusive=True))
                for _ in range(2)
            ]
            await trio.sleep(HOUR)
        await trio.sleep(24 * HOUR)
        async with instance_on(machine) as client:
            rows = {row["id"]: row async for row in client.wait_rows([running, pending])}
        assert rows[running]["exception_type"] == "cancel"
        assert rows[pending]["success"]
        assert rows[pending]["t_run"] - rows[running]["t_run"] == pytest.approx(25 * HOUR, abs=5)

    in_virtual_time(scenario)


async def names_of_events(client: Client, job: int) -> list[str]:
    document = await client.lookup(job, "eventlog")
    return [json.loads(line)["name"] for line in document["eventlog"].splitlines()]


@pytest.mark.parametrize("end", ["crash", "keep-running", "restart"])
def test_jobs_of_an_instance_that_ends_without_them_continue(end):
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, crash=end == "crash") as client:
            ended, running = [await client.submit(jobspec("sleep", each)) for each in ("2h", "9h")]
            await trio.sleep(HOUR)
            if end != "crash":
                flags = {end.replace("-", "_"): True}
                with suppress(NoInstanceError):
                    await client.shutdown(**flags)
        await trio.sleep(3 * HOUR)
        # At a restart the service ends before the next daemon, which starts its own, starts.
        assert (machine.processes.services[0].status is not None) == (end == "restart")
        async with instance_on(machine) as client:
            rows = {row["id"]: row async for row in client.wait_rows([ended, running])}
            names = {job: await names_of_events(client, job) for job in rows}
        tasks = machine.processes.tasks
        for job, row in rows.items():
            assert row["success"]
            assert tasks[job].signals == []
            assert names[job].count("start") == 1
            assert "reattached" in names[job]
        assert len(tasks) == 2
        assert rows[running]["t_cleanup"] - rows[running]["t_run"] == pytest.approx(9 * HOUR, abs=5)
        assert [service.status for service in machine.processes.services] == [signal.SIGTERM, 0]

    in_virtual_time(scenario)


def test_a_service_that_is_killed_is_started_again():
    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            job = await client.submit(jobspec("sleep", "2h"))
            await trio.sleep(HOUR)
            (service,) = machine.processes.services
            service.end(signal.SIGKILL)
            row = await client.wait_row(job)
            assert row["success"]
            assert row["t_cleanup"] - row["t_run"] == pytest.approx(2 * HOUR, abs=1)
            assert (await names_of_events(client, job)).count("start") == 1
        assert len(machine.processes.services) == 2

    in_virtual_time(scenario)


def test_a_service_gets_the_settings_that_have_changed_since_its_start():
    config = (
        "[penstock.exec]\nkill-timeout = '2s'\noutput-limit = 1000\n"
        "output-reserve = 2000\nuser-output-limit = 3000\n"
    )

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine) as client:
            assert (await client.wait_row(await client.submit(jobspec("true"))))["success"]
            await client.config_reload(tomllib.loads(config))
            await wait_all_tasks_blocked()
            (first,) = machine.processes.services
            assert first.service is not None
            changed = {
                "kill-timeout": 2.0,
                "output-limit": 1000,
                "output-reserve": 2000,
                "user-output-limit": 3000,
            }
            assert first.service.settings == [changed]
            first.end(signal.SIGKILL)
            assert (await client.wait_row(await client.submit(jobspec("true"))))["success"]
            _, second = machine.processes.services
            options = [
                word for name, value in changed.items() for word in (f"--{name}", str(value))
            ]
            assert second.command[-len(options) :] == options
            assert second.service is not None
            assert second.service.settings == []

    in_virtual_time(scenario)


def test_a_prolog_is_ended_at_its_timeout():
    config = parse('[job-manager.prolog]\ncommand = ["sleep", "1000h"]\ntimeout = "2h"\n')

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, dataclasses.replace(SIMULATED, config=config)) as client:
            row = await client.wait_row(await client.submit(jobspec("true")))
        assert row["exception_type"] == "prolog"
        (prolog,) = machine.processes.started
        assert prolog.signals == [signal.SIGTERM]

    assert in_virtual_time(scenario) >= 2 * HOUR


def test_two_runs_are_the_same_to_the_byte():
    def eventlogs() -> list[str]:
        found: list[str] = []

        async def scenario(machine: SimulatedMachine) -> None:
            async with instance_on(machine, SIMULATED) as client:
                spec = jobspec("true", duration=HOUR / 2, run_s=HOUR)
                jobs = await client.submit(spec, count=20)
                async for _row in client.wait_rows(jobs):
                    pass
                documents = [await client.lookup(job, "eventlog") for job in jobs]
                found.extend(document["eventlog"] for document in documents)

        in_virtual_time(scenario)
        return found

    assert eventlogs() == eventlogs()


# --- the host


# One node, whose cores are the host's, so that tasks are bound.
DISCOVERED = dataclasses.replace(OPTIONS, nodes=None, cores=None, oversubscribe=False)


def test_resources_environment_and_identity_are_those_of_the_host():
    async def scenario(machine: SimulatedMachine) -> None:
        machine.host.environment["SITE"] = "here"
        async with instance_on(machine, DISCOVERED) as client:
            row = await client.wait_row(await client.submit(jobspec("true", cores_per_task=2)))
            assert (row["nodelist"], row["success"]) == ("simulated", True)
            (service,) = machine.processes.services
            assert service.environment["SITE"] == "here"
            assert "--oversubscribe" not in service.command
            assert (await client.rpc("broker.stats-get"))["process"]["pid"] == machine.host.pid
            owner = await client.rpc("attr.get", {"name": "security.owner"})
            assert owner["value"] == str(machine.host.uid)

    in_virtual_time(scenario)


def test_resources_are_read_from_a_file_of_the_host():
    async def scenario(machine: SimulatedMachine) -> None:
        path = pathlib.Path("/nowhere/R")
        machine.host.files[path] = ResourceSet.uniform("0-6", "a[0-6]", cores="0")
        options = dataclasses.replace(OPTIONS, nodes=None, cores=None, R=path)
        async with instance_on(machine, options) as client:
            assert (await client.rpc("attr.get", {"name": "size"}))["value"] == "7"

    in_virtual_time(scenario)


def test_a_nested_instance_binds_itself_to_the_cores_of_its_job():
    async def scenario(machine: SimulatedMachine) -> None:
        parent = Parent(
            uri="local:///nowhere/parent",
            job=1,
            flux=False,
            level=0,
            resources=ResourceSet.uniform("0", "simulated", cores="2-3"),
            jobspec={},
            oversubscribe=False,
        )
        options = dataclasses.replace(DISCOVERED, parent=parent)
        async with instance_on(machine, options) as client:
            assert machine.host.bound == IDset("2-3")
            assert (await client.wait_row(await client.submit(jobspec("true"))))["success"]

    in_virtual_time(scenario)


# The modules that implement `System`; all others get what they need from it.
IMPLEMENTATIONS = {
    *("clock", "directories", "host", "sockets", "processes", "retained_output", "pmix_server"),
    "service_manager",
}
SYSTEM_MODULES = {
    *("os", "time", "socket", "subprocess", "random", "secrets", "tempfile", "shutil", "fcntl"),
    *("select", "selectors", "multiprocessing", "platform", "pwd"),
}


def test_only_the_implementations_of_system_import_the_operating_system(monkeypatch):
    monkeypatch.undo()
    (folder,) = penstock.instance.__path__
    found = set()
    for path in pathlib.Path(folder).glob("*.py"):
        if path.stem in IMPLEMENTATIONS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found |= {(path.stem, name) for name in names if name in SYSTEM_MODULES}
    assert not found


def test_a_clock_that_is_set_far_forward_rejects_submissions_until_it_is_right():
    step = 90_000.0

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, SIMULATED) as client:
            job = await client.submit(jobspec("true", run_s=60))
            # As time synchronization does.
            machine.clock.set(1800.0)
            await client.submit(jobspec("true"))
            machine.clock.set(step)
            with pytest.raises(RpcError, match="the clock was set forward by 91800 s") as caught:
                await client.submit(jobspec("true"))
            assert caught.value.errno == errno.EAGAIN
            machine.clock.set(-step)
            await client.submit(jobspec("true"))
            assert (await client.wait_row(job))["success"]
            # New ids follow the greatest one.
            machine.clock.set(-step)
            assert await client.submit(jobspec("true")) > job
            machine.clock.set(step)
            machine.clock.set(step)
        # A new start takes the clock for right.
        async with instance_on(machine, SIMULATED) as client:
            later = await client.submit(jobspec("true"))
            assert later > job

    in_virtual_time(scenario)


def test_no_job_is_purged_by_its_age_while_the_clock_is_wrong():
    config = parse('[job-manager]\ninactive-age-limit = "2h"\n')
    options = dataclasses.replace(SIMULATED, config=config)
    ahead = 48 * HOUR

    async def ids(client: Client) -> list[int]:
        return [row.id for row in await client.jobs()]

    async def scenario(machine: SimulatedMachine) -> None:
        async with instance_on(machine, options) as client:
            job = await client.submit(jobspec("true"))
            await client.wait_row(job)
            machine.clock.set(ahead)
            with pytest.raises(RpcError, match="the clock was set forward"):
                await client.submit(jobspec("true"))
            await trio.sleep(HOUR)
            assert await ids(client) == [job]
            machine.clock.set(-ahead)
            await trio.sleep(HOUR / 2)
            assert await ids(client) == [job]
        # Too far ahead for ids from the start on.
        epoch = machine.clock._epoch
        machine.clock._epoch = epoch + 36 * 365.25 * 24 * HOUR
        async with instance_on(machine, options) as client:
            assert await ids(client) == [job]
            machine.clock._epoch = epoch
            await trio.sleep(HOUR / 4)
            assert await ids(client) == [job]
            await trio.sleep(HOUR)
            assert not await ids(client)

    in_virtual_time(scenario)


def test_a_clock_35_years_ahead_rejects_submissions_and_ids_do_not_repeat():
    years = 365.25 * 24 * HOUR
    jobspec = from_command(["true"], environment={}, cwd="/", duration=60)
    ids: list[int] = []

    async def scenario(machine: SimulatedMachine) -> None:
        epoch = machine.clock._epoch
        for ahead in (0, 20, 34, 35, 1000, 0, 34.8):
            machine.clock._epoch = epoch + ahead * years
            async with instance_on(machine) as client:
                if ahead < 35:
                    ids.extend(await client.submit(jobspec, count=3))
                    continue
                with pytest.raises(RpcError, match="job ids are exhausted: the clock is") as caught:
                    await client.submit(jobspec)
                assert caught.value.errno == errno.EOVERFLOW
                # Within the same run, too.
                machine.clock._epoch = epoch
                ids.append(await client.submit(jobspec))

    in_virtual_time(scenario)
    assert len(ids) == 17
    assert ids == sorted(set(ids))


def test_free_memory_is_returned_after_work_and_not_while_there_is_none(monkeypatch):
    returned: list[float] = []

    async def scenario(machine: SimulatedMachine) -> None:
        monkeypatch.setattr(services, "return_memory", lambda: returned.append(trio.current_time()))
        options = dataclasses.replace(OPTIONS, exec="sim")
        async with instance_on(machine, options) as client:
            jobspec = from_command(["true"], environment={}, cwd="/", duration=60)
            await client.submit(jobspec, count=10, urgency=0)
            await trio.sleep(HOUR)
            assert returned
            # A question changes nothing in the store.
            returned.clear()
            assert len(await client.jobs()) == 10
            listed = trio.current_time()
            await trio.sleep(HOUR)
            assert len(returned) == 1
            assert returned[0] - listed <= 2 * services.MEMORY_PAUSE_S

    in_virtual_time(scenario)
