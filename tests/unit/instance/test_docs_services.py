"""The roles in `docs/services.md` are those that the job manager enforces."""

from __future__ import annotations

import errno
import json
import re
import time
from pathlib import Path

import pytest

from penstock._core import Batch, JobManager, Message
from penstock.jobspec import from_command
from penstock.protocol.message import STREAMING

OWNER, GUEST, OTHER = 1000, 4242, 4243
SERVICES = ("job-", "kvs.")
# They name jobs by their user.
MATCHING = ("job-manager.raiseall", "job-manager.killall")


def rows():
    """Request and role, from the tables."""
    text = (Path(__file__).parents[3] / "docs" / "services.md").read_text()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            for topic in re.findall(r"`([a-z.-]+)`", cells[0]):
                if topic.startswith(SERVICES):
                    yield topic, cells[3], cells[2].startswith("stream")


ROWS = list(rows())


class Manager:
    """A job manager without a disk, with a held job of `OTHER`."""

    def __init__(self):
        settings = {"owner": OWNER, "guests": True, "queues": {}, "limits": {}}
        self.manager = JobManager(None, json.dumps(settings), time.time())
        self.spec = from_command(["true"], environment={}, cwd="/")
        (answer,) = self.ask(OTHER, "job-ingest.submit", {"jobspec": self.spec, "urgency": 0})
        self.job = answer.object()["id"]

    def ask(self, userid, topic, payload, flags=0):
        roles = 1 if userid == OWNER else 2
        request = Message.request(
            topic, payload, matchtag=1, flags=flags, userid=userid, rolemask=roles
        )
        self.manager.handle(Batch([request]), time.time())
        answers = self.manager.flush()
        return [message for message in answers if message.kind == "response"]

    def payload(self):
        """Fields that are valid in every request."""
        return {
            "jobspec": self.spec,
            "id": self.job,
            "ids": [self.job],
            "jobs": None,
            "keys": ["jobspec"],
            "key": "a.key",
            "urgency": 3,
            "signum": 15,
            "type": "cancel",
            "updates": {"attributes.system.duration": 3},
            "memo": {},
            "enable": True,
            "start": True,
            "service": "other",
            "ops": [],
            "slice": "[:]",
            "matchtag": 7,
            "mode": "unlimited",
        }

    def errnums(self, userid, topic, stream, **fields):
        payload = self.payload() | fields
        if topic in MATCHING:
            payload |= {"dry_run": True, "userid": OTHER}
        if topic == "job-manager.purge":
            payload["userid"] = OTHER
        payload = {key: value for key, value in payload.items() if value is not None}
        answers = self.ask(userid, topic, payload, STREAMING if stream else 0)
        return [answer.errnum for answer in answers]


def test_the_table_has_the_requests_of_the_job_manager():
    assert len(ROWS) > 25
    assert {who.split(",")[0] for _, who, _ in ROWS} == {"all", "visible", "own", "owner"}


@pytest.mark.parametrize(("topic", "who", "stream"), ROWS, ids=[row[0] for row in ROWS])
def test_guests_have_the_permissions_of_the_table(topic, who, stream):
    manager = Manager()
    fields = {"ids": None} if who.startswith("own") else {}
    if topic == "job-manager.prioritize":
        fields["jobs"] = [[manager.job, 5]]
    errnums = manager.errnums(GUEST, topic, stream, **fields)
    # The sums of usage are those of the visible jobs.
    if who.startswith(("own", "visible")) and topic != "job-list.usage":
        assert errnums == [errno.EPERM]
    else:
        assert errno.EPERM not in errnums


@pytest.mark.parametrize(
    ("topic", "who", "stream"),
    [row for row in ROWS if row[1].split(",")[0] in ("own", "visible")],
    ids=lambda value: str(value),
)
def test_users_have_permissions_on_their_own_jobs(topic, who, stream):
    manager = Manager()
    fields = {} if who == "visible" else {"ids": None}
    if topic == "kvs.lookup":
        job = f"{manager.job:016x}"
        fields["key"] = f"job.{job[:4]}.{job[4:8]}.{job[8:12]}.{job[12:]}.jobspec"
    assert errno.EPERM not in manager.errnums(OTHER, topic, stream, **fields)
