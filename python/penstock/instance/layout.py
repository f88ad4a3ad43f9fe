"""Which task runs where: the slots of a jobspec on the cores and gpus of its R."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._core import IDset
from penstock.count import largest, minimum
from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._core import ResourceSet


class LayoutError(Error, ValueError):
    """R does not have what the jobspec asks for."""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """One task: its number, its node, and what it may use there."""

    rank: int
    local_rank: int
    node_index: int
    target: int
    host: str
    cores: IDset
    gpus: IDset


def lay_out(jobspec: Mapping[str, Any], resources: ResourceSet) -> list[TaskPlace]:
    """Places the tasks of a valid jobspec V1 (RFC 25) on its R.

    Each slot has a task, unless `tasks[0].count.total` says how many there are: then they are
    spread over the nodes in blocks, as evenly as possible. An exclusive node's spare cores are
    shared out to its slots. Where the shell option `cpu-affinity` is `off`, a task has all cores
    that the job has on its node; likewise `gpu-affinity` and its gpus. Where the shell option
    `instance` is true, the slots are the resources of an instance, which one task on the first
    node starts.

    Where the jobspec has ranges (RFC 14), there are as many slots as R says (`nslots`), else as
    many as it has room for, and a slot's share of R is the same for all.

    Raises:
        LayoutError: R has fewer slots than the jobspec asks for.
    """
    top = jobspec["resources"][0]
    slot = top["with"][0] if top["type"] == "node" else top
    amounts = {child["type"]: child["count"] for child in slot["with"]}
    nodes = list(resources.nodes())
    total, cores, gpus = _granted(top, slot, amounts, resources)
    if top["type"] == "node":
        slots = [total // len(nodes)] * len(nodes)
    else:
        slots = _slots_per_node(total, cores, gpus, nodes)
    if _option(jobspec, "instance"):
        tasks = [1] + [0] * (len(nodes) - 1)
    else:
        tasks = _tasks_per_node(jobspec["tasks"][0]["count"], slots)
    places: list[TaskPlace] = []
    for index, (node, slot_count, task_count) in enumerate(zip(nodes, slots, tasks, strict=True)):
        if len(node.cores) < slot_count * cores or len(node.gpus) < slot_count * gpus:
            raise LayoutError(f"R has too little for {slot_count} slots on rank {node.rank}")
        own_cores = _shares(node.cores, slot_count, jobspec, "cpu-affinity")
        own_gpus = _shares(node.gpus, slot_count, jobspec, "gpu-affinity")
        for local in range(task_count):
            places.append(
                TaskPlace(
                    rank=len(places),
                    local_rank=local,
                    node_index=index,
                    target=node.rank,
                    host=node.host,
                    cores=own_cores[local],
                    gpus=own_gpus[local],
                )
            )
    return places


def _granted(
    top: Mapping[str, Any], slot: Mapping[str, Any], amounts: Mapping[str, Any], r: ResourceSet
) -> tuple[int, int, int]:
    """How many slots R has altogether, and the cores and gpus of each."""
    nodes, count = list(r.nodes()), slot["count"]
    is_node = top["type"] == "node"
    cores, gpus = minimum(amounts["core"]), minimum(amounts.get("gpu", 0))
    if isinstance(count, int):
        total = count * len(nodes) if is_node else count
    elif r.nslots is not None:
        total = r.nslots
    else:
        fits = [_fit(node, cores, gpus) for node in nodes]
        most = min(fits, default=0) if is_node else sum(fits)
        total = (largest(count, most) or minimum(count)) * (len(nodes) if is_node else 1)
    if is_node:
        # What a node has is shared out to its slots.
        if total % len(nodes):
            raise LayoutError(
                f"R has {total} slots on {len(nodes)} nodes: expected the same on each"
            )
    elif total:
        if not isinstance(amounts["core"], int):
            cores = max(cores, r.ncores // total)
        if not isinstance(amounts.get("gpu", 0), int):
            gpus = max(gpus, r.ngpus // total)
    return total, cores, gpus


def _fit(node: Any, cores: int, gpus: int) -> int:
    """Slots that a node of R has room for."""
    fit = len(node.cores) // cores
    return min(fit, len(node.gpus) // gpus) if gpus else fit


def _slots_per_node(total: int, cores: int, gpus: int, nodes: list[Any]) -> list[int]:
    left, slots = total, []
    for node in nodes:
        slots.append(min(_fit(node, cores, gpus), left))
        left -= slots[-1]
    if left:
        raise LayoutError(f"R has {total - left} slots, the jobspec asks for {total}")
    return slots


def _tasks_per_node(count: Mapping[str, int], slots: list[int]) -> list[int]:
    if "total" not in count:
        return slots
    tasks, left = [0] * len(slots), count["total"]
    while left:
        # One more on each node that has a slot to spare, until all are placed.
        open_nodes = [index for index, number in enumerate(tasks) if number < slots[index]]
        if not open_nodes:
            raise LayoutError(f"{count['total']} tasks do not fit {sum(slots)} slots")
        share = max(left // len(open_nodes), 1)
        for index in open_nodes[: left if share == 1 else None]:
            more = min(share, slots[index] - tasks[index], left)
            tasks[index] += more
            left -= more
    return tasks


def _shares(ids: IDset, slots: int, jobspec: Mapping[str, Any], option: str) -> list[IDset]:
    """What each slot of a node has of its cores or gpus."""
    whole = _option(jobspec, option) == "off" or _option(jobspec, "instance")
    return [ids] * slots if whole else _split(ids, slots)


def _option(jobspec: Mapping[str, Any], name: str) -> Any:
    options = jobspec["attributes"]["system"].get("shell", {}).get("options", {})
    return options.get(name)


def _split(ids: IDset, parts: int) -> list[IDset]:
    """Consecutive parts of equal size, the first ones one larger where it does not divide."""
    every, parts = list(ids), max(parts, 1)
    size, more = divmod(len(every), parts)
    split, begin = [], 0
    for part in range(parts):
        end = begin + size + (part < more)
        split.append(IDset(every[begin:end]))
        begin = end
    return split
