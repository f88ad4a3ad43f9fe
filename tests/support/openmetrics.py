"""A strict reader of OpenMetrics 1.0 text, written from the specification.

Timestamps, exemplars and the types that the instance does not use are rejected.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
ESCAPED = r"(?:[^\\\"\n]|\\[\\\"n])*"
NUMBER = r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Inf)|NaN"
METADATA = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)")
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL}=\"{ESCAPED}\"(?:,(?!\}}))?)*)\}})? ({NUMBER})")
PAIR = re.compile(rf"({LABEL})=\"({ESCAPED})\"")
SUFFIXES = {
    "counter": {"_total", "_created"},
    "gauge": {""},
    "histogram": {"_bucket", "_count", "_sum", "_created"},
    "info": {"_info"},
}

Labels = frozenset[tuple[str, str]]


class InvalidTextError(ValueError):
    """The text is no OpenMetrics text."""


@dataclass
class MetricFamily:
    """A metric family: its metadata, and each sample by name and labels."""

    name: str
    kind: str
    unit: str = ""
    doc: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, suffix: str = "", **labels: str) -> float:
        """The value of one sample."""
        return self.samples[self.name + suffix, frozenset(labels.items())]


def check(holds: object, problem: str) -> None:
    """Rejects the text unless something holds."""
    if not holds:
        raise InvalidTextError(problem)


def parse(text: str) -> dict[str, MetricFamily]:
    """Reads a text.

    Raises:
        InvalidTextError: it does not follow the specification.
    """
    check(text.endswith("# EOF\n"), "the text does not end with `# EOF`")
    check("\r" not in text, "a carriage return")
    families: dict[str, MetricFamily] = {}
    current: MetricFamily | None = None
    seen: set[str] = set()
    for line in text.removesuffix("# EOF\n").splitlines():
        if match := METADATA.fullmatch(line):
            keyword, name, rest = match.groups()
            if current is None or name != current.name:
                check(name not in families, f"`{name}` is interrupted by another family")
                check(keyword == "TYPE", f"`{name}`: the type comes first")
                current = families[name] = MetricFamily(name, rest)
                check(rest in SUFFIXES, f"`{name}`: unknown type `{rest}`")
                seen = {"TYPE"}
                continue
            check(keyword not in seen, f"`{name}`: a second {keyword}")
            check(not current.samples, f"`{name}`: {keyword} after samples")
            seen.add(keyword)
            if keyword == "UNIT":
                check(name.endswith(f"_{rest}"), f"`{name}` does not end with its unit `{rest}`")
                check(current.kind != "info", f"`{name}`: an info has no unit")
                current.unit = rest
            else:
                check(re.fullmatch(ESCAPED, rest), f"`{name}`: unescaped help")
                current.doc = rest
            continue
        sample = SAMPLE.fullmatch(line)
        check(sample, f"invalid line `{line}`")
        assert sample
        check(current, f"`{line}` is before its metadata")
        assert current
        read_sample(current, *sample.groups())
    names = [name for family in families.values() for name in reserved(family)]
    check(len(names) == len(set(names)), "two families have a sample name in common")
    for family in families.values():
        check(family.samples, f"`{family.name}` has no samples")
        if family.kind == "histogram":
            check_histogram(family)
    return families


def reserved(family: MetricFamily) -> set[str]:
    """The names that samples of a family can have, and its own."""
    return {family.name, *(family.name + suffix for suffix in SUFFIXES[family.kind])}


def read_sample(family: MetricFamily, name: str, pairs: str | None, text: str) -> None:
    """Adds a sample to its family."""
    suffixes = SUFFIXES[family.kind]
    check(
        name in {family.name + suffix for suffix in suffixes},
        f"`{name}` is not a sample of the {family.kind} `{family.name}`",
    )
    found = PAIR.findall(pairs or "")
    labels = frozenset(found)
    check(len({label for label, _ in found}) == len(found), f"`{name}`: a label twice")
    check(not any(label.startswith("__") for label, _ in found), f"`{name}`: a reserved label")
    key = (name, labels)
    check(key not in family.samples, f"`{name}` {pairs}: twice")
    value = float(text)
    if family.kind in {"counter", "histogram"}:
        check(value >= 0, f"`{name}`: {text}")
    if family.kind == "info":
        check(text == "1", f"`{name}`: the value of an info is 1")
    family.samples[key] = value


def check_histogram(family: MetricFamily) -> None:
    """Checks the buckets of each metric of a histogram."""
    series: dict[Labels, list[tuple[str, float]]] = {}
    for (name, labels), value in family.samples.items():
        others = frozenset(pair for pair in labels if pair[0] != "le")
        buckets = series.setdefault(others, [])
        if name.endswith("_bucket"):
            check(len(labels) == len(others) + 1, f"`{name}`: a bucket without `le`")
            buckets.append((dict(labels)["le"], value))
        else:
            check(labels == others, f"`{name}`: `le` belongs to buckets")
    for labels, buckets in series.items():
        texts = [le for le, _ in buckets]
        check(texts and texts[-1] == "+Inf", f"`{family.name}`: the last bucket is not +Inf")
        for le in texts:
            check(le == "+Inf" or repr(float(le)) == le, f"`{family.name}`: le `{le}`")
        bounds = [math.inf if le == "+Inf" else float(le) for le in texts]
        counts = [count for _, count in buckets]
        check(bounds == sorted(set(bounds)), f"`{family.name}`: the bounds do not ascend")
        check(counts == sorted(counts), f"`{family.name}`: the buckets are not cumulative")
        count = family.samples.get((f"{family.name}_count", labels))
        check(counts[-1] == count, f"`{family.name}`: its count is not that of +Inf")
        check((f"{family.name}_sum", labels) in family.samples, f"`{family.name}`: no sum")
