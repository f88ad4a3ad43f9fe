"""Another user than the owner sees on a Unix socket as much as the instance would show."""

from __future__ import annotations

import pytest
from tests.unit.web.conftest import GUEST, OTHER, OWNER, job

PAGES = ("/", "/nodes", "/nodes/0", "/queue", "/running", "/history", "/jobs/1", "/events")


@pytest.fixture
def as_guest(on_server):
    """Runs an async function with the browser of a guest."""

    def run(function):
        return on_server(lambda server: function(server.browser(GUEST)), unix=True)

    return run


def test_without_guests_nothing_is_shown(as_guest, world):
    async def main(browser):
        for path in PAGES:
            response = await browser.get(path)
            assert (response.status, "job1" in response.text) == (403, False), path

    as_guest(main)


def test_with_own_visibility_only_own_jobs_are_listed_and_found(as_guest, world):
    world.access["allow-guest-user"] = True
    world.rows = [job(1), job(2, GUEST)]

    async def main(browser):
        for path in ("/", "/nodes", "/nodes/0", "/queue", "/running", "/history"):
            assert (await browser.get(path)).status == 200, path
        hidden = await browser.get("/jobs/1")
        assert (hidden.status, "job1" in hidden.text) == (404, False)
        assert (await browser.get("/jobs/1/events")).status == 404
        own = await browser.get("/jobs/2")
        assert (own.status, ">hi</pre>" in own.text) == (200, True)

    as_guest(main)
    lists = world.requests("job-list.list")
    assert len(lists) > 6
    assert all({"userid": [GUEST]} in each["constraint"]["and"] for each in lists)


def test_rows_of_other_users_have_no_documents(as_guest, world):
    world.access |= {"allow-guest-user": True, "job-visibility": "all"}
    world.rows = [job(1), job(2, GUEST), job(3, OTHER, state=8)]

    async def main(browser):
        other = await browser.get("/jobs/1")
        assert "Only the user of the job" in other.text
        assert ">hi</pre>" not in other.text
        await browser.get("/jobs/3")
        assert "job3" in (await browser.get("/queue")).text
        assert "job1" in (await browser.get("/nodes/0")).text

    as_guest(main)
    asked = []
    while not world.fake.received.empty():
        message = world.fake.received.get_nowait()
        if message.topic in ("job-info.lookup", "sched.explain", "job-exec.output"):
            payload = message.object()
            asked += payload.get("ids", [payload.get("id")])
    assert set(asked) == {2}


def test_a_guest_changes_own_jobs_only(as_guest, world):
    world.access |= {"allow-guest-user": True, "job-visibility": "all"}
    world.rows = [job(1), job(2, GUEST)]

    async def main(browser):
        csrf = {"csrf": await browser.csrf("/jobs/2")}
        assert 'name="csrf"' not in (await browser.get("/jobs/1")).text
        assert 'name="csrf"' not in (await browser.get("/nodes/1")).text
        for path, fields in [
            ("/jobs/1/cancel", {}),
            ("/jobs/1/urgency", {"urgency": "0"}),
            ("/jobs/2/urgency", {"urgency": "17"}),
            ("/nodes/1/drain", {"reason": "x"}),
            ("/nodes/1/undrain", {}),
        ]:
            assert (await browser.post(path, csrf | fields)).status == 403, path
        assert (await browser.post("/jobs/2/urgency", csrf | {"urgency": "16"})).status == 303
        assert (await browser.post("/jobs/2/cancel", csrf)).status == 303

    as_guest(main)
    changes = {}
    while not world.fake.received.empty():
        message = world.fake.received.get_nowait()
        if message.topic.startswith(("job-manager.raise", "job-manager.urg", "resource.")):
            changes.setdefault(message.topic, []).append((message.object() or {}).get("ids"))
    assert changes["job-manager.raise"] == [[2]]
    assert changes["job-manager.urgency"] == [[2]]
    assert not {"resource.drain", "resource.undrain"} & set(changes)


def test_one_user_is_not_another(on_server, world):
    world.access["allow-guest-user"] = True
    world.rows = [job(2, GUEST)]

    async def main(server):
        guest, other = server.browser(GUEST), server.browser(OTHER)
        csrf = await guest.csrf("/jobs/2")
        await other.get("/")
        other.cookie = guest.cookie
        assert (await other.post("/jobs/2/cancel", {"csrf": csrf})).status == 403
        assert (await server.browser(OWNER).get("/jobs/2")).status == 200

    on_server(main, unix=True)
    assert world.requests("job-manager.raise") == []
