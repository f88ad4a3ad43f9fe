"""Messages of the wire (RFC 3): the classes, and names for the numbers in their headers."""

from typing import Final

from penstock._core import Batch, Decoder, Message

__all__ = [
    "NODEID_ANY",
    "NORESPONSE",
    "PAYLOAD",
    "PRIVATE",
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

TOPIC: Final = 0x01
"""Flag: the message has a topic."""
PAYLOAD: Final = 0x02
"""Flag: the message has a payload."""
NORESPONSE: Final = 0x04
"""Flag: the request must never be answered, not even with an error."""
ROUTE: Final = 0x08
"""Flag: the message has a route stack, perhaps an empty one."""
UPSTREAM: Final = 0x10
"""Flag: the request goes upstream of the rank in its nodeid."""
PRIVATE: Final = 0x20
"""Flag: the event is for the sender and the instance owner only."""
STREAMING: Final = 0x40
"""Flag: the message belongs to an RPC with many responses."""
USER: Final = 0x80
"""Flag: free for users."""

NODEID_ANY: Final = 0xFFFFFFFF
"""The nodeid of a request to any rank."""
USERID_UNKNOWN: Final = 0xFFFFFFFF
"""The userid of a message whose sender is not authenticated yet."""
