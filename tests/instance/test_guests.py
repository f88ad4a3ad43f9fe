"""Jobs of guests on an instance of root: they run as those users, without privilege."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from pmixdaemon import EXAMPLE, codes, compile_program, server_program
from small_disk import small_disk

from penstock._core import job_state
from penstock.client import Client
from penstock.jobid import parse
from penstock.jobspec import from_command

# A client whose connections are those of another user: the interpreter may be in root's home.
CONNECT_AS = """
import json, os, runpy, socket, sys

uid = int(sys.argv.pop(1))
connect = socket.socket.connect


def connect_as(self, address):
    os.seteuid(uid)
    try:
        return connect(self, address)
    finally:
        os.seteuid(0)


socket.socket.connect = connect_as
"""
CLIENT = CONNECT_AS + 'runpy.run_module("penstock", run_name="__main__")'
SUBMIT = (
    CONNECT_AS
    + "from penstock.client import Client; print(Client().submit(json.loads(sys.argv[1])))"
)

if os.geteuid() != 0:
    if "PENSTOCK_NEED_GUESTS" in os.environ:
        pytest.fail("the tests of guests must run as root")
    pytest.skip("only root runs jobs of guests", allow_module_level=True)


class Site:
    """An instance of root with two guests, and a directory that everybody can enter."""

    def __init__(self, folder: Path, guests: list[str]) -> None:
        self.folder = folder
        self.uri = f"local://{folder}/socket"
        self.uids = [pwd.getpwnam(guest).pw_uid for guest in guests]
        self.gids = [pwd.getpwnam(guest).pw_gid for guest in guests]

    def penstock(
        self, *words: str, guest: int = 0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command as one of the guests."""
        command = [sys.executable, "-c", CLIENT, str(self.uids[guest]), *words]
        return self._run(command, stdin)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begins a command as the first guest."""
        command = [sys.executable, "-c", CLIENT, str(self.uids[0]), *words]
        env = {"PATH": "/usr/bin:/bin", "PENSTOCK_URI": self.uri}
        return subprocess.Popen(command, cwd="/", env=env, stdin=subprocess.DEVNULL, text=True)

    def submit(self, jobspec: str) -> str:
        """Submits a jobspec as the first guest; returns the job's id."""
        done = self._run([sys.executable, "-c", SUBMIT, str(self.uids[0]), jobspec])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def owner(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as the owner."""
        return self._run([sys.executable, "-m", "penstock", *words])

    def _run(self, command: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "PENSTOCK_URI": self.uri, "SECRET": "of the submitter"},
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture(scope="module")
def guests():
    """Two throwaway users; the first is in a further group."""
    names = [f"pnstk{os.getpid()}{letter}" for letter in "ab"]
    for name in names:
        subprocess.run(["useradd", "--no-create-home", "--user-group", name], check=True)
    group = names[0] + "g"
    subprocess.run(["groupadd", group], check=True)
    subprocess.run(["usermod", "--append", "--groups", group, names[0]], check=True)
    yield names
    for name in names:
        subprocess.run(["userdel", name], check=True)
    subprocess.run(["groupdel", group], check=True)


@pytest.fixture
def site(start, guests, tmp_path):
    with make_site(start, guests, tmp_path) as made:
        yield made


@contextmanager
def make_site(start, guests, tmp_path, *options, config_text=""):
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    folder.chmod(0o755)
    config = tmp_path / "config.toml"
    config.write_text(f"[access]\nallow-guest-user = true\n{config_text}")
    with start("--config", str(config), "--socket", str(folder / "socket"), *options):
        yield Site(folder, guests)
    shutil.rmtree(folder)


def test_a_guests_task_has_the_guests_identity_and_no_privilege(site):
    script = (
        "id -u; id -g; id -G | wc -w; grep -E '^(CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs|SigIgn)' "
    )
    script += "/proc/self/status | tr -s '\\t' ' '; echo $USER $SECRET; umask; ls /proc/self/fd"
    done = site.penstock("run", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    uid, gid, groups, *status, user, umask, fds = done.stdout.split("\n", 11)
    assert (int(uid), int(gid), groups) == (site.uids[0], site.gids[0], "2")
    assert status == [
        "SigIgn: 0000000000000000",
        "CapInh: 0000000000000000",
        "CapPrm: 0000000000000000",
        "CapEff: 0000000000000000",
        "CapAmb: 0000000000000000",
        "NoNewPrivs: 1",
    ]
    assert user == f"{pwd.getpwuid(site.uids[0]).pw_name} of the submitter"
    assert umask == "0022"
    # The last one is that of `ls` itself.
    assert fds.split() == ["0", "1", "2", "3"]


def test_a_guests_tasks_have_pmi_from_a_server_of_the_guest(site):
    script = (
        "echo cmd=init pmi_version=1 pmi_subversion=1 >&4; read answer <&4; echo $PMI_FD $answer;"
        "echo cmd=barrier_in >&4; read answer <&4; echo $answer; ls /proc/self/fd | wc -l;"
        "ps -o uid= -C penstock-exec | sort -u | wc -l"
    )
    done = site.penstock("run", "-n2", "-o", "pmi=simple", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    negotiated = "4 cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
    # The descriptors are the standard streams, the connection, and that of `ls` itself.
    for line in (negotiated, "cmd=barrier_out rc=0", "5"):
        assert lines.count(line) == 2, lines
    # The service is the owner's, the server the guest's.
    assert lines.count("2") >= 2, lines
    # A violation is reported by the server, as the guest.
    done = site.penstock("run", "-n2", "-o", "pmi=simple", "sh", "-c", "echo dance >&4; sleep 60")
    assert "a task has violated the PMI protocol" in done.stderr


def test_what_a_guest_names_is_opened_as_the_guest(site):
    mine, private = site.folder / "mine", site.folder / "private"
    mine.mkdir()
    os.chown(mine, site.uids[0], site.gids[0])
    private.mkdir(mode=0o700)
    out = mine / "out"
    done = site.penstock(
        "run", "--output", str(out), "--cwd", str(mine), "sh", "-c", "pwd; pwd >&2"
    )
    assert done.returncode == 0, done.stderr
    assert out.read_text() == f"{mine}\n{mine}\n"
    assert out.stat().st_uid == site.uids[0]
    done = site.penstock("run", "--output", str(private / "out"), "true")
    assert f"cannot write `{private}/out`: Permission denied" in done.stderr
    assert list(private.iterdir()) == []
    done = site.penstock("run", "--cwd", str(private), "true")
    assert f"cannot enter working directory `{private}`: Permission denied" in done.stderr
    done = site.penstock("run", "--input", str(private), "true")
    assert "cannot read" in done.stderr
    done = site.penstock("run", "--output", str(mine / "out2"), "nosuchprogram")
    assert done.returncode == 127
    assert (mine / "out2").read_text() == ""


def test_a_guest_writes_to_tasks_of_its_own(site, tmp_path):
    done = site.penstock("run", "sh", "-c", "cat; id -u", stdin="piped\n")
    assert (done.stdout, done.stderr) == (f"piped\n{site.uids[0]}\n", "")
    done = site.penstock("run", "--label-io", "id", "-u")
    assert done.stdout == f"0: {site.uids[0]}\n"


@pytest.fixture
def mine(site):
    """A directory of the first guest."""
    path = site.folder / "mine"
    path.mkdir()
    os.chown(path, site.uids[0], site.gids[0])
    return path


def test_labelled_lines_are_written_to_files_by_the_guest(start, guests, tmp_path):
    nodes = ["--nodes=1", "--cores=4", "--oversubscribe"]
    with make_site(start, guests, tmp_path, *nodes) as site:
        folder = site.folder / "mine"
        folder.mkdir()
        os.chown(folder, site.uids[0], site.gids[0])
        out, err = folder / "out", folder / "err"
        out.write_text("of an earlier job\n")
        os.chown(out, site.uids[0], site.gids[0])
        options = ["-n4", "--label-io", "--cwd", str(folder), "--output", "out"]
        script = "echo one; echo two; echo problem >&2; printf rest"
        done = site.penstock("run", *options, "--error", "err", "sh", "-c", script)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        lines = sorted(out.read_text().splitlines())
        assert lines == [f"{rank}: {text}" for rank in range(4) for text in ("one", "rest", "two")]
        problems = sorted(err.read_text().splitlines())
        assert problems == [f"{rank}: problem" for rank in range(4)]
        assert {path.stat().st_uid for path in (out, err)} == {site.uids[0]}
        # One file of each task, and standard error in the same file.
        options[-1] = "{{task.rank}}"
        done = site.penstock("run", *options, "sh", "-c", "echo out; echo err >&2")
        assert done.returncode == 0, done.stderr
        assert (folder / "3").read_text() == "3: out\n3: err\n"
        # Standard output is retained.
        done = site.penstock("run", "-n2", "-l", "--error", str(err), "sh", "-c", script)
        assert max(done.stdout.splitlines()) == "1: two"
        assert sorted(err.read_text().splitlines()) == ["0: problem", "1: problem"]


def test_a_terminals_output_is_written_to_a_file_by_the_guest(site, mine):
    script = "test -t 0 && test -t 1 && test -t 2 && id -u; read line; echo got $line"
    options = ["--pty", "--output", str(mine / "out")]
    done = site.penstock("run", *options, "sh", "-c", script, stdin="keys\n")
    assert done.returncode == 0, done.stderr
    text = (mine / "out").read_bytes().decode()
    assert f"{site.uids[0]}\r\n" in text
    assert "got keys\r\n" in text
    assert (mine / "out").stat().st_uid == site.uids[0]


@pytest.mark.parametrize("option", ["--label-io", "--pty"])
def test_a_file_that_the_guest_cannot_write_fails_the_job_before_it_starts(site, mine, option):
    private = site.folder / "private"
    private.mkdir(mode=0o700)
    ran = mine / "ran"
    done = site.penstock("run", option, "--output", str(private / "out"), "touch", str(ran))
    assert f"cannot write `{private}/out`: Permission denied" in done.stderr
    assert done.returncode != 0
    assert list(private.iterdir()) == []
    assert not ran.exists()
    # Standard error by itself, with labels.
    if option == "--label-io":
        error = ["--error", str(private / "err")]
        done = site.penstock("run", option, *error, "touch", str(ran))
        assert f"cannot write `{private}/err`: Permission denied" in done.stderr
        assert not ran.exists()


def test_a_file_that_cannot_be_written_closes_the_stream_of_the_guests_task(site, mine):
    for option in ("--label-io", "--pty"):
        # Every write to it fails.
        (mine / "full").unlink(missing_ok=True)
        (mine / "full").symlink_to("/dev/full")
        options = [option, "--output", str(mine / "full")]
        done = site.penstock("run", *options, "sh", "-c", "while echo text; do :; done")
        assert done.returncode != 0, option


def test_a_copy_of_output_does_not_keep_its_job(site, mine):
    os.mkfifo(mine / "fifo")
    os.chown(mine / "fifo", site.uids[0], site.gids[0])
    # It takes in one half of the output, and has no reader.
    reader = os.open(mine / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    script = "head -c 120000 /dev/zero"
    options = ["--label-io", "--unbuffered", "--output", str(mine / "fifo")]
    done = site.penstock("run", *options, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    left = [path.parent for path in Path("/proc").glob("[0-9]*/comm") if _is_copy(path)]
    assert left == []
    os.close(reader)


def _is_copy(path: Path) -> bool:
    try:
        return path.read_text() == "penstock-imp\n"
    except OSError:
        return False


def test_a_guests_job_without_an_environment_has_a_search_path(site):
    jobspec = from_command(["/usr/bin/env"], environment={}, cwd="/")
    del jobspec["attributes"]["system"]["environment"]
    job = site.submit(json.dumps(jobspec))
    assert site.penstock("wait", job).returncode == 0
    variables = site.penstock("logs", job).stdout.splitlines()
    assert "PATH=/usr/local/bin:/usr/bin:/bin" in variables


def test_retained_output_is_for_the_guest_and_the_owner(site, tmp_path):
    done = site.penstock("submit", "sh", "-c", "echo mine; echo problem >&2")
    job = done.stdout.strip()
    assert site.penstock("wait", job).returncode == 0
    for read in (site.penstock("logs", job), site.owner("logs", job)):
        assert (read.stdout, read.stderr) == ("mine\n", "problem\n")
    other = site.penstock("logs", job, guest=1)
    assert other.returncode != 0
    assert "mine" not in other.stdout
    files = [path for path in (tmp_path / "state" / "exec" / "output").rglob("*") if path.is_file()]
    assert files
    assert all((path.stat().st_uid, path.stat().st_mode & 0o77) == (0, 0) for path in files)


def test_a_guest_has_a_limit_of_stored_output(start, guests, tmp_path):
    text = "[penstock.exec]\nuser-output-limit = 100000\n"
    write = ("sh", "-c", "head -c 60000 /dev/zero; echo done >&2")
    above = "exec: the stored output of user "
    output = tmp_path / "state" / "exec" / "output"
    with make_site(start, guests, tmp_path, config_text=text) as site:
        for is_run in (True, True, False):
            job = site.penstock("submit", *write).stdout.strip()
            site.penstock("wait", job)
            row = json.loads(site.owner("info", "--json", job).stdout)
            assert (row.get("waitstatus") == 0) == is_run, row
            assert is_run or row["reason"].startswith(above + str(site.uids[0])), row
        assert site.penstock("run", "true", guest=1).returncode == 0
        assert site.owner("run", *write).returncode == 0
        marked = sorted(
            path.stat().st_gid for path in output.glob("*.stdout") if path.stat().st_size
        )
        assert marked == [0, *[site.uids[0]] * 2]
    # Another service counts the files.
    with make_site(start, guests, tmp_path, config_text=text) as site:
        assert above in site.penstock("run", *write).stderr
        site.owner("purge", "--force", "--num-limit=0")
        deadline = time.monotonic() + 60
        while any(output.glob("[0-9]*")):
            assert time.monotonic() < deadline, "purged output is removed"
            time.sleep(0.01)
        done = site.penstock("run", *write)
        assert done.returncode == 0, done.stderr


def test_a_guests_job_ends_when_all_its_jobs_have_written_too_much(start, guests, tmp_path):
    text = "[penstock.exec]\nuser-output-limit = 100000\n"
    with make_site(start, guests, tmp_path, config_text=text) as site:
        assert site.penstock("run", "head", "-c", "60000", "/dev/zero").returncode == 0
        writing = site.penstock("run", "sh", "-c", "head -c 60000 /dev/zero; sleep 1000")
        assert "the stored output of user" in writing.stderr


@pytest.fixture
def make_small_site(start, guests, tmp_path):
    """Makes a site whose output is on a disk of 8 MiB, of which 4 MB are left to the owner."""
    disk = tmp_path / "disk"
    options = ("--nodes=1", "--cores=4", "--oversubscribe")

    def make(limit=10 << 30):
        text = (
            f"[penstock.exec]\noutput-directory = '{disk / 'output'}'\n"
            f"output-reserve = 4000000\nuser-output-limit = {limit}\n"
        )
        return make_site(start, guests, tmp_path, *options, config_text=text)

    with small_disk(disk, "8m"):
        yield make


@pytest.fixture
def small_site(make_small_site):
    with make_small_site() as site:
        yield site


def test_ended_jobs_of_a_guest_leave_space_for_the_output_of_others(make_small_site):
    write = ("run", "head", "-c", "400000", "/dev/zero")
    above = "more than 1000000 (`penstock.exec.user-output-limit`)"
    with make_small_site(limit=1000000) as site:
        stored = 0
        while (done := site.penstock(*write)).returncode == 0:
            stored += 1
        assert above in done.stderr
        # Sizes are checked once a second, so one job may have ended above the limit.
        assert stored in (2, 3)
        assert site.penstock(*write, guest=1).returncode == 0
    # The sum holds for the next instance, too.
    with make_small_site(limit=1000000) as site:
        assert above in site.penstock(*write).stderr
        assert site.penstock(*write, guest=1).returncode == 0
        # It can purge its jobs: their output is removed, and counts no longer.
        assert site.penstock("purge", "--force", "--num-limit=0").returncode == 0
        while site.penstock(*write).returncode != 0:
            pass


def test_a_guests_job_starts_when_there_is_space_for_its_output(small_site, tmp_path):
    ballast = tmp_path / "disk" / "ballast"
    note = (
        "the job starts when there is space for its output: only the reserve of 4000000 bytes is "
        "free (`penstock.exec.output-reserve`)"
    )
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 6000000)
    job = small_site.penstock("submit", "echo", "hello").stdout.strip()
    with Client(small_site.uri, timeout=60) as client:
        events = (event for event in client.eventlog(parse(job), follow=True))
        raised = next(event for event in events if event["name"] == "exception")
        assert (raised["context"]["severity"], raised["context"]["note"]) == (3, note)
        assert client.stats("job-exec")["held_starts"] == 1
        # Output that is not stored needs no space here, and what is left is for the owner.
        assert small_site.penstock("run", "--output", "/dev/null", "true").returncode == 0
        assert small_site.owner("run", "echo", "elsewhere").stdout == "elsewhere\n"
        ballast.unlink()
        assert client.wait_row(parse(job))["success"]
        assert client.stats("job-exec")["held_starts"] == 0
        lines = [line["text"] for line in client.dmesg()]
    assert small_site.penstock("logs", job).stdout == "hello\n"
    assert sum(": jobs of guests are held" in line for line in lines) == 1
    assert sum("bytes are free for output: jobs of guests continue" in line for line in lines) == 1


def test_the_largest_writer_of_guests_is_ended_and_others_continue(small_site, tmp_path):
    quiet = "echo quiet; exec sleep 1000"
    greedy = "while :; do head -c 65536 /dev/zero || sleep 0.05; done 2>/dev/null"
    one = small_site.penstock("submit", "sh", "-c", quiet, guest=1).stdout.strip()
    owners = small_site.owner("submit", "sh", "-c", quiet).stdout.strip()
    other = small_site.penstock("submit", "sh", "-c", greedy).stdout.strip()
    assert small_site.owner("wait", other).returncode != 0
    row = json.loads(small_site.owner("info", "--json", other).stdout)
    assert row["reason"].startswith("exec: only the reserve of 4000000 bytes is free for output ")
    assert free_bytes(tmp_path / "disk") >= 4000000
    states = small_site.owner("jobs", "-A", "--no-header", "--format={id.f58} {state}").stdout
    assert set(states.splitlines()) == {f"{one} RUN", f"{owners} RUN"}
    small_site.owner("purge", "--force", "--num-limit=0")
    assert small_site.penstock("run", "true").returncode == 0


@pytest.mark.parametrize(("verb", "code"), [("run", 1), ("attach", 128 + signal.SIGTERM)])
def test_run_cancels_a_job_without_space_for_its_output(small_site, tmp_path, verb, code):
    with (tmp_path / "disk" / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 6000000)
    words = ("echo", "hello")
    if verb == "attach":
        words = (small_site.penstock("submit", *words).stdout.strip(),)
    with small_site.begin(verb, *words) as command, Client(small_site.uri, timeout=60) as client:
        while not (rows := list(client.job_rows())):
            pass
        events = client.eventlog(rows[0]["id"], follow=True)
        assert any(event["name"] == "exception" for event in events)
        status = Path(f"/proc/{command.pid}/status")
        while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) >> 14 & 1:
            pass
        command.terminate()
        assert command.wait(60) == code
        (row,) = client.job_rows()
        assert (row["state"] == job_state.INACTIVE) == (verb == "run")


def free_bytes(disk):
    space = os.statvfs(disk)
    return space.f_bavail * space.f_frsize


def begin_writer(site, script):
    """Starts a job in a directory that is shared with it. Returns the directory and the job."""
    shared = site.folder / "shared"
    shared.mkdir(exist_ok=True)
    shared.chmod(0o777)
    job = site.penstock("submit", "--cwd", str(shared), "sh", "-c", script).stdout.strip()
    with Client(site.uri, timeout=60) as client:
        events = client.eventlog(parse(job), follow=True)
        assert any(event["name"] == "start" for event in events)
    return shared, job


def until(name):
    """A command that ends when a file exists."""
    return f"until test -e {name}; do sleep 0.05; done"


def take_space(disk):
    """Makes a file that leaves the reserve; returns its path."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        taken = free_bytes(disk) - 4000000
        os.posix_fallocate(file.fileno(), 0, taken - taken % 4096)
    return ballast


def await_condition(holds, text):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, text
        time.sleep(0.01)


@pytest.fixture
def blocked_writer(small_site, tmp_path):
    """A running job whose output has no room: it has 65536 bytes in its pipe, and is writing more.

    Yields the site, the job, and the file that takes the space.
    """
    script = (
        f"{until('go')}; head -c 65536 /dev/zero; touch written; "
        "test -e end || exec head -c 300000 /dev/zero"
    )
    shared, job = begin_writer(small_site, script)
    ballast = take_space(tmp_path / "disk")

    def write(*, is_all):
        if is_all:
            (shared / "end").touch()
        (shared / "go").touch()
        await_condition((shared / "written").exists, "the pipe has room")

    return small_site, job, ballast, write


def test_a_writing_job_continues_when_there_is_space_for_its_output(blocked_writer, tmp_path):
    site, job, ballast, write = blocked_writer
    write(is_all=False)
    stored = tmp_path / "disk" / "output" / f"{parse(job)}.stdout"
    assert stored.stat().st_size == 0
    assert free_bytes(tmp_path / "disk") >= 4000000
    with Client(site.uri, timeout=60) as client:
        events = client.eventlog(parse(job), follow=True)
        raised = next(event["context"] for event in events if event["name"] == "exception")
    assert raised["severity"] == 3
    assert raised["note"].startswith("the job can write more when there is space for its output")
    ballast.unlink()
    assert site.penstock("wait", job).returncode == 0
    assert stored.stat().st_size == 365536


def test_output_that_was_held_does_not_end_its_job(small_site, tmp_path):
    """Of two writers, the other one has written more since there was room."""
    script = (
        f"{until('go')}; head -c 65536 /dev/zero; touch written; head -c 124000 /dev/zero; "
        f"{until('exit')}"
    )
    shared, job = begin_writer(small_site, script)
    _, other = begin_writer(small_site, f"{until('other')}; head -c 180000 /dev/zero; sleep 1000")
    ballast = take_space(tmp_path / "disk")
    (shared / "go").touch()
    await_condition((shared / "written").exists, "the pipe has room")
    with Client(small_site.uri, timeout=60) as client:
        events = client.eventlog(parse(job), follow=True)
        assert any(event["name"] == "exception" for event in events)
    # The reaper looks at the pipe before it starts another job.
    assert small_site.owner("run", "true").returncode == 0
    # There is room for both, and it is a shortage still.
    with ballast.open("r+b") as file:
        file.truncate(ballast.stat().st_size - 108 * 4096)
    stored = tmp_path / "disk" / "output" / f"{parse(job)}.stdout"
    await_condition(lambda: stored.stat().st_size == 189536, "there is room for it")
    (shared / "other").touch()
    assert small_site.penstock("wait", other).returncode != 0
    row = json.loads(small_site.owner("info", "--json", other).stdout)
    assert row["reason"].startswith("exec: only the reserve of 4000000 bytes is free for output ")
    (shared / "exit").touch()
    assert small_site.penstock("wait", job).returncode == 0


def test_output_without_room_is_dropped_at_the_end_of_its_job(blocked_writer, tmp_path):
    site, job, _, write = blocked_writer
    write(is_all=True)
    assert site.penstock("wait", job).returncode == 0
    with Client(site.uri, timeout=60) as client:
        events = list(client.eventlog(parse(job)))
    raised = [event["context"] for event in events if event["name"] == "exception"]
    # Before its end it may have got the exception that tells why it blocks.
    (note,) = (exception["note"] for exception in raised if exception["severity"] == 1)
    assert note == (
        "65536 bytes of output were dropped at the end of the job: only the reserve of 4000000 "
        "bytes is free for output (`penstock.exec.output-reserve`)"
    )
    assert free_bytes(tmp_path / "disk") >= 4000000


def test_a_job_whose_output_has_no_room_can_be_cancelled(blocked_writer, tmp_path):
    site, job, _, write = blocked_writer
    write(is_all=False)
    assert site.penstock("cancel", job).returncode == 0
    assert site.penstock("wait", job).returncode != 0
    assert free_bytes(tmp_path / "disk") >= 4000000


@contextmanager
def output_outside_of_job(site, *last_words):
    """A job, and a descriptor of its output that a process outside of it has until the block ends.

    The task runs until the function that is yielded is called.
    """
    shared = site.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    script = "echo $$ > pid.new; mv pid.new pid; until test -e go; do sleep 0.05; done; "
    words = ("sh", "-c", script + " ".join(last_words))
    job = site.penstock("submit", "--cwd", str(shared), *words).stdout.strip()
    deadline = time.monotonic() + 60
    while not (shared / "pid").exists():
        assert time.monotonic() < deadline, "the task runs"
        time.sleep(0.01)
    pid = (shared / "pid").read_text().strip()
    with Path(f"/proc/{pid}/fd/1").open("wb", buffering=0) as output:
        yield job, output, (shared / "go").touch


def test_retained_output_of_a_guest_ends_with_its_job(site):
    with output_outside_of_job(site, "echo", "end") as (job, output, end_task):
        end_task()
        site.penstock("wait", job)
        with pytest.raises(BrokenPipeError):
            output.write(b"later")
    assert site.penstock("logs", job).stdout == "end\n"


def test_a_writer_outside_of_a_job_does_not_delay_its_end(site):
    """The reaper reads what the pipe has, not what is written meanwhile."""
    with output_outside_of_job(site) as (job, output, end_task):
        # Each ends when nothing reads the pipe any longer.
        writers = [
            subprocess.Popen(["sh", "-c", "exec cat /dev/zero 2>/dev/null"], stdout=output)
            for _ in range(4)
        ]
        end_task()
    assert site.penstock("wait", job).returncode == 0
    assert {writer.wait(60) for writer in writers} <= {-signal.SIGPIPE, 1}


def test_a_guests_task_can_open_its_output_again(site):
    done = site.penstock("run", "sh", "-c", "echo out > /dev/stdout; echo errors > /dev/stderr")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "errors\n", 0)


