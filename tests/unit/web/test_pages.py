"""The pages: text of jobs is inert, lists have pages, faults of the instance are shown."""

from __future__ import annotations

import errno
import json

import pytest
import trio
from tests.unit.web.conftest import job

from penstock.clock import SYSTEM_CLOCK

MARKUP = "<script>alert(1)</script><img src=x onerror=y>\"'&"
BIDI = "\u202egnp.exe"


@pytest.fixture
def in_browser(on_server):
    """Runs an async function with the browser of the owner."""

    def run(function):
        async def main(server):
            return await function(await server.signed_in())

        return on_server(main)

    return run


def test_text_of_jobs_is_inert_on_each_page(in_browser, world):
    ended = {"t_cleanup": 1020.0, "t_inactive": 1021.0, "exception_occurred": True, "result": 2}
    fault = {"exception_type": "exec", "exception_severity": 0, "exception_note": MARKUP}
    texts = dict.fromkeys(("name", "queue", "project", "bank", "nodelist"), MARKUP)
    world.rows = [
        job(1, **texts),
        job(2, state=8, pending_reason=MARKUP, **texts),
        job(3, state=64, **ended, **fault, **texts),
    ]
    world.drain = {"1": {"timestamp": 1.0, "reason": MARKUP + BIDI}}
    world.events.append({"timestamp": 1001.0, "name": "exception", "context": {"note": MARKUP}})
    world.output = [{"stream": "stdout", "data": "PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg=="}]

    async def main(browser):
        for path in (
            *("/", "/nodes", "/nodes/0", "/nodes/1", "/queue", "/running", "/history"),
            *(
                "/jobs/1",
                "/jobs/2",
                "/jobs/3",
                "/find?q=%3Cscript%3E",
                "/queue?name=%22%3E%3Cimg%3E",
            ),
        ):
            text = (await browser.get(path)).text
            assert "<script>" not in text, path
            assert "<img src=x" not in text, path
            assert '"><img>' not in text, path
            assert "\u202e" not in text, path
        assert "&lt;script&gt;alert(1)" in (await browser.get("/jobs/1")).text
        assert "\\u202egnp.exe" in (await browser.get("/nodes/1")).text

    in_browser(main)


def test_neither_environment_nor_jobspec_is_requested_or_shown(in_browser, world):
    world.events += [
        {
            "timestamp": 1001.0,
            "name": "jobspec-update",
            "context": {"attributes.system.environment": {"SECRET": "abc"}, "note": "known"},
        },
        {"timestamp": 1002.0, "name": "memo", "context": {"note": {"SECRET": "abc"}}},
    ]

    async def main(browser):
        text = (await browser.get("/jobs/1")).text
        assert "SECRET" not in text
        assert "note known" in text

    in_browser(main)
    keys = [key for each in world.requests("job-info.lookup") for key in each["keys"]]
    assert set(keys) == {"R", "eventlog"}


def test_a_page_of_a_list_is_all_that_is_requested(in_browser, world):
    world.states |= {"sched": 1_000_000}
    world.rows = [job(number, state=8) for number in range(1, 52)]

    async def main(browser):
        text = (await browser.get("/queue?page=20000")).text
        for address in ("?page=19999", "?page=20001", "/queue"):
            assert f'href="/queue{address.removeprefix("/queue")}"' in text
        assert "page 20\u202f000 of 20\u202f000" in text
        # The first position of the page.
        assert ">999\u202f951<" in text
        assert "reason of 50" in text
        assert "reason of 51" not in text
        for number in ("0", "-1", "x", "1e3", "", "9" * 30):
            assert (await browser.get(f"/queue?page={number}")).status == 400

    in_browser(main)
    (request,) = world.requests("job-list.list")
    assert (request["skip"], request["max_entries"]) == (999_950, 51)
    assert request["order"] == "state"


def test_filters_are_constraints(in_browser, world):
    async def main(browser):
        text = (await browser.get("/queue?user=7&queue=batch&name=a+b")).text
        assert 'value="a b"' in text
        # There is no total of some jobs only.
        assert "pending</span>" not in text
        assert (await browser.get("/queue?user=no%20such%20user")).status == 404

    in_browser(main)
    (request,) = world.requests("job-list.list")
    assert request["constraint"]["and"] == [
        {"states": ["pending"]},
        {"userid": [7]},
        {"queue": ["batch"]},
        {"name": ["a b"]},
    ]


def test_nodes_are_found_by_host_and_jobs_by_any_form_of_an_id(in_browser):
    async def main(browser):
        for text, target in [("node2", "/nodes/2"), ("ƒ2", "/jobs/1"), ("0x10", "/jobs/16")]:
            response = await browser.get(f"/find?q={text.replace('ƒ', '%C6%92')}")
            assert (response.status, response.get("location")) == (303, target)
        response = await browser.get("/find?q=%3Cb%3E")
        assert (response.status, "&lt;b&gt;" in response.text) == (404, True)

    in_browser(main)


