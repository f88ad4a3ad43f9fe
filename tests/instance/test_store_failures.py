"""An instance continues while its store cannot be written: a full disk, a locked database."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from small_disk import small_disk

from penstock._core import HAS_CHECKS, job_state
from penstock.client import Client
from penstock.errors import RpcError, StartError
from penstock.instance.directories import check_local
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from pathlib import Path

# Jobs wait for files that the test makes: nothing depends on the time of their run.
WAIT_FOR = 'until test -e "$0"; do sleep 0.05; done'


def fill(path: Path) -> None:
    """Writes a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def submit_until_rejected(client: Client) -> tuple[list[int], RpcError]:
    """Submits held jobs until one is rejected. Returns the acknowledged ones, and the error."""
    jobs: list[int] = []
    while True:
        try:
            text = "x" * 2000
            jobs.append(client.submit(from_command(["true", text], environment={}), urgency=0))
        except RpcError as error:
            return jobs, error


def test_a_full_disk_rejects_submissions_and_ends_no_task(start, tmp_path):
    release = tmp_path / "release"
    with (
        small_disk(tmp_path / "state", "6m"),
        start("--nodes=1", "--cores=2", "--oversubscribe", stderr=tmp_path / "log") as instance,
    ):
        with Client(instance.uri, timeout=60) as client:
            running = client.submit(from_command(["sh", "-c", WAIT_FOR, str(release)]))
            wait_for_start(client, running)
            fill(instance.state / "ballast")
            acknowledged, error = submit_until_rejected(client)
        # At once: the next attempt to write, a second later, may find room in the log.
        with Client(instance.uri, timeout=60) as client:
            listed = {each["name"]: each["state"] for each in client.services()}
            with pytest.raises(RpcError) as caught:
                client.cancel([running])
            assert caught.value.errno == errno.ENOSPC
            # The response would acknowledge what a service has sent before.
            with pytest.raises(RpcError, match="the disk is full"):
                client.rpc("job-manager.ping", {})
        assert (listed["job-manager"], listed["log"]) == ("failed", "running")
        assert error.errno == errno.ENOSPC
        assert error.strerror == (
            "job-ingest.submit: the store cannot be written: the disk is full"
        )
        # Questions are answered, from what is stored.
        with Client(instance.uri, timeout=60) as client:
            rows = client.job_rows(attrs=["id"])
            assert {row["id"] for row in rows} >= {running, *acknowledged}
            assert client.job_row(running)["id"] == running
            events = list(client.eventlog(running))
            assert "start" in {event["name"] for event in events}
        assert len(instance.lines("jobs")) > 1
        # The task continues, and ends while nothing can be stored.
        release.touch()
        (instance.state / "ballast").unlink()
        with Client(instance.uri, timeout=60) as client:
            wait_for_store(client)
            ended = client.wait_row(running)
            assert ended["success"], ended
            known = {row["id"] for row in client.job_rows()}
            assert known >= {running, *acknowledged}
            later = client.submit(from_command(["true"]))
            assert client.wait_row(later)["success"]


def use_all_inodes(directory: Path) -> None:
    """Makes files in a new directory until the file system has no inode left."""
    directory.mkdir()
    for number in itertools.count():
        try:
            (directory / str(number)).touch()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return


