"""What `bench gemm` found: the common document, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from primus_bench.benchmarks.gemm import roofline
from primus_bench.benchmarks.gemm.options import Settings
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.measure import where
from primus_bench.measure.device import Device
from primus_bench.measure.timing import percentile
from primus_bench.measure.together import Together
from primus_bench.report.document import Case, Document
from primus_bench.report.sheet import Sheet
from primus_machine.units import counted

__all__ = ["Result", "case", "document", "sheet"]

_LIMITS = {
    "bound": ("bound", "s"), "percent_of_peak": ("% of\npeak", ".1f"), "percent_of_reachable": ("% of\nreach", ".1f"),
}  # fmt: skip
_ONE = {
    "engine": ("engine", "s"), "iterations": ("runs", "d"), "median_ms": ("median\nms", ".4f"),
    "p95_ms": ("p95\nms", ".4f"), "max_ms": ("max\nms", ".4f"), "tflops": ("TFLOP/s", ".4g"),
    "gb_per_s": ("GB/s", ".4g"), "flop_per_byte": ("FLOP/B", ".4g"), **_LIMITS,
}  # fmt: skip
"""What the table shows of a record, and how."""
_MANY = {
    "shape": ("shape", "s"), "size": ("M x N x K", "s"), "count": ("count", "d"), "engine": ("engine", "s"),
    "median_ms": ("ms", ".4f"), "tflops": ("TFLOP/s", ".4g"), **_LIMITS,
}  # fmt: skip
_SLOWEST = {"slowest": ("slowest\nrank", "s"), "lag_percent": ("% behind\nmedian", ".1f")}
_RANKS = {
    "rank": ("rank", "d"), "node": ("node", "s"), "engine": ("engine", "s"), "tflops": ("TFLOP/s", ".4g"),
    "lag_percent": ("% behind\nmedian", ".1f"), "mark": ("", "s"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """One engine and one problem."""

    engine: str
    method: str
    """What the engine calls."""
    problem: Problem
    found: Together
    error: float
    """The largest one of the rank that is at work here."""
    rows_checked: int
    rotation_sets: int
    rotation_bytes: int


def case(result: Result, device: Device, hosts: Sequence[str]) -> Case:
    """The figures of the slowest rank."""
    problem, found = result.problem, result.found
    latency = found.latency
    speeds = [problem.flops / ms / 1e9 for ms in found.medians_ms]
    tflops = speeds[found.slowest]
    return Case(
        name=f"{result.engine}/{problem.label}",
        parameters={"engine": result.engine, "shape": problem.label, **_parameters(problem), "ranks": len(hosts)},
        unit="TFLOP/s",
        value=tflops,
        verified=True,
        error=result.error,
        derived={
            "method": result.method, **latency.spread(), "flops": problem.flops, "tflops": tflops,
            "tflops_of_ranks": speeds, "lag_percent": found.lag_percent,
            "gb_per_s": problem.bytes_moved / latency.median_ms / 1e6,
            **roofline.of(device, problem.dtype).figures(problem, tflops),
            "largest_error": result.error, "rows_checked": result.rows_checked,
            "rotation_sets": result.rotation_sets, "rotation_bytes": result.rotation_bytes,
        },
        **found.of_slowest(hosts),
    )  # fmt: skip


def _parameters(one: Problem) -> dict[str, Any]:
    return {"m": one.m, "n": one.n, "k": one.k, "dtype": one.dtype, "layout": one.layout, "count": one.repeats,
            "groups": one.groups, "split": one.split}  # fmt: skip


def document(settings: Settings, device: Device, hosts: Sequence[str], cases: Sequence[Case],
             notes: Sequence[str], versions: dict[str, str]) -> Document:  # fmt: skip
    """Everything, for all runs of this benchmark alike."""
    called = {"hipblaslt": "each sample is the mean that one call of hipblaslt-bench prints; it checks its results"}
    return Document(
        benchmark="gemm",
        parameters={"title": settings.title, "engines": settings.engines, "duration_s": settings.duration_s,
                    "seed": settings.seed},
        **where.measured(where.described(device), hosts, versions),
        method={"timer": where.timer(device.kind), "warm_up": "until the latency is steady", "buffers": "in rotation",
                "data": "seeded normal", "check": "before the timed iterations, on all ranks, with fp32 (fp64)",
                **(called if "hipblaslt" in settings.engines else {})},
        cases=cases,
        notes=[*notes, *_totals(settings, cases), *_limits(device, cases)],
    )  # fmt: skip


def _totals(settings: Settings, cases: Sequence[Case]) -> list[str]:
    """What all shapes come to, each as often as it is counted."""
    found = []
    for engine in settings.engines if settings.title else ():
        own = [one for one in cases if one.parameters["engine"] == engine]
        ms = sum(one.parameters["count"] * (one.median_s or 0.0) * 1000 for one in own)
        work = sum(one.parameters["count"] * one.derived["flops"] for one in own)
        speed = f": {work / 1e12:.4g} TFLOP, {work / ms / 1e9:.4g} TFLOP/s" if ms else ""
        found += [f"{engine}: all shapes, each as often as its number, take {ms:.4g} ms{speed}"] if ms else []
    return found


def _limits(device: Device, cases: Sequence[Case]) -> list[str]:
    """Why limits are missing, or what to know of them."""
    if device.kind == "cpu":
        return ["the peak of a CPU is not known here: no bound, and no percentage of it"]
    notes, model = [], device.model
    if not model:
        return [f"the table of GPUs has no {device.name}: no bound, and no percentage of a peak"]
    unknown = {one.parameters["dtype"] for one in cases if one.derived["percent_of_peak"] is None}
    notes += [f"the table of GPUs has no peak of {model.name} in {dtype}" for dtype in sorted(unknown)]
    if device.share < 1:
        notes.append(f"the device has {device.compute_units} of the {model.compute_units} compute units of "
                     f"{model.name}: the peak and reachable values are scaled to it")  # fmt: skip
    if "peak_tflops" in model.unverified:
        notes.append(f"the peak of {model.name} in the GPU table is unverified")
    return notes


def sheet(found: Document, problems: Sequence[Problem]) -> Sheet:
    """The table, and one of the ranks where there are several."""
    machine, device, many = found.machine, found.device, len(problems) > 1
    units = counted(device["compute_units"], "thread" if device["kind"] == "cpu" else "compute unit")
    several = machine["ranks"] > 1
    ranks = f"; {counted(machine['ranks'], 'rank')} on {', '.join(machine['nodes'])}" if several else ""
    heading = (
        f"GEMM: {found.parameters['title'] or (f'{len(problems)} shapes' if many else problems[0])}",
        f"on:   {device['name']} ({device['architecture']}, {units}){ranks}",
        "data: seeded normal, buffers in rotation; results checked",
    )
    columns = _columns(many=many, named=any(one.name for one in problems), several=several,
                       engines=len(found.parameters["engines"]))  # fmt: skip
    below = Sheet("Ranks", (), _RANKS, _of_ranks(found), {}) if several else None
    records = [_record(one) for one in found.cases]
    return Sheet("GEMM", heading, columns, records, found.versions, tuple(found.notes), below)


def _record(found: Case) -> dict[str, Any]:
    size = "x".join(str(found.parameters[name]) for name in ("m", "n", "k"))
    return {**found.record(), "size": size}


def _columns(*, many: bool, named: bool, several: bool, engines: int) -> dict[str, tuple[str, str]]:
    """As many as a terminal has room for."""
    if not many:
        left = {name: shown for name, shown in _ONE.items() if not several or name not in ("p95_ms", "gb_per_s")}
        return left | (_SLOWEST if several else {})
    kept = {
        "size": named and not several, "count": named, "engine": engines > 1, "percent_of_peak": not several
    }  # fmt: skip
    columns = {name: shown for name, shown in _MANY.items() if kept.get(name, True)}
    return columns | (_SLOWEST if several else {})


def _of_ranks(found: Document) -> list[dict[str, Any]]:
    """The speed of each rank with each engine, over all shapes."""
    rows: list[dict[str, Any]] = []
    for engine in found.parameters["engines"]:
        own = [one for one in found.cases if one.parameters["engine"] == engine]
        if own:
            rows += _of_engine(engine, own, found.machine["hosts"])
    return rows


def _of_engine(engine: str, cases: Sequence[Case], hosts: Sequence[str]) -> list[dict[str, Any]]:
    work = [one.parameters["count"] * one.derived["flops"] for one in cases]
    seconds = [
        sum(flops / one.derived["tflops_of_ranks"][rank] for flops, one in zip(work, cases, strict=True))
        for rank in range(len(hosts))
    ]  # fmt: skip
    middle = percentile(sorted(seconds), 0.5)
    return [
        {"rank": rank, "node": host, "engine": engine, "tflops": sum(work) / seconds[rank],
         "lag_percent": 100 * (seconds[rank] / middle - 1),
         "mark": "slowest" if seconds[rank] == max(seconds) else ""}
        for rank, host in enumerate(hosts)
    ]  # fmt: skip
