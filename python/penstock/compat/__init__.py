"""Modules with the names, arguments, results and exceptions of other libraries.

A program moves by changing an import; what it then runs on are the compiled classes of Penstock.

| in place of | import |
|---|---|
| `flux.idset` | `penstock.compat.flux.idset` |
| `flux.hostlist` | `penstock.compat.flux.hostlist` |
| `flux.resource` | `penstock.compat.flux.resource` |
| `ClusterShell.RangeSet` | `penstock.compat.ClusterShell.RangeSet` |
| `ClusterShell.NodeSet` | `penstock.compat.ClusterShell.NodeSet` |
| `ClusterShell.NodeUtils` | `penstock.compat.ClusterShell.NodeUtils` |
| `hostlist` (python-hostlist) | `penstock.compat.hostlist` |

`docs/compat.md` lists every public name, and where and why a result differs. New code is better
off with `penstock` itself.
"""

__all__: list[str] = []
