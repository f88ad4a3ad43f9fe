import errno
import json
import signal

from penstock._core import job_state, topic
from penstock.cli.attach import Attachment
from penstock.client import Client
from penstock.clock import SystemClock
from penstock.testing import FakeBroker

PENDING, STARTING, RUNNING, LOST = 1, 2, 3, 4


def eventlog(request):
    job = request.object()["id"]
    if job == LOST:
        return [request.respond(errnum=errno.EIO)]
    names = ["submit", "alloc", *(["start"] if job == RUNNING else [])]
    events = (json.dumps({"timestamp": 1.0, "name": name}) for name in names)
    return [request.respond({"id": job, "eventlog": "".join(f"{event}\n" for event in events)})]


def signalled(jobs, *, has_states=True):
    """The requests for changes that jobs get when the command gets SIGTERM, in order."""
    with FakeBroker() as broker:
        states = {PENDING: job_state.SCHED}
        rows = [{"id": job, "state": states.get(job, job_state.RUN)} for job in jobs]
        broker.respond(topic.job_list.LIST, {"jobs": rows})
        if not has_states:
            broker.fail(topic.job_list.LIST, errno.ENOENT)
        broker.methods[topic.job_info.LOOKUP] = eventlog
        for change in (topic.job_manager.RAISE, topic.job_manager.KILL):
            broker.respond(change, {"count": 1, "errors": {}})
        with Client(broker.uri, timeout=60) as client:
            attachment = Attachment(client, "run", SystemClock(), unbuffered=False)
            attachment.begin(jobs)
            with attachment.handling_signals():
                signal.raise_signal(signal.SIGTERM)
        received = [broker.received.get_nowait() for _ in range(broker.received.qsize())]
    changes = (topic.job_manager.RAISE, topic.job_manager.KILL)
    return [
        (message.topic, message.object()["ids"]) for message in received if message.topic in changes
    ]


def test_jobs_that_have_not_started_are_cancelled_before_the_others_get_the_signal():
    # A job that starts meanwhile is cancelled, or gets the signal.
    expected = [(topic.job_manager.RAISE, [1, 2]), (topic.job_manager.KILL, [3])]
    assert signalled([PENDING, STARTING, RUNNING]) == expected


def test_a_job_that_cannot_be_looked_up_does_not_keep_the_signal_from_the_others():
    expected = [(topic.job_manager.RAISE, [2]), (topic.job_manager.KILL, [3, 4])]
    assert signalled([LOST, STARTING, RUNNING]) == expected
    assert signalled([LOST, STARTING, RUNNING], has_states=False) == expected
