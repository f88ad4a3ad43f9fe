"""An instance of its own for a benchmark that runs as a program."""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from penstock.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

_directories = ExitStack()
atexit.register(_directories.close)


def make_directory(prefix: str) -> str:
    """Makes a directory that is removed when the benchmark ends.

    For a minute ext4 passes over the inodes of removed files, one by one, when it creates a file:
    the removal of one round's files would slow the next round down.
    """
    return _directories.enter_context(tempfile.TemporaryDirectory(prefix=prefix))


@contextmanager
def running(
    *options: str, python: str = sys.executable, state: str | None = None
) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    """Starts `penstock start`, and stops it after the block.

    Args:
        options: of `penstock start`.
        python: the interpreter of the environment whose build is started.
        state: the state directory; by default a temporary one.

    Yields a connected client and the daemon's process.
    """
    name = make_directory("penstock-bench-") if state is None else state
    command = [python, "-m", "penstock", "start", "--state", name]
    command += ["--socket", f"{name}/socket", *options]
    command += ["--", "sh", "-c", "echo accepting; cat > /dev/null"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
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
