"""Bugs planted in the daemon's Python by replacing functions: the simulation finds each of them."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.simulation.run import run
from tests.simulation.script import Script

from penstock._core import Batch, Message
from penstock.instance.broker import Broker
from penstock.instance.commits import Commits
from penstock.instance.connection import Connection
from penstock.instance.resource import ResourceService
from penstock.instance.restart import Restarts
from penstock.instance.services import ManagerService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.simulation.world import Violation

# The plants that were executed.
executed: set[str] = set()


def _each_delivery_alone(real: Any) -> Any:
    """A response behind a commit that has failed is sent."""

    def deliver(broker: Broker, deliveries: Any, **options: Any) -> None:
        for each in deliveries:
            real(broker, [each], **options)

    return deliver


def _flush_before_commit(real: Any) -> Any:
    """Responses are sent before the commit."""

    def commit(commits: Commits) -> None:
        for remote in commits._unflushed:
            remote.flush()
        real(commits)

    return commit


def _send_twice(real: Any) -> Any:
    """Batches with the response to a submission are sent twice."""

    def send(remote: Connection, batch: Batch, **options: Any) -> None:
        real(remote, batch, **options)
        if any(message.topic == "job-ingest.submit" for message in batch):
            real(remote, batch, **options)

    return send


def _nothing(_real: Any) -> Any:
    """Does nothing."""
    return lambda *_args, **_options: None


def _forget_abandoned(_real: Any) -> Any:
    """The outstanding requests of a failed service are not answered."""

    def forget(broker: Broker) -> None:
        broker._abandoned.clear()

    return forget


def _keep_posted(_real: Any) -> Any:
    """Messages that a failed job manager has posted are sent."""

    def abandon(broker: Broker, failure: Any) -> None:
        for number, remote in broker._sockets.items():
            if broker.commits.holds(remote):
                broker._retract(number, remote, failure)
        broker.commits.abandon()

    return abandon


def _retract_without_end(_real: Any) -> Any:
    """The job manager's streams continue after an error was sent in the place of a response."""

    def retract(_broker: Broker, _number: int, remote: Connection, failure: Any) -> None:
        remote.retract(failure.errnum, failure.text)

    return retract


def _read_uncommitted(_real: Any) -> Any:
    """Reads are served from the state that was not committed."""

    def serve(service: ManagerService, batch: Batch) -> bool:
        service._manager.handle(batch, service._broker.clock.now())
        service._broker.post(service.peer, service._take())
        return True

    return serve


def _forget_token(real: Any) -> Any:
    """The token of a submission is lost."""

    def take(broker: Broker, peer: int, batch: Batch, network: Any) -> None:
        changed = Batch()
        for message in batch:
            if message.kind == "request" and message.topic == "job-ingest.submit":
                payload = json.loads((message.payload or b"{}").rstrip(b"\0"))
                payload.pop("token", None)
                message = Message.request(message.topic, payload, matchtag=message.matchtag)
            changed.append(message)
        real(broker, peer, changed, network)

    return take


def _no_followers(real: Any) -> Any:
    """The scheduler is not told that the job manager has been built again."""

    def restart(service: ManagerService) -> None:
        service.on_rebuild.clear()
        real(service)

    return restart


def _no_rebuild(_real: Any) -> Any:
    """The job manager continues with the state that a fault has left."""

    def rebuild(service: ManagerService) -> None:
        service._uncommitted_since = None
        service._lost_peers = service._broker.serving_clients(service.peer)

    return rebuild


def _never_restart(_real: Any) -> Any:
    """A failed service is never restarted."""

    async def pause(_restarts: Restarts) -> None:
        await trio.sleep_forever()

    return pause


def _write_again(_real: Any) -> Any:
    """A part of a message that the socket has taken is sent again."""

    def flush(remote: Connection) -> None:
        remote._uncommitted_start = None
        remote._uncommitted.clear()
        if remote._unsent:
            if remote._sending == 0:
                remote._write_now(remote._unsent[:100])
            remote._wake.set()

    return flush


# The bug, the class and the function that it is in, and its replacement.
PLANTS: dict[str, tuple[type, str, Callable[[Any], Any]]] = {
    "response-behind-failed-commit": (Broker, "_deliver", _each_delivery_alone),
    "flush-before-commit": (Commits, "commit", _flush_before_commit),
    "response-sent-twice": (Connection, "send", _send_twice),
    "failed-service-silent": (Broker, "_reject", _nothing),
    "outstanding-not-answered": (Broker, "_answer_abandoned", _forget_abandoned),
    "posted-not-withdrawn": (Broker, "_abandon_store", _keep_posted),
    "stream-ends-twice": (Broker, "_retract", _retract_without_end),
    "reads-uncommitted": (ManagerService, "_serve_reads", _read_uncommitted),
    "drain-not-withheld": (ResourceService, "withhold", _nothing),
    "token-forgotten": (Broker, "take_in", _forget_token),
    "scheduler-not-told": (ManagerService, "restart", _no_followers),
    "state-not-rebuilt": (ManagerService, "_rebuild", _no_rebuild),
    "never-restarted": (Restarts, "_pause", _never_restart),
    "part-sent-again": (Connection, "flush", _write_again),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Has the daemon a bug in the block."""
    owner, function, replace = PLANTS[name]
    replacement = replace(getattr(owner, function))

    def call(*args: Any, **options: Any) -> Any:
        executed.add(name)
        return replacement(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, function, call)
        yield


def find(name: str, seeds: Iterable[int]) -> tuple[int, Violation | None]:
    """Runs seeds with a bug until a violation. Returns the last one and its violation."""
    seed, found = 0, None
    with planted(name):
        for seed in seeds:
            found = run(Script.draw(seed)).violation
            if found is not None:
                break
    return seed, found


def main() -> int:
    """Prints a table. Returns 1 if a bug is not found, or was never executed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="seeds for each bug")
    parser.add_argument(
        "--seed", type=int, help="replay this seed alone, and print what it violates"
    )
    parser.add_argument("--plant", action="append", help="a bug; all by default")
    options = parser.parse_args()
    logging.getLogger("penstock").propagate = False
    names = options.plant or list(PLANTS)
    failures = 0
    print(f"| {'planted bug':34} | {'seed':>5} | {'invariant':22} | {'s':>5} |")
    print(f"|{'-' * 36}|{'-' * 6}:|{'-' * 24}|{'-' * 6}:|")
    seeds = range(1, options.seeds + 1) if options.seed is None else [options.seed]
    for name in names:
        began = time.monotonic()
        seed, found = find(name, seeds)
        seconds = time.monotonic() - began
        invariant = found.invariant if found else "none"
        if name not in executed:
            invariant = "never executed"
        # Without the bug the same run must be right: its violation is not that of another bug.
        elif found is not None and run(Script.draw(seed)).violation is not None:
            invariant, found = "without the bug, too", None
        failures += found is None or name not in executed
        print(f"| {name:34} | {seed:5} | {invariant:22} | {seconds:5.1f} |", flush=True)
        if found is not None and options.seed is not None:
            print(found)
    print(f"{len(names)} bugs, {failures} unexpected results")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
