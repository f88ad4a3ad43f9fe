"""`penstock stats`: the statistics of services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import metrics
from penstock.cli.text import json_text, safe
from penstock.client import Client
from penstock.errors import RpcError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

SUMMARY = "Show the statistics of services."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="as one object: of one service, or by service"
    )
    form.add_argument("--openmetrics", action="store_true", help="the metrics as OpenMetrics text")
    parser.add_argument("service", nargs="?", metavar="SERVICE", help="default: all with metrics")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        if args.service and not args.openmetrics:
            return _show_one(args.service, client.stats(args.service), as_json=args.json)
        names = [args.service] if args.service else metrics.SERVICES
        answers = {name: _stats(client, name) for name in names}
    if args.openmetrics:
        print(metrics.openmetrics(answers), end="")
    elif args.json:
        print(json_text(answers))
    else:
        _print_rows(row for name, stats in answers.items() for row in _service_rows(name, stats))
    return 0


def _show_one(service: str, stats: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print(json_text(stats))
    elif stats:
        _print_rows(_flat("", stats))
    else:
        print(f"`{safe(service)}` has no statistics")
    return 0


def _print_rows(rows: Iterable[tuple[str, str]]) -> None:
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


def _stats(client: Client, service: str) -> dict[str, Any] | None:
    try:
        return client.stats(service)
    except RpcError:
        return None


def _service_rows(service: str, stats: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if stats is None:
        yield service, "no answer"
    else:
        yield from _flat(f"{service}.", stats)


def _flat(prefix: str, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if metrics.is_histogram(value):
            yield safe(prefix + key), _summary(value)
        elif isinstance(value, dict) and value:
            yield from _flat(f"{prefix}{key}.", value)
        else:
            text = safe(value) if isinstance(value, str) else json_text(value)
            yield safe(prefix + key), text


def _summary(histogram: dict[str, Any]) -> str:
    count = histogram["count"]
    if not count:
        return "0"
    median, most = (metrics.quantile_bound(histogram, share) for share in (0.5, 0.99))
    mean = histogram["sum"] / count
    return f"{count} (mean {mean:.3g} s, half <= {median:g} s, 99 % <= {most:g} s)"
