"""Workloads: traces in files, and models of them."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._core import Workload
from penstock.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DEFAULT_CORES", "Synthesis", "TraceError", "Workload", "load", "synthesize"]

DEFAULT_CORES = 256
MIX_LOAD = 0.9
FILE_SUFFIXES = (".swf", ".swf.gz", ".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Synthesis:
    """A synthetic workload.

    Attributes:
        jobs: how many.
        seed: equal seeds give equal workloads.
        spec: a mix such as `80%:1c:10m,20%:64c:2h`; None for the Lublin-Feitelson model.
        load: the work per time, as a share of the machine; None leaves the arrivals of the model,
            and gives a mix 0.9.
        estimates: how users guess run times: `modal`, `exact` or `factor:F`.
    """

    jobs: int
    seed: int
    spec: str | None = None
    load: float | None = None
    estimates: str = "modal"


def load(path: Path, limit: int | None = None, *, preceding: bool = False) -> Workload:
    """Reads a trace.

    Args:
        path: Standard Workload Format (`.swf`) or JSON lines (`.jsonl`), perhaps with `.gz`; under
            another name JSON lines if it begins with `{`, else Standard Workload Format.
        limit: of how many jobs at most.
        preceding: in Standard Workload Format, whether a job is submitted only once its think time
            after the end of its preceding job has ended.

    Raises:
        TraceError: the file cannot be unpacked, or holds no job.
        WorkloadError: a line of it is wrong.
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceError(f"`{path}`: cannot be unpacked: {error}") from error
    elif path.suffix.lower() == ".gz":
        raise TraceError(f"`{path}`: expected a file packed by gzip, as its name says")
    name = path.name.lower().removesuffix(".gz")
    lines = name.endswith((".jsonl", ".json", ".ndjson"))
    if lines or (not name.endswith(".swf") and data.lstrip()[:1] == b"{"):
        workload = Workload.from_jsonl(data, name=path.name, limit=limit)
    else:
        workload = Workload.from_swf(data, name=path.name, limit=limit, preceding=preceding)
    if not workload.jobs:
        left_out = "; ".join(said for said in workload.assumptions if said.startswith("left out"))
        hint = f"expected Standard Workload Format or JSON lines ({', '.join(FILE_SUFFIXES)})"
        raise TraceError(
            f"`{path}`: there is no job in it that can be run"
            + (f": {left_out}" if left_out else f"\nhint: {hint}")
        )
    return workload


def synthesize(how: Synthesis, cores: int | None, cores_per_node: int = 1) -> Workload:
    """Generates a workload.

    Args:
        how: which.
        cores: of the machine that it is for; None for 256.
        cores_per_node: of that machine, for jobs of whole nodes.

    Raises:
        WorkloadError: a number is out of range, or a mix cannot be read.
    """
    size = cores or DEFAULT_CORES
    if how.spec is None:
        return Workload.lublin(
            how.jobs, cores=size, seed=how.seed, load=how.load, estimates=how.estimates
        )
    return Workload.mix(
        how.spec,
        how.jobs,
        seed=how.seed,
        cores=size,
        cores_per_node=cores_per_node,
        load=MIX_LOAD if how.load is None else how.load,
        estimates=how.estimates,
    )
