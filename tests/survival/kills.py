"""Kills of the daemon, its execution service and its reapers under load: `make kills`.

Clients submit jobs without a pause while processes of the instance are killed with SIGKILL. The
seed draws the targets and the moments of the kills: a number of tasks that start in between, and
a delay after that. At the end each acknowledged job has run exactly once, with the expected
status and output; no process is left.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING

from tests.survival.audit import Audit, read_ledger
from tests.survival.site import HANG_S, Kill, Site, Target, processes_with, zombies_of
from tests.survival.workload import (
    LEAVE_DESCENDANT,
    LEAVE_ESCAPED_DESCENDANT,
    PHASES,
    Fate,
    PlannedJob,
    Workload,
)

from penstock.errors import NoInstanceError
from penstock.jobid import parse

if TYPE_CHECKING:
    from collections.abc import Callable

CORES = 12
MAX_GATED_JOBS = 6
# The greatest number of acknowledged jobs that have not started.
MAX_BACKLOG_JOBS = 40
# The greatest number of tasks that start between two kills.
MAX_TASKS_BETWEEN = 20
# The share of kills that do not wait until the instance has recovered from the one before.
BURST_SHARE = 0.15
MAX_SHOWN_ERRORS = 100
# The targets whose kill ends or disconnects the service.
ABOUT_A_SERVICE = {Target.DAEMON, Target.SERVICE, Target.BOTH}


@dataclass
class Report:
    """The figures of a run, and what was wrong."""

    kills: Counter[Target] = field(default_factory=Counter)
    jobs: int = 0
    tasks: int = 0
    restarts: int = 0
    unacknowledged: int = 0
    lost_statuses: int = 0
    recoveries_s: list[tuple[float, Target]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """A few lines for people."""
        kills = ", ".join(f"{target.value} {self.kills[target]}" for target in Target)
        slowest, target = max(self.recoveries_s, key=lambda each: each[0])
        median = sorted(self.recoveries_s, key=lambda each: each[0])[len(self.recoveries_s) // 2][0]
        return (
            f"kills: {kills}\n"
            f"jobs: {self.jobs}, tasks: {self.tasks}, submissions without a response: "
            f"{self.unacknowledged}\n"
            f"restarts of the daemon: {self.restarts}; jobs that a killed reaper has failed: "
            f"{self.lost_statuses}\n"
            f"recovery: median {median:.2f} s, slowest {slowest:.2f} s (after {target.value})\n"
            f"errors: {len(self.errors)}"
        )


class Campaign:
    """A run.

    Args:
        directory: For state, ledger and log.
        seed: Draws kills and jobs.
        kills: How often each target is killed.
        clients: The number of clients that submit.
        max_delay_s: The longest delay of a kill after the event that it follows.
    """

    def __init__(
        self,
        directory: Path,
        seed: int,
        kills: dict[Target, int],
        *,
        clients: int = 3,
        max_delay_s: float = 0.0,
    ) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._targets = [target for target, count in kills.items() for _ in range(count)]
        self._random.shuffle(self._targets)
        self._max_delay_s = max_delay_s
        self._clients = clients
        self._site = Site(directory, CORES)
        # Without cgroups a reaper finds only those in the sessions of a killed one's tasks.
        kills_reapers = any(kills.get(target) for target in (Target.REAPER, Target.REAPERS))
        descendant = LEAVE_DESCENDANT if kills_reapers else LEAVE_ESCAPED_DESCENDANT
        self._workload = Workload(directory, MAX_GATED_JOBS, descendant)
        self._bell = os.open(self._workload.bell, os.O_RDWR | os.O_NONBLOCK)
        self._site.watch(self._ring)
        self._backlog = threading.Semaphore(MAX_BACKLOG_JOBS)
        self._stopping = threading.Event()
        self._cancels: SimpleQueue[tuple[int, PlannedJob] | None] = SimpleQueue()
        self._failures: list[BaseException] = []
        # Guards the attributes below, which the clients change, too.
        self._lock = threading.Lock()
        self._submitted: dict[int, PlannedJob] = {}
        self._unacknowledged: dict[int, PlannedJob] = {}
        self._started: set[int] = set()
        # Gated jobs, with the number of kills at which their gates open.
        self._gated: dict[int, int] = {}
        self._kills: list[Kill] = []
        self._ledger_bytes = 0
        self._tasks = 0
        self._report = Report()

    # --- clients

    def _ring(self) -> None:
        """Wakes the main thread."""
        os.write(self._bell, b"x")

    def _run_thread(self, run: Callable[..., None], *args: object) -> threading.Thread:
        def guarded() -> None:
            try:
                run(*args)
            except BaseException as error:
                # The main thread raises it.
                self._failures.append(error)
                self._ring()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _submit_jobs(self, random: Random) -> None:
        """Submits jobs until the run ends."""
        while not self._stopping.is_set():
            plan = None
            try:
                with self._site.client() as client:
                    while not self._stopping.is_set():
                        plan = self._workload.draw(random)
                        for _ in range(plan.count):
                            assert self._backlog.acquire(timeout=HANG_S), "no job starts"
                        ids = client.submit(plan.jobspec, urgency=plan.urgency, count=plan.count)
                        self._acknowledge(plan, ids)
                        plan = None
            except NoInstanceError:
                if plan is not None:
                    self._record_unacknowledged(plan)

    def _acknowledge(self, plan: PlannedJob, ids: list[int]) -> None:
        with self._lock:
            for job in ids:
                self._submitted[job] = plan
                if job in self._started and plan.is_expected_to_start:
                    self._backlog.release()
                if plan.gate is not None:
                    self._gated[job] = len(self._kills) + plan.life_kills
        if plan.fate in {Fate.CANCELLED_PENDING, Fate.CANCELLED_AT_ONCE}:
            for job in ids:
                self._cancels.put((job, plan))

    def _record_unacknowledged(self, plan: PlannedJob) -> None:
        with self._lock:
            self._unacknowledged[plan.token] = plan
        for _ in range(plan.count):
            self._backlog.release()
        # If there is a job, it need not wait.
        if plan.gate is not None:
            for _ in range(PHASES):
                plan.gate.open_phase()
            self._workload.retire(plan)

    def _cancel_jobs(self) -> None:
        """Cancels the queued jobs, each until that is acknowledged."""
        item = self._cancels.get()
        attempts = 0
        while item is not None:
            try:
                with self._site.client() as client:
                    while item is not None:
                        job, plan = item
                        attempts += 1
                        response = client.cancel([job])
                        is_certain = attempts == 1 and plan.fate is not Fate.CANCELLED_AT_ONCE
                        if is_certain and response.errors:
                            self._report.errors.append(f"job {job}: cancel: {response.errors}")
                        if not plan.is_expected_to_start:
                            self._backlog.release()
                        self._workload.retire(plan)
                        item, attempts = self._cancels.get(), 0
            except NoInstanceError:
                continue

    # --- the main thread

    def _wait(self) -> None:
        """Waits for the next event, and takes in what has been started."""
        if not select.select([self._bell], [], [], HANG_S)[0]:
            raise TimeoutError(f"nothing has happened for {HANG_S} s: {self._describe()}")
        # The FIFO was once reported readable and had nothing to read, with Linux 6.18.
        with suppress(BlockingIOError):
            os.read(self._bell, 1 << 16)
        if self._failures:
            raise self._failures[0]
        with self._workload.ledger.open("rb") as ledger:
            ledger.seek(self._ledger_bytes)
            data = ledger.read()
        data = data[: data.rfind(b"\n") + 1]
        self._ledger_bytes += len(data)
        with self._lock:
            for line in data.decode().splitlines():
                job, rank = parse(line.split()[0]), line.split()[1]
                self._tasks += 1
                if rank != "0" or job in self._started:
                    continue
                self._started.add(job)
                plan = self._submitted.get(job)
                if plan is not None and plan.is_expected_to_start:
                    self._backlog.release()
        self._open_gates()

    def _open_gates(self) -> None:
        """Ends or cancels the gated jobs that run and have outlived enough kills."""
        with self._lock:
            due = [
                job
                for job, kills in self._gated.items()
                if kills <= len(self._kills) and job in self._started
            ]
            plans = [(job, self._submitted[job]) for job in due]
            for job in due:
                del self._gated[job]
        for job, plan in plans:
            if plan.fate is Fate.CANCELLED_RUNNING:
                self._cancels.put((job, plan))
            else:
                assert plan.gate is not None
                for _ in range(PHASES):
                    plan.gate.open_phase()
                self._workload.retire(plan)

    def _describe(self) -> str:
        with self._lock:
            pending = len(self._submitted.keys() - self._started)
            return (
                f"{len(self._kills)} kills, {len(self._submitted)} jobs, {pending} not started, "
                f"{self._site.ready_count} services"
            )

    def _wait_for_tasks(self, count: int) -> None:
        """Returns when this many further tasks have started."""
        until = self._tasks + count
        while self._tasks < until:
            self._wait()

    def _wait_for_recovery(self, kill: Kill) -> None:
        """Returns when a task has started after the service was ready again."""
        while kill.target in ABOUT_A_SERVICE and self._site.ready_count <= kill.ready_count:
            self._wait()
        self._wait_for_tasks(1)
        self._report.recoveries_s.append((time.monotonic() - kill.time, kill.target))

    def _kill_all(self) -> None:
        for target in self._targets:
            if self._kills and self._random.random() >= BURST_SHARE:
                self._wait_for_recovery(self._kills[-1])
                self._wait_for_tasks(self._random.randint(0, MAX_TASKS_BETWEEN))
            delay_s = self._random.random() * self._max_delay_s
            # A random moment between two events: nothing waits for it.
            time.sleep(delay_s)
            while (kill := self._site.kill(target)) is None:
                # It is being restarted.
                self._wait()
            with self._lock:
                self._kills.append(kill)
            self._report.kills[target] += 1
            self._open_gates()
        self._wait_for_recovery(self._kills[-1])

    def run(self) -> Report:
        """Starts the instance, kills its parts, checks its jobs, and stops it."""
        report = self._report
        self._site.start()
        try:
            clients = [
                self._run_thread(self._submit_jobs, Random(f"{self._seed} {number}"))
                for number in range(self._clients)
            ]
            canceller = self._run_thread(self._cancel_jobs)
            self._wait_for_tasks(1)
            self._kill_all()
            self._stopping.set()
            for thread in clients:
                self._backlog.release(100)
                thread.join(HANG_S)
            self._finish_gated()
            self._cancels.put(None)
            canceller.join(HANG_S)
            self._audit()
            code = self._site.stop()
            if code != 0:
                report.errors.append(f"the daemon has ended with exit code {code}")
            if left := processes_with(self._workload.mark, str(self._site.state)):
                report.errors.append(f"processes are left: {left}")
        finally:
            self._site.kill_everything(self._workload.mark)
        report.errors += self._site.faults
        if self._failures:
            raise self._failures[0]
        return report

    def _finish_gated(self) -> None:
        """Ends the gated jobs, as if they had outlived enough kills."""
        with self._lock:
            self._gated = dict.fromkeys(self._gated, 0)
        self._open_gates()
        while self._gated:
            self._wait()

    def _audit(self) -> None:
        report = self._report
        with self._site.client() as client:
            # Also jobs whose submission was not acknowledged.
            for row in client.job_rows(constraint={"states": ["pending"]}):
                if row["urgency"] == 0 and row["id"] not in self._submitted:
                    client.cancel([row["id"]])
            client.rpc("job-manager.drain", {})
            if left := processes_with(self._workload.mark):
                report.errors.append(f"processes of ended jobs are left: {left}")
            parents = set(processes_with(str(self._site.state)))
            if zombies := zombies_of(parents):
                report.errors.append(f"zombies: {zombies}")
            ledger = read_ledger(self._workload.ledger)
            audit = Audit(ledger, self._kills, self._submitted, self._unacknowledged)
            audit.check(client)
        report.errors += audit.errors
        report.lost_statuses = audit.lost_statuses
        report.jobs, report.tasks = len(self._submitted), len(ledger)
        report.unacknowledged = len(self._unacknowledged)
        report.restarts = self._site.starts - 1


def main() -> int:
    """Runs with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    for target in Target:
        parser.add_argument(f"--{target.value}", type=int, default=0, metavar="KILLS")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--max-delay", type=float, default=0.2, metavar="SECONDS")
    args = parser.parse_args()
    kills = {target: getattr(args, target.value) for target in Target}
    directory = Path(tempfile.mkdtemp(prefix="penstock-kills-"))
    print(f"seed {args.seed}, in {directory}", flush=True)
    campaign = Campaign(
        directory, args.seed, kills, clients=args.clients, max_delay_s=args.max_delay
    )
    report = campaign.run()
    print(report)
    for error in report.errors[:MAX_SHOWN_ERRORS]:
        print(error, file=sys.stderr)
    if report.errors:
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
