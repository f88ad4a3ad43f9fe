"""The PMIx server with real clients: programs compiled against the system's libpmix."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pmixdaemon import (
    GRANTED,
    PATIENCE,
    Book,
    Daemon,
    Gates,
    codes,
    compile_program,
    ended_well,
    finish,
    requests,
    server_program,
    text,
)
from tests.conformance.requirements import requirement

from penstock._core import MAX_PMIX_REQUEST_BYTES, Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock._core import Message

    Start = Callable[..., Daemon]

# Of each way in which tasks end while others fence.
ROUNDS = int(os.environ.get("PENSTOCK_PMIX_ROUNDS", "5"))


@requirement(
    "pmix5.server.forward",
    "pmix5.server.requester",
    "pmix5.server.attributes-live",
    "pmix5.answer.release-function",
    "pmix5.events.complete",
    "pmix5.query.status",
)
def test_three_tasks_granted(start: Start, alloc: Path) -> None:
    book = Book({"MYALLOCATION": (0, "", GRANTED)})
    daemon = start(3, book.answer)
    tasks = daemon.run(alloc, ["new:nodes=12,id=MYALLOCATION"])
    [(code0, zero), (code1, one), (code2, two)] = finish(tasks)
    assert (code0, code1, code2) == (0, 0, 0), (zero, one, two)
    assert codes(zero) == [
        "rank 0: 3 tasks in a universe of 6, 3 of them here",
        "rank 0: new: asked",
        "rank 0: new: status 0",
        "rank 0: new: pmix.alloc.id = ƒ3",
        "rank 0: new: pmix.alloc.reqid = MYALLOCATION",
        "rank 0: new: pmix.alloc.nlist = n[1-12]",
    ]
    assert one[1:] == [
        "rank 1: registered",
        "rank 1: event: pmix.alloc.reqid = MYALLOCATION",
        "rank 1: event: pmix.alloc.id = ƒ3",
        "rank 1: event: penstock.alloc.status = 0",
        "rank 1: event: pmix.alloc.nlist = n[1-12]",
    ]
    assert two[1:] == [
        "rank 2: query: pmix.query.alloc = granted",
        "rank 2: query: pmix.alloc.reqid = MYALLOCATION",
        "rank 2: query: pmix.alloc.id = ƒ3",
        "rank 2: query: penstock.alloc.status = 0",
    ]
    assert daemon.stats()["lent"] > 0
    request = requests(daemon, "pmix.alloc")[0]
    assert request.object() == {
        "rank": 0,
        "directive": 1,
        "attributes": [
            {"key": "pmix.alloc.nnodes", "required": False, "type": "uint64", "value": 12},
            {**text("pmix.alloc.reqid", "MYALLOCATION"), "required": False},
        ],
    }
    ended_well(daemon)


@requirement("pmix5.attributes.required", "pmix5.answer.status")
def test_required_and_too_big(start: Start, alloc: Path) -> None:
    book = Book({"MYALLOCATION": (-29, "12 nodes are more than there are", [])})
    daemon = start(3, book.answer)
    tasks = daemon.run(alloc, ["new:nodes=12,id=MYALLOCATION,required"])
    [(_, zero), (_, one), (_, two)] = finish(tasks)
    assert "rank 0: new: status -29" in codes(zero)
    # libpmix drops the attributes of a denial: event and query have the reason.
    assert "rank 1: event: pmix.evtext = 12 nodes are more than there are" in one
    assert "rank 1: event: penstock.alloc.status = -29" in one
    assert "rank 2: query: pmix.query.alloc = denied" in two
    assert "rank 2: query: pmix.evtext = 12 nodes are more than there are" in two
    [request] = requests(daemon, "pmix.alloc")
    assert [attribute["required"] for attribute in request.object()["attributes"]] == [True, True]
    ended_well(daemon)


@requirement("pmix5.query.status", "pmix5.events.complete", "pmix5.server.attributes-live")
def test_queued_then_granted(start: Start, alloc: Path) -> None:
    book = Book({})
    daemon = start(3, book.answer)
    tasks = daemon.run(alloc, ["new:nodes=12,id=MYALLOCATION"])
    # Rank 2 knows that the request is pending.
    while (request := daemon.requests.get(timeout=PATIENCE)).topic != "pmix.alloc":
        pass
    while (request := daemon.requests.get(timeout=PATIENCE)).topic != "pmix.query":
        pass
    assert request.object() == {"id": "MYALLOCATION"}
    assert daemon.stats()["parked"] >= 1
    book.outcomes["MYALLOCATION"] = (0, "", GRANTED)
    book.grant(daemon, "MYALLOCATION")
    [(_, zero), (_, one), (_, two)] = finish(tasks)
    assert "rank 0: new: status 0" in codes(zero)
    assert "rank 1: event: penstock.alloc.status = 0" in one
    assert "rank 2: query: pmix.query.alloc = granted" in two
    ended_well(daemon)


@requirement("pmix5.directives.cancel")
def test_cancelled(start: Start, alloc: Path) -> None:
    daemon = start(3, Book({}).answer)
    arguments = ["new:nodes=12,id=MYALLOCATION,nowait", "cancel:id=MYALLOCATION"]
    [(_, zero), (_, one), (_, two)] = finish(daemon.run(alloc, arguments))
    assert "rank 0: cancel: status 0" in codes(zero)
    assert "rank 0: new: status -180" in codes(zero)
    assert "rank 1: event: penstock.alloc.status = -180" in one
    assert "rank 2: query: pmix.query.alloc = cancelled" in two
    ended_well(daemon)


def test_released_and_extended(start: Start, alloc: Path) -> None:
    release = [text("pmix.alloc.nlist", "n12")]
    longer = [{"key": "pmix.alloc.time", "type": "uint32", "value": 600}]
    book = Book({"A": (0, "", release), "B": (0, "", longer)})
    daemon = start(1, book.answer)
    arguments = ["release:id=A,nodes=1,hosts=n11+n12", "extend:id=B,time=600"]
    [(code, lines)] = finish(daemon.run(alloc, arguments))
    assert code == 0
    assert "rank 0: release: pmix.alloc.nlist = n12" in lines
    assert "rank 0: extend: pmix.alloc.time = 600" in lines
    sent_requests = [daemon.requests.get_nowait().object() for _ in range(2)]
    assert [request["directive"] for request in sent_requests] == [3, 2]
    assert sent_requests[0]["attributes"][2]["value"] == "n11,n12"
    assert sent_requests[1]["attributes"][1] == {
        "key": "pmix.alloc.time",
        "required": False,
        "type": "uint32",
        "value": 600,
    }
    ended_well(daemon)


@requirement("pmix5.query.id")
def test_all_requests_are_listed(start: Start, alloc: Path) -> None:
    daemon = start(1, Book({"A": (0, "", GRANTED), "B": (-29, "none", [])}).answer)
    [(code, lines)] = finish(daemon.run(alloc, ["new:id=A,nodes=1", "new:id=B,nodes=2", "status"]))
    assert code == 0
    at = codes(lines).index("rank 0: status: status 0")
    assert lines[at + 1 :] == [
        "rank 0: status: pmix.query.alloc = granted",
        "rank 0: status: pmix.alloc.reqid = A",
        "rank 0: status: pmix.alloc.id = ƒ3",
        "rank 0: status: penstock.alloc.status = 0",
        "rank 0: status: pmix.query.alloc = denied",
        "rank 0: status: pmix.alloc.reqid = B",
        "rank 0: status: pmix.alloc.id = ƒ3",
        "rank 0: status: penstock.alloc.status = -29",
        "rank 0: status: pmix.evtext = none",
    ]
    ended_well(daemon)


def test_the_tasks_know_where_they_run(start: Start, tmp_path: Path) -> None:
    daemon = start(2, lambda _daemon, _request: None)
    here = daemon.start["nodes"][0]
    nodes = {"nodes": [here, "n08", "n09", "n11", "login"], "size": 8, "local": [0, 2]}
    daemon.start |= {**nodes, "ranks_per_node": [[0, 2], [1], [3, 4, 5], [6], [7]]}
    program = compile_program(Path(__file__).with_name("map.c"), tmp_path)
    [(_, zero), (code, lines)] = finish(daemon.run(program, [], ranks=[0, 2]))
    assert (zero, code) == (lines, 0)
    assert lines == [
        f"nodes {here},n08,n09,n11,login",
        "peers 0,2",
        "card of 0: 100",
        "card of 2: 102",
        f"0 {here} 0",
        "1 n08 0",
        f"2 {here} 1",
        "3 n09 0",
        "4 n09 1",
        "5 n09 2",
        "6 n11 0",
        "7 login 0",
    ]
    ended_well(daemon)


@requirement("pmix5.events.complete", "pmix5.events.id")
def test_late_registrations_get_past_events(start: Start, alloc: Path) -> None:
    book = Book({"A": (0, "", GRANTED), "B": (-29, "none", [])})
    daemon = start(2, book.answer)
    tasks = daemon.run(alloc, ["--late", "new:nodes=12,id=A", "new:nodes=13,id=B"])
    [(_, zero), (_, one)] = finish(tasks)
    assert "rank 0: new: status -29" in codes(zero)
    assert one[1:4] == [
        "rank 1: registered",
        "rank 1: event: pmix.alloc.reqid = A",
        "rank 1: event: pmix.alloc.id = ƒ3",
    ]
    ended_well(daemon)


def test_without_the_service_nothing_is_supported(start: Start, alloc: Path) -> None:
    def reject(daemon: Daemon, request: Message) -> None:
        daemon.send(request.respond(errnum=errno.ENOSYS))

    daemon = start(1, reject)
    [(code, lines)] = finish(daemon.run(alloc, ["new:nodes=1"]))
    assert code == 0
    assert "rank 0: new: status -47" in codes(lines)
    ended_well(daemon)


def test_a_thousand_requests(start: Start, alloc: Path) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": 0, "reason": "", "results": GRANTED})
    [(code, lines)] = finish(daemon.run(alloc, ["--count", "1000", "new:nodes=1"]))
    assert (code, lines[-1]) == (0, "rank 0: new: 1000 answers, 0 denied")
    ended_well(daemon)


def test_the_instance_goes_away_with_a_thousand_requests_waiting(start: Start, alloc: Path) -> None:
    daemon = start(1, lambda _daemon, _request: None)
    [task] = daemon.run(alloc, ["--count", "1000", "new:nodes=1"])
    for _ in range(1000):
        daemon.requests.get(timeout=PATIENCE)
    assert daemon.stats()["parked"] == 1000
    daemon.hang_up()
    [(_, lines)] = finish([task])
    assert "rank 0: new: 1000 answers, 1000 denied" in lines
    daemon.restart()
    ended_well(daemon)


def test_the_instance_goes_away_and_the_task_learns_why(start: Start, alloc: Path) -> None:
    daemon = start(1, lambda _daemon, _request: None)
    [task] = daemon.run(alloc, ["new:nodes=1"])
    daemon.requests.get(timeout=PATIENCE)
    daemon.hang_up()
    [(_, lines)] = finish([task])
    assert "rank 0: new: status -61" in codes(lines)
    daemon.close()


def test_a_request_is_held_while_the_instance_is_away(start: Start, between: Path) -> None:
    daemon = start(2, lambda _daemon, _request: {"status": 0, "reason": "", "results": GRANTED})
    gates = Gates(between.parent, 2)
    tasks = daemon.run(between, [gates.name])
    with gates:
        daemon.hang_up()
        # The server accepts the next connection when it has noticed the end of the first.
        daemon.connect()
        assert daemon.ask("pmix.other", {}).errnum == errno.ENOSYS
        daemon.hang_up()
    # Rank 1 has left the second fence, and rank 0 is about to request, or has.
    [(code, lines)] = finish(tasks[1:])
    assert (code, lines) == (0, ["rank 1: fence: 0"] * 2)
    daemon.restart()
    [(code, lines)] = finish(tasks[:1])
    assert (code, lines[2:]) == (0, ["rank 0: 1 nodes: 0", "rank 0: 1000 nodes: 0"])
    assert [request.object()["rank"] for request in requests(daemon, "pmix.alloc")] == [0, 0]
    ended_well(daemon)


def test_a_query_is_sent_again(start: Start, alloc: Path) -> None:
    book = Book({"A": (0, "", GRANTED)})
    is_back = threading.Event()

    def answer(daemon: Daemon, request: Message) -> dict[str, Any] | None:
        is_late = request.topic != "pmix.query" or is_back.is_set()
        return book.answer(daemon, request) if is_late else None

    daemon = start(1, answer)
    [task] = daemon.run(alloc, ["new:id=A,nodes=1", "status"])
    while daemon.requests.get(timeout=PATIENCE).topic != "pmix.query":
        pass
    is_back.set()
    daemon.restart()
    [(code, lines)] = finish([task])
    assert code == 0
    assert "rank 0: status: status 0" in codes(lines)
    assert "rank 0: status: pmix.query.alloc = granted" in lines
    assert [request.topic for request in requests(daemon, "pmix.query")] == ["pmix.query"]
    ended_well(daemon)


def test_events_come_again_with_a_connection_and_tasks_get_them_once(
    start: Start, alloc: Path
) -> None:
    daemon = start(2, lambda _daemon, _request: {"status": 0, "reason": "", "results": GRANTED})
    event = {"id": "X", "alloc": "ƒ3", "directive": "new", "status": 0, "results": []}
    daemon.begin()
    for _ in range(2):
        daemon.tell(event)
    daemon.restart()
    for ident in ["X", "X", "Y"]:
        daemon.tell({**event, "id": ident})
    # The library has got an event for each request.
    assert daemon.ask("pmix.ping", {}).object() == {}
    assert daemon.stats()["lent"] == 3
    ended_well(daemon)


@pytest.mark.parametrize("errnum", [errno.EIO, errno.ENOSPC, errno.EBUSY])
def test_the_events_of_an_instance_whose_job_manager_has_failed_are_requested_again(
    start: Start, errnum: int
) -> None:
    daemon = start(2, lambda _daemon, _request: None)
    event = {"id": "X", "alloc": "ƒ3", "directive": "new", "status": 0, "results": []}
    daemon.begin()
    daemon.tell(event)
    for _ in range(2):
        assert daemon.registered.wait(PATIENCE)
        assert daemon.events is not None
        daemon.registered.clear()
        daemon.send(daemon.events.respond(errnum=errnum))
    # The next stream begins with all requests that have ended.
    for ident in ["X", "Y"]:
        daemon.tell({**event, "id": ident})
    assert daemon.ask("pmix.ping", {}).object() == {}
    assert daemon.stats()["lent"] == 2
    ended_well(daemon)


def test_a_task_that_has_ended_twice_is_counted_once(start: Start, fence: Path) -> None:
    daemon = start(3, lambda _daemon, _request: None)
    tasks = daemon.run(fence, ["exits", "2", "3"], stdin=subprocess.PIPE)
    assert tasks[2].wait(PATIENCE) == 0
    for _ in range(2):
        assert daemon.ask("pmix.ended", {"rank": 2}).object() == {}
        daemon.restart()
    for code, lines in finish(tasks[:2]):
        # The first may have begun before.
        assert (code, lines[1:]) == (0, ["fence: 0"] * 2)
    finish(tasks[2:])
    daemon.close()


@requirement("pmix5.answer.release-function")
def test_a_task_is_killed_with_its_request_waiting(start: Start, alloc: Path) -> None:
    daemon = start(2, lambda _daemon, _request: None)
    tasks = daemon.run(alloc, ["new:nodes=1"])
    request = daemon.requests.get(timeout=PATIENCE)
    assert request.topic == "pmix.alloc"
    tasks[0].kill()
    assert tasks[0].wait(PATIENCE) == -signal.SIGKILL
    # The answer comes after its task has ended; the event and the other task are unaffected.
    daemon.send(request.respond({"status": 0, "reason": "", "results": GRANTED}))
    daemon.tell({"id": "X", "alloc": "ƒ3", "directive": "new", "status": 0, "results": []})
    [(code, lines)] = finish(tasks[1:])
    assert code == 0
    assert "rank 1: event: pmix.alloc.reqid = X" in lines
    stats = daemon.stats()
    assert (stats["parked"], stats["lent"]) == (0, stats["back"])
    daemon.close()
    finish(tasks[:1])


def test_abort_is_forwarded_and_answered(start: Start, alloc: Path) -> None:
    daemon = start(1, lambda _daemon, _request: {})
    [(code, _)] = finish(daemon.run(alloc, ["--abort", "7"]))
    assert code == 7
    request = daemon.requests.get_nowait()
    assert request.topic == "pmix.abort"
    assert request.object() == {"rank": 0, "status": 7, "message": "given up"}
    assert daemon.stats()["parked"] == 0
    daemon.close()


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory where others may enter, as they may not where tests put their files."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def granted(daemon: Daemon, alloc: Path) -> None:
    """A task asks, and is answered."""
    [(code, lines)] = finish(daemon.run(alloc, ["new:nodes=1"]))
    assert (code, codes(lines)[2]) == (0, "rank 0: new: status 0"), lines


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch users")
def test_another_user_is_rejected(start: Start, alloc: Path, public: Path) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": 0, "results": []})
    program = Path(shutil.copy(alloc, public))
    [(code, lines)] = finish(daemon.run(program, ["new:nodes=1"], user=65534))
    assert code != 0
    assert "PMIx_Init" in lines[-1]
    assert daemon.requests.empty()
    granted(daemon, alloc)
    ended_well(daemon)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch users")
def test_a_silent_connection_of_another_user_is_closed(start: Start, alloc: Path) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": 0, "results": []})
    port = daemon.port()
    code = f"""
