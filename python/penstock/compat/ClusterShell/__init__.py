"""`ClusterShell`: the modules that need no execution of commands on nodes.

| in place of | import |
|---|---|
| `ClusterShell.RangeSet` | `penstock.compat.ClusterShell.RangeSet` |
| `ClusterShell.NodeSet` | `penstock.compat.ClusterShell.NodeSet` |
| `ClusterShell.NodeUtils` | `penstock.compat.ClusterShell.NodeUtils` |
| `ClusterShell.Defaults` | `penstock.compat.ClusterShell.Defaults` |

Example:
    >>> from penstock.compat.ClusterShell.NodeSet import NodeSet
    >>> str(NodeSet("node[1-9/2]") | NodeSet("node2"))
    'node[1-3,5,7,9]'

Classes that execute commands on nodes, such as `ClusterShell.Task`, raise `NotImplementedError`.
"""

from typing import NoReturn

__all__: list[str] = []

_EXECUTION = (
    "CLI Communication Engine Event Gateway MsgTree Propagation Task Topology Worker".split()
)


def __getattr__(name: str) -> NoReturn:
    if name not in _EXECUTION:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    hint = "penstock.client.Client runs jobs on nodes"
    raise NotImplementedError(f"ClusterShell.{name} is not part of penstock.compat: {hint}")
