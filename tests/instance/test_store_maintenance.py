"""`penstock store` with real instances: damage that is noticed, back-ups, repair, older formats."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest
from tests.instance.conftest import PENSTOCK, RunningInstance, kill

from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command

FORMATS = Path(__file__).parents[2] / "rust" / "store" / "tests" / "formats"
NODES = ("--nodes=2", "--cores=2")
# The size of a page of the database, in bytes.
PAGE = 4096


def store(state: Path, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `penstock store` on a state directory."""
    verb, *rest = words
    return subprocess.run(
        [*PENSTOCK, "store", verb, "--state", str(state), *rest],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def succeed(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = store(state, *words)
    assert done.returncode == 0, done.stderr
    return done


def submit(client: Client, *, urgency: int = 16) -> int:
    return client.submit(from_command(["true"], environment={}, cwd="/"), urgency=urgency)


def instance_around(state: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """An instance that runs a command and ends."""
    start = [*PENSTOCK, "start", "--state", str(state), "--socket", str(state / "socket")]
    return subprocess.run(
        [*start, *NODES, "--", *command], capture_output=True, text=True, check=False, timeout=60
    )


def start_fails(state: Path) -> str:
    """The error of an instance that does not start."""
    done = instance_around(state, "true")
    assert done.returncode == 1, done.stderr
    return done.stderr


def first_child(page: bytes) -> int:
    """The number of the first page below an interior page of a table, in a database of SQLite."""
    assert page[0] == 5
    cell = int.from_bytes(page[12:14])
    return int.from_bytes(page[cell : cell + 4])


def crash_after_submissions(start, count: int) -> Path:
    """Kills an instance, whose log then has what is not in the database yet."""
    with start(*NODES):
        pass
    with start(*NODES) as instance, Client(instance.uri) as client:
        for _ in range(count):
            submit(client, urgency=0)
        kill(instance)
    return instance.state


@pytest.mark.parametrize("damage", ["removed", "overwritten"])
def test_lost_commits_are_noticed_and_accepted(start, damage):
    state = crash_after_submissions(start, 3)
    log = state / "jobs.sqlite-wal"
    if damage == "removed":
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:32] + b"\xa5" * (log.stat().st_size - 32))
    said = start_fails(state)
    assert "went back in time" in said
    assert "penstock store restore" in said
    checked = store(state, "check")
    assert checked.returncode == 1
    assert "went back in time" in checked.stdout
    succeed(state, "restore", "--as-is")
    succeed(state, "check")
    with start(*NODES) as instance, Client(instance.uri) as client:
        assert client.job_rows() == []
        assert submit(client) > 0


def test_a_removed_database_is_not_made_again(start):
    with start(*NODES) as instance, Client(instance.uri) as client:
        submit(client)
        done = instance.penstock("store", "backup", str(instance.state / "copy"))
        assert done.returncode == 0, done.stderr
    for path in instance.state.glob("jobs.sqlite*"):
        path.unlink()
    said = start_fails(instance.state)
    assert "is missing or empty" in said
    assert "penstock store restore BACKUP" in said
    succeed(instance.state, "restore", str(instance.state / "copy"))
    with start(*NODES) as instance, Client(instance.uri) as client:
        assert len(client.job_rows()) == 1


@pytest.mark.parametrize("name", ["jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm"])
def test_a_file_that_is_removed_during_use_is_noticed(start, name, tmp_path):
    log = tmp_path / "log"
    with (
        start(*NODES, stderr=log) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        known = submit(client, urgency=0)
        (instance.state / name).unlink()
        with pytest.raises(RpcError, match="files were removed, replaced or truncated"):
            submit(client, urgency=0)
        if name != "jobs.sqlite":
            # Nothing is lost: the log was still open.
            later = wait_for_submission(client)
            assert {row["id"] for row in client.job_rows()} >= {known, later}
        kill(instance)
    assert "was removed or replaced while the instance ran" in log.read_text()
    if name == "jobs.sqlite":
        assert "missing or empty" in start_fails(instance.state)


def test_a_start_whose_job_manager_has_failed_when_its_command_ends_fails(tmp_path):
    submission = " ".join([*PENSTOCK, "submit", "true"])
    for code, expected in ((0, 1), (3, 3)):
        state = tmp_path / str(code)
        script = f"{submission}; rm {state}/jobs.sqlite; {submission}; exit {code}"
        done = instance_around(state, "sh", "-c", script)
        # The code of the command is more specific.
        assert done.returncode == expected, done.stderr
        assert "the job manager had failed when the command ended: the store" in done.stderr


def wait_for_submission(client: Client) -> int:
    while True:
        try:
            return submit(client, urgency=0)
        except RpcError as error:
            last = error
        assert "store" in last.strerror or "restart" in last.strerror


def test_a_backup_is_made_while_the_instance_runs_and_restored_when_it_has_ended(start, tmp_path):
    backup = tmp_path / "backup.sqlite"
    with start(*NODES) as instance, Client(instance.uri) as client:
        client.queue_stop(everything=True)
        pending = submit(client, urgency=3)
        waiting = submit(client)
        # The state directory is that of the instance which PENSTOCK_URI names.
        done = instance.penstock("store", "backup", str(backup))
        assert done.returncode == 0, done.stderr
        assert instance.penstock("store", "check").returncode == 0
        rejected = store(instance.state, "restore", str(backup))
        assert rejected.returncode == 1
        assert "is in use by another instance" in rejected.stderr
        assert "penstock stop" in rejected.stderr
        client.queue_start(everything=True)
        assert client.wait_row(waiting)["success"]
        client.cancel([pending])
        later = submit(client)
    said = succeed(instance.state, "restore", str(backup)).stderr
    assert "jobs.sqlite.before-" in said
    with start(*NODES) as instance, Client(instance.uri) as client:
        # A job that was pending may have run since: it does not run again by itself.
        rows = {row["id"]: row for row in client.job_rows()}
        assert rows.keys() == {pending, waiting}
        assert {row["urgency"] for row in rows.values()} == {0}
        assert submit(client, urgency=0) > later
        client.queue_start(everything=True)
        client.urgency([waiting], 16)
        assert client.wait_row(waiting)["success"]
        assert "pending jobs are held" in "\n".join(instance.lines("dmesg"))
    # They are held once.
    with start(*NODES) as instance:
        assert "pending jobs are held" not in "\n".join(instance.lines("dmesg"))


def test_a_running_job_of_a_backup_does_not_run_twice(start, tmp_path):
    backup, ran, release = tmp_path / "backup", tmp_path / "ran", tmp_path / "release"
    script = 'echo run >> "$0"; until test -e "$1"; do sleep 0.05; done'
    options = ("--nodes=1", "--cores=1", "--oversubscribe")
    with start(*options) as instance, Client(instance.uri) as client:
        job = client.submit(from_command(["sh", "-c", script, str(ran), str(release)]))
        with client.eventlog(job, follow=True) as events:
            assert any(event["name"] == "start" for event in events)
        assert instance.penstock("store", "backup", str(backup)).returncode == 0
        release.touch()
        assert client.wait_row(job)["success"]
    succeed(instance.state, "restore", str(backup))
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        ended = client.wait_row(job)
        assert ran.read_text() == "run\n"
        # The execution service reports the end, or no longer knows the job.
        lost = "lost: the execution service has no record of the job's start"
        assert ended["success"] or ended["exception_note"] == lost


def test_an_export_is_the_database_as_text(start, tmp_path):
    text = tmp_path / "text"
    with start(*NODES) as instance, Client(instance.uri) as client:
        job = submit(client)
        assert client.wait_row(job)["success"]
        exported = instance.lines("store", "export")
        assert {"jobs", "events", "jobspecs"} <= {
            key for line in exported for key in json.loads(line)
        }
        backup = tmp_path / "backup"
        for verb, path in {"export": text, "backup": backup}.items():
            assert instance.penstock("store", verb, str(path)).returncode == 0
            # Both have the environments of all users.
            assert path.stat().st_mode & 0o077 == 0
            kept = instance.penstock("store", verb, str(path))
            assert (kept.returncode, "exists already" in kept.stderr) == (1, True)
        log = tmp_path / "log"
        log.write_text("before\n")
        with log.open("a") as appended:
            command = [*PENSTOCK, "store", "export", "--state", str(instance.state), "-"]
            subprocess.run(command, stdout=appended, check=True, timeout=60)
        before, *lines = log.read_text().splitlines()
        assert before == "before"
        assert {"jobs", "events"} <= {key for line in lines for key in json.loads(line)}
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    succeed(other, "import", str(text))
    again = store(other, "import", str(text))
    assert (again.returncode, "exists already" in again.stderr) == (1, True)
    with start(*NODES, name="other") as instance, Client(instance.uri) as client:
        assert [row["id"] for row in client.job_rows()] == [job]
        assert instance.lines("eventlog", str(job))
    cut = tmp_path / "cut"
    cut.write_text("".join(text.read_text().splitlines(keepends=True)[:-1]))
    third = tmp_path / "third"
    third.mkdir(mode=0o700)
    rejected = store(third, "import", "-", stdin=cut.read_text())
    assert (rejected.returncode, "the text ends after line" in rejected.stderr) == (1, True)


def test_an_import_makes_the_state_directory(start, tmp_path):
    with start(*NODES) as instance, Client(instance.uri) as client:
        job = submit(client, urgency=0)
        text = "".join(f"{line}\n" for line in instance.lines("store", "export"))
    state = tmp_path / "new"
    cut = store(state, "import", "-", stdin=text[:-10])
    assert cut.returncode == 1
    assert not state.exists()
    done = store(state, "import", "-", stdin=text)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    with start(*NODES, name="new") as instance, Client(instance.uri) as client:
        assert [row["id"] for row in client.job_rows()] == [job]
    # Neither below a directory that does not exist, nor where other users can replace it.
    rejected = store(tmp_path / "missing" / "new", "import", "-", stdin=text)
    assert rejected.returncode == 1
    assert f"no directory `{tmp_path / 'missing'}`" in rejected.stderr
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)
    rejected = store(public / "new", "import", "-", stdin=text)
    assert rejected.returncode == 1
    assert "other users can write to it" in rejected.stderr
    assert not (public / "new").exists()
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "missing")
    rejected = store(dangling, "import", "-", stdin=text)
    assert (rejected.returncode, "no state directory" in rejected.stderr) == (1, True)
    assert not (tmp_path / "missing").exists()


