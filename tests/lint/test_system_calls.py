"""The modules of the Python package that may use the operating system, with their reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.lint.system_calls import Resource, forbidden, uses

PACKAGE = Path(__file__).parents[2] / "python" / "penstock"

HOST = "instance/host.py"
RESOURCES = {
    "the time: use a `Clock`": Resource(
        r"time\.(time|monotonic|perf_counter|process_time|clock_gettime)(_ns)?"
        r"|datetime\.(datetime|date)\.(now|utcnow|today)|trio\.(current_time|lowlevel\.current_clock)",
        {
            "clock.py": "the system's clock",
        },
    ),
    "a blocking sleep": Resource(
        r"time\.sleep",
        {
            "cli/ping.py": "the interval between pings",
            "cli/restart.py": "backoff until the new daemon answers",
            "cli/attach.py": "backoff until the execution service answers",
            "client/connection.py": "backoff until the instance accepts a submission again",
        },
    ),
    "randomness: use `System.random_bytes`": Resource(
        r"(random|secrets)\..*|uuid\.uuid[14]|os\.(urandom|getrandom)",
        {
            HOST: "the real system",
            "cli/attach.py": "the number of a writer of input",
            "cli/bulksubmit.py": "the order of shuffled jobs",
            "client/repeating.py": "the tokens of submissions",
            "compat/ClusterShell/RangeSet.py": "the nodes that `pick` picks",
            "sim/files.py": "the names of files that are not complete",
            "web/sessions.py": "the secrets of sessions",
        },
    ),
    "a socket: use `System.network`, or a client": Resource(
        r"(trio\.)?socket\.(socket|socketpair|create_\w+|from\w+)|trio\.open_(unix|tcp)\w+"
        r"|asyncio\.(open|start)_\w+",
        {
            HOST: "probes for another instance",
            "instance/sockets.py": "the real network",
            "instance/service_manager.py": "tells systemd that the daemon is ready",
            "instance/pmix_server.py": "the sockets of real PMIx servers",
            "client/connection.py": "the blocking client",
            "client/trio_connection.py": "the client for Trio",
            "client/asyncio_connection.py": "the client for asyncio",
            "executor/worker.py": "wakes the executor's thread",
            "recording/proxy.py": "the socket whose messages are recorded",
            "sched.py": "wakes the scheduler's process at a signal",
            "testing/fakebroker.py": "the socket of a scripted broker",
            "web/server.py": "the socket of the pages",
        },
    ),
    "the interpreter: use `penstock_command`": Resource(
        r"sys\.executable",
        {
            "interpreter.py": "another command, without modules of the working directory",
            "cli/start.py": "the same command line again, of what is installed by now",
            "flux/sched-penstock.py": "Flux's own interpreter, before Penstock's is known",
        },
    ),
    "a process: use `System.children`": Resource(
        r"subprocess\.(Popen|run|call|check_\w+|get\w+)|trio\.(lowlevel\.open_process|run_process)"
        r"|os\.(fork\w*|posix_spawn\w*|exec\w+|spawn\w+|system|popen|kill\w*)|multiprocessing\..*",
        {
            "instance/processes.py": "the real children",
            "cli/alloc.py": "the command of `penstock alloc`",
            "compat/ClusterShell/NodeUtils.py": "the commands of a source of groups",
            "cli/attach.py": "stops and interrupts itself",
            "cli/record.py": "the command whose messages are recorded",
            "cli/terminal.py": "the process that restores the terminal",
            "cli/exec.py": "executes `penstock-exec`",
            "cli/start.py": "executes the daemon again",
            "cli/top.py": "the process that follows a log",
            "flux/sched-penstock.py": "the scheduler below a broker module of Flux",
        },
    ),
    "the store: use `System.open_manager`": Resource(
        r"penstock\._core\.JobManager|sqlite3\..*",
        {
            HOST: "the real store",
            "instance/broker.py": "whether a service is the real job manager",
            "testing/memoryinstance.py": "a store in memory",
        },
    ),
    "a thread: use `System.in_thread`": Resource(
        r"threading\.(Thread|Timer)|_thread\..*|trio\.to_thread\..*"
        r"|concurrent\.futures\.(Thread|Process)PoolExecutor",
        {
            HOST: "the real threads",
            "cli/alloc.py": "waits for the job's end beside the command",
            "cli/attach.py": "reads standard input beside the output",
            "cli/pending.py": "the notice beside the request that waits",
            "executor/worker.py": "the thread of an executor",
            "instance/pmix_server.py": "connects to servers in directories of guests",
            "recording/proxy.py": "one for each direction of a connection",
            "testing/fakebroker.py": "serves the connections beside a test",
            "testing/memoryinstance.py": "runs the instance beside a test",
        },
    ),
    "a file: use the `System`": Resource(
        r"open|os\.(open|stat|mkdir|makedirs|remove|unlink|listdir|scandir|rename|replace|path\.exists)"
        r"|\.(read_(text|bytes)|write_(text|bytes)|mkdir|unlink|rmdir|touch|chmod|iterdir|glob|rglob"
        r"|exists|is_dir|is_file|lstat)|shutil\..*|tempfile\..*|trio\.(Path|open_file)",
        {
            HOST: "the real host",
            "instance/processes.py": "the programs of the real children",
            "instance/sockets.py": "the file of the real socket",
            "instance/pmix_server.py": "the directories of real PMIx servers",
            "instance/directories.py": "checks the real host's directories",
        },
        folder="instance/",
    ),
    "the process: use `System.host`": Resource(
        r"os\.(environ|environb|getenv|getpid|get\w*[ug]id|sched_\w+|getcwd|umask|setr?e?[ug]id)"
        r"|signal\.signal|trio\.open_signal_receiver|socket\.gethostname|\.(cwd|home|expanduser)",
        {
            HOST: "the real host",
            "instance/processes.py": "the search path of the real children",
        },
        folder="instance/",
    ),
}


def test_each_use_of_the_operating_system_is_in_a_named_module():
    assert list(forbidden(PACKAGE, RESOURCES)) == []


@pytest.mark.parametrize("title", RESOURCES)
def test_each_named_module_uses_what_it_is_named_for(title):
    resource = RESOURCES[title]
    unnamed = Resource(resource.pattern, {}, resource.folder)
    for module in resource.modules:
        names = (name for _, name in uses((PACKAGE / module).read_text()))
        assert any(unnamed.is_forbidden(module, name) for name in names), module


SOURCE = """\
import time, os.path
import socket as s
from time import monotonic as now
from datetime import datetime
import trio
if TYPE_CHECKING:
    import subprocess
