"""RFC 28 as its provider: the inventory and its changes, for one scheduler at a time.

Sans-IO: requests in, responses out. What exists and what is up comes from the resource
service; this module knows who listens and what it has been told.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._core import IDset, Message, ResourceSet


class AcquireProvider:
    """The one `resource.acquire` stream of an instance.

    Args:
        resources: the inventory less the targets that configuration excludes.
        up: ranks that are available now.
    """

    def __init__(self, resources: ResourceSet, up: IDset) -> None:
        self._resources = resources
        self._up = up & resources.ranks
        self._request: Message | None = None

    @property
    def active(self) -> bool:
        """Whether a scheduler holds the resources."""
        return self._request is not None

    @property
    def up(self) -> IDset:
        """Ranks that are available now."""
        return self._up

    def acquire(self, request: Message) -> Message:
        """Answers `resource.acquire` (RFC 28, Acquire Request).

        Returns:
            The initial response; `EBUSY` while another acquire is active, `EPROTO` without
            the streaming flag.
        """
        if self._request is not None:
            return request.respond(errnum=errno.EBUSY)
        if not request.streaming:
            text = "resource.acquire is a streaming request"
            return request.respond(errnum=errno.EPROTO, errtext=text)
        self._request = request
        return request.respond({"resources": self._resources.to_dict(), "up": str(self._up)})

    def disconnect(self, origin: bytes) -> bool:
        """A peer went away. Returns whether it held the resources, which are free again."""
        held = self._request is not None and _origin(self._request) == origin
        if held:
            self._request = None
        return held

    def set_up(self, up: IDset) -> list[Message]:
        """Tells the scheduler which ranks have come and gone since it last heard.

        Args:
            up: the ranks that are available from now on.

        Returns:
            One additional response with the transitions, or nothing where there are none.
        """
        up = up & self._resources.ranks
        came, gone = up - self._up, self._up - up
        self._up = up
        if self._request is None or not (came or gone):
            return []
        change = {}
        if came:
            change["up"] = str(came)
        if gone:
            change["down"] = str(gone)
        return [self._request.respond(change)]


def _origin(request: Message) -> bytes:
    routes = request.routes
    return routes[-1] if routes else b""
