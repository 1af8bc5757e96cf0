"""The verdict as one HTML page that needs nothing else: a tile for each node, what is wrong, and what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from primus_machine.units import counted
from primus_preflight.checks.findings import Finding, Status, verdict
from primus_preflight.verdict.cluster import Cluster
from primus_preflight.views import markup, report
from primus_preflight.views.markup import tag, text

__all__ = ["as_html"]

_MARKS: Mapping[Status, str] = {"fail": "✗", "unknown": "?", "warn": "!", "pass": "✓", "skip": "–"}
"""The worst first. What has a colour has a mark, too: not everybody sees the colours."""
_COLOURS = {
    "pass": ("#d7efdd", "#17462a"),
    "warn": ("#fbeac2", "#5c4300"),
    "fail": ("#f8d3d0", "#7a1010"),
    "unknown": ("#ded9f2", "#3b2d73"),
    "skip": ("#ececef", "#55555c"),
}
_DARK = {
    "pass": ("#1d4b2e", "#c9efd5"),
    "warn": ("#5f4a10", "#ffe9ad"),
    "fail": ("#7c1f1f", "#ffd9d6"),
    "unknown": ("#43387a", "#e2dcff"),
    "skip": ("#2c2c31", "#a5a5ad"),
}
_ROWS, _NODES = 300, 200
"""So many at most are written out: who has more problems than that reads the JSON."""
_SMALL = 40
"""So many nodes at most have a row each, whatever was found."""
_TILE, _ACROSS = 16, 60
_WIDTH, _TALL = 860, 74
"""Of a figure of values."""


def _paint(colours: Mapping[str, tuple[str, str]]) -> str:
    """In tiles and dots, what does not pass stands out."""
    return "".join(
        f".{name}{{background:{back};color:{front}}}"
        f"rect.{name},circle.{name}{{fill:{back if name in ('pass', 'skip') else front}}}"
        for name, (back, front) in colours.items()
    )


_STYLE = (
    markup.TEXT_COLOURS
    + """