def test_a_job_has_a_directory_of_its_own_until_its_end(site):
    script = "cd $FLUX_JOB_TMPDIR && mkdir -p a/b && ln -s /etc a/etc && stat -c '%n %U %a' $PWD"
    done = site.penstock("run", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    path, user, mode = done.stdout.split()
    assert (user, mode) == (pwd.getpwuid(site.uids[0]).pw_name, "700")
    jobs = Path(path).parent
    assert jobs.is_relative_to("/run/penstock")
    assert jobs.stat().st_mode & 0o777 == 0o711
    deadline = time.monotonic() + 60
    while Path(path).exists():
        assert time.monotonic() < deadline, "the directory is removed after the job"
        time.sleep(0.01)
    assert Path("/etc/passwd").exists()


def test_the_configuration_names_the_place_of_the_directories_of_guests_jobs(
    start, guests, tmp_path
):
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        Path(folder).chmod(0o755)
        named = Path(folder) / "named"
        text = f"[penstock.exec]\njob-directory = '{named}'\n"
        with make_site(start, guests, tmp_path, config_text=text) as site:
            script = "cd $PENSTOCK_JOB_TMPDIR && echo text > file && stat -c '%U %a %n' $PWD"
            done = site.penstock("run", "sh", "-c", script)
            assert done.returncode == 0, done.stderr
            user, mode, path = done.stdout.split()
            assert (user, mode) == (pwd.getpwuid(site.uids[0]).pw_name, "700")
            place = Path(path).parent
            assert (place.parents[1], place.name) == (named, "jobs")
            listing = site.penstock("run", "ls", str(place), guest=1)
            assert "Permission denied" in listing.stderr


def with_files(files: dict[str, object], *command: str) -> str:
    """The jobspec of a job with files (RFC 37)."""
    jobspec = from_command(list(command), cwd="/")
    jobspec["attributes"]["system"]["files"] = files
    return json.dumps(jobspec)


def test_files_of_a_guests_job_have_its_user_and_group_and_no_privilege(site):
    """A set-group-ID file of root's group would make the guest a member of it."""
    program = {"encoding": "utf-8", "data": "#!/bin/sh\n"}
    files = {
        "a/b/program": {"mode": 0o107777, **program},
        "program": {"mode": 0o102755, **program},
        "directory": {"mode": 0o047777},
        "link": {"mode": 0o120777, "data": "program"},
    }
    script = "find $PENSTOCK_JOB_TMPDIR -printf '%P,%U,%G,%m\n'"
    job = site.submit(with_files(files, "sh", "-c", script))
    assert site.penstock("wait", job).returncode == 0
    expected = {
        "": "700",
        "a": "700",
        "a/b": "700",
        "a/b/program": "777",
        "program": "755",
        "directory": "777",
        "link": "777",
    }
    found = sorted(site.penstock("logs", job).stdout.splitlines())
    user = f"{site.uids[0]},{site.gids[0]}"
    assert found == sorted(f"{path},{user},{mode}" for path, mode in expected.items())


def test_a_user_without_an_account_has_no_jobs_and_disturbs_none(site):
    name = f"pnstk{os.getpid()}c"
    subprocess.run(["useradd", "--no-create-home", "--user-group", name], check=True)
    site.uids.append(pwd.getpwnam(name).pw_uid)
    subprocess.run(["userdel", name], check=True)
    done = site.penstock("run", "true", guest=2)
    assert done.returncode == 1
    assert f"cannot find the account of user {site.uids[2]}: there is none" in done.stderr
    assert site.penstock("run", "true").returncode == 0


def test_a_job_whose_directory_cannot_be_made_does_not_start(site):
    done = site.penstock("run", "sh", "-c", "echo $PENSTOCK_JOB_TMPDIR")
    jobs = Path(done.stdout.strip()).parent
    away = jobs.with_name("away")
    jobs.rename(away)
    jobs.write_text("")
    done = site.penstock("run", "echo", "started")
    jobs.unlink()
    away.rename(jobs)
    assert done.returncode == 1
    assert "cannot make the job's directory: Not a directory" in done.stderr
    assert done.stdout == ""
    assert site.penstock("run", "true").returncode == 0


def test_the_pmix_server_of_a_guests_job_runs_as_the_guest(start, guests, tmp_path):
    server_program()
    nodes = ["--nodes=4", "--cores=4", "--oversubscribe"]
    with make_site(start, guests, tmp_path, *nodes) as site:
        program = compile_program(EXAMPLE, site.folder)
        server = "ps -o user:32= -C penstock-pmix; stat -c '%U %a' $FLUX_JOB_TMPDIR/pmix; "
        # Servers of other tests may run at the same time.
        server += "xargs -0n1 < /proc/$(pgrep -x -u $(id -u) penstock-pmix)/environ | sort"
        script = f"test $PMIX_RANK != 0 || {{ {server}; }}; exec {program} new:nodes=2,id=X"
        done = site.penstock("run", "-N1", "-n3", "-t10", "--pmix", "sh", "-c", script)
        assert done.returncode == 0, done.stderr
        lines = codes(done.stdout.splitlines())
        assert guests[0] in lines
        assert f"{guests[0]} 700" in lines
        # The server's environment has nothing of root's.
        assert f"HOME={pwd.getpwuid(site.uids[0]).pw_dir}" in lines
        assert not any(line.startswith("VIRTUAL_ENV=") for line in lines)
        assert "rank 0: new: status 0" in lines
        assert "rank 0: new: pmix.alloc.nlist = node[1-2]" in lines
        assert "rank 1: event: penstock.alloc.status = 0" in lines
        # The allocation is the guest's.
        listed = site.owner("jobs", "-Ano", "{id},{username},{state}").stdout.split()
        (allocation,) = [line.split(",") for line in listed]
        assert allocation[1:] == [guests[0], "RUN"]
        assert site.penstock("cancel", allocation[0], guest=1).returncode != 0
        assert site.penstock("cancel", allocation[0]).returncode == 0
        assert list((tmp_path / "state" / "exec" / "pmix").iterdir()) == []


def test_a_guest_cannot_signal_root_or_other_guests(site):
    done = site.penstock("run", "sh", "-c", "kill -9 $PPID")
    assert done.returncode != 0
    assert site.penstock("run", "true").returncode == 0, "the reaper is still there"
    (job,) = site.penstock("submit", "sleep", "1000", guest=1).stdout.split()
    assert site.penstock("cancel", job).returncode != 0
    assert site.penstock("cancel", job, guest=1).returncode == 0
    assert site.penstock("wait", job, guest=1).returncode != 0


def test_users_below_the_least_uid_have_no_jobs(start, guests, tmp_path):
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    folder.chmod(0o755)
    config = tmp_path / "config.toml"
    text = "[access]\nallow-guest-user = true\n[penstock.exec]\nmin-guest-uid = 4000000000\n"
    config.write_text(text)
    with start("--config", str(config), "--socket", str(folder / "socket")):
        site = Site(folder, guests)
        done = site.penstock("run", "true")
        assert "expected a user id of at least 4000000000" in done.stderr
    shutil.rmtree(folder)


def test_an_instance_of_another_user_than_root_runs_the_jobs_of_its_owner_alone(guests):
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    site = Site(folder, guests)
    site.uri = f"local://{site.uids[0]}@{folder}/socket"
    config = folder / "config.toml"
    config.write_text("[access]\nallow-guest-user = true\n")
    folder.chmod(0o755)
    os.chown(folder, site.uids[0], site.gids[0])
    owner = ["setpriv", f"--reuid={site.uids[0]}", f"--regid={site.gids[0]}", "--clear-groups"]
    command = [*owner, sys.executable, "-m", "penstock"]
    if subprocess.run([*command, "--version"], cwd="/", check=False).returncode != 0:
        pytest.skip("other users cannot execute this Python")
    command += ["start", "--config", str(config), "--state", str(folder / "state")]
    # The instance ends with its command, at the end of the input.
    command += ["--socket", str(folder / "socket"), "--", "sh", "-c", "echo accepting; cat"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd="/", stdin=pipe, stdout=pipe) as instance:
        assert instance.stdout.readline() == b"accepting\n"
        done = site.penstock("run", "id", "-u")
        assert (done.returncode, done.stdout) == (0, f"{site.uids[0]}\n")
        done = site.penstock("run", "id", "-u", guest=1)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "an instance without guests: only the instance owner may do this" in done.stderr
    shutil.rmtree(folder)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_guests_job_of_a_simulation_does_not_run_as_the_owner(start, guests, tmp_path, allowed):
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    folder.chmod(0o755)
    config = tmp_path / "config.toml"
    config.write_text("[access]\nallow-guest-user = true\n")
    options = ["--config", str(config), "--socket", str(folder / "socket")]
    site = Site(folder, guests)
    with start(*options, "--exec=sim", "--sched=none"):
        done = site.penstock("submit", "id", "-u")
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
    if not allowed:
        config.write_text("")
    with start(*options, "--any-state"):
        site.owner("wait", job)
        output = site.owner("logs", job).stdout
    assert output == f"{site.uids[0]}\n"
    shutil.rmtree(folder)


def test_a_guest_lists_its_own_jobs_unless_all_are_visible(site, tmp_path):
    mine, other = (
        site.penstock("submit", "sleep", "1000", guest=guest).stdout.strip() for guest in (0, 1)
    )
    listing = ("jobs", "-A", "-n", "-o", "{id}")
    assert site.penstock(*listing).stdout.split() == [mine]
    awaited = site.penstock("wait", other)
    assert awaited.returncode == 1
    assert f"job {other} belongs to another user" in awaited.stderr
    config = tmp_path / "config.toml"
    config.write_text('[access]\nallow-guest-user = true\njob-visibility = "all"\n')
    assert site.owner("config", "reload", str(config)).returncode == 0
    assert set(site.penstock(*listing).stdout.split()) == {mine, other}
    # The rest is private all the same.
    for words in (["eventlog"], ["info", "jobspec"], ["logs"], ["attach", "--read-only"]):
        verb, *what = words
        read = site.penstock(verb, other, *what)
        assert (read.returncode, read.stdout) == (1, ""), words
        assert "belongs to another user" in read.stderr, words
    assert site.owner("cancel", mine, other).returncode == 0
