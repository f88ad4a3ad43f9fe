"""The options of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sim.units import HOUR

if TYPE_CHECKING:
    from penstock.sim.failures import Failure

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """Options of a simulation, the same for every policy.

    Attributes:
        whole_nodes: jobs get whole nodes, those that they name or as many as have their cores and
            gpus.
        kill_at_limit: a job that reaches the end of its estimate is ended.
        estimates: the start of each job is estimated at its submission.
        estimate_every: N, to estimate only every Nth job that does not start at once.
        requeue: a job whose node fails is pending again, rather than lost.
        failures: failures of nodes.
        mtbf: the mean time from a node's return to its next random failure, in seconds; None for
            no failures. Nodes fail independently, at exponential times, from the first submit
            until the last job has ended.
        mttr: the mean time of a repair, in seconds.
        seed: seed of the random failures; equal seeds give equal failures under every policy.
    """

    whole_nodes: bool = False
    kill_at_limit: bool = False
    estimates: bool = False
    estimate_every: int = 1
    requeue: bool = True
    failures: tuple[Failure, ...] = ()
    mtbf: float | None = None
    mttr: float = 4 * HOUR
    seed: int = 1
