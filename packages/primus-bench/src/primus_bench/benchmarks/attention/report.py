"""What `bench attention` found: the common document, and a table."""

from __future__ import annotations

from collections.abc import Sequence

from primus_bench.benchmarks.attention.options import Settings
from primus_bench.benchmarks.attention.problem import Problem
from primus_bench.measure import where
from primus_bench.measure.device import Device
from primus_bench.measure.together import WARM_UP, Together
from primus_bench.report import about
from primus_bench.report.document import Case, Document
from primus_bench.report.sheet import Sheet

__all__ = ["case", "document", "sheet"]

_COLUMNS = {
    "backend": ("backend", "s"), "pass": ("pass", "s"), "ranks": ("ranks", "d"), "iterations": ("runs", "d"),
    "median_ms": ("median\nms", ".4f"), "p95_ms": ("p95\nms", ".4f"), "max_ms": ("max\nms", ".4f"),
    "tflops": ("TFLOP/s", ".4g"), "percent_of_peak": ("% of\npeak", ".1f"), "slowest": ("slowest\nrank", "s"),
}  # fmt: skip


def case(backend: str, direction: str, problem: Problem, found: Together, device: Device, hosts: Sequence[str]) -> Case:
    """The figures of the slowest rank."""
    latency, flops = found.latency, problem.flops(direction)
    speeds = [flops / ms / 1e9 for ms in found.medians_ms]
    tflops = speeds[found.slowest]
    peak = device.peak_tflops(problem.dtype)
    return Case(
        name=f"{backend}/{direction}",
        parameters={"backend": backend, "pass": direction, "ranks": len(hosts), **problem._asdict()},
        unit="TFLOP/s",
        value=tflops,
        verified=True,
        error=None,
        derived={
            **latency.spread(), "flops": flops, "tflops": tflops,
            "tflops_of_ranks": speeds, "percent_of_peak": 100 * tflops / peak if peak else None,
        },
        **found.of_slowest(hosts),
    )  # fmt: skip


def document(settings: Settings, device: Device, hosts: Sequence[str], cases: Sequence[Case],
             notes: Sequence[str]) -> Document:  # fmt: skip
    """Everything, for all runs of this benchmark alike."""
    return Document(
        benchmark="attention",
        parameters={"model": settings.title or None, **settings.problem._asdict(),
                    "backends": settings.backends, "passes": settings.passes,
                    "duration_s": settings.duration_s, "seed": settings.seed},
        **where.measured(where.described(device), hosts),
        method={"timer": where.timer(device.kind), "warm_up": WARM_UP,
                "data": "seeded normal", "buffers": "the same in each iteration",
                "flops": "of pairs that attend to each other; backward is 2.5 times forward if all heads have one size",
                "check": "output and gradients, before the timed iterations, with attention in fp32 (fp64)"},
        cases=cases,
        notes=notes,
    )  # fmt: skip


def sheet(found: Document, problem: Problem) -> Sheet:
    """The table."""
    heading = (
        f"attention: {f'{name}: ' if (name := found.parameters['model']) else ''}{problem}",
        f"on:        {about.place(found)}",
        "data:      seeded normal; output and gradients checked",
    )
    return Sheet(
        "Attention", heading, _COLUMNS, [case.record() for case in found.cases], found.versions, tuple(found.notes)
    )
