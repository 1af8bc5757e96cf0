"""Looks for signatures in one log, or in a part of one, in memory that does not grow with it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from primus_core.config import submission
from primus_diagnose.lines import prefix, times
from primus_diagnose.lines.clean import shown, without_controls
from primus_diagnose.lines.level import is_information
from primus_diagnose.scan.prefilter import DIAGNOSIS, Prefilter
from primus_diagnose.scan.progress import TAIL, steady_until
from primus_diagnose.scan.source import Source, blocks
from primus_diagnose.scan.stacks import HEAD, Stack, Stacks
from primus_diagnose.scan.stacks import SIGNATURE as STACK
from primus_diagnose.scan.tally import MOST, FileResult
from primus_diagnose.scan.tracebacks import Tracebacks, exception_of, is_begin
from primus_diagnose.signatures.signature import Signature
from primus_diagnose.verdict import Hit

__all__ = ["EXCEPTION", "Scanner", "scan"]

EXCEPTION = "python.exception"
"""The signature of an exception that no other one knows."""
_WINDOW = (4096, 8192)
"""Of a very long line, so much before and behind what was found is looked at."""
_CONTEXT = 8192
"""How far above a line a time is looked for."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that was found."""

    text: str
    writer: prefix.Writer
    number: int
    offset: int
    start: int
    """In its block."""


class Scanner:
    """All signatures, ready to be looked for."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.signatures = tuple(signatures)
        self.noise = [one for one in signatures if one.role == "noise"]
        self.prefilter = cache(self._without)

    def _without(self, full: frozenset[str]) -> Prefilter:
        return Prefilter(one for one in self.signatures if one.id not in full)

    def scan(self, source: Source, start: int = 0, end: int | None = None) -> FileResult:
        """What the part from `start` to `end` holds. Lines are numbered from the part's beginning."""
        part = _Part(self, source)
        try:
            for offset, data in blocks(source, start, end):
                part.feed(offset, data)
            part.close()
        except (OSError, EOFError) as error:
            part.result.skipped = getattr(error, "strerror", "") or str(error)
        return part.result


def scan(signatures: Sequence[Signature], source: Source) -> FileResult:
    """What a source holds, read in this process."""
    return Scanner(signatures).scan(source)


