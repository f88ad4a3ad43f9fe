"""`penstock sim`: replay a workload in virtual time, under one policy or several."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from penstock.cli.arguments import queue_policy, seconds, whole
from penstock.config.tables import Selection
from penstock.errors import Error, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.sim.machine import Machine
    from penstock.sim.policy import Policy
    from penstock.sim.results import Study
    from penstock.sim.runs import Options, Progress
    from penstock.sim.workload import Workload

SUMMARY = """Replay a workload in virtual time by the engine that schedules in production, and say
the waits of jobs and the utilisation of the machine."""

EPILOG = """\
Traces are in the Standard Workload Format (.swf, .swf.gz) or JSON lines (.jsonl). Without a trace
there are 5,000 jobs of the model of Lublin and Feitelson, for a load of 0.8 on 256 cores.
docs/simulation.md describes formats, rules and metrics.

examples:
  penstock sim --policy fcfs,easy,conservative --report report.html
  penstock sim trace.swf.gz --pace 1.5 --user-estimates modal --estimates
  penstock sim trace.swf --nodes 128 --cores 16 --whole-nodes --out results
  penstock sim --mix '80%:1c:10m,20%:64c:2h' --cores 512 --load 0.95
"""

DEFAULT_JOBS = 5000
DEFAULT_LOAD = 0.8
DEFAULT_SEED = 1
MAX_COUNT = (1 << 32) - 1
MAX_SYNTHETIC_JOBS = 100_000_000
MAX_SHOWN_DENIALS = 5


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    # A full usage line would hide the text below it.
    parser.usage = "%(prog)s [OPTION ...] [TRACE ...]"
    parser.epilog = EPILOG
    work = parser.add_argument_group("workload")
    work.add_argument("traces", metavar="TRACE", nargs="*", type=_path, help="a file with jobs")
    work.add_argument("--limit", metavar="JOBS", type=_positive, help="only the first JOBS jobs")
    work.add_argument(
        "--preceding",
        action="store_true",
        help="a job of a .swf trace is submitted only once its think time after the end of its "
        "preceding job has ended",
    )
    work.add_argument(
        "--lublin",
        metavar="JOBS",
        type=_synthetic_jobs,
        help="JOBS jobs of the model of Lublin and Feitelson",
    )
    work.add_argument(
        "--mix", metavar="SPEC", help="jobs of some kinds, as in `80%%:1c:10m,20%%:64c:2h`"
    )
    work.add_argument(
        "--jobs",
        metavar="JOBS",
        type=_synthetic_jobs,
        help="number of jobs of --mix (default: 5000)",
    )
    work.add_argument(
        "--load",
        metavar="F",
        type=_above_zero,
        help="offered load of --lublin or --mix, as a share of the machine",
    )
    work.add_argument(
        "--pace", metavar="F", type=_above_zero, help="jobs of a trace arrive F times as fast"
    )
    work.add_argument(
        "--user-estimates",
        metavar="MODEL",
        type=_estimates,
        help="how users guess run times: modal, exact or factor:F (default: what a trace says, "
        "else modal)",
    )
    work.add_argument(
        "--seed", metavar="S", type=_seed_number, help="seed of all random choices (default: 1)"
    )

    work.add_argument(
        "--seeds",
        metavar="N",
        type=_positive,
        help="N seeds from --seed on: means with confidence intervals of 95 %%",
    )
    work.add_argument(
        "--loads", metavar="LIST", type=_loads, help="each of these loads in place of --load"
    )

    work.add_argument(
        "--from-flux",
        metavar="URI",
        nargs="?",
        const="",
        help="the jobs and nodes of an instance, of Flux or Penstock, as they are now (default: "
        "FLUX_URI, else PENSTOCK_URI)",
    )

    machine = parser.add_argument_group("machine")
    machine.add_argument("--nodes", metavar="N", type=_positive, help="N equal nodes")
    machine.add_argument(
        "--cores", metavar="C", type=_positive, help="of each node; without --nodes, of one pool"
    )
    machine.add_argument("--gpus", metavar="G", type=whole, help="of each node")
    machine.add_argument(
        "--inventory",
        metavar="FILE",
        type=_path,
        help="nodes from R (RFC 20), or from the table `resource` of a configuration (.toml)",
    )
    machine.add_argument(
        "--whole-nodes", action="store_true", help="jobs get whole nodes, as many as they need"
    )
    machine.add_argument(
        "--failures", metavar="FILE", type=_path, help="lines of TIME NODES down, or up"
    )
    machine.add_argument(
        "--mtbf", metavar="DURATION", type=_time, help="mean time between random failures of a node"
    )
    machine.add_argument(
        "--mttr", metavar="DURATION", type=_time, help="mean time to repair of --mtbf (default: 4h)"
    )
    machine.add_argument("--no-requeue", action="store_true", help="a job whose node fails is lost")

    scheduling = parser.add_argument_group("scheduling")
    scheduling.add_argument(
        "--policy",
        metavar="LIST",
        type=_policies,
        default=["easy"],
        help="queue policies: fcfs, easy, conservative, hybrid:N, or FILE.py:NAME, a function of "
        "your own that scores the pending jobs (default: easy)",
    )
    scheduling.add_argument(
        "--selection",
        metavar="LIST",
        type=_selections,
        default=["first"],
        help=f"which nodes: {', '.join(get_args(Selection))} (default: first)",
    )
    scheduling.add_argument(
        "--kill-at-limit", action="store_true", help="a job ends at its time limit"
    )
    scheduling.add_argument(
        "--estimates", action="store_true", help="estimate each start, and report the errors"
    )
    scheduling.add_argument(
        "--estimate-every",
        metavar="N",
        type=_positive,
        help="estimate only the start of every Nth job: each costs a pass over the queue",
    )

    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", metavar="DIR", type=_path, help="write jobs.csv and summary.json there"
    )
    output.add_argument(
        "--parquet", action="store_true", help="write jobs.parquet there, too (needs pyarrow)"
    )
    output.add_argument("--report", metavar="FILE", type=_path, help="write a page with plots")
    output.add_argument(
        "--window", metavar="FROM:TO", type=_window, help="the part of the trace to draw job by job"
    )
    output.add_argument(
        "--by",
        choices=("user", "group", "queue"),
        help="show the jobs, waits and slowdowns of each, and how equal their slowdowns are",
    )
    output.add_argument("--json", action="store_true", help="one object a line for each trace")
    output.add_argument("-q", "--quiet", action="store_true", help="the table alone")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    if args.from_flux is None:
        return _main(args)
    if args.traces or args.inventory or args.cores or args.lublin or args.mix:
        raise UsageError("--from-flux: it names the jobs and the machine")
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        args.traces, args.inventory = _write_snapshot(args, Path(directory))
        return _main(args)


def _write_snapshot(args: argparse.Namespace, directory: Path) -> tuple[list[Path], Path]:
    """Writes a snapshot of an instance; returns the trace and the inventory."""
    from penstock import snapshot
    from penstock.client import Client

    with Client(args.from_flux or os.environ.get("FLUX_URI")) as client:
        taken = snapshot.take(client, args.clock.now())
    if taken.unreadable:
        text = f"without {taken.unreadable} pending jobs of other users"
        print(f"penstock sim: {text}", file=sys.stderr)
    trace, inventory = directory / "snapshot.jsonl", directory / "R.json"
    trace.write_text("".join(json.dumps(row) + "\n" for row in taken.trace()))
    inventory.write_text(taken.resources.restrict(ranks=taken.up).encode())
    return [trace], inventory


def _main(args: argparse.Namespace) -> int:
    if problem := _problem(args):
        print(f"penstock sim: {problem}", file=sys.stderr)
        return 2
    from penstock.cli.text import safe
    from penstock.sim.files import Writer, directories, pyarrow, summary
    from penstock.sim.table import text

    if args.seeds is not None or args.loads is not None:
        return _sweep(args)
    if args.parquet:
        pyarrow()  # said before the work, rather than after it
    command = _command(args)
    studies = list(_studies(args))
    documents = [summary(study, command, _requested(args), args.by) for study in studies]
    with Writer() as writer:
        if args.out is not None:
            places = directories(args.out, [study.name for study in studies])
            for study, document, directory in zip(studies, documents, places, strict=True):
                writer.results(directory, study, document, parquet=args.parquet)
        if args.report is not None:
            from penstock.sim.report import page

            writer.text(args.report, page(studies, command, args.window))
    _tell_of_window(args.window, studies)
    if args.json:
        from penstock.cli.text import json_text

        for document in documents:
            print(json_text(document))
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for n, study in enumerate(studies):
        if n:
            print()
        if not args.quiet:
            print("\n".join(_head(study)))
            print()
        elif len(studies) > 1:
            print(f"{safe(study.name)}:")
        print("\n".join(text(study, width)))
        if args.by is not None:
            from penstock.sim import groups

            print()
            print("\n".join(safe(line) for line in groups.text(study, args.by)))
        if not args.quiet and study.denials:
            print()
            print("\n".join(_denials(study)))
    return 0


def _problem(args: argparse.Namespace) -> str | None:
    """The first contradiction between options, as a message."""
    synthetic = [name for name in ("lublin", "mix") if getattr(args, name) is not None]
    if args.traces and synthetic:
        return f"a trace and --{synthetic[0]} exclude each other"
    if len(synthetic) > 1:
        return "--lublin and --mix exclude each other"
    needs = (
        ("limit", bool(args.traces), "a trace"),
        ("preceding", bool(args.traces), "a trace"),
        ("by", bool(args.traces), "a trace: models have no users"),
        ("jobs", args.mix is not None, "--mix"),
        ("load", not args.traces, "--lublin or --mix (a trace has --pace)"),
        ("loads", not args.traces, "--lublin or --mix (a trace has --pace)"),
        ("seeds", _by_chance(args), "a model, --user-estimates or --mtbf: nothing else is random"),
        ("pace", bool(args.traces), "a trace (--lublin and --mix have --load)"),
        ("nodes", args.cores is not None, "--cores"),
        ("gpus", args.nodes is not None, "--nodes"),
        ("estimate_every", args.estimates, "--estimates"),
        ("mttr", args.mtbf is not None, "--mtbf"),
        ("parquet", args.out is not None, "--out"),
        ("window", args.report is not None, "--report"),
    )
    for name, there, what in needs:
        if getattr(args, name) not in (None, False) and not there:
            return f"--{name.replace('_', '-')} needs {what}"
    if args.loads is not None and args.load is not None:
        return "--loads and --load exclude each other"
    for name in ("out", "report", "by"):
        if getattr(args, name) is not None and (args.seeds or args.loads):
            return f"--seeds and --loads exclude --{name}: they show means"
    if args.inventory is not None and args.cores is not None:
        return "--inventory and --cores exclude each other"
    if args.failures is not None and args.mtbf is not None:
        return "--failures and --mtbf exclude each other"
    nodes = args.inventory is not None or args.nodes is not None
    for name in ("failures", "mtbf", "whole_nodes"):
        if getattr(args, name) and not nodes:
            option = name.replace("_", "-")
            return f"--{option} needs nodes: --nodes and --cores, or --inventory"
    return _output_problem(args)


def _output_problem(args: argparse.Namespace) -> str | None:
    """The first conflict of an output path with an existing file or an input, as a message."""
    from penstock.sim.files import directories, is_free, overwritten

    if args.report is not None and not is_free(args.report):
        return f"--report `{args.report}` is not a regular file: it is left as it is"
    if args.out is not None and args.out.exists() and not args.out.is_dir():
        return f"--out `{args.out}` is a file: expected a directory"
    names = [path.name for path in args.traces] or [""]
    results = [] if args.out is None else directories(args.out, names)
    if found := overwritten(args.report, results, _inputs(args)):
        path, what = found
        option = "--report" if path == args.report else "--out"
        return f"{option}: `{path}` {what}: nothing was done\nhint: name another place"
    return None


def _inputs(args: argparse.Namespace) -> Iterator[Path]:
    """The files that are read."""
    yield from args.traces
    if args.failures is not None:
        yield args.failures
    if args.inventory is not None:
        from penstock.sim.machine import read_with

        yield args.inventory
        if (named := read_with(args.inventory)) is not None:
            yield named


def _studies(args: argparse.Namespace) -> Iterator[Study]:
    """Simulates the requested workloads one by one."""
    from penstock.sim import runs
    from penstock.sim.progress import Bar

    machine = _machine(args)
    for workload in _workloads(args, machine):
        shown = sys.stderr is not None and sys.stderr.isatty() and not args.quiet
        progress: Progress = Bar(sys.stderr, workload.unix_start) if shown else runs.Silent()
        try:
            yield runs.study(
                workload,
                machine,
                _options(args, machine),
                policies=args.policy,
                selections=args.selection,
                progress=progress,
            )
        finally:
            progress.finish()


def _sweep(args: argparse.Namespace) -> int:
    """Shows the means of several seeds, at several loads."""
    from penstock.cli.text import json_text, safe
    from penstock.sim.sweep import sweep, text

    machine = _machine(args)
    seeds = range(_seed(args), _seed(args) + (args.seeds or 1))
    # The number of traces does not depend on load and seed.
    for place in range(max(len(args.traces), 1)):

        def make(load: float | None, seed: int, place: int = place) -> Workload:
            chosen = {**vars(args), "seed": seed, "traces": args.traces[place : place + 1]}
            chosen |= {} if load is None else {"load": load}
            return next(_workloads(argparse.Namespace(**chosen), machine))

        points = sweep(
            make,
            machine,
            _options(args, machine),
            policies=args.policy,
            selections=args.selection,
            loads=args.loads or [None],
            seeds=seeds,
        )
        if args.json:
            for point in points:
                print(json_text({"name": make(None, seeds[0]).name, **point.row()}))
            continue
        if not args.quiet:
            name = safe(make(None, seeds[0]).name)
            many = f"{len(seeds)} seed{'s' * (len(seeds) > 1)}"
            print(f"{name}: {many}, on {safe(machine.text)}\n")
        print("\n".join(text(points)))
    return 0


def _machine(args: argparse.Namespace) -> Machine:
    from penstock.sim import machine
    from penstock.sim.workload import DEFAULT_CORES

    if args.inventory is not None:
        return machine.from_file(args.inventory)
    if args.nodes is not None:
        return machine.simulated(args.nodes, args.cores, args.gpus or 0)
    return machine.pool(args.cores or (None if args.traces else DEFAULT_CORES))


def _workloads(args: argparse.Namespace, machine: Machine) -> Iterator[Workload]:
    from penstock.sim.workload import Synthesis, load, synthesize

    for path in args.traces:
        workload = load(path, args.limit, preceding=args.preceding)
        if args.pace is not None or args.user_estimates is not None:
            workload = workload.vary(
                pace=args.pace or 1.0, estimates=args.user_estimates, seed=_seed(args)
            )
        yield workload
    if not args.traces:
        how = Synthesis(
            jobs=args.lublin or args.jobs or DEFAULT_JOBS,
            seed=_seed(args),
            spec=args.mix,
            load=_load(args),
            estimates=args.user_estimates or "modal",
        )
        yield synthesize(how, machine.cores, machine.cores_per_node)


def _options(args: argparse.Namespace, machine: Machine) -> Options:
    from penstock.sim.failures import load
    from penstock.sim.runs import Options

    resources = machine.resources
    listed = [] if args.failures is None or resources is None else load(args.failures, resources)
    return Options(
        whole_nodes=args.whole_nodes,
        kill_at_limit=args.kill_at_limit,
        estimates=args.estimates,
        estimate_every=args.estimate_every or 1,
        requeue=not args.no_requeue,
        failures=tuple(listed),
        mtbf=args.mtbf,
        mttr=args.mttr or Options.mttr,
        seed=_seed(args),
    )


def _seed(args: argparse.Namespace) -> int:
    seed: int = DEFAULT_SEED if args.seed is None else args.seed
    return seed


def _requested(args: argparse.Namespace) -> dict[str, Any]:
    """The given options and the seed in use, for the summary."""
    plain = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(args).items()
        if name
        not in ("clock", "traces", "out", "parquet", "report", "window", "json", "quiet", "by")
        and name not in ("seeds", "loads")
    }
    return plain | {
        "load": _load(args),
        "traces": [str(path) for path in args.traces],
        "lublin": None if args.traces or args.mix else args.lublin or DEFAULT_JOBS,
        "policy": [str(policy) for policy in args.policy],
        "seed": _seed(args) if _by_chance(args) else args.seed,
    }


def _load(args: argparse.Namespace) -> float | None:
    """The requested load; a default without a named workload."""
    chosen = not args.traces and args.lublin is None and args.mix is None and args.load is None
    return DEFAULT_LOAD if chosen else args.load


def _by_chance(args: argparse.Namespace) -> bool:
    """Whether anything depends on the seed."""
    return not args.traces or args.mtbf is not None or args.user_estimates is not None


def _command(args: argparse.Namespace) -> list[str]:
    """An equivalent command line: the options that differ from the defaults."""
    from penstock.sim.units import plain

    is_snapshot = args.from_flux is not None
    words = ["penstock", "sim", *([] if is_snapshot else map(str, args.traces))]
    if not args.traces and args.mix is None:
        words += ["--lublin", str(args.lublin or DEFAULT_JOBS)]
        if args.load is None and (load := _load(args)) is not None:
            words += ["--load", f"{load:g}"]
    for name, value in vars(args).items():
        option = f"--{name.replace('_', '-')}"
        if (
            name in ("clock", "traces", "lublin", "json", "quiet")
            or (name == "inventory" and is_snapshot)
            or value is None
            or value is False
        ):
            continue
        if name in ("policy", "selection"):
            words += [option, ",".join(map(str, value))]
        elif name == "window":
            words += [option, ":".join(map(plain, value))]
        elif value is True:
            words.append(option)
        else:
            words += [option, plain(value) if isinstance(value, float) else str(value)]
    if args.seed is None and _by_chance(args):
        words += ["--seed", str(DEFAULT_SEED)]
    return words


def _tell_of_window(window: tuple[float, float] | None, studies: list[Study]) -> None:
    """Reports the workloads that have no job in the window of the report."""
    if window is None:
        return
    from penstock.cli.text import safe
    from penstock.sim.figures import nothing_in

    for study in studies:
        if nothing := nothing_in(study, window):
            print(f"penstock sim: --window: {safe(study.name)}: {nothing}", file=sys.stderr)


def _head(study: Study) -> list[str]:
    """The lines above the table: the workload, the machine and the assumptions."""
    from penstock.cli.text import safe
    from penstock.sim.units import count, duration

    workload = study.workload
    over = duration((workload.last_submit or 0.0) - (workload.first_submit or 0.0))
    what = study.machine.text
    if study.machine.resources is None and study.machine.pool_cores is None:
        what += f", {count(study.cores)} of them"
    jobs = f"{count(workload.jobs)} job{'' if workload.jobs == 1 else 's'}"
    lines = [f"{safe(study.name)}: {jobs} over {over}, on {what}"]
    return lines + [f"  assumed: {safe(said)}" for said in study.assumptions]


def _denials(study: Study) -> list[str]:
    """Why jobs were denied, as far as that is worth reading."""
    from penstock.cli.text import safe

    said = study.denials
    lines = [f"denied: {safe(reason)}" for reason in said[:MAX_SHOWN_DENIALS]]
    more = len(said) - len(lines)
    return lines + [f"denied: for {more:,} reasons more (summary.json has them)"] * bool(more)


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a path, found nothing")
    return Path(text)


def _positive(text: str, most: int = MAX_COUNT) -> int:
    number = whole(text)
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(f"expected 1 to {most}, found `{text}`")
    return number


def _synthetic_jobs(text: str) -> int:
    return _positive(text, MAX_SYNTHETIC_JOBS)


def _seed_number(text: str) -> int:
    number = whole(text)
    if number >= 1 << 64:
        raise argparse.ArgumentTypeError(f"expected a number below 2^64, found `{text}`")
    return number


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found `{text}`")
    return number


def _time(text: str) -> float:
    duration = seconds(text)
    if duration <= 0:
        raise argparse.ArgumentTypeError(f"expected a duration above 0, found `{text}`")
    return duration


def _window(text: str) -> tuple[float, float]:
    low, separator, high = text.partition(":")
    if not separator:
        raise argparse.ArgumentTypeError(f"expected FROM:TO, as in `2d:3d`, found `{text}`")
    try:
        window = seconds(low), seconds(high)
    except Error as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if window[0] >= window[1]:
        raise argparse.ArgumentTypeError(f"expected it to end after it begins, found `{text}`")
    return window


def _estimates(text: str) -> str:
    from penstock.sim.workload import Workload

    try:
        Workload.lublin(0, cores=1, seed=0, estimates=text)
    except Error as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _loads(text: str) -> list[float]:
    return [_above_zero(load) for load in _names(text)]


def _policies(text: str) -> list[str | Policy]:
    return [_policy(name) for name in _names(text)]


def _policy(text: str) -> str | Policy:
    if ".py:" not in text:
        return queue_policy(text)
    from penstock.errors import PolicyError
    from penstock.sim.policy import load

    try:
        return load(text)
    except PolicyError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _selections(text: str) -> list[str]:
    names = _names(text)
    for name in names:
        if name not in get_args(Selection):
            expected = ", ".join(get_args(Selection))
            raise argparse.ArgumentTypeError(f"expected {expected}, found `{name}`")
    return names


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("expected at least one name")
    twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if twice is not None:
        raise argparse.ArgumentTypeError(f"`{twice}` is named twice")
    return names
