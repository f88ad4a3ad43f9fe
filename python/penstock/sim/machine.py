"""The simulated machine: one pool of cores, or nodes from a file or from two numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import inventory
from penstock._core import ResourceLedger
from penstock.errors import Error, InventoryError, MachineError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock._core import ResourceSet

__all__ = ["Machine", "MachineError", "from_file", "pool", "read_with", "simulated"]


@dataclass(frozen=True)
class Machine:
    """A machine to simulate.

    Attributes:
        text: a short description.
        resources: its nodes; None if it is one pool of cores.
        pool_cores: the number of cores of the pool; None if the workload determines it.
        assumptions: the assumptions made, as sentences.
    """

    text: str
    resources: ResourceSet | None = None
    pool_cores: int | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def cores(self) -> int | None:
        """The number of cores of the machine; None if the workload determines it."""
        return self.resources.ncores if self.resources is not None else self.pool_cores

    @property
    def cores_per_node(self) -> int:
        """The cores of its smallest node; 1 on a pool."""
        if self.resources is None:
            return 1
        return max(min(len(node.cores) for node in self.resources.nodes()), 1)


def pool(cores: int | None = None) -> Machine:
    """One pool, on which any cores will do for any job.

    Args:
        cores: how many there are; None leaves that to the workload.

    Raises:
        MachineError: the number is out of range.
    """
    said = (
        "processors are cores of one pool: which of them a job gets, and on which nodes they are, "
        "makes no difference"
    )
    if cores is None:
        return Machine("one pool of cores", assumptions=(said,))
    if not 1 <= cores < 1 << 32:
        raise MachineError(f"{cores} cores: expected 1 to {(1 << 32) - 1}")
    return Machine(f"one pool of {_number(cores, 'core')}", pool_cores=cores, assumptions=(said,))


def simulated(nodes: int, cores: int, gpus: int = 0) -> Machine:
    """Equal nodes.

    Args:
        nodes: how many.
        cores: of each.
        gpus: of each.

    Raises:
        MachineError: a number is out of range.
    """
    try:
        resources = inventory.simulated(nodes, cores, gpus)
    except InventoryError as error:
        raise MachineError(str(error)) from error
    return Machine(_describe(resources), resources)


def from_file(path: Path) -> Machine:
    """The machine that a file describes.

    Args:
        path: a file with R (RFC 20), or a configuration (TOML, by its name) whose table `resource`
            lists the nodes; excluded ones are left out.

    Raises:
        MachineError: the file cannot be read, or does not describe any nodes.
        ConfigError: the configuration is wrong.
    """
    try:
        if _is_config(path):
            resources, left_out = _from_config(path)
        else:
            resources, left_out = inventory.from_file(path), 0
    except InventoryError as error:
        raise MachineError(str(error)) from error
    assumptions = [f"{_number(left_out, 'node')} left out: `resource.exclude`"] * bool(left_out)
    if resources.expiration:
        assumptions.append("the resources do not end: the expiration of R is left out")
    return Machine(_describe(resources), resources, assumptions=tuple(assumptions))


def read_with(path: Path) -> Path | None:
    """The file with R that a configuration names; None if it names no file.

    Args:
        path: as for `from_file`.

    Raises:
        ConfigError: the configuration is wrong.
    """
    from penstock.config import load

    if not _is_config(path):
        return None
    named = load(path).resource.path
    return None if named is None else path.parent / named


def _is_config(path: Path) -> bool:
    return path.suffix.lower() == ".toml"


def _from_config(path: Path) -> tuple[ResourceSet, int]:
    from penstock.config import load

    config = load(path).resource
    if (named := read_with(path)) is not None:
        base = inventory.from_file(named)
    elif config.config:
        base = inventory.from_config(config.config)
    else:
        raise MachineError(f"`{path}`: expected `resource.config` or `resource.path`")
    try:
        ledger = ResourceLedger(base, config.exclude, config.properties)
        ledger.check()
    except Error as error:
        raise MachineError(f"`{path}`: {error}") from error
    ranks = ledger.resources.ranks - ledger.exclude
    if not ranks:
        raise MachineError(f"`{path}`: resource.exclude leaves no node")
    return ledger.resources.restrict(ranks=ranks), len(ledger.exclude)


def _describe(resources: ResourceSet) -> str:
    nodes = resources.nnodes
    cores = {len(node.cores) for node in resources.nodes()}
    gpus = {len(node.gpus) for node in resources.nodes()}
    each = " each" if nodes > 1 else ""
    what = f"{_number(nodes, 'node')} with "
    if len(cores) == len(gpus) == 1:
        some = f" and {_number(max(gpus), 'gpu')}" if any(gpus) else ""
        return f"{what}{_number(max(cores), 'core')}{some}{each}"
    if len(cores) == 1:
        what += f"{_number(max(cores), 'core')}{each}"
    else:
        what += f"{resources.ncores / nodes:,.1f} cores on average"
    return f"{what} and {_number(resources.ngpus, 'gpu')} in all" if any(gpus) else what


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
