"""Random jobs for the kill test: each with the lines, the status and the fate that it must have.

A task appends one line to the ledger when it starts: job, rank, pid, start time and token. This
is the evidence of what ran, independent of the store. Then it writes a byte to the bell, a FIFO
that the test reads, so that the test sees progress while no daemon runs.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.jobspec import from_command

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

# Each task: one line with O_APPEND, in one write, and one byte.
RECORD_START = """
read -r stat < /proc/$$/stat
set -- $stat
echo "$PENSTOCK_JOB_ID $FLUX_TASK_RANK $$ ${22} $TOKEN" >> "$LEDGER"
printf x 1<> "$BELL"
"""
WRITE_LINES = """
printf '%s\\n' "out $TOKEN $FLUX_TASK_RANK $PADDING"
printf '%s\\n' "err $TOKEN $FLUX_TASK_RANK" >&2
"""
EXIT = "exit $(((CODE + FLUX_TASK_RANK) % 256))"
END_BY_SIGNAL = 'kill -"$SIGNAL" $$; exit 99'
# A line is read from the gate before each line that is written.
PASS_GATE = """
exec 3< "$GATE"
for phase in 1 2 3; do
    read -r _ <&3
    echo "phase $phase"
done
"""
# A descendant without environment, in a session of its own, that never ends by itself.
LEAVE_ESCAPED_DESCENDANT = 'env -i setsid sh -c \'read -r _ < "$1"\' "$MARK" "$NEVER" &\n'
# One in the session of its task.
LEAVE_DESCENDANT = 'sh -c \'read -r _ < "$1"\' "$MARK" "$NEVER" &\n'
IGNORE_SIGTERM = "trap '' TERM\n"

PHASES = 3
SIGNALS = (1, 2, 9, 10, 12, 13, 14, 15)
LONG_LINE_BYTES = 100_000
# The share of gated jobs that leave a descendant.
DESCENDANT_SHARE = 0.5
MAX_RETIRED_GATES = 200
# The lifetime of a gated job, in kills.
MAX_LIFE_KILLS = 6


class Fate(Enum):
    """The way in which a job ends."""

    ENDS = "ends by itself"
    GATED = "outlives kills, then ends by itself"
    CANCELLED_RUNNING = "outlives kills, then is cancelled"
    CANCELLED_PENDING = "is cancelled while it is held"
    CANCELLED_AT_ONCE = "is cancelled right after its submission"


FATES = {
    Fate.ENDS: 70,
    Fate.GATED: 10,
    Fate.CANCELLED_RUNNING: 10,
    Fate.CANCELLED_PENDING: 5,
    Fate.CANCELLED_AT_ONCE: 5,
}


class Gate:
    """A FIFO from which a gated task reads: a line lets it pass one phase."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        # Open for both, so that neither end waits for the other.
        self._descriptor = os.open(path, os.O_RDWR)

    def open_phase(self) -> None:
        """Lets the task pass one phase."""
        os.write(self._descriptor, b"go\n")

    def close(self) -> None:
        """Closes this end; the lines in it stay until the task has closed its end."""
        os.close(self._descriptor)
        self._path.unlink()


@dataclass(eq=False)
class PlannedJob:
    """A submission, and what must become of its jobs.

    Attributes:
        status: The expected wait status.
        life_kills: The number of kills that a gated job outlives.
    """

    token: int
    fate: Fate
    jobspec: dict[str, object]
    ntasks: int
    count: int
    status: int
    stdout: list[str]
    stderr: list[str]
    gate: Gate | None
    life_kills: int

    @property
    def urgency(self) -> int:
        """0, which holds the job, if it is to be cancelled before it starts."""
        return 0 if self.fate is Fate.CANCELLED_PENDING else 16

    @property
    def is_cancelled(self) -> bool:
        """Whether the test cancels it."""
        return self.fate not in {Fate.ENDS, Fate.GATED}

    @property
    def is_expected_to_start(self) -> bool:
        """Whether its jobs start before they are cancelled, if they are."""
        return self.fate not in {Fate.CANCELLED_PENDING, Fate.CANCELLED_AT_ONCE}


