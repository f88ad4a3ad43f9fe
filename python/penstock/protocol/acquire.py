"""RFC 28 at a scheduler's end: `Acquired` keeps the inventory up to date.

The keys of an additional response:

| key | meaning |
|---|---|
| `up`, `down` | targets that have become available or unavailable |
| `shrink` | targets removed permanently; `down` also lists the ones that were up |
| `property-add`, `property-remove` | properties that targets have gained or lost |
| `expiration` | the new end of the resources, seconds since the epoch; 0.0 for none |
| `grow` | an R of new targets |

RFC 28 has no key for growth. `grow` is Penstock's own, for a scheduler that sends
`{"grow-ok": true}` with its request; new targets are also in `up` if they are available, and bring
their properties with them. Any other scheduler learns of new targets at its next acquire, and never
of a target that was not in its `resources`. Targets that configuration excludes are left out of
`resources` and of `grow`; one that is excluded while a scheduler holds it goes down, and stays
known to that scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._core import ChangeResponse, IDset, InventoryResponse, Message, topic

if TYPE_CHECKING:
    from collections.abc import Mapping


class Acquired:
    """The resources that a scheduler has acquired, updated by the responses to its request.

    Args:
        first: the payload of the first response.

    Attributes:
        resources: the schedulable inventory.
        up: the targets that are available now.

    Raises:
        WireError: the payload is not that of such a response; the text names the key.
    """

    def __init__(self, first: Mapping[str, Any]) -> None:
        self.resources = InventoryResponse.read(_message(first)).resources
        self.up = IDset()
        self.take(first)

    def take(self, change: Mapping[str, Any]) -> None:
        """Applies the payload of a response.

        Raises:
            WireError: the payload is not that of such a response; nothing has changed.
        """
        response = ChangeResponse.read(_message(change))
        if response.grow is not None:
            self.resources |= response.grow
        if response.shrink is not None:
            self.resources.remove_ranks(response.shrink)
        self.up = (self.up | (response.up or IDset())) - (response.down or IDset())
        for name, ranks in (response.property_remove or {}).items():
            self.resources.remove_property(name, ranks)
        for name, ranks in (response.property_add or {}).items():
            self.resources.add_property(name, ranks)
        if response.expiration is not None:
            self.resources.expiration = response.expiration or None


def _message(payload: Mapping[str, Any]) -> Message:
    return Message.request(topic.resource.ACQUIRE, payload)