@pytest.mark.parametrize("is_out_of_inodes", [False, True])
def test_a_job_starts_when_there_is_space_for_its_output(start, tmp_path, is_out_of_inodes):
    disk, config = tmp_path / "disk", tmp_path / "config.toml"
    config.write_text(f"penstock.exec.output-directory = '{disk / 'output'}'\n")
    note = "the job starts when there is space for its output: none is free"
    options = ("--nodes=1", "--cores=4", "--oversubscribe", "--config", str(config))
    with (
        small_disk(disk, "4m,nr_inodes=100"),
        start(*options) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        ballast = disk / "ballast"
        if is_out_of_inodes:
            use_all_inodes(ballast)
        else:
            ballast.mkdir()
            fill(ballast / "file")
        job = client.submit(from_command(["echo", "hello"]))
        events = client.eventlog(job, follow=True)
        raised = next(event for event in events if event["name"] == "exception")
        assert (raised["context"]["severity"], raised["context"]["note"]) == (3, note)
        assert client.stats("job-exec")["held_starts"] == 1
        # Output that is not stored needs no space here.
        elsewhere = instance.penstock(
            "run", "--output", str(tmp_path / "elsewhere"), "echo", "hello"
        )
        assert elsewhere.returncode == 0
        shutil.rmtree(ballast)
        assert client.wait_row(job)["success"]
        assert client.stats("job-exec")["held_starts"] == 0
        assert instance.penstock("logs", str(job)).stdout == "hello\n"


def test_the_reserve_keeps_a_full_disk_from_being_an_outage(start, tmp_path):
    release = tmp_path / "release"
    config = tmp_path / "config.toml"
    config.write_text("penstock.store.reserve = 1000000\n")
    options = ("--nodes=1", "--cores=2", "--oversubscribe", "--config", str(config))
    with (
        small_disk(tmp_path / "state", "8m"),
        start(*options, stderr=tmp_path / "log") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        assert (instance.state / "reserve").stat().st_blocks * 512 >= 1000000
        running = client.submit(from_command(["sh", "-c", WAIT_FOR, str(release)]))
        wait_for_start(client, running)
        held = [client.submit(from_command(["true"]), urgency=0) for _ in range(3)]
        fill(instance.state / "ballast")
        acknowledged, error = submit_until_rejected(client)
        assert error.errno == errno.ENOSPC
        wait_for_store(client)
        assert not (instance.state / "reserve").exists()
        # The end of the job is recorded, other jobs are cancelled, and none is accepted or started.
        release.touch()
        assert client.wait_row(running)["success"]
        with pytest.raises(RpcError, match="the disk is full: no jobs are accepted"):
            client.submit(from_command(["true"]))
        client.urgency(held[:1], 16)
        client.cancel([*held[1:], *acknowledged])
        assert not client.wait_row(held[1])["success"]
        assert client.job_row(held[0])["state"] == job_state.SCHED
        (instance.state / "ballast").unlink()
        assert client.wait_row(held[0])["success"]
        assert client.wait_row(client.submit(from_command(["true"])))["success"]
        assert (instance.state / "reserve").exists()
    assert "the store uses its reserve" in (tmp_path / "log").read_text()


def test_a_write_error_rejects_submissions_until_writes_succeed(start, tmp_path):
    with (
        start("--nodes=1", "--cores=2", "--oversubscribe", stderr=tmp_path / "log") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        before = client.submit(from_command(["true"]), urgency=0)
        # Longer files are an error that is not that of a full disk, as of a damaged one.
        limits = resource.prlimit(instance.process.pid, resource.RLIMIT_FSIZE)
        log = (instance.state / "jobs.sqlite-wal").stat().st_size
        resource.prlimit(instance.process.pid, resource.RLIMIT_FSIZE, (log, limits[1]))
        acknowledged, error = submit_until_rejected(client)
        assert (error.errno, "the store cannot be" in error.strerror) == (errno.EIO, True)
        assert {row["id"] for row in client.job_rows()} >= {before, *acknowledged}
        with pytest.raises(RpcError) as caught:
            client.cancel([before])
        assert caught.value.errno == errno.EIO
        resource.prlimit(instance.process.pid, resource.RLIMIT_FSIZE, limits)
        wait_for_store(client)
        assert {row["id"] for row in client.job_rows()} >= {before, *acknowledged}
        assert client.wait_row(client.submit(from_command(["true"])))["success"]


@pytest.mark.skipif(not HAS_CHECKS, reason="an extension as it is released")
def test_a_panic_in_the_job_manager_costs_its_requests_alone(start, tmp_path):
    log = tmp_path / "log"
    options = ("--nodes=1", "--cores=2", "--oversubscribe")
    with (
        start(*options, stderr=log, may_panic=True) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        release = tmp_path / "release"
        running = client.submit(from_command(["sh", "-c", WAIT_FOR, str(release)]))
        wait_for_start(client, running)
        held = client.submit(from_command(["true"]), urgency=0)
        # The checks of this build compare the store with the manager's memory, and panic.
        with closing(sqlite3.connect(instance.state / "jobs.sqlite")) as store, store:
            store.execute("UPDATE jobs SET userid = userid + 1 WHERE id = ?", (held,))
        with pytest.raises(RpcError) as caught:
            client.urgency([held], 20)
        assert caught.value.errno == errno.EIO
        # The manager is made again of what is stored; task, connection and daemon live on.
        wait_for_store(client)
        release.touch()
        assert client.wait_row(running)["success"]
        assert client.wait_row(client.submit(from_command(["true"])))["success"]
    assert "service ManagerService has failed" in log.read_text()


def wait_for_start(client: Client, job: int) -> None:
    """Returns when the tasks of a job run."""
    with client.eventlog(job, follow=True) as events:
        for event in events:
            if event["name"] == "start":
                return


def wait_for_store(client: Client) -> None:
    """Returns when the job manager serves requests."""
    while True:
        states = {row["name"]: row["state"] for row in client.services()}
        if states["job-manager"] == "running":
            return


@pytest.mark.parametrize("removed", [[], ["jobs.generation"]])
# The log has blocks behind its last page: its first two pages are a part of it.
@pytest.mark.parametrize(
    ("name", "kept"),
    [("jobs.sqlite", 0), ("jobs.sqlite", 8192), ("jobs.sqlite-wal", 0), ("jobs.sqlite-wal", 8272)],
)
def test_a_truncated_file_of_the_store_is_noticed(start, tmp_path, name, kept, removed):
    log = tmp_path / "log"
    options = ("--nodes=1", "--cores=2", "--exec=sim")
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        # Its end has copied the log into the database.
        client.submit(from_command(["true", "x" * 50000], environment={}), urgency=0)
    with (
        start(*options, stderr=log) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        for _ in range(3):
            client.submit(from_command(["true"]), urgency=0)
        state = instance.state
        for other in removed:
            (state / other).unlink()
        os.truncate(state / name, kept)
        for _ in range(3):
            with pytest.raises(RpcError, match="store cannot be"):
                client.submit(from_command(["true"]), urgency=0)
        instance.process.kill()
        instance.process.wait()
    assert f"{name}` was truncated" in log.read_text()
    command = [sys.executable, "-m", "penstock", "start", *options, "--state", str(state)]
    done = subprocess.run(
        [*command, "--", "true"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "penstock store restore" in done.stderr


def test_a_counter_of_commits_that_is_removed_is_written_again(start):
    options = ("--nodes=1", "--cores=2", "--exec=sim")
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        client.submit(from_command(["true"]), urgency=0)
        counter = instance.state / "jobs.generation"
        before = counter.read_text()
        counter.unlink()
        client.submit(from_command(["true"]), urgency=0)
        assert counter.read_text() > before


def test_a_locked_database_is_waited_for(start, tmp_path):
    with start("--nodes=1", "--cores=2", "--exec=sim", stderr=tmp_path / "log") as instance:
        other = sqlite3.connect(instance.state / "jobs.sqlite", isolation_level=None)
        with Client(instance.uri, timeout=60) as client:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(RpcError) as caught:
                client.submit(from_command(["true"]))
            assert caught.value.errno == errno.EBUSY
            with pytest.raises(RpcError, match="another program holds a lock"):
                client.submit(from_command(["true"]))
            assert client.rpc("broker.stats-get")["failed"] >= 1
            # Questions are answered while the daemon tries to write again.
            for _ in range(3000):
                assert client.job_rows() == []
            other.execute("ROLLBACK")
            other.close()
            wait_for_store(client)
            client.submit(from_command(["true"]))


def test_a_second_daemon_is_excluded_whatever_files_are_removed(start, tmp_path):
    with start("--nodes=1") as instance:
        for path in instance.state.iterdir():
            if path.name in ("lock", "socket"):
                path.unlink()
        command = ["start", "--state", str(instance.state), "--socket", str(tmp_path / "other")]
        done = instance.penstock(*command, "--nodes=1", "--", "true")
        assert done.returncode == 1
        assert "is in use by another instance" in done.stderr


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "9p", "virtiofs"])
def test_a_network_file_system_is_rejected(kind, tmp_path):
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    line = f"24 30 {number} / /home rw,relatime shared:5 - {{}} server:/home rw\n"
    other = "25 30 0:99999 / /data rw - nfs4 server:/data rw\n"
    check_local(tmp_path, other + line.format("ext4"))
    with pytest.raises(StartError, match=rf"network file system \({kind}\)"):
        check_local(tmp_path, other + line.format(kind))


def test_a_daemon_does_not_start_on_a_network_file_system(tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    device = state.stat().st_dev
    mounts = tmp_path / "mounts"
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts.write_text(f"24 30 {number} / / rw - nfs4 server:/home rw\n")
    # The daemon sees other mounts than there are.
    script = 'mount --bind "$0" /proc/$$/mountinfo && exec "$@"'
    isolated = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, str(mounts)]
    if subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are not available")
    command = [sys.executable, "-m", "penstock", "start", "--state", str(state), "--", "true"]
    done = subprocess.run(
        [*isolated, *command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"state directory `{state}` is on a network file system (nfs4)" in done.stderr
    assert not (state / "jobs.sqlite").exists()


def test_output_of_unknown_jobs_stays(start, tmp_path):
    with (
        start("--nodes=1", "--cores=1", "--oversubscribe") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        job = client.submit(from_command(["echo", "known"]))
        assert client.wait_row(job)["success"]
    output = instance.state / "exec" / "output"
    (output / "99.stdout").write_text("unknown\n")
    # The store goes back in time.
    with sqlite3.connect(instance.state / "jobs.sqlite") as database:
        database.execute("DELETE FROM events")
        database.execute("DELETE FROM jobs")
    database.close()
    with start("--nodes=1", "--oversubscribe", "-v", stderr=tmp_path / "log") as instance:
        (other,) = instance.lines("submit", "echo", "other")
        instance.lines("wait", other)
        instance.lines("purge", "--force", "--num-limit=0")
    assert {path.name for path in output.glob("*.stdout")} == {"99.stdout", f"{job:d}.stdout"}
    assert "the store does not know 2 jobs with retained output" in (tmp_path / "log").read_text()
