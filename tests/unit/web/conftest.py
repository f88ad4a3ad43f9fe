"""The pages without a network: requests are calls (ASGI), the instance is a fake one."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
import trio

from penstock.clock import SYSTEM_CLOCK
from penstock.web.guard import Guard
from penstock.web.link import Link
from penstock.web.live import Changes
from penstock.web.pages import Site
from penstock.web.sessions import PeerSessions, TokenSessions

OWNER, GUEST, OTHER = 1000, 2000, 3000
HOST = "127.0.0.1:8080"
ORIGIN = f"http://{HOST}"


@dataclass
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def get(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)


class Browser:
    """Sends requests as one user, with a cookie if it has one."""

    def __init__(self, app, peer: int | None = None) -> None:
        self.app = app
        self.peer = peer
        self.cookie: str | None = None

    async def request(self, method, target, *, headers=None, body=b"") -> Response:
        """Sends a request. A header whose value is None is left out."""
        given = {"host": HOST, "cookie": self.cookie, **(headers or {})}
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in given.items() if v is not None],
            "state": {"peer": self.peer},
            "client": None,
            "server": None,
        }
        sent = []
        requests = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive():
            message = next(requests, None)
            if message is None:
                await trio.sleep_forever()
            return message

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        start = sent[0]
        response = Response(
            start["status"],
            [(k.decode().lower(), v.decode()) for k, v in start["headers"]],
            b"".join(message.get("body", b"") for message in sent[1:]),
        )
        for cookie in response.all("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return response

    async def get(self, target, **headers) -> Response:
        return await self.request("GET", target, headers=headers)

    async def post(self, target, form, *, origin=ORIGIN) -> Response:
        body = urlencode(form).encode()
        return await self.request("POST", target, headers={"origin": origin}, body=body)

    async def csrf(self, page: str) -> str:
        """The token of the forms of a page."""
        text = (await self.get(page)).text
        return text.partition('name="csrf" value="')[2].partition('"')[0]


def r_of(ranks: str, cores: str, hosts: list[str], gpus: str = "") -> dict:
    """An R (RFC 20)."""
    children = {"core": cores, **({"gpu": gpus} if gpus else {})}
    lite = [{"rank": ranks, "children": children}] if ranks else []
    return {
        "version": 1,
        "execution": {"R_lite": lite, "nodelist": hosts, "starttime": 0.0, "expiration": 0.0},
    }


def job(number: int, userid: int = OWNER, **values) -> dict:
    """A row of a running job."""
    return {
        "id": number,
        "userid": userid,
        "urgency": 16,
        "priority": 16,
        "t_submit": 1000.0,
        "t_depend": 1000.0,
        "t_run": 1010.0,
        "state": 16,
        "name": f"job{number}",
        "cwd": "/",
        "ntasks": 1,
        "ncores": 2,
        "nnodes": 1,
        "duration": 60.0,
        "ranks": "0",
        "nodelist": "node0",
        "exception_occurred": False,
        "annotations": {},
        **values,
    }


class World:
    """The answers of the fake instance."""

    def __init__(self, fake, answers) -> None:
        self.fake = fake
        self.rows = [job(1)]
        self.access = {"allow-guest-user": False, "job-visibility": "own"}
        self.output = [{"stream": "stdout", "data": "aGk="}]
        self.events = [{"timestamp": 1000.0, "name": "submit", "context": {"userid": OWNER}}]
        states = dict.fromkeys("new depend priority sched cleanup inactive".split(), 0)
        self.states = {**states, "run": 1}
        self.drain = {}

        def one(make):
            return lambda request: [request.respond(make(request.object() or {}))]

        def row_of(request):
            found = [row for row in self.rows if row["id"] == request.object()["id"]]
            return [request.respond({"job": found[0]} if found else None, errnum=0 if found else 2)]

        hosts = ["node[0-3]"]
        status = {"online": "0-3", "offline": "", "exclude": ""}
        empty = r_of("", "", [])
        fake.methods |= {
            "config.get": one(lambda _: {"access": self.access}),
            "job-list.job-stats": one(lambda _: {"job_states": self.states, "queues": []}),
            "job-list.list": lambda request: answers({"jobs": self.rows})(request),
            "job-list.list-id": row_of,
            "job-manager.queue-list": one(lambda _: {"queues": []}),
            "job-manager.queue-status": one(lambda _: {"enable": True, "start": True}),
            "job-manager.raise": one(lambda payload: {"count": len(payload["ids"]), "errors": {}}),
            "job-manager.urgency": one(lambda payload: {"count": 1, "errors": {}}),
            "resource.status": one(
                lambda _: {"R": r_of("0-3", "0-3", hosts, "0"), "drain": self.drain, **status}
            ),
            "resource.sched-status": one(
                lambda _: {
                    "all": r_of("0-3", "0-3", hosts, "0"),
                    "down": empty,
                    "allocated": r_of("0", "0-2", ["node0"]),
                }
            ),
            "resource.history": one(lambda _: {"events": []}),
            "resource.drain": one(lambda _: {}),
            "resource.undrain": one(lambda _: {}),
            "job-info.lookup": one(self._lookup),
            "sched.explain": one(self._explain),
            "job-exec.output": lambda request: answers(*self.output)(request),
        }

    def _lookup(self, payload):
        texts = {
            "R": json.dumps(r_of("0", "0-1", ["node0"])),
            "eventlog": "".join(json.dumps(event) + "\n" for event in self.events),
        }
        return {"id": payload["id"], **{key: texts[key] for key in payload["keys"]}}

    def _explain(self, payload):
        jobs = [
            {"id": each, "kind": "resources", "reason": f"reason of {each}", "details": {}}
            for each in payload["ids"]
        ]
        return {"jobs": jobs, "errors": {}}

    def requests(self, topic: str) -> list[dict]:
        """The payloads of the requests of a topic since the last call."""
        found = []
        while not self.fake.received.empty():
            message = self.fake.received.get_nowait()
            if message.topic == topic:
                found.append(message.object())
        return found


@pytest.fixture
def world(fake, answers):
    return World(fake, answers)


@dataclass
class Server:
    app: Guard
    sessions: TokenSessions | PeerSessions
    site: Site

    def browser(self, peer: int | None = None) -> Browser:
        return Browser(self.app, peer)

    async def signed_in(self) -> Browser:
        """A browser on the port that has redeemed a token."""
        browser = self.browser()
        await browser.get(f"/?token={self.sessions.new_token()}")
        return browser


@pytest.fixture
def on_server(world):
    """Runs an async function with a server whose owner is OWNER, for no longer than a minute."""

    @asynccontextmanager
    async def running(sessions, *, allow_actions):
        link = Link(world.fake.uri)
        changes = Changes(link)
        site = Site(
            link,
            SYSTEM_CLOCK,
            owners=frozenset([OWNER]),
            allow_actions=allow_actions,
            changes=changes,
        )
        app = Guard(site.app(), sessions, cookie="penstock-8080", allow_actions=allow_actions)
        async with trio.open_nursery() as nursery:
            await nursery.start(link.run)
            yield Server(app, sessions, site)
            nursery.cancel_scope.cancel()

    def run(function, *, unix=False, allow_actions=True):
        async def limited():
            sessions = PeerSessions() if unix else TokenSessions(OWNER)
            with trio.fail_after(60):
                async with running(sessions, allow_actions=allow_actions) as server:
                    return await function(server)

        return trio.run(limited)

    return run
