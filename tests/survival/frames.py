"""Damaged frames over real sockets: `make fuzz-wire`.

Processes of the owner and of a guest send frames to an instance: recorded ones, requests to every
method, and both with bytes and pieces changed, inserted, removed or cut. Each draws from its own
part of the seed. Meanwhile a client of the owner sends pings. The instance must answer each ping,
and report no failure of a service. Between parts of the frames, when all senders have disconnected,
its memory is measured: it must not grow after the first tenth of them. At the end it must have the
descriptors that it had at the beginning.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from penstock._core import Decoder, Message, service_roles
from penstock.client import Client
from penstock.errors import WireError
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.sharedctypes import Synchronized

VECTORS = Path(__file__).parents[1] / "vectors" / "flux-wire"
CONFIG = """
[access]
allow-guest-user = true
[job-manager]
inactive-num-limit = 1000
[penstock.quota]
request-rate = 0
active-jobs = 1000
"""
OPTIONS = ["--nodes", "8", "--cores", "4"]
# Methods of services that are not in the routers' tables.
OTHER_TOPICS = """
attr.get attr.list config.get config.load config.reload service.add service.remove service.list
event.subscribe event.unsubscribe event.publish broker.ping log.dmesg sched.free sched.cancel
sched.alloc sched.explain sched.estimate sched.what-if feasibility.check job-exec.start
job-exec.kill job-exec.output hooks.prolog hooks.epilog pmix.start nothing.here
""".split()
VALUES = [None, -1, 0, 2**63, 1.5, 1e300, "", "x", "0-3", "0-4294967294", "ƒ1", [], {}, True, "\0"]
VALUES += [
    "stdin",
    "all",
    "new",
    "extend",
    "release",
    "guest.exec.eventlog",
    ["eventlog", "guest.output"],
]
KEYS = """
id ids all type severity note userid jobspec jobs count urgency flags keys path matchtag ops key
targets reason service topic name signum expiration constraint max_entries attrs since mode R final
ranks rank job directive attributes updates memo slice stream data encoding eof
""".split()
# Keys and values of the attributes of PMIx requests.
ATTRIBUTE_KEYS = "pmix.alloc.nnodes pmix.alloc.ncpus pmix.alloc.nlist pmix.alloc.ncpulist".split()
ATTRIBUTE_VALUES = [1, 4294967295, "n[0-1]", "pmix[n[1:0-1048575]]", "4*1048576", "0-4294967294"]
STREAMING = 16
HEADER_BYTES = 8
# The share of malformed frames that are sent.
MALFORMED_SHARE = 0.001
BATCH_FRAMES = 64
# Jobs that each process submits for each part of the frames, which then name them.
JOBS_OF_SENDER = 8
# Frames from one connection after which a process makes another.
FRAMES_PER_CONNECTION = 20_000
# After this long without a response to a ping the instance hangs, in seconds.
HANG_S = 60.0
PING_INTERVAL_S = 0.1
GUEST_UID = 54321
# A request that cancels the jobs of all users, in every state.
CANCEL_ALL = {"type": "cancel", "severity": 0, "dry_run": False, "userid": -1, "states": 0x7F}
# The number of parts in which the frames are sent. Memory is measured after each.
PARTS = 20
# Descriptors that the daemon may open with its first requests. A leak has one for each connection.
MAX_NEW_DESCRIPTORS = 4
# After the first tenth of the frames memory may grow by this factor, and by this much: caches are
# not full by then in a short run.
MAX_GROWTH = 1.1
MAX_GROWTH_BYTES = 8 << 20


@dataclass
class Report:
    """The figures of a run, and what was wrong."""

    frames: int = 0
    # The messages that the instance has read, without those after a malformed one.
    received: int = 0
    connections: int = 0
    pings: int = 0
    slowest_ping_s: float = 0.0
    seconds: float = 0.0
    # Anonymous memory of the daemon in bytes, after each part of the frames.
    memory: list[int] = field(default_factory=list)
    # Its open descriptors before the first frame and at the end.
    descriptors: tuple[int, int] = (0, 0)
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """A few lines for people."""
        memory = " ".join(f"{size / 2**20:.1f}" for size in self.memory)
        return (
            f"frames: {self.frames} in {self.seconds:.0f} s, of which {self.received} were read; "
            f"connections: {self.connections}\n"
            f"pings: {self.pings}, the slowest {self.slowest_ping_s * 1000:.0f} ms\n"
            f"memory after each twentieth of the frames, MiB: {memory}\n"
            f"descriptors: {self.descriptors[0]} before, {self.descriptors[1]} after\n"
            f"errors: {len(self.errors)}"
        )


class Frames:
    """Damaged and undamaged frames without end.

    Args:
        seed: Draws them.
        is_owner: Whether their sender is the owner of the instance, which has no limit of jobs and
            submits nothing.
        jobs: Ids of jobs to name.
    """

    def __init__(self, seed: str, *, is_owner: bool, jobs: Iterable[int] = ()) -> None:
        self._random = Random(seed)
        self._topics = [topic for topic, _ in service_roles()] + OTHER_TOPICS
        if is_owner:
            for topic in ("job-ingest.submit", "job-ingest.submit-part"):
                self._topics.remove(topic)
        jobspec = from_command(["true"], environment={}, cwd="/")
        self._jobs = [*jobs] or [1]
        self._values = [*VALUES, jobspec]
        self._recorded = [
            frame for frame in _recorded() if not is_owner or b"job-ingest.submit" not in frame
        ]

    def batch(self) -> bytes:
        """The next frames, in one piece."""
        return b"".join(self._frame() for _ in range(BATCH_FRAMES))

    def _frame(self) -> bytes:
        """The next frame. A malformed one ends the connection, and the frames after it are lost."""
        while True:
            frame = self._any_frame()
            if _is_whole(frame) or self._random.random() < MALFORMED_SHARE:
                return frame

    def _any_frame(self) -> bytes:
        random = self._random
        frame = random.choice(self._recorded) if random.random() < 0.2 else self._request()
        if random.random() < 0.5:
            return frame
        damaged = bytearray(frame)
        for _ in range(random.randint(1, 3)):
            self._damage(damaged)
        if random.random() < 0.9:
            # With the right length the stream continues after the frame.
            size = max(0, len(damaged) - HEADER_BYTES)
            damaged[4:HEADER_BYTES] = size.to_bytes(4, "big")
        return bytes(damaged)

    def _request(self) -> bytes:
        random = self._random
        keys = random.sample(KEYS, random.randint(0, 5))
        payload = {key: self._value(key) for key in keys}
        flags = STREAMING if random.random() < 0.3 else 0
        topic = random.choice(self._topics).replace("ID", str(random.choice(self._jobs)))
        return Message.request(topic, payload, matchtag=random.randint(1, 99), flags=flags).encode()

    def _value(self, key: str) -> Any:
        random = self._random
        if random.random() < 0.5:
            if key in {"id", "job"}:
                return random.choice(self._jobs)
            if key == "attributes":
                number = random.randint(0, 3)
                keys, values = random.choices(ATTRIBUTE_KEYS, k=number), ATTRIBUTE_VALUES
                return [{"key": key, "value": random.choice(values)} for key in keys]
        return random.choice(self._values)

    def _damage(self, frame: bytearray) -> None:
        random = self._random
        at = random.randrange(len(frame) + 1)
        match random.randrange(5):
            case 0 if at < len(frame):
                frame[at] ^= 1 << random.randrange(8)
            case 1:
                frame[at:at] = random.randbytes(random.randint(1, 8))
            case 2:
                del frame[at : at + random.randint(1, 16)]
            case 3:
                other = random.choice(self._recorded)
                start = random.randrange(len(other))
                frame[at:at] = other[start : start + random.randint(1, 64)]
            case _:
                frame[at : at + 1] = bytes([random.choice([0, 0x7F, 0x80, 0xA0, 0xBF, 0xFE, 0xFF])])


def _is_whole(frame: bytes) -> bool:
    """Whether a frame is one message, and nothing before or after it."""
    decoder = Decoder()
    with suppress(WireError):
        return len(decoder.feed(frame)) == 1 and not decoder.pending
    return False


def _recorded() -> list[bytes]:
    """The messages of the recorded conversations that go to a broker."""
    frames = []
    for path in sorted(VECTORS.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record: dict[str, Any] = json.loads(line)
            if record.get("dir") == "to-broker":
                frames.append(bytes.fromhex(record["hex"]))
    return frames


def send_frames(
    path: str, seed: str, uid: int | None, left: Synchronized[int], connections: Synchronized[int]
) -> None:
    """Sends frames until none is left: the work of a process."""
    if uid is not None:
        os.setgid(uid)
        os.setuid(uid)
    # They run until a frame ends them.
    jobspec = from_command(["sleep", "inf"], environment={}, cwd="/", duration=1e6)
    with Client(f"local://{path}", timeout=HANG_S) as client:
        jobs = [client.submit(jobspec) for _ in range(JOBS_OF_SENDER)]
    frames = Frames(seed, is_owner=uid is None, jobs=jobs)
    while _take(left, 0):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(HANG_S)
            connection.connect(path)
            with connections.get_lock():
                connections.value += 1
            for _ in range(FRAMES_PER_CONNECTION // BATCH_FRAMES):
                if not _take(left, BATCH_FRAMES):
                    return
                connection.sendall(frames.batch())
                _discard(connection)


def _take(left: Synchronized[int], count: int) -> bool:
    """Takes some of the frames that are left. Returns whether there were any."""
    with left.get_lock():
        if left.value <= 0:
            return False
        left.value -= count
        return True


def _discard(connection: socket.socket) -> None:
    """Reads what has arrived."""
    connection.settimeout(0.0)
    with suppress(BlockingIOError):
        while connection.recv(1 << 20):
            pass
    connection.settimeout(HANG_S)


@contextmanager
def _instance(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """An instance whose socket everybody can reach, as long as the block runs."""
    config = directory / "config.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "penstock", "start", "--config", str(config)]
    command += ["--state", str(directory / "state"), "--socket", str(directory / "socket")]
    command += [*OPTIONS, "--", "sh", "-c", "echo accepting; cat > /dev/null"]
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "accepting\n":
            raise RuntimeError((directory / "log").read_text())
        try:
            yield process
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=HANG_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)


def _descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _memory(pid: int) -> int:
    """Anonymous memory of a process, in bytes: not its program and the files that it has mapped."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


