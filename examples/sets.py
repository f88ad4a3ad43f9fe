"""The library alone: which nodes of a rack are free, written as short as it goes.

It needs nothing but the wheel: `pip install penstock-hpc && python examples/sets.py`.
"""

from penstock import FrozenIDset, Hostlist, IDset, ResourceSet

cluster = ResourceSet.uniform("0-15", "rack1n[0-7],rack2n[0-7]", cores="0-31", gpus="0-3")
cluster.add_property("big", "8-15")

busy = cluster.restrict(hosts="rack1n[0-3],rack2n7")
free = cluster - busy
print("free:   ", free.nodelist, "with", free.ncores, "cores")

big = free.restrict(constraint={"properties": ["big"]})
print("big:    ", big.summary())

pool = IDset(free.ranks)
mine = pool.allocate(4)
print("mine:   ", mine, "on", cluster.restrict(ranks=mine).nodelist)

down = Hostlist("rack1n6,rack2n[0-1]")
usable = [host for host in free.nodelist if host not in down]
print("usable: ", Hostlist(usable))

seen = {FrozenIDset(mine): "job 1"}
print("lookup: ", seen[FrozenIDset("4-7")])
