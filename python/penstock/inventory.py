"""Sources of an inventory: this host, a file with R, the configuration, or simulated nodes."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import limits
from penstock._core import Hostlist, IDset, ResourceSet
from penstock.errors import Error, InventoryError
from penstock.paths import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.config import HostEntry

AMD = "0x1002"


def discover() -> ResourceSet:
    """This host as one execution target of rank 0.

    Its cores are the CPUs that this process may run on (the kernel's numbers), its gpus those of
    NVIDIA's or AMD's driver, without those hidden by `CUDA_VISIBLE_DEVICES`.
    """
    host = re.sub(r"[^!-~]|[\[\],]", "_", socket.gethostname()) or "localhost"
    return resource_set("0", [host], IDset(os.sched_getaffinity(0)), _gpus())


def _gpus() -> IDset:
    found = {int(path.name[6:]) for path in Path("/dev").glob("nvidia[0-9]*")}
    if not found:
        cards = sorted(Path("/sys/class/drm").glob("renderD*/device/vendor"))
        found = set(range(sum(1 for card in cards if card.read_text().strip() == AMD)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        found &= {int(word) for word in visible.split(",") if word.strip().isdigit()}
    return IDset(found)


def from_file(path: Path) -> ResourceSet:
    """The R in a file (RFC 20).

    Raises:
        InventoryError: the file cannot be read, or is not an R with execution targets.
    """
    try:
        resources = ResourceSet(read_text(path))
        ranks = resources.ranks
        if len(ranks) > limits.MAX_NODES:
            raise InventoryError(
                f"`{path}`: {len(ranks)} ranks: expected at most {limits.MAX_NODES}"
            )
    except (OSError, Error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InventoryError(f"`{path}`: {reason}") from error
    if not ranks:
        raise InventoryError(f"`{path}`: expected an R with at least one rank")
    return resources


def from_config(entries: Iterable[HostEntry]) -> ResourceSet:
    """The resources of the table `resource.config`.

    Args:
        entries: The resources of hosts. Hosts get ranks in the order of their first mention; a
            later entry for the same host adds to it.

    Raises:
        InventoryError: an entry is invalid, or a host has no cores.
    """
    ranks: dict[str, int] = {}
    cores: dict[str, IDset] = {}
    gpus: dict[str, IDset] = {}
    properties: dict[str, IDset] = {}
    for place, entry in enumerate(entries):
        try:
            hosts = list(Hostlist(entry.hosts))
            more_cores = IDset(entry.cores)
            more_gpus = IDset(entry.gpus)
        except Error as error:
            raise InventoryError(f"resource.config[{place}]: {error}") from error
        for host in hosts:
            rank = ranks.setdefault(host, len(ranks))
            cores[host] = cores.get(host, IDset()) | more_cores
            gpus[host] = gpus.get(host, IDset()) | more_gpus
            if len(ranks) > limits.MAX_HOSTS:
                raise InventoryError(
                    f"resource.config[{place}]: more than {limits.MAX_HOSTS} hosts"
                )
            for name in entry.properties:
                properties.setdefault(name, IDset()).add(rank)
    bare = [host for host in ranks if not cores[host]]
    if bare:
        raise InventoryError(f"resource.config: no cores are given for {Hostlist(bare)}")
    groups: dict[tuple[str, str], list[int]] = {}
    for host, rank in ranks.items():
        groups.setdefault((str(cores[host]), str(gpus[host])), []).append(rank)
    document = {
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": str(IDset(of)), "children": _children(core, gpu)}
                for (core, gpu), of in groups.items()
            ],
            "nodelist": [str(Hostlist(list(ranks)))],
            "starttime": 0.0,
            "expiration": 0.0,
            "properties": {name: str(of) for name, of in properties.items()},
        },
    }
    try:
        return ResourceSet(document)
    except Error as error:
        raise InventoryError(f"resource.config: {error}") from error


def simulated(nodes: int, cores: int, gpus: int = 0) -> ResourceSet:
    """Equal simulated nodes `node0`, `node1`, ….

    Raises:
        InventoryError: a number is out of range.
    """
    for what, number, least in (("nodes", nodes, 1), ("cores", cores, 1), ("gpus", gpus, 0)):
        if not least <= number <= limits.MAX_NODES:
            raise InventoryError(f"{number} {what}: expected {least} to {limits.MAX_NODES}")
    ranks = f"0-{nodes - 1}" if nodes > 1 else "0"
    hosts = f"node[{ranks}]" if nodes > 1 else "node0"
    ids = [IDset(range(number)) for number in (cores, gpus)]
    return resource_set(ranks, [hosts], *ids)


def _children(cores: str, gpus: str) -> dict[str, str]:
    return {"core": cores, "gpu": gpus} if gpus else {"core": cores}


def resource_set(ranks: str, nodelist: list[str], cores: IDset, gpus: IDset) -> ResourceSet:
    """A resource set of equal nodes."""
    entry = {"rank": ranks, "children": _children(str(cores), str(gpus))}
    execution = {"R_lite": [entry], "nodelist": nodelist, "starttime": 0.0, "expiration": 0.0}
    return ResourceSet({"version": 1, "execution": execution})