def instance_with_jobs(start) -> RunningInstance:
    """An instance that has ended, with 500 held jobs in many pages of its database."""
    with start(*NODES) as instance, Client(instance.uri) as client:
        spec = from_command(["true", "x" * 100], environment={}, cwd="/")
        jobs = [{"jobspec": spec, "urgency": 0}] * 500
        client.rpc("job-ingest.submit", {"jobs": jobs})
    return instance


def test_a_damaged_page_is_named_and_repaired(start):
    instance = instance_with_jobs(start)
    database = instance.state / "jobs.sqlite"
    with sqlite3.connect(database) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'jobs'")
    connection.close()
    data = bytearray(database.read_bytes())
    leaf = first_child(data[(root - 1) * PAGE : root * PAGE])
    data[(leaf - 1) * PAGE : leaf * PAGE] = b"\xa5" * PAGE
    database.write_bytes(data)
    said = start_fails(instance.state)
    assert "penstock store repair" in said
    checked = store(instance.state, "check")
    assert checked.returncode == 1
    done = succeed(instance.state, "repair")
    assert "are lost" in done.stderr or "is left out" in done.stderr
    succeed(instance.state, "check")
    with start(*NODES) as instance, Client(instance.uri) as client:
        assert 300 < len(client.job_rows(max_entries=0)) <= 500
    assert "has no problem" in succeed(instance.state, "repair").stderr


