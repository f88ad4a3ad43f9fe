"""The owner's submissions while a guest attacks: `make bench-attacks`.

Daemon and owner run on one core, the attacker on another. For each attack of
`tests/survival/attacks.py`: the latency of the owner's submissions, next to those without an attack
just before, the daemon's CPU time and memory. Targets: p50 at most twice the quiet one, p99 at most
the quiet one and 20 ms. Exit code 1 if one is missed. It needs root, and an idle machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.survival.attacks import ATTACKS, CONFIG, OPTIONS, SPEC, under

from penstock.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_P50_RATIO = 2.0
MAX_P99_MORE_S = 0.020
# The pace of the owner, in seconds.
INTERVAL_S = 0.01
FIRST_ROUND_S = 10.0


@dataclass
class Latency:
    """The times of submissions in seconds, and what the daemon used meanwhile."""

    times: list[float]
    cpu_share: float
    memory: int

    def quantile(self, share: float) -> float:
        """The time that this share of the submissions took at most."""
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def instance(folder: Path) -> Iterator[tuple[str, int]]:
    """An instance for guests: its address, and its process."""
    (folder / "config.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "penstock", "start", "--config", str(folder / "config.toml")]
    command += ["--state", str(folder / "state"), "--socket", str(folder / "socket"), *OPTIONS]
    command += ["--", "sh", "-c", "echo accepting; cat > /dev/null"]
    pipe = subprocess.PIPE
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        if not process.stdout.readline():
            raise RuntimeError((folder / "log").read_text())
        try:
            yield f"local://{folder}/socket", process.pid
        finally:
            process.stdin.close()


def measure(client: Client, pid: int, seconds: float) -> Latency:
    """Submits jobs for some time, one after the other."""
    ticks = os.sysconf("SC_CLK_TCK")

    def cpu_seconds() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    times, memory = [], 0
    began, used = time.perf_counter(), cpu_seconds()
    while time.perf_counter() < began + seconds:
        begin = time.perf_counter()
        client.submit(SPEC)
        times.append(time.perf_counter() - begin)
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        memory = max(memory, int(pages) * os.sysconf("SC_PAGE_SIZE"))
        # The pace of the owner.
        time.sleep(INTERVAL_S)
    share = (cpu_seconds() - used) / (time.perf_counter() - began)
    return Latency(times, share, memory)


def main() -> int:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each attack (default: 20)")
    names = [attack.__name__ for attack in ATTACKS]
    parser.add_argument("--only", choices=names, help="one attack")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("attacks.py: it needs root, to act as a guest", file=sys.stderr)
        return 1
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[0]})
    missed = 0
    print("| attack | rounds | p50 quiet | p50 | p99 quiet | p99 | CPU | memory | met |")
    print("|---|---|---|---|---|---|---|---|---|")
    for attack in ATTACKS:
        if args.only not in {None, attack.__name__}:
            continue
        folder = Path(tempfile.mkdtemp(prefix="penstock-attacks-"))
        folder.chmod(0o755)
        with instance(folder) as (uri, pid), Client(uri, timeout=60) as client:
            quiet = measure(client, pid, args.seconds)
            with under(attack, uri, cpu=cpus[-1]) as (_, rounds):
                deadline = time.monotonic() + FIRST_ROUND_S
                while rounds.value == 0 and time.monotonic() < deadline:
                    time.sleep(INTERVAL_S)
                busy = measure(client, pid, args.seconds)
                count = rounds.value
            if count == 0:
                # The figures would be those of a quiet instance.
                raise RuntimeError(f"{attack.__name__}: no round of the attack ended")
        shutil.rmtree(folder)
        p50, p99 = busy.quantile(0.5), busy.quantile(0.99)
        is_met = (
            p50 <= MAX_P50_RATIO * quiet.quantile(0.5)
            and p99 <= quiet.quantile(0.99) + MAX_P99_MORE_S
        )
        missed += not is_met
        figures = [quiet.quantile(0.5), p50, quiet.quantile(0.99), p99]
        shown = " | ".join(f"{1000 * figure:.2f} ms" for figure in figures)
        print(
            f"| {attack.__name__.replace('_', ' ')} | {count} | {shown} | {busy.cpu_share:.0%} | "
            f"{busy.memory >> 20} MiB | {'yes' if is_met else 'no'} |",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
