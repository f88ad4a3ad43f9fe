"""A short run of damaged frames over real sockets; `make fuzz-wire` is a long one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.survival.frames import MAX_NEW_DESCRIPTORS, run

FRAMES = 20_000


@pytest.fixture
def directory():
    """A directory that the guest's sender can enter, too."""
    made = Path(tempfile.mkdtemp(prefix="penstock-frames-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def test_an_instance_outlives_damaged_frames(directory):
    seed = int(os.environ.get("PENSTOCK_FRAMES_SEED", "20"))
    report = run(directory, seed, FRAMES)
    assert not report.errors, f"seed {seed}:\n{report}\n{report.errors}"
    assert report.received > FRAMES / 2
    # One descriptor of each connection would be too many.
    assert report.connections > MAX_NEW_DESCRIPTORS
