"""`penstock attach`: show a job's output, write to its tasks and signal them, as `run` does."""

from __future__ import annotations

import base64
import json
import os
import secrets
import select
import signal
import sys
import threading
import time
from argparse import ArgumentTypeError
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from errno import EAGAIN, EHOSTUNREACH, ENOENT, ENOSYS
from typing import TYPE_CHECKING, Any

from penstock._core import job_state, topic
from penstock.cli import terminal
from penstock.cli.ids import OneJobId
from penstock.cli.pending import pending_notice
from penstock.cli.rows import exit_code, reason
from penstock.cli.signals import handling_signals
from penstock.cli.text import id_text, safe
from penstock.client import Client
from penstock.client.responses import read_events
from penstock.errors import DetachedError, Error, RpcError
from penstock.jobspec import shell_option

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.cli.progress import Progress
    from penstock.clock import Clock
    from penstock.rows import JobRow

SUMMARY = """Show the output of a job, from its beginning to its end, and exit as `penstock run`.

Standard input goes to the tasks, if the job was submitted by `penstock run`. SIGTERM, SIGHUP,
SIGALRM, SIGUSR1 and SIGUSR2 are forwarded to the tasks of a job that has started. Before that
SIGTERM and SIGHUP end this command alone, as does a closed terminal at any time: the job continues.
In a terminal, Ctrl-C twice within 2 seconds cancels the job, and Ctrl-C Ctrl-Z detaches. If the job
has a terminal (`run --pty`), keys go to its program, and Ctrl-\\ detaches.

With `--task`, input and signals are for one task. Its output is shown without its label, and
without that of other tasks, if the job was submitted with `--label-io`: otherwise the output of
all tasks is shown."""

# Attempts to read the output of a job whose execution service has ended.
MAX_ATTEMPTS, RETRY_PAUSE_S = 50, 0.1
INTERRUPT_S = 2.0
ENDING = (signal.SIGTERM, signal.SIGHUP)
READ_BYTES = 64 * 1024
DETACH_KEY = b"\x1c"
FORWARDED = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "--read-only", action="store_true", help="do not read standard input, forward no signal"
    )
    parser.add_argument(
        "--task", type=_task_rank, metavar="RANK", help="show, write to and signal this task only"
    )
    parser.add_argument("-u", "--unbuffered", action="store_true", help="show output at once")
    parser.add_argument("id", action=OneJobId, metavar="ID")


def _task_rank(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"expected the rank of a task, found `{text}`")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        spec = json.loads(client.lookup(args.id, "jobspec")["jobspec"])
        attachment = Attachment(client, "attach", args.clock, unbuffered=args.unbuffered)
        if args.task is not None:
            (row,) = client.job_rows(ids=[args.id])
            if args.task >= row["ntasks"]:
                last = row["ntasks"] - 1
                raise Error(f"{id_text(args.id)} has no task {args.task}: expected 0 to {last}")
            attachment.choose_task(args.task, spec)
        attachment.begin([args.id])
        if args.read_only:
            with pending_notice("attach", client.uri, args.id):
                return attachment.follow()
        has_terminal = bool(shell_option(spec, "pty"))
        takes_input = shell_option(spec, "input.stdin.type") == "service"
        attachment.reads_input = has_terminal or takes_input
        attachment.has_terminal = has_terminal
        notice = pending_notice("attach", client.uri, args.id, is_raw=has_terminal)
        opened = terminal.opened()
        with opened as attachment.local_terminal, attachment.handling_signals(), notice:
            return attachment.run()


