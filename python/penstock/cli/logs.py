"""`penstock logs`: a job's output, as the instance stored it."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import jobid
from penstock.cli.ids import OneJobId
from penstock.cli.text import id_text, safe
from penstock.client import Client
from penstock.errors import Error, RpcError
from penstock.jobspec import shell_option

if TYPE_CHECKING:
    import argparse

STREAMS = ("stdout", "stderr")
SUMMARY = "Show a job's output: its stdout on stdout, its stderr on stderr."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the job ends")
    parser.add_argument("--stream", choices=STREAMS, help="only this stream (default: both)")
    parser.add_argument("id", action=OneJobId, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    files = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    streams = [args.stream] if args.stream else list(files)
    is_empty = True
    with Client() as client:
        try:
            for stream, data in client.output(args.id, follow=args.follow, streams=streams):
                files[stream].write(data)
                files[stream].flush()
                is_empty = False
        except RpcError as error:
            if not _tell_files(client, args.id):
                if error.errno != errno.ENOSYS:
                    raise
                raise Error(
                    f"{id_text(args.id)}: no output is retained: "
                    "the instance simulates its jobs, or has another execution service"
                ) from None
            return 1
        # The instance retains nothing, or the job has written nothing.
        return 1 if is_empty and _tell_files(client, args.id) else 0


def _tell_files(client: Client, job: int) -> bool:
    """Names the files that a job's output goes to; returns whether there are any."""
    paths = _output_files(client, job)
    for stream, path in paths.items():
        name = f"{id_text(job)}: {stream}"
        print(f"penstock logs: {name} went to the file `{safe(path)}`", file=sys.stderr)
    return bool(paths)


def _output_files(client: Client, job: int) -> dict[str, str]:
    """The files that a job's output goes to, by stream.

    Parts that differ between tasks, such as `{{taskid}}`, stay in the name.
    """
    spec = json.loads(client.lookup(job, "jobspec")["jobspec"])
    directory = spec["attributes"]["system"].get("cwd", "")
    f58 = jobid.f58(job)
    values = {
        "id": f58,
        "jobid": f58,
        "id.f58": f58,
        "id.dec": str(job),
        "id.hex": hex(job),
        # The last one: a name may have braces itself.
        "name": next(iter(client.job_rows(ids=[job], attrs=["name"])))["name"],
    }
    files = {}
    for stream in STREAMS:
        template = shell_option(spec, f"output.{stream}.path")
        if isinstance(template, str):
            for name, value in values.items():
                template = template.replace(f"{{{{{name}}}}}", value)
            files[stream] = str(Path(directory, template))
    return files
