"""The events of one trace file in Chrome's form, plain or gzipped, as torch's and JAX's profilers write it.

A file has millions of events and hundreds of megabytes: they are read as a stream, and of each only begin, end and a
number for its name are kept.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, TextIO

from primus_machine.files.atomic import regular
from primus_report.traces import kinds, stream

__all__ = ["Lane", "Trace", "read"]

_MOST = 20_000_000
"""More events of one file are not read."""
_HEAD = 1 << 20
"""Here stands the rank, if it does."""
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,7})')
_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
"""Torch's categories of what runs on a GPU."""


@dataclass(slots=True)
class Lane:
    """What one thread or stream did: begins, ends (microseconds) and numbers of names."""

    begins: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    names: array[int] = field(default_factory=lambda: array("l"))

    def __iter__(self) -> Iterator[tuple[float, float, int]]:
        return zip(self.begins, self.ends, self.names, strict=True)


Lanes = defaultdict[tuple[str, str], Lane]


def _lanes() -> Lanes:
    return defaultdict(Lane)


@dataclass(slots=True)
class Trace:
    """One file."""

    path: str
    rank: int | None = None
    names: list[str] = field(default_factory=list)
    devices: Lanes = field(default_factory=_lanes)
    """By device and stream: what ran on GPUs."""
    host: Lanes = field(default_factory=_lanes)
    """By process and thread: operations on the CPU."""
    waits: list[tuple[float, float]] = field(default_factory=list)
    """When the host waited for data."""
    steps: set[str] = field(default_factory=set)
    """Names of the steps in it."""
    problem: str = ""
    """Why not all of it was read."""


def read(path: str) -> Trace:
    """The events of a file. What cannot be read is said in `problem`, and what came before it counts."""
    trace = Trace(path)
    try:
        with open(path, "rb", opener=regular) as file:
            is_packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            plain: IO[bytes] = gzip.GzipFile(fileobj=file) if is_packed else file  # type: ignore[assignment]
            head = plain.read(_HEAD)
            trace.rank = int(found[1]) if (found := _RANK.search(head)) else None
            plain.seek(0)
            _Reader(trace).read(io.TextIOWrapper(plain, encoding="utf-8", errors="replace"))
    except (stream.Malformed, OSError, EOFError, zlib.error) as error:
        trace.problem = f"{type(error).__name__}: {str(error)[:200]}"
    return trace


class _Reader:
    """Sorts the events of a file into lanes."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.numbers: dict[str, int] = {}
        self.processes: dict[str, str] = {}
        self.threads: dict[tuple[str, str], str] = {}

    def read(self, file: TextIO) -> None:
        for count, event in enumerate(stream.objects(file, "traceEvents")):
            if count >= _MOST:
                self.trace.problem = f"it has more than {_MOST:,} events: the rest was left out"
                return
            if isinstance(event, dict):
                self.take(event)

    def take(self, event: Mapping[str, Any]) -> None:
        kind, name = event.get("ph"), event.get("name")
        lane = str(event.get("pid")), str(event.get("tid"))
        if not isinstance(name, str):
            return
        if kind == "M":
            self.name(name, lane, event.get("args"))
        elif kind == "X":
            begin, duration = event.get("ts", ""), event.get("dur", 0.0)
            if _is_number(begin) and _is_number(duration) and duration >= 0:
                self.put(event, name, lane, begin, begin + duration)

    def name(self, what: str, lane: tuple[str, str], args: Any) -> None:
        text = str(args.get("name")) if isinstance(args, dict) else ""
        if what == "process_name":
            self.processes[lane[0]] = text
        elif what == "thread_name":
            self.threads[lane] = text

    def put(self, event: Mapping[str, Any], name: str, lane: tuple[str, str], begin: float, end: float) -> None:
        category, trace = event.get("cat"), self.trace
        if name.startswith("ProfilerStep#"):
            trace.steps.add(name)
        elif category in _DEVICE or self.is_stream(lane):
            self.add(trace.devices[lane], name, begin, end)
        elif category == "cpu_op" or _is_of_xla(event) or (category == "user_annotation" and name.startswith("gloo:")):
            self.add(trace.host[lane], name, begin, end)
        if category != "cpu_op" and kinds.is_data(name):
            trace.waits.append((begin, end))

    def is_stream(self, lane: tuple[str, str]) -> bool:
        """Whether JAX's profiler names a device's stream so; the same work stands there in other lines, too."""
        return self.processes.get(lane[0], "").startswith("/device:GPU") and self.threads.get(lane, "").startswith(
            "Stream"
        )

    def add(self, lane: Lane, name: str, begin: float, end: float) -> None:
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.trace.names)
            self.trace.names.append(name)
        lane.begins.append(begin)
        lane.ends.append(end)
        lane.names.append(number)


def _is_of_xla(event: Mapping[str, Any]) -> bool:
    args = event.get("args")
    return isinstance(args, dict) and "hlo_op" in args


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
