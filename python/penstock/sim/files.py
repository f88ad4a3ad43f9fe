"""The results as files: a row a job, and a summary."""

from __future__ import annotations

import json
import math
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.errors import FilesError
from penstock.sim import groups
from penstock.sim.groups import GROUPINGS, labels
from penstock.sim.units import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from penstock.sim.groups import Grouping
    from penstock.sim.results import Results, Study

__all__ = [
    "COLUMNS",
    "FilesError",
    "Writer",
    "csv_lines",
    "directories",
    "is_free",
    "overwritten",
    "pyarrow",
    "summary",
]

COLUMNS = ("policy", "id", "submit", "start", "end", "cores", "nodes", "wait", "backfilled")
"""The columns of `jobs.csv` and `jobs.parquet`; those of `GROUPINGS` that a trace has follow."""

TIME_COLUMNS = {"submit", "start", "end", "wait"}
JOBS, SUMMARY, PARQUET = "jobs.csv", "summary.json", "jobs.parquet"


class Writer:
    """Files that appear together, whole, or not at all.

    Files are written under temporary names; the end of the `with` block renames them. An exception
    removes them, and earlier files stay.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[Path, Path]] = []
        self._stale: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                while self._pending:
                    temporary, path = self._pending[0]
                    temporary.replace(path)
                    self._pending.pop(0)
                for path in self._stale:
                    path.unlink(missing_ok=True)
        finally:
            for temporary, _ in self._pending:
                with suppress(OSError):
                    temporary.unlink()

    def path(self, path: Path) -> Path:
        """Returns a temporary path for a file that is renamed in the end; creates its directory.

        A link is followed, unless it is another user's: its target is replaced.

        Raises:
            FilesError: the path exists and is not a file, or was given before.
        """
        if not is_free(path):
            raise FilesError(f"`{path}` is not a regular file: it is left as it is")
        if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
            raise FilesError(f"`{path}` is a symbolic link of another user: it is not followed")
        shown, path = path, path.resolve()
        if any(path == before for _, before in self._pending):
            raise FilesError(f"`{shown}` would be written twice: expected a file of its own")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Others may make files in the directory, too: theirs is not written to.
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(16)}")
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC
        os.close(os.open(temporary, flags, 0o666))
        self._pending.append((temporary, path))
        return temporary

    def text(self, path: Path, text: str) -> None:
        """Writes a text."""
        self.path(path).write_text(text, encoding="utf-8")

    def results(
        self, directory: Path, study: Study, document: dict[str, Any], *, parquet: bool = False
    ) -> None:
        """Writes `jobs.csv`, `summary.json` and, if it is wanted, `jobs.parquet`.

        One of earlier results, which would not belong to these, is removed.

        Raises:
            FilesError: the package pyarrow is not there.
        """
        with self.path(directory / JOBS).open("w", encoding="utf-8", newline="") as file:
            file.writelines(csv_lines(study))
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        self.text(directory / SUMMARY, text + "\n")
        if parquet:
            arrow, writer = pyarrow()
            named = _named(study)
            tables = [_arrow_table(arrow, run.policy, run.results, named) for run in study.runs]
            writer.write_table(arrow.concat_tables(tables), self.path(directory / PARQUET))
        elif (directory / PARQUET).is_file():
            self._stale.append(directory / PARQUET)


def is_free(path: Path) -> bool:
    """Whether a file can be written at a path: it is a file already, or does not exist.

    Directories, devices and pipes are not replaced, because other programs use them.
    """
    return path.is_file() or not path.exists()


def directories(out: Path, names: Sequence[str]) -> Iterator[Path]:
    """The directory of each workload's files: with several workloads one below the given one.

    Args:
        out: The requested directory.
        names: what the workloads are called.
    """
    taken: set[str] = set()
    for whole in names:
        if len(names) == 1:
            yield out
            continue
        base = name = whole.split(".")[0] or "trace"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        yield out / name


def overwritten(
    report: Path | None, results: Iterable[Path], inputs: Iterable[Path]
) -> tuple[Path, str] | None:
    """Finds an output path that would overwrite an input or another output.

    Args:
        report: where the report goes.
        results: the directories of the results.
        inputs: the files that are read.

    Returns:
        A requested path, and its other use; None if all are distinct.
    """
    files = [directory / name for directory in results for name in (JOBS, SUMMARY, PARQUET)]
    for path in inputs:
        for output in [*files, *([] if report is None else [report])]:
            if _is_same(output, path):
                return output, "is read as well"
    if report is not None:
        if any(_is_same(report, file) for file in files):
            return report, "is one of the results of --out as well"
        place = report.resolve()
        if any(place in file.resolve().parents for file in files):
            return report, "is the directory of --out, or above it"
    return None


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, which need not exist."""
    with suppress(OSError):
        return one.samefile(other)
    return one.resolve() == other.resolve()


