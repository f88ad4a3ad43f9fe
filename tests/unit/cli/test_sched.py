"""Settings of `penstock sched`: from a configuration file, from options, from the daemon."""

from __future__ import annotations

import json

import pytest

from penstock import sched
from penstock.cli import main

FILE = """
[queues.a]
[penstock.scheduler]
limit = 7
policy = "conservative"
selection = "pack"
annotate = 3
[penstock.scheduler.queues.a]
max-jobs = 2
"""
DEFAULT = {
    "policy": "easy",
    "selection": "first",
    "overlong": "shorten",
    "annotate": 100,
    "queues": {},
    "job-visibility": "own",
}
CONFIGURED = {"policy": "conservative", "selection": "pack", "annotate": 3}
CONFIGURED |= {"overlong": "shorten", "queues": {"a": {"max-jobs": 2}}, "job-visibility": "own"}


@pytest.fixture
def run_arguments(monkeypatch):
    """The arguments that the scheduler was started with."""
    found = {}

    def run(uri, limit, *, grow, settings):
        found.update(uri=uri, limit=limit, grow=grow, settings=json.loads(settings))
        return 0

    monkeypatch.setattr(sched, "run", run)
    return found


@pytest.mark.parametrize(
    ("args", "settings", "limit"),
    [
        ([], DEFAULT, None),
        (["--policy", "hybrid:4"], DEFAULT | {"policy": "hybrid:4"}, None),
        (["--selection", "spread", "--limit", "5"], DEFAULT | {"selection": "spread"}, 5),
        (["--config", "FILE"], CONFIGURED, 7),
        (["--config", "FILE", "--policy", "fcfs"], CONFIGURED | {"policy": "fcfs"}, 7),
        (["--settings", '{"policy": "fcfs"}', "--policy", "easy"], {"policy": "easy"}, None),
    ],
    ids=str,
)
def test_options_go_before_the_file(run_arguments, tmp_path, args, settings, limit):
    file = tmp_path / "config.toml"
    file.write_text(FILE)
    assert main(["sched", *(str(file) if arg == "FILE" else arg for arg in args)]) == 0
    assert run_arguments == {"uri": None, "limit": limit, "grow": True, "settings": settings}


def test_an_invalid_file_is_an_error(run_arguments, tmp_path, capsys):
    file = tmp_path / "config.toml"
    file.write_text("[penstock.scheduler]\npolicy = 'sjf'\n")
    assert main(["sched", "--config", str(file)]) == 1
    assert "penstock.scheduler.policy: " in capsys.readouterr().err
    assert not run_arguments