class Attachment:
    """Jobs that are shown, and that get the input and the signals of this process.

    Args:
        client: of the instance.
        verb: the command, for messages.
        clock: the time.
        unbuffered: show output with the least delay.
    """

    def __init__(self, client: Client, verb: str, clock: Clock, *, unbuffered: bool) -> None:
        self._client = client
        self._verb = verb
        self._has_submitted = verb == "run"
        self._clock = clock
        self._ids: Sequence[int] = []
        self._unbuffered = unbuffered
        # Bytes that were written, by job and stream.
        self._written: Counter[tuple[int, str]] = Counter()
        self._interrupted_at = -INTERRUPT_S
        self._is_cancelled = False
        # A signal that came before there were jobs.
        self._early: int | None = None
        self._is_detached = False
        self._task: int | None = None
        # By stream, what is left of labelled output when one task is chosen.
        self._selections: dict[str, TaskLines] = {}
        self.reads_input = False
        self.has_terminal = False
        # The descriptor of a terminal whose end is no signal to the jobs.
        self.local_terminal: int | None = None
        self.progress: Progress | None = None
        self.cancels_at_once = False

    def begin(self, ids: Sequence[int]) -> None:
        """Takes the jobs, which get a signal that has come before."""
        self._ids = ids
        if self._early is not None:
            self._handle(self._early, None)

    def choose_task(self, rank: int, spec: dict[str, Any]) -> None:
        """Chooses one task of the only job, whose jobspec this is."""
        self._task = rank
        labelled = {
            stream
            for stream in ("stdout", "stderr")
            if shell_option(spec, f"output.{stream}.label")
        }
        self._selections = {stream: TaskLines(rank) for stream in labelled}
        if not labelled:
            self._say("the output of all tasks is shown: the job was submitted without --label-io")

    def run(self) -> int:
        """Shows the output while input is passed on; returns the exit code."""
        try:
            with ExitStack() as stack:
                if self.has_terminal and terminal.is_terminal():
                    self._unbuffered = True
                    stack.enter_context(terminal.raw_mode())
                if self.reads_input and terminal.has_input():
                    stack.enter_context(self._passing_input_on())
                rows = self._show()
        except DetachedError:
            names = " ".join(id_text(job) for job in self._ids)
            self._say(f"detached: `penstock attach {names}` shows the rest")
            return 0
        code = self._code(rows)
        return 128 + signal.SIGINT if self._is_cancelled and code else code

    def follow(self) -> int:
        """Shows the output; returns the exit code."""
        return self._code(self._show())

    def _code(self, rows: list[JobRow]) -> int:
        for row in rows:
            text = reason(row)
            if row.get("exception_occurred") and text:
                self._say(f"{id_text(row['id'])}: {safe(text)}")
        return max(map(exit_code, rows), default=0)

    def _say(self, text: str) -> None:
        # Not by print: a signal may have come in the middle of one.
        with suppress(OSError):
            os.write(2, f"penstock {self._verb}: {text}\n".encode())

    # --- output

    def _show(self) -> list[JobRow]:
        """Shows the jobs' output until they have ended; returns their rows."""
        following = set(self._ids)
        rows: dict[int, JobRow] = {}
        # The errors of streams that have lost the execution service, by job.
        lost: dict[int, int] = {}
        # A service that is being started has connected when the job starts. For many jobs, this
        # would be a request for each.
        can_await_start = len(self._ids) == 1
        while True:
            awaited = None
            requests: dict[int | None, tuple[str, dict[str, Any]]] = {
                job: (topic.job_exec.OUTPUT, self._request(job)) for job in following
            }
            requests[None] = (topic.job_list.WAIT, {"ids": self._ids})
            read: Counter[tuple[int, str]] = Counter()
            with self._client.merge(requests) as parts:
                for job, part in parts:
                    if job is None:
                        if isinstance(part, RpcError):
                            raise part
                        ended = {row["id"]: row for row in part["jobs"]}
                        if self.progress is not None:
                            self.progress.count(
                                row for job, row in ended.items() if job not in rows
                            )
                        rows |= ended
                    elif not isinstance(part, RpcError):
                        self._write(job, part, read)
                    elif part.errno == EHOSTUNREACH or (part.errno == ENOSYS and job in lost):
                        lost[job] = EHOSTUNREACH
                        break
                    elif part.errno == ENOSYS and can_await_start:
                        can_await_start, awaited = False, job
                        break
                    elif part.errno == ENOSYS:
                        # Simulated execution, for example.
                        lost[job] = ENOSYS
                        following.discard(job)
                    elif part.errno != ENOENT:
                        text = f"{id_text(job)}: its output is not shown: {safe(str(part))}"
                        print(f"penstock: {text}", file=sys.stderr)
                    # Otherwise nothing is retained, because the output went to a file.
                else:
                    lost = {job: errnum for job, errnum in lost.items() if job not in following}
                    break
            if awaited is not None:
                _wait_for_start(self._client, awaited)
                continue
            time.sleep(RETRY_PAUSE_S)
            if all(
                row["state"] == job_state.INACTIVE for row in self._client.job_rows(ids=self._ids)
            ):
                following.clear()
        for job, errnum in lost.items():
            self._show_rest(job, MAX_ATTEMPTS if errnum == EHOSTUNREACH else 1)
        return list(rows.values())

    def _request(self, job: int, *, follow: bool = True) -> dict[str, Any]:
        streams = ["stdout", "stderr"]
        return {"id": job, "follow": follow, "streams": streams, "unbuffered": self._unbuffered}

    def _show_rest(self, job: int, attempts: int) -> None:
        """Shows the output of an ended job whose execution service was lost."""
        for attempt in range(attempts):
            time.sleep(RETRY_PAUSE_S if attempt else 0.0)
            read: Counter[tuple[int, str]] = Counter()
            call = (topic.job_exec.OUTPUT, self._request(job, follow=False))
            errnum = 0
            for _, part in self._client.merge({job: call}):
                if isinstance(part, RpcError):
                    errnum = part.errno or 0
                else:
                    self._write(job, part, read)
            if errnum not in (EHOSTUNREACH, ENOSYS):
                return

    def _write(self, job: int, part: dict[str, Any], read: Counter[tuple[int, str]]) -> None:
        """Writes what is new of a part of the output, after `read` bytes."""
        key = (job, part["stream"])
        data = base64.b64decode(part["data"])
        new = data[max(self._written[key] - read[key], 0) :]
        read[key] += len(data)
        self._written[key] += len(new)
        if part["stream"] in self._selections:
            new = self._selections[part["stream"]].select(new)
        file = (sys.stdout if part["stream"] == "stdout" else sys.stderr).buffer
        if self.progress is not None and new:
            self.progress.clear()
        try:
            file.write(new)
            file.flush()
        except BrokenPipeError:
            if self._has_submitted:
                # The reader of the output has closed it: the jobs end as a pipeline would.
                self._cancel("the reader of the output has gone")
            raise

    # --- signals

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Has signals cancel the jobs, or passes them on, instead of ending this process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [*FORWARDED, signal.SIGINT]
        if terminal.is_terminal():
            numbers.append(signal.SIGTSTP)
        if self.has_terminal:
            numbers.append(signal.SIGWINCH)
        with handling_signals(self._handle, numbers, client=self._client):
            yield

    def _handle(self, number: int, _frame: object) -> None:
        if not self._ids and number != signal.SIGWINCH:
            if self._early is not None:
                raise SystemExit(128 + number)
            self._early = number
        elif number == signal.SIGINT:
            self._interrupt(number)
        elif number == signal.SIGTSTP:
            self._stop()
        elif number == signal.SIGWINCH:
            self._resize()
        else:
            self._forward(number)

    def _interrupt(self, number: int) -> None:
        if self._is_detached:
            raise DetachedError
        if not terminal.is_terminal() and not self.cancels_at_once:
            self._forward(number)
            return
        now = self._clock.monotonic()
        is_second = now - self._interrupted_at <= INTERRUPT_S
        self._interrupted_at = now
        if self._is_cancelled:
            raise KeyboardInterrupt
        if not is_second and not self.cancels_at_once:
            self._say("Ctrl-C again within 2 seconds to cancel, Ctrl-Z to detach")
            return
        self._is_cancelled = True
        self._say("interrupted: cancelling (again to give up)")
        self._cancel("interrupted")

    def _stop(self) -> None:
        if self._clock.monotonic() - self._interrupted_at <= INTERRUPT_S:
            raise DetachedError
        os.kill(os.getpid(), signal.SIGSTOP)

    def _forward(self, number: int) -> None:
        if number == signal.SIGHUP and self._is_hung_up():
            self._leave(number)
        started = set(self._ids)
        with suppress(Error, OSError), Client(self._client.uri) as client:
            if number in ENDING:
                started = _started(client, self._ids)
                unstarted = [job for job in self._ids if job not in started]
                if unstarted and self._has_submitted:
                    # A job without tasks ends as its tasks would. It may start until then.
                    with suppress(RpcError):
                        client.cancel(unstarted, note=f"signal {number}")
            if started and self._task is not None:
                self._signal_task(client, self._task, number)
            elif started:
                client.kill(sorted(started), number)
        if not started and not self._has_submitted:
            self._leave(number)

    def _is_hung_up(self) -> bool:
        """Whether the local terminal was closed, which is no end of the input of others' jobs."""
        return self.local_terminal is not None and not os.isatty(self.local_terminal)

    def _leave(self, number: int) -> None:
        """Ends this process by a signal, and not the jobs, which others have submitted."""
        self._say(f"signal {number}: the job continues")
        raise SystemExit(128 + number)

    def _signal_task(self, client: Client, task: int, number: int) -> None:
        (job,) = self._ids
        try:
            client.rpc(topic.job_exec.SIGNAL, {"id": job, "task": task, "signum": number})
        except RpcError as error:
            self._say(f"signal {number}: {safe(str(error))}")

    def _resize(self) -> None:
        with suppress(Error, OSError), Client(self._client.uri) as client:
            self._send_window(client)

    def _send_window(self, client: Client) -> None:
        if self.has_terminal and (size := terminal.window()):
            for job in self._ids:
                client.rpc(topic.job_exec.RESIZE, {"id": job, **size._asdict()})

    def _cancel(self, note: str) -> None:
        """Cancels the jobs over a connection of its own: the other one is in use."""
        with Client(self._client.uri) as client:
            client.cancel(self._ids, note=note)

    # --- input

    @contextmanager
    def _passing_input_on(self) -> Iterator[None]:
        (job,) = self._ids
        ended = threading.Event()
        reader, writer = os.pipe()
        thread = threading.Thread(target=self._pass_input_on, args=[job, ended, reader])
        thread.daemon = True
        # Signals are handled by the main thread, which must be the one that they interrupt.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            yield
        finally:
            ended.set()
            os.close(writer)

    def _pass_input_on(self, job: int, ended: threading.Event, wake: int) -> None:
        with suppress(Error, OSError), Client(self._client.uri) as client:
            if not _wait_for_start(client, job):
                return
            with suppress(RpcError):
                self._send_window(client)
            number, offset = secrets.randbits(48), 0
            while True:
                data = _read(ended, wake)
                if data is None or (not data and self._is_hung_up()):
                    return
                if self.has_terminal and terminal.is_terminal() and DETACH_KEY in data:
                    self._is_detached = True
                    os.kill(os.getpid(), signal.SIGINT)
                    return
                request = {
                    "id": job,
                    "writer": number,
                    "offset": offset,
                    "data": base64.b64encode(data).decode(),
                    "end": not data,
                }
                if self._task is not None:
                    request["task"] = self._task
                if not _send(client, request, ended) or not data:
                    return
                offset += len(data)


