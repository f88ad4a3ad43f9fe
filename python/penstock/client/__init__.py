"""A blocking client of an instance: requests, streams, and the common ones by name.

```python
from penstock.client import Client
from penstock.jobspec import from_command

with Client() as client:
    job = client.submit(from_command(["hostname"]))
    (row,) = client.wait([job])
```

It needs no third-party package. For Trio there is `penstock.aclient`, with the same methods.
"""

from penstock.client.client import Client
from penstock.client.connection import NoInstanceError, Stream, connect

__all__ = ["Client", "NoInstanceError", "Stream", "connect"]
