"""The engine by itself: resources, a queue and scheduling decisions, for programs of your own.

An `Engine` holds the resources, the pending jobs and the running ones. It knows no clock: time is
an argument, and the same calls give the same answers. Jobs go in as columns (lists, arrays, numpy
arrays), and decisions come out as columns. It needs no third-party package.

>>> from penstock import Engine, ResourceSet
>>> engine = Engine(ResourceSet.uniform("0-3", "node[0-3]", cores="0-7"))
>>> shape = engine.shape(cores=2)
>>> engine.submit(range(20), shape, durations=60.0)
>>> decisions = engine.schedule(now=0.0)
>>> len(decisions), engine.npending
(16, 4)
>>> print(decisions.r(0))
rank0/core[0-1]
"""

from penstock._core import Decisions
from penstock.engine.engine import Engine
from penstock.engine.query_results import ChangeEffect, Estimates, Explanation, Fit, Moved, Start
from penstock.engine.views import Decision, Denial, Pending, Running

__all__ = [
    "ChangeEffect",
    "Decision",
    "Decisions",
    "Denial",
    "Engine",
    "Estimates",
    "Explanation",
    "Fit",
    "Moved",
    "Pending",
    "Running",
    "Start",
]
