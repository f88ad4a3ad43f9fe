"""The final check of the kill test: the ledger, the store and the machine against the plan."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.survival.site import Target
from tests.survival.workload import Fate, LedgerLine

from penstock.errors import RpcError
from penstock.jobid import parse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.survival.site import Kill
    from tests.survival.workload import PlannedJob

    from penstock.client import Client

INACTIVE = 64
# RFC 21: the events of a job's life in their order; some can be repeated.
ORDER = ["submit", "validate", "depend", "priority", "alloc", "start", "finish"]
ORDER += ["release", "free", "clean"]
REPEATED = {"priority", "release"}
WHOLE_LIFE = set(ORDER)
LOST_STATUS = "is lost: the reaper was killed"


def read_ledger(path: Path) -> list[LedgerLine]:
    """The lines of the ledger.

    Raises:
        ValueError: a line is not what a task writes.
    """
    lines = []
    for text in path.read_text().splitlines():
        job, rank, pid, ticks, token = text.split()
        lines.append(LedgerLine(parse(job), int(rank), int(pid), int(ticks), int(token)))
    return lines


def event_errors(names: list[str]) -> list[str]:
    """The violations of RFC 21 by the events of an inactive job."""
    known = [name for name in names if name in ORDER]
    errors = []
    if known[:1] != ["submit"] or names[-1:] != ["clean"]:
        errors.append("does not begin with `submit` and end with `clean`")
    for before, after in pairwise(known):
        step = ORDER.index(after) - ORDER.index(before)
        if step < 0 or (step == 0 and after not in REPEATED):
            errors.append(f"`{after}` after `{before}`")
    if "start" in known and not {"release", "free"} <= set(known):
        errors.append("started, but was not released and freed")
    # The status of a task can be lost: the job has an exception then.
    if "start" in known and "finish" not in known and "exception" not in names:
        errors.append("started, but has neither `finish` nor `exception`")
    # A service takes a job over while it has the job's resources, also after `finish`.
    before_start = names[: names.index("start")] if "start" in names else names
    if "reattached" in before_start and "exception" not in before_start:
        errors.append("`reattached` before `start`")
    if "free" in names and "reattached" in names[names.index("free") :]:
        errors.append("`reattached` after `free`")
    if "alloc" in known and "free" not in known:
        errors.append("`alloc` without `free`")
    if "free" in known and "alloc" not in known:
        errors.append("`free` without `alloc`")
    return errors


@dataclass
class Audit:
    """Collects what is wrong.

    Attributes:
        submitted: The acknowledged jobs.
        unacknowledged: By token, the submissions without a response: their jobs may exist.
        lost_statuses: The number of jobs that ended with an exception because of a killed reaper.
    """

    ledger: list[LedgerLine]
    kills: list[Kill]
    submitted: dict[int, PlannedJob]
    unacknowledged: dict[int, PlannedJob]
    errors: list[str] = field(default_factory=list)
    lost_statuses: int = 0

    def check(self, client: Client) -> None:
        """Checks every job of the store."""
        by_job: dict[int, list[LedgerLine]] = defaultdict(list)
        for line in self.ledger:
            by_job[line.job].append(line)
        rows = {row["id"]: row for row in client.job_rows()}
        for job in sorted(self.submitted.keys() - rows.keys()):
            self._report(job, "was acknowledged, but is not in the store")
        for job in sorted(by_job.keys() - rows.keys()):
            self._report(job, "ran, but is not in the store")
        copies: Counter[int] = Counter()
        for job, row in rows.items():
            plan = self.submitted.get(job)
            if plan is None:
                environment = _environment(client, job)
                plan = self.unacknowledged.get(int(environment["TOKEN"]))
                if plan is None:
                    self._report(job, "was never submitted")
                    continue
            copies[plan.token] += 1
            self._check_job(client, job, row, plan, by_job.get(job, []))
        for token, count in copies.items():
            plan = self.unacknowledged.get(token)
            if plan is not None and count != plan.count:
                self.errors.append(f"token {token}: {count} of {plan.count} jobs in the store")

    def _report(self, job: int, text: str) -> None:
        self.errors.append(f"job {job}: {text}")

    def _check_job(
        self, client: Client, job: int, row: Any, plan: PlannedJob, lines: list[LedgerLine]
    ) -> None:
        if row["state"] != INACTIVE:
            self._report(job, f"is in state {row['state']}")
            return
        events = list(client.eventlog(job))
        names = [event["name"] for event in events]
        for error in event_errors(names):
            self._report(job, f"{error}: {names}")
        ranks = sorted(line.rank for line in lines)
        if len(ranks) != len(set(ranks)):
            self._report(job, f"ran twice: {lines}")
        if any(line.token != plan.token for line in lines):
            self._report(job, f"ran another job's tasks: {lines}")
        exceptions = [event["context"] for event in events if event["name"] == "exception"]
        if exceptions and self._is_expected(exceptions, plan, lines):
            return
        if exceptions:
            self._report(job, f"{plan.fate}: has exceptions: {exceptions}")
            return
        # The test cancels no running job whose submission was not acknowledged.
        if plan.fate in {Fate.CANCELLED_RUNNING, Fate.CANCELLED_PENDING} and job in self.submitted:
            self._report(job, "was cancelled, but has no exception")
        if ranks != list(range(plan.ntasks)):
            self._report(job, f"expected {plan.ntasks} tasks, ran {lines}")
        if not set(names) >= WHOLE_LIFE:
            self._report(job, f"lacks events: {names}")
        finish = [event["context"] for event in events if event["name"] == "finish"]
        statuses = {row.get("waitstatus"), *(context["status"] for context in finish)}
        if statuses != {plan.status}:
            self._report(job, f"expected status {plan.status}, found {statuses}")
        self._check_output(client, job, plan)

    def _is_expected(
        self, exceptions: list[Any], plan: PlannedJob, lines: list[LedgerLine]
    ) -> bool:
        """Whether the exceptions are those of a cancelled job, or of a killed reaper."""
        ranks = {line.rank for line in lines}
        if not ranks <= set(range(plan.ntasks)):
            return False
        is_lost = [LOST_STATUS in exception["note"] for exception in exceptions]
        is_cancel = [exception["type"] == "cancel" for exception in exceptions]
        if any(is_lost):
            self.lost_statuses += 1
            reapers = {Target.REAPER, Target.REAPERS}
            reaper_kills = [kill.ticks for kill in self.kills if kill.target in reapers]
            first = min((line.start_ticks for line in lines), default=0)
            was_killed = any(ticks + 1 >= first for ticks in reaper_kills)
            return was_killed and (plan.is_cancelled or sum(is_lost) == len(exceptions))
        if not all(is_cancel) or not plan.is_cancelled:
            return False
        if plan.fate is Fate.CANCELLED_PENDING:
            return not lines
        return plan.fate is Fate.CANCELLED_AT_ONCE or ranks == set(range(plan.ntasks))

    def _check_output(self, client: Client, job: int, plan: PlannedJob) -> None:
        texts = {"stdout": b"", "stderr": b""}
        try:
            for stream, data in client.output(job):
                texts[stream] += data
        except RpcError as error:
            self._report(job, f"has no output: {error}")
            return
        for stream, expected in (("stdout", plan.stdout), ("stderr", plan.stderr)):
            found = texts[stream].decode().splitlines()
            if sorted(found) != sorted(expected):
                short = [line[:80] for line in found]
                self._report(job, f"expected other {stream} than {short}")


def _environment(client: Client, job: int) -> dict[str, str]:
    jobspec = json.loads(client.lookup(job, "jobspec")["jobspec"])
    environment: dict[str, str] = jobspec["attributes"]["system"]["environment"]
    return environment
