"""A client that sends and receives message by message."""

from __future__ import annotations

import errno

import trio

from penstock._core import Decoder, Message


class RawClient:
    """A connection whose requests and reads are the test's."""

    def __init__(self, stream):
        self.stream = stream
        self._decoder = Decoder()

    @classmethod
    async def connect(cls, path):
        client = cls(await trio.open_unix_socket(path))
        assert await client.stream.receive_some(1) == b"\0"
        return client

    async def send(self, topic, payload, flags=0):
        request = Message.request(topic, payload, matchtag=1, flags=flags)
        await self.stream.send_all(request.encode())

    async def receive(self):
        """The next messages; none at the end of the connection."""
        while data := await self.stream.receive_some(65536):
            if batch := self._decoder.feed(data):
                return list(batch)
        return []

    async def receive_until_end(self):
        """The messages before the end of the requested stream."""
        received = []
        while batch := await self.receive():
            received += batch
            if received[-1].errnum:
                assert received.pop().errnum == errno.ENODATA
                return received
        raise AssertionError("the connection has ended")
