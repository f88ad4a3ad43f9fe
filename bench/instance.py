"""An instance of its own for a benchmark that runs as a program."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def running(*options: str) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    """Starts `penstock start` with a temporary state directory, and stops it after the block.

    Yields a connected client and the daemon's process.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        command = [sys.executable, "-m", "penstock", "start", "--state", name]
        command += ["--socket", f"{name}/socket", *options]
        command += ["--", "sh", "-c", "echo accepting; cat > /dev/null"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            try:
                with Client(f"local://{name}/socket") as client:
                    yield client, process
            finally:
                # The end of its command, which reads this pipe, ends the instance.
                process.stdin.close()
                process.wait()