class TaskLines:
    """The lines of one task in labelled output, without their labels.

    Args:
        rank: of the task.
    """

    def __init__(self, rank: int) -> None:
        self._label = f"{rank}: ".encode()
        # The begin of a line that is too short to tell whose it is.
        self._begin = b""
        # Whether the line that has begun is the task's; None at the begin of a line.
        self._is_own: bool | None = None

    def select(self, data: bytes) -> bytes:
        """The part of further output that is the task's."""
        selected = bytearray()
        rest, self._begin = self._begin + data, b""
        while rest:
            line, end, rest = rest.partition(b"\n")
            line += end
            if self._is_own is None:
                if not end and len(line) < len(self._label) and self._label.startswith(line):
                    self._begin = line
                    break
                self._is_own = line.startswith(self._label)
                line = line.removeprefix(self._label)
            if self._is_own:
                selected += line
            if end:
                self._is_own = None
        return bytes(selected)


def _started(client: Client, jobs: Sequence[int]) -> set[int]:
    """The jobs whose tasks have started, and those of which the instance does not tell.

    A job in the state RUN may not have started: it has its resources, and its prolog runs.
    """
    states: dict[int, int] = {}
    # If one job is unknown, no row is sent.
    with suppress(RpcError):
        states = {row["id"]: row["state"] for row in client.job_rows(ids=jobs, attrs=["state"])}
    started = {job for job, state in states.items() if state > job_state.RUN}
    unknown = [job for job in jobs if states.get(job, job_state.RUN) == job_state.RUN]
    lookups = [{"id": job, "keys": ["eventlog"], "flags": 0} for job in unknown]
    responses = client.call_many(topic.job_info.LOOKUP, lookups)
    for job, response in zip(unknown, responses, strict=True):
        if isinstance(response, RpcError) or any(
            event["name"] == "start" for event in read_events(response["eventlog"])
        ):
            started.add(job)
    return started


def _wait_for_start(client: Client, job: int) -> bool:
    """Waits for the start of a job; returns whether it has started."""
    with client.eventlog(job, follow=True) as events:
        return any(event["name"] in ("start", "reattached") for event in events)


def _read(ended: threading.Event, wake: int) -> bytes | None:
    """The next bytes of standard input, none at its end; None when the jobs have ended."""
    while not ended.is_set():
        if terminal.is_terminal() and not terminal.is_in_foreground():
            # A read would stop this process.
            ended.wait(INTERRUPT_S)
            continue
        readable, _, _ = select.select([terminal.STDIN, wake], [], [])
        if wake in readable:
            break
        return os.read(terminal.STDIN, READ_BYTES)
    return None


def _send(client: Client, request: dict[str, Any], ended: threading.Event) -> bool:
    """Sends input until the tasks have it; returns whether they can get more."""
    while not ended.is_set():
        try:
            client.rpc(topic.job_exec.INPUT, request)
        except RpcError as error:
            # The request can be repeated when the execution service is back.
            if error.errno not in (EAGAIN, EHOSTUNREACH, ENOSYS):
                return False
            ended.wait(RETRY_PAUSE_S)
        else:
            return True
    return False
