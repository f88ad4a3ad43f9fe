"""Sets of 10^8 hosts, 10^9 ids and 10^6 nodes: the time and the memory of each operation.

    python bench/library/scale.py

Each operation runs three times in a process of its own, and the least processor time counts. The
memory is the growth of the process's resident memory at its peak, the result included.
"""

from __future__ import annotations

import atexit
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import Hostlist, IDset, ResourceSet

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


def different_nodes(nodes: int) -> str:
    """An R in which neighbours have other numbers of cores."""
    entries = (
        f'{{"rank":"{rank}","children":{{"core":"0-{1 + rank % 97}"}}}}' for rank in range(nodes)
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


def file_of(text: str) -> Path:
    """A file with a text, removed at the end."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name, "R")
    path.write_text(text)
    return path


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
