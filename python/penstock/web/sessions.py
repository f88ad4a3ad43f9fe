"""Sessions of browsers: who reads, and the secrets that show it."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass


@dataclass(frozen=True)
class Session:
    """A browser that may read.

    Attributes:
        uid: the user for whom pages are made.
        cookie: the value of the cookie.
        csrf: the value that forms repeat, so that no page of another site can send one.
    """

    uid: int
    cookie: str
    csrf: str


def _new_session(uid: int) -> Session:
    return Session(uid, secrets.token_urlsafe(32), secrets.token_urlsafe(32))


class TokenSessions:
    """The sessions on a TCP port, which any user of the machine can connect to.

    A token is redeemed once for a session of the user who runs the server.

    Args:
        uid: that user.
    """

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._tokens: set[str] = set()
        self._sessions: list[Session] = []

    def new_token(self) -> str:
        """Makes a token for the address that is printed."""
        token = secrets.token_urlsafe(32)
        self._tokens.add(token)
        return token

    def redeem(self, token: str) -> Session | None:
        """Exchanges a token for a session; None if it is unknown or was redeemed before."""
        found = next((known for known in self._tokens if _equal(known, token)), None)
        if found is None:
            return None
        self._tokens.remove(found)
        session = _new_session(self._uid)
        self._sessions.append(session)
        return session

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie."""
        return next((each for each in self._sessions if _equal(each.cookie, cookie)), None)


class PeerSessions:
    """The sessions on a Unix socket: one for each user, whom the kernel names."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}

    def of(self, uid: int) -> Session:
        """The session of a user."""
        if uid not in self._sessions:
            self._sessions[uid] = _new_session(uid)
        return self._sessions[uid]


def _equal(known: str, given: str) -> bool:
    return hmac.compare_digest(known.encode(), given.encode(errors="surrogateescape"))
