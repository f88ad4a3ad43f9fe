"""The modules of flux-core's Python package that need no Flux instance.

Example:
    >>> from penstock.compat.flux.idset import IDset
    >>> from penstock.compat.flux.hostlist import Hostlist
    >>> from penstock.compat.flux.resource import ResourceSet
    >>> print(Hostlist("node[0-9]")[IDset("2-4")])
    node[2-4]

Names that need an instance, such as `flux.Flux` or `flux.job`, raise `NotImplementedError`, which
names Penstock's replacement.
"""

from typing import NoReturn

__all__: list[str] = []

_ELSEWHERE = {
    "Flux": "penstock.client.Client talks to an instance",
    "constraint": "penstock.constraint.parse_requires reads the constraint query syntax",
    "job": "penstock.client.Client submits, lists and cancels jobs",
    "scheduler": "penstock.sched attaches Penstock's scheduler to an instance",
}


def __getattr__(name: str) -> NoReturn:
    if hint := _ELSEWHERE.get(name):
        raise NotImplementedError(f"flux.{name} is not part of penstock.compat: {hint}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
