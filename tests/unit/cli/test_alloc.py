"""Interrupts of `penstock alloc`."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

from penstock.cli import main
from penstock.cli.alloc import _Interrupts


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


def test_a_second_interrupt_ends_it_at_once(fake):
    def submit(_request):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        # No message ends the wait.
        return []

    fake.methods["job-ingest.submit"] = submit
    assert main(["alloc", "true"]) in (128 + signal.SIGINT, 128 + signal.SIGTERM)


def test_a_second_interrupt_counts_while_the_first_is_being_handled():
    interrupts = _Interrupts()

    def second_comes():
        """Interrupts when the first has been counted and is not yet recorded."""
        earlier = itertools.count()
        for number in earlier:
            if not number:
                interrupts._earlier = earlier
                interrupts(signal.SIGTERM, None)
            yield number

    interrupts._earlier = second_comes()
    with pytest.raises(SystemExit) as ended:
        interrupts(signal.SIGINT, None)
    assert ended.value.code == 128 + signal.SIGTERM
