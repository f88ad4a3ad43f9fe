"""Our simulated execution service, driven by hand."""

from __future__ import annotations

from tests.conformance.ends import OWNER, jobspec

from penstock._core import Batch, Message, MockExec


class Mock:
    """Our simulated execution service."""

    def __init__(self, name="job-exec"):
        self.service = MockExec(name)
        self.now = 1000.0

    def take(self, message):
        """Gives it a message; returns what it sends."""
        return list(self.service.handle(Batch([message]), self.now))

    def start(self, job, *, reattach=False, spec=None, **system):
        """Asks it to start a job."""
        spec = jobspec(**system) if spec is None else spec
        told = {"id": job, "userid": OWNER, "jobspec": spec, "reattach": reattach}
        request = Message.request("job-exec.start", told, userid=OWNER, rolemask=1)
        return [told_by(it) for it in self.take(request)]

    def advance(self, seconds):
        """Lets time pass."""
        self.now += seconds
        return [told_by(it) for it in self.service.advance(self.now)]

    def interrupt(self, job, severity=0):
        """Somebody raises an exception."""
        raised = {"id": job, "type": "cancel", "severity": severity}
        return [told_by(it) for it in self.take(Message.event("job-exception", raised))]


def told_by(response):
    """What a response to a start request says; it is one of a stream and no error."""
    assert (response.topic, response.errnum, response.streaming) == ("job-exec.start", 0, True)
    assert response.matchtag == 0
    payload = response.object()
    assert set(payload) == {"id", "type", "data"}
    return payload["id"], payload["type"], payload["data"]
