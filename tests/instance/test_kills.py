"""A short run of `make kills`: the instance's processes are killed while clients submit jobs."""

from __future__ import annotations

import pytest
from tests.survival.audit import event_errors
from tests.survival.kills import Campaign
from tests.survival.site import Target

KILLS = {Target.DAEMON: 3, Target.SERVICE: 4, Target.BOTH: 2}


@pytest.mark.parametrize("seed", [14])
def test_no_job_is_lost_or_run_twice_when_daemon_and_service_are_killed(tmp_path, seed):
    report = Campaign(tmp_path, seed, KILLS).run()
    print(report)
    assert report.errors == []
    assert dict(report.kills) == KILLS
    assert report.restarts == KILLS[Target.DAEMON] + KILLS[Target.BOTH]
    assert report.lost_statuses == 0


def test_jobs_of_a_killed_reaper_end_with_its_exception_and_leave_no_process(tmp_path):
    kills = {
        Target.REAPER: 3,
        Target.REAPERS: 2,
        Target.SERVICE: 1,
        Target.DAEMON: 1,
        Target.BOTH: 1,
    }
    report = Campaign(tmp_path, 1, kills).run()
    print(report)
    assert report.errors == []
    assert dict(report.kills) == kills


WHOLE_LIFE = "submit validate depend priority alloc start finish release free clean".split()


@pytest.mark.parametrize(
    ("events", "is_valid"),
    [
        (WHOLE_LIFE, True),
        ([*WHOLE_LIFE[:6], "reattached", "exception", "reattached", *WHOLE_LIFE[6:]], True),
        (["submit", "validate", "exception", "clean"], True),
        ([*WHOLE_LIFE[:6], "start", *WHOLE_LIFE[6:]], False),
        ([*WHOLE_LIFE[:4], "start", "alloc", *WHOLE_LIFE[6:]], False),
        ([*WHOLE_LIFE[:5], "exception", "clean"], False),
        ([*WHOLE_LIFE[:4], "exception", "free", "clean"], False),
        ([*WHOLE_LIFE[:4], "free", "clean"], False),
        ([*WHOLE_LIFE[:6], *WHOLE_LIFE[7:]], False),
        ([*WHOLE_LIFE[:6], "exception", *WHOLE_LIFE[7:]], True),
        ([*WHOLE_LIFE[:7], "reattached", *WHOLE_LIFE[7:]], True),
        ([*WHOLE_LIFE[:5], "reattached", *WHOLE_LIFE[5:]], False),
        ([*WHOLE_LIFE[:9], "reattached", "clean"], False),
        (WHOLE_LIFE[:-1], False),
    ],
)
def test_the_check_of_eventlogs_finds_violations_of_their_order(events, is_valid):
    assert (event_errors(events) == []) is is_valid
