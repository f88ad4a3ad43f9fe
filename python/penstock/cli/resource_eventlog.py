"""`penstock resource eventlog`: the events of the resources, past and further ones."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock._core import Hostlist, IDset, topic
from penstock.cli.arguments import key_value, seconds
from penstock.cli.eventlog import has_context
from penstock.cli.text import local_time, safe
from penstock.errors import Error, NotFoundError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Iterable, Iterator

    from penstock.client import Client
    from penstock.clock import Clock
    from penstock.rows import Event

TIME_FORMATS = ("human", "raw", "iso", "offset")
TITLES = "TIME", "EVENT", "RANKS", "NODELIST", "ABOUT"


def register(verb: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = verb.add_argument
    add("--json", action="store_true", help="one event a line, as --format=json")
    add("-f", "--format", choices=("text", "json"), default="text", help="default: text")
    add("-T", "--time-format", choices=TIME_FORMATS, default="human", help="default: human")
    text = "as --time-format=human"
    add("-H", "--human", dest="time_format", action="store_const", const="human", help=text)
    text = "show further events as they come, after those of the instance's start"
    add("-F", "--follow", action="store_true", help=text)
    text = "show events until this one, past or further, such as `drain`"
    add("-w", "--wait", metavar="EVENT", help=text)
    text = "with --wait: the event has this in its context"
    add("-m", "--match-context", type=key_value, metavar="KEY=VALUE", help=text)
    text = "with --follow or --wait: fail after this time"
    add("-t", "--timeout", type=seconds, metavar="FSD", help=text)
    add("-i", "--include", metavar="TARGETS", help="as TARGETS")
    add("targets", nargs="?", metavar="TARGETS", help="only events about these")


def show(client: Client, args: argparse.Namespace) -> int:
    """Prints the events.

    Raises:
        NotFoundError: the event of `--wait` did not come before the timeout.
        UsageError: options that exclude or need each other.
    """
    if args.include is not None and args.targets is not None:
        raise UsageError("--include: the targets are given twice")
    if args.match_context and args.wait is None:
        raise UsageError("--match-context: expected --wait beside it")
    is_live = args.follow or args.wait is not None
    if args.timeout is not None and not is_live:
        raise UsageError("--timeout: expected --follow or --wait beside it")
    targets = args.targets if args.include is None else args.include
    is_json = args.json or args.format == "json"
    if not is_json:
        print(_line(*TITLES), flush=is_live)
    if not is_live:
        _print_all(client.resource_history(targets), args.time_format, is_json=is_json)
        return 0
    shown = _live_events(client, targets, args.timeout, args.clock)
    with closing(_until(shown, args.wait, args.match_context)) as events:
        _print_all(events, args.time_format, is_json=is_json)
    return 0


def _live_events(
    client: Client, targets: str | None, timeout: float | None, clock: Clock
) -> Iterator[Event]:
    """The past events, those of the instance's start, and each further one.

    Raises:
        TimeoutError: the timeout has expired.
    """
    end = None if timeout is None else clock.monotonic() + timeout
    about = None if targets is None else _Targets(targets)
    with client.stream(topic.resource.JOURNAL) as responses:
        while True:
            if end is not None:
                # A timeout of 0 would be a socket that does not block.
                client.timeout = max(end - clock.monotonic(), 1e-3)
            # The stream ends by an error alone: the loss of the connection.
            for event in next(responses)["events"]:
                if about is None or about.has(event):
                    yield event


class _Targets:
    """Ranks or hosts, by which events are selected."""

    def __init__(self, text: str) -> None:
        self._ranks, self._hosts = IDset(), Hostlist()
        try:
            self._ranks = IDset(text)
        except Error:
            self._hosts = Hostlist(text)

    def has(self, event: Event) -> bool:
        """Whether an event is about one of them."""
        ranks, hosts = _about(event.get("context", {}))
        return not self._ranks.isdisjoint(IDset(ranks)) or bool(self._hosts & Hostlist(hosts))


def _until(
    events: Iterator[Event], name: str | None, pair: tuple[str, str] | None
) -> Generator[Event, None, None]:
    """Events until one of this name with this pair in its context; all without a name.

    Raises:
        NotFoundError: the timeout has expired before.
    """
    try:
        for event in events:
            yield event
            if event["name"] == name and has_context(event, pair):
                return
    except TimeoutError:
        waited = f"the event `{name}` did not come" if name else "no longer followed"
        raise NotFoundError(f"{waited} (--timeout)") from None


def _print_all(events: Iterable[Event], form: str, *, is_json: bool) -> None:
    first: float | None = None
    for event in events:
        if is_json:
            print(json.dumps(event), flush=True)
            continue
        first = event["timestamp"] if first is None else first
        context = event.get("context", {})
        about = context.get("reason") or context.get("name") or ""
        if "expiration" in context:
            about = local_time(context["expiration"]) if context["expiration"] else "none"
        when = _event_time(event["timestamp"], form, first)
        ranks, hosts = _about(context)
        print(_line(when, safe(event["name"]), ranks, hosts, safe(about)), flush=True)


def _about(context: dict[str, Any]) -> tuple[str, str]:
    """The ranks and the hosts in a context; `restart` has the ranks in a key of its own."""
    return context.get("idset", context.get("ranks", "")), context.get("nodelist", "")


def _line(when: str, name: str, ranks: str, hosts: str, about: str) -> str:
    return f"{when:<19} {name:<15} {ranks:<12} {hosts:<16} {about}".rstrip()


def _event_time(timestamp: float, form: str, first: float) -> str:
    """The time of an event; an offset counts from the first event that is shown."""
    if form == "raw":
        return f"{timestamp:.6f}"
    if form == "offset":
        return f"{timestamp - first:.6f}"
    if form == "iso":
        return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="microseconds")
    return local_time(timestamp)
