"""What `bench io` found: the common document, and a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primus_bench.benchmarks.io.options import Settings
from primus_bench.measure import where
from primus_bench.report.document import Case, Document
from primus_bench.report.sheet import Sheet
from primus_machine.units import counted

__all__ = ["Pass", "document", "sheet"]

_TRANSFERS = ("write", "read")
_COLUMNS = {
    "operation": ("operation", "s"), "ranks": ("ranks", "d"), "amount": ("each\nrank", "s"), "passes": ("runs", "d"),
    "median_s": ("median\ns", ".4f"), "min_s": ("min\ns", ".4f"), "max_s": ("max\ns", ".4f"), "value": ("value", ".4g"),
    "unit": ("", "s"), "cached_percent": ("% in\nmemory", ".0f"), "slowest": ("slowest\nrank", "s"),
}  # fmt: skip


class Pass(NamedTuple):
    """One operation, once: the seconds of each rank, on rank 0."""

    operation: str
    ranks: int
    """How many took part, the first ones."""
    seconds: Sequence[float]
    returned: Sequence[float] = ()
    """Of a write: until the last call returned, and the data may still be in memory."""
    cached: Sequence[float | None] = ()
    """Of a read: the share of the file that was in memory before."""
    tokens: int = 0
    """Of a loader: how many each rank has got."""

    @property
    def slowest(self) -> int:
        """The rank that took longest: all wait for it."""
        return max(range(self.ranks), key=self.seconds.__getitem__)


def _case(passes: Sequence[Pass], settings: Settings, hosts: Sequence[str]) -> Case:
    """All passes of one operation with as many ranks."""
    operation, count = passes[0].operation, passes[0].ranks
    form = _form(passes[0], settings)
    samples = [one.seconds[one.slowest] for one in passes]
    median = statistics.median(samples)
    slowest = max(passes, key=lambda one: one.seconds[one.slowest]).slowest
    return Case(
        name=f"{operation}/{count}",
        parameters={"operation": operation, "ranks": count, **form.parameters},
        samples_s=samples,
        median_s=median,
        unit=form.unit,
        value=form.amount * count / median / form.scale,
        verified=True,
        error=None,
        derived={
            "passes": len(passes),
            "min_s": min(samples),
            "max_s": max(samples),
            **_of_kind(passes, settings.size),
        },
        rank=slowest,
        node=hosts[slowest],
    )


class _Form(NamedTuple):
    """What a rank does in a pass, and how its speed is written."""

    amount: int
    parameters: Mapping[str, Any]
    unit: str
    scale: float = 1


def _form(one: Pass, settings: Settings) -> _Form:
    if one.operation in _TRANSFERS:
        return _Form(settings.size, {"bytes": settings.size}, "GB/s", 1e9)
    if one.operation == "loader":
        asked = {"tokens": one.tokens, "seq_len": settings.seq_len, "workers": settings.workers}
        return _Form(one.tokens, asked, "tokens/s")
    return _Form(settings.files, {"files": settings.files}, "op/s")


def _of_kind(passes: Sequence[Pass], size: int) -> dict[str, Any]:
    """What only writes, or only reads, have."""
    first = passes[0]
    if first.operation == "write":
        returned = statistics.median(max(one.returned[: one.ranks]) for one in passes)
        return {"gb_per_s_without_fsync": size * first.ranks / returned / 1e9}
    if first.cached:
        shares = [share for one in passes for share in one.cached[: one.ranks]]
        known = [share for share in shares if share is not None]
        return {"cached_percent": 100 * max(known) if len(known) == len(shares) else None}
    return {}


def document(settings: Settings, hosts: Sequence[str], passes: Sequence[Pass], file_system: str) -> Document:
    """Everything, for all runs of this benchmark alike."""
    kinds = dict.fromkeys((one.operation, one.ranks) for one in passes)
    cases = [_case([one for one in passes if (one.operation, one.ranks) == kind], settings, hosts) for kind in kinds]
    return Document(
        benchmark="io",
        parameters={"operations": settings.operations, "directory": settings.directory, "size": settings.size,
                    "block": settings.block, "files": settings.files, "repeat": settings.repeat,
                    "data": settings.data, "seq_len": settings.seq_len, "workers": settings.workers},
        **where.measured({"kind": "file system", "name": file_system or None}, hosts),
        method={"write": "new files; until fsync of the file and of its folder has returned",
                "read": "files of another node where there are several; the kernel is asked to drop their pages before",
                "loader": "samples in random order from a memory-mapped file, with torch's DataLoader; from its first "
                "batch to its last",
                "pass": "as long as on the slowest rank", "check": "the whole content is read again and compared"},
        cases=cases,
        notes=_notes(cases),
    )  # fmt: skip


def _notes(cases: Sequence[Case]) -> list[str]:
    reads = [case for case in cases if "cached_percent" in case.derived]
    shares = [case.derived["cached_percent"] for case in reads]
    if None in shares:
        return ["the kernel does not say what of the files was in memory: the reads may not have reached the storage"]
    if any(share > 1 for share in shares):
        return [f"up to {max(shares):.0f} % of the files were in memory: such reads do not reach the storage"]
    return []


def sheet(found: Document) -> Sheet:
    """The table."""
    asked, machine = found.parameters, found.machine
    heading = (
        f"io:   {counted(machine['ranks'], 'rank')} on {', '.join(machine['nodes'])}",
        f"on:   {asked['directory']} ({found.device['name'] or 'unknown file system'})",
        f"data: blocks of {asked['block'] / 2**20:.4g} MiB; writes with fsync; contents checked",
    )
    return Sheet("Storage", heading, _COLUMNS, list(map(_record, found.cases)), found.versions, tuple(found.notes))


def _record(found: Case) -> Mapping[str, Any]:
    """One form for transfers and metadata."""
    asked = dict.fromkeys(("bytes", "files", "tokens", "seq_len", "workers"))
    flat = {**asked, "gb_per_s_without_fsync": None, "cached_percent": None, **found.record()}
    amount = f"{flat['bytes'] / 2**20:.4g} MiB" if flat["bytes"] else f"{flat['files'] or flat['tokens']} "
    amount += "" if flat["bytes"] else "files" if flat["files"] else "tokens"
    del flat["median_ms"]
    return {**flat, "amount": amount, "value": found.value, "unit": found.unit, "median_s": found.median_s}