def csv_lines(study: Study) -> Iterator[str]:
    """The lines of `jobs.csv`: a row a job and policy, in the order of the workload.

    Times are in seconds of the trace, whole ones without a point. A job that never started has
    no `start`, `end` and `wait`.
    """
    named = _named(study)
    yield ",".join([*COLUMNS, *named]) + "\n"
    labels = [
        "".join(f",{_quoted(label)}" for label in row) for row in zip(*named.values(), strict=True)
    ]
    for run in study.runs:
        columns = run.results.columns
        rows = zip(
            *(columns[name] for name in COLUMNS[1:]), labels or [""] * len(run.results), strict=True
        )
        for job, submit, start, end, cores, nodes, wait, backfilled, label in rows:
            times = (
                ",," if math.isnan(start) else f"{plain(start)},{plain(end)},",
                "" if math.isnan(start) else plain(wait),
            )
            yield (
                f"{run.policy},{job},{plain(submit)},{times[0]}{cores},{nodes},{times[1]},"
                f"{backfilled}{label}\n"
            )


def _named(study: Study) -> dict[str, list[str]]:
    """The users, groups and queues of the jobs, as far as the trace names them."""
    columns = study.workload.columns()
    return {name: labels(study.workload, name) for name in GROUPINGS if name in columns}


def _quoted(label: str) -> str:
    """A label as a field of RFC 4180."""
    if any(character in label for character in ',"\r\n'):
        return '"' + label.replace('"', '""') + '"'
    return label


def summary(
    study: Study, command: list[str], options: dict[str, Any], by: Grouping | None = None
) -> dict[str, Any]:
    """The document of `summary.json`; `docs/simulation.md` tells of its keys.

    Args:
        study: what was simulated.
        command: the command line.
        options: The requested options, seeds included.
        by: what the shares of a run are grouped by; None for no shares.

    Raises:
        TraceError: the trace does not name it.
    """
    names = None if by is None else labels(study.workload, by)
    resources = study.machine.resources
    workload = study.workload
    return {
        "version": __version__,
        "command": command,
        "workload": {
            "name": study.name,
            "jobs": workload.jobs,
            "first_submit": finite(workload.first_submit),
            "last_submit": finite(workload.last_submit),
            "unix_start": study.unix_start,
        },
        "machine": {
            "what": study.machine.text,
            "nodes": 1 if resources is None else resources.nnodes,
            "cores": study.cores,
            "gpus": 0 if resources is None else resources.ngpus,
            "pool": resources is None,
        },
        "options": options,
        "assumptions": list(study.assumptions),
        "runs": [
            {
                "policy": run.policy,
                "queue_policy": run.queue_policy,
                "selection": run.selection,
                **{key: finite(value) for key, value in run.results.summary.items()},
                "denials": [denial._asdict() for denial in run.results.denials],
                **({} if names is None else {f"by_{by}": groups.summary(run, names)}),
            }
            for run in study.runs
        ],
    }


def finite(value: Any) -> Any:
    """A value as JSON permits it: NaN and infinities become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def pyarrow() -> tuple[Any, Any]:
    """The package pyarrow, and its part for Parquet.

    Raises:
        FilesError: it is not there.
    """
    import importlib

    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise FilesError(
            "Parquet needs the package pyarrow, which is not installed\nhint: pip install pyarrow, "
            "or leave --parquet away: jobs.csv has the same rows"
        ) from error


def _arrow_table(
    arrow: Any, policy: str, results: Results, named: Mapping[str, Sequence[str]]
) -> Any:
    kinds = {
        "id": arrow.uint64(),
        "cores": arrow.uint32(),
        "nodes": arrow.uint32(),
        "backfilled": arrow.bool_(),
    } | dict.fromkeys(TIME_COLUMNS, arrow.float64())
    names = arrow.repeat(arrow.scalar(policy), len(results))
    table = {"policy": names}
    for name in COLUMNS[1:]:
        values: Any = list(results.columns[name])
        if name == "backfilled":
            values = map(bool, values)
        table[name] = arrow.array(values, kinds[name], from_pandas=True)
    table |= {name: arrow.array(values, arrow.string()) for name, values in named.items()}
    return arrow.table(table)
