"""Everything public that the extension implements has a docstring."""

from __future__ import annotations

import pytest

from penstock import FrozenIDset, Hostlist, IDset, ResourceSet
from penstock.sim.workload import Workload


@pytest.mark.parametrize("kind", [IDset, FrozenIDset, Hostlist, ResourceSet, Workload])
def test_every_public_member_has_a_docstring(kind):
    assert kind.__doc__
    names = [name for name in dir(kind) if not name.startswith("_")]
    assert [name for name in names if not (getattr(kind, name).__doc__ or "").strip()] == []
