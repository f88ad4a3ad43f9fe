"""Recordings of the messages between clients and an instance, to be shown and sent again.

A recording is a text file with one JSON object a line, in the order of the messages:

- `{"time": 1.5e9, "conn": 1, "event": "connect"}`, or `disconnect`: of a client;
- `{"time": 1.5e9, "conn": 1, "dir": "to-broker", "hex": "1200eeff…"}`: a frame (RFC 3) of the
  client; those of the instance are `from-broker`. Bytes that are no frame are there as they came.

`time` is in seconds since the epoch; clients are numbered from 1 on.
"""

from penstock.recording.file import Entry, Recorder, read
from penstock.recording.player import Difference, Player
from penstock.recording.proxy import Proxy

__all__ = ["Difference", "Entry", "Player", "Proxy", "Recorder", "read"]
