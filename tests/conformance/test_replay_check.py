"""The manager's comparison of every job with a replay of its log, in the extension under test."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest
from tests.conformance.harness import Manager

from penstock._core import HAS_CHECKS, PanicException


def test_the_extension_under_test_has_the_checks():
    if "PENSTOCK_NEED_CHECKS" not in os.environ:
        pytest.skip("required by `make test-python` only")
    assert HAS_CHECKS


@pytest.mark.skipif(not HAS_CHECKS, reason="an extension as it is released")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE jobs SET spec = (SELECT max(id) FROM jobspecs) WHERE id = :job",
        "UPDATE jobs SET userid = userid + 1 WHERE id = :job",
        "UPDATE events SET lines = replace(lines, 'validate', 'invalid') WHERE job = :job",
        "DELETE FROM events WHERE job = :job",
    ],
)
def test_a_store_that_tells_another_job_is_noticed(tmp_path, damage):
    path = tmp_path / "jobs.sqlite"
    manager = Manager(path=path)
    job, other = manager.submit(), manager.submit(duration=60)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute(damage, {"job": job})
    with pytest.raises(PanicException, match="gives another record"):
        manager.raise_exception(other)
