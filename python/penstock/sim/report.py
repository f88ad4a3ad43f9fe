"""The results as one page that needs nothing else: no network, no script."""

from __future__ import annotations

import datetime
import shlex
from html import escape
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.sim import figures
from penstock.sim.plot import STYLE
from penstock.sim.table import cells
from penstock.sim.units import count, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sim.results import Study
    from penstock.sim.table import Column

__all__ = ["page"]

PAGE_STYLE = (
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--paper);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}"
    "h1{font-size:26px;line-height:1.2;margin:0 0 4px}h2{font-size:20px;margin:44px 0 8px}"
    "h3{font-size:16px;margin:28px 0 6px}p{margin:6px 0}"
    ".lead,.note,footer{color:var(--faint)}.note{font-size:13.5px}"
    ".facts{display:flex;flex-wrap:wrap;gap:10px 34px;margin:18px 0 4px;padding:0}"
    ".facts div{display:flex;flex-direction:column-reverse}"
    ".facts dt{color:var(--faint);font-size:13px}"
    ".facts dd{margin:0;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums}"
    ".scroll{overflow-x:auto;margin:14px 0}"
    "table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}"
    "th,td{padding:5px;text-align:right;white-space:nowrap}"
    "th{font-weight:600}thead th{color:var(--faint);font-weight:500;vertical-align:bottom}"
    "thead tr:last-child th{border-bottom:1px solid var(--faint)}"
    "thead .group{text-align:center;border-bottom:1px solid var(--grid)}"
    "tbody tr+tr>*{border-top:1px solid var(--grid)}"
    "th:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}"
    "td.best{font-weight:700}"
    ".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:20px}"
    "figure{margin:18px 0}code{font:13px ui-monospace,'DejaVu Sans Mono',monospace}"
    "pre{padding:12px 14px;border:1px solid var(--grid);border-radius:6px;white-space:pre-wrap}"
    "ul{margin:6px 0;padding-left:22px}"
    "details{margin:24px 0}summary{cursor:pointer;font-weight:600}"
    "dl.terms dt{font-weight:600;margin-top:8px}dl.terms dd{margin:0 0 0 20px}"
    "i.key{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.5em}"
    + "".join(f"i.k{n}{{background:var(--c{n})}}" for n in range(8))
)

TERM_TEXTS = (
    ("wait", "From submit to start."),
    (
        "bounded slowdown",
        "(wait + run time) / run time, where a run time under 10 s counts as 10 s; at least 1.",
    ),
    (
        "utilisation",
        "Seconds of cores in use, of all seconds of cores within the makespan.",
    ),
    ("makespan", "From the first submit of a job that started to the last end."),
    ("backfilled", "The share of jobs that started while an earlier one of their queue waited."),
    (
        "estimate error",
        "Difference of the start and its estimate at submission.",
    ),
    ("p95", "95 % of the jobs have at most this."),
)

# In which direction a column is better: the best of several policies is shown so.
LOWER_IS_BETTER = {"wait_mean", "wait_median", "wait_p95", "wait_max", "makespan"} | {
    f"slowdown_{what}" for what in ("mean", "median", "p95", "max")
}
HIGHER_IS_BETTER = {"utilisation"}


def page(
    studies: Sequence[Study],
    command: Sequence[str],
    window: tuple[float, float] | None = None,
) -> str:
    """A report as HTML, which is well-formed XML, too.

    Its size does not grow with the number of jobs: lines have some hundred points, and Gantt charts
    at most 1,500 blocks.

    Args:
        studies: what was simulated.
        command: how it can be done again.
        window: from when to when Gantt charts go, in seconds of the trace; None for a busy time.
    """
    names = ", ".join(study.name for study in studies)
    body = "\n".join(_study(study, window) for study in studies)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        # The browser loads and runs nothing, even if the escaping above has a defect.
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{_text(names)}: penstock sim</title>\n"
        f"<style>{STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{body}\n{_terms()}\n"
        f"<h2>How to do this again</h2>\n<pre><code>{_text(shlex.join(command))}</code></pre>\n"
        f"<footer><p>Penstock {_text(__version__)}: the workload was replayed in virtual time by "
        "the engine that schedules in production.</p></footer>\n</main>\n</body>\n</html>\n"
    )


