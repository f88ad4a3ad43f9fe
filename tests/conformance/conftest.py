"""Every `rfc` marker names one sentence that binds; another one stops the run."""

from __future__ import annotations

import pytest
from tests.conformance.sentences import find
from tests.instance.conftest import start

__all__ = ["start"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each test the ids of the sentences that it shows."""
    wrong = []
    for item in items:
        ids = set()
        for marker in item.iter_markers("rfc"):
            try:
                ids.add(find(*marker.args).id)
            except (LookupError, TypeError) as error:
                wrong.append(f"{item.nodeid}: {error}")
        item.user_properties.append(("rfc", sorted(ids)))
    if wrong:
        raise pytest.UsageError("\n".join(dict.fromkeys(wrong)))
