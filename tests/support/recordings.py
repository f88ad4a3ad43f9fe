"""Recorded frames of a real broker, and the comparison of our responses with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from penstock._core import Hostlist, IDset, Message
from penstock.errors import WireError

# The flag of a message that is for its user and the owner only (RFC 3).
PRIVATE = 0x20
VECTORS = Path(__file__).parent.parent / "vectors"


class Frame(NamedTuple):
    """A recorded frame: its position, sender and message."""

    place: str
    line: int
    conn: int
    to_broker: bool
    message: Message

    @property
    def payload(self) -> dict[str, Any]:
        """The payload; an empty object if there is none."""
        return payload_of(self.message)


def frames(name: str) -> list[Frame]:
    """The frames of a recording, in order."""
    lines = (VECTORS / "flux-wire" / f"{name}.jsonl").read_text().splitlines()
    recorded = []
    for number, line in enumerate(lines, 1):
        frame = json.loads(line)
        recorded.append(
            Frame(
                f"{name}.jsonl:{number}",
                number,
                frame.get("conn", 0),
                frame["dir"] == "to-broker",
                Message.decode(bytes.fromhex(frame["hex"])),
            )
        )
    return recorded


def payload_of(message: Message) -> dict[str, Any]:
    """A payload as an object; empty if it is missing or no object."""
    if message.payload is None or message.error_text is not None:
        return {}
    try:
        payload = message.object()
    except WireError:
        return {}
    return payload if isinstance(payload, dict) else {}


def unlike(ours: Message, recorded: Message) -> list[str]:
    """Differences in kind between our message and the recorded one; empty if there are none.

    The same kind: type, topic, error number, streaming, no-response and private flags, a payload
    and an error text where there was one, and every recorded key of the payload with a value of
    its type, in lists, too. Extra keys are always sent.
    """
    found = [
        f"{name} is {getattr(ours, name)!r}, recorded {getattr(recorded, name)!r}"
        for name in ("kind", "topic", "streaming", "noresponse")
        if getattr(ours, name) != getattr(recorded, name)
    ]
    if (ours.flags ^ recorded.flags) & PRIVATE:
        found.append("not private" if recorded.flags & PRIVATE else "private")
    if recorded.kind == "response" and ours.errnum != recorded.errnum:
        text = f"errnum is {ours.errnum} ({ours.error_text}), recorded {recorded.errnum}"
        return [*found, text]
    if recorded.error_text and not ours.error_text:
        found.append(f"no error text, recorded {recorded.error_text!r}")
    if (ours.payload is None) != (recorded.payload is None):
        found.append("no payload" if ours.payload is None else "a payload, recorded none")
        return found
    return found + missing(payload_of(ours), payload_of(recorded))


def missing(ours: Any, recorded: Any, path: str = "payload") -> list[str]:
    """Paths of a recorded value that ours lacks or has with another type."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        if "R_lite" in recorded and "R_lite" in ours:
            ours, recorded = by_rank(ours), by_rank(recorded)
        found = []
        for key, value in recorded.items():
            if key in ours:
                found += missing(ours[key], value, f"{path}.{key}")
            else:
                found.append(f"{path}.{key} is missing")
        return found
    if isinstance(recorded, list) and isinstance(ours, list):
        if len(ours) != len(recorded):
            return [f"{path} has {len(ours)} items, recorded {len(recorded)}"]
        pairs = enumerate(zip(ours, recorded, strict=True))
        return [text for at, (our, their) in pairs for text in missing(our, their, f"{path}[{at}]")]
    number = (int, float)
    same = type(ours) is type(recorded) or (
        isinstance(ours, number) and isinstance(recorded, number)
    )
    return [] if same else [f"{path} is {ours!r}, recorded {recorded!r}"]


def by_rank(execution: dict[str, Any]) -> dict[str, Any]:
    """The `execution` of an R, expanded to one entry for each rank."""
    ranks = {
        str(rank): entry["children"]
        for entry in execution["R_lite"]
        for rank in IDset(entry["rank"])
    }
    hosts = [host for text in execution["nodelist"] for host in Hostlist(text)]
    return {**execution, "R_lite": ranks, "nodelist": hosts}


NO_MESSAGE = "nothing is said"


class Differences:
    """Our deliberate differences from a recording, as `flux-wire-differences.json` lists them.

    An unlisted difference is a fault of ours; a listed one that no longer occurs has to be removed
    from the list.
    """

    def __init__(self, name: str, end: str = "instance") -> None:
        rows = json.loads((VECTORS / "flux-wire-differences.json").read_text())
        self.rows = [
            row for row in rows if name in row["recordings"] and row.get("end", "instance") == end
        ]
        self._seen: set[int] = set()

    def listed(self, frame: Frame) -> list[str]:
        """The listed differences of our response to this frame's request."""
        found: list[str] = []
        for place, row in enumerate(self.rows):
            here = frame.line in row.get("lines", [frame.line])
            if row["topic"] == frame.message.topic and here and "unlike" in row:
                self._seen.add(place)
                found += row["unlike"]
        return found

    def besides(self) -> set[str]:
        """Topics of requests that our end sends in addition."""
        return {row["topic"] for row in self._marked("besides")}

    def _marked(self, key: str) -> list[dict[str, Any]]:
        places = [place for place, row in enumerate(self.rows) if key in row]
        self._seen.update(places)
        return [self.rows[place] for place in places]

    def rejected(self, request: Frame) -> int | None:
        """The listed errno with which we reject a recorded request."""
        for place, row in enumerate(self.rows):
            if request.line in row.get("requests", []) and row["topic"] == request.message.topic:
                self._seen.add(place)
                return row["errnum"]
        return None

    def check(self, frame: Frame, ours: Message | None) -> None:
        """Checks that our message differs from a recorded one as listed, and not otherwise."""
        found = [NO_MESSAGE] if ours is None else unlike(ours, frame.message)
        assert found == self.listed(frame), f"{frame.place} {frame.message}: {found}"

    def all_seen(self) -> None:
        """Checks that every row of the list has a frame."""
        unseen = [row for place, row in enumerate(self.rows) if place not in self._seen]
        assert unseen == []
