"""One run of a simulation: a machine, an instance on it, clients, and what a step does."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import logging
import random
import shutil
import signal
import tempfile
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from simulatedsystem import HOUR, OPTIONS, OWNER, SimulatedMachine, SimulatedProcesses
from tests.simulation.client import Client, Promises, Submission
from tests.simulation.faults import Faults, FaultyManager, is_injected
from tests.simulation.network import FaultyNetwork
from trio.testing import wait_all_tasks_blocked

from penstock._core import JobManager
from penstock.config import from_dict
from penstock.errors import StoreError
from penstock.instance.daemon import Instance
from penstock.instance.supervision import FAULTS, SUSPENSION_S
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.script import Script, Step

    from penstock.instance.system import System

# The store is on a file system in memory, if there is one.
SHARED_MEMORY = Path("/dev/shm")
CONFIG = '[access]\nallow-guest-user = true\n[penstock]\nclock-step-limit = "1h"\n'
OWNERS, GUESTS = 3, 2
SERVICES = ("broker", "job-manager", "resource", "log", "hooks", "kvs", "sched", "job-exec")
# RFC 21: the events of a job in their order; some can be repeated or left out.
ORDER = "submit validate depend priority alloc start finish release free clean".split()
REPEATED = {"priority", "release"}
# Longer than every response that waits for nothing.
PATIENCE_S = 2.0
# Seconds in which all jobs end when nothing fails.
END_S = 48 * HOUR
MAX_CLOCK_STEP_S = 20 * HOUR


def document(hook_ms: int) -> dict[str, Any]:
    """The configuration: with hooks that take this long, or without (0)."""
    command = ["sleep", f"{hook_ms}ms"]
    hooks = {"prolog": {"command": command}, "epilog": {"command": command}}
    return {**tomllib.loads(CONFIG), "job-manager": hooks if hook_ms else {}}


@dataclasses.dataclass(frozen=True)
class Violation:
    """An invariant that does not hold."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


class Stop(Exception):  # noqa: N818
    """Ends a run at its first violation."""


class Machine(SimulatedMachine):
    """A machine whose store is in files, and can fail.

    Args:
        clock: the mock clock of the Trio run.
        folder: where the store is.
        network: connects clients.
        faults: those of its instances.
    """

    def __init__(
        self, clock: Any, folder: Path, network: FaultyNetwork, faults: Faults, seed: int
    ) -> None:
        super().__init__(clock, "simulation", seed)
        self.network = network
        self.processes = SimulatedProcesses(self.host, network)
        self._folder = folder
        self._numbers = itertools.count()
        self._faults = faults
        self.store = folder / "0" / "jobs.sqlite"
        self.store.parent.mkdir()

    def _open_manager(self, settings: str, now: float) -> Any:
        manager = self._faults.write_store(JobManager, self.store, settings, now)
        return FaultyManager(manager, self._faults)

    def save_store(self) -> None:
        """Has the next instance start with the files as they are now."""
        folder = self._folder / str(1 + next(self._numbers))
        is_shared_memory = shutil.ignore_patterns("*-shm")
        with self._faults.unlimited_files():
            shutil.copytree(self.store.parent, folder, ignore=is_shared_memory)
        self.store = folder / self.store.name

    def system(self) -> System:
        """The system of the next instance on this machine."""
        return dataclasses.replace(super().system(), reserve=self._faults)


class Log(logging.Handler):
    """Reports tracebacks of which the simulation is not the cause."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Checks a record."""
        self.lines.append(f"{trio.current_time():.3f} {record.levelname} {record.getMessage()}")
        fault = record.exc_info[1] if record.exc_info else None
        if fault is None or is_injected(fault):
            return
        if isinstance(fault, StoreError) and self._world.faults.store_has_failed:
            return
        text = f"{record.getMessage()}: {fault!r}"
        self._world.record_violation("traceback", text)


