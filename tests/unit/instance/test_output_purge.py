"""The output of purged jobs is removed, also of many at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from penstock.instance.host import MAX_FILES_PER_JOB, OutputFiles
from penstock.instance.output_purge import JOBS_PER_SLICE, OutputPurge


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# With few files the directory is listed, with many it is not.
@pytest.mark.parametrize("others", [0, 3 * MAX_FILES_PER_JOB])
def test_the_files_of_the_jobs_are_removed_and_no_others(tmp_path, others):
    kept = {f"{job}.stdout" for job in range(100, 100 + others)}
    kept |= {"1.other", "x.stdout", "11.stderr", "1.stdout.old"}
    for name in [*kept, "1.stdout", "2.stdout", "2.stderr"]:
        (tmp_path / name).touch()
    files = OutputFiles(tmp_path)
    files.remove([1, 2, 3])
    assert names(tmp_path) == kept
    assert set(files.jobs()) == {*range(100, 100 + others), 11}


def test_jobs_without_output_cost_no_system_call_each(tmp_path, monkeypatch):
    removed = []

    def unlink(path: Path) -> None:
        removed.append(path.name)

    monkeypatch.setattr(Path, "unlink", unlink)
    OutputFiles(tmp_path / "none").remove(list(range(10_000)))
    (tmp_path / "7.stdout").touch()
    OutputFiles(tmp_path).remove(list(range(10_000)))
    assert removed == ["7.stdout"]


class Manager:
    """A job manager that knows purged jobs alone."""

    def __init__(self, purged: list[int]) -> None:
        self.purged = purged
        self.calls: list[int] = []

    def purged_jobs(self) -> list[int]:
        return list(self.purged)

    def missing(self, jobs: list[int]) -> list[int]:
        return jobs

    def forget_purged(self, jobs: list[int]) -> None:
        self.calls.append(len(jobs))
        self.purged = [job for job in self.purged if job not in set(jobs)]


def test_the_store_forgets_many_purged_jobs_in_slices(tmp_path):
    manager = Manager(list(range(2 * JOBS_PER_SLICE + 1)))
    # The number of slices, as another task sees it.
    seen: list[int] = []

    async def at_once(function) -> None:
        function()

    async def watch() -> None:
        while manager.purged:
            seen.append(len(manager.calls))
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(OutputPurge(OutputFiles(tmp_path), manager, at_once).run)
            await watch()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert manager.calls == [JOBS_PER_SLICE, JOBS_PER_SLICE, 1]
    assert {1, 2} & set(seen)
