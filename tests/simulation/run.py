"""Runs of the simulation: one script, many seeds, and shortening a script that violates something.

`make dst-daemon N=1000 SEED=1` runs seeds, `SCRIPT=FILE` replays the script in a file.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import logging
import sys
import time
import traceback
from pathlib import Path

import pytest
import trio
from tests.simulation.faults import EndlessRoundsError, installed
from tests.simulation.script import Script
from tests.simulation.world import Stop, Violation, World, store_folder
from trio.testing import MockClock

# The lines of the log that are printed with a violation.
LOG_LINES = 60


@dataclasses.dataclass(frozen=True)
class Run:
    """The result of a run.

    Attributes:
        steps: those that were taken without a violation.
        violation: the first one; None if there is none.
        digest: of the responses to clients.
        log: the daemon's log.
    """

    steps: int
    violation: Violation | None
    digest: str
    log: list[str]


def run(script: Script) -> Run:
    """Runs a script until its end or the first violation."""
    logger = logging.getLogger("penstock")
    steps, violation = 0, None
    worlds: list[World] = []

    async def main(folder: Path) -> None:
        nonlocal steps
        async with trio.open_nursery() as nursery:
            world = World(script, clock, folder, nursery)
            worlds.append(world)
            logger.addHandler(world.log)
            try:
                async with world.machine.processes.running():
                    with installed(world.faults):
                        await world.start()
                        try:
                            for step in script.steps:
                                await world.take(step)
                                steps += 1
                            await world.wind_up()
                        finally:
                            # The machine ends before the instance.
                            logger.removeHandler(world.log)
            except* Stop:
                pass
            finally:
                world.faults.heal()
            nursery.cancel_scope.cancel()

    clock = MockClock(autojump_threshold=0)
    with store_folder() as folder, pytest.MonkeyPatch.context() as patch:
        # Trio draws the order in which tasks run.
        patch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        trio._core._run._r.seed(script.seed)
        try:
            trio.run(main, folder, clock=clock)
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt):
                raise
            violation = Violation("exception", "".join(traceback.format_exception(group)))
        except (Exception, EndlessRoundsError) as error:
            violation = Violation("exception", "".join(traceback.format_exception(error)))
    digest, log = hashlib.sha256(), []
    for world in worlds:
        violation = next(iter(world.violations), violation)
        log = world.log.lines
        for client in world.clients:
            digest.update(client.received.digest())
    return Run(steps, violation, digest.hexdigest(), log)


def shorten(script: Script) -> Script:
    """Looks for a shorter script that violates the same invariant."""
    first = run(script)
    if first.violation is None:
        return script
    invariant = first.violation.invariant

    def violates(candidate: Script) -> bool:
        found = run(candidate).violation
        return found is not None and found.invariant == invariant

    best = script
    shorter = dataclasses.replace(script, steps=script.steps[: first.steps + 1])
    if violates(shorter):
        best = shorter
    size = len(best.steps) // 2
    while size > 0:
        start = 0
        while start < len(best.steps):
            steps = best.steps[:start] + best.steps[start + size :]
            candidate = dataclasses.replace(best, steps=steps)
            if violates(candidate):
                best = candidate
            else:
                start += size
        size //= 2
    return best


def main() -> int:
    """Runs what the arguments say. Returns 1 if something is violated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="number of runs")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--script", type=Path, help="replay this script")
    parser.add_argument("--whole", action="store_true", help="do not shorten")
    parser.add_argument("--all", action="store_true", help="continue after a violation")
    options = parser.parse_args()
    logging.getLogger("penstock").propagate = False
    scripts = (
        [Script.parse(options.script.read_text())]
        if options.script
        else (Script.draw(seed) for seed in range(options.seed, options.seed + options.seeds))
    )
    began, count, failed = time.monotonic(), 0, 0
    for script in scripts:
        found = run(script)
        count += 1
        if found.violation is None:
            continue
        failed += 1
        print(f"seed {script.seed}: {found.violation}", flush=True)
        if not options.all:
            shortest = script if options.whole or options.script else shorten(script)
            print(
                "\n".join(["--- log", *run(shortest).log[-LOG_LINES:], "--- script", str(shortest)])
            )
            break
    seconds = time.monotonic() - began
    print(f"{count} runs, {failed} with a violation, {count / seconds:.1f} runs/s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
