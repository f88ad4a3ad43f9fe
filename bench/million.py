"""An instance with a million pending jobs: `make bench-instance`, `python bench/million.py`.

Fills a simulated machine but for a core of each node, submits copies of a job that requires whole
nodes, and measures an instance with a durable store behind this queue. Prints a row for each
measurement: figure, target and verdict. A client of its own process pings the job manager during
requests about many jobs: its slowest ping is the time for which others wait.

With `--hyperqueue` its wheel is measured in the same run; with `--curves` the cost of a job is
plotted over the length of the queue and over the number of nodes, and that of a start over the
number of jobs in the store, as SVG, with the slopes.

Figures depend on the load of the machine, which the first line tells.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curves import Curve, plot, slope
from exec import silenced

from instance import make_directory, running
from penstock.client import Client
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

NODES = 1000
CORES = 16
OPTIONS = ("--nodes", str(NODES), "--cores", str(CORES))
# Urgent jobs, one at a time.
URGENT_JOBS = 200
# Jobs whose urgency is changed in one request.
CHANGED_JOBS = 100_000
# The most jobs of a measurement for a point of a curve, of which there are many.
CURVE_COPIES = 20_000
# Rows of a page of a list.
PAGE_ROWS = 100
CALLS = 20
# The allocator returns pages a second after they were freed.
RETURN_S = 2.0
# Measurements of a rate: the median counts, of a point of a curve the one with the least CPU time.
RUNS = 3
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
EXPEDITE = 31
HOLD = 0


def jobspec(cores: int, run_s: float, **options: Any) -> dict[str, Any]:
    """A jobspec of one task whose simulated run takes `run_s` seconds."""
    duration = {"exec.test.run_duration": f"{run_s}s"}
    return from_command(
        ["true"], environment={}, cwd="/", duration=max(60.0, run_s), cores_per_task=cores,
        setattr=duration, **options,
    )  # fmt: skip


URGENT = jobspec(1, 0.0)
PENDING = jobspec(CORES, 0.0)


def show(name: str, figure: str, target: str, *, met: bool) -> None:
    """Prints a row."""
    verdict = "met" if met else "missed"
    print(f"| {name} | {figure} | {target} | {verdict} |", flush=True)


def rss(pid: int) -> int:
    """Resident memory of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def stored(state: str) -> int:
    """The size of the instance's database, in bytes."""
    path = next(path for path in Path(state).rglob("*.sqlite"))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        size = database.execute("PRAGMA page_size").fetchone()[0]
    return int(pages) * int(size)


def ping(uri: str, pipe: Connection) -> None:
    """Pings the job manager until the other end of a pipe sends something; sends the times."""
    times = []
    with Client(uri) as client:
        pipe.send(None)
        while not pipe.poll():
            times.append(client.ping("job-manager"))
            time.sleep(0.001)
    pipe.send(times)


@contextmanager
def pinging(uri: str) -> Iterator[list[float]]:
    """Pings from another process meanwhile; the list has the times in seconds after the block."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=ping, args=(uri, there))
    process.start()
    here.recv()
    times: list[float] = []
    yield times
    here.send(None)
    times += here.recv()
    process.join()


def timed(call: Callable[[], object]) -> float:
    """The time of a call in seconds."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def wait_for_scheduler(client: Client) -> None:
    """Returns when resources are requested for every pending job, of large submissions, too."""
    while client.stats()["sched"]["queued"]:
        time.sleep(0.05)


