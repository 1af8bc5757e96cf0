"""What `bench train` found: the common document, and a table. The figures are those of docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence

from primus_bench.benchmarks.train.options import Settings
from primus_bench.benchmarks.train.problem import Problem
from primus_bench.measure import where
from primus_bench.measure.device import Device
from primus_bench.measure.together import WARM_UP, Together
from primus_bench.report import about
from primus_bench.report.document import Case, Document
from primus_bench.report.sheet import Sheet
from primus_train.kit.work import ComputeCost

__all__ = ["case", "document", "sheet"]

_COLUMNS = {
    "step": ("step", "s"), "ranks": ("ranks", "d"), "iterations": ("runs", "d"), "median_ms": ("median\nms", ".4f"),
    "p95_ms": ("p95\nms", ".4f"), "tokens_per_second": ("tokens/s", ".4g"),
    "tokens_per_second_per_gpu": ("tokens/s\neach rank", ".4g"), "tflops_per_gpu": ("TFLOP/s\neach rank", ".4g"),
    "mfu_percent": ("MFU\n%", ".1f"), "memory_gib": ("memory\nGiB", ".2f"), "slowest": ("slowest\nrank", "s"),
}  # fmt: skip


def case(step: str, problem: Problem, found: Together, device: Device, hosts: Sequence[str],
         memory_gib: float | None) -> Case:  # fmt: skip
    """The figures: all ranks wait for the slowest in training, so its time is that of the step."""
    latency = found.latency
    each = problem.tokens / latency.median_ms * 1000
    peak = device.peak_tflops(problem.dtype)
    rates = ComputeCost(problem.flops_per_token, peak).rates(each, None)
    mfu = rates["mfu"]
    return Case(
        name=f"{problem.model}/{step}",
        parameters={"model": problem.model, "step": step, "seq_len": problem.seq_len,
                    "micro_batch": problem.micro_batch, "dtype": problem.dtype, "ranks": len(hosts)},
        unit="tokens/s",
        value=each * len(hosts),
        verified=True,
        error=None,
        derived={
            **latency.spread(), "flops_per_token": problem.flops_per_token, "tokens_per_second": each * len(hosts),
            "tokens_per_second_per_gpu": each, **rates, "mfu_percent": None if mfu is None else 100 * mfu,
            "memory_gib": memory_gib,
            "tokens_per_second_of_ranks": [problem.tokens / ms * 1000 for ms in found.medians_ms],
            "lag_percent": found.lag_percent,
        },
        **found.of_slowest(hosts),
    )  # fmt: skip


def document(settings: Settings, device: Device, hosts: Sequence[str], cases: Sequence[Case],
             notes: Sequence[str]) -> Document:  # fmt: skip
    """Everything, for all runs of this benchmark alike."""
    p = settings.problem
    return Document(
        benchmark="train",
        parameters={"model": p.model, "seq_len": p.seq_len, "micro_batch": p.micro_batch, "dtype": p.dtype,
                    "optimizer": p.optimizer, "duration_s": settings.duration_s, "seed": settings.seed},
        **where.measured(where.described(device), hosts),
        method={"timer": where.timer(device.kind), "warm_up": WARM_UP,
                "data": "seeded normal", "experts": "each has equally many tokens",
                "flops": "those of the catalogue: 6 for each weight that a token passes, and attention",
                "check": f"output and gradients of {p.compared} tokens, with the layer written out in fp32 (fp64)"},
        cases=cases,
        notes=notes,
    )  # fmt: skip


def sheet(found: Document, problem: Problem) -> Sheet:
    """The table."""
    heading = (
        f"train: {problem}",
        f"on:    {about.place(found)}",
        f"work:  {problem.flops_per_token:,} FLOPs for each token; output and gradients checked",
    )
    records = [case.record() for case in found.cases]
    return Sheet("Training of a layer", heading, _COLUMNS, records, found.versions, tuple(found.notes))
