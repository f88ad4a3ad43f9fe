"""Requests that may not read or change anything, and the headers of responses."""

from __future__ import annotations

import pytest
from tests.unit.web.conftest import HOST, OWNER

from penstock.web.guard import HEADERS, MAX_FORM_BYTES


def paths(server):
    """An address of each route of the site."""
    for route in server.site.app().routes:
        path = route.path.replace("{rank:int}", "0").replace("{job}", "1")
        yield from ((method, path.replace("{name}", "page.js")) for method in route.methods)


def test_without_a_session_nothing_is_read(on_server, world):
    async def main(server):
        browser = server.browser()
        checked = list(paths(server))
        assert len(checked) > 12
        for method, path in checked:
            response = await browser.request(method, path)
            assert response.status == 401, path
            assert "set-cookie" not in dict(response.headers)
        for cookie in ("penstock-8080=", "penstock-8080=x", "other=x", ";=\x7f", "penstock-8080=é"):
            assert (await browser.get("/", cookie=cookie)).status == 401
        assert (await browser.get("/?token=x")).status == 401

    on_server(main)
    assert world.requests("job-list.list") == []


def test_a_token_is_exchanged_once_and_dropped_from_the_address(on_server):
    async def main(server):
        token = server.sessions.new_token()
        browser = server.browser()
        # A preview of the link does not use it up.
        assert (await browser.request("HEAD", f"/?token={token}")).status == 401
        response = await browser.get(f"/?token={token}")
        assert (response.status, response.get("location")) == (303, "/")
        cookie = response.get("set-cookie")
        assert {part.strip() for part in cookie.split(";")[1:]} == {
            "Path=/",
            "HttpOnly",
            "SameSite=Strict",
        }
        assert token not in cookie
        assert (await browser.get("/")).status == 200
        again = await browser.get(f"/?token={token}")
        assert (again.status, again.get("location"), again.get("set-cookie")) == (303, "/", None)
        assert (await server.browser().get(f"/?token={token}")).status == 401

    on_server(main)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.:1", "", None],
)
def test_another_name_of_the_host_is_rejected(on_server, host):
    async def main(server):
        browser = await server.signed_in()
        assert (await browser.get("/", host=host)).status == 421

    on_server(main)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]:99", "localhost:8080"])
def test_names_of_loopback_are_accepted_with_any_port(on_server, host):
    async def main(server):
        assert (await (await server.signed_in()).get("/", host=host)).status == 200

    on_server(main)


def test_each_response_has_the_policy_and_none_is_for_other_origins(on_server):
    async def main(server):
        browser = await server.signed_in()
        for client, path in [
            (browser, "/"),
            (browser, "/jobs/1"),
            (browser, "/jobs/99"),
            (browser, "/nowhere"),
            (browser, "/static/style.css"),
            (server.browser(), "/"),
        ]:
            response = await client.get(path, origin="http://evil.example")
            for name, value in HEADERS.items():
                assert response.all(name) == [value], path
            assert not [name for name, _ in response.headers if "access-control" in name]
        preflight = await browser.request("OPTIONS", "/", headers={"origin": "http://evil.example"})
        assert preflight.status == 405

    on_server(main)


def test_pages_have_no_inline_script_or_style_and_no_address_elsewhere(on_server):
    async def main(server):
        browser = await server.signed_in()
        for path in ("/", "/nodes", "/nodes/0", "/queue", "/running", "/history", "/jobs/1"):
            text = (await browser.get(path)).text
            assert "<script>" not in text
            assert "style=" not in text
            assert "http://" not in text
            assert "//" not in text.replace("</", "")

    on_server(main)