class _Part:
    """One pass over a log."""

    def __init__(self, scanner: Scanner, source: Source) -> None:
        self.scanner, self.source = scanner, source
        self.result = FileResult(source.shown or source.path)
        self.traces, self.stacks = Tracebacks(), Stacks()
        self.in_diagnosis = False
        self.heads: dict[object, _Line] = {}
        self.lines = 0
        self.tail = b""
        self.year = times.year_of(_changed(source))
        self.last_time = source.time
        self.timed: tuple[bytes, int, float | None] = (b"", 0, None)
        """A block, how far it was searched for times, and what was found."""

    def feed(self, offset: int, raw: bytes) -> None:
        """The next whole lines."""
        data = without_controls(raw)
        position, counted = 0, 0
        while position < len(data) and (span := self._next(data, position)):
            start, stop = _bounds(data, *span)
            self.lines += data.count(b"\n", counted, start)
            counted = start
            self._look(data[start:stop], _Line("", prefix.Writer(), self.lines + 1, offset + start, start), data)
            position = stop + 1
        self.lines += data.count(b"\n", counted)
        self.result.size += len(raw)
        self.tail = (self.tail + data)[-TAIL:] if len(data) < TAIL else data[-TAIL:]
        self._remember_time(data)

    def close(self) -> None:
        """All has been read."""
        for key, stack in self.stacks.close().items():
            self._add_stack(key, stack, 0, b"")
        self.result.lines = self.lines
        if not (self.source.is_record or self.source.is_late):
            self.result.steady_until = steady_until(self.tail, self.lines - self.tail.count(b"\n") + 1)

    def _next(self, data: bytes, position: int) -> tuple[int, int] | None:
        """The next place to look at: any line while a traceback is open."""
        if self.traces or self.stacks or self.in_diagnosis:
            end = data.find(b"\n", position)
            return (position, position if end < 0 else end)
        return self._filter().next_match(data, position)

    def _filter(self) -> Prefilter:
        return self.scanner.prefilter(frozenset(self.result.full))

    def _remember_time(self, data: bytes) -> None:
        found = times.latest_before(data[-_CONTEXT:].decode("utf-8", "replace"), self.year)
        self.last_time = found if found is not None else self.last_time

    def _look(self, raw: bytes, at: _Line, data: bytes) -> None:
        writer, text = prefix.split(raw.decode("utf-8", "replace").rstrip("\r\n"))
        self.in_diagnosis = text.startswith(DIAGNOSIS) or (self.in_diagnosis and text.startswith("  "))
        if self.in_diagnosis:  # an earlier one: it quotes what is found at its own place
            return
        line = _Line(text, writer, at.number, at.offset, at.start)
        self.result.has_tasks |= writer.task is not None and (writer.rank is not None or writer.local is not None)
        key = writer._replace(stamp="")
        if stack := self.stacks.follow(key, text):
            self._add_stack(key, stack, line.start, data)
        if text.rstrip().endswith(HEAD):
            self.heads[key] = line
            self.stacks.begin(key)
            return
        if is_begin(text):
            self.traces.begin(key, text)
            return
        trace = self.traces.follow(key, text)
        if trace and trace.rank is not None:
            line = replace(line, writer=writer._replace(rank=trace.rank))
        found = [] if self.traces.in_code else self._matching(raw, text)
        if trace and not found and (named := exception_of(trace.last)):
            found = [(EXCEPTION, {"type": shown(named[0]), "message": shown(named[1])})]
        if found and self._is_outside(line):
            self.result.outside += 1
            return
        hits = [self._add(signature, line, data, groups, trace.code if trace else "") for signature, groups in found]
        if trace:
            trace.hits = hits
            for hit in trace.caught.hits if trace.caught else ():
                self.result.remove(hit)

    def _add_stack(self, key: object, stack: Stack, start: int, data: bytes) -> None:
        head = replace(self.heads[key], start=start)
        self._add(STACK, head, data, {"collective": shown(stack.collective)}, stack.code)

    def _matching(self, raw: bytes, text: str) -> list[tuple[str, dict[str, str]]]:
        matches = [(one, match) for one in self._filter().candidates(raw) if (match := one.search(text))]
        if matches and (is_information(text) or any(one.search(text) for one in self.scanner.noise)):
            matches = [(one, match) for one, match in matches if one.role in ("noise", "evidence") or one.persists]
        return [(one.id, _shown(one.groups(match))) for one, match in matches]

    def _add(self, name: str, line: _Line, data: bytes, groups: dict[str, str], code: str) -> Hit:
        writer = line.writer
        rank = writer.rank if writer.rank is not None else self._rank(writer)
        if rank is None and groups.get("rank", "").isdecimal():
            rank = int(groups["rank"])
        hit = Hit(
            signature=name,
            text=shown(line.text),
            file=self.result.path,
            line=0 if self.source.is_record else line.number,
            offset=line.offset,
            rank=rank,
            node=shown(groups.get("host", "") or writer.node or self.source.node or self._task_node(writer)),
            time=self._time(line, data),
            groups=groups,
            code=shown(submission.original(code)),
        )
        if self.result.add(hit) >= MOST:
            self.result.full.add(name)
        return hit

    def _rank(self, writer: prefix.Writer) -> int | None:
        if self.source.rank is not None:
            return self.source.rank
        return None if self.result.has_tasks else writer.task

    def _task_node(self, writer: prefix.Writer) -> str:
        return str(writer.task) if self.result.has_tasks and writer.task is not None else ""

    def _time(self, line: _Line, data: bytes) -> float | None:
        if self.source.is_record or self.source.is_late:
            return self.source.time
        stamped = times.of_line(line.writer.stamp or line.text, self.year)
        if stamped is None:
            stamped = self._time_above(data, line.start)
        return stamped if stamped is not None else self.last_time

    def _is_outside(self, line: _Line) -> bool:
        """Check whether the line itself says a time before or after the run."""
        if not (period := self.source.period):
            return False
        stamped = times.of_line(line.writer.stamp or line.text, times.year_of(period[0]))
        return stamped is not None and not period[0] <= stamped <= period[1]

    def _time_above(self, data: bytes, end: int) -> float | None:
        """The last time that is said before `end`; what was looked at for the last line is not looked at again."""
        block, until, found = self.timed
        is_near = block is data and 0 <= end - until <= _CONTEXT
        above = data[until if is_near else max(end - _CONTEXT, 0) : end].decode("utf-8", "replace")
        stamped = times.latest_before(above, self.year)
        self.timed = (data, end, found if stamped is None and is_near else stamped)
        return self.timed[2]


def _bounds(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The line around what was found, without what a progress bar wrote over; of a very long one, what is near."""
    first = max(start - _WINDOW[0], 0)
    line_start = max(data.rfind(b"\n", first, start), data.rfind(b"\r", first, start)) + 1 or first
    ends = [at for at in (data.find(b"\n", end, end + _WINDOW[1]), data.find(b"\r", end, end + _WINDOW[1])) if at >= 0]
    return line_start, min(ends, default=min(end + _WINDOW[1], len(data)))


def _shown(groups: Mapping[str, str]) -> dict[str, str]:
    return {name: shown(value) for name, value in groups.items()}


def _changed(source: Source) -> float:
    try:
        return os.stat(source.path).st_mtime
    except OSError:
        return source.time or time.time()