def _study(study: Study, window: tuple[float, float] | None) -> str:
    low, high = figures.span(study)
    jobs = study.workload.jobs
    when = _dates(study, low, high)
    facts = [
        ("jobs", count(jobs)),
        ("cores", count(study.cores)),
        ("from first submit to last end", duration(high - low)),
    ]
    if study.machine.resources is not None:
        facts.insert(1, ("nodes", count(study.machine.resources.nnodes)))
    charts, what = figures.schedule(study, window)
    error = figures.errors(study)
    policies = ", ".join(run.policy for run in study.runs)
    parts = [
        f"<h1>{_text(study.name)}</h1>",
        f'<p class="lead">{_text(policies)} on {_text(study.machine.text)}{_text(when)}</p>',
        '<dl class="facts">'
        + "".join(
            f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts
        )
        + "</dl>",
        _table(study),
        *_denials(study),
        "<h2>Over time</h2>",
        *(f"<figure>{chart}</figure>" for chart in figures.over_time(study)),
        "<h2>Waits</h2>",
        '<div class="pair">',
        *(f"<figure>{chart}</figure>" for chart in figures.distributions(study)),
        *(f"<figure>{chart}</figure>" for chart in figures.size_classes(study)),
        "</div>",
    ]
    if error is not None:
        parts += ["<h2>Foretold starts</h2>", f"<figure>{error}</figure>"]
    parts += [
        f"<h2>Who has which {'nodes' if study.machine.resources is not None else 'cores'}</h2>",
        f'<p class="note">{_text(what)}</p>',
        *(f"<figure>{chart}</figure>" for chart in charts),
        "<h2>What was assumed</h2>",
        "<ul>" + "".join(f"<li>{_text(said)}</li>" for said in study.assumptions) + "</ul>",
    ]
    return "\n".join(parts)


def _denials(study: Study) -> list[str]:
    said = study.denials
    if not said:
        return []
    items = "".join(f"<li>{_text(reason)}</li>" for reason in said)
    return ["<h2>What was denied</h2>", f"<ul>{items}</ul>"]


def _table(study: Study) -> str:
    columns, rows = cells(study)
    summaries = [run.results.summary for run in study.runs]
    best = [_best([summary.get(key) for summary in summaries], key) for _, _, key, _ in columns]
    body = []
    for n, (run, row) in enumerate(zip(study.runs, rows, strict=True)):
        values = "".join(
            f'<td class="best">{_text(cell)}</td>' if n in best[at] else f"<td>{_text(cell)}</td>"
            for at, cell in enumerate(row)
        )
        key = f'<i class="key k{n % 8}"></i>'
        body.append(f'<tr><th scope="row">{key}{_text(run.policy)}</th>{values}</tr>')
    return (
        '<div class="scroll"><table><thead>'
        + _heads(columns)
        + f"</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _heads(columns: Sequence[Column]) -> str:
    groups, n = ["<th></th>"], 0
    while n < len(columns):
        end = n + 1
        while columns[n][0] and end < len(columns) and columns[end][0] == columns[n][0]:
            end += 1
        if columns[n][0]:
            groups.append(f'<th class="group" colspan="{end - n}">{_text(columns[n][0])}</th>')
        else:
            groups.append("<th></th>")
        n = end
    names = "".join(f'<th scope="col">{_text(name)}</th>' for _, name, _, _ in columns)
    return f'<tr>{"".join(groups)}</tr><tr><th scope="col">policy</th>{names}</tr>'


def _best(values: Sequence[float | None], key: str) -> set[int]:
    """The positions of the best values; empty if all are equal or `key` is not ranked."""
    known = [value for value in values if value is not None]
    if key not in LOWER_IS_BETTER | HIGHER_IS_BETTER or len(set(known)) < 2:
        return set()
    goal = min(known) if key in LOWER_IS_BETTER else max(known)
    return {n for n, value in enumerate(values) if value == goal}


def _terms() -> str:
    terms = "".join(f"<dt>{_text(term)}</dt><dd>{_text(said)}</dd>" for term, said in TERM_TEXTS)
    return (
        f'<details><summary>What the words mean</summary><dl class="terms">{terms}</dl></details>'
    )


def _dates(study: Study, low: float, high: float) -> str:
    if study.unix_start is None:
        return ""
    try:
        first, last = (
            datetime.datetime.fromtimestamp(study.unix_start + time, datetime.UTC)
            for time in (low, high)
        )
    except (OverflowError, OSError, ValueError):
        return ""
    return f", {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _text(text: str) -> str:
    """Text of others, made safe for a page; characters that XML has not are left out."""
    return escape("".join(letter for letter in text if letter.isprintable() or letter == "\n"))
