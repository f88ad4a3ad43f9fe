"""Sets of 10^8 hosts, 10^9 ids and 10^6 nodes: the time and the memory of each operation.

    python bench/library/scale.py

Each operation runs three times in a process of its own, and the least processor time counts. The
memory is the growth of the process's resident memory at its peak, the result included.
"""

from __future__ import annotations

import atexit
import copy
import json
import pickle
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import Hostlist, IDset, ResourceSet
from penstock.resource import Node

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
MIB = 2**20


def scattered_hosts(ranges: int) -> str:
    """A text of `ranges` ranges, each of one to eight hosts."""
    draw = random.Random(1)
    starts = range(0, 10 * ranges, 10)
    return ",".join(f"n[{start}-{start + draw.randint(1, 8)}]" for start in starts)


def racks_of_hosts(ranges: int) -> str:
    """A text of `ranges` ranges, each of one to eight hosts: a thousand in each rack."""
    draw = random.Random(1)
    rack = ",".join(f"{start}-{start + draw.randint(0, 7)}" for start in range(0, 10_000, 10))
    return ",".join(f"r{number}n[{rack}]" for number in range(ranges // 1000))


def cores_of(bits: int, first: int) -> str:
    """Ten pairs of cores: for each, a bit says whether a node has both or the second alone."""
    pairs = (first + 3 * bit for bit in range(10))
    return ",".join(
        f"{core}-{core + 1}" if bits >> bit & 1 else f"{core + 1}" for bit, core in enumerate(pairs)
    )


def different_nodes(nodes: int) -> str:
    """An R in which no two nodes have the same cores: bits of the rank say which are there."""
    lower, upper = ([cores_of(bits, first) for bits in range(1024)] for first in (0, 30))
    entries = (
        f'{{"rank":"{rank}","children":{{"core":"{lower[rank % 1024]},{upper[rank // 1024]}"}}}}'
        for rank in range(nodes)
    )
    return (
        f'{{"version":1,"execution":{{"R_lite":[{",".join(entries)}],'
        f'"nodelist":["n[0-{nodes - 1}]"],"starttime":0,"expiration":0}}}}'
    )


def equal_nodes(nodes: int) -> ResourceSet:
    """An R of equal nodes with 64 cores, 8 gpus and two properties."""
    ranks = f"0-{nodes - 1}"
    r = ResourceSet.uniform(ranks, f"n[{ranks}]", cores="0-63", gpus="0-7")
    r.add_property("fast", f"0-{nodes // 2}")
    r.add_property("big", f"{nodes // 4}-{nodes - 1}")
    return r


def halves(r: ResourceSet) -> tuple[ResourceSet, ResourceSet]:
    """An R, and the nodes of its lower half."""
    return r, r.restrict(ranks=r.ranks[: len(r.ranks) // 2])


def parts(r: ResourceSet) -> tuple[ResourceSet, ResourceSet]:
    """The halves of an R."""
    whole, half = halves(r)
    return half, whole - half


def every_other(r: ResourceSet) -> tuple[ResourceSet, IDset, Hostlist]:
    """An R, half of its ranks, none next to another, and their hosts."""
    ranks = r.ranks[::2]
    return r, IDset(ranks), r.nodelist[::2]


def with_half(r: ResourceSet) -> tuple[ResourceSet, ResourceSet]:
    """An R, and the nodes of every other rank."""
    return r, r.restrict(ranks=every_other(r)[1])


def separate_ranks(nodes: int) -> tuple[ResourceSet, ResourceSet]:
    """Of an R of equal nodes those of every other rank, and those of every third."""
    r = equal_nodes(nodes)
    half, third = (r.restrict(ranks=IDset(r.ranks[::step])) for step in (2, 3))
    return half, third


def file_of(text: str) -> Path:
    """A file with a text, removed at the end."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name, "R")
    path.write_text(text)
    return path


def with_equal(r: ResourceSet) -> tuple[ResourceSet, ResourceSet]:
    """An R, and another that is equal to it."""
    return r, ResourceSet(r.encode())


#: Operations on one R.
ON_ONE: dict[str, Callable[[ResourceSet], Any]] = {
    "to_dict": ResourceSet.to_dict,
    "to_json": ResourceSet.to_json,
    "bytes": bytes,
    "copy": ResourceSet.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "str and repr": lambda r: (str(r), repr(r)),
    "verify": lambda r: ResourceSet.verify(r.encode()),
    "times, slots, scheduling, attributes": lambda r: (
        (r.starttime, r.expiration, r.nslots, r.scheduling, r.attributes)
    ),
    "node": lambda r: r.node(77_777),
    "the first node of all": lambda r: next(r.nodes()),
    "insert": lambda r: r.insert(100_000, "m", cores="0-3"),
    "insert in the middle": lambda r: r.insert(50_000, "n50000", cores="0-3"),
    "add_property": lambda r: r.add_property("new", "100-60000"),
    "remove_property": lambda r: r.remove_property("fast", "100-40000"),
    "without_local_properties": ResourceSet.without_local_properties,
    "restrict by ranks": lambda r: r.restrict(ranks="1000-60000"),
    "restrict by a constraint of hosts": lambda r: r.restrict(
        constraint={"hostlist": ["n[1000-60000]"]}
    ),
}
#: Operations on an R without neighbouring ranks, and on two of them.
ON_SEPARATE: dict[str, Callable[[ResourceSet], Any]] = {
    "encode": ResourceSet.encode,
    "their hosts alone, as a text": lambda r: str(r.nodelist),
}
ON_BOTH_SEPARATE: dict[str, Callable[[tuple[ResourceSet, ResourceSet]], Any]] = {
    "union with every third": lambda sets: sets[0] | sets[1],
    "intersection with every third": lambda sets: sets[0] & sets[1],
    "difference from every third": lambda sets: sets[0] - sets[1],
}
#: Operations on two that are equal.
ON_TWO: dict[str, Callable[[tuple[ResourceSet, ResourceSet]], Any]] = {
    "==": lambda sets: sets[0] == sets[1],
    "symmetric difference": lambda sets: sets[0] ^ sets[1],
    "issubset": lambda sets: sets[0].issubset(sets[1]),
    "isdisjoint": lambda sets: sets[0].isdisjoint(sets[1]),
}

#: For each row its name, its argument, and the operation on that.
ROWS: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
    ("Hostlist, 10^8 hosts in a range: parse", lambda: "n[0-99999999]", Hostlist),
    ("Hostlist, 10^5 ranges: parse", lambda: scattered_hosts(10**5), Hostlist),
    ("Hostlist, 10^6 ranges: parse", lambda: scattered_hosts(10**6), Hostlist),
    ("Hostlist, 10^6 ranges: format", lambda: Hostlist(scattered_hosts(10**6)), str),
    (
        "Hostlist, 10^6 ranges: sort",
        lambda: Hostlist(scattered_hosts(10**6)),
        lambda hosts: hosts.sort(),
    ),
    (
        "Hostlist, 10^8 hosts in 2.2 * 10^7 ranges: parse",
        lambda: racks_of_hosts(22_200_000),
        Hostlist,
    ),
    (
        "Hostlist, 10^8 hosts in 2.2 * 10^7 ranges: format",
        lambda: Hostlist(racks_of_hosts(22_200_000)),
        str,
    ),
    (
        "Hostlist, 10^8 hosts in 2.2 * 10^7 ranges: find the last",
        lambda: Hostlist(racks_of_hosts(22_200_000)),
        lambda hosts: hosts.find(hosts[-1]),
    ),
    (
        "Hostlist, 10^8 hosts in 2.2 * 10^7 ranges: sort",
        lambda: Hostlist(racks_of_hosts(22_200_000)),
        lambda hosts: hosts.sort(),
    ),
    ("IDset, 10^9 ids in a range: parse", lambda: "0-999999999", IDset),
    ("IDset, every even id of 10^8: from a range", lambda: range(0, 10**8, 2), IDset),
    ("IDset, every even id of 10^8: format", lambda: IDset(range(0, 10**8, 2)), str),
    ("IDset, every even id of 10^8: parse", lambda: str(IDset(range(0, 10**8, 2))), IDset),
    (
        "IDset, every even id of 10^8: difference from 10^9",
        lambda: (IDset("0-999999999"), IDset(range(0, 10**8, 2))),
        lambda sets: sets[0] - sets[1],
    ),
    ("R, 10^5 different nodes: parse", lambda: different_nodes(10**5), ResourceSet),
    ("R, 10^6 different nodes: parse", lambda: different_nodes(10**6), ResourceSet),
    (
        "R, 10^6 different nodes: read from a file",
        lambda: file_of(different_nodes(10**6)),
        lambda path: ResourceSet(path.read_bytes()),
    ),
    ("R, 10^6 different nodes: json.loads", lambda: different_nodes(10**6), json.loads),
    (
        "R, 10^6 different nodes: encode",
        lambda: ResourceSet(different_nodes(10**6)),
        ResourceSet.encode,
    ),
    (
        "R, 10^6 different nodes: difference from half",
        lambda: halves(ResourceSet(different_nodes(10**6))),
        lambda sets: sets[0] - sets[1],
    ),
    ("R, 10^5 equal nodes: encode", lambda: equal_nodes(10**5), ResourceSet.encode),
    ("R, 10^5 equal nodes: parse", lambda: equal_nodes(10**5).encode(), ResourceSet),
    (
        "R, 10^5 equal nodes: difference from half",
        lambda: halves(equal_nodes(10**5)),
        lambda sets: sets[0] - sets[1],
    ),
    (
        "R, 10^5 equal nodes: union of halves",
        lambda: parts(equal_nodes(10**5)),
        lambda sets: sets[0] | sets[1],
    ),
    (
        "R, 10^5 equal nodes: intersection with half",
        lambda: halves(equal_nodes(10**5)),
        lambda sets: sets[0] & sets[1],
    ),
    (
        "R, 10^5 equal nodes: append halves",
        lambda: parts(equal_nodes(10**5)),
        lambda sets: sets[0].append(sets[1]),
    ),
    ("R, 10^5 equal nodes: rerank", lambda: equal_nodes(10**5), ResourceSet.rerank),
    (
        "R, 10^5 equal nodes: remove ranks",
        lambda: equal_nodes(10**5),
        lambda r: r.remove_ranks("1000-60000"),
    ),
    (
        "R, 10^5 equal nodes: counts, hosts and ranks",
        lambda: equal_nodes(10**5),
        lambda r: (r.nnodes, r.ncores, r.ngpus, r.nodelist, r.ranks, r.properties),
    ),
    ("R, 10^5 equal nodes: summary", lambda: equal_nodes(10**5), ResourceSet.summary),
    (
        "R, 10^5 equal nodes: find a host",
        lambda: equal_nodes(10**5),
        lambda r: r.host_ranks("n77777"),
    ),
    (
        "R, 10^5 equal nodes: restrict by hosts",
        lambda: equal_nodes(10**5),
        lambda r: r.restrict(hosts="n[1000-60000]"),
    ),
    (
        "R, 10^5 equal nodes: restrict by properties",
        lambda: equal_nodes(10**5),
        lambda r: r.restrict(constraint={"properties": ["fast", "big"]}),
    ),
    *(
        (f"R, 10^5 equal nodes: {name}", lambda: equal_nodes(10**5), operate)
        for name, operate in ON_ONE.items()
    ),
    *(
        (f"R, 10^5 equal nodes: {name}", lambda: with_equal(equal_nodes(10**5)), operate)
        for name, operate in ON_TWO.items()
    ),
    ("R, 10^5 equal nodes: from an object", lambda: equal_nodes(10**5).to_dict(), ResourceSet),
    (
        "R, 10^5 equal nodes: make it",
        lambda: None,
        lambda _: ResourceSet.uniform("0-99999", "n[0-99999]", cores="0-63", gpus="0-7"),
    ),
    ("R, 10^5 equal nodes: unpickle", lambda: pickle.dumps(equal_nodes(10**5)), pickle.loads),
    # Results of as many parts as there are nodes: what they are made of, next to them.
    (
        "R, 10^5 equal nodes: restrict to 50,000 separate ranks",
        lambda: every_other(equal_nodes(10**5)),
        lambda case: case[0].restrict(ranks=case[1]),
    ),
    (
        "… their hosts alone, as a list that is sliced",
        lambda: equal_nodes(10**5).nodelist,
        lambda hosts: hosts[::2],
    ),
    (
        "R, 10^5 equal nodes: restrict to 50,000 separate hosts",
        lambda: every_other(equal_nodes(10**5)),
        lambda case: case[0].restrict(hosts=case[2]),
    ),
    (
        "R, 10^5 equal nodes: remove 50,000 separate ranks",
        lambda: every_other(equal_nodes(10**5)),
        lambda case: case[0].remove_ranks(case[1]),
    ),
    (
        "R, 10^5 equal nodes: difference from every other node",
        lambda: with_half(equal_nodes(10**5)),
        lambda sets: sets[0] - sets[1],
    ),
    *(
        (f"R, 50,000 separate ranks: {name}", lambda: separate_ranks(10**5)[0], operate)
        for name, operate in ON_SEPARATE.items()
    ),
    ("R, 50,000 separate ranks: parse", lambda: separate_ranks(10**5)[0].encode(), ResourceSet),
    (
        "… the parse of their hosts alone",
        lambda: str(separate_ranks(10**5)[0].nodelist),
        Hostlist,
    ),
    *(
        (f"R, 50,000 separate ranks: {name}", lambda: separate_ranks(10**5), operate)
        for name, operate in ON_BOTH_SEPARATE.items()
    ),
    (
        "R, 10^5 equal nodes: ranks of all hosts, one by one",
        lambda: equal_nodes(10**5),
        lambda r: r.host_ranks("n[0-99999]"),
    ),
    ("… the list of as many ints alone", lambda: range(10**5), list),
    ("R, 10^5 equal nodes: nodes, one by one", lambda: equal_nodes(10**5), list),
    (
        "… as many tuples of an int, a string and two sets alone",
        lambda: (IDset("0-63"), IDset("0-7")),
        lambda sets: [
            Node(rank, str(rank), sets[0].copy(), sets[1].copy()) for rank in range(10**5)
        ],
    ),
]


def resident(key: str) -> int:
    """The resident memory of this process in bytes: `VmRSS`, or its peak, `VmHWM`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def measure(row: int) -> None:
    """Prints a row: the least time, and the memory in the first round."""
    name, make, operate = ROWS[row]
    times = []
    for done in range(ROUNDS):
        argument = make()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        before, began = resident("VmRSS"), time.process_time()
        result = operate(argument)
        times.append(time.process_time() - began)
        if done == 0:
            memory = resident("VmHWM") - before
        del result, argument
    print(f"| {name} | {min(times) * 1e3:.3f} | {memory / MIB:.1f} |")


def main() -> None:
    """Measures each row in a process of its own."""
    if len(sys.argv) > 1:
        return measure(int(sys.argv[1]))
    print("| operation | CPU ms | MiB |\n|---|---|---|", flush=True)
    for row in range(len(ROWS)):
        subprocess.run([sys.executable, __file__, str(row)], check=True)
    return None


if __name__ == "__main__":
    main()