def test_cores_are_drawn_by_job(in_browser):
    async def main(browser):
        text = (await browser.get("/nodes/0")).text
        # Job 1 has cores 0-1 (its R), core 2 is allocated to a job that is not listed.
        assert "cores 0-1: job ƒ2" in text
        assert "core 2: allocated" in text
        assert "core 3: free" in text
        assert "gpu 0: free" in text

    in_browser(main)


def test_the_map_has_a_label_for_each_node(in_browser, world):
    world.drain = {"1": {"timestamp": 1.0, "reason": "x"}}

    async def main(browser):
        text = (await browser.get("/")).text
        assert 'data-columns="4"' in text
        nodes = json.loads((await browser.get("/nodes/index.json")).body)
        assert nodes[:2] == [[0, "node0", "mixed", 3, 4], [1, "node1", "drained", 0, 4]]

    in_browser(main)


def test_output_that_is_not_text_is_shown_safely(in_browser, world):
    # \xff, ESC, a tab, a right-to-left override, a line end.
    world.output = [{"stream": "stdout", "data": "/xtbMzFtCeKAroB4Cg=="}]

    async def main(browser):
        text = (await browser.get("/jobs/1")).text
        assert "\ufffd\\x1b[31m\t\\u202e\ufffdx\n</pre>" in text

    in_browser(main)


def test_output_longer_than_the_tail_is_cut(in_browser, world):
    import base64

    chunk = base64.b64encode(b"0123456789abcdef" * 65536).decode()
    world.output = [{"stream": "stdout", "data": chunk}] * 9

    async def main(browser):
        text = (await browser.get("/jobs/1")).text
        assert "longer than is read here" in text
        shown = text.partition('<pre id="output"')[2].partition("</pre>")[0].partition(">")[2]
        assert len(shown) == 65536

    in_browser(main)


@pytest.mark.parametrize("topic", ["job-exec.output", "sched.explain"])
def test_a_service_that_lacks_a_method_does_not_take_the_page_away(in_browser, world, topic):
    world.rows = [job(1, state=8, pending_reason="held by hand")]
    world.fake.methods[topic] = lambda request: [request.respond(errnum=errno.ENOSYS)]

    async def main(browser):
        response = await browser.get("/jobs/1")
        assert response.status == 200

    in_browser(main)


def test_errors_of_the_instance_are_shown_with_their_text(in_browser, world):
    world.fake.methods["job-manager.raise"] = lambda request: [
        request.respond({"count": 0, "errors": {"1": "job ƒ2 is inactive"}})
    ]
    world.fake.methods["resource.drain"] = lambda request: [
        request.respond(errnum=errno.EINVAL, errtext="<b>already</b> drained")
    ]

    async def main(browser):
        csrf = {"csrf": await browser.csrf("/jobs/1")}
        response = await browser.post("/jobs/1/cancel", csrf)
        assert (response.status, "is inactive" in response.text) == (409, True)
        response = await browser.post("/nodes/1/drain", csrf)
        assert (response.status, "&lt;b&gt;already" in response.text) == (409, True)
        for path in ("/jobs/99", "/jobs/%3C", "/nodes/99", "/nowhere", "/static/none.js"):
            assert (await browser.get(path)).status == 404, path

    in_browser(main)


def test_without_the_instance_pages_say_so_and_come_again(on_server, world):
    async def main(server):
        browser = await server.signed_in()
        assert (await browser.get("/")).status == 200
        world.fake.hang_up()
        while (response := await browser.get("/")).status == 200:
            await trio.lowlevel.checkpoint()
        assert (response.status, "not reachable" in response.text) == (503, True)
        while (await browser.get("/")).status == 503:
            await trio.lowlevel.checkpoint()

    on_server(main)


@pytest.mark.parametrize(
    ("age", "query", "chosen"),
    [
        (None, "", "24h"),
        (10.0, "", "1h"),
        (5000.0, "", "6h"),
        (50000.0, "", "24h"),
        (10.0, "?period=7d", "7d"),
        (10.0, "?period=x", "1h"),
    ],
)
def test_the_first_period_fits_the_age_of_the_jobs(in_browser, world, age, query, chosen):
    if age is not None:
        now = SYSTEM_CLOCK.now()
        begin = now - age
        world.rows = [job(1, t_submit=begin, t_run=begin), job(2, t_submit=now)]

    async def main(browser):
        for page in ("/", "/history"):
            text = (await browser.get(f"{page}{query}")).text
            assert f'aria-current="true">{chosen}</a>' in text

    in_browser(main)
