"""Invariants of the jobs of an instance, checked after every step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock._core import IDset, ResourceSet

if TYPE_CHECKING:
    from actors import User
    from inprocess import Instance

NEW, DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = (1 << bit for bit in range(7))
# RFC 21: what moves a job, and between which states.
MOVES = {
    ("validate", NEW): DEPEND,
    ("depend", DEPEND): PRIORITY,
    ("priority", PRIORITY): SCHED,
    ("alloc", SCHED): RUN,
    ("finish", RUN): CLEANUP,
    ("clean", CLEANUP): INACTIVE,
}
# Events that may come only in some states, and those that come once at the most.
ONLY_IN = {
    "alloc": (SCHED,),
    "start": (RUN, CLEANUP),
    "finish": (RUN, CLEANUP),
    "release": (RUN, CLEANUP),
    "free": (CLEANUP,),
    "clean": (CLEANUP,),
}
ONCE = ("submit", "validate", "depend", "alloc", "start", "finish", "free", "clean")


def events(log: str) -> list[dict[str, Any]]:
    """The events of a log."""
    return [json.loads(line) for line in log.splitlines()]


def state_after(log: list[dict[str, Any]]) -> int:
    """The state that a log determines; fails for a log that RFC 21 does not allow."""
    names = [event["name"] for event in log]
    assert names[0] == "submit", names
    state = NEW
    for event in log:
        name = event["name"]
        assert state != INACTIVE, f"{name} after clean: {names}"
        assert state in ONLY_IN.get(name, (state,)), f"{name} in state {state}: {names}"
        if name == "exception" and event["context"]["severity"] == 0:
            state = max(state, CLEANUP)
        else:
            state = MOVES.get((name, state), state)
    for name in ONCE:
        assert names.count(name) <= 1, names
    return state


class Account:
    """A job by its own log: its state and its allocation."""

    def __init__(self, row: dict[str, Any], log: str) -> None:
        self.id: int = row["id"]
        self.log = events(log)
        self.names = [event["name"] for event in self.log]
        self.state = state_after(self.log)
        assert self.state == row["state"], (self.names, row)
        self.allocated = "alloc" in self.names
        self.r = self.holds = ResourceSet()
        if self.state == INACTIVE:
            # An allocation is freed before the job's end.
            assert not self.allocated or "free" in self.names, self.names

    def account_for(self, r: str) -> None:
        """Records an allocation of the job."""
        self.r = ResourceSet(r)
        released = IDset()
        for event in self.log:
            if event["name"] == "release":
                ranks = event["context"]["ranks"]
                released |= self.r.ranks if ranks == "all" else IDset(ranks)
        if "free" not in self.names:
            self.holds = self.r.restrict(ranks=self.r.ranks - released)


def accounts(user: User) -> dict[int, Account]:
    """An account of every job."""
    rows = user.rows()
    logs = user.lookups([(row["id"], "eventlog") for row in rows])
    found = [Account(row, log) for row, log in zip(rows, logs, strict=True)]
    allocated = [account for account in found if account.allocated]
    for account, r in zip(
        allocated, user.lookups([(entry.id, "R") for entry in allocated]), strict=True
    ):
        account.account_for(r)
    return {account.id: account for account in found}


def audit(
    instance: Instance, user: User, submitted: set[int], inventory: ResourceSet | None = None
) -> dict[int, Account]:
    """Checks every job: its log, its allocation, and that no other job has the same resources.

    Args:
        instance: the instance.
        user: who asks.
        submitted: the jobs that there must be.
        inventory: everything there ever was, where that is more than there is.
    """
    found = accounts(user)
    assert found.keys() == submitted, "a job is lost, or came from nowhere"
    if inventory is None:
        inventory = ResourceSet(user.ask("resource.sched-status")["all"])
    total = ResourceSet()
    for account in found.values():
        assert account.r.issubset(inventory), f"job {account.id} has unknown resources"
        assert total.isdisjoint(account.holds), f"job {account.id} has resources of another one"
        total = total.union(account.holds, scheduling="drop")
    held = ResourceSet(instance.manager.held())
    assert (held.ranks, held.ncores, held.ngpus) == (total.ranks, total.ncores, total.ngpus)
    return found
