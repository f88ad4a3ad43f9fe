"""Directories, sockets and modules that another user has prepared are not used."""

from __future__ import annotations

import grp
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from penstock import aclient
from penstock.client import Client, connect, server_identity
from penstock.errors import AddressError, NoInstanceError, StartError
from penstock.instance import directories
from penstock.instance.directories import check_private, check_trusted
from penstock.jobspec import from_command
from penstock.paths import memo_uri

# Without `-m`, so that the command itself imports nothing from the working directory.
SAFE = [sys.executable, "-P", "-m", "penstock"]
OTHER, VICTIM = 54321, 54322
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as other users")


@pytest.fixture
def shared():
    """A directory with the sticky bit, which every user can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def start_with(state: Path, sock: Path, *options: str) -> subprocess.CompletedProcess:
    command = [*SAFE, "start", "--nodes", "1", "--state", str(state), "--socket", str(sock)]
    return subprocess.run(
        [*command, *options, "--", "true"], capture_output=True, text=True, timeout=60, check=False
    )


# --- directories


@needs_root
def test_an_instance_does_not_start_on_another_users_state(shared):
    state = shared / "state"
    state.mkdir(mode=0o700)
    os.chown(state, OTHER, OTHER)
    done = start_with(state, shared / "socket")
    assert done.returncode == 1
    assert f"directory `{state}` cannot be trusted: it belongs to user {OTHER}" in done.stderr
    assert "hint: give another one with `--state DIR`" in done.stderr
    assert list(state.iterdir()) == []


@needs_root
def test_an_instance_does_not_listen_in_another_users_directory(shared):
    squatted = shared / "penstock-0"
    squatted.mkdir(mode=0o777)
    os.chown(squatted, OTHER, OTHER)
    done = start_with(shared / "state", squatted / "default.sock")
    assert done.returncode == 1
    assert f"directory `{squatted}` cannot be trusted" in done.stderr
    assert list(squatted.iterdir()) == []


def test_an_instance_starts_in_no_directory_that_others_can_write_to(tmp_path):
    for name in ("state", "sockets"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        good = tmp_path / f"good-{name}"
        state, sockets = (good, tmp_path / name) if name == "sockets" else (tmp_path / name, good)
        done = start_with(state, sockets / "socket")
        assert done.returncode == 1
        assert "cannot be trusted: other users can write to it" in done.stderr


def test_the_files_of_an_instance_are_the_owners_alone_and_its_command_keeps_the_umask(tmp_path):
    state = tmp_path / "a" / "state"
    command = [*SAFE, "start", "--nodes", "1", "--state", str(state)]
    command += ["--socket", str(tmp_path / "run" / "socket"), "--", "sh", "-c", "umask"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, umask=0o022
    )
    assert done.stdout == "0022\n"
    for path in [tmp_path / "a", tmp_path / "run", state, *state.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_files_in_a_state_directory_that_others_can_read_are_the_owners_alone(start, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o755)
    with start("--nodes=1", "--cores=1", "--oversubscribe") as instance:
        assert instance.state == state
        job = instance.lines("submit", "echo", "secret")[0]
        instance.lines("wait", job)
        assert instance.lines("logs", job) == ["secret"]
        found = list(state.iterdir())
        assert {"jobs.sqlite", "jobs.sqlite-wal", "exec"} <= {path.name for path in found}
        # Files below a directory that is the owner's alone are, too.
        assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_a_directory_in_a_sticky_one_is_trusted_by_its_own_owner_only(shared):
    uid = os.geteuid()
    own = shared / "own"
    own.mkdir(mode=0o700)
    check_private(own, uid, "--state DIR")
    check_trusted(shared, uid, "--socket PATH")
    with pytest.raises(StartError, match="belongs to user"):
        check_private(own, uid + 1, "--state DIR")
    with pytest.raises(StartError, match="other users can write"):
        check_private(shared, uid, "--state DIR")
    (own / "file").touch()
    with pytest.raises(StartError, match="not a directory"):
        check_trusted(own / "file", uid, "--state DIR")


def test_a_parent_that_others_can_write_to_is_not_trusted(tmp_path):
    parent = tmp_path / "parent"
    (parent / "state").mkdir(parents=True)
    parent.chmod(0o777)
    with pytest.raises(StartError, match=rf"`{parent}` cannot be trusted: other users can write"):
        check_private(parent / "state", os.geteuid(), "--state DIR")


@pytest.mark.parametrize(
    ("group", "members", "primary", "trusted"),
    [
        ("alice", [], ["alice"], True),
        ("alice", ["alice"], ["alice"], True),
        ("alice", ["bob"], ["alice"], False),
        ("alice", [], ["alice", "bob"], False),
        ("alice", ["removed"], ["alice"], False),
        # A directory service may not list those whose primary group it is.
        ("users", [], ["alice"], False),
        ("bob", [], [], False),
    ],
)
def test_a_parent_may_be_of_a_group_without_other_members(
    tmp_path, monkeypatch, group, members, primary, trusted
):
    uid, gid = os.geteuid(), 4711
    uids = {"alice": uid, "bob": uid + 1}
    parent = tmp_path / "parent"
    (parent / "state").mkdir(parents=True, mode=0o700)
    parent.chmod(0o775)
    users = {
        name: pwd.struct_passwd((name, "x", number, gid if name in primary else 1, "", "/", "/"))
        for name, number in uids.items()
    }
    named = grp.struct_group((group, "x", gid, members))
    monkeypatch.setattr(directories.grp, "getgrgid", {gid: named}.__getitem__)
    monkeypatch.setattr(directories.pwd, "getpwnam", users.__getitem__)
    monkeypatch.setattr(directories.pwd, "getpwall", lambda: list(users.values()))
    fstat, known = os.fstat, parent.stat()

    def with_group(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        if not os.path.samestat(found, known):
            return found
        status = list(found)
        status[stat.ST_GID] = gid
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", with_group)
    if trusted:
        check_private(parent / "state", uid, "--state DIR")
    else:
        with pytest.raises(StartError, match=f"`{parent}` cannot be trusted: group {gid} can"):
            check_private(parent / "state", uid, "--state DIR")


def test_own_symbolic_links_are_followed_and_checked(tmp_path):
    uid = os.geteuid()
    (tmp_path / "real" / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "absolute").symlink_to(tmp_path / "link" / ".." / "real")
    check_private(tmp_path / "link" / "state", uid, "--state DIR")
    check_private(tmp_path / "absolute" / "state", uid, "--state DIR")
    (tmp_path / "real").chmod(0o777)
    with pytest.raises(StartError, match="other users can write"):
        check_private(tmp_path / "link" / "state", uid, "--state DIR")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StartError, match="too many symbolic links"):
        check_trusted(tmp_path / "loop", uid, "--state DIR")


@needs_root
def test_a_symbolic_link_of_another_user_is_not_followed(shared):
    (shared / "real").mkdir(mode=0o700)
    link = shared / "link"
    link.symlink_to("real")
    os.lchown(link, OTHER, OTHER)
    with pytest.raises(StartError, match=f"it is a symbolic link of user {OTHER}"):
        check_private(link, 0, "--state DIR")


# --- servers


def serve_as(uid: int, path: Path, write: int) -> None:
    """Greets clients as another user; writes what they send to a pipe, and a dot at their end."""
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o777)
    listener.listen()
    os.write(write, b"!")
    while True:
        accepted, _ = listener.accept()
        with accepted, suppress(OSError):
            accepted.sendall(b"\0")
            while data := accepted.recv(4096):
                os.write(write, data)
        os.write(write, b".")


@contextmanager
def server_of(uid: int, path: Path):
    """A server that another user runs; it yields a function that returns all that it was sent."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            serve_as(uid, path, write)
        finally:
            os._exit(1)
    try:
        assert os.read(read, 1) == b"!"
        yield lambda: os.read(read, 4096)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)
        path.unlink()