class World:
    """All of a run.

    Args:
        script: the run.
        clock: the mock clock of the Trio run.
        folder: an empty folder for stores.
        nursery: runs instances and clients.
    """

    def __init__(self, script: Script, clock: Any, folder: Path, nursery: trio.Nursery) -> None:
        draws = random.Random(script.seed + 1)
        self._nursery = nursery
        self.violations: list[Violation] = []
        self.faults = Faults(self.kill, uses_cores=draws.random() < 0.7)
        self.network = FaultyNetwork(draws, draws.choice((300, 4000, 1 << 20)))
        self.machine = Machine(clock, folder, self.network, self.faults, script.seed)
        execution = draws.choice(("sim", "local"))
        config = from_dict(document(draws.choice((0, 0, 20, 2000))))
        self._options = dataclasses.replace(OPTIONS, exec=execution, config=config)
        self._promises = Promises(self.record_violation)
        uri = f"local://{OPTIONS.socket}"
        self.clients = [
            Client(number, OWNER + max(0, number + 1 - OWNERS), self.network, uri, self._promises)
            for number in range(OWNERS + GUESTS)
        ]
        self.log = Log(self)
        self._texts = itertools.count()
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()
        self._is_killed = self._is_stopping = False
        # By how much the clock was set forward, now and at its lowest.
        self._clock_step = self._lowest_clock_step = 0.0
        for client in self.clients:
            nursery.start_soon(client.run)

    def record_violation(self, invariant: str, text: str) -> None:
        """Records a violation."""
        self.violations.append(Violation(invariant, text))

    def check(self) -> None:
        """Ends the run if something is violated.

        Raises:
            Stop: it is.
        """
        if self.violations:
            raise Stop

    # --- the instance

    async def start(self) -> None:
        """Starts an instance, if none runs."""
        if self._scope is not None:
            return
        self._is_killed = self._is_stopping = False
        self._ended = trio.Event()
        try:
            instance = Instance(self._options, self.machine.system())
        except StoreError as error:
            if not self.faults.store_has_failed:
                self.record_violation("start", str(error))
            return
        self.machine.instance = instance
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._run_instance, instance, self._scope)
        await wait_all_tasks_blocked()

    async def _run_instance(self, instance: Instance, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await instance.run()
            if not self._is_killed and not self._is_stopping:
                self.record_violation("ended", "the instance has ended")
        except* StoreError as group:
            if not self.faults.store_has_failed:
                self.record_violation("ended", f"the instance has ended: {group.exceptions}")
        except* FAULTS as group:
            if not is_injected(group) and not self._is_killed:
                self.record_violation("ended", f"the instance has ended: {group.exceptions}")
        if not self._is_killed:
            self.machine.save_store()
            self.network.kill()
        self._scope = None
        self._ended.set()

    def kill(self) -> None:
        """Ends the daemon at once: what it does from now on has no effect."""
        if self._scope is None or self._is_killed:
            return
        self._is_killed = True
        self.machine.save_store()
        self.network.kill()
        self._scope.cancel()

    async def _wait_for_end(self) -> None:
        """Returns when the instance has ended.

        Raises:
            Stop: it does not.
        """
        with trio.move_on_after(HOUR) as scope:
            await self._ended.wait()
        if scope.cancelled_caught:
            self.record_violation("end", "the instance does not end")
            raise Stop

    # --- steps

    async def take(self, step: Step) -> None:
        """Takes a step, and checks what holds after each."""
        method = getattr(self, "_" + step.kind.replace("-", "_"))
        result = method(*step.numbers)
        if result is not None:
            await result
        if self._is_killed and self._scope is not None:
            await self._wait_for_end()
        self.check()

    def _client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def _job(self, number: int) -> int:
        jobs = self._promises.jobs()
        # The newest ones more often.
        return jobs[-1 - number % len(jobs)] if jobs else 1

    def _new_text(self) -> str:
        """A text that no other request has."""
        return f"text {next(self._texts)}."

    def _submit(self, client: int, shape: int, urgency: int, token: int) -> None:
        name = f"s{len(self._promises.submissions)}"
        duration = (0.0, 0.5, 5.0, 60.0, 1800.0)[shape % 5]
        attributes: dict[str, Any] = {"exec.test.run_duration": f"{duration:g}s"}
        if shape % 7 == 3:
            begin = self.machine.clock.now() + 30
            attributes["dependencies"] = [{"scheme": "begin-time", "value": str(begin)}]
        jobspec = from_command(
            ["sleep", f"{duration:g}s"],
            ntasks=1 + shape % 3,
            duration=HOUR if shape % 2 else 0.0,
            environment={},
            cwd="/",
            name=name,
            setattr=attributes,
        )
        payload: dict[str, Any] = {"jobspec": jobspec, "urgency": urgency % 3 * 8}
        if shape % 4 == 1:
            payload["count"] = 1 + shape % 6
        if token % 3:
            payload["token"] = f"token-{name}"
        # Jobs of guests are simulated.
        users = OWNERS if self._options.exec == "local" else len(self.clients)
        submission = Submission(name, payload, self.clients[client % users])
        self._promises.submissions.append(submission)
        submission.client.submit(submission)

    def _resubmit(self, client: int, number: int) -> None:
        tokens = [each for each in self._promises.submissions if "token" in each.payload]
        if tokens:
            submission = tokens[-1 - number % len(tokens)]
            # A token belongs to a user.
            clients = [each for each in self.clients if each.uid == submission.client.uid]
            clients[client % len(clients)].submit(submission)

    def _burst(self, number: int) -> None:
        for client in range(len(self.clients)):
            # Of the services, the log and the hooks receive only what is committed.
            match number >> 2 * client & 3:
                case 0:
                    self._ping(client, 3)
                case 1:
                    self._ping(client, 4)
                case 2:
                    self._submit(client, number, 2, number)
                case _:
                    self._drain(client, number)

    def _latest(self, number: int) -> list[int]:
        """The latest jobs, eight at most."""
        return self._promises.jobs()[-1 - number % 8 :]

    def _cancel_many(self, client: int, number: int) -> None:
        payload = {"ids": self._latest(number), "type": "cancel", "severity": 0, "note": "x"}
        self._client(client).request("job-manager.raise", payload)

    def _urgency_many(self, client: int, number: int, urgency: int) -> None:
        payload = {"ids": self._latest(number), "urgency": urgency % 32}
        self._client(client).request("job-manager.urgency", payload)

    def _cancel(self, client: int, job: int) -> None:
        ids, text = [self._job(job)], self._new_text()
        payload = {"ids": ids, "type": "cancel", "severity": 0, "note": text}
        purpose = ("text", ids[0], text)
        self._client(client).request("job-manager.raise", payload, purpose=purpose)

    def _urgency(self, client: int, job: int, urgency: int) -> None:
        payload = {"ids": [self._job(job)], "urgency": urgency % 32}
        self._client(client).request("job-manager.urgency", payload)

    def _list(self, client: int) -> None:
        payload = {"max_entries": 0, "attrs": ["all"], "since": 0.0}
        self._client(client).request("job-list.list", payload, streaming=True)

    def _lookup(self, client: int, job: int) -> None:
        payload = {"id": self._job(job), "keys": ["eventlog", "R"], "flags": 0}
        self._client(client).request("job-info.lookup", payload)

    def _watch(self, client: int, job: int) -> None:
        payload = {"id": self._job(job), "path": "eventlog", "flags": 0}
        self._client(client).request(
            "job-info.eventlog-watch",
            payload,
            purpose=("watch", payload["id"]),
            streaming=True,
        )

    def _watch_all(self, job: int) -> None:
        for client in range(len(self.clients)):
            self._watch(client, job + client)

    def _wait(self, client: int, job: int) -> None:
        ids = [self._job(job)]
        self._client(client).request(
            "job-list.wait", {"ids": ids}, purpose=("wait", ids[0]), streaming=True
        )

    def _end_stream(self, client: int, number: int) -> None:
        self._client(client).end_stream(number)

    def _drain_jobs(self, client: int) -> None:
        self._client(client).request("job-manager.drain", {}, purpose=("drain",))

    def _ping(self, client: int, service: int) -> None:
        name = SERVICES[service % len(SERVICES)]
        # The simulated execution service has no statistics.
        method = "ping" if service % 3 or name == "job-exec" else "stats-get"
        self._client(client).request(f"{name}.{method}", {})

    def _follow_log(self, client: int) -> None:
        payload = {"follow": True, "nobacklog": False}
        self._client(client).request("log.dmesg", payload, purpose=("follow",), streaming=True)

    def _subscribe(self, client: int) -> None:
        self._client(client).request("event.subscribe", {"topic": "job"})

    def _memo(self, client: int, job: int) -> None:
        number, text = self._job(job), self._new_text()
        payload = {"id": number, "memo": {"a": text}}
        purpose = ("text", number, text)
        self._client(client).request("job-manager.memo", payload, purpose=purpose)

    async def _turns(self, count: int) -> None:
        for _ in range(count % 24):
            await trio.lowlevel.checkpoint()

    async def _settle(self) -> None:
        with trio.move_on_after(PATIENCE_S):
            await self._ended.wait()
            return
        self._check_answers()

    async def _advance(self, milliseconds: int) -> None:
        await trio.sleep(milliseconds / 1000)

    def _drain(self, client: int, rank: int) -> None:
        text = self._new_text()
        payload = {"targets": str(rank % 2), "reason": text, "mode": "overwrite"}
        self._client(client).request("resource.drain", payload, purpose=("text", 0, text))

    def _undrain(self, client: int, rank: int) -> None:
        payload = {"targets": str(rank % 2), "mode": "force"}
        self._client(client).request("resource.undrain", payload)

    def _queue_start(self, whether: int) -> None:
        payload = {"start": bool(whether % 2), "all": True, "reason": "x"}
        self.clients[0].request("job-manager.queue-start", payload)

    def _queue_enable(self, whether: int) -> None:
        payload = {"enable": bool(whether % 2), "all": True, "reason": "x"}
        self.clients[0].request("job-manager.queue-enable", payload)

    def _reload(self, milliseconds: int) -> None:
        self.clients[0].request("config.reload", {"config": document(milliseconds)})

    def _serve(self, client: int) -> None:
        served = self._client(client)
        served.request("service.add", {"service": served.service})

    def _call(self, client: int, other: int) -> None:
        name = self._client(other).service
        method = "never" if other % 3 == 0 else "get"
        self._client(client).request(f"{name}.{method}", {}, purpose=("call",))

    def _partial(self, client: int, size: int) -> None:
        self._client(client).send_partly(1 + size)

    def _garbage(self, client: int, size: int, seed: int) -> None:
        self._client(client).send_garbage(size % 300, seed)

    def _disconnect(self, client: int) -> None:
        self._client(client).disconnect()

    def _slow(self, client: int) -> None:
        client_ = self._client(client)
        client_.set_slow(is_slow=not client_.is_slow)

    def _fault(self, point: int, calls: int, kind: int) -> None:
        self.faults.arm(point, calls % 16, kind)

    def _store_error(self, number: int, attempts: int) -> None:
        self.faults.fail_store(number, attempts % 5)

    def _commit_error(self, commits: int, number: int) -> None:
        self.faults.fail_commit(commits % 8, number)

    def _disk_limit(self, size: int) -> None:
        self.faults.limit_files(size if size % 2 else size * 64)

    def _heal(self) -> None:
        self.faults.heal()

    def _kill_exec(self) -> None:
        for process in self.machine.processes.services:
            process.signal(signal.SIGKILL)

    def _crash(self) -> None:
        self.kill()

    def _crash_at(self, point: int, calls: int) -> None:
        self.faults.arm_kill(point, calls % 32)

    async def _stop(self, keep: int) -> None:
        if self._scope is None:
            return
        self._is_stopping = True
        if keep % 2:
            self.clients[0].request("broker.shutdown", {"keep_running": True})
            await self._settle()
        self.machine.stop.set()
        await self._wait_for_end()

    async def _start(self) -> None:
        await self.start()

    def _clock(self, forward: int, back: int) -> None:
        step = float(forward - back)
        # Tokens are forgotten after a day.
        if abs(self._clock_step + step) < MAX_CLOCK_STEP_S:
            self._clock_step += step
            self._lowest_clock_step = min(self._lowest_clock_step, self._clock_step)
            self.machine.clock.set(step)

    # --- invariants

    def _check_answers(self) -> None:
        """Checks that nothing is outstanding that waits for nothing."""
        if self._scope is None:
            return
        for client in self.clients:
            if not client.is_whole:
                continue
            late = [
                request.topic
                for request in client.outstanding.values()
                if not request.is_streaming and request.purpose not in (("drain",), ("call",))
            ]
            if late:
                self.record_violation("unanswered", f"{client.name}: no response to {late}")

    async def _ask(self, topic: str, payload: Any = None) -> Any:
        """The payload of a response to the owner.

        Raises:
            Stop: there is none, or it is an error.
        """
        client = self.clients[0]
        tag = client.request(topic, payload)
        response = None
        with trio.move_on_after(PATIENCE_S):
            response = await client.wait_for(tag or 0)
        if response is None or response.errnum:
            text = "no response" if response is None else response.error_text
            self.record_violation("unhealthy", f"{topic}: {text}")
            raise Stop
        return response.object() if response.payload else None

    async def wind_up(self) -> None:
        """Ends the run: without faults all is well and every job ends.

        Raises:
            Stop: not so.
        """
        self.faults.heal()
        # Forward it would be rejected again.
        self.machine.clock.set(self._lowest_clock_step - self._clock_step)
        for client in self.clients:
            client.set_slow(is_slow=False)
            client.send_partly(0)
            if client.is_malformed or not client.is_whole:
                client.disconnect()
        await self.start()
        self.check()
        # Suspended services are restarted.
        await trio.sleep(2.5 * SUSPENSION_S)
        self._check_answers()
        self.check()
        stats = await self._ask("broker.stats-get")
        if stats["failed"] or stats["suspended"]:
            self.record_violation("unhealthy", json.dumps(stats))
        for topic, payload in (
            ("config.reload", {"config": document(0)}),
            ("resource.undrain", {"targets": "0-1", "mode": "force"}),
            ("job-manager.queue-start", {"start": True, "all": True}),
            ("job-manager.queue-enable", {"enable": True, "all": True}),
        ):
            await self._ask(topic, payload)
        for submission in self._promises.submissions:
            if "token" in submission.payload and submission.ids is None:
                submission.client.submit(submission)
                await trio.sleep(PATIENCE_S)
                if submission.ids is None:
                    self.record_violation(
                        "unhealthy", f"{submission.name} is rejected: {submission.errors}"
                    )
        self.check()
        rows = await self._end_jobs()
        self._check_jobs(rows)
        self.check()
        self._check_streams()
        self.check()
        await self._check_restart(rows)
        self.check()

    async def _rows(self) -> dict[int, dict[str, Any]]:
        """All jobs, each with its event log."""
        client = self.clients[0]
        rows: dict[int, dict[str, Any]] = {}
        payload = {"max_entries": 0, "attrs": ["all"], "since": 0.0}
        tag = client.request("job-list.list", payload, purpose=("rows", rows), streaming=True)
        end = None
        with trio.move_on_after(PATIENCE_S):
            end = await client.wait_for(tag or 0)
        if end is None or end.errnum != errno.ENODATA:
            self.record_violation("unhealthy", "the list of jobs does not end")
            raise Stop
        return rows

    async def _end_jobs(self) -> dict[int, dict[str, Any]]:
        rows = await self._rows()
        active = [job for job, row in rows.items() if "t_inactive" not in row]
        for job in active:
            await self._ask("job-manager.urgency", {"ids": [job], "urgency": 16})
        with trio.move_on_after(END_S):
            while active:
                await trio.sleep(HOUR)
                rows = await self._rows()
                active = [job for job, row in rows.items() if "t_inactive" not in row]
        for job in active:
            self.record_violation("never-ends", f"{rows[job]}")
        return rows

    def _check_jobs(self, rows: dict[int, dict[str, Any]]) -> None:
        by_name: dict[str, list[int]] = {}
        for job, row in sorted(rows.items()):
            by_name.setdefault(row["name"], []).append(job)
        for submission in self._promises.submissions:
            stored = by_name.pop(submission.name, [])
            if submission.ids is not None:
                if lost := sorted(set(submission.ids) - set(stored)):
                    self.record_violation(
                        "acknowledged-lost", f"{submission.name}: {lost} of {submission.ids}"
                    )
                elif stored != submission.ids:
                    text = f"{submission.name}: {stored} are stored, acknowledged {submission.ids}"
                    self.record_violation("submitted-twice", text)
            elif stored and not submission.is_unknown:
                text = f"{submission.name}: {submission.errors}, and {stored} are stored"
                self.record_violation("rejected-stored", text)
            elif len(stored) not in (0, submission.count):
                self.record_violation("submitted-partly", f"{submission.name}: {stored}")
        if by_name:
            self.record_violation("unknown-job", f"{by_name}")

    def _check_streams(self) -> None:
        """Checks that nothing waits for the end of a job, as all have ended."""
        for client in self.clients:
            for request in client.outstanding.values():
                purpose = request.purpose
                if isinstance(purpose, tuple) and purpose[0] in ("watch", "wait", "drain"):
                    self.record_violation(
                        "stream-open", f"{client.name}: {request.topic} {request.purpose}"
                    )

    async def _check_restart(self, rows: dict[int, dict[str, Any]]) -> None:
        logs = {job: await self._log_of(job) for job in rows}
        for job, log in logs.items():
            seen = self._promises.events.get(job, [])
            if log[: len(seen)] != seen:
                self.record_violation(
                    "event-lost", f"job {job}: {seen} were seen, {log} are stored"
                )
            self._check_order(job, [json.loads(line)["name"] for line in log])
        logs[0] = [json.dumps(await self._ask("resource.history", {}))]
        for job, text in self._promises.texts:
            if text not in "".join(logs.get(job, [])):
                self.record_violation(
                    "event-lost", f"job {job}: `{text}` was acknowledged: {logs.get(job)}"
                )
        held = json.loads(self.machine.instance._manager.held())  # type: ignore[union-attr]
        if held["execution"]["R_lite"]:
            self.record_violation("never-freed", f"{held}")
        self.check()
        await self._stop(0)
        self.check()
        await self.start()
        self.check()
        again = await self._rows()
        if again != rows:
            changed = {job: (rows.get(job), again.get(job)) for job in {*rows, *again}}
            changed = {job: pair for job, pair in changed.items() if pair[0] != pair[1]}
            self.record_violation("replay", f"{changed}")

    async def _log_of(self, job: int) -> list[str]:
        answer = await self._ask("job-info.lookup", {"id": job, "keys": ["eventlog"], "flags": 0})
        return answer["eventlog"].splitlines()

    def _check_order(self, job: int, names: list[str]) -> None:
        places = [ORDER.index(name) for name in names if name in ORDER]
        for before, after in itertools.pairwise(places):
            if after < before or (after == before and ORDER[after] not in REPEATED):
                self.record_violation("event-order", f"job {job}: {names}")
                return
        if names[-1] != "clean" or ("alloc" in names) != ("free" in names):
            self.record_violation("event-order", f"job {job}: {names}")


@contextmanager
def store_folder() -> Iterator[Path]:
    """A folder for stores."""
    where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)