class TestActions:
    def test_none_without_the_option(self, on_server, world):
        async def main(server):
            browser = await server.signed_in()
            assert 'name="csrf"' not in (await browser.get("/jobs/1")).text
            session = server.sessions.find(browser.cookie.partition("=")[2])
            response = await browser.post("/jobs/1/cancel", {"csrf": session.csrf})
            assert (response.status, "--allow-actions" in response.text) == (403, True)

        on_server(main, allow_actions=False)
        assert world.requests("job-manager.raise") == []

    def test_a_form_of_the_session_is_carried_out(self, on_server, world):
        async def main(server):
            browser = await server.signed_in()
            csrf = await browser.csrf("/jobs/1")
            response = await browser.post("/jobs/1/cancel", {"csrf": csrf})
            assert (response.status, response.get("location")) == (303, "/jobs/1")
            await browser.post("/nodes/2/drain", {"csrf": csrf, "reason": "bad disk"})
            await browser.post("/nodes/2/undrain", {"csrf": csrf})
            await browser.post("/jobs/1/urgency", {"csrf": csrf, "urgency": "31"})

        on_server(main)
        topics = {}
        while not world.fake.received.empty():
            message = world.fake.received.get_nowait()
            topics[message.topic] = message.object()
        assert topics["job-manager.raise"]["ids"] == [1]
        assert topics["resource.drain"] == {"targets": "2", "reason": "bad disk"}
        assert topics["resource.undrain"]["targets"] == "2"
        assert topics["job-manager.urgency"] == {"ids": [1], "urgency": 31}

    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "null", None, "http://127.0.0.1:8081", f"ftp://{HOST}"]
    )
    def test_of_a_page_elsewhere_are_rejected(self, on_server, world, origin):
        async def main(server):
            browser = await server.signed_in()
            csrf = await browser.csrf("/jobs/1")
            response = await browser.post("/jobs/1/cancel", {"csrf": csrf}, origin=origin)
            assert response.status == 403

        on_server(main)
        assert world.requests("job-manager.raise") == []

    def test_with_the_token_of_another_session_or_none_are_rejected(self, on_server, world):
        async def main(server):
            browser, other = await server.signed_in(), await server.signed_in()
            foreign = await other.csrf("/jobs/1")
            for form in ({}, {"csrf": ""}, {"csrf": foreign}, {"csrf": "é"}):
                assert (await browser.post("/jobs/1/cancel", form)).status == 403
            long = {"csrf": await browser.csrf("/jobs/1"), "x": "x" * MAX_FORM_BYTES}
            assert (await browser.post("/jobs/1/cancel", long)).status == 413

        on_server(main)
        assert world.requests("job-manager.raise") == []

    def test_are_no_answers_to_get(self, on_server, world):
        async def main(server):
            browser = await server.signed_in()
            assert (await browser.get("/jobs/1/cancel")).status == 405

        on_server(main)
        assert world.requests("job-manager.raise") == []

    @pytest.mark.parametrize("text", ["", "32", "-1", "1.5", "x", "016", "9" * 5000])
    def test_an_urgency_out_of_range_is_rejected(self, on_server, world, text):
        async def main(server):
            browser = await server.signed_in()
            csrf = await browser.csrf("/jobs/1")
            response = await browser.post("/jobs/1/urgency", {"csrf": csrf, "urgency": text})
            assert (response.status, "expected 0 to 31" in response.text) == (400, True)

        on_server(main)
        assert world.requests("job-manager.urgency") == []


def test_on_a_socket_the_kernel_names_the_user(on_server, world):
    async def main(server):
        browser = server.browser(OWNER)
        response = await browser.get("/")
        assert (response.status, "the owner" in response.text) == (200, True)
        # A form needs the cookie all the same: a page elsewhere may use the socket's user.
        csrf = await browser.csrf("/jobs/1")
        without = server.browser(OWNER)
        assert (await without.post("/jobs/1/cancel", {"csrf": csrf})).status == 403
        assert (await browser.post("/jobs/1/cancel", {"csrf": csrf})).status == 303

    on_server(main, unix=True)
    assert len(world.requests("job-manager.raise")) == 1


def test_a_web_socket_is_closed(on_server):
    async def main(server):
        sent = []

        async def send(message):
            sent.append(message)

        await server.app({"type": "websocket", "headers": []}, None, send)
        assert [message["type"] for message in sent] == ["websocket.close"]

    on_server(main)
