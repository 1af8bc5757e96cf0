"""What the traces of a run say: the parts of a step, by kind and by operation, and how the ranks differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from primus_report.figures.figure import Figure, unknown
from primus_report.traces import events, find, ranks
from primus_report.traces.ranks import Operation, RankTrace

__all__ = ["Traced", "figures", "parts", "read"]

_MOST = 16
"""So many files are read; of more, some that are spread evenly over the ranks."""
_NONE = "no trace was recorded; of a training, `train ... --profile STEPS` records one"
_PARTS = (
    ("trace_compute", "compute, of the profiled time", "compute_s"),
    ("trace_exposed", "exposed communication", "exposed_s"),
    ("trace_communication_all", "communication, hidden or not", "communication_s"),
    ("trace_data_wait", "idle, waiting for data", "data_s"),
    ("trace_idle_all", "idle", "idle_s"),
)


@dataclass(frozen=True, slots=True)
class Traced:
    """The traces of a run. Nothing in it: there are none."""

    ranks: tuple[RankTrace, ...] = ()
    operations: tuple[Operation, ...] = ()
    """Of all ranks together, the longest first."""
    notes: tuple[str, ...] = ()


def read(directory: str) -> Traced:
    """The traces of the run in `directory`."""
    paths = find.files(directory)
    chosen = paths if len(paths) <= _MOST else [paths[number * len(paths) // _MOST] for number in range(_MOST)]
    found = [one for path in chosen for one in ranks.summed(events.read(path), directory)]
    notes = [f"{one.file} was not read whole: {one.problem}" for one in found if one.problem]
    notes += [f"{len(chosen)} of {len(paths)} traces were read"] if len(chosen) < len(paths) else []
    notes += ["no trace has an operation of a device"] if paths and not found else []
    return Traced(tuple(found), _together(found), tuple(notes))


def _together(found: Iterable[RankTrace]) -> tuple[Operation, ...]:
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    calls: defaultdict[tuple[str, str], int] = defaultdict(int)
    for rank in found:
        for one in rank.operations:
            seconds[one.name, one.kind] += one.seconds
            calls[one.name, one.kind] += one.calls
    longest = sorted(seconds, key=lambda key: -seconds[key])
    return tuple(Operation(*key, seconds[key], calls[key]) for key in longest)


def figures(traced: Traced) -> dict[str, Figure]:
    """Shares of the profiled time, the mean of all ranks."""
    found = {name: _share(traced, name, title, field) for name, title, field in _PARTS}
    found["trace_gemm"] = _of_kind(traced, "gemm", "GEMM, of the time of operations")
    return found | {"rank_skew": _skew(traced.ranks)}


def _share(traced: Traced, name: str, title: str, field: str) -> Figure:
    del name
    if not traced.ranks:
        return unknown(title, "share", _NONE)
    value = fmean(one.share(getattr(one, field)) for one in traced.ranks)
    return Figure(title, value, "share", f"{len(traced.ranks)} traced devices, the mean")


def _of_kind(traced: Traced, kind: str, title: str) -> Figure:
    total = sum(sum(one.kinds.values()) for one in traced.ranks)
    if not total:
        return unknown(title, "share", _NONE)
    value = sum(one.kinds.get(kind, 0.0) for one in traced.ranks) / total
    return Figure(title, value, "share", f"{len(traced.ranks)} traced devices, summed over streams")


def _skew(found: Sequence[RankTrace]) -> Figure:
    """By how much the rank that computes longest is above the mean."""
    title = "difference between ranks"
    if len(found) < 2:
        return unknown(title, "share", "only one device was traced" if found else _NONE)
    times = [one.compute_s for one in found]
    mean = fmean(times)
    value = max(times) / mean - 1 if mean else 0.0
    return Figure(title, value, "share", f"compute of {len(found)} traced devices: the longest above the mean")


def parts(traced: Traced, useful: float | None) -> dict[str, float | None]:
    """What the rules for bottlenecks look at: parts of the whole run, if all its steps are as those in the traces.

    On a CPU, the time between two operations is the interpreter's, and no fault of the run.
    """
    if not traced.ranks or useful is None:
        return {}
    of_gpus = [one for one in traced.ranks if one.on_gpu]
    skew = _skew(traced.ranks).value
    found: dict[str, float | None] = {
        "trace_communication": useful * fmean(one.share(one.exposed_s) for one in traced.ranks),
        "trace_data": useful * fmean(one.share(one.data_s) for one in traced.ranks),
        "trace_skew": None if skew is None else useful * skew,
    }
    if of_gpus:
        found["trace_idle"] = useful * fmean(one.share(one.idle_s - one.data_s) for one in of_gpus)
    return found
