"""The connection to the instance, made again when it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from penstock.aclient import connect
from penstock.errors import NoInstanceError

if TYPE_CHECKING:
    from penstock.aclient import Client

MIN_RETRY_S, MAX_RETRY_S = 0.5, 10.0


class Link:
    """A client of the instance; between two connections there is none.

    Args:
        uri: the address of the instance.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._client: Client | None = None
        self._error = NoInstanceError(f"there is no connection to `{uri}`")

    @property
    def client(self) -> Client:
        """The client.

        Raises:
            NoInstanceError: the instance is not reachable at the moment.
        """
        if self._client is None:
            raise self._error
        return self._client

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps a connection; returns never, and has started with the first connection."""
        delay, has_started = MIN_RETRY_S, False
        while True:
            try:
                async with connect(self._uri) as client:
                    self._client, delay = client, MIN_RETRY_S
                    if not has_started:
                        task_status.started()
                        has_started = True
                    try:
                        await client.wait_lost()
                    finally:
                        self._client = None
            except NoInstanceError as error:
                self._error = error
            await trio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_S)