class Workload:
    """Draws jobs.

    Args:
        directory: For the ledger, the bell and the gates.
        max_gated: The greatest number of gated jobs at a time.
        descendant: The commands by which some gated jobs leave a descendant.
    """

    def __init__(self, directory: Path, max_gated: int, descendant: str) -> None:
        self._descendant = descendant
        self.ledger = directory / "ledger"
        self.ledger.touch()
        self.bell = directory / "bell"
        os.mkfifo(self.bell)
        self._never = directory / "never"
        os.mkfifo(self._never)
        self._directory = directory
        self._max_gated = max_gated
        self._lock = threading.Lock()
        self._gated = 0
        self._retired: deque[Gate] = deque()
        self._last_token = 0
        # In the environment or the arguments of every process of a job.
        self.mark = f"mark-of-{directory}"

    def retire(self, plan: PlannedJob) -> None:
        """Lets another gated job be drawn in place of this one, which is about to end.

        Its task may not have opened the gate yet: only gates of much earlier jobs are closed.
        """
        if plan.gate is not None:
            with self._lock:
                self._gated -= 1
                self._retired.append(plan.gate)
                if len(self._retired) > MAX_RETIRED_GATES:
                    self._retired.popleft().close()

    def draw(self, random: Random) -> PlannedJob:
        """Draws a job."""
        fate = random.choices([*FATES], [*FATES.values()])[0]
        is_gated = fate in {Fate.GATED, Fate.CANCELLED_RUNNING}
        with self._lock:
            if is_gated and self._gated >= self._max_gated:
                fate, is_gated = Fate.ENDS, False
            self._gated += is_gated
            self._last_token += 1
            token = self._last_token
        ntasks = random.choice([1, 1, 1, 2, 3]) if not is_gated else 1
        count = random.choice([1, 1, 1, 4]) if fate is Fate.ENDS else 1
        padding = "7" * random.randrange(20)
        if ntasks == 1 and random.random() < 0.02:
            # Of several tasks, the shell's writes of one long line could alternate.
            padding = "7" * LONG_LINE_BYTES
        environment = {
            "PATH": os.environ["PATH"],
            "MARK": self.mark,
            "LEDGER": str(self.ledger),
            "BELL": str(self.bell),
            "NEVER": str(self._never),
            "TOKEN": str(token),
            "PADDING": padding,
        }
        script = RECORD_START + WRITE_LINES
        gate = None
        if is_gated:
            gate = Gate(self._directory / f"gate-{token}")
            environment["GATE"] = str(self._directory / f"gate-{token}")
            script += self._descendant if random.random() < DESCENDANT_SHARE else ""
            script += IGNORE_SIGTERM if random.random() < 0.2 else ""
            script += PASS_GATE
        if random.random() < 0.3:
            status = random.choice(SIGNALS)
            if IGNORE_SIGTERM in script:
                status = 9
            environment["SIGNAL"] = str(status)
            script += END_BY_SIGNAL
        else:
            code = random.randrange(256)
            environment["CODE"] = str(code)
            status = max((code + rank) % 256 for rank in range(ntasks)) << 8
            script += EXIT
        ranks = range(ntasks)
        stdout = [f"out {token} {rank} {padding}" for rank in ranks]
        stdout += [f"phase {phase}" for phase in range(1, PHASES + 1)] if is_gated else []
        return PlannedJob(
            token=token,
            fate=fate,
            jobspec=from_command(
                ["sh", "-c", script, self.mark], ntasks=ntasks, environment=environment, cwd="/"
            ),
            ntasks=ntasks,
            count=count,
            status=status,
            stdout=stdout,
            stderr=[f"err {token} {rank}" for rank in ranks],
            gate=gate,
            life_kills=random.randint(1, MAX_LIFE_KILLS),
        )


@dataclass(frozen=True)
class LedgerLine:
    """The start of a task, as the task has recorded it.

    Attributes:
        start_ticks: Clock ticks since boot at which its process was created.
    """

    job: int
    rank: int
    pid: int
    start_ticks: int
    token: int
