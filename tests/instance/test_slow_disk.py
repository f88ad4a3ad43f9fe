"""While the disk is slow, requests that change nothing are answered."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from rawclient import RawClient

from penstock.client import Client
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock._core import Message

LIBRARY = Path(__file__).parents[1] / "support" / "held_syncs.c"


class HeldSyncs:
    """The syncs of a daemon, which can be held and fail."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        library = folder / "held_syncs.so"
        compiler = shutil.which("cc")
        assert compiler is not None, "a C compiler is needed, as for the build"
        command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library)]
        subprocess.run([*command, str(LIBRARY)], check=True)
        os.mkfifo(folder / "waiting")
        self._waiting = os.open(folder / "waiting", os.O_RDONLY | os.O_NONBLOCK)
        self.environment = {"LD_PRELOAD": str(library), "PENSTOCK_SYNCS": str(folder)}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds each sync until the end of the block."""
        (self._folder / "hold").touch()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Lets each sync continue."""
        (self._folder / "hold").unlink(missing_ok=True)

    def close(self) -> None:
        self.release()
        os.close(self._waiting)

    async def wait(self) -> None:
        """Returns when a sync is held."""
        while True:
            await trio.lowlevel.wait_readable(self._waiting)
            # A process may have opened it for writing meanwhile, and has yet to write.
            with suppress(BlockingIOError):
                if os.read(self._waiting, 1):
                    return
            # No process has it open for writing.
            await trio.lowlevel.checkpoint()

    def fail(self, *, fails: bool) -> None:
        """Has each sync fail, or none."""
        if fails:
            (self._folder / "fail").touch()
        else:
            (self._folder / "fail").unlink()


@pytest.fixture
def syncs(tmp_path, monkeypatch):
    syncs = HeldSyncs(tmp_path / "syncs")
    for name, value in syncs.environment.items():
        monkeypatch.setenv(name, value)
    yield syncs
    syncs.close()


async def submit(client: RawClient, number: int = 0) -> None:
    jobspec = from_command(["true", str(number)], environment={})
    payload = {"jobspec": jobspec, "urgency": 0}
    await client.send("job-ingest.submit", payload)


async def response_to(client: RawClient) -> Message:
    (response,) = await client.receive()
    return response


async def make_slow(syncs: HeldSyncs, client: RawClient) -> None:
    """Has the daemon take the disk for a slow one: a sync that it made itself was slow."""
    with syncs.held():
        await submit(client)
        await syncs.wait()
    assert (await response_to(client)).errnum == 0


def socket_of(uri: str) -> str:
    return uri.removeprefix("local://")


@pytest.mark.trio
async def test_requests_that_change_nothing_are_answered_during_a_slow_sync(start, syncs):
    with start("--nodes=1", "--cores=1") as instance, trio.fail_after(60):
        path = socket_of(instance.uri)
        first, second = await RawClient.connect(path), await RawClient.connect(path)
        async with first.stream, second.stream:
            await make_slow(syncs, first)
            with syncs.held():
                await submit(first, 1)
                await syncs.wait()
                for _ in range(3):
                    await second.send("broker.ping", {"seq": 1})
                    assert (await response_to(second)).errnum == 0
                # It is accepted during the sync, and durable after the next one.
                await submit(second, 2)
                with trio.move_on_after(0.05) as early:
                    await first.receive()
                assert early.cancelled_caught
            assert (await response_to(first)).errnum == 0
            assert (await response_to(second)).errnum == 0
        with Client(instance.uri, timeout=60) as client:
            assert len(client.job_rows()) == 3


@pytest.mark.trio
async def test_a_slow_sync_that_fails_rejects_submissions_until_one_succeeds(
    start, syncs, tmp_path
):
    log = tmp_path / "log"
    with start("--nodes=1", "--cores=1", stderr=log) as instance, trio.fail_after(60):
        path = socket_of(instance.uri)
        first, second = await RawClient.connect(path), await RawClient.connect(path)
        async with first.stream, second.stream:
            await make_slow(syncs, first)
            with syncs.held():
                await submit(first, 1)
                await syncs.wait()
                await submit(second, 2)
                syncs.fail(fails=True)
            for client in (first, second):
                assert (await response_to(client)).errnum == errno.EIO
            syncs.fail(fails=False)
            # The job manager is built again.
            errnum = errno.EIO
            while errnum:
                await submit(second, 3)
                errnum = (await response_to(second)).errnum
        with Client(instance.uri, timeout=60) as client:
            # A start finds the job in the log whose sync has failed, and not the one behind it.
            assert len(client.job_rows()) == 3
    assert "cannot sync" in log.read_text()


@pytest.mark.trio
async def test_what_is_not_synced_when_the_daemon_is_killed_was_not_acknowledged(start, syncs):
    with start("--nodes=1", "--cores=1") as instance, trio.fail_after(60):
        client = await RawClient.connect(socket_of(instance.uri))
        async with client.stream:
            await make_slow(syncs, client)
            with syncs.held():
                await submit(client, 1)
                await syncs.wait()
                os.kill(instance.process.pid, 9)
                assert await client.receive() == []
