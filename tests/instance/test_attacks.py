"""A guest that attacks does not keep the owner from submitting, and costs no service.

`bench/attacks.py` measures the owner's latency meanwhile.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.survival.attacks import ATTACKS, CONFIG, OPTIONS, SPEC, under

from penstock.client import Client

ROUNDS = 2

if os.geteuid() != 0:
    pytest.skip("only root can act as a guest", allow_module_level=True)


@pytest.fixture
def open_folder():
    """A directory that guests can enter."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_the_owner_submits_while_a_guest_attacks(start, tmp_path, open_folder, attack):
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    options = ("--config", str(config), "--socket", str(open_folder / "socket"), *OPTIONS)
    with start(*options) as instance, Client(f"local://{open_folder}/socket", timeout=60) as owner:
        before = owner.stats("broker")
        submitted = 0
        with under(attack, owner.uri, limit=ROUNDS) as (process, rounds):
            while process.is_alive():
                owner.submit(SPEC)
                submitted += 1
        assert (process.exitcode, rounds.value) == (0, ROUNDS)
        stats = owner.stats("broker")
        # The attack has reached the instance.
        assert (
            stats["received"] > before["received"] + submitted or attack.__name__ == "connections"
        )
        assert (stats["failures"], stats["suspended"]) == (before["failures"], before["suspended"])
        owner.wait_row(owner.submit(SPEC))
    assert instance.process.returncode == 0
