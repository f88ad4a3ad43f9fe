"""`penstock replay`: a recording of messages, shown or sent to an instance again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.arguments import seconds
from penstock.cli.text import json_text, safe
from penstock.errors import WireError
from penstock.recording import Player, read

if TYPE_CHECKING:
    import argparse

    from penstock._core import Message
    from penstock.recording import Entry

SUMMARY = """Show the messages in FILE, which `penstock record` has made.

A line has the seconds since the first message, the number of the client, `>` for a message of the
client or `<` for one of the instance, the type, the topic, the matchtag and the payload.

With --uri the messages of the clients are sent to an instance, as they were, each after the
responses that it followed. Ids of submitted jobs are replaced. Requests that end in another way
than recorded are printed; the exit code is 1 if there is one."""

PAYLOAD_WIDTH = 120


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("--uri", metavar="URI", help="send the messages of the clients to this instance")
    add(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="FSD",
        help="with --uri: the longest time to wait for a response (default 10s)",
    )
    add("--topic", metavar="PREFIX", help="show messages whose topic begins with this")
    add("--full", action="store_true", help="show whole payloads")
    add("file", type=Path, metavar="FILE")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    if args.uri is None:
        _show(args)
        return 0
    player = Player(args.uri, timeout=args.timeout, clock=args.clock)
    differences = player.play(read(args.file))
    for each in differences:
        ends = f"recorded {each.recorded}, now {each.now}"
        print(safe(f"{args.file}, line {each.line}: {each.topic}: {ends}"))
    print(f"{player.requests} requests, {len(differences)} with another end", file=sys.stderr)
    return 1 if differences else 0


def _show(args: argparse.Namespace) -> None:
    begin, width = None, None if args.full else PAYLOAD_WIDTH
    for entry in read(args.file):
        begin = entry.time if begin is None else begin
        message = entry.message
        topic = (message.topic if message else None) or ""
        if args.topic is None or (message and topic.startswith(args.topic)):
            text = entry.event if entry.event != "message" else _text(entry, width)
            print(f"{entry.time - begin:12.6f} {entry.connection:3} {text}")


def _text(entry: Entry, width: int | None) -> str:
    arrow = ">" if entry.to_broker else "<"
    message = entry.message
    if message is None:
        return f"{arrow} no message: {len(entry.frame)} bytes"
    words = [arrow, message.kind, safe(message.topic or ""), f"#{message.matchtag}"]
    if message.kind == "response" and message.errnum:
        text = message.error_text or os.strerror(message.errnum)
        return " ".join([*words, f"error {message.errnum}: {safe(text)}"])
    payload = _payload(message)
    if width is not None and len(payload) > width:
        payload = payload[: width - 1] + "…"
    return " ".join([*words, payload]).rstrip()


def _payload(message: Message) -> str:
    if message.payload is None:
        return ""
    try:
        return json_text(message.object())
    except WireError:
        return f"{len(message.payload)} bytes"