body{margin:2em auto;max-width:1180px;padding:0 1em;background:#fff;color:#1c1c1e;line-height:1.4}
h1{font-size:1.5em;margin-bottom:.3em}h2{font-size:1.1em;margin:1.8em 0 .6em}
.small{color:#5b5b60;font-size:.85em}
.verdict{padding:.7em 1em;border-radius:8px;font-weight:600}table{border-collapse:collapse;font-size:.88em}
.wide{overflow-x:auto}th,td{text-align:left;vertical-align:top;padding:.35em .6em;border-bottom:1px solid #dcdce0}
td.mark{text-align:center;min-width:4.2em;border:2px solid #fff;border-radius:6px}code{font-size:.95em}
svg{max-width:100%;height:auto;display:block}svg text{font-size:11px;fill:#5b5b60}svg .on{fill:#fff;font-weight:600}
.axis{stroke:#c9c9ce}.middle{stroke:#5b5b60;stroke-dasharray:3 3}figure{margin:1em 0}
.dots{stroke:#0072b2;stroke-width:5;stroke-linecap:round;stroke-opacity:.5;fill:none}.many{stroke-width:2.5}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f6;padding:.7em 1em;border-radius:8px}"""
    + _paint(_COLOURS)
    + "@media(prefers-color-scheme:dark){body{background:#141416;color:#ececf0}.small{color:#a5a5ad}"
    "th,td{border-color:#3c3c43}td.mark{border-color:#141416}pre{background:#1e1e22}"
    "svg text{fill:#a5a5ad}svg .on{fill:#141416}"
    ".dots{stroke:#56b4e9}.axis{stroke:#4a4a52}.middle{stroke:#a5a5ad}" + _paint(_DARK) + "}"
)


def as_html(cluster: Cluster) -> str:
    """The page. Of thousands of nodes it has a tile each, and rows of those that are not fit."""
    state = {0: "pass", 1: "fail"}.get(cluster.exit_code, "unknown")
    title = {"pass": "Fit to train", "fail": "Not fit to train", "unknown": "Incomplete"}[state]
    return markup.page(
        f"Preflight: {title}",
        _STYLE,
        tag("h1", "Preflight"),
        tag("p", text(f"{_MARKS[_status(state)]} {title}. {report.headline(cluster)}"), class_=f"verdict {state}"),
        tag("p", text(report.counts(cluster)), class_="small"),
        *(tag("p", text(line), class_="small") for line in cluster.provenance.lines),
        *_excluded(cluster),
        *(_tiles(cluster) if len(cluster.nodes) > 1 else ()),
        *_wrong(cluster),
        *_table(cluster),
        *_figures(cluster),
        *_skips(cluster),
    )


def _status(word: str) -> Status:
    return next(status for status in _MARKS if status == word)


def _excluded(cluster: Cluster) -> Iterator[str]:
    """What to leave out of the next job, as Slurm takes it."""
    if cluster.failing and cluster.passing:
        yield tag("pre", text(f"srun --exclude={','.join(cluster.failing)}"))


def _states(cluster: Cluster) -> dict[str, Status]:
    """Of each node: its verdict; a warning where it has one and passes."""
    found: dict[str, Status] = {}
    for host, findings in cluster.nodes.items():
        own = verdict(findings)
        found[host] = "warn" if own == "pass" and any(one.status == "warn" for one in findings) else own
    return found


def _tiles(cluster: Cluster) -> Iterator[str]:
    """A square for each node, in the order of their names."""
    states = _states(cluster)
    yield tag("h2", counted(len(states), "node"))
    squares = []
    for at, (host, state) in enumerate(states.items()):
        row, column = divmod(at, _ACROSS)
        place = {"x": column * (_TILE + 3) + 1, "y": row * (_TILE + 3) + 1}
        mark = tag(
            "text", _MARKS[state], x=place["x"] + _TILE / 2, y=place["y"] + 12, text_anchor="middle", class_="on"
        )
        squares.append(
            tag("rect", tag("title", text(f"{host}: {state}")), width=_TILE, height=_TILE, rx=3, class_=state, **place)
        )
        squares += [mark] if state != "pass" else []
    width, height = _ACROSS * (_TILE + 3) + 1, (len(states) - 1) // _ACROSS * (_TILE + 3) + _TILE + 3
    if len(states) < _ACROSS:
        width = len(states) * (_TILE + 3) + 1
    yield tag("svg", *squares, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img")
    words = " · ".join(
        f"{_MARKS[status]} {status} {sum(one == status for one in states.values())}"
        for status in _MARKS
        if status in states.values()
    )
    yield tag("p", text(words), class_="small")


def _wrong(cluster: Cluster) -> Iterator[str]:
    rows = report.rows(cluster)
    if not rows:
        return
    yield tag("h2", "What is not as expected")
    several = len(cluster.nodes) > 1
    heads = ("", "check", *(("nodes",) if several else ()), "what", "measured", "expected", "why, and what to do")
    lines = [_row(row, several=several) for row in rows[:_ROWS]]
    yield _grid(heads, lines)
    if len(rows) > _ROWS:
        yield tag("p", text(f"and {len(rows) - _ROWS} more: --output report.json has all"), class_="small")


def _row(row: report.Row, *, several: bool) -> str:
    one = row.finding
    cells = [tag("td", text(one.check)), *([tag("td", text(report.listed(row.hosts)))] if several else [])]
    cells += [tag("td", text(value)) for value in (report.listed(row.subjects), one.amount or "not measured")]
    source = [tag("br"), tag("span", text(one.source), class_="small")] if one.source else []
    cells.append(tag("td", text(report.expected(one)), *source))
    todo = [text(one.why), tag("br")] if one.why else []
    return tag("tr", _mark(one.status), *cells, tag("td", *todo, *([tag("code", text(one.fix))] if one.fix else [""])))


def _mark(status: Status, label: str = "") -> str:
    return tag("td", f"{_MARKS[status]} {text(label or status)}", class_=f"mark {status}")


def _grid(heads: Iterable[str], rows: Iterable[str]) -> str:
    head = tag("thead", tag("tr", *(tag("th", text(one)) for one in heads)))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="wide")


def _table(cluster: Cluster) -> Iterator[str]:
    """Nodes by groups of checks: all nodes where they are few, or else those that do not pass."""
    passing = set(cluster.passing) if len(cluster.nodes) > _SMALL else set()
    hosts = [host for host in cluster.nodes if host not in passing]
    if not hosts:
        return
    groups = list(dict.fromkeys(_group(one) for host in hosts for one in cluster.nodes[host]))
    rows = [tag("tr", tag("th", text(host)), *_cells(cluster.nodes[host], groups)) for host in hosts[:_NODES]]
    yield tag("h2", "Nodes that do not pass" if passing else "Nodes")
    yield _grid(("", *groups), rows)
    if len(hosts) > _NODES:
        yield tag(
            "p",
            text(f"and {len(hosts) - _NODES} more: failing_nodes.txt and unknown_nodes.txt name them"),
            class_="small",
        )


def _group(one: Finding) -> str:
    return one.check.partition(".")[0]


def _cells(findings: Sequence[Finding], groups: Sequence[str]) -> Iterator[str]:
    for group in groups:
        own = [one.status for one in findings if _group(one) == group]
        worst = next((status for status in _MARKS if status in own), None)
        yield _mark(worst, f"{own.count(worst)} {worst}") if worst else tag("td", "")


class _Dot(NamedTuple):
    """One node's worst value, or one device's where there is one node."""

    name: str
    finding: Finding
    value: float


def _figures(cluster: Cluster) -> Iterator[str]:
    """The values that are compared between nodes, one figure for each check."""
    found: dict[str, dict[str, _Dot]] = {}
    for host, findings in cluster.nodes.items():
        for one in findings:
            if one.value is not None and one.compare in ("higher", "lower"):
                name = host if len(cluster.nodes) > 1 else one.subject or host
                dots = found.setdefault(one.check, {})
                if name not in dots or _is_worse(one, one.value, dots[name]):
                    dots[name] = _Dot(name, one, one.value)
    plotted = [_figure(check, list(dots.values())) for check, dots in found.items() if len(dots) > 1]
    if plotted:
        yield tag("h2", "Measured values")
        whose = "Each dot is a node: the worst of its devices." if len(cluster.nodes) > 1 else "Each dot is a device."
        yield tag("p", f"{whose} The dashed line is the median.", class_="small")
        yield from plotted


def _is_worse(one: Finding, value: float, other: _Dot) -> bool:
    if (one.status == "pass") != (other.finding.status == "pass"):
        return one.status != "pass"
    return value < other.value if one.compare == "higher" else value > other.value


def _figure(check: str, dots: Sequence[_Dot]) -> str:
    """A strip: values from left to right, dots spread over its height so that few hide another."""
    one, values = dots[0].finding, [dot.value for dot in dots]
    low, high, middle = min(values), max(values), statistics.median(values)
    room = (high - low) * 0.03 or abs(high) * 0.03 or 1.0

    def across(value: float) -> float:
        return 10 + (value - low + room) / (high - low + 2 * room) * (_WIDTH - 20)

    # 29 and 47 have no common part: each height is taken before one comes again
    places = [(dot, across(dot.value), 9 + at * 29 % 47) for at, dot in enumerate(dots)]
    good = "".join(f"M{x:.1f} {y}h0" for dot, x, y in places if dot.finding.status == "pass")
    marked = [(dot, x, y) for dot, x, y in places if dot.finding.status != "pass"]
    bottom, at = _TALL - 12, f"{across(middle):.1f}"
    drawn = (
        tag("line", x1=10, x2=_WIDTH - 10, y1=bottom, y2=bottom, class_="axis"),
        tag("line", x1=at, x2=at, y1=2, y2=bottom, class_="middle"),
        tag("path", d=good or "M0 0", class_=f"dots{' many' * (len(dots) > 300)}"),
        *(_marked(*one) for one in marked[:_NODES]),
        tag("text", f"{low:.4g}", x=10, y=_TALL + 2, text_anchor="start"),
        tag("text", f"{high:.4g}", x=_WIDTH - 10, y=_TALL + 2, text_anchor="end"),
    )
    size = {"viewBox": f"0 0 {_WIDTH} {_TALL + 8}", "width": _WIDTH, "height": _TALL + 8}
    title = f"{check}: {one.unit or 'value'}, {one.compare} is better; median {middle:.4g} of {len(dots)}"
    named = report.listed(dict.fromkeys(f"{dot.name} {dot.value:.4g}" for dot, _, _ in marked))
    caption = tag("figcaption", text(f"{title}; marked: {named}" if named else title), class_="small")
    return tag("figure", caption, tag("svg", *drawn, role="img", **size))


def _marked(dot: _Dot, x: float, y: float) -> str:
    return tag("circle", tag("title", text(_description(dot))), cx=f"{x:.1f}", cy=y, r=5, class_=dot.finding.status)


def _description(dot: _Dot) -> str:
    where = f" {dot.finding.subject}" if dot.finding.subject and dot.finding.subject != dot.name else ""
    return f"{dot.name}{where}: {dot.finding.amount}, {dot.finding.status}. {dot.finding.why}".strip()


def _skips(cluster: Cluster) -> Iterator[str]:
    reasons = report.skipped(cluster)
    if reasons:
        yield tag("h2", "Skipped")
        yield tag(
            "ul", *(tag("li", text(f"{why}: {', '.join(checks)}")) for why, checks in reasons.items()), class_="small"
        )
