"""A site: an instance that is killed, in whole or in part, and started again with its state."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.client import Client
from penstock.errors import NoInstanceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# After this long without an expected event the test fails instead of hanging, in seconds.
HANG_S = 60.0
# Lines of the daemon's log that announce a state.
DAEMON_LISTENS = "penstock: local://"
SERVICE_READY = "penstock.exec: ready, "
FAULTS = ("PanicException", "Traceback", "panicked at")


class Target(Enum):
    """The processes to kill."""

    DAEMON = "daemon"
    SERVICE = "service"
    BOTH = "both"
    REAPER = "reaper"
    # The reaper and its standbys.
    REAPERS = "reapers"


@dataclass(frozen=True)
class Kill:
    """A kill that has found its process.

    Attributes:
        time: When, on the monotonic clock, in seconds.
        ticks: When, in clock ticks since boot.
        ready_count: How often a service had announced itself before.
    """

    target: Target
    time: float
    ticks: float
    ready_count: int


class Site:
    """An instance with a state directory.

    Args:
        directory: For state and log.
        cores: Of its node.
    """

    def __init__(self, directory: Path, cores: int) -> None:
        self.state = directory / "state"
        self.uri = f"local://{self.state}/socket"
        self._log = directory / "log"
        config = directory / "penstock.toml"
        config.write_text("[penstock.exec]\nkill-timeout = '500ms'\n")
        self._command = [sys.executable, "-m", "penstock", "start", "-v", "--config", str(config)]
        self._command += ["--state", str(self.state), "--socket", f"{self.state}/socket"]
        # One node with more cores than this machine has: jobs share them.
        self._command += ["--nodes", "1", "--cores", str(cores), "--exec", "local"]
        self._command += ["--oversubscribe"]
        self._process: subprocess.Popen[str] | None = None
        self._is_up = threading.Event()
        self._is_ended = False
        self._wake: Callable[[], None] = lambda: None
        # The number of times that a service has announced itself.
        self.ready_count = 0
        # The number of starts of the daemon.
        self.starts = 0
        # Lines of the log that must not be there.
        self.faults: list[str] = []

    def watch(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, in another thread, when a service has announced itself."""
        self._wake = wake

    # --- the daemon

    def start(self) -> None:
        """Starts the daemon."""
        self.starts += 1
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read_log, args=[self._process], daemon=True).start()

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with self._log.open("a") as log, process.stderr:
            for line in process.stderr:
                log.write(f"{time.monotonic():.3f} [{process.pid}] {line}")
                log.flush()
                if any(fault in line for fault in FAULTS):
                    self.faults.append(line.rstrip())
                if process is not self._process:
                    continue
                if DAEMON_LISTENS in line:
                    self._is_up.set()
                if SERVICE_READY in line:
                    self.ready_count += 1
                    self._wake()
        if process is self._process:
            self._is_up.clear()

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A connected client, once the daemon accepts connections."""
        while True:
            assert self._is_up.wait(HANG_S), f"no daemon: see {self._log}"
            with suppress(NoInstanceError):
                client = Client(self.uri, timeout=HANG_S)
                break
        with client:
            yield client

    def stop(self) -> int:
        """Stops the instance in order; returns the daemon's exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout=HANG_S)

    # --- kills

    def kill(self, target: Target) -> Kill | None:
        """Kills a process, and restarts a killed daemon; None if there was no process."""
        now = time.monotonic()
        ready_count = self.ready_count
        if target is Target.DAEMON:
            self._kill_daemon()
        elif target is Target.SERVICE:
            if not kill_holder(self.state / "exec" / "lock"):
                return None
        elif target is Target.REAPER:
            if not kill_holder(self.state / "exec" / "reaper" / "lock"):
                return None
        elif target is Target.REAPERS:
            # A successor has more than one of these locks.
            names = ("second-standby", "standby", "lock")
            killed = [kill_holder(self.state / "exec" / "reaper" / name) for name in names]
            if not any(killed):
                return None
        else:
            if not kill_holder(self.state / "exec" / "lock"):
                return None
            self._kill_daemon()
        ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        if target in {Target.DAEMON, Target.BOTH}:
            self.start()
        return Kill(target, now, ticks, ready_count)

    def _kill_daemon(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"the daemon has ended: see {self._log}"
        process, self._process = self._process, None
        self._is_up.clear()
        process.kill()
        process.wait()

    def kill_everything(self, mark: str) -> None:
        """Kills whatever a failed run has left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for pid in processes_with(mark, str(self.state)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kill_holder(lock: Path) -> bool:
    """Kills the process that holds a lock; False if there is none. Returns when it has ended."""
    try:
        pid = int(lock.read_text())
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError):
        return False
    try:
        # The pid may have been reused.
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        if os.fsencode(lock.parent) not in arguments.split(b"\0"):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    else:
        return bool(select.select([descriptor], [], [], HANG_S)[0])
    finally:
        os.close(descriptor)


# --- processes


def processes_with(*words: str) -> list[int]:
    """The processes with one of these words in their arguments or their environment."""
    wanted = [word.encode() for word in words]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        text = b""
        for name in ("cmdline", "environ"):
            with suppress(OSError):
                text += (folder / name).read_bytes()
        if int(folder.name) != os.getpid() and any(word in text for word in wanted):
            found.append(int(folder.name))
    return found


def zombies_of(parents: set[int]) -> list[int]:
    """The ended processes that these processes have not waited for."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z" and int(fields[1]) in parents:
                found.append(int(folder.name))
    return found
