"""RFC 32 as the execution service: what may be answered to a start request, and when.

| state | answers | next state |
|---|---|---|
| `STARTING` | `start` | `RUNNING` |
| `RUNNING` | `finish` | `FINISHED` |
| `FINISHED` | `release`, not final | `FINISHED` |
| `FINISHED` | `release`, final | `RELEASED` |
| any but `RELEASED` | `exception` | the same |
| any but `RELEASED`, after a fatal exception | `finish` | `FINISHED` |
| any but `RELEASED`, after a fatal exception | `release`, final | `RELEASED` |
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock._core import Message


class State(Enum):
    """How far the answers to a start request have come."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    RELEASED = "released"


class ProtocolError(RuntimeError):
    """A response that RFC 32 does not allow now: a fault of this service, not of its peer."""


class StartStream:
    """The stream of responses to one `<service>.start` request.

    Args:
        request: the start request; responses copy its route, topic and matchtag.
        job: the job's id.
    """

    def __init__(self, request: Message, job: int) -> None:
        self._request = request
        self.job = job
        self.state = State.STARTING
        self.failed = False

    def _respond(self, kind: str, data: dict[str, Any]) -> Message:
        payload = {"id": self.job, "type": kind, "data": data}
        return self._request.respond(payload, streaming=True)

    def _expect(self, kind: str, *allowed: State) -> None:
        if self.state not in allowed:
            raise ProtocolError(f"`{kind}` for job {self.job} in state {self.state.value}")

    def start(self) -> Message:
        """The tasks have started."""
        self._expect("start", State.STARTING)
        self.state = State.RUNNING
        return self._respond("start", {})

    def exception(self, kind: str, note: str, *, severity: int = 0) -> Message:
        """Something has gone wrong; severity 0 ends the job."""
        self._expect("exception", State.STARTING, State.RUNNING, State.FINISHED)
        self.failed = self.failed or severity == 0
        return self._respond("exception", {"severity": severity, "type": kind, "note": note})

    @property
    def ended(self) -> bool:
        """Whether the final release may come: the job has finished, or has failed."""
        return self.failed or self.state is State.FINISHED

    def interrupt(self) -> None:
        """Notes a fatal exception that came from elsewhere."""
        self.failed = True

    def finish(self, status: int) -> Message:
        """All tasks have ended; `status` is the greatest wait status."""
        if self.failed:
            self._expect("finish", State.STARTING, State.RUNNING)
        else:
            self._expect("finish", State.RUNNING)
        self.state = State.FINISHED
        return self._respond("finish", {"status": status})

    def release(self, ranks: str = "all", *, final: bool = True) -> Message:
        """The ranks may be used by others; the final release is the last response."""
        if self.failed:
            self._expect("release", State.STARTING, State.RUNNING, State.FINISHED)
        else:
            self._expect("release", State.FINISHED)
        if final:
            self.state = State.RELEASED
        return self._respond("release", {"ranks": ranks, "final": final})
