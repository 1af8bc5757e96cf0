"""What a report says, section by section: the same for the page and for Markdown, each of which only spells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from primus_page.chart import Chart
from primus_page.parts import Cards, Charts, Found, Part, Rows, Section, Table, Words
from primus_report.figures.attempts import Attempt
from primus_report.figures.figure import Figure
from primus_report.figures.report import Report
from primus_report.figures.run import RunReport
from primus_report.figures.settings import Setting
from primus_report.figures.warned import Warned
from primus_report.traces.ranks import RankTrace
from primus_report.writers.shown import amount, card, clock, duration, share, value

__all__ = ["names", "sections"]

_OPERATIONS = 30
"""So many operations of traces are named; JSON has more."""


def names(runs: Sequence[RunReport]) -> list[str]:
    """What the runs are called: two of one name are told apart by their directories."""
    plain = [run.identity.name for run in runs]
    return [name if plain.count(name) == 1 else run.identity.directory for run, name in zip(runs, plain, strict=True)]


def sections(report: Report, charts: Sequence[Chart]) -> list[Section]:
    """All of them that have something to say."""
    called = names(report.runs)
    found = [
        Section("benchmark", "Benchmark", tuple(_each(report.runs, called, _cases))),
        Section("figures", "Figures", tuple(_figures(report.runs, called))),
        Section("bottleneck", "Bottleneck", tuple(_bottlenecks(report.runs, called))),
        Section("differences", "Differences", tuple(_differences(report, called))),
        Section("charts", "Charts", (Charts(charts),) if charts else ()),
        Section("time", "Where the time went", tuple(_each(report.runs, called, _time))),
        Section("traces", "What the profiled steps consist of", tuple(_each(report.runs, called, _traces))),
        Section("attempts", "Attempts", tuple(_each(report.runs, called, _attempts))),
        Section("warnings", "Hangs and warnings", tuple(_each(report.runs, called, _warnings))),
        Section("joined", "Nodes, devices, predictions", tuple(_each(report.runs, called, _joined))),
        Section("runs", "Environment and settings", tuple(_each(report.runs, called, _environment))),
    ]
    return [section for section in found if section.parts]


def _cases(run: RunReport, name: str) -> Iterator[Part]:
    rows = [
        (
            one.name,
            "not measured" if one.value is None else amount(one.value, one.unit),
            one.why or "steady",
            one.source,
        )
        for one in run.cases
    ]
    if rows:
        yield Table(("case", "result", "state", "file"), rows, title=name)


def _only_measures(run: RunReport) -> bool:
    """Whether a run is a benchmark, of which the figures of a training say nothing."""
    return bool(run.cases) and not run.steps


def _each(
    runs: Sequence[RunReport], called: Sequence[str], of_run: Callable[[RunReport, str], Iterator[Part]]
) -> Iterator[Part]:
    for run, name in zip(runs, called, strict=True):
        yield from of_run(run, name if len(runs) > 1 else "")


def _figures(runs: Sequence[RunReport], called: Sequence[str]) -> Iterator[Part]:
    notes = [
        f"{name}: {note}" if len(runs) > 1 else note
        for run, name in zip(runs, called, strict=True)
        for note in run.notes
    ]
    yield from (Words(note, is_soft=True) for note in notes)
    if all(map(_only_measures, runs)):
        return
    if len(runs) == 1:
        figures = runs[0].figures.items()
        yield Cards([card(one) for name, one in figures if one.is_known or not name.startswith("trace_")])
        origins: Rows = [(one.title, value(one), one.source) for one in runs[0].figures.values()]
        yield Table(("figure", "value", "source"), origins, folded="Where each figure is from")
        return
    rows = [_across(key, runs) for key in runs[0].figures]
    yield Table(("figure", *called), rows)


def _across(key: str, runs: Sequence[RunReport]) -> Sequence[str]:
    """A figure of all runs; of the later ones, with the difference to the first."""
    first = runs[0].figures[key]
    cells = [value(first)]
    for run in runs[1:]:
        figure = run.figures.get(key)
        cells.append(_beside(figure, first) if figure else "")
    return (first.title, *cells)


def _beside(figure: Figure, first: Figure) -> str:
    if figure.value is None or first.value is None or not first.value:
        return value(figure)
    change = figure.value / first.value - 1
    return f"{value(figure)} ({change:+.1%})" if change else value(figure)


def _bottlenecks(runs: Sequence[RunReport], called: Sequence[str]) -> Iterator[Part]:
    for run, name in zip(runs, called, strict=True):
        prefix = f"{name}: " if len(runs) > 1 else ""
        for one in run.findings:
            title = f"{prefix}{one.title}: {share(one.value)} (bound: {share(one.bound)})"
            yield Found(title, one.advice, f"source of the bound: {one.source}", one.is_bottleneck)
        if not (run.findings or _only_measures(run)):
            yield Words(f"{prefix}{_no_bottleneck(run)}")


def _no_bottleneck(run: RunReport) -> str:
    useful = next((part.share for part in run.time if part.is_useful), None)
    if useful is None:
        return f"Not recorded: {run.figures['goodput'].why}."
    rest = (
        ""
        if run.traces.ranks or not run.identity.framework
        else " What a step consists of: `train ... --profile STEPS` records it."
    )
    return f"No figure is beyond its bound: training steps take {share(useful)} of the time.{rest}"


def _differences(report: Report, called: Sequence[str]) -> Iterator[Part]:
    if len(report.runs) < 2:
        return
    rows = [
        (row.category, row.what, *("not compared" if v is None else v for v in row.values))
        for row in report.differences.rows
    ]
    if rows:
        yield Table(("category", "what", *called), rows)
    elif not report.differences.notes:
        yield Words("The runs had the same to start from.")
    yield from (Words(note, is_soft=True) for note in report.differences.notes)


def _time(run: RunReport, name: str) -> Iterator[Part]:
    if not run.time:
        why = "" if _only_measures(run) else f"{name}: {run.figures['goodput'].why}".removeprefix(": ")
        yield from [Words(why)] * bool(why)
        return
    unit = "GPU-h" if run.identity.gpus else "device-h"
    rows = [(part.cause, part.title, duration(part.seconds), share(part.share), amount(part.device_hours, unit))
            for part in run.time if abs(part.seconds) >= 0.05 or part.is_useful]  # fmt: skip
    yield Table(("cause", "what", "duration", "share", "all devices"), rows, title=name)


def _attempts(run: RunReport, name: str) -> Iterator[Part]:
    if not run.attempts:
        return
    heads = ("attempt", "began", "took", "exit code", "last step", "why it ended")
    yield Table(heads, [_attempt(one) for one in run.attempts], title=name)


def _attempt(one: Attempt) -> Sequence[str]:
    took = duration(one.ended - one.started) if one.ended is not None else "not recorded"
    code, step = ("not recorded" if number is None else str(number) for number in (one.exit_code, one.last_step))
    lost = f"; lost: {', '.join(one.lost_nodes)}" if one.lost_nodes else ""
    return str(one.number), clock(one.started), took, code, step, f"{one.what}{lost}"


def _warnings(run: RunReport, name: str) -> Iterator[Part]:
    if run.warnings:
        yield Table(("event", "times", "steps", "first", "what"), [_warned(one) for one in run.warnings], title=name)


def _warned(one: Warned) -> Sequence[str]:
    ends = dict.fromkeys(str(step) for step in (one.first_step, one.last_step) if step is not None)
    return one.event, f"{one.count:,}", " – ".join(ends), clock(one.time), one.what


def _traces(run: RunReport, name: str) -> Iterator[Part]:
    if not run.traces.ranks:
        yield from [_missing(name, "traces: none (`train ... --profile STEPS` records one)")] * (
            bool(run.identity.framework)
        )
        return
    heads = ("device", "profiled", "compute", "communication", "not hidden", "waiting for data", "idle", "file")
    yield Table(heads, [_traced(one) for one in run.traces.ranks], title=name)
    total = sum(one.seconds for one in run.traces.operations)
    rows = [
        (one.name, one.kind, f"{one.seconds * 1e3:,.2f} ms", share(one.seconds / total), f"{one.calls:,}")
        for one in run.traces.operations[:_OPERATIONS]
    ]
    yield Table(("operation", "kind", "time, all devices", "share", "calls"), rows)


def _traced(one: RankTrace) -> Sequence[str]:
    parts = (one.compute_s, one.communication_s, one.exposed_s, one.data_s, one.idle_s)
    where = "GPU" if one.on_gpu else "CPU"
    return (
        f"{one.name} ({where})",
        f"{one.span_s * 1e3:,.1f} ms",
        *(share(one.share(part)) for part in parts),
        one.file,
    )


def _joined(run: RunReport, name: str) -> Iterator[Part]:
    yield from _predicted(run, name)
    yield from _health(run, name)
    yield from _bench(run, name)


def _predicted(run: RunReport, name: str) -> Iterator[Part]:
    if run.predictions:
        rows = [(one.name, f"{one.predicted:.4g}", _measured(run, one.name), one.source) for one in run.predictions]
        yield Table(("figure", "predicted", "measured", "source"), rows, title=name)


def _health(run: RunReport, name: str) -> Iterator[Part]:
    if not run.health:
        yield _missing(name, "preflight: not recorded (`primus direct --preflight -- train ...`)")
        return
    rows = [(one.node, one.verdict, one.level, "\n".join(one.problems) or "none", one.source) for one in run.health]
    yield Table(("node", "preflight", "level", "problems", "source"), rows, title=name)


def _bench(run: RunReport, name: str) -> Iterator[Part]:
    if not (one := run.bench):
        yield _missing(name, "bench: no GEMM benchmark of this device is beside the run")
        return
    peak = "not recorded" if one.percent_of_peak is None else f"{one.percent_of_peak:.1f} %"
    row = (one.run, one.engine, one.problem, one.dtype, f"{one.tflops:,.4g}", peak, _of_gemm(run))
    heads = ("benchmark", "engine", "best GEMM", "data type", "TFLOP/s", "of peak", "training reaches of it")
    yield Table(heads, [row], title=name)


def _missing(name: str, what: str) -> Words:
    return Words(f"{name}: {what}" if name else what, is_soft=True)


def _measured(run: RunReport, name: str) -> str:
    return value(run.figures[name]) if name in run.figures else "not recorded"


def _of_gemm(run: RunReport) -> str:
    reached = run.figures["tflops_per_gpu"].value
    return share(reached / run.bench.tflops) if reached is not None and run.bench else "not recorded"


def _environment(run: RunReport, name: str) -> Iterator[Part]:
    for what, rows in (("run", run.facts), ("settings", run.settings), ("variables that Primus set", run.environment)):
        if rows:
            folded = "" if what == "run" else f"{name} {what}: {len(rows)}".strip()
            yield Table(
                ("name", "value", "origin"),
                [_setting(row) for row in rows],
                title=name if what == "run" else "",
                folded=folded,
            )


def _setting(row: Setting) -> Sequence[str]:
    return row.name, row.value, row.origin