def test_a_database_without_its_last_pages_is_repaired(start):
    instance = instance_with_jobs(start)
    database = instance.state / "jobs.sqlite"
    size = database.stat().st_size // PAGE
    os.truncate(database, size // 2 * PAGE)
    assert "penstock store repair" in start_fails(instance.state)
    assert "penstock store repair" in store(instance.state, "check").stderr
    assert "lost" in succeed(instance.state, "repair").stderr
    succeed(instance.state, "check")
    with start(*NODES):
        pass


def test_a_bad_row_costs_its_job_and_is_named_by_the_check(start):
    with start(*NODES) as instance, Client(instance.uri) as client:
        jobs = [submit(client, urgency=0) for _ in range(3)]
    with sqlite3.connect(instance.state / "jobs.sqlite") as database:
        database.execute("UPDATE events SET lines = 'nonsense' WHERE job = ?", (jobs[1],))
    database.close()
    checked = store(instance.state, "check")
    assert checked.returncode == 1
    assert "is left out" in checked.stdout
    with start(*NODES) as instance, Client(instance.uri) as client:
        assert {row["id"] for row in client.job_rows()} == {jobs[0], jobs[2]}
        assert "is left out" in "\n".join(instance.lines("dmesg"))


@pytest.mark.parametrize(
    "words",
    [["restore", "--as-is"], ["import", "-"], ["repair"], ["vacuum"]],
    ids=lambda words: words[0],
)
def test_what_replaces_a_database_needs_the_instance_stopped(start, words):
    with start(*NODES) as instance, Client(instance.uri) as client:
        job = submit(client, urgency=0)
        done = store(instance.state, *words, stdin="")
        assert done.returncode == 1
        assert "is in use by another instance\nhint: end it with `penstock stop`" in done.stderr
        assert client.job_row(job)["id"] == job


def test_each_released_format_has_a_dump(start):
    with start(*NODES) as instance:
        pass
    database = sqlite3.connect(instance.state / "jobs.sqlite")
    ((current,),) = database.execute("PRAGMA user_version")
    database.close()
    released = {int(dump.stem) for dump in FORMATS.glob("*.sql")}
    assert released == set(range(1, current))


@pytest.mark.parametrize("dump", sorted(FORMATS.glob("*.sql")), ids=lambda path: path.stem)
def test_an_instance_migrates_each_released_format(start, dump, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    database = sqlite3.connect(state / "jobs.sqlite")
    database.executescript(dump.read_text())
    database.close()
    with start(*NODES) as instance, Client(instance.uri) as client:
        assert len(client.job_rows()) == 3
        ended = {"and": [{"name": ["true"]}, {"results": ["completed"]}]}
        assert len(client.job_rows(constraint=ended)) == 1
        assert "drain" in "\n".join(instance.lines("resource", "status"))
        assert client.wait_row(submit(client))["success"]
        assert instance.penstock("store", "check").returncode == 0


def test_a_newer_format_is_rejected(start):
    with start(*NODES) as instance:
        pass
    database = sqlite3.connect(instance.state / "jobs.sqlite")
    database.execute("PRAGMA user_version = 99")
    database.close()
    assert "the database has format 99" in start_fails(instance.state)
    assert "format 99" in store(instance.state, "check").stderr


def test_the_state_directory_of_another_user_is_rejected(tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    done = store(state, "repair")
    assert done.returncode == 1
    assert "other users can write to it" in done.stderr
    shutil.rmtree(state)
    assert "no state directory" in store(state, "repair").stderr