def _ping(client: Client, process: subprocess.Popen[str], senders: Senders, report: Report) -> None:
    """Sends pings until all frames of a part are sent."""
    while senders.left.value > 0 and process.poll() is None:
        begin = time.monotonic()
        client.rpc("broker.ping", {"seq": report.pings})
        took = time.monotonic() - begin
        report.pings += 1
        report.slowest_ping_s = max(report.slowest_ping_s, took)
        # The pace of the pings, not a wait for something.
        time.sleep(PING_INTERVAL_S)


@dataclass
class Senders:
    """The processes that send frames.

    Args:
        path: The socket of the instance.
        seed: Draws the frames.
        count: The number of processes; every second one is a guest's if root runs this.
    """

    path: str
    seed: int
    count: int

    def __post_init__(self) -> None:
        self._fork = multiprocessing.get_context("fork")
        self.left = self._fork.Value("q", 0)
        self.connections = self._fork.Value("q", 0)

    @contextmanager
    def sending(self, frames: int, part: int) -> Iterator[None]:
        """Sends the frames of a part while the block runs; it ends when none is left."""
        self.left.value = frames
        workers = []
        for number in range(self.count):
            uid = GUEST_UID if os.geteuid() == 0 and number % 2 else None
            words = (self.path, f"{self.seed}/{part}/{number}", uid, self.left, self.connections)
            workers.append(self._fork.Process(target=send_frames, args=words))
            workers[-1].start()
        try:
            yield
        finally:
            self.left.value = 0
            for worker in workers:
                worker.join()


