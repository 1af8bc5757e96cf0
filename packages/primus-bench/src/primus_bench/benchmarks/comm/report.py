"""What `bench comm` found: the common document, and a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from primus_bench.benchmarks.comm import traffic
from primus_bench.benchmarks.comm.options import Settings
from primus_bench.benchmarks.comm.overlap import Overlapped
from primus_bench.benchmarks.comm.sizes import shown
from primus_bench.measure import where
from primus_bench.measure.device import Device
from primus_bench.measure.timing import summary, thinned
from primus_bench.report.document import Case, Document
from primus_bench.report.sheet import Sheet
from primus_machine.units import counted

__all__ = ["Timed", "case", "document", "sheet"]

_COLUMNS = {
    "operation": ("operation", "s"), "scope": ("scope", "s"), "ranks": ("ranks", "d"), "size": ("size", "s"),
    "iterations": ("runs", "d"), "median_us": ("median\nµs", ".1f"), "p95_us": ("p95\nµs", ".1f"),
    "max_us": ("max\nµs", ".1f"), "algorithm_gb_per_s": ("algbw\nGB/s", ".4g"), "bus_gb_per_s": ("busbw\nGB/s", ".4g"),
    "hidden_percent": ("% hidden\nby GEMM", ".0f"), "slowest": ("slowest\nrank", "s"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timed:
    """One collective, one size, one scope: the seconds of each iteration on each rank."""

    operation: str
    scope: str
    ranks: int
    """In each group."""
    size: int
    seconds: Sequence[Sequence[float]]
    """By rank of the job, by iteration."""
    overlapped: Overlapped | None = None


def case(timed: Timed, hosts: Sequence[str]) -> Case:
    """The figures. An iteration takes as long as on the rank where it takes longest."""
    samples = [max(times) for times in zip(*timed.seconds, strict=True)]
    latency = summary([1000 * seconds for seconds in samples])
    median = latency.median_ms / 1000
    of_ranks = [statistics.median(times) for times in timed.seconds]
    slowest = max(range(len(of_ranks)), key=of_ranks.__getitem__)
    bus = traffic.bus_gb_per_s(timed.operation, timed.ranks, timed.size, median)
    return Case(
        name=f"{timed.operation}/{timed.scope}/{timed.size}",
        parameters={"operation": timed.operation, "scope": timed.scope, "ranks": timed.ranks, "bytes": timed.size},
        samples_s=thinned(samples),
        median_s=median,
        unit="GB/s",
        value=bus,
        verified=True,
        error=None,
        derived={
            **latency.spread(),
            "algorithm_gb_per_s": traffic.algorithm_gb_per_s(timed.size, median), "bus_gb_per_s": bus,
            "slowest_of_median": of_ranks[slowest] / statistics.median(of_ranks),
            "microseconds_of_ranks": [1e6 * seconds for seconds in of_ranks], **_overlap(timed.overlapped),
        },
        rank=slowest,
        node=hosts[slowest],
    )  # fmt: skip


def _overlap(found: Overlapped | None) -> dict[str, float]:
    """Of a collective that was also measured with a GEMM at its side."""
    if not found:
        return {}
    return {"gemm_s": found.gemm_s, "together_s": found.together_s, "hidden_percent": found.hidden_percent}


def document(settings: Settings, device: Device, hosts: Sequence[str], cases: Sequence[Case], backend: str,
             notes: Sequence[str]) -> Document:  # fmt: skip
    """Everything, for all runs of this benchmark alike."""
    return Document(
        benchmark="comm",
        parameters={"operations": settings.operations, "scopes": settings.scopes, "sizes": settings.sizes,
                    "dtype": settings.dtype, "iterations": settings.iterations, "warm_up": settings.warm_up,
                    "overlap": settings.overlap},
        **where.measured(where.described(device), hosts),
        method={"backend": backend, "iteration": "as long as on the slowest rank",
                "timer": where.timer(device.kind) + " after a barrier" * (device.kind == "cpu"),
                "bandwidth": "algbw and busbw of nccl-tests", "buffers": "the same in each iteration",
                "check": "before and after the timed iterations, on all ranks, exact"},
        cases=cases,
        notes=notes,
    )  # fmt: skip


def sheet(found: Document) -> Sheet:
    """The table."""
    machine, scopes = found.machine, found.parameters["scopes"]
    one = f", {scopes[0]}" if len(scopes) == 1 else ""
    ranks, nodes = counted(machine["ranks"], "rank"), ", ".join(machine["nodes"])
    heading = (
        f"comm: {ranks} on {nodes}, {found.method['backend']}, {found.parameters['dtype']}{one}",
        f"on:   {found.device['name']}",
        "data: whole numbers with exact sums; results checked",
    )
    hidden = {"scope"} if one else set()
    hidden |= set() if found.parameters["overlap"] else {"hidden_percent"}
    columns = {key: shown for key, shown in _COLUMNS.items() if key not in hidden}
    return Sheet("Collectives", heading, columns, list(map(_record, found.cases)), found.versions, tuple(found.notes))


def _record(found: Case) -> Mapping[str, Any]:
    """In microseconds: collectives are short."""
    flat = found.record()
    times = {f"{name}_us": flat.pop(f"{name}_ms") * 1000 for name in ("median", "p5", "p95", "max")}
    return {**flat, "size": shown(found.parameters["bytes"]), **times}
