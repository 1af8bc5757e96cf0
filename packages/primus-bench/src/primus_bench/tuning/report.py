"""The speed-up of each shape, and of all of them as often as they are called, in the form of all benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from primus_bench.benchmarks.gemm import hipblaslt
from primus_bench.report.document import Case, Document
from primus_bench.report.sheet import Sheet
from primus_bench.tuning import calls
from primus_bench.tuning.record import Finished, Record

__all__ = ["document", "sheet"]

_COLUMNS = {
    "size": ("M x N x K", "s"), "layout": ("layout", "s"), "dtype": ("dtype", "s"), "count": ("calls", "d"),
    "default_us": ("default\nus", ".4g"), "tuned_us": ("tuned\nus", ".4g"), "speed_up": ("speed-up", ".3f"),
    "tflops": ("TFLOP/s", ".4g"), "solution": ("solution", "s"),
}  # fmt: skip


def document(record: Record) -> Document:
    """Everything that is known of a tuning file."""
    cases = _named([_case(one, count) for one, count in record.shapes])
    stack = record.stack
    return Document(
        benchmark="gemm-tune",
        parameters={"methods": sorted({one.method for one, _ in record.shapes})},
        machine={"host": record.host} if record.host else {},
        device={"kind": "cuda", "name": stack.device, "architecture": stack.architecture},
        clocks={},
        versions=_versions(record),
        method={"timer": calls.COMMAND, "iterations": 20, "warm_up": 20, "rotating_mib": 512,
                "default": "the kernel that hipBLASLt chooses by itself", "check": "none: kernels of the library"},
        cases=cases,
        notes=[*_totals(cases), *_failures(record.shapes)],
    )  # fmt: skip


def _named(cases: Sequence[Case]) -> list[Case]:
    """With a number behind the name of those that differ only in what their name leaves out."""
    seen = Counter[str]()
    found = []
    for one in cases:
        seen[one.name] += 1
        found.append(replace(one, name=f"{one.name} #{seen[one.name]}") if seen[one.name] > 1 else one)
    return found


def _versions(record: Record) -> dict[str, str]:
    found = {"rocm": record.stack.rocm, "hipblaslt": record.stack.hipblaslt, "measured": record.measured}
    return {name: value for name, value in found.items() if value}


def _case(one: Finished, count: int) -> Case:
    call = calls.parse(one.command)
    key = call.key if call else None
    before, after = one.default_us, one.entry.us if one.entry else None
    shown: dict[str, Any] = {"size": "?", "layout": "?", "dtype": "?"}
    flops = 0
    if key:
        # row-major, as all benchmarks name shapes
        problem = hipblaslt.problem_of(key.m, key.n, key.k, key.trans_a, key.trans_b, key.a_type)
        shown = {"size": f"{problem.m}x{problem.n}x{problem.k}", "layout": problem.layout, "dtype": problem.dtype}
        flops = problem.flops * key.batch
    return Case(
        name=str(key or one.command),
        parameters={**shown, "count": count, "batch": key.batch if key else None},
        samples_s=[after / 1e6] if after else [],
        median_s=after / 1e6 if after else None,
        unit="speed-up",
        value=before / after if before and after else None,
        verified=one.entry is not None,
        error=one.failed or None,
        derived={
            "default_us": before, "tuned_us": after, "speed_up": before / after if before and after else None,
            "tflops": flops / after / 1e6 if after else None, "kernel": one.entry.kernel if one.entry else "",
            "solution": str(one.entry.solution) if one.entry else "failed", "method": one.method, "gpu": one.gpu,
            "command": one.command,
        },
    )  # fmt: skip


def _totals(cases: Sequence[Case]) -> list[str]:
    """What all shapes come to, each as often as it was called."""
    known = [(one.parameters["count"], one.derived) for one in cases if one.value is not None]
    before = sum(count * found["default_us"] for count, found in known)
    after = sum(count * found["tuned_us"] for count, found in known)
    if not after:
        return ["no shape has a time before and after: there is no speed-up"]
    slower = sum(found["speed_up"] < 1 for _, found in known)
    return [
        f"all calls take {before / 1e3:.4g} ms by default, {after / 1e3:.4g} ms tuned: speed-up {before / after:.3f}",
        *[f"{slower} shapes are slower tuned than by default: the times are within the noise of each other"]
        * bool(slower),
    ]


def _failures(shapes: Iterable[tuple[Finished, int]]) -> list[str]:
    return [f"not tuned: {one.command}: {one.failed}" for one, _ in shapes if one.failed]


def sheet(found: Document) -> Sheet:
    """The table, the calls that take longest by default first."""
    device = found.device
    versions = ", ".join(f"{name} {value}" for name, value in found.versions.items() if name != "measured")
    heading = (
        f"GEMM tuning: {len(found.cases)} shapes, {sum(one.parameters['count'] for one in found.cases)} calls",
        f"on:   {' '.join(filter(None, (device['name'], device['architecture'])))}",
        f"by:   {calls.COMMAND}, {versions}",
    )
    records = sorted((one.record() for one in found.cases), key=_weight, reverse=True)
    return Sheet("GEMM tuning", heading, _COLUMNS, records, found.versions, tuple(found.notes))


def _weight(record: dict[str, Any]) -> float:
    return float(record["count"] * (record["default_us"] or 0))
