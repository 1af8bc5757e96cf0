"""The worker of `bench memory`, one for each device: check each operation, then measure it, all devices at once.

It runs alone too: `python -m primus_bench.benchmarks.memory.worker --device cpu --op triad`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from primus_bench.benchmarks.memory import options
from primus_bench.benchmarks.memory.options import Settings
from primus_bench.benchmarks.memory.work import DTYPES, arrays, make
from primus_bench.measure import machine, where
from primus_bench.measure.device import Device
from primus_bench.measure.progress import logged
from primus_bench.measure.ranks import Ranks
from primus_bench.measure.start import start
from primus_bench.measure.together import WARM_UP, Together, always, timed
from primus_bench.options import parsed
from primus_bench.report.document import Case, Document
from primus_bench.report.files import prepare
from primus_bench.report.outcome import publish
from primus_bench.report.sheet import Sheet
from primus_core.errors import MachineError
from primus_machine.host import HostRoot
from primus_machine.units import counted

__all__ = ["main"]

_CACHES = 4
"""Arrays are so many times the last-level cache, as STREAM has it."""
_COLUMNS = {
    "operation": ("operation", "s"), "mib": ("array\nMiB", ".0f"), "ranks": ("ranks", "d"), "iterations": ("runs", "d"),
    "median_ms": ("median\nms", ".4f"), "p95_ms": ("p95\nms", ".4f"), "max_ms": ("max\nms", ".4f"),
    "gb_per_s": ("GB/s of\nslowest", ".4g"), "total_gb_per_s": ("GB/s\ntogether", ".4g"),
    "slowest": ("slowest\nrank", "s"),
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Measure what `argv` asks for; rank 0 prints and writes the result."""
    settings = options.settle(parsed("memory", options.declare, argv), torch.cuda.is_available())
    ranks, device = start(settings.device)
    first = ranks.place.rank == 0
    if first:
        prepare(settings.outputs)
    size = settings.size or _size(device, ranks)
    _require_memory(size, settings, ranks)
    with logged(here=first) as progress:
        cases = []
        for operation in settings.operations:
            progress(f"measuring {operation}")
            cases.append(_measured(operation, size, settings, ranks))
    if first:
        found = _document(settings, size, device, ranks, cases)
        publish(found, _sheet(found), settings.outputs, json=settings.json)
    return 0


def _size(device: Device, ranks: Ranks) -> int:
    """More than the caches hold, and the same on all ranks."""
    wanted = 2**30 if device.kind == "cuda" else max(64 * 2**20, _CACHES // 2 * device.rotation_bytes)
    share = 1 if device.kind == "cuda" else ranks.place.local_world
    return int(min(ranks.exchange(min(wanted, device.memory_bytes // share // 4))))


def _require_memory(size: int, settings: Settings, ranks: Ranks) -> None:
    """Refuse what does not fit, on all ranks alike."""
    needed = size * max(map(arrays, settings.operations))
    host = (machine.available_memory(HostRoot()) or 2**62) // ranks.place.local_world
    free = torch.cuda.mem_get_info()[0] if settings.device == "cuda" else host
    if (least := min(ranks.exchange(free))) < needed:
        raise MachineError(f"arrays of {size / 2**30:.2f} GiB need {needed / 2**30:.2f} GiB on each rank",
                           why=f"one has {least / 2**30:.2f} GiB", fix="choose a smaller --size")  # fmt: skip


def _measured(operation: str, size: int, settings: Settings, ranks: Ranks) -> Case | None:
    """One operation; the case on rank 0."""
    work = make(operation, size, DTYPES[settings.dtype], settings.device)
    ranks.require_right(operation, work.wrong())
    found = timed(always(work.run), settings.device, settings.duration_s, ranks)
    ranks.require_right(operation, work.wrong())
    return _case(operation, size, work.bytes_moved, found, ranks.hosts) if found else None


def _case(operation: str, size: int, moved: int, found: Together, hosts: Sequence[str]) -> Case:
    latency, speeds = found.latency, [moved / ms / 1e6 for ms in found.medians_ms]
    return Case(
        name=operation,
        parameters={"operation": operation, "array_bytes": size, "ranks": len(hosts)},
        unit="GB/s",
        value=speeds[found.slowest],
        verified=True,
        error=None,
        derived={
            **latency.spread(), "bytes_moved": moved, "gb_per_s": speeds[found.slowest],
            "gb_per_s_of_ranks": speeds, "total_gb_per_s": sum(speeds),
        },
        **found.of_slowest(hosts),
    )  # fmt: skip


def _document(settings: Settings, size: int, device: Device, ranks: Ranks, cases: Sequence[Case | None]) -> Document:
    share = size * 2 / device.rotation_bytes
    notes = [] if share >= 1 else ["the last-level cache may hold the arrays: choose a larger --size"]
    return Document(
        benchmark="memory",
        parameters={"operations": settings.operations, "array_bytes": size, "dtype": settings.dtype,
                    "duration_s": settings.duration_s},
        **where.measured(where.described(device), ranks.hosts),
        method={"timer": where.timer(device.kind), "warm_up": WARM_UP,
                "bytes": "copy: read and written once; triad a = b + 3·c: two read, one written; h2d, d2h: once",
                "check": "the whole result, before and after the timed iterations, exact"},
        cases=[case for case in cases if case],
        notes=notes,
    )  # fmt: skip


def _sheet(found: Document) -> Sheet:
    device, ranks = found.device, counted(found.machine["ranks"], "rank")
    units = counted(device["compute_units"], "thread" if device["kind"] == "cpu" else "compute unit")
    heading = (
        f"memory: {ranks} on {', '.join(found.machine['nodes'])}, {found.parameters['dtype']}",
        f"on:     {device['name']} ({units} for each rank)",
        "data:   whole numbers; results checked",
    )
    return Sheet("Memory", heading, _COLUMNS, list(map(_record, found.cases)), found.versions, tuple(found.notes))


def _record(found: Case) -> dict[str, Any]:
    return {**found.record(), "mib": found.parameters["array_bytes"] / 2**20}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
