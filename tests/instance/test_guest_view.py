"""The view of guests: no process, path, setting or job of the owner, whatever they request."""

from __future__ import annotations

import errno
import inspect
import json
import os
import shutil
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import __version__
from penstock._core import Batch, Decoder, Message, service_roles, topic
from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Iterator

GUEST = 54321
SECRETS = ("secret-name", "secret-value", "/secret-cwd")
OWNER_ATTRIBUTES = ("broker.pid", "local-uri", "statedir")

if os.geteuid() != 0:
    pytest.skip("only root can connect as other users", allow_module_level=True)


@contextmanager
def connected(path: Path, uid: int) -> Iterator[socket.socket]:
    """A connection of a user."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        os.seteuid(uid)
        try:
            connection.connect(str(path))
        finally:
            os.seteuid(0)
        assert connection.recv(1) == b"\0"
        yield connection


@pytest.fixture
def site(start, tmp_path):
    """An instance with a job of the owner's that has secrets, and the address for guests."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-guest-view-"))
    folder.chmod(0o755)
    config = tmp_path / "settings.toml"
    config.write_text(
        "[access]\nallow-guest-user = true\n"
        '[job-manager.prolog]\ncommand = ["/bin/true"]\n'
        '[queues.batch]\n[policy.jobspec.defaults.system]\nqueue = "batch"\n'
    )
    words = ("--config", str(config), "--socket", str(folder / "socket"))
    with start(*words) as instance:
        instance.socket = folder / "socket"
        instance.uri = f"local://{folder}/socket"
        with Client(instance.uri) as owner:
            spec = from_command(["sleep", "1000"], environment={"A": "secret-value"}, cwd="/")
            spec["attributes"]["system"]["job"] = {"name": "secret-name"}
            instance.job = owner.submit(spec)
            hidden = from_command(["true"], environment={"A": "secret-value"}, cwd="/secret-cwd")
            instance.held = owner.submit(hidden, urgency=0)
            (row,) = [each for each in owner.services() if each["name"] == "job-exec"]
            instance.pids = [instance.process.pid, row["pid"]]
            yield instance
            owner.cancel([instance.job])
            owner.wait_rows([instance.job])
    shutil.rmtree(folder)


def topics(names: list[str], jobs: list[int]) -> list[str]:
    """Every method that the instance or one of its services may have, for each of these jobs."""
    groups = [group for _, group in inspect.getmembers(topic, inspect.isclass)]
    known = {value for group in groups for value in vars(group).values() if isinstance(value, str)}
    known = {value for value in known if "." in value and not value.startswith("penstock.")}
    known |= {method for method, _ in service_roles()}
    known |= {method.replace("ID", str(job)) for method in known for job in jobs}
    common = ("ping", "stats-get", "list", "info", "debug", "config-reload", "rusage")
    known |= {f"{name}.{method}" for name in names for method in common}
    return sorted(known)


def payloads(instance, method: str, attributes: list[str]) -> list[dict]:
    """Payloads that may be understood."""
    every = [
        {},
        {"id": instance.job},
        {"id": instance.held, "keys": ["jobspec", "R", "eventlog"]},
        {"ids": [instance.job, instance.held]},
        {"id": instance.job, "path": "eventlog", "streams": "o", "follow": False},
        {"key": "job", "path": str(instance.state), "xml": False, "force": True, "job": 1},
        {"stream": "stdin", "rank": "0", "data": "", "eof": True},
    ]
    if method == "attr.get":
        every += [{"name": name} for name in attributes]
    return every