import socket
link = socket.create_connection(("127.0.0.1", {port}))
print("connected", flush=True)
print(link.recv(1), flush=True)
"""
    with subprocess.Popen(
        ["/usr/bin/env", "python3", "-c", code], stdout=subprocess.PIPE, text=True, user=65534
    ) as other:
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == "connected\n"
            granted(daemon, alloc)
            assert other.stdout.readline() == "b''\n"
        finally:
            other.kill()
    ended_well(daemon)


def test_a_silent_connection_is_closed(start: Start, alloc: Path) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": 0, "results": []})
    with socket.create_connection(("127.0.0.1", daemon.port())) as link:
        granted(daemon, alloc)
        assert link.recv(1) == b""
    daemon.close()


def test_only_the_request_that_is_too_long_is_rejected(start: Start, tmp_path: Path) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": 0, "results": []})
    program = compile_program(Path(__file__).with_name("long.c"), tmp_path)
    sizes = [str((1 << 20) - 1000), str(1 << 20), "10000000", "10"]
    expected = [0, -27, -27, 0]
    [(code, lines)] = finish(daemon.run(program, sizes))
    assert (code, lines) == (
        0,
        [f"{size}: {status}" for size, status in zip(sizes, expected, strict=True)],
    )
    # As the instance reads them.
    for request in requests(daemon, "pmix.alloc"):
        Decoder(MAX_PMIX_REQUEST_BYTES).feed(request.encode())
    rejected = daemon.stderr.read_text().splitlines()
    assert [line.partition(", ")[2] for line in rejected] == ["expected at most 1048576"] * 2
    assert daemon.stats()["parked"] == 0
    daemon.close()


@pytest.fixture(scope="module")
def between(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of two fences and a request, compiled."""
    server_program()
    source = Path(__file__).with_name("between.c")
    return compile_program(source, tmp_path_factory.mktemp("between"))