@needs_root
def test_a_client_sends_nothing_to_another_users_server(shared):
    path = shared / "socket"
    with server_of(OTHER, path) as received:
        uri = f"local://{path}"
        for _ in range(2):
            with pytest.raises(NoInstanceError) as caught:
                Client(uri)
            assert f"it runs as user {OTHER}" in str(caught.value)
            assert f"local://{OTHER}@/PATH" in str(caught.value)
            # Only the end of the connection.
            assert received() == b"."

        async def connect_by_trio() -> None:
            async with aclient.connect(uri):
                pass

        with pytest.raises(NoInstanceError, match=f"it runs as user {OTHER}"):
            trio.run(connect_by_trio)
        assert received() == b"."


@needs_root
def test_a_command_gives_its_environment_to_no_other_users_server(shared):
    path = shared / "socket"
    with server_of(OTHER, path) as received:
        done = subprocess.run(
            [*SAFE, "submit", "true"],
            env={**os.environ, "PENSTOCK_URI": f"local://{path}", "TOKEN": "secret"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 69
        assert "is not trusted: it runs as user" in done.stderr
        assert received() == b"."


@needs_root
@pytest.mark.parametrize("is_simulated", [False, True], ids=["real", "simulated"])
def test_an_execution_service_takes_no_job_from_another_users_server(shared, is_simulated):
    path = shared / "socket"
    options = ["--simulate"] if is_simulated else ["--directory", str(shared / "exec")]

    def start(uri: str) -> subprocess.Popen:
        command = [*SAFE, "exec", "--uri", uri, *options]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    with server_of(OTHER, path) as received:
        with start(f"local://{path}") as service:
            _, said = service.communicate(timeout=60)
        assert service.returncode == 69
        assert f"the server at `local://{path}` is not trusted: it runs as user {OTHER}" in said
        assert f"local://{OTHER}@/PATH" in said
        assert received() == b"."
        with start(f"local://nosuchuser@{path}") as service:
            _, said = service.communicate(timeout=60)
        assert "unknown user `nosuchuser`" in said
        with start(f"local://{OTHER}@{path}") as service:
            sent = received()
            service.kill()
        assert b"service.add" in sent


@needs_root
@pytest.mark.parametrize("name", [str(OTHER), "daemon"])
def test_the_address_may_name_the_user_of_the_server(shared, name):
    path = shared / "socket"
    uid = OTHER if name.isdigit() else server_identity._user_number(name, "test")
    with server_of(uid, path):
        connect(f"local://{name}@{path}").close()
        with pytest.raises(NoInstanceError, match="is not trusted"):
            connect(f"local://{VICTIM}@{path}")
        with pytest.raises(AddressError, match="unknown user `nosuchuser`"):
            connect(f"local://nosuchuser@{path}")


@needs_root
def test_the_site_may_name_the_users_of_servers(shared, tmp_path, monkeypatch):
    path, file = shared / "socket", tmp_path / "client.toml"
    monkeypatch.setattr(server_identity, "CLIENT_CONFIG", file)
    with server_of(OTHER, path):
        with pytest.raises(NoInstanceError, match="is not trusted"):
            connect(f"local://{path}")
        file.write_text(f'server-users = ["daemon", {OTHER}]\n')
        connect(f"local://{path}").close()
        # A user in the address is the only one that is meant.
        with pytest.raises(NoInstanceError, match="is not trusted"):
            connect(f"local://{VICTIM}@{path}")
        for text, problem in [
            ("server-users = 5", "expected an array of users"),
            ("servers = []", "unknown key `servers`"),
            ("[", "client.toml"),
        ]:
            file.write_text(text)
            with pytest.raises(AddressError, match=problem):
                connect(f"local://{path}")


@pytest.mark.parametrize("module", ["connection", "trio_connection"])
def test_a_server_that_never_greets_is_given_up(tmp_path, monkeypatch, module):
    monkeypatch.setattr(f"penstock.client.{module}.GREETING_TIMEOUT_S", 0.1)
    path = tmp_path / "socket"

    async def connect_by_trio() -> None:
        async with aclient.connect(f"local://{path}"):
            pass

    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(str(path))
        listener.listen()
        by_thread = partial(Client, f"local://{path}")
        connect = by_thread if module == "connection" else partial(trio.run, connect_by_trio)
        with pytest.raises(NoInstanceError, match="has not greeted within"):
            connect()


@pytest.mark.parametrize(
    ("memo", "expected"),
    [
        ({"uri": f"local://{OTHER}@/run/socket"}, "local:///run/socket"),
        ({"uri": "local://name@/run/a@/socket"}, "local:///run/a@/socket"),
        ({"uri": "local:///run/a@/socket"}, "local:///run/a@/socket"),
        ({"uri": "/run/socket"}, "/run/socket"),
        ({"uri": "ssh://name@host/run/socket"}, "ssh://name@host/run/socket"),
        ({"uri": 1}, None),
        ({"uri": "local:///run/socket\nFAKE ROW"}, None),
        ({}, None),
    ],
)
def test_a_memo_names_no_user_whose_server_is_trusted(memo, expected):
    assert memo_uri(memo) == expected


@needs_root
def test_commands_do_not_trust_the_user_of_a_guests_memo(start, shared):
    config = shared / "config.toml"
    config.write_text("[access]\nallow-guest-user = true\n")
    evil = shared / "socket"
    options = ("--nodes=1", "--exec=sim", "--config", str(config), "--socket", str(shared / "own"))
    with start(*options) as instance, server_of(OTHER, evil) as received:
        instance.uri = f"local://{shared}/own"
        os.seteuid(OTHER)
        try:
            guest = Client(instance.uri)
        finally:
            os.seteuid(0)
        with guest:
            job = guest.submit(from_command(["true"], environment={}, cwd="/", duration=3600.0))
            with guest.eventlog(job, follow=True) as events:
                assert any(event["name"] == "start" for event in events)
            guest.memo(job, {"uri": f"local://{OTHER}@{evil}"})
        assert instance.lines("uri", str(job)) == [f"local://{evil}"]
        for words in (["uri", f"{job}/1"], ["top", "--once", str(job)], ["shutdown", str(job)]):
            done = instance.penstock(*words)
            assert done.returncode == 69, words
            assert f"it runs as user {OTHER}" in done.stderr
            # Only the end of the connection.
            assert received() == b"."


@needs_root
def test_a_user_trusts_the_server_of_root(shared):
    path = shared / "socket"
    with server_of(0, path):
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(VICTIM, VICTIM, VICTIM)
                connect(f"local://{path}").close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0


# --- modules


@pytest.fixture
def trap(tmp_path):
    """A working directory with a package `penstock`, which leaves a file when it is executed."""
    package = tmp_path / "cwd" / "penstock"
    package.mkdir(parents=True)
    executed = tmp_path / "executed"
    text = f"open({str(executed)!r}, 'w').close()\nraise SystemExit(9)\n"
    for name in ("__init__", "__main__"):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "cwd" / "trio.py").write_text(text)
    return tmp_path / "cwd", executed


def test_a_scheduler_process_imports_nothing_from_the_working_directory(trap, tmp_path):
    cwd, executed = trap
    state = tmp_path / "state"
    command = [*SAFE, "start", "--nodes", "1", "--sched", "process", "--state", str(state)]
    command += ["--socket", str(state / "socket"), "--", *SAFE, "run", "true"]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert not executed.exists()
    assert done.returncode == 0, done.stderr


def test_a_restarted_daemon_imports_nothing_from_the_working_directory(trap, tmp_path):
    cwd, executed = trap
    uri = f"local://{tmp_path}/state/socket"
    environment = {**os.environ, "PENSTOCK_URI": uri}
    program = Path(sys.executable).with_name("penstock")
    command = [str(program), "start", "--nodes", "1", "--state", str(tmp_path / "state")]

    def penstock(*args: str) -> int:
        done = subprocess.run(
            [*SAFE, *args], cwd=cwd, env=environment, capture_output=True, timeout=120, check=False
        )
        return done.returncode

    # The socket's directory is trusted before anything listens there.
    command += ["--socket", uri.removeprefix("local://")]
    with subprocess.Popen(command, cwd=cwd, env=environment) as daemon:
        try:
            while penstock("ping", "broker"):
                assert daemon.poll() is None
            for _ in range(2):
                assert penstock("restart") == 0
            options = Path(f"/proc/{daemon.pid}/cmdline").read_bytes().split(b"\0")
            assert options.count(b"-P") == 1
            assert penstock("stop") == 0
        finally:
            daemon.kill()
    assert not executed.exists()
