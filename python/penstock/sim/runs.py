"""Simulations: a workload on a machine, a policy after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from penstock._core import Simulation
from penstock.clock import SYSTEM_CLOCK
from penstock.sim.options import Options
from penstock.sim.policy import Policy, simulate
from penstock.sim.results import Run, Study, from_simulation
from penstock.sim.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock._core import Workload
    from penstock.clock import Clock
    from penstock.sim.machine import Machine
    from penstock.sim.policy import Order
    from penstock.sim.results import Results

__all__ = ["Options", "Progress", "Silent", "run", "study"]

# More than there are events in any workload.
ALL_EVENTS = (1 << 64) - 1


class Progress(Protocol):
    """Receives the progress of a simulation."""

    def update(self, what: str, done: int, total: int, now: float) -> None:
        """Of `total` jobs `done` have ended at the time `now` of the trace, in seconds."""

    def finish(self) -> None:
        """The simulation has ended."""


class Silent:
    """Progress that is not shown."""

    def update(self, what: str, done: int, total: int, now: float) -> None:
        """Does nothing."""

    def finish(self) -> None:
        """Does nothing."""


def run(
    workload: Workload,
    machine: Machine,
    options: Options,
    *,
    policy: str | Policy | Order,
    selection: str = "first",
    progress: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Results:
    """Simulates a workload under one policy.

    The GIL is released. Twenty times a second it checks for Ctrl-C and reports progress.

    Args:
        workload: the jobs.
        machine: the simulated machine.
        options: the options of the simulation.
        policy: the queue policy: `fcfs`, `easy`, `conservative` or `hybrid:N`; or one of your own,
            a `penstock.sim.policy.Policy` or a callable that scores the pending jobs.
        selection: which nodes are taken first.
        progress: Receives the progress.
        clock: measures the time that the simulation takes.

    Raises:
        ValueError: the policy is unknown, or the workload requests what the machine lacks.
        PolicyError: an option does not work with a policy of one's own.
    """
    shown = progress or Silent()
    if not isinstance(policy, str):
        own = Policy.of(policy)

        def report(done: int, now: float) -> None:
            shown.update(own.name, done, len(workload), now)

        return simulate(
            workload, machine, options, own, selection=selection, clock=clock, report=report
        )
    resources = machine.resources
    simulation = Simulation(
        None if resources is None else json.dumps(resources.to_dict()),
        workload,
        policy=policy,
        selection=selection,
        whole_nodes=options.whole_nodes,
        kill_at_limit=options.kill_at_limit,
        estimates=options.estimates,
        estimate_every=options.estimate_every,
        requeue=options.requeue,
        failures=list(options.failures),
        mtbf=options.mtbf,
        mttr=options.mttr,
        failure_seed=options.seed,
        pool_cores=machine.pool_cores,
    )
    total = simulation.total
    begun = clock.monotonic()
    simulation.advance(ALL_EVENTS, lambda done, now: shown.update(policy, done, total, now))
    return from_simulation(simulation.result(), clock.monotonic() - begun)


def study(
    workload: Workload,
    machine: Machine,
    options: Options,
    *,
    policies: Sequence[str | Policy | Order],
    selections: Sequence[str] = ("first",),
    progress: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Study:
    """Simulates a workload under several policies.

    Args:
        workload: the jobs.
        machine: the simulated machine.
        options: the options of the simulation.
        policies: queue policies, as `run` takes them.
        selections: selection policies; each is tried with each queue policy.
        progress: Receives the progress.
        clock: measures the time that each simulation takes.

    Raises:
        ValueError: as `run`.
    """
    runs = []
    for policy in policies:
        for selection in selections:
            queue_policy = policy if isinstance(policy, str) else Policy.of(policy).name
            name = f"{queue_policy}+{selection}" if len(selections) > 1 else queue_policy
            results = run(
                workload,
                machine,
                options,
                policy=policy,
                selection=selection,
                progress=progress,
                clock=clock,
            )
            runs.append(Run(name, queue_policy, selection, results))
    return Study(
        name=workload.name,
        workload=workload,
        machine=machine,
        cores=machine.cores or workload.max_cores,
        assumptions=(
            *workload.assumptions,
            *machine.assumptions,
            *_pool(workload, machine),
            *_cores(machine, options),
            *_assumptions(options),
        ),
        runs=tuple(runs),
        unix_start=workload.unix_start,
    )


def _pool(workload: Workload, machine: Machine) -> Iterator[str]:
    if machine.cores is None:
        cores = max(workload.max_cores, 1)
        many = f"{cores:,} core{'' if cores == 1 else 's'}"
        yield f"the pool has {many}: {workload.pool_origin}"


def _cores(machine: Machine, options: Options) -> Iterator[str]:
    if machine.resources is not None and not options.whole_nodes:
        yield "cores are taken wherever they are free, also on parts of nodes"


def _assumptions(options: Options) -> Iterator[str]:
    if options.whole_nodes:
        yield (
            "a job gets whole nodes, those that it names or as many as have its cores and gpus; "
            "all their cores count as its own"
        )
    if options.kill_at_limit:
        yield "a job ends at its time limit"
    if options.mtbf is not None:
        yield (
            f"each node fails after {duration(options.mtbf)} on average and is repaired after "
            f"{duration(options.mttr)}, by chance, seed {options.seed}"
        )
    if options.failures or options.mtbf is not None:
        what = "is pending again and starts over" if options.requeue else "is lost"
        yield f"a job whose node fails {what}"
    if options.estimate_every > 1:
        yield f"the start of one in {options.estimate_every:,} pending jobs is estimated"
