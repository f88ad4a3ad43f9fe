"""RFC 32 as the execution service: the responses to a start request, and their order.

| state | answers | next state |
|---|---|---|
| `STARTING` | `start`; `reattached`, if the request has `reattach` | `RUNNING` |
| `RUNNING` | `finish` | `FINISHED` |
| `FINISHED` | `release`, not final | `FINISHED` |
| `FINISHED` | `release`, final | `RELEASED` |
| any but `RELEASED` | `exception` | the same |
| any but `RELEASED`, after a fatal exception | `finish` | `FINISHED` |
| any but `RELEASED`, after a fatal exception | `release`, final | `RELEASED` |
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from penstock._core import StartResponse, exit_status
from penstock.errors import ProtocolError

if TYPE_CHECKING:
    from penstock._core import Message


class State(Enum):
    """The state of the responses to a start request."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    RELEASED = "released"


class StartStream:
    """The stream of responses to one `<service>.start` request.

    Args:
        request: the start request; responses copy its route, topic and matchtag.
        job: the job's id.
        reattach: whether the request is for a job that may be running.
    """

    def __init__(self, request: Message, job: int, *, reattach: bool = False) -> None:
        self._request = request
        self._reattach = reattach
        self._wait_status: int | None = None
        self.job = job
        self.state = State.STARTING
        self.failed = False

    def _respond(self, payload: bytes) -> Message:
        return self._request.respond(payload, streaming=True)

    def _expect(self, kind: str, *allowed: State) -> None:
        if self.state not in allowed:
            raise ProtocolError(f"`{kind}` for job {self.job} in state {self.state.value}")

    def start(self) -> Message:
        """The tasks have started."""
        self._expect("start", State.STARTING)
        self.state = State.RUNNING
        return self._respond(StartResponse.start(self.job))

    def reattached(self) -> Message:
        """The tasks have been running since before the request, which has `reattach`."""
        self._expect("reattached", *([State.STARTING] if self._reattach else []))
        self.state = State.RUNNING
        return self._respond(StartResponse.reattached(self.job))

    def exception(
        self, kind: str, note: str, *, severity: int = 0, wait_status: int | None = None
    ) -> Message:
        """Something has gone wrong; severity 0 ends the job.

        Args:
            kind: the exception's type, such as `timeout`.
            note: for people.
            severity: 0 to 7.
            wait_status: what the status is to be if this is the first fatal exception.
        """
        self._expect("exception", State.STARTING, State.RUNNING, State.FINISHED)
        if severity == 0:
            self.interrupt(wait_status)
        return self._respond(
            StartResponse.exception(
                self.job, kind, note, severity=severity, wait_status=wait_status
            )
        )

    @property
    def ended(self) -> bool:
        """Whether the final release may come: the job has finished, or has failed."""
        return self.failed or self.state is State.FINISHED

    def interrupt(self, wait_status: int | None = None) -> None:
        """Notes a fatal exception that came from elsewhere, and its wait status if it has one."""
        if not self.failed:
            self._wait_status = wait_status
        self.failed = True

    def finish(self, status: int) -> Message:
        """All tasks have ended; `status` is the greatest wait status.

        If the first fatal exception has a wait status, this is sent instead, encoded as by a
        shell: an exit code, or 128 plus the signal.
        """
        if self.failed:
            self._expect("finish", State.STARTING, State.RUNNING)
        else:
            self._expect("finish", State.RUNNING)
        self.state = State.FINISHED
        if self._wait_status is not None:
            status = exit_status(self._wait_status) << 8
        return self._respond(StartResponse.finish(self.job, status))

    def release(self, ranks: str = "all", *, final: bool = True) -> Message:
        """The ranks may be used by others; the final release is the last response."""
        if self.failed:
            self._expect("release", State.STARTING, State.RUNNING, State.FINISHED)
        else:
            self._expect("release", State.FINISHED)
        if final:
            self.state = State.RELEASED
        return self._respond(StartResponse.release(self.job, ranks, is_final=final))