def _wait_for_disconnects(client: Client, pid: int, descriptors: int) -> int:
    """Returns the descriptors of the instance once there are as few as this, or at most some more.

    Connections are closed in their turn: a request after them is served after that.
    """
    for _ in range(1000):
        client.rpc("broker.ping", {})
        if _descriptors(pid) <= descriptors + MAX_NEW_DESCRIPTORS:
            break
    return _descriptors(pid)


def run(directory: Path, seed: int, frames: int, senders: int = 2) -> Report:
    """Sends frames to a new instance.

    Args:
        directory: For the instance; other users must be able to enter it if root runs this.
        seed: Draws the frames.
        frames: The number of frames.
        senders: The number of processes that send; every second one is a guest's if root runs this.
    """
    report = Report(frames=frames)
    begin = time.monotonic()
    path = str(directory / "socket")
    with _instance(directory) as process, Client(f"local://{path}", timeout=HANG_S) as client:
        before = _descriptors(process.pid)
        sending = Senders(path, seed, senders)
        for part in range(PARTS):
            with sending.sending(frames // PARTS, part):
                _ping(client, process, sending, report)
            if process.poll() is not None:
                report.errors.append(f"the instance has ended with {process.returncode}")
                return report
            client.rpc("job-manager.raiseall", CANCEL_ALL)
            report.descriptors = (before, _wait_for_disconnects(client, process.pid, before))
            report.memory.append(_memory(process.pid))
        report.connections = sending.connections.value
        stats = client.stats("broker")
        report.received = stats["received"]
        for name in ("failures", "suspended"):
            if stats[name]:
                report.errors.append(f"{name}: {stats[name]}")
    if report.descriptors[1] > before + MAX_NEW_DESCRIPTORS:
        report.errors.append(f"descriptors: {report.descriptors[1]}, before {before}")
    early, late = report.memory[PARTS // 10 - 1], report.memory[-1]
    if late > early * MAX_GROWTH + MAX_GROWTH_BYTES:
        report.errors.append(f"memory: {late} bytes, after the first tenth of the frames {early}")
    log = (directory / "log").read_text(errors="replace")
    report.errors += [f"in the log: {word}" for word in ("Traceback", "panicked") if word in log]
    report.seconds = time.monotonic() - begin
    return report


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.survival.frames", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--senders", type=int, default=2)
    args = parser.parse_args()
    print(f"seed: {args.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="penstock-frames-"))
    directory.chmod(0o755)
    report = run(directory, args.seed, args.frames, args.senders)
    print(report)
    for error in report.errors:
        print(error)
    if report.errors:
        print(f"the instance's log: {directory / 'log'}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