@pytest.fixture(scope="module")
def fence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of tasks that end while others fence, compiled."""
    server_program()
    source = Path(__file__).with_name("fence.c")
    return compile_program(source, tmp_path_factory.mktemp("fence"))


def test_a_fence_does_not_wait_for_a_task_that_has_ended(start: Start, fence: Path) -> None:
    daemon = start(3, lambda _daemon, _request: None)
    tasks = daemon.run(fence, ["killed", "2", "3"], stdin=subprocess.PIPE)
    assert tasks[2].wait(PATIENCE) == -signal.SIGKILL
    assert daemon.ask("pmix.ended", {"rank": 2}).object() == {}
    for code, lines in finish(tasks[:2]):
        # The first may have begun before.
        assert (code, lines[1:]) == (0, ["fence: 0", "fence: 0"])
    assert daemon.ask("pmix.ended", {"rank": -1}).errnum == errno.EINVAL
    daemon.close()
    finish(tasks[2:])


@pytest.mark.parametrize("how", ["killed", "finalized", "exits", "waits"])
def test_no_fence_hangs_however_others_end(start: Start, fence: Path, how: str) -> None:
    for _ in range(ROUNDS):
        daemon = start(6, lambda _daemon, _request: None)
        tasks = daemon.run(fence, [how, "3", "10"], stdin=subprocess.DEVNULL)
        for rank in [5, 3, 4]:
            if how == "waits":
                assert tasks[rank].stdout is not None
                tasks[rank].stdout.readline()
                tasks[rank].terminate()
            tasks[rank].wait(PATIENCE)
            # A response in between, on the library's thread, changes nothing.
            assert daemon.ask("pmix.ping", {}).object() == {}
            assert daemon.ask("pmix.ended", {"rank": rank}).object() == {}
        for code, lines in finish(tasks[:3]):
            # -52: a task that the fence waits for has ended.
            assert (code, len(lines), set(lines) <= {"fence: 0", "fence: -52"}) == (0, 10, True)
        daemon.close()
        assert daemon.stderr.read_text() == ""
        finish(tasks[3:])


def test_pings_are_answered_on_the_librarys_thread(start: Start, alloc: Path) -> None:
    daemon = start(1, lambda _daemon, _request: {"status": 0, "results": []})
    assert daemon.ask("pmix.ping", {}).errnum == errno.ENOSYS
    daemon.begin()
    assert daemon.ask("pmix.ping", {}).object() == {}
    granted(daemon, alloc)
    ended_well(daemon)


def test_an_unsuitable_directory_is_rejected(tmp_path: Path) -> None:
    def run(path: Path) -> str:
        command = [server_program(), "--directory", path]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (1, "")
        return ended.stderr

    path = tmp_path / "pmix"
    path.mkdir(mode=0o755)
    expected = "expected one of this user's, with mode 0700, found mode 755"
    assert f"penstock-pmix: `{path}`: {expected}" in run(path)
    path.chmod(0o700)
    (path / "file").touch()
    assert "expected an empty directory, found 1 entries" in run(path)
    assert "File exists" in run(path / "file")


def test_a_server_has_one_job(start: Start) -> None:
    daemon = start(1, lambda _daemon, _request: None)
    daemon.begin()
    response = daemon.ask("pmix.start", {**daemon.start, "job": "ƒ3"})
    assert (response.errnum, response.error_text) == (
        errno.EALREADY,
        "the server is that of job ƒ2Aa",
    )
    daemon.close()


def test_an_invalid_start_message_is_rejected(start: Start) -> None:
    daemon = start(1, lambda _daemon, _request: None)
    response = daemon.ask("pmix.start", {**daemon.start, "size": 2})
    assert (response.errnum, response.error_text) == (
        22,
        "`ranks_per_node`: expected each rank of 0-1 once",
    )
    assert daemon.ask("pmix.other", {}).errnum == 38
    daemon.close()


def test_bytes_that_are_no_message_end_the_connection(start: Start) -> None:
    daemon = start(1, lambda _daemon, _request: None)
    daemon.begin()
    daemon.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    daemon.await_end()
    daemon.restart()
    assert "expected" in daemon.stderr.read_text()
    daemon.close()


def test_the_command_line_is_checked() -> None:
    server = server_program()
    for arguments in [[], ["--directory"], ["--directory", ""], ["--fd", "4"]]:
        ended = subprocess.run([server, *arguments], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("usage:")
    ended = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("penstock-pmix ")
