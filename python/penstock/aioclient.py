"""An asyncio client of an instance, for requests and for services.

```python
import asyncio
from penstock.aioclient import connect

async def main() -> None:
    async with connect() as client:
        print(await client.rpc("attr.get", {"name": "size"}))
        async with client.wait([job]) as jobs:
            async for ended in jobs:
                print(ended.name, ended.result)

asyncio.run(main())
```

It needs no third-party package. `penstock.aclient` has the same methods for Trio, and
`penstock.client` without either.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from penstock.client.async_connection import Stream
from penstock.client.asyncio_connection import Connection, open_socket, running
from penstock.client.methods import Methods
from penstock.errors import NoInstanceError
from penstock.paths import default_uri

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.client.async_connection import Encoding

__all__ = ["Client", "NoInstanceError", "Stream", "connect"]


@asynccontextmanager
async def connect(uri: str | None = None, *, encoding: Encoding = "json") -> AsyncIterator[Client]:
    """Connects to an instance for the duration of the block.

    If the block ends without an exception, messages given to `send` in it are written before the
    connection is closed.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.
        encoding: The encoding of request payloads; the instance responds in the same.

    Raises:
        NoInstanceError: no instance listens there, or it rejects this user.
        AddressError: the address is not a local one.
    """
    uri = uri or default_uri()
    client = Client(uri, *await open_socket(uri), encoding=encoding)
    async with running(client):
        yield client


class Client(Connection, Methods):
    """An open connection with a method for each common request; see `connect`.

    Any number of tasks may use it at once. A call that is cancelled leaves the connection usable:
    a request is written whole, and a late response is dropped. A method that returns a `Stream`
    has sent its request when it returns; the others are awaited.
    """