def f(socket: s.socket, opened: str = os.sep) -> time.time:
    found: time.time = now()
    return s.socket, datetime.now(), trio.socket.socket, self.path.unlink()
from penstock._core import JobManager
read = JobManager.read
time.sleep(1)
"""


def test_names_are_resolved_through_imports():
    found = list(uses(SOURCE))
    for expected in [
        (8, "os.sep"),
        (9, "time.monotonic"),
        (10, "socket.socket"),
        (10, "datetime.datetime.now"),
        (10, "trio.socket.socket"),
        (10, ".unlink"),
        (12, "penstock._core.JobManager"),
        (13, "time.sleep"),
    ]:
        assert expected in found
    names = {name for _, name in found}
    assert "time.time" not in names, "annotations are ignored"
    assert not any("subprocess" in name for name in names)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("import time\nnow = time.time_ns()", "the time: use a `Clock`"),
        ("from random import choice\nchoice([1])", "randomness: use `System.random_bytes`"),
        ("import uuid\nuuid.uuid4()", "randomness: use `System.random_bytes`"),
        ("import os\nos.posix_spawn", "a process: use `System.children`"),
        ("import sqlite3\nsqlite3.connect('jobs')", "the store: use `System.open_manager`"),
        ("open('x')", "a file: use the `System`"),
        ("import os\nos.environ['HOME']", "the process: use `System.host`"),
    ],
)
def test_a_use_in_another_module_is_found(tmp_path, line, title):
    module = tmp_path / "instance" / "new.py"
    module.parent.mkdir()
    module.write_text(line)
    assert [text.partition(" (")[2] for text in forbidden(tmp_path, RESOURCES)] == [f"{title})"]


# The Rust sources that may use the operating system, by the beginning of their paths. Others get
# the time, processes and files from their callers.
RUST = Path(__file__).parents[2] / "rust"
RUST_USE = re.compile(
    r"\b(?:Instant|SystemTime)::now|\bstd::(?:fs|net|process|thread|env)\b|\bUnix(?:Stream|Listener)\b"
)
RUST_MODULES = {
    "dst/src/copies.rs": "the thread that copies the log, in turns with the run",
    "dst/src/main.rs": "a program",
    "exec/src/linux/": "the real kernel of the execution service and the reaper",
    "exec/src/exec_main.rs": "a program",
    "exec/src/main.rs": "a program",
    "idset/src/level.rs": "the vector instructions to be tested",
    "imp/src/": "a program that becomes the task",
    "pmix/src/peer.rs": "the daemon's end of a PMIx server's connection",
    "pmix/src/server/": "a program",
    "py/src/manager.rs": "a socket that tells the end of a sync",
    "py/src/resource_module.rs": "a file with R that `resource.reload` names",
    "py/src/sched.rs": "the durations of passes",
    "py/src/sim/worker_thread.rs": "simulations in threads of their own",
    "store/src/checkpoint.rs": "the thread that copies the log",
    "store/src/log_sync.rs": "the thread that syncs the log",
    "store/src/generation.rs": "the counter beside the database",
    "store/src/log_space.rs": "the blocks of the log",
    "store/src/maintenance/": "files of an administrator",
}


def test_rust_uses_the_system_in_named_places():
    used = set()
    for path in sorted(RUST.glob("*/src/**/*.rs")):
        name = str(path.relative_to(RUST))
        code = path.read_text().split("\n#[cfg(test)]")[0]
        found = [line for line in code.splitlines() if RUST_USE.search(line.partition("//")[0])]
        if not found or name.endswith("tests.rs") or "/tests/" in name:
            continue
        place = next((place for place in RUST_MODULES if name.startswith(place)), None)
        assert place, f"{name}: `{found[0].strip()}` belongs to the modules named here"
        used.add(place)
    assert used == set(RUST_MODULES)
