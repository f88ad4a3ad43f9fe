"""What interrupts `penstock alloc`, when it does."""

from __future__ import annotations

import os
import signal

import pytest

from penstock.cli import main


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_during_submission_cancels_the_job(fake, number):
    def submit(request):
        os.kill(os.getpid(), number)
        return [request.respond({"id": 7})]

    fake.methods["job-ingest.submit"] = submit
    fake.methods["job-manager.raise"] = lambda request: [
        request.respond({"count": 1, "errors": {}})
    ]
    before = signal.getsignal(number)
    assert main(["alloc", "true"]) == 128 + number
    assert fake.wait_for("job-manager.raise").object()["ids"] == [7]
    assert signal.getsignal(number) == before
