"""Scripts of a simulation: the steps of a run, drawn from a seed, and their text.

A run depends on its script alone. The numbers of a step are taken modulo the number of clients,
jobs and so on at that time. So any part of a script is a script, which is how a failing one is
shortened.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Self

# Each kind of step: the number of its arguments, how often it is drawn, and its group.
KINDS = {
    # client, shape, urgency, token
    "submit": (4, 60, ""),
    # client, submission
    "resubmit": (2, 10, ""),
    # number: requests of all clients for one round
    "burst": (1, 14, ""),
    # client, job
    "cancel": (2, 12, ""),
    # client, job, urgency
    "urgency": (3, 8, ""),
    # client, number of the latest jobs
    "cancel-many": (2, 8, ""),
    # client, number of the latest jobs, urgency
    "urgency-many": (3, 12, ""),
    # client
    "list": (1, 8, ""),
    # client, job
    "lookup": (2, 5, ""),
    # client, job
    "watch": (2, 14, ""),
    # job: each client watches another one
    "watch-all": (1, 8, ""),
    # client, job
    "wait": (2, 10, ""),
    # client, number among its streams
    "end-stream": (2, 6, ""),
    # client
    "drain-jobs": (1, 3, ""),
    # client, service
    "ping": (2, 14, ""),
    # client
    "follow-log": (1, 4, ""),
    # client
    "subscribe": (1, 4, ""),
    # client, job
    "memo": (2, 4, ""),
    # turns of the tasks
    "turns": (1, 90, ""),
    # everything that is possible at this time
    "settle": (0, 30, ""),
    # milliseconds
    "advance": (1, 40, ""),
    # client, rank
    "drain": (2, 6, "resources"),
    # client, rank
    "undrain": (2, 6, "resources"),
    # whether
    "queue-start": (1, 6, "resources"),
    # whether
    "queue-enable": (1, 4, "resources"),
    # prolog's milliseconds
    "reload": (1, 5, "resources"),
    # client: registers a service
    "serve": (1, 5, "services"),
    # client, client: a request to a client's service
    "call": (2, 8, "services"),
    # client: bytes of the next frame that arrive later
    "partial": (2, 8, "network"),
    # client, bytes, seed
    "garbage": (3, 6, "network"),
    # client
    "disconnect": (1, 12, "network"),
    # client
    "slow": (1, 6, "network"),
    # point, calls before it, kind
    "fault": (3, 24, "faults"),
    # errno, attempts
    "store-error": (2, 14, "store"),
    # commits before it, errno
    "commit-error": (2, 36, "store"),
    # bytes
    "disk-limit": (1, 10, "disk"),
    "heal": (0, 14, ""),
    "kill-exec": (0, 8, "exec"),
    "crash": (0, 8, "crash"),
    # point, calls before it
    "crash-at": (2, 8, "crash"),
    # whether jobs continue
    "stop": (1, 5, "crash"),
    "start": (0, 20, ""),
    # seconds forward, back
    "clock": (2, 6, "clock"),
}
GROUPS = sorted({group for _, _, group in KINDS.values()} - {""})


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        kind: its kind.
        numbers: its arguments.
    """

    kind: str
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join([self.kind, *map(str, self.numbers)])


@dataclass(frozen=True)
class Script:
    """A run.

    Attributes:
        seed: of what is not in the steps: the order of tasks, the lengths of reads.
        steps: what happens.
    """

    seed: int
    steps: tuple[Step, ...]

    @classmethod
    def draw(cls, seed: int) -> Self:
        """Draws a script."""
        draws = random.Random(seed)
        # A run with few kinds of faults goes deeper than one with all.
        groups = {"", *(group for group in GROUPS if draws.random() < 0.35)}
        if draws.random() < 0.1:
            groups |= set(GROUPS)
        kinds = [kind for kind, (_, _, group) in KINDS.items() if group in groups]
        drawn = draws.choices(kinds, [KINDS[kind][1] for kind in kinds], k=draws.randint(20, 120))
        # Small numbers more often: they are the interesting ones of most kinds.
        steps = [
            Step(kind, tuple(draws.randrange(1 << draws.randint(1, 14)) for _ in range(count)))
            for kind, count in ((kind, KINDS[kind][0]) for kind in drawn)
        ]
        return cls(seed, tuple(steps))

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}", *map(str, self.steps)])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the text of a script.

        Raises:
            ValueError: a line is no step.
        """
        seed, steps = 0, []
        for number, line in enumerate(text.splitlines(), 1):
            kind, *rest = line.partition("#")[0].split() or [""]
            if not kind:
                continue
            numbers = tuple(map(int, rest))
            if kind == "seed" and len(numbers) == 1:
                seed = numbers[0]
            elif kind in KINDS and len(numbers) == KINDS[kind][0]:
                steps.append(Step(kind, numbers))
            else:
                raise ValueError(f"line {number}: expected a step, found `{line}`")
        return cls(seed, tuple(steps))
