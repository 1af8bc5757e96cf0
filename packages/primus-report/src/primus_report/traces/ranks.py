"""What a device did in the profiled steps: compute, communication that compute hides or not, waits for data, idle.

**Definitions**, all by the union of intervals over the streams of a device, from its first operation to its last:
`communication` are the moments of an operation of that kind, `compute` those of any other operation, `exposed` those of
communication without any other operation, `idle` the rest; `data` those of the idle ones in which the host waited for a
batch. So compute + exposed + idle is the whole. Where nothing ran on a GPU, the operations on the CPU count in its
place. Of nested operations the innermost counts.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from primus_report.traces import kinds
from primus_report.traces.events import Lane, Trace
from primus_report.traces.intervals import Interval, length, own_parts, shared, union

__all__ = ["Operation", "RankTrace", "summed"]

_OPERATIONS = 200
_OF_NAME = re.compile(r"rank[-_]?(\d{1,7})")


@dataclass(frozen=True, slots=True)
class Operation:
    """All calls of one operation on one device."""

    name: str
    kind: str
    seconds: float
    calls: int


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One device in one trace. Seconds."""

    name: str
    """`rank 3`; of several devices of one process, with the device."""
    file: str
    on_gpu: bool
    span_s: float
    compute_s: float
    communication_s: float
    exposed_s: float
    data_s: float
    idle_s: float
    kinds: dict[str, float]
    """Seconds by kind of operation, summed over streams."""
    operations: tuple[Operation, ...]
    problem: str = ""

    def share(self, seconds: float) -> float:
        """A part of the span."""
        return seconds / self.span_s if self.span_s else 0.0


def summed(trace: Trace, directory: str) -> list[RankTrace]:
    """The devices of a trace; of one without GPUs, all its threads together."""
    file = os.path.relpath(trace.path, directory)
    found = re.search(_OF_NAME, os.path.basename(trace.path))
    rank = trace.rank if trace.rank is not None else int(found[1]) if found else None
    name = f"rank {rank}" if rank is not None else os.path.basename(trace.path).partition(".")[0]
    devices: defaultdict[str, list[Lane]] = defaultdict(list)
    for (device, _), lane in trace.devices.items():
        devices[device].append(lane)
    if not devices:
        return [_of_device(trace, name, file, list(trace.host.values()), on_gpu=False)] if trace.host else []
    several = len(devices) > 1
    return [
        _of_device(trace, f"{name}, device {device}" if several else name, file, lanes, on_gpu=True)
        for device, lanes in sorted(devices.items())
    ]


def _of_device(trace: Trace, name: str, file: str, lanes: Sequence[Lane], *, on_gpu: bool) -> RankTrace:
    work = _Work(trace.names)
    for lane in lanes:
        work.add(lane)
    others, talk = union(work.others), union(work.talk)
    busy = union([*others, *talk])
    begin, end = busy[0][0] if busy else 0.0, busy[-1][1] if busy else 0.0
    idle = _between(busy)
    exposed = length(talk) - shared(talk, others)
    return RankTrace(
        name=name,
        file=file,
        on_gpu=on_gpu,
        span_s=(end - begin) / 1e6,
        compute_s=length(others) / 1e6,
        communication_s=length(talk) / 1e6,
        exposed_s=exposed / 1e6,
        data_s=shared(idle, union(trace.waits)) / 1e6,
        idle_s=length(idle) / 1e6,
        kinds={kind: seconds / 1e6 for kind, seconds in sorted(work.kinds.items(), key=lambda one: -one[1])},
        operations=work.operations(),
        problem=trace.problem,
    )


def _between(busy: Sequence[Interval]) -> list[Interval]:
    return [(one[1], other[0]) for one, other in zip(busy, busy[1:], strict=False)]  # noqa: RUF007  # pairs of a list


class _Work:
    """Adds up the operations of a device."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.talk: list[Interval] = []
        self.others: list[Interval] = []
        self.kinds: defaultdict[str, float] = defaultdict(float)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)

    def add(self, lane: Iterable[tuple[float, float, int]]) -> None:
        """The operations of one stream or thread."""
        events = list(lane)
        for _, _, number in events:
            self.calls[self.names[number]] += 1
        for begin, end, number in own_parts(events):
            name = self.names[number]
            kind = kinds.kind(name)
            (self.talk if kind == kinds.COMMUNICATION else self.others).append((begin, end))
            self.kinds[kind] += end - begin
            self.seconds[name] += end - begin

    def operations(self) -> tuple[Operation, ...]:
        """The longest first, those of one operation together."""
        seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        for name, spent in self.seconds.items():
            key = kinds.operation(name), kinds.kind(name)
            seconds[key] += spent / 1e6
            calls[key] += self.calls[name]
        longest = sorted(seconds, key=lambda key: -seconds[key])[:_OPERATIONS]
        return tuple(Operation(name, kind, seconds[name, kind], calls[name, kind]) for name, kind in longest)