def measure_calls(client: Client, ids: list[int]) -> None:
    """The rows of requests about few jobs."""
    middle = ids[len(ids) // 2]
    calls: list[tuple[str, float, Callable[[], object]]] = [
        ("`explain` of a job in the middle", 0.05, lambda: client.explain([middle])),
        ("`estimate` of 100", 0.05, lambda: client.estimate(max_entries=100)),
        ("`jobs` of 10", 0.005, lambda: client.job_rows(max_entries=10)),
        ("`info`", 0.005, lambda: client.job_row(middle)),
    ]
    for name, target, call in calls:
        times = [timed(call) for _ in range(CALLS)]
        median = statistics.median(times)
        figure = f"{median * 1e3:.1f} ms, longest {max(times) * 1e3:.0f} ms"
        show(name, figure, f"{target * 1e3:.0f} ms", met=median <= target)


def measure_urgent(client: Client) -> None:
    """The row of urgent jobs, one at a time."""

    def run() -> None:
        client.wait_row(client.submit(URGENT, urgency=EXPEDITE))

    times = [timed(run) for _ in range(URGENT_JOBS)]
    median, longest = statistics.median(times), max(times)
    figure = f"{median * 1e3:.1f} ms, longest {longest * 1e3:.0f} ms"
    name = "urgent one-core job, submit to inactive, median and longest"
    show(name, figure, "2 ms, 50 ms", met=median <= 0.002 and longest <= 0.05)


def measure_rate(client: Client, pid: int, jobs: int) -> tuple[float, float]:
    """Jobs/s of urgent copies from submit to inactive, and the daemon's CPU seconds for each."""
    began, before = time.perf_counter(), cpu_s(pid)
    ids = client.submit(URGENT, urgency=EXPEDITE, count=jobs)
    for _ in client.wait_rows(ids):
        pass
    return jobs / (time.perf_counter() - began), (cpu_s(pid) - before) / jobs


def measure_median_rate(client: Client, pid: int, jobs: int) -> tuple[float, float]:
    """The medians of several measurements of a rate, and of the CPU seconds of a job."""
    rates, costs = zip(*(measure_rate(client, pid, jobs) for _ in range(RUNS)), strict=True)
    return statistics.median(rates), statistics.median(costs)


def measure_bulk(
    client: Client, uri: str, name: str, target_s: float, call: Callable[[], object]
) -> None:
    """The row of a request about many jobs, and of the wait of another client."""
    with pinging(uri) as times:
        took = timed(call)
    waited = max(times)
    figure = f"{took:.2f} s, others wait {waited * 1e3:.0f} ms"
    met = took <= target_s and waited <= 0.05
    show(name, figure, f"{target_s:g} s, others wait 50 ms", met=met)
    client.ping("job-manager")


def measure_pages(client: Client, uri: str, jobs: int) -> None:
    """The rows of pages in the middle of the inactive jobs, by order and filter."""
    inactive = {"states": ["inactive"]}
    of_user = {"and": [inactive, {"userid": [os.getuid()]}, {"results": ["canceled"]}]}
    # The name of all jobs.
    named = {"name": ["true"]}
    by_name = {"and": [inactive, named]}
    by_unused_name = {"and": [inactive, {"name": ["unused"]}]}
    by_other_name = {"and": [inactive, {"not": [named]}]}
    by_submission = {"and": [inactive, {"t_submit": ["<5"]}]}
    by_host = {"and": [inactive, {"hostlist": ["unused"]}]}
    for name, constraint, order, rows in [
        ("by state", inactive, "state", PAGE_ROWS),
        ("newest first", inactive, "newest", PAGE_ROWS),
        ("of a user, by result", of_user, "state", PAGE_ROWS),
        ("by the name of all", by_name, "state", PAGE_ROWS),
        ("by the name of all, newest first", by_name, "newest", PAGE_ROWS),
        ("by an unused name", by_unused_name, "state", 0),
        ("by any other name", by_other_name, "state", 0),
        ("by the time of submission", by_submission, "state", 0),
        ("by an unused node, whose rows are read", by_host, "state", 0),
        ("by an unused node, newest first", by_host, "newest", 0),
    ]:
        with pinging(uri) as times:
            began = time.perf_counter()
            found = client.job_rows(
                constraint=constraint, max_entries=PAGE_ROWS, order=order, skip=jobs // 2
            )
            took = time.perf_counter() - began
        assert len(found) == rows
        figure = f"{took * 1e3:.0f} ms, others wait {max(times) * 1e3:.0f} ms"
        title = f"page of {PAGE_ROWS} in the middle of the inactive jobs, {name}"
        show(title, figure, "others wait 50 ms", met=max(times) <= 0.05)


def measure_depths(depths: list[int], copies: int) -> list[tuple[float, float]]:
    """Prints the cost of a job behind each number of pending jobs; returns it in nanoseconds."""
    state = make_directory("penstock-million-")
    points = []
    print("| pending jobs | jobs/s | daemon CPU a job | verdict |\n|---|---|---|---|")
    with running(*OPTIONS, state=state) as (client, daemon):
        client.submit(jobspec(CORES - 1, 86_400.0), count=NODES)
        pending = 0
        for depth in depths:
            if depth > pending:
                client.submit(PENDING, count=depth - pending)
                pending = depth
            wait_for_scheduler(client)
            points.append((float(depth), measure_cost(f"{depth:,}", client, daemon.pid, copies)))
    return points


def measure_nodes(counts: list[int], copies: int) -> list[tuple[float, float]]:
    """Prints the cost of a job on each number of nodes; returns it in nanoseconds."""
    points = []
    print("| nodes | jobs/s | daemon CPU a job | verdict |\n|---|---|---|---|")
    for nodes in counts:
        with running("--nodes", str(nodes), "--cores", str(CORES)) as (client, daemon):
            points.append((float(nodes), measure_cost(f"{nodes:,}", client, daemon.pid, copies)))
    return points


def is_fast(rate: float, cpu_s: float) -> bool:
    """Whether simulated jobs meet their target, on any number of nodes."""
    return rate >= 30_000 and cpu_s <= 35e-6


def measure_cost(name: str, client: Client, pid: int, copies: int) -> float:
    """Prints a row of a curve; returns the daemon's CPU time of a job in nanoseconds."""
    runs = [measure_rate(client, pid, copies) for _ in range(RUNS)]
    rate, cpu = max(run[0] for run in runs), min(run[1] for run in runs)
    verdict = "met" if is_fast(rate, cpu) else "missed"
    print(f"| {name} | {rate:,.0f} jobs/s | {cpu * 1e6:.1f} us | {verdict} |", flush=True)
    return cpu * 1e9


def measure_restarts(counts: list[int]) -> dict[str, list[tuple[float, float]]]:
    """Prints the CPU time of a start after a SIGKILL, until the job manager answers a ping.

    Returns it in nanoseconds by the number of jobs in the store, of pending jobs and of ended ones.
    """
    curves: dict[str, list[tuple[float, float]]] = {"pending jobs": [], "ended jobs": []}
    print("| jobs in the store | start | daemon CPU |\n|---|---|---|")
    for count in counts:
        for name, points in curves.items():
            state = make_directory("penstock-million-")
            with running(*OPTIONS, state=state) as (client, daemon):
                client.submit(PENDING, count=count, urgency=HOLD)
                if name == "ended jobs":
                    client.cancel()
                    client.queue_drain()
                daemon.kill()
                daemon.wait()
            began = time.perf_counter()
            with running(*OPTIONS, state=state) as (client, daemon):
                client.ping("job-manager")
                took, cpu = time.perf_counter() - began, cpu_s(daemon.pid)
            print(f"| {count:,} {name} | {took:.2f} s | {cpu:.2f} s |", flush=True)
            points.append((float(count), cpu * 1e9))
    return curves


def draw(
    directory: Path, name: str, curve: Curve, series: dict[str, list[tuple[float, float]]]
) -> None:
    """Writes a curve as SVG, and prints the slope of each series."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.svg"
    path.write_text(plot(curve, series))
    for label, points in series.items():
        print(f"\n{path}: slope {slope(points):.2f} ({label})", flush=True)
    print()


def measure_curves(directory: Path, jobs: int, copies: int) -> None:
    """The curves over the length of the queue and the number of nodes."""
    depths = [depth for depth in (1_000, 10_000, 100_000, 1_000_000) if depth <= jobs]
    title = f"A job from submit to inactive, {NODES:,} nodes"
    costs = {"daemon CPU a job": measure_depths(depths, copies)}
    draw(directory, "queue", (title, "pending jobs", True), costs)
    title = "A job from submit to inactive, empty queue"
    costs = {"daemon CPU a job": measure_nodes([16, 1_000, 100_000], copies)}
    draw(directory, "instance-nodes", (title, "nodes", True), costs)
    title = "A start after a SIGKILL: daemon CPU until the first answer"
    draw(directory, "restart", (title, "jobs in the store", True), measure_restarts(depths))


# HyperQueue's rate on the machine for which the targets were set: next to it, its rate here tells
# how fast this one is.
HYPERQUEUE_RATE = 277_000
# HyperQueue rejects the message of a larger job.
MAX_HYPERQUEUE_TASKS = 100_000


def submit_to_hyperqueue(tasks: int, pipe: Connection) -> None:
    """Sends the tasks/s of a submission to a HyperQueue server, and its bytes a task."""
    from hyperqueue import Job, LocalCluster

    with silenced(), LocalCluster() as cluster:
        client = cluster.client()
        jobs = []
        for first in range(0, tasks, MAX_HYPERQUEUE_TASKS):
            job = Job()
            for _ in range(min(MAX_HYPERQUEUE_TASKS, tasks - first)):
                job.program(["true"])
            jobs.append(job)
        before = rss(os.getpid())
        began = time.perf_counter()
        for job in jobs:
            client.submit(job)
        took = time.perf_counter() - began
        pipe.send((tasks / took, (rss(os.getpid()) - before) / tasks))


def measure_hyperqueue(tasks: int) -> None:
    """The rows of HyperQueue, which keeps its tasks in memory alone."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=submit_to_hyperqueue, args=(tasks, there))
    process.start()
    # The child has its own: a read ends when the child does.
    there.close()
    rate, memory = here.recv()
    process.join()
    print(f"| HyperQueue: submit {tasks:,} tasks, not durable | {rate:,.0f} tasks/s | - | - |")
    speed = f"{rate / HYPERQUEUE_RATE:.2f} times that of the targets"
    print(f"| speed of this machine, by HyperQueue | {speed} | - | - |")
    print(f"| HyperQueue: memory per pending task | {memory:,.0f} B | - | - |", flush=True)


def measure_queue(jobs: int, copies: int) -> None:
    """The rows of one instance with a long queue."""
    state = make_directory("penstock-million-")
    uri = f"local://{state}/socket"
    with running(*OPTIONS, state=state) as (client, daemon):
        client.submit(jobspec(CORES - 1, 86_400.0), count=NODES)
        wait_for_scheduler(client)
        empty, empty_cpu = measure_median_rate(client, daemon.pid, copies)
        name = f"{copies:,} mock jobs, submit to inactive, with their rows; daemon CPU a job"
        figure = f"{empty:,.0f} jobs/s, {empty_cpu * 1e6:.0f} us"
        show(name, figure, "30,000 jobs/s, 35 us", met=is_fast(empty, empty_cpu))
        memory, disk = rss(daemon.pid), stored(state)
        with pinging(uri) as times:
            began = time.perf_counter()
            ids = client.submit(PENDING, count=jobs)
            rate = jobs / (time.perf_counter() - began)
        name = "submit copies through the client"
        figure = f"{rate:,.0f} jobs/s, others wait {max(times) * 1e3:.0f} ms"
        show(
            name,
            figure,
            "300,000 jobs/s, others wait 50 ms",
            met=rate >= 300_000 and max(times) <= 0.05,
        )
        wait_for_scheduler(client)
        each = (rss(daemon.pid) - memory) / jobs
        show("memory per pending job", f"{each:,.0f} B", "400 B", met=each <= 400)
        each = (stored(state) - disk) / jobs
        show("disk per pending job", f"{each:,.0f} B", "300 B", met=each <= 300)
        rate, cpu = measure_median_rate(client, daemon.pid, copies)
        figure = f"{rate:,.0f} jobs/s ({rate / empty - 1:+.0%}), {cpu * 1e6:.0f} us"
        show("the same behind the queue", figure, "within 10 %", met=rate >= 0.9 * empty)
        measure_urgent(client)
        measure_calls(client, ids)
        changed = ids[-CHANGED_JOBS:]
        name = f"`urgency` of {len(changed):,} jobs"
        measure_bulk(client, uri, name, 0.5, lambda: client.urgency(changed, 17))
        daemon.kill()
        daemon.wait()
    began = time.perf_counter()
    with running(*OPTIONS, state=state) as (client, daemon):
        client.wait_row(client.submit(URGENT, urgency=EXPEDITE))
        took = time.perf_counter() - began
        show("`kill -9`, start again, urgent job through", f"{took:.1f} s", "3 s", met=took <= 3)
        wait_for_scheduler(client)

        def cancel() -> None:
            client.cancel()
            client.queue_drain()

        measure_bulk(client, uri, "`cancel --all`", 5, cancel)
        time.sleep(RETURN_S)
        each = (rss(daemon.pid) - memory) / jobs
        show("memory per inactive job", f"{each:,.0f} B", "30 B", met=each <= 30)
        measure_pages(client, uri, jobs)
        measure_bulk(client, uri, "`purge`", 5, lambda: client.purge(force=True))
        time.sleep(RETURN_S)
        each = (rss(daemon.pid) - memory) / jobs
        show("memory per purged job", f"{each:,.0f} B", "none", met=each < 1)


def measure_administration(jobs: int) -> None:
    """The rows of requests about a long queue as a whole, in an instance with this queue."""
    state = make_directory("penstock-million-")
    uri = f"local://{state}/socket"
    config = Path(state) / "config.toml"
    config.write_text("[queues.batch]\n")
    with running(*OPTIONS, "--config", str(config), state=state) as (client, daemon):
        client.submit(jobspec(CORES - 1, 86_400.0, queue="batch"), count=NODES)
        wait_for_scheduler(client)
        memory = rss(daemon.pid)
        client.submit(jobspec(CORES, 0.0, queue="batch"), count=jobs)
        wait_for_scheduler(client)

        def start() -> None:
            client.queue_start("batch")
            wait_for_scheduler(client)

        def require() -> None:
            # No node has this property: every job can still run on every node.
            client.config_reload({"queues": {"batch": {"requires": ["^unused"]}}})
            wait_for_scheduler(client)

        stop = partial(client.queue_stop, "batch")
        measure_bulk(client, uri, "`queue stop`", 5, stop)
        measure_bulk(client, uri, "`queue start`, with the requests to the scheduler", 5, start)
        show_pending_memory(daemon.pid, memory, jobs, "after both")
        name = "`config reload` with another `requires`, with the requests to the scheduler"
        measure_bulk(client, uri, name, 10, require)
        show_pending_memory(daemon.pid, memory, jobs, "after it")


def show_pending_memory(pid: int, before: int, jobs: int, when: str) -> None:
    """The row of the memory of a pending job, some time later."""
    time.sleep(RETURN_S)
    each = (rss(pid) - before) / jobs
    show(f"memory per pending job, {when}", f"{each:,.0f} B", "400 B", met=each <= 400)


def measure_submissions(jobs: int, copies: int) -> None:
    """The rows of other submissions than equal copies, with and without a scheduler."""
    for words, options in (("", ("--sched", "none")), (", with the scheduler", ())):
        measure_jobspecs(words, options, jobs)
        measure_copies(words, options, copies)


def measure_jobspecs(words: str, options: tuple[str, ...], jobs: int) -> None:
    """The rows of submissions with a jobspec for each job, in an instance of their own."""
    state = make_directory("penstock-million-")
    uri = f"local://{state}/socket"
    with running(*OPTIONS, *options, state=state) as (client, daemon):
        fill_nodes(client, options)
        specs = [{"jobspec": jobspec(CORES, 0.0, name=f"job{i}")} for i in range(jobs)]
        payloads = [{"jobspec": PENDING}] * jobs
        calls: list[tuple[str, int, Callable[[], object]]] = [
            ("distinct jobspecs in bulk", 60_000, lambda: client.submit_many(specs)),
            (
                "one request per job, pipelined",
                30_000,
                lambda: client.call_many("job-ingest.submit", payloads),
            ),
        ]
        for name, target, call in calls:
            before = rss(daemon.pid)
            with pinging(uri) as times:
                rate = jobs / timed(call)
            waited = max(times)
            time.sleep(RETURN_S)
            each = (rss(daemon.pid) - before) / jobs
            figure = f"{rate:,.0f} jobs/s, others wait {waited * 1e3:.0f} ms, {each:,.0f} B a job"
            met = rate >= target and waited <= 0.05
            show(f"{name}{words}", figure, f"{target:,} jobs/s, others wait 50 ms", met=met)


def fill_nodes(client: Client, options: tuple[str, ...]) -> None:
    """Fills all cores with jobs if there is a scheduler, so that the measured jobs stay pending."""
    if not options:
        client.submit(jobspec(CORES, 86_400.0), count=NODES)
        wait_for_scheduler(client)
        while client.stats()["running"] < NODES:
            time.sleep(0.05)


def measure_copies(words: str, options: tuple[str, ...], copies: int) -> None:
    """The rows of copies by `--cc`, in an instance of their own."""
    state = make_directory("penstock-million-")
    with running(*OPTIONS, *options, state=state) as (client, _):
        fill_nodes(client, options)
        disk = stored(state)
        command = [
            sys.executable,
            "-m",
            "penstock",
            "submit",
            f"--cc=1-{copies}",
            "--env=-*",
            "echo",
            "{cc}",
        ]
        environment = {**os.environ, "PENSTOCK_URI": f"local://{state}/socket"}
        began = time.perf_counter()
        printed = subprocess.run(command, env=environment, check=True, capture_output=True)
        rate = copies / (time.perf_counter() - began)
        assert len(printed.stdout.splitlines()) == copies
        name = f"`penstock submit --cc=1-{copies}`, ids printed{words}"
        show(name, f"{rate:,.0f} jobs/s", "150,000 jobs/s", met=rate >= 150_000)
        each = (stored(state) - disk) / copies
        name = f"disk per pending job by `--cc`{words}"
        show(name, f"{each:,.0f} B", "300 B", met=each <= 300)


def main() -> None:
    """Measures and prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="pending jobs")
    parser.add_argument("--copies", type=int, default=50_000, help="jobs that run to their end")
    parser.add_argument("--submissions", type=int, default=50_000, help="jobs submitted singly")
    parser.add_argument(
        "--depths", type=int, nargs="+", help="only the cost of a job behind each of these queues"
    )
    parser.add_argument(
        "--administration", action="store_true", help="only the requests about the whole queue"
    )
    parser.add_argument("--hyperqueue", action="store_true", help="measure its wheel, too")
    parser.add_argument("--curves", type=Path, help="the directory for plots of the cost of a job")
    args = parser.parse_args()
    load, cpus = os.getloadavg()[0], os.cpu_count()
    print(f"{args.jobs:,} pending jobs, {cpus} cpus, load average {load:.1f} at the start\n")
    if args.depths:
        measure_depths(sorted(args.depths), min(args.copies, CURVE_COPIES))
        return
    print("| work | figure | target | verdict |\n|---|---|---|---|", flush=True)
    if args.administration:
        measure_administration(args.jobs)
        return
    measure_queue(args.jobs, args.copies)
    measure_administration(args.jobs)
    if args.submissions:
        measure_submissions(args.submissions, args.jobs)
    if args.hyperqueue:
        measure_hyperqueue(args.jobs)
    if args.curves:
        print()
        measure_curves(args.curves, args.jobs, min(args.copies, CURVE_COPIES))


if __name__ == "__main__":
    main()
