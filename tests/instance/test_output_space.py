"""Stored output leaves space on its file system."""

from __future__ import annotations

import json
import os

import pytest
from small_disk import small_disk

from penstock.client import Client
from penstock.jobspec import from_command

NOTE = (
    "the job starts when there is space for its output: less than 4000000 bytes are free "
    "(`penstock.exec.output-reserve`)"
)


@pytest.fixture
def instance(start, tmp_path):
    """An instance whose output is on a disk of 8 MiB and leaves 4 MB of it free."""
    disk, config = tmp_path / "disk", tmp_path / "config.toml"
    config.write_text(
        f"[penstock.exec]\noutput-directory = '{disk / 'output'}'\noutput-reserve = 4000000\n"
    )
    with (
        small_disk(disk, "8m"),
        start("--config", str(config), "--oversubscribe", stderr=tmp_path / "log") as started,
    ):
        yield started


def test_a_job_starts_when_there_is_space_for_its_output(instance, tmp_path):
    ballast = tmp_path / "disk" / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 6000000)
    with Client(instance.uri, timeout=60) as client:
        job = client.submit(from_command(["echo", "hello"]))
        events = (event for event in client.eventlog(job, follow=True))
        raised = next(event for event in events if event["name"] == "exception")
        assert raised["context"]["severity"] == 3
        assert raised["context"]["note"] == NOTE
        assert client.stats("job-exec")["held_starts"] == 1
        # Output that is not stored needs no space here.
        out = str(tmp_path / "out")
        assert instance.penstock("run", "--output", out, "echo", "elsewhere").returncode == 0
        ballast.unlink()
        assert client.wait_row(job)["success"]
        assert client.stats("job-exec")["held_starts"] == 0
    assert instance.lines("logs", str(job)) == ["hello"]
    log = (tmp_path / "log").read_text()
    assert log.count("jobs whose output is stored do not start") == 1
    assert log.count("bytes are free for output: jobs start") == 1


def test_the_largest_writer_is_ended_and_another_continues(instance, tmp_path):
    release = tmp_path / "release"
    quiet = "echo quiet; until test -e $0; do sleep 0.05; done"
    greedy = "while :; do head -c 65536 /dev/zero || sleep 0.05; done 2>/dev/null"
    (one,) = instance.lines("submit", "sh", "-c", quiet, str(release))
    (other,) = instance.lines("submit", "sh", "-c", greedy)
    assert instance.penstock("wait", other).returncode != 0
    row = json.loads(instance.lines("info", "--json", other)[0])
    assert row["reason"].startswith("exec: less than 4000000 bytes are free for output ")
    instance.lines("purge", "--force", "--num-limit=0")
    release.touch()
    assert instance.penstock("wait", one).returncode == 0
    assert instance.penstock("run", "true").returncode == 0
