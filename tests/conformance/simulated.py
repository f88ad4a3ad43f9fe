"""Drives a simulated execution service: the test plays the job manager."""

from __future__ import annotations

from tests.conformance.harness import OWNER, jobspec

from penstock._core import Batch, Message, MockExec


class Simulated:
    """A simulated execution service."""

    def __init__(self, name="job-exec"):
        self.service = MockExec(name)
        self.now = 1000.0

    def deliver(self, message):
        """Delivers a message; returns the messages that it sends."""
        return list(self.service.handle(Batch([message]), self.now))

    def start(self, job, *, reattach=False, spec=None, **system):
        """Sends a start request; returns the parsed responses."""
        spec = jobspec(**system) if spec is None else spec
        payload = {"id": job, "userid": OWNER, "jobspec": spec, "reattach": reattach}
        request = Message.request("job-exec.start", payload, userid=OWNER, rolemask=1)
        return [parsed(message) for message in self.deliver(request)]

    def advance(self, seconds):
        """Advances time; returns the parsed responses."""
        self.now += seconds
        return [parsed(message) for message in self.service.advance(self.now)]

    def interrupt(self, job, severity=0):
        """Publishes an exception; returns the parsed responses."""
        raised = {"id": job, "type": "cancel", "severity": severity}
        return [parsed(message) for message in self.deliver(Message.event("job-exception", raised))]


def parsed(response):
    """The id, type and data of a response to a start request, which must be one of a stream."""
    assert (response.topic, response.errnum, response.streaming) == ("job-exec.start", 0, True)
    assert response.matchtag == 0
    payload = response.object()
    assert set(payload) == {"id", "type", "data"}
    return payload["id"], payload["type"], payload["data"]