def test_no_response_to_a_guest_names_a_process_or_a_path_or_a_job_of_the_owner(site):
    with Client(site.uri) as owner:
        names = [row["name"] for row in owner.services()]
        attributes = owner.rpc("attr.list")["names"]
    decoder = Decoder()
    found: list[tuple[str, dict, str]] = []
    sent: dict[int, tuple[str, dict]] = {}
    with connected(site.socket, GUEST) as connection:
        # The services respond in the order of the requests, to the pings last.
        requests = []
        for method in topics(names, [site.job, site.held]):
            for payload in payloads(site, method, attributes):
                for flags in (0, 16):
                    tag = len(sent) + 1
                    sent[tag] = (method, payload)
                    requests.append(Message.request(method, payload, matchtag=tag, flags=flags))
        pings = {}
        for name in ("broker", "job-exec", "sched", "job-manager", "resource"):
            tag = len(sent) + len(pings) + 1
            pings[tag] = name
            requests.append(Message.request(f"{name}.ping", {}, matchtag=tag))
        pending = set(pings)
        data = Batch(requests).encode()
        for begin in range(0, len(data), 1 << 15):
            connection.sendall(data[begin : begin + (1 << 15)])
        while pending:
            received = connection.recv(1 << 20)
            assert received, "the connection was closed"
            for message in decoder.feed(received):
                pending.discard(message.matchtag)
                if message.matchtag in sent:
                    text = (message.payload or b"").decode(errors="replace")
                    found.append((*sent[message.matchtag], text))
    paths = [str(site.state), str(site.state.parent), str(Path.home()), "/bin/true"]
    forbidden = [*SECRETS, *paths, str(site.uri).removeprefix("local://")]
    told = [
        (method, payload, text)
        for method, payload, text in found
        if any(word in text for word in forbidden) or _numbers(text) & set(site.pids)
    ]
    # A ping returns what the guest has sent.
    told = [row for row in told if not row[0].endswith(".ping")]
    assert not told, told[:3]
    assert len({method for method, _, _ in found}) > 100


def _numbers(text: str) -> set[int]:
    """The whole numbers that are values in a document."""
    found: set[int] = set()

    def visit(value: object) -> None:
        if isinstance(value, dict):
            for each in value.values():
                visit(each)
        elif isinstance(value, list):
            for each in value:
                visit(each)
        elif isinstance(value, int):
            found.add(value)
        elif isinstance(value, str):
            found.update(int(word) for word in value.split() if word.isdecimal())

    try:
        visit(json.loads(text))
    except ValueError:
        visit(text)
    return found


def test_a_guest_reads_of_the_configuration_only_what_its_jobs_depend_on(site):
    with Client(site.uri) as owner:
        document = owner.config()
    os.seteuid(GUEST)
    try:
        guest = Client(site.uri)
    finally:
        os.seteuid(0)
    with guest:
        assert guest.config() == {key: document[key] for key in ("policy", "queues")}
        assert all("pid" not in row for row in guest.services())
        assert not set(guest.rpc("attr.list")["names"]) & set(OWNER_ATTRIBUTES)
        for name in OWNER_ATTRIBUTES:
            with pytest.raises(RpcError, match="only the instance owner may read") as caught:
                guest.rpc("attr.get", {"name": name})
            assert caught.value.errno == errno.EPERM
        assert guest.rpc("attr.get", {"name": "size"})["value"] == "1"


def test_statistics_are_for_everyone_unless_the_roles_tell_otherwise(site):
    owners = {name for name, role in service_roles() if role == "owner"}
    found = {}
    with Client(site.uri) as owner:
        names = [row["name"] for row in owner.services()]
    decoder = Decoder()
    with connected(site.socket, GUEST) as connection:
        methods = [f"{name}.{topic.STATS_GET}" for name in names]
        requests = [
            Message.request(method, {}, matchtag=tag) for tag, method in enumerate(methods, 1)
        ]
        connection.sendall(Batch(requests).encode())
        while len(found) < len(methods):
            received = connection.recv(1 << 16)
            assert received, "the connection was closed"
            found |= {message.topic: message.errnum for message in decoder.feed(received)}
    assert {"sched.stats-get", "feasibility.stats-get", "job-exec.stats-get"} <= owners
    rejected = {name for name, errnum in found.items() if errnum == errno.EPERM}
    assert rejected == owners.intersection(methods)


def test_statistics_for_guests_are_counts_and_states(site):
    with Client(site.uri) as owner:
        names = [row["name"] for row in owner.services()]
        states = set(owner.stats("job-manager")["states"])
    os.seteuid(GUEST)
    try:
        guest = Client(site.uri)
    finally:
        os.seteuid(0)
    rejected = {}
    with guest:
        for name in names:
            try:
                stats = guest.stats(name)
            except RpcError as error:
                rejected[name] = error.errno
                continue
            # The scheduler's state, the name of the execution service, the version, and ranks.
            known = {"ready", "job-exec", __version__, "0", *states}
            assert set(_texts(stats)) <= known, (name, stats)
            assert "pid" not in json.dumps(stats), (name, stats)
            assert set(stats.get("queues", {})) <= {"batch"}
    # `job-shell` has requests about standard input alone.
    assert rejected.pop("job-shell") == errno.ENOSYS
    assert rejected == dict.fromkeys(("job-exec", "sched", "feasibility"), errno.EPERM)


def _texts(value: object) -> Iterator[str]:
    """The texts among the values of a document."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value
