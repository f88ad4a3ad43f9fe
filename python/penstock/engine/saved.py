"""Saved engines: one JSON document with everything but callables, described in `docs/engine.md`."""

from __future__ import annotations

import json
from math import isnan
from typing import TYPE_CHECKING, Any

from penstock._core import EngineCore, __version__
from penstock.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_NAME = "penstock-engine"
"""The `format` of a saved engine."""
FORMAT_VERSION = 1
"""The version of the format that is written, and read."""


def write(core: EngineCore) -> bytes:
    """The JSON document of an engine, in UTF-8."""
    pending = core.pending(0.0, held=True)
    running = core.running()["ids"].tolist()
    document = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "penstock": __version__,
        **json.loads(core.options),
        "r": core.inventory.to_dict(),
        "down": str(core.down),
        "drained": str(core.drained),
        "shapes": [json.loads(core.shape_request(shape)) for shape in range(core.nshapes)],
        "pending": {
            "ids": pending["ids"].tolist(),
            "priorities": pending["priorities"].tolist(),
            "shapes": pending["shapes"].tolist(),
            "durations": pending["durations"].tolist(),
            "submitted": [None if isnan(time) else time for time in pending["submitted"]],
            "queues": core.queues(),
        },
        "running": {
            "ids": running,
            "rs": [core.r(job).to_dict() for job in running],
            "outside": [core.outside(job) for job in running],
        },
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def read(saved: bytes) -> EngineCore:
    """The engine of a document.

    Raises:
        EngineError: it is not a saved engine, or of another version; the text names the place.
    """
    try:
        document = json.loads(saved)
    except ValueError as error:
        raise EngineError(f"invalid saved engine: {error}") from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT_NAME:
        raise EngineError(
            f"invalid saved engine: format: expected `{FORMAT_NAME}`, found {found!r}"
        )
    version = document.get("version")
    if version != FORMAT_VERSION:
        raise EngineError(
            f"invalid saved engine: version: expected {FORMAT_VERSION}, found {version!r}"
            f" (saved by penstock {document.get('penstock', '?')}, this is {__version__})"
        )
    try:
        return _rebuilt(document)
    except KeyError as error:
        raise EngineError(f"invalid saved engine: expected the key {error}") from None
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise EngineError(f"invalid saved engine: {error}") from error


def _limit(queue: str, key: str, found: object) -> int | None:
    """The limit of a queue, checked."""
    if found is None or (type(found) is int and 0 <= found < 2**64):
        return found
    raise EngineError(
        f"queues.{queue}.{key}: expected 0 to {2**64 - 1}, or null for no limit, found {found!r}"
    )


def _rebuilt(document: Mapping[str, Any]) -> EngineCore:
    policy, selection, overlong = (document[key] for key in ("policy", "selection", "overlong"))
    core = EngineCore(document["r"], policy, selection, overlong, up=True)
    core.mark_down(document["down"])
    core.drain(document["drained"])
    for name, queue in document["queues"].items():
        limits = [_limit(name, key, queue[key]) for key in ("max_jobs", "max_nodes", "max_cores")]
        core.set_queue(name, queue["group"], queue["order"], *limits)
    for place, request in enumerate(document["shapes"]):
        keys = ("nodes", "slots", "cores", "gpus", "exclusive", "constraint")
        if core.shape(*(request[key] for key in keys)) != place:
            raise EngineError(f"shapes[{place}]: the same as an earlier one")
    running, pending = document["running"], document["pending"]
    columns = (running[key] for key in ("ids", "rs", "outside"))
    for job, r, outside in zip(*columns, strict=True):
        core.adopt(job, r)
        if outside:
            core.set_outside(job, [tuple(part) for part in outside])
    core.submit(
        pending["ids"],
        pending["shapes"],
        pending["durations"],
        pending["priorities"],
        pending["queues"],
        now=None,
    )
    core.set_submitted(pending["ids"], pending["submitted"])
    return core
