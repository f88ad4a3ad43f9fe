"""A blocking client of an instance: requests, streams, and a method for each common request.

```python
from penstock.client import Client
from penstock.jobspec import from_command

with Client() as client:
    job = client.submit(from_command(["hostname"]))
    print(client.wait_one(job).result)
```

It needs no third-party package. `penstock.aioclient` has the same methods for asyncio, and
`penstock.aclient` for Trio. A request of your own is a `Call` or a `StreamCall`, for `Client.do`
and `Client.stream`.
"""

from penstock.client.calls import Call, StreamCall
from penstock.client.connection import Connection, Stream, connect
from penstock.client.methods import Methods
from penstock.errors import NoInstanceError

__all__ = ["Call", "Client", "NoInstanceError", "Stream", "StreamCall", "connect"]


class Client(Connection, Methods):
    """A connection to an instance with a method for each common request.

    Every method raises `RpcError` if the instance rejects the request, and `NoInstanceError` if
    the connection is lost.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.
        timeout: Seconds to wait for each message; None for no limit.

    Raises:
        NoInstanceError: no instance listens there.
    """
