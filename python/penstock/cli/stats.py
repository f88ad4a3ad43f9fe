"""`penstock stats`: the statistics of services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import metrics
from penstock.cli.text import json_text, safe
from penstock.client import Client
from penstock.errors import RpcError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SUMMARY = "Show the statistics of a service."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one object")
    form.add_argument(
        "--openmetrics", action="store_true", help="the metrics of all services as OpenMetrics text"
    )
    parser.add_argument(
        "service",
        nargs="?",
        metavar="SERVICE",
        help="default: job-manager; with --openmetrics all services",
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        if args.openmetrics:
            names = [args.service] if args.service else metrics.SERVICES
            answers = {name: _stats(client, name) for name in names}
            print(metrics.openmetrics(answers), end="")
            return 0
        service = args.service or "job-manager"
        stats = client.stats(service)
    if args.json:
        print(json_text(stats))
        return 0
    rows = list(_flat("", stats))
    if not rows:
        print(f"`{safe(service)}` has no statistics")
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    return 0


def _stats(client: Client, service: str) -> dict[str, Any] | None:
    try:
        return client.stats(service)
    except RpcError:
        return None


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
