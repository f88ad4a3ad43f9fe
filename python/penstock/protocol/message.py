"""Messages of the wire (RFC 3): the classes, and names for the numbers in their headers.

Flags: `TOPIC`, `PAYLOAD` and `ROUTE` announce parts of the frame; `NORESPONSE` marks a request that
must never be answered, not even with an error; `STREAMING` an RPC with many responses; `PRIVATE` an
event for its sender and the instance owner only; `UPSTREAM` a request that goes upstream of the
rank in its nodeid; `USER` is free for users.

Roles of a sender (RFC 12): `ROLE_OWNER`, `ROLE_USER` for a guest, `ROLE_LOCAL` for a connection on
this machine.

`NODEID_ANY` is the nodeid of a request to any rank, `USERID_UNKNOWN` the userid of a sender that is
not authenticated yet.
"""

from penstock._core import (
    NODEID_ANY,
    NORESPONSE,
    PAYLOAD,
    PRIVATE,
    ROLE_LOCAL,
    ROLE_OWNER,
    ROLE_USER,
    ROUTE,
    STREAMING,
    TOPIC,
    UPSTREAM,
    USER,
    USERID_UNKNOWN,
    Batch,
    Decoder,
    Message,
)

__all__ = [
    "NODEID_ANY",
    "NORESPONSE",
    "PAYLOAD",
    "PRIVATE",
    "ROLE_LOCAL",
    "ROLE_OWNER",
    "ROLE_USER",
    "ROUTE",
    "STREAMING",
    "TOPIC",
    "UPSTREAM",
    "USER",
    "USERID_UNKNOWN",
    "Batch",
    "Decoder",
    "Message",
]
