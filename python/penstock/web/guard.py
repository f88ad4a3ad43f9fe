"""The checks that each request passes before a page is made, and the headers of each response."""

from __future__ import annotations

import hmac
import re
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from penstock.web.sessions import TokenSessions

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from penstock.web.sessions import PeerSessions, Session

MAX_FORM_BYTES = 16384
# A name of this machine, whatever the port: a port can be forwarded to another one.
LOCAL_HOST = re.compile(r"(127(\.\d{1,3}){3}|localhost|\[::1\])(:\d{1,5})?", re.ASCII)

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    # With `no-referrer` the browser would send `Origin: null` with a form.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Guard:
    """Answers requests that may not read, and passes on the others with `scope["session"]`.

    A POST is passed on with its fields in `scope["form"]`, and only if actions are allowed, the
    page that sends it is of this server (`Origin`), and its field `csrf` is that of the session.

    Args:
        app: makes the pages.
        sessions: of the port, or of the socket.
        cookie: the name of the cookie.
        allow_actions: whether requests may change anything.
    """

    def __init__(
        self,
        app: ASGIApp,
        sessions: TokenSessions | PeerSessions,
        *,
        cookie: str,
        allow_actions: bool,
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._cookie = cookie
        self._allow_actions = allow_actions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request (ASGI)."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        assert scope["type"] == "http", "there is no lifespan"
        headers = Headers(scope=scope)
        guarded = _with_headers(send)
        answer = await self._answer(scope, headers, receive)
        if isinstance(answer, Response):
            await answer(scope, receive, guarded)
            return
        scope["session"] = answer
        if self._cookie_of(headers) != answer.cookie:
            guarded = _with_headers(send, self._set_cookie(answer))
        await self._app(scope, receive, guarded)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive) -> Session | Response:
        """The session, or the response to a request that has none or may not be made."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not LOCAL_HOST.fullmatch(hosts[0]):
            text = "421: this server is 127.0.0.1, [::1] or localhost, and has no other name"
            return PlainTextResponse(text, 421)
        session = self._find_session(scope, headers)
        if isinstance(session, Response) or scope["method"] in ("GET", "HEAD"):
            return session
        if scope["method"] != "POST":
            return PlainTextResponse("405: expected GET or POST", 405)
        if not self._allow_actions:
            text = "403: this page shows only; `penstock web --allow-actions` also changes"
            return PlainTextResponse(text, 403)
        # Behind a proxy with TLS the scheme is another one.
        if headers.get("origin") not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
            return PlainTextResponse("403: the request is not from a page of this server", 403)
        form = await _read_form(receive)
        if form is None:
            return PlainTextResponse(f"413: expected at most {MAX_FORM_BYTES} bytes", 413)
        if self._cookie_of(headers) != session.cookie or not hmac.compare_digest(
            form.get("csrf", "").encode(), session.csrf.encode()
        ):
            return PlainTextResponse("403: the form is not of this session: reload the page", 403)
        scope["form"] = form
        return session

    def _find_session(self, scope: Scope, headers: Headers) -> Session | Response:
        if not isinstance(self._sessions, TokenSessions):
            return self._sessions.of(scope["state"]["peer"])
        session = self._sessions.find(self._cookie_of(headers))
        if scope["path"] == "/" and scope["method"] == "GET":
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            opened = self._sessions.redeem(token) if token else None
            if opened is not None:
                return RedirectResponse("/", 303, {"set-cookie": self._set_cookie(opened)})
            if token and session is not None:
                return RedirectResponse("/", 303)
        if session is None:
            text = "401: open the address that `penstock web` has printed; it can be used once"
            return PlainTextResponse(text, 401)
        return session

    def _cookie_of(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _set_cookie(self, session: Session) -> str:
        return f"{self._cookie}={session.cookie}; Path=/; HttpOnly; SameSite=Strict"


def _with_headers(send: Send, set_cookie: str | None = None) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if set_cookie is not None:
                headers.append("set-cookie", set_cookie)
        await send(message)

    return guarded


async def _read_form(receive: Receive) -> dict[str, str] | None:
    """The fields of a form; None if it is too long."""
    body = b""
    more = True
    while more:
        message: dict[str, Any] = dict(await receive())
        body += message.get("body", b"")
        more = bool(message.get("more_body"))
        if len(body) > MAX_FORM_BYTES:
            return None
    fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}
